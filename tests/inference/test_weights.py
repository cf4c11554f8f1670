"""The weights of a guide's draws: against its density and the joint's by hand, and what k says of them."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro.handlers import seed, substitute, trace
from numpyro.infer import autoguide
from numpyro.infer.util import log_density

import bayesfac as bf
from bayesfac.core.method import REGISTRY, sites
from bayesfac.inference.variational.svi import GUIDES, log_weight
from bayesfac.report.diagnostics import psis

QUICK = [
    ("pmf", "normal"),
    ("pmf", "rows"),
    ("pmf", "flow"),
    ("plsa", "normal"),
]

pytestmark = pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")


@pytest.mark.parametrize(
    ("name", "guide"),
    [
        # of plain sites three kinds of guides, of simplexes one
        pytest.param(name, guide, marks=() if (name, guide) in QUICK else pytest.mark.slow)
        for name in ("pmf", "plsa", "bpmf")
        for guide in ("normal", "rows", "multivariate", "lowrank", "flow")
    ],
)
def test_weights_are_joint_over_guide(name, guide):
    """Up to one constant: model and guide traced by NumPyro itself, draw by draw."""
    with jax.enable_x64(True):
        method = REGISTRY[name]
        data, hyper = method.example(jax.random.key(0))
        p = method.init(jax.random.key(1), data, hyper)

        def model():
            method.model(data, hyper)

        fitted = GUIDES[guide](model, init_loc_fn=numpyro.infer.init_to_value(values=sites(p)))
        svi = numpyro.infer.SVI(model, fitted, numpyro.optim.Adam(0.01), numpyro.infer.Trace_ELBO())
        state = svi.init(jax.random.key(2))
        for _ in range(3):
            state, _ = jax.jit(svi.update)(state)
        params = svi.get_params(state)
        expected, draws = [], []
        for number in range(6):
            seen = trace(seed(substitute(fitted, params), number)).get_trace()
            value = {site: seen[site]["value"] for site in sites(p)}
            log_q = sum(
                jnp.sum(site["fn"].log_prob(site["value"]))
                for site in seen.values()
                if site["type"] == "sample"
            )
            expected.append(log_density(model, (), {}, value)[0] - log_q)
            draws.append(value)
        found = list(map(log_weight(fitted, params, method, hyper, data), draws))
        found = np.asarray(found)
    gap = found - np.asarray(expected)
    np.testing.assert_allclose(gap, gap[0], atol=1e-6 * (1 + np.abs(found).max()))
    assert np.ptp(found) > 1e-3


def test_k_tells_a_guide_that_fits_from_one_that_does_not():
    """A noise level and nothing else to learn is nearly normal; factors that multiply are not."""
    data, _ = bf.datasets.make_gaussian(6, 5, 1, density=0.9, seed=0)
    ridge = {"n_components": 1, "scale_item": 0.01, "biases": False, "progress": False}
    easy = bf.fit("pmf", data, bf.SVI(6000, "multivariate", draws=2000), **ridge)
    hard = bf.fit("pmf", data, bf.SVI(6000, draws=2000), n_components=4, biases=False,
                  progress=False)  # fmt: skip
    k = [psis.tail(fit.stats["log_weight"]) for fit in (easy, hard)]
    assert k[0] < 0.7 < k[1]
    said = [repr(fit.diagnostics()) for fit in (easy, hard)]
    assert "the guide covers the posterior" in said[0]
    assert "the guide differs from the posterior" in said[1]


def test_every_guide_is_known_to_the_weights():
    """What `_density` takes for granted: one law of all numbers."""
    kinds = {name: kind for name, kind in GUIDES.items() if name != "delta"}
    assert all(issubclass(kind, autoguide.AutoContinuous) for kind in kinds.values())
