"""PLST and ML-CSSP: their two stages by hand, what they agree on, odd tables and refused ones."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import bayesfac as bf
from bayesfac.labels.comparators import llsf, ls_ml
from bayesfac.labels.comparators.ridges import cssp, grid, plst

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 7)) + 0.5
Y = (X @ RNG.normal(size=(7, 6)) + RNG.normal(size=(40, 6)) > 1).astype(int)
NEW = RNG.normal(size=(9, 7))


def regressed(Z, ridge=1.0, x=X, new=NEW):
    """Ridge regression of codes on centred features, with a free intercept."""
    mean, unit = x.mean(0), np.mean(np.sum((x - x.mean(0)) ** 2, 1))
    W = np.linalg.solve(
        (x - mean).T @ (x - mean) + ridge * unit * np.eye(x.shape[1]),
        (x - mean).T @ (Z - Z.mean(0)),
    )
    return Z.mean(0) + (new - mean) @ W


@pytest.mark.parametrize("d", [1, 3, 6])
def test_plst_by_hand(d):
    centred = Y - Y.mean(0)
    V = np.linalg.eigh(centred.T @ centred)[1][:, -d:]
    expected = Y.mean(0) + regressed(centred @ V, 0.3) @ V.T
    np.testing.assert_allclose(plst(X, Y, NEW, d=d, ridge=0.3), expected, atol=1e-10)


def test_cssp_by_hand():
    """Codes are columns of Y, so that one set of them explains the scores, by least squares of Y on it."""
    from itertools import combinations

    found = cssp(X, Y, NEW, d=2, ridge=0.3, seed=4)
    gaps = {}
    for pair in combinations(range(6), 2):
        C = Y[:, pair].astype(float)
        scores = regressed(C, 0.3) @ np.linalg.solve(C.T @ C, C.T @ Y)
        gaps[pair] = np.abs(scores - found).max()
    near = sorted(gaps.values())
    assert near[0] < 1e-10 < 1e-3 < near[1]


def test_labels_are_drawn_by_their_leverage():
    """Three labels that are one and a label of its own: in d = 1 the first direction is all of the three."""
    rng = np.random.default_rng(0)
    one, other = rng.random(60) < 0.5, rng.random(60) < 0.1
    y = np.column_stack([one, one, one, other & ~one]).astype(int)
    x = np.column_stack([one, other]) + 0.1 * rng.normal(size=(60, 2))
    leverage = np.linalg.svd(y.astype(float))[2][0] ** 2
    assert leverage[3] < 0.01
    for seed in range(10):
        score = cssp(x, y, x, d=1, ridge=1e-3, seed=seed)
        np.testing.assert_allclose(score[:, 0], score[:, 1], atol=1e-10)
        assert np.ptp(score[:, 0]) > 0.5  # not drawn by the fourth


def test_all_of_the_labels_are_ridge_regression_for_both():
    plain = regressed(Y.astype(float))
    np.testing.assert_allclose(plst(X, Y, NEW, d=6), plain, atol=1e-10)
    np.testing.assert_allclose(cssp(X, Y, NEW, d=6), plain, atol=1e-8)
    np.testing.assert_allclose(ls_ml(X, Y, NEW, alpha=0, beta=1 / 40), plain, atol=1e-10)
    assert not np.allclose(plst(X, Y, NEW), plain)  # half of them


def test_the_same_seed_draws_the_same():
    first = cssp(X, Y, NEW, seed=3)
    np.testing.assert_array_equal(first, cssp(X, Y, NEW, seed=3))
    assert any(not np.allclose(first, cssp(X, Y, NEW, seed=s)) for s in range(5))


@pytest.mark.parametrize("method", [plst, cssp])
def test_scale_and_shape_of_the_tables_do_not_matter(method):
    expected = method(X, Y, NEW)
    np.testing.assert_allclose(method(50 * X, Y, 50 * NEW), expected, atol=1e-9)
    np.testing.assert_allclose(method(X + 7, Y, NEW + 7), expected, atol=1e-9)
    frames = pd.DataFrame(X, columns=list("abcdefg")), pd.DataFrame(NEW, columns=list("abcdefg"))
    np.testing.assert_allclose(method(frames[0], pd.DataFrame(Y), frames[1]), expected, atol=1e-10)
    locked, fortran = X.copy(), np.asfortranarray(NEW)
    locked.setflags(write=False)
    np.testing.assert_allclose(method(locked, Y, fortran), expected, atol=1e-10)
    thin, thin_new = (np.where(np.abs(t) > 1, t, 0) for t in (X, NEW))
    sparse = method(sp.csr_matrix(thin), sp.csr_matrix(Y), sp.csr_matrix(thin_new))
    np.testing.assert_allclose(sparse, method(thin, Y, thin_new), atol=1e-9)
    wide = sp.random(40, 90, 0.2, random_state=0)
    by_hand = method(wide.toarray() + 1e-13, Y, wide.toarray()[:3])
    np.testing.assert_allclose(method(wide, Y, wide.tocsr()[:3]), by_hand, atol=1e-8)


@pytest.mark.parametrize("method", [plst, cssp])
def test_labels_that_say_nothing(method):
    never, always = Y.copy(), Y.copy()
    never[:, 2], always[:, 2] = 0, 1
    assert np.abs(method(X, never, NEW, d=5)[:, 2]).max() < 1e-10
    if method is plst:
        np.testing.assert_allclose(method(X, always, NEW)[:, 2], 1, atol=1e-10)
    np.testing.assert_array_equal(method(X, 0 * Y, NEW), np.zeros((9, 6)))
    assert method(X, Y[:, :1], NEW).shape == (9, 1)
    assert method(X, Y, NEW[:0]).shape == (0, 6)
    np.testing.assert_allclose(method(X[:1], Y[:1], NEW), np.tile(Y[:1], (9, 1)), atol=1e-10)


@pytest.mark.parametrize("method", [plst, cssp])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"d": 0}, r"Expected d between 1 and 6 \(the number of labels\), got 0"),
        ({"d": 7}, "Expected d between 1 and 6"),
        ({"d": 2.0}, "Expected d between 1 and 6"),
        ({"ridge": 0}, "Expected ridge to be a finite number above 0, got 0"),
        ({"ridge": np.nan}, "Expected ridge to be a finite number above 0"),
        ({"Y": 2 * Y}, "Expected 0 or 1 in Y, got 2"),
        ({"Y": Y[:5]}, "Expected 40 rows in Y, as in X, got 5"),
        ({"X_new": NEW[:, :3]}, "Expected 7 features in X_new, as in X, got 3"),
        ({"X": np.where(X > 2, np.nan, X)}, "Expected finite"),
        ({"X_new": np.where(NEW > 1, np.inf, NEW)}, "Expected finite"),
        ({"X": X[:0], "Y": Y[:0]}, "Expected"),
    ],
)
def test_what_cannot_be_meant_is_refused(method, given, said):
    with pytest.raises(ValueError, match=said):
        method(**{"X": X, "Y": Y, "X_new": NEW, **given})


def test_a_seed_is_a_whole_number():
    with pytest.raises(ValueError, match="Expected a seed from 0"):
        cssp(X, Y, NEW, seed=-1)


@pytest.mark.parametrize("classifier", [ls_ml, plst, cssp, llsf])
def test_features_in_single_precision_are_computed_on_in_double_precision(classifier):
    """Large features with a small spread: a Gram matrix in single precision would lose the spread."""
    rng = np.random.default_rng(0)
    x = np.float32(1e4 * (30 + rng.normal(size=(60, 5))))
    y = (rng.normal(size=(60, 3)) + x[:, :3] / 1e4 > 30).astype(int)
    single, double = (classifier(of[:40], y[:40], of[40:]) for of in (x, x.astype(float)))
    assert single.dtype == np.float64
    np.testing.assert_array_equal(single, double)
    if classifier is not llsf:  # its settings depend on the scale of features
        np.testing.assert_allclose(
            classifier(x[:40] / 1e4, y[:40], x[40:] / 1e4), single, atol=1e-3
        )


def wide(x):
    """More features than rows: the other decomposition."""
    return np.hstack([x, x**2, np.sin(3 * np.outer(x[:, 0], np.arange(1, 41)))])


@pytest.mark.parametrize(
    "shaped", [np.asarray, wide, lambda x: sp.csr_matrix(np.maximum(wide(x), 1))]
)
@pytest.mark.parametrize("method", [plst, cssp])
def test_a_grid_of_settings_is_every_setting_by_itself(method, shaped):
    x, new = shaped(X), shaped(NEW)
    found = list(grid(method.__name__, x, Y, new, [2, 5], [1e-3, 1.0, 1e3], seed=2))
    assert [(one.d, one.penalty) for one in found] == [
        (d, c) for c in (1e-3, 1.0, 1e3) for d in (2, 5)
    ]
    seed = {"seed": 2} if method is cssp else {}
    for one in found:
        alone = method(x, Y, new, d=one.d, ridge=one.penalty, **seed)
        np.testing.assert_allclose(one.score, alone, atol=1e-8)


@pytest.mark.parametrize("shaped", [np.asarray, wide])
def test_the_grid_of_cplst_is_the_factorization(shaped):
    train, late = bf.Tasks({"x": shaped(X)}, Y), bf.Tasks({"x": shaped(NEW)})
    for one in grid("cplst", shaped(X), Y, shaped(NEW), [1, 3], [0.1, 10.0]):
        given = {"n_components": one.d, "penalty": one.penalty, "scale": 1e4, "scaled": False}
        fit = bf.fit("cplst", train, progress=False, **given).fold_in(late)
        mean = fit.predict(late.grid(train.labels)).mean.reshape(one.score.shape)
        np.testing.assert_allclose(np.clip(one.score, 1e-3, 1 - 1e-3), mean, atol=1e-5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"method": "br"}, "plst.*cssp.*cplst.*got 'br'"),
        ({"d": [1, 7]}, "between 1 and 6"),
        ({"penalty": [1.0, 0.0]}, "penalty to be a finite number above 0, got 0.0"),
    ],
)
def test_a_grid_refuses(given, message):
    options = {"method": "plst", "d": [1], "penalty": [1.0]} | given
    with pytest.raises((ValueError, TypeError), match=message):
        list(grid(options["method"], X, Y, NEW, options["d"], options["penalty"]))
