"""Scores against hand calculations, calibration against known truth, and their table."""

from dataclasses import replace

import numpy as np
import pytest

from bayesfac import metrics
from bayesfac.core.data.cards import describe
from bayesfac.report.compare import compare
from bayesfac.report.diagnostics.held_out import (
    LevelScores,
    Scores,
    TokenScores,
    activity_groups,
    paired_difference,
    score,
)
from bayesfac.report.plots.held_out_plots import reliability
from tests.report import fake_topics, fakes


def simulated(n: int = 4000, stated: float = 1.0, seed: int = 0) -> Scores:
    """Truths with sd 1 about the mean, forecast with the sd `stated`."""
    from scipy.stats import norm

    rng = np.random.default_rng(seed)
    mean, sd = rng.normal(size=n), np.full(n, stated)
    value = mean + rng.normal(size=n)
    log_score, pit = norm.logpdf(value, mean, sd), norm.cdf(value, mean, sd)
    width = 2 * norm.ppf(0.95) * sd
    cluster, activity = rng.integers(50, size=n), rng.integers(1, 100, size=n)
    return Scores(
        value, mean, sd, log_score, sd * 0, pit, width, activity, cluster, np.zeros(n, bool)
    )


@pytest.fixture(scope="module")
def comparison():
    fits = {"point": fakes.point_ratings(), "Gibbs": fakes.sampled_ratings(chains=4, draws=100)}
    return compare(fits, fakes.ratings_sets()[1], about="random 70/30, seed 3")


def test_the_table_holds_what_a_hand_calculation_gives(comparison) -> None:
    fit, test = comparison.fits["point"], comparison.test
    error = fit.predict(test).mean - test.value
    row = comparison.table.loc["point"]
    assert row["n"] == len(test)
    assert row["RMSE"] == pytest.approx(np.sqrt(np.mean(error**2)))
    assert row["MAE"] == pytest.approx(np.mean(np.abs(error)))
    lower, upper = fit.predict(test).interval(0.9)
    assert row["covers 90 %"] == np.mean((test.value >= lower) & (test.value <= upper))
    assert row["width"] == pytest.approx(np.mean(upper - lower))
    assert list(comparison.table["verdict"]) == ["converged", "usable with care"]
    assert list(comparison.table.columns) == [
        "n", "RMSE", "MAE", "log score", "CRPS",
        "covers 50 %", "covers 80 %", "covers 90 %", "covers 95 %", "width", "seconds", "verdict",
    ]  # fmt: skip


def test_a_calibrated_forecast_is_called_so_and_an_overconfident_one_not() -> None:
    honest, bold = simulated(), simulated(stated=0.5)
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
        table = simulated(500, seed=seed).pit_histogram()
        out += ((table["frequency"] < table["low"]) | (table["frequency"] > table["high"])).any()
    assert 0 < out < 20  # 5 % of 200, Bonferroni a little under it; 20 is 3 sd above


def test_a_forecast_that_knows_where_it_is_unsure_gains_by_selection() -> None:
    rng = np.random.default_rng(0)
    sd = rng.uniform(0.1, 2, 3000)
    base = simulated(3000)
    knowing = replace(base, sd=sd, value=base.mean + sd * rng.normal(size=3000))
    curve = knowing.selective()
    assert curve["RMSE"].iloc[0] < 0.5 * curve["RMSE"].iloc[-1]
    assert np.ptp(base.selective()["RMSE"]) == 0  # all sds alike: they order nothing


def test_activity_groups_part_the_rows_by_training_counts(comparison) -> None:
    counts = comparison.fits["point"].data.row_counts
    test = comparison.test
    activity = comparison.scores["point"].activity
    np.testing.assert_array_equal(activity, counts[test.user])
    table = comparison.by_activity.loc["point"]
    assert table["n"].sum() == len(test) and len(table) > 3
    groups = activity_groups(np.array([0, 0, 1, 2, 3, 4, 5, 6, 7, 8]), 4)
    assert list(groups) == ["0", "1–2", "3–4", "5–6", "7–8"]
    assert sum(rows.sum() for rows in groups.values()) == 10
    assert list(activity_groups(np.zeros(3), 4)) == ["0"]


def test_users_that_training_never_saw_are_a_group_of_their_own(comparison) -> None:
    fit = comparison.fits["point"]
    counts = fit.data.row_counts.copy()
    counts[5] = 0
    scores = score(replace(fit, data=replace(fit.data, row_counts=counts)), comparison.test)
    assert scores.by_activity().loc["0", "n"] == (comparison.test.user == 5).sum() > 0


def test_paired_differences_have_the_right_spread_when_rows_are_clustered() -> None:
    rng = np.random.default_rng(1)
    found = []
    for seed in range(150):
        one = simulated(400, seed=seed)
        shift = 1.5 * rng.normal(size=50)[one.cluster]  # one user's predictions err together
        other = replace(one, mean=one.mean + shift)
        mean, error = paired_difference(other, one)["RMSE"]
        roots = [np.sqrt(s.losses["RMSE"].mean()) for s in (other, one)]
        assert mean == pytest.approx(roots[0] - roots[1])
        found.append((mean, error))
    means, errors = np.array(found).T
    assert errors.mean() == pytest.approx(means.std(), rel=0.25)


def test_differences_and_best_are_stated(comparison) -> None:
    assert comparison.best["RMSE"] == "Gibbs" and comparison.best["covers 90 %"] == "Gibbs"
    assert "seconds" not in comparison.best and "n" not in comparison.best
    assert comparison.differences.loc[("Gibbs", "RMSE"), "difference"] < 0
    (sentence,) = comparison.sentences()
    assert sentence.startswith("Gibbs against point: RMSE -") and "(better)" in sentence
    said = repr(comparison)
    assert (
        "random 70/30, seed 3" in said
        and "seeds: point 0, Gibbs 0" in said
        and "Gibbs against point" in said
    )


@pytest.fixture(scope="module")
def ordinal():
    train, test = fakes.level_sets()
    fits = {"point": fakes.point_ratings(), "Gibbs": fakes.sampled_ratings(chains=4, draws=100)}
    return compare({name: replace(f, data=describe(train)) for name, f in fits.items()}, test)


def test_fits_to_levels_are_compared_by_the_levels_that_they_tell(ordinal) -> None:
    told, test = ordinal.fits["point"].predict(ordinal.test), ordinal.test
    row = ordinal.table.loc["point"]
    assert row["RMSE"] == pytest.approx(metrics.rmse(test.value, told.mean))
    assert row["MAE of level"] == pytest.approx(metrics.mae(test.value, told.level))
    assert row["NMAE"] == pytest.approx(metrics.mae(test.value, told.level) / 1.6)
    assert row["zero-one"] == pytest.approx(metrics.zero_one_error(test.value, told.level))
    log_mass = metrics.ordinal_log_score(told.probabilities, test.value, 5)
    assert row["ordinal log score"] == pytest.approx(log_mass.mean())
    assert row["RPS"] == pytest.approx(metrics.rps(told.probabilities, test.value, 5).mean())
    assert list(ordinal.table.columns) == [
        "n", "RMSE", "MAE of level", "NMAE", "zero-one", "ordinal log score", "RPS",
        "covers 50 %", "covers 80 %", "covers 90 %", "covers 95 %", "width", "seconds", "verdict",
    ]  # fmt: skip
    assert "NMAE" in ordinal.by_activity and len(ordinal.by_activity.loc["point"]) > 3
    cost = {"NMAE": 1, "zero-one": 1, "RPS": 1, "ordinal log score": -1}
    for column, sign in cost.items():
        assert ordinal.best[column] == str((sign * ordinal.table[column]).idxmin())
    (sentence,) = ordinal.sentences()
    gap = ordinal.table["ordinal log score"].diff().iloc[1]
    assert f"ordinal log score {gap:+.4f}" in sentence and "NMAE" not in sentence


def test_fits_on_different_scales_are_refused(ordinal) -> None:
    fits = {**ordinal.fits, "real": fakes.point_ratings()}
    with pytest.raises(
        ValueError, match=r"one scale, got 'point' with levels \(1.0, .*'real' with"
    ):
        compare(fits, ordinal.test)


def levels_told(sharpen: float = 1.0, n: int = 4000) -> LevelScores:
    """Levels that come true as often as said, said again with powers of the probabilities."""
    rng = np.random.default_rng(0)
    true = rng.dirichlet(np.ones(4), n)
    code = (rng.random((n, 1)) > np.cumsum(true, 1)[:, :-1]).sum(1)
    said = true**sharpen / (true**sharpen).sum(1, keepdims=True)
    base = {name: getattr(simulated(n), name) for name in Scores.__dataclass_fields__}
    told = {"level": said.argmax(1) + 1.0, "probabilities": said, "levels": (1.0, 2.0, 3.0, 4.0)}
    nothing = {"ordinal_log_score": np.zeros(n), "rps": np.zeros(n)}
    return LevelScores(**{**base, "value": code + 1.0}, **told, **nothing)


def test_reliability_is_a_line_of_slope_one_for_probabilities_that_are_true() -> None:
    table = levels_told().reliability()
    assert table["n"].sum() == 4 * 4000 and len(table) == 10
    np.testing.assert_allclose(table["observed"], table["predicted"], atol=0.05)
    scores = levels_told()
    row = (scores.probabilities >= 0.2) & (scores.probabilities < 0.3)
    came = scores.value[:, None] == np.arange(1, 5)
    assert table["observed"][2] == pytest.approx(came[row].mean())
    assert table["predicted"][2] == pytest.approx(scores.probabilities[row].mean())
    bold = levels_told(sharpen=3).reliability()
    assert bold["observed"].iloc[-1] < bold["predicted"].iloc[-1] - 0.1
    assert bold["observed"].iloc[0] > bold["predicted"].iloc[0] + 0.02
    sure = replace(levels_told(), probabilities=np.tile([0.0, 1.0, 0.0, 0.0], (4000, 1)))
    assert sure.reliability()["predicted"].tolist() == [
        0,
        1,
    ]  # bins without predictions are left out


def test_the_picture_of_reliability_tells_true_from_bold() -> None:
    drawn = reliability({"true": levels_told(), "bold": levels_told(sharpen=3)})
    assert "bold" in str(drawn.finding) and "true" not in str(drawn.finding)
    assert drawn.finding.level == "care"
    assert reliability({"true": levels_told()}).finding.level == "good"
    (axes,) = drawn.figure.axes
    assert axes.get_xlabel() and axes.get_ylabel() and axes.get_title("left")


def test_counts_are_scored_by_the_token() -> None:
    views = fake_topics.views_set()
    fit = fake_topics.point_views()
    comparison = compare({"EM": fit, "Gibbs": fake_topics.sampled_views()}, views)
    p, frame = fit.predict(views).mean, views.frame()
    expected = np.average(np.log(p), weights=frame["value"])
    row = comparison.table.loc["EM"]
    assert row["n"] == frame["value"].sum() and row["log score"] == pytest.approx(expected)
    assert row["perplexity"] == pytest.approx(np.exp(-expected))
    pix = (frame["view"] == "pix").to_numpy()
    alone = np.average(np.log(p[pix]), weights=frame["value"][pix])
    assert row["perplexity pix"] == pytest.approx(np.exp(-alone))
    assert comparison.pit.empty and "stored cells" in comparison.spread
    assert "perplexity" in comparison.by_activity


def test_a_word_held_to_be_impossible_costs_infinity() -> None:
    count = np.array([2.0, 1.0])
    scores = TokenScores(
        count, np.array([-1.0, -np.inf]), np.array(["x", "x"]), np.array([0, 1]), count
    )
    assert scores.summary()["perplexity"] == np.inf
    mean, error = paired_difference(scores, scores)["log score"]
    assert np.isnan(mean) and np.isnan(error)


def test_wrong_input_is_one_clear_line(comparison) -> None:
    fit, test = comparison.fits["point"], comparison.test
    with pytest.raises(TypeError, match="Expected a mapping from names to fits, got list"):
        compare([fit], test)
    with pytest.raises(TypeError, match="Expected a mapping"):
        compare({}, test)
    with pytest.raises(TypeError, match="Expected a fit as 'x', got int"):
        compare({"x": 3}, test)
    with pytest.raises(TypeError, match="Expected Ratings to test toy_ratings on, got Views"):
        compare({"x": fit}, fake_topics.views_set())


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
    same = dict.fromkeys(("value", "mean", "sd", "log_score", "crps", "width"), np.zeros(len(pit)))
    whole = dict.fromkeys(("activity", "cluster", "flagged"), np.zeros(len(pit), int))
    return Scores(**same, **whole, pit=pit)
