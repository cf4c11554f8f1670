"""Classifiers by ridge regression in fewer dimensions than labels: LS-ML, PLST and ML-CSSP."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve

from bayesfac.comparators.shared import labels, numbers, pair, seeded
from bayesfac.core import checks
from bayesfac.core.math import shared_subspace

ABSENT = 1e-10  # relative size below which a singular value or a probability is rounding


def ls_ml(
    X: Any, Y: Any, X_new: Any, *, r: int | None = None, alpha: float = 0.01, beta: float = 1e-4
) -> np.ndarray:
    """LS-ML: least squares with a subspace of the features, r rows of Theta, that all labels share.

        J = sum_l (1/n) |X u_l - y_l|^2 + alpha |u_l - Theta' v_l|^2 + beta |u_l|^2,     Theta Theta' = I

    The global minimum is computed in closed form: see the method `lsml`, which has a posterior too.
    X and Y are centred by their means over training rows, and the score, x'U, may lie beyond 0 and 1.

    Parameters
    ----------
    r : int, optional
        At most the number of labels; default 5 floor((labels - 1) / 5), the paper's as we remember it, or 1.
    alpha, beta : float
        At least 0, and above 0. Both are in units of the mean squared length of a centred row, so the scale
        of X does not matter. The paper chooses them by cross-validation.

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
    ridge, scores = _regression(x, y - rate, new)
    return scores(shared_subspace(ridge(alpha + beta), ridge(beta), r, np)[0]) + rate


def plst(X: Any, Y: Any, X_new: Any, *, d: int | None = None, ridge: float = 1.0) -> np.ndarray:
    """PLST: the first d principal components of the labels are regressed on the features.

        |Y - 1 b' - Z V'|^2 least with b the labels' mean and V'V = I, then |X W - Z|^2 + ridge |W|^2 least

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
    d, rng = _codes(d, y, ridge), np.random.default_rng(seeded(seed))
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
    of Y: d of them, or fewer where fewer can be drawn."""
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
        # the columns of y and of G's solution sum to zero, so x.T need not be centred
        return cho_solve(factor, x.T @ y / n) if d <= n else x.T @ cho_solve(factor, y / n)

    return solve, lambda W: new @ W - mean @ W
