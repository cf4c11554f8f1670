"""The coordinates of observed cells, sorted by row and by column."""

from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.sparse as sp

CHUNK = 64  # cells in a padded chunk; a long row has many chunks, so shapes do not depend on the longest row


class Query(NamedTuple):
    """Cells to predict, one by one; -1 stands for a label that training never saw.

    `user` and `item` hold features of labels that training never saw (`features.Design`): such a label has
    the code -1 - k, and its features are in row k. Row 0 has the mean features, for labels without a row.
    Of a tensor `col` has a column for each mode but the first (`query_of`).
    """

    row: jax.Array | np.ndarray
    col: jax.Array | np.ndarray
    user: Any = None
    item: Any = None


class Known(Query):
    """Cells of which no code is negative. Programs for them leave out the code for new labels, whose
    compilation can take longer than that of all the rest."""

    __slots__ = ()


class Grid(NamedTuple):
    """All cells of some rows and some columns."""

    row: jax.Array | np.ndarray
    col: jax.Array | np.ndarray


class Rows(NamedTuple):
    """The cells sorted by row: the cells of row i are `ptr[i]:ptr[i + 1]`.

    index       the column of each cell; of a tensor a row of numbers, see `TensorCells`
    order       the position of each cell in the row-major list; empty if the cells are in its order
    chunk       the first cell of every chunk: at most 64 cells of one row
    chunk_row   the row of every chunk
    """

    ptr: jax.Array | np.ndarray
    index: jax.Array | np.ndarray  # type: ignore[assignment]  # hides tuple.index
    order: jax.Array | np.ndarray
    chunk: jax.Array | np.ndarray
    chunk_row: jax.Array | np.ndarray


class Layout(NamedTuple):
    """Cells in row-major order: those of row i are `ptr[i]:ptr[i + 1]`, `col` are their columns, and
    `origin` says where each of them was among the cells as they were given."""

    ptr: np.ndarray
    col: np.ndarray
    origin: np.ndarray


def row_major(row: np.ndarray, col: np.ndarray, shape: tuple[int, int]) -> Layout:
    """The layout of cells in any order; cells that are there twice stand in any order beside each other.

    SciPy moves each cell to its row, and then sorts every row: no other arrays than these three are made.
    """
    table = sp.coo_array((np.arange(len(row), dtype=np.int32), (row, col)), shape)
    table.has_canonical_format = True  # or SciPy adds up the numbers of equal cells
    table = table.tocsr()
    table.sort_indices()
    ptr, col, origin = table.indptr, table.indices, table.data
    del table
    return Layout(ptr, copied(col, np.int32), origin)


@jax.tree_util.register_pytree_node_class
class Cells:
    """The observed cells of an n x m matrix: `row` and `col`, row-major, and sorted by row and by column."""

    def __init__(self, row: np.ndarray, col: np.ndarray, shape: tuple[int, int]) -> None:
        self._fill(_starts(row, shape[0]), copied(col, np.int32), shape)
        self.row = _device(row)

    def _fill(self, ptr: np.ndarray, col: np.ndarray, shape: tuple[int, int]) -> None:
        by_col = sp.csr_array((np.arange(len(col), dtype=np.int32), col, ptr), shape).tocsc()
        starts, row, order = by_col.indptr, by_col.indices, by_col.data
        del by_col
        row = copied(row, np.int32)  # one after the other, as each frees the array of SciPy
        order = copied(order, np.int32)
        self.col, self.shape = jax.device_put(col), shape
        self.by_row = _rows(ptr, self.col, jax.device_put(np.zeros(0, np.int32)))
        self.by_col = _rows(starts, jax.device_put(row), jax.device_put(order))

    @classmethod
    def of(cls, layout: Layout, shape: tuple[int, int]) -> "Cells":
        """The cells of a layout, which nobody may change afterwards."""
        self = object.__new__(cls)
        self._fill(layout.ptr, layout.col, shape)
        return self

    @cached_property
    def row(self) -> Any:
        """The row of each cell. It is made when it is first asked for, as it is as large as `col`."""
        ptr = np.asarray(self.by_row.ptr)
        row = np.repeat(np.arange(len(ptr) - 1, dtype=np.int32), np.diff(ptr))
        with jax.ensure_compile_time_eval():  # a program that is traced may be the first to ask
            return _device(row)

    def tree_flatten(self) -> tuple[tuple, tuple[int, int]]:
        return (self.row, self.col, self.by_row, self.by_col), self.shape

    @classmethod
    def tree_unflatten(cls, shape: tuple[int, int], children: tuple) -> "Cells":
        self = object.__new__(cls)
        self.shape = shape
        self.row, self.col, self.by_row, self.by_col = children
        return self

    def __len__(self) -> int:
        return len(self.col)

    @property
    def modes(self) -> tuple[Rows, ...]:
        """The cells sorted by each axis."""
        return self.by_row, self.by_col

    @property
    def codes(self) -> tuple[jax.Array, ...]:
        """The number of each cell along each axis."""
        return self.row, self.col

    def flip(self) -> "Cells":
        """The cells of the transposed matrix, in the order of the original."""
        children = (self.col, self.row, self.by_col, self.by_row)
        return Cells.tree_unflatten(self.shape[::-1], children)


@jax.tree_util.register_pytree_node_class
class TensorCells:
    """The observed cells of a tensor with three or more axes (modes), sorted by each of them.

    The factors of all modes stand in one table, one below the other (`core.multilinear.others`): `code`
    has, for each cell and mode, the number of a row in this table. `modes[m].index` has these numbers
    for all other modes, so that what the cells of mode m multiply is a product of M - 1 rows.
    """

    def __init__(self, code: np.ndarray, shape: tuple[int, ...]) -> None:
        self.shape = shape
        first = np.concatenate([[0], np.cumsum(shape)[:-1]])
        self.code = _device(code + first)
        self.modes: tuple[Rows, ...] = ()
        for mode, n in enumerate(shape):
            order = np.argsort(code[:, mode], kind="stable").astype(np.int32)
            others = np.delete(code + first, mode, 1)[order]
            self.modes += (rows_of(code[order, mode], others, order, n),)

    def tree_flatten(self) -> tuple[tuple, tuple[int, ...]]:
        return (self.code, *self.modes), self.shape

    @classmethod
    def tree_unflatten(cls, shape: tuple[int, ...], children: tuple) -> "TensorCells":
        self = object.__new__(cls)
        self.shape, self.code, self.modes = shape, children[0], tuple(children[1:])
        return self

    def __len__(self) -> int:
        return len(self.code)

    @property
    def codes(self) -> tuple[jax.Array, ...]:
        """The number of each cell along each axis."""
        first = np.concatenate([[0], np.cumsum(self.shape)[:-1]])
        return tuple(self.code[:, m] - int(n) for m, n in enumerate(first))


@jax.tree_util.register_pytree_node_class
class LinkedCells(TensorCells):
    """The observed cells of several matrices, one matrix after the other, sorted by each kind of label.

    The factors of all kinds stand in one table, one below the other: `code` has the numbers of two rows of
    this table for each cell, and `modes[k].index` those of the other end of the cells of kind k.
    """

    def __init__(self, code: np.ndarray, shape: tuple[int, ...]) -> None:
        self.shape, self.code = shape, _device(code)
        self.modes = ()
        first = np.concatenate([[0], np.cumsum(shape)])
        own, other = code.T.ravel(), code[:, ::-1].T.ravel()
        cell = np.tile(np.arange(len(code)), 2)
        for start, stop in pairwise(first):
            at = np.flatnonzero((start <= own) & (own < stop))
            at = at[np.lexsort((cell[at], own[at]))]
            self.modes += (rows_of(own[at] - start, other[at], cell[at], stop - start),)


def query_of(code: Any) -> Query:
    """The query of cells with these codes, cells x axes."""
    return Query(code[:, 0], code[:, 1] if code.shape[1] == 2 else code[:, 1:])


def narrowed(query: Query) -> Query:
    """The same query as `Known`, if no code is negative; features of new labels are then not needed.

    The codes must be on the host.
    """
    if np.min(query.row, initial=0) < 0 or np.min(query.col, initial=0) < 0:
        return query
    return Known(query.row, query.col)


def padded(query: Query) -> Query:
    """The query with its last cell repeated up to a multiple of 128 cells: about a hundred probe cells, of
    which equal ones are dropped, then always run the same program. The codes must be on the host."""
    free = -len(query.row) % 128
    row, col = np.asarray(query.row), np.asarray(query.col)
    longer = np.pad(col, [(0, free), *[(0, 0)] * (col.ndim - 1)], mode="edge")
    return query._replace(row=np.pad(row, (0, free), mode="edge"), col=longer)


def codes_of(query: Query | Grid) -> Any:
    """The codes of a query, cells x axes: the inverse of `query_of`."""
    xp = np if isinstance(query.row, np.ndarray) else jax.numpy
    return xp.concatenate([query.row[:, None], query.col.reshape(len(query.row), -1)], 1)


def exact_rows(row: np.ndarray, index: np.ndarray, order: np.ndarray, n: int) -> Rows:
    """The layout of cells that are sorted by row, with the chunks that they have."""
    return _rows(_starts(row, n), _device(index), _device(order))


def rows_of(row: np.ndarray, index: np.ndarray, order: np.ndarray, n: int) -> Rows:
    """The layout of cells that are sorted by row. It has as many chunks as so many cells of n rows can have:
    the same numbers of cells and rows have arrays of the same size, and run the same program."""
    rows = exact_rows(row, index, order, n)
    free = len(row) // CHUNK + n - len(rows.chunk)  # behind the last cell, so they are empty
    chunk = np.pad(rows.chunk, (0, free), constant_values=len(row))
    chunk_row = np.pad(rows.chunk_row, (0, free), constant_values=n - 1)
    return rows._replace(chunk=_device(chunk), chunk_row=_device(chunk_row))


def _rows(ptr: np.ndarray, index: jax.Array, order: jax.Array) -> Rows:
    chunk, chunk_row = map(_device, chunks_of(ptr))
    return Rows(_device(ptr), index, order, chunk, chunk_row)


def _starts(row: np.ndarray, n: int) -> np.ndarray:
    """`ptr` of `Rows`."""
    ptr = np.zeros(n + 1, np.int32)
    np.cumsum(np.bincount(row, minlength=n), out=ptr[1:])
    return ptr


def chunks_of(ptr: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`chunk` and `chunk_row` of `Rows`."""
    pieces = -(-np.diff(ptr) // CHUNK)
    chunk_row = np.repeat(np.arange(len(pieces)), pieces)
    first = np.concatenate([[0], np.cumsum(pieces)])[chunk_row]
    return ptr[chunk_row] + CHUNK * (np.arange(len(chunk_row)) - first), chunk_row


def aligned(size: int, dtype: Any) -> np.ndarray:
    """Zeros that JAX takes as they are on a CPU, without a copy: they begin at a multiple of 64 bytes."""
    each = np.dtype(dtype).itemsize
    room = np.zeros(size + 64 // each, dtype)  # SciPy copies parts of what is far longer
    begin = -room.ctypes.data % 64 // each
    return room[begin : begin + size]


def copied(array: Any, dtype: Any) -> np.ndarray:
    """A copy of an array that JAX takes as it is: the caller may change the array later, and with an array
    of NumPy there would be two copies. NumPy copies without a program, which JAX would compile for each
    shape."""
    array = np.asarray(array)
    copy = aligned(array.size, dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _device(array: np.ndarray) -> jax.Array:
    return jax.device_put(copied(array, np.int32))


def full_table(table: jax.Array) -> tuple[Cells, jax.Array]:
    """All cells of a dense table, also zeros, so that JAX may trace the values."""
    row, col = np.indices(table.shape).reshape(2, -1)
    return Cells(row, col, (table.shape[0], table.shape[1])), table.ravel()
