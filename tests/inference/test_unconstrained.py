"""Where gradient engines begin."""

import warnings

import jax
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.errors import ConvergenceWarning
from bayesfac.core.gauge import random_copy
from bayesfac.core.method import lookup
from bayesfac.inference.unconstrained import constrain, supports, unconstrain
from bayesfac.models.ratings import bpmf


@pytest.mark.parametrize(
    "engine",
    [
        bf.MAP(steps=50),
        pytest.param(bf.SVI(50), marks=pytest.mark.slow),  # starts as MAP does
        pytest.param(bf.SVI(50, guide="laplace"), marks=pytest.mark.slow),
        bf.LBFGS(50),
        pytest.param(bf.NUTS(5, 5, 1), marks=pytest.mark.slow),
    ],
    ids=repr,
)
def test_a_start_on_the_edge_of_a_simplex_is_no_obstacle(engine):
    """Where topics share no word, EM ends with probabilities of exactly zero."""
    A, C = np.repeat(np.eye(3), 10, 0), np.kron(np.eye(3), np.full(4, 0.25))
    given = {"n_components": 3, "progress": False, "init": {"A": A, "C": C}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = bf.fit("plsa", 12 * A @ C, engine, **given)
    ours = np.asarray(found.params.A) if found.is_point else found.draws["A"].mean((0, 1))
    assert np.array_equal(ours.argmax(1), A.argmax(1))


def test_a_start_on_the_edge_of_a_ball_is_no_obstacle():
    """The solver of lsa_mml ends with columns of length 1, which go to infinity as real numbers."""
    method = lookup("lsa_mml")
    data, hyper = method.example(jax.random.key(0))
    p = method.init(jax.random.key(1), data, hyper)
    p = p._replace(B={v: B / np.linalg.norm(B, axis=0) for v, B in p.B.items()})
    maps = supports(method, data, hyper, p)
    back = constrain(method, maps, unconstrain(maps, p))
    for view, B in p.B.items():
        assert np.linalg.norm(back.B[view], axis=0).max() < 1
        np.testing.assert_allclose(back.B[view], B, atol=2e-4)
    engine = bf.MAP(20, patience=False)
    with pytest.warns(ConvergenceWarning):
        found = bf.fit("lsa_mml", data, engine, init=p, progress=False, **hyper._asdict())
    assert np.isfinite(found.trace).all()


def test_a_turned_precision_stays_symmetric():
    """Chains start at turned copies of a point; rounding made NumPyro refuse a large precision there."""
    data, _ = bf.datasets.make_gaussian(20, 15, 3, density=0.5, seed=0)
    _, hyper = bpmf.METHOD.example(jax.random.key(0))
    hyper = bpmf.METHOD.prepare(data, hyper._replace(n_components=3))
    p = bpmf.METHOD.init(jax.random.key(0), data, hyper)
    p = p._replace(Lambda_U=np.diag([2e4, 3.0, 1.0]).astype(np.float32))
    for seed in range(20):
        turned = random_copy(jax.random.key(seed), bpmf.METHOD, p).Lambda_U
        assert (turned == turned.T).all()
        assert not np.allclose(turned, p.Lambda_U)
