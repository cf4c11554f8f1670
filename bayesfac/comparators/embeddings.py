"""Fewer codes than labels, learned by ridge regression and decoded linearly: two stages, no joint law."""

from typing import Any

import numpy as np

from bayesfac.comparators.graphical import _ridge
from bayesfac.comparators.shared import labels, numbers, pair, seeded
from bayesfac.core import checks

ABSENT = 1e-10  # of the largest singular value, or of a probability: no more than rounding


def plst(X: Any, Y: Any, X_new: Any, *, d: int | None = None, ridge: float = 1.0) -> np.ndarray:
    """PLST: the first d principal components of the labels are regressed on the features.

        |Y - 1 b' - Z V'|^2 least with b the labels' mean and V'V = I, then |X W - Z|^2 + ridge |W|^2 least

    Tai & Lin (2012). The score of a row is b + V W'x, the features centred by their mean too. With d the
    number of labels it is ridge regression of every label.

    Parameters
    ----------
    d : int, optional
        At most the labels; else half of them.
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
    return rate + _regression(x, (y - rate) @ V, new, ridge) @ V.T


def cssp(
    X: Any, Y: Any, X_new: Any, *, d: int | None = None, ridge: float = 1.0, seed: int = 0
) -> np.ndarray:
    """ML-CSSP: d labels are regressed on the features, and all follow from these (column subset selection).

        score = (x'W + b') C^+ Y,     C the d columns of Y, W and b ridge regression of C on centred features

    Bi & Kwok (2013). Labels are drawn one after the other, none twice, with probabilities as the squared
    lengths of their rows in the first d right singular vectors of Y (leverage scores): a label that no row
    has is never drawn.

    Parameters
    ----------
    d : int, optional
        At most the labels; else half of them. Fewer are drawn where fewer have a probability.
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
    codes = C.mean(0) + _regression(x, C - C.mean(0), new, ridge)
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
    """How many, and the other checks."""
    L = y.shape[1]
    d = -(-L // 2) if d is None else d
    checks.whole("d", d, L, "the number of labels")
    numbers("ridge", ridge=ridge)
    return int(d)


def _regression(x: Any, codes: np.ndarray, new: Any, ridge: float) -> np.ndarray:
    """Centred codes of new rows."""
    mean = np.asarray(x.mean(0)).ravel()
    if isinstance(x, np.ndarray):
        x, new, mean = x - mean, new - mean, np.zeros_like(mean)
    W = _ridge(x, codes, mean)(ridge / len(codes))
    return new @ W - mean @ W
