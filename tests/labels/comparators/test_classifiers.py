"""The classifiers are what their equations say, held against loops, optimisers and scikit-learn."""

from itertools import combinations, product

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import check_grad, minimize
from scipy.spatial.distance import cdist
from scipy.special import expit, xlogy
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import ClassifierChain
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from bayesfac.core.errors import ConvergenceWarning
from bayesfac.labels import comparators as bc
from bayesfac.labels.comparators import as_labels, learners
from bayesfac.labels.multilabel import ranking_loss


def noisy(n=60, new=25, d=5, L=4, seed=0):
    """Labels of linear margins with noise, all of them in some rows and not in others."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n + new, d))
    y = x @ rng.standard_normal((d, L)) + 0.7 * rng.standard_normal((n + new, L)) > 0.2
    return x[:n], y[:n].astype(float), x[n:], y[n:].astype(float)


def svc(**more):
    return LinearSVC(dual=False, tol=1e-9, max_iter=10**5, **more)


# -- machines -----------------------------------------------------------------------------------
@pytest.mark.parametrize("C", [0.1, 10.0])
def test_br_svm_stands_at_the_minimum_of_its_objective(C):
    X, Y, new, _ = noisy()
    score = bc.br_svm(X, Y, new, C=C)
    with_one = np.c_[X, np.ones(len(X))]
    for label, s in enumerate(2 * Y.T - 1):

        def objective(w, s=s):
            short = np.maximum(0, 1 - s * (with_one @ w))
            return w @ w / 2 + C * short @ short, w - 2 * C * with_one.T @ (s * short)

        w = minimize(objective, np.zeros(6), jac=True, options={"gtol": 1e-9}).x
        np.testing.assert_allclose(score[:, label], new @ w[:5] + w[5], atol=1e-4)


def test_the_kernel_machine_is_that_of_scikit_learn():
    X, Y, new, _ = noisy()
    score = bc.br_svm(X, Y, new, C=3.0, kernel="rbf")
    for label, of in enumerate(Y.T):
        model = SVC(C=3.0, gamma=1 / (5 * X.var()), tol=1e-8).fit(X, of)
        np.testing.assert_allclose(score[:, label], model.decision_function(new), atol=1e-4)
    assert np.abs(score - bc.br_svm(X, Y, new, C=3.0)).max() > 0.1


def test_of_many_features_the_dual_finds_the_same_machine():
    X, Y, new, _ = noisy(20, 10, 4 * 20 + 1)
    model = svc(C=1.0).fit(X, Y[:, 0])
    found = bc.br_svm(X, Y, new)[:, 0]
    np.testing.assert_allclose(found, model.decision_function(new), atol=1e-4)


def test_a_machine_that_is_stopped_says_so(monkeypatch):
    monkeypatch.setattr(learners, "STEPS", 2)
    with pytest.warns(ConvergenceWarning, match="a linear machine did not converge in 2 steps"):
        bc.br_svm(*noisy()[:3])


# -- chains, pairs, sets ------------------------------------------------------------------------
@pytest.mark.parametrize("order", [[0, 1, 2, 3], [2, 0, 3, 1]])
def test_chain_is_that_of_scikit_learn(order):
    X, Y, new, _ = noisy()
    base = LogisticRegression(solver="liblinear", C=2.0, tol=1e-9, max_iter=10**4)
    model = ClassifierChain(base, order=order).fit(X, Y)
    found = bc.chain(X, Y, new, order=order, C=2.0)
    np.testing.assert_allclose(found, model.predict_proba(new), atol=1e-5)
    np.testing.assert_array_equal(as_labels(found, "chain"), model.predict(new))


def test_what_a_chain_has_decided_goes_on():
    """The second label is that the first is not; the features say nothing more of it."""
    x = np.linspace(-1, 1, 40)[:, None]
    y = np.c_[x > 0, x <= 0]
    p = bc.chain(x, y, x, order=[0, 1], C=10.0)
    w, b = learners.line(np.c_[x, y[:, 0]], y[:, 1].astype(float), 10.0, logistic=True)
    np.testing.assert_allclose(p[:, 1], expit(x[:, 0] * w[0] + (p[:, 0] >= 0.5) * w[1] + b))
    assert abs(w[1]) > 1


def test_clr_counts_votes():
    X, Y, new, _ = noisy(L=5)
    Y[:, 4] = Y[:, 1]  # a pair without rows
    expected = np.zeros((len(new), 5))
    for row, x in enumerate(new):
        for i in range(5):
            yes = svc().fit(X, Y[:, i]).predict(x[None])[0] == 1
            expected[row, i] += yes
            expected[row] -= not yes
        for i, j in combinations(range(5), 2):
            rows = Y[:, i] != Y[:, j]
            if rows.any():
                first = svc().fit(X[rows], Y[rows, i]).predict(x[None])[0] == 1
                expected[row, i if first else j] += 1
    np.testing.assert_array_equal(bc.clr(X, Y, new), expected)


def test_label_powerset_is_one_against_the_rest_over_sets():
    X, Y, new, _ = noisy(L=3)
    code = Y @ [4, 2, 1]
    best = svc().fit(X, code).predict(new).astype(int)
    found = bc.label_powerset(X, Y, new)
    np.testing.assert_array_equal(found @ [4, 2, 1], best)
    assert set(found @ [4, 2, 1]) <= set(code) and len(set(best)) > 3


def test_rakel_is_between_single_labels_and_all_of_them():
    X, Y, new, _ = noisy()
    np.testing.assert_array_equal(bc.rakel(X, Y, new, k=4), bc.label_powerset(X, Y, new))
    single = bc.rakel(X, Y, new, k=1, models=4)
    np.testing.assert_array_equal(single, bc.br_svm(X, Y, new) > 0)
    votes = np.zeros(single.shape)
    for pair in map(list, combinations(range(4), 2)):
        votes[:, pair] += bc.label_powerset(X, Y[:, pair], new)
    np.testing.assert_allclose(bc.rakel(X, Y, new, k=2), votes / 3, rtol=1e-14)  # 6 = C(4, 2) < 8
    np.testing.assert_allclose(bc.rakel(X, Y, new, k=2, models=6, seed=9), votes / 3, rtol=1e-14)


def test_rakel_gives_a_label_of_no_set_its_rate():
    X, Y, new, _ = noisy()
    found = bc.rakel(X, Y, new, k=2, models=1)
    left_out = np.flatnonzero((found == Y.mean(0)).all(0))
    kept = [label for label in range(4) if label not in left_out]
    assert len(kept) == 2
    np.testing.assert_array_equal(found[:, kept], bc.label_powerset(X, Y[:, kept], new))


# -- trees, neighbours, centres -----------------------------------------------------------------
def entropy(y):
    p = y.mean(0)
    return -np.sum(xlogy(p, p) + xlogy(1 - p, 1 - p))


def test_ml_dt_takes_the_split_with_the_largest_fall_of_the_entropy():
    """Leaves of four rows at least, of seven: no split, or of nine: one that leaves four and five."""
    X, Y, new, _ = noisy(9, 30, seed=1)
    assert (bc.ml_dt(X[:7], Y[:7], new, leaf=4) == Y[:7].mean(0)).all()
    found = []
    for j, size in product(range(5), (4, 5)):
        order = np.argsort(X[:, j])
        left, right = order[:size], order[size:]
        spread = size * entropy(Y[left]) + (9 - size) * entropy(Y[right])
        found.append((spread, j, X[order[size - 1 : size + 1], j].mean()))
    (least, j, cut), second = sorted(found)[:2]
    assert least < second[0] - 0.1
    left, asked = X[:, j] <= cut, new[:, j] <= cut
    expected = np.where(asked[:, None], Y[left].mean(0), Y[~left].mean(0))
    np.testing.assert_allclose(bc.ml_dt(X, Y, new, leaf=4), expected, rtol=1e-14)


def test_ml_dt_is_the_tree_of_scikit_learn():
    X, Y, new, _ = noisy()
    tree = DecisionTreeClassifier(criterion="entropy", min_samples_leaf=5, random_state=0).fit(X, Y)
    expected = np.stack([p[:, 1] for p in tree.predict_proba(new)], 1)
    np.testing.assert_allclose(bc.ml_dt(X, Y, new), expected, rtol=1e-12)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("k", [1, 10, 60])
def test_br_knn_counts_neighbours(metric, k):
    X, Y, new, _ = noisy()
    near = np.argsort(cdist(new, X, metric), 1)[:, :k]
    np.testing.assert_allclose(bc.br_knn(X, Y, new, k=k, metric=metric), Y[near].mean(1))


def test_lift_with_every_row_as_a_centre():
    """As many clusters as rows of either kind: the centres are the rows, and their order does not matter."""
    X, _, new, _ = noisy(20, 10)
    y = np.arange(20) % 2
    model = svc(C=2.0).fit(cdist(X, X), y)
    found = bc.lift(X, y[:, None], new, ratio=1.0, C=2.0).ravel()
    np.testing.assert_allclose(found, model.decision_function(cdist(new, X)), atol=1e-4)


def test_lift_has_its_own_features_for_each_label():
    """Two clusters of three rows have the label, and so do not two others: m = ceil(.3 x 6) of each kind."""
    at = np.array([[0, 0], [9, 9], [0, 9], [9, 0]], float)
    x = np.repeat(at, 3, 0) + np.tile([[0, 0.1], [0.1, 0], [-0.1, -0.1]], (4, 1))
    y = np.repeat([1, 1, 0, 0], 3)
    model = svc().fit(cdist(x, at), y)
    found = bc.lift(x, np.c_[y, 1 - y], at, ratio=0.3)
    np.testing.assert_allclose(found[:, 0], model.decision_function(cdist(at, at)), atol=1e-4)
    np.testing.assert_allclose(found[:, 1], -found[:, 0], atol=1e-4)
    assert as_labels(found, "lift").tolist() == [[1, 0], [1, 0], [0, 1], [0, 1]]
    assert np.abs(bc.br_svm(x, y[:, None], at)).max() < 0.1  # which no line tells apart


# -- LLSF ---------------------------------------------------------------------------------------
def unlike(Y):
    """R, of labels as they are printed; with its ridge; and its least eigenvalue."""
    length = np.linalg.norm(Y, axis=0)
    R = 1 - Y.T @ Y / np.maximum(np.outer(length, length), 1e-9)
    R *= 1 - np.eye(len(R))
    lowest = np.linalg.eigvalsh(R)[0]
    return R, R - lowest * np.eye(len(R)), lowest


@pytest.mark.parametrize("shape", [(40, 6), (6, 9)])  # features, then rows, are fewer
def test_llsf_stands_at_the_minimum_of_its_objective(shape):
    """There the slope of the smooth part is -beta sign(w), or within -beta and beta where w is zero."""
    X, Y, _, _ = noisy(shape[0], 1, shape[1], 4, seed=2)
    Y[:, 3] = 0
    alpha, beta = 0.3, 0.8
    W = bc.llsf(X, Y, np.eye(shape[1]), alpha=alpha, beta=beta)
    R = unlike(Y)[1]
    slope = X.T @ (X @ W - Y) + alpha * W @ R
    np.testing.assert_allclose(slope[W != 0], -beta * np.sign(W[W != 0]), atol=2e-4)
    assert np.abs(slope).max() <= beta + 2e-4 and 0 < (W == 0).mean() < 1
    other = bc.llsf(X, Y, np.eye(shape[1]), alpha=alpha, beta=beta, gamma=100.0)  # another start
    np.testing.assert_allclose(W, other, atol=1e-3)


def test_llsf_as_printed_has_no_minimum_where_rows_are_few():
    X, Y, _, _ = noisy(6, 1, 9, 3, seed=2)
    R, bounded, lowest = unlike(Y)
    flat = np.linalg.svd(X)[2][-1]
    assert lowest < 0 and np.abs(X @ flat).max() < 1e-12
    W = 1e4 * np.outer(flat, np.linalg.eigh(R)[1][:, 0])

    def objective(R):
        J = np.sum((X @ W - Y) ** 2) / 2 + 0.05 * np.trace(R @ W.T @ W)
        return J + 0.1 * np.abs(W).sum()

    assert objective(R) < -1e6 < 0 < objective(bounded)


@pytest.mark.parametrize("shape", [(40, 6), (6, 9)])
def test_the_way_down_never_rises(shape):
    X, Y, _, _ = noisy(shape[0], 1, shape[1], 3, seed=3)
    of = learners.regression(X, Y, 0.5, 1e-3)
    np.testing.assert_allclose(X.T @ (X @ of.start) + 1e-3 * of.start, X.T @ Y, atol=1e-9)
    W, trace = learners.sparse_weights(of, 0.1)
    assert np.diff(trace).max() <= 0 and trace[-1] < trace[0]
    assert 10 < len(trace) < 300  # of few rows 540 without beginning anew
    rng = np.random.default_rng(0)
    for _ in range(
        20
    ):  # H is symmetric, and no direction bends more than said or less than not at all
        D, E = rng.standard_normal((2, *W.shape))
        assert np.sum(D * of.H(E)) == pytest.approx(np.sum(E * of.H(D)))
        assert 0 <= np.sum(D * of.H(D)) <= of.top * np.sum(D**2)


def test_a_regression_that_is_stopped_says_so(monkeypatch):
    monkeypatch.setattr(learners, "LIMIT", 3)
    with pytest.warns(ConvergenceWarning, match="LLSF did not converge in 3 steps"):
        bc.llsf(*noisy()[:3])


# -- BP-MLL -------------------------------------------------------------------------------------
def test_the_error_of_bp_mll_and_its_slope():
    X, Y, _, _ = noisy(12, 1)
    rng, shapes = np.random.default_rng(4), [(5, 3), (3,), (3, 4), (4,)]
    ends = np.cumsum([0, *map(np.prod, shapes)])
    kept = (Y.max(1) == 1) & (Y.min(1) == 0)
    X, Y = X[kept], Y[kept]

    def split(flat):
        parts = zip(ends, ends[1:], shapes, strict=False)
        return [flat[a:b].reshape(shape) for a, b, shape in parts]

    def error(flat):
        return learners.pairwise(split(flat), X, Y)[0]

    def slope(flat):
        return np.concatenate([g.ravel() for g in learners.pairwise(split(flat), X, Y)[1]])

    flat = rng.standard_normal(ends[-1])
    W1, b1, W2, b2 = split(flat)
    c = np.tanh(np.tanh(X @ W1 + b1) @ W2 + b2)
    by_loops = 0.0
    for outputs, y in zip(c, Y, strict=True):
        true, false = np.flatnonzero(y == 1), np.flatnonzero(y == 0)
        pairs = [np.exp(outputs[m] - outputs[k]) for k, m in product(true, false)]
        by_loops += np.mean(pairs)
    assert error(flat) == pytest.approx(by_loops, rel=1e-12)
    assert check_grad(error, slope, flat) < 1e-5


def test_the_best_cut_has_the_fewest_labels_on_the_wrong_side():
    rng = np.random.default_rng(5)
    c, y = rng.uniform(-1, 1, (50, 6)), (rng.random((50, 6)) < 0.4).astype(float)
    y[0], y[1] = 0, 1
    grid = np.linspace(-1, 1, 4001)[1:-1]
    for outputs, truth, cut in zip(c, y, learners.best_cuts(c, y), strict=True):
        wrong = ((outputs >= grid[:, None]) != truth).sum(1)
        best = np.flatnonzero(wrong == wrong.min())
        run = best[: np.flatnonzero(np.diff(best, append=10**6) > 1)[0] + 1]  # the lowest interval
        assert cut == pytest.approx(grid[run].mean(), abs=1e-3)
    top, bottom = learners.best_cuts(c[:2], y[:2])
    assert top == pytest.approx((c[0].max() + 1) / 2) and bottom == pytest.approx(
        (c[1].min() - 1) / 2
    )


def test_bp_mll_learns_and_cuts():
    X, Y, new, truth = noisy(200, 200)
    few, many = (bc.bp_mll(X, Y, new, hidden=8, epochs=epochs) for epochs in (1, 100))
    rates = np.mean((Y.mean(0) >= 0.5) != truth)
    assert np.mean(as_labels(many, "bp_mll") != truth) < 0.25 < 0.4 < rates
    kept = (truth.max(1) == 1) & (truth.min(1) == 0)
    assert ranking_loss(truth[kept], many[kept]) < ranking_loss(truth[kept], few[kept]) / 2
    still = bc.bp_mll(X, Y, new, hidden=8, decay=1e3)
    assert np.ptp(still, 1).max() < 0.05 < np.ptp(few, 1).max()  # no weights: outputs are alike
    units = [1, 10, 100, 1e3, 1e4]
    scaled = bc.bp_mll(X * units, Y, new * units, hidden=8)
    np.testing.assert_allclose(scaled, many, atol=1e-6)


# -- AdaBoost.MH --------------------------------------------------------------------------------
def boosted_by_loops(X, Y, new, rounds, cuts_of):
    n, L = Y.shape
    D, score, e = np.full((n, L), 1 / (n * L)), np.zeros((len(new), L)), 1 / (n * L)
    for _ in range(rounds):
        best = (np.inf,)
        for j in range(X.shape[1]):
            for cut in cuts_of(X[:, j]):
                left = X[:, j] <= cut
                Z = 0.0
                for side in (left, ~left):
                    true, false = (D[side] * Y[side]).sum(0), (D[side] * (1 - Y[side])).sum(0)
                    Z += 2 * np.sqrt(true * false).sum()
                if Z < best[0] - 1e-12:
                    best = (Z, j, cut)
        _, j, cut = best
        for side, asked in zip(
            (X[:, j] <= cut, X[:, j] > cut), (new[:, j] <= cut, new[:, j] > cut), strict=True
        ):
            true, false = (D[side] * Y[side]).sum(0), (D[side] * (1 - Y[side])).sum(0)
            vote = np.log((true + e) / (false + e)) / 2
            score[asked] += vote
            D[side] *= np.exp(-(2 * Y[side] - 1) * vote)
        D /= D.sum()
    return score


def middles(value):
    level = np.unique(value)
    return (level[1:] + level[:-1]) / 2


@pytest.mark.parametrize("kind", ["real", "words", "mixed"])
@pytest.mark.parametrize("cells", [10**6, 1])  # one block of features, and one block for each
def test_adaboost_mh_is_the_paper_in_loops(kind, cells, monkeypatch):
    monkeypatch.setattr(learners, "CELLS", cells)
    X, Y, new, _ = noisy(30, 12)
    if kind == "words":
        X, new = (X > 0.5).astype(float), (new > 0.5).astype(float)
    if kind == "mixed":  # negative cells, zeros and positive ones
        X, new = np.round(X) * [1, 1, 1, 0, 1], np.round(new)
    expected = boosted_by_loops(X, Y, new, 8, middles)
    for form in (np.asarray, sp.csr_matrix):
        found = bc.adaboost_mh(form(X), Y, form(new), rounds=8)
        np.testing.assert_allclose(found, expected, atol=1e-9)


def test_few_cuts_are_spread_over_the_values():
    X, Y, new, _ = noisy(30, 12)
    expected = boosted_by_loops(X, Y, new, 4, lambda value: middles(value)[[0, 14, 28]])
    np.testing.assert_allclose(bc.adaboost_mh(X, Y, new, rounds=4, cuts=3), expected, atol=1e-9)


def test_every_round_lowers_the_exponential_loss():
    X, Y, _, _ = noisy()
    loss = [np.exp(-(2 * Y - 1) * bc.adaboost_mh(X, Y, X, rounds=r)).mean() for r in range(1, 12)]
    assert np.diff([1, *loss]).max() < 0
