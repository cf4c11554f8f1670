"""The containers: what users have, checked once, here; nothing below checks again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import scipy.sparse as sp

from bayesfac.core.data import reading
from bayesfac.core.data.cells import Cells, Query


@dataclass(frozen=True, eq=False)
class Frame:
    """What a set of ratings keeps on the host: labels, levels, the user's own row order."""

    users: pd.Index
    items: pd.Index
    levels: tuple[float, ...] | None
    origin: np.ndarray  # origin[k] is the user's row of the k-th cell in row-major order
    value: np.ndarray  # float64, in the user's order


@jax.tree_util.register_pytree_node_class
class Ratings:
    """Observed (user, item, value) triplets; what is not listed is missing, never zero.

    Parameters
    ----------
    data : DataFrame, array, scipy sparse matrix or (users, items, values)
        A long table (columns user, item, rating, or the three named in `columns`, or the first
        three); three arrays; a sparse matrix whose stored cells are the observed ones (a stored
        zero is a rating of zero); a dense matrix with NaN where nothing was observed.
    levels : int or sequence, optional
        The ordinal scale: 5 means 1..5. Without it values are real numbers.
    duplicates : {"error", "mean"}
        What to do when a user rated an item twice. On a scale of levels the mean is that level which is
        nearest to it, of two the lower.

    Examples
    --------
    >>> import pandas as pd
    >>> r = Ratings(pd.DataFrame({"user": ["ann", "bob"], "item": ["x", "x"], "rating": [4, 2]}))
    >>> r
    Ratings(2 users x 1 items, 2 ratings, density 1, real values)
    >>> list(r.users)
    ['ann', 'bob']
    """

    cells: Any  # Cells; in a minibatch a Query
    y: Any  # values, row-major; None where they are to be sampled
    host: Frame

    def __init__(
        self,
        data: Any,
        items: Any = None,
        values: Any = None,
        *,
        columns: Sequence[str] | None = None,
        levels: int | Sequence[float] | None = None,
        duplicates: str = "error",
    ) -> None:
        if duplicates not in ("error", "mean"):
            raise ValueError(f"Expected duplicates='error' or 'mean', got {duplicates!r}")
        if isinstance(data, Ratings):
            data = data.frame()
        user, item, value, users, items_ = _triplets(data, items, values, columns)
        if not len(value):
            raise ValueError("Expected at least one rating, got none")
        levels = levels_of(levels)
        if levels is not None and not (ok := np.isin(value, levels)).all():
            row = int(np.flatnonzero(~ok)[0])
            raise ValueError(
                f"Expected one of the levels {levels}, got {value[row]:g} in row {row} "
                f"(user {reading.plain(users[user[row]])!r}, item {reading.plain(items_[item[row]])!r})"
            )
        user, item, value = _distinct(user, item, value, users, items_, duplicates, levels)
        self._fill(user, item, value, users, items_, levels)

    def _fill(
        self,
        user: np.ndarray,
        item: np.ndarray,
        value: np.ndarray,
        users: pd.Index,
        items: pd.Index,
        levels: tuple[float, ...] | None,
    ) -> None:
        origin = np.lexsort((item, user))
        self.cells = Cells(user[origin], item[origin], (len(users), len(items)))
        self.y = reading.real(value[origin])
        self.host = Frame(users, items, levels, origin, value)

    def tree_flatten(self) -> tuple[tuple, Frame]:
        return (self.cells, self.y), self.host

    @classmethod
    def tree_unflatten(cls, host: Frame, children: tuple) -> "Ratings":
        self = object.__new__(cls)
        self.host = host
        self.cells, self.y = children
        return self

    # -- what the numbers are -------------------------------------------------------------------
    @property
    def users(self) -> pd.Index:
        """The user labels, sorted; codes count along it."""
        return self.host.users

    @property
    def items(self) -> pd.Index:
        """The item labels, sorted."""
        return self.host.items

    @property
    def levels(self) -> tuple[float, ...] | None:
        """The ordinal scale, or None for real values."""
        return self.host.levels

    @property
    def user(self) -> np.ndarray:
        """User codes in the order of the rows given."""
        return _restore(np.asarray(self.cells.row), self.host.origin)

    @property
    def item(self) -> np.ndarray:
        """Item codes in the order of the rows given."""
        return _restore(np.asarray(self.cells.col), self.host.origin)

    @property
    def value(self) -> np.ndarray:
        """Ratings in the order of the rows given."""
        return self.host.value

    @property
    def shape(self) -> tuple[int, int]:
        """(users, items)."""
        return len(self.host.users), len(self.host.items)

    @property
    def n_users(self) -> int:
        return self.shape[0]

    @property
    def n_items(self) -> int:
        return self.shape[1]

    @property
    def mean(self) -> float:
        """The mean rating."""
        return float(self.host.value.mean())

    @property
    def spread(self) -> float:
        """The standard deviation of the ratings; 1 when they are all alike."""
        return float(self.host.value.std()) or 1.0

    @property
    def size(self) -> int:
        """Observed cells."""
        return len(self.host.value)

    def __len__(self) -> int:
        return len(self.host.value)

    def __repr__(self) -> str:
        scale = f"levels {self.levels[0]:g}..{self.levels[-1]:g}" if self.levels else "real values"
        density = len(self) / (self.n_users * self.n_items)
        return (
            f"Ratings({self.n_users} users x {self.n_items} items, {len(self)} ratings, "
            f"density {density:.3g}, {scale})"
        )

    def frame(self) -> pd.DataFrame:
        """The ratings as a long table with the user's labels, in the order given."""
        columns = {"user": self.users[self.user], "item": self.items[self.item]}
        return pd.DataFrame({**columns, "rating": self.value})

    def coords(self) -> dict[str, pd.Index]:
        """Labels of the axes that parameters may have."""
        return {"user": self.users, "item": self.items}

    def take(self, rows: Any) -> "Ratings":
        """Some of the ratings (positions or a mask); users, items and levels stay the same."""
        kept = np.arange(len(self))[reading.positions(rows)]
        if not len(kept):
            raise ValueError("Expected at least one rating to take, got none")
        part = object.__new__(Ratings)
        part._fill(
            self.user[kept], self.item[kept], self.value[kept], self.users, self.items, self.levels
        )
        return part

    def of_users(self, first: int, last: int) -> "Ratings":
        """The ratings of the users from `first` to `last` (positions, as a slice has them), who are its only
        users; items and levels stay the same."""
        kept = (first <= self.user) & (self.user < last)
        if not kept.any():
            raise ValueError("Expected at least one rating of these users, got none")
        part = object.__new__(Ratings)
        users, item, value = self.users[first:last], self.item[kept], self.value[kept]
        part._fill(self.user[kept] - first, item, value, users, self.items, self.levels)
        return part

    def on(self, items: pd.Index) -> "Ratings":
        """The same ratings with these items as columns: all of their own, and maybe more."""
        code = items.get_indexer(self.items)
        if (code < 0).any():
            new = reading.plain(self.items[int(np.argmin(code))])
            raise ValueError(f"Expected items that training knew, got {new!r}")
        part = object.__new__(Ratings)
        part._fill(
            self.user, code[self.item].astype(np.int32), self.value, self.users, items, self.levels
        )
        return part

    def above(self, level: float) -> "Ratings":
        """The same cells as likes and dislikes: +1 where the rating is above `level`, else -1."""
        if self.levels is None or level not in self.levels[:-1]:
            raise ValueError(f"Expected one of {(self.levels or ())[:-1]} to cut at, got {level!r}")
        host = replace(self.host, value=np.where(self.value > level, 1.0, -1.0), levels=(-1.0, 1.0))
        return Ratings.tree_unflatten(host, (self.cells, jnp.where(self.y > level, 1.0, -1.0)))

    def fingerprint(self) -> str:
        """A digest of labels and values: two sets with the same one are the same data."""
        return reading.digest(
            [self.users, self.items, self.levels, self.user, self.item, self.value]
        )

    # -- what engines do with it ----------------------------------------------------------------
    def hide(self) -> "Ratings":
        """The same cells without values: the model then samples them."""
        return Ratings.tree_unflatten(self.host, (self.cells, None))

    def fill(self, draw: Mapping[str, Any]) -> "Ratings":
        """The same cells with the values that a model drew at its site `rating`."""
        value = _restore(np.asarray(draw["rating"], np.float64), self.host.origin)
        ordinal = self.levels is not None and np.isin(value, self.levels).all()
        host = replace(self.host, value=value, levels=self.levels if ordinal else None)
        return Ratings.tree_unflatten(host, (self.cells, reading.real(draw["rating"])))

    def batch(self, key: jax.Array, size: int) -> tuple["Ratings", dict[str, float]]:
        """`size` cells at random, and how much each of them counts for, by observed site."""
        at = jax.random.randint(key, (size,), 0, len(self.y))
        cells = Query(self.cells.row[at], self.cells.col[at])
        part = Ratings.tree_unflatten(self.host, (cells, self.y[at]))
        return part, {"rating": len(self.y) / size}


def few_ratings(key: jax.Array, levels: int | None = None) -> Ratings:
    """Seven users, five items, three cells in four: what the contract tests run on."""
    kx, km = jax.random.split(key)
    seen = jax.random.uniform(km, (7, 5)) < 0.75
    value = jax.random.normal(kx, (7, 5))
    if levels:
        value = jax.random.randint(kx, (7, 5), 1, levels + 1)
    return Ratings(np.where(seen, value, np.nan), levels=levels)


# -- reading ------------------------------------------------------------------------------------
def _triplets(data: Any, items: Any, values: Any, columns: Sequence[str] | None) -> tuple:
    if items is not None or values is not None:
        if items is None or values is None:
            raise ValueError("Expected users, items and values together, got only some of them")
        data = (data, items, values)
    if isinstance(data, np.ndarray | jax.Array):
        data = reading.array(data)
    if sp.issparse(data) or (isinstance(data, np.ndarray) and data.ndim == 2):
        return _matrix_triplets(data)
    if isinstance(data, pd.DataFrame):
        data = reading.triplets(data, tuple(columns) if columns else None)
    if not isinstance(data, tuple | list) or len(data) != 3:
        raise TypeError(
            "Expected a long DataFrame, a sparse matrix, a dense matrix with NaN, or three arrays "
            f"(users, items, values), got {type(data).__name__}"
        )
    sizes = [len(part) for part in data]
    if len(set(sizes)) > 1:
        raise ValueError(f"Expected users, items and values of one length, got {sizes}")
    user, users = reading.labels(data[0], "user")
    item, items = reading.labels(data[1], "item")
    return user, item, reading.numbers(data[2], "ratings"), users, items


def _matrix_triplets(data: Any) -> tuple:
    if data.dtype.kind not in "biuf":
        raise TypeError(f"Expected real numbers as ratings, got dtype {data.dtype}")
    if data.ndim != 2:
        raise ValueError(f"Expected a two-dimensional matrix of ratings, got shape {data.shape}")
    if sp.issparse(data):
        coo = data.tocoo()
        user, item, value = coo.row, coo.col, coo.data.astype(np.float64)
    else:
        user, item = np.nonzero(~np.isnan(data.astype(np.float64)))
        value = data[user, item].astype(np.float64)
    if not np.isfinite(value).all():
        bad = int(np.flatnonzero(~np.isfinite(value))[0])
        at = f"row {user[bad]}, column {item[bad]}"
        raise ValueError(f"Expected finite ratings, got {value[bad]} in {at}")
    reading.check_finite(value, "ratings")
    users, items = (pd.RangeIndex(n) for n in data.shape)
    return user.astype(np.int32), item.astype(np.int32), value, users, items


def levels_of(levels: int | Sequence[float] | None) -> tuple[float, ...] | None:
    """The scale of levels as rising numbers: 1..R if `levels` is a number."""
    if levels is None:
        return None
    if isinstance(levels, int | np.integer):
        levels = range(1, int(levels) + 1)
    scale = tuple(float(level) for level in levels)
    if len(scale) < 2 or not np.isfinite(scale).all() or (np.diff(scale) <= 0).any():
        raise ValueError(f"Expected at least two rising levels (or how many), got {levels!r}")
    return scale


def _distinct(
    user: np.ndarray,
    item: np.ndarray,
    value: np.ndarray,
    users: pd.Index,
    items: pd.Index,
    policy: str,
    levels: tuple[float, ...] | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    cell = user.astype(np.int64) * len(items) + item
    _, first, which = np.unique(cell, return_index=True, return_inverse=True)
    if len(first) == len(cell):
        return user, item, value
    if policy == "error":
        again = np.ones(len(cell), bool)
        again[first] = False
        row = int(np.flatnonzero(again)[0])
        earlier = int(first[which[row]])
        raise ValueError(
            f"Expected one rating per user and item, got a second in row {row} "
            f"(user {reading.plain(users[user[row]])!r}, item {reading.plain(items[item[row]])!r}; "
            f"the first is row {earlier}); duplicates='mean' averages them"
        )
    mean = np.bincount(which, value) / np.bincount(which)
    if levels is not None:  # the nearest of them, of two the lower: a mean may lie between
        mean = np.asarray(levels)[np.abs(mean[:, None] - np.asarray(levels)).argmin(1)]
    keep = np.sort(first)
    return user[keep], item[keep], mean[which[keep]]


def _restore(sorted_values: np.ndarray, origin: np.ndarray) -> np.ndarray:
    given = np.empty(len(origin), sorted_values.dtype)
    given[origin] = sorted_values
    return given
