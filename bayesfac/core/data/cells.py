"""Where the observed cells of a sparse matrix stand, sorted both ways, once."""

from typing import NamedTuple

import jax
import numpy as np

CHUNK = 64  # cells per padded chunk: long rows become many chunks, so shapes never depend on the longest


class Query(NamedTuple):
    """Cells that are asked for, one by one; -1 stands for a label that training never saw."""

    row: jax.Array | np.ndarray
    col: jax.Array | np.ndarray


class Grid(NamedTuple):
    """Every cell of some rows crossed with some columns."""

    row: jax.Array | np.ndarray
    col: jax.Array | np.ndarray


class Rows(NamedTuple):
    """The cells row by row: those of row i are `ptr[i]:ptr[i + 1]`.

    index   the other coordinate of each cell
    order   where each cell stands in the row-major list
    chunk   (C, 64) positions of cells, all of one row, -1 for padding; chunk_row their row
    """

    ptr: jax.Array | np.ndarray
    index: jax.Array | np.ndarray  # type: ignore[assignment]  # tuple.index is not missed
    order: jax.Array | np.ndarray
    chunk: jax.Array | np.ndarray
    chunk_row: jax.Array | np.ndarray


@jax.tree_util.register_pytree_node_class
class Cells:
    """The observed cells of an n x m matrix, row-major: `row`, `col`, and both orientations."""

    def __init__(self, row: np.ndarray, col: np.ndarray, shape: tuple[int, int]) -> None:
        self.row, self.col, self.shape = _device(row), _device(col), shape
        everywhere = np.arange(len(row), dtype=np.int32)
        self.by_row = _rows(row, col, everywhere, shape[0])
        order = np.lexsort((row, col)).astype(np.int32)
        self.by_col = _rows(col[order], row[order], order, shape[1])

    def tree_flatten(self) -> tuple[tuple, tuple[int, int]]:
        return (self.row, self.col, self.by_row, self.by_col), self.shape

    @classmethod
    def tree_unflatten(cls, shape: tuple[int, int], children: tuple) -> "Cells":
        self = object.__new__(cls)
        self.shape = shape
        self.row, self.col, self.by_row, self.by_col = children
        return self

    def __len__(self) -> int:
        return len(self.row)

    def flip(self) -> "Cells":
        """The same cells as the transposed matrix sees them (still listed row-major of the original)."""
        children = (self.col, self.row, self.by_col, self.by_row)
        return Cells.tree_unflatten(self.shape[::-1], children)


def _rows(row: np.ndarray, index: np.ndarray, order: np.ndarray, n: int) -> Rows:
    count = np.bincount(row, minlength=n)
    ptr = np.concatenate([[0], np.cumsum(count)])
    pieces = -(-count // CHUNK)
    chunk_row = np.repeat(np.arange(n), pieces)
    first = np.concatenate([[0], np.cumsum(pieces)])[chunk_row]
    start = ptr[chunk_row] + CHUNK * (np.arange(len(chunk_row)) - first)
    chunk = start[:, None] + np.arange(CHUNK)
    chunk = np.where(chunk < ptr[chunk_row + 1][:, None], chunk, -1)
    return Rows(*map(_device, (ptr, index, order, chunk, chunk_row)))


def _device(array: np.ndarray) -> jax.Array:
    # a copy: the caller may change its own buffer later, and JAX may alias it
    return jax.numpy.array(np.ascontiguousarray(array, dtype=np.int32), copy=True)


def full_table(table: jax.Array) -> tuple[Cells, jax.Array]:
    """Every cell of a dense table, zeros too: a block whose values JAX may trace."""
    row, col = np.indices(table.shape).reshape(2, -1)
    return Cells(row, col, (table.shape[0], table.shape[1])), table.ravel()
