r"""Clusterings of several views, for comparison: k-means, and spectral clusterings that agree between views.

Kumar, Rai & Daume, "Co-regularized Multi-view Spectral Clustering", NIPS 2011. With S_v = D^-1/2 W_v D^-1/2,
the normalised similarity of view v, and U_v its embedding, an orthonormal rows x K matrix,

    pairwise   J = sum_v tr U_v' S_v U_v + weight sum_{v<w} tr U_v U_v' U_w U_w'
    centroid   J = sum_v tr U_v' S_v U_v + weight sum_v tr U_v U_v' U* U*'

is maximised exactly over one embedding at a time. U_v becomes the first K eigenvectors of S_v + weight B B',
where B holds the embeddings that v should agree with. U* becomes the first K left singular vectors of all U_v
side by side. J never falls. Only products with S_v and B are computed; no rows x rows matrix is built.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from bayesfac.core import checks
from bayesfac.core.clustering import kmeans_labels, leading, normalised, unit_rows
from bayesfac.core.data.views import Views, linked, side_by_side
from bayesfac.labels.comparators.shared import choice, numbers

HOW = ("pairwise", "centroid")
SETTLED = 1e-4  # the alternation ends when the relative increase of J is smaller


class Embeddings(NamedTuple):
    """An orthonormal rows x K matrix for each view, their centroid, and J before and after every round."""

    views: dict[str, np.ndarray]
    centroid: np.ndarray | None
    objective: list[float]


def kmeans(views: Views, K: int, seed: int = 0) -> np.ndarray:
    """k-means on the features of all views side by side.

    Parameters
    ----------
    views : Views
        They are not rescaled: a view with large numbers outweighs the other views.
    K : int
        Number of clusters.

    Returns
    -------
    array (N,)
        The cluster of every row, 0..K-1; the best of ten starts.

    Examples
    --------
    >>> x = np.repeat([[0.0, 9.0], [9.0, 0.0]], 5, 0) + np.random.default_rng(0).random((10, 2))
    >>> label = kmeans(Views({"left": x, "right": x[:, ::-1]}), 2)
    >>> len(set(label[:5])), len(set(label[5:])), int(label[0] != label[5])
    (1, 1, 1)
    """
    _check(views, K)
    x = side_by_side(views)
    # with more than half of the cells stored, a sparse matrix is larger and slower than a dense one
    return kmeans_labels(x.toarray() if 2 * x.nnz > math.prod(x.shape) else x, K, seed)


def coregularised(
    views: Views,
    K: int,
    how: str = "pairwise",
    weight: float = 0.01,
    neighbours: int = 5,
    metric: str = "euclidean",
    seed: int = 0,
    max_iter: int = 30,
) -> np.ndarray:
    """Co-regularised spectral clustering; with one view it is spectral clustering.

    Parameters
    ----------
    views : Views
        If the views have graphs, these are used; otherwise a graph of nearest neighbours for each view.
    K : int
        Number of clusters, and of eigenvectors of every view.
    how : "pairwise" or "centroid"
        Whether the embeddings of the views agree with one another or with a common one.
    weight : float
        Weight of the agreement; the paper suggests 0.01.
    neighbours, metric
        Settings of the graphs that are built (see `core.data.graphs.neighbours`).
    max_iter : int
        Largest number of rounds over the views; they end when J rises by less than 1e-4 of its value.

    Returns
    -------
    array (N,)
        The cluster of every row, 0..K-1: k-means on the rows of the embedding, scaled to length one. For
        "centroid" the embedding is U*; for "pairwise" the embeddings of the views stand side by side, each
        with rows of length one, so that every view has the same influence in every row.

    Examples
    --------
    >>> x = np.repeat([[0.0, 9.0], [9.0, 0.0]], 5, 0) + np.random.default_rng(0).random((10, 2))
    >>> label = coregularised(Views({"left": x, "right": x[:, ::-1]}), 2, "centroid", neighbours=2)
    >>> len(set(label[:5])), len(set(label[5:])), int(label[0] != label[5])
    (1, 1, 1)
    """
    result = embeddings(views, K, how, weight, neighbours, metric, seed, max_iter)
    several = result.views.values() if result.centroid is None else (result.centroid,)
    return kmeans_labels(np.hstack([unit_rows(U) for U in several]), K, seed)


def embeddings(
    views: Views,
    K: int,
    how: str = "pairwise",
    weight: float = 0.01,
    neighbours: int = 5,
    metric: str = "euclidean",
    seed: int = 0,
    max_iter: int = 30,
) -> Embeddings:
    """The embeddings that `coregularised` clusters, with the same parameters, and the objective by round.

    Examples
    --------
    >>> x = np.random.default_rng(0).random((12, 4))
    >>> found = embeddings(Views({"left": x[:, :2], "right": x[:, 2:]}), 3, weight=0.5)
    >>> found.views["left"].shape, bool(np.all(np.diff(found.objective) >= -1e-12))
    ((12, 3), True)
    """
    _check(views, K)
    choice("how", how, HOW)
    numbers("", weight=weight)
    checks.whole("max_iter", max_iter, math.inf, "rounds")
    graphs = linked(views, neighbours, metric).graphs
    assert graphs is not None  # `linked` always sets graphs
    S = {name: normalised(graphs[name]) for name in graphs.names}
    rng = np.random.default_rng(seed)
    U = {name: leading(S[name], K, rng) for name in S}
    centre = _centre(U, K) if how == "centroid" else None
    objective = [_objective(S, U, centre, weight)]
    for _ in range(max_iter):
        for name in S:
            beside = [U[w] for w in S if w != name] if centre is None else [centre]
            new = leading(S[name], K, rng, beside, weight)
            # the eigensolver may miss a copy of a repeated eigenvalue, as with K separate components
            if _gain(S[name], new, beside, weight) >= _gain(S[name], U[name], beside, weight):
                U[name] = new
        centre = _centre(U, K) if how == "centroid" else None
        objective.append(_objective(S, U, centre, weight))
        if objective[-1] - objective[-2] <= SETTLED * abs(objective[-2]):
            break
    return Embeddings(U, centre, objective)


def _centre(U: dict[str, np.ndarray], K: int) -> np.ndarray:
    """The first K eigenvectors of sum_v U_v U_v'."""
    return np.linalg.svd(np.hstack(list(U.values())), full_matrices=False)[0][:, :K]


def _gain(S: sp.csr_matrix, U: np.ndarray, beside: Sequence[np.ndarray], weight: float) -> float:
    """The terms of J that contain one embedding."""
    return float(np.sum(U * (S @ U)) + weight * sum(np.sum((W.T @ U) ** 2) for W in beside))


def _objective(
    S: dict[str, sp.csr_matrix],
    U: dict[str, np.ndarray],
    centre: np.ndarray | None,
    weight: float,
) -> float:
    names = list(S)
    return sum(
        _gain(S[v], U[v], [U[w] for w in names[:i]] if centre is None else [centre], weight)
        for i, v in enumerate(names)
    )


def _check(views: Views, K: int) -> None:
    if not isinstance(views, Views):
        raise TypeError(f"Expected Views, got {type(views).__name__}")
    checks.whole("K", K, views.n_rows, "the number of rows")
