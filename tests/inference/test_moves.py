"""Each block and each move of each sampler leaves the joint of parameters and data as it is."""

from dataclasses import replace

import jax
import pytest

from bayesfac.core.method import REGISTRY
from bayesfac.inference.joint import with_values
from bayesfac.testing import check_conditionals, check_moves
from tests.features import with_features
from tests.planted import HYPER

FEATURES = ("pmf", "bpmf", "fm", "ordinal_fm")


def case(name):
    """The method with an example whose joint can be drawn from, with features where it reads them."""
    method = with_features(name) if name in FEATURES else REGISTRY[name]

    def example(key):
        data, hyper = method.example(key)
        return data, hyper._replace(**HYPER[name])

    return replace(method, example=example)


@pytest.mark.parametrize("name", HYPER)
def test_every_step_of_a_sweep_leaves_the_joint_alone(name):
    assert check_moves(case(name), jax.random.key(0)) is None


@pytest.mark.parametrize("name", ["plsa", "mvplsa"])
def test_conditionals_of_real_counts(name):
    """The model makes whole counts, whose rows have no tilt: see models/topics/_splitting.py."""
    method = REGISTRY[name]

    def example(key):
        data, hyper = method.example(key)
        return with_values(data, {view: 1.37 * y for view, y in data.y.items()}, data.cells), hyper

    assert check_conditionals(replace(method, example=example), jax.random.key(0)) is None
