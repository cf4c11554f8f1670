"""Few ratings and nothing set: points are no worse than biases of users and items; factors do not vanish."""

import numpy as np
import pytest

import bayesfac as bf


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

    def columns(data):
        table = np.zeros((len(data), 70))
        at = np.arange(len(data))
        table[at, data.user], table[at, 40 + data.item] = 1, 1
        return table

    x = columns(train)
    gram = x.T @ x + penalty * np.eye(70)
    return train.mean + columns(test) @ np.linalg.solve(gram, x.T @ (train.value - train.mean))


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
