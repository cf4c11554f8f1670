"""Balanced draws of rows, the short Gibbs run from a point, and the check of an approximation's widths."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.errors import BayesfacError
from bayesfac.core.kernels import sparse
from bayesfac.core.laws.distributions import GaussianRows
from bayesfac.core.method import REGISTRY, settle, sites
from bayesfac.inference.gibbs import spread
from bayesfac.inference.quick import Quick, affordable, start_work
from bayesfac.inference.result import Job, Result
from bayesfac.inference.widths import against_conditionals, shortness
from bayesfac.inference.work import work
from tests.kinds import quick_for

QUICK = bf.Quick(sweeps=8, draws=4, pairs=1)


@cache
def problem():
    """A Job of PMF on small data, and a state of its chain."""
    data, _ = bf.datasets.make_gaussian(12, 9, 3, density=0.7, seed=0)
    method = REGISTRY["pmf"]
    hyper = settle(method, data, {"n_components": 3})
    job = Job(method, data, hyper, jax.random.key(1))
    return job, method.init(jax.random.key(0), data, hyper)


def rows_of_users() -> GaussianRows:
    job, p = problem()
    return job.method.conditionals["U"](p, job.data, job.hyper)


# -- balanced draws -------------------------------------------------------------------------------
@pytest.mark.parametrize("pairs", [1, 3])
@pytest.mark.parametrize("backend", ["numba", "jax"])
def test_balanced_draws_have_the_mean_of_the_law_and_orthogonal_noise(pairs, backend):
    with sparse.use(backend):
        law = rows_of_users()
        draws = np.asarray(law.balanced(jax.random.key(3), pairs))
        np.testing.assert_allclose(draws.mean(0), law.mean, atol=2e-6)
    P, _ = sparse.normal_equations(*law._system)
    away = draws[:pairs] - np.asarray(law.mean)
    products = np.einsum("snk,nkl,tnl->nst", away, np.asarray(P), away)
    across = products[:, *np.triu_indices(pairs, 1)]
    np.testing.assert_allclose(across, 0, atol=2e-4)


def unlike_the_law(draws: np.ndarray, law: GaussianRows) -> bool:
    """Whether squared distances from the mean differ from K, their expectation, by 5 standard errors."""
    P, _ = sparse.normal_equations(*law._system)
    away = draws - np.asarray(law.mean)
    squares = np.einsum("snk,nkl,snl->sn", away, np.asarray(P), away)
    (half, n), K = (len(draws) // 2, draws.shape[1]), draws.shape[2]
    return bool(abs(squares.mean() - K) > 5 * np.sqrt(2 * K / (half * n)))


def test_balanced_draws_have_the_covariance_of_the_law():
    law = rows_of_users()
    draws = np.asarray(law.balanced(jax.random.key(4), 200))
    assert not unlike_the_law(draws, law)
    assert unlike_the_law(0.9 * draws + 0.1 * np.asarray(law.mean), law), (
        "draws that are too narrow"
    )


def test_overrelaxed_rows_keep_their_law():
    """200 steps: squares about the mean stay K, and products of old and new are -over K."""
    law = rows_of_users()
    P, _ = sparse.normal_equations(*law._system)
    old = law.sample(jax.random.key(7), (200,))
    new = jax.vmap(lambda k, x: law.beyond(k, x, 0.6))(
        jax.random.split(jax.random.key(8), 200), old
    )
    assert not unlike_the_law(np.asarray(new), law)
    a, b = (np.asarray(x) - np.asarray(law.mean) for x in (old, new))
    products = np.einsum("snk,nkl,snl->sn", a, np.asarray(P), b)
    assert products.mean() == pytest.approx(
        -0.6 * 3, abs=5 * np.sqrt(3 * (1 + 0.6**2) / a[..., 0].size)
    )


def test_predictions_agree_with_many_plain_draws_of_the_rows():
    """Means of u.v at a state over U | V: exact beside 4,000 draws; a draw alone is far off."""
    job, p = problem()
    law, V = rows_of_users(), np.asarray(p.V)
    plain = np.asarray(law.sample(jax.random.key(5), (4000,))) @ V.T
    kept = spread(job.method, job.hyper, p, job.data, jax.random.key(6), 2)
    users = np.asarray(kept["U"])[:4]  # the first block; then come draws of V beside the old U
    np.testing.assert_array_equal(kept["V"][:4], np.broadcast_to(V, (4, *V.shape)))
    np.testing.assert_array_equal(kept["U"][4:], np.broadcast_to(p.U, (4, *p.U.shape)))
    error = plain.std(0) / np.sqrt(len(plain))
    assert np.abs((users @ V.T).mean(0) - plain.mean(0)).max() < np.max(5 * error)
    assert np.abs(users[0] @ V.T - plain.mean(0)).max() > np.max(20 * error)


def test_gibbs_with_pairs_samples_the_same_posterior():
    job, _ = problem()
    probe = job.data.cells
    means, sds = [], []
    for engine in (bf.Gibbs(200, 1500, 2), bf.Gibbs(200, 300, 2, thin=5, pairs=2, over=0.5)):
        fit = bf.fit("pmf", job.data, engine, **job.hyper._asdict(), progress=False)
        found = fit.predict({"user": np.asarray(probe.row), "item": np.asarray(probe.col)})
        means.append(found.mean)
        sds.append(found.sd_mean)
    # sds from 3,000 and 600 correlated states: some per cent
    np.testing.assert_allclose(means[1], means[0], atol=0.2 * sds[0].mean())
    assert abs(np.mean(sds[1] / sds[0]) - 1) < 0.05


# -- the engine -----------------------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore::bayesfac.ConvergenceWarning")
@pytest.mark.parametrize("name", quick_for(("pmf", "heres")))
def test_every_method_with_conditionals_runs(name):
    method = REGISTRY[name]
    data, hyper = method.example(jax.random.key(0))
    settings = {**hyper._asdict(), "progress": False}
    if not method.conditionals:
        with pytest.raises(BayesfacError, match=f"{name} cannot run with Quick: "):
            bf.fit(name, data, bf.Quick(), **settings)
        return
    fit = bf.fit(name, data, QUICK, **settings)
    assert not fit.is_point and fit.engine == QUICK
    lengths = {value.shape[:2] for value in fit.draws.values()}
    blocks = {"pmf": 2, "heres": 1 + len(data.blocks) if name == "heres" else 0}.get(name)
    assert len(lengths) == 1 and fit.stats["lp"].shape in lengths
    assert blocks is None or lengths == {(2, 4 * 2 * blocks)}
    for site, value in fit.draws.items():
        assert np.isfinite(value).all(), site
    assert fit.diagnostics().narrow is not None


def test_the_engine_of_a_fit_repeats_it():
    job, _ = problem()
    first = bf.fit("pmf", job.data, bf.Quick(draws=5), **job.hyper._asdict(), progress=False)
    assert first.engine.sweeps >= 40
    again = bf.fit("pmf", job.data, first.engine, **job.hyper._asdict(), progress=False)
    assert again.engine == first.engine
    for site, value in first.draws.items():
        np.testing.assert_array_equal(again.draws[site], value)


def test_sweeps_follow_from_counted_work(monkeypatch):
    """Twice the money after the point buys twice the sweeps; no clock is read."""
    job, p = problem()
    sweep = lambda p, data: job.method.update(p, data, job.hyper)  # noqa: E731
    both = lambda p, data: sweep(sweep(p, data), data)  # noqa: E731
    args = (p, job.data)
    assert work(both, *args) == pytest.approx(2 * work(sweep, *args), rel=0.02)

    point = Result(p, trace=np.zeros(200))
    assert [affordable(Quick(times=t), job, point) for t in (1, 1e6)] == [40, 1000]
    monkeypatch.setattr("bayesfac.inference.quick.FEWEST", 1)
    monkeypatch.setattr("bayesfac.inference.quick.MOST", 10**9)
    n = [affordable(Quick(times=t, draws=1), job, point) for t in (101, 201, 201)]
    assert n[1] == n[2] == pytest.approx(2 * n[0], rel=0.02)


def starts():
    """Every method with conditionals, and each start of those that can choose one."""
    for name in sorted(name for name, method in REGISTRY.items() if method.conditionals):
        chooses = "start" in REGISTRY[name].Hyper._fields
        yield from (
            (name, start) for start in (("best", "kmeans", "random") if chooses else (None,))
        )


@pytest.mark.parametrize(("name", "start"), list(starts()))
def test_the_work_of_every_start_is_counted(name, start):
    """Also of starts that are no program which could be traced: those of topic models."""
    method, key = REGISTRY[name], jax.random.key(0)
    data, hyper = method.example(key)
    hyper = hyper if start is None else hyper._replace(start=start)
    work_of_start = start_work(Job(method, data, hyper, key), method.init(key, data, hyper))
    assert (work_of_start > 0) is (start != "random")


def test_an_interrupted_solver_gives_its_point(monkeypatch):
    job, _ = problem()

    def stop(self, job):
        return Result(problem()[1], trace=np.ones(2), converged=False, partial=True)

    monkeypatch.setattr(bf.FixedPoint, "run", stop)
    found = bf.Quick().run(job)
    assert found.partial and found.draws is None


# -- the check of widths --------------------------------------------------------------------------
def walk(length: int, keep: float, cells: int = 400) -> np.ndarray:
    """(2, length, cells) first-order autoregressions of variance one, begun in their stationary law."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, length, cells))
    for t in range(1, length):
        x[:, t] = keep * x[:, t - 1] + np.sqrt(1 - keep**2) * x[:, t]
    return x


@pytest.mark.parametrize(("length", "keep"), [(60, 0.0), (60, 0.5), (60, 0.8), (120, 0.9)])
def test_the_shortness_of_a_run_is_seen(length, keep):
    """The true standard deviation is one; that of the draws is known."""
    x = walk(length, keep)
    true = 1 - float(np.sqrt(np.mean(x.reshape(-1, 400).var(0))))
    assert shortness(x) == pytest.approx(true, abs=0.03)


def test_approximations_that_are_too_narrow_are_seen():
    """Draws of Gibbs are wide enough; the same draws drawn together by three tenths are not."""
    job, _ = problem()
    fit = bf.fit("pmf", job.data, bf.Gibbs(200, 500, 2), **job.hyper._asdict(), progress=False)
    probe = fit.data.locate(fit.data.probe)[0]
    right = against_conditionals(job, fit.draws, probe)
    assert abs(right["ratio"] - 1) < 3 * right["error"] + 0.03
    # the products are identified: U V' drawn together means its first factor with the mean of the products
    centre = {site: np.asarray(x).mean((0, 1)) for site, x in aligned(fit).items()}
    tight = {s: centre[s] + 0.7 * (np.asarray(x) - centre[s]) for s, x in aligned(fit).items()}
    wrong = against_conditionals(job, tight, probe)
    assert wrong["ratio"] < 0.9
    assert sites(job.method.init(job.key, job.data, job.hyper)).keys() == tight.keys()


def aligned(fit):
    found = fit.aligned().draws
    return {site: found.get(site, x) for site, x in fit.draws.items()}


@pytest.mark.filterwarnings("ignore::bayesfac.ConvergenceWarning")
def test_svi_says_how_narrow_its_guide_is():
    job, _ = problem()
    settings = {**job.hyper._asdict(), "progress": False}
    fit = bf.fit("pmf", job.data, bf.SVI(steps=1500), **settings)
    widths = fit.info["widths"]
    assert 0.3 < widths["ratio"] < 1.1 and 0 < widths["error"] < 0.3
    found = fit.diagnostics()
    assert found.narrow == pytest.approx(1 - widths["ratio"])
    made_up = replace(fit, info={**fit.info, "widths": {"ratio": 0.88, "error": 0.02}})
    assert "Intervals about 12% too narrow here" in str(made_up.diagnostics())
    assert jnp.isfinite(widths["ratio"])
