"""The few sparse loops that everything rests on.

Each loop exists twice: fused over the rows in Numba, for a CPU and concrete arrays, and in JAX, for
accelerators and wherever JAX traces (gradients under jit, NUTS, SVI). One test holds them equal. The
JAX versions see rows cut into padded chunks of 64 cells, so they compile once whatever the row lengths.
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

SMALL = 20_000  # cells

_forced: list[str] = []
_asked: list[list[str]] = []


@contextmanager
def use(backend: str) -> Iterator[None]:
    """Take "numba" or "jax" inside the block, whatever the machine.

    Between compiled loops BLAS stays on one thread: its idle workers spin for some 25 ms after a K x K
    Cholesky, on the very cores that the loops want (measured: a BPMF sweep of 175 ms becomes 81).
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
    """Which of the two runs where arrays are concrete."""
    if _forced:
        return _forced[-1]
    return "numba" if jax.default_backend() == "cpu" else "jax"


def fitting(data: Any) -> str:
    """The faster backend for this data: with few cells, one compiled JAX program beats Numba loops
    between uncompiled steps (measured: 0.2 against 20 ms a sweep at 1,000 cells, even near 20,000)."""
    if _forced:
        return _forced[-1]
    return backend() if data.size > SMALL else "jax"


def needs_loops(function: Any, *args: Any) -> bool:
    """Whether a function, traced at these arguments, asks for a sparse loop: if not, jit it whole."""
    _asked.append([])
    try:
        jax.eval_shape(function, *args)
        return bool(_asked[-1])
    finally:
        _asked.pop()


def _loops(*arrays: Any) -> Any:
    """The compiled loops, or None where JAX must do it."""
    if _asked:
        _asked[-1].append("loop")
    if backend() == "jax" or any(isinstance(a, jax.core.Tracer) for a in jax.tree.leaves(arrays)):
        return None
    from bayesfac.core.kernels import numba_loops  # compiled on first use: not at import

    return numba_loops


def loop(going: Any, step: Any, state: Any) -> Any:
    """`jax.lax.while_loop`; where Numba runs the sparse loops of its steps, the same in Python."""
    if backend() == "jax" or any(isinstance(a, jax.core.Tracer) for a in jax.tree.leaves(state)):
        return jax.lax.while_loop(going, step, state)
    while going(state):
        state = step(state)
    return state


def _host(like: Any, *arrays: Any) -> list[Any]:
    dtype = np.asarray(like).dtype
    return [
        np.ascontiguousarray(a, dtype=dtype if np.asarray(a).dtype.kind == "f" else None)
        for a in arrays
    ]


def _each(loop: Any, several: bool, *arrays: Any) -> Any:
    """A loop's answer; for `several` problems along a leading axis, theirs stacked: one after another,
    as each already takes every core, and a problem's own factors stay in the cache."""
    if not several:
        return jax.tree.map(jnp.asarray, loop(*arrays))
    parts = [loop(*each) for each in zip(*arrays, strict=True)]
    return jax.tree.map(lambda *part: jnp.asarray(np.stack(part)), *parts)


def dots(cells: Cells, U: jax.Array, V: jax.Array) -> jax.Array:
    """x_ij = u_i . v_j on the observed cells, row-major; with (S, n, K) factors S lists of them."""
    if loops := _loops(cells.row, U, V):
        ptr, index, U, V = _host(U, cells.by_row.ptr, cells.by_row.index, U, V)
        return _each(partial(loops.dots, ptr, index), U.ndim > 2, U, V)
    return jnp.sum(U[..., cells.row, :] * V[..., cells.col, :], -1)


def spread(rows: Rows, weight: jax.Array, V: jax.Array) -> jax.Array:
    """g_i = sum_j w_ij v_j over the observed cells of row i; `weight` is row-major.

    With w the slope of a loss this is its gradient on one side. Leading axes as in `dots`.
    """
    if loops := _loops(rows.ptr, weight, V):
        *where, weight, V = _host(V, rows.ptr, rows.index, rows.order, weight, V)
        return _each(partial(loops.spread, *where), V.ndim > 2, weight, V)
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
    """One pass of every Kullback-Leibler update: with r_ij = y_ij / (a_i . g_j) on the observed
    cells, the row sums sum_j r_ij g_j (n x K) and the column sums sum_i r_ij a_i (m x K)."""
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
    """The ordinal loss of every cell (row-major) against the thresholds of its row, summed; and its
    slopes in x (cells) and theta (n x R - 1). With a leading axis: S such problems."""
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
    n = theta.shape[0]
    at = jnp.repeat(jnp.arange(n), jnp.diff(rows.ptr), total_repeat_length=len(x))
    w = jnp.ones_like(x) if weight is None else weight

    def summed(x: jax.Array, own: jax.Array) -> jax.Array:
        return jnp.sum(w * ordinal(x, own, code, loss, immediate))

    total, (by_x, by_own) = jax.value_and_grad(summed, (0, 1))(x, theta[at])
    return total, by_x, jax.ops.segment_sum(by_own, at, n, indices_are_sorted=True)


def proximal_loss(
    x: jax.Array, code: jax.Array, rows: Rows, n_levels: int
) -> tuple[jax.Array, jax.Array]:
    """The proximal loss of every cell about its row's own centres (means of x by level), summed; and
    its slope in x, through the centres."""
    if loops := _loops(x, code):
        ptr, x, code = _host(x, rows.ptr, x, code)
        return _each(partial(loops.proximal_loss, ptr, n_levels), False, x, code)
    at = jnp.repeat(jnp.arange(len(rows.ptr) - 1), jnp.diff(rows.ptr), total_repeat_length=len(x))

    def summed(x: jax.Array) -> jax.Array:
        theta, count = proximal_centres(x, code, at, (len(rows.ptr) - 1, n_levels))
        return jnp.sum(proximal(x, theta[at], code, count[at] > 0))

    return jax.value_and_grad(summed)(x)


def gram(rows: Rows, V: jax.Array, weight: jax.Array | None = None) -> jax.Array:
    """sum_j w_ij v_j v_j' over the observed cells of every row: (n, K, K); `weight` row-major or 1."""
    n = rows.ptr.shape[0] - 1
    v = jnp.where((rows.chunk >= 0)[..., None], V[rows.index[rows.chunk]], 0)
    wv = v if weight is None else weight[rows.order[rows.chunk]][..., None] * v
    part = jnp.einsum("cek,cel->ckl", v, wv)
    return jax.ops.segment_sum(part, rows.chunk_row, n, indices_are_sorted=True)


def normal_equations(
    rows: Rows, target: jax.Array, V: jax.Array, weight: jax.Array, precision: Any, shift: Any
) -> tuple[jax.Array, jax.Array]:
    """The P_i and b_i of `solve_rows`, all of them at once."""
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
    """Row by row, with P_i = L + sum_j w_ij v_j v_j' and b_i = s + sum_j w_ij t_ij v_j, the mean
    P_i^-1 b_i; with standard normal `noise` (n x K), a draw from N(P_i^-1 b_i, P_i^-1). `weight` is one
    number, or one for each cell (row-major, as `target`)."""
    given = (rows.ptr, target, V, weight, prior_precision, prior_shift, noise)
    if loops := _loops(*given):
        z = np.zeros((0, 0)) if noise is None else noise
        where, what = (rows.ptr, rows.index, rows.order), (target, jnp.atleast_1d(weight), V)
        host = _host(V, *where, *what, prior_precision, prior_shift, z)
        return jnp.asarray(loops.solve_rows(*host))
    P, b = normal_equations(rows, target, V, weight, prior_precision, prior_shift)
    L = jnp.linalg.cholesky(P)
    half = jax.lax.linalg.triangular_solve(L, b[..., None], left_side=True, lower=True)
    if noise is not None:
        half = half + noise[..., None]
    full = jax.lax.linalg.triangular_solve(L, half, left_side=True, lower=True, transpose_a=True)
    return full[..., 0]
