"""Small pieces of arithmetic that several methods share."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from bayesfac.core import events
from bayesfac.core.data.cells import Cells, Grid, Query, Rows
from bayesfac.core.kernels import sparse


def inner(U: jax.Array, V: jax.Array, at: Cells | Query | Grid) -> jax.Array:
    """u_i . v_j at the cells asked for; a Grid gives the whole block. Unknown (-1) rows count as 0."""
    if isinstance(at, Cells):
        return _cell_dots(at, U, V)
    if isinstance(at, Grid):
        return U[..., at.row, :] @ jnp.swapaxes(V[..., at.col, :], -1, -2)
    if U.ndim > 2:  # several problems along a leading axis
        return jax.vmap(lambda u, v: inner(u, v, at))(U, V)
    return jnp.sum(pick(U, at.row) * pick(V, at.col), -1)


def pick(table: jax.Array, index: jax.Array | np.ndarray) -> jax.Array:
    """Rows of a table; zeros where the index is -1."""
    known = jnp.reshape(jnp.asarray(index) >= 0, (-1,) + (1,) * (table.ndim - 1))
    return jnp.where(known, table[index], 0)


def entries(table: jax.Array, at: Query | Grid) -> jax.Array:
    """The entries asked for, or the whole block of a Grid; zero where a row or column is unknown (-1)."""
    if isinstance(at, Grid):
        return table[jnp.asarray(at.row)][:, jnp.asarray(at.col)]
    row, col = jnp.asarray(at.row), jnp.asarray(at.col)
    return jnp.where((row >= 0) & (col >= 0), table[row, col], 0)


@jax.custom_vjp
def _cell_dots(cells: Cells, U: jax.Array, V: jax.Array) -> jax.Array:
    return sparse.dots(cells, U, V)


def _forward(cells: Cells, U: jax.Array, V: jax.Array) -> tuple[jax.Array, tuple]:
    return sparse.dots(cells, U, V), (cells, U, V)


def _backward(kept: tuple, slope: jax.Array) -> tuple[None, jax.Array, jax.Array]:
    # the sparse gradient of any loss on the observed cells: sorted sums, no unsorted scatter
    cells, U, V = kept
    return None, sparse.spread(cells.by_row, slope, V), sparse.spread(cells.by_col, slope, U)


_cell_dots.defvjp(_forward, _backward)


def row_sums(rows: Rows, values: jax.Array) -> jax.Array:
    """Sums over the observed cells of every row; `values` is row-major, with any trailing axes."""
    n = rows.ptr.shape[0] - 1
    at = jnp.repeat(jnp.arange(n), jnp.diff(rows.ptr), total_repeat_length=len(values))
    return jax.ops.segment_sum(values, at, n, indices_are_sorted=True)


def normalise(table: jax.Array, fallback: jax.Array) -> jax.Array:
    """Rows that sum to one; a row without any mass keeps `fallback`."""
    total = table.sum(-1, keepdims=True)
    return jnp.where(total > 0, table / jnp.where(total > 0, total, 1), fallback)


def safe_log(x: jax.Array) -> jax.Array:
    """log x, with the smallest positive number for zero: 0 log 0 is then 0."""
    return jnp.log(jnp.maximum(x, jnp.finfo(x.dtype).tiny))


def bilinear(
    U: jax.Array, V: jax.Array, at: Query | Grid, user: tuple, item: tuple
) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of u . v where a row (or column) that training never saw is still a draw
    from its prior: `user` and `item` are (mean, covariance) of that prior. A known pair has no variance."""
    if isinstance(at, Grid):
        return inner(U, V, at), jnp.zeros((), U.dtype)
    new_user, new_item = jnp.asarray(at.row) < 0, jnp.asarray(at.col) < 0
    u = jnp.where(new_user[:, None], user[0], U[at.row])
    v = jnp.where(new_item[:, None], item[0], V[at.col])

    def variance(_: None) -> jax.Array:
        by_user = jnp.where(new_user, jnp.sum((v @ user[1]) * v, -1), 0)
        by_item = jnp.where(new_item, jnp.sum((u @ item[1]) * u, -1), 0)
        both = jnp.where(new_user & new_item, jnp.sum(user[1] * item[1]), 0)
        return (by_user + by_item + both).astype(U.dtype)

    def known(_: None) -> jax.Array:
        return jnp.zeros(u.shape[0], U.dtype)

    return jnp.sum(u * v, -1), jax.lax.cond(jnp.any(new_user | new_item), variance, known, None)


def metropolis(
    key: jax.Array,
    t: jax.Array,
    step: jax.Array,
    density: Callable[[jax.Array], jax.Array],
    times: int,
) -> jax.Array:
    """Random-walk steps of the rows of t, each taken or not by its own log density (n)."""
    now = density(t)
    for number in range(times):
        walk, coin = jax.random.split(jax.random.fold_in(key, number))
        new = t + step * jax.random.normal(walk, t.shape, t.dtype)
        there = density(new)
        fine = jnp.log(jax.random.uniform(coin, now.shape, now.dtype)) < there - now
        t, now = jnp.where(fine[:, None], new, t), jnp.where(fine, there, now)
    return t


def factor(P: jax.Array) -> jax.Array:
    """Cholesky's factor of a positive definite matrix.

    Where rounding left none, that of the matrix plus the least ridge that gives one, from its rounding error
    upwards in steps of ten; whoever listens is told.

    >>> bool(jnp.isfinite(factor(jnp.ones((3, 3)))).all())
    True
    """
    L = jnp.linalg.cholesky(P)
    events.tell("a system was singular at this precision and was given a ridge", jnp.isnan(L).any())
    return _ridged(P, L)


@jax.jit  # outside of a compiled program a loop over closures would be compiled at every call
def _ridged(P: jax.Array, L: jax.Array) -> jax.Array:
    first = jnp.finfo(P.dtype).eps * jnp.max(jnp.diagonal(P))

    def broken(state: tuple[jax.Array, jax.Array]) -> jax.Array:
        # of a matrix with NaN in it no ridge makes another one
        return jnp.isnan(state[0]).any() & jnp.isfinite(P).all() & (state[1] < 1e6 * first)

    def again(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        ridge = jnp.maximum(10 * state[1], first)
        return jnp.linalg.cholesky(P + ridge * jnp.eye(len(P), dtype=P.dtype)), ridge

    return jax.lax.while_loop(broken, again, (L, jnp.zeros_like(first)))[0]


def crps_of_sample(draws: np.ndarray, value: np.ndarray) -> np.ndarray:
    """The continuous ranked probability score E|X - y| - E|X - X'| / 2 of draws (draw, ...) at `value`.

    The second mean runs over the m (m - 1) pairs of distinct draws, not all m^2: the score is that of the
    law that the draws come from, without bias ("fair": Ferro 2014). One draw is a point: |x - y|.
    """
    m = len(draws)
    rank = 2 * np.arange(1, m + 1) - m - 1  # sum_ij |x_i - x_j| = 2 sum_k rank_k x_(k)
    spread = rank @ np.sort(draws, axis=0) / max(m * (m - 1), 1)
    return np.abs(draws - value).mean(0) - spread
