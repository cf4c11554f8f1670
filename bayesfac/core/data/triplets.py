"""Ratings as (user, item, value) triplets, read from the forms in which users have them."""

from os import PathLike
from typing import Any

import jax
import numpy as np
import pandas as pd
import scipy.sparse as sp

from bayesfac.core.data import reading
from bayesfac.core.data.cells import Layout, copied
from bayesfac.core.data.columns import Columns, is_role, is_wide, with_index


def read(data: Any, items: Any, values: Any, columns: Columns | None) -> tuple:
    """Codes of users and items, values, labels of users and items, and times or None."""
    if items is not None or values is not None:
        if items is None or values is None:
            raise ValueError("Expected users, items and values together, got only some of them")
        data = (data, items, values)
    data = with_index(data)
    _check_columns(data, columns)
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
            + ": bf.datasets.read(path) reads a file"
            * isinstance(data, str | PathLike)
        )
    sizes = [len(part) for part in data[:3]]
    if len(set(sizes)) > 1:
        raise ValueError(f"Expected users, items and values of one length, got {sizes}")
    user, users = reading.labels(data[0], "user")
    item, items = reading.labels(data[1], "item")
    return user, item, reading.numbers(data[2], "ratings"), users, items, data[3]


def _check_columns(data: Any, columns: Columns | None) -> None:
    if columns is not None and not isinstance(data, pd.DataFrame):
        raise ValueError(f"Expected columns= for a table, got it for {type(data).__name__}")


def times(raw: Any, size: int) -> np.ndarray | None:
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
    user, item, value, *_ = _matrix_triplets(reading.cells(frame, "as ratings"))
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
        if data.format == "bsr" and data.blocksize != (1, 1) and not coo.data.all():
            raise ValueError(
                "Expected a sparse matrix that stores ratings alone, got bsr with zeros in its blocks, "
                "which may be no ratings: data.tocsr(), and eliminate_zeros() if none is zero"
            )
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


def distinct(
    cells: Layout, value: np.ndarray, policy: str, levels: tuple[float, ...] | None, names: Any
) -> tuple[Layout, np.ndarray, Any]:
    """The cells, each of them once, their values, and the rows that are kept; `names` are the labels of users
    and of items."""
    first = _first(cells)
    if first.all():
        return cells, value, slice(None)
    cells, run = _in_given_order(cells, first), np.cumsum(first) - 1
    if policy == "error":
        at = int(np.argmin(np.where(first, len(first), cells.origin)))
        user = int(np.searchsorted(cells.ptr, at, "right")) - 1
        row, earlier = int(cells.origin[at]), int(cells.origin[first][run[at]])
        raise ValueError(second(row, earlier, names[0][user], names[1][cells.col[at]]))
    return _kept(cells, first, means(run, value[cells.origin], levels))


def summed(cells: Layout, value: np.ndarray) -> tuple[Layout, np.ndarray, Any]:
    """As `distinct`, with the sums of the values of equal cells, without those whose sum is zero."""
    first = _first(cells)
    cells = _in_given_order(cells, first)
    total = np.bincount(np.cumsum(first) - 1, value[cells.origin])
    first[first] = total > 0
    return _kept(cells, first, total[total > 0])


def _first(cells: Layout) -> np.ndarray:
    """Which cells, in row-major order, are not there for the second time or later."""
    first = np.ones(len(cells.col), bool)
    first[1:] = cells.col[1:] != cells.col[:-1]
    first[cells.ptr[:-1][np.diff(cells.ptr) > 0]] = True
    return first


def _in_given_order(cells: Layout, first: np.ndarray) -> Layout:
    """The layout with equal cells in the order in which they were given."""
    at = np.flatnonzero(~(first & np.append(first[1:], True)))
    origin, run = cells.origin.copy(), np.cumsum(first)[at]
    origin[at] = origin[at][np.lexsort((origin[at], run))]
    return cells._replace(origin=origin)


def _kept(cells: Layout, keep: np.ndarray, value: np.ndarray) -> tuple[Layout, np.ndarray, Any]:
    """Some of the cells, their values in the given order of rows, and the rows that are kept; `value` has
    the values of these cells in row-major order."""
    origin, there = cells.origin[keep], np.zeros(len(keep), bool)
    there[origin] = True
    place = (np.cumsum(there) - 1).astype(np.int32)[origin]
    values = np.empty(len(value))
    values[place] = value
    ptr = np.append(0, np.cumsum(keep))[cells.ptr].astype(np.int32)
    return Layout(ptr, copied(cells.col[keep], np.int32), place), values, np.flatnonzero(there)


def means(which: np.ndarray, value: np.ndarray, levels: tuple[float, ...] | None) -> np.ndarray:
    """The mean value of each cell; on a scale the nearest level, and of two the lower one."""
    mean = np.bincount(which, value) / np.bincount(which)
    if levels is None:
        return mean
    return np.asarray(levels)[np.abs(mean[:, None] - np.asarray(levels)).argmin(1)]


def second(row: int, earlier: int, user: Any, item: Any) -> str:
    """The message for a user's second rating of an item."""
    return (
        f"Expected one rating per user and item, got a second in row {row} "
        f"(user {reading.plain(user)!r}, item {reading.plain(item)!r}; "
        f"the first is row {earlier}); duplicates='mean' averages them"
    )


def off_levels(levels: tuple[float, ...], value: float, where: str, user: Any, item: Any) -> str:
    """The message for a rating that is no level."""
    # all digits where few would read as a level, as of 0.1 in single precision
    shown = f"{value:g}" if float(f"{value:g}") == value else repr(float(value))
    return (
        f"Expected one of the levels {levels}, got {shown} in {where} "
        f"(user {reading.plain(user)!r}, item {reading.plain(item)!r})"
    )
