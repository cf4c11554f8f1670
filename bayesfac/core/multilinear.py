"""Products of the rows of several tables, for the cells of tensors and linked matrices.

A step for one mode after the other is compiled once for each mode, and this can take far longer than the
steps themselves. So a small tensor gets tables of one size (`evened`). All its modes are then entries along
a leading axis, and `in_turn` is a loop whose body is compiled once.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayesfac.core.data.cells import (
    Cells,
    Grid,
    Known,
    LinkedCells,
    Query,
    Rows,
    TensorCells,
    codes_of,
)
from bayesfac.core.data.divided.shares import Share
from bayesfac.core.kernels import sparse
from bayesfac.core.math import inner, pick

EVEN = (
    10_000  # rows, of all modes together, up to which the modes of a tensor get tables of one size
)


@jax.tree_util.register_pytree_node_class
class EvenCells(TensorCells):
    """The cells of a tensor whose modes all have as many rows as the longest. The rows behind those of a mode
    have no cells. `modes` is one layout, with an axis of modes before those of its arrays."""

    @classmethod
    def tree_unflatten(cls, shape: tuple[int, ...], children: tuple) -> "EvenCells":
        self = object.__new__(cls)
        self.shape, self.code = shape, children[0]
        self.modes = Rows(*children[1:])  # type: ignore[assignment]
        return self


def evened(cells: Any) -> Any:
    """The cells with modes of one size, if they are those of a small tensor."""
    M, n = len(cells.shape), max(cells.shape)
    if type(cells) is not TensorCells or M * n > EVEN:
        return cells
    first = np.cumsum((0, *cells.shape[:-1]))
    shift = np.asarray(
        n * np.arange(M) - first, np.int32
    )  # of the numbers of the rows of each mode
    most = max(len(rows.chunk) for rows in cells.modes)

    def layout(m: int, rows: Rows) -> Rows:
        ptr = jnp.pad(rows.ptr, (0, n - cells.shape[m]), mode="edge")
        free = (0, most - len(rows.chunk))  # chunks without cells
        chunk = jnp.pad(rows.chunk, free, constant_values=len(cells))
        chunk_row = jnp.pad(rows.chunk_row, free, constant_values=n - 1)
        return Rows(ptr, rows.index + np.delete(shift, m), rows.order, chunk, chunk_row)

    layouts = [layout(m, rows) for m, rows in enumerate(cells.modes)]
    modes = jax.tree.map(lambda *arrays: jnp.stack(arrays), *layouts)
    return EvenCells.tree_unflatten((n,) * M, (cells.code + shift, *modes))


def rows_at(cells: Any, m: Any) -> Rows:
    """The layout of a mode."""
    return at(cells.modes, m) if isinstance(cells, EvenCells) else cells.modes[m]


def at(tables: Any, m: Any) -> Any:
    """Entry m of a list, or along the leading axis of all arrays."""
    if isinstance(tables, list):
        return tables[m]
    return jax.tree.map(lambda t: jax.lax.dynamic_index_in_dim(t, m, keepdims=False), tables)


def put(tables: Any, m: Any, new: Any) -> Any:
    """The tables with another entry m: see `at`."""
    if isinstance(tables, list):
        return [*tables[:m], new, *tables[m + 1 :]]
    update = jax.lax.dynamic_update_index_in_dim
    return jax.tree.map(lambda t, own: update(t, own, m, 0), tables, new)


def in_turn(
    step: Callable[[Any, Any], Any], tables: Any, cells: Any, backwards: bool = False
) -> Any:
    """The tables after `step(m, tables)`, which returns the new entry m, for one mode m after the other."""
    M = len(cells.shape)

    def made(number: Any, tables: Any) -> Any:
        m = M - 1 - number if backwards else number
        return put(tables, m, step(m, tables))

    if isinstance(cells, EvenCells):
        return jax.lax.fori_loop(0, M, made, tables)
    for number in range(M):
        tables = made(number, tables)
    return tables


def parted(table: jax.Array, cells: Any) -> Any:
    """The tables of the modes, which stand one below the other."""
    if isinstance(cells, EvenCells):
        return table.reshape(len(cells.shape), -1, *table.shape[1:])
    return jnp.split(table, np.cumsum(cells.shape)[:-1])


def others(tables: Sequence[jax.Array], mode: int, cells: Cells | TensorCells) -> jax.Array:
    """The table to whose rows `cells.modes[mode].index` points."""
    return tables[1 - mode] if isinstance(cells, Cells) else jnp.concatenate(tables)


def multiplied(
    tables: Sequence[jax.Array], cells: Cells | Share | TensorCells | Query | Grid
) -> jax.Array:
    """sum_k prod_m t_mk at the given cells, for one table for each axis; u . v if there are two.

    Of a Grid the whole block: `col` has, for each column, a row number for all axes but the first. Rows
    numbered -1 (unknown) count as 0.
    """
    if isinstance(cells, TensorCells):
        return _product_dots(cells, jnp.concatenate(tables))
    if len(tables) == 2:
        one, two = tables
        return inner(one, two, cells)
    first, *rest = tables
    behind = jnp.stack([pick(table, cells.col[:, m]) for m, table in enumerate(rest)]).prod(0)
    if isinstance(cells, Grid):
        return first[cells.row] @ behind.T
    return jnp.sum(pick(first, cells.row) * behind, -1)


@jax.custom_vjp
def _product_dots(cells: TensorCells, table: jax.Array) -> jax.Array:
    return sparse.product_dots(cells.code, table)


def _backward(residuals: tuple, slope: jax.Array) -> tuple[None, jax.Array]:
    cells, table = residuals
    return None, jnp.concatenate([sparse.spread(rows, slope, table) for rows in cells.modes])


_product_dots.defvjp(
    lambda cells, table: (sparse.product_dots(cells.code, table), (cells, table)), _backward
)


def crossed(
    first: Sequence[jax.Array], second: Sequence[jax.Array], cells: LinkedCells
) -> jax.Array:
    """sum_k s_k t_k at cells of several matrices: s from the tables `first` at the row, t from the tables
    `second` at the column."""
    table = jnp.concatenate([*first, *second])
    return sparse.product_dots(cells.code + jnp.array([0, len(table) // 2]), table)


def multilinear(
    tables: Sequence[jax.Array], query: Query | Grid, priors: Sequence[tuple]
) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of sum_k prod_m t_mk; a label without training data is a draw from its prior.

    `priors` are the (mean, covariance) of each axis. The variance is zero where all labels are known.
    """
    if isinstance(query, Grid):
        return multiplied(tables, query), jnp.zeros((), tables[0].dtype)
    code = jnp.asarray(codes_of(query))
    new = code < 0
    rows = [
        jnp.where(new[:, m, None], mu, table[code[:, m]])
        for m, (table, (mu, _)) in enumerate(zip(tables, priors, strict=True))
    ]

    def variance(_: None) -> jax.Array:
        # the (k, l) entries of E tt' multiply; with those of the means taken off, row k by row k
        def row(k: jax.Array) -> jax.Array:
            mean, second = jnp.ones_like(rows[0]), jnp.ones_like(rows[0])
            for m, (t, (_, cov)) in enumerate(zip(rows, priors, strict=True)):
                outer = t[:, k, None] * t
                mean, second = (
                    mean * outer,
                    second * (outer + jnp.where(new[:, m, None], cov[k], 0)),
                )
            return jnp.sum(second - mean, -1)

        every = jax.lax.map(row, jnp.arange(rows[0].shape[1]))
        return jnp.maximum(jnp.sum(every, 0), 0)

    def known(_: None) -> jax.Array:
        return jnp.zeros(len(code), rows[0].dtype)

    mean = jnp.sum(jnp.stack(rows).prod(0), -1)
    if isinstance(query, Known):
        return mean, known(None)
    return mean, jax.lax.cond(jnp.any(new), variance, known, None)
