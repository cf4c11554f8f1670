"""Classifiers of several labels by neighbours, by graphs, by a subspace: see `bayesfac.comparators`."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve

from bayesfac.comparators.shared import Rows, labels, nearest, numbers, pair, placed
from bayesfac.core import checks
from bayesfac.core.clustering import unit_rows
from bayesfac.core.errors import ConvergenceWarning

SETTLED, LIMIT = 1e-10, 5000  # relative residual that ends conjugate gradients, and steps at most


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
    (x, size), y = placed(*pair(X, X_new), metric), labels(Y, X)
    n, L = y.shape
    checks.whole("k", k, n - 1, "one less than training rows")
    numbers("smooth", smooth=smooth)
    train, new = (x[:n], size[:n]), (x[n:], size[n:])
    own, found = nearest(train, train, k, own=True), nearest(new, train, k)
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
    rows, y = placed(*pair(X, X_new), metric), labels(Y, X)
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
    >>> from bayesfac.comparators import as_labels
    >>> X, Y = [[0.0, 1.0], [0.2, 0.9], [1.0, 0.0], [0.9, 0.3]], [[1, 0], [1, 0], [0, 1], [0, 1]]
    >>> as_labels(ls_ml(X, Y, [[0.1, 1.0], [1.0, 0.1]]), "ls_ml").tolist()
    [[1, 0], [0, 1]]
    """
    (x, new), y = pair(X, X_new), labels(Y, X)
    L, rate = y.shape[1], y.mean(0)
    r = max(1, (L - 1) // 5 * 5) if r is None else r
    checks.whole("r", r, L, "the number of labels")
    numbers("beta", alpha=alpha, beta=beta)
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
    >>> from bayesfac.comparators import as_labels
    >>> views = {"one": [[0.0], [1.0], [8.0], [9.0]], "two": [[5.0], [5.1], [3.1], [3.0]]}
    >>> new = {"one": [[0.4], [8.5]], "two": [[5.2], [2.9]]}
    >>> as_labels(l2f(views, [[1, 0], [1, 0], [0, 1], [0, 1]], new, k=2), "l2f").tolist()
    [[1, 0], [0, 1]]
    """
    y, rows = _views(views, Y, views_new, metric)
    n, total, V = len(y), len(rows[0][1]), len(rows)
    checks.whole("k", k, total - 1, "one less than rows in all")
    numbers("fit", fit=fit, agreement=agreement, alike=alike)
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


# -- views, graphs, one solver ------------------------------------------------------------------
def _views(views: Any, Y: Any, views_new: Any, metric: str) -> tuple[np.ndarray, list[Rows]]:
    """The labels, and the rows of every view, sorted by name."""
    for what, of in (("views", views), ("views_new", views_new)):
        if not isinstance(of, Mapping):
            raise TypeError(f"Expected {what} as name -> matrix, got {type(of).__name__}")
    if not views or set(views) != set(views_new):
        raise ValueError(f"Expected the views {list(views)}, one at least, got {list(views_new)}")
    rows, sizes = [], {}
    for name in sorted(views):
        rows.append(placed(*pair(views[name], views_new[name], f"view {name!r}"), metric))
        y = labels(Y, views[name], f"view {name!r}")
        sizes[name] = len(rows[-1][1]) - len(y)
    if len(set(sizes.values())) > 1:
        raise ValueError(f"Expected as many new rows in every view, got {sizes}")
    return y, rows


def _graph(rows: Rows, k: int) -> sp.csr_matrix:
    """The graph of `tram`."""
    near = nearest(rows, rows, k, own=True)
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
