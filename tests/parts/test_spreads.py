"""A spread of each user: some users rate with more noise than others."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import bayesfac as bf
from bayesfac.core.data.cells import Query
from bayesfac.core.errors import UnknownName
from bayesfac.core.laws.ordinal import codes
from bayesfac.testing import CHECKS
from tests.inference.test_geweke import THRESHOLD, z_scores

MODEL = bf.factorization(bf.Spherical(), observed=bf.Ordinal(spread="user"))
OWN = bf.factorization(
    bf.Relevance(), observed=bf.Ordinal("logistic", thresholds="user", spread="user"), biases=True
)


@pytest.mark.parametrize("check", ["slopes", "conditionals", "moves", "variational", "unseen"])
def test_contract(check, key):
    assert CHECKS[check](MODEL, key) is None


def test_both_of_users(key):
    for check in ("joint", "slopes"):
        assert CHECKS[check](OWN, key) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", [MODEL, bf.factorization(observed=bf.Ordinal(thresholds="user", spread="user"))]
)
def test_sweeps_leave_the_prior_alone(model):
    assert np.abs(z_scores(model, {})).max() < THRESHOLD


def drawn(key):
    """Data, settings and values with different spreads."""
    data, h = MODEL.example(key)
    p = MODEL.init(key, data, h)
    return data, h, p._replace(U=0.3 * p.U, log_spread=jnp.linspace(-0.5, 1, data.n_users))


def by_hand(p, data, h):
    """Minus the log density, without constants."""
    theta = np.concatenate(
        [[-np.inf], np.cumsum(np.r_[p.centre[:1], np.exp(p.centre[1:])]), [np.inf]]
    )
    row, col = (np.asarray(code) for code in (data.cells.row, data.cells.col))
    x, y = np.sum(p.U[row] * p.V[col], 1), np.asarray(codes(data))
    s = np.exp(np.asarray(p.log_spread))
    share = stats.norm.cdf((theta[y + 1] - x) / s[row]) - stats.norm.cdf((theta[y] - x) / s[row])
    middle = np.r_[1 - len(data.levels) / 2, np.zeros(len(p.centre) - 1)]
    J = -np.log(share).sum() + 0.5 * ((p.centre - middle) ** 2).sum()
    J += 0.5 * ((np.asarray(p.U) / h.scale_user) ** 2).sum()
    J += 0.5 * ((np.asarray(p.V) / h.scale_item) ** 2).sum()
    return J + 0.5 * (np.asarray(p.log_spread) ** 2).sum() / h.scale_spread**2


def test_the_objective_is_the_one_by_hand(key):
    data, h, p = drawn(key)
    other = p._replace(U=2 * p.U, log_spread=p.log_spread / 2, centre=p.centre + 0.1)
    ours = MODEL.objective(p, data, h) - MODEL.objective(other, data, h)
    np.testing.assert_allclose(ours, by_hand(p, data, h) - by_hand(other, data, h), rtol=1e-9)


def test_latent_values_lie_between_thresholds_and_have_the_spread(key):
    """Beside scipy's normals that are cut to an interval."""
    data, h, p = drawn(key)
    law = MODEL.gibbs.augment(p, data, h)
    each = jax.vmap(law.sample)(jax.random.split(key, 20_000))
    z, precision = MODEL.parts.observed.target(p, data, h, each)
    row, y = np.asarray(data.cells.row), np.asarray(codes(data))
    s = np.exp(np.asarray(p.log_spread))[row]
    np.testing.assert_allclose(precision, s**-2.0, rtol=1e-9)
    theta = np.concatenate(
        [[-np.inf], np.cumsum(np.r_[p.centre[:1], np.exp(p.centre[1:])]), [np.inf]]
    )
    x = np.sum(np.asarray(p.U)[row] * np.asarray(p.V)[np.asarray(data.cells.col)], 1)
    cut = stats.truncnorm((theta[y] - x) / s, (theta[y + 1] - x) / s, x, s)
    np.testing.assert_allclose(z.mean(0), cut.mean(), atol=0.06)
    np.testing.assert_allclose(z.std(0), cut.std(), rtol=0.05)


def test_predictions_of_known_and_new_users(key):
    """A known user has the own spread; a new one the mean over 20,000 draws of rows and spreads."""
    data, h, p = drawn(key)
    law = MODEL.predict(p, Query(np.array([4, -1]), np.array([1, 1])), h)
    theta = np.concatenate(
        [[-np.inf], np.cumsum(np.r_[p.centre[:1], np.exp(p.centre[1:])]), [np.inf]]
    )

    def shares(x, s):
        return np.diff(stats.norm.cdf((theta - x[:, None]) / s[:, None]), axis=1)

    rng = np.random.default_rng(0)
    known = shares(np.asarray(p.U[4] @ p.V[1])[None], np.exp(np.asarray(p.log_spread[4]))[None])
    x = h.scale_user * rng.normal(size=(200_000, 2)) @ np.asarray(p.V[1])
    new = shares(x, np.exp(h.scale_spread * rng.normal(size=len(x)))).mean(0)
    np.testing.assert_allclose(law.probs[0], known[0], rtol=1e-5)
    np.testing.assert_allclose(law.probs[1], new, atol=5e-3)


@pytest.mark.parametrize("engine", [None, bf.Gibbs(100, 100, 1), bf.VB()])
def test_fits_find_the_users_that_rate_with_noise(engine):
    """Half of the users have three times the spread of the others."""
    rng = np.random.default_rng(0)
    s = np.where(np.arange(80) < 40, 0.5, 1.5)
    z = rng.normal(size=(80, 2)) @ rng.normal(size=(2, 60)) + s[:, None] * rng.normal(size=(80, 60))
    data = bf.Ratings(1.0 + np.digitize(z, [-1.5, -0.5, 0.5, 1.5]), levels=5)
    model = bf.factorization(observed=bf.Ordinal(spread="user"))
    fit = bf.fit(model, data, *([engine] if engine else []), n_components=2, progress=False)
    found = np.asarray(
        fit.posterior["posterior"]["log_spread"].mean(("chain", "draw"))
        if engine
        else fit.params.log_spread
    )
    assert np.corrcoef(found, s)[0, 1] > 0.9
    np.testing.assert_allclose(found[40:].mean() - found[:40].mean(), np.log(3), atol=0.3)


def test_spreads_of_a_point_are_not_too_small():
    """All users have the spread 1, and few ratings, to which the rows are fitted."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(60, 3)) @ rng.normal(size=(3, 20)) + rng.normal(size=(60, 20))
    data = bf.Ratings(1.0 + np.digitize(z, [-1.5, -0.5, 0.5, 1.5]), levels=5)
    fit = bf.fit(MODEL, data, n_components=5, progress=False)
    assert abs(np.mean(fit.params.log_spread)) < 0.1


def test_what_is_refused():
    with pytest.raises(ValueError, match="Expected spread to be one of .*, got 'item'"):
        bf.Ordinal(spread="item")
    with pytest.raises(ValueError, match="scale_spread"):
        bf.factorization(observed=bf.Ordinal(spread="user", scale_spread=-1.0)).example(
            jax.random.key(0)
        )


def test_a_fit_cannot_take_the_spreads_away():
    """A setting of a fit that removed a site would leave moves without it."""
    data = bf.Ratings([0, 0, 1, 1], [0, 1, 0, 1], [1, 2, 2, 1], levels=2)
    with pytest.raises(UnknownName, match="spread"):
        bf.fit(MODEL, data, n_components=1, spread="shared")
