"""The table of engines for a method and data."""

import jax
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.errors import UnknownName
from bayesfac.core.method import lookup
from bayesfac.search.engine_costs import Costs


def ratings(users, items):
    return bf.datasets.make_ratings(users, items, 2, seed=0, density=0.3)


def test_all_engines_of_a_method_are_listed_cheapest_first():
    costs = bf.engines("bpmf", ratings(30, 20), n_components=2)
    assert set(costs.index) == {
        "FixedPoint",
        "LBFGS",
        "MAP",
        "SVI",
        "NUTS",
        "Gibbs",
        "Quick",
        "VB",
    }
    assert costs["seconds"].is_monotonic_increasing
    assert costs.recommended == ["FixedPoint", "Gibbs"]


def test_more_ratings_take_longer():
    slow = ["Gibbs", "NUTS", "SVI"]
    small, large = (
        bf.engines("pmf", ratings(n, n), n_components=8).loc[slow, "seconds"] for n in (40, 400)
    )
    assert (large > 3 * small).all()


def test_a_long_gibbs_run_has_a_quick_one_before_it(monkeypatch):
    monkeypatch.setattr("bayesfac.search.engine_costs.SOON", 0)
    costs = bf.engines("pmf", ratings(30, 20), n_components=2)
    assert set(costs.recommended) == {"FixedPoint", "Quick", "Gibbs"}
    assert costs.recommended[-1] == "Gibbs"


def test_without_conditionals_nuts_is_for_small_data_only(monkeypatch):
    assert bf.engines("mmmf", ratings(30, 20), n_components=2).recommended == ["LBFGS", "NUTS"]
    monkeypatch.setattr("bayesfac.search.engine_costs.LONG", 0)
    assert bf.engines("mmmf", ratings(30, 20), n_components=2).recommended == ["LBFGS", "SVI"]


@pytest.mark.parametrize("name", ["plsa", "leml", "heres", "mlc_hmf"])
def test_other_kinds_of_data(name):
    method = lookup(name)
    data, hyper = method.example(jax.random.key(0))
    costs = bf.engines(name, data, **hyper._asdict())
    assert np.isfinite(costs["seconds"]).all()
    assert costs.recommended[0] == method.default_engine


def test_the_table_prints_whole():
    text = repr(bf.engines("mmmf", ratings(30, 20), n_components=2))
    assert "take it for the posterior" in text and "seconds" in text.splitlines()[0]
    assert "<table" in Costs({"seconds": [1.0]}, index=["LBFGS"])._repr_html_()


def test_an_unknown_method_is_named():
    with pytest.raises(UnknownName, match="bpfm"):
        bf.engines("bpfm", ratings(30, 20))
