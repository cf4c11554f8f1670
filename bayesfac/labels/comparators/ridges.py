"""Ridge regression in fewer dimensions than labels: LS-ML, PLST and ML-CSSP, and grids of settings.

A grid has PLST, CSSP and CPLST for many settings from one decomposition of the features:

    Xc = X minus its column means,  Yc = Y minus its column means
    B(c) = (Xc'Xc + c I)^-1 Xc'Yc            ridge regression of every label
    PLST    Yc of rank d is Yc V V':         score = mean + x'B V V',  V from the singular vectors of Yc
    CSSP    all labels from d of them:       score = (mean + x'B)[drawn] C^+ Y
    CPLST   (Chen & Lin, 2012)               score = mean + x'B V V',  V from eigenvectors of Yc'Xc B

One eigendecomposition of Xc'Xc, or of Xc Xc' if there are fewer rows than features, gives x'B for every
penalty c. So a further penalty costs one product of matrices.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from bayesfac.core import checks
from bayesfac.core.math import shared_subspace
from bayesfac.labels.comparators.shared import choice, dense, labels, numbers, pair

METHODS = ("plst", "cssp", "cplst")
ABSENT = 1e-10  # relative size below which a singular value or a probability is a rounding error


def ls_ml(
    X: Any, Y: Any, X_new: Any, *, r: int | None = None, alpha: float = 0.01, beta: float = 1e-4
) -> np.ndarray:
    """LS-ML: least squares with a subspace of the features, r rows of Theta, that all labels share.

        J = sum_l (1/n) |X u_l - y_l|^2 + alpha |u_l - Theta' v_l|^2 + beta |u_l|^2,     Theta Theta' = I

    The global minimum is computed in closed form: see the method `lsml`, which has a posterior too.
    X and Y are centred by their means over training rows, and the score x'U may be below 0 or above 1.

    Parameters
    ----------
    r : int, optional
        At most the number of labels. Default 5 floor((labels - 1) / 5), the paper's as we remember it, or 1.
    alpha, beta : float
        At least 0, and above 0. Both are in units of the mean squared length of a centred row, so the scale
        of X does not matter. The paper chooses them by cross-validation.

    Examples
    --------
    >>> from bayesfac.labels.comparators import as_labels
    >>> X, Y = [[0.0, 1.0], [0.2, 0.9], [1.0, 0.0], [0.9, 0.3]], [[1, 0], [1, 0], [0, 1], [0, 1]]
    >>> as_labels(ls_ml(X, Y, [[0.1, 1.0], [1.0, 0.1]]), "ls_ml").tolist()
    [[1, 0], [0, 1]]
    """
    (x, new), y = pair(X, X_new), labels(Y, X)
    L, rate = y.shape[1], y.mean(0)
    r = max(1, (L - 1) // 5 * 5) if r is None else r
    checks.whole("r", r, L, "the number of labels")
    numbers("beta", alpha=alpha, beta=beta)
    ridge, scores = _regression(x, y - rate, new)
    return scores(shared_subspace(ridge(alpha + beta), ridge(beta), r, np)[0]) + rate


def plst(X: Any, Y: Any, X_new: Any, *, d: int | None = None, ridge: float = 1.0) -> np.ndarray:
    """PLST: the first d principal components of the labels are regressed on the features.

        minimise |Y - 1 b' - Z V'|^2 with b the labels' mean and V'V = I, then |X W - Z|^2 + ridge |W|^2

    Tai & Lin (2012). The score of a row is b + V W'x, with the features centred by their mean. With d equal
    to the number of labels PLST is ridge regression of every label.

    Parameters
    ----------
    d : int, optional
        At most the number of labels; default half of them.
    ridge : float
        Above 0, in units of the mean squared length of a centred row.

    Examples
    --------
    >>> X, Y = [[0.0, 1.0], [0.2, 0.9], [1.0, 0.0], [0.9, 0.3]], [[1, 0], [1, 0], [0, 1], [0, 1]]
    >>> (plst(X, Y, [[0.1, 1.0], [1.0, 0.1]], ridge=0.1) >= 0.5).astype(int).tolist()
    [[1, 0], [0, 1]]
    """
    (x, new), y = pair(X, X_new), labels(Y, X)
    d, rate = _codes(d, y, ridge), y.mean(0)
    V = np.linalg.svd(y - rate, full_matrices=False)[2][:d].T
    solve, scores = _regression(x, (y - rate) @ V, new)
    return rate + scores(solve(ridge / len(y))) @ V.T


def cssp(
    X: Any, Y: Any, X_new: Any, *, d: int | None = None, ridge: float = 1.0, seed: int = 0
) -> np.ndarray:
    """ML-CSSP: d labels are regressed on the features, and all labels on these d (column subset selection).

        score = (x'W + b') C^+ Y,     C the d columns of Y, W and b ridge regression of C on centred features

    Bi & Kwok (2013). Labels are drawn without replacement, with probabilities proportional to the squared
    lengths of their rows in the first d right singular vectors of Y (leverage scores). A label that no row
    has is never drawn.

    Parameters
    ----------
    d : int, optional
        At most the number of labels; default half of them. Fewer are drawn if fewer have a probability.
    ridge : float
        Above 0, in units of the mean squared length of a centred row.

    Examples
    --------
    >>> X, Y = [[0.0, 1.0], [0.2, 0.9], [1.0, 0.0], [0.9, 0.3]], [[1, 1, 0], [1, 1, 0], [0, 0, 1], [0, 0, 1]]
    >>> (cssp(X, Y, [[0.1, 1.0], [1.0, 0.1]], d=2, ridge=0.1) >= 0.5).astype(int).tolist()
    [[1, 1, 0], [0, 0, 1]]
    """
    (x, new), y = pair(X, X_new), labels(Y, X)
    d, rng = _codes(d, y, ridge), checks.generator(seed)
    _, size, right = np.linalg.svd(y, full_matrices=False)
    drawn = drawn_labels(size, right, d, rng)
    if not len(drawn):  # no row has a label
        return np.zeros((new.shape[0], y.shape[1]))
    C = y[:, drawn]
    solve, scores = _regression(x, C - C.mean(0), new)
    codes = C.mean(0) + scores(solve(ridge / len(C)))
    return codes @ np.linalg.lstsq(C, y, rcond=None)[0]


def drawn_labels(
    size: np.ndarray, right: np.ndarray, d: int, rng: np.random.Generator
) -> np.ndarray:
    """The labels that `cssp` regresses on the features, from the singular values and right singular vectors
    of Y: d of them, or fewer if fewer can be drawn."""
    share = np.sum(right[:d][size[:d] > ABSENT * size[0]] ** 2, 0)
    able = np.flatnonzero(share > ABSENT)
    if not len(able):
        return able
    return rng.choice(able, min(d, len(able)), replace=False, p=share[able] / share[able].sum())


def _codes(d: Any, y: np.ndarray, ridge: float) -> int:
    """Check `d` and `ridge`; return d."""
    L = y.shape[1]
    d = -(-L // 2) if d is None else d
    checks.whole("d", d, L, "the number of labels")
    numbers("ridge", ridge=ridge)
    return int(d)


def _regression(x: Any, y: np.ndarray, new: Any) -> tuple[Callable, Callable]:
    """Two functions, for centred y and centred features: penalty -> weights, and weights -> scores of `new`.

    The penalty is in units of the mean squared length of a centred row. Sparse features are never centred
    explicitly.
    """
    mean = np.asarray(x.mean(0)).ravel()
    if isinstance(x, np.ndarray):
        x, new, mean = x - mean, new - mean, np.zeros_like(mean)
    n, d = x.shape
    G = dense(x.T @ x if d <= n else x @ x.T) / n
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
        # the columns of y and of G's solution sum to zero, so x.T need not be centred
        return cho_solve(factor, x.T @ y / n) if d <= n else x.T @ cho_solve(factor, y / n)

    return solve, lambda W: new @ W - mean @ W


# -- grids of settings --------------------------------------------------------------------------
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
        G = dense(X.T @ X) - n * np.outer(mean, mean)
        size, Q = np.linalg.eigh(G)
        new, right = X_new @ Q - mean @ Q, Q.T @ (X.T @ Yc)
        agree = np.ones(m)
    else:
        side = X @ mean
        G = dense(X @ X.T) - side - side[:, None] + mean @ mean
        size, Q = np.linalg.eigh(G)
        cross = dense(X_new @ X.T) - side - (X_new @ mean)[:, None] + mean @ mean
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
