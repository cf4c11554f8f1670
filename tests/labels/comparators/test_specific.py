"""SSJDR-MLL and MLSF: their matrices in loops, what the steps must satisfy, and what they agree on."""

import math

import numpy as np
import pytest
import scipy.sparse as sp

from bayesfac.core.errors import ConvergenceWarning
from bayesfac.labels.comparators import br_svm, learners, mlsf, specific, ssjdr_mll
from tests.labels.comparators.test_comparators import easy


def affinity(rows):
    """A of SSJDR-MLL, entry by entry."""
    far = [[math.dist(a, b) for b in rows] for a in rows]
    scale = [sorted(one)[min(7, len(rows) - 1)] for one in far]
    return np.array(
        [
            [math.exp(-(far[i][k] ** 2) / (scale[i] * scale[k])) for k in range(len(rows))]
            for i in range(len(rows))
        ]
    )


# -- SSJDR-MLL ----------------------------------------------------------------------------------
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("transductive", [False, True])
def test_similar_rows_by_hand(form, transductive, monkeypatch):
    monkeypatch.setattr(specific, "CELLS", 60)  # several blocks
    X, _, new, _ = easy(20, 6)
    every = np.vstack([X, new])
    rows = every if transductive else X
    found = specific.smoothed(form(every), 20, transductive)
    np.testing.assert_allclose(found, rows.T @ affinity(rows) @ rows, rtol=1e-9)


def test_copies_of_a_row_are_alike():
    """With eight copies the distance to the seventh neighbour is zero."""
    X = np.repeat([[1.0, 0.0], [0.0, 1.0]], 9, 0)
    np.testing.assert_allclose(specific.smoothed(X, 18, False), 81 * np.eye(2))


@pytest.mark.parametrize("shape", [(80, 6), (20, 30)])
def test_all_directions_are_binary_relevance(shape):
    """Machines do not depend on a rotation of the features."""
    rng = np.random.default_rng(1)
    X, new = rng.standard_normal(shape), rng.standard_normal((9, shape[1]))
    Y = (X[:, :3] + rng.standard_normal((shape[0], 3)) > 0).astype(int)
    expected = br_svm(X, Y, new)
    assert np.ptp(expected) > 1
    np.testing.assert_allclose(ssjdr_mll(X, Y, new), expected, atol=1e-4)


def test_signed_dual_variables_give_the_weights():
    """w_l = Q'X'c_l at the minimum, which makes -1/2 tr Q'(sum X'c c'X) Q the part of the dual with Q."""
    X, Y, _, _ = easy()
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((10, 4)))[0]
    found = specific.machines(X, Y, Q, np.zeros((10, 10)), 0.7)
    np.testing.assert_allclose(Q.T @ found.pull, found.w, atol=1e-4)
    loss = 0.0
    for label, of in enumerate(Y.T[:3]):  # the fourth is constant and has no machine
        w, b = learners.line(X @ Q, of, 0.7)
        loss += (w @ w + b * b) / 2
        loss += 0.7 * np.sum(np.maximum(0, 1 - (2 * of - 1) * (X @ Q @ w + b)) ** 2)
        np.testing.assert_allclose(w, found.w[:, label], atol=1e-9)
    assert found.J == pytest.approx(loss, rel=1e-12)
    at = specific.machines(X, Y, Q, 2 * np.eye(10), 0.7)
    assert at.J == pytest.approx(found.J - 4, rel=1e-9)


def test_labels_turn_the_directions():
    """A feature with little spread that decides the label; without similar rows it must be found."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((200, 8)) * [3, 3, 3, 3, 3, 3, 3, 0.5]
    y = (X[:, 7:] > 0).astype(int)
    right = (ssjdr_mll(X, y, X, d=1, gamma=0.0, C=10.0) >= 0) == y
    assert right.mean() > 0.9
    blind = (ssjdr_mll(X, y, X, d=1, gamma=1e6) >= 0) == y  # the directions of similar rows alone
    assert blind.mean() < 0.7


def test_new_rows_count_if_they_are_asked_to():
    X, Y, new, _ = easy()
    first = ssjdr_mll(X, Y, new[:5], d=2)
    np.testing.assert_allclose(first, ssjdr_mll(X, Y, new, d=2)[:5], atol=1e-9)
    other = ssjdr_mll(X, Y, 3 * new, d=2, transductive=True)
    assert np.abs(other - ssjdr_mll(X, Y, 3 * new, d=2)).max() > 1e-3


@pytest.mark.parametrize("gamma", [0.01, 0.3, 3.0])
def test_the_lasso_ends_where_no_step_lowers_it(gamma):
    """The slope X'(Z - X V) is gamma sign(V) where V is not zero, and within gamma where it is."""
    rng = np.random.default_rng(0)
    X, Z = rng.random((80, 12)) * (rng.random((80, 12)) < 0.4), rng.random((80, 3))
    V = learners.lasso(sp.csr_matrix(X), Z, gamma)
    np.testing.assert_allclose(V, learners.lasso(X, Z, gamma), atol=1e-12)
    slope, some = X.T @ (Z - X @ V), V != 0
    np.testing.assert_allclose(slope[some], gamma * np.sign(V[some]), atol=1e-5)
    assert np.abs(slope[~some]).max(initial=0) <= gamma + 1e-5
    other = learners.sparse_weights(learners.regression(X, Z, 0.0, gamma), gamma)[0]
    np.testing.assert_allclose(V, other, atol=1e-5)


def test_a_lasso_that_does_not_converge_says_so(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.random((20, 6))
    monkeypatch.setattr(learners, "LIMIT", 2)
    with pytest.warns(ConvergenceWarning, match="a lasso did not converge in 2 steps"):
        learners.lasso(X, rng.random((20, 2)), 1e-6)


# -- MLSF ---------------------------------------------------------------------------------------
def test_dependence_of_labels_by_hand():
    X = np.array([[0.0, 1.0], [2.0, 1.0], [4.0, 1.0], [0.0, 0.0]])
    Y = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]], float)
    # means: (1, 1), (2, 1), (4, 1), none; Jaccard: 1/3 of 0 and 1, 0 of 0 and 2, 1/2 of 1 and 2
    expected = np.zeros((4, 4))
    expected[0, 1] = 0.8 / 3 + 0.2 * math.exp(-1)
    expected[0, 2] = 0.2 * math.exp(-3)  # below .01
    expected[1, 2] = 0.8 / 2 + 0.2 * math.exp(-2)
    assert expected[0, 2] < 0.01
    expected[0, 2] = 0
    for x in (X, sp.csr_matrix(X)):
        np.testing.assert_allclose(
            specific.dependence(x, Y, 0.8, 0.01), expected + expected.T, atol=1e-12
        )


def test_dependent_labels_are_grouped():
    rng = np.random.default_rng(3)
    topics = rng.random((300, 3)) < 0.4
    Y = np.repeat(topics, 4, 1) * (rng.random((300, 12)) < 0.9).astype(float)
    A = specific.dependence(rng.standard_normal((300, 5)), Y, 1.0, 0.01)
    member = specific.grouped(A, 3, 0).reshape(3, 4)
    assert (member == member[:, :1]).all() and len(np.unique(member)) == 3


def test_only_specific_features_are_seen():
    """Each of two groups has features of its own; those of the other group change nothing."""
    rng = np.random.default_rng(4)
    X, new = rng.standard_normal((300, 6)), rng.standard_normal((40, 6))
    topics = (X[:, [0, 3]] > 0).astype(int)
    Y = np.repeat(topics, 3, 1)
    given = {"groups": 2, "gamma": 40.0}
    score = mlsf(X, Y, new, **given)
    assert np.mean((score >= 0) != np.repeat(new[:, [0, 3]] > 0, 3, 1)) < 0.1
    other = new.copy()
    other[:, [1, 2, 4, 5]] += 7
    np.testing.assert_array_equal(mlsf(X, Y, other, **given), score)
    other[:, 3] += 7
    changed = mlsf(X, Y, other, **given)
    np.testing.assert_array_equal(changed[:, :3], score[:, :3])
    assert (changed[:, 3:] != score[:, 3:]).any()


def test_the_chain_of_a_group_by_hand():
    X, Y, new, _ = easy()
    of = Y[:, :2]
    w, b = learners.line(X, of[:, 0], 0.5)
    first = new @ w + b
    v, c = learners.line(np.column_stack([X, of[:, 0]]), of[:, 1], 0.5)
    second = np.column_stack([new, first >= 0]) @ v + c
    found = specific.chained(X, of, new, 0.5)
    np.testing.assert_allclose(found, np.column_stack([first, second]), atol=1e-9)


def test_a_group_that_sees_nothing_has_the_rates():
    X, Y, new, _ = easy()
    score = mlsf(X, Y, new, gamma=1e9)
    assert np.ptp(score, 0).max() == 0
    assert ((score[0] >= 0) == (Y.mean(0) >= 0.5)).all()
