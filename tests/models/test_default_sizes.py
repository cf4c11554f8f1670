"""Default sizes count what says something: features that vary, and labels that some row has."""

import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.method import lookup, settle

SIZES = ("n_components", "layers", "n_groups", "groups")


def made(seed=0):
    """Features and 12 labels of 60 rows."""
    rng = np.random.default_rng(seed)
    x = rng.gamma(1.0, size=(60, 8))
    return x, (x @ rng.normal(size=(8, 12)) + rng.normal(size=(60, 12)) > 0).astype(float)


def sizes(name, x, y, **given):
    hyper = settle(lookup(name), bf.Tasks({"x": x}, y), given)
    return {size: getattr(hyper, size) for size in SIZES if hasattr(hyper, size)}


@pytest.mark.parametrize("name", ["lsa_mml", "himls", "himlsd", "lsml"])
@pytest.mark.parametrize("wide", [8, 3])
def test_features_of_one_value_do_not_count(name, wide):
    x, y = made()
    still = np.hstack([x[:, :wide], np.full((60, 20), 3.0), np.zeros((60, 5))])
    assert sizes(name, still, y) == sizes(name, x[:, :wide], y)
    assert sizes(name, np.ones((60, 2)), y)  # a size where no feature varies


NO_DIRECTION = ["cplst", "faie", "leml", "lsml", "mlc_hmf", "himls", "himlsd", "lsa_mml"]
A_DIRECTION = [("grople", {}), ("leml", {"loss": "logistic"})]


@pytest.mark.parametrize("name", NO_DIRECTION)
def test_labels_that_no_row_has_do_not_count(name):
    x, y = made()
    assert sizes(name, x, np.hstack([np.zeros((60, 9)), y])) == sizes(name, x, y)


@pytest.mark.parametrize(("name", "given"), A_DIRECTION)
def test_labels_that_no_row_has_count_as_one_where_their_scores_are_not_zero(name, given):
    x, y = made()
    live, dead = (sizes(name, x, np.hstack([y, np.zeros((60, n))]), **given) for n in (0, 9))
    assert dead["n_components"] == live["n_components"] + 1
    if "groups" in live:
        assert dead["groups"] == (*live["groups"], *[live["n_groups"]] * 9)
        assert sizes(name, x, y * 0, **given)["groups"] == (0,) * 12
