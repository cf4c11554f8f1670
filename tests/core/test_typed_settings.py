"""Every setting of every method is checked against its annotation before anything is computed."""

from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.checks import typed
from bayesfac.core.method import REGISTRY, settle

WRONG = (float("nan"), "a", (1.5, "a"), {})


class Settings(NamedTuple):
    size: int = 3
    noise: float | None = None
    scaled: bool | None = None
    levels: tuple[float, ...] | None = None
    layers: tuple[tuple[int, int], ...] = ()
    weight: float | tuple[float, ...] = 1.0
    free: Any = None


def one(**setting: Any) -> Any:
    (value,) = typed(Settings, setting).values()
    return value


@pytest.mark.parametrize(
    ("setting", "wanted"),
    [
        ({"size": 2.5}, "size to be a whole number, got 2.5"),
        ({"size": True}, "size to be a whole number, got True"),
        ({"noise": "a"}, "noise to be a number or None, got 'a'"),
        ({"noise": np.nan}, "noise to be a number or None, got nan"),
        ({"noise": np.ones(2)}, "noise to be a number or None, got array"),
        ({"scaled": 2}, "scaled to be True or False or None, got 2"),
        ({"levels": 5}, "levels to be a list of numbers or None, got 5"),
        ({"levels": [1, np.nan]}, "levels to be a list of numbers or None, got "),
        ({"levels": "12"}, "levels to be a list of numbers or None, got '12'"),
        ({"layers": [(1, 2, 3)]}, "layers to be a list of pairs of whole numbers, got "),
        ({"weight": ["a"]}, "weight to be a number or a list of numbers, got "),
    ],
)
def test_a_value_of_another_type_is_refused(setting, wanted):
    with pytest.raises(ValueError, match="Expected " + wanted):
        typed(Settings, setting)


def test_values_become_those_of_python():
    assert one(size=np.int64(4)) == 4 and type(one(size=np.int64(4))) is int
    assert one(scaled=np.True_) is True and one(scaled=0) is False and one(scaled=None) is None
    assert one(levels=np.arange(3.0)) == one(levels=range(3)) == (0.0, 1.0, 2.0)
    assert one(layers=[[1, 2], np.array([3, 4])]) == ((1, 2), (3, 4))
    assert one(noise=np.inf) == np.inf, "methods decide about infinity"
    assert one(free=(table := {"a": 1})) is table and one(free=np.float64(2)) == 2.0


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_no_setting_of_a_method_takes_another_type(name):
    method = REGISTRY[name]
    data, _ = method.example(jax.random.key(0))
    for field in method.Hyper._fields:
        for value in WRONG:
            text = isinstance(value, str) and "str" in str(method.Hyper.__annotations__[field])
            # those of `cmf` and `mofa` are tuples of names and numbers
            if not text and field not in ("matrices", "views"):
                with pytest.raises(ValueError, match=f"Expected {field} to be "):
                    settle(method, data, {field: value})


def test_a_fit_says_what_it_expected():
    data, _ = bf.datasets.make_gaussian(6, 5, 2, density=0.9, seed=0)
    with pytest.raises(ValueError, match="Expected offset to be a number or None, got nan"):
        bf.fit("pmf", data, offset=float("nan"))
