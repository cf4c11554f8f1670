"""Sparse loops over observed cells, each in Numba and in JAX.

The Numba version runs on a CPU with concrete arrays; the JAX version runs on accelerators and where JAX
traces (gradients under jit, NUTS, SVI). A test compares the two. The JAX version cuts rows into padded chunks
of 64 cells, so that the row lengths do not change the compiled program.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from threadpoolctl import threadpool_limits

from bayesfac.core.data.cells import Cells, Rows
from bayesfac.core.laws.losses import BINARY, ordinal, proximal, proximal_centres

SMALL = 20_000  # up to this many cells, JAX is faster (see `fitting`)

_forced: list[str] = []  # nested choices of `use`
_requests: list[list[str]] = []  # loops requested within `needs_loops`


@contextmanager
def use(backend: str) -> Iterator[None]:
    """Use "numba" or "jax" inside the block on any machine.

    With Numba, BLAS runs on one thread: after a K x K Cholesky its idle workers spin for about 25 ms on the
    cores that the loops need (measured: 81 ms for a BPMF sweep, 175 ms without this limit).
    """
    if backend not in ("numba", "jax"):
        raise ValueError(f"Expected 'numba' or 'jax', got {backend!r}")
    _forced.append(backend)
    try:
        with threadpool_limits(1, "blas") if backend == "numba" else nullcontext():
            yield
    finally:
        _forced.pop()


def backend() -> str:
    """The backend for concrete arrays: "numba" or "jax"."""
    if _forced:
        return _forced[-1]
    return "numba" if jax.default_backend() == "cpu" else "jax"


def fitting(data: Any) -> str:
    """The faster backend for the size of the data.

    With few cells, one compiled JAX program is faster than Numba loops between uncompiled steps (measured:
    0.2 against 20 ms a sweep at 1,000 cells, equal near 20,000).
    """
    if _forced:
        return _forced[-1]
    return backend() if data.size > SMALL else "jax"


def needs_loops(function: Any, *args: Any) -> bool:
    """Whether `function` runs a sparse loop at these arguments; if not, it can be compiled as a whole."""
    _requests.append([])
    try:
        jax.eval_shape(function, *args)
        return bool(_requests[-1])
    finally:
        _requests.pop()


def _loops(*arrays: Any) -> Any:
    """The module of Numba loops, or None where the JAX version has to run."""
    if _requests:
        _requests[-1].append("loop")
    if backend() == "jax" or any(isinstance(a, jax.core.Tracer) for a in jax.tree.leaves(arrays)):
        return None
    from bayesfac.core.kernels import numba_loops  # not at import: Numba compiles on first use

    return numba_loops


def loop(condition: Any, step: Any, state: Any) -> Any:
    """`jax.lax.while_loop`, or a Python loop where Numba runs the sparse loops of `step`."""
    if backend() == "jax" or any(isinstance(a, jax.core.Tracer) for a in jax.tree.leaves(state)):
        return jax.lax.while_loop(condition, step, state)
    while condition(state):
        state = step(state)
    return state


def _host(like: Any, *arrays: Any) -> list[Any]:
    """Contiguous NumPy arrays for Numba; those of real numbers get the dtype of `like`."""
    dtype = np.asarray(like).dtype
    return [
        np.ascontiguousarray(a, dtype=dtype if np.asarray(a).dtype.kind == "f" else None)
        for a in arrays
    ]


def _each(loop: Any, several: bool, *arrays: Any) -> Any:
    """The result of a loop; for `several` problems along a leading axis, the stacked results.

    The problems run one after another: each uses all cores, and its factors stay in the cache.
    """
    if not several:
        return jax.tree.map(jnp.asarray, loop(*arrays))
    parts = [loop(*each) for each in zip(*arrays, strict=True)]
    return jax.tree.map(lambda *part: jnp.asarray(np.stack(part)), *parts)


def row_of_cells(rows: Rows, size: int) -> jax.Array:
    """The row of each of the `size` observed cells."""
    return jnp.repeat(jnp.arange(len(rows.ptr) - 1), jnp.diff(rows.ptr), total_repeat_length=size)


def dots(cells: Cells, U: jax.Array, V: jax.Array) -> jax.Array:
    """x_ij = u_i . v_j on the observed cells, row-major; (S, n, K) factors give S such lists."""
    if loops := _loops(cells.row, U, V):
        ptr, index, U, V = _host(U, cells.by_row.ptr, cells.by_row.index, U, V)
        return _each(partial(loops.dots, ptr, index), U.ndim > 2, U, V)
    return jnp.sum(U[..., cells.row, :] * V[..., cells.col, :], -1)


def spread(rows: Rows, weight: jax.Array, V: jax.Array) -> jax.Array:
    """g_i = sum_j w_ij v_j over the observed cells of row i; `weight` is row-major.

    If w is the slope of a loss in x, g is the gradient in U. Leading axes are as in `dots`.
    """
    if loops := _loops(rows.ptr, weight, V):
        *layout, weight, V = _host(V, rows.ptr, rows.index, rows.order, weight, V)
        return _each(partial(loops.spread, *layout), V.ndim > 2, weight, V)
    if V.ndim == 3:
        return jax.vmap(lambda w, v: spread(rows, w, v))(weight, V)
    n = rows.ptr.shape[0] - 1
    real = rows.chunk >= 0
    w = jnp.where(real, weight[rows.order[rows.chunk]], 0)
    part = jnp.einsum("ce,cek->ck", w, V[rows.index[rows.chunk]])
    return jax.ops.segment_sum(part, rows.chunk_row, n, indices_are_sorted=True)


def differences(left: jax.Array, right: jax.Array, A: jax.Array, B: jax.Array) -> jax.Array:
    """(a_i - a_s) . (b_i - b_s) for every pair (i, s) = (left, right)."""
    if loops := _loops(left, A, B):
        return jnp.asarray(loops.differences(*_host(A, left, right, A, B)))
    return jnp.sum((A[left] - A[right]) * (B[left] - B[right]), -1)


def ratio_step(
    cells: Cells, y: jax.Array, A: jax.Array, G: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The two sums of a Kullback-Leibler update, in one pass over the observed cells.

    With r_ij = y_ij / (a_i . g_j): sum_j r_ij g_j by row (n x K) and sum_i r_ij a_i by column (m x K).
    """
    if loops := _loops(cells.row, y, A, G):
        ptr, index = cells.by_row.ptr, cells.by_row.index
        by_row, by_col = loops.ratio_step(*_host(A, ptr, index, y, A, G))
        return jnp.asarray(by_row), jnp.asarray(by_col)
    r = y / jnp.maximum(dots(cells, A, G), jnp.finfo(A.dtype).tiny)
    return spread(cells.by_row, r, G), spread(cells.by_col, r, A)


def ordinal_loss(
    x: jax.Array,
    theta: jax.Array,
    code: jax.Array,
    rows: Rows,
    weight: jax.Array | None,
    loss: str,
    immediate: bool,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The summed ordinal loss of the cells (row-major) against the thresholds of their rows, and its slopes
    in x (cells) and theta (n x R - 1). A leading axis means S such problems."""
    several = theta.ndim > 2
    if loops := _loops(x, theta, code, weight):
        w = np.ones((*x.shape[:-1], 0)) if weight is None else weight
        ptr, *host = _host(x, rows.ptr, x, theta, np.broadcast_to(code, x.shape), w)
        each = partial(loops.ordinal_loss, list(BINARY).index(loss), immediate, ptr)
        return _each(each, several, *host)
    if several:
        axes = (0, 0, 0 if code.ndim > 1 else None, 0 if weight is not None else None)
        one = partial(ordinal_loss, rows=rows, loss=loss, immediate=immediate)
        return jax.vmap(lambda x, t, c, w: one(x, t, c, weight=w), axes)(x, theta, code, weight)
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
    slope in x, which goes through the centres."""
    if loops := _loops(x, code):
        ptr, x, code = _host(x, rows.ptr, x, code)
        return _each(partial(loops.proximal_loss, ptr, n_levels), False, x, code)
    row = row_of_cells(rows, len(x))

    def summed(x: jax.Array) -> jax.Array:
        theta, count = proximal_centres(x, code, row, (len(rows.ptr) - 1, n_levels))
        return jnp.sum(proximal(x, theta[row], code, count[row] > 0))

    return jax.value_and_grad(summed)(x)


def gram(rows: Rows, V: jax.Array, weight: jax.Array | None = None) -> jax.Array:
    """sum_j w_ij v_j v_j' over the observed cells of every row, (n, K, K); `weight` is row-major, or 1."""
    n = rows.ptr.shape[0] - 1
    v = jnp.where((rows.chunk >= 0)[..., None], V[rows.index[rows.chunk]], 0)
    wv = v if weight is None else weight[rows.order[rows.chunk]][..., None] * v
    part = jnp.einsum("cek,cel->ckl", v, wv)
    return jax.ops.segment_sum(part, rows.chunk_row, n, indices_are_sorted=True)


def normal_equations(
    rows: Rows, target: jax.Array, V: jax.Array, weight: jax.Array, precision: Any, shift: Any
) -> tuple[jax.Array, jax.Array]:
    """The P_i and b_i of `solve_rows` for all rows."""
    if jnp.ndim(weight):
        return precision + gram(rows, V, weight), shift + spread(rows, weight * target, V)
    return precision + weight * gram(rows, V), shift + weight * spread(rows, target, V)


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
    cell (row-major, as `target`).
    """
    if loops := _loops(rows.ptr, target, V, weight, prior_precision, prior_shift, noise):
        z = np.zeros((0, 0)) if noise is None else noise
        cells = (rows.ptr, rows.index, rows.order, target, jnp.atleast_1d(weight))
        host = _host(V, *cells, V, prior_precision, prior_shift, z)
        return jnp.asarray(loops.solve_rows(*host))
    P, b = normal_equations(rows, target, V, weight, prior_precision, prior_shift)
    L = jnp.linalg.cholesky(P)
    half = jax.lax.linalg.triangular_solve(L, b[..., None], left_side=True, lower=True)
    if noise is not None:
        half = half + noise[..., None]
    full = jax.lax.linalg.triangular_solve(L, half, left_side=True, lower=True, transpose_a=True)
    return full[..., 0]
