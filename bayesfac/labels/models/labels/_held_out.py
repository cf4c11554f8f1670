"""The penalty, the cut and the sds of LEML, chosen by rows that are held out, a third at a time.

With the singular value decomposition of the features, X = U diag(s) Q', a sweep of LEML needs no pass over
the data and no iterations: W = Q R, and the columns of R separate in the eigenvectors of H'H. Each fold needs
one decomposition. Its penalties are tried from weak to strong, and each starts at the result of the one
before.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import expit
from threadpoolctl import threadpool_limits

from bayesfac.labels.data.scaling import singular
from bayesfac.labels.data.tasks import LABELS, Tasks
from bayesfac.labels.models.labels._left_out import MOST

FOLDS, SWEEPS = 3, 25
STEPS = 10.0 ** np.arange(-3.5, 0.01, 0.5)  # penalties; 1 is the largest singular value of X'Y


class Fold(NamedTuple):
    """Training rows, in singular vectors, and held-out rows."""

    X: np.ndarray  # U diag(s)
    s2: np.ndarray
    Y: np.ndarray
    known: np.ndarray
    new: np.ndarray  # the features of the held-out rows times Q
    held: np.ndarray


def left_out(data: Tasks, hyper: Any, bend: float) -> tuple[Any, np.ndarray, np.ndarray]:
    """Hyper with the penalty of the smallest loss on held-out rows, and their labels and scores."""
    with threadpool_limits(1, "blas"):  # the products are too small for several threads
        return _left_out(data, hyper, bend)


def _left_out(data: Tasks, hyper: Any, bend: float) -> tuple[Any, np.ndarray, np.ndarray]:
    (view,), at = data.names, np.flatnonzero(data.labelled)
    rng = np.random.default_rng(0)
    many = min(len(at), data.n_features[view]) > MOST
    at = rng.permutation(at)[: 2 * MOST if many else None]
    X, Y = sp.csr_matrix(data[view])[at], data[LABELS][at].toarray()
    known = ~np.isnan(Y)
    Y, number = np.where(known, Y, 0), np.arange(len(at)) % min(FOLDS, len(at))
    folds = [_fold(X, Y, known, number == k) for k in range(number.max() + 1 if len(at) > 1 else 0)]
    if not folds:
        return hyper._replace(penalty=hyper.penalty or 1.0), Y[:0], Y[:0]
    penalties = [hyper.penalty]
    if hyper.penalty is None:
        centred = Y - Y.mean(0)
        strongest = float(np.linalg.norm(X.T @ centred, 2)) or 1.0
        penalties = list(bend * strongest * STEPS)
    found = [_path(fold, penalties, hyper, bend) for fold in folds]
    scores = [np.zeros(Y.shape) for _ in penalties]
    for fold, each in zip(folds, found, strict=True):
        for score, part in zip(scores, each, strict=True):
            score[fold.held] = part
    losses = [float(np.sum(np.where(known, _loss(Y, score, hyper.loss), 0))) for score in scores]
    best = int(np.argmin(losses))
    hyper = hyper._replace(penalty=float(penalties[best]))
    told = expit(scores[best]) if hyper.loss == "logistic" else scores[best]
    order = np.argsort(at)  # that of the data
    return hyper, np.where(known, Y, np.nan)[order], told[order]


def _fold(X: sp.csr_matrix, Y: np.ndarray, known: np.ndarray, held: np.ndarray) -> Fold:
    own = X[~held]
    value, Q = singular(own)
    return Fold(own @ Q, value, Y[~held], known[~held], X[held] @ Q, held)


def _path(fold: Fold, penalties: list[float], hyper: Any, bend: float) -> list[np.ndarray]:
    """The scores of the held-out rows under every penalty, from weak to strong."""
    K, L = hyper.n_components, fold.Y.shape[1]
    H, scores = np.random.default_rng(0).normal(size=(L, K)) / L**0.5, []
    R = np.zeros((len(fold.s2), K))
    for penalty in penalties:
        for _ in range(SWEEPS):
            R = _step_R(fold, R, H, penalty, hyper.loss, bend)
            A = fold.X @ R
            slope = _slope(fold, A @ H.T, hyper.loss).T @ A + penalty * H
            H = H - np.linalg.solve(bend * A.T @ A + penalty * np.eye(K), slope.T).T
        scores.append(fold.new @ R @ H.T)
    return scores


def _step_R(
    fold: Fold, R: np.ndarray, H: np.ndarray, penalty: float, loss: str, bend: float
) -> np.ndarray:
    value, Q = np.linalg.eigh(H.T @ H)
    pull = fold.X.T @ (_slope(fold, fold.X @ R @ H.T, loss) @ H) + penalty * R
    return R - (pull @ Q) / (bend * np.outer(fold.s2, np.maximum(value, 0)) + penalty) @ Q.T


def _slope(fold: Fold, score: np.ndarray, loss: str) -> np.ndarray:
    each = expit(score) - fold.Y if loss == "logistic" else 2 * (score - fold.Y)
    return np.where(fold.known, each, 0)


def _loss(Y: np.ndarray, score: np.ndarray, loss: str) -> np.ndarray:
    return np.logaddexp(0, score) - Y * score if loss == "logistic" else (Y - score) ** 2
