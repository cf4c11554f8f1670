"""Lasso regressions by coordinate descent: against a search, against scikit-learn, and both backends."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.linear_model import Lasso

from bayesfac.core.data.cells import Cells
from bayesfac.core.kernels import sparse
from bayesfac.core.kernels.lasso import lasso_pass

BACKENDS = pytest.mark.parametrize("backend", ["numba", "jax"])


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def cells_of(X):
    row, col = np.nonzero(X)
    cells = Cells(row.astype(np.int32), col.astype(np.int32), X.shape)
    return cells, jnp.asarray(X[row, col]), jnp.asarray((X**2).sum(0))


def passes(backend, X, U, Z, K, penalty, number):
    table = cells_of(X)
    state = jnp.asarray(Z), jnp.asarray(U - X @ Z)
    with sparse.use(backend):
        for _ in range(number):
            state = lasso_pass(*table, *state, jnp.asarray(K), penalty)
    Z, left = map(np.asarray, state)
    np.testing.assert_allclose(left, U - X @ Z, atol=1e-12)
    return Z


def made(rng, n=40, D=9, d=4):
    X = rng.normal(size=(n, D)) * (rng.random((n, D)) < 0.4)
    return X, rng.normal(size=(n, d)), rng.normal(size=(D, d)) * (rng.random((D, d)) < 0.5)


@BACKENDS
def test_the_minimum_of_every_entry(backend):
    """In the order of the features' sums of squares. K is not positive definite, as in GroPLE: in a single
    entry the objective is convex all the same."""
    X, U, Z = made(np.random.default_rng(0), 6, 3, 2)
    K = np.array([[0.3, 0.9], [0.9, 0.1]])
    found, now = passes(backend, X, U, Z, K, 1.2, 1), Z.copy()
    for j in np.argsort(-(X**2).sum(0)):
        for k in range(2):

            def J(z, j=j, k=k, now=now):
                W = now.copy()
                W[j, k] = z
                return ((U - X @ W) ** 2).sum() + np.trace(W @ K @ W.T) + 1.2 * np.abs(W).sum()

            search = {"bounds": (-9, 9), "method": "bounded", "options": {"xatol": 1e-12}}
            np.testing.assert_allclose(found[j, k], minimize_scalar(J, **search).x, atol=2e-6)
            now[j, k] = found[j, k]


@pytest.mark.parametrize("backend", ["numba", pytest.param("jax", marks=pytest.mark.slow)])
def test_many_passes_end_where_scikit_learn_ends(backend):
    X, U, Z = made(np.random.default_rng(1))
    found = passes(backend, X, U, Z, np.zeros((4, 4)), 9.0, 300)
    lasso = Lasso(alpha=9.0 / (2 * len(X)), fit_intercept=False, tol=1e-14, max_iter=100_000)
    np.testing.assert_allclose(found, lasso.fit(X, U).coef_.T, atol=1e-8)
    assert 0.1 < (found == 0).mean() < 0.9


def test_both_backends_agree():
    """With a feature that no row has, and under `jax.vmap`."""
    rng = np.random.default_rng(2)
    X, U, Z = made(rng)
    X[:, 5] = 0
    table = cells_of(X)
    K, ends = np.cov(rng.normal(size=(4, 30))), []
    for backend in ("numba", "jax"):
        with sparse.use(backend):
            several = jax.vmap(lambda Z, left: lasso_pass(*table, Z, left, jnp.asarray(K), 2.0))
            Zs = np.stack([Z, 2 * Z])
            ends.append(jax.tree.map(np.asarray, jax.jit(several)(Zs, U - X @ Zs)))
    for one, other in zip(*ends, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    assert np.abs(ends[0][0][0] - ends[0][0][1]).max() > 0.01


@BACKENDS
@pytest.mark.parametrize("own", [0.0, 0.5])
def test_a_table_without_cells(backend, own):
    """Without a curvature the entries stay; with one they go to their minimum, zero."""
    Z = np.array([[1.0], [-2.0]])
    found = passes(backend, np.zeros((3, 2)), np.ones((3, 1)), Z, np.full((1, 1), own), 1.0, 1)
    np.testing.assert_array_equal(found, Z if own == 0 else 0 * Z)
