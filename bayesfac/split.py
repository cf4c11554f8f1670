"""Divide data into a training part and a test part.

All parts keep the labels and levels of the whole data, so predictions for them can be compared. A split
depends only on the data and the seed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar, cast

import numpy as np
import pandas as pd

from bayesfac.core import checks
from bayesfac.core.data import container
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.data.reading import as_read, plain
from bayesfac.core.data.tensor import Tensor

__all__ = [
    "PairFolds",
    "Strong",
    "Weak",
    "holdout",
    "k_fold",
    "strong_generalisation",
    "weak_generalisation",
]


def __dir__() -> tuple[str, ...]:
    """The public names."""
    return tuple(__all__)


Listed = TypeVar("Listed", Ratings, Tensor, Ratings | Tensor)
Container = TypeVar("Container", bound=container.Container)


class Weak(NamedTuple):
    """Weak generalisation: the test part has other items of the same users."""

    train: Ratings
    test: Ratings


class Strong(NamedTuple):
    """Strong generalisation: the test part has new users.

    train   all ratings of the other users, from which the model is learned
    given   ratings of the new users, with which the model may be tuned or updated
    test    the held-out ratings of the new users
    """

    train: Ratings
    given: Ratings
    test: Ratings


def holdout(
    data: Container, fraction: float, *, seed: int = 0, by: str = "random"
) -> tuple[Container, Container]:
    """Hold out a random share of the data for a test.

    For ratings and tensors, this is a share of the cells. For tasks, it is a share of the labelled rows of
    each task: the training part keeps these rows without their labels, and the test part has only these
    rows, with labels.

    Views have no missing cells, so their cells cannot be held out. Instead the counts are thinned: every
    single count goes to the test part with probability `fraction`. Both parts then have all rows, features
    and graphs. They are independent if the counts have a Poisson distribution.

    Parameters
    ----------
    data : Ratings, Tensor, Tasks or Views
    fraction : float
        The share of the test part, between 0 and 1.
    seed : int
        The same seed holds out the same cells.
    by : {"random", "time"}
        "time" holds out the latest ratings of all users together, as in a real system. Users and items that
        appear late then have no training data. Among ratings with the same time, the choice is random.

    Returns
    -------
    (train, test)

    Examples
    --------
    >>> ratings = Ratings([0, 0, 1, 1], [0, 1, 0, 1], [3.0, 4.0, 5.0, 1.0])
    >>> train, test = holdout(ratings, 0.25)
    >>> len(train), len(test), test.shape
    (3, 1, (2, 2))
    """
    _check_kind(data, container.Container)
    if not 0 < fraction < 1:
        raise ValueError(f"Expected a fraction between 0 and 1, got {fraction!r}")
    if by not in ("random", "time"):
        raise ValueError(f'Expected by="random" or by="time", got {by!r}')
    if by == "time" and getattr(data, "time", None) is None:
        raise ValueError(
            f'Expected {type(data).__name__} with times for by="time", got none: '
            "bf.Ratings(..., times=...), or a column timestamp"
        )
    rng, own = checks.generator(seed), cast("Any", data)
    if not own.listed:
        return own.held_out(fraction, rng)
    n, held = len(own), round(fraction * len(own))
    if not 0 < held < n:
        raise ValueError(
            f"Expected a fraction that leaves ratings on both sides, got {fraction} of {n}: "
            f"{held} would be held out"
        )
    order = rng.permutation(n)
    if by == "time":
        order = order[np.argsort(own.time[order], kind="stable")[::-1]]
    return _divide(own, order[:held])


def k_fold(ratings: Listed, k: int = 5, *, seed: int = 0) -> Iterator[tuple[Listed, Listed]]:
    """Cross-validation: k pairs (train, test). Every rating or cell of a tensor is in exactly one test set.

    Examples
    --------
    >>> ratings = Ratings([0, 0, 1, 1], [0, 1, 0, 1], [3.0, 4.0, 5.0, 1.0])
    >>> [len(test) for train, test in k_fold(ratings, 2)]
    [2, 2]
    """
    _check_kind(ratings, Ratings, Tensor)
    return (_divide(ratings, fold) for fold in _folds(len(ratings), k, seed, "rating"))


@dataclass(frozen=True)
class PairFolds:
    """Cross-validation of (user, item) pairs in scikit-learn, for estimators of `bayesfac.sklearn.pairs`.

    Pass it as `cv=`. With an integer as `cv`, scikit-learn divides X in its order without shuffling: if X is
    sorted by user, the model is tested on users that are not in the training part.

    Parameters
    ----------
    k : int
        The number of folds.
    by : "rating" or "user"
        "rating" divides the ratings, as `k_fold` does with the same seed. "user" divides the users, so that
        the model is tested on new users, whose ratings are predicted from the prior and the items.
    seed : int

    Examples
    --------
    >>> X = [["ann", "x"], ["ann", "y"], ["bob", "x"], ["bob", "y"]]
    >>> [test.tolist() for train, test in PairFolds(2).split(X)]
    [[0, 2], [1, 3]]
    >>> [test.tolist() for train, test in PairFolds(2, by="user", seed=1).split(X)]
    [[0, 1], [2, 3]]
    """

    k: int = 5
    by: Literal["rating", "user"] = "rating"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.by not in ("rating", "user"):
            raise ValueError(f'Expected by="rating" or by="user", got {self.by!r}')

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """The number of folds; all arguments are ignored."""
        return self.k

    def split(
        self, X: Any, y: Any = None, groups: Any = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Pairs (train, test) of row numbers of X; y and groups are ignored."""
        users = np.asarray(X, dtype=object)[:, 0]
        code = np.arange(len(users))
        if self.by == "user":  # as labels are compared: 7 and "7" are one user
            code = pd.factorize(as_read(pd.Index(users)))[0]
        for fold in _folds(len(np.unique(code)), self.k, self.seed, self.by):
            tested = np.isin(code, fold)
            yield np.flatnonzero(~tested), np.flatnonzero(tested)


def weak_generalisation(ratings: Ratings, held_out: int = 1, *, seed: int = 0) -> Weak:
    """Hold out `held_out` ratings of every user (thesis, section 3.6.2).

    Every user keeps at least one rating, so every user with ratings must have more than `held_out` ratings.
    Users without ratings are skipped.

    Examples
    --------
    >>> ratings = Ratings([0, 0, 1, 1], [0, 1, 0, 1], [3.0, 4.0, 5.0, 1.0])
    >>> weak_generalisation(ratings).test.frame()["user"].tolist()
    [0, 1]
    """
    _check_kind(ratings, Ratings)
    held = _per_user(ratings, np.unique(ratings.user), held_out, checks.generator(seed))
    return Weak(*_divide(ratings, held))


def strong_generalisation(
    ratings: Ratings, n_users: int, held_out: int = 1, *, seed: int = 0
) -> Strong:
    """Choose `n_users` users as new users, and hold out `held_out` ratings of each (thesis, section 3.6.2).

    Examples
    --------
    >>> ratings = Ratings([0, 0, 1, 1, 2], [0, 1, 0, 1, 1], [3.0, 4.0, 5.0, 1.0, 2.0])
    >>> parts = strong_generalisation(ratings.take([0, 1, 2, 3]), 1)
    >>> len(parts.train), len(parts.given), len(parts.test)
    (2, 1, 1)
    """
    _check_kind(ratings, Ratings)
    rated = np.unique(ratings.user)
    checks.whole_number("n_users", n_users, 1)
    if n_users >= len(rated):
        raise ValueError(
            f"Expected between 1 and {len(rated) - 1} users to set apart "
            f"({len(rated)} have ratings), got {n_users}"
        )
    rng = checks.generator(seed)
    apart = np.sort(rng.permutation(rated)[:n_users])
    held = _per_user(ratings, apart, held_out, rng)
    new, tested = np.isin(ratings.user, apart), _mask(ratings, held)
    return Strong(ratings.take(~new), ratings.take(new & ~tested), ratings.take(tested))


def _check_kind(data: Any, *kinds: type) -> None:
    """Check that the data are one of these containers. A table has `take` too, and divides wrongly."""
    if isinstance(data, kinds):
        return
    names = "Ratings, Tensor, Tasks, Views"
    if kinds != (container.Container,):
        names = ", ".join(kind.__name__ for kind in kinds)
    hint = getattr(data, "hint_of_folds", ": bf.Ratings(data) reads a table")
    raise TypeError(f"Expected {names}, got {type(data).__name__}{hint}")


def _folds(n: int, k: int, seed: int, unit: str) -> list[np.ndarray]:
    """The numbers below n in random order, divided into k parts."""
    checks.whole_number("the number of folds", k, 2, n, f" (one {unit} each)")
    return np.array_split(checks.generator(seed).permutation(n), k)


def _divide(ratings: Listed, held: np.ndarray) -> tuple[Listed, Listed]:
    """(train, test), both in the order of `ratings`."""
    tested = _mask(ratings, held)
    return ratings.take(~tested), ratings.take(tested)


def _mask(ratings: Ratings | Tensor, held: np.ndarray) -> np.ndarray:
    tested = np.zeros(len(ratings), bool)
    tested[held] = True
    return tested


def _per_user(
    ratings: Ratings, users: np.ndarray, held_out: int, rng: np.random.Generator
) -> np.ndarray:
    """Positions of `held_out` random ratings of each of these users; users with too few are refused."""
    checks.whole_number("held_out", held_out, 1)
    count = np.bincount(ratings.user, minlength=ratings.n_users)
    few = users[count[users] <= held_out]
    if len(few):
        raise ValueError(
            f"Expected more than {held_out} rating(s) of every user, got {count[few[0]]} of user "
            f"{plain(ratings.users[few[0]])!r} ({len(few)} such users)"
        )
    shuffled = rng.permutation(len(ratings))
    order = shuffled[np.argsort(ratings.user[shuffled], kind="stable")]  # by user, random within
    first = np.cumsum(count) - count
    return order[(first[users][:, None] + np.arange(held_out)).ravel()]
