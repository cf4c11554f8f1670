"""Few ratings and nothing set: points are no worse than biases of users and items; factors do not vanish."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import spsolve

import bayesfac as bf
from bayesfac.core.method import REGISTRY
from bayesfac.parts.estimate import noise_choices


def few(seed, low=1.0, high=5.0):
    """250 ratings of 40 users and 30 items, who differ in their means alone; levels from low to high."""
    rng = np.random.default_rng(seed)
    mean = 3.2 + 0.9 * rng.normal(size=(40, 1)) + 0.5 * rng.normal(size=30)
    stars = np.clip(np.rint(mean + 0.7 * rng.normal(size=mean.shape)), 1, 5)
    cells = rng.choice(mean.size, 250, replace=False)
    y = low + (high - low) * (stars.flat[cells] - 1) / 4
    return bf.Ratings(cells // 30, cells % 30, y, levels=np.linspace(low, high, 5))


def ridge_of_biases(train, test, penalty=5.0):
    """Mean + user + item by one ridge regression."""
    users, items = train.shape

    def columns(data):
        table = [
            sp.csr_array((np.ones(len(k)), (np.arange(len(k)), k)), (len(k), n))
            for k, n in ((data.user, users), (data.item, items))
        ]
        return sp.hstack(table, "csr")

    x = columns(train)
    gram = x.T @ x + penalty * sp.eye_array(users + items)
    return train.mean + columns(test) @ spsolve(gram.tocsc(), x.T @ (train.value - train.mean))


@pytest.mark.parametrize(("low", "high"), [(1, 5), (-10, 10)])
@pytest.mark.parametrize("name", ["bpmf", "ordinal_mf"])
def test_few_ratings_are_predicted_as_well_as_by_biases(name, low, high):
    train, test = bf.split.holdout(few(0, low, high), 0.2, seed=0)
    fit = bf.fit(name, train, progress=False)
    error, biases = (
        bf.metrics.rmse(mean, test.value)
        for mean in (fit.predict(test).mean, ridge_of_biases(train, test))
    )
    assert fit.converged and not any("collapsed" in note for note in fit.notes)
    assert error < 1.02 * biases


@pytest.mark.parametrize(
    ("users", "items", "ratings", "tail", "seed"),
    [(3000, 2000, 30_000, 1.0, 1), (1000, 800, 12_000, 0.4, 4)],
)
def test_points_of_sparse_ratings_find_factors_beside_biases(users, items, ratings, tail, seed):
    """Three factors beside biases. In the first data set a few users and items have most of the ratings.

    When no cells were left out to judge starts and ridges, the point had .95 and 1.00 of the error of biases.
    """
    rng = np.random.default_rng(seed)
    shares = [rng.permutation((1.0 + np.arange(n)) ** -tail) for n in (users, items)]
    user, item = (rng.choice(len(p), 4 * ratings, p=p / p.sum()) for p in shares)
    cells = rng.permutation(np.unique(user * items + item))[:ratings]
    user, item = cells // items, cells % items
    U, V = rng.normal(size=(users, 3)), rng.normal(size=(items, 3))
    mean = 0.5 * rng.normal(size=users)[user] + 0.4 * rng.normal(size=items)[item]
    mean += 0.4 * np.sum(U[user] * V[item], 1)
    data = bf.Ratings(user, item, 3.5 + mean + 0.6 * rng.normal(size=ratings))
    train, test = bf.split.holdout(data, 0.1, seed=seed)
    fit = bf.fit("bpmf", train, progress=False)
    error, biases = (
        bf.metrics.rmse(mean, test.value)
        for mean in (fit.predict(test).mean, ridge_of_biases(train, test))
    )
    assert error < 0.93 * biases


def test_a_smaller_loss_by_fitting_outliers_is_not_taken_for_a_component():
    """One rating in fifty is far off. The point has 1.01 of the error of biases. With a `LOST` of .8 it has
    1.08: it is then the end with a smaller loss of the training ratings."""
    rng = np.random.default_rng([0, 1795260389])
    U, V = rng.normal(size=(300, 3)), rng.normal(size=(200, 3))
    biases = 0.5 * rng.normal(size=300), 0.6 * rng.normal(size=200)
    items, users = (rng.gamma(1.0, size=n) for n in (200, 300))
    pair = (
        rng.choice(300, 30_000, p=users / users.sum()),
        rng.choice(200, 30_000, p=items / items.sum()),
    )
    cells = np.unique(pair[0] * 200 + pair[1])
    rng.shuffle(cells)
    user, item = cells[:15_000] // 200, cells[:15_000] % 200
    mean = biases[0][user] + biases[1][item] + np.sum(U[user] * V[item], 1) / 3**0.5
    value = 3 + mean + 0.3 * rng.normal(size=len(mean))
    far = rng.random(len(value)) < 0.02
    value[far] += 15 * rng.normal(size=far.sum())
    train, test = bf.split.holdout(bf.Ratings(user, item, value), 0.15, seed=1)
    fit = bf.fit("bpmf", train, progress=False)
    error = bf.metrics.rmse(fit.predict(test).mean, test.value)
    assert error < 1.04 * bf.metrics.rmse(ridge_of_biases(train, test), test.value)


def shop(seed, highest=0.6, strength=0.25):
    """Seven ratings a user, of which this share is 5; users and items differ, and there are three factors."""
    rng = np.random.default_rng(seed)
    shares = [(1.0 + np.arange(n)) ** -tail for n, tail in ((1500, 0.5), (400, 0.7))]
    user, item = (rng.choice(len(p), 12_000, p=p / p.sum()) for p in shares)
    cells = np.unique(user * 400 + item)
    user, item = cells // 400, cells % 400
    U, V = rng.normal(size=(1500, 3)), rng.normal(size=(400, 3))
    score = 0.5 * rng.normal(size=1500)[user] + 0.6 * rng.normal(size=400)[item]
    score += strength * np.sum(U[user] * V[item], 1) + 0.8 * rng.normal(size=len(user))
    lower = np.quantile(score, (1 - highest) * np.array([0.18, 0.3, 0.5, 1.0]))
    return bf.Ratings(user, item, 1 + np.searchsorted(lower, score), levels=5)


@pytest.mark.parametrize(
    "name", ["mmmf", "hmf", pytest.param("ipmmmf", marks=pytest.mark.slow), "bmmmf"]
)
def test_margins_of_few_skewed_ratings_are_better_than_biases(name):
    """Without biases, or (ipmmmf) with wide thresholds about equal distances, the error of the levels is 1.03
    to 1.21 times that of biases; here it is .90 to .99 times."""
    data = shop(0).above(3) if name == "bmmmf" else shop(0)
    train, test = bf.split.holdout(data, 0.1, seed=0)
    fit = bf.fit(name, train, progress=False)
    nearest = np.clip(
        np.rint(ridge_of_biases(train, test)), *train.levels[:: len(train.levels) - 1]
    )
    error, biases = (np.abs(x - test.value).mean() for x in (fit.predict(test).level, nearest))
    assert fit.converged
    assert error < 1.01 * biases


@pytest.mark.parametrize("name", ["ordinal_mf", pytest.param("ordinal_fm", marks=pytest.mark.slow)])
def test_ordinal_points_keep_the_factors_of_skewed_ratings(name):
    """When the uncertainty of a score cost as much at a 5 as between two levels, the factors vanished and the
    points had 1.00 of the error of biases. Now they have .92 and .93."""
    train, test = bf.split.holdout(shop(0, strength=0.9), 0.1, seed=0)
    fit = bf.fit(name, train, progress=False)
    error = bf.metrics.rmse(fit.predict(test).mean, test.value)
    assert fit.converged
    assert error < 0.96 * bf.metrics.rmse(ridge_of_biases(train, test), test.value)


@pytest.mark.slow
def test_variational_rows_keep_the_factors_of_skewed_ratings():
    """With independent latent values in the law the error was 1.00 of that of biases. Now it is .90."""
    train, test = bf.split.holdout(shop(0, strength=0.9), 0.1, seed=0)
    engine = bf.VB(warmup=20, chains=1, draws=100)
    error = bf.metrics.rmse(
        bf.fit("ordinal_mf", train, engine, progress=False).predict(test).mean, test.value
    )
    assert error < 0.95 * bf.metrics.rmse(ridge_of_biases(train, test), test.value)


@pytest.mark.parametrize("name", ["bpmf", "fm"])
def test_rare_low_ratings_do_not_make_the_noise_vanish(name):
    """Of the ratings 96 % are 5. With its usual prior the noise of a fit is far too small, and its error is
    1.15 (fm) and 1.24 times that of biases."""
    data = shop(1, highest=0.96)
    train, test = bf.split.holdout(data, 0.1, seed=0)
    fit = bf.fit(name, train, progress=False)
    assert any("alpha_shape=" in note for note in fit.notes)
    error = bf.metrics.rmse(fit.predict(test).mean, test.value)
    assert error < 1.12 * bf.metrics.rmse(ridge_of_biases(train, test), test.value)


def test_the_noise_is_chosen_for_ratings_that_are_nearly_all_the_same():
    method, data = REGISTRY["bpmf"], shop(0)
    tail = bf.Ratings(
        data.user, data.item, np.exp(3 * np.random.default_rng(0).normal(size=len(data)))
    )
    for usual in (data, tail):
        assert noise_choices(usual, method.Hyper(), {}) == []
    rare = shop(0, highest=0.96)
    found = noise_choices(rare, method.Hyper(), {})
    assert len(found) == 4
    for given in ({"alpha": 2.0}, {"alpha_rate": 1.0}, {"alpha_shape": 2.0}):
        assert noise_choices(rare, method.Hyper(**given), {}) == []
    assert noise_choices(rare, method.Hyper(), found[0]) == []


def test_a_point_of_margins_has_biases_too():
    """`gibbs_mmmf` has thresholds for every user, whose errors differ more: two draws of the data."""
    gain = 0.0
    for seed in (0, 1):
        train, test = bf.split.holdout(few(seed), 0.2, seed=seed)
        fit = bf.fit("gibbs_mmmf", train, progress=False)
        assert fit.converged and not any("collapsed" in note for note in fit.notes)
        error, biases = (
            bf.metrics.rmse(mean, test.value)
            for mean in (fit.predict(test).mean, ridge_of_biases(train, test))
        )
        gain += np.log(biases / error)
    assert gain > 0
