"""The ordinal factorization machine: its objective by hand, thresholds of two kinds, and what it predicts."""

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

import bayesfac as bf
from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import REGISTRY
from bayesfac.models.ratings._shared import machine

ORDINAL = REGISTRY["ordinal_fm"]


def golden(method):
    """The objective at the start, from the probability of each rating and the density of each site."""
    data, h = method.example(jax.random.key(3))
    p = method.init(jax.random.key(4), data, h)
    found = float(method.objective(p, data, h))
    p = jax.tree.map(np.array, p)
    score = p.bias_user[:, None] + p.bias_item + p.U @ p.V.T
    wanted = 0.0
    for i, j, level in zip(data.user, data.item, data.value, strict=True):
        edges = np.concatenate([[-np.inf], p.theta[i], [np.inf]])
        low, high = edges[int(level) - 1], edges[int(level)]
        wanted -= np.log(norm.cdf(high - score[i, j]) - norm.cdf(low - score[i, j]))
    sd = np.array([h.scale_shift, h.scale_gap, h.scale_gap])
    free = np.column_stack([p.theta[:, 0], np.log(np.diff(p.theta, axis=1))])
    wanted += (((free - p.centre) / sd) ** 2).sum() / 2 + free[:, 1:].sum()
    wanted += ((p.centre - [-1, 0, 0]) ** 2).sum() / 2
    for rows, bias, side in ((p.U, p.bias_user, "user"), (p.V, p.bias_item, "item")):
        tau, own, n = p.tau[side], p.tau_bias[side], len(rows)
        wanted += ((rows - p.mu[side]) ** 2 @ tau).sum() / 2 - n / 2 * np.log(tau).sum()
        wanted += h.beta0 / 2 * p.mu[side] ** 2 @ tau - np.log(tau).sum() / 2
        wanted += (h.tau_rate * tau - (h.tau_shape - 1) * np.log(tau)).sum()
        wanted += own / 2 * bias @ bias - n / 2 * np.log(own)
        wanted += h.bias_rate * own - (h.tau_shape - 1) * np.log(own)
    np.testing.assert_allclose(found, wanted, rtol=1e-10)


def test_golden_step():
    golden(ORDINAL)


@pytest.fixture(scope="module")
def parts():
    ratings = bf.datasets.make_ratings(120, 80, 3, seed=0)
    return bf.split.holdout(ratings, 0.1, seed=0)


@pytest.mark.slow
def test_draws_and_a_point_predict_levels(parts):
    train, test = parts
    share = np.bincount(train.value.astype(int), minlength=6)[1:] / len(train)
    blind = np.log(share[test.value.astype(int) - 1]).mean()
    for engine in (None, bf.Gibbs(100, 100, 1)):
        fit = bf.fit("ordinal_fm", train, engine, n_components=3, progress=False)
        answer = fit.predict(test)
        assert answer.scores(test.value)["log_score"].mean() > blind + 0.05
        assert bf.metrics.rmse(answer.mean, test.value) < 0.97 * test.value.std()


def test_thresholds_are_shared_or_of_each_user(parts):
    train = parts[0]
    shared = bf.fit("ordinal_fm", train, bf.Gibbs(5, 5, 1), n_components=2, progress=False)
    own = bf.fit(
        "ordinal_fm", train, bf.Gibbs(5, 5, 1), n_components=2, thresholds="user", progress=False
    )
    assert "theta" not in shared.draws and own.draws["theta"].shape[2:] == (train.n_users, 4)
    assert (np.diff(own.draws["theta"], axis=-1) > 0).all()
    with pytest.raises(BayesfacError, match="ordinal_fm has Gibbs for link='probit' only"):
        bf.fit("ordinal_fm", train, bf.Gibbs(1, 1, 1), link="logistic", progress=False)
    with pytest.raises(ValueError, match="Expected ordinal ratings for ordinal_fm"):
        bf.fit("ordinal_fm", bf.Ratings(train), bf.Gibbs(1, 1, 1), progress=False)


def test_there_is_no_level_beside_thresholds():
    data, hyper = ORDINAL.example(jax.random.key(0))
    p = ORDINAL.init(jax.random.key(1), data, hyper)
    assert p.level is None and machine.level_of(p, "user") == 0.0


@pytest.mark.filterwarnings("ignore:ordinal_fm did not converge")
def test_more_new_users_than_training_had_with_the_pattern_of_ratings():
    """The users of training are features of items; new users would be read past the end of that table."""
    ratings = bf.datasets.make_ratings(300, 12, 2, seed=0)
    fit = bf.fit(
        "ordinal_fm", ratings.of_users(0, 10), bf.LBFGS(20), scales="joint", n_components=2,
        implicit=True, progress=False,
    )  # fmt: skip
    few = ratings.of_users(10, 14)
    alone, together = (fit.fold_in(new).predict(few) for new in (few, ratings.of_users(10, 300)))
    np.testing.assert_allclose(together.mean, alone.mean, atol=1e-3)


def test_many_levels_start_near_their_mode():
    """Thresholds and scores that moved at once overshot: 21 levels ended in NaN."""
    rng = np.random.default_rng(0)
    user, item = np.nonzero(rng.random((120, 80)) < 0.2)
    z = rng.normal(size=120)[user] + rng.normal(size=80)[item]
    z += (rng.normal(size=(120, 2))[user] * rng.normal(size=(80, 2))[item]).sum(1)
    z += 0.5 * rng.normal(size=len(z))
    rating = np.searchsorted(np.quantile(z, np.linspace(0, 1, 22)[1:-1]), z)
    table = pd.DataFrame({"user": user, "item": item, "rating": rating})
    with jax.enable_x64(False):  # as users have it
        fit = bf.fit("ordinal_fm", bf.Ratings(table, levels=range(21)), progress=False)
    assert fit.converged and fit.trace[0] - fit.trace[-1] < 0.05 * len(table)
