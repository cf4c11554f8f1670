"""Counts divided among components: nothing is lost, and the parts are multinomial."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numba import njit
from scipy import stats

from bayesfac.core.data.cells import Cells
from bayesfac.core.kernels import random_loops, sparse
from bayesfac.core.kernels.splitting import split_counts

ROW, COL = np.array([0, 0, 1, 2]), np.array([0, 1, 1, 0])
CELLS = Cells(ROW, COL, (3, 2))
Y = jnp.asarray([9.0, 400.0, 1.0, 3.0])  # beside the border, by binomials, and one by one
A = jnp.asarray([[0.2, 1.0, 0.5], [0.0, 2.0, 1.0], [1.0, 0.001, 3.0]])
G = jnp.asarray([[1.0, 0.5, 2.0], [0.3, 1.0, 0.0]])


@pytest.mark.parametrize("backend", ["numba", "jax"])
def test_the_parts_are_multinomial(backend):
    """Means within five standard errors, variances within a tenth (some 4 standard errors)."""
    many = 3000
    with sparse.use(backend):
        keys = jax.random.split(jax.random.key(0), many)
        by_row, by_col = jax.jit(jax.vmap(lambda k: split_counts(k, CELLS, Y, A, G)))(keys)
    by_row, by_col = np.asarray(by_row), np.asarray(by_col)
    np.testing.assert_array_equal(by_row.sum(-1), np.tile([409, 1, 3], (many, 1)))
    np.testing.assert_array_equal(by_col.sum(-1), np.tile([12, 401], (many, 1)))
    np.testing.assert_array_equal(by_row.sum(1), by_col.sum(1))
    assert (by_row == np.rint(by_row)).all() and (by_row >= 0).all()
    share = np.asarray(A[ROW] * G[COL])
    share = share / share.sum(1, keepdims=True)
    each, spread = Y[:, None] * share, Y[:, None] * share * (1 - share)
    for place, sums, n in ((ROW, by_row, 3), (COL, by_col, 2)):
        mean, variance = np.zeros((2, n, 3))
        np.add.at(mean, place, each)
        np.add.at(variance, place, spread)
        error = np.sqrt(variance / many)
        assert (np.abs(sums.mean(0) - mean) <= 5 * error + 1e-6).all()
        np.testing.assert_allclose(sums.var(0), variance, rtol=0.12, atol=0.02)


def test_the_numbers_hang_on_the_key_alone():
    with sparse.use("numba"):
        one, same, other = (split_counts(jax.random.key(k), CELLS, Y, A, G)[0] for k in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert (np.asarray(one) != np.asarray(other)).any()


@pytest.mark.parametrize(("n", "p"), [(300, 0.4), (2000, 0.3), (10**6, 0.999), (10**9, 0.2)])
def test_binomials_of_large_counts(n, p):
    """Kolmogorov's distance of 20,000 numbers, whose places are spread evenly where n is large."""

    @njit
    def many(state, n, p, count):
        return np.array([random_loops.binomial(state, n, p) for _ in range(count)])

    drawn = many(np.array([7], np.uint64), n, p, 20_000)
    law = stats.binom(n, p)
    rng = np.random.default_rng(0)
    place = law.cdf(drawn - 1) + rng.random(len(drawn)) * law.pmf(drawn)
    assert stats.kstest(place, "uniform").pvalue > 1e-3
