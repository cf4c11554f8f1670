"""Penalties, cuts and sds by leave-one-out predictions, which have a closed form for ridge regressions.

Let X = U diag(s) Q' over labelled rows. The ridge regression of a table T has the fitted values U G U'T, with
G = s^2 / (s^2 + penalty). The prediction of row i by all other rows is (fitted - h t_i) / (1 - h), with
h = u_i G u_i'. One decomposition serves all penalties. The penalty is that of |T - X W|^2 + penalty |W|^2.
"""

from typing import Any

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from bayesfac.labels.data.scaling import scaled
from bayesfac.labels.data.tasks import LABELS, Tasks

MOST = 2000  # largest decomposition; with more rows and features, this many random rows are used
GRID = 10.0 ** np.arange(-4, 4.01, 0.5)  # penalties, in units of the mean of s^2
CONSTANT = 10.0  # value of the constant feature: so large that its coefficient is hardly penalised


def ready(data: Tasks, hyper: Any) -> Tasks:
    """The data with scaled features, a constant feature, and scaled labels, unless the settings say
    otherwise."""
    return scaled(data, CONSTANT, labels=hyper.units) if hyper.scaled else data


class LeftOut:
    """The labelled rows of one view, prepared for any penalty; `centred` adds an intercept without
    penalty."""

    def __init__(self, data: Tasks, centred: bool = False) -> None:
        with threadpool_limits(1, "blas"):  # several threads wait for one another on a busy machine
            self._decompose(data, centred)

    def _decompose(self, data: Tasks, centred: bool) -> None:
        (view,), at = data.names, np.flatnonzero(data.labelled)
        X, self.n = sp.csr_matrix(data[view]), len(at)
        if min(self.n, X.shape[1]) > MOST:
            at = np.sort(np.random.default_rng(0).choice(at, MOST, replace=False))
        X, self.Y = X[at], data[LABELS][at].toarray()
        self.share = len(at) / self.n
        mean = np.asarray(X.mean(0)).ravel() if centred else np.zeros(X.shape[1])
        self.own = 1 / len(at) if centred else 0.0
        if X.shape[1] <= len(at):
            gram = (X.T @ X).toarray() - len(at) * np.outer(mean, mean)
            value, Q = np.linalg.eigh(gram)
            kept = value > 1e-12 * max(value[-1], 1e-300)
            self.s2, Q = value[kept], Q[:, kept]
            self.U = (X @ Q - mean @ Q) / np.sqrt(self.s2)
        else:
            gram = (X @ X.T).toarray()
            if centred:
                gram -= gram.mean(0)
                gram -= gram.mean(1, keepdims=True)
            value, U = np.linalg.eigh(gram)
            kept = value > 1e-12 * max(value[-1], 1e-300)
            self.s2, self.U = value[kept], U[:, kept]
        self.centre = self.Y.mean(0) if centred else np.zeros(self.Y.shape[1])

    def __call__(self, T: np.ndarray, penalty: float) -> np.ndarray:
        """The predictions of every row of T by the regression on all other rows."""
        share = self.s2 / (self.s2 + penalty * self.share)
        own = self.U**2 @ share + self.own
        away = np.minimum(own, 1 - 1e-6)[:, None]
        fitted = self.U @ (share[:, None] * (self.U.T @ T))
        mean = T.mean(0) if self.own else 0.0
        return (fitted + mean - away * T) / (1 - away)

    def penalty(self) -> float:
        """The penalty with the smallest squared error of the labels."""
        usual = self.s2.mean() if len(self.s2) else 1.0
        tried = usual * GRID
        errors = [np.sum((self.Y - self(self.Y, lam)) ** 2) for lam in tried]
        return float(tried[int(np.argmin(errors))] / self.share)

    def error(self, score: np.ndarray) -> float:
        return float(np.sum((self.Y - score) ** 2))
