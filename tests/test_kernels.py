"""The Numba loops, their JAX halves and dense NumPy are one arithmetic."""

import jax.numpy as jnp
import numpy as np
import pytest

from bayesfac.core import kernels
from bayesfac.core.cells import CHUNK, Cells

TOLERANCE = {np.float32: 3e-5, np.float64: 1e-12}


def ragged(dtype, K=5):
    """An empty row, a row of one cell, a row longer than a chunk, an empty column."""
    rng = np.random.default_rng(0)
    n, m = 9, 2 * CHUNK + 7
    mask = rng.random((n, m)) < 0.3
    mask[2], mask[:, 4] = False, False
    mask[3], mask[5] = False, True
    mask[3, 1], mask[5, 4] = True, False
    row, col = np.nonzero(mask)
    U, V = rng.normal(size=(n, K)).astype(dtype), rng.normal(size=(m, K)).astype(dtype)
    y = (rng.random(len(row)) + 0.5).astype(dtype)
    return mask, Cells(row, col, (n, m)), y, U, V


@pytest.fixture(params=TOLERANCE, ids=["float32", "float64"])
def dtype(request):
    return request.param


@pytest.fixture(params=["numba", "jax"])
def backend(request):
    with kernels.use(request.param):
        yield request.param


def close(got, want, dtype):
    scale = np.abs(want).max()
    np.testing.assert_allclose(np.asarray(got) / scale, want / scale, atol=TOLERANCE[dtype])
    assert np.asarray(got).dtype == dtype


def test_dots(dtype, backend):
    mask, cells, _, U, V = ragged(dtype)
    close(kernels.dots(cells, jnp.asarray(U), jnp.asarray(V)), (U @ V.T)[mask], dtype)


def test_spread_is_the_gradient_of_a_loss_on_both_sides(dtype, backend):
    mask, cells, y, U, V = ragged(dtype)
    W = np.zeros(mask.shape, dtype)
    W[mask] = y
    close(kernels.spread(cells.by_row, jnp.asarray(y), jnp.asarray(V)), W @ V, dtype)
    close(kernels.spread(cells.by_col, jnp.asarray(y), jnp.asarray(U)), W.T @ U, dtype)


def test_ratio_step(dtype, backend):
    mask, cells, y, U, V = ragged(dtype)
    A, G = np.abs(U) + dtype(0.1), np.abs(V) + dtype(0.1)
    R = np.zeros(mask.shape, dtype)
    R[mask] = y / (A @ G.T)[mask]
    by_row, by_col = kernels.ratio_step(cells, *map(jnp.asarray, (y, A, G)))
    close(by_row, R @ G, dtype)
    close(by_col, R.T @ A, dtype)


@pytest.mark.parametrize("side", ["by_row", "by_col"])
@pytest.mark.parametrize("K", [1, 5, 11])
def test_solve_rows_is_a_ridge_regression_and_with_noise_a_draw(dtype, backend, side, K):
    mask, cells, y, U, V = ragged(dtype, K)
    T = np.zeros(mask.shape, dtype)
    T[mask] = y
    rows, other = getattr(cells, side), V
    if side == "by_col":
        mask, T, other = mask.T, T.T, U
    prior = (np.eye(K) * 2 + 0.1).astype(dtype)
    shift = np.linspace(-1, 1, K).astype(dtype)
    noise = np.random.default_rng(1).normal(size=(len(mask), K)).astype(dtype)
    given = (rows, *map(jnp.asarray, (y, other)), jnp.asarray(1.7, dtype), *map(jnp.asarray, (prior, shift)))
    mean, draw = kernels.solve_rows(*given), kernels.solve_rows(*given, jnp.asarray(noise))
    P = prior + 1.7 * np.einsum("ij,jk,jl->ikl", mask.astype(dtype), other, other)
    b = shift + 1.7 * T @ other
    want = np.linalg.solve(P, b[..., None])[..., 0]
    close(mean, want.astype(dtype), dtype)
    back = np.linalg.solve(np.swapaxes(np.linalg.cholesky(P), 1, 2), noise[..., None])[..., 0]
    close(draw, (want + back).astype(dtype), dtype)


def test_a_wrong_backend_is_refused():
    with pytest.raises(ValueError, match="Expected 'numba' or 'jax', got 'cuda'"), kernels.use("cuda"):
        pass


def test_small_data_run_as_one_jax_program_and_large_ones_through_the_loops():
    class Sized:
        size = kernels.SMALL

    assert kernels.fitting(Sized) == "jax"
    Sized.size += 1
    assert kernels.fitting(Sized) == kernels.backend()
