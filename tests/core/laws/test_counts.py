"""Laws of counts beside SciPy and beside whole tables."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayesfac.core.data.cells import Cells, Query
from bayesfac.core.kernels import sparse
from bayesfac.core.laws.counts import (
    GammaNumbers,
    LogGamma,
    PoissonTable,
    UnsurePoisson,
    WeightedTable,
    log_gamma,
    weighted_error,
)

KEY = jax.random.key(0)
ROW, COL = np.array([0, 0, 1, 3]), np.array([1, 2, 0, 2])
CELLS, VALUE = Cells(ROW, COL, (4, 3)), np.array([1.0, 3.0, 2.0, 1.0])


@pytest.fixture(autouse=True)
def exact():
    with jax.enable_x64(True):
        yield


def factors():
    rng = np.random.default_rng(0)
    return jnp.asarray(rng.gamma(1.0, size=(4, 2))), jnp.asarray(rng.gamma(1.0, size=(3, 2)))


@pytest.mark.parametrize("shape", [0.01, 0.3, 1.0, 40.0])
def test_logarithms_of_gamma_numbers(shape):
    """Kolmogorov and Smirnov's test on 20,000 numbers; p < 1e-4 once in ten thousand right samplers."""
    drawn = np.asarray(log_gamma(KEY, jnp.full(20_000, shape)))
    assert np.isfinite(drawn).all()
    assert stats.kstest(drawn, stats.loggamma(shape).cdf).pvalue > 1e-4
    law = LogGamma(shape, 2.5)
    at = jnp.asarray([-3.0, 0.1])
    np.testing.assert_allclose(
        law.log_prob(at), stats.loggamma(shape, loc=-np.log(2.5)).logpdf(at), rtol=1e-9
    )
    assert abs(jax.grad(law.log_prob)(law.mode)) < 1e-12


def test_a_poisson_table_has_its_zeros():
    A, G = factors()
    law, table = PoissonTable(A, G, CELLS), np.zeros((4, 3))
    table[ROW, COL] = VALUE
    np.testing.assert_allclose(law.log_prob(VALUE), stats.poisson(A @ G.T).logpmf(table).sum())
    query = Query(np.array([2, 0]), np.array([1, 2]))
    np.testing.assert_allclose(
        law.of_cells(query, jnp.asarray([0.0, 3.0])),
        stats.poisson((A @ G.T)[query.row, query.col]).logpmf([0, 3]),
    )


def test_a_weighted_table_has_its_zeros():
    U, V = factors()
    weight, mean, each = jnp.asarray([2.0, 1.5, 4.0, 1.2]), U @ V.T, np.ones((4, 3))
    table = np.zeros((4, 3))
    table[ROW, COL], each[ROW, COL] = VALUE, weight
    law = WeightedTable(U, V, CELLS, weight, 3.0)
    wanted = stats.norm(mean, (3 * each) ** -0.5).logpdf(table).sum()
    np.testing.assert_allclose(law.log_prob(VALUE), wanted)
    np.testing.assert_allclose(
        weighted_error(CELLS, VALUE, weight, U, V), (each * (table - mean) ** 2).sum()
    )
    many = np.asarray(law.sample(KEY, (4000,)))
    np.testing.assert_allclose(many.std(0) * (3 * each) ** 0.5, 1, atol=0.06)  # five errors


@pytest.mark.parametrize("spread", [0.0, 0.8])
def test_counts_with_an_unsure_rate(spread):
    mean = 1.7
    law, y = UnsurePoisson(jnp.asarray(mean), spread), np.arange(60.0)
    size = mean**2 / spread if spread else np.inf
    right = stats.nbinom(size, size / (size + mean)) if spread else stats.poisson(mean)
    np.testing.assert_allclose(law.log_prob(y), right.logpmf(y), rtol=1e-9)
    np.testing.assert_allclose(law.cdf(y), right.cdf(y), rtol=1e-7)
    assert float(law.variance) == pytest.approx(right.var())
    drawn = np.asarray(law.sample(KEY, (40_000,)))
    assert abs(drawn.mean() - mean) < 5 * (right.var() / 40_000) ** 0.5
    assert abs(drawn.var() / right.var() - 1) < 0.06


@pytest.mark.parametrize("backend", ["numba", "jax"])
@pytest.mark.parametrize("shape", [0.5, 1.0, 2.5, 5.0, 1.7])
def test_gamma_numbers_of_one_shape(shape, backend):
    law, right = (
        GammaNumbers(shape, jnp.full(20_000, 2.5, jnp.float32)),
        stats.gamma(shape, scale=0.4),
    )
    with sparse.use(backend):
        drawn = law.sample(KEY)
    assert drawn.dtype == jnp.float32 and (drawn > 0).all()
    assert stats.kstest(drawn, right.cdf).pvalue > 0.001
    np.testing.assert_allclose(law.log_prob(drawn)[:3], right.logpdf(drawn[:3]), rtol=1e-5)
