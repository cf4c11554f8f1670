"""Polya-Gamma numbers beside closed forms of their law, and beside its characteristic function."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayesfac.core.kernels import sparse
from bayesfac.core.kernels.random_loops import CUT, under_series
from bayesfac.core.laws.polya_gamma import TERMS, PolyaGamma, log_cosh, share

KEY = jax.random.key(0)
CASES = [(0.4, 0.5), (1, 0.0), (1, 3.0), (1, -12.0), (3.7, 1.0), (2500.0, 4.0)]


def cosh_ratio(b, c, t):
    """log E exp(-t w) = b log(cosh(c/2) / cosh(sqrt(c^2/4 + t/2))), for complex t too."""
    log = lambda z: z + np.log1p(np.exp(-2 * z))  # noqa: E731
    return b * (log(c / 2 + 0j) - log(np.sqrt(c * c / 4 + t / 2 + 0j)))


def of_samples(b, c, t):
    """log E exp(-t w) of what is sampled."""
    law = PolyaGamma(b, jnp.asarray(c))
    mean, variance = map(float, law._rest)
    found = -(mean**2 / variance) * np.log1p(t * variance / mean + 0j)
    return found - b * sum(np.log1p(t / d + 0j) for d in np.asarray(law._divisors))


@pytest.mark.parametrize(("b", "c"), CASES)
def test_mean_and_variance_have_their_closed_forms(b, c):
    law, small = PolyaGamma(b, jnp.asarray(c)), abs(c) < 1e-9
    np.testing.assert_allclose(law.mean, b / 4 if small else b * np.tanh(c / 2) / (2 * c))
    cosh2 = 4 * np.cosh(c / 2) ** 2
    variance = b / 24 if small else b * (np.sinh(c) - c) / (c**3 * cosh2)
    np.testing.assert_allclose(law.variance, variance, rtol=1e-6)


@pytest.mark.parametrize("backend", ["numba", "jax"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("b", "c"), [*CASES, (1, 7.0), (1, 50.0)])
def test_samples_have_the_moments_and_the_laplace_transform(b, c, dtype, backend):
    """All within 4.5 standard errors of 40,000 draws: a right sampler fails once in 150,000 times."""
    n = 40_000
    law = PolyaGamma(b if isinstance(b, int) else dtype(b), jnp.full(n, -c, dtype))
    with sparse.use(backend):
        w = np.asarray(law.sample(KEY))
    assert w.dtype == dtype and np.isfinite(w).all() and (w > 0).all()
    w, mean, sd = w.astype(float), float(law.mean[0]), float(law.variance[0]) ** 0.5
    z = (w - mean) / sd
    for what, each, exact in [
        ("mean", z, 0),
        ("variance", z**2, 1),
        ("small", np.exp(-w / sd), np.exp(cosh_ratio(b, c, 1 / sd).real)),
        ("smaller", np.exp(-0.1 * w / mean), np.exp(cosh_ratio(b, c, 0.1 / mean).real)),
    ]:
        error = each.std() / n**0.5
        assert abs(each.mean() - exact) < 4.5 * error + 1e-6, what


@pytest.mark.parametrize(
    ("b", "c", "stated"),
    [(0.1, 0.0, 5.5e-3), (0.1, 10.0, 7.9e-3), (1, 0.0, 9.6e-7), (1, 5.0, 4.1e-6), (1, 10.0, 1.8e-5),
     (1, 20.0, 1.2e-4), (10, 5.0, 7.8e-8), (10, 20.0, 2.2e-5), (300, 50.0, 7.1e-5)],
)  # fmt: skip
def test_the_error_of_the_distribution_function_is_as_stated(b, c, stated):
    """F = 1/2 - int Im[e^{-itx} phi(t)] / (pi t) dt of both laws; the docstring has these numbers."""
    law = PolyaGamma(b, jnp.asarray(c))
    mean, sd = float(law.mean), float(law.variance) ** 0.5
    log_t = np.linspace(np.log(1e-6), np.log(3e5), 60_000)
    t = np.exp(log_t) / mean
    gap = np.exp(cosh_ratio(b, c, -1j * t)) - np.exp(of_samples(b, c, -1j * t))
    at = np.geomspace(max(mean - 5 * sd, 1e-3 * mean), mean + 6 * sd, 150)
    step = log_t[1] - log_t[0]
    wrong = [np.imag(np.exp(-1j * t * x) * gap).sum() * step / np.pi for x in at]
    np.testing.assert_allclose(np.abs(wrong).max(), stated, rtol=0.05)


@pytest.mark.parametrize("b", [1, 1.0, 0.3])
def test_samples_have_the_law_that_the_errors_are_of(b):
    """Two-sample test of 40,000 draws beside 200 terms of the sum in NumPy; p < 1e-4 once in 10,000 times."""
    rng, c = np.random.default_rng(1), 2.0
    d = 2 * np.pi**2 * (np.arange(200) + 0.5) ** 2 + c * c / 2
    exact = (rng.gamma(b, size=(40_000, 200)) / d).sum(1)
    exact += b * (np.tanh(c / 2) / (2 * c) - (1 / d).sum())
    drawn = np.asarray(PolyaGamma(b, jnp.full(40_000, c)).sample(KEY))
    assert stats.ks_2samp(drawn, exact).pvalue > 1e-4


def distribution(x, c):
    """F(x) = cosh(c/2) int_0^x exp(-c^2 w / 2) f(w) dw with the series of f, the density of PG(1, 0)."""
    w = np.linspace(0, x.max(), 40_001)[1:, None]
    n = np.arange(40)
    series = (-1.0) ** n * (2 * n + 1) * np.exp(-((2 * n + 1) ** 2) / (8 * w))
    density = series.sum(1) / np.sqrt(2 * np.pi * w[:, 0] ** 3) * np.exp(-(c**2) * w[:, 0] / 2)
    return np.interp(x, w[:, 0], np.cosh(c / 2) * np.cumsum(density) * (w[1, 0] - w[0, 0]))


@pytest.mark.parametrize("c", [0.0, 1.0, 3.1, 3.2, 8.0, 20.0])
def test_exact_draws_have_the_distribution_function_of_the_series(c):
    """200,000 draws, by which an error of 0.005 is seen; p < 1e-4 once in 10,000 times."""
    with sparse.use("numba"):
        drawn = np.sort(np.asarray(PolyaGamma(1, jnp.full(200_000, c)).sample(KEY), float))
    known = distribution(drawn, c)
    assert known[-1] == pytest.approx(1, abs=1e-3)
    assert stats.kstest(known, "uniform").pvalue > 1e-4


def test_proposals_are_accepted_under_the_series():
    """The share is above 0.994 everywhere, so that draws alone would not show an error."""
    n, q = np.arange(30), lambda x: 2 / x if x <= CUT else np.pi**2 * x / 2
    for x in (0.1, 0.4, CUT, 0.65, 0.8, 1.5):
        share = np.sum((-1.0) ** n * (2 * n + 1) * np.exp(-n * (n + 1) * q(x)))
        assert under_series(share - 1e-9, x) and under_series(0.3, x)
        assert share > 1 - 1e-12 or not under_series(share + 1e-9, x)


def test_no_draws_where_a_score_is_no_number():
    with sparse.use("numba"):
        w = PolyaGamma(1, jnp.asarray([0.0, jnp.nan, jnp.inf, 1e6])).sample(KEY)
    np.testing.assert_array_equal(np.isnan(w), [False, True, True, False])


def test_draws_of_many_shapes():
    law = PolyaGamma(jnp.asarray([[1.0], [5.0]]), jnp.asarray([0.0, 1.0, 2.0]))
    assert law._divisors.shape == (TERMS, 2, 3) and law.mean.shape == (2, 3)
    drawn = jax.jit(lambda key: law.sample(key, (4000,)))(KEY)
    assert drawn.shape == (4000, 2, 3)
    error = (law.variance / 4000) ** 0.5
    assert (jnp.abs(drawn.mean(0) - law.mean) < 5 * error).all()


def test_the_parabola_touches_from_below():
    c, x = 1.7, jnp.linspace(-9, 9, 101)
    below = -log_cosh(c) - share(jnp.asarray(c)) * (x**2 - c**2) / 2
    assert (below <= -log_cosh(x) + 1e-12).all()
    np.testing.assert_allclose(jnp.min(-log_cosh(x) - below), 0, atol=1e-2)


def test_the_density_changes_with_c_as_it_should():
    """PG(b, c) has the density of PG(b, 0) times exp(-c^2 w/2), divided by its mean."""
    w, b = 0.37, 2.5
    at = lambda c: float(PolyaGamma(b, jnp.asarray(c)).log_prob(w))  # noqa: E731
    np.testing.assert_allclose(at(3.0) - at(1.0), b * np.log(np.cosh(1.5) / np.cosh(0.5)) - 4 * w)
