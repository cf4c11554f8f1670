"""The weights of a guide's draws: against its density and the joint's by hand, and what k says of them."""

from collections import namedtuple
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.handlers import seed, substitute, trace
from numpyro.infer import autoguide
from numpyro.infer.util import log_density
from scipy import stats

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


def test_weights_have_the_jacobian_of_a_positive_number():
    """By hand: log joint + log alpha - log guide, with a guide whose sites are not in the order of names."""
    loc, scale = jnp.array([0.3, -0.2, 0.1]), jnp.array([0.5, 0.7, 0.9])

    class Guide:
        _init_locs = {"b": 0, "alpha": 0}

        def get_posterior(self, fitted):
            return dist.Normal(loc, scale)

    def model(data, hyper):
        numpyro.sample("b", dist.Normal(jnp.zeros(2), 2.0).to_event(1))
        numpyro.sample("alpha", dist.Gamma(2.0, 3.0))

    def objective(p, data, hyper):
        return -dist.Normal(0, 2.0).log_prob(p.b).sum() - dist.Gamma(2.0, 3.0).log_prob(p.alpha)

    params = namedtuple("Params", ["b", "alpha"])
    method = replace(REGISTRY["pmf"], model=model, objective=objective, Params=params)
    weigh = log_weight(Guide(), None, method, None, None)
    for b, alpha in (([0.4, -1.0], 2.5), ([1.4, 0.3], 0.2)):
        x = np.array([*b, np.log(alpha)])
        joint = stats.norm(0, 2).logpdf(b).sum() + stats.gamma(2, scale=1 / 3).logpdf(alpha)
        expected = joint + np.log(alpha) - stats.norm(loc, scale).logpdf(x).sum()
        found = weigh({"alpha": jnp.asarray(alpha), "b": jnp.asarray(b)})
        np.testing.assert_allclose(found, expected, rtol=1e-6)
