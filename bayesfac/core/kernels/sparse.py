"""Loops over the observed cells of sparse data, each in Numba and in JAX.

On a CPU the loops are Numba kernels inside the compiled program (see bridge.py). The JAX version runs on
accelerators, in programs that need derivatives in forward mode, and if XLA refuses the kernels. A test
compares the two. The JAX version cuts rows into padded chunks of 64 cells, so that the row lengths do not
change the compiled program.
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial, wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayesfac.core.data.cells import CHUNK, Cells, Rows
from bayesfac.core.data.divided.own_rows import OwnRows, added
from bayesfac.core.data.divided.shares import Share
from bayesfac.core.kernels.losses import BINARY, ordinal, proximal, proximal_centres

_forced: list[str] = []  # nested choices of `use`


@contextmanager
def use(backend: str) -> Iterator[None]:
    """Trace the "numba" or the "jax" version of the loops inside the block, on any machine."""
    if backend not in ("numba", "jax"):
        raise ValueError(f"Expected 'numba' or 'jax', got {backend!r}")
    _forced.append(backend)
    try:
        yield
    finally:
        _forced.pop()


def chosen() -> str | None:
    """The version of the loops that `use` asks for here; None outside of its blocks."""
    return _forced[-1] if _forced else None


def backend() -> str:
    """The version of the loops that is traced now: "numba" or "jax"."""
    if version := chosen():
        return version
    return "numba" if jax.default_backend() == "cpu" and _accepted() else "jax"


@cache
def _accepted() -> bool:
    """Whether XLA accepts the kernels; if not, warn once."""
    from bayesfac.core.kernels import bridge, numba_loops  # not at import: loads Numba

    if reason := bridge.refusal(numba_loops.dots):
        message = f"{reason} in JAX {jax.__version__}: the slower loops of JAX run instead"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    return not reason


def _call(kernel: str, like: jax.Array, results: Any, *args: Any, **plan: Any) -> Any:
    """The results of a kernel, for arguments whose real numbers get the type of `like`."""
    from bayesfac.core.kernels import bridge, numba_loops, product_loops

    home = product_loops if "product" in kernel else numba_loops
    arrays = [jnp.asarray(a) for a in args]
    real = [jnp.issubdtype(a.dtype, jnp.floating) for a in arrays]
    cast = [a.astype(like.dtype if r else jnp.int32) for a, r in zip(arrays, real, strict=True)]
    return bridge.call(getattr(home, kernel), like.dtype, results, *cast, **plan)


def _copies(cost: float) -> int:
    """How many shares a kernel gets that adds up a copy of its result for each share."""
    from bayesfac.core.kernels import bridge

    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(min(own, max(1, cost // bridge.GRAIN)))


def _in_numba(fast: Any) -> Any:
    """Run `fast`, which calls a Numba kernel, in place of the decorated JAX function, with the derivatives of
    the JAX function."""

    def decorate(plain: Any) -> Any:
        compiled = jax.custom_jvp(fast)

        @compiled.defjvp
        def derivative(primals: Any, tangents: Any) -> Any:
            return compiled(*primals), jax.jvp(plain, primals, tangents)[1]

        @wraps(plain)
        def either(*args: Any) -> Any:
            return (plain if backend() == "jax" else compiled)(*args)

        return either

    return decorate


def _gathered(function: Any) -> Any:
    """For a share: the rows of this device by the decorated function, gathered with those of all devices."""

    @wraps(function)
    def either(rows: Rows | Share, *args: Any) -> Any:
        if isinstance(rows, Share):
            return rows.gathered(function(rows.mine, *args))
        return function(rows, *args)

    return either


def row_of_cells(rows: Rows, size: int) -> jax.Array:
    """The row of each of the `size` observed cells."""
    return jnp.repeat(jnp.arange(len(rows.ptr) - 1), jnp.diff(rows.ptr), total_repeat_length=size)


def _dots(cells: Cells, U: jax.Array, V: jax.Array) -> jax.Array:
    if U.ndim > 2:
        return jax.vmap(partial(_dots, cells))(U, V)
    rows, cost = cells.by_row, len(cells) * U.shape[1]
    return _call("dots", U, [(len(cells),)], rows.ptr, rows.index, U, V, cost=cost)[0]


@_in_numba(_dots)
def dots(cells: Cells, U: jax.Array, V: jax.Array) -> jax.Array:
    """x_ij = u_i . v_j on the observed cells, row-major; (S, n, K) factors give S such lists."""
    return jnp.sum(U[..., cells.row, :] * V[..., cells.col, :], -1)


def product_dots(code: jax.Array, table: jax.Array) -> jax.Array:
    """sum_k prod_m t_mk for every cell, where t_m is the row code[cell, m] of the table."""
    if backend() == "jax":
        return jnp.sum(jnp.prod(table[code], -2), -1)
    size = code.shape[0]
    return _call("product_dots", table, [(size,)], code, table, cost=code.size * table.shape[1])[0]


def chunks(rows: Rows) -> jax.Array:
    """The cells of every chunk (C, 64); -1 for padding."""
    at = rows.chunk[:, None] + jnp.arange(CHUNK, dtype=rows.chunk.dtype)
    return jnp.where(at < rows.ptr[rows.chunk_row + 1][:, None], at, -1)


def in_order(rows: Rows, values: jax.Array, at: jax.Array) -> jax.Array:
    """The row-major values of the cells at these places."""
    return values[rows.order[at] if rows.order.shape[0] else at]


def picked(rows: Rows, V: jax.Array, at: Any) -> jax.Array:
    """The factors of the cells at these places: a row of V, or in a tensor the product of several rows."""
    v = V[rows.index[at]]
    return v if rows.index.ndim == 1 else jnp.prod(v, -2)


def share_dots(share: Share, U: jax.Array, V: jax.Array) -> jax.Array:
    """`dots` of the cells of a share, in its own order."""
    mine, other = (U, V) if share.side == "user" else (V, U)
    rows = share.mine
    leaves = share.local(), rows.index, rows, None
    shape = (len(share.own), other.shape[0])
    return dots(Cells.tree_unflatten(shape, leaves), mine[share.own], other)


def _spread(rows: Rows, weight: jax.Array, V: jax.Array) -> jax.Array:
    if V.ndim > 2:
        return jax.vmap(partial(_spread, rows))(weight, V)
    shape, cost = (len(rows.ptr) - 1, V.shape[1]), rows.index.size * V.shape[1]
    layout = rows.ptr, rows.index, rows.order
    kernel = "spread" if rows.index.ndim == 1 else "product_spread"
    return _call(kernel, V, [shape], *layout, weight, V, cost=cost)[0]


@_gathered
@_in_numba(_spread)
def spread(rows: Rows, weight: jax.Array, V: jax.Array) -> jax.Array:
    """g_i = sum_j w_ij v_j over the observed cells of row i; `weight` is row-major.

    If w is the slope of a loss in x, g is the gradient in U. Leading axes are as in `dots`.
    """
    if V.ndim > 2:
        return jax.vmap(partial(spread, rows))(weight, V)
    at = chunks(rows)
    w = jnp.where(at >= 0, in_order(rows, weight, at), 0)
    part = jnp.einsum("ce,cek->ck", w, picked(rows, V, at))
    n = rows.ptr.shape[0] - 1
    return jax.ops.segment_sum(part, rows.chunk_row, n, indices_are_sorted=True)


def _differences(left: jax.Array, right: jax.Array, A: jax.Array, B: jax.Array) -> jax.Array:
    cost = len(left) * A.shape[1]
    return _call("differences", A, [left.shape], left, right, A, B, cost=cost)[0]


@_in_numba(_differences)
def differences(left: jax.Array, right: jax.Array, A: jax.Array, B: jax.Array) -> jax.Array:
    """(a_i - a_s) . (b_i - b_s) for every pair (i, s) = (left, right)."""
    return jnp.sum((A[left] - A[right]) * (B[left] - B[right]), -1)


def _ratio_step(
    cells: Cells, y: jax.Array, A: jax.Array, G: jax.Array
) -> tuple[jax.Array, jax.Array]:
    cost = 3 * len(cells) * A.shape[1]
    copies, (m, K) = _copies(cost), G.shape
    layout, shapes = (cells.by_row.ptr, cells.by_row.index), [A.shape, (copies * m, K)]
    by_row, by_col = _call("ratio_step", A, shapes, *layout, y, A, G, cost=cost, blocks=copies)
    return by_row, by_col.reshape(copies, m, K).sum(0)


def _of_own_rows(function: Any) -> Any:
    """For the cells of own rows and their parameters: the sums by row, and those of all devices by column."""

    @wraps(function)
    def either(cells: Cells | OwnRows, y: jax.Array, A: jax.Array, G: jax.Array) -> Any:
        if not isinstance(cells, OwnRows):
            return function(cells, y, A, G)
        by_row, by_col = function(cells.mine, y, A, G)
        return by_row, added(by_col)

    return either


@_of_own_rows
@_in_numba(_ratio_step)
def ratio_step(
    cells: Cells, y: jax.Array, A: jax.Array, G: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The two sums of a Kullback-Leibler update, in one pass over the observed cells.

    With r_ij = y_ij / (a_i . g_j): sum_j r_ij g_j by row (n x K) and sum_i r_ij a_i by column (m x K). A cell
    with a_i . g_j = 0, such as a word that no training row has, has no effect: its r_ij is 0.
    """
    r = ratios(cells, y, A, G)
    return spread(cells.by_row, r, G), spread(cells.by_col, r, A)


def ratios(cells: Cells, y: jax.Array, A: jax.Array, G: jax.Array) -> jax.Array:
    """The r_ij of `ratio_step`. If only one of its sums is needed, this and `spread` take two thirds of the
    time."""
    x = dots(cells, A, G)
    some = x > 4 * jnp.finfo(A.dtype).tiny * y  # r_ij does not overflow
    return jnp.where(some, y / jnp.where(some, x, 1), 0)


def ordinal_loss(
    x: jax.Array,
    theta: jax.Array,
    code: jax.Array,
    rows: Rows,
    weight: jax.Array | None,
    loss: str,
    immediate: bool,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The summed ordinal loss of the cells (row-major) against the thresholds of their rows, and its
    gradients in x (cells) and theta (n x R - 1). A leading axis means S such problems."""
    if theta.ndim > 2:
        axes = (0, 0, 0 if code.ndim > 1 else None, 0 if weight is not None else None)
        one = partial(ordinal_loss, rows=rows, loss=loss, immediate=immediate)
        return jax.vmap(lambda x, t, c, w: one(x, t, c, weight=w), axes)(x, theta, code, weight)
    if backend() == "numba":
        cost = 4 * len(x) * (2 if immediate else theta.shape[1])
        kind = np.array([list(BINARY).index(loss), immediate], np.int32)
        w = jnp.ones(1, x.dtype) if weight is None else weight
        plan = {"cost": cost, "blocks": _copies(cost)}
        shapes = [(plan["blocks"],), x.shape, theta.shape]
        total, *slopes = _call("ordinal_loss", x, shapes, kind, rows.ptr, x, theta, code, w, **plan)
        return jnp.sum(total), *slopes
    row = row_of_cells(rows, len(x))
    w = jnp.ones_like(x) if weight is None else weight

    def summed(x: jax.Array, own: jax.Array) -> jax.Array:
        return jnp.sum(w * ordinal(x, own, code, loss, immediate))

    total, (by_x, by_own) = jax.value_and_grad(summed, (0, 1))(x, theta[row])
    return total, by_x, jax.ops.segment_sum(by_own, row, len(theta), indices_are_sorted=True)


def proximal_loss(
    x: jax.Array, code: jax.Array, rows: Rows, n_levels: int
) -> tuple[jax.Array, jax.Array]:
    """The summed proximal loss of the cells about the centres of their rows (means of x by level), and its
    gradient in x, which includes the derivative of the centres."""
    if backend() == "numba":
        cost = 4 * len(x) * n_levels
        plan = {"cost": cost, "blocks": _copies(cost)}
        levels, shapes = np.array([n_levels], np.int32), [(plan["blocks"],), x.shape]
        total, by_x = _call("proximal_loss", x, shapes, levels, rows.ptr, x, code, **plan)
        return jnp.sum(total), by_x
    row = row_of_cells(rows, len(x))

    def summed(x: jax.Array) -> jax.Array:
        theta, count = proximal_centres(x, code, row, (len(rows.ptr) - 1, n_levels))
        return jnp.sum(proximal(x, theta[row], code, count[row] > 0))

    return jax.value_and_grad(summed)(x)


def gram(rows: Rows, V: jax.Array, weight: jax.Array | None = None) -> jax.Array:
    """sum_j w_ij v_j v_j' over the observed cells of every row, (n, K, K); `weight` is row-major, or 1."""
    n, at = rows.ptr.shape[0] - 1, chunks(rows)
    v = jnp.where((at >= 0)[..., None], picked(rows, V, at), 0)
    wv = v if weight is None else in_order(rows, weight, at)[..., None] * v
    part = jnp.einsum("cek,cel->ckl", v, wv)
    return jax.ops.segment_sum(part, rows.chunk_row, n, indices_are_sorted=True)


def normal_equations(
    rows: Rows, target: jax.Array, V: jax.Array, weight: jax.Array, precision: Any, shift: Any
) -> tuple[jax.Array, jax.Array]:
    """The P_i and b_i of `solve_rows` for all rows."""
    if jnp.ndim(weight):
        return precision + gram(rows, V, weight), shift + spread(rows, weight * target, V)
    return precision + weight * gram(rows, V), shift + weight * spread(rows, target, V)


def system_of(
    rows: Rows, target: jax.Array, V: jax.Array, weight: jax.Array, precision: Any, shift: Any
) -> tuple[tuple[Any, ...], float]:
    """P_i and b_i as Numba loops take them, and how many multiplications their sums need."""
    K, wide = V.shape[1], V.shape[1] + -V.shape[1] % 8
    whole = [jnp.pad(a.reshape(-1, K), [(0, 0), (0, -K % 16)]) for a in (V, precision, shift)]
    layout = rows.ptr, rows.index, rows.order
    products = len(rows.index) * wide * (wide + 8) / 2
    return (*layout, target, jnp.atleast_1d(weight), *whole), products


def _solve_rows(
    rows: Rows,
    target: jax.Array,
    V: jax.Array,
    weight: jax.Array,
    prior_precision: jax.Array,
    prior_shift: jax.Array,
    noise: jax.Array | None = None,
) -> jax.Array:
    n, K = rows.ptr.shape[0] - 1, V.shape[1]
    shape = (n, K) if noise is None else noise.shape
    z = jnp.zeros((0, K), V.dtype) if noise is None else noise.reshape(n, -1)
    system, products = system_of(rows, target, V, weight, prior_precision, prior_shift)
    draws, wide = int(np.prod(shape[1:])), K + -K % 8
    solution = n * (wide**3 / 6 + 8 * wide**2) + n * draws * wide
    cost = (products + solution) / 4  # tiles multiply four times as fast as the other loops
    kernel = "solve_rows" if rows.index.ndim == 1 else "solve_product_rows"
    return _call(kernel, V, [(n, draws)], *system, z, cost=cost)[0].reshape(shape)


@_in_numba(_solve_rows)
def solve_rows(
    rows: Rows,
    target: jax.Array,
    V: jax.Array,
    weight: jax.Array,
    prior_precision: jax.Array,
    prior_shift: jax.Array,
    noise: jax.Array | None = None,
) -> jax.Array:
    """The means P_i^-1 b_i; with standard normal `noise` (n x K), draws from N(P_i^-1 b_i, P_i^-1).

    P_i = L + sum_j w_ij v_j v_j' and b_i = s + sum_j w_ij t_ij v_j; `weight` is one number, or one for each
    cell (row-major, as `target`). L (K x K) and s (K) are the same for all rows, or have an axis of rows
    before these. Noise of n x S x K gives S draws of each row from one factorisation.
    """
    P, b = normal_equations(rows, target, V, weight, prior_precision, prior_shift)
    L = jnp.linalg.cholesky(P)
    half = jax.lax.linalg.triangular_solve(L, b[..., None], left_side=True, lower=True)
    if noise is not None:
        half = half + jnp.moveaxis(noise.reshape(len(b), -1, b.shape[1]), 1, 2)
    full = jax.lax.linalg.triangular_solve(L, half, left_side=True, lower=True, transpose_a=True)
    return full[..., 0] if noise is None else jnp.moveaxis(full, 1, 2).reshape(noise.shape)
