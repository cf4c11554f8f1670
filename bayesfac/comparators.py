r"""Classifiers of several labels at once to compare with, as plain functions from tables to scores.

    ml_knn   Zhang & Zhou, "ML-kNN: A lazy learning approach to multi-label learning", Pattern Recogn. 2007
    tram     Kong, Ng & Zhou, "Transductive multilabel learning via label set propagation", IEEE TKDE 2013
    ls_ml    Ji, Tang, Yu & Ye, "Extracting shared subspace for multi-label classification", KDD 2008
    l2f      Yang, He, Yang & Fu, "Learning from label and feature heterogeneity", ICDM 2014: a reconstruction

X and Y are features (dense, scipy sparse or DataFrame) and labels (0 or 1, rows x labels) of the training
rows, X_new the features of new ones. Scores are new rows x labels, the larger the more likely; `as_labels`
makes them 0 and 1. Sparse features stay sparse and distances come in blocks; `ls_ml` alone holds a square
table, of the smaller of rows and features. A metric is "euclidean" or "cosine", which scales rows to length
one: a row of zeros has no neighbours then and is nobody's, and its scores are averages over training rows.
Of rows equally near, to 12 digits, the first are taken.
"""

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve

from bayesfac.core import checks, reading
from bayesfac.core.errors import ConvergenceWarning
from bayesfac.core.graphs import METRICS
from bayesfac.core.spectral import unit_rows

CELLS = 4_000_000  # distances held at once
SETTLED, LIMIT = 1e-10, 5000  # relative residual that ends conjugate gradients, and steps at most
NOISE = 1e-6  # more than what they leave in a score
Rows = tuple[Any, np.ndarray]  # features, and squared lengths: infinite for a row near to none


def ml_knn(
    X: Any, Y: Any, X_new: Any, *, k: int = 10, smooth: float = 1.0, metric: str = "euclidean"
) -> np.ndarray:
    """ML-kNN: how many of the nearest rows have a label, and what that number says about the row.

    With c_il the number of the k nearest training rows of i (i itself left out) that have label l,

        P(l)     = (smooth + sum_i y_il) / (2 smooth + n)
        P(c | l) = (smooth + #{i: y_il = 1, c_il = c}) / (smooth (k + 1) + #{i: y_il = 1}), P(c | not l) alike
        score    = P(l) P(c | l) / (P(l) P(c | l) + P(not l) P(c | not l)), a probability

    Parameters
    ----------
    k : int
        Neighbours, fewer than training rows.
    smooth : float
        Above 0; 1 in the paper.

    Examples
    --------
    >>> X, Y = [[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]], [[1], [1], [1], [0], [0], [0]]
    >>> ml_knn(X, Y, [[0.05], [4.0]], k=2).round(3).tolist()
    [[0.8], [0.2]]
    """
    (x, size), y = _placed(*_pair(X, X_new), metric), _labels(Y, X)
    n, L = y.shape
    checks.whole("k", k, n - 1, "one less than training rows")
    _numbers("smooth", smooth=smooth)
    train, new = (x[:n], size[:n]), (x[n:], size[n:])
    own, found = _nearest(train, train, k, own=True), _nearest(new, train, k)
    own.data[:] = found.data[:] = 1
    had, has = (np.diff(graph.indptr)[:, None] > 0 for graph in (own, found))
    count, asked = (np.rint(graph @ y).astype(np.int64) for graph in (own, found))
    rate, label, odds = (smooth + y.sum(0)) / (2 * smooth + n), np.arange(L), []
    for share, those in ((rate, y == 1), (1 - rate, y == 0)):
        code = (label * (k + 1) + count)[those & had]
        table = np.bincount(code, minlength=L * (k + 1)).reshape(L, k + 1)
        chance = (smooth + table) / (smooth * (k + 1) + table.sum(1, keepdims=True))
        odds.append(share * np.where(has, chance[label, asked], 1.0))
    return odds[0] / (odds[0] + odds[1])


def tram(X: Any, Y: Any, X_new: Any, *, k: int = 10, metric: str = "euclidean") -> np.ndarray:
    """TRAM: label sets spread over a graph of all rows, the new ones among them, until they are harmonic.

    A training row has the composition a_i = y_i / |y_i| (zero without labels) and the size t_i = |y_i|. W
    joins rows of which either is among the k nearest of the other, w = exp(-d^2 / (2 s^2)) with s^2 the mean
    of d^2 over the edges, and P = D^-1 W. The new rows u, beside the training rows l, minimise
    sum_ij w_ij (|a_i - a_j|^2 + (t_i - t_j)^2):

        (I - P_uu) a_u = P_ul a_l,     (I - P_uu) t_u = P_ul t_l,     score_i = t_i a_i / |a_i|_1

    by conjugate gradients on (D_uu - W_uu) a_u = W_ul a_l. The scores of a row are ordered as its composition
    and sum to the size of its label set; they are no probabilities. Our reading, without the paper at hand:
    the symmetric graph and its weights follow a public copy, changed by others, of the authors' program; the
    reduction of dimensions (MDDM) that it begins with is left out; new rows that no path joins to a training
    row get the mean composition and size.

    Parameters
    ----------
    k : int
        Neighbours, fewer than rows in all.

    Examples
    --------
    >>> X, Y = [[0.0], [1.0], [8.0], [9.0]], [[1, 0, 0], [1, 0, 0], [0, 1, 1], [0, 1, 1]]
    >>> tram(X, Y, [[0.4], [8.5]], k=2).round(6).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]
    """
    rows, y = _placed(*_pair(X, X_new), metric), _labels(Y, X)
    n, total = len(y), len(rows[1])
    checks.whole("k", k, total - 1, "one less than rows in all")
    W = _graph(rows, k)[n:]
    to_train, to_new, degree = W[:, :n], W[:, n:], np.asarray(W.sum(1)).reshape(-1, 1)
    size = y.sum(1, keepdims=True)
    given = np.hstack([y / np.maximum(size, 1), size])
    start = np.tile(given.mean(0), (total - n, 1))
    found = _conjugate(lambda f: degree * f - to_new @ f, to_train @ given, start, degree)
    share, size = np.maximum(found[:, :-1], 0), np.maximum(found[:, -1:], 0)
    mass = share.sum(1, keepdims=True)
    return size * share / np.where(mass > 0, mass, 1)


def ls_ml(
    X: Any, Y: Any, X_new: Any, *, r: int | None = None, alpha: float = 0.01, beta: float = 1e-4
) -> np.ndarray:
    """LS-ML: least squares with a subspace of the features, r rows of Theta, that all labels share.

        J = sum_l (1/n) |X u_l - y_l|^2 + alpha |u_l - Theta' v_l|^2 + beta |u_l|^2,     Theta Theta' = I

    v_l = Theta u_l, and U = (M - alpha Theta' Theta)^-1 B with B = X'Y/n, M = X'X/n + (alpha + beta) I. That
    leaves tr (Theta S1 Theta')^-1 Theta S2 Theta' to maximise, S1 = I - alpha M^-1, S2 = M^-1 B B' M^-1, so
    Theta spans the first r generalised eigenvectors of (S2, S1). Worked out, with ridge regression
    U_c = (X'X/n + c I)^-1 B, these are U_beta Q, Q the first r eigenvectors of the labels x labels matrix
    U_alpha+beta' U_beta, and then

        U = U_alpha+beta + (U_beta - U_alpha+beta) Q Q'
        J = |Y|^2/n - tr B' U_alpha+beta - alpha (sum of the first r eigenvalues)

    is the global minimum: a penalty of beta in r directions of the labels, of alpha + beta in all others.
    X and Y are centred by their means over training rows, and the score, x'U, may lie beyond 0 and 1.

    Parameters
    ----------
    r : int, optional
        At most the labels; else 5 floor((labels - 1) / 5), the paper's as we remember it, or 1.
    alpha, beta : float
        At least 0, and above 0; both in units of the mean squared length of a centred row, so that the scale
        of X does not matter. In the paper they are chosen by cross-validation.

    Examples
    --------
    >>> X, Y = [[0.0, 1.0], [0.2, 0.9], [1.0, 0.0], [0.9, 0.3]], [[1, 0], [1, 0], [0, 1], [0, 1]]
    >>> as_labels(ls_ml(X, Y, [[0.1, 1.0], [1.0, 0.1]]), "ls_ml").tolist()
    [[1, 0], [0, 1]]
    """
    (x, new), y = _pair(X, X_new), _labels(Y, X)
    L, rate = y.shape[1], y.mean(0)
    r = max(1, (L - 1) // 5 * 5) if r is None else r
    checks.whole("r", r, L, "the number of labels")
    _numbers("beta", alpha=alpha, beta=beta)
    mean = np.asarray(x.mean(0)).ravel()
    if isinstance(x, np.ndarray):
        x, new, mean = x - mean, new - mean, np.zeros_like(mean)
    ridge = _ridge(x, y - rate, mean)
    U, free = ridge(alpha + beta), ridge(beta)
    Q = np.linalg.eigh(U.T @ free)[1][:, ::-1][:, :r]
    U = U + (free - U) @ Q @ Q.T
    return new @ U - mean @ U + rate


def _ridge(x: Any, y: np.ndarray, mean: np.ndarray) -> Callable[[float], np.ndarray]:
    """c -> U_c for centred y and x - mean, which is not built."""
    n, d = x.shape
    G = (x.T @ x if d <= n else x @ x.T) / n
    G = G.toarray() if sp.issparse(G) else G
    if d <= n:
        G -= np.outer(mean, mean)
    else:
        G -= G.mean(0)
        G -= G.mean(1, keepdims=True)
    unit = np.trace(G) or 1.0

    def solve(c: float) -> np.ndarray:
        A = G.copy(order="F")
        A[np.diag_indices_from(A)] += c * unit
        factor = cho_factor(A, overwrite_a=True)
        # columns of y, and with them of G's solution, sum to zero: x.T needs no centring beside them
        return cho_solve(factor, x.T @ y / n) if d <= n else x.T @ cho_solve(factor, y / n)

    return solve


def l2f(
    views: Mapping[str, Any],
    Y: Any,
    views_new: Mapping[str, Any],
    *,
    k: int = 10,
    metric: str = "euclidean",
    fit: float = 10.0,
    agreement: float = 1.0,
    alike: float = 0.01,
) -> np.ndarray:
    """L2F: scores in every view, smooth over its graph, that agree between views and between like labels.

    This is OUR RECONSTRUCTION from the paper's abstract (graph-based, jointly convex; classifiers of views
    predict alike on the same rows, those of like labels behave alike in the same view), not the authors'
    objective or code: they learn classifiers, here the scores F_v of all rows, the new ones too, are learned.

        J = sum_v [tr F_v' L_v F_v + fit |(F_v - Y)_labelled|^2 + alike tr (F_v - B) L_Y (F_v - B)']
            + agreement sum_{v<w} |F_v - F_w|^2

    L_v is the Laplacian of the graph of `tram`, L_Y that of the cosines of columns of Y, both over their mean
    degree. B has the labels' rates in every row, or a rare label would be drawn up to a frequent one. In
    the eigenvectors of L_Y labels fall apart: conjugate gradients, from B on, solve a sparse system of views
    x rows. The score is the mean of F_v over views: a row sums to the expected size of its label set.

    Parameters
    ----------
    views, views_new : mapping
        Features by view, name -> matrix.
    k, metric
        As for `tram`. Parts of rows of length one have any length: "cosine" is for them.
    fit, agreement, alike : float
        Above 0; at least 0; at least 0.

    Examples
    --------
    >>> views = {"one": [[0.0], [1.0], [8.0], [9.0]], "two": [[5.0], [5.1], [3.1], [3.0]]}
    >>> new = {"one": [[0.4], [8.5]], "two": [[5.2], [2.9]]}
    >>> as_labels(l2f(views, [[1, 0], [1, 0], [0, 1], [0, 1]], new, k=2), "l2f").tolist()
    [[1, 0], [0, 1]]
    """
    y, rows = _views(views, Y, views_new, metric)
    n, total, V = len(y), len(rows[0][1]), len(rows)
    checks.whole("k", k, total - 1, "one less than rows in all")
    _numbers("fit", fit=fit, agreement=agreement, alike=alike)
    seen = sp.diags(fit * (np.arange(total) < n))
    alone = sp.block_diag([_laplacian(_graph(of, k)) + seen for of in rows])
    A = sp.csr_matrix(alone + sp.kron(agreement * (V * np.eye(V) - 1), sp.eye(total)))
    label, rate = unit_rows(y.T), y.mean(0)
    value, Q = np.linalg.eigh(_laplacian(sp.csr_matrix(label @ label.T)).toarray())
    bend = alike * np.maximum(value, 0)
    of_view = np.vstack([fit * (y - rate) @ Q, np.zeros((total - n, len(rate)))])
    right, diagonal = np.tile(of_view, (V, 1)), A.diagonal()[:, None] + bend
    F = _conjugate(lambda f: A @ f + f * bend, right, np.zeros_like(right), diagonal)
    return F.reshape(V, total, -1)[:, n:].mean(0) @ Q.T + rate


NAMED: dict[str, Callable[..., np.ndarray]] = {f.__name__: f for f in (l2f, ls_ml, ml_knn, tram)}


def as_labels(score: Any, method: str, threshold: Any = None) -> np.ndarray:
    """Scores as 0 and 1, by the rule of their method or by a threshold (a number, or one for each label).

    tram, l2f       as many labels as the row sums to, rounded: the largest scores, of equal ones the first,
                    and none of 0 or less
    ml_knn, ls_ml   the labels whose scores reach 0.5

    Examples
    --------
    >>> as_labels([[0.9, 0.8, 0.4]], "ml_knn").tolist(), as_labels([[1.2, 0.2, 0.1]], "tram").tolist()
    ([[1, 1, 0]], [[1, 1, 0]])
    """
    if method not in NAMED:
        raise ValueError(f"Expected method to be one of {tuple(NAMED)}, got {method!r}")
    found = np.asarray(score, float)
    if found.ndim != 2:
        raise ValueError(f"Expected scores as rows x labels, got shape {found.shape}")
    reading.check_finite(found, "scores")
    if threshold is not None or method in ("ml_knn", "ls_ml"):
        return (found >= (0.5 if threshold is None else np.asarray(threshold))).astype(int)
    rank = np.argsort(np.argsort(-found, 1, kind="stable"), 1)
    size = np.floor(found.sum(1, keepdims=True) + 0.5 + NOISE)
    return ((rank < size) & (found > NOISE)).astype(int)


# -- nearest rows, graphs, one solver -----------------------------------------------------------
def _placed(x: Any, new: Any, metric: str) -> Rows:
    """Training rows and, below them, new ones."""
    if metric not in METRICS:
        raise ValueError(f"Expected metric to be one of {METRICS}, got {metric!r}")
    both: Any = sp.vstack([x, new], format="csr") if sp.issparse(x) else np.vstack([x, new])
    if metric == "euclidean" and not sp.issparse(x):
        both -= np.rint(x.mean(0))  # no digits are lost far from 0, and whole numbers stay whole
    both = unit_rows(both) if metric == "cosine" else both
    size = np.asarray((both.multiply(both) if sp.issparse(both) else both**2).sum(1)).ravel()
    return both, size if metric == "euclidean" else np.where(size > 0, 1.0, np.inf)


def _nearest(asked: Rows, among: Rows, k: int, own: bool = False) -> sp.csr_matrix:
    """Squared distances to the k nearest rows; with `own`, row i is not its own neighbour."""
    (x, size), (other, other_size) = asked, among
    width = max(1, CELLS // len(other_size))
    found = [(np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for at in range(0, len(size), width):
        cross = x[at : at + width] @ other.T
        cross = cross.toarray() if sp.issparse(cross) else cross
        total = size[at : at + width, None] + other_size
        d = total - 2 * cross
        part, power = np.frexp(np.where(d < 4e-15 * total, 0, d))
        d = np.ldexp(np.round(part, 12), power)  # rounding errors decide between no two rows
        if own:
            d[np.arange(len(d)), at + np.arange(len(d))] = np.inf
        last = np.partition(d, k - 1)[:, k - 1 : k]
        less, tie = d < last, d == last
        first = tie & (np.cumsum(tie, 1) <= k - less.sum(1, keepdims=True))
        row, col = np.nonzero((less | first) & (d < np.inf))
        found.append((d[row, col], row + at, col))
    data, row, col = map(np.concatenate, zip(*found, strict=True))
    return sp.csr_matrix((data, (row, col)), shape=(len(size), len(other_size)))


def _graph(rows: Rows, k: int) -> sp.csr_matrix:
    """The graph of `tram`."""
    near = _nearest(rows, rows, k, own=True)
    mean = (near.data.mean() if near.nnz else 0.0) or 1.0
    near.data = np.exp(-np.minimum(near.data / (2 * mean), 30))  # no edge vanishes, however long
    return sp.csr_matrix(near.maximum(near.T))


def _laplacian(W: sp.csr_matrix) -> sp.csr_matrix:
    """D - W, divided by the mean degree."""
    degree = np.asarray(W.sum(1)).ravel()
    return sp.csr_matrix((sp.diags(degree) - W) / (degree.mean() or 1.0))


def _conjugate(times: Callable, right: Any, start: np.ndarray, diagonal: np.ndarray) -> np.ndarray:
    """f with A f = right, all columns at once, by conjugate gradients scaled with the diagonal. Where A
    leaves f open (a part of a graph that nothing is known about), it stays as it started."""
    scale = np.where(diagonal > 0, diagonal, 1.0)
    goal = SETTLED * (np.linalg.norm(right, axis=0) + np.linalg.norm(diagonal * start, axis=0))
    f, rest = start, right - times(start)
    p, before = np.zeros_like(rest), np.ones(rest.shape[1])
    for _ in range(LIMIT):
        going = np.linalg.norm(rest, axis=0) > goal
        if not going.any():
            return f
        z = rest / scale
        now = np.where(going, np.sum(rest * z, 0), 0)
        p = z + p * (now / before)
        q = times(p)
        step = now / np.where(going, np.sum(p * q, 0), 1)
        f, rest, before = f + step * p, rest - step * q, np.where(going, now, 1)
    warnings.warn(f"stopped after {LIMIT} steps, unsettled", ConvergenceWarning, stacklevel=3)
    return f


# -- checks -------------------------------------------------------------------------------------
def _pair(X: Any, X_new: Any, what: str = "X") -> tuple[Any, Any]:
    """Training and new features, both sparse or, with more than half of the cells stored, both dense."""
    x, _, columns = reading.matrix(X, what)
    called = "X_new" if what == "X" else f"new {what}"
    shape = np.shape(X_new)
    if len(shape) == 2 and shape[0] == 0:
        new, others = sp.csr_matrix(shape), columns
    else:
        new, _, others = reading.matrix(X_new, called)
    if (m := x.shape[1]) != new.shape[1]:
        raise ValueError(f"Expected {m} features in {called}, as in {what}, got {new.shape[1]}")
    if all(isinstance(of, pd.DataFrame) for of in (X, X_new)) and not columns.equals(others):
        raise ValueError(f"Expected the features of {what} in {called}, in order, got others")
    return (x.toarray(), new.toarray()) if 2 * x.nnz > math.prod(x.shape) else (x, new)


def _labels(Y: Any, X: Any, what: str = "X") -> np.ndarray:
    """0 and 1, rows x labels, for the rows of X."""
    y, index, names = reading.matrix(Y, "Y")
    if y.shape[0] != (n := np.shape(X)[0]):
        raise ValueError(f"Expected {n} rows in Y, as in {what}, got {y.shape[0]}")
    if all(isinstance(of, pd.DataFrame) for of in (X, Y)) and not index.equals(X.index):
        raise ValueError(f"Expected the rows of {what} in Y, in order, got others")
    if len(wrong := np.flatnonzero(y.data != 1)):
        row = int(np.searchsorted(y.indptr, wrong[0], "right") - 1)
        label, got = reading.plain(names[y.indices[wrong[0]]]), y.data[wrong[0]]
        raise ValueError(f"Expected 0 or 1 in Y, got {got:g} in row {row}, label {label!r}")
    return y.toarray()


def _views(views: Any, Y: Any, views_new: Any, metric: str) -> tuple[np.ndarray, list[Rows]]:
    """The labels, and the rows of every view, sorted by name."""
    for what, of in (("views", views), ("views_new", views_new)):
        if not isinstance(of, Mapping):
            raise TypeError(f"Expected {what} as name -> matrix, got {type(of).__name__}")
    if not views or set(views) != set(views_new):
        raise ValueError(f"Expected the views {list(views)}, one at least, got {list(views_new)}")
    rows, sizes = [], {}
    for name in sorted(views):
        rows.append(_placed(*_pair(views[name], views_new[name], f"view {name!r}"), metric))
        y = _labels(Y, views[name], f"view {name!r}")
        sizes[name] = len(rows[-1][1]) - len(y)
    if len(set(sizes.values())) > 1:
        raise ValueError(f"Expected as many new rows in every view, got {sizes}")
    return y, rows


def _numbers(positive: str, **values: Any) -> None:
    """Finite ones of at least 0, and `positive` above."""
    for name, value in values.items():
        kind = "above 0" if name == positive else "of at least 0"
        fine = isinstance(value, int | float | np.number) and 0 <= value < math.inf
        if not fine or (value == 0 and name == positive):
            raise ValueError(f"Expected {name} to be a finite number {kind}, got {value!r}")
