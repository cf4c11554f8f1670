"""Logistic regressions on all features: no method of labels should be clearly worse than they are.

The penalty is that of scikit-learn, |w|^2 / 2 on scaled features. With X = U diag(s) Q' and w = Q r, the
curvature of the loss is at most s^2 / 4 + 1 in every coordinate of r, so one decomposition serves all labels
and steps, which are accelerated (Nesterov 1983).
"""

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from scipy.special import expit
from threadpoolctl import threadpool_limits

from bayesfac.labels.data.scaling import scaled
from bayesfac.labels.data.tasks import LABELS, Tasks

WORK = 5e7  # labels x rows x (rows or features, whichever are fewer), at most: seconds
STEPS = 100
CONSTANT = 10.0  # value of the constant feature: so large that its coefficient is hardly penalised


def without_labels(data: Tasks, sets: Sequence[np.ndarray]) -> np.ndarray | None:
    """The probabilities of all labels of the rows in each set, by the labelled rows outside of this set.

    Other rows are NaN. None if the data are large.
    """
    rows, L = int(data.labelled.sum()), len(data.labels)
    if L * rows * min(rows, sum(data.n_features[view] for view in data.names)) > WORK:
        return None
    plain = scaled(data, CONSTANT)
    X = sp.csr_matrix(sp.hstack([plain[view] for view in data.names]))
    Y, found = data[LABELS].toarray(), np.full((data.n_rows, L), np.nan)
    with threadpool_limits(1, "blas"):  # the products are too small for several threads
        for held in sets:
            train = data.labelled & ~np.isin(np.arange(data.n_rows), held)
            found[held] = expit(X[held] @ coefficients(X[train], Y[train]))
    return found


def coefficients(X: sp.csr_matrix, Y: np.ndarray) -> np.ndarray:
    """The coefficients of all features, features x labels; unknown labels are NaN."""
    if X.shape[1] <= X.shape[0]:
        value, Q = np.linalg.eigh((X.T @ X).toarray())
    else:
        value, U = np.linalg.eigh((X @ X.T).toarray())
        Q = X.T @ (U / np.sqrt(np.maximum(value, 1e-12 * max(value[-1], 1e-300))))
    kept = value > 1e-10 * max(value[-1], 1e-300)
    A, bend, Q = X @ Q[:, kept], value[kept, None] / 4 + 1, Q[:, kept]
    known, Y = ~np.isnan(Y), np.nan_to_num(Y)
    r = ahead = np.zeros((A.shape[1], Y.shape[1]))
    for step in range(STEPS):
        before = r
        r = ahead - (A.T @ (known * (expit(A @ ahead) - Y)) + ahead) / bend
        ahead = r + step / (step + 3) * (r - before)
    return Q @ r
