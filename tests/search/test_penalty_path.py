"""The best value of a path, its errors, and the refined value of a choice."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from bayesfac.choosing import Search
from bayesfac.search.penalty_path import Path, _errors


def test_among_equal_errors_the_largest_value_is_the_best():
    errors = [0.5, 0.25, 0.4, 0.25, 0.3]
    table = pd.DataFrame({"zero-one": errors, "sd": 0.1}, index=[1.0, 2.0, 5.0, 10.0, 50.0])
    assert Path("penalty", table).best == 10
    assert "best 10, zero-one 0.2500" in repr(Path("penalty", table))
    assert Path("penalty", table[::-1]).best == 10


def test_errors_are_those_of_the_levels_that_the_method_chooses():
    outcome = SimpleNamespace(scale=np.array([0.5, 1.0, 4.0]), choice=np.array([0, 2, 1, 2]))
    method = SimpleNamespace(derive=None, predict=lambda p, cells, hyper: outcome)
    test = SimpleNamespace(cells=None, y=np.array([0.5, 1.0, 4.0, 4.0]))
    assert _errors(method, None, None, test, None) == (0.5, 1.5)


def searched(scores, numbers=True):
    found = object.__new__(Search)
    found.scores, found.settings = scores, SimpleNamespace(numbers=numbers)
    found.candidates = [{"penalty": 10.0**k} for k in range(5)]
    return found


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        (
            {1: 4.0, 2: 1.0, 3: 2.0},
            2.25,
        ),  # the parabola through them has its minimum a quarter to the right
        ({1: 2.0, 2: 1.0, 3: 4.0}, 1.75),
        ({1: 2.0, 2: 1.0, 3: 2.0}, 2.0),
        ({1: 1.0, 2: 1.0, 3: 1.0}, 2.0),  # a line has no minimum
        ({2: 1.0, 3: 2.0}, 2.0),  # no third score
    ],
)
def test_a_number_is_refined_by_the_parabola_of_the_logarithms(scores, expected):
    assert searched(scores).refined(2) == {"penalty": pytest.approx(10**expected)}
    assert searched(scores, numbers=False).refined(2) == {"penalty": 100}


def test_several_numbers_are_refined_together():
    found = searched({0: 3.0, 1: 1.0, 2: 2.0})
    found.candidates = [{"a": 1.0, "b": 8.0}, {"a": 2.0, "b": 4.0}, {"a": 8.0, "b": 1.0}]
    share = (3.0 - 2.0) / (2 * (3.0 - 2.0 + 2.0))
    new = found.refined(1)
    assert new == {"a": pytest.approx(2 * 4**share), "b": pytest.approx(4 * 0.25**share)}
    assert jnp.ndim(new["a"]) == 0 and isinstance(new["a"], float)
