"""URP: one EM step by loops, what Gibbs and EM share, and what the paper promises."""

from itertools import permutations
from statistics import NormalDist

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.stats import dirichlet

import bayesfac as bf
from bayesfac.core.data.cells import Query
from bayesfac.core.method import REGISTRY
from bayesfac.models.ratings.urp import GRID, tables

URP = REGISTRY["urp"]


def case():
    """The example and a start, as NumPy arrays too; ratings as (user, item, code)."""
    data, h = URP.example(jax.random.key(3))
    p = URP.init(jax.random.key(4), data, h)
    cells = list(zip(data.user, data.item, np.searchsorted(data.levels, data.value), strict=True))
    return data, h, p, np.array(p.A), np.array(p.B), cells


def concentrations(h):
    """The prior's concentrations, for each quality on the grid: qualities x K x R."""
    K, levels, base = h.n_components, np.array(h.levels), np.array(h.base)
    mean = (base * levels).sum()
    x = (levels - mean) / (base * (levels - mean) ** 2).sum() ** 0.5
    found = np.zeros((len(GRID), K, len(levels)))
    for number, t in enumerate(GRID):
        for k in range(K):
            tilt = h.habit * NormalDist().inv_cdf((k + 0.5) / K) + h.quality * t
            share = base * np.exp(tilt * x)
            found[number, k] = h.eta + h.pull * share / share.sum()
    return found


def parts_of_tables(B, h):
    """The log density of every item's table and each quality on the grid, jointly."""
    weight = np.exp(-(GRID**2) / 2)
    found = np.zeros((len(B), len(GRID)))
    for number, a in enumerate(concentrations(h)):
        for j, table in enumerate(B):
            rows = [dirichlet(a_k).logpdf(row) for a_k, row in zip(a, table, strict=True)]
            found[j, number] = np.log(weight[number] / weight.sum()) + sum(rows)
    return found


def golden(method):
    """One EM step on the example, the posterior of z written out rating by rating."""
    data, h, p, A, B, cells = case()
    a, b = np.full(A.shape, h.alpha - 1), np.zeros(B.shape)
    for j, of_parts in enumerate(parts_of_tables(B, h)):
        weight = np.exp(of_parts - of_parts.max())
        b[j] = np.einsum("l,lkr->kr", weight / weight.sum(), concentrations(h) - 1)
    for i, j, r in cells:
        total = sum(A[i, k] * B[j, k, r] for k in range(A.shape[1]))
        for k in range(A.shape[1]):
            z = A[i, k] * B[j, k, r] / total
            a[i, k] += z
            b[j, k, r] += z
    new = method.solver.update(p, data, h)
    np.testing.assert_allclose(new.A, a / a.sum(-1, keepdims=True), rtol=1e-10)
    np.testing.assert_allclose(new.B, b / b.sum(-1, keepdims=True), rtol=1e-10)


def test_golden_step():
    golden(URP)


def test_objective_by_hand():
    data, h, p, A, B, cells = case()
    fit = sum(np.log(A[i] @ B[j, :, r]) for i, j, r in cells)
    prior = (h.alpha - 1) * np.log(A).sum() + np.logaddexp.reduce(parts_of_tables(B, h), 1).sum()
    prior -= len(B) * float(np.max(tables(h).normalisers))  # which the objective leaves out
    np.testing.assert_allclose(URP.objective(p, data, h), -fit - prior, rtol=1e-12)


def test_em_counts_what_gibbs_draws():
    """The expected counts of EM are those of the attitudes that Gibbs draws, on average."""
    data, h, p, A, B, cells = case()
    by_user, by_item = np.zeros(A.shape), np.zeros(B.shape)
    for i, j, r in cells:
        z = A[i] * B[j, :, r] / (A[i] @ B[j, :, r])
        by_user[i] += z
        by_item[j, :, r] += z
    new = np.asarray(URP.solver.update(p, data, h).A)
    expected = (h.alpha - 1 + by_user) / (h.alpha - 1 + by_user).sum(-1, keepdims=True)
    np.testing.assert_allclose(new, expected, rtol=1e-10)

    draws = jax.vmap(URP.gibbs.augment(p, data, h).sample)(
        jax.random.split(jax.random.key(0), 4000)
    )
    rows = jax.vmap(lambda z: URP.gibbs.conditionals["A"](p, data, h, z).concentration)(draws)
    tables = jax.vmap(lambda z: URP.gibbs.conditionals["B"](p, data, h, z).concentration)(draws)
    error = 5 * np.sqrt(
        len(data) / 4 / 4000
    )  # the variance of a count is at most a quarter of its trials
    np.testing.assert_allclose(rows.mean(0) - h.alpha, by_user, atol=error)
    drawn = tables.mean(0) - concentrations(h)
    np.testing.assert_allclose(drawn, np.repeat(by_item[:, None], len(GRID), 1), atol=error)


def test_flat_priors_are_maximum_likelihood():
    """With alpha = eta = 1 and no pull nothing but the paper's likelihood is left; EM never lowers it."""
    data, h, p, _, _, cells = case()
    h, likelihood = h._replace(alpha=1.0, eta=1.0, pull=0.0), []
    for _ in range(30):
        p = URP.solver.update(p, data, h)
        A, B = np.asarray(p.A), np.asarray(p.B)
        likelihood.append(sum(np.log(A[i] @ B[j, :, r]) for i, j, r in cells))
        np.testing.assert_allclose(-URP.objective(p, data, h), likelihood[-1], rtol=1e-10)
    assert np.diff(likelihood).min() >= -1e-10
    assert likelihood[-1] > likelihood[0] + 1


def planted(seed=0):
    """Ratings of 90 users with three attitudes, most of a user's weight on one of them."""
    rng = np.random.default_rng(seed)
    A, B = rng.dirichlet(np.full(3, 0.1), 90), rng.dirichlet(np.full(5, 0.3), (24, 3))
    seen = rng.random((90, 24)) < 0.6
    u = rng.random((90, 24, 1))
    value = 1.0 + np.sum(np.cumsum(np.einsum("ik,jkr->ijr", A, B), -1)[..., :-1] < u, -1)
    return bf.Ratings(np.where(seen, value, np.nan), levels=5), A


def test_em_recovers_planted_attitudes_and_predicts():
    """Users are given to their own attitude: by chance one in three would be, with a standard error of
    0.05. And ratings held out are foretold far better than by how often each level occurs."""
    ratings, A = planted()
    train, test = bf.split.holdout(ratings, 0.2, seed=0)
    fit = bf.fit("urp", train, bf.FixedPoint(restarts=3), n_components=3, progress=False)
    mine, truth = np.argmax(fit.params.A, 1), np.argmax(A, 1)
    assert max(np.mean(np.array(order)[mine] == truth) for order in permutations(range(3))) > 0.8
    share = np.bincount(train.value.astype(int), minlength=6) / len(train)
    blind = np.log(share[test.value.astype(int)]).mean()
    assert fit.predict(test).scores(test.value)["log_score"].mean() > blind + 0.3


def test_the_choice_is_the_median_level():
    """Which has the least expected absolute error of all levels, as the paper wants."""
    data, h, p, *_ = case()
    rows, cols = np.repeat(np.arange(7), 5), np.tile(np.arange(5), 7)
    found = URP.predict(p, Query(rows, cols), h)
    levels, probs = np.array(data.levels), np.asarray(found.probs)
    error = np.abs(levels[:, None] - levels) @ probs.T  # choice x cell
    np.testing.assert_array_equal(found.choice, np.argmin(error, 0))


def test_new_users_and_items_are_answered_from_the_prior():
    _, h, p, A, B, _ = case()
    found = np.asarray(URP.predict(p, Query(np.array([-1, 2, -1]), np.array([1, -1, -1])), h).probs)
    np.testing.assert_allclose(found[0], B[1].mean(0), rtol=1e-10)
    a = concentrations(h)
    weight = np.exp(-(GRID**2) / 2)
    prior = np.einsum("l,lkr->kr", weight / weight.sum(), a / a.sum(-1, keepdims=True))
    np.testing.assert_allclose(found[1], A[2] @ prior, rtol=1e-10)
    np.testing.assert_allclose(found[2], prior.mean(0), rtol=1e-10)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"alpha": 0.9}, "concentration alpha of at least 1"),
        ({"eta": 0.5}, "concentration eta of at least 1"),
        ({"pull": -1.0}, "pull to be a finite number of at least 0"),
        ({"base": (0.5, 0.5)}, "base as 4 numbers above 0"),
        ({"n_components": 6}, "n_components between 1 and 5"),
        ({"levels": (1.0, 2.0)}, "Expected the levels of the data"),
    ],
)
def test_what_is_refused(settings, said):
    data, _ = URP.example(jax.random.key(0))
    with pytest.raises(ValueError, match=said):
        URP.prepare(data, URP.Hyper(**{"n_components": 2, **settings}))


@pytest.mark.parametrize(
    ("levels", "value", "said"), [(None, 1.5, "ordinal ratings"), (5, 4.0, "at least two levels")]
)
def test_data_without_an_order_are_refused(levels, value, said):
    data = bf.Ratings(np.full((3, 3), value), levels=levels)
    with pytest.raises(ValueError, match=f"Expected .*{said} for urp"):
        bf.fit("urp", data, n_components=2, progress=False)


def test_new_users_with_features_are_those_of_the_prior():
    """urp reads no features, so that these must not decide who a new user is."""
    ratings = bf.datasets.make_ratings(40, 20, 2, seed=0)
    people = pd.DataFrame({"age": np.linspace(18, 70, 40)}, index=ratings.users)
    data = bf.Ratings(ratings, levels=ratings.levels, user_features=people)
    fit = bf.fit("urp", data, n_components=3, progress=False)
    query = {"user": [100, 101], "item": [3, 3]}
    told = fit.predict(query, user_features=pd.DataFrame({"age": [30.0, 40]}, index=[100, 101]))
    np.testing.assert_allclose(told.mean, fit.predict(query).mean)
