"""Ratings: (user, item, value) triplets, checked once, here; later code does not check them again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import scipy.sparse as sp

from bayesfac.core.data import reading
from bayesfac.core.data.cells import Cells, Container, Query
from bayesfac.core.data.columns import Columns, is_role, is_wide


@dataclass(frozen=True, eq=False)
class Frame:
    """The parts of a set of ratings that stay on the host: labels, levels, and the user's order of rows."""

    users: pd.Index
    items: pd.Index
    levels: tuple[float, ...] | None
    origin: np.ndarray  # the user's row of every cell, cells in row-major order
    value: np.ndarray  # float64, in the user's order
    time: np.ndarray | None = None  # in the user's order
    name: str = ""


@jax.tree_util.register_pytree_node_class
class Ratings(Container):
    """Observed (user, item, value) triplets; a cell that is not listed is missing, never zero.

    Parameters
    ----------
    data : DataFrame, array, scipy sparse matrix or (users, items, values)
        A long table with columns user, item and rating (or usual names for them, such as userId,
        movie, stars); a wide table with users as named or text index, items as columns and NaN in
        unobserved cells; three arrays; a sparse matrix whose stored cells are observed (a stored zero
        is a rating of zero); a dense matrix with NaN in unobserved cells. A table whose columns are
        not known is refused.
    columns : sequence of three or four names or mapping, optional
        Which columns of a long table are which: ["who", "film", "stars"], with the time as a fourth if
        there is one, or {"rating": "stars", "time": "seen"}.
    levels : int or sequence, optional
        The ordinal scale: 5 means 1..5. Without levels, values are real numbers.
    duplicates : {"error", "mean"}
        What to do when a user rated an item twice. On a scale of levels, "mean" takes the level nearest to
        the mean, and the lower one of two equally near levels. The time is that of the first rating.
    times : array, optional
        When each rating was given: numbers, dates, or text of them. A long table with a column of times
        (timestamp, date) brings them. Fits ignore times; `bf.split.holdout(by="time")` uses them.

    Notes
    -----
    Labels are kept as they are and compared by what they read as: 7, 7.0 and "7" are one label, "007"
    is another one. If all labels of an axis are whole numbers, they are sorted as numbers. So data
    whose ids were read as text match a fit to data whose ids were numbers. The same holds for labels
    of `Views` and `Tasks`, for files, predictions, comparisons, new rows and loaded fits.

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
        columns: Columns | None = None,
        levels: int | Sequence[float] | None = None,
        duplicates: str = "error",
        times: Any = None,
    ) -> None:
        if duplicates not in ("error", "mean"):
            raise ValueError(f"Expected duplicates='error' or 'mean', got {duplicates!r}")
        if isinstance(data, Ratings):
            data = data.frame()
        user, item, value, users, items_, found = _triplets(data, items, values, columns)
        if not len(value):
            raise ValueError("Expected at least one rating, got none")
        time = _times(found if times is None else times, len(value))
        levels = None if levels is None else reading.levels(levels)
        if levels is not None and not (ok := np.isin(value, levels)).all():
            row = int(np.flatnonzero(~ok)[0])
            raise ValueError(
                f"Expected one of the levels {levels}, got {value[row]:g} in row {row} "
                f"(user {reading.plain(users[user[row]])!r}, item {reading.plain(items_[item[row]])!r})"
            )
        kept, value = _distinct(user, item, value, users, items_, duplicates, levels)
        time = None if time is None else time[kept]
        self._fill(user[kept], item[kept], value, users, items_, levels, time)

    def _fill(
        self,
        user: np.ndarray,
        item: np.ndarray,
        value: np.ndarray,
        users: pd.Index,
        items: pd.Index,
        levels: tuple[float, ...] | None,
        time: np.ndarray | None,
    ) -> None:
        origin = np.lexsort((item, user))
        self.cells = Cells(user[origin], item[origin], (len(users), len(items)))
        self.y = reading.real(value[origin])
        self.host = Frame(users, items, levels, origin, value, time)

    @property
    def users(self) -> pd.Index:
        """The user labels, sorted; user codes are positions in it."""
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
        """User codes in the user's order of rows."""
        return _restore(np.asarray(self.cells.row), self.host.origin)

    @property
    def item(self) -> np.ndarray:
        """Item codes in the user's order of rows."""
        return _restore(np.asarray(self.cells.col), self.host.origin)

    @property
    def value(self) -> np.ndarray:
        """Ratings in the user's order of rows."""
        return self.host.value

    @property
    def time(self) -> np.ndarray | None:
        """When each rating was given, in the user's order of rows; None if unknown."""
        return self.host.time

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
        """The standard deviation of the ratings; 1 if all are equal."""
        return float(self.host.value.std()) or 1.0

    @property
    def size(self) -> int:
        """The number of observed cells."""
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
        """The ratings as a long table with the user's labels, in the user's order of rows."""
        columns = {"user": self.users[self.user], "item": self.items[self.item]}
        times = {} if self.time is None else {"time": self.time}
        return pd.DataFrame({**columns, "rating": self.value, **times})

    def coords(self) -> dict[str, pd.Index]:
        """The labels of the axes of parameters."""
        return {"user": self.users, "item": self.items}

    def take(self, rows: Any) -> "Ratings":
        """Some of the ratings (positions or a mask); users, items and levels stay the same."""
        kept = np.arange(len(self))[reading.positions(rows)]
        if not len(kept):
            raise ValueError("Expected at least one rating to take, got none")
        chosen = (self.user[kept], self.item[kept], self.value[kept])
        return self._part(*chosen, self.users, self.items, kept)

    def _part(
        self, user: Any, item: Any, value: Any, users: Any, items: Any, kept: Any
    ) -> "Ratings":
        part = object.__new__(type(self))
        time = None if self.time is None else self.time[kept]
        part._fill(user, item, value, users, items, self.levels, time)
        part.host = replace(part.host, name=self.name)
        return part

    def of_users(self, first: int, last: int) -> "Ratings":
        """The ratings of the users in the slice first:last, without other users; items and levels stay."""
        kept = (first <= self.user) & (self.user < last)
        if not kept.any():
            raise ValueError("Expected at least one rating of these users, got none")
        chosen = (self.user[kept] - first, self.item[kept], self.value[kept])
        return self._part(*chosen, self.users[first:last], self.items, kept)

    def on(self, items: pd.Index) -> "Ratings":
        """The same ratings with `items` as columns, which must include all items of the ratings."""
        code = reading.positions_of(items, self.items)
        if (code < 0).any():
            new = reading.plain(self.items[int(np.argmin(code))])
            raise ValueError(f"Expected items that training knew, got {new!r}")
        chosen = (self.user, code[self.item].astype(np.int32), self.value)
        return self._part(*chosen, self.users, items, slice(None))

    def above(self, level: float) -> "Ratings":
        """Likes and dislikes in the same cells: +1 where the rating is above `level`, else -1."""
        if self.levels is None or level not in self.levels[:-1]:
            raise ValueError(f"Expected one of {(self.levels or ())[:-1]} to cut at, got {level!r}")
        host = replace(self.host, value=np.where(self.value > level, 1.0, -1.0), levels=(-1.0, 1.0))
        return Ratings.tree_unflatten(host, (self.cells, jnp.where(self.y > level, 1.0, -1.0)))

    def fingerprint(self) -> str:
        """A digest of labels and values; equal digests mean equal data."""
        axes = reading.as_read(self.users), reading.as_read(self.items)
        return reading.digest([*axes, self.levels, self.user, self.item, self.value])

    def hide(self) -> "Ratings":
        """The same cells without values, which the model then samples."""
        return Ratings.tree_unflatten(self.host, (self.cells, None))

    def fill(self, draw: Mapping[str, Any]) -> "Ratings":
        """The same cells with the values that the model drew at the site `rating`."""
        value = _restore(np.asarray(draw["rating"], np.float64), self.host.origin)
        ordinal = self.levels is not None and np.isin(value, self.levels).all()
        host = replace(self.host, value=value, levels=self.levels if ordinal else None)
        return Ratings.tree_unflatten(host, (self.cells, reading.real(draw["rating"])))

    def batch(self, key: jax.Array, size: int) -> tuple["Ratings", dict[str, float]]:
        """`size` random cells, and the weight of each in the log likelihood, by observed site."""
        at = jax.random.randint(key, (size,), 0, len(self.y))
        cells = Query(self.cells.row[at], self.cells.col[at])
        part = Ratings.tree_unflatten(self.host, (cells, self.y[at]))
        return part, {"rating": len(self.y) / size}


def few_ratings(key: jax.Array, levels: int | None = None) -> Ratings:
    """Seven users, five items, about three quarters of the cells: an example for tests."""
    kx, km = jax.random.split(key)
    seen = jax.random.uniform(km, (7, 5)) < 0.75
    value = jax.random.normal(kx, (7, 5))
    if levels:
        value = jax.random.randint(kx, (7, 5), 1, levels + 1)
    return Ratings(np.where(seen, value, np.nan), levels=levels)


# -- reading ------------------------------------------------------------------------------------
def _triplets(data: Any, items: Any, values: Any, columns: Columns | None) -> tuple:
    if items is not None or values is not None:
        if items is None or values is None:
            raise ValueError("Expected users, items and values together, got only some of them")
        data = (data, items, values)
    if isinstance(data, np.ndarray | jax.Array):
        data = reading.array(data)
    if sp.issparse(data) or (isinstance(data, np.ndarray) and data.ndim == 2):
        return _matrix_triplets(data)
    if isinstance(data, pd.DataFrame):
        if columns is None and is_wide(data):
            return _wide_triplets(data)
        data = reading.triplets(data, columns)
    if isinstance(data, tuple | list) and len(data) == 3:
        data = (*data, None)
    if not isinstance(data, tuple | list) or len(data) != 4:
        raise TypeError(
            "Expected a long DataFrame, a sparse matrix, a dense matrix with NaN, or three arrays "
            f"(users, items, values), got {type(data).__name__}"
        )
    sizes = [len(part) for part in data[:3]]
    if len(set(sizes)) > 1:
        raise ValueError(f"Expected users, items and values of one length, got {sizes}")
    user, users = reading.labels(data[0], "user")
    item, items = reading.labels(data[1], "item")
    return user, item, reading.numbers(data[2], "ratings"), users, items, data[3]


def _times(raw: Any, size: int) -> np.ndarray | None:
    """Checked times, one for each rating."""
    if raw is None:
        return None
    if np.ndim(raw) != 1 or len(raw) != size:
        raise ValueError(f"Expected {size} times, one for each rating, got shape {np.shape(raw)}")
    return reading.times(np.asarray(raw))


def _wide_triplets(frame: pd.DataFrame) -> tuple:
    """Triplets of a table with users as index and items as columns; NaN is missing."""
    if is_role(frame.index.name, "item") or is_role(frame.columns.name, "user"):
        raise ValueError(
            "Expected users as rows and items as columns, got items as rows: bf.Ratings(frame.T)"
        )
    for name, kind in zip(frame.columns, frame.dtypes, strict=True):
        if kind.kind not in "biuf":
            raise TypeError(f"Expected numbers as ratings, got {kind} in column {name!r}")
    cells = frame.to_numpy(dtype=np.float64, na_value=np.nan)
    user, item, value, *_ = _matrix_triplets(cells)
    user_code, users = reading.labels(frame.index, "user")
    item_code, items = reading.labels(frame.columns, "item")
    return user_code[user], item_code[item], value, users, items, None


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
        bad = int(np.argmin(np.isfinite(value)))
        at = f"row {user[bad]}, column {item[bad]}"
        raise ValueError(f"Expected finite ratings, got {value[bad]} in {at}")
    reading.check_finite(value, "ratings")
    users, items = (pd.RangeIndex(n) for n in data.shape)
    return user.astype(np.int32), item.astype(np.int32), value, users, items, None


def _distinct(
    user: np.ndarray,
    item: np.ndarray,
    value: np.ndarray,
    users: pd.Index,
    items: pd.Index,
    policy: str,
    levels: tuple[float, ...] | None,
) -> tuple[np.ndarray, np.ndarray]:
    """The rows to keep, and their values."""
    cell = user.astype(np.int64) * len(items) + item
    _, first, which = np.unique(cell, return_index=True, return_inverse=True)
    if len(first) == len(cell):
        return np.arange(len(cell)), value
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
    if levels is not None:  # the nearest level; of two, the lower
        mean = np.asarray(levels)[np.abs(mean[:, None] - np.asarray(levels)).argmin(1)]
    keep = np.sort(first)
    return keep, mean[which[keep]]


def _restore(sorted_values: np.ndarray, origin: np.ndarray) -> np.ndarray:
    """Values by cell, put into the user's order of rows."""
    values = np.empty(len(origin), sorted_values.dtype)
    values[origin] = sorted_values
    return values
