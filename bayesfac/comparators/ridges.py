"""PLST, CSSP and CPLST for a whole grid of settings from one decomposition of the features.

    Xc = X less its column means,  Yc = Y less its column means
    B(c) = (Xc'Xc + c I)^-1 Xc'Yc            ridge regression of every label
    PLST    Yc of rank d is Yc V V':         score = mean + x'B V V',  V from the singular vectors of Yc
    CSSP    labels follow from d of them:    score = (mean + x'B)[drawn] C^+ Y
    CPLST   (Chen & Lin, 2012)               score = mean + x'B V V',  V from eigenvectors of Yc'Xc B

One eigendecomposition of Xc'Xc, or of Xc Xc' where there are fewer rows than features, gives x'B for every
penalty c, so that a further penalty costs one product of matrices.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bayesfac.comparators.embeddings import drawn_labels
from bayesfac.comparators.shared import choice, labels, numbers, pair
from bayesfac.core import checks

METHODS = ("plst", "cssp", "cplst")


class GridScore(NamedTuple):
    """Scores of new rows at one setting; `penalty` is c, in the units of the method."""

    d: int
    penalty: float
    score: np.ndarray


class Decomposed(NamedTuple):
    """size: eigenvalues; new: new rows in the eigenvectors; right: x'B(c) = new @ (right / (size + c))."""

    size: np.ndarray
    new: np.ndarray
    right: np.ndarray
    agree: np.ndarray  # Yc'Xc B(c) = right' (agree / (size + c)) right
    unit: float  # the mean squared length of a row of Xc

    def answers(self, c: float) -> np.ndarray:
        """x'B(c) of new rows."""
        return self.new @ (self.right / (self.size + c)[:, None])


def decomposed(X: Any, Yc: np.ndarray, X_new: Any, centred: bool = True) -> Decomposed:
    """The eigenvectors of the smaller of Xc'Xc and Xc Xc'. Sparse features stay sparse.

    Unless `centred`, Xc is X as it is."""
    n, m = X.shape
    mean = np.asarray(X.mean(0)).ravel() * centred
    if m <= n:
        G = _dense(X.T @ X) - n * np.outer(mean, mean)
        size, Q = np.linalg.eigh(G)
        new, right = X_new @ Q - mean @ Q, Q.T @ (X.T @ Yc)
        agree = np.ones(m)
    else:
        side = X @ mean
        G = _dense(X @ X.T) - side - side[:, None] + mean @ mean
        size, Q = np.linalg.eigh(G)
        cross = _dense(X_new @ X.T) - side - (X_new @ mean)[:, None] + mean @ mean
        new, right = cross @ Q, Q.T @ Yc
        agree = np.maximum(size, 0)
    return Decomposed(np.maximum(size, 0), new, right, agree, float(np.trace(G)) / n or 1.0)


def grid(
    method: str,
    X: Any,
    Y: Any,
    X_new: Any,
    d: Sequence[int],
    penalty: Sequence[float],
    seed: int = 0,
) -> Iterator[GridScore]:
    """Scores of new rows at every d and penalty.

    The penalty of `plst` and `cssp` is their `ridge`: c in units of the mean squared length of a centred row.
    That of `cplst` is c, as in `bf.fit("cplst", penalty=c)` with a wide prior of the means.

    Examples
    --------
    >>> X, Y = [[0.0, 1.0], [0.2, 0.9], [1.0, 0.0], [0.9, 0.3]], [[1, 0], [1, 0], [0, 1], [0, 1]]
    >>> for d, penalty, score in grid("plst", X, Y, [[0.1, 1.0]], [1, 2], [0.1]):
    ...     print(d, penalty, score.round(2).tolist())
    1 0.1 [[0.99, 0.01]]
    2 0.1 [[0.99, 0.01]]
    """
    choice("method", method, METHODS)
    (x, new), y = pair(X, X_new), labels(Y, X)
    for k in d:
        checks.whole("d", k, y.shape[1], "the number of labels")
    for c in penalty:
        numbers("penalty", penalty=c)
    rate = y.mean(0)
    found = decomposed(x, y - rate, new)
    unit = 1.0 if method == "cplst" else found.unit
    V = np.linalg.svd(y - rate, full_matrices=False)[2].T if method == "plst" else None
    maps = _columns(y, d, seed) if method == "cssp" else {}
    for c in penalty:
        answers = found.answers(c * unit)
        if method == "cplst":
            scaled = found.right * (found.agree / (found.size + c))[:, None]
            V = np.linalg.eigh(found.right.T @ scaled)[1][:, ::-1]
        codes = answers if V is None else answers @ V
        for k in d:
            if V is not None:
                yield GridScore(k, c, rate + codes[:, :k] @ V[:, :k].T)
            else:
                drawn, back = maps[k]
                yield GridScore(k, c, (rate[drawn] + answers[:, drawn]) @ back)


def _columns(
    y: np.ndarray, d: Sequence[int], seed: int
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """For every d the labels that CSSP draws, and C^+ Y."""
    _, size, right = np.linalg.svd(y, full_matrices=False)
    maps = {}
    for k in d:
        drawn = drawn_labels(size, right, k, np.random.default_rng(seed))
        maps[k] = drawn, np.linalg.lstsq(y[:, drawn], y, rcond=None)[0]
    return maps


def _dense(table: Any) -> np.ndarray:
    return table.toarray() if sp.issparse(table) else np.asarray(table)
