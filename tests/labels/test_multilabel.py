"""Measures of several labels against scikit-learn, brute force and values worked by hand."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import calibration
from sklearn import metrics as sk

from bayesfac.labels import multilabel as ml

DECIDED = [
    ml.hamming_loss, ml.subset_accuracy, ml.accuracy, ml.example_f1, ml.macro_f1, ml.micro_f1,
]  # fmt: skip
RANKINGS = [ml.ranking_loss, ml.average_precision, ml.coverage_error, ml.one_error]
OF_CELLS = [ml.brier, ml.log_loss, ml.expected_calibration_error]
MEASURES = DECIDED + RANKINGS + OF_CELLS
SHAPES = [(40, 6), (1, 7), (25, 2)]


def tables(n=40, labels=6, seed=0):
    """Truth with rows of no and of all labels, a label nobody has; decisions; probabilities with ties."""
    rng = np.random.default_rng(seed)
    Y, predicted = (rng.random((n, labels)) < share for share in (0.4, 0.3))
    if n > 4:
        Y[:2], Y[2:4], predicted[0], predicted[4] = False, True, False, False
        Y[:, 0] = predicted[:, 0] = False
    return Y.astype(int), predicted.astype(int), rng.integers(1, 8, (n, labels)) / 8


def given_to(measure, predicted, probability):
    return predicted if measure in DECIDED else probability


# -- decisions ----------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("empty", [0.0, 1.0])
def test_decisions_agree_with_scikit_learn(shape, empty):
    Y, predicted, _ = tables(*shape)
    assert ml.hamming_loss(Y, predicted) == pytest.approx(sk.hamming_loss(Y, predicted))
    assert ml.subset_accuracy(Y, predicted) == pytest.approx(sk.accuracy_score(Y, predicted))
    jaccard = sk.jaccard_score(Y, predicted, average="samples", zero_division=empty)
    assert ml.accuracy(Y, predicted, empty) == pytest.approx(jaccard)
    for ours, average in [
        (ml.example_f1, "samples"), (ml.macro_f1, "macro"), (ml.micro_f1, "micro"),
    ]:  # fmt: skip
        theirs = sk.f1_score(Y, predicted, average=average, zero_division=empty)
        assert ours(Y, predicted, empty) == pytest.approx(theirs)


def test_decisions_by_hand():
    Y = [[1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    predicted = [[1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    assert ml.hamming_loss(Y, predicted) == pytest.approx(2 / 12)
    assert ml.subset_accuracy(Y, predicted) == pytest.approx(2 / 3)
    assert ml.accuracy(Y, predicted) == pytest.approx((1 / 3 + 1 + 1) / 3)
    assert ml.accuracy(Y, predicted, empty=0.0) == pytest.approx((1 / 3 + 1) / 3)
    assert ml.example_f1(Y, predicted) == pytest.approx((2 / 4 + 1 + 1) / 3)
    assert ml.macro_f1(Y, predicted) == pytest.approx((1 + 2 / 3 + 0 + 1) / 4)
    assert ml.macro_f1(Y, predicted, empty=0.5) == pytest.approx((1 + 2 / 3 + 0 + 0.5) / 4)
    assert ml.micro_f1(Y, predicted) == pytest.approx(4 / 6)


@pytest.mark.parametrize("measure", DECIDED[2:])
def test_nothing_true_and_nothing_predicted_is_perfect_unless_said(measure):
    nothing = np.zeros((3, 2))
    assert measure(nothing, nothing) == 1
    assert measure(nothing, nothing, empty=0.0) == 0
    assert measure(nothing, [[1, 1]] * 3) == 0, "a wrong prediction is no empty one"


def test_one_label_is_a_binary_task():
    Y, predicted = np.array([[1], [0], [1], [1]]), np.array([[1], [1], [0], [1]])
    f1 = sk.f1_score(Y[:, 0], predicted[:, 0])
    assert ml.macro_f1(Y, predicted) == ml.micro_f1(Y, predicted) == pytest.approx(f1)
    assert ml.accuracy(Y, predicted) == ml.example_f1(Y, predicted) == 0.5
    assert ml.subset_accuracy(Y, predicted) == 1 - ml.hamming_loss(Y, predicted) == 0.5


# -- rankings -----------------------------------------------------------------------------------
def told(Y):
    """Rows with some labels but not all."""
    return (Y.sum(1) > 0) & (Y.sum(1) < Y.shape[1])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(5))
def test_rankings_agree_with_scikit_learn_but_for_rows_without_an_order(shape, seed):
    Y, _, score = tables(*shape, seed=seed)
    if shape[0] == 1:
        Y[0, :2] = 0, 1
    kept = told(Y)
    assert kept.mean() < 1 or shape[0] == 1, "nothing to tell the conventions apart"
    loss, precision = sk.label_ranking_loss, sk.label_ranking_average_precision_score
    assert ml.ranking_loss(Y, score) == pytest.approx(loss(Y[kept], score[kept]))
    assert ml.average_precision(Y, score) == pytest.approx(precision(Y[kept], score[kept]))
    assert ml.coverage_error(Y, score) == pytest.approx(sk.coverage_error(Y[kept], score[kept]) - 1)
    # over all rows theirs counts the others as perfect
    share = kept.mean()
    assert loss(Y, score) == pytest.approx(share * ml.ranking_loss(Y, score))
    expected = share * ml.average_precision(Y, score) + 1 - share
    assert precision(Y, score) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(3))
def test_rankings_are_their_definitions_with_ties_at_worst(seed):
    Y, _, score = tables(seed=seed)
    kept = told(Y)
    loss, precision, steps, wrong = [], [], [], []
    for y, s in zip(Y[kept] == 1, score[kept], strict=True):
        loss.append(np.mean([a <= b for a in s[y] for b in s[~y]]))
        precision.append(np.mean([(s[y] >= a).sum() / (s >= a).sum() for a in s[y]]))
        steps.append(max((s >= a).sum() for a in s[y]) - 1)
        wrong.append(not y[s == s.max()].all())
    expected = [loss, precision, steps, wrong]
    for measure, rows in zip(RANKINGS, expected, strict=True):
        assert measure(Y, score) == pytest.approx(np.mean(rows))


def test_rankings_by_hand():
    Y, score = [[1, 0, 1, 0], [0, 0, 1, 0]], [[0.9, 0.8, 0.7, 0.1], [0.1, 0.5, 0.5, 0.2]]
    assert ml.ranking_loss(Y, score) == pytest.approx((1 / 4 + 1 / 3) / 2)
    assert ml.average_precision(Y, score) == pytest.approx(((1 + 2 / 3) / 2 + 1 / 2) / 2)
    assert ml.coverage_error(Y, score) == pytest.approx((2 + 1) / 2)
    assert ml.one_error(Y, score) == pytest.approx((0 + 1) / 2)


def test_one_score_for_all_is_the_worst_ranking():
    Y, flat = [[1, 0, 0, 1]], [[7.0] * 4]
    assert [measure(Y, flat) for measure in RANKINGS] == [1, 0.5, 3, 1]


def test_scores_may_be_any_numbers():
    Y, _, score = tables()
    for measure in RANKINGS:
        assert measure(Y, np.exp(30 * score) - 1e9) == measure(Y, score)


# -- probabilities ------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [*SHAPES, (9, 1)])
def test_scores_of_probabilities_agree_with_scikit_learn(shape):
    Y, _, p = tables(*shape)
    assert ml.brier(Y, p) == pytest.approx(np.mean((Y - p) ** 2))
    assert ml.brier(Y, p) == pytest.approx(sk.brier_score_loss(Y.ravel(), p.ravel(), pos_label=1))
    assert ml.log_loss(Y, p) == pytest.approx(sk.log_loss(Y.ravel(), p.ravel(), labels=[0, 1]))


def test_what_was_held_impossible_costs_infinitely_or_what_the_clip_says():
    Y, p = np.array([[1, 0, 1]]), np.array([[0.0, 0.0, 1.0]])
    assert ml.log_loss(Y, p) == np.inf
    theirs = sk.log_loss(Y.ravel(), p.ravel())
    assert ml.log_loss(Y, p, clip=np.finfo(float).eps) == pytest.approx(theirs)
    assert str(ml.log_loss([[1, 0]], [[1, 0]])) == "0.0", "no minus sign"


@pytest.mark.parametrize("bins", [1, 4, 10])
def test_reliability_agrees_with_scikit_learn_on_edges_too(bins):
    Y, _, p = tables()
    p[0], p[1, :3] = 0, 1
    table = ml.reliability(Y, p, bins)
    observed, predicted = sk_curve(Y, p, bins)
    seen = table[table["count"] > 0]
    np.testing.assert_allclose(seen["observed"], observed)
    np.testing.assert_allclose(seen["predicted"], predicted)
    assert table["count"].sum() == Y.size and len(table) == bins
    assert table["observed"].isna().equals(table["count"] == 0)


def sk_curve(Y, p, bins):
    return calibration.calibration_curve(Y.ravel(), p.ravel(), n_bins=bins)


def test_calibration_error_by_hand_and_of_calibrated_probabilities():
    Y, p = [[1, 0, 0, 1]], [[0.1, 0.1, 0.9, 0.9]]
    assert ml.expected_calibration_error(Y, p) == pytest.approx(0.4)
    assert ml.expected_calibration_error(Y, Y) == 0
    rng = np.random.default_rng(1)
    p = rng.random((20_000, 5))
    Y = rng.random(p.shape) < p
    assert ml.expected_calibration_error(Y, p) < 0.01  # ten bins, each with se 0.005 at most
    assert ml.expected_calibration_error(Y, p**3) > 0.15


# -- abstaining ---------------------------------------------------------------------------------
def test_abstaining_leaves_out_the_rows_nearest_to_a_half():
    Y = np.eye(5, dtype=int)
    p = np.array([[0.5], [0.9], [0.4], [0.05], [0.8]]) * np.ones(5)
    certain = [3, 1, 4, 2, 0]
    for share, n in [(0, 5), (0.2, 4), (0.4, 3), (0.55, 2), (0.99, 1)]:
        kept = sorted(certain[:n])
        assert ml.abstain(Y, p, share, ml.brier) == pytest.approx(ml.brier(Y[kept], p[kept]))
    rows = ml.abstain_curve(Y, p, (0.0, 0.4, 0.8), lambda Y, p: len(Y))
    assert rows.tolist() == [5, 3, 1]
    in_place = ml.abstain(Y, p, 0.4, lambda Y, p: (np.diff(Y.argmax(1)) > 0).all())
    assert in_place, "the rows kept stay in their order"


def test_the_later_of_equally_certain_rows_go_first():
    Y = [[1], [0], [1], [0]]
    p = [[0.7], [0.3], [0.7], [0.3]]
    seen = []
    ml.abstain(Y, p, 0.5, lambda Y, p: seen.append((Y.tolist(), p.tolist())) or 0.0)
    assert seen == [([[True], [False]], [[0.7], [0.3]])]


def test_abstaining_pays_where_the_probabilities_are_right():
    rng = np.random.default_rng(2)
    p = rng.beta(0.4 + 3 * rng.random((4000, 1)), 1, (4000, 4))
    Y = rng.random(p.shape) < p
    curve = ml.abstain_curve(Y, p, [0, 0.2, 0.4, 0.6], lambda Y, p: ml.hamming_loss(Y, p > 0.5))
    assert (np.diff(curve) < -0.01).all()


# -- all of them --------------------------------------------------------------------------------
def test_scores_are_every_measure_that_applies():
    Y, predicted, p = tables()
    found = ml.scores(Y, predicted, probability=p)
    assert list(found) == [f.__name__ for f in DECIDED + OF_CELLS + RANKINGS]
    for measure in MEASURES:
        assert found[measure.__name__] == measure(Y, given_to(measure, predicted, p))
    assert all(type(value) is float for value in found.values())
    assert ml.scores(Y, predicted, empty=0.0)["macro_f1"] == ml.macro_f1(Y, predicted, 0.0)
    flipped = ml.scores(Y, score=-p, probability=p)
    assert flipped["ranking_loss"] == ml.ranking_loss(Y, -p)
    assert flipped["brier"] == ml.brier(Y, p)


@pytest.mark.parametrize("Y", [np.zeros((3, 2)), np.ones((3, 2)), np.array([[0], [1]])])
def test_without_a_row_to_rank_there_are_no_rankings(Y):
    assert list(ml.scores(Y, probability=Y)) == [f.__name__ for f in OF_CELLS]
    assert ml.scores(Y, score=Y) == {}
    with pytest.raises(ValueError, match="some labels but not all, got none"):
        ml.one_error(Y, Y)


# -- what may be given --------------------------------------------------------------------------
FORMS = {
    "bool": lambda a: a.astype(bool) if (a == a.astype(bool)).all() else a,
    "uint8": lambda a: a.astype(np.uint8) if (a == a.astype(np.uint8)).all() else a,
    "list": lambda a: a.tolist(),
    "fortran": np.asfortranarray,
    "strided": lambda a: np.repeat(np.repeat(a, 2, 0), 3, 1)[::2, ::3],
    "float32": lambda a: a.astype(np.float32),
    "csr": sp.csr_array,
    "coo matrix": sp.coo_matrix,
    "frame": lambda a: pd.DataFrame(a, index=[f"r{i}" for i in range(len(a))]),
    "nullable frame": lambda a: pd.DataFrame(a).convert_dtypes(),
    "sparse frame": lambda a: pd.DataFrame.sparse.from_spmatrix(sp.csr_matrix(a)),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("measure", MEASURES)
def test_any_form_of_a_table_goes(measure, form):
    Y, predicted, p = tables(300, 7)
    other = given_to(measure, predicted, p)
    expected = measure(Y, other)
    assert measure(FORMS[form](Y), FORMS[form](other)) == expected
    for table in (Y, other):
        table.flags.writeable = False
    assert measure(Y, other) == expected, "read only"


def test_small_integers_do_not_overflow():
    Y = np.ones((300, 300), np.uint8)
    P = Y.copy()
    P[:, 0] = 0
    assert ml.micro_f1(Y, P) == pytest.approx(2 * 299 / 599)
    assert ml.accuracy(Y, P) == pytest.approx(299 / 300)
    Y[:, -1] = 0
    assert ml.ranking_loss(Y, P) == pytest.approx((1 + 298 * 1) / 299)
    assert ml.coverage_error(Y, np.arange(300, dtype=np.uint16)[None].repeat(300, 0)) == 299


def frame(columns, index=(0, 1)):
    return pd.DataFrame([[1, 0], [0, 1]], columns=list(columns), index=list(index))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: ml.accuracy([[1, 0]], [[1]]), r"one shape, got Y \(1, 2\), predicted \(1, 1\)"),
        (lambda: ml.accuracy([1, 0], [1, 0]), r"Y as rows x labels, got shape \(2,\)"),
        (lambda: ml.accuracy([[1, 0]], [1, 0]), r"predicted as rows x labels, got shape \(2,\)"),
        (lambda: ml.brier(np.ones((0, 3)), np.ones((0, 3))), r"got shape \(0, 3\)"),
        (lambda: ml.brier(np.ones((3, 0)), np.ones((3, 0))), r"got shape \(3, 0\)"),
        (lambda: ml.brier([], []), r"Y as rows x labels, got shape \(0,\)"),
        (lambda: ml.micro_f1([[1, -1]], [[1, 0]]), "0 or 1 in Y, got -1.0 at row 0, label 1"),
        (lambda: ml.micro_f1([[1, 1]], [[1, -1]]), "0 or 1 in predicted, got -1.0 at row 0, label"),
        (lambda: ml.micro_f1([[1]], [[0.7]]), "0 or 1 in predicted, got 0.7 at row 0, label 0"),
        (lambda: ml.one_error([[1], [2]], [[1], [1]]), "0 or 1 in Y, got 2.0 at row 1, label 0"),
        (lambda: ml.one_error([[1, np.nan]], [[1, 0]]), "finite Y, got nan at row 0, label 1"),
        (lambda: ml.one_error([[1, 0]], [[1, np.nan]]), "finite score, got nan at row 0, label 1"),
        (lambda: ml.one_error([[1, 0]], [[1, -np.inf]]), "finite score, got -inf"),
        (lambda: ml.accuracy([[1, 0]], [[np.nan, 1]]), "finite predicted, got nan"),
        (lambda: ml.brier([[1, 0]], [[1, 1.5]]), r"within \[0, 1\], got 1.5 at row 0, label 1"),
        (lambda: ml.log_loss([[1, 0]], [[1, -0.1]]), r"within \[0, 1\], got -0.1"),
        (lambda: ml.scores([[1, 0]], probability=[[1, 2]]), r"within \[0, 1\], got 2.0"),
        (lambda: ml.scores([[1, 1]], score=[[1, 2, 3]]), "one shape"),
        (lambda: ml.scores([[1, 0]]), "predicted, score or probability, got none"),
        (lambda: ml.log_loss([[1]], [[1]], clip=0.5), r"clip within \[0, 0.5\), got 0.5"),
        (lambda: ml.reliability([[1]], [[1]], bins=0), "at least one bin, got 0"),
        (lambda: ml.reliability([[1]], [[1]], bins=2.5), "at least one bin, got 2.5"),
        (lambda: ml.accuracy([[1]], [[1]], empty=2), r"empty within \[0, 1\], got 2"),
        (lambda: ml.abstain([[1]], [[1]], 1.0, ml.brier), r"within \[0, 1\), got 1.0"),
        (lambda: ml.abstain_curve([[1]], [[1]], [0, -0.5], ml.brier), r"within \[0, 1\), got -0.5"),
        (lambda: ml.accuracy(frame("ab"), frame("ba")), "others in predicted"),
        (lambda: ml.one_error(frame("ab"), frame("ab", (1, 0))), "others in score"),
    ],
)
def test_bad_input_is_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()


@pytest.mark.parametrize("table", [[["a", "b"]], [[1, 0], [1]], [[1j, "x"]], {"a": 1}])
def test_what_are_no_numbers(table):
    with pytest.raises(TypeError, match="Expected numbers as score, rows x labels, got"):
        ml.ranking_loss([[1, 0]], table)


# -- properties ---------------------------------------------------------------------------------
@st.composite
def anything(draw):
    n, labels = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    Y, predicted = rng.integers(0, 2, (2, n, labels))
    p = rng.integers(0, draw(st.integers(1, 9)) + 1, (n, labels)) / 9
    return Y, predicted, p, rng.permutation(n), rng.permutation(labels)


@settings(max_examples=60, deadline=None)
@given(anything())
def test_measures_stay_in_range_and_do_not_care_for_order(tables):
    Y, predicted, p, rows, labels = tables
    found = ml.scores(Y, predicted, probability=p)
    mixed = ml.scores(
        *(table[rows][:, labels] for table in (Y, predicted)), probability=p[rows][:, labels]
    )
    assert found == pytest.approx(mixed)
    top = {"log_loss": np.inf, "coverage_error": Y.shape[1] - 1}
    for name, value in found.items():
        assert 0 <= value <= top.get(name, 1) + 1e-12, name
    assert found["accuracy"] <= found["example_f1"] + 1e-12
    assert found["subset_accuracy"] <= found["accuracy"] + 1e-12


@settings(max_examples=30, deadline=None)
@given(anything())
def test_the_truth_is_perfect(tables):
    Y = tables[0]
    found = ml.scores(Y, Y, probability=Y)
    good = {
        "subset_accuracy",
        "accuracy",
        "example_f1",
        "macro_f1",
        "micro_f1",
        "average_precision",
    }
    steps = found.pop("coverage_error", None)
    assert found == {name: float(name in good) for name in found}
    if steps is not None:
        assert steps == pytest.approx(Y[told(Y)].sum(1).mean() - 1)
