"""The few sparse loops that everything rests on.

Each loop exists twice: fused over the rows in Numba, for a CPU and concrete arrays, and in JAX, for
accelerators and wherever JAX traces (gradients under jit, NUTS, SVI). One test holds them equal. The
JAX versions see rows cut into padded chunks of 64 cells, so they compile once whatever the row lengths.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayesfac.core.cells import Cells, Rows

SMALL = 20_000  # cells

_forced: list[str] = []
_asked: list[list[str]] = []


@contextmanager
def use(backend: str) -> Iterator[None]:
    """Take "numba" or "jax" inside the block, whatever the machine."""
    if backend not in ("numba", "jax"):
        raise ValueError(f"Expected 'numba' or 'jax', got {backend!r}")
    _forced.append(backend)
    try:
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
    from bayesfac.core import loops  # compiled on first use: not at import

    return loops


def _host(like: Any, *arrays: Any) -> list[np.ndarray]:
    dtype = np.asarray(like).dtype
    return [
        np.ascontiguousarray(a, dtype=dtype if np.asarray(a).dtype.kind == "f" else None)
        for a in arrays
    ]


def dots(cells: Cells, U: jax.Array, V: jax.Array) -> jax.Array:
    """x_ij = u_i . v_j on the observed cells, row-major."""
    if loops := _loops(cells.row, U, V):
        return jnp.asarray(loops.dots(*_host(U, cells.by_row.ptr, cells.by_row.index, U, V)))
    return jnp.sum(U[cells.row] * V[cells.col], -1)


def spread(rows: Rows, weight: jax.Array, V: jax.Array) -> jax.Array:
    """g_i = sum_j w_ij v_j over the observed cells of row i; `weight` is row-major.

    With w the slope of a loss this is its gradient on one side.
    """
    if loops := _loops(rows.ptr, weight, V):
        return jnp.asarray(loops.spread(*_host(V, rows.ptr, rows.index, rows.order, weight, V)))
    n = rows.ptr.shape[0] - 1
    real = rows.chunk >= 0
    w = jnp.where(real, weight[rows.order[rows.chunk]], 0)
    part = jnp.einsum("ce,cek->ck", w, V[rows.index[rows.chunk]])
    return jax.ops.segment_sum(part, rows.chunk_row, n, indices_are_sorted=True)


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


def gram(rows: Rows, V: jax.Array) -> jax.Array:
    """sum_j v_j v_j' over the observed cells of every row: (n, K, K)."""
    n = rows.ptr.shape[0] - 1
    v = jnp.where((rows.chunk >= 0)[..., None], V[rows.index[rows.chunk]], 0)
    part = jnp.einsum("cek,cel->ckl", v, v)
    return jax.ops.segment_sum(part, rows.chunk_row, n, indices_are_sorted=True)


def solve_rows(
    rows: Rows,
    target: jax.Array,
    V: jax.Array,
    weight: jax.Array,
    prior_precision: jax.Array,
    prior_shift: jax.Array,
    noise: jax.Array | None = None,
) -> jax.Array:
    """Row by row, with P_i = L + w sum_j v_j v_j' and b_i = s + w sum_j t_ij v_j, the mean P_i^-1 b_i;
    with standard normal `noise` (n x K), a draw from N(P_i^-1 b_i, P_i^-1)."""
    given = (rows.ptr, target, V, weight, prior_precision, prior_shift, noise)
    if loops := _loops(*given):
        z = np.zeros((0, 0)) if noise is None else noise
        host = _host(
            V, rows.ptr, rows.index, rows.order, target, V, prior_precision, prior_shift, z
        )
        return jnp.asarray(loops.solve_rows(*host, V.dtype.type(weight)))
    P = prior_precision + weight * gram(rows, V)
    b = prior_shift + weight * spread(rows, target, V)
    L = jnp.linalg.cholesky(P)
    half = jax.lax.linalg.triangular_solve(L, b[..., None], left_side=True, lower=True)
    if noise is not None:
        half = half + noise[..., None]
    full = jax.lax.linalg.triangular_solve(L, half, left_side=True, lower=True, transpose_a=True)
    return full[..., 0]
