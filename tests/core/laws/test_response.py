"""Linear response against the inverse of whole matrices, and laws that are widened by its factor."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

from bayesfac.core.laws import response
from bayesfac.parts import matrix

ROWS, K = 3, 2


def curved(key):
    """A positive definite table of ROWS x K numbers, and the inverse of its blocks of rows."""
    root = jax.random.normal(key, (ROWS * K, ROWS * K)) + 2 * jnp.eye(ROWS * K)
    H = root @ root.T
    blocks = jnp.stack([H[i : i + K, i : i + K] for i in range(0, ROWS * K, K)])
    return H, jnp.linalg.inv(blocks)


def test_the_factor_is_the_root_of_the_mean_ratio_of_variances():
    """a'H^-1 a / a'Sa of every probe; ten steps of conjugate gradients are exact for six numbers."""
    with jax.enable_x64(True):
        H, S = curved(jax.random.key(0))
        whole = jax.scipy.linalg.block_diag(*S)
        key, probe = jax.random.key(1), lambda key: jax.random.normal(key, (ROWS, K))

        def times(d):
            return (H @ d.ravel()).reshape(ROWS, K)

        found = response.factor(key, times, lambda d: jnp.einsum("nkl,nl->nk", S, d), probe)
        asked = [probe(one).ravel() for one in jax.random.split(key, response.PROBES)]
        ratios = [a @ jnp.linalg.solve(H, a) / (a @ whole @ a) for a in asked]
        np.testing.assert_allclose(found, np.sqrt(np.mean(ratios)), rtol=1e-9)
        assert np.ptp(ratios) > 0.1 and abs(found - 1) > 0.1


def test_random_signs_have_the_size_of_one_over_the_sd():
    signs = response.signs(jax.random.key(0), jnp.array([4.0, 0.25, 0.0, 1.0] * 10))
    np.testing.assert_allclose(np.abs(signs), [0.5, 2, 1, 1] * 10)
    assert (signs > 0).any() and (signs < 0).any()


def test_covariances_are_widened_by_the_square_of_the_factor(monkeypatch):
    """Whole covariances, of the blocks of the curvature; what is told is the mean growth of the sds."""
    (_, S), (_, T) = curved(jax.random.key(0)), curved(jax.random.key(1))
    monkeypatch.setattr(matrix, "respond", lambda *_: ({"U": S, "V": T}, 1.5))
    means = jnp.ones((ROWS, K))
    law = {"U": {"mean": means, "cov": S / 4}, "V": {"mean": 2 * means, "cov": T / 9}}
    q = SimpleNamespace(**law, _replace=lambda **new: law | new)
    wide, factor = matrix.widened(jax.random.key(0), q, None, None)
    np.testing.assert_allclose(wide["U"]["cov"], 2.25 * S, rtol=1e-6)
    np.testing.assert_allclose(wide["V"]["cov"], 2.25 * T, rtol=1e-6)
    np.testing.assert_array_equal(wide["V"]["mean"], 2 * means)
    np.testing.assert_allclose(factor, 1.5 * (2 + 3) / 2, rtol=1e-6)
