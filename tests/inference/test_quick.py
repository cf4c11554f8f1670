"""Balanced draws of rows, the Gibbs run that ends by itself, and the check of an approximation's widths."""

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
from bayesfac.inference.checkpoint import Checkpoint
from bayesfac.inference.gibbs import spread
from bayesfac.inference.quick import MOST
from bayesfac.inference.result import Job
from bayesfac.inference.widths import against_conditionals, monte_carlo_error, shortness
from tests.tools.kinds import quick_for

QUICK = bf.Quick(sweeps=8, draws=32, pairs=1)


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
    return job.method.gibbs.conditionals["U"](p, job.data, job.hyper)


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
    if not method.gibbs.conditionals:
        with pytest.raises(BayesfacError, match=f"{name} cannot run with Quick: "):
            bf.fit(name, data, bf.Quick(), **settings)
        return
    fit = bf.fit(name, data, QUICK, **settings)
    assert not fit.is_point and fit.engine == QUICK
    lengths = {value.shape[:2] for value in fit.draws.values()}
    blocks = {"pmf": 2, "heres": 1 + len(data.blocks) if name == "heres" else 0}.get(name)
    assert len(lengths) == 1 and fit.stats["lp"].shape in lengths
    kept = 0 if blocks is None else min(4, 32 // (2 * blocks))
    assert blocks is None or lengths == {(2, kept * 2 * blocks)}
    for site, value in fit.draws.items():
        assert np.isfinite(value).all(), site
    assert fit.diagnostics().narrow is not None


def fit(engine):
    job, _ = problem()
    return bf.fit("pmf", job.data, engine, **job.hyper._asdict(), progress=False)


def same(a, b):
    for site, value in a.draws.items():
        np.testing.assert_array_equal(b.draws[site], value, err_msg=site)


def errors(monkeypatch, *values):
    """The Monte Carlo errors that runs have, one after the other."""
    found = iter(values)
    monkeypatch.setattr("bayesfac.inference.quick.monte_carlo_error", lambda *_: next(found))


def test_the_engine_of_a_fit_repeats_it(monkeypatch):
    """A run that goes on twice is one run of as many sweeps, also in its draws and its log joint."""
    errors(monkeypatch, 0.4, 0.2, 0.09)
    first = fit(bf.Quick())
    assert first.engine.sweeps == 320 and not first.info["notes"]
    again = fit(first.engine)
    assert again.engine == first.engine
    same(first, again)
    np.testing.assert_array_equal(first.stats["lp"], again.stats["lp"])


def test_a_run_that_goes_on_does_not_compute_its_starts_again(monkeypatch):
    errors(monkeypatch, 0.4, 0.2, 0.09)
    starts, calls = bf.Gibbs.starts, []
    monkeypatch.setattr(bf.Gibbs, "starts", lambda *args: calls.append(1) or starts(*args))
    assert fit(bf.Quick()).engine.sweeps == 320 and len(calls) == 1


def test_a_run_ends_where_its_error_is_small():
    sweeps = [fit(bf.Quick(error)).engine.sweeps for error in (10.0, 0.08, 0.05)]
    assert sweeps[0] == 80 < sweeps[1] < sweeps[2] <= MOST


def test_a_run_that_does_not_get_there_says_so(monkeypatch):
    errors(monkeypatch, 0.5, 0.45)
    stuck = fit(bf.Quick())
    assert stuck.engine.sweeps == 160
    assert "is 0.45 of their" in stuck.info["notes"][0] and "160" in stuck.info["notes"][0]
    errors(monkeypatch, *(0.5 * 0.8**k for k in range(9)))
    longest = fit(bf.Quick(error=0.01))
    assert longest.engine.sweeps == MOST and "the aim was 0.01" in longest.info["notes"][0]
    errors(monkeypatch, None)
    assert fit(bf.Quick()).engine.sweeps == 80, "no prediction varies"


@pytest.mark.filterwarnings("ignore:the fit of pmf is partial")
def test_an_interrupted_run_gives_the_draws_that_are_there(monkeypatch):
    errors(monkeypatch, 0.5)
    run, calls = bf.Gibbs.run, []

    def stop(self, job, past):
        calls.append(past)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return run(self, job, past)

    monkeypatch.setattr(bf.Gibbs, "run", stop)
    found = fit(bf.Quick())
    assert len(calls) == 2 and found.partial and "interrupted after 80" in found.info["notes"][0]
    monkeypatch.undo()
    same(found, fit(bf.Quick(sweeps=80)))


def test_a_run_killed_on_its_second_way_resumes_there(monkeypatch, tmp_path):
    class Killed(Exception):
        pass

    def die(self, arrays):
        save(self, arrays)
        if self.path.parent.name == "160":
            raise Killed

    engine, save = bf.Quick(error=0.01, folder=str(tmp_path), save_every=0.0), Checkpoint.save
    errors(monkeypatch, 0.5)
    monkeypatch.setattr(Checkpoint, "save", die)
    with pytest.raises(Killed):
        fit(engine)
    monkeypatch.setattr(Checkpoint, "save", save)
    errors(monkeypatch, 0.5, 0.001)
    same(fit(engine), fit(bf.Quick(sweeps=160)))


@pytest.mark.parametrize("name", sorted(n for n, m in REGISTRY.items() if m.gibbs.conditionals))
def test_the_error_of_a_fit_is_known(name):
    """Probe cells exist, and predictions vary there, for every method with conditionals."""
    method = REGISTRY[name]
    data, hyper = method.example(jax.random.key(0))
    short = bf.fit(name, data, QUICK, **{**hyper._asdict(), "progress": False})
    probe = short.data.locate(short.data.probe)[0]
    job = Job(method, method.ready(data, hyper), hyper, jax.random.key(0), probe=probe)
    draws = {site: np.asarray(x) for site, x in short.draws.items()}
    assert 0 < monte_carlo_error(job, draws) < 1


def test_the_error_of_independent_draws(monkeypatch):
    x = np.random.default_rng(0).standard_normal((4, 50, 2000))
    noise = np.zeros(2000)
    monkeypatch.setattr("bayesfac.inference.widths._expected", lambda *_: x.reshape(200, -1))
    monkeypatch.setattr("bayesfac.inference.widths._noise", lambda *_: noise)
    job, _ = problem()
    job = replace(job, probe=job.data.cells)
    assert monte_carlo_error(job, {"x": x}) == pytest.approx(200**-0.5, rel=0.03)
    noise += 8.0  # outcomes of variance 9: half their sd is larger than the sd of their expectation
    assert monte_carlo_error(job, {"x": x}) == pytest.approx(200**-0.5, rel=0.03)
    noise -= 7.0  # outcomes of variance 2
    assert monte_carlo_error(job, {"x": x}) == pytest.approx((200 * 2 / 4) ** -0.5, rel=0.03)
    chains = np.arange(4)[:, None, None] + 0.1 * x  # chains that do not agree
    monkeypatch.setattr("bayesfac.inference.widths._expected", lambda *_: chains.reshape(200, -1))
    assert monte_carlo_error(job, {"x": x}) > 0.3
    assert monte_carlo_error(replace(job, probe=None), {"x": x}) is None


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
