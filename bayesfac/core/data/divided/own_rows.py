"""Data whose rows are divided among devices: each device has the cells and the parameters of its rows.

Columns are not divided: a device computes a sum over its rows for each column, and the sums of all devices
are added. For derivatives this means: the gradient with respect to a sum over devices is also the gradient
with respect to each of its parts, and gradients in the parameters of columns are added.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayesfac.core.data.cells import Cells, Rows
from bayesfac.core.data.divided import messages
from bayesfac.core.data.divided.shares import dealt, longer, placed, with_chunks


@jax.custom_vjp
def added(values: jax.Array) -> jax.Array:
    """What all devices have, added up."""
    return messages.summed(values)


added.defvjp(lambda values: (added(values), None), lambda _, slope: (slope,))


@jax.custom_vjp
def of_all(table: jax.Array) -> jax.Array:
    """A table that all devices have and that each uses for its rows: the slopes in it are added up."""
    return table


of_all.defvjp(lambda table: (table, None), lambda _, slope: (messages.summed(slope),))


@partial(
    jax.tree_util.register_dataclass, data_fields=["mine", "own", "place", "count"], meta_fields=[]
)
@dataclass(frozen=True, eq=False)
class OwnRows:
    """The cells of the rows of this device; it stands for `Cells`.

    mine    the cells, with rows numbered among the own ones. Devices have equally many: a shorter share is
            filled up with cells of its last row and of column 0, whose values are zero
    own     the numbers of the own rows; -1 where a share is one row short: a copy of the last row, without
            cells
    place   where each row is among the gathered rows of all devices
    count   the number of cells that are not filled in
    """

    mine: Cells
    own: Any
    place: Any
    count: Any

    @property
    def by_row(self) -> Rows:
        return self.mine.by_row

    @property
    def weight(self) -> jax.Array:
        """1 for each cell, 0 for those that are filled in."""
        return (jnp.arange(len(self.mine)) < self.count).astype(float)

    def gathered(self, rows: jax.Array) -> jax.Array:
        """All rows, from what each device has for its own."""
        return messages.gathered(rows)[self.place]

    def total(self, values: jax.Array) -> jax.Array:
        """The sum over all cells of what each device has for its own; that of filled-in cells is zero."""
        return added(jnp.sum(values))

    def total_of_rows(self, values: jax.Array) -> jax.Array:
        """The sum over all rows of what each device has for its own."""
        return added(jnp.sum(jnp.where((self.own >= 0)[:, None], values, 0)))


@jax.custom_vjp
def _own(rows: OwnRows, table: jax.Array) -> jax.Array:
    return table[rows.own]


_own.defvjp(
    lambda rows, table: (_own(rows, table), rows),
    lambda rows, slope: (None, rows.gathered(slope)),
)


def division(data: Any) -> OwnRows | None:
    """How the rows of the data are divided, which is the same in all views; None where they are not."""
    cells = getattr(data, "cells", None)
    first = next(iter(cells.values()), None) if isinstance(cells, dict) else cells
    return first if isinstance(first, OwnRows) else None


def owned(p: Any, fields: tuple[str, ...], data: Any) -> Any:
    """The parameters p, with the own rows only of these fields."""
    if (rows := division(data)) is None:
        return p
    return p._replace(**{name: _own(rows, getattr(p, name)) for name in fields})


def whole(p: Any, fields: tuple[str, ...], data: Any) -> Any:
    """The parameters p, with all rows of these fields in place of the own ones."""
    if (rows := division(data)) is None:
        return p
    return p._replace(**{name: rows.gathered(getattr(p, name)) for name in fields})


def dealer(data: Any, parts: int) -> Callable[[int], Any]:
    """The function that gives the data of each of so many parts: ratings, or views, with their own cells."""
    if isinstance(data.cells, dict):
        shares = _shares(data.cells, data.y, parts)
        return lambda part: data.replaced(cells=shares[part][0], y=shares[part][1])
    shares = _shares({"": data.cells}, {"": data.y}, parts)
    return lambda part: data.replaced(cells=shares[part][0][""], y=shares[part][1][""])


def _shares(
    cells: dict[str, Cells], y: dict[str, Any], parts: int
) -> list[tuple[dict[str, OwnRows], dict[str, np.ndarray]]]:
    """The cells and the values of all views, for each part. Rows are dealt by their cells in all views."""
    size = {name: np.diff(np.asarray(one.by_row.ptr)) for name, one in cells.items()}
    own = dealt(np.sum(list(size.values()), 0), parts)
    place = placed(own, own.size - (own < 0).sum())
    found: list[tuple[dict[str, OwnRows], dict[str, np.ndarray]]]
    found = [({}, {}) for _ in range(parts)]
    for name, one in cells.items():
        shares = [_cells_of(one, np.asarray(y[name]), rows, place) for rows in own]
        most = max(len(value) for *_, value in shares)
        views = [
            Cells(*_filled(*share, most, own.shape[1]), (own.shape[1], one.shape[1]))
            for share in shares
        ]
        for part, (view, (*_, value)) in enumerate(
            zip(_of_equal_shape(views), shares, strict=True)
        ):
            count = np.int32(len(value))
            found[part][0][name] = OwnRows(view, own[part].astype(np.int32), place, count)
            found[part][1][name] = longer(value, most)
    return found


def _cells_of(
    cells: Cells, y: np.ndarray, own: np.ndarray, place: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row among the own ones, column and value of the cells of a part."""
    local = np.full(len(place), -1)
    local[own[own >= 0]] = np.flatnonzero(own >= 0)
    row = local[np.asarray(cells.row)]
    mine = np.flatnonzero(row >= 0)
    mine = mine[np.argsort(row[mine], kind="stable")]
    return row[mine], np.asarray(cells.col)[mine], y[mine]


def _filled(
    row: np.ndarray, col: np.ndarray, value: np.ndarray, size: int, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of as many cells; those that are filled in stand in the last row."""
    more = size - len(row)
    return np.append(row, np.full(more, n - 1)), np.append(col, np.zeros(more, col.dtype))


def _of_equal_shape(views: list[Cells]) -> list[Cells]:
    """The cells, with equally many chunks of rows and of columns."""

    def even(sides: list[Rows]) -> list[Rows]:
        chunks = max(len(side.chunk) for side in sides)
        return [with_chunks(side, chunks) for side in sides]

    pairs = zip(even([v.by_row for v in views]), even([v.by_col for v in views]), strict=True)
    return [
        Cells.tree_unflatten(view.shape, (view.row, view.col, *both))
        for view, both in zip(views, pairs, strict=True)
    ]
