"""The table of a comparison against hand calculations, its sentences, and wrong input."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import bayesfac as bf
from bayesfac import metrics
from bayesfac.core.data.cards import describe
from bayesfac.core.data.counts import Counts
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.errors import DataWarning
from bayesfac.core.method import from_sites
from bayesfac.datasets import make_ratings
from bayesfac.report.compare import compare
from bayesfac.report.compared import clearly_worse
from bayesfac.report.diagnostics.held_out import paired_difference
from bayesfac.report.pages.html import comparison_page
from bayesfac.split import holdout
from tests.report import fakes


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
    assert list(comparison.table["verdict"]) == ["usable", "usable in part"]
    assert list(comparison.table.columns) == [
        "n", "RMSE", "MAE", "log score", "CRPS",
        "covers 50 %", "covers 80 %", "covers 90 %", "covers 95 %", "width", "seconds", "verdict",
    ]  # fmt: skip


def test_activity_groups_part_the_rows_by_training_counts(comparison) -> None:
    counts = comparison.fits["point"].data.row_counts
    test = comparison.test
    activity = comparison.scores["point"].activity
    np.testing.assert_array_equal(activity, counts[test.user])
    table = comparison.by_activity.loc["point"]
    assert table["n"].sum() == len(test) and len(table) > 3


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


def test_counts_are_scored_by_the_token() -> None:
    views = fakes.views_set()
    fit = fakes.point_views()
    comparison = compare({"EM": fit, "Gibbs": fakes.sampled_views()}, views)
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


def test_a_fit_that_thinks_a_held_out_feature_impossible_is_clearly_worse() -> None:
    fine, never = fakes.point_views(), fakes._topic_sites()
    never["C.pix"][:, 0] = 0.0
    wrong = replace(fine, params=from_sites(fine.method, never))
    both = compare({"never": wrong, "fine": fine}, fakes.views_set())
    assert both.table.loc["never", "perplexity"] == np.inf
    assert both.answers()[0].endswith(": never gives probability 0 to a held-out feature.")
    assert both.starred["perplexity"] == both.starred["log score"] == ["fine"]


def test_one_user_gives_no_standard_error(comparison) -> None:
    test = comparison.test
    alone = compare(comparison.fits, test.take(np.flatnonzero(test.user == test.user[0])))
    assert "unknown error (one of the users has all cells)" in alone.answers()[0]
    assert "no different" not in alone.answers()[0]


def test_held_out_ratings_of_unknown_users_and_items_are_counted() -> None:
    """Users and items exchanged: their whole numbers overlap, so that some pairs are known."""
    train, test = holdout(make_ratings(30, 20, 2, seed=0), 0.2, seed=0)
    fit = bf.fit("pmf", train, n_components=2, noise=0.5, scale_user=1.0, progress=False)
    wrong = Ratings(test.item, test.user, test.value, levels=test.levels)
    lost = int((test.user >= 20).sum())
    said = f"{lost} of {len(test)} held-out ratings have a user or an item without training data"
    with pytest.warns(DataWarning, match=f"^{said}. If there should be none, the columns"):
        found = compare({"point": fit, "again": fit}, wrong)
    assert f"{said}." in repr(found).splitlines()
    assert f"{said}." in comparison_page(found)
    other = bf.fit("pmf", wrong, n_components=2, noise=0.5, scale_user=1.0, progress=False)
    with pytest.warns(DataWarning, match=rf"^{said} \(point\)."):
        found = compare({"point": fit, "other": other}, wrong)
    assert [said in line for line in found.answers()] == [False, False, True, False]


def test_wrong_input_is_one_clear_line(comparison) -> None:
    fit, test = comparison.fits["point"], comparison.test
    with pytest.raises(TypeError, match="Expected a mapping from names to fits, got list"):
        compare([fit], test)
    with pytest.raises(TypeError, match="Expected a mapping"):
        compare({}, test)
    with pytest.raises(ValueError, match=r"Expected names that differ as text, got \[1, '1'\]"):
        compare({1: fit, "1": fit}, test)
    with pytest.raises(TypeError, match="Expected at least one fit, got only int"):
        compare({"x": 3}, test)
    with pytest.raises(TypeError, match="Expected Ratings to test toy_ratings on, got Views"):
        compare({"x": fit}, fakes.views_set())
    with pytest.raises(
        TypeError, match="on, got Counts, whose zeros are not listed: bf.compare ranks"
    ):
        compare({"x": fit}, Counts(np.eye(3)))


def test_predictions_made_elsewhere_stand_in_the_same_table(comparison, tmp_path) -> None:
    fit, test = comparison.fits["point"], comparison.test
    mine = fit.predict(test).mean
    both = compare({"mine": mine, "point": fit, "zero": np.zeros(len(test)).tolist()}, test)
    assert both.table.index.tolist() == ["point", "mine", "zero"]
    same = ["RMSE", "MAE"]
    assert both.table.loc["mine", same].tolist() == both.table.loc["point", same].tolist()
    assert both.table.loc["zero", "RMSE"] == pytest.approx(np.sqrt(np.mean(test.value**2)))
    assert np.isnan(both.table.loc["mine", "covers 90 %"])
    assert both.table.loc["mine", "verdict"] == "made elsewhere"
    assert both.differences.loc[("mine", "RMSE"), "difference"] == 0
    assert any(line.startswith("zero against point: RMSE +") for line in both.sentences())
    page = both.to_html(tmp_path / "r.html").read_text(encoding="utf-8")
    assert '<th scope="col">mine</th>' in page
    assert len(both.by_activity.loc["zero"]) == len(both.by_activity.loc["point"])


def test_levels_of_predictions_made_elsewhere_are_the_nearest(ordinal) -> None:
    name, fit = next(iter(ordinal.fits.items()))
    test = ordinal.test
    both = compare({name: fit, "mine": test.value + 0.4}, test)
    row = both.table.loc["mine"]
    assert row["zero-one"] == row["MAE of level"] == row["NMAE"] == 0
    assert row["RMSE"] == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("mine", "error", "message"),
    [
        ([1.0, 2.0], ValueError, r"finite predictions as 'mine', one per row .*got \(2,\)"),
        ("file.csv", TypeError, "Expected a fit, or numbers .* as 'mine', got str"),
    ],
)
def test_predictions_that_do_not_fit_are_refused(comparison, mine, error, message) -> None:
    with pytest.raises(error, match=message):
        compare({"point": comparison.fits["point"], "mine": mine}, comparison.test)


def beside(gap):
    """Losses of 100 users, and others whose mean difference is `gap` standard errors."""
    rng = np.random.default_rng(0)
    away = rng.normal(size=100)
    away = (away - away.mean()) / away.std(ddof=1)  # a standard error of 0.1
    first = rng.random(100)
    rest = {"weights": np.ones(100), "cluster": np.arange(100)}
    return (
        SimpleNamespace(losses={"MAE": first + away + 0.1 * gap}, **rest),
        SimpleNamespace(losses={"MAE": first}, **rest),
    )


@pytest.mark.parametrize(
    ("gap", "worse"), [(-3, False), (0, False), (1.5, False), (1.99, False), (2.01, True)]
)
def test_a_fit_is_worse_from_two_standard_errors_of_the_difference(gap, worse) -> None:
    one, best = beside(gap)
    assert paired_difference(one, best)["MAE"] == pytest.approx((0.1 * gap, 0.1))
    assert clearly_worse(one, best, "MAE") == worse


@pytest.mark.parametrize(("inside", "worse"), [(89, False), (83, False), (82, True)])
def test_a_coverage_is_worse_if_it_is_off_by_two_of_its_errors(inside, worse) -> None:
    """Beside one of exactly 90 %: 82 of 100 are off by .08, whose errors are .039 and, paired, .027."""

    def covers(count):
        hits = np.arange(100) < count
        error = hits.std(ddof=1) / 10
        return SimpleNamespace(
            inside=lambda level: hits, noise=lambda level: error, cluster=np.arange(100)
        )

    assert clearly_worse(covers(inside), covers(90), "covers 90 %") == worse
