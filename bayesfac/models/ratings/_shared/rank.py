"""How many components of u_i.v_j are above the noise, by the singular values of U V'."""

from typing import Any

import numpy as np


def above_noise(U: Any, V: Any, alpha: Any, by_user: np.ndarray, by_item: np.ndarray) -> int:
    """The number of singular values above the noise with precision alpha; `by_user`, `by_item` count ratings.

    With r_i ratings of user i, c_j of item j and N in all, take the table sqrt(N / (r_i c_j)) (y_ij - m) of
    the observed cells. If users and items meet independently, its noise has the same variance 1/alpha in
    every row and column, and its mean is sqrt(r_i c_j / N) u_i.v_j. For n users and m items, singular values
    of this mean below (n m)^1/4 / sqrt(alpha) cannot be detected in the table (the transition of Baik, Ben
    Arous & Péché; for tables Benaych-Georges & Nadakuditi, J. Multivariate Analysis 2012). So the limit has
    no setting.
    """
    n, m = (np.count_nonzero(count) for count in (by_user, by_item))
    limit = np.sqrt(n * m) * by_user.sum() / np.float64(alpha)
    left, right = (np.sqrt(count)[:, None] * x for count, x in ((by_user, U), (by_item, V)))
    value, frame = np.linalg.eigh(left.T @ left)
    root = frame * np.sqrt(np.maximum(value, 0))
    return int((np.linalg.eigvalsh(root.T @ (right.T @ right) @ root) > limit).sum())
