"""Predictions of cells from draws: one pass over draws and cells, in blocks, within a memory budget."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from bayesfac.core.data.cells import Known, Query
from bayesfac.core.laws.units import cut_of
from bayesfac.core.method import Method
from bayesfac.inference.predictions.by_draw import (
    Settings,
    means_by_draw,
    over_draws,
    param_blocks,
)
from bayesfac.inference.predictions.conformal import Recalibration
from bayesfac.inference.predictions.level_masses import MASSES, Tally, codes
from bayesfac.inference.predictions.summaries import Summary, chosen, merged, sorted_summary

MEMORY = 512 * 2**20  # bytes of intermediate results of one block, at most
OUTCOMES = 2000  # simulated outcomes per cell for intervals and CRPS, at least
SHOWN, REPLICATES = 400, 50  # cells whose simulated outcomes are kept, and how many of each
FEW = 20  # draws for which known and new cells share a program
USUAL = 0.9  # level of the interval that is kept when cells are scored
KEPT = ("mean", "score", "sd", "sd_mean", "parts", "log_mass", "votes")


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
    recalibration: Recalibration | None = None
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
        """Equal-tailed predictive interval: (lower, upper) for every cell.

        A fit by `Fit.recalibrated` has the mean, plus and minus a multiple of the standard deviation.
        """
        if not 0 < level < 1:
            raise ValueError(f"Expected a level between 0 and 1, got {level!r}")
        if self.recalibration is None or self.flagged.all():
            return self._own_interval(level)
        width = self.recalibration.width(level) * self.sd
        lower, upper = self.mean - width, self.mean + width
        if self.flagged.any():
            own = self._own_interval(level)
            lower, upper = (
                np.where(self.flagged, *x) for x in zip(own, (lower, upper), strict=True)
            )
        return lower, upper

    def _own_interval(self, level: float) -> tuple[np.ndarray, np.ndarray]:
        """The interval of the model, without a correction."""
        if level not in self._kept:
            self._kept[level] = tuple(self.quantiles(_tails(level)))
        return self._kept[level]

    def quantiles(self, tails: Sequence[float]) -> np.ndarray:
        """(tail, cell) quantiles of the predictive distribution, from one pass over the draws."""
        if not all(0 <= tail <= 1 for tail in tails):  # -0.1 would count from the other end
            raise ValueError(f"Expected probabilities from 0 to 1 as tails, got {tails!r:.60}")
        ends = [sorted_summary(block.outcome, None, tails)[0] for _, block in self._blocks()]
        return self._joined([end.T for end in ends]).reshape(-1, len(tails)).T

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
        if self.method.data.by_cut and self.levels is not None and np.prod(self._shape) > 1:
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
            parts.append(np.concatenate(means)[:, : len(at)].T)
        return self._joined(parts).T.reshape(chains, draws, len(self))

    @property
    def means_of_parts(self) -> np.ndarray:
        """(part, cell) means of consecutive parts of the draws: `PARTS` or more, if the draws suffice."""
        return self._moments()["parts"].T

    @property
    def replicates(self) -> tuple[np.ndarray, np.ndarray]:
        """The places of some random cells, and simulated outcomes (replicate, place) of these cells."""
        if "replicates" not in self._kept:
            for _ in self._blocks():
                pass
        return self._kept["replicates"]

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
        names = ("log_score", "crps", "cdf", "below", "ends")
        parts: dict[str, list[np.ndarray]] = {name: [] for name in names}
        for at, block in self._blocks(truth, tally=self.levels is not None):
            ends, crps = sorted_summary(block.outcome, truth[at], _tails(USUAL))
            for name in ("log_score", "cdf", "below"):
                parts[name].append(getattr(block, name))
            parts["crps"].append(crps)
            parts["ends"].append(ends.T)
        of_levels = {}
        if self.levels is not None:
            of_levels = self._tally().scores(self.levels, codes(self.levels, truth))
        scores = {name: self._joined(p) for name, p in parts.items()}
        cdf, below, ends = (scores.pop(name) for name in ("cdf", "below", "ends"))
        self._kept[USUAL] = tuple(ends.reshape(-1, 2).T)  # the interval that is asked for next
        # other random numbers than a split by the same seed
        u = np.random.default_rng((self.seed, 1)).random(len(self))
        pit = np.clip(below + u * (cdf - below), 0, 1)
        if self.recalibration is not None:
            new = self.recalibration.pit((truth - self.mean) / self.sd, u)
            pit = np.where(self.flagged, pit, new)
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
            for _ in self._blocks(simulate=False, tally=True):
                pass
        return self._kept["tally"]

    @cached_property
    def _places(self) -> tuple[np.ndarray, np.ndarray]:
        """The places of the cells whose labels are known, and of the others; all are among the others if any
        are, and there are few draws: a second program would take longer than the work."""
        row, col = np.asarray(self.query.row), np.asarray(self.query.col)
        new = (row < 0) | (col < 0).any(tuple(range(1, col.ndim)))
        if np.prod(self._shape) < FEW and new.any():
            new[:] = True
        return np.flatnonzero(~new), np.flatnonzero(new)

    def _cells(self, most: int) -> Iterator[tuple[np.ndarray, Query]]:
        """Blocks of at most `most` cells: their places, and the query for them.

        Known cells come first, without the work for new labels. Blocks are equally long, so that one program
        serves all of them, and the last block is padded. A few new cells are padded to a power of 2, as
        another query may have some more.
        """
        codes = np.asarray(self.query.row), np.asarray(self.query.col)
        for places, known in zip(self._places, (True, False), strict=True):
            blocks = -(-len(places) // most)
            for at in np.array_split(places, blocks) if blocks else ():
                width = -(-len(places) // blocks)
                if not known:
                    width = min(most, 1 << (width - 1).bit_length())
                row, col = (
                    np.concatenate([c[at], np.zeros((width - len(at), *c.shape[1:]), c.dtype)])
                    for c in codes
                )
                yield at, Known(row, col) if known else self.query._replace(row=row, col=col)

    def _joined(self, parts: list[np.ndarray]) -> np.ndarray:
        """Results of the blocks, cells first, in the order of the query; empty for an empty query."""
        if not parts:
            return np.zeros(0)
        joined = np.concatenate(parts)
        result = np.empty_like(joined)
        result[np.concatenate(self._places)] = joined
        return result

    def _width(self, arrays: int, kept: int, most: int = 2**16) -> int:
        """The largest number of cells of a block. So many arrays of a chain fit in the memory, and so many
        that are kept for all chains."""
        chains, draws = self._shape
        return int(np.clip(self.memory // (16 * draws * (arrays + chains * kept)), 1, most))

    def _blocks(
        self, value: np.ndarray | None = None, *, simulate: bool = True, tally: bool = False
    ) -> Iterator[tuple[np.ndarray, Summary]]:
        """Blocks of cells, for each a Summary of all draws; draws are read a block at a time. The moments of
        all cells, and the tally, are stored when the last block has been read."""
        chains, draws = self._shape
        levels = self.levels if tally else None
        repeat = -(-OUTCOMES // (chains * draws)) if simulate else 0
        most = self._width(1, repeat, max(1, MASSES // len(levels)) if levels else 2**16)
        settings = Settings(self.method, self.hyper, levels, repeat, value is not None)
        found: dict[str, list[np.ndarray]] = {name: [] for name in KEPT}
        rng = np.random.default_rng((self.seed, 2))
        shown = np.isin(np.arange(len(self)), rng.permutation(len(self))[:SHOWN])
        kept = [(np.zeros(0, int), np.zeros((REPLICATES, 0)))]
        for at, query in self._cells(most):
            size, width = len(at), len(query.row)
            own = np.zeros(size) if value is None else value[at]
            truth = jnp.asarray(np.pad(own, (0, width - size)))
            key = jax.random.fold_in(jax.random.key(self.seed), int(at[0]))
            parts = over_draws(settings, self.draws, query, truth, key, self.memory)
            whole = merged(parts, size, chains)
            for name in KEPT:
                found[name].append(getattr(whole, name))
            if simulate:
                mine = shown[at]
                kept.append((at[mine], chosen(whole.outcome[:, mine], REPLICATES, rng)))
            yield at, whole
        if simulate:
            places, outcomes = zip(*kept, strict=True)
            self._kept["replicates"] = np.concatenate(places), np.concatenate(outcomes, 1)
        joined = {name: self._joined(blocks) for name, blocks in found.items()}
        if levels:
            shape = (len(self), len(levels))
            self._kept["tally"] = Tally(
                *(joined.pop(k).reshape(shape) for k in ("log_mass", "votes"))
            )
        self._kept["moments"] = joined


def _tails(level: float) -> tuple[float, float]:
    return (1 - level) / 2, (1 + level) / 2
