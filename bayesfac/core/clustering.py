"""k-means, nearest rows and the leading eigenvectors of graphs, on the host."""

import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

BLOCK = 4096  # rows whose distances are held at once
POWER = 100  # steps of the power method where Lanczos does not converge
LLOYD = 300  # rounds of k-means on shares at most, as in scikit-learn
ALIVE = 0.1  # of the median sd of a component's share: below it, the share tells no rows apart
SAME = 1e-3  # sd of a share that is the same in all rows but for rounding
SAMPLE = 20_000  # largest number of rows that random starts of k-means use
CLEARLY = 0.999  # clusters are better if their badness is below this share of the other one
NEAR = 10  # neighbours of a row, beside itself
# the power of the size in the badness. With 8 to 16, clusters made by two laws were found as well as by the
# size alone (250 draws of each law, 200 to 1500 rows); with less than 8 the accuracy was lower by up to .02
BY_SIZE = 8
LEAST = 0.1  # of the mean variance of the shares, which is added to the variances within clusters
STARTS = 10  # searches for clusters from random rows, in each of two metrics
FEW = 500  # rows; up to here a full eigendecomposition takes some 0.05 s, and it cannot fail to converge


def kmeans_labels(x: Any, K: int, seed: int, starts: int = 10) -> np.ndarray:
    """The cluster of every row, 0..K-1, by k-means: the best of ten starts, or of `starts`."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        # fewer distinct rows than clusters: some clusters stay empty, which the methods say of their result
        warnings.simplefilter("ignore", ConvergenceWarning)
        return np.asarray(KMeans(K, n_init=starts, random_state=seed).fit_predict(x))


def alike(A: np.ndarray, begin: np.ndarray | None = None) -> np.ndarray:
    """The cluster of every row of A, rows x K, which are shares of K components: rows with similar shares.

    The clusters have the smallest determinant of the covariance within clusters (Friedman & Rubin, "On some
    invariant criteria for grouping data", 1967). k-means has the smallest trace. The determinant depends less
    on which mixtures of the features are called components, and this is what the data hardly decide: if no
    row is nearly one component, components that are farther apart give nearly the same words.

    The search begins at the rows that have the same largest component, so that cluster k keeps the number of
    component k. If each row is nearly one component, its cluster is that component. If a large penalty of a
    graph makes all rows mixtures, the largest of several similar shares is a matter of chance, although all
    shares together distinguish the clusters. So the search also begins at the clusters of k-means from random
    rows. These clusters get the numbers of the components that are large in them. A component with nearly the
    same share in all rows gets no rows. With `begin`, the search begins at these clusters only.

    If searches end at several clusterings with nearly the same determinant, neighbours decide: the best
    clustering has few rows whose nearest rows are in other clusters (`_badness`). Two groups that were put
    together, with a third one divided, can have a smaller determinant than the three groups, but rows on both
    sides of the division are neighbours.

    Examples
    --------
    >>> alike(np.array([[0.5, 0.3, 0.2], [0.39, 0.41, 0.2], [0.5, 0.3, 0.2], [0.1, 0.7, 0.2]])).tolist()
    [0, 0, 0, 1]
    """
    A = np.asarray(A, np.float64)
    if begin is not None:
        return _compact(A, begin)
    number, apart = _compact(A, A.argmax(1)), _apart(A)
    used = np.unique(number)
    missing = not np.isin(apart, used).all()  # components that tell rows apart, but have no row
    if not missing and len(used) > len(apart):
        return number  # random rows would give fewer clusters, with a larger determinant
    some = _some(len(A))
    whitened = A[some] @ _metric(A[some], np.zeros(len(some), int))
    near = nearest_rows(whitened, whitened, min(NEAR + 1, len(some)), "auto")
    badness = partial(_badness, A[some], near)
    free = _from_random_rows(A, (A[some], whitened), badness, apart)
    return free if missing or badness(free[some]) < CLEARLY * badness(number[some]) else number


def inhabited(A: np.ndarray) -> int:
    """How many clusters `alike` finds."""
    A = np.asarray(A, np.float64)
    used, apart = np.unique(_compact(A, A.argmax(1))), _apart(A)
    return len(used) if np.isin(apart, used).all() else len(apart)


def _apart(A: np.ndarray) -> np.ndarray:
    """The components whose shares tell rows apart."""
    varies = A.std(0)
    return np.flatnonzero(varies > max(ALIVE * np.median(varies), SAME))


def _some(count: int) -> np.ndarray:
    """Indices of at most `SAMPLE` rows."""
    if count <= SAMPLE:
        return np.arange(count)
    return np.random.default_rng(0).choice(count, SAMPLE, replace=False)


def _badness(A: np.ndarray, near: np.ndarray, number: np.ndarray) -> float:
    """How bad clusters of the rows of A are, from the rows near to each: size^8 (cut + 1 / rows).

    The cut is the share of the nearest rows of a row that are in another cluster, averaged over the rows of
    a cluster and then over clusters (a normalised cut: Shi & Malik, "Normalized cuts and image segmentation",
    2000). A cut that is smaller by 10 % outweighs a size that is larger by 1.3 %.
    """
    other = np.mean(number[near] != number[:, None], 1)
    cut = np.mean([other[number == k].mean() for k in np.unique(number)])
    return float(_size(A, number) ** BY_SIZE * (cut + 1 / len(number)))


def _from_random_rows(
    A: np.ndarray,
    forms: tuple[np.ndarray, np.ndarray],
    badness: Callable[[np.ndarray], float],
    apart: np.ndarray,
) -> np.ndarray:
    """The best clusters of searches from clusters of k-means on two forms of some rows of A: as they are, and
    in the metric of their own covariance. Each cluster gets the number of a component in `apart` that is
    large in it."""
    from scipy.optimize import linear_sum_assignment  # slow, and few fits need it

    some = forms[0]
    begins = [kmeans_labels(x, len(apart), seed, 1) for seed in range(STARTS) for x in forms]
    free = min((_compact(some, begin) for begin in begins), key=badness)
    used = np.unique(free)
    mean = np.stack([some[free == k].mean(0) for k in used])
    cluster, component = linear_sum_assignment(-mean[:, apart] / A.mean(0)[apart])
    named = np.zeros(A.shape[1], int)
    named[used[cluster]] = apart[component]
    return _compact(A, named[nearest_cluster(some, free, A)])


def nearest_cluster(A: np.ndarray, number: np.ndarray, new: np.ndarray) -> np.ndarray:
    """The cluster of the rows of A that is nearest to each row of `new`, in the metric of `alike`."""
    if not A.var(0).any():
        return np.full(len(new), number[0])
    used, metric = np.unique(number), _metric(A, number)
    mean = np.stack([A[number == k].mean(0) for k in used])
    return used[_distances(new @ metric, mean @ metric).argmin(1)]


def _size(A: np.ndarray, number: np.ndarray) -> float:
    """The geometric mean of the variances within clusters along their principal axes."""
    return float(np.exp(np.mean(np.log(_within(A, number)[0]))))


def _compact(A: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Rounds of k-means in the metric of the covariance within the clusters of the round before, in which
    the determinant never rises; a cluster without rows stays without rows."""
    if not A.var(0).any():
        return number
    for _ in range(LLOYD):
        (centres, size), metric = _centres(A, number), _metric(A, number)
        distances = _distances(A @ metric, centres @ metric)
        new = np.where(size > 0, distances, np.inf).argmin(1)
        if np.array_equal(new, number):
            break
        number = new
    return number


def _metric(A: np.ndarray, number: np.ndarray) -> np.ndarray:
    """A matrix M so that rows of A M have the covariance I within clusters."""
    variance, axes = _within(A, number)
    return axes / np.sqrt(variance)


def _within(A: np.ndarray, number: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The covariance of rows within clusters: variances along its principal axes, and these axes.

    A share of the variance of all rows is added, because without it a direction in which rows hardly vary
    could decide everything.
    """
    rest = A - _centres(A, number)[0][number]
    least = LEAST * A.var(0).mean() * np.eye(A.shape[1])
    return np.linalg.eigh(rest.T @ rest / len(A) + least)


def _centres(A: np.ndarray, number: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean of every cluster, and its number of rows."""
    member = number[:, None] == np.arange(A.shape[1])
    size = member.sum(0)
    return (member.T @ A) / np.maximum(size, 1)[:, None], size


def _distances(A: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """The squared distance of every row to every centre, without the row's own length."""
    return np.sum(centres**2, 1) - 2 * A @ centres.T


def nearest_rows(x: Any, asked: Any, count: int, algorithm: str = "brute") -> np.ndarray:
    """The `count` rows of x nearest to each row of `asked`, exactly, in blocks of rows."""
    from sklearn.neighbors import NearestNeighbors

    index = NearestNeighbors(n_neighbors=count, algorithm=algorithm).fit(x)
    blocks = (asked[at : at + BLOCK] for at in range(0, asked.shape[0], BLOCK))
    return np.concatenate([index.kneighbors(block, return_distance=False) for block in blocks])


def unit_rows(x: Any) -> Any:
    """Rows scaled to length one; a row of zeros stays zero."""
    length = np.sqrt(np.asarray(x.multiply(x).sum(1)).ravel() if sp.issparse(x) else (x**2).sum(1))
    scale = 1 / np.where(length > 0, length, 1)
    return sp.csr_matrix(sp.diags(scale) @ x) if sp.issparse(x) else scale[:, None] * x


def normalised(similarity: sp.csr_matrix) -> sp.csr_matrix:
    """D^-1/2 W D^-1/2 of the weights W; a row without edges is zero.

    Examples
    --------
    >>> normalised(sp.csr_matrix([[0.0, 4.0], [4.0, 0.0]])).toarray().tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    degree = np.asarray(similarity.sum(1)).ravel()
    half = sp.diags(1 / np.sqrt(np.where(degree > 0, degree, 1)))
    return sp.csr_matrix(half @ similarity @ half)


def leading(
    S: sp.csr_matrix,
    K: int,
    rng: np.random.Generator,
    beside: Sequence[np.ndarray] = (),
    weight: float = 0.0,
) -> np.ndarray:
    """The first K eigenvectors of S + weight sum_w U_w U_w', U_w in `beside`; S has eigenvalues in [-1, 1].

    Examples
    --------
    >>> S, U = sp.csr_matrix(np.diag([0.3, 0.2, 0.1])), np.array([[0.0], [0.0], [1.0]])
    >>> abs(leading(S, 1, np.random.default_rng(0), [U], 1.0)).ravel().round(6).tolist()
    [0.0, 0.0, 1.0]
    """
    n = S.shape[0]
    B = math.sqrt(weight) * np.hstack([np.zeros((n, 0)), *beside])
    if n <= max(FEW, 3 * K):
        return np.linalg.eigh(S.toarray() + B @ B.T)[1][:, ::-1][:, :K]

    def times(x: np.ndarray) -> np.ndarray:
        # adding the identity makes the largest eigenvalues also the largest in magnitude
        return x + S @ x + B @ (B.T @ x)

    operator = sp.linalg.LinearOperator((n, n), matvec=times, matmat=times, dtype=np.float64)
    try:
        return sp.linalg.eigsh(operator, K, which="LA", v0=rng.standard_normal(n))[1][:, ::-1]
    except sp.linalg.ArpackNoConvergence:
        # a graph in more than K pieces has more than K equal eigenvalues: any K of their vectors will do
        U = rng.standard_normal((n, K))
        for _ in range(POWER):
            U = np.linalg.qr(times(U))[0]
        return U @ np.linalg.eigh(U.T @ times(U))[1][:, ::-1]
