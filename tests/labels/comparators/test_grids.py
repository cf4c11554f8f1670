"""FAiE and LEML over a grid: single settings agree with the methods, and what the steps must satisfy."""

import numpy as np
import pytest
import scipy.sparse as sp

import bayesfac as bf
from bayesfac.labels.comparators import grids

SHAPES = [(60, 8), (20, 40)]  # features, then rows, are fewer


def made(shape, L=6, seed=0):
    rng = np.random.default_rng(seed)
    X, new = rng.standard_normal(shape), rng.standard_normal((9, shape[1]))
    Y = X @ rng.standard_normal((shape[1], L)) + rng.standard_normal((shape[0], L)) > 0.5
    return X, Y.astype(int), new


@pytest.mark.parametrize("shape", SHAPES)
def test_faie_by_hand(shape):
    """The first eigenvectors of Y Y' + alpha H, rows x rows."""
    X, Y, new = made(shape)
    G = np.linalg.inv(X.T @ X + 0.7 * np.eye(shape[1])) @ X.T
    C = np.linalg.eigh(Y @ Y.T + 0.4 * X @ G)[1][:, ::-1]
    found = {s["d"]: score for s, score in grids.faie(X, Y, new, [2, 5], [0.7], [0.4])}
    for d, score in found.items():
        np.testing.assert_allclose(score, new @ (G @ C[:, :d]) @ (C[:, :d].T @ Y), atol=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
def test_both_are_the_methods(shape):
    X, Y, new = made(shape)
    given = {"n_components": 3, "penalty": 0.7, "scaled": False, "cut": 0.5, "progress": False}
    fit = bf.fit("faie", bf.Tasks(X, Y), bf.FixedPoint(200), alpha=0.4, ridge=0.0, **given)
    (W,), D = fit.params.W.values(), fit.params.D
    ((_, score),) = grids.faie(X, Y, new, [3], [0.7], [0.4])
    np.testing.assert_allclose(new @ np.asarray(W) @ np.asarray(D).T, score, atol=1e-5)
    given["n_components"] = 6  # of full rank the objective is that of a convex problem
    fit = bf.fit("leml", bf.Tasks(X, Y), bf.FixedPoint(3000, tol=1e-14), **given)
    (W,), H = fit.params.W.values(), fit.params.H
    ((_, score),) = grids.leml(X, Y, new, [6], [0.7], sweeps=20_000, tol=1e-14)
    np.testing.assert_allclose(new @ np.asarray(W) @ np.asarray(H).T, score, atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_leml_is_at_rest_when_it_ends(shape):
    """The slopes of |Y - X W H'|^2 + c/2 (|W|^2 + |H|^2) in both factors are zero."""
    X, Y, new = made(shape)
    at = grids.basis(X, Y, X)  # the rows themselves: at.new is X Q
    H = np.random.default_rng(0).standard_normal((6, 2))
    R, H = grids.by_sweeps(at, H, 0.9, 20_000, 0.0)
    A = at.new @ R
    left = A @ H.T - Y
    np.testing.assert_allclose(2 * at.new.T @ left @ H + 0.9 * R, 0, atol=1e-6)
    np.testing.assert_allclose(2 * left.T @ A + 0.9 * H, 0, atol=1e-6)


def test_more_columns_than_the_rank_of_the_features_change_nothing():
    X, Y, new = made((60, 3))
    given = {"penalty": [0.9], "sweeps": 20_000, "tol": 0.0}
    two = [score for _, score in grids.leml(X, Y, new, [3, 6], **given)]
    np.testing.assert_allclose(two[1], two[0], atol=1e-6)
    at = grids.basis(X, Y, X)
    R, H = grids.by_sweeps(at, np.random.default_rng(1).standard_normal((6, 6)), 0.9, 20_000, 0.0)
    np.testing.assert_allclose(
        at.new @ R @ H.T, next(iter(grids.leml(X, Y, X, [3], **given))).score, atol=1e-4
    )


def test_one_step_of_leml_by_hand():
    """Two features and one column: 2 s^2 r h'h + c r = 2 x'Y h."""
    s2, cross, H = (
        np.array([1.0, 4.0]),
        np.array([[1.0, 2.0], [0.0, 3.0]]),
        np.array([[1.0], [2.0]]),
    )
    expected = [[2 * 5 / (2 * 1 * 5 + 0.5)], [2 * 6 / (2 * 4 * 5 + 0.5)]]
    np.testing.assert_allclose(grids.step_R(s2, cross, H, 0.5), expected)


@pytest.mark.parametrize("name", ["faie", "leml"])
def test_sparse_copies_constant_labels_and_few_rows(name):
    X, Y, new = made((60, 8))
    Y = np.column_stack([Y, Y[:, 0], np.ones(60), np.zeros(60)]).astype(int)
    X, new = np.where(abs(X) > 1, X, 0), np.where(abs(new) > 1, new, 0)
    given = {"d": [4], "penalty": [0.5]} | ({"alpha": [1.0]} if name == "faie" else {})
    ((_, score),) = getattr(grids, name)(X, Y, new, **given)
    ((_, sparse),) = getattr(grids, name)(*map(sp.csr_matrix, (X, Y, new)), **given)
    np.testing.assert_allclose(sparse, score, atol=1e-9)
    np.testing.assert_allclose(score[:, 6], score[:, 0], atol=1e-9)  # a label twice
    np.testing.assert_allclose(score[:, 8], 0, atol=1e-9)  # a label of no row
    given["d"] = [1]
    ((_, one),) = getattr(grids, name)(X[:1], Y[:1, :1], new, **given)
    assert one.shape == (9, 1) and np.isfinite(one).all()


def test_bad_settings_are_said():
    X, Y, new = made((60, 8))
    with pytest.raises(
        ValueError, match=r"^Expected d between 1 and 6 \(the number of labels\), got 7"
    ):
        list(grids.leml(X, Y, new, [7], [1.0]))
    with pytest.raises(ValueError, match="^Expected alpha to be a finite number above 0, got 0"):
        list(grids.faie(X, Y, new, [2], [1.0], [0]))
    with pytest.raises(ValueError, match="^Expected penalty to be a finite number above 0, got -1"):
        list(grids.leml(X, Y, new, [2], [-1]))
