"""Coordinate descent over numbers of at least 0: against a search for each minimum, and both backends."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from bayesfac.core.kernels import sparse
from bayesfac.core.kernels.nonnegative import descend, positive_root

BACKENDS = pytest.mark.parametrize("backend", ["numba", "jax"])


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


@BACKENDS
@pytest.mark.parametrize("shape", [1.0, 1.7])
def test_the_minimum_of_every_entry(backend, shape):
    Q, H = np.array([[2.0, 0.4], [0.4, 1.5]]), np.array([[0.7, 0.2], [0.0, 0.3]])
    num = np.array([[3.0, 1.0], [-2.0, 0.05]])
    with sparse.use(backend):
        new = np.asarray(descend(*map(jnp.asarray, (H, num, Q)), shape, 0.3))
    for h, n, found in zip(H, num, new, strict=True):
        now = h.copy()
        for k in range(2):

            def J(x, k=k, n=n, now=now):
                h = np.where(np.arange(2) == k, x, now)
                return h @ Q @ h - 2 * n @ h + 0.3 * x - (shape - 1) * np.log(x)

            search = {"bounds": (1e-12, 9), "method": "bounded", "options": {"xatol": 1e-12}}
            np.testing.assert_allclose(found[k], minimize_scalar(J, **search).x, atol=2e-6)
            now[k] = found[k]


@pytest.mark.parametrize(("shape", "rate"), [(1.0, 0.0), (1.0, 0.2), (1.7, 0.2)])
def test_both_backends_agree(shape, rate):
    """With a column of zeros, as of a cluster that nothing uses, and under `jax.vmap`."""
    rng = np.random.default_rng(0)
    A = rng.gamma(1.0, size=(2, 30, 7)) * (rng.random(7) > 0.2)
    A[..., 3] = 0
    H = rng.gamma(1.0, size=(2, 50, 7)) * (rng.random((2, 50, 7)) > 0.5) + (shape > 1)
    num, gram = rng.normal(1, 1, (2, 50, 30)) @ A, A.swapaxes(1, 2) @ A
    ends = []
    for backend in ("numba", "jax"):
        with sparse.use(backend):
            several = jax.vmap(lambda *each: descend(*each, shape, rate))
            ends.append(np.asarray(jax.jit(several)(H, num, gram)))
    assert np.isfinite(ends[0]).all()
    np.testing.assert_allclose(*ends, rtol=1e-9, atol=1e-12)
    assert (ends[0] == 0).any() == (shape == 1)


def test_a_root_without_cancellation():
    a, b, c = jnp.array(2.0), jnp.array(-1e9), jnp.array(0.5)
    np.testing.assert_allclose(positive_root(a, b, c), 0.5 / 1e9, rtol=1e-12)
    assert positive_root(jnp.array(0.0), jnp.array(0.0), jnp.array(0.0)) == 0
