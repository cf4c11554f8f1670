"""FAiE and LEML for a whole grid of settings from one decomposition of the features.

    X = P diag(s) Q'                              thin singular value decomposition, features not rescaled
    FAiE   C = the first d eigenvectors of        Y Y' + alpha P diag(s^2 / (s^2 + c)) P'
           score = x'W C'Y,                       W = (X'X + c I)^-1 X'C
    LEML   score = x'W H',  W and H lower         |Y - X W H'|^2 + c/2 (|W|^2 + |H|^2)

Both depend on the rows through P'Y alone. The eigenvectors of FAiE are in the span of P and Y, so one
eigendecomposition with at most rank(X) + labels columns is exact for every d. A sweep of LEML (H, then W)
makes no pass over the rows and solves no large system: with W = Q R, the entries of R separate in the
eigenvectors of H'H. LEML starts with the smallest penalty; each larger penalty starts at the result of the
one before.

`bf.fit("faie")` and `bf.fit("leml")` fit single settings of the same objectives, and have posteriors.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh

from bayesfac.core import checks
from bayesfac.labels.comparators.ridges import decomposed
from bayesfac.labels.comparators.shared import labels, numbers, pair

NONE = 1e-12  # relative size below which an eigenvalue is a rounding error


class Score(NamedTuple):
    """The scores of new rows at one setting."""

    setting: dict[str, float]
    score: np.ndarray


class Basis(NamedTuple):
    """Features and labels in singular vectors: s^2, P'Y, and the part of Y outside the span of P."""

    s2: np.ndarray
    inside: np.ndarray  # P'Y
    beside: np.ndarray  # the part of the labels outside the span of P
    new: np.ndarray  # new rows times Q


def basis(X: Any, Y: Any, X_new: Any) -> Basis:
    """The decomposition that all settings use. Sparse features stay sparse."""
    (x, new), y = pair(X, X_new), labels(Y, X)
    found = decomposed(x, y, new, centred=False)
    kept = found.size > NONE * max(found.size[-1], 1e-300)
    s2, agree = found.size[kept], found.agree[kept]
    inside = found.right[kept] * np.sqrt(agree / s2)[:, None]
    value, V = np.linalg.eigh(y.T @ y - inside.T @ inside)
    more = value > 1e-10 * max(float(np.sum(y)), 1.0)
    beside = np.sqrt(value[more])[:, None] * V[:, more].T
    return Basis(s2, inside, beside, found.new[:, kept] / np.sqrt(agree))


def faie(
    X: Any, Y: Any, X_new: Any, d: Sequence[int], penalty: Sequence[float], alpha: Sequence[float]
) -> Iterator[Score]:
    """Scores of FAiE at every setting; Lin, Ding, Hu & Wang (ICML 2014).

    Parameters
    ----------
    d : sequence of int
        Numbers of codes, each at most the number of labels.
    penalty, alpha : sequence of float
        c and alpha, above 0.

    Examples
    --------
    >>> X, Y = [[0.0, 1.0], [0.2, 0.9], [1.0, 0.0], [0.9, 0.3]], [[1, 0], [1, 0], [0, 1], [0, 1]]
    >>> for setting, score in faie(X, Y, [[0.1, 1.0]], [1, 2], [0.1], [1.0]):
    ...     print(setting, score.round(2).tolist())
    {'d': 1, 'penalty': 0.1, 'alpha': 1.0} [[0.4, 0.49]]
    {'d': 2, 'penalty': 0.1, 'alpha': 1.0} [[0.97, 0.02]]
    """
    at = _checked(X, Y, X_new, d, penalty=penalty, alpha=alpha)
    of_labels = np.vstack([at.inside, at.beside])
    rows, rank = len(of_labels), len(at.s2)
    most = min(max(d), rows)
    for a in alpha:
        for c in penalty:
            gain = of_labels @ of_labels.T
            gain[np.arange(rank), np.arange(rank)] += a * at.s2 / (at.s2 + c)
            C = eigh(gain, subset_by_index=[rows - most, rows - 1])[1][:, ::-1]
            codes = (at.new * (np.sqrt(at.s2) / (at.s2 + c))) @ C[:rank]
            D = C.T @ of_labels
            for k in d:
                yield Score({"d": k, "penalty": c, "alpha": a}, codes[:, :k] @ D[:k])


def leml(
    X: Any,
    Y: Any,
    X_new: Any,
    d: Sequence[int],
    penalty: Sequence[float],
    sweeps: int = 60,
    tol: float = 1e-5,
    seed: int = 0,
) -> Iterator[Score]:
    """Scores of LEML with squared loss at every setting; Yu, Jain, Kar & Dhillon (ICML 2014).

    Parameters
    ----------
    d : sequence of int
        Numbers of columns of W and H, each at most the number of labels. More columns than the rank of X do
        not improve the fit.
    penalty : sequence of float
        c, above 0.
    sweeps, tol
        A setting ends after this number of sweeps, or when a sweep lowers the objective by less than this
        share.

    Examples
    --------
    >>> X, Y = [[0.0, 1.0], [0.2, 0.9], [1.0, 0.0], [0.9, 0.3]], [[1, 0], [1, 0], [0, 1], [0, 1]]
    >>> for setting, score in leml(X, Y, [[0.1, 1.0]], [2], [0.01]):
    ...     print(setting, score.round(2).tolist())
    {'d': 2, 'penalty': 0.01} [[1.01, 0.01]]
    """
    at = _checked(X, Y, X_new, d, penalty=penalty)
    checks.whole("sweeps", sweeps, 1_000_000, "of a setting")
    for k in d:
        columns = min(k, len(at.s2))
        H = checks.generator(seed).normal(size=(at.inside.shape[1], columns))
        H /= len(H) ** 0.5
        for c in sorted(penalty):
            R, H = by_sweeps(at, H, c, sweeps, tol)
            yield Score({"d": k, "penalty": c}, (at.new @ R) @ H.T)


def by_sweeps(
    at: Basis, H: np.ndarray, c: float, sweeps: int, tol: float
) -> tuple[np.ndarray, np.ndarray]:
    """R and H of LEML after its sweeps, starting from H."""
    cross = np.sqrt(at.s2)[:, None] * at.inside  # Q'X'Y
    total = float(np.sum(at.inside**2) + np.sum(at.beside**2))
    R, last = step_R(at.s2, cross, H, c), np.inf
    for _ in range(sweeps):
        gram = R.T @ (at.s2[:, None] * R)
        pull = cross.T @ R
        H = cho_solve(cho_factor(2 * gram + c * np.eye(len(gram))), 2 * pull.T).T
        now = total - 2 * np.sum(pull * H) + np.sum((H.T @ H) * gram)
        now += c / 2 * (np.sum(R**2) + np.sum(H**2))
        R = step_R(at.s2, cross, H, c)
        if last - now <= tol * abs(now):
            break
        last = now
    return R, H


def step_R(s2: np.ndarray, cross: np.ndarray, H: np.ndarray, c: float) -> np.ndarray:
    """The best R for this H: 2 s_j^2 R_j H'H + c R_j = 2 (Q'X'Y)_j H in the eigenvectors of H'H."""
    value, V = np.linalg.eigh(H.T @ H)
    right = 2 * (cross @ (H @ V))
    return (right / (2 * np.outer(s2, np.maximum(value, 0)) + c)) @ V.T


def _checked(X: Any, Y: Any, X_new: Any, d: Sequence[int], **positive: Sequence[float]) -> Basis:
    at = basis(X, Y, X_new)
    for k in d:
        checks.whole("d", k, at.inside.shape[1], "the number of labels")
    for name, values in positive.items():
        for value in values:
            numbers(name, **{name: value})
    return at
