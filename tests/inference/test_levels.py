"""Predictions on a scale: masses, votes and levels against brute force, one draw after the other."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from scipy import stats

import bayesfac as bf
from bayesfac import metrics
from bayesfac.core.data.cells import Query
from bayesfac.core.laws.ordinal import Levels, level_codes
from bayesfac.core.method import REGISTRY, from_sites, sites
from bayesfac.inference.fixed_point import precise_objective
from bayesfac.inference.predictions.level_masses import (
    Tally,
    above,
    log_mass,
    log_masses,
    masses,
)
from bayesfac.inference.predictions.predict import Prediction
from bayesfac.inference.result import Result

pytestmark = pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")
SCALE = (0.5, 1.0, 2.0, 4.0)  # uneven: nothing may count levels where it should measure them


@cache
def ratings():
    rng = np.random.default_rng(0)
    level = rng.integers(4, size=(12, 9))
    seen = rng.random((12, 9)) < 0.7
    return bf.Ratings(np.where(seen, np.asarray(SCALE)[level], np.nan), levels=SCALE)


@cache
def fitted(name: str = "mmmf"):
    return bf.fit(name, ratings(), progress=False, n_components=2)


@cache
def sampled(name: str = "mmmf"):
    """Draws scattered about the point, as a sampler would leave them."""
    fit, rng = fitted(name), np.random.default_rng(1)
    values = {site: np.asarray(value) for site, value in sites(fit.params).items()}
    noise = {site: 0.4 * rng.normal(size=(2, 6, *v.shape)) for site, v in values.items()}
    draws = {site: value + (noise[site] if site in "UV" else 0) for site, value in values.items()}
    shaped = {site: np.broadcast_to(value, noise[site].shape) for site, value in draws.items()}
    return replace(fit, engine=bf.Gibbs(), result=Result(draws=shaped))


def each_draw(fit, data):
    """The outcome that every draw predicts, one by one."""
    query = Query(data.user, data.item)
    for at in np.ndindex(2, 6):
        params = from_sites(fit.method, {s: jnp.asarray(v[at]) for s, v in fit.draws.items()})
        yield fit.method.predict(params, query, fit.hyper)


def test_probabilities_votes_and_level_are_those_of_the_draws_one_by_one() -> None:
    fit, data = sampled(), ratings()
    outcomes = list(each_draw(fit, data))
    prediction = fit.predict(data)
    mass = np.mean([o.probs for o in outcomes], 0)
    np.testing.assert_allclose(prediction.probabilities, mass, rtol=1e-6)
    chosen = np.stack([np.asarray(o.choice) for o in outcomes])
    votes = (chosen[..., None] == np.arange(4)).mean(0)
    np.testing.assert_allclose(prediction.votes, votes)
    median = np.sort(chosen, 0)[5]  # the lower of the two in the middle
    np.testing.assert_array_equal(prediction.level, np.asarray(SCALE)[median])
    assert len(np.unique(chosen, axis=0)) > 1, "draws that all agree test nothing"


def test_a_point_answers_by_its_own_rule() -> None:
    fit, data = fitted(), ratings()
    outcome = fit.method.predict(fit.params, Query(data.user, data.item), fit.hyper)
    prediction = fit.predict(data)
    np.testing.assert_array_equal(prediction.level, np.asarray(SCALE)[outcome.choice])
    np.testing.assert_array_equal(prediction.votes.max(1), 1)
    assert set(prediction.level) <= set(SCALE)


def test_blocks_give_what_the_whole_gives() -> None:
    whole, small = (sampled().predict(ratings()) for _ in range(2))
    small.memory = 4096 * 7  # seven cells, and a draw, at a time
    np.testing.assert_allclose(small.probabilities, whole.probabilities, rtol=1e-12)
    np.testing.assert_array_equal(small.votes, whole.votes)
    one = sampled().predict(ratings().take([5]))
    np.testing.assert_allclose(one.probabilities, whole.probabilities[[5]], rtol=1e-12)


def test_an_empty_query_has_no_levels_but_a_scale() -> None:
    prediction = fitted().predict({"user": [], "item": []})
    assert prediction.probabilities.shape == prediction.votes.shape == (0, 4)
    assert prediction.level.shape == (0,)


def test_a_normal_prediction_is_cut_at_the_midpoints() -> None:
    mean, sd = np.array([1.4, 0.2, 60.0]), np.array([0.6, 2.0, 1.0])
    cdf = stats.norm.cdf([[0.75], [1.5], [3.0]], mean, sd)
    expected = np.diff(np.vstack([np.zeros(3), cdf, np.ones(3)]), axis=0).T
    found = np.asarray(log_masses(dist.Normal(mean, sd), SCALE))
    np.testing.assert_allclose(np.exp(found), expected, atol=1e-12)
    assert found[2, 0] == pytest.approx(stats.norm.logcdf(0.75, 60, 1))  # no mass is ever zero
    np.testing.assert_allclose(masses(dist.Normal(mean, sd), SCALE).T, expected, atol=1e-12)
    np.testing.assert_array_equal(above(dist.Normal(mean, sd), SCALE).sum(0), [1, 0, 3])
    other = np.asarray(log_masses(dist.Logistic(mean, sd), SCALE))  # any other: from its cdf
    cdf = stats.logistic.cdf([[0.75], [1.5], [3.0]], mean, sd)
    expected = np.diff(np.vstack([np.zeros(3), cdf, np.ones(3)]), axis=0).T
    np.testing.assert_allclose(np.exp(other), expected, atol=1e-12)


def test_the_mass_of_one_level_is_that_among_all_levels() -> None:
    mean, sd, code = np.array([1.4, 0.2, 60.0, 1.0]), np.array([0.6, 2.0, 1.0, 0.1]), [1, 3, 0, 2]
    for outcome in (dist.Normal(mean, sd), dist.Logistic(mean, sd)):
        among = np.asarray(log_masses(outcome, SCALE))[range(4), code]
        np.testing.assert_allclose(log_mass(outcome, SCALE, np.array(code)), among, rtol=1e-12)


def test_a_continuous_method_has_levels_on_data_that_have() -> None:
    fit, data = sampled("pmf"), ratings()
    outcomes = list(each_draw(fit, data))
    prediction = fit.predict(data)
    mass = np.mean([np.exp(log_masses(o, SCALE)) for o in outcomes], 0)
    np.testing.assert_allclose(prediction.probabilities, mass, rtol=1e-6)
    means = np.stack([o.mean for o in outcomes])
    nearest = np.abs(means[..., None] - SCALE).argmin(-1)
    votes = (nearest[..., None] == np.arange(4)).mean(0)
    np.testing.assert_allclose(prediction.votes, votes)
    scores = prediction.scores(data.value)
    own = metrics.ordinal_log_score(prediction.probabilities, data.value, SCALE)
    np.testing.assert_allclose(scores["ordinal_log_score"], own, rtol=1e-6)
    density = np.mean([np.exp(o.log_prob(data.value)) for o in outcomes], 0)
    np.testing.assert_allclose(scores["log_score"], np.log(density), rtol=1e-5)
    cdf = np.mean([o.cdf(data.value) for o in outcomes], 0)
    np.testing.assert_allclose(scores["pit"], cdf, rtol=1e-6)  # nothing to fill at random


def test_scores_on_a_scale_agree_with_the_metrics() -> None:
    prediction, truth = sampled().predict(ratings()), ratings().value
    scores, p = prediction.scores(truth), prediction.probabilities
    log_mass = metrics.ordinal_log_score(p, truth, SCALE)
    np.testing.assert_allclose(scores["ordinal_log_score"], log_mass, rtol=1e-6)
    np.testing.assert_allclose(scores["log_score"], log_mass, rtol=1e-5)  # a mass already
    np.testing.assert_allclose(scores["rps"], metrics.rps(p, truth, SCALE), rtol=1e-6)
    np.testing.assert_allclose(scores["rps"], scores["crps"], atol=0.02)  # simulated
    np.testing.assert_allclose(prediction.mean, p @ np.asarray(SCALE), rtol=1e-6)
    variance = p @ np.asarray(SCALE) ** 2 - prediction.mean**2
    np.testing.assert_allclose(prediction.sd, np.sqrt(variance), rtol=1e-6)


def test_the_pit_fills_the_jump_and_is_the_same_again() -> None:
    prediction, truth = sampled().predict(ratings()), ratings().value
    cdf = np.cumsum(prediction.probabilities, 1)
    code = np.searchsorted(SCALE, truth)
    above = np.take_along_axis(cdf, code[:, None], 1)[:, 0]
    below = above - np.take_along_axis(prediction.probabilities, code[:, None], 1)[:, 0]
    pit = prediction.scores(truth)["pit"]
    assert ((below - 1e-6 <= pit) & (pit <= above + 1e-6)).all()
    place = (pit - below) / (above - below)
    assert stats.kstest(place, "uniform").pvalue > 0.001
    np.testing.assert_array_equal(sampled().predict(ratings()).scores(truth)["pit"], pit)
    reseeded = replace(sampled(), seed=1).predict(ratings()).scores(truth)["pit"]
    assert (reseeded != pit).any()


def told(probabilities: np.ndarray, n: int, seed: int = 0) -> tuple[Prediction, np.ndarray]:
    """A prediction that says `probabilities` of n cells, and outcomes that come true so."""
    method = REGISTRY["mmmf"]
    score = np.log(probabilities)

    def predict(p, query, hyper):
        return Levels(SCALE, jnp.broadcast_to(score, (len(query.row), 4)))

    query = Query(np.zeros(n, int), np.zeros(n, int))
    labels = pd.DataFrame({"user": 0, "item": 0}, index=range(n))
    method = replace(method, predict=predict)
    draws = {"U": np.zeros((1, 1, 1, 1))}
    prediction = Prediction(method, None, draws, query, labels, np.zeros(n, bool), 0, SCALE)
    drawn = np.random.default_rng(seed).choice(SCALE, n, p=probabilities)
    return prediction, drawn


def test_a_true_level_distribution_has_a_uniform_pit_and_honest_intervals() -> None:
    prediction, drawn = told(np.array([0.02, 0.3, 0.6, 0.08]), 3000)
    scores = prediction.scores(drawn)
    assert stats.kstest(scores["pit"], "uniform").pvalue > 0.001
    for level in (0.5, 0.9):
        lower, upper = prediction.interval(level)
        assert set(lower) | set(upper) <= set(SCALE)
        assert metrics.coverage(lower, upper, drawn) >= level - 0.02
    lower, upper = prediction.interval(0.9)
    assert lower[0] == 1.0 and upper[0] == 4.0
    tilted, _ = told(np.array([0.3, 0.02, 0.6, 0.08]), 3000)
    assert stats.kstest(tilted.scores(drawn)["pit"], "uniform").pvalue < 1e-6


def test_counts_of_a_discrete_method_fill_their_jump_too() -> None:
    prediction, _ = told(np.full(4, 0.25), 2000)

    def predict(p, query, hyper):
        return dist.Poisson(jnp.full(len(query.row), 3.0))

    drawn = np.random.default_rng(0).poisson(3.0, 2000).astype(float)
    plain = replace(prediction, method=replace(prediction.method, predict=predict), levels=None)
    pit = plain.scores(drawn)["pit"]
    assert stats.kstest(pit, "uniform").pvalue > 0.001
    assert set(plain.scores(drawn)) == {"mean", "sd", "log_score", "crps", "pit"}


def test_what_has_no_scale_says_so() -> None:
    real = bf.Ratings(ratings().frame())
    prediction = bf.fit("pmf", real, progress=False, n_components=2).predict(real)
    for name in ("probabilities", "votes", "level"):
        with pytest.raises(ValueError, match="Expected ordinal ratings, got real values: "):
            getattr(prediction, name)
    assert "rps" not in prediction.scores(real.value)
    views = bf.Views({"a": np.random.default_rng(0).poisson(2.0, (6, 5))})
    tokens = bf.fit("plsa", views, progress=False, n_components=2).predict(views)
    with pytest.raises(ValueError, match="Expected ordinal ratings, got counts: "):
        tokens.level  # noqa: B018


def test_an_outcome_that_is_no_level_is_named() -> None:
    truth = ratings().value.copy()
    truth[3] = 1.5
    with pytest.raises(ValueError, match=r"among the levels \(0.5, .*got 1.5 at position 3"):
        fitted().predict(ratings()).scores(truth)


def test_the_median_of_votes_is_a_level_that_half_the_draws_do_not_exceed() -> None:
    votes = np.array([[2, 0, 2, 0], [1, 0, 3, 0], [0, 0, 0, 4], [1, 1, 1, 1]])
    assert Tally(None, votes).median.tolist() == [0, 2, 3, 1]


ORDINAL = sorted(name for name, m in REGISTRY.items() if "levels" in m.Hyper._fields)


@pytest.mark.parametrize("name", ORDINAL)
def test_every_ordinal_method_answers_with_levels(name) -> None:
    method = REGISTRY[name]
    data, hyper = method.example(jax.random.key(0))
    params = method.init(jax.random.key(1), data, hyper)
    if method.derive:
        params = params._replace(**method.derive(params, data, hyper))
    draws = {site: np.asarray(value)[None, None] for site, value in sites(params).items()}
    query = Query(np.append(data.user, -1), np.append(data.item, -1))  # and somebody new
    new = query.row < 0
    labels = pd.DataFrame(query._asdict())
    prediction = Prediction(method, hyper, draws, query, labels, new, levels=data.levels)
    assert (prediction.probabilities > 0).all() and set(prediction.level) <= set(data.levels)
    np.testing.assert_allclose(prediction.probabilities.sum(1), 1)


def test_draws_of_labels_have_the_level_of_a_probability_above_the_cut():
    """Not that of most draws: with a low cut, a probability above it may have no draw's vote."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 5))
    Y = (X @ rng.normal(size=(5, 3)) + rng.normal(size=(50, 3)) > 0.2).astype(float)
    data, engine = bf.Tasks({"a": X}, Y), bf.Gibbs(50, 100, 2)
    run = {"cut": 0.2, "sparsity": 0.5, "n_components": 5, "progress": False}
    fit = bf.fit("heres", data, engine, **run)
    told = fit.predict(data.grid())
    np.testing.assert_array_equal(told.level, told.mean > fit.cut)


def test_only_labels_have_a_cut():
    """hmf has a setting of this name with another meaning."""
    data = bf.datasets.make_ratings(12, 10, 2, seed=0)
    assert bf.fit("hmf", data, n_components=1, progress=False).cut is None


def test_the_precise_objective_reads_tenths_of_single_precision_as_their_levels():
    tenths = tuple(np.arange(1, 6) / 10)
    y = jnp.asarray(np.array(tenths, np.float32), np.float64)
    assert level_codes(y, tenths).tolist() == [0, 1, 2, 3, 4]
    urp, code = REGISTRY["urp"], np.random.default_rng(0).integers(5, size=(12, 9))
    with jax.enable_x64(False):
        data = bf.Ratings(np.take(tenths, code), levels=tenths)
        hyper = urp.prepare(
            data, urp.example(jax.random.key(0))[1]._replace(levels=None, base=None)
        )
        p = urp.init(jax.random.key(0), data, hyper)
        plain = urp.objective(p, data, hyper)
        np.testing.assert_allclose(sum(precise_objective(urp, hyper, p, data)), plain, rtol=1e-5)
