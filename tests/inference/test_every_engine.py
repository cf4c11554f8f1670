"""Every engine that a method names makes a fit of its example, which predicts."""

import warnings

import jax
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.method import REGISTRY

FEW = {
    "FixedPoint": bf.FixedPoint(max_iter=6),
    "LBFGS": bf.LBFGS(max_iter=6),
    "MAP": bf.MAP(steps=20),
    "SVI": bf.SVI(steps=20, draws=20),
    "VB": bf.VB(warmup=5, chains=1, max_iter=6, draws=20),
    "Quick": bf.Quick(sweeps=10, chains=2, draws=20),
    "Gibbs": bf.Gibbs(5, 10, 2),
    "NUTS": bf.NUTS(5, 5, 1),
}
EVERY = [(name, engine) for name in REGISTRY for engine in REGISTRY[name].engines]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "engine"), EVERY)
def test_every_engine_of_a_method_runs(name, engine):
    method = REGISTRY[name]
    data, hyper = method.example(jax.random.key(0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bf.ConvergenceWarning)  # so few steps do not converge
        settings = hyper._asdict()
        made = bf.fit(method, data, FEW[engine], progress=False, **settings)
    for value in jax.tree.leaves(made.params if made.is_point else dict(made.draws)):
        assert not np.isnan(np.asarray(value)).any()  # a threshold beyond all ratings is infinite
