"""Geweke's joint test: data redrawn from the model between Gibbs sweeps must leave the prior alone.

Each draw of (parameters, data) alternates a sweep given the data with new data given the parameters;
its marginal over parameters is then the prior, exactly, and any wrong conditional shows in some moment.
Test functions are bounded: the Wishart(K, I) prior leaves the factors themselves without variance.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesfac.core.method import REGISTRY, sites
from bayesfac.inference.gibbs import sweep
from bayesfac.inference.joint import log_weight, prior_draw, redrawn
from tests.tools.planted import HYPER, planted

CHAINS, LENGTH, POOL, THRESHOLD = 400, 60, 200, 4.5
QUICK = ("pmf", "bpmf")  # the others take twenty seconds and more
QUICK_BUGS = ("pmf: noise forgotten", "pmf: prior dropped")


def by_cost(name, quick):
    return name if name in quick else pytest.param(name, marks=pytest.mark.slow)


def statistics(p):
    """Bounded functions: first and second moments and cross products of squashed sites."""
    # sorted: JAX sorts the keys of a field that is a mapping, a draw of the prior does not
    flat = {name: jnp.ravel(value) for name, value in sorted(sites(p).items())}
    squashed = {name: jnp.tanh(jnp.log1p(jnp.abs(v)) * jnp.sign(v)) for name, v in flat.items()}
    seen = [f(v) for v in squashed.values() for f in (lambda v: v.mean(), lambda v: (v**2).mean())]
    if "U" in squashed:
        u, v = squashed["U"], squashed["V"]
        product = jnp.tanh(p.U @ p.V.T)
        seen += [u[0] * u[1], v[0] * v[1], product.mean(), (product**2).mean()]
    return jnp.stack(seen)


def z_scores(method, changes, key=0, chains=CHAINS):
    data, hyper = method.example(jax.random.key(key))
    hyper = hyper._replace(**changes)
    weigh = jax.vmap(lambda p: log_weight(method, p, data, hyper))

    def begin(key):
        """A draw of the joint's own parameters: of several from the prior, one by weight."""
        many, pick = jax.random.split(key)
        some = jax.vmap(lambda k: prior_draw(method, data, hyper, k))(jax.random.split(many, POOL))
        one = jax.random.categorical(pick, weigh(some))
        return jax.tree.map(lambda x: x[one], some)

    def chain(key):
        start, walk = jax.random.split(key)

        def step(p, key):
            a, b = jax.random.split(key)
            p = sweep(method, hyper, p, redrawn(method, data, hyper, p, a), b)
            return p, statistics(p)

        p = begin(start)
        return statistics(p), jax.lax.scan(step, p, jax.random.split(walk, LENGTH))[1].mean(0)

    first, walked = jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(1), chains))

    def look(key):
        p = prior_draw(method, data, hyper, key)
        return statistics(p), log_weight(method, p, data, hyper)

    many, weight = jax.jit(jax.vmap(look))(jax.random.split(jax.random.key(2), 60_000))
    want, got, share = np.asarray(many), np.asarray(walked), np.asarray(jax.nn.softmax(weight))
    mean = share @ want
    error = np.sqrt(share**2 @ (want - mean) ** 2 + got.var(0, ddof=1) / chains)
    assert np.isfinite(np.asarray(first)).all()
    assert 1 / (share**2).sum() > 4000, "too few effective draws of the joint to compare with"
    return (got.mean(0) - mean) / np.maximum(error, 1e-12)


@pytest.mark.parametrize("name", [by_cost(name, QUICK) for name in HYPER])
def test_sweeps_leave_the_prior_alone(name):
    z = z_scores(REGISTRY[name], HYPER[name])
    assert len(z) >= 4
    assert np.abs(z).max() < THRESHOLD, z.round(1)


@pytest.mark.parametrize("bug", [by_cost(bug, QUICK_BUGS) for bug in planted()])
def test_a_planted_bug_shows(bug):
    right, wrong = planted()[bug]
    assert np.abs(z_scores(wrong, HYPER[right.name], chains=4 * CHAINS)).max() > THRESHOLD
