"""Ordinal MF: cumulative probabilities, latent normals, thresholds that rise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import bayesfac as bf
from bayesfac.core.errors import BayesfacError
from bayesfac.core.laws.ordinal import Between, log_between
from bayesfac.core.method import REGISTRY

ORDINAL = REGISTRY["ordinal_mf"]


@pytest.mark.parametrize(("link", "law"), [("probit", stats.norm), ("logistic", stats.logistic)])
def test_the_log_mass_of_an_interval_far_in_both_tails(link, law):
    low = np.array([-np.inf, -3.0, 0.1, 5.0, 9.0, 20.0, -21.0, 2.0])
    high = np.array([-8.0, 3.0, 0.2, 6.0, 9.5, np.inf, -20.0, 2.0 + 1e-6])
    found = np.asarray(log_between(jnp.asarray(low), jnp.asarray(high), link))
    with np.errstate(divide="ignore"):  # the side that cancels is not looked at
        upper = law.logsf(low) + np.log1p(-np.exp(law.logsf(high) - law.logsf(low)))
        lower = law.logcdf(high) + np.log1p(-np.exp(law.logcdf(low) - law.logcdf(high)))
    expected = np.where(low + high > 0, upper, lower)
    np.testing.assert_allclose(found, expected, rtol=1e-7)
    slope = jax.vmap(jax.grad(lambda a, b: log_between(a, b, link), (0, 1)))(
        jnp.asarray(low), jnp.asarray(high)
    )
    assert np.isfinite(slope).all()


def test_latent_draws_stay_inside_and_have_the_right_mean():
    x = jnp.array([0.0, 0.0, 3.0, -9.0, 2.0])
    low, high = (
        jnp.array([-1.0, 1.0, -jnp.inf, 0.0, -jnp.inf]),
        jnp.array([1.0, jnp.inf, 0.0, 1.0, jnp.inf]),
    )
    draws = np.asarray(Between(x, low, high).sample(jax.random.key(0), (40_000,)))
    assert ((draws >= low) & (draws <= high)).all()
    law = stats.truncnorm(low - x, high - x, loc=x)
    assert np.abs((draws.mean(0) - law.mean()) / (law.std() / 200)).max() < 5


def golden(method):
    """J of the example by plain loops, with scipy's distribution functions."""
    data, h = ORDINAL.example(jax.random.key(3))
    p = ORDINAL.init(jax.random.key(4), data, h)
    theta = np.asarray(p.theta) + np.array([0.1, 0.2, 0.4]) * np.arange(7)[:, None]
    p = p._replace(theta=jnp.asarray(theta))
    U, V, centre = np.asarray(p.U), np.asarray(p.V), np.asarray(p.centre)
    J = 0.5 * ((centre - [-1, 0, 0]) ** 2).sum()
    edges = np.hstack([np.full((7, 1), -np.inf), theta, np.full((7, 1), np.inf)])
    for i, j, y in zip(data.user, data.item, data.value.astype(int), strict=True):
        x = U[i] @ V[j]
        J -= np.log(stats.norm.cdf(edges[i, y] - x) - stats.norm.cdf(edges[i, y - 1] - x))
    for i in range(7):
        gaps = np.log(np.diff(theta[i]))
        t = np.concatenate([theta[i, :1], gaps])
        J += (
            0.5 * (((t - centre) / [h.scale_shift, h.scale_gap, h.scale_gap]) ** 2).sum()
            + gaps.sum()
        )
    for x, mu, L in ((U, p.mu_U, p.Lambda_U), (V, p.mu_V, p.Lambda_V)):
        mu, L = np.asarray(mu), np.asarray(L)
        J += 0.5 * (np.einsum("ik,kl,il", x - mu, L, x - mu) - len(x) * np.linalg.slogdet(L)[1])
        J += 0.5 * (h.beta0 * mu @ L @ mu + h.rate * np.trace(L))
    np.testing.assert_allclose(method.objective(p, data, h), J, rtol=1e-10)


def test_golden_objective():
    golden(ORDINAL)


@pytest.mark.slow
@pytest.mark.parametrize("thresholds", ["user", "shared"])
def test_gibbs_and_nuts_sample_one_posterior(thresholds):
    """Probabilities of three cells from both samplers, in Monte-Carlo standard errors."""
    ratings = bf.datasets.make_ratings(8, 6, 1, levels=3, density=0.8, seed=0, noise=0.7)
    options = {"n_components": 1, "thresholds": thresholds, "progress": False}
    gibbs = bf.fit("ordinal_mf", ratings, bf.Gibbs(500, 4000, 2, thin=2), **options)
    nuts = bf.fit("ordinal_mf", ratings, bf.NUTS(500, 1500, 2), **options)
    ask = {"user": [0, 3, 7, 5], "item": [1, 2, 5, 0]}
    one, two = (fit.predict(ask).draws_of_mean() for fit in (gibbs, nuts))
    for a, b in zip(np.moveaxis(one, -1, 0), np.moveaxis(two, -1, 0), strict=True):
        error = [
            np.std([part.mean() for part in np.array_split(x.ravel(), 40)]) / 40**0.5
            for x in (a, b)
        ]
        assert abs(a.mean() - b.mean()) < 4.5 * np.hypot(*error)


def test_shared_thresholds_have_no_theta_and_rise():
    ratings = bf.datasets.make_ratings(30, 20, 2, density=0.5, seed=0, noise=0.5)
    fit = bf.fit("ordinal_mf", ratings, n_components=2, thresholds="shared", progress=False)
    assert fit.params.theta is None
    own = bf.fit("ordinal_mf", ratings, n_components=2, progress=False)
    assert (np.diff(np.asarray(own.params.theta), axis=1) > 0).all()


def test_the_logistic_has_no_gibbs_and_says_so():
    ratings = bf.datasets.make_ratings(12, 9, 2, density=0.6)
    with pytest.raises(BayesfacError, match=r"link='probit' only"):
        bf.fit(
            "ordinal_mf",
            ratings,
            bf.Gibbs(2, 2, 1),
            n_components=2,
            link="logistic",
            progress=False,
        )


@pytest.mark.parametrize(
    "engine",
    [
        bf.Gibbs(3, 3, 1),
        bf.Quick(sweeps=40),
        pytest.param(bf.VB(warmup=2, chains=1), marks=pytest.mark.slow),
    ],
)
def test_two_levels_with_thresholds_of_users(engine):
    """A single threshold has no gaps: a sum over none of them made XLA refuse the program."""
    ratings = bf.datasets.make_ratings(40, 20, 2, seed=0)
    data = bf.Ratings(ratings.user, ratings.item, (ratings.value > 3) * 1.0, levels=[0, 1])
    fit = bf.fit("ordinal_mf", data, engine, n_components=2, progress=False)
    assert np.isfinite(fit.predict({"user": [0], "item": [0]}).mean).all()


@pytest.mark.parametrize(
    ("link", "cuts"),
    [("probit", [0.0]), ("logistic", [0.0]), ("logistic", [-2.5, -2.0, -1.5, 1.8])],
)
def test_a_point_finds_factors_behind_two_levels_and_one_frequent_level(link, cuts):
    """With the largest bend as weight of every cell the correlations were .64, -.02 and .55."""
    rng = np.random.default_rng(0)
    x = 1.5 / 3**0.5 * rng.normal(size=(150, 3)) @ rng.normal(size=(3, 100))
    y = np.digitize(x + rng.normal(size=x.shape), cuts) + 1.0
    seen = rng.random(x.shape) < 0.3
    ratings = bf.Ratings(*np.nonzero(seen), y[seen], levels=len(cuts) + 1)
    fit = bf.fit("ordinal_mf", ratings, n_components=5, link=link, progress=False)
    user, item = np.nonzero(~seen)
    mean = fit.predict({"user": user, "item": item}).mean
    assert np.corrcoef(mean, x[~seen])[0, 1] > 0.7


def test_a_point_begins_from_what_a_normal_law_finds():
    """Without this start, factors and biases together are found in part only: a correlation of .80."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3)) @ rng.normal(size=(3, 200)) / 3**0.5
    x = x + 0.5 * rng.normal(size=(300, 1)) + 0.5 * rng.normal(size=(1, 200))
    y = np.digitize(x + 0.5 * rng.normal(size=x.shape), [-2.0, -1.5, -1.0, 1.5]) + 1.0
    seen = rng.random(x.shape) < 0.15
    ratings = bf.Ratings(*np.nonzero(seen), y[seen], levels=5)
    fit = bf.fit("ordinal_mf", ratings, n_components=5, progress=False)
    user, item = np.nonzero(~seen)
    mean = fit.predict({"user": user, "item": item}).mean
    assert np.corrcoef(mean, x[~seen])[0, 1] > 0.85
