"""Parts of the classifiers: linear machines, centres, a sparse regression, a network, boosted stumps."""

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve, eigvalsh

from bayesfac.core.clustering import unit_rows
from bayesfac.core.errors import ConvergenceWarning
from bayesfac.labels.comparators.shared import CELLS, dense

TOL, STEPS = 1e-6, 10_000  # machines: relative gradient at the end, largest number of steps
WIDE = 4  # with more features per row than this, the dual problem is much faster
# LLSF and lasso: relative step (for the lasso: duality gap) at the end, largest number of steps
SETTLED, LIMIT = 1e-7, 10_000
TOGETHER, FAST, SLOW, TINY = 64, 0.1, 0.001, 1e-8  # BP-MLL: rows in a step of Adam, Adam's rates


# -- machines -----------------------------------------------------------------------------------
@contextmanager
def _silent() -> Iterator[None]:
    """Suppress scikit-learn's warnings about convergence."""
    from sklearn.exceptions import ConvergenceWarning as Theirs

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Theirs)
        yield


def _machine(x: Any, y: np.ndarray, C: float, logistic: bool = False) -> Any:
    """Fit a linear machine. The primal problem needs no random numbers and converges on unscaled features."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    options = {"C": C, "tol": TOL, "max_iter": STEPS, "random_state": 0}
    if logistic:
        model = LogisticRegression(solver="liblinear", **options)
    else:
        model = LinearSVC(dual=x.shape[1] > WIDE * x.shape[0], **options)
    with _silent():
        model.fit(x, y)
    if np.max(model.n_iter_) >= STEPS:
        message = f"a linear machine did not converge in {STEPS} steps: scale the features"
        warnings.warn(message, ConvergenceWarning, stacklevel=4)
    return model


def line(x: Any, y: np.ndarray, C: float, logistic: bool = False) -> tuple[np.ndarray, float]:
    """w and b of the margin x'w + b, for y of 0 and 1. If all y are equal, w is zero and b is 1 or -1
    (infinite if `logistic`)."""
    if y.min() == y.max():
        return np.zeros(x.shape[1]), (math.inf if logistic else 1.0) * (1 if y[0] else -1)
    model = _machine(x, y, C, logistic)
    return model.coef_[0], float(model.intercept_[0])


def margins(x: Any, y: np.ndarray, new: Any, C: float, kernel: str) -> np.ndarray:
    """The margins of new rows; y as for `line`."""
    from sklearn.svm import SVC

    if kernel == "linear" or y.min() == y.max():
        w, b = line(x, y, C)
        return new @ w + b
    model = SVC(C=C, tol=TOL).fit(x, y)
    return model.decision_function(new) if new.shape[0] else np.zeros(0)


def likeliest(x: Any, code: np.ndarray, new: Any, C: float) -> np.ndarray:
    """The class of new rows among 0, 1, ...: the one whose machine has the largest margin."""
    if code.max() == 0:
        return np.zeros(new.shape[0], int)
    model = _machine(x, code, C)
    margin = new @ model.coef_.T + model.intercept_
    return margin.argmax(1) if margin.shape[1] > 1 else (margin[:, 0] > 0).astype(int)


def centres(x: Any, m: int, seed: int) -> np.ndarray:
    """The centres of m clusters by k-means; copies of a row may give equal centres."""
    from sklearn.cluster import KMeans

    with _silent():
        return np.asarray(KMeans(m, n_init=1, random_state=seed).fit(x).cluster_centers_)


def leaves(x: Any, y: np.ndarray, new: Any, least: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The leaves of a decision tree into which training rows and new rows fall."""
    from sklearn.tree import DecisionTreeClassifier

    options = {"criterion": "entropy", "min_samples_leaf": least, "random_state": seed}
    tree = DecisionTreeClassifier(**options).fit(x, y)
    return tree.apply(x), tree.apply(new) if new.shape[0] else np.zeros(0, int)


def beside(x: Any, more: np.ndarray) -> Any:
    """x with further columns."""
    return sp.hstack([x, more], format="csr") if sp.issparse(x) else np.hstack([x, more])


def in_unit_box(x: Any, new: Any) -> tuple[Any, Any]:
    """Divide features by their largest absolute value in x."""
    size = dense(abs(x).max(0)).ravel()
    scale = 1 / np.where(size > 0, size, 1)
    if sp.issparse(x):
        return sp.csr_matrix(x @ sp.diags(scale)), sp.csr_matrix(new @ sp.diags(scale))
    return x * scale, new * scale


# -- the regression of LLSF ---------------------------------------------------------------------
class Regression(NamedTuple):
    """J(W) = <W, H(W)> / 2 - <W, B> + beta |W|_1; `top` bounds the eigenvalues of H."""

    H: Callable[[np.ndarray], np.ndarray]
    B: np.ndarray
    top: float
    start: np.ndarray


def regression(x: Any, y: np.ndarray, alpha: float, gamma: float) -> Regression:
    """H(W) = X'X W + alpha W (R - r I), with r the least eigenvalue of R; B = X'Y."""
    n, d = x.shape
    unit = unit_rows(y.T)
    R = 1 - unit @ unit.T
    np.fill_diagonal(R, 0)  # also for a label that no row has
    bend = eigvalsh(R)
    R[np.diag_indices_from(R)] -= bend[0]
    G = dense(x.T @ x if d <= n else x @ x.T)
    top = eigvalsh(G, subset_by_index=[len(G) - 1, len(G) - 1])[0] + alpha * (bend[-1] - bend[0])
    B, factor = x.T @ y, cho_factor(G + gamma * np.eye(len(G)))
    start = cho_solve(factor, B) if d <= n else x.T @ cho_solve(factor, y)

    def H(W: np.ndarray) -> np.ndarray:
        return (G @ W if d <= n else x.T @ (x @ W)) + alpha * (W @ R)

    return Regression(H, B, top or 1.0, start)


def sparse_weights(of: Regression, beta: float) -> tuple[np.ndarray, list[float]]:
    """W at the minimum, and J after every step, by monotone accelerated proximal gradients (Beck & Teboulle,
    2009) with restarts (O'Donoghue & Candes, 2015)."""

    def J(W: np.ndarray, HW: np.ndarray) -> float:
        return float(np.sum(W * (HW / 2 - of.B)) + beta * np.abs(W).sum())

    W, HW, t = of.start, of.H(of.start), 1.0
    V, HV, trace = W, HW, [J(W, HW)]
    for _ in range(LIMIT):
        Z = V - (HV - of.B) / of.top
        Z = np.sign(Z) * np.maximum(np.abs(Z) - beta / of.top, 0)
        HZ = of.H(Z)
        if np.linalg.norm(Z - V) <= SETTLED * max(float(np.linalg.norm(Z)), 1.0):
            return W, trace
        if np.sum((V - Z) * (Z - W)) > 0:
            t = 1.0
        old, H_old = W, HW
        if (now := J(Z, HZ)) <= trace[-1]:
            W, HW = Z, HZ
        trace.append(min(now, trace[-1]))
        later = (1 + math.sqrt(1 + 4 * t * t)) / 2
        ahead, along, t = t / later, (t - 1) / later, later
        V = W + ahead * (Z - W) + along * (W - old)
        HV = HW + ahead * (HZ - HW) + along * (HW - H_old)
    warnings.warn(f"LLSF did not converge in {LIMIT} steps", ConvergenceWarning, stacklevel=3)
    return W, trace


def lasso(x: Any, Z: np.ndarray, gamma: float) -> np.ndarray:
    """V that minimises |x V - Z|^2 / 2 + gamma |V|_1, by coordinate descent. Each column of V is independent
    of the others.

    >>> lasso(np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([[3.0], [0.1]]), 0.5).tolist()
    [[2.5], [0.0]]
    """
    from sklearn.linear_model import Lasso

    model = Lasso(alpha=gamma / len(Z), fit_intercept=False, tol=SETTLED, max_iter=LIMIT)
    with _silent():
        model.fit(sp.csc_matrix(x) if sp.issparse(x) else np.asfortranarray(x), Z)
    if np.max(model.n_iter_) >= LIMIT:
        message = f"a lasso did not converge in {LIMIT} steps: scale the features or raise gamma"
        warnings.warn(message, ConvergenceWarning, stacklevel=3)
    return np.reshape(model.coef_, (-1, x.shape[1])).T


# -- the network of BP-MLL ----------------------------------------------------------------------
Weights = list[np.ndarray]  # inputs x hidden, hidden, hidden x labels, labels


def outputs(weights: Weights, x: Any) -> tuple[np.ndarray, np.ndarray]:
    """The outputs of the hidden and of the last layer, within (-1, 1)."""
    hidden = np.tanh(x @ weights[0] + weights[1])
    return hidden, np.tanh(hidden @ weights[2] + weights[3])


def pairwise(weights: Weights, x: Any, y: np.ndarray) -> tuple[float, Weights]:
    """The error of BP-MLL, summed over rows that have some labels but not all, and its gradient."""
    hidden, c = outputs(weights, x)
    up, down, size = (1 - y) * np.exp(c), y * np.exp(-c), y.sum(1, keepdims=True)
    pairs = size * (y.shape[1] - size)
    all_up, all_down = up.sum(1, keepdims=True), down.sum(1, keepdims=True)
    last = (up * all_down - down * all_up) / pairs * (1 - c**2)
    first = last @ weights[2].T * (1 - hidden**2)
    error = float(np.sum(all_up * all_down / pairs))
    return error, [x.T @ first, first.sum(0), hidden.T @ last, last.sum(0)]


def network(
    x: Any, y: np.ndarray, hidden: int, epochs: int, rate: float, decay: float, seed: int
) -> Weights:
    """The weights after some epochs of Adam (Kingma & Ba, 2015) in batches of rows."""
    rng, (n, d), L = np.random.default_rng(seed), x.shape, y.shape[1]
    weights: Weights = []
    for rows, columns in ((d, hidden), (hidden, L)):
        width = math.sqrt(6 / (rows + columns))
        weights += [rng.uniform(-width, width, (rows, columns)), np.zeros(columns)]
    mean, square = ([np.zeros_like(w) for w in weights] for _ in range(2))
    step = 0
    for _ in range(epochs):
        order = rng.permutation(n)
        for at in range(0, n, TOGETHER):
            rows, step = order[at : at + TOGETHER], step + 1
            slopes = pairwise(weights, x[rows], y[rows])[1]
            for w, slope, m, s in zip(weights, slopes, mean, square, strict=True):
                g = slope / len(rows) + 2 * decay / n * w
                m += FAST * (g - m)
                s += SLOW * (g * g - s)
                scale = np.sqrt(s / (1 - (1 - SLOW) ** step)) + TINY
                w -= rate / (1 - (1 - FAST) ** step) * m / scale
    return weights


def best_cuts(c: np.ndarray, y: np.ndarray) -> np.ndarray:
    """For each row the cut of its outputs with the fewest labels on the wrong side: the middle of the lowest
    interval of such cuts, within -1 and 1."""
    order, side = np.argsort(c, 1), np.ones((len(c), 1))
    edge = np.hstack([-side, np.take_along_axis(c, order, 1), side])
    true = np.cumsum(np.take_along_axis(y, order, 1), 1)
    false = np.cumsum(1 - np.take_along_axis(y, order, 1), 1)
    below = np.hstack([0 * side, true])
    above = false[:, -1:] - np.hstack([0 * side, false])
    at = np.argmin(below + above, 1)[:, None]
    return np.take_along_axis((edge[:, :-1] + edge[:, 1:]) / 2, at, 1).ravel()


# -- the stumps of AdaBoost.MH ------------------------------------------------------------------
class Stumps(NamedTuple):
    """All cuts of some features, as bins: rows with x <= cut are on the left."""

    feature: np.ndarray  # the feature of every bin
    cut: np.ndarray  # the upper end of every bin; infinite for the last bin of a feature
    member: sp.csr_matrix  # bins x rows, without the bins that contain 0
    zero: np.ndarray  # the bin of each feature that contains 0
    start: np.ndarray  # the first bin of each feature
    steps: list[np.ndarray]  # the second bins of all features, then the third bins, ...


def stumps(x: sp.csc_matrix, features: np.ndarray, bins: int) -> Stumps:
    """Cuts midway between successive values of a feature; at most `bins`, spread evenly over the values."""
    n, widths, cuts, rows, codes, zeros, at = x.shape[0], [], [], [], [], [], 0
    for j in features:
        own = slice(x.indptr[j], x.indptr[j + 1])
        value = x.data[own]
        level = np.unique(np.append(value, 0.0) if len(value) < n else value)
        gap = np.linspace(0, len(level) - 2, min(bins, len(level) - 1)).round().astype(int)
        cut = (level[gap] + level[gap + 1]) / 2
        rows.append(x.indices[own])
        codes.append(at + np.searchsorted(cut, value))
        zeros.append(at + int(np.searchsorted(cut, 0.0)))
        cuts.append(np.append(cut, np.inf))
        widths.append(len(cut) + 1)
        at += widths[-1]
    width, zero = np.array(widths), np.array(zeros)
    start = np.cumsum(width) - width
    row, code = np.concatenate(rows), np.concatenate(codes)
    kept = ~np.isin(code, zero)
    member = sp.csr_matrix((np.ones(kept.sum()), (code[kept], row[kept])), shape=(at, n))
    steps = [start[width > k] + k for k in range(1, width.max())]
    return Stumps(np.repeat(features, width), np.concatenate(cuts), member, zero, start, steps)


def best_stump(among: Stumps, weight: np.ndarray) -> tuple[float, int, float]:
    """Z, feature and cut of the stump with the least Z; `weight`: columns for true, then for false labels."""
    total = weight.sum(0)
    left = among.member @ weight
    left[among.zero] = total - np.add.reduceat(left, among.start)
    for bins in among.steps:
        left[bins] += left[bins - 1]
    right = total - left
    for side in (left, right):
        side[side < 1e-13 * total] = 0  # an empty side holds only rounding errors
    L = weight.shape[1] // 2
    Z = sum(2 * np.sqrt(side[:, :L] * side[:, L:]).sum(1) for side in (left, right))
    best = int(np.argmin(Z := np.round(Z, 12)))  # rounding errors must not break ties
    return float(Z[best]), int(among.feature[best]), float(among.cut[best])


def boosted(x: Any, y: np.ndarray, new: Any, rounds: int, bins: int) -> np.ndarray:
    """The sum of the votes of `rounds` stumps for new rows."""
    (n, L), x, new = y.shape, sp.csc_matrix(x), sp.csc_matrix(new)
    width = max(1, CELLS // (2 * L * (bins + 1)))
    used = np.flatnonzero(np.diff(x.indptr)) if x.nnz else np.zeros(1, int)
    blocks = [stumps(x, used[at : at + width], bins) for at in range(0, len(used), width)]
    weight = np.hstack([y, 1 - y]) / (n * L)
    score = np.zeros((new.shape[0], L))
    for _ in range(rounds):
        _, j, cut = min((best_stump(among, weight) for among in blocks), key=lambda stump: stump[0])
        left, asked = (part[:, [j]].toarray() <= cut for part in (x, new))
        mass = np.stack([(weight * side).sum(0) for side in (left, ~left)]) + 1 / (n * L)
        vote = np.log(mass[:, :L] / mass[:, L:]) / 2
        score += np.where(asked, vote[0], vote[1])
        own = np.where(left, vote[0], vote[1])
        weight *= np.exp(np.hstack([-own, own]))
        weight /= weight.sum()
    return score
