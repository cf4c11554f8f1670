"""Calibration against known truth, errors of paired differences, and groups by activity."""

from dataclasses import replace

import numpy as np
import pytest

from bayesfac.report.believed import clustered
from bayesfac.report.compare import OutsideScores
from bayesfac.report.diagnostics.held_out import (
    Scores,
    TokenScores,
    activity_groups,
    paired_difference,
    score,
)
from tests.report import fakes


def test_a_calibrated_forecast_is_called_so_and_an_overconfident_one_not() -> None:
    honest, bold = fakes.simulated_scores(), fakes.simulated_scores(stated=0.5)
    for level in (0.5, 0.8, 0.9, 0.95):
        assert honest.inside(level).mean() == pytest.approx(level, abs=0.025)
    assert bold.inside(0.9).mean() < 0.65
    table = honest.pit_histogram()
    assert ((table["frequency"] >= table["low"]) & (table["frequency"] <= table["high"])).all()
    assert bold.pit_histogram()["frequency"].iloc[0] > bold.pit_histogram()["high"].iloc[0]
    curve = honest.coverage_curve()
    assert np.abs(curve["coverage"] - curve["level"]).max() < 0.03


def test_the_pit_band_holds_in_nineteen_of_twenty_data_sets() -> None:
    out = 0
    for seed in range(200):
        table = fakes.simulated_scores(500, seed=seed).pit_histogram()
        out += ((table["frequency"] < table["low"]) | (table["frequency"] > table["high"])).any()
    assert 0 < out < 20  # 5 % of 200, Bonferroni a little under it; 20 is 3 sd above


def test_a_forecast_that_knows_where_it_is_unsure_gains_by_selection() -> None:
    rng = np.random.default_rng(0)
    sd = rng.uniform(0.1, 2, 3000)
    base = fakes.simulated_scores(3000)
    knowing = replace(base, sd=sd, value=base.mean + sd * rng.normal(size=3000))
    curve = knowing.selective()
    assert curve["RMSE"].iloc[0] < 0.5 * curve["RMSE"].iloc[-1]
    assert np.ptp(base.selective()["RMSE"]) == 0  # all sds alike: they order nothing


def test_users_that_training_never_saw_are_a_group_of_their_own() -> None:
    fit, test = fakes.point_ratings(), fakes.ratings_sets()[1]
    counts = fit.data.row_counts.copy()
    counts[5] = 0
    scores = score(replace(fit, data=replace(fit.data, row_counts=counts)), test)
    assert scores.by_activity().loc["0", "n"] == (test.user == 5).sum() > 0


def test_paired_differences_have_the_right_spread_when_rows_are_clustered() -> None:
    rng = np.random.default_rng(1)
    found = []
    for seed in range(150):
        one = fakes.simulated_scores(400, seed=seed)
        shift = 1.5 * rng.normal(size=50)[one.cluster]  # one user's predictions err together
        other = replace(one, mean=one.mean + shift)
        mean, error = paired_difference(other, one)["RMSE"]
        roots = [np.sqrt(s.losses["RMSE"].mean()) for s in (other, one)]
        assert mean == pytest.approx(roots[0] - roots[1])
        found.append((mean, error))
    means, errors = np.array(found).T
    assert errors.mean() == pytest.approx(means.std(), rel=0.25)


def test_reliability_is_a_line_of_slope_one_for_probabilities_that_are_true() -> None:
    table = fakes.simulated_levels().reliability()
    assert table["n"].sum() == 4 * 4000 and len(table) == 10
    np.testing.assert_allclose(table["observed"], table["predicted"], atol=0.05)
    scores = fakes.simulated_levels()
    row = (scores.probabilities >= 0.2) & (scores.probabilities < 0.3)
    came = scores.value[:, None] == np.arange(1, 5)
    assert table["observed"][2] == pytest.approx(came[row].mean())
    assert table["predicted"][2] == pytest.approx(scores.probabilities[row].mean())
    bold = fakes.simulated_levels(sharpen=3).reliability()
    assert bold["observed"].iloc[-1] < bold["predicted"].iloc[-1] - 0.1
    assert bold["observed"].iloc[0] > bold["predicted"].iloc[0] + 0.02
    sure = replace(fakes.simulated_levels(), probabilities=np.tile([0.0, 1.0, 0.0, 0.0], (4000, 1)))
    assert sure.reliability()["predicted"].tolist() == [
        0,
        1,
    ]  # bins without predictions are left out


def test_a_word_held_to_be_impossible_costs_infinity() -> None:
    count = np.array([2.0, 1.0])
    scores = TokenScores(
        count, np.array([-1.0, -np.inf]), np.array(["x", "x"]), np.array([0, 1]), count
    )
    assert scores.summary()["perplexity"] == np.inf
    mean, error = paired_difference(scores, scores)["log score"]
    assert np.isnan(mean) and np.isnan(error)


@pytest.mark.parametrize(
    ("shape", "inside"),
    [((1, 1), True), ((0.7, 0.7), False), ((1.5, 1.5), False), ((1.3, 1), False)],
)
def test_the_pit_leaves_its_band_when_it_should(shape, inside) -> None:
    """Beta values: (1, 1) is uniform, a U is too narrow, a hump too wide, a slope biased."""
    rng, left = np.random.default_rng(0), []
    for _ in range(20):
        pit = rng.beta(*shape, 1500)
        scores = fake_scores(pit)
        table = scores.pit_ecdf()
        gap = table["difference"]
        left.append(bool(((gap < table["low"]) | (gap > table["high"])).any()))
        np.testing.assert_allclose(gap[49], (pit < 0.5).mean() - 0.5, atol=1e-12)
    # a 95 % band is left by one calibrated set in twenty: more than five of twenty come once in 4,000 seeds
    assert (sum(left) <= 5) if inside else all(left)


def fake_scores(pit: np.ndarray) -> Scores:
    names = "value", "mean", "sd", "log_score", "crps", "lower", "upper"
    same = dict.fromkeys(names, np.zeros(len(pit)))
    whole = dict.fromkeys(("activity", "cluster", "flagged"), np.zeros(len(pit), int))
    return Scores(**same, **whole, pit=pit)


def test_activity_groups_have_about_equal_size() -> None:
    groups = activity_groups(np.array([0, 0, 1, 2, 3, 4, 5, 6, 7, 8]), 4)
    assert list(groups) == ["0", "1–2", "3–4", "5–6", "7–8"]
    assert sum(rows.sum() for rows in groups.values()) == 10
    assert list(activity_groups(np.zeros(3), 4)) == ["0"]


def test_one_user_does_not_tell_how_users_differ():
    value, cluster = np.arange(4.0), np.zeros(4, int)
    one, other = (OutsideScores(value, value + k, cluster, cluster) for k in (1.0, 2.0))
    for gap, error in paired_difference(other, one).values():
        assert gap > 0 and np.isnan(error)


def test_the_error_over_few_users_is_not_too_small():
    """Ten cells of each of three users; the error is that of the mean of the users' means."""
    rng, found, true = np.random.default_rng(0), [], []
    cluster = np.repeat(np.arange(3), 10)
    for _ in range(2000):
        away = np.repeat(rng.normal(size=3), 10)
        true.append(away.mean())
        found.append(clustered(away - away.mean(), cluster) / 30)
    assert np.mean(np.square(found)) == pytest.approx(np.var(true), rel=0.1)
