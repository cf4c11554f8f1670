"""Views whose rows are divided among devices: each holds the cells of its rows, and no column is divided.

What a device finds for its rows is gathered by all; what it finds for columns is a sum over its rows, which
are added up.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayesfac.core.data.cells import Cells, Rows
from bayesfac.core.data.divided.shares import AXIS, dealt, longer, placed


@partial(jax.tree_util.register_dataclass, data_fields=["mine", "own", "place"], meta_fields=[])
@dataclass(frozen=True, eq=False)
class OwnRows:
    """The cells of the rows of this device; it stands for `Cells`.

    mine    the cells, with rows numbered among the own ones. Devices have equally many: the last ones of a
            shorter share are in its last row, and their values are zero
    own     the numbers of the own rows; a share that is one row short has row 0 without cells
    place   where each row is among the gathered rows of all devices
    """

    mine: Cells
    own: Any
    place: Any

    def gathered(self, rows: jax.Array) -> jax.Array:
        """All rows, from what each device has for its own."""
        return jax.lax.all_gather(rows, AXIS, tiled=True)[self.place]

    def summed(self, values: jax.Array) -> jax.Array:
        """What all devices have, added up."""
        return jax.lax.psum(values, AXIS)

    def total(self, values: jax.Array) -> jax.Array:
        """The sum over all cells of what each device has for its own; that of filled-in cells is zero."""
        return self.summed(jnp.sum(values))


def shared_rows(
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
            numbers = np.maximum(own[part], 0).astype(np.int32)
            found[part][0][name] = OwnRows(view, numbers, place)
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
        n = len(sides[0].ptr) - 1
        return [
            side._replace(
                chunk=longer(side.chunk, chunks, -1),
                chunk_row=longer(side.chunk_row, chunks, n - 1),
            )
            for side in sides
        ]

    pairs = zip(even([v.by_row for v in views]), even([v.by_col for v in views]), strict=True)
    return [
        Cells.tree_unflatten(view.shape, (view.row, view.col, *both))
        for view, both in zip(views, pairs, strict=True)
    ]
