"""Ratings that users chose to give."""

import numpy as np
import pytest
from scipy.special import expit

from bayesfac import datasets


def cells(ratings):
    """Users, items and values by their labels, which are numbers."""
    frame = ratings.frame()
    return frame["user"].to_numpy(), frame["item"].to_numpy(), frame["rating"].to_numpy()


def test_items_are_chosen_with_their_propensities():
    """Of the cells that nobody was asked for, and of bins of propensity, this share is chosen."""
    chosen, asked, truth = datasets.make_selected(600, 300, strength=1.5, asked=50, seed=0)
    free, given = np.ones(truth.score.shape, bool), np.zeros(truth.score.shape, bool)
    free[cells(asked)[:2]] = False
    given[cells(chosen)[:2]] = True
    assert not (given & ~free).any()
    edges = np.quantile(truth.propensity, np.linspace(0, 1, 11)[1:-1])
    which = np.digitize(truth.propensity, edges)
    for part in range(10):
        own = free & (which == part)
        expected = truth.propensity[own].mean()
        error = np.sqrt(expected * (1 - expected) / own.sum())
        assert abs(given[own].mean() - expected) < 4 * error, part
    assert truth.propensity.mean() == pytest.approx(0.2, abs=1e-6)
    odds = np.log(truth.propensity / (1 - truth.propensity))
    np.testing.assert_allclose(odds - odds[0, 0], 1.5 * (truth.score - truth.score[0, 0]))


def test_ratings_are_their_scores_plus_noise():
    chosen, asked, truth = datasets.make_selected(300, 200, strength=2.0, noise=0.3, seed=1)
    for ratings in (chosen, asked):
        user, item, value = cells(ratings)
        assert np.std(value - truth.score[user, item]) == pytest.approx(0.3, abs=0.01)
        assert np.mean(value - truth.score[user, item]) == pytest.approx(0, abs=0.02)
    assert np.bincount(cells(asked)[0]).tolist() == [30] * 300
    assert chosen.value.mean() > asked.value.mean() + 1
    assert asked.value.mean() == pytest.approx(truth.score.mean(), abs=0.05)


def test_without_strength_all_cells_are_alike():
    chosen, _, truth = datasets.make_selected(100, 80, strength=0.0, density=0.3)
    np.testing.assert_allclose(truth.propensity, expit(np.log(0.3 / 0.7)))
    again = datasets.make_selected(100, 80, strength=0.0, density=0.3)[0]
    assert again.fingerprint() == chosen.fingerprint()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"density": 1.0}, "a density between 0 and 1 and a finite strength, got 1.0, 1.0"),
        ({"strength": np.nan}, "a finite strength, got 0.2, nan"),
        ({"asked": 150}, "asked to be below the 150 items, got 150"),
        ({"noise": -1.0}, "a noise of at least 0"),
    ],
)
def test_sizes_that_no_data_have_are_refused(wrong, says):
    with pytest.raises(ValueError, match=says):
        datasets.make_selected(**wrong)
