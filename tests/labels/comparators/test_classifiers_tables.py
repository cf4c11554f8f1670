"""What the classifiers make of all forms of tables, of odd ones, and which ones they refuse."""

import math
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from bayesfac.labels import comparators as bc
from bayesfac.labels.comparators import (
    NAMED,
    PROBABILITIES,
    as_labels,
    classifiers,
    shared,
    specific,
)
from tests.labels.comparators.test_comparators import easy
from tests.labels.comparators.test_comparators_refused import GOOD, put

FEW = {"bp_mll": {"hidden": 8, "epochs": 40}, "adaboost_mh": {"rounds": 15}}  # quick
SEEDED = {"bp_mll": 1e-9, "chain": 1e-9, "lift": 1e-9, "ml_dt": 0, "mlsf": 1e-9, "rakel": 0}
FILES = {classifiers.__name__, specific.__name__}
NEW = sorted(name for name, f in NAMED.items() if f.__module__ in FILES)
every = pytest.mark.parametrize("name", NEW)


def call(name, *tables, **more):
    return NAMED[name](*tables, **FEW.get(name, {}) | more)


# -- all forms of the same table ----------------------------------------------------------------
@every
@pytest.mark.parametrize("seed", [0, 1])
def test_they_beat_the_rates(name, seed):
    """The rates leave more than a quarter of the cells wrong; a tenth leaves room for other generators."""
    X, Y, new, truth = easy(seed=seed)
    score = call(name, X, Y, new)
    assert np.mean(as_labels(score, name) != truth) < 0.1
    assert not as_labels(score, name)[:, 3].any()  # the label of no training row
    if name in PROBABILITIES:
        assert score.min() >= 0 and score.max() <= 1


@every
def test_forms_of_the_same_data(name):
    """Dense, sparse, DataFrame, list; bool, uint8 and float labels; read-only and Fortran arrays."""
    rng = np.random.default_rng(8)
    X, new = (rng.integers(0, 9, (n, 12)) * (rng.random((n, 12)) < 0.3) for n in (50, 20))
    Y = X[:, :3] + rng.integers(0, 4, (50, 3)) > 3
    expected = call(name, X.astype(float), Y.astype(float), new.astype(float))
    for array in (X, new, Y):
        array.flags.writeable = False
    before = X.copy(), new.copy()
    forms = [
        (np.asfortranarray(X), np.asfortranarray(Y), new),
        (X.astype(np.uint8), Y.astype(np.uint8), new.astype(np.float32)),
        (sp.csr_matrix(X), sp.csr_matrix(Y), sp.csr_matrix(new)),
        (sp.csc_array(X), Y, new),
        (pd.DataFrame(X), pd.DataFrame(Y, columns=list("abc")), pd.DataFrame(new)),
        (X.tolist(), Y.tolist(), new.tolist()),
    ]
    for form in forms:
        np.testing.assert_allclose(call(name, *form), expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(new, before[1])


RBF = [(name, {"kernel": "rbf"}) for name in ("br_svm", "lift")]


@pytest.mark.parametrize(("name", "more"), [*((name, {}) for name in NEW), *RBF])
def test_dense_arithmetic_is_the_sparse_one(name, more, monkeypatch):
    """The same numbers with few cells stored, which stay sparse, and made dense."""
    rng = np.random.default_rng(9)
    X, new = (rng.random((n, 30)) * (rng.random((n, 30)) < 0.3) for n in (60, 25))
    Y = X[:, :5] + 0.3 * rng.random((60, 5)) > 0.3
    sparse = call(name, X, Y, new, **more)
    monkeypatch.setattr(shared, "math", SimpleNamespace(inf=math.inf, prod=lambda shape: 0))
    np.testing.assert_allclose(call(name, X, Y, new, **more), sparse, atol=1e-5)


@every
def test_sparse_stays_sparse(name):
    """Dense, the features would take 100 MB."""
    X = sp.random(220, 60_000, 4e-4, format="csr", random_state=np.random.default_rng(10))
    Y = np.random.default_rng(11).random((200, 3)) < 0.5
    quick = {"bp_mll": {"hidden": 2, "epochs": 2}, "llsf": {"beta": 5.0}, "mlsf": {"gamma": 5.0}}
    tracemalloc.start()
    score = call(name, X[:200], Y, X[200:], **quick.get(name, {}))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert score.shape == (20, 3) and peak < 50e6


@pytest.mark.parametrize("name", [name for name in NEW if name not in SEEDED])
def test_order_of_labels_and_rows_does_not_matter(name):
    X, Y, new, _ = easy(seed=4)
    rng = np.random.default_rng(0)
    score, label, row = call(name, X, Y, new), rng.permutation(4), rng.permutation(len(X))
    other = rng.permutation(len(new))
    np.testing.assert_allclose(call(name, X, Y[:, label], new), score[:, label], atol=1e-4)
    np.testing.assert_allclose(call(name, X[row], Y[row], new[other]), score[other], atol=1e-4)


def test_the_order_of_a_chain_goes_with_its_labels():
    X, Y, new, _ = easy(seed=4)
    score = bc.chain(X, Y, new, order=[2, 0, 1, 3])
    swapped = bc.chain(X, Y[:, [1, 2, 0, 3]], new, order=[1, 2, 0, 3])
    np.testing.assert_allclose(swapped, score[:, [1, 2, 0, 3]], atol=1e-9)
    drawn = [bc.chain(X, Y[:, :2], new, seed=seed) for seed in range(8)]
    for one in drawn:
        known = [bc.chain(X, Y[:, :2], new, order=order) for order in ([0, 1], [1, 0])]
        assert any(np.array_equal(one, other) for other in known)


@pytest.mark.parametrize("name", sorted(SEEDED))
def test_what_is_random_follows_the_seed(name):
    X, Y, new, _ = easy(seed=5)
    X[:, 1], new[:, 1] = X[:, 0], 0.5 * new[:, 0]  # a tie, for the tree
    Y = np.c_[Y, Y[:, ::-1] ^ (np.random.default_rng(1).random(Y.shape) < 0.2)]
    first = call(name, X, Y, new, seed=1)
    np.testing.assert_array_equal(first, call(name, X, Y, new, seed=1))
    others = [call(name, X, Y, new, seed=seed) for seed in range(2, 6)]
    assert max(np.abs(first - other).max() for other in others) > SEEDED[name]


# -- odd tables ---------------------------------------------------------------------------------
@every
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_few_new_rows(name, form):
    X, Y, new, _ = easy()
    X, new = np.where(np.abs(X) > 1.5, X, 0), np.where(np.abs(new) > 1.5, new, 0)
    none = call(name, form(X), Y, form(new[:0]))
    assert none.shape == as_labels(none, name).shape == (0, 4)
    one = call(name, form(X), Y, form(new[:1]))
    np.testing.assert_allclose(one, call(name, X, Y, new)[:1], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["br_svm", "lift"])
def test_few_new_rows_of_a_kernel(name):
    X, Y, new, _ = easy()
    assert call(name, X, Y, new[:0], kernel="rbf").shape == (0, 4)


@every
def test_labels_of_all_rows_or_none_or_one(name):
    X, Y, new, _ = easy()
    Y = np.c_[Y, np.ones(len(Y)), np.arange(len(Y)) == 7]
    score = call(name, X, Y, new)
    decided = as_labels(score, name)
    assert np.isfinite(score).all() and not decided[:, 3].any() and decided[:, 5].sum() <= 3
    if name in ("bp_mll", "llsf"):  # one cut for the labels of a row; no intercept
        assert decided[:, 4].mean() > 0.5
    else:
        assert decided[:, 4].all()
        assert as_labels(call(name, X, 0 * Y + 1, new), name).all()
    if name != "bp_mll":
        assert not as_labels(call(name, X, 0 * Y, new), name).any()


@every
def test_features_and_rows_that_say_nothing(name):
    """A constant feature, one of zeros, a row of zeros, copies of rows; and all rows alike."""
    X, Y, new, truth = easy()
    X, new = (np.c_[part, np.full(len(part), 3.0), np.zeros(len(part))] for part in (X, new))
    X[5] = X[6] = new[3] = 0
    X, Y = np.r_[X, X[:20]], np.r_[Y, Y[:20]]
    score = call(name, X, Y, new)
    assert np.isfinite(score).all() and np.mean(as_labels(score, name) != truth) < 0.12
    for constant in (np.zeros, np.ones):
        score = call(name, constant((len(Y), 3)), Y, constant((2, 3)))
        assert np.isfinite(score).all() and np.ptp(score, 0).max() < 1e-9
        if name != "bp_mll":  # its cut is fitted to the row, not to a label
            assert not as_labels(score, name)[:, Y.mean(0) < 0.35].any()


@pytest.mark.parametrize("name", [name for name in NEW if name != "bp_mll"])
def test_one_label_only(name):
    X, Y, new, truth = easy()
    score = call(name, X, Y[:, :1], new)
    assert score.shape == (60, 1)
    assert np.mean(as_labels(score, name) != truth[:, :1]) < 0.1


@every
def test_more_labels_than_rows(name):
    rng = np.random.default_rng(6)
    X, more = rng.standard_normal((9, 3)), {"br_knn": {"k": 3}, "ml_dt": {"leaf": 2}}.get(name, {})
    Y = X @ rng.standard_normal((3, 20)) > 0
    score = call(name, X, Y, X, **more)
    assert score.shape == (9, 20) and np.isfinite(score).all()
    assert np.mean(as_labels(score, name) != Y) < np.mean((Y.mean(0) >= 0.5) != Y)


@pytest.mark.parametrize("name", [name for name in NEW if name != "bp_mll"])
def test_one_training_row(name):
    more = {"br_knn": {"k": 1}, "ml_dt": {"leaf": 1}}.get(name, {})
    score = call(name, [[1.0, 2.0]], [[1, 0]], [[3.0, 4.0], [1.0, 2.0]], **more)
    assert as_labels(score, name)[1].tolist() == [1, 0]


def test_a_row_of_zeros_has_no_neighbours():
    X, Y, new, _ = easy()
    new[3] = 0
    np.testing.assert_allclose(bc.br_knn(X, Y, new, metric="cosine")[3], Y.mean(0))


# -- what they refuse ---------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (put("X", 4, 2, np.nan), r"finite values in X, got nan in row 4, column 2"),
        (put("X_new", 1, 3, np.inf), r"finite values in X_new, got inf in row 1, column 3"),
        (put("Y", 3, 1, 2), r"0 or 1 in Y, got 2 in row 3, label 1"),
        ({"Y": np.ones((5, 2))}, r"6 rows in Y, as in X, got 5"),
        ({"Y": np.ones(6)}, r"a two-dimensional Y, got shape \(6,\)"),
        ({"X_new": np.ones((2, 5))}, r"6 features in X_new, as in X, got 5"),
    ],
)
@every
def test_bad_tables_are_said(name, given, said):
    with pytest.raises(ValueError, match=f"^Expected {said}"):
        call(name, *(GOOD | given).values())


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        *(
            (name, {"C": C}, f"C to be a finite number above 0, got {C!r}")
            for name in (
                *("br_svm", "chain", "clr", "label_powerset", "lift", "mlsf", "rakel"),
                "ssjdr_mll",
            )
            for C in (0, -1.0, "1", np.nan)
        ),
        *(
            (name, {"seed": seed}, f"a seed from 0 to .*, got {seed!r}")
            for name in sorted(SEEDED)
            for seed in (-1, 2**32, 0.5, None, True)
        ),
        ("br_svm", {"kernel": "cubic"}, r"kernel to be one of .*'rbf'\), got 'cubic'"),
        ("lift", {"kernel": None}, r"kernel to be one of .*'rbf'\), got None"),
        ("lift", {"ratio": 0}, "ratio to be a finite number above 0, got 0"),
        ("lift", {"ratio": 1.5}, r"ratio to be at most 1, got 1\.5"),
        ("chain", {"order": [0, 0]}, r"order to have each of 0 to 1 once, got \[0, 0\]"),
        ("chain", {"order": [0]}, r"order to have each of 0 to 1 once, got \[0\]"),
        ("chain", {"order": [0.0, 1.0]}, r"order to have each .*, got \[0\.0, 1\.0\]"),
        ("chain", {"order": "01"}, "order to have each of 0 to 1 once, got '01'"),
        ("rakel", {"k": 3}, r"k between 1 and 2 \(the number of labels\), got 3"),
        (
            "rakel",
            {"k": 1, "models": 3},
            r"models between 1 and 2 \(sets of 1 labels of 2\), got 3",
        ),
        ("ml_dt", {"leaf": 7}, r"leaf between 1 and 6 \(the training rows\), got 7"),
        ("ml_dt", {"leaf": 0}, "leaf between 1 and 6 .*, got 0"),
        ("br_knn", {"k": 7}, r"k between 1 and 6 \(the training rows\), got 7"),
        ("br_knn", {"k": 2, "metric": "cos"}, "metric to be one of .*, got 'cos'"),
        ("llsf", {"alpha": -1}, "alpha to be a finite number of at least 0, got -1"),
        ("llsf", {"beta": 0}, "beta to be a finite number above 0, got 0"),
        ("llsf", {"gamma": 0}, "gamma to be a finite number above 0, got 0"),
        ("bp_mll", {"hidden": 0}, r"hidden between 1 and 1000000 \(units\), got 0"),
        ("bp_mll", {"epochs": 1.5}, r"epochs between 1 and 1000000 \(rounds\), got 1\.5"),
        ("bp_mll", {"rate": 0}, "rate to be a finite number above 0, got 0"),
        ("bp_mll", {"decay": -1}, "decay to be a finite number of at least 0, got -1"),
        ("adaboost_mh", {"rounds": 0}, r"rounds between 1 and 1000000 \(stumps\), got 0"),
        ("ssjdr_mll", {"d": 7}, r"d between 1 and 6 \(the smaller of rows and features\), got 7"),
        ("ssjdr_mll", {"gamma": -1}, "gamma to be a finite number of at least 0, got -1"),
        ("mlsf", {"groups": 3}, r"groups between 1 and 2 \(the number of labels\), got 3"),
        ("mlsf", {"gamma": 0}, "gamma to be a finite number above 0, got 0"),
        ("mlsf", {"alpha": 1.5}, r"alpha to be at most 1, got 1\.5"),
        ("mlsf", {"epsilon": -1}, "epsilon to be a finite number of at least 0, got -1"),
        ("adaboost_mh", {"cuts": 0}, r"cuts between 1 and 1000000 \(of a feature\), got 0"),
    ],
)
def test_bad_settings_are_said(name, given, said):
    with pytest.raises(ValueError, match=f"^Expected {said}"):
        NAMED[name](*GOOD.values(), **given)


def test_too_many_labels_for_pairs_are_said():
    X, _, new = GOOD.values()
    with pytest.raises(
        ValueError, match="^Expected at most 200 labels in Y, got 201: .* 20100 pairs"
    ):
        bc.clr(X, np.ones((6, 201)), new)


@pytest.mark.parametrize("Y", [np.ones((6, 2)), np.zeros((6, 2)), np.eye(6)[:, :1]])
def test_rows_without_an_order_are_said(Y):
    with pytest.raises(ValueError, match="^Expected a row in Y with some labels but not all"):
        bc.bp_mll(GOOD["X"], Y, GOOD["X_new"])


# -- decisions ----------------------------------------------------------------------------------
def test_every_method_has_its_rule():
    assert {*bc.CUTS} | {"l2f", "tram"} == {*NAMED} and PROBABILITIES <= {*NAMED}
    assert all(bc.CUTS[name] == 0.5 for name in PROBABILITIES)
    score = [[-0.1, 0.0, 0.4, 0.5]]
    for name, cut in bc.CUTS.items():
        assert as_labels(score, name).tolist() == [[[0, 1, 1, 1], [0, 0, 0, 1]][cut == 0.5]]
        assert as_labels(score, name, [0, 1, 0, 0.5]).tolist() == [[0, 0, 1, 1]]
    assert all(getattr(bc, name) is method for name, method in NAMED.items())
