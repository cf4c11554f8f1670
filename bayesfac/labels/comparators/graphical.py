"""Classifiers of several labels by nearest neighbours and by graphs: see `bayesfac.labels.comparators`."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from bayesfac.core import checks
from bayesfac.core.clustering import unit_rows
from bayesfac.core.errors import ConvergenceWarning
from bayesfac.labels.comparators.shared import Rows, labels, nearest, numbers, pair, placed

# conjugate gradients: relative residual at the end, and largest number of steps
SETTLED, LIMIT = 1e-10, 5000


def ml_knn(
    X: Any, Y: Any, X_new: Any, *, k: int = 10, smooth: float = 1.0, metric: str = "euclidean"
) -> np.ndarray:
    """ML-kNN: the posterior of a label, given how many of the nearest rows have it.

    With c_il the number of the k nearest training rows of i (i itself left out) that have label l,

        P(l)     = (smooth + sum_i y_il) / (2 smooth + n)
        P(c | l) = (smooth + #{i: y_il = 1, c_il = c}) / (smooth (k + 1) + #{i: y_il = 1}), P(c | not l) alike
        score    = P(l) P(c | l) / (P(l) P(c | l) + P(not l) P(c | not l)), a probability

    Parameters
    ----------
    k : int
        Number of neighbours, below the number of training rows.
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
    own, near = nearest(train, train, k, own=True), nearest(new, train, k)
    own.data[:] = near.data[:] = 1
    had, has = (np.diff(graph.indptr)[:, None] > 0 for graph in (own, near))
    count, asked = (np.rint(graph @ y).astype(np.int64) for graph in (own, near))
    rate, label, odds = (smooth + y.sum(0)) / (2 * smooth + n), np.arange(L), []
    for share, those in ((rate, y == 1), (1 - rate, y == 0)):
        code = (label * (k + 1) + count)[those & had]
        table = np.bincount(code, minlength=L * (k + 1)).reshape(L, k + 1)
        chance = (smooth + table) / (smooth * (k + 1) + table.sum(1, keepdims=True))
        odds.append(share * np.where(has, chance[label, asked], 1.0))
    return odds[0] / (odds[0] + odds[1])


def tram(X: Any, Y: Any, X_new: Any, *, k: int = 10, metric: str = "euclidean") -> np.ndarray:
    """TRAM: the label sets of training rows are spread over a graph to new rows (a harmonic function).

    A training row has the composition a_i = y_i / |y_i| (zero without labels) and the size t_i = |y_i|. W
    joins two rows if one of them is among the k nearest of the other, w = exp(-d^2 / (2 s^2)) with s^2 the
    mean of d^2 over the edges, and P = D^-1 W. With training rows l, the new rows u minimise sum_ij w_ij
    (|a_i - a_j|^2 + (t_i - t_j)^2):

        (I - P_uu) a_u = P_ul a_l,     (I - P_uu) t_u = P_ul t_l,     score_i = t_i a_i / |a_i|_1

    by conjugate gradients on (D_uu - W_uu) a_u = W_ul a_l. The scores of a row have the order of its
    composition and sum to the size of its label set; they are no probabilities. This follows our reading of
    other sources, because the paper was not available. The symmetric graph and its weights follow a modified
    public copy of the authors' program. Its initial reduction of dimensions (MDDM) is omitted. New rows
    without a path to a training row get the mean composition and size.

    Parameters
    ----------
    k : int
        Number of neighbours, below the number of all rows.

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
    known = np.hstack([y / np.maximum(size, 1), size])
    start = np.tile(known.mean(0), (total - n, 1))
    f = _conjugate(lambda f: degree * f - to_new @ f, to_train @ known, start, degree)
    share, size = np.maximum(f[:, :-1], 0), np.maximum(f[:, -1:], 0)
    mass = share.sum(1, keepdims=True)
    return size * share / np.where(mass > 0, mass, 1)


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
    """L2F: scores in every view that are smooth over its graph and agree between views and similar labels.

    This is OUR RECONSTRUCTION from the paper's abstract (graph-based, jointly convex; the classifiers of all
    views make similar predictions for a row, and those of similar labels behave similarly in a view). It is
    not the authors' objective or code: they learn classifiers, and here the scores F_v of all rows are
    learned, including new rows.

        J = sum_v [tr F_v' L_v F_v + fit |(F_v - Y)_labelled|^2 + alike tr (F_v - B) L_Y (F_v - B)']
            + agreement sum_{v<w} |F_v - F_w|^2

    L_v is the Laplacian of the graph of `tram`, and L_Y that of the cosines of columns of Y, each divided by
    its mean degree. B has the frequencies of the labels in every row; without B, a rare label would be pulled
    towards a frequent one. In the eigenvectors of L_Y the labels separate: conjugate gradients, started at B,
    solve a sparse system of views x rows. The score is the mean of F_v over views; its row sum is the
    expected size of the label set.

    Parameters
    ----------
    views, views_new : mapping
        Features by view, name -> matrix.
    k, metric
        As for `tram`. Use "cosine" for views that are parts of rows of length one, as their lengths differ.
    fit, agreement, alike : float
        Above 0; at least 0; at least 0.

    Examples
    --------
    >>> from bayesfac.labels.comparators import as_labels
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
    """The labels, and the rows of every view, views sorted by name."""
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
    near.data = np.exp(-np.minimum(near.data / (2 * mean), 30))  # the longest edge keeps a weight
    return sp.csr_matrix(near.maximum(near.T))


def _laplacian(W: sp.csr_matrix) -> sp.csr_matrix:
    """D - W, divided by the mean degree."""
    degree = np.asarray(W.sum(1)).ravel()
    return sp.csr_matrix((sp.diags(degree) - W) / (degree.mean() or 1.0))


def _conjugate(times: Callable, right: Any, start: np.ndarray, diagonal: np.ndarray) -> np.ndarray:
    """f with A f = right, all columns at once, by conjugate gradients scaled with the diagonal.

    If A does not determine f (a part of a graph without labels), f keeps its start.
    """
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
    warnings.warn(f"not converged after {LIMIT} steps", ConvergenceWarning, stacklevel=3)
    return f
