"""Geweke's joint test: data redrawn from the model between Gibbs sweeps must leave the prior alone.

Each draw of (parameters, data) alternates a sweep given the data with new data given the parameters;
its marginal over parameters is then the prior, exactly, and any wrong conditional shows in some moment.
Test functions are bounded: the Wishart(K, I) prior leaves the factors themselves without variance.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.handlers import seed, substitute, trace

from bayesfac.core import kernels
from bayesfac.core.cells import Query
from bayesfac.core.groups import SharedRows
from bayesfac.core.losses import every_level
from bayesfac.core.method import REGISTRY, from_sites, sites
from bayesfac.core.ordinal import Margins
from bayesfac.core.priors import GaussianRows
from bayesfac.core.tasks import Tasks
from bayesfac.core.thresholds import rising
from bayesfac.inference.gibbs import sweep_of

CHAINS, LENGTH, POOL, THRESHOLD = 400, 60, 200, 4.5


def prior_draw(method, data, hyper, key):
    found = trace(seed(method.model, key)).get_trace(data.hide(), hyper)
    return from_sites(method, {n: s["value"] for n, s in found.items()
                               if s["type"] == "sample" and not observed(n)})  # fmt: skip


def observed(site):
    return site == "rating" or site.startswith("view.")


def statistics(p):
    """Bounded functions: first and second moments and cross products of squashed sites."""
    flat = {name: jnp.ravel(value) for name, value in sites(p).items()}
    squashed = {name: jnp.tanh(jnp.log1p(jnp.abs(v)) * jnp.sign(v)) for name, v in flat.items()}
    seen = [f(v) for v in squashed.values() for f in (lambda v: v.mean(), lambda v: (v**2).mean())]
    if "U" in squashed:
        u, v = squashed["U"], squashed["V"]
        product = jnp.tanh(p.U @ p.V.T)
        seen += [u[0] * u[1], v[0] * v[1], product.mean(), (product**2).mean()]
    return jnp.stack(seen)


def z_scores(method, hyper_of, key=0):
    data, hyper = method.example(jax.random.key(key))
    hyper = hyper_of(hyper)
    weigh = jax.vmap(lambda p: log_weight(method, p, data, hyper))

    def new_data(p, key):
        if isinstance(data, Tasks):
            given = seed(substitute(method.model, data=sites(p)), key)
            found = trace(given).get_trace(data.hide(), hyper)
            return data.fill({n: s["value"] for n, s in found.items() if observed(n)})
        value = method.predict(p, Query(data.cells.row, data.cells.col), hyper).sample(key)
        return type(data).tree_unflatten(data.host, (data.cells, value))

    def begin(key):
        """A draw of the joint's own parameters: of several from the prior, one by weight."""
        many, pick = jax.random.split(key)
        some = jax.vmap(lambda k: prior_draw(method, data, hyper, k))(jax.random.split(many, POOL))
        one = jax.random.categorical(pick, weigh(some))
        return jax.tree.map(lambda x: x[one], some)

    with kernels.use("jax"):
        like = method.init(jax.random.key(0), data, hyper)
        sweep = sweep_of(method, hyper, data, like)

        def chain(key):
            start, walk = jax.random.split(key)

            def step(p, key):
                a, b = jax.random.split(key)
                p = sweep(p, new_data(p, a), b)
                return p, statistics(p)

            p = begin(start)
            return statistics(p), jax.lax.scan(step, p, jax.random.split(walk, LENGTH))[1].mean(0)

        first, walked = jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(1), CHAINS))

        def look(key):
            p = prior_draw(method, data, hyper, key)
            return statistics(p), log_weight(method, p, data, hyper)

        many, weight = jax.jit(jax.vmap(look))(jax.random.split(jax.random.key(2), 40_000))
    want, got, share = np.asarray(many), np.asarray(walked), np.asarray(jax.nn.softmax(weight))
    mean = share @ want
    error = np.sqrt(share**2 @ (want - mean) ** 2 + got.var(0, ddof=1) / CHAINS)
    assert np.isfinite(np.asarray(first)).all()
    assert 1 / (share**2).sum() > 4000, "too few effective draws of the joint to compare with"
    return (got.mean(0) - mean) / np.maximum(error, 1e-12)


def log_weight(method, p, data, hyper):
    """log sum over all data of exp(log joint - log prior): 0 for a proper likelihood. A generalised one
    does not sum to one, so its joint's parameters are not those of the prior but these, weighted."""
    found = trace(seed(substitute(method.model, data=sites(p)), 0)).get_trace(data, hyper)
    law = found["rating"]["fn"] if "rating" in found else None
    if not isinstance(law, Margins):
        return jnp.zeros(())
    costs = every_level(law.x, law.theta, law.loss, law.immediate)
    return jnp.sum(jax.nn.logsumexp(-law.strength * costs, -1))


HYPER = {
    "pmf": lambda h: h._replace(offset=0.3),
    "bpmf": lambda h: h._replace(offset=0.3, alpha_shape=3.0, alpha_rate=3.0),
    "gibbs_mmmf": lambda h: h._replace(cost=0.1),
    "ordinal_mf": lambda h: h,
    "urp": lambda h: h,
    "heres": lambda h: h,
}


@pytest.mark.parametrize("name", HYPER)
def test_sweeps_leave_the_prior_alone(name):
    z = z_scores(REGISTRY[name], HYPER[name])
    assert len(z) >= 4
    assert np.abs(z).max() < THRESHOLD, z.round(1)


def planted():  # noqa: C901  # a list of bugs, not a branch
    """Known-wrong samplers; each must be seen."""
    pmf, bpmf = REGISTRY["pmf"], REGISTRY["bpmf"]

    def with_block(method, site, wrong):
        return dataclasses.replace(method, conditionals={**method.conditionals, site: wrong})

    def rows(method, site, **change):
        def wrong(p, data, hyper):
            right = method.conditionals[site](p, data, hyper)
            fields = {n: getattr(right, n) for n in GaussianRows.pytree_data_fields}
            return GaussianRows(**{**fields, **{n: f(fields[n]) for n, f in change.items()}})

        return with_block(method, site, wrong)

    def alpha(p, data, hyper):
        right = bpmf.conditionals["alpha"](p, data, hyper)
        return type(right)(right.concentration + len(data.y) / 2, right.rate)

    heres = REGISTRY["heres"]

    def halved(p, data, hyper, w, block):
        right = heres.conditionals["B"](p, data, hyper, w, block)
        return SharedRows(right.shift / 2, right.precision / 2, right.spans)

    def unlabelled(p, data, hyper, w):
        return heres.conditionals["F"](p, data, hyper._replace(weight=0.1), w)

    margin, ordinal = REGISTRY["gibbs_mmmf"], REGISTRY["ordinal_mf"]

    def no_prior(p, data, hyper, g):
        return margin.conditionals["theta"](p, data, hyper._replace(scale_theta=20.0), g)

    def no_level(key, p, data, hyper):
        return margin.moves["shift"](key, p, data, hyper._replace(scale_theta=20.0))

    def always(key, p, data, hyper):
        return p._replace(
            theta=rising(rising.inv(p.theta) + 0.3 * jax.random.normal(key, p.theta.shape))
        )

    def scaled(key, p, data, hyper):
        from bayesfac.core.wishart import stretch

        return stretch(p, 0.3 * jax.random.normal(key, (p.U.shape[1],)))  # ignores the prior

    return {
        "gibbs_mmmf: thresholds without their prior": (
            margin,
            with_block(margin, "theta", no_prior),
        ),
        "gibbs_mmmf: levels without their prior": (
            margin,
            dataclasses.replace(margin, moves={"shift": no_level}),
        ),
        "ordinal_mf: every step of the thresholds accepted": (
            ordinal,
            dataclasses.replace(ordinal, moves={"thresholds": always}),
        ),
        "heres: half a precision": (heres, with_block(heres, "B", halved)),
        "heres: rows that hardly see their labels": (heres, with_block(heres, "F", unlabelled)),
        "pmf: noise forgotten": (pmf, rows(pmf, "U", weight=lambda w: jnp.ones_like(w))),
        "pmf: prior dropped": (pmf, rows(pmf, "V", precision=lambda L: 0.05 * L)),
        "bpmf: mean of the prior forgotten": (bpmf, rows(bpmf, "U", shift=jnp.zeros_like)),
        "bpmf: ratings counted twice in alpha": (bpmf, with_block(bpmf, "alpha", alpha)),
        "bpmf: a scale move that ignores the prior": (
            bpmf,
            dataclasses.replace(bpmf, moves={"s": scaled}),
        ),
    }


def by_cost(bug):
    """Half a minute each: the prior of heres is itself drawn by sweeps."""
    return pytest.param(bug, marks=pytest.mark.slow) if bug.startswith("heres") else bug


@pytest.mark.parametrize("bug", [by_cost(bug) for bug in planted()])
def test_a_planted_bug_shows(bug):
    right, wrong = planted()[bug]
    assert np.abs(z_scores(wrong, HYPER[right.name])).max() > THRESHOLD
