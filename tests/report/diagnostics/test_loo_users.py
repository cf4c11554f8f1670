"""Users left out one by one: exact where their factors are integrated out, refits, and every refusal."""

import jax
import numpy as np
import pandas as pd
import pytest
from arviz_stats.base import array_stats

import bayesfac as bf
from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import REGISTRY, from_sites, sites
from bayesfac.report.diagnostics.loo import _marginal, own_site
from tests.report.diagnostics.few_ratings import GIBBS, PMF


# -- users ----------------------------------------------------------------------------------------
def marginals(data, V, mu, cov, noise, offset):
    """log p(y_u | g) by the normal law of all ratings of a user at once."""
    from scipy.stats import multivariate_normal

    found = []
    for user in range(data.n_users):
        v, y = V[data.item[data.user == user]], data.value[data.user == user]
        if len(y):
            law = multivariate_normal(offset + v @ mu, v @ cov @ v.T + noise**2 * np.eye(len(y)))
            found.append(law.logpdf(y))
    return np.array(found)


@pytest.mark.parametrize("memory", [2**31, 2**16])
def test_a_users_own_factors_are_integrated_out_exactly(data, memory):
    from bayesfac.report.diagnostics.psis import left_out

    fit = bf.fit("bpmf", data, bf.Gibbs(30, 30, 1), n_components=2, progress=False)
    found = fit.loo(data, by="user", memory=memory)
    draws = {site: np.asarray(value[0], float) for site, value in fit.draws.items()}
    direct = np.array([
        marginals(
            data, draws["V"][s], draws["mu_U"][s], np.linalg.inv(draws["Lambda_U"][s]),
            draws["alpha"][s] ** -0.5, fit.hyper.offset,
        )
        for s in range(30)
    ]).T  # fmt: skip
    elpd, lpd, k = left_out(direct, direct, 1)
    np.testing.assert_allclose(found.pointwise, elpd, rtol=1e-6)
    np.testing.assert_allclose(found.table["p_loo"], lpd - elpd, rtol=1e-4, atol=1e-7)
    assert found.unit == "user" and found.table["ratings"].sum() == len(data)


def test_users_left_out_are_those_of_refits(fit, data):
    """Three users really left out; p(y_u | the others) by the direct normal law over the refit's draws."""
    found = fit.loo(data, by="user")
    for user in (0, 3, 6):
        again = bf.fit("pmf", data.take(data.user != user), GIBBS, seed=2, progress=False, **PMF)
        V = np.asarray(again.draws["V"], float).reshape(-1, data.n_items, 1)
        own = data.take(data.user == user)
        told = np.array([marginals(own, v, np.zeros(1), 0.64 * np.eye(1), 0.7, 3.0)[0] for v in V])
        density = np.exp(told.reshape(2, -1) - told.max())
        error = (
            density.std() / density.mean() / float(array_stats.ess(density, method="mean")) ** 0.5
        )
        exact = np.log(density.mean()) + told.max()
        # the weights' own error is that of the refit, larger where k is
        assert abs(found.pointwise[user] - exact) < 4 * 2 * error + 0.02, user


def test_users_without_ratings_are_not_left_out(data):
    part = data.take(data.user != 2)
    fit = bf.fit("pmf", part, bf.Gibbs(10, 30, 1), progress=False, **PMF)
    for memory in (2**31, 2**12):
        found = fit.loo(part, by="user", memory=memory)
        assert 2 not in found.table["user"].tolist() and len(found.table) == data.n_users - 1
        assert np.isfinite(found.pointwise).all()


@pytest.mark.parametrize(
    "name, why",
    [
        ("ordinal_mf", "U and theta is known given auxiliary variables only"),
        ("gibbs_mmmf", "auxiliary variables only"),
        ("pmf", "2 blocks .U, bias_user.*without biases there is one"),
        ("hmf", "no conditional of U"),
    ],
)
def test_users_that_cannot_be_integrated_out_are_refused(name, why):
    method = REGISTRY[name]
    data, hyper = method.example(jax.random.key(0))
    start = sites(method.init(jax.random.key(0), data, hyper))
    draws = {site: np.asarray(value)[None, None] for site, value in start.items()}
    with pytest.raises(BayesfacError, match=why):
        own_site(method, data, draws)


def test_the_marginal_of_a_user_is_the_normal_law_of_all_its_ratings():
    """Of two draws that no sampler made, in double precision; a user without ratings has none to explain."""
    method, rng = REGISTRY["bpmf"], np.random.default_rng(0)
    with jax.enable_x64(True):
        data = bf.Ratings([0, 0, 2, 2, 2], [0, 1, 0, 1, 2], rng.normal(3, 1, 5)).on(
            pd.RangeIndex(3), "user"
        )
        hyper = method.prepare(data, method.Hyper(2))
        every = [sites(method.init(jax.random.key(k), data, hyper)) for k in (0, 1)]
        for k, draw in enumerate(every):
            root = rng.normal(size=(2, 2)) + 2 * np.eye(2)
            draw |= {
                "mu_U": rng.normal(size=2),
                "Lambda_U": root @ root.T,
                "V": rng.normal(size=(3, 2)),
            }
            draw |= {"alpha": np.asarray(1.5 + k), "U": rng.normal(size=(3, 2))}
        params = from_sites(
            method, {site: np.stack([one[site] for one in every]) for site in every[0]}
        )
        found = np.asarray(_marginal(method, hyper, "U", params, data))
    for k, draw in enumerate(every):
        cov, noise = np.linalg.inv(draw["Lambda_U"]), draw["alpha"] ** -0.5
        expected = marginals(data, draw["V"], draw["mu_U"], cov, noise, hyper.offset)
        np.testing.assert_allclose(found[k, [0, 2]], expected, rtol=1e-9)
        assert abs(found[k, 1]) < 1e-9
