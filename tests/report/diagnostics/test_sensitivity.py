"""Power scaling: ArviZ's distance, the exact answer of a normal mean, and the paper's diagnoses."""

import jax
import numpy as np
import pytest
from arviz_stats.base import array_stats

import bayesfac as bf
from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import REGISTRY
from bayesfac.report.diagnostics import sensitivity as power
from bayesfac.report.diagnostics.sensitivity import CONFLICT, FINE, STRONG

NEAR = (0.8, 1.25)


def test_the_distance_is_arvizs():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(2, 200, 3)) * [1, 10, 0.1] + [0, 5, -3]
    low, high = rng.exponential(size=(2, 2, 200))
    mine = power.moves(values.reshape(400, 3), [low.ravel(), high.ravel()], NEAR)
    for column in range(3):
        theirs = array_stats.power_scale_sense(
            values[..., column], low / low.sum(), high / high.sum(), *NEAR
        )
        np.testing.assert_allclose(mine[column], theirs, rtol=1e-9)
    still = power.moves(np.ones((400, 1)), [low.ravel(), high.ravel()], NEAR)
    assert still[0] == 0


def normal_mean(n, prior_mean, draws=4000):
    """mu ~ N(prior_mean, 1), y_i ~ N(mu, 1) with mean 0: draws of the posterior and both logs."""
    rng = np.random.default_rng(n)
    mean, sd = prior_mean / (1 + n), (1 + n) ** -0.5
    mu = rng.normal(mean, sd, (4, draws // 4))
    return mu, {"prior": -0.5 * (mu - prior_mean) ** 2, "likelihood": -0.5 * n * mu**2}


@pytest.mark.parametrize("n, prior_mean", [(1, 0.0), (5, 3.0), (50, 0.0)])
def test_weights_lead_to_the_scaled_posterior(n, prior_mean):
    """Of a normal mean the posterior with a power alpha on the prior, or the likelihood, is normal."""
    mu, logs = normal_mean(n, prior_mean)
    for part, log in logs.items():
        weights, k = power.scaled(log, NEAR)
        assert max(k) < 0.7
        for alpha, w in zip(NEAR, weights, strict=True):
            a, b = (alpha, n) if part == "prior" else (1, alpha * n)
            exact, sd = a * prior_mean / (a + b), (a + b) ** -0.5
            error = sd / (1 / (w**2).sum()) ** 0.5
            assert abs((w * mu).sum() - exact) < 4 * error
            assert w.sum() == pytest.approx(1)


def diagnosis(n, prior_mean):
    mu, logs = normal_mean(n, prior_mean)
    moved = [
        power.moves(mu.reshape(-1, 1), power.scaled(log, NEAR)[0], NEAR)[0] for log in logs.values()
    ]
    return power._diagnosis(*moved)


def test_the_papers_diagnoses():
    assert diagnosis(100, 0.0) == FINE  # much data, prior about right
    assert diagnosis(10, 6.0) == CONFLICT  # the prior is six of its sds away
    mu = np.random.default_rng(0).normal(size=(4, 1000))  # no data at all: the prior alone
    prior = power.moves(mu.reshape(-1, 1), power.scaled(-0.5 * mu**2, NEAR)[0], NEAR)[0]
    likelihood = power.moves(mu.reshape(-1, 1), power.scaled(-0.001 * mu**2, NEAR)[0], NEAR)[0]
    assert power._diagnosis(prior, likelihood) == STRONG


@pytest.mark.parametrize("name", ["pmf", "bpmf", "ordinal_mf", "heres"])
def test_prior_and_likelihood_are_the_log_joint(name):
    method = REGISTRY[name]
    data, hyper = method.example(jax.random.key(0))
    fit = bf.fit(method, data, bf.Gibbs(10, 20, 2), progress=False, **hyper._asdict())
    prior, likelihood = power.log_parts(fit, method.ready(data, fit.hyper), fit.draws, 2**20)
    rest = fit.stats["lp"] - sum(prior.values()) - likelihood
    if (
        name == "ordinal_mf"
    ):  # as the model has thresholds; the objective's are the same up to a constant
        assert np.ptp(rest) < 1e-6
    np.testing.assert_allclose(rest, rest[0, 0], atol=1e-6)
    assert min(np.ptp(log) for log in prior.values()) > 0.01 and np.ptp(likelihood) > 0.1
    top = power.top_of_hierarchy(fit, method.ready(data, fit.hyper), fit.draws)
    assert set(top) == set(TOP[name])


TOP = {
    "pmf": ["U", "V", "bias_user", "bias_item"],  # their scales are given
    "bpmf": ["Lambda_U", "mu_U", "Lambda_V", "mu_V", "alpha"],  # those of U and V are learned
    "ordinal_mf": ["Lambda_U", "mu_U", "Lambda_V", "mu_V", "centre"],
    "heres": ["F", "B.labels", "B.topics", "B.words"],
}


def test_blocks_change_nothing():
    data, hyper = REGISTRY["pmf"].example(jax.random.key(0))
    fit = bf.fit("pmf", data, bf.Gibbs(5, 20, 2), progress=False, **hyper._asdict())
    for memory in (2**12, 2**30):
        found = power.log_parts(fit, data, fit.draws, memory)[1]
        if memory == 2**12:
            first = found
    np.testing.assert_allclose(found, first, rtol=1e-12)


def ratings(seed=0, users=12, items=10):
    rng = np.random.default_rng(seed)
    u, v = rng.normal(size=(users, 1)), rng.normal(size=(items, 1))
    return bf.Ratings(3 + 2 * u @ v.T + 0.3 * rng.normal(size=(users, items)))


def test_a_fit_and_its_predictions():
    data = ratings()
    given = {"n_components": 1, "noise": 0.3, "offset": 3.0}
    wide = {"scale_user": 1.5, "scale_item": 1.5}
    narrow = {"scale_user": 0.1, "scale_item": 0.1}  # u v of sd 0.01 for products of sd 2
    alpha = (0.97, 1 / 0.97)
    fits = {
        name: bf.fit("pmf", data, bf.Gibbs(300, 500, 2), progress=False, **given, **scales)
        for name, scales in (("wide", wide), ("narrow", narrow))
    }
    found = {name: fit.sensitivity(data, alpha=alpha) for name, fit in fits.items()}
    mild, strong = (f.table["prior"].median() for f in found.values())
    assert strong > 3 * mild and strong > 0.05
    assert (found["narrow"].table["diagnosis"] == CONFLICT).mean() > 0.5
    assert "Prior-data conflict" in repr(found["narrow"]) and found["narrow"].level != "good"
    assert not any(name.startswith("U") for name in found["wide"].table.index)
    assert any(name.startswith("singular value") for name in found["wide"].table.index)
    asked = fits["wide"].sensitivity(data, {"user": [0, 1], "item": [2, 3]}, alpha=alpha)
    assert [n for n in asked.table.index if n.startswith("pred")] == [
        "prediction (0, 2)", "prediction (1, 3)",
    ]  # fmt: skip


def test_weights_that_fail_are_said_to():
    """Many factors: powers of 0.8 and 1.25 are too far for the draws, and nearer ones are named."""
    data = ratings(users=60, items=40)
    fit = bf.fit("pmf", data, bf.Gibbs(50, 100, 1), n_components=8, progress=False)
    found = fit.sensitivity(data)
    assert not found.trusted and found.level == "bad"
    text = repr(found)
    assert "cannot be trusted" in text and "alpha=(0." in text
    low = float(text.split("alpha=(")[1].split(",")[0])
    assert fit.sensitivity(data, alpha=(low, 1 / low)).trusted


def test_quantities_of_every_nth_draw_are_matched():
    assert power._stride(500, 250) == 2 and power._stride(500, 500) == 1
    assert power._stride(500, 2) == 0  # every 250th, or every 300th?


def test_refusals():
    data = ratings(users=5, items=4)
    fit = bf.fit("pmf", data, bf.Gibbs(5, 30, 1), n_components=1, progress=False)
    with pytest.raises(ValueError, match="two powers below and above 1"):
        fit.sensitivity(data, alpha=(1.1, 1.2))
    with pytest.raises(BayesfacError, match="point fit"):
        bf.fit("pmf", data, n_components=1, progress=False).sensitivity(data)
    with pytest.raises(ValueError, match="Expected the training data"):
        fit.sensitivity(bf.Ratings(data.frame().assign(rating=data.value + 1)))
    short = bf.fit("pmf", data, bf.Gibbs(5, 1, 1), n_components=1, progress=False)
    with pytest.raises(BayesfacError, match="at least 25 draws"):
        short.sensitivity(data)


def test_findings_need_no_fit():
    import pandas as pd

    table = pd.DataFrame(
        {"prior": [0.01], "likelihood": [0.2], "diagnosis": [FINE]}, index=["alpha"]
    )
    found = power.Sensitivity("pmf", table, ["U"], {"prior": (0.1, 0.2)}, 0.9, NEAR, 1000, 0.1)
    assert found.level == "good" and "None of 1 quantities" in repr(found)
