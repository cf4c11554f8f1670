"""Measures of recommendations: they compare ranked lists of items with the items that are relevant.

`recommended` has one list of items for each user, best first, as a matrix or as lists; -1 or None fills a
short list. `relevant` has one collection of items for each user, which must not be empty. Every measure
except `catalogue_coverage` returns one number for each user, from 0 to 1; larger is better.
"""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pandas as pd

Lists = Sequence[Sequence[Any]] | np.ndarray
Sets = Sequence[Collection[Any]]


def ndcg(recommended: Lists, relevant: Sets, k: int = 10) -> np.ndarray:
    """Normalised discounted cumulative gain: hits count 1 / log2(1 + rank), divided by the best possible sum.

    >>> ndcg([["a", "b", "c"]], [{"b", "x"}], k=3).round(4).tolist()
    [0.3869]
    """
    hits, many = _hits(recommended, relevant, k)
    gain = 1 / np.log2(np.arange(2, k + 2))
    return hits @ gain / np.cumsum(gain)[np.minimum(many, k) - 1]


def recall(recommended: Lists, relevant: Sets, k: int = 10) -> np.ndarray:
    """The share of the relevant items that are among the first k.

    >>> recall([["a", "b", "c"]], [{"b", "x"}], k=3).tolist()
    [0.5]
    """
    hits, many = _hits(recommended, relevant, k)
    return hits.sum(1) / many


def precision(recommended: Lists, relevant: Sets, k: int = 10) -> np.ndarray:
    """The share of the first k places that hold a relevant item; an empty place counts as a miss.

    >>> precision([["a", "b"]], [{"b", "x"}], k=2).tolist()
    [0.5]
    """
    return _hits(recommended, relevant, k)[0].mean(1)


def average_precision(recommended: Lists, relevant: Sets, k: int = 10) -> np.ndarray:
    """Precision at the rank of each hit, summed and divided by the largest possible number of hits.

    The mean over users is MAP@k.

    >>> average_precision([["a", "b", "c"]], [{"b", "c"}], k=3).round(4).tolist()
    [0.5833]
    """
    hits, many = _hits(recommended, relevant, k)
    precise = np.cumsum(hits, 1) / np.arange(1, k + 1)
    return (precise * hits).sum(1) / np.minimum(many, k)


def catalogue_coverage(recommended: Lists, n_items: int, k: int = 10) -> float:
    """The share of all items that are in the first k places of at least one user's list.

    >>> catalogue_coverage([["a", "b"], ["b", "c"]], n_items=4, k=1)
    0.5
    """
    if n_items < 1:
        raise ValueError(f"Expected at least one item in the catalogue, got {n_items}")
    if k < 1:
        raise ValueError(f"Expected k of at least 1, got {k}")
    shown = {item for row in recommended for item in list(row)[:k]}
    return len(shown - {-1, None}) / n_items


def popularity(ratings: Any) -> pd.Series:
    """The number of ratings of every item, most popular first: a baseline that is the same for all users.

    >>> from bayesfac.core.data.ratings import Ratings
    >>> popularity(Ratings(["ann", "bob", "bob"], ["x", "y", "x"], [5, 3, 4])).to_dict()
    {'x': 2, 'y': 1}
    """
    counts = np.bincount(ratings.item, minlength=ratings.n_items)
    return pd.Series(counts, ratings.items, name="ratings").sort_values(
        ascending=False, kind="stable"
    )


def top(score: np.ndarray, n: int, closed: np.ndarray | None = None, tie: Any = None) -> np.ndarray:
    """Positions of the n largest scores of each row, best first; -1 if fewer are left.

    Entries where `closed` is true are left out. Among equal scores the larger `tie` comes first, then the
    first position.

    >>> top(np.array([[3.0, 1.0, 2.0]]), 2, np.array([[True, False, False]])).tolist()
    [[2, 1]]
    """
    closed = np.zeros(score.shape, bool) if closed is None else closed
    places, key = min(n, score.shape[1]), np.where(closed, np.inf, -score)
    last = np.partition(key, places - 1, axis=1)[:, places - 1, None]
    row, at = np.nonzero(~(key > last))  # NaN too: it comes last
    keys = [key[row, at], closed[row, at], row]
    order = np.lexsort(keys if tie is None else [-tie[row, at], *keys])
    row, at = row[order], at[order]
    place = np.arange(len(row)) - np.searchsorted(row, row)
    first = place < places
    found = np.where(closed[row, at], -1, at)
    return found[first].reshape(len(score), places)


def _hits(recommended: Lists, relevant: Sets, k: int) -> tuple[np.ndarray, np.ndarray]:
    """(user, place) 1 where the item is relevant, and the number of relevant items of each user."""
    if k < 1:
        raise ValueError(f"Expected k of at least 1, got {k}")
    if len(recommended) != len(relevant) or not len(relevant):
        raise ValueError(
            f"Expected lists and relevant items of the same users, got {len(recommended)} and {len(relevant)}"
        )
    hits, many = np.zeros((len(relevant), k)), np.zeros(len(relevant), int)
    for user, (row, wanted) in enumerate(zip(recommended, relevant, strict=True)):
        known = set(wanted)  # `in` looks at the index of a Series, not at its values
        if not known:
            raise ValueError(f"Expected relevant items of every user, got none in row {user}")
        shown = [item for item in row if item is not None and not _filler(item)]
        if len(set(shown)) < len(shown):
            raise ValueError(f"Expected every recommended item once, got one twice in row {user}")
        places = [not _filler(item) and item in known for item in list(row)[:k]]
        hits[user, : len(places)] = places
        many[user] = len(known)
    return hits, many


def _filler(item: Any) -> bool:
    """Whether the item is the number that fills a short list."""
    return not isinstance(item, str) and item == -1
