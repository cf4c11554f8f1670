"""Predictions of cells from draws: one pass over draws and cells, in blocks, within a memory budget."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
from jax.scipy.special import logsumexp

from bayesfac.core.data.cells import Query
from bayesfac.core.data.tasks import Tasks
from bayesfac.core.errors import BayesfacError
from bayesfac.core.laws.labels import cut_of
from bayesfac.core.laws.ordinal import Levels
from bayesfac.core.math import normals, uniforms
from bayesfac.core.method import Method, from_sites
from bayesfac.inference.predictions.level_masses import CELLS, Tally, codes, tally
from bayesfac.inference.predictions.summaries import Summary, merged, shares, sorted_summary

MEMORY = 512 * 2**20  # bytes of intermediate results of one block, at most
OUTCOMES = 2000  # simulated outcomes per cell for intervals and CRPS, at least
USUAL = 0.9  # level of the interval that is kept when cells are scored
AVERAGES = ("score", "variance", "cdf", "below")


@dataclass(eq=False)
class Prediction:
    """The predictive distribution of every cell of a query, in the order of the query.

    `mean`, `sd` and `interval` describe the outcome, including the noise. `sd_mean` is the posterior
    standard deviation of the expected outcome alone (zero for a point fit). A `flagged` cell has a label
    without training data, so its prediction comes from the prior. Ratings on a scale of `levels` also have
    `probabilities` and `votes`, cells x levels, and `level`.
    """

    method: Method
    hyper: Any
    draws: Mapping[str, np.ndarray]  # a point fit has one chain of one draw
    query: Query
    labels: pd.DataFrame
    flagged: np.ndarray
    seed: int = 0
    levels: tuple[float, ...] | None = None
    memory: int = MEMORY
    _kept: dict[Any, Any] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.flagged)

    @property
    def mean(self) -> np.ndarray:
        """Expected outcome."""
        return self._moments()["mean"]

    @property
    def score(self) -> np.ndarray:
        """Numbers by which cells can be ranked: expected outcomes, for binary labels before clipping."""
        return self._moments()["score"]

    @property
    def sd(self) -> np.ndarray:
        """Standard deviation of the outcome, noise included."""
        return self._moments()["sd"]

    @property
    def sd_mean(self) -> np.ndarray:
        """Posterior standard deviation of the expected outcome."""
        return self._moments()["sd_mean"]

    def interval(self, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Equal-tailed predictive interval: (lower, upper) for every cell."""
        if not 0 < level < 1:
            raise ValueError(f"Expected a level between 0 and 1, got {level!r}")
        if level not in self._kept:
            self._kept[level] = tuple(self.quantiles(_tails(level)))
        return self._kept[level]

    def quantiles(self, tails: Sequence[float]) -> np.ndarray:
        """(tail, cell) quantiles of the predictive distribution, from one pass over the draws."""
        if not all(0 <= tail <= 1 for tail in tails):  # -0.1 would count from the other end
            raise ValueError(f"Expected probabilities from 0 to 1 as tails, got {tails!r:.60}")
        ends = [sorted_summary(block.outcome, None, tails)[0] for _, block in self._blocks()]
        return np.concatenate(ends, 1) if ends else np.zeros((len(tails), 0))

    @property
    def probabilities(self) -> np.ndarray:
        """(cell, level) predictive probability of each level, averaged over the draws.

        If a method predicts a continuous rating, a level has the probability of all ratings nearest to it.
        """
        return np.exp(self._tally().log_mass)

    @property
    def votes(self) -> np.ndarray:
        """(cell, level) share of the draws in which the method's rule predicts this level."""
        votes = self._tally().votes
        return votes / votes.sum(1, keepdims=True)

    @property
    def level(self) -> np.ndarray:
        """The predicted level: by the rule of the method for a point fit, or the median of the votes of the
        draws. For draws and labels, it is 1 if the probability is above `fit.cut`."""
        if self.method.data is Tasks and self.levels is not None and np.prod(self._shape) > 1:
            return np.asarray(self.levels)[(self.mean > cut_of(self.hyper)).astype(int)]
        return np.asarray(self.levels)[self._tally().median]

    def draws_of_mean(self) -> np.ndarray:
        """(chain, draw, cell) expected outcomes; an error if they do not fit in memory."""
        chains, draws = self._shape
        if chains * draws * len(self) * 8 > 4 * self.memory:
            raise MemoryError(
                f"Expected a query whose {chains * draws} draws fit in {4 * self.memory / 2**20:.0f} MiB, "
                f"got {len(self)} cells; ask for fewer cells at a time"
            )
        parts = []
        for at, query in self._cells(self._width(0, kept=1)):
            every = param_blocks(self.method, self.draws, len(query.row), self.memory)
            means = [np.asarray(means_by_draw(self.method, self.hyper, p, query)) for p in every]
            parts.append(np.concatenate(means)[:, : at.stop - at.start].T)
        return _joined(parts).T.reshape(chains, draws, len(self))

    def means_of_parts(self, count: int) -> np.ndarray:
        """(part, cell) means of consecutive parts of the draws: `count` parts or more, if there are draws."""
        chains, draws = self._shape
        pieces = np.array_split(np.arange(draws), min(draws, -(-count // chains)))
        parts = []
        for chain in range(chains):
            for piece in pieces:
                at = slice(piece[0], piece[-1] + 1)
                some = {site: value[chain : chain + 1, at] for site, value in self.draws.items()}
                parts.append(replace(self, draws=some, _kept={}).mean)
        return np.stack(parts)

    def scores(self, value: Any) -> dict[str, np.ndarray]:
        """Mean and sd of each cell, and its log_score, crps and pit for the observed value.

        The PIT of a discrete outcome is drawn uniformly between P(Y < y) and P(Y <= y), with the seed. For
        a scale of levels there are also ordinal_log_score, the log probability of the true level, and rps,
        the CRPS of the levels. Both can be compared between all methods.
        """
        truth = np.asarray(value, np.float64)
        if truth.shape != (len(self),) or not np.isfinite(truth).all():
            raise ValueError(
                f"Expected {len(self)} finite outcomes, got shape {truth.shape} or NaN in it"
            )
        of_levels = {}
        if self.levels is not None:
            of_levels = self._tally().scores(self.levels, codes(self.levels, truth))
        names = ("log_score", "crps", "cdf", "below", "ends")
        parts: dict[str, list[np.ndarray]] = {name: [] for name in names}
        for at, block in self._blocks(truth):
            ends, crps = sorted_summary(block.outcome, truth[at], _tails(USUAL))
            for name in ("log_score", "cdf", "below"):
                parts[name].append(getattr(block, name))
            parts["crps"].append(crps)
            parts["ends"].append(ends.T)
        scores = {name: _joined(p) for name, p in parts.items()}
        cdf, below, ends = (scores.pop(name) for name in ("cdf", "below", "ends"))
        self._kept[USUAL] = tuple(ends.reshape(-1, 2).T)  # the interval that is asked for next
        # other random numbers than a split by the same seed
        u = np.random.default_rng((self.seed, 1)).random(len(self))
        pit = np.clip(below + u * (cdf - below), 0, 1)
        return {"mean": self.mean, "sd": self.sd, **scores, "pit": pit, **of_levels}

    def frame(self, level: float = 0.9) -> pd.DataFrame:
        """Labels, mean, sd, interval and flag, as a table."""
        lower, upper = self.interval(level)
        numbers = {"mean": self.mean, "sd": self.sd, "lower": lower, "upper": upper}
        return self.labels.assign(**numbers, flagged=self.flagged)

    def __repr__(self) -> str:
        new = f", {int(self.flagged.sum())} predicted from the prior" if self.flagged.any() else ""
        return f"Prediction({len(self)} cells from {np.prod(self._shape)} draw(s) of {self.method.name}{new})"

    @property
    def _shape(self) -> tuple[int, int]:
        return next(iter(self.draws.values())).shape[:2]

    def _moments(self) -> dict[str, np.ndarray]:
        if "moments" not in self._kept:
            for _ in self._blocks(simulate=False):
                pass
        return self._kept["moments"]

    def _tally(self) -> Tally:
        if self.levels is None:
            what = "counts" if "view" in self.labels else "real values"
            raise ValueError(
                f"Expected ordinal ratings, got {what}: every method that is fitted to "
                "Ratings(..., levels=5) predicts levels"
            )
        if "tally" not in self._kept:
            width = max(1, min(len(self), CELLS, self.memory // (1024 * len(self.levels))))
            shape = (0, len(self.levels))
            parts = [Tally(np.zeros(shape), np.zeros(shape))]
            for at, query in self._cells(width):
                blocks = param_blocks(self.method, self.draws, width, self.memory)
                seen = tally(self.method, self.hyper, self.levels, blocks, query)
                parts.append(Tally(*(part[: at.stop - at.start] for part in seen)))
            self._kept["tally"] = Tally(*map(np.concatenate, zip(*parts, strict=True)))
        return self._kept["tally"]

    def _cells(self, width: int) -> Iterator[tuple[slice, Query]]:
        """Parts of `width` cells of the query, the last part padded, so that one program serves all."""
        for start in range(0, len(self), width):
            at = slice(start, min(start + width, len(self)))
            pad = (0, width - (at.stop - start))
            row, col = (
                np.pad(np.asarray(c)[at], [pad, *[(0, 0)] * (np.ndim(c) - 1)])
                for c in (self.query.row, self.query.col)
            )
            yield at, self.query._replace(row=row, col=col)

    def _width(self, arrays: int, kept: int) -> int:
        """The number of cells of a block. So many arrays of a chain fit in the memory, and so many that are
        kept for all chains. Blocks are equally long, so that little of the last one is padding."""
        chains, draws = self._shape
        most = int(np.clip(self.memory // (16 * draws * (arrays + chains * kept)), 1, 2**16))
        blocks = max(1, -(-len(self) // most))
        return max(1, -(-len(self) // blocks))

    def _blocks(
        self, value: np.ndarray | None = None, *, simulate: bool = True
    ) -> Iterator[tuple[slice, Summary]]:
        """Blocks of cells, for each a Summary of all draws; draws are read a block at a time. The moments of
        all cells are stored when the last block has been read."""
        repeat = -(-OUTCOMES // int(np.prod(self._shape))) if simulate else 0
        moments: dict[str, list[np.ndarray]] = {"mean": [], "score": [], "sd": [], "sd_mean": []}
        for at, query in self._cells(self._width(4, kept=repeat)):
            size, width = at.stop - at.start, len(query.row)
            own = np.zeros(size) if value is None else value[at]
            truth = jnp.asarray(np.pad(own, (0, width - size)))
            key = jax.random.fold_in(jax.random.key(self.seed), at.start)
            settings = self.method, self.hyper, repeat, value is not None
            parts = []
            every = param_blocks(self.method, self.draws, width, self.memory)
            for number, params in enumerate(every):
                mine = jax.random.fold_in(key, number)
                # in parts that XLA runs side by side; all are awaited before the next block is read
                begun = [
                    _predicted(*settings, some, query, truth, jax.random.fold_in(mine, i))
                    for i, some in enumerate(shares(params))
                ]
                parts += jax.device_get(begun)
            whole = merged(parts, size)
            for name, found in moments.items():
                found.append(getattr(whole, name))
            yield at, whole
        self._kept["moments"] = {k: _joined(p) for k, p in moments.items()}


def _tails(level: float) -> tuple[float, float]:
    return (1 - level) / 2, (1 + level) / 2


def param_blocks(
    method: Method, draws: Mapping[str, np.ndarray], width: int, memory: int
) -> Iterator[Any]:
    """Blocks of draws within `memory` bytes: Params with a leading axis of draws.

    A caller must wait for the results of one block before it takes the next one. Otherwise, queued work
    keeps its block in memory, and on a busy machine all blocks would be read before the first is done.
    """
    chains, length = next(iter(draws.values())).shape[:2]
    shapes = {site: value.shape[2:] for site, value in draws.items()}
    largest = max((shape[-1] for shape in shapes.values() if shape), default=1)
    bytes_each = 8 * sum(int(np.prod(s)) for s in shapes.values()) + 16 * width * largest
    size = int(np.clip(memory // bytes_each, 1, length))
    for chain in range(chains):
        for start in range(0, length, size):
            at = slice(start, start + size)
            yield from_sites(method, {s: np.array(x[chain, at]) for s, x in draws.items()})


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _predicted(
    method: Method, hyper: Any, repeat: int, scored: bool, params: Any, query: Query, value: Any, key: Any
) -> dict[str, Any]:  # fmt: skip
    """Averages over the draws for every cell, and their simulated outcomes; with `scored` also averages of
    density and CDF at the observed values."""

    def one(p: Any, key: jax.Array) -> dict[str, jax.Array]:
        outcome = method.predict(p, query, hyper)
        mean = outcome.mean
        seen = {"mean": mean, "variance": jnp.broadcast_to(outcome.variance, mean.shape)}
        seen["score"] = getattr(outcome, "score", mean)
        seen["outcome"] = simulated(outcome, key, repeat) if repeat else jnp.zeros((0, len(mean)))
        if scored and isinstance(outcome, dist.Delta):
            raise BayesfacError(f"{method.name} predicts probabilities, not outcomes: no scores")
        if scored:
            seen["log_prob"] = outcome.log_prob(value)
            seen["cdf"], seen["below"] = _cdf(outcome, value, seen)
        return seen

    draws = len(jax.tree.leaves(params)[0])
    # draw by draw, not vmapped: a method's `cond` runs one branch, and levels need little memory
    seen = jax.lax.map(lambda args: one(*args), (params, jax.random.split(key, draws)))
    about = seen["mean"][0]  # near the mean, so that little is lost where draws hardly differ
    mean = about + jnp.mean(seen["mean"] - about, 0)
    nothing = jnp.zeros_like(mean)
    averages = {k: jnp.mean(seen[k], 0) if k in seen else nothing for k in AVERAGES}
    return averages | {
        "draws": draws,
        "mean": mean,
        "spread": jnp.mean((seen["mean"] - mean) ** 2, 0),
        "log_mean": logsumexp(seen["log_prob"], 0) - np.log(draws) if scored else nothing,
        "outcome": jnp.reshape(seen["outcome"], (draws * repeat, len(mean))),
    }


@partial(jax.jit, static_argnums=(0, 1))
def means_by_draw(method: Method, hyper: Any, params: Any, query: Query) -> jax.Array:
    """(draw, cell) expected outcomes."""
    return jax.lax.map(lambda p: method.predict(p, query, hyper).mean, params)


def simulated(outcome: dist.Distribution, key: jax.Array, repeat: int) -> jax.Array:
    """Simulated outcomes, repeat x cells: quantiles of one point in each of `repeat` strata, or draws."""
    # for other distributions NumPyro has no quantiles, or only with packages that are not required here
    if not isinstance(outcome, dist.Normal | Levels):
        return outcome.sample(key, (repeat,))
    shape, dtype = (repeat, *outcome.mean.shape), outcome.mean.dtype
    if repeat == 1 and isinstance(outcome, dist.Normal):
        return outcome.loc + outcome.scale * normals(key, shape, dtype)
    u = uniforms(key, shape, dtype)
    # strata cover the whole distribution of every draw
    strata = (jnp.arange(repeat)[:, None] + u) / repeat
    return outcome.icdf(jnp.clip(strata, 1e-6, 1 - 1e-6))


def _cdf(outcome: dist.Distribution, value: Any, seen: Mapping[str, Any]) -> tuple[Any, Any]:
    """P(Y <= value), and P(Y < value), which is smaller where the outcome is discrete."""
    if isinstance(outcome, Levels):
        return outcome.cdf(value), outcome.below(value)
    if type(outcome).cdf is dist.Distribution.cdf:  # the law has none: by its simulated outcomes
        return (seen["outcome"] <= value).mean(0), (seen["outcome"] < value).mean(0)
    cdf = outcome.cdf(value)
    return cdf, cdf - jnp.exp(seen["log_prob"]) if outcome.is_discrete else cdf


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """The blocks of cells as one array; an empty one for an empty query."""
    return np.concatenate(parts) if parts else np.zeros(0)
