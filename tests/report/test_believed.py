"""Which fit is believed: stacking weights against another optimiser, and the bootstrap against a formula."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import minimize

from bayesfac.report.believed import believed, bootstrap, stacking


def made(score, cluster, weights=None):
    weights = np.ones(len(score)) if weights is None else weights
    return SimpleNamespace(losses={"log score": -score}, cluster=cluster, weights=weights)


def test_stacking_weights_are_those_of_another_optimiser():
    rng = np.random.default_rng(0)
    each = rng.normal(size=(4, 300)) + np.array([[0.0], [0.2], [-0.3], [-3.0]])
    count = rng.integers(1, 4, 300)

    def cost(z):
        w = np.exp(z) / np.exp(z).sum()
        return -np.average(np.log(w @ np.exp(each)), weights=count)

    ours = stacking(each, count)
    other = minimize(cost, np.zeros(4), tol=1e-12)
    assert ours.sum() == pytest.approx(1) and (ours >= 0).all()
    assert -np.average(np.log(ours @ np.exp(each)), weights=count) <= other.fun + 1e-6
    np.testing.assert_allclose(ours, np.exp(other.x) / np.exp(other.x).sum(), atol=2e-3)


def test_the_same_fit_twice_is_no_better_than_once():
    rng = np.random.default_rng(1)
    one, two = rng.normal(size=(2, 200))
    alone, double = stacking([one, two]), stacking([one, one, two])
    assert double[:2].sum() == pytest.approx(alone[0], abs=1e-3)


def test_the_bootstrap_has_the_standard_error_of_clusters():
    """Of a mean over clusters of one size its sd is that of the sample, over the root of one more."""
    rng = np.random.default_rng(2)
    sums, n = rng.normal(size=(1, 400)), 400
    drawn = bootstrap(sums, np.ones(n))
    assert drawn.mean() == pytest.approx(sums.sum(), abs=4 * np.sqrt(n / 4000))
    assert drawn.std() == pytest.approx(np.sqrt(n / (n + 1) * n) * sums.std(), rel=0.05)


def test_a_table_says_which_fit_is_believed():
    rng = np.random.default_rng(3)
    base, cluster = rng.normal(size=600), np.arange(600) // 3
    fits = {
        "worse": made(base - 0.5, cluster),
        "best": made(base, cluster),
        "level": made(base + 0.01 * rng.normal(size=600) - 0.0005, cluster),
        "elsewhere": SimpleNamespace(losses={"RMSE": base**2}),
    }
    table = believed(fits)
    assert set(table.index) == {"best", "level", "worse"} and table.index[-1] == "worse"
    worse = table.loc["worse"]
    np.testing.assert_allclose(worse["difference"], -300, atol=2)
    assert worse["best"] == 0 and worse["stacking weight"] < 1e-3 and worse["95 %"] < 0
    assert table["best"][:2].sum() == pytest.approx(1)
    assert table["difference"].iloc[0] == 0 and table["sd of difference"].iloc[0] == 0


def test_counts_weigh_the_cells():
    score = np.log([[0.9, 0.1], [0.1, 0.9]])
    many = np.array([9.0, 1.0])
    fits = {str(k): made(row, np.array([0, 1]), many) for k, row in enumerate(score)}
    table = believed(fits)
    assert table["elpd"]["0"] == pytest.approx(9 * np.log(0.9) + np.log(0.1))
    assert table["stacking weight"]["0"] == pytest.approx(1, abs=1e-3)


def test_one_user_does_not_tell_which_fit_is_best():
    one = SimpleNamespace(
        losses={"log score": np.ones(4)}, weights=np.ones(4), cluster=np.zeros(4, int)
    )
    assert believed({"a": one, "b": one})[["sd of difference", "best"]].isna().all(axis=None)


def test_a_fit_that_thinks_a_cell_impossible_is_infinitely_far_away():
    """Without warnings: its interval ends at minus infinity, and the weights come from the other cells."""
    finite, cluster = np.log([0.5, 0.4, 0.3, 0.2]), np.arange(4)
    some, none = finite + [0, 0, 1, -np.inf], finite + [-np.inf, 0, 0, -np.inf]
    table = believed({"some": made(some, cluster), "fine": made(finite, cluster)})
    assert table.index[0] == "fine" and table["best"].tolist() == [1, 0]
    assert (table.loc["some", ["difference", "5 %", "95 %"]] == -np.inf).all()
    np.testing.assert_allclose(stacking([some, none]), stacking([some[:3], none[:3]]))
    assert np.isnan(stacking([[-np.inf], [-np.inf]])).all()


def test_users_who_all_have_one_score_a_cell_leave_nothing_to_chance():
    """Whatever weights the users get, the sum of all cells is known."""
    sizes = np.array([3.0, 5.0, 2.0, 7.0])
    drawn = bootstrap(np.array([-2 * sizes, -sizes]), sizes)
    np.testing.assert_allclose(drawn[0], -34)
    np.testing.assert_allclose(drawn[1], -17)
