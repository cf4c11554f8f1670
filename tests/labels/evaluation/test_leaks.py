"""What a method is told of the test rows: their features, and neither their labels nor their scales."""

from dataclasses import replace

import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.method import lookup
from bayesfac.labels import comparators
from bayesfac.labels.data.tasks import LABELS
from bayesfac.labels.evaluation import trials
from bayesfac.labels.evaluation.methods_and_measures import read_method
from bayesfac.labels.evaluation.trials import Rows, scores


class Told(Exception):
    """Carries what a method was told."""


@pytest.fixture
def data():
    """Ten rows in two tasks; the test rows have features that are a thousand times as large."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(10, 3)) + 5, rng.integers(2, size=(10, 2)).astype(float)
    x[[3, 8]] *= 1000
    y[0], y[3], y[8] = [1, 0], [1, 1], [0, 1]
    return bf.Tasks({"a": {"x": x[:6]}, "b": {"x": x[6:]}}, {"a": y[:6], "b": y[6:]})


@pytest.fixture
def rows():
    test = np.isin(np.arange(10), [3, 8])
    return Rows(~test, test)


@pytest.mark.parametrize("scaled", [True, False])
def test_a_comparator_gets_features_scaled_by_the_training_rows(data, rows, monkeypatch, scaled):
    seen = {}

    def ml_knn(X, Y, X_new):
        seen.update(X=X.toarray(), Y=Y, new=X_new.toarray())
        return np.zeros((X_new.shape[0], Y.shape[1]))

    monkeypatch.setitem(comparators.NAMED, "ml_knn", ml_knn)
    runner = read_method(("ml_knn", {} if scaled else {"scaled": False}))
    scores(runner, data, rows, 0)
    x, y = data["x"].toarray(), data[LABELS].toarray()
    mean, sd = (x[rows.train].mean(0), x[rows.train].std(0)) if scaled else (0, 1)
    np.testing.assert_allclose(seen["X"], (x[rows.train] - mean) / sd, rtol=1e-5)
    np.testing.assert_allclose(seen["new"], (x[rows.test] - mean) / sd, rtol=1e-5)
    np.testing.assert_array_equal(seen["Y"], y[rows.train])


@pytest.mark.parametrize("transductive", [True, False])
def test_a_factorization_sees_no_labels_of_test_rows(data, rows, monkeypatch, transductive):
    """A method without `fold_in` is fitted to all rows, and those of the test have no labels."""
    method = replace(lookup("heres"), **({"fold_in": None} if transductive else {}))

    def fit(method, seen, *rest, **settings):
        raise Told(seen)

    monkeypatch.setattr(trials, "run_fit", fit)
    with pytest.raises(Told) as told:
        scores(read_method((method, {"n_components": 2})), data, rows, 0)
    (seen,) = told.value.args
    names = np.asarray(data.rows)
    wanted = names if transductive else names[rows.train]
    assert sorted(seen.rows) == sorted(wanted)
    assert sorted(np.asarray(seen.rows)[seen.labelled]) == sorted(names[rows.train])
    hidden = seen.take(~seen.labelled) if transductive else None
    assert hidden is None or not hidden.labelled.any()


def test_a_function_gets_test_rows_without_labels(data, rows):
    def mine(train, test):
        raise Told(train, test)

    with pytest.raises(Told) as told:
        scores(read_method(mine), data, rows, 0)
    train, test = told.value.args
    names = np.asarray(data.rows)
    assert list(train.rows) == list(names[rows.train]) and train.labelled.all()
    assert list(test.rows) == list(names[rows.test]) and not test.labelled.any()


def test_settings_are_chosen_without_the_test_rows(data, rows, monkeypatch):
    """Every fit of `Tuned` gets some of the training rows, and is judged by the others of them."""
    asked = []

    def told(runner, data, some, seed):
        asked.append(some)
        truth = data[LABELS][some.test].toarray()
        right = truth if runner.hyper["k"] == 2 else 1 - truth
        return trials.Scores(right, right, [])

    monkeypatch.setattr(trials, "scores", told)
    runner = read_method(bf.Tuned("ml_knn", {"k": [1, 2, 3]}))
    values, _ = trials.choose(runner, data, rows.train, (0, 1), 1.0, [])
    assert values == {"k": 2} and len(asked) == 3
    for some in asked:
        assert not (some.train & some.test).any() and not (some.test & rows.test).any()
        np.testing.assert_array_equal(some.train | some.test, rows.train)
        assert some.test[:6].any() and some.test[6:].any()
