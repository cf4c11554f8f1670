"""Remarks on labels."""

import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.laws.labels import unlike_one


@pytest.mark.parametrize(
    ("mean", "sd", "told"), [(0, 1, 0), (2, 1, 0), (100, 1, 1), (0, 30, 1), (0, 0.01, 1)]
)
def test_numbers_that_need_standardising_are_told(mean, sd, told):
    rng = np.random.default_rng(0)
    y = mean + sd * rng.normal(size=(40, 3))
    y[:5] = np.nan
    y[7, 1] = np.nan
    assert len(unlike_one(bf.Tasks(rng.normal(size=(40, 4)), y))) == told


def test_binary_labels_and_labels_of_one_number_need_nothing():
    x = np.random.default_rng(0).normal(size=(40, 4))
    assert unlike_one(bf.Tasks(x, x[:, :2] > 2)) == []
    assert unlike_one(bf.Tasks(x, np.full((40, 2), 7.0))) == []


def test_a_fit_says_it():
    x = np.random.default_rng(0).normal(size=(40, 4))
    fit = bf.fit("lsml", bf.Tasks(x, 1000 + x[:, :2]), progress=False)
    assert any("divide by its standard deviation" in note for note in fit.notes)
