"""Scores of draws of real values and counts, by brute force: several blocks of draws, two chains."""

from dataclasses import replace
from functools import cache

import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from scipy import stats
from scipy.special import logsumexp

from bayesfac.core.data.cells import Query
from bayesfac.core.math import inner
from bayesfac.core.method import REGISTRY
from bayesfac.inference.predictions.everywhere import means, moments
from bayesfac.inference.predictions.predict import OUTCOMES, Prediction

CHAINS, DRAWS, ROWS, COLUMNS = 2, 22, 4, 3
BYTES = 8 * (ROWS + COLUMNS) + 16  # of a draw, beside the results of one cell
SEVERAL = 11 * BYTES  # of memory: two blocks of 11 draws, each with parts of 2, 3, 3 and 3
ROW, COLUMN = np.indices((ROWS, COLUMNS)).reshape(2, -1)


class Toss(dist.Distribution):
    """Poisson counts that have a density and a sampler, and no cdf."""

    support = dist.constraints.nonnegative_integer
    pytree_data_fields = ("rate",)

    def __init__(self, rate):
        self.rate = rate
        super().__init__(rate.shape, ())

    mean = variance = property(lambda self: self.rate)

    def log_prob(self, value):
        return dist.Poisson(self.rate).log_prob(value)

    def sample(self, key, sample_shape=()):
        return dist.Poisson(self.rate).sample(key, sample_shape).astype(float)


LAWS = {
    "normal": lambda x: dist.Normal(x, 0.3 + 0.2 * x),
    "Poisson": dist.Poisson,
    "no cdf": Toss,
}


def exact(name, rate):
    """The same law in SciPy."""
    if name == "normal":
        return stats.norm(rate, 0.3 + 0.2 * rate)
    return stats.poisson(rate)


@cache
def method_of(name):
    """A method whose outcomes have this law; one record, so that all tests share its programs."""

    def predict(p, query, hyper):
        return LAWS[name](inner(p.U, p.V, query))

    return replace(REGISTRY["pmf"], predict=predict)


def told(name, alike=False):
    """A prediction of all cells, and the rate of every draw, (chain, draw, cell)."""
    rng = np.random.default_rng(0)
    U, V = (rng.uniform(1, 1 if alike else 2, (CHAINS, DRAWS, n, 1)) for n in (ROWS, COLUMNS))
    query, labels = Query(ROW, COLUMN), pd.DataFrame({"user": ROW, "item": COLUMN})
    flagged = np.zeros(len(ROW), bool)
    draws = {"U": U, "V": V}
    found = Prediction(method_of(name), None, draws, query, labels, flagged, 3, memory=SEVERAL)
    return found, (U @ np.swapaxes(V, -1, -2)).reshape(CHAINS, DRAWS, -1)


@pytest.mark.parametrize("name", LAWS)
def test_scores_are_those_of_the_mixture_of_all_draws(name):
    prediction, rate = told(name)
    flat = rate.reshape(-1, len(ROW))
    law = exact(name, flat)
    value = np.arange(len(ROW)) % 5 + (0.3 if name == "normal" else 0.0)
    log, cdf = (law.logpdf if name == "normal" else law.logpmf)(value), law.cdf(value).mean(0)
    below = cdf if name == "normal" else law.cdf(value - 1).mean(0)
    found = prediction.scores(value)
    np.testing.assert_allclose(found["log_score"], logsumexp(log, 0) - np.log(len(flat)), rtol=1e-6)
    np.testing.assert_allclose(found["mean"], law.mean().mean(0), rtol=1e-6)
    spread = law.mean().var(0)
    np.testing.assert_allclose(found["sd"] ** 2, law.var().mean(0) + spread, rtol=1e-6)
    np.testing.assert_allclose(prediction.sd_mean**2, spread, rtol=1e-6)
    u = np.random.default_rng((prediction.seed, 1)).random(len(ROW))
    # a law without a cdf has that of its simulated outcomes: five of their standard errors
    error = 5 / (2 * OUTCOMES**0.5) if name == "no cdf" else 1e-6
    np.testing.assert_allclose(found["pit"], below + u * (cdf - below), atol=error)
    assert (np.abs(found["pit"] - u) > 0.1).any()


def test_crps_and_quantiles_are_those_of_the_mixture():
    """Of normal draws, by 2,002 outcomes; their errors are a few thousandths of an sd."""
    prediction, rate = told("normal")
    flat = rate.reshape(-1, len(ROW))
    rng = np.random.default_rng(1)
    draw = exact("normal", flat).rvs((2000, *flat.shape), rng).reshape(-1, len(ROW))
    draw = rng.permutation(draw)
    value, half = np.arange(len(ROW)) % 5 + 0.3, len(draw) // 2
    crps = np.abs(draw - value).mean(0) - np.abs(draw[:half] - draw[half:]).mean(0) / 2
    np.testing.assert_allclose(prediction.scores(value)["crps"], crps, atol=0.02)
    expected = np.quantile(draw, [0.05, 0.5, 0.9], axis=0)
    found = prediction.quantiles([0.05, 0.5, 0.9])
    np.testing.assert_allclose(found, expected, atol=0.15)
    assert np.abs((found - expected).mean(1)).max() < 0.03


def test_means_of_parts_end_where_a_chain_ends():
    prediction, rate = told("normal")
    ends = [0, 5, 11, 16, 22]  # of the eight parts of a chain two at a time
    expected = [
        rate[chain, a:b].mean(0) for chain in range(CHAINS) for a, b in zip(ends[:-1], ends[1:], strict=True)
    ]  # fmt: skip
    prediction.scores(np.ones(len(ROW)))  # so that blocks have 11 draws
    np.testing.assert_allclose(prediction.means_of_parts, expected, rtol=1e-6)


def test_every_draw_and_every_cell_has_noise_of_its_own():
    """All draws and cells are alike, so that equal random numbers give equal outcomes."""
    prediction, _ = told("normal", alike=True)
    outcomes = np.concatenate([block.outcome.ravel() for _, block in prediction._blocks()])
    assert len(outcomes) == CHAINS * DRAWS * -(-OUTCOMES // (CHAINS * DRAWS)) * len(ROW)
    assert len(np.unique(outcomes)) == len(outcomes)


def test_tables_of_all_cells_are_those_of_all_draws():
    prediction, rate = told("normal")
    law, rows = exact("normal", rate.reshape(-1, ROWS, COLUMNS)), np.arange(ROWS)
    known = prediction.method, None, prediction.draws, rows, COLUMNS, 4 * SEVERAL
    found = moments(*known)
    np.testing.assert_allclose(found.mean, law.mean().mean(0), rtol=1e-6)
    np.testing.assert_allclose(found.sd_mean**2, law.mean().var(0), rtol=1e-6)
    np.testing.assert_allclose(found.sd**2, law.mean().var(0) + law.var().mean(0), rtol=1e-6)
    np.testing.assert_allclose(means(*known), found.mean, rtol=1e-6)


def test_levels_of_normal_draws_are_cut_at_the_midpoints():
    """Masses, votes and scores by SciPy; the last level is so far that its mass is 0 as a number."""
    levels = (1.0, 2.0, 2.5, 200.0)
    prediction, rate = told("normal")
    prediction.levels = levels
    law = exact("normal", rate.reshape(-1, len(ROW)))
    cuts = np.array([1.5, 2.25, 101.25])
    below, above = (np.stack([of(cut) for cut in cuts]) for of in (law.cdf, law.sf))
    mass = np.concatenate([below[:1], np.diff(below, axis=0), above[-1:]])
    value = np.array(levels)[np.arange(len(ROW)) % 4]
    found, p = prediction.scores(value), mass.mean(1).T
    np.testing.assert_allclose(prediction.probabilities[:, :3], p[:, :3], rtol=1e-6)
    far = logsumexp(law.logsf(cuts[-1]), 0) - np.log(CHAINS * DRAWS)
    assert far.max() < -750  # exp of it is 0
    chosen = (law.mean() > cuts[:, None, None]).sum(0)
    votes = (chosen[..., None] == np.arange(4)).mean(0)
    np.testing.assert_allclose(prediction.votes, votes)
    median = np.sort(chosen, 0)[CHAINS * DRAWS // 2 - 1]  # the lower of the two in the middle
    np.testing.assert_array_equal(prediction.level, np.array(levels)[median])
    assert len(np.unique(chosen)) == 3
    p_of_value = np.maximum(p[np.arange(len(ROW)), np.arange(len(ROW)) % 4], 1e-300)
    log = np.where(value == 200, far, np.log(p_of_value))
    np.testing.assert_allclose(found["ordinal_log_score"], log, rtol=1e-6)
    off = np.cumsum(p, 1)[:, :-1] - (value[:, None] <= np.array(levels)[:-1])
    np.testing.assert_allclose(found["rps"], off**2 @ np.diff(levels), rtol=1e-6)
