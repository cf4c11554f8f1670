"""One verdict: what each finding leaves of each use, and the Monte Carlo error of scores."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import bayesfac as bf
from bayesfac.report.compare import compare
from bayesfac.report.diagnostics.diagnose import diagnostics
from bayesfac.report.diagnostics.findings import Finding, to
from bayesfac.report.diagnostics.uses import (
    _standard_error,
    monte_carlo_error,
    overall,
    same_posterior,
    sentence,
    uses,
)
from tests.report import fakes


def test_the_worst_finding_decides_each_use():
    findings = [
        Finding("good", "a"),
        Finding("care", "b", limits={"single": "care"}),
        Finding("bad", "c", limits=to("bad", "single", "hyper")),
    ]
    assert uses("sampler", findings) == {"averages": "good", "single": "bad", "hyper": "bad"}
    assert uses("point", findings) == {"averages": "good", "single": "bad"}


def test_factors_are_not_known_better_than_predictions():
    aligned = Finding("good", "one mode", limits={"factors": "good"})
    few = Finding("bad", "few draws", limits={"single": "bad"})
    assert uses("sampler", [aligned])["factors"] == "good"
    assert uses("sampler", [aligned, few])["factors"] == "bad"


def test_a_measured_error_says_more_of_averages_than_rhat_unless_draws_are_broken():
    apart = Finding("bad", "chains disagree", limits=to("bad", "averages", "single"))
    measured = Finding("good", "error", limits={"averages": "good"}, measured=True)
    assert uses("sampler", [apart, measured])["averages"] == "good"
    assert uses("sampler", [apart, measured])["single"] == "bad"
    broken = Finding("bad", "NaN", limits=to("bad"), fatal=True)
    assert uses("sampler", [broken, measured])["averages"] == "bad"


@pytest.mark.parametrize(
    ("levels", "level", "said"),
    [
        (
            {"averages": "good", "single": "good"},
            "good",
            "Usable for averages of predictions and single",
        ),
        ({"averages": "bad", "single": "good"}, "bad", "Not usable yet."),
        (
            {"averages": "care", "single": "bad"},
            "care",
            "Usable in part: with care for averages of",
        ),
    ],
)
def test_the_sentence_follows_the_levels(levels, level, said):
    assert overall(levels) == level
    assert sentence("sampler", levels).startswith(said)


def test_the_monte_carlo_error_is_what_other_runs_would_change():
    test = fakes.ratings_sets()[1]
    rng = np.random.default_rng(0)
    runs = rng.normal(size=(200, 4, 50, 1)) * np.ones(len(test))  # one error, shared by all cells
    found = [np.sqrt(np.mean((run.mean((0, 1)) - test.value) ** 2)) for run in runs]

    def said_of(run):
        parts = fakes.FakePrediction(run, 0.5).means_of_parts
        return monte_carlo_error(SimpleNamespace(parts=parts, value=test.value), "RMSE")

    said = [said_of(run) for run in runs[:40]]
    assert np.median(said) == pytest.approx(np.std(found), rel=0.35)  # 8 parts: 25 % noise each
    assert said_of(runs[0][:1, :1]) == np.inf


def test_a_star_needs_a_difference_beyond_noise():
    test = fakes.ratings_sets()[1]
    point, draws = fakes.point_ratings(), fakes.sampled_ratings(chains=4, draws=100)
    same = compare({"one": point, "two": replace(point)}, test)
    assert same.best["RMSE"] == "one" and same.starred == {}
    assert "no different beyond noise" in same.answers()[0]
    far = compare({"point": point, "zero": np.full(len(test), 9.0), "Gibbs": draws}, test)
    assert "zero" not in far.starred["RMSE"] and set(far.starred["RMSE"]) <= {"point", "Gibbs"}
    assert "zero is worse by" in far.answers()[0]
    assert "covers 90 %" not in far.starred or "zero" not in far.starred["covers 90 %"]


def test_the_answers_name_intervals_and_the_next_step():
    test = fakes.ratings_sets()[1]
    short = fakes.sampled_ratings(chains=2, draws=20)
    better, intervals, following = compare({"short": short}, test).answers()
    assert "no other fit" in better
    assert intervals.startswith("The 90 % intervals hold these shares of the ratings: short ")
    assert following.startswith("Next, for short: ")


def test_one_user_has_no_standard_error_and_leaves_averages_to_the_chains():
    test = fakes.ratings_sets()[1]
    draws = fakes.sampled_ratings(chains=4, draws=100)
    (one,) = compare({"Gibbs": draws}, test.of_users(0, 1)).diagnoses.values()
    assert "no standard error to compare it with" in one.findings[-1].text
    assert one.uses["averages"] == diagnostics(draws).uses["averages"] == "good"
    # two users with three ratings each: half of the difference of their mean losses, 2 and 6
    loss, who = np.array([1.0, 2.0, 3.0, 5.0, 5.0, 8.0]), np.repeat([0, 1], 3)
    two = SimpleNamespace(losses={"MAE": loss}, weights=np.ones(6), cluster=who)
    assert _standard_error(two, "MAE") == pytest.approx(2.0)


@pytest.mark.slow
def test_draws_from_one_posterior_are_not_compared_with_each_other():
    train, test = bf.split.holdout(bf.datasets.make_ratings(40, 30, 2, seed=0), 0.2, seed=0)
    common = {"n_components": 2, "progress": False}
    fits = {
        "Quick": bf.fit("bpmf", train, bf.Quick(sweeps=40), **common),
        "Gibbs": bf.fit("bpmf", train, bf.Gibbs(20, 60, 2), **common),
    }
    said = [each.findings[-1].text for each in compare(fits, test).diagnoses.values()]
    assert all("of its standard error over users" in text for text in said)
    other = bf.fit("bpmf", train, bf.Quick(sweeps=40), beta0=2.0, **common)
    (text, *_) = [
        d.findings[-1].text for d in compare({**fits, "other": other}, test).diagnoses.values()
    ]
    assert "of the difference from other" in text
    assert same_posterior(fits["Quick"], fits["Gibbs"]) and not same_posterior(fits["Quick"], other)
    less = bf.fit("bpmf", train.take(np.arange(len(train) - 1)), bf.Quick(sweeps=40), **common)
    assert not same_posterior(fits["Quick"], less)
