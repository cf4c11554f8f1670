"""Scores of held-out pairs of counts: their ranks among the items that the user does not have in training."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from bayesfac.core.data.counts import Counts
from bayesfac.core.data.reading import plain
from bayesfac.inference.predictions.everywhere import means
from bayesfac.inference.predictions.predict import MEMORY
from bayesfac.inference.predictions.summaries import PARTS, shares
from bayesfac.report.diagnostics.held_out import GAIN, Rows

CELLS = 2**21  # pairs that are predicted, or compared with others, at once

Tables = Callable[[np.ndarray], np.ndarray]  # codes of users -> (part, user, item) scores


@dataclass(frozen=True, eq=False, repr=False)
class PairScores(Rows):
    """Gains of the ranks of held-out pairs; every array is in the order of the test set.

    gain      1 / log2(1 + rank), as a hit counts in NDCG
    activity  number of training pairs of the same user
    cluster   index of the user
    flagged   pairs of unknown users or items: their gain is that of the middle rank
    parts     (part, pair) gains without each of consecutive parts of the draws
    """

    gain: np.ndarray
    activity: np.ndarray
    cluster: np.ndarray
    flagged: np.ndarray
    parts: np.ndarray
    kind = "Counts"
    verdict = "baseline"  # of popularity; fits have their own

    @property
    def losses(self) -> dict[str, np.ndarray]:
        return {GAIN: 1 - self.gain}

    @property
    def unseen(self) -> np.ndarray:
        return self.flagged

    @property
    def rank(self) -> np.ndarray:
        """The rank of each pair; items with equal scores share the mean of their ranks."""
        return 2 ** (1 / self.gain) - 1

    def _part(self, rows: Any) -> dict[str, float]:
        return {GAIN: float(self.gain[rows].mean())}


def score_pairs(fit: Any, test: Any, train: Any = None) -> PairScores:
    """Rank each held-out pair among all items, or among those that its user does not have in `train`.

    Examples
    --------
    >>> import bayesfac as bf
    >>> counts = bf.Counts(np.random.default_rng(0).poisson(0.5, (30, 20)))
    >>> train, test = bf.split.holdout(counts, 0.2, seed=0)
    >>> fit = bf.fit("hpf", train, n_components=2, progress=False)
    >>> bool(score_pairs(fit, test, train).rank.min() >= 1)
    True
    """
    for what, data in (("test", test), ("train", train)):
        both = fit.method.data.implicit and isinstance(data, Counts)
        if not both and data is not None:
            wanted, got = fit.method.data.__name__, type(data).__name__
            raise TypeError(
                f"Expected Counts and their fits, got {got} as {what}= for {fit.name}, a method of {wanted}"
            )
    draws, width = fit._as_draws(), len(fit.data.coords["item"])
    chains, count = next(iter(draws.values())).shape[:2]
    parts = [
        {site: value[chain : chain + 1, at] for site, value in draws.items()}
        for chain in range(chains)
        for at in shares(count, -(-PARTS // chains))
    ]

    def tables(users: np.ndarray) -> np.ndarray:
        return np.stack([means(fit.method, fit.hyper, p, users, width, MEMORY) for p in parts])

    sizes = np.array([len(next(iter(part.values()))[0]) for part in parts], float)
    return _scores(fit.data, test, train, tables, sizes)


def score_popularity(card: Any, test: Any, train: Any) -> PairScores:
    """The same scores of a baseline, which ranks items by their numbers of training pairs."""
    counts = card.col_counts[None, None].astype(float)
    return _scores(card, test, train, lambda users: counts.repeat(len(users), 1), np.ones(1))


def _scores(
    card: Any, test: Counts, train: Counts | None, tables: Tables, sizes: np.ndarray
) -> PairScores:
    """The gains of test pairs; each of the tables is the mean of `sizes` draws."""
    query, labels, flagged = card.locate(test)
    user, item, closed = np.asarray(query.row), np.asarray(query.col), _listed(card, train)
    if (twice := ~flagged & np.asarray(closed[user, item]).ravel()).any():
        pair = tuple(map(plain, labels.iloc[int(np.argmax(twice))]))
        raise ValueError(
            f"Expected test pairs that are not in train=, got {pair} in both: leave out known pairs"
        )
    weight, items = sizes / sizes.sum(), len(card.coords["item"])
    gain = np.full(len(user), 1 / np.log2(1 + (items + 1) / 2))
    parts = np.repeat(gain[None], len(sizes) if len(sizes) > 1 else 0, 0)
    known, height = np.unique(user[~flagged]), max(1, CELLS // items)
    for first in range(0, len(known), height):
        users = known[first : first + height]
        at = np.flatnonzero(~flagged & (user >= users[0]) & (user <= users[-1]))
        pairs, shut = (np.searchsorted(users, user[at]), item[at]), closed[users].toarray()
        every = tables(users) * weight[:, None, None]
        total = every.sum(0)
        gain[at] = _gains(total, shut, *pairs)
        for own, table in zip(parts, every, strict=False):
            own[at] = _gains(total - table, shut, *pairs)
    activity = np.where(user >= 0, np.asarray(card.row_counts)[user], 0)
    return PairScores(gain, activity, pd.factorize(labels["user"])[0], flagged, parts)


def _listed(card: Any, train: Counts | None) -> sp.csr_matrix:
    """Which pairs users have in training, as a sparse table of users and items of the card."""
    if train is None:
        return sp.csr_matrix(card.shape, dtype=bool)
    query, _, unknown = card.locate(train)
    at = np.asarray(query.row)[~unknown], np.asarray(query.col)[~unknown]
    return sp.csr_matrix((np.ones(len(at[0]), bool), at), card.shape)


def _gains(score: np.ndarray, shut: np.ndarray, user: np.ndarray, item: np.ndarray) -> np.ndarray:
    """1 / log2(1 + rank) of each pair among the items of its user that are not shut."""
    score, rank = np.where(shut, -np.inf, score), np.zeros(len(user))
    height = max(1, CELLS // score.shape[1])
    for first in range(0, len(user), height):
        at = slice(first, first + height)
        others, own = score[user[at]], score[user[at], item[at]][:, None]
        rank[at] = (others > own).sum(1) + ((others == own).sum(1) + 1) / 2
    return 1 / np.log2(1 + rank)
