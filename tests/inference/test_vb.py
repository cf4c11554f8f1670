"""Coordinate ascent variational Bayes: the law, its bound, its correction by linear response, its draws."""

import warnings
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.sparse as sp

import bayesfac as bf
from bayesfac.core.errors import BayesfacError
from bayesfac.core.laws import dirichlet_rows, response
from bayesfac.core.math import inner
from bayesfac.core.method import REGISTRY, Variational, from_sites, settle, sites
from bayesfac.inference.fixed_point import FixedPoint
from bayesfac.inference.result import Job, Result
from bayesfac.inference.variational.vb import drawn
from bayesfac.models.ratings import gibbs_mmmf
from bayesfac.parts import matrix as bound

QUIET = {"n_components": 2, "progress": False}


@cache
def small():
    """Ratings of users and items that are seen some ten times each."""
    return bf.datasets.make_gaussian(30, 20, 2, density=0.4, seed=0)[0]


@cache
def with_features_of(sparse: bool):
    """Ratings whose rows follow from features but for a little; four users and an item have none."""
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(40, 2)), rng.normal(size=(20, 2))
    U = x @ rng.normal(size=(2, 2)) + 0.2 * rng.normal(size=(40, 2))
    V = z @ rng.normal(size=(2, 2)) + 0.2 * rng.normal(size=(20, 2))
    y = U @ V.T + 0.4 * rng.normal(size=(40, 20))
    seen = rng.random((40, 20)) < 0.4
    seen[:4], seen[:, 0] = False, False
    x, z = (sp.csr_matrix(x), sp.csr_matrix(z)) if sparse else (x, z)
    return bf.Ratings(np.where(seen, y, np.nan), user_features=x, item_features=z)


def fitted(name: str, sweeps: int, **settings):
    """Method, data, settings and its law after so many sweeps, in double precision."""
    method = REGISTRY[name]
    data, hyper = method.example(jax.random.key(0))
    hyper, law = hyper._replace(**settings), method.variational
    p = method.init(jax.random.key(1), data, hyper)
    q = jax.jit(lambda p: law.begin(p, data, hyper))(p)
    step = jax.jit(lambda _, q: law.update(q, data, hyper))
    return method, data, hyper, jax.jit(lambda q: jax.lax.fori_loop(0, sweeps, step, q))(q)


# -- the engine ------------------------------------------------------------------------------------
def test_a_fit_has_draws_of_its_law_and_a_falling_trace(tmp_path):
    fit = bf.fit("bpmf", small(), bf.VB(tol=1e-6, draws=50), **QUIET)
    assert fit.converged and not fit.is_point
    assert {site: x.shape[:2] for site, x in fit.draws.items()} == dict.fromkeys(fit.draws, (1, 50))
    assert (np.diff(fit.trace) <= 1e-7 * np.abs(fit.trace[1:])).all() and len(fit.trace) > 2
    assert "ELBO has converged" in str(fit.diagnostics())
    cells = {"user": small().users[:5], "item": small().items[:5]}
    again = bf.load(fit.save(tmp_path / "fit"))
    np.testing.assert_array_equal(again.predict(cells).mean, fit.predict(cells).mean)
    assert again.engine == fit.engine


def test_the_law_is_near_the_posterior():
    """Means of products within a third of an sd of those of Gibbs, sds within a tenth on average."""
    long = bf.fit("pmf", small(), bf.Gibbs(200, 1000, 2), biases=False, **QUIET)
    settings = long.hyper._asdict() | {"progress": False}
    every = {"user": np.repeat(small().users, 20), "item": np.tile(small().items, 30)}
    truth, ratio = long.predict(every), {}
    for widen in (False, True):
        fit = bf.fit("pmf", small(), bf.VB(draws=1000, widen=widen), **settings)
        found = fit.predict(every)
        assert np.abs((found.mean - truth.mean) / truth.sd_mean).mean() < 1 / 3
        ratio[widen] = np.sqrt(np.mean(found.sd_mean**2) / np.mean(truth.sd_mean**2))
    assert abs(ratio[True] - 1) < 0.1 and ratio[False] < ratio[True] - 0.03


# laws of normal rows, of shares and of Gamma numbers; the contract runs all methods
QUICK = ("bpmf", "plsa", "hpf")
LAWS = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
    for name, method in sorted(REGISTRY.items())
    if method.variational
]


@pytest.mark.parametrize("name", LAWS)
def test_every_method_with_a_law_runs(name):
    """Draws of all sites, and a factor that linear response did not make too small or too large."""
    method = REGISTRY[name]
    data, hyper = method.example(jax.random.key(0))
    engine = bf.VB(warmup=5, max_iter=40, draws=5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bf.ConvergenceWarning)
        fit = bf.fit(name, data, engine, progress=False, **hyper._asdict())
    p = method.init(jax.random.key(0), method.ready(data, fit.hyper), fit.hyper)
    assert {s: x.shape for s, x in fit.draws.items() if s in sites(p)} == {
        s: (1, 5, *x.shape) for s, x in sites(p).items()
    }
    factors = [float(n.split("are ")[1].split("%")[0]) for n in fit.notes if "wider" in n]
    assert all(factor < 100 for factor in factors)
    assert all(float(n.split("are ")[1].split("%")[0]) < 5 for n in fit.notes if "narrower" in n)


@pytest.mark.parametrize("name", ["bpmf", "pmf", "ard_mf"])
@pytest.mark.parametrize("values", [[[3, 3, np.nan], [3, np.nan, 3]], [[3.0]]])
def test_values_that_are_all_alike_have_a_law(name, values):
    """Their factors are zero on average, and no prediction responds to them."""
    data = bf.Ratings(np.array(values, float))
    fit = bf.fit(name, data, bf.VB(warmup=5, draws=20), **{**QUIET, "n_components": 1})
    assert np.isfinite(fit.predict(data).mean).all()


@pytest.mark.parametrize("name", ["plsa", "mvplsa"])
@pytest.mark.parametrize("counts", [[[1, 2, 3]], [[0, 0], [1, 2], [2, 1]], np.ones((4, 3))])
def test_one_topic_adds_nothing_to_the_response(name, counts):
    """The shares of one topic are 1. The words of a topic are then independent of all else."""
    data = bf.Views({"words": np.array(counts, float)})
    settings = {"n_components": 1} | ({"n_topics": 1} if name == "mvplsa" else {})
    fit = bf.fit(name, data, bf.VB(warmup=5, draws=20), progress=False, **settings)
    assert np.isfinite(fit.draws["C" if name == "plsa" else "C.words"]).all()
    assert not any("wider" in note for note in fit.notes)


@pytest.mark.slow
def test_thresholds_are_split_from_the_rows_they_share_a_law_with():
    data = bf.datasets.make_ratings(30, 20, 2, seed=0, density=0.4)
    fit = bf.fit("ordinal_mf", data, bf.VB(draws=40), **QUIET)
    theta, U = fit.draws["theta"][0], fit.draws["U"][0]
    assert U.shape == (40, 30, 2) and theta.shape == (40, 30, 4)
    gaps = np.diff(theta, axis=-1)
    assert (gaps > 0).all() and gaps.std(0).max() < 1e-4 and theta[..., 0].std(0).min() > 0.05
    shared = bf.fit("ordinal_mf", data, bf.VB(draws=40), thresholds="shared", **QUIET)
    assert "theta" not in shared.draws and shared.draws["centre"].shape == (1, 40, 4)


def test_the_law_goes_on_from_the_best_of_several_chains(monkeypatch):
    """A chain whose components have vanished ends in a law with a lower ELBO, and is not taken."""
    data, _ = bf.datasets.make_tensor((15, 12, 6), 3, density=0.3, seed=0)

    def ending(*scales):
        def scaled(p, scale):
            return p._replace(U={mode: scale * x for mode, x in p.U.items()})

        def states(self, job):
            p = job.start_point(job.key)
            return [scaled(p, scale) for scale in scales]

        monkeypatch.setattr(bf.VB, "_states", states)
        return bf.fit("cp", data, bf.VB(draws=2, widen=False), n_components=3, progress=False)

    poor, good = ending(1e-6), ending(1.0)
    assert poor.trace[-1] > good.trace[-1] + 10
    for both in (ending(1e-6, 1.0), ending(1.0, 1e-6)):
        assert both.trace[-1] == pytest.approx(good.trace[-1], abs=0.1)


class Toy(NamedTuple):
    """A law of two sites: standard normal numbers times their widths."""

    U: Any
    V: Any


def toy(factor):
    """A method whose law is as wide as it is told, and which linear response widens by `factor`."""

    def laws(q):
        return {
            site: dist.Normal(jnp.zeros(5), width).to_event(1) for site, width in sites(q).items()
        }

    def widened(key, q, data, hyper):
        return Toy(factor * q.U, factor * q.V), jnp.asarray(factor)

    law = Variational(lambda p, data, h: Toy(p.U, p.V), None, None, laws, widened)
    return replace(REGISTRY["pmf"], variational=law)


def test_draws_are_those_of_the_wider_law_where_it_has_a_factor():
    q, key = Toy(jnp.ones(()), jnp.ones(())), jax.random.key(0)
    plain, one = drawn(toy(3.0), None, 400, False, q, key, None)
    wide, three = drawn(toy(3.0), None, 400, True, q, key, None)
    kept, none = drawn(toy(jnp.nan), None, 400, True, q, key, None)
    assert (one, three) == (1, 3) and jnp.isnan(none)
    for site in ("U", "V"):
        np.testing.assert_allclose(wide[site], 3 * plain[site], rtol=1e-5)
        np.testing.assert_array_equal(kept[site], plain[site])
        assert len(np.unique(plain[site])) == plain[site].size
    assert abs(np.corrcoef(plain["U"].ravel(), plain["V"].ravel())[0, 1]) < 5 / 2000**0.5


def test_the_law_goes_on_from_the_chain_with_the_highest_elbo(monkeypatch):
    """Of three chains: the trace has minus the ELBO, and only its end counts."""
    states = [Toy(jnp.full((), x), jnp.zeros(())) for x in (1.0, 2.0, 3.0)]
    traces = {1.0: [0.0, 5.0], 2.0: [9.0, -4.0], 3.0: [-7.0, 2.0]}
    monkeypatch.setattr(bf.VB, "_states", lambda self, job: states)
    ends = lambda self, job, p, point: Result(p, None, np.array(traces[float(p.U)]))  # noqa: E731
    monkeypatch.setattr(FixedPoint, "descend", ends)
    job = Job(toy(1.0), None, None, jax.random.key(0))
    assert float(bf.VB()._start(job, job).U) == 2


def test_an_interruption_before_a_chain_is_chosen_says_that_there_is_no_law(monkeypatch):
    whole = FixedPoint.descend
    monkeypatch.setattr(FixedPoint, "descend", lambda *given: replace(whole(*given), partial=True))
    with pytest.raises(KeyboardInterrupt, match="before a chain was chosen"):
        bf.fit("bpmf", small(), bf.VB(warmup=2, draws=2, widen=False), **QUIET)


def test_what_cannot_run_says_why():
    with pytest.raises(BayesfacError, match="mmmf cannot run with VB: it declares no VB step"):
        bf.fit("mmmf", small(), bf.VB())


@pytest.mark.parametrize(
    ("name", "sparse"), [pytest.param("bpmf", True, marks=pytest.mark.slow), ("pmf", False)]
)
def test_features_say_of_new_users_what_they_say_in_gibbs(name, sparse):
    """Predictions of users without ratings, and of an item that nobody rated."""
    data = with_features_of(sparse)
    long = bf.fit(name, data, bf.Gibbs(300, 1000, 2), n_components=2, progress=False)
    fit = bf.fit(name, data, bf.VB(draws=1000), progress=False, **long.hyper._asdict())
    assert {"B.user", "ridge.item"} <= set(fit.draws)
    new = {"user": np.repeat(np.arange(4), 20), "item": np.tile(np.arange(20), 4)}
    truth, found = long.predict(new), fit.predict(new)
    assert truth.flagged.all()
    assert np.corrcoef(truth.mean, found.mean)[0, 1] > 0.995
    # the law of B alone lacks what B shares with the rows, which linear response does not add
    assert 0.8 < np.median(found.sd_mean / truth.sd_mean) < 1
    assert 0.97 < np.median(found.sd / truth.sd) < 1.03


# -- by brute force ----------------------------------------------------------------------------------
def test_linear_response_has_the_hessian_of_the_bound():
    """H d of the formula and by automatic derivatives of the ELBO in the means of rows; the factor by H."""
    with jax.enable_x64(True):
        method, data, hyper, q = fitted("pmf", 300, biases=False)
        law, means = method.variational, (q.U["mean"], q.V["mean"])

        def elbo(means):
            U, V = means
            there = q._replace(U={**q.U, "mean": U}, V={**q.V, "mean": V})
            return law.elbo(there, data, hyper)

        def of_cells(x, variance):
            return -0.5 * jnp.sum((data.y - hyper.offset - x) ** 2 + variance) / hyper.noise**2

        @jax.jit
        def both(d):
            exact = jax.jvp(jax.grad(elbo), (means,), (d,))[1]
            return exact, bound.bend(q.U, q.V, data.cells, of_cells)[0](d)

        keys = jax.random.split(jax.random.key(4))
        d = tuple(jax.random.normal(k, m.shape) for k, m in zip(keys, means, strict=True))
        for exact, mine in zip(*both(d), strict=True):
            np.testing.assert_allclose(mine, -exact, atol=1e-9)
        factor = jax.jit(lambda key: law.widened(key, q, data, hyper)[1])(jax.random.key(2))
    assert 1.01 < float(factor) < 1.3


def test_no_factor_where_the_bound_curves_the_wrong_way():
    H = jnp.diag(jnp.array([1.0, -2.0]))

    def probe(key):
        return jax.random.rademacher(key, (2,), jnp.float32) * jnp.array([0.1, 1.0])

    assert jnp.isnan(response.factor(jax.random.key(0), lambda d: H @ d, lambda d: d, probe))


def test_without_a_factor_the_law_stays_as_it_is_and_the_fit_says_so(monkeypatch):
    fits, given = [], {"n_components": 3, "progress": False}
    for widen in (False, True):
        monkeypatch.setattr(response, "factor", lambda *_: jnp.asarray(jnp.nan))
        fits.append(bf.fit("pmf", small(), bf.VB(max_iter=40, draws=7, widen=widen), **given))
    for site, draws in fits[0].draws.items():
        np.testing.assert_array_equal(draws, fits[1].draws[site])
    assert "no strict maximum" in fits[1].notes[-1]
    assert not any("no strict maximum" in note for note in fits[0].notes)


@pytest.mark.parametrize("name", ["bpmf", "gibbs_mmmf", "ordinal_mf"])
def test_the_factor_that_is_told_is_that_of_the_rows(name):
    """Where auxiliary variables are in doubt, the curvature alone makes rows wider than the law."""
    method = REGISTRY[name]
    data, hyper = method.example(jax.random.key(0))
    law, p = method.variational, method.init(jax.random.key(1), data, hyper)

    @jax.jit
    def widths(data):
        q = law.begin(p, data, hyper)
        wide, factor = law.widened(jax.random.key(2), q, data, hyper)
        pairs = [(wide.U["cov"], q.U["cov"]), (wide.V["cov"], q.V["cov"])]
        return [[jnp.einsum("nkk->nk", x) ** 0.5 for x in pair] for pair in pairs], factor

    pairs, factor = widths(data)
    grown = np.concatenate([np.ravel(new / old) for new, old in pairs])
    np.testing.assert_allclose(factor, grown.mean(), rtol=1e-4)


def test_the_bound_of_hinges_lacks_what_the_root_of_the_square_adds():
    """The ELBO of gibbs_mmmf and E_q[log joint - log q] differ by the sum of sqrt(E z^2) - E|z|."""
    with jax.enable_x64(True):
        method, data, hyper, q = fitted("gibbs_mmmf", 2)
        law = method.variational

        @jax.jit
        def gaps(key):
            x = bound.moments(q.U, q.V, data.cells)
            root = gibbs_mmmf.HINGE.squared(q, *x, data, hyper)[1]
            laws = law.laws(q)
            keys = dict(zip(laws, jax.random.split(key, len(laws)), strict=True))
            draw = {s: one.sample(keys[s]) for s, one in laws.items()}
            p = from_sites(method, draw)
            x = inner(p.U, p.V, data.cells)[:, None]
            z = 1 - gibbs_mmmf.HINGE.signs(data, hyper) * (p.theta[data.cells.row] - x)
            log_q = sum(jnp.sum(one.log_prob(draw[s])) for s, one in laws.items())
            joint = -method.objective(p, data, hyper) - log_q
            return joint - jnp.sum(root - hyper.cost * jnp.abs(z))

        each = jax.lax.map(gaps, jax.random.split(jax.random.key(3), 4000))
        elbo = jax.jit(lambda q: law.elbo(q, data, hyper))(q)
    assert float(each.mean()) == pytest.approx(float(elbo), abs=5 * float(each.std()) / 4000**0.5)


def test_laws_of_large_data_keep_their_memory():
    """One n x K x K table for each side in q, and no other array of that size."""
    method, data = REGISTRY["bpmf"], small()
    hyper = settle(method, data, {"n_components": 3})
    like = jax.eval_shape(lambda key: method.init(key, data, hyper), jax.random.key(0))
    q = jax.eval_shape(lambda p: method.variational.begin(p, data, hyper), like)
    large = [x.shape for x in jax.tree.leaves(q) if x.size >= 20 * 9]
    assert sorted(large) == [(20, 3, 3), (30, 3, 3)]
    assert replace(method, variational=None).engines == method.engines[:-1]


@pytest.mark.parametrize("factor", [1.2, 1.998, 2.5, 6.0])
def test_wide_rows_of_few_counts_stay_rows_about_their_means(factor):
    """A row with concentrations that sum to 3 cannot be twice as wide: the sum that says so is 0, of which
    draws are NaN, and below 0 the means of draws change places. Means within five standard errors."""
    law = {"conc": jnp.array([[1.0, 2.0]])}
    wide = dirichlet_rows.flatter(law, jnp.asarray(factor))
    p = REGISTRY["plsa"].Params(A=wide, C=wide)
    keys = jax.random.split(jax.random.key(0), 4000)
    x = np.asarray(jax.jit(jax.vmap(dirichlet_rows.laws(p)["A"].sample))(keys))[:, 0]
    assert np.isfinite(x).all()
    np.testing.assert_allclose(x.mean(0), [1 / 3, 2 / 3], atol=5 * x.std(0).max() / 4000**0.5)
    sd = (2 / 9 / 4) ** 0.5  # of the row before
    np.testing.assert_allclose(x.std(0), min(factor * sd, (2 / 9 / 2) ** 0.5), rtol=0.05)


@pytest.mark.parametrize(("alike", "doubted"), [(0.2, False), (50.0, True)])
def test_a_large_factor_of_standard_deviations_is_doubted(alike, doubted):
    """Of topics that are nearly the same, where VB is too wide beside long runs of Gibbs."""
    rng = np.random.default_rng(0)
    P = rng.dirichlet([alike] * 3, 40) @ rng.dirichlet([alike] * 25, 3)
    words = bf.Views(np.array([rng.multinomial(80, p) for p in P]).astype(float))
    engine = bf.VB(draws=2, tol=1e-7)
    fit = bf.fit("plsa", words, engine, n_components=3, a=1.0, progress=False)
    assert "by linear response" in fit.notes[-1]
    assert ("compare with bf.Gibbs()" in fit.notes[-1]) == doubted


@pytest.mark.parametrize(("widen", "told"), [(True, 1), (False, 0)])
def test_a_method_without_linear_response_says_that_nothing_is_widened(widen, told):
    counts = bf.Counts(np.random.default_rng(0).poisson(1.0, (12, 9)))
    engine = bf.VB(warmup=5, draws=2, widen=widen)
    fit = bf.fit("hpf", counts, engine, n_components=2, progress=False)
    assert sum("VB(widen=True) changes nothing" in note for note in fit.notes) == told


def test_sweeps_have_momentum_unless_the_elbo_is_computed_less_often():
    """By default the ELBO is as high as after plain sweeps, which are five times as many."""
    fast, plain = (
        bf.fit("bpmf", small(), bf.VB(draws=2, tol=1e-8, **every), n_components=2, progress=False)
        for every in ({}, {"every": 5})
    )
    assert len(fast.trace) < len(plain.trace)  # one entry for five plain sweeps
    assert fast.trace[-1] <= plain.trace[-1] + 1e-6 * abs(plain.trace[-1])
