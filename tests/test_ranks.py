"""Ranks and their tests against scipy, brute force, Demsar's tables and a thesis that prints ranks."""

import io

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from matplotlib.figure import Figure
from scipy.stats import friedmanchisquare, norm

import bayesfac as bf
from bayesfac.ranks import cd_diagram, critical_difference, friedman, groups, nemenyi, ranks
from benchmarks.common.printed import (
    METHODS,
    METHODS_6,
    SETS,
    SETS_6,
    TABLE_5_11,
    TABLE_6_2,
    TABLE_6_3,
    TABLES_5,
    numbers,
)  # fmt: skip

MISPRINTED = {  # of the 72 rows of tables 5.9 and 5.10, those whose ranks are not those of their means
    "Hamming loss": "human",  # sums to 27: LLSF, the seventh, has 6
    "subset accuracy": "rcv1-5",  # LIFT 0.174 and LLSF 0.152 have each other's rank
    "macro F1": "cal500",  # LIFT 0.049 has 7 and SSJDR-MLL 0.041 has 5: each other's rank
}
FROM_PRINTED_RANKS = {
    "accuracy": 7.384, "subset accuracy": 6.816, "example F1": 9.064, "macro F1": 5.433,
    "micro F1": 7.422,
}  # fmt: skip
FROM_MEANS = FROM_PRINTED_RANKS | {
    "Hamming loss": 8.393, "subset accuracy": 6.938, "macro F1": 6.039,
}  # fmt: skip


def printed(metric):
    """Ranks from the printed means, and those printed beside them."""
    means, beside = numbers(TABLES_5[metric])
    own = ranks(pd.DataFrame(means, SETS, METHODS), higher=metric != "Hamming loss")
    return own, pd.DataFrame(beside, SETS, METHODS)


def table_6(metric):
    return ranks(pd.DataFrame(numbers(TABLE_6_2[metric])[0], SETS_6, METHODS_6))


def by_the_book(mean, N):
    """F_F of mean ranks, written out once more."""
    K = len(mean)
    chi2 = 12 * N / (K * (K + 1)) * (np.sum(mean**2) - K * (K + 1) ** 2 / 4)
    return (N - 1) * chi2 / (N * (K - 1) - chi2)


# ---------------------------------------------------------------------- the thesis


@pytest.mark.parametrize("metric", TABLES_5)
def test_printed_ranks_are_those_of_the_printed_means_but_for_three_rows(metric):
    own, beside = printed(metric)
    wrong = list(own.index[(own != beside).any(axis=1)])
    assert wrong == ([MISPRINTED[metric]] if metric in MISPRINTED else [])


@pytest.mark.parametrize("metric", TABLES_5)
def test_f_of_table_5_11_follows_from_no_ranks_that_are_printed(metric):
    """Neither from the ranks nor from the means beside them, for any metric. That all methods are alike is
    rejected all the same, by more than is printed."""
    own, beside = printed(metric)
    assert friedman(own).F == pytest.approx(FROM_MEANS[metric], abs=5e-4)
    if metric in FROM_PRINTED_RANKS:
        assert friedman(beside).F == pytest.approx(FROM_PRINTED_RANKS[metric], abs=5e-4)
    else:
        with pytest.raises(ValueError, match="7 methods, which sum to 28, got 27 on 'human'"):
            friedman(beside)
        assert by_the_book(beside.to_numpy().mean(0), 12) == pytest.approx(7.488, abs=5e-4)
    assert friedman(own).F > TABLE_5_11[metric] + 1
    assert friedman(own).critical == pytest.approx(2.239, abs=5e-4)
    assert TABLE_5_11[metric] > friedman(own).critical


@pytest.mark.parametrize("metric", TABLE_6_2)
def test_f_of_table_6_3_follows_from_mean_ranks_of_three_decimals(metric):
    own = table_6(metric)
    mean = own.to_numpy().mean(0)
    assert by_the_book(mean.round(3), 11) == pytest.approx(TABLE_6_3[metric], abs=6e-4)
    assert friedman(own).F == pytest.approx(by_the_book(mean, 11), rel=1e-12)
    assert friedman(own).F == pytest.approx(TABLE_6_3[metric], abs=0.015)
    assert friedman(own).critical == pytest.approx(2.143, abs=5e-4)


def test_critical_differences_are_those_printed():
    assert round(critical_difference(7, 12), 3) == 2.601
    assert round(critical_difference(8, 11), 3) == 3.166
    gap = np.sqrt(7 * 8 / (6 * 12))
    assert critical_difference(7, 12) == pytest.approx(2.949 * gap, rel=1e-12)


def test_who_differs_in_table_6_2():
    bars = [["GroPLE", "FAiE", "MLSF"], ["FAiE", "MLSF", "BSVM", "CPLST", "PLST", "LEML"],
            ["BSVM", "CPLST", "PLST", "LEML", "CSSP"]]  # fmt: skip
    assert groups(table_6("accuracy")) == bars


# ---------------------------------------------------------------------- ranks


def test_ties_share_the_mean_of_their_places():
    table = [[0.3, 0.1, 0.3, 0.2], [1.0, 1.0, 1.0, 1.0]]
    assert ranks(table).to_numpy().tolist() == [[1.5, 4, 1.5, 3], [2.5] * 4]
    assert ranks(table, higher=False).to_numpy().tolist() == [[3.5, 1, 3.5, 2], [2.5] * 4]


def test_infinite_scores_are_best_or_worst():
    table = [[np.inf, 1.0, -np.inf]]
    assert ranks(table).to_numpy().tolist() == [[1, 2, 3]]
    assert ranks(table, higher=False).to_numpy().tolist() == [[3, 2, 1]]


def test_labels_survive_and_kinds_of_tables_agree():
    frame = pd.DataFrame({"b": [1, 2], "a": [3, 1]}, index=["x", "y"])
    found = ranks(frame)
    assert list(found.columns) == ["b", "a"] and list(found.index) == ["x", "y"]
    fixed = np.asfortranarray(frame.to_numpy(float))
    fixed.setflags(write=False)
    for table in (fixed, frame.to_numpy().tolist(), frame.astype("Int64"), frame > 1):
        assert ranks(table).shape == (2, 2)
    assert (ranks(fixed).to_numpy() == found.to_numpy()).all()
    assert list(ranks(frame.astype("Int64")).columns) == ["b", "a"]


# ---------------------------------------------------------------------- tests


@pytest.mark.parametrize("shape", [(3, 4), (5, 4), (30, 9)])
def test_friedman_without_ties_is_scipys(shape):
    scores = np.random.default_rng(shape[0]).random(shape)
    found = friedman(ranks(scores))
    assert found.chi2 == pytest.approx(friedmanchisquare(*scores.T).statistic)
    assert found.F == pytest.approx(by_the_book(ranks(scores).to_numpy().mean(0), shape[0]))


def test_the_p_value_of_f_is_nearly_uniform_where_methods_are_alike():
    rng = np.random.default_rng(0)
    p = np.array([friedman(ranks(rng.random((12, 7)))).p for _ in range(400)])
    low, high = 0.05 - 3 * 0.011, 0.05 + 3 * 0.011  # three standard errors of a share of 400
    assert low < np.mean(p < 0.05) < high


def test_all_alike_and_all_agreed():
    found = friedman(np.full((4, 5), 3.0))
    assert (found.chi2, found.F, found.p) == (0, 0, 1)
    found = friedman([[1, 2, 3]] * 6)
    assert found.chi2 == 12 and found.F == np.inf and found.p == 0


def test_alpha_moves_the_critical_value():
    given = [[1, 2, 3], [1, 3, 2], [2, 1, 3]]
    assert friedman(given, 0.01).critical > friedman(given, 0.05).critical
    assert friedman(given, 0.01).F == friedman(given, 0.05).F


@pytest.mark.parametrize(
    ("alpha", "table"),
    [
        (0.05, [1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164]),
        (0.10, [1.645, 2.052, 2.291, 2.459, 2.589, 2.693, 2.780, 2.855, 2.920]),
    ],
)
def test_q_is_demsars_table_5(alpha, table):
    for K, q in enumerate(table, 2):
        found = critical_difference(K, 1, alpha) / np.sqrt(K * (K + 1) / 6)
        assert found == pytest.approx(q, abs=1e-9)


def test_p_of_pairs_is_alpha_where_ranks_differ_by_cd():
    """Seven methods, twelve data sets: CD is 2.6008 with q as printed, 2.6002 with q in full."""
    mean = np.array([1.3, 2, 3, 3.9, 4.8, 6, 7])
    p = nemenyi(pd.DataFrame(np.tile(mean, (12, 1)), columns=list("abcdefg")))
    assert (p.to_numpy() == p.to_numpy().T).all() and (np.diag(p) == 1).all()
    assert p.loc["a", "c"] > p.loc["a", "d"] > p.loc["a", "e"]
    assert 0.05 < p.loc["a", "d"] < 0.0501  # they differ by 2.6


def test_two_methods_are_a_test_of_signs():
    """K = 2: the normal test of 7 wins in 9, z = (7 - 2) / sqrt(9)."""
    p = nemenyi([[1, 2]] * 7 + [[2, 1]] * 2).iloc[0, 1]
    assert p == pytest.approx(2 * norm.sf(5 / 3), abs=1e-6)


# ---------------------------------------------------------------------- groups and the diagram


def brute_force(mean, N):
    """Every set of neighbours that are less than CD apart, and is part of no other."""
    order, cd = np.argsort(mean, kind="stable"), critical_difference(len(mean), N)
    spread = np.sort(mean)
    runs = [
        (i, j) for i in range(len(mean)) for j in range(i + 1, len(mean)) if spread[j] - spread[i] < cd
    ]  # fmt: skip
    largest = [r for r in runs if not any(o[0] <= r[0] and r[1] <= o[1] and o != r for o in runs)]
    return [order[i : j + 1].tolist() for i, j in largest]


@pytest.mark.parametrize("seed", range(5))
def test_groups_are_the_largest_ones(seed):
    rng = np.random.default_rng(seed)
    table = ranks(rng.random((40, 9)) + np.linspace(0, rng.random() * 2, 9))
    assert groups(table) == brute_force(table.to_numpy().mean(0), 40)


def test_a_difference_of_exactly_cd_is_one():
    """Two methods, 625 data sets: CD = 1.960 / 25 = 49 / 625, which is 337 wins against 288."""
    assert critical_difference(2, 625) == pytest.approx(49 / 625, rel=1e-12)
    assert groups([[1, 2]] * 337 + [[2, 1]] * 288) == []
    assert groups([[1, 2]] * 336 + [[2, 1]] * 289) == [[0, 1]]


NAMES = ["MLC-HMF", "a_b_c", "cost $5 or $6", "long " * 12, r"$\frac{$", "~x^2", "ML-kNN"]


def drawn(table, **given):
    """The diagram, its texts and where these are once it is drawn."""
    ax = cd_diagram(table, **given)
    ax.figure.savefig(io.BytesIO(), format="png")
    texts = [*ax.texts, ax._left_title]
    return ax, {text.get_text(): text.get_window_extent() for text in texts if text.get_text()}


@pytest.mark.parametrize("K", [2, 3, 7])
@pytest.mark.parametrize("spread", [0, 0.5, 3])
def test_no_two_texts_of_the_diagram_overlap_and_none_is_cut(K, spread):
    scores = np.random.default_rng(K).random((12, K)) + spread * np.arange(K)
    ax, boxes = drawn(ranks(pd.DataFrame(scores, columns=NAMES[:K])), title="Micro F1 of $x_i$")
    found = list(boxes.values())
    assert len(found) == 2 * K + 3, "ranks, names, CD, what the axis is, the title"
    assert not any(a.overlaps(b) for i, a in enumerate(found) for b in found[i + 1 :])
    page = ax.figure.bbox
    assert all(b.x0 >= 0 and b.y0 >= 0 and b.x1 <= page.x1 and b.y1 <= page.y1 for b in found)


def test_many_methods_share_the_axis_without_overlap():
    scores = np.random.default_rng(3).random((12, 45))
    _, boxes = drawn(ranks(scores))
    found = list(boxes.values())
    assert not any(a.overlaps(b) for i, a in enumerate(found) for b in found[i + 1 :])


def test_names_are_no_mathematics():
    _, boxes = drawn(ranks(pd.DataFrame(np.eye(7), columns=NAMES)), title="$\\sqrt_$")
    said = " ".join(boxes)
    assert all(name in said for name in (r"$\frac{$", "cost $5 or $6", "a_b_c", r"$\sqrt_$"))
    assert "long long long long long long…" in said.replace(" …", "…")


def bars_of(ax):
    return [line for line in ax.lines if line.get_linewidth() == 3.5]


def test_bars_are_the_groups_and_lie_apart():
    table = table_6("accuracy")
    ax, _ = drawn(table)
    bars = bars_of(ax)
    mean = table.mean()
    for bar, group in zip(bars, groups(table), strict=True):
        low, high = bar.get_xdata()
        covered = [m for m in table.columns if low <= mean[m] <= high]
        assert sorted(covered) == sorted(group)
    assert len({bar.get_ydata()[0] for bar in bars}) == 2, "the first and the third share a level"
    for i, one in enumerate(bars):
        for other in bars[i + 1 :]:
            if one.get_ydata()[0] == other.get_ydata()[0]:
                assert one.get_xdata()[1] < other.get_xdata()[0]


def test_where_all_differ_there_is_no_bar_and_a_long_cd_is_said():
    ax, _ = drawn([[1, 2, 3]] * 50)
    assert not bars_of(ax)
    ax, boxes = drawn([[1, 2, 3], [3, 2, 1]])
    assert len(bars_of(ax)) == 1
    assert any("longer than the axis" in text for text in boxes)


def test_the_diagram_draws_where_it_is_told_and_pyplot_holds_nothing():
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    left, right = Figure(figsize=(14, 4)).subplots(1, 2)
    assert cd_diagram([[1, 2, 3]] * 4, ax=right, title="x") is right
    assert right.lines and not left.lines
    cd_diagram([[1, 2, 3]] * 4)
    assert plt.get_fignums() == before


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: ranks([[1.0, np.nan]]), ValueError, "scores of every method .* got none of 1 on 0"),
        (lambda: ranks([1.0, 2.0]), ValueError, r"one data set and two methods, got shape \(2, 1\)"),
        (lambda: ranks(np.zeros((0, 3))), ValueError, r"one data set and two methods, got shape \(0, 3\)"),
        (lambda: ranks([["a", "b"]]), TypeError, "scores as numbers, data sets x methods"),
        (lambda: ranks(sp.eye(3)), TypeError, "scores as numbers"),
        (lambda: ranks(np.zeros((2, 2, 2))), TypeError, "scores as numbers"),
        (lambda: friedman([[0.9, 0.8]] * 3), ValueError, "2 methods, which sum to 3, got 1.7 on 0"),
        (lambda: friedman([[1.0, 2.0]]), ValueError, "at least two data sets, got 1"),
        (lambda: friedman([[1, np.inf]] * 2), ValueError, "sum to 3, got inf"),
        (lambda: friedman([[1, 2]] * 2, alpha=5), ValueError, "alpha between 0 and 1, got 5"),
        (lambda: friedman([[1, 2]] * 2, alpha=np.nan), ValueError, "alpha between 0 and 1, got nan"),
        (lambda: groups([[1, 2]] * 2, alpha=True), ValueError, "alpha between 0 and 1, got True"),
        (lambda: nemenyi([[1, 1]] * 2), ValueError, "sum to 3, got 2"),
        (lambda: critical_difference(1, 5), ValueError, "K to be a whole number from 2 on, got 1"),
        (lambda: critical_difference(3, 0), ValueError, "N to be a whole number from 1 on, got 0"),
        (lambda: critical_difference(3.0, 5), ValueError, "K to be a whole number from 2 on, got 3.0"),
        (lambda: critical_difference(True, 5), ValueError, "K to be a whole number from 2 on, got True"),
        (lambda: critical_difference(3, 5, "5%"), ValueError, "alpha between 0 and 1, got '5%'"),
        (lambda: cd_diagram([[1, 2]] * 2, alpha=0), ValueError, "alpha between 0 and 1, got 0"),
        (lambda: cd_diagram([[1]]), ValueError, "two methods"),
    ],
)  # fmt: skip
def test_what_is_refused(call, error, said):
    with pytest.raises(error, match=f"^Expected .*{said}"):
        call()


def test_a_name_that_is_missing_is_said_with_both_labels():
    table = pd.DataFrame({"a": [1.0, 2.0], "b": [1.0, None]}, index=["birds", "bibtex"])
    with pytest.raises(
        ValueError, match="got none of 'b' on 'bibtex': leave out the method or the data set"
    ):
        ranks(table)


def test_the_module_stands_at_the_front_door():
    assert bf.ranks.friedman is friedman
