"""Products of the rows of several tables, for the cells of tensors and linked matrices."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from bayesfac.core.data.cells import (
    Cells,
    Grid,
    Known,
    LinkedCells,
    Query,
    TensorCells,
    codes_of,
)
from bayesfac.core.data.divided.shares import Share
from bayesfac.core.kernels import sparse
from bayesfac.core.math import inner, pick


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
