"""Every engine on problems whose answer is known: two Gaussian sides, and one precision."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.diagnostics import effective_sample_size, gelman_rubin

import bayesfac as bf
from bayesfac.core.errors import BayesfacError, UnknownName
from bayesfac.core.method import REGISTRY, Axes, Method, Sampler, Solver, sites
from bayesfac.inference.driver import Run
from bayesfac.inference.variational.svi import Weighted
from bayesfac.testing.tools import likelihood
from tests.tools.records import changed

POINTS = [bf.FixedPoint(tol=1e-12), bf.LBFGS(tol=1e-12), bf.MAP(steps=6000)]
SAMPLERS = [bf.Gibbs(50, 500, 4), bf.NUTS(200, 250, 4)]


def name_of(engine):
    return type(engine).__name__ + (f"-{engine.guide}" if isinstance(engine, bf.SVI) else "")


# -- a precision: its support is half a line, so a Jacobian left out or put in shows --------------
class Params(NamedTuple):
    alpha: Any


class Hyper(NamedTuple):
    shape: float = 3.0
    rate: float = 2.0


def objective(p, data, h):
    shape, rate = h.shape + 0.5 * len(data.y), h.rate + 0.5 * jnp.sum(data.y**2)
    return rate * p.alpha - (shape - 1) * jnp.log(p.alpha)


def model(data, h):
    alpha = numpyro.sample("alpha", dist.Gamma(h.shape, h.rate))
    numpyro.sample("rating", dist.Normal(jnp.zeros(len(data)), alpha**-0.5).to_event(1), obs=data.y)


def conditional(p, data, h):
    return dist.Gamma(h.shape + 0.5 * len(data.y), h.rate + 0.5 * jnp.sum(data.y**2))


def mode(gamma):
    return (gamma.concentration - 1) / gamma.rate


PRECISION = Method(
    name="precision", cite="none", data=bf.Ratings, Params=Params, Hyper=Hyper,
    init=lambda key, data, h: Params(jnp.exp(jax.random.normal(key))), objective=objective,
    model=model, predict=lambda p, query, h: dist.Normal(jnp.zeros(len(query.row)), p.alpha**-0.5),
    example=lambda key: (bf.Ratings(np.asarray(jax.random.normal(key, (3, 2)))), Hyper()),
    solver=Solver(update=lambda p, data, h: Params(mode(conditional(p, data, h)))),
    gibbs=Sampler(conditionals={"alpha": conditional}), axes=Axes(dims={"alpha": ()}),
)  # fmt: skip


# -- the answers ----------------------------------------------------------------------------------
def gaussian(data, h):
    """Mean and covariance of (b, c) | y for the skeleton's y_ij = m + b_i + c_j + noise."""
    n, m = data.shape
    X = np.zeros((len(data), n + m))
    X[np.arange(len(data)), data.user] = X[np.arange(len(data)), n + data.item] = 1
    prior = np.repeat([h.scale_user**-2, h.scale_item**-2], [n, m])
    cov = np.linalg.inv(X.T @ X / h.noise**2 + np.diag(prior))
    return cov @ X.T @ (data.value - h.offset) / h.noise**2, cov


@pytest.fixture(params=["gaussian", "precision"])
def problem(request, skeleton):
    """(method, data, hyper, {site: mode}, {site: (mean, sd)}) of a problem with a known answer."""
    method = skeleton if request.param == "gaussian" else PRECISION
    data, h = method.example(jax.random.key(0))
    if method is PRECISION:
        exact = conditional(None, data, h)
        known = {"alpha": (exact.mean, exact.variance**0.5)}
        return method, data, h, {"alpha": mode(exact)}, known
    mean, cov = gaussian(data, h)
    parts = {"b": slice(0, data.n_users), "c": slice(data.n_users, None)}
    known = {site: (mean[at], np.sqrt(np.diag(cov))[at]) for site, at in parts.items()}
    return method, data, h, {site: mean[at] for site, at in parts.items()}, known


def fit(method, data, hyper, engine, **settings):
    return bf.fit(method, data, engine, progress=False, **hyper._asdict(), **settings)


@pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
@pytest.mark.parametrize("engine", POINTS, ids=name_of)
def test_point_engines_find_the_mode(problem, engine):
    """Of the density of the parameters themselves: no Jacobian."""
    method, data, hyper, modes, _ = problem
    found = fit(method, data, hyper, engine)
    for site, expected in modes.items():
        np.testing.assert_allclose(getattr(found.params, site), expected, atol=2e-4)
    at = method.objective(method.Params(**modes), data, hyper)
    assert found.trace[-1] == pytest.approx(float(at), abs=1e-6 * (1 + abs(float(at))))
    assert found.trace[-1] < found.trace[0]
    assert found.is_point
    assert found.draws is None


def check_draws(draws, known, least):
    """Means and variances within 5 of their own standard errors, from at least so many draws."""
    for site, (mean, sd) in known.items():
        values = np.asarray(draws[site], np.float64)
        size = np.minimum(effective_sample_size(values), values.shape[0] * values.shape[1])
        assert np.min(size) > least, site
        np.testing.assert_array_less(np.abs(values.mean((0, 1)) - mean), 5 * sd / np.sqrt(size))
        error = sd**2 * np.sqrt(2.5 / size)  # 2 for a Gaussian; a Gamma's tails are heavier
        np.testing.assert_array_less(np.abs(values.var((0, 1)) - sd**2), 5 * error)


@pytest.mark.parametrize("engine", SAMPLERS, ids=name_of)
def test_samplers_draw_from_the_posterior(problem, engine):
    method, data, hyper, _, known = problem
    found = fit(method, data, hyper, engine)
    check_draws(found.draws, known, 150)
    for site in known:
        assert found.draws[site].shape[:2] == (4, engine.draws)
        assert np.max(gelman_rubin(found.draws[site])) < 1.05
    lp = found.stats["lp"]
    first = method.Params(**{site: found.draws[site][0, 0] for site in known})
    assert lp.shape == (4, engine.draws)
    assert lp[0, 0] == pytest.approx(-float(method.objective(first, data, hyper)))
    np.testing.assert_array_equal(found.trace, -lp.ravel())
    if isinstance(engine, bf.NUTS):
        assert not found.stats["diverging"].any()
        assert set(found.stats) >= {"energy", "tree_depth", "n_steps", "acceptance_rate"}


@pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
@pytest.mark.parametrize("guide", ["multivariate", "lowrank", "laplace"])
def test_guides_that_can_be_exact_are(skeleton, guide):
    """A Gaussian posterior is in the family: mean and sd within 5 errors of its own 1000 draws."""
    data, hyper = skeleton.example(jax.random.key(0))
    mean, cov = gaussian(data, hyper)
    found = fit(skeleton, data, hyper, bf.SVI(steps=6000, guide=guide, learning_rate=0.02))
    draws = np.concatenate([found.draws["b"][0], found.draws["c"][0]], 1)
    sd = np.sqrt(np.diag(cov))
    assert found.draws["b"].shape == (1, 1000, data.n_users)
    first = skeleton.Params(found.draws["b"][0, 0], found.draws["c"][0, 0])
    assert found.stats["lp"][0, 0] == pytest.approx(-float(skeleton.objective(first, data, hyper)))
    np.testing.assert_array_less(np.abs(draws.mean(0) - mean), 5 * sd / np.sqrt(1000))
    if guide != "lowrank":  # rank sqrt(12) plus a diagonal is an approximation
        np.testing.assert_array_less(np.abs(draws.std(0) / sd - 1), 5 / np.sqrt(2 * 1000))


@pytest.mark.parametrize("engine", [bf.LBFGS(), *SAMPLERS], ids=name_of)
def test_intervals_hold_the_noise_and_for_draws_what_is_not_known(skeleton, engine):
    """90 % of a rating: +-1.645 noise at a point, and the sd of b_i + c_j joins it for a sampler."""
    data, hyper = skeleton.example(jax.random.key(0))
    _, cov = gaussian(data, hyper)
    pair = {"user": data.users[:1], "item": data.items[:1]}
    lower, upper = fit(skeleton, data, hyper, engine).predict(pair).interval(0.9)
    n = data.n_users
    unknown = 0 if isinstance(engine, bf.LBFGS) else cov[0, 0] + cov[n, n] + 2 * cov[0, n]
    expected = 2 * 1.6449 * np.sqrt(hyper.noise**2 + unknown)
    np.testing.assert_allclose(upper - lower, expected, rtol=0.06)


@pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
@pytest.mark.parametrize("batch", [None, 10])
def test_mean_field_has_the_right_mean_and_its_own_sd(skeleton, batch):
    """KL(q || p) is least where sd_i^2 = 1 / (precision)_ii; a minibatch has the same optimum."""
    data, hyper = skeleton.example(jax.random.key(0))
    mean, cov = gaussian(data, hyper)
    engine = bf.SVI(steps=6000, guide="normal", batch=batch, patience=False)
    found = fit(skeleton, data, hyper, engine)
    draws = np.concatenate([found.draws["b"][0], found.draws["c"][0]], 1)
    sd = np.diag(np.linalg.inv(cov)) ** -0.5
    loose = 1 if batch is None else 2  # the gradient's noise stays, smaller with the rate
    np.testing.assert_array_less(np.abs(draws.mean(0) - mean), loose * 5 * sd / np.sqrt(1000))
    np.testing.assert_array_less(np.abs(draws.std(0) / sd - 1), loose * 5 / np.sqrt(2 * 1000))


@pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
def test_a_minibatch_counts_for_all_it_stands_for(sampled_method):
    """Averaged over many batches, the weighted log likelihood is that of the data."""
    method = sampled_method
    if reason := method.notes.traits.get("no_minibatch"):
        pytest.skip(reason)
    data, hyper = method.example(jax.random.key(0))
    p = method.init(jax.random.key(1), data, hyper)

    @jax.jit
    def weighted(key):
        part, weights = data.batch(key, 6)
        with numpyro.handlers.block():
            given = numpyro.handlers.substitute(Weighted(method.model, weights), data=sites(p))
            trace = numpyro.handlers.trace(given).get_trace(part, hyper)
        seen = [s for s in trace.values() if s["type"] == "sample" and s["is_observed"]]
        return sum((s["scale"] or 1) * jnp.sum(s["fn"].log_prob(s["value"])) for s in seen)

    several = np.asarray(jax.lax.map(weighted, jax.random.split(jax.random.key(2), 4000)))
    error = several.std() / np.sqrt(len(several))
    assert abs(several.mean() - likelihood(method, p, data, hyper)) < 5 * error


# -- seeds ----------------------------------------------------------------------------------------
QUICK = [bf.FixedPoint(5, tol=0), bf.LBFGS(5), bf.MAP(100), bf.SVI(100), bf.Gibbs(5, 5, 2)]


@pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
@pytest.mark.parametrize("engine", [*QUICK, bf.NUTS(25, 25, 2)], ids=name_of)
def test_a_seed_is_a_fit(skeleton, engine):
    """The same seed gives the same numbers, whatever ran before; another seed gives others."""
    data, hyper = skeleton.example(jax.random.key(0))
    seeds = (7, 7) if isinstance(engine, bf.NUTS) else (7, 7, 8)
    runs = [fit(skeleton, data, hyper, engine, seed=seed) for seed in seeds]
    values = [np.asarray(r.params.b if r.is_point else r.draws["b"]) for r in runs]
    np.testing.assert_array_equal(values[0], values[1])
    np.testing.assert_array_equal(runs[0].trace, runs[1].trace)
    assert len(values) == 2 or np.any(values[0] != values[2])
    if not runs[0].is_point and values[0].shape[0] > 1:
        assert np.any(values[0][0] != values[0][1]), "two chains are one"


def test_chains_do_not_depend_on_how_many_there_are(skeleton):
    data, hyper = skeleton.example(jax.random.key(0))
    one, two = (fit(skeleton, data, hyper, bf.Gibbs(5, 5, chains)) for chains in (1, 2))
    # two chains are one batch of matrices: products may differ in the last digit (seen: 1.2e-15)
    np.testing.assert_allclose(one.draws["b"][0], two.draws["b"][0], rtol=1e-12, atol=1e-14)


def test_parallel_and_vectorised_chains_make_the_same_draws(skeleton):
    data, hyper = skeleton.example(jax.random.key(0))
    one, two = (
        fit(skeleton, data, hyper, bf.NUTS(50, 25, 2, chain_method=how))
        for how in ("parallel", "vectorized")
    )
    # the paths are alike until rounding of another order of sums tells them apart
    np.testing.assert_allclose(one.draws["b"][:, :5], two.draws["b"][:, :5], rtol=1e-5)
    assert np.any(one.draws["b"][0] != one.draws["b"][1])


def test_nuts_draws_the_same_however_many_blocks_it_makes_at_a_time(monkeypatch, skeleton):
    found = []
    for blocks in (1, 3):
        monkeypatch.setattr(Run, "pace", lambda run, blocks=blocks: blocks)
        data, hyper = skeleton.example(jax.random.key(0))
        found.append(fit(skeleton, data, hyper, bf.NUTS(30, 90, 2, thin=2)))
    one, three = found
    for site in one.draws:
        np.testing.assert_array_equal(one.draws[site], three.draws[site])
    for name in one.stats:
        np.testing.assert_array_equal(one.stats[name], three.stats[name])


def test_thinning_keeps_every_so_manieth_sweep(skeleton):
    data, hyper = skeleton.example(jax.random.key(0))
    every = fit(skeleton, data, hyper, bf.Gibbs(4, 12, 1))
    third = fit(skeleton, data, hyper, bf.Gibbs(4, 4, 1, thin=3))
    np.testing.assert_array_equal(third.draws["b"][0], every.draws["b"][0, 2::3])


# -- starts ---------------------------------------------------------------------------------------
def test_every_engine_starts_where_it_is_told(skeleton):
    """`init`: another fit, its Params, a mapping; a site of another shape is started afresh."""
    data, hyper = skeleton.example(jax.random.key(0))
    point = fit(skeleton, data, hyper, bf.FixedPoint(tol=1e-12))
    for start in (point, point.params, {"b": point.params.b, "c": point.params.c}):
        again = fit(skeleton, data, hyper, bf.FixedPoint(), init=start)
        assert again.trace[0] == pytest.approx(point.trace[-1], rel=1e-12)
    lbfgs = fit(skeleton, data, hyper, bf.LBFGS(), init=point)
    assert lbfgs.trace[0] == pytest.approx(point.trace[-1], rel=1e-12)
    half = fit(
        skeleton, data, hyper, bf.FixedPoint(), init={"c": point.params.c, "other": np.ones(3)}
    )
    assert half.trace[0] != pytest.approx(point.trace[-1])
    sampled = fit(skeleton, data, hyper, bf.Gibbs(5, 5, 1), init=point)
    again = fit(skeleton, data, hyper, bf.FixedPoint(1, tol=0.5), init=sampled)
    last = skeleton.Params(*(jnp.asarray(sampled.draws[site][0, -1]) for site in ("b", "c")))
    assert again.trace[0] == pytest.approx(float(skeleton.objective(last, data, hyper)))
    with pytest.raises(ValueError, match="Expected an init with a site of skeleton_method"):
        fit(skeleton, data, hyper, bf.FixedPoint(), init={"b": np.ones(3)})


@pytest.mark.parametrize("engine", [None, bf.Gibbs(2, 2, 2)])
def test_an_init_of_another_size_is_noted(skeleton, engine):
    """The users are others, the items are the same: what fits is used, and what does not is named."""
    data, hyper = skeleton.example(jax.random.key(0))
    settings = hyper._asdict() | {"progress": False}
    small = bf.fit(skeleton, data.of_users(0, 4), **settings)
    started = bf.fit(skeleton, data, engine, init=small, **settings)
    (note,) = [note for note in started.notes if note.startswith("init ")]
    assert note == (
        "init was used in part: it has b of the shape (4,), here (7,) (another number of components or of "
        "labels); b started as usual"
    )
    same = bf.fit(skeleton, data, engine, init=bf.fit(skeleton, data, **settings), **settings)
    assert not any(note.startswith("init ") for note in same.notes)


def test_a_chain_starts_at_the_point_it_is_given(skeleton):
    """Far out, Gibbs leaves at once; with a frozen block it would not."""
    data, hyper = skeleton.example(jax.random.key(0))
    far = {"b": np.full(data.n_users, 50.0), "c": np.full(data.n_items, 50.0)}
    found = fit(skeleton, data, hyper, bf.Gibbs(0, 3, 1), init=far)
    assert found.draws["b"][0, 0].mean() < -10  # what answers c = 50
    assert abs(found.draws["b"][0, 2].mean()) < abs(found.draws["b"][0, 0].mean())


# -- what goes wrong is said ----------------------------------------------------------------------
BAD = [
    (bf.FixedPoint, {"max_iter": 0}, "FixedPoint.max_iter=.*from 1 on, got 0"),
    (bf.FixedPoint, {"max_iter": 1.5}, "FixedPoint.max_iter=.*got 1.5"),
    (bf.FixedPoint, {"tol": -1}, "FixedPoint.tol=.*got -1"),
    (bf.FixedPoint, {"restarts": True}, "FixedPoint.restarts=.*got True"),
    (bf.LBFGS, {"max_iter": -3}, "LBFGS.max_iter=.*got -3"),
    (bf.LBFGS, {"tol": 2}, "LBFGS.tol=.*got 2"),
    (bf.MAP, {"learning_rate": 0}, "learning_rate to be a finite number above 0, got 0"),
    (bf.SVI, {"guide": "delta"}, "one of .*'normal'.*got 'delta'"),
    (bf.SVI, {"steps": 0}, "SVI.steps=.*got 0"),
    (bf.SVI, {"batch": 0}, "SVI.batch=.*got 0"),
    (bf.NUTS, {"chains": 0}, "NUTS.chains=.*got 0"),
    (bf.NUTS, {"target_accept": 1.0}, "target_accept between 0 and 1, got 1.0"),
    (bf.NUTS, {"chain_method": "sequential"}, "chain_method to be one of .*got 'sequential'"),
    (bf.Gibbs, {"draws": "many"}, "Gibbs.draws=.*got 'many'"),
    (bf.Gibbs, {"thin": 0}, "Gibbs.thin=.*got 0"),
    (bf.Gibbs, {"warmup": -1}, "Gibbs.warmup=.*from 0 on, got -1"),
]


@pytest.mark.parametrize(("engine", "settings", "message"), BAD)
def test_settings_are_checked_when_they_are_made(engine, settings, message):
    with pytest.raises(ValueError, match=message):
        engine(**settings)


def test_an_engine_that_a_method_has_not(skeleton):
    data, hyper = skeleton.example(jax.random.key(0))
    why = {"no_gibbs": "its parts are summed out"}
    summed = changed(skeleton, conditionals={}, traits=skeleton.notes.traits | why)
    with pytest.raises(BayesfacError, match="cannot run with Gibbs: its parts are summed out"):
        fit(summed, data, hyper, bf.Gibbs())
    graded = changed(skeleton, update=None)
    with pytest.raises(BayesfacError, match="declares no FixedPoint step. It runs with LBFGS, MAP"):
        fit(graded, data, hyper, bf.FixedPoint())
    assert type(fit(graded, data, hyper, None).engine) is bf.LBFGS
    with pytest.raises(UnknownName, match="Unknown engine 'gibs'.*Known: bf.FixedPoint"):
        fit(skeleton, data, hyper, "gibs")
    with pytest.raises(UnknownName, match=r"Blocks was removed: use bf.Gibbs\(shares=True\)"):
        fit(skeleton, data, hyper, "Blocks")
    with pytest.raises(AttributeError, match=r"Blocks was removed: use bf.Gibbs\(shares=True\)"):
        _ = bf.Blocks
    assert type(fit(skeleton, data, hyper, bf.FixedPoint).engine) is bf.FixedPoint


def test_every_pair_of_method_and_engine_is_listed():
    for method in REGISTRY.values():
        assert method.engines == tuple(bf.methods().loc[method.name, "engines"].split(", "))
        assert ("Gibbs" in method.engines) == bool(method.gibbs.conditionals)


# -- single precision -----------------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
def test_every_method_works_in_single_precision(sampled_method):
    """Users have single precision unless they ask for more: fits converge and keep the dtype."""
    method = sampled_method
    with jax.enable_x64(False):
        data, hyper = method.example(jax.random.key(0))
        found = bf.fit(method, data, progress=False, **hyper._asdict())
        assert {x.dtype for x in jax.tree.leaves(found.params)} == {np.dtype("float32")}
        assert not [note for note in found.result.notes if "rose" in note]
        assert found.predict(data).mean.shape == found.predict(data.frame()).mean.shape
        if method.gibbs.conditionals:
            draws = bf.fit(method, data, bf.Gibbs(5, 5, 1), progress=False, **hyper._asdict()).draws
            assert {draws[site].dtype for site in draws} == {np.dtype("float32")}


def test_a_model_whose_parameters_cannot_vary_is_refused():
    one = bf.Views({"words": [[1], [2], [3]]})
    with pytest.raises(ValueError, match="all parameters of plsa are probabilities of one outcome"):
        bf.fit("plsa", one, bf.SVI(20), n_components=1, progress=False)


@pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
@pytest.mark.parametrize("engine", [bf.SVI(150, draws=5, check=False), bf.MAP(150)])
def test_no_more_steps_than_were_asked_for(engine):
    ratings = bf.datasets.make_ratings(30, 20, 2, seed=0)
    assert len(bf.fit("bpmf", ratings, engine, n_components=2, progress=False).trace) == 150
