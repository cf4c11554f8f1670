"""Classifiers whose machines see features of their own: SSJDR-MLL and MLSF.

For arguments and scores see `__init__.py`, for machines `classifiers.py`. Of the
papers only the abstracts were at hand: the objectives and steps are reconstructed from the programs that the
authors published. Where this file differs from a program, the function says so.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bayesfac.core import checks
from bayesfac.core.clustering import kmeans_labels, leading, normalised, unit_rows
from bayesfac.labels.comparators import learners
from bayesfac.labels.comparators.shared import (
    CELLS,
    apart,
    below,
    dense,
    labels,
    numbers,
    pair,
    placed,
)

NEAR = 7  # a row's scale is its distance to its neighbour of this rank
ROUNDS, SETTLED = 20, 1e-3  # SSJDR-MLL: largest number of rounds, relative decrease of J at the end


# -- SSJDR-MLL ----------------------------------------------------------------------------------
class Machines(NamedTuple):
    """One machine for each label on X Q, their objective, and X'c with c the signed dual variables."""

    Q: np.ndarray
    w: np.ndarray
    b: np.ndarray
    J: float
    pull: np.ndarray


def ssjdr_mll(
    X: Any,
    Y: Any,
    X_new: Any,
    *,
    d: int | None = None,
    gamma: float = 1.0,
    C: float = 1.0,
    transductive: bool = False,
) -> np.ndarray:
    """SSJDR-MLL: one machine for each label on d directions Q of the features that all labels share.

        J = sum_l [1/2 |w_l|^2 + 1/2 b_l^2 + C sum_i max(0, 1 - s_il (x_i'Q w_l + b_l))^2]
            - gamma/2 tr(Q'X'A X Q),     Q'Q = I
        A_ik = exp(-|x_i - x_k|^2 / (r_i r_k)),     r_i the distance to the seventh nearest row

    Yu & Zhang (2016). In the dual of the machines, with c_l their signed variables, J depends on Q by -1/2 tr
    Q'(sum_l X'c_l c_l'X + gamma X'A X) Q. A round takes the first d eigenvectors of that matrix, and then
    trains the machines again. J may rise; the rounds end when it does, and the round with the smallest J is
    used. The first Q is that of A alone. Rows without labels can be used in A: `transductive` adds the new
    rows.

    Four things in the authors' program are not followed. It multiplies the signed dual variables by the signs
    once more. It takes the left singular vectors of a Cholesky factor of the matrix, although its
    eigenvectors are the right ones. It starts at Q of ones. And it ends by the average precision of the test
    rows. Its machines are kernel machines with the hinge.

    Parameters
    ----------
    d : int, optional
        Number of directions; default 100, or as many as there are features or rows.
    gamma : float
        At least 0.

    Examples
    --------
    >>> X, Y = [[0.0, 1.0], [0.2, 0.9], [1.0, 0.0], [0.9, 0.3]], [[1, 0], [1, 0], [0, 1], [0, 1]]
    >>> (ssjdr_mll(X, Y, [[0.1, 1.0], [1.0, 0.1]], d=2) >= 0).astype(int).tolist()
    [[1, 0], [0, 1]]
    """
    (x, new), y = pair(X, X_new), labels(Y, X)
    rank = min(x.shape)
    d = min(100, rank) if d is None else d
    checks.whole("d", d, rank, "the smaller of rows and features")
    numbers("C", C=C, gamma=gamma)
    x, new = rotated(x, new)
    similar = gamma * smoothed(below(x, new), len(y), transductive)
    found = machines(x, y, first(similar, d), similar, C)
    for _ in range(ROUNDS):
        other = machines(x, y, first(found.pull @ found.pull.T + similar, d), similar, C)
        if not other.J < found.J:
            break
        small = found.J - other.J <= SETTLED * abs(found.J)
        found = other
        if small:
            break
    return new @ (found.Q @ found.w) + found.b


def rotated(x: Any, new: Any) -> tuple[Any, Any]:
    """Rotate the features into the span of the training rows, if there are more features than rows.

    Machines, distances and directions do not depend on a rotation, and the part that is orthogonal to all
    training rows has weight zero."""
    if x.shape[1] <= x.shape[0]:
        return x, new
    gram, cross = dense(x @ x.T), dense(new @ x.T)
    value, P = np.linalg.eigh(gram)
    s = np.sqrt(np.maximum(value, 0))
    inverse = np.where(value > 1e-12 * value[-1], 1 / np.where(s > 0, s, 1), 0)
    return P * s, (cross @ P) * inverse


def smoothed(every: Any, n: int, transductive: bool) -> np.ndarray:
    """X'A X over the n training rows, or over all rows, in blocks of rows of A."""
    x, size = placed(every[:n], every[n:], "euclidean")
    if not transductive:
        x, size = x[:n], size[:n]
    rows, table = every[: len(size)], np.zeros((every.shape[1], every.shape[1]))
    width = max(1, CELLS // len(size))
    blocks = [slice(at, at + width) for at in range(0, len(size), width)]

    def far(block: slice) -> np.ndarray:
        return apart((x[block], size[block]), (x, size))

    near = min(NEAR, len(size) - 1)
    scale = np.concatenate([np.sqrt(np.partition(far(block), near)[:, near]) for block in blocks])
    for block in blocks:
        square, room = far(block), scale[block, None] * scale
        A = np.where(room > 0, np.exp(-square / np.where(room > 0, room, 1)), square == 0)
        table += dense(rows[block].T @ (A @ rows))
    return table


def first(table: np.ndarray, d: int) -> np.ndarray:
    """The d eigenvectors with the largest eigenvalues."""
    return np.linalg.eigh((table + table.T) / 2)[1][:, ::-1][:, :d]


def machines(x: Any, y: np.ndarray, Q: np.ndarray, similar: np.ndarray, C: float) -> Machines:
    """One machine for each label on X Q."""
    z, sign = x @ Q, 2 * y - 1
    found = [learners.line(z, of, C) for of in y.T]
    w, b = np.column_stack([w for w, _ in found]), np.array([b for _, b in found])
    varies = y.min(0) != y.max(0)
    short = np.maximum(0, 1 - sign * (z @ w + b)) * varies
    J = np.sum(w**2) / 2 + np.sum(b[varies] ** 2) / 2 + C * np.sum(short**2)
    J -= np.sum(Q * (similar @ Q)) / 2
    return Machines(Q, w, b, float(J), x.T @ (2 * C * sign * short))


# -- MLSF ---------------------------------------------------------------------------------------
def mlsf(
    X: Any,
    Y: Any,
    X_new: Any,
    *,
    groups: int | None = None,
    gamma: float = 0.01,
    alpha: float = 0.8,
    epsilon: float = 0.01,
    C: float = 1.0,
    seed: int = 0,
) -> np.ndarray:
    """MLSF: groups of dependent labels, features that predict a group's label sets, and a chain for each
    group.

        A_kl = alpha jaccard(y_k, y_l) + (1 - alpha) exp(-|m_k - m_l|),     0 if below epsilon
        minimise 1/2 |X V - Z|^2 + gamma |V|_1,     z_ig in [0, 1] numbers row i's label set in group g

    Sun, Kudo & Kimura (2016). m_k is the mean of the rows that have label k; groups are spectral clusters.
    Group g uses the features with v_jg != 0. Its labels come in a random order. Each label has a machine,
    whose features include the labels before it: the true labels in training rows, the predicted ones in new
    rows. The label sets of a group are numbered in the order of their binary codes. The authors' program ends
    the lasso, by ADMM with a parameter rho, after at most 100 steps; here it is solved to the end, so there
    is no rho.

    Parameters
    ----------
    groups : int, optional
        Number of groups of labels; default a tenth of the labels, rounded up.
    gamma, alpha, epsilon : float
        Above 0; from 0 to 1; at least 0.

    Examples
    --------
    >>> X, Y = [[0.0, 1.0], [0.2, 0.9], [1.0, 0.0], [0.9, 0.3]], [[1, 0], [1, 0], [0, 1], [0, 1]]
    >>> (mlsf(X, Y, [[0.1, 1.0], [1.0, 0.1]]) >= 0).astype(int).tolist()
    [[1, 0], [0, 1]]
    """
    (x, new), y = pair(X, X_new), labels(Y, X)
    L = y.shape[1]
    groups = -(-L // 10) if groups is None else groups
    checks.whole("groups", groups, L, "the number of labels")
    numbers("C", C=C, alpha=alpha, epsilon=epsilon)
    numbers("gamma", gamma=gamma)
    if alpha > 1:
        raise ValueError(f"Expected alpha to be at most 1, got {alpha!r}")
    rng = checks.generator(seed)
    member = grouped(dependence(x, y, alpha, epsilon), groups, seed)
    Z = np.column_stack(
        [set_numbers(y[:, member == g]) for g in range(groups) if (member == g).any()]
    )
    V = learners.lasso(x, Z, gamma)
    score = np.zeros((new.shape[0], L))
    for at, g in enumerate(np.unique(member)):
        of = rng.permutation(np.flatnonzero(member == g))
        seen = np.flatnonzero(V[:, at])
        score[:, of] = chained(x[:, seen], y[:, of], new[:, seen], C)
    return score


def dependence(x: Any, y: np.ndarray, alpha: float, epsilon: float) -> np.ndarray:
    """A of `mlsf`; a label that no row has is independent of all others."""
    both, size = y.T @ y, y.sum(0)
    either = size[:, None] + size - both
    jaccard = both / np.maximum(either, 1)
    mean = np.asarray(x.T @ y).T / np.maximum(size, 1)[:, None]
    square = np.sum(mean**2, 1)
    apart = np.sqrt(np.maximum(square[:, None] + square - 2 * mean @ mean.T, 0))
    A = alpha * jaccard + (1 - alpha) * np.exp(-apart)
    A[(size == 0) | (size[:, None] == 0)] = 0
    np.fill_diagonal(A, 0)
    return np.where(A < epsilon, 0, A)


def grouped(A: np.ndarray, groups: int, seed: int) -> np.ndarray:
    """The group of every label by normalised spectral clustering (Ng, Jordan & Weiss, NIPS 2001)."""
    if groups == 1:
        return np.zeros(len(A), int)
    S = normalised(sp.csr_matrix(A))
    return kmeans_labels(unit_rows(leading(S, groups, np.random.default_rng(seed))), groups, seed)


def set_numbers(y: np.ndarray) -> np.ndarray:
    """The number of every row's set among the distinct rows of y, divided by the largest number.

    >>> set_numbers(np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])).tolist()
    [0.0, 0.5, 1.0, 0.0]
    """
    # the last label is the most significant digit
    number = np.unique(y[:, ::-1], axis=0, return_inverse=True)[1].ravel()
    return number / max(int(number.max()), 1)


def chained(x: Any, y: np.ndarray, new: Any, C: float) -> np.ndarray:
    """Margins of the labels; each machine has the labels before its own as features."""
    d, score = x.shape[1], np.zeros((new.shape[0], y.shape[1]))
    for at, of in enumerate(y.T):
        # if there are no features: a feature of zeros, so that the machine has only its intercept
        seen = learners.beside(x, y[:, :at]) if d + at else np.zeros((len(y), 1))
        w, b = learners.line(seen, of, C)
        score[:, at] = new @ w[:d] + (score[:, :at] >= 0) @ w[d : d + at] + b
    return score
