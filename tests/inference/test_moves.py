"""Each block and each move of each sampler leaves the joint of parameters and data as it is."""

from dataclasses import replace

import jax
import pytest

from bayesfac.core.data.linked.relations import Relations
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.method import REGISTRY
from bayesfac.inference.joint import with_values
from bayesfac.models.ratings import gplvm
from bayesfac.testing import check_conditionals, check_moves
from tests.tools.features import with_features
from tests.tools.planted import HYPER
from tests.tools.records import changed

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


def test_moves_of_shared_thresholds_leave_the_joint_alone():
    """In the examples every user has thresholds."""
    method = REGISTRY["ordinal_mf"]

    def example(key):
        data, hyper = method.example(key)
        return data, hyper._replace(thresholds="shared")

    moves = {name: method.gibbs.moves[name] for name in ("thresholds", "swell")}
    alone = changed(method, example=example, conditionals={}, augment=None, moves=moves)
    assert check_moves(alone, jax.random.key(0)) is None


def test_long_steps_of_positions_leave_the_joint_alone(monkeypatch):
    """With the usual steps nearly every path is accepted, whatever it computes."""
    monkeypatch.setattr(gplvm, "STEP", (1.0, 1.3))
    method = REGISTRY["gplvm"]
    moves = {"positions": method.gibbs.moves["positions"]}
    assert check_moves(changed(method, conditionals={}, moves=moves), jax.random.key(0)) is None


def test_rescaling_an_odd_number_of_kinds_leaves_the_joint_alone():
    """With users, items and tags, twice as many kinds grow as shrink; the example of cmf has two of each."""
    cmf = REGISTRY["cmf"]

    def example(key):
        data, hyper = cmf.example(key)
        few = Relations(Ratings(data), {"tags": ("user", "tag", data.matrix("tags"))})
        return few, cmf.prepare(few, hyper._replace(matrices=None, **HYPER["cmf"]))

    alone = {"conditionals": {}, "augment": None, "moves": {"rescale": cmf.gibbs.moves["rescale"]}}
    assert check_moves(changed(cmf, example=example, **alone), jax.random.key(0)) is None


@pytest.mark.parametrize("name", ["plsa", "mvplsa"])
def test_conditionals_of_real_counts(name):
    """The model makes whole counts, whose rows have no tilt: see models/topics/_splitting.py."""
    method = REGISTRY[name]

    def example(key):
        data, hyper = method.example(key)
        return with_values(data, {view: 1.37 * y for view, y in data.y.items()}, data.cells), hyper

    assert check_conditionals(replace(method, example=example), jax.random.key(0)) is None
