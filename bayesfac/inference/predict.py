"""What the parameters say about cells: one pass over draws and cells, in blocks, under a memory budget."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd

from bayesfac.core.cells import Grid, Query
from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import Method, from_sites

MEMORY = 512 * 2**20  # bytes of intermediate results that one block may take
OUTCOMES = 2000  # simulated outcomes per cell behind intervals and CRPS, at least


@dataclass(eq=False)
class Prediction:
    """The predictive distribution of every cell asked for, in the order asked.

    `mean`, `sd` and `interval` are of the outcome itself, noise included; `sd_mean` is the posterior
    uncertainty about its expected value alone (zero for a point fit). Where `flagged`, a label (or all
    its training data) was missing and the answer comes from the prior.
    """

    method: Method
    hyper: Any
    draws: Mapping[str, np.ndarray]  # a point fit has one chain of one draw
    query: Query
    labels: pd.DataFrame
    flagged: np.ndarray
    seed: int = 0
    memory: int = MEMORY
    _kept: dict[Any, Any] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.flagged)

    @property
    def mean(self) -> np.ndarray:
        """Expected outcome."""
        return self._moments()["mean"]

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
            tails = [(1 - level) / 2, (1 + level) / 2]
            ends = [np.quantile(b["outcome"], tails, axis=0) for _, b in self._blocks()]
            self._kept[level] = tuple(np.concatenate(ends, 1)) if ends else (np.zeros(0),) * 2
        return self._kept[level]

    def draws_of_mean(self) -> np.ndarray:
        """(chain, draw, cell) expected outcomes, for a query small enough to hold them all."""
        chains, draws = self._shape
        if chains * draws * len(self) * 8 > 4 * self.memory:
            raise MemoryError(
                f"Expected a query whose {chains * draws} draws fit in {4 * self.memory / 2**20:.0f} MiB, "
                f"got {len(self)} cells; ask for fewer at a time"
            )
        parts = [block["mean"].T for _, block in self._blocks()]
        return _joined(parts).T.reshape(chains, draws, len(self))

    def scores(self, value: Any) -> dict[str, np.ndarray]:
        """Per cell, against what came true: mean, sd, log_score, crps, pit (randomised nowhere)."""
        truth = np.asarray(value, np.float64)
        if truth.shape != (len(self),) or not np.isfinite(truth).all():
            raise ValueError(
                f"Expected {len(self)} finite outcomes, got shape {truth.shape} or NaN in it"
            )
        parts: dict[str, list[np.ndarray]] = {k: [] for k in ("log_score", "crps", "pit")}
        for at, block in self._blocks(truth):
            parts["log_score"].append(_log_mean_exp(block["log_prob"]))
            parts["pit"].append(block["cdf"].mean(0))
            parts["crps"].append(_crps(block["outcome"], truth[at]))
        moments = {"mean": self.mean, "sd": self.sd}
        return moments | {name: _joined(p) for name, p in parts.items()}

    def frame(self, level: float = 0.9) -> pd.DataFrame:
        """Labels, mean, sd, interval and flag, as a table."""
        lower, upper = self.interval(level)
        numbers = {"mean": self.mean, "sd": self.sd, "lower": lower, "upper": upper}
        return self.labels.assign(**numbers, flagged=self.flagged)

    def __repr__(self) -> str:
        new = f", {int(self.flagged.sum())} answered from the prior" if self.flagged.any() else ""
        return f"Prediction({len(self)} cells from {np.prod(self._shape)} draw(s) of {self.method.name}{new})"

    @property
    def _shape(self) -> tuple[int, int]:
        return next(iter(self.draws.values())).shape[:2]

    def _moments(self) -> dict[str, np.ndarray]:
        if "moments" not in self._kept:
            parts: dict[str, list[np.ndarray]] = {"mean": [], "sd": [], "sd_mean": []}
            for _, block in self._blocks():
                mean = block["mean"].astype(np.float64)
                parts["mean"].append(mean.mean(0))
                parts["sd_mean"].append(mean.std(0))
                parts["sd"].append(np.sqrt(mean.var(0) + block["variance"].mean(0)))
            self._kept["moments"] = {k: _joined(p) for k, p in parts.items()}
        return self._kept["moments"]

    def _blocks(
        self, value: np.ndarray | None = None
    ) -> Iterator[tuple[slice, dict[str, np.ndarray]]]:
        """Blocks of cells; for each {name: (draws, cells)}, draws read a block at a time."""
        total = int(np.prod(self._shape))
        repeat = -(-OUTCOMES // total)
        width = max(1, min(len(self), self.memory // (16 * total * (4 + repeat)), 2**16))
        for start in range(0, len(self), width):
            at = slice(start, min(start + width, len(self)))
            pad = (0, width - (at.stop - start))  # the last block is filled up: one compilation
            rows, cols = (np.pad(np.asarray(c)[at], pad) for c in self.query)
            truth = np.pad(np.zeros(at.stop - start) if value is None else value[at], pad)
            key = jax.random.fold_in(jax.random.key(self.seed), start)
            parts = []
            for number, params in enumerate(
                param_blocks(self.method, self.draws, width, self.memory)
            ):
                sub = jax.random.fold_in(key, number)
                given = (params, Query(rows, cols), jnp.asarray(truth), sub)
                parts.append(_look(self.method, self.hyper, repeat, value is not None, *given))
            merged = {k: np.concatenate([np.asarray(p[k]) for p in parts]) for k in parts[0]}
            yield at, {k: v[:, : at.stop - start] for k, v in merged.items()}


def param_blocks(
    method: Method, draws: Mapping[str, np.ndarray], width: int, memory: int
) -> Iterator[Any]:
    """Params with a leading axis of draws, as many at a time as fit the budget."""
    chains, length = next(iter(draws.values())).shape[:2]
    shapes = {site: value.shape[2:] for site, value in draws.items()}
    largest = max((shape[-1] for shape in shapes.values() if shape), default=1)
    bytes_each = 8 * sum(int(np.prod(s)) for s in shapes.values()) + 16 * width * largest
    size = int(np.clip(memory // bytes_each, 1, length))
    for chain in range(chains):
        for start in range(0, length, size):
            part = {
                site: np.array(value[chain, start : start + size]) for site, value in draws.items()
            }
            yield from_sites(method, part)


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _look(
    method: Method,
    hyper: Any,
    repeat: int,
    scored: bool,
    params: Any,
    query: Query,
    value: Any,
    key: Any,
) -> dict[str, jax.Array]:
    """Mean, variance and simulated outcomes per draw and cell; with `scored` also log density and CDF."""

    def one(p: Any, key: jax.Array) -> dict[str, jax.Array]:
        outcome = method.predict(p, query, hyper)
        mean = outcome.mean
        if type(outcome).icdf is not dist.Distribution.icdf:
            u = jax.random.uniform(key, (repeat, *mean.shape), mean.dtype)
            strata = (
                jnp.arange(repeat)[:, None] + u
            ) / repeat  # every draw: its whole distribution
            drawn = outcome.icdf(jnp.clip(strata, 1e-6, 1 - 1e-6))
        else:
            drawn = outcome.sample(key, (repeat,))
        if scored and type(outcome).cdf is dist.Distribution.cdf:
            raise BayesfacError(f"{method.name} predicts probabilities, not outcomes: no scores")
        seen = {"mean": mean, "variance": jnp.broadcast_to(outcome.variance, mean.shape)}
        if scored:
            seen |= {"log_prob": outcome.log_prob(value), "cdf": outcome.cdf(value)}
        return {**seen, "outcome": drawn}

    draws = len(jax.tree.leaves(params)[0])
    seen = jax.vmap(one)(params, jax.random.split(key, draws))
    return {**seen, "outcome": jnp.reshape(seen["outcome"], (draws * repeat, -1))}


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """Blocks of cells one after the other; none for an empty query."""
    return np.concatenate(parts) if parts else np.zeros(0)


def _log_mean_exp(values: np.ndarray) -> np.ndarray:
    top = values.max(0)
    return top + np.log(np.exp(values - top).mean(0))


def _crps(outcome: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """E|X - y| - E|X - X'|/2 from simulated outcomes, the second term from their order statistics."""
    m = len(outcome)
    rank = 2 * np.arange(1, m + 1) - m - 1
    spread = rank @ np.sort(outcome, axis=0) / (m * (m - 1))
    return np.abs(outcome - truth).mean(0) - spread


@dataclass(frozen=True)
class Everywhere:
    """Mean, sd (noise included) and sd_mean of every cell, rows by columns."""

    mean: np.ndarray
    sd: np.ndarray
    sd_mean: np.ndarray


def everywhere(
    method: Method, hyper: Any, draws: Mapping[str, np.ndarray], shape: tuple[int, int], memory: int
) -> Everywhere:
    """One pass over the draws; sums are kept, predictions never. Rows go by in blocks that stay in cache."""
    dtype = next(iter(draws.values())).dtype
    mean, square, noise = (np.zeros(shape, dtype) for _ in range(3))
    height = int(np.clip(2**21 // (4 * shape[1]), 1, shape[0]))
    total = 0
    for params in param_blocks(method, draws, 1, memory // 4):
        count = len(jax.tree.leaves(params)[0])
        for start in range(0, shape[0], height):
            rows = np.arange(start, min(start + height, shape[0]))
            sums = (mean[rows], square[rows], noise[rows])
            grid = Grid(rows, np.arange(shape[1]))
            new = _add(method, hyper, params, grid, sums, float(total))
            mean[rows], square[rows], noise[rows] = map(np.asarray, new)
        total += count
    spread = square / total
    return Everywhere(mean, np.sqrt(spread + noise / total), np.sqrt(spread))


@partial(jax.jit, static_argnums=(0, 1))
def _add(
    method: Method, hyper: Any, params: Any, grid: Grid, sums: tuple, seen: float
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Welford's update: mean, sum of squared deviations and summed noise, draw by draw."""

    def one(carry: tuple, p: Any) -> tuple[tuple, None]:
        mean, square, noise, n = carry
        outcome = method.predict(p, grid, hyper)
        delta = outcome.mean - mean
        mean = mean + delta / (n + 1)
        square = square + delta * (outcome.mean - mean)
        return (mean, square, noise + outcome.variance, n + 1), None

    (mean, square, noise, _), _ = jax.lax.scan(one, (*sums, seen), params)
    return mean, square, noise
