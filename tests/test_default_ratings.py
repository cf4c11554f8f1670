"""The first call of a user, `bf.fit(NAME, data)`: better than regularised biases, with no warning."""

import importlib
import warnings

import numpy as np
import pytest

import bayesfac as bf
from bayesfac.datasets import fetch, registry
from tests.test_benchmarks import FOLDER

MOST = {"bpmf": 0.895, "pmf": 0.915, "ordinal_mf": 0.915}


@pytest.fixture
def biases(monkeypatch):
    """The baseline of the benchmark."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("default_ratings").biases


@pytest.mark.realdata
@pytest.mark.slow  # each is a whole fit to 90,000 ratings
@pytest.mark.parametrize("name", MOST)
def test_defaults_beat_regularised_biases(name, biases):
    if not fetch.at_hand(registry.RECORDS["movielens-100k"]):
        pytest.skip(f"movielens-100k is not on this machine: see {fetch.VARIABLE}")
    ratings = bf.datasets.load("movielens-100k", download=False)
    train, test = bf.split.holdout(ratings, 0.1, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", bf.ConvergenceWarning)
        fit = bf.fit(name, train, progress=False)
    error = bf.metrics.rmse(fit.predict(test).mean, test.value)
    assert error < bf.metrics.rmse(biases(train, test), test.value)
    assert error <= MOST[name]


def test_the_baseline_finds_users_and_items(biases):
    rng = np.random.default_rng(0)
    y = rng.normal(size=(40, 1)) + rng.normal(size=30)
    train, test = bf.split.holdout(bf.Ratings(y), 0.3, seed=0)
    assert bf.metrics.rmse(biases(train, test, 0.1), test.value) < 0.05
