"""Pareto smoothing: ArviZ's numbers, and answers known in closed form."""

import numpy as np
import pytest
from arviz_stats.base import array_stats
from scipy.stats import norm

from bayesfac.core.errors import BayesfacError
from bayesfac.report.diagnostics import psis
from bayesfac.report.diagnostics.psis import left_out


# ArviZ 1.x does not fit a tail of five, which is what 25 draws have
@pytest.mark.parametrize("draws", [50, 100, 400, 2000])
def test_weights_and_k_are_arvizs(draws):
    rng = np.random.default_rng(draws)
    log_ratio = np.vstack([rng.normal(0, s, (3, draws)) for s in (0.1, 1.0, 3.0)])
    log_ratio = np.vstack([log_ratio, rng.standard_t(2, (3, draws))])
    efficiency = rng.uniform(0.2, 1.3, len(log_ratio))  # tails of different lengths in one block
    mine, k = psis.smooth(log_ratio, efficiency)
    for row, r_eff in enumerate(efficiency):
        weight, shape = array_stats.psislw(-log_ratio[row], r_eff=r_eff)
        np.testing.assert_allclose(mine[row], weight, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(k[row], shape, rtol=1e-9)


def test_a_block_is_its_rows():
    rng = np.random.default_rng(0)
    log_ratio, efficiency = rng.normal(size=(7, 300)), rng.uniform(0.3, 1, 7)
    whole, k = psis.smooth(log_ratio, efficiency)
    for row in range(7):
        alone = psis.smooth(log_ratio[[row]], efficiency[[row]])
        np.testing.assert_allclose(whole[row], alone[0][0], rtol=1e-12)
        np.testing.assert_allclose(k[row], alone[1][0], rtol=1e-12)


def test_weights_without_a_tail_stay_as_they_are():
    alike = psis.smooth(np.full((1, 100), -3.0), np.ones(1))
    np.testing.assert_allclose(alike[0], -np.log(100))
    assert alike[1] == 0
    ties = np.where(np.arange(100) < 3, 1.0, 0.0)[None]  # three draws, and a tail of ties
    weight, k = psis.smooth(ties, np.ones(1))
    np.testing.assert_allclose(weight[0, 0] - weight[0, 50], 1)
    assert np.isinf(k[0])


def test_leave_one_out_of_a_normal_mean_is_the_closed_form():
    """y_i ~ N(mu, 1), mu ~ N(0, 10^2): without y_i, mu and so y_i are normal again."""
    rng = np.random.default_rng(1)
    y = rng.normal(0.5, 1, 30)

    def posterior(y):
        precision = 0.01 + len(y)
        return y.sum() / precision, precision**-0.5

    mu = rng.normal(*posterior(y), 4000)
    factor = norm.logpdf(y[:, None], mu, 1)
    elpd, lpd, k = left_out(factor, factor, chains=1)
    for i in range(len(y)):
        mean, sd = posterior(np.delete(y, i))
        exact = norm.logpdf(y[i], mean, np.hypot(1, sd))
        # the weights' Monte Carlo error: the likelihood's relative sd over the draws' root
        error = np.std(np.exp(factor[i])) / np.exp(factor[i]).mean() / 4000**0.5
        assert abs(elpd[i] - exact) < 5 * error + 1e-4
        assert (
            abs(lpd[i] - norm.logpdf(y[i], posterior(y)[0], np.hypot(1, posterior(y)[1])))
            < 5 * error + 1e-4
        )
    assert (k < 0.7).all()


def test_the_score_is_weighted_by_the_factor():
    """Weights from one likelihood, the average of another: a normal posterior judged by levels."""
    rng = np.random.default_rng(2)
    factor, score = rng.normal(-1, 0.3, (2, 500)), rng.normal(-2, 0.3, (2, 500))
    elpd = left_out(factor, score, 1)[0]
    weight = np.exp(-factor)
    direct = np.log((weight * np.exp(score)).sum(1) / weight.sum(1))
    np.testing.assert_allclose(elpd, direct, atol=0.01)  # smoothing moves the tail a little
    assert (np.abs(elpd - left_out(score, score, 1)[0]) > 1e-4).any()


def test_efficiency_is_that_of_the_likelihood():
    rng = np.random.default_rng(3)
    walk = rng.normal(size=(1, 2000))
    for t in range(1, 2000):
        walk[:, t] = 0.8 * walk[:, t - 1] + 0.6 * walk[:, t]
    log_likelihood = np.vstack([0.1 * walk, 0.1 * rng.normal(size=(1, 2000))])
    slow, fast = psis.efficiency(log_likelihood, chains=2)
    assert 0.06 < slow < 0.2  # (1 - 0.8) / (1 + 0.8) = 0.11
    assert fast > 0.7
    assert psis.efficiency(np.zeros((1, 50)), 2) == 1  # constant
    assert psis.efficiency(rng.normal(size=(1, 12)), 4) == 1  # three draws a chain


@pytest.mark.parametrize("chains, draws", [(4, 8), (4, 9), (1, 40), (2, 101), (4, 500)])
def test_efficiency_is_arvizs(chains, draws):
    rng = np.random.default_rng(draws)
    x = rng.normal(size=(6, chains, draws))
    for cell, keep in enumerate((0.0, 0.5, 0.9, 0.99, -0.5, -0.9)):
        for t in range(1, draws):
            x[cell, :, t] += keep * x[cell, :, t - 1]
    x[2] += np.arange(chains)[:, None]  # chains apart
    mine = psis.efficiency(x.reshape(6, -1), chains)
    likelihood = np.exp(x - x.max((1, 2), keepdims=True))
    theirs = [float(array_stats.ess(one, method="mean", relative=True)) for one in likelihood]
    np.testing.assert_allclose(mine, theirs, rtol=1e-8)


def test_too_few_draws_are_refused():
    with pytest.raises(BayesfacError, match="Expected at least 25 draws.*got 24"):
        psis.enough(24)
    psis.enough(25)
