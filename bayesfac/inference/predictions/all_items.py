"""All items of some users: what ranks them, and how sure it is. `Fit.recommend` takes its lists from here."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

from bayesfac.core.data.cells import Grid, Known, Query
from bayesfac.inference.predictions.everywhere import OUTCOMES, expectations, outcomes
from bayesfac.inference.predictions.places import Sums, pass_over

RULES = ("mean", "lower", "draw", "in_top")
BYTES = 64  # for each user and item, while the items of a block of users are ranked
PAIRS = 2**16  # pairs without training data that are predicted at a time
Draws = Mapping[str, np.ndarray]


class Rule(NamedTuple):
    """How to rank: one of RULES, the level of "lower", and the number of places (0: none are counted)."""

    by: str
    level: float
    n: int


class Every(NamedTuple):
    """Tables of users by items: what ranks the items, and columns of a recommendation."""

    score: np.ndarray
    mean: np.ndarray
    sd_mean: np.ndarray
    in_top: np.ndarray


@dataclass(frozen=True, eq=False)
class Asked:
    """Users whose items are ranked: `rows` has their numbers in the fit, -1 for users that it does not know.

    Samples are the draws, or simulated outcomes of a point.
    """

    fit: Any
    rule: Rule
    rows: np.ndarray
    seed: int
    memory: int

    @property
    def samples(self) -> int:
        """The number of samples."""
        if self.fit.is_point:
            return OUTCOMES
        return int(np.prod(next(iter(self.fit.draws.values())).shape[:2]))

    def blocks(self) -> Iterator[np.ndarray]:
        """Places of users, some at a time; unknown users are apart from the others."""
        kept = self.rule.n > 0 and (self.fit.is_point or self.rule.by == "lower")  # all samples
        each = max(BYTES, 16 * self.samples * kept) * len(self.fit.data.coords["item"])
        size = max(1, self.memory // each)
        for some in (np.flatnonzero(self.rows >= 0), np.flatnonzero(self.rows < 0)):
            yield from (some[start : start + size] for start in range(0, len(some), size))

    def every(
        self,
        at: np.ndarray,
        closed: np.ndarray,
        prior: Callable[[], Draws | None],
        done: Callable[[int], Any],
    ) -> Every:
        """The tables of a block. `prior` gives draws of one user whom each draw takes from its prior. `done`
        is told how many samples of a user have been counted."""
        rows, items, fit = self.rows[at], np.arange(closed.shape[1]), self.fit
        query: Any = Query(np.full(len(items), -1), items)
        if rows[0] >= 0:
            query = Grid(rows, items)
        # one sample for each user, whatever the block
        chosen = np.random.default_rng((self.seed, 0)).integers(self.samples, size=len(self.rows))
        if not fit.is_point:
            draws, mean = fit.draws, None
            if rows[0] < 0 and (own := prior()):
                mean = expectations(fit.method, fit.hyper, draws, query, self.memory).mean(0)
                draws, query = own, Known(np.zeros(len(items), int), items)
            return self._by_draws(draws, query, closed, chosen[at], mean, done)
        key = jax.random.fold_in(jax.random.key(self.seed), int(at[0]))
        mean, values = _of_point(fit, rows, query, key if self.rule.n else None, self.memory)
        done(len(at) * self.samples)
        return self._by_outcomes(mean, values, closed, chosen[at])

    def _by_draws(
        self,
        draws: Draws,
        query: Grid | Query,
        closed: np.ndarray,
        chosen: np.ndarray,
        mean: np.ndarray | None,
        done: Callable[[int], Any],
    ) -> Every:
        """`mean` is the mean over the prior, which is exact, and so replaces that of draws of the prior."""
        by, dtype = self.rule.by, next(iter(draws.values())).dtype
        whole = np.empty((self.samples if by == "lower" else 0, *closed.shape), dtype)
        score = np.zeros(closed.shape, dtype)

        def seen(at: slice, first: int, values: np.ndarray) -> None:
            done(values.shape[0] * values.shape[1])
            if by == "lower":
                whole[first : first + len(values), at] = values
            elif by == "draw":
                own = chosen[at] - first
                here = np.flatnonzero((own >= 0) & (own < len(values)))
                score[at.start + here] = values[own[here], here]

        run = self.fit.method, self.fit.hyper, draws
        sums = pass_over(*run, query, closed, self.rule.n, self.memory, seen)
        if by == "lower":
            score = np.quantile(whole, (1 - self.rule.level) / 2, axis=0)
        sd = np.sqrt(sums.square / self.samples)
        if mean is not None:
            sums = sums._replace(mean=np.broadcast_to(mean, closed.shape))
        return self._told(score, sums, sd)

    def _by_outcomes(
        self, mean: np.ndarray, values: np.ndarray | None, closed: np.ndarray, chosen: np.ndarray
    ) -> Every:
        mean = np.broadcast_to(mean, closed.shape)
        sure, sums = np.zeros_like(mean), Sums.none(closed.shape, mean.dtype)
        if values is None:
            return Every(mean, mean, sure, np.full_like(mean, np.nan))
        values = np.broadcast_to(values, (self.samples, *closed.shape))
        sums.add(values, closed, self.rule.n, slice(None), 0)
        score = values[chosen, np.arange(len(closed))]
        if self.rule.by == "lower":
            score = np.quantile(values, (1 - self.rule.level) / 2, axis=0)
        return self._told(score, sums._replace(mean=mean), sure)

    def _told(self, score: np.ndarray, sums: Sums, sd: np.ndarray) -> Every:
        in_top = sums.share / np.float64(self.samples)
        score = {"mean": sums.mean, "in_top": in_top}.get(self.rule.by, score)
        return Every(score, sums.mean, sd, in_top)


def _of_point(
    fit: Any, rows: np.ndarray, query: Grid | Query, key: jax.Array | None, memory: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """Expected outcomes (user, item), and with a key simulated ones (outcome, user, item); of unknown users
    only those of the first, as all have the same."""
    run, items = (fit.method, fit.hyper, fit._as_draws()), len(query.col)
    mean = np.array(expectations(*run, query, memory)).reshape(-1, items)
    values = None
    if key is not None:
        values = np.array(outcomes(*run, query, key)).reshape(OUTCOMES, *mean.shape)
    rows = rows[: len(mean)]
    # a row of a point without training data has no spread of the prior: see `locate`
    lone = (fit.data.cells("item") == 0) | ((rows >= 0) & (fit.data.cells("user")[rows] == 0))[
        :, None
    ]
    place, item = np.nonzero(lone)
    for first in range(0, len(place), PAIRS):
        user, col = place[first : first + PAIRS], item[first : first + PAIRS]
        names = {"user": fit.data.coords["user"][rows[user]], "item": fit.data.coords["item"][col]}
        pairs = fit.data.locate(pd.DataFrame(names))[0]
        if rows[0] < 0:  # labels that training did not know
            pairs = pairs._replace(row=np.full(len(user), -1))
        mean[user, col] = expectations(*run, pairs, memory)[0]
        if values is not None and key is not None:
            values[:, user, col] = outcomes(*run, pairs, jax.random.fold_in(key, 1 + first))
    return mean, values
