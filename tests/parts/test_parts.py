"""What methods that are made of parts share beyond the contract."""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from bayesfac.core.data.cells import Query
from bayesfac.core.data.features import Design
from bayesfac.core.laws.normal_wishart import mode, to_modes
from bayesfac.core.method import REGISTRY, sites
from bayesfac.parts import estimate
from bayesfac.parts.composition import composed
from bayesfac.parts.sites import get, put
from bayesfac.testing.tools import points
from tests.tools.features import with_features

BPMF = REGISTRY["bpmf"]


class Two(NamedTuple):
    """A plain site and a mapping."""

    x: jax.Array | None = None
    y: dict | None = None


def test_sites_are_found_and_set_by_name():
    p = put(Two(), {"x": 1, "y.a": 2, "y.b": 3})
    assert p == Two(1, {"a": 2, "b": 3})
    assert (get(p, "x"), get(p, "y.b"), get(p, "y.c"), get(p, "z"), get(p, "")) == (
        1,
        3,
        *[None] * 3,
    )
    assert put(p, {"y.a": 4}).y == {"a": 4, "b": 3} and p.y["a"] == 2


@pytest.mark.parametrize(
    ("law", "known"),
    [
        (dist.Gamma(jnp.array([3.0, 5.0]), 2.0).to_event(1), [1, 2]),
        (dist.Normal(jnp.array([3.0, 5.0]), 2.0).to_event(1), [3, 5]),
        (dist.Wishart(5.0, jnp.eye(2)), 2 * np.eye(2)),
    ],
)
def test_modes_that_are_known(law, known):
    np.testing.assert_allclose(mode(law), known)


def test_a_law_whose_mode_is_not_known_is_refused():
    """Its mean would be a wrong solver without a word."""
    with pytest.raises(TypeError, match="whose mode is known, got Laplace"):
        mode(dist.Laplace(2.0, 3.0))
    with pytest.raises(TypeError, match="got Laplace"):
        to_modes(Two(jnp.ones(())), {"x": lambda p: dist.Laplace(2.0, 3.0)}, ())


def test_a_sweep_has_all_fields_in_some_order():
    parts = replace(BPMF.parts, order=("U", "V"))
    with pytest.raises(ValueError, match=r"Expected the fields \('B', 'ridge', .*got \('U', 'V'\)"):
        parts.conditionals()
    own = BPMF.parts.conditionals()
    turned = replace(BPMF.parts, order=tuple(own)[::-1]).conditionals()
    assert list(turned) == list(own)[::-1]


def test_a_point_keeps_what_empirical_bayes_set(key):
    """All that stands above the rows, and the noise; U and V move."""
    data, hyper = BPMF.example(key)
    estimated = hyper._replace(scales="estimated")
    p = BPMF.init(key, data, hyper)
    q = BPMF.solver.update(p, data, estimated)
    moved = {site for site in sites(p) if not np.array_equal(sites(p)[site], sites(q)[site])}
    assert moved == {"U", "V"} and BPMF.solver.held(hyper) == ()
    assert {"mu_U", "Lambda_V", "alpha", "B", "ridge"} <= set(BPMF.solver.held(estimated))


def test_the_noise_of_a_point_includes_what_its_rows_do_not_know(monkeypatch, key):
    """1/alpha and the variance of the scores are added; precisions get the same factor, so modes stay."""
    data, hyper = BPMF.example(key)
    p, c = BPMF.init(key, data, hyper), BPMF.parts
    given = {site: 3.0 * sites(p)[site] for site in ("Lambda_U", "Lambda_V")}
    monkeypatch.setattr(estimate, "estimated", lambda *_, **__: (given, (4.0, 0.75)))
    found = estimate.point(c, p, data, hyper._replace(scales="estimated"))
    np.testing.assert_allclose(1 / found.alpha, 1 / 4 + 0.75)
    for site, value in given.items():
        np.testing.assert_allclose(getattr(found, site) / found.alpha, value / 4)


def test_vb_of_levels_of_factors_is_not_offered():
    assert REGISTRY["fm"].variational is None and REGISTRY["pmf"].variational


def test_methods_keep_the_moves_of_their_parts():
    """Without them a chain never changes the thresholds."""
    made = [method for method in REGISTRY.values() if method.parts]
    assert len(made) >= 10
    for method in made:
        assert {*method.parts.moves()} <= {*method.gibbs.moves}, method.name
    nothing = dict.fromkeys(("Params", "Hyper", "structure", "observed"))
    with pytest.raises(ValueError, match="Expected moves= of mine beside those of its parts"):
        composed("mine", home="", **nothing, gibbs={"moves": {}})


def test_new_rows_have_the_means_of_their_priors(key):
    """A new user of `fm`: the level and mu, with the features of a label that training never saw."""
    fm = with_features("fm")
    data, hyper = fm.example(key)
    p = points(fm, key, data, hyper, 1)[0]
    x = np.array([[0.0, 0.0, 0.0], [0.3, -1.0, 2.0]])
    query = Query(np.array([-2, 1]), np.array([3, -1]), user=Design(jnp.asarray(x)))
    mean, variance = fm.parts.at(hyper).predicted(p, query, hyper)
    u, b = p.mu["user"] + x[1] @ p.B["user"], p.level + (x[1] @ p.C["user"])[0]
    np.testing.assert_allclose(mean[0], b + p.bias_item[3] + u @ p.V[3])
    wide = 1 / p.tau_bias["user"] + jnp.sum(p.V[3] ** 2 / p.tau["user"])
    np.testing.assert_allclose(variance[0], wide)
    np.testing.assert_allclose(mean[1], p.bias_user[1] + p.U[1] @ p.mu["item"])
