"""Gibbs of the topic models: against quadrature for real pseudo-counts and graphs, and against NUTS."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

import bayesfac as bf
from bayesfac.core.method import REGISTRY
from bayesfac.inference.gibbs import sweep
from bayesfac.inference.joint import with_values
from bayesfac.testing import check_conditionals

CHAINS, SWEEPS = 4000, 12  # many short chains: their last states are independent
METHODS = ("plsa", "mvplsa", "ltm", "concat_ltm", "mggm")
REAL = np.array([[0.3, 2.6], [1.7, 0.2]])
WHOLE = np.array([[0.0, 3.0], [2.0, 1.0]])
EDGE = {"g": sp.csr_matrix([[0, 1.0], [0, 0]])}
SPECIAL = {"start": "random", "scale": "none", "a": 1.5, "c": 1.2}


def last_states(method, data, hyper, p, site):
    """The site after some sweeps in which all other sites stay, of many chains from one point."""

    def chain(key):
        def step(p, key):
            return sweep(method, hyper, p, data, key, only=(site,)), None

        p_last = jax.lax.scan(step, p, jax.random.split(key, SWEEPS))[0]
        field, _, view = site.partition(".")
        value = getattr(p_last, field)
        return value[view] if view else value

    return np.asarray(jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(1), CHAINS)))


def grid_moments(log_density):
    """Means and variances of the two numbers in (0, 1) with this log density, by a sum over a grid."""
    x = (np.arange(300) + 0.5) / 300
    one, two = np.meshgrid(x, x, indexing="ij")
    log = np.asarray(jax.jit(jax.vmap(jax.vmap(log_density)))(jnp.asarray(one), jnp.asarray(two)))
    share = np.exp(log - log.max())
    share /= share.sum()
    mean = [np.sum(share * z) for z in (one, two)]
    return mean, [np.sum(share * (z - m) ** 2) for z, m in zip((one, two), mean, strict=True)]


def agrees(drawn, log_density):
    """Means within 4.5 standard errors, variances within a tenth (some 4.5 standard errors)."""
    for x, mean, variance in zip(drawn.T, *grid_moments(log_density), strict=True):
        assert abs(x.mean() - mean) < 4.5 * np.sqrt(variance / CHAINS)
        np.testing.assert_allclose(x.var(), variance, rtol=0.11)


def two(x, y):
    return jnp.stack([jnp.stack([x, 1 - x]), jnp.stack([y, 1 - y])])


def settled(name, counts, **settings):
    """The method, its data and settings, and a point with two components, two rows and two features."""
    method, data = REGISTRY[name], bf.Views({"x": counts}, graphs=EDGE)
    hyper = method.prepare(data, method.Hyper(**{"n_components": 2} | SPECIAL | settings))
    data = method.ready(data, hyper)
    return method, data, hyper, method.init(jax.random.key(2), data, hyper)


CASES = [
    ("plsa", {}, "A"), ("plsa", {}, "C"),
    ("mvplsa", {"n_topics": 2, "b": 1.3}, "A"), ("mvplsa", {"n_topics": 2, "b": 1.3}, "B.x"),
    ("mvplsa", {"n_topics": 2, "b": 1.3}, "C.x"),
    *[("ltm", {"penalty": 3.0, "divergence": kind}, "A") for kind in ("kl", "squared")],
]  # fmt: skip


@pytest.mark.parametrize(("name", "settings", "site"), CASES)
@pytest.mark.parametrize("counts", [REAL, WHOLE], ids=["real", "whole"])
def test_a_table_given_the_others_has_the_moments_of_the_joint(name, settings, site, counts):
    """Also for pseudo-counts that are no whole numbers, and for rows that know their neighbours."""
    method, data, hyper, p = settled(name, counts, **settings)
    field, _, view = site.partition(".")

    def log_joint(x, y):
        table = two(x, y)
        return -method.objective(
            p._replace(**{field: {view: table} if view else table}), data, hyper
        )

    agrees(last_states(method, data, hyper, p, site)[:, :, 0], log_joint)


def test_weights_of_graphs_have_the_moments_of_their_law():
    method = REGISTRY["mggm"]
    graphs = {"near": sp.eye(6, k=1), "far": sp.eye(6, k=3)}
    data = bf.Views(np.arange(24.0).reshape(6, 4) % 5, graphs=graphs)
    hyper = method.prepare(
        data, method.Hyper(3, 2, 30.0, start="random", scale="none", divergence="kl")
    )
    p = method.init(jax.random.key(0), data, hyper)

    def log_joint(x, _):
        return -method.objective(p._replace(alpha=jnp.stack([x, 1 - x])), data, hyper)

    (mean, _), (variance, _) = grid_moments(log_joint)
    x = last_states(method, data, hyper, p, "alpha")[:, 0]
    assert abs(x.mean() - mean) < 4.5 * np.sqrt(variance / CHAINS)
    np.testing.assert_allclose(x.var(), variance, rtol=0.11)


@pytest.mark.parametrize("name", ["plsa", "mggm"])
def test_the_conditionals_of_pseudo_counts_match_the_joint(name):
    """As the contract asks of the example, whose counts are whole."""

    def example(key):
        data, hyper = REGISTRY[name].example(key)
        return with_values(data, {view: 0.37 * y for view, y in data.y.items()}), hyper

    assert check_conditionals(replace(REGISTRY[name], example=example), jax.random.key(0)) is None


@pytest.mark.parametrize("penalty", [0.1, 10.0, 1000.0])
@pytest.mark.parametrize("divergence", ["kl", "squared"])
def test_proposals_are_accepted(divergence, penalty):
    """One in four at any penalty, most up to ten; the other tests would not see that rows hardly move."""
    method, K = REGISTRY["ltm"], 6
    counts = np.random.default_rng(0).poisson(2.0, (60, 12)).astype(float)
    data = bf.Views(counts)
    hyper = method.prepare(data, method.Hyper(K, penalty, divergence, scale="none", start="random"))
    data = method.ready(data, hyper)
    p = method.init(jax.random.key(0), data, hyper)
    once = jax.jit(partial(sweep, method, hyper))
    for number in range(20):
        p = once(p, data, jax.random.key(number))
    moved = [(once(p, data, jax.random.key(100 + i)).A != p.A).any(1).mean() for i in range(5)]
    assert np.mean(moved) > (0.25 if penalty > 10 else 0.6)


@pytest.mark.parametrize("name", ["plsa", "mvplsa", "ltm"])
def test_gibbs_agrees_with_nuts(name):
    """Means and standard deviations of a reference posterior that NUTS drew."""
    r = bf.references.load(name)
    fit = bf.fit(r.method, r.data, bf.Gibbs(500, 6000, 4), **r.hyper, progress=False)
    found = bf.references.check(name, fit)
    # singular values beyond the number of components are zero, but for rounding
    table = found.table[found.table["reference sd"] > 1e-9]
    assert len(table) >= 40 and table["r_hat"].max() < 1.02
    assert table[["z_mean", "z_sd"]].abs().to_numpy().max() < found.level


GOOD = np.random.default_rng(0).poisson(1.5, (6, 5)).astype(float)
ODD = {
    "one row": GOOD[:1], "one column": GOOD[:, :1] + 1, "small real numbers": GOOD / 1000,
    "one value": np.full((4, 3), 0.7),
}  # fmt: skip


def draws_of(name, data, **settings):
    fit = bf.fit(name, data, bf.Gibbs(3, 4, 2), progress=False, scale="none", **settings)
    for site, x in fit.draws.items():
        x = np.asarray(x)
        assert np.isfinite(x).all() and (x >= 0).all(), site
        np.testing.assert_allclose(x.sum(-1), 1, rtol=1e-4)
    return fit


@pytest.mark.parametrize("data", ODD.values(), ids=ODD)
def test_odd_data_have_draws(data):
    draws_of("plsa", bf.Views(data))


@pytest.mark.parametrize("name", METHODS)
def test_rows_of_all_kinds_have_draws(name):
    """An empty row, a heavy one, a row of real numbers, a feature that nobody has, a view of one column."""
    x = GOOD.copy()
    x[2], x[3], x[4], x[:, 1] = 0, 1e5, 0.3, 0
    views = bf.Views({"x": x} if name in ("plsa", "ltm") else {"x": x, "one": x[:, :1] + 1})
    fit = draws_of(name, views, **{} if name in ("plsa", "mvplsa") else {"neighbours": 2})
    assert fit.draws["A"].shape[2] == len(x)


@pytest.mark.parametrize("name", METHODS)
def test_a_view_of_zeros_is_refused(name):
    with pytest.raises(ValueError, match="Expected at least one count above zero in view 'x', got"):
        bf.fit(name, bf.Views({"x": np.zeros((4, 3))}), bf.Gibbs(1, 1, 1), scale="none")
    with pytest.raises(ValueError, match="Expected at least one .* in view 'x', got none"):
        bf.fit(name, bf.Views({"x": np.zeros((4, 3))}), n_components=1)
