"""Log scores of held-out cells: by hand for the baselines, against `predict` for fits."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.stats import norm

import bayesfac as bf
from bayesfac.core.data.views import Views, side_by_side
from bayesfac.search.automatic import judges
from bayesfac.search.automatic.judges import BACKGROUND, judge_of


def of_counts(train, test, blocks):
    return judges.of_counts(train, test, judge_of(test).weights(test), blocks)


LEVELS = bf.datasets.make_ratings(30, 20, 2, density=0.5, seed=0)


@pytest.mark.parametrize("levels", [True, False])
def test_a_fit_of_ratings_scores_as_its_prediction(levels):
    train, test = bf.split.holdout(LEVELS if levels else bf.Ratings(LEVELS.frame()), 0.2, seed=0)
    fit = bf.fit("pmf", train, n_components=2, progress=False)
    found, scores = judge_of(test).of_fit(fit, train, test), fit.predict(test).scores(test.value)
    name = "ordinal_log_score" if levels else "log_score"
    np.testing.assert_allclose(found.log, scores[name], rtol=1e-6)
    assert found.measure == pytest.approx(bf.metrics.rmse(test.value, scores["mean"]))


@pytest.mark.parametrize("levels", [True, False])
def test_biases_and_a_normal_error(levels, monkeypatch):
    monkeypatch.setattr(judges, "RIDGE", 1e9)  # no biases: the mean and the spread are left
    train, test = bf.split.holdout(LEVELS if levels else bf.Ratings(LEVELS.frame()), 0.2, seed=0)
    law, value = norm(train.mean, train.value.std()), test.value
    expected = law.logpdf(value)
    if levels:
        cuts = np.array([-np.inf, 1.5, 2.5, 3.5, 4.5, np.inf])
        expected = np.log(np.diff(law.cdf(cuts)))[value.astype(int) - 1]
    np.testing.assert_allclose(judge_of(test).of_baseline(train, test).log, expected, atol=1e-4)


def test_biases_find_users_and_items():
    rng = np.random.default_rng(0)
    y = 10 * (rng.normal(size=(40, 1)) + rng.normal(size=30))
    train, test = bf.split.holdout(bf.Ratings(y), 0.3, seed=0)
    assert judge_of(test).of_baseline(train, test).measure < 0.2 * test.value.std()


def test_levels_far_from_the_mean_have_a_finite_score():
    value = np.r_[np.ones(99), 5.0]
    ratings = bf.Ratings(np.arange(100) // 10, np.arange(100) % 10, value, levels=5)
    train, test = ratings.take(value == 1), ratings.take(value == 5)
    assert np.isfinite(judge_of(test).of_baseline(train, test).log).all()


def test_frequencies_of_labels():
    y = np.array([[1, 0], [1, 0], [1, 1], [0, 0], [1, 0]])
    data = bf.Tasks(np.arange(5.0)[:, None], y)
    there = np.arange(5) < 3
    train, test = data.take(np.ones(5, bool), labelled=there), data.take(~there)
    p = np.array([4 / 5, 2 / 5])  # (3 + 1) / (3 + 2), (1 + 1) / (3 + 2)
    found = judge_of(test).of_baseline(train, test)
    np.testing.assert_allclose(found.log, np.log([1 - p[0], 1 - p[1], p[0], 1 - p[1]]))
    assert found.measure == pytest.approx(2 / 3)  # one hit, one false alarm


def counted():
    rng = np.random.default_rng(0)
    A, C = rng.dirichlet(np.ones(2), 12), [rng.dirichlet(np.ones(m), 2) for m in (5, 4)]
    views = Views({n: rng.poisson(400 * A @ c) for n, c in zip("ab", C, strict=True)})
    return bf.split.holdout(views, 0.1, seed=0), np.hstack([A @ c for c in C])


def test_counts_are_scored_by_their_probability():
    (train, test), P = counted()
    rows = np.arange(12)
    found = of_counts(train, test, lambda: iter([(rows[:7], P[:7]), (rows[7:], P[7:])]))
    scale = judges._matched(
        sp.csr_matrix(side_by_side(train)),
        [slice(0, 5), slice(5, 9)],
        lambda: iter([(rows, P)]),
    )
    assert np.abs(np.log(scale)).max() < 0.2, (
        "the truth has the frequencies of training, but for noise"
    )
    frame = test.frame()
    expected = []
    for view, span in (("a", slice(0, 5)), ("b", slice(5, 9))):
        p = P[:, span] * scale[span]
        p /= p.sum(1, keepdims=True)
        seen = train[view].toarray().sum(0) + 1
        p = (1 - BACKGROUND) * p + BACKGROUND * seen / seen.sum()
        part = frame[frame["view"] == view]
        expected.append(np.log(p[part["row"], part["feature"].astype(int)]))
    np.testing.assert_allclose(found.log, np.concatenate(expected), rtol=1e-9)
    weight = judge_of(test).weights(test).weight
    assert found.measure == pytest.approx(np.exp(-np.average(found.log, weights=weight)))
    assert weight.sum() == sum(test.totals(name).sum() for name in "ab")


def test_scaled_features_and_views_side_by_side_score_alike():
    (train, test), P = counted()
    scaled = P * np.array([3.0, 0.2, 1.0, 1.0, 5.0, 0.1, 1.0, 2.0, 0.5])
    scaled /= scaled.sum(1, keepdims=True)  # over both views
    plain, other = (
        of_counts(train, test, lambda P=table: iter([(np.arange(12), P)])) for table in (P, scaled)
    )
    np.testing.assert_allclose(other.log, plain.log, atol=0.01)
    assert plain.measure < of_counts(train, test, None).measure - 0.05


@pytest.mark.parametrize("method", ["concat_ltm", "mggm"])
def test_columns_that_scaling_adds_are_no_features(method):
    (train, test), _ = counted()
    fit = bf.fit(method, train, n_components=2, progress=False)
    assert fit.data.shape[1] > 9, "the features, and what they lack to their maximum"
    features = [(view, label) for view in "ab" for label in train.features[view]]
    grid = [(row, *feature) for row in train.rows for feature in features]
    P = fit.predict(pd.DataFrame(grid, columns=["row", "view", "feature"])).mean.reshape(12, 9)
    expected = of_counts(train, test, lambda: iter([(np.arange(12), P)]))
    np.testing.assert_allclose(judge_of(test).of_fit(fit, train, test).log, expected.log, atol=1e-5)


@pytest.mark.parametrize("other", [0.5, 300.0])
def test_measurements_inform_and_are_not_held_out(other):
    counts = 40.0 * (np.arange(9)[:, None] % 2 == np.arange(2))
    graphs = {"g": sp.eye_array(9, k=1)}
    views = Views({"n": counts, "x": np.full((9, 3), other)}, graphs=graphs)
    train, test = judge_of(views).divided(views, 0.3, 0)
    assert test.names == ("n",) and (train["x"] != views["x"]).nnz == 0
    assert (train["n"] + test["n"] != views["n"]).nnz == 0 and train.graphs.names == ("g",)
    P = np.hstack([np.full((9, 2), 0.1), np.full((9, 3), 0.3)])
    found = of_counts(train, test, lambda: iter([(np.arange(9), P)]))
    np.testing.assert_allclose(found.log, np.log(0.5), atol=0.2)
