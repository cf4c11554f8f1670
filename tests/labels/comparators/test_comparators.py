"""The comparators are what their equations say, and beat the labels' rates."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize

from bayesfac.core.errors import ConvergenceWarning
from bayesfac.labels.comparators import (
    NAMED,
    as_labels,
    graphical,
    l2f,
    ls_ml,
    ml_knn,
    shared,
    tram,
)


def easy(n=120, new=60, seed=0):
    """Three labels, each of its own direction in ten features, and one that is in no training row."""
    rng = np.random.default_rng(seed)
    y = rng.random((n + new, 4)) < [0.5, 0.3, 0.4, 0]
    x = 2.0 * y @ rng.standard_normal((4, 10)) + 0.3 * rng.standard_normal((n + new, 10))
    return x[:n], y[:n].astype(int), x[n:], y[n:].astype(int)


def call(name, X, Y, X_new, **more):
    """Any of the four on one table, which l2f sees as two views."""
    if name != "l2f":
        return NAMED[name](X, Y, X_new, **more)
    m = np.shape(X)[1] // 2

    def views(x):
        if isinstance(x, pd.DataFrame):
            return {"a": x.iloc[:, :m], "b": x.iloc[:, m:]}
        x = x if sp.issparse(x) else np.asarray(x)
        return {"a": x[:, :m], "b": x[:, m:]}

    return l2f(views(X), Y, views(X_new), **more)


every = pytest.mark.parametrize("name", ["l2f", "ls_ml", "ml_knn", "tram"])
with_graph = pytest.mark.parametrize("name", ["l2f", "ml_knn", "tram"])


def distances(x, z, metric):
    if metric == "cosine":
        x, z = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in (x, z))
    return ((x[:, None] - z) ** 2).sum(-1)


def weights(x, k, metric="euclidean"):
    """The graph of tram and l2f, dense."""
    d, W = distances(x, x, metric), np.zeros((len(x), len(x)))
    order = np.argsort(d + np.diag(np.full(len(x), np.inf)), 1, kind="stable")[:, :k]
    for i, near in enumerate(order):
        W[i, near] = np.exp(-d[i, near] / (2 * np.take_along_axis(d, order, 1).mean()))
    return np.maximum(W, W.T)


# -- ML-kNN -------------------------------------------------------------------------------------
def knn_by_loops(X, Y, X_new, k, s, metric):
    n, L = Y.shape
    within, across = distances(X, X, metric), distances(X_new, X, metric)
    np.fill_diagonal(within, np.inf)
    count = [Y[np.argsort(row, kind="stable")[:k]].sum(0) for row in within]
    found = np.zeros((len(X_new), L))
    for i, row in enumerate(across):
        asked = Y[np.argsort(row, kind="stable")[:k]].sum(0)
        for label in range(L):
            with_l = [c[label] for c, y in zip(count, Y, strict=True) if y[label]]
            without = [c[label] for c, y in zip(count, Y, strict=True) if not y[label]]
            p = (s + len(with_l)) / (2 * s + n)
            yes = p * (s + with_l.count(asked[label])) / (s * (k + 1) + len(with_l))
            no = (1 - p) * (s + without.count(asked[label])) / (s * (k + 1) + len(without))
            found[i, label] = yes / (yes + no)
    return found


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize(("k", "smooth"), [(1, 1.0), (5, 0.3), (119, 2.0)])
def test_ml_knn_is_the_paper_in_loops(metric, k, smooth, monkeypatch):
    monkeypatch.setattr(shared, "CELLS", 1000)  # blocks of a few rows
    X, Y, new, _ = easy()
    found = ml_knn(X, Y, new, k=k, smooth=smooth, metric=metric)
    np.testing.assert_allclose(found, knn_by_loops(X, Y, new, k, smooth, metric), rtol=1e-12)
    assert found.min() >= 0 and found.max() <= 1


def test_ml_knn_by_hand():
    """Rows 0, 1 | 10, 11 | 30, with labels 1, 1 | 0, 1 | 0, and k = 1. The nearest of each: 1, 0, 11, 10, 11.
    Their labels: 1, 1, 1, 0, 1. So c = 1 has rows 0 and 1 of the three with the label, both without."""
    score = ml_knn([[0], [1], [10], [11], [30]], [[1], [1], [0], [1], [0]], [[2], [9]], k=1)
    p = (1 + 3) / (2 + 5)
    yes, no = p * np.array([3, 2]) / (2 + 3), (1 - p) * np.array([3, 1]) / (2 + 2)  # c = 1, c = 0
    np.testing.assert_allclose(score.ravel(), yes / (yes + no), rtol=1e-14)


def test_of_rows_equally_near_the_first_are_taken():
    """All four corners are as near to the middle; the copy of a row is its neighbour, it itself is not."""
    corner = np.array([[0, 0], [0, 2], [2, 0], [2, 2]]) + 10**7
    graph = shared.nearest((corner[:0] * 1.0, np.zeros(0)), (corner, np.zeros(4)), 2)
    assert graph.shape == (0, 4)
    rows = shared.placed(corner * 1.0, np.array([[1.0, 1.0]]) + 10**7, "euclidean")
    asked, among = tuple(part[4:] for part in rows), tuple(part[:4] for part in rows)
    assert shared.nearest(asked, among, 2).indices.tolist() == [0, 1]
    x = np.outer([0.7, 0.1, 1.1, 0.3, 1.3, 0.2], [0.1, 0.3, 0.7])  # but for rounding, one direction
    rows = shared.placed(x, x[:0], "cosine")
    assert shared.nearest(rows, rows, 1, own=True).indices.tolist() == [1, 0, 0, 0, 0, 0]
    several = np.random.default_rng(13).random((20, 3))
    found = shared.nearest(shared.placed(several, x[:0], "cosine"), rows, 2)
    assert found.indices.tolist() == [0, 1] * 20


def test_rows_far_from_zero_are_told_apart():
    x = np.random.default_rng(12).standard_normal((80, 5))
    here, far = (shared.placed(x + shift, x[:0], "euclidean") for shift in (0, 1e8))
    near = (shared.nearest(rows, rows, 5, own=True) for rows in (here, far))
    np.testing.assert_array_equal(*(graph.indices for graph in near))


# -- TRAM ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_tram_is_the_dense_harmonic_solution(metric):
    X, Y, new, _ = easy()
    W, n = weights(np.vstack([X, new]), 7, metric), len(X)
    P = W / W.sum(1, keepdims=True)
    P_uu, P_ul = P[n:, n:], P[n:, :n]
    size = Y.sum(1)
    composition = Y / np.maximum(size, 1)[:, None]
    a = np.linalg.solve(np.eye(len(new)) - P_uu, P_ul @ composition)
    t = np.linalg.solve(np.eye(len(new)) - P_uu, P_ul @ size)
    expected = t[:, None] * a / np.maximum(a.sum(1, keepdims=True), 1e-9)
    score = tram(X, Y, new, k=7, metric=metric)
    np.testing.assert_allclose(score, expected, atol=1e-7)
    decided = as_labels(score, "tram")
    for i, m in enumerate(np.floor(t + 0.5).astype(int)):
        best = np.argsort(-a[i], kind="stable")[:m]
        assert set(np.flatnonzero(decided[i])) == {j for j in best if a[i, j] > 1e-9}


def test_the_new_rows_see_one_another():
    """A chain from the labelled row at 0 that only the other new rows make."""
    X, Y, chain = [[0.0], [100.0], [101.0]], [[1, 0], [0, 1], [0, 1]], [[1.0], [2.0], [3.0], [4.0]]
    assert as_labels(tram(X, Y, chain, k=1), "tram").tolist() == [[1, 0]] * 4


def test_the_solver_goes_along_a_chain():
    """Both ends are given, 0 and 1 or 0 and 0: the harmonic function is a straight line.."""
    n = 400
    step = sp.diags([-np.ones(n - 2), 2 * np.ones(n - 1), -np.ones(n - 2)], (-1, 0, 1))
    right = np.eye(n - 1)[:, [-1]] * [1, 0]
    f = graphical._conjugate(
        lambda f: step @ f, right, np.zeros_like(right), np.full((n - 1, 1), 2)
    )
    np.testing.assert_allclose(f, np.outer(np.arange(1, n) / n, [1, 0]), atol=1e-6)


def test_a_row_far_off_still_has_its_neighbour():
    """The square of its distance is nearly all of s^2: exp(-d^2 / (2 s^2)) of 1600 edges would be 0."""
    X = np.arange(1600)[:, None]
    assert tram(X, X == [1599, 0], [[10**6]], k=1).round(6).tolist() == [[1, 0]]


def test_a_part_without_labels_gets_the_mean():
    X, Y = [[0.0], [1.0], [2.0]], [[1, 0, 0], [1, 1, 0], [0, 0, 0]]
    score = tram(X, Y, [[90.0], [91.0]], k=1)
    np.testing.assert_allclose(score, [[0.75, 0.25, 0]] * 2)  # of (1, 1/2, 0), (0, 1/2, 0); size 1
    found = l2f({"x": X}, Y, {"x": [[90.0], [91.0]]}, k=1)
    np.testing.assert_allclose(found, [np.mean(Y, 0)] * 2)


def test_a_solver_that_is_stopped_says_so(monkeypatch):
    monkeypatch.setattr(graphical, "LIMIT", 2)
    with pytest.warns(ConvergenceWarning, match="not converged after 2 steps"):
        tram(*easy()[:3])


# -- LS-ML --------------------------------------------------------------------------------------
def ls_ml_objective(p, X, Y, r, alpha, beta):
    """J at the best v_l = Theta u_l, and its gradient by U and any T whose columns span Theta."""
    d, L = X.shape[1], Y.shape[1]
    U, T = p[: d * L].reshape(d, L), p[d * L :].reshape(d, r)
    T_plus, rest = np.linalg.pinv(T), X @ U - Y
    off = U - T @ (T_plus @ U)
    J = np.sum(rest**2) / len(X) + alpha * np.sum(off**2) + beta * np.sum(U**2)
    by_U = X.T @ rest / len(X) + alpha * off + beta * U
    return J, 2 * np.r_[by_U.ravel(), -alpha * (off @ (T_plus @ U).T).ravel()]


@pytest.mark.parametrize("shape", [(30, 6), (8, 12)])  # features, then rows, are fewer
def test_ls_ml_is_what_an_optimiser_finds(shape):
    rng = np.random.default_rng(3)
    (n, d), L, r, alpha, beta = shape, 4, 2, 0.7, 0.05
    X, Y = rng.standard_normal((n, d)) + 3, (rng.random((n, L)) < 0.4).astype(float)
    x, y = X - X.mean(0), Y - Y.mean(0)
    unit = np.sum(x**2) / n
    fixed = x, y, r, alpha * unit, beta * unit
    starts = [rng.standard_normal(d * (L + r)) for _ in range(5)]
    small = {"gtol": 1e-9, "maxiter": 5000}
    runs = [minimize(ls_ml_objective, p, fixed, jac=True, options=small) for p in starts]
    best = min(runs, key=lambda run: run.fun)
    U = best.x[: d * L].reshape(d, L)
    score = ls_ml(X, Y, X, r=r, alpha=alpha, beta=beta)
    np.testing.assert_allclose(score, x @ U + Y.mean(0), atol=1e-6)

    def ridge(c):
        return np.linalg.solve(x.T @ x / n + c * unit * np.eye(d), x.T @ y / n)

    a, b = ridge(alpha + beta), ridge(beta)
    gain = alpha * unit * np.linalg.eigvalsh(a.T @ b)[::-1][:r].sum()
    assert best.fun == pytest.approx(np.sum(y**2) / n - np.sum((x.T @ y / n) * a) - gain, rel=1e-10)


def test_ls_ml_between_ridge_and_ridge():
    X, Y, new, _ = easy()
    most = ls_ml(X, Y, new, r=4, alpha=0.5, beta=0.1)
    np.testing.assert_allclose(most, ls_ml(X, Y, new, r=1, alpha=0, beta=0.1), atol=1e-12)
    assert np.abs(most - ls_ml(X, Y, new, r=1, alpha=0.5, beta=0.1)).max() > 0.01
    np.testing.assert_allclose(ls_ml(50 * X, Y, 50 * new, r=2), ls_ml(X, Y, new, r=2), atol=1e-9)


# -- L2F ----------------------------------------------------------------------------------------
def test_l2f_stands_at_the_minimum_of_its_objective():
    """J with all of it dense, minimised by one linear solve over views x rows x labels."""
    X, Y, new, _ = easy(30, 12)
    k, fit, agreement, alike, n = 4, 3.0, 0.7, 0.4, len(X)
    x, L = np.vstack([X, new]), Y.shape[1]

    def laplacian(W):
        return (np.diag(W.sum(1)) - W) / W.sum(1).mean()

    unit = Y / np.maximum(np.linalg.norm(Y, axis=0), 1e-300)
    L_Y, rate = laplacian(unit.T @ unit), Y.mean(0)
    L_v = [laplacian(weights(part, k)) for part in (x[:, :5], x[:, 5:])]

    def objective(F):
        F = F.reshape(2, len(x), L)
        J = agreement * np.sum((F[0] - F[1]) ** 2)
        for f, own in zip(F, L_v, strict=True):
            J += np.trace(f.T @ own @ f) + fit * np.sum((f[:n] - Y) ** 2)
            J += alike * np.trace((f - rate) @ L_Y @ (f - rate).T)
        return J

    rows = np.eye(len(x))
    A = np.kron(np.kron(agreement * np.array([[1, -1], [-1, 1]]), rows), np.eye(L))
    block = [np.kron(own + fit * np.diag(np.arange(len(x)) < n), np.eye(L)) for own in L_v]
    A += np.kron(np.diag([1, 0]), block[0]) + np.kron(np.diag([0, 1]), block[1])
    A += alike * np.kron(np.eye(2 * len(x)), L_Y)
    right = np.vstack([fit * Y, np.zeros((len(new), L))]) + alike * rate @ L_Y
    F = np.linalg.solve(A, np.tile(right, (2, 1)).ravel())
    rng = np.random.default_rng(5)
    for _ in range(5):  # the system is that of J: its gradient is zero there, J rises both ways
        step = 1e-4 * rng.standard_normal(F.size)
        up, down, here = objective(F + step), objective(F - step), objective(F)
        assert min(up, down) > here and abs(up - down) < 1e-6 * (up + down - 2 * here)
    score = call("l2f", X, Y, new, k=k, fit=fit, agreement=agreement, alike=alike)
    np.testing.assert_allclose(score, F.reshape(2, -1, L)[:, n:].mean(0), atol=1e-8)
    apart = call("l2f", X, Y, new, k=k, fit=fit, agreement=agreement, alike=0)
    assert np.abs(score - apart).max() > 0.01
    np.testing.assert_allclose(score.sum(1), apart.sum(1), atol=1e-8)  # the expected size


def test_l2f_without_likeness_stays_a_probability_and_ignores_the_order_of_views():
    X, Y, new, _ = easy()
    score = call("l2f", X, Y, new, alike=0)
    assert score.min() >= -1e-8 and score.max() <= 1 + 1e-8
    swapped = l2f({"b": X[:, 5:], "a": X[:, :5]}, Y, {"a": new[:, :5], "b": new[:, 5:]}, alike=0)
    np.testing.assert_array_equal(score, swapped)


# -- all four -----------------------------------------------------------------------------------
@every
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_they_beat_the_rates(name, seed):
    """The rates leave more than a quarter of the cells wrong; a tenth leaves room for other generators."""
    X, Y, new, truth = easy(seed=seed)
    decided = as_labels(call(name, X, Y, new), name)
    assert np.mean(decided != truth) < 0.1 < 0.25 < np.mean((Y.mean(0) >= 0.5) != truth)


@every
def test_forms_of_the_same_data(name):
    """Dense, sparse, DataFrame, list; bool, uint8 and float labels; read-only arrays."""
    rng = np.random.default_rng(8)
    X, new = (rng.integers(0, 250, (n, 12)) * (rng.random((n, 12)) < 0.3) for n in (50, 20))
    Y = rng.random((50, 3)) < 0.4
    expected = call(name, X.astype(float), Y.astype(float), new.astype(float))
    for array in (X, new, Y):
        array.flags.writeable = False
    before = X.copy(), new.copy()
    small = X.astype(np.uint8), new.astype(np.uint8)
    frames = pd.DataFrame(X), pd.DataFrame(Y, columns=list("abc")), pd.DataFrame(new)
    forms = [
        (X, Y, new),
        (small[0], Y.astype(np.uint8), small[1]),
        (sp.csr_matrix(X), sp.csr_matrix(Y), sp.csr_matrix(new)),
        (sp.csc_array(X), Y, new.astype(np.float32)),
        frames,
        (X.tolist(), Y.tolist(), new.tolist()),
    ]
    for form in forms:
        np.testing.assert_allclose(call(name, *form), expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(new, before[1])


@every
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_dense_arithmetic_is_the_sparse_one(name, metric, monkeypatch):
    """The same numbers with few cells stored, which stay sparse, and made dense."""
    rng = np.random.default_rng(9)
    X, new = (rng.random((n, 30)) * (rng.random((n, 30)) < 0.3) for n in (60, 25))
    Y, more = rng.random((60, 5)) < 0.4, {} if name == "ls_ml" else {"metric": metric}
    sparse = call(name, X, Y, new, **more)
    monkeypatch.setattr(shared.math, "prod", lambda shape: 0)
    np.testing.assert_allclose(call(name, X, Y, new, **more), sparse, atol=1e-9)


@every
def test_sparse_stays_sparse(name):
    """Dense, the features would take 400 MB."""
    X = sp.random(220, 250_000, 1e-4, format="csr", random_state=np.random.default_rng(10))
    Y = np.random.default_rng(11).random((200, 3)) < 0.5
    tracemalloc.start()
    score = call(name, X[:200], Y, X[200:])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert score.shape == (20, 3) and peak < 60e6


@every
def test_order_of_labels_and_rows_does_not_matter(name):
    X, Y, new, _ = easy(seed=4)
    rng = np.random.default_rng(0)
    score, label, row = call(name, X, Y, new), rng.permutation(4), rng.permutation(len(X))
    other = rng.permutation(len(new))
    np.testing.assert_allclose(call(name, X, Y[:, label], new), score[:, label], atol=1e-8)
    np.testing.assert_allclose(call(name, X[row], Y[row], new[other]), score[other], atol=1e-8)


@every
def test_few_new_rows(name):
    X, Y, new, _ = easy()
    assert call(name, X, Y, new[:0]).shape == (0, 4)
    assert call(name, sp.csr_matrix(X), Y, sp.csr_matrix(new[:0])).shape == (0, 4)
    assert as_labels(call(name, X, Y, new[:0]), name).shape == (0, 4)
    one = call(name, X, Y, new[:1])
    assert one.shape == (1, 4) and np.isfinite(one).all()
    if name in ("ml_knn", "ls_ml"):  # which are inductive
        np.testing.assert_allclose(one, call(name, X, Y, new)[:1], rtol=1e-9, atol=1e-12)


@every
def test_labels_of_all_rows_or_none(name):
    X, Y, new, _ = easy()
    Y = np.c_[Y, np.ones(len(Y))]
    decided = as_labels(call(name, X, Y, new), name)
    assert not decided[:, 3].any() and decided[:, 4].all()
    assert not as_labels(call(name, X, 0 * Y, new), name).any()


@with_graph
def test_a_row_of_zeros_has_no_direction(name):
    """Among training rows it changes nobody's neighbours; a new one gets the rates."""
    X, Y, new, _ = easy()
    X, new = np.abs(X), np.abs(new)
    X[5] = new[3] = 0
    score = call(name, X, Y, new, metric="cosine")
    rate = {"ml_knn": (1 + Y.sum(0)) / (2 + len(Y)), "l2f": Y.mean(0)}.get(name)
    if name == "tram":
        rate = (Y / np.maximum(Y.sum(1, keepdims=True), 1)).mean(0)
        rate = Y.sum(1).mean() * rate / rate.sum()
    np.testing.assert_allclose(score[3], rate, atol=1e-9)
    kept, seen = np.arange(len(X)) != 5, np.arange(len(new)) != 3
    score, without = score[seen], call(name, X[kept], Y[kept], new[seen], metric="cosine")
    if name == "ml_knn":  # the row still counts in P(l)
        Y = np.asarray(Y, float)
        without_rate = (1 + Y[kept].sum(0)) / (1 + len(Y))
        score = score / (1 - score) * (1 - rate) / rate
        without = without / (1 - without) * (1 - without_rate) / without_rate
    if name != "l2f":  # there it counts in the mean degree
        np.testing.assert_allclose(score, without, atol=1e-8)


def test_copies_of_one_row():
    Y = np.arange(12)[:, None] % 3 == np.arange(3)
    for name in ("ml_knn", "tram", "l2f", "ls_ml"):
        score = call(name, np.ones((12, 4)), Y, np.ones((2, 4)))
        assert np.isfinite(score).all()


def test_rules_of_decision():
    score = [[0.9, 0.5, 0.2, 0.0], [0.3, 0.1, 0.05, 0.0],
             [0.6, 0.6, 0.6, 0.7], [-0.2, 3.0, 0.0, 0.1]]  # fmt: skip
    expected = [[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 0, 1], [0, 1, 0, 1]]
    assert as_labels(score, "tram").tolist() == expected == as_labels(score, "l2f").tolist()
    assert as_labels(score, "ls_ml")[:, 1].tolist() == [1, 0, 1, 1]
    assert as_labels(score, "tram", 0.6)[2].tolist() == [1, 1, 1, 1]
    assert as_labels(score, "ml_knn", [1, 1, 0.2, 0])[0].tolist() == [0, 0, 1, 1]
