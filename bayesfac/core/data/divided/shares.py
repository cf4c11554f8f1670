"""Divide the rows of users and of items among devices, of one process or of several.

Every device has all factors, and the cells of the rows that it draws. So each cell is in the share of its row
and in the share of its column. Rows are distributed by their numbers of cells, so that all devices have
equally many rows and about equally many cells. All devices gather the rows that each device draws, and sums
over cells are added.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from bayesfac.core.data.cells import CHUNK, Rows, exact_rows
from bayesfac.core.data.divided import messages
from bayesfac.core.data.divided.messages import AXIS

SIDES = ("user", "item")


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["ptr", "mine", "own", "place"],
    meta_fields=["side"],
)
@dataclass(frozen=True, eq=False)
class Share:
    """The rows of one side that this device draws, with their cells; it stands for `Cells` and for `Rows`.

    ptr     as in `Rows`, for all rows of the side
    mine    the cells of the own rows, one after the other; shares with fewer cells end in padding
    own     the numbers of the own rows; a share that is one row short has row 0 without cells
    place   where each row is among the gathered rows of all devices
    side    "user" or "item"
    """

    ptr: Any
    mine: Rows
    own: Any
    place: Any
    side: str

    @property
    def by_row(self) -> "Share":
        return self._of("user")

    @property
    def by_col(self) -> "Share":
        return self._of("item")

    def _of(self, side: str) -> "Share":
        if side != self.side:
            raise ValueError(f"Expected the share of {side}s, got that of {self.side}s")
        return self

    @property
    def row(self) -> Any:
        """The user of each cell."""
        return self._own_of_cells() if self.side == "user" else self.mine.index

    @property
    def col(self) -> Any:
        """The item of each cell."""
        return self.mine.index if self.side == "user" else self._own_of_cells()

    def _own_of_cells(self) -> jax.Array:
        return self.own[self.local()]

    def local(self) -> jax.Array:
        """The position among the own rows of each cell."""
        size, rows = self.mine.index.shape[0], jnp.arange(len(self.own))
        return jnp.repeat(rows, jnp.diff(self.mine.ptr), total_repeat_length=size)

    def gathered(self, rows: jax.Array) -> jax.Array:
        """All rows of the side, from what each device has for its own."""
        return messages.gathered(rows)[self.place]

    def total(self, values: jax.Array) -> jax.Array:
        """The sum over all cells of what each device has for its own."""
        real = jnp.arange(values.shape[0]) < self.mine.ptr[-1]
        return messages.summed(jnp.sum(jnp.where(real, values, 0)))


class Divided(NamedTuple):
    """Data as a device sees them: the cells of its users, and the cells of its items."""

    user: Any
    item: Any


def seen(data: Any, axis: str = "") -> Any:
    """The cells of the rows of an axis, "user" or "item"; of other axes those of the users.

    Data that are not divided are seen as they are.
    """
    if isinstance(data, Divided):
        return data.item if axis == "item" else data.user
    return data


def fresh(data: Any, p: Any) -> Any:
    """The data of a sweep from the parameters p. XLA would compute what does not change from sweep to sweep
    once, and keep it: arrays with an entry for each cell, as large as the ratings. Of data that are divided,
    because there are many, it cannot tell that they do not change."""
    if not isinstance(data, Divided):
        return data
    return jax.lax.optimization_barrier((data, p))[0]


def dealt(cost: np.ndarray, parts: int) -> np.ndarray:
    """The numbers of the rows of each part, (parts, rows), -1 where a part is one row short.

    Parts take rows in turn, the costliest first, in alternating order: the costs of two parts differ by
    at most that of a row.

    >>> dealt(np.array([1, 9, 5, 4, 8]), 2)
    array([[ 1,  3,  0],
           [ 4,  2, -1]])
    """
    order = np.argsort(-cost, kind="stable")
    rounds = np.append(order, np.full(-len(order) % parts, -1)).reshape(-1, parts)
    rounds[1::2] = rounds[1::2, ::-1].copy()
    return np.ascontiguousarray(rounds.T)


def devices() -> Mesh:
    """All devices of all processes that `jax.distributed.initialize` has joined."""
    return jax.make_mesh((jax.device_count(),), (AXIS,), axis_types=(AxisType.Auto,))


def divide(data: Any, mesh: Mesh, deal: Callable[[Any, int], Callable[[int], Any]]) -> Any:
    """The data with their cells divided by `deal` among the devices of a mesh, which become the first axis of
    all arrays; what is no cell goes to each device."""
    parts = deal(data, mesh.size)
    sharding = NamedSharding(mesh, PartitionSpec(AXIS))
    here = {
        device: parts(part)
        for part, device in enumerate(mesh.devices.flat)
        if device.process_index == jax.process_index()
    }

    def joined(*leaves: Any) -> jax.Array:
        pairs = zip(leaves, here, strict=True)
        blocks = [jax.device_put(np.asarray(leaf)[None], device) for leaf, device in pairs]
        shape = (mesh.size, *blocks[0].shape[1:])
        return jax.make_array_from_single_device_arrays(shape, sharding, blocks)

    return jax.tree.map(joined, *here.values())


def dealer(data: Any, parts: int) -> Callable[[int], Any]:
    """The function that gives the share of each of so many parts; shares have equal shapes."""
    if (known := data.shares(parts)) is not None:
        return known.__getitem__
    rows = [Rows(*map(np.asarray, side)) for side in (data.cells.by_row, data.cells.by_col)]
    own = [dealt(np.diff(side.ptr), parts) for side in rows]
    y = np.asarray(data.y)

    def of_part(part: int) -> Divided:
        views = []
        for side, of_side, dealt_rows in zip(SIDES, rows, own, strict=True):
            share, order = _share(of_side, dealt_rows, part, side)
            views.append(data.replaced(cells=share, y=longer(y[order], len(share.mine.index))))
        return Divided(*views)

    return of_part


def _share(rows: Rows, own: np.ndarray, part: int, side: str) -> tuple[Share, np.ndarray]:
    """The share of a part, and where its cells are in the row-major list."""
    count = np.append(np.diff(rows.ptr), 0)[own]  # none where a part is one row short (-1)
    place = placed(own, len(rows.ptr) - 1)
    mine = np.repeat(np.arange(own.shape[1]), count[part])
    behind = np.cumsum(count[part]) - count[part]
    at = (rows.ptr[own[part]] - behind)[mine] + np.arange(len(mine))
    order = np.asarray(rows.order)[at] if len(rows.order) else at
    found = exact_rows(mine, np.asarray(rows.index)[at], np.zeros(0, np.int32), own.shape[1])
    cells, chunks = count.sum(1).max(), (-(-count // CHUNK)).sum(1).max()
    found = with_chunks(found._replace(index=longer(found.index, cells)), chunks)
    numbers = np.maximum(own[part], 0).astype(np.int32)
    return Share(rows.ptr, found, numbers, place, side), order


def placed(own: np.ndarray, n: int) -> np.ndarray:
    """Where each of n rows is among the gathered rows of all parts."""
    place = np.empty(n, np.int32)
    place[own[own >= 0]] = np.flatnonzero(own >= 0)
    return place


def longer(array: Any, size: int, filler: int = 0) -> np.ndarray:
    """The array, padded to this length."""
    array = np.asarray(array)
    shape = [(0, size - len(array)), *[(0, 0)] * (array.ndim - 1)]
    return np.pad(array, shape, constant_values=filler)


def with_chunks(rows: Rows, size: int) -> Rows:
    """The rows with so many chunks: those that are added begin where the last row ends, without cells."""
    return rows._replace(
        chunk=longer(rows.chunk, size, int(rows.ptr[-1])),
        chunk_row=longer(rows.chunk_row, size, len(rows.ptr) - 2),
    )


def to_all(tree: Any, mesh: Mesh) -> Any:
    """The same arrays on every device of the mesh; each process has them."""
    sharding = NamedSharding(mesh, PartitionSpec())

    def one(leaf: Any) -> jax.Array:
        array = np.asarray(leaf)
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    return jax.tree.map(one, tree)
