"""Intervals and scores of laws that have no quantiles, or no cdf, of their own."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import bayesfac as bf
from bayesfac.models.ratings import pmf
from bayesfac.testing import check_observed
from tests.tools import student
from tests.tools.records import changed


class Plain(dist.Distribution):
    """A normal that only samples and has a density."""

    support = dist.constraints.real
    pytree_data_fields = ("normal",)

    def __init__(self, normal):
        self.normal = normal
        super().__init__(normal.batch_shape, ())

    mean = property(lambda self: self.normal.mean)
    variance = property(lambda self: self.normal.variance)

    def log_prob(self, value):
        return self.normal.log_prob(value)

    def sample(self, key, sample_shape=()):
        return self.normal.sample(key, sample_shape)


@pytest.fixture(scope="module")
def ratings():
    x = np.random.default_rng(0).normal(3, 1, (20, 15))
    return bf.Ratings(x)


@pytest.fixture(scope="module")
def heavy(ratings):
    return bf.fit(student.METHOD, ratings, n_components=2, progress=False)


def test_students_t_has_intervals_of_its_draws_and_can_be_compared(heavy, ratings):
    prediction = heavy.predict(ratings)
    lower, upper = prediction.interval(0.9)
    exact = heavy.hyper.noise * stats.t.ppf(0.95, student.DF)
    # 2,000 outcomes: the sd of a 95 % quantile is .055 noises, of the mean over 300 cells a 17th of it
    assert np.mean(upper - prediction.mean) == pytest.approx(exact, rel=0.02)
    assert np.mean(prediction.mean - lower) == pytest.approx(exact, rel=0.02)
    table = bf.compare({"mine": np.full(len(ratings), 3.0), "student": heavy}, ratings).table
    assert np.isfinite(table.loc["student", ["RMSE", "CRPS"]].astype(float)).all()


def test_the_pit_of_a_law_without_a_cdf_comes_from_its_draws(ratings):
    of = changed(
        pmf.METHOD,
        name="plain",
        predict=lambda *a: Plain(pmf.METHOD.predict(*a)),
        candidates=None,
    )
    plain = bf.fit(of, ratings, n_components=2, progress=False).predict(ratings)
    exact = stats.norm.cdf(ratings.value, plain.mean, plain.sd)
    # the share of 2,000 draws has an sd of at most .011; 300 cells: five of them
    np.testing.assert_allclose(plain.scores(ratings.value)["pit"], exact, atol=0.06)


def test_the_contract_asks_laws_of_counts_for_counts():
    def law(normal):
        return dist.Poisson(jnp.exp(normal.mean / 9))

    def model(data, h):
        draws = {site: numpyro.sample(site, of) for site, of in student.priors(data, h).items()}
        with numpyro.plate("cell", len(data.cells.row)):
            numpyro.sample("rating", law(student.law(pmf.Params(**draws), data, h)), obs=data.y)

    def wrong(p, query, h):
        return dist.Poisson(2 * law(pmf.METHOD.predict(p, query, h)).rate)

    count = replace(student.METHOD, model=model, predict=lambda *a: law(pmf.METHOD.predict(*a)))
    assert check_observed(count, jax.random.key(0)) is None
    with pytest.raises(AssertionError, match="log densities"):
        check_observed(replace(count, predict=wrong), jax.random.key(0))


def test_quantiles_are_those_of_probabilities_and_nothing_else(heavy, ratings):
    prediction = heavy.predict(ratings)
    low, high = prediction.quantiles([0, 1])
    assert (low < prediction.mean).all() and (prediction.mean < high).all()
    for wrong in ([-0.1], [5, 95], [np.nan]):  # -0.1 gave the quantile of 0.9
        with pytest.raises(ValueError, match="Expected probabilities from 0 to 1 as tails"):
            prediction.quantiles(wrong)
