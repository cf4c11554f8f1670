"""Classifiers by machines, trees, networks and boosting; arguments and scores as in `comparators`.

A *machine* is scikit-learn's linear support vector machine with the squared hinge. With s_i = 1 or -1 it
minimises

    1/2 |w|^2 + 1/2 b^2 + C sum_i max(0, 1 - s_i (x_i'w + b))^2,     margin = x'w + b

In `chain`, log(1 + exp(-s margin)) replaces the squared hinge. If all training rows have the same s, the
margin is s. C must be above 0. Features are not rescaled, except by `bp_mll`. All classifiers except trees
and stumps need features of similar scale.
"""

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import expit

from bayesfac.core import checks
from bayesfac.labels.comparators import learners
from bayesfac.labels.comparators.shared import choice, labels, nearest, numbers, pair, placed

KERNELS = ("linear", "rbf")
PAIRED = 200  # largest number of labels for which all pairs are learned
MANY = 1_000_000  # upper limit of rounds, cuts and hidden units


# -- one machine for each label, or pair of labels, or set of labels ----------------------------
def br_svm(X: Any, Y: Any, X_new: Any, *, C: float = 1.0, kernel: str = "linear") -> np.ndarray:
    """BR: the margins of one machine for each label; Tsoumakas & Katakis (2007).

    Parameters
    ----------
    kernel : {"linear", "rbf"}
        "rbf" is a kernel machine with the hinge, and gamma = 1 / (features x the variance of X).

    Examples
    --------
    >>> X, Y = [[0.0, 1.0], [0.2, 0.9], [1.0, 0.0], [0.9, 0.3]], [[1, 0], [1, 0], [0, 1], [0, 1]]
    >>> (br_svm(X, Y, [[0.1, 1.0], [1.0, 0.1]]) > 0).astype(int).tolist()
    [[1, 0], [0, 1]]
    """
    (x, new), y = pair(X, X_new), labels(Y, X)
    numbers("C", C=C)
    choice("kernel", kernel, KERNELS)
    return np.column_stack([learners.margins(x, of, new, C, kernel) for of in y.T])


def chain(
    X: Any, Y: Any, X_new: Any, *, order: Sequence[int] | None = None, C: float = 1.0, seed: int = 0
) -> np.ndarray:
    """CC: a logistic regression for each label, with the labels before it as further features.

        p_l = 1 / (1 + exp(-x'w_l - v_l'z_before - b_l)),     z = the true labels, for new rows p >= 1/2

    Read, Pfahringer, Holmes & Frank (2011), with one chain. The probability of a label is conditional on the
    decisions before it. A label of all training rows, or of none, has probability 1 or 0.

    Parameters
    ----------
    order : sequence of int, optional
        The positions of the labels, each once; default a random order by `seed`.

    Examples
    --------
    >>> X, Y = [[0.0], [0.1], [0.9], [1.0]], [[0, 1], [0, 1], [1, 0], [1, 0]]
    >>> (chain(X, Y, [[0.0], [1.0]], C=100.0, order=[1, 0]) >= 0.5).astype(int).tolist()
    [[0, 1], [1, 0]]
    """
    (x, new), y = pair(X, X_new), labels(Y, X)
    d, L = x.shape[1], y.shape[1]
    numbers("C", C=C)
    drawn = checks.generator(seed).permutation(L)
    places = drawn if order is None else np.asarray(order)
    if places.dtype.kind not in "iu" or sorted(places.ravel().tolist()) != list(range(L)):
        raise ValueError(f"Expected order to have each of 0 to {L - 1} once, got {order!r}")
    p = np.zeros((new.shape[0], L))
    for at, label in enumerate(places):
        before = places[:at]
        w, b = learners.line(learners.beside(x, y[:, before]), y[:, label], C, logistic=True)
        p[:, label] = expit(new @ w[:d] + (p[:, before] >= 0.5) @ w[d:] + b)
    return p


def clr(X: Any, Y: Any, X_new: Any, *, C: float = 1.0) -> np.ndarray:
    """CLR: a machine for each pair of labels, and a virtual label that separates relevant from other labels.

    The machine of i and j is trained on the rows that have exactly one of the two; a pair without such rows
    is omitted. The machine of i and the virtual label 0 is that of binary relevance. Every machine votes:

        score_i = #{j: i before j} - #{j: 0 before j},     over all labels j and 0; relevant if >= 0

    Fuernkranz, Huellermeier, Loza Mencia & Brinker (2008). L labels need L (L - 1) / 2 machines, so at most
    200 labels are accepted. Scores are integers and often equal.

    Examples
    --------
    >>> X, Y = [[0.0, 1.0], [0.2, 0.9], [1.0, 0.0], [0.9, 0.3]], [[1, 0], [1, 0], [0, 1], [0, 1]]
    >>> clr(X, Y, [[0.1, 1.0], [1.0, 0.1]]).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    (x, new), y = pair(X, X_new), labels(Y, X)
    numbers("C", C=C)
    if (L := y.shape[1]) > PAIRED:
        pairs = L * (L - 1) // 2
        raise ValueError(
            f"Expected at most {PAIRED} labels in Y, got {L}: these have {pairs} pairs"
        )
    relevant = np.column_stack([learners.margins(x, of, new, C, "linear") >= 0 for of in y.T])
    votes = relevant.astype(float)
    for i, j in combinations(range(L), 2):
        rows = y[:, i] != y[:, j]
        if rows.any():
            w, b = learners.line(x[rows], y[rows, i], C)
            first = new @ w + b >= 0
            votes[:, i] += first
            votes[:, j] += ~first
    return votes - (~relevant).sum(1, keepdims=True)


def label_powerset(X: Any, Y: Any, X_new: Any, *, C: float = 1.0) -> np.ndarray:
    """LP: every set of labels of a training row is a class, with a machine against the other classes.

    Scores are 1 for the labels of the class with the largest margin, else 0 (Tsoumakas & Katakis, 2007).

    Examples
    --------
    >>> X, Y = [[0.0], [0.1], [0.9], [1.0]], [[0, 1], [0, 1], [1, 1], [1, 1]]
    >>> label_powerset(X, Y, [[0.0], [1.0]], C=100.0).tolist()
    [[0.0, 1.0], [1.0, 1.0]]
    """
    (x, new), y = pair(X, X_new), labels(Y, X)
    numbers("C", C=C)
    return _sets(x, y, new, C)


def _sets(x: Any, y: np.ndarray, new: Any, C: float) -> np.ndarray:
    known, code = np.unique(y, axis=0, return_inverse=True)
    return known[learners.likeliest(x, code, new, C)]


def rakel(
    X: Any,
    Y: Any,
    X_new: Any,
    *,
    k: int | None = None,
    models: int | None = None,
    C: float = 1.0,
    seed: int = 0,
) -> np.ndarray:
    """RAkEL: `label_powerset` on random, overlapping sets of k labels; the score is a label's share of votes.

    Tsoumakas, Katakis & Vlahavas (2011), RAkEL-o: all sets differ. The score of a label that is in no set is
    the share of training rows that have it.

    Parameters
    ----------
    k : int, optional
        Labels in a set; default 3, or all labels if there are fewer.
    models : int, optional
        Number of sets; default two for each label, or all sets if there are fewer.

    Examples
    --------
    >>> X, Y = [[0.0], [0.1], [0.9], [1.0]], [[0, 1, 0], [0, 1, 1], [1, 1, 0], [1, 1, 1]]
    >>> rakel(X, Y, [[0.0], [1.0]], k=2, C=100.0)[:, :2].tolist()
    [[0.0, 1.0], [1.0, 1.0]]
    """
    (x, new), y = pair(X, X_new), labels(Y, X)
    L = y.shape[1]
    k = min(3, L) if k is None else k
    checks.whole("k", k, L, "the number of labels")
    models = min(2 * L, math.comb(L, k)) if models is None else models
    checks.whole("models", models, math.comb(L, k), f"sets of {k} labels of {L}")
    numbers("C", C=C)
    rng = checks.generator(seed)
    drawn: set[tuple[int, ...]] = set()
    while len(drawn) < models:
        drawn.add(tuple(sorted(rng.choice(L, k, replace=False).tolist())))
    votes, asked = np.zeros((new.shape[0], L)), np.zeros(L)
    for of in map(list, sorted(drawn)):
        votes[:, of] += _sets(x, y[:, of], new, C)
        asked[of] += 1
    return np.where(asked > 0, votes / np.maximum(asked, 1), y.mean(0))


# -- trees, neighbours, centres -----------------------------------------------------------------
def ml_dt(X: Any, Y: Any, X_new: Any, *, leaf: int = 5, seed: int = 0) -> np.ndarray:
    """ML-DT: one decision tree for all labels; the score is the share of a leaf's rows that have the label.

    Splits minimise the entropy, -sum_l [p_l log p_l + (1 - p_l) log(1 - p_l)] over the rows of a node. Clare
    & King (2001) modify C4.5; scikit-learn's tree has neither its gain ratio nor its pruning, so a minimal
    size of leaves replaces them. The tree reads features as float32.

    Parameters
    ----------
    leaf : int
        Smallest number of rows in a leaf.
    seed : int
        The seed of the choice between features that split equally well.

    Examples
    --------
    >>> X, Y = [[0.0], [0.1], [0.9], [1.0]], [[0, 1], [0, 1], [1, 0], [1, 1]]
    >>> ml_dt(X, Y, [[0.0], [1.0]], leaf=2).tolist()
    [[0.0, 1.0], [1.0, 0.5]]
    """
    (x, new), y = pair(X, X_new), labels(Y, X)
    checks.whole("leaf", leaf, len(y), "the training rows")
    at, asked = learners.leaves(x, y, new, leaf, checks.seeded(seed))
    size = np.maximum(np.bincount(at), 1)
    rate = np.stack([np.bincount(at, of) / size for of in y.T], 1)
    return rate[asked]


def br_knn(X: Any, Y: Any, X_new: Any, *, k: int = 10, metric: str = "euclidean") -> np.ndarray:
    """BR-kNN: the share of the k nearest training rows that have the label (Spyromitros et al., 2008).

    Parameters
    ----------
    k : int
        Number of neighbours, at most the number of training rows.

    Examples
    --------
    >>> br_knn([[0.0], [0.1], [5.0], [5.1]], [[1], [1], [0], [1]], [[0.05], [4.0]], k=2).tolist()
    [[1.0], [0.5]]
    """
    (x, size), y = placed(*pair(X, X_new), metric), labels(Y, X)
    n = len(y)
    checks.whole("k", k, n, "the training rows")
    near = nearest((x[n:], size[n:]), (x[:n], size[:n]), k)
    near.data[:] = 1
    number = np.diff(near.indptr)[:, None]
    return np.where(number > 0, near @ y / np.maximum(number, 1), y.mean(0))


def lift(
    X: Any,
    Y: Any,
    X_new: Any,
    *,
    ratio: float = 0.1,
    C: float = 1.0,
    kernel: str = "linear",
    seed: int = 0,
) -> np.ndarray:
    """LIFT: for each label a machine on the distances from centres of the rows with and without the label.

        phi_l(x) = [d(x, p_1), .., d(x, p_m), d(x, q_1), .., d(x, q_m)],     m = ceil(ratio min(|P_l|, |N_l|))

    p and q are the centres of m clusters of the positive and of the negative rows, by k-means from one start.
    Zhang & Wu (2015) use a kernel machine with a linear kernel.

    Parameters
    ----------
    ratio : float
        Above 0, at most 1.
    kernel : {"linear", "rbf"}
        The kernel on the distances, as for `br_svm`.

    Examples
    --------
    >>> X, Y = [[0.0], [0.1], [0.9], [1.0]], [[0, 1], [0, 1], [1, 0], [1, 0]]
    >>> (lift(X, Y, [[0.0], [1.0]], C=100.0) >= 0).astype(int).tolist()
    [[0, 1], [1, 0]]
    """
    (x, size), y = placed(*pair(X, X_new), "euclidean"), labels(Y, X)
    numbers("C", C=C)
    numbers("ratio", ratio=ratio)
    if ratio > 1:
        raise ValueError(f"Expected ratio to be at most 1, got {ratio!r}")
    choice("kernel", kernel, KERNELS)
    n, seed, score = len(y), checks.seeded(seed), np.zeros((len(size) - len(y), y.shape[1]))
    for label, of in enumerate(y.T):
        sides = [np.flatnonzero(of == 1), np.flatnonzero(of == 0)]
        m = math.ceil(ratio * min(map(len, sides)))
        phi = np.zeros((len(size), 0))
        if m:
            at = np.vstack([learners.centres(x[rows], m, seed) for rows in sides])
            phi = np.sqrt(np.maximum(size[:, None] + (at**2).sum(1) - 2 * (x @ at.T), 0))
        score[:, label] = learners.margins(phi[:n], of, phi[n:], C, kernel)
    return score


# -- all labels at once -------------------------------------------------------------------------
def llsf(
    X: Any, Y: Any, X_new: Any, *, alpha: float = 0.1, beta: float = 0.1, gamma: float = 0.01
) -> np.ndarray:
    """LLSF: sparse least squares in which correlated labels have similar weights; the score is x'W.

        J = 1/2 |X W - Y|^2 + alpha/2 tr (R - r I) W'W + beta |W|_1,     R_kl = 1 - cos(y_k, y_l)

    Huang, Li, Huang & Wu (2015) have no r. But R has a zero diagonal, so its smallest eigenvalue r is below 0
    unless all labels are equal. Without -r I, J has no lower bound if -alpha r is larger than the smallest
    eigenvalue of X'X, for example with more columns than rows. (The paper stops early, near its start.) With
    -r I, J is convex. Accelerated proximal steps start at (X'X + gamma I)^-1 X'Y and reach the minimum; J
    never rises. There is no intercept: add a column of ones to centred features.

    Parameters
    ----------
    alpha, beta, gamma : float
        At least 0, above 0, above 0.

    Examples
    --------
    >>> X, Y = [[0.0, 1.0], [0.2, 0.9], [1.0, 0.0], [0.9, 0.3]], [[1, 0], [1, 0], [0, 1], [0, 1]]
    >>> (llsf(X, Y, [[0.1, 1.0], [1.0, 0.1]]) >= 0.5).astype(int).tolist()
    [[1, 0], [0, 1]]
    """
    (x, new), y = pair(X, X_new), labels(Y, X)
    numbers("beta", alpha=alpha, beta=beta)
    numbers("gamma", gamma=gamma)
    return new @ learners.sparse_weights(learners.regression(x, y, alpha, gamma), beta)[0]


def bp_mll(
    X: Any,
    Y: Any,
    X_new: Any,
    *,
    hidden: int | None = None,
    epochs: int = 100,
    rate: float = 0.01,
    decay: float = 0.1,
    seed: int = 0,
) -> np.ndarray:
    """BP-MLL: a network with one hidden layer that ranks the labels of a row above all other labels.

        c = tanh(W2' tanh(W1' x + b1) + b2)
        J = sum_i 1 / (|Y_i| |not Y_i|) sum_{k in Y_i, l not} exp(-(c_ik - c_il)) + decay |W1, W2, b1, b2|^2

    The sum is over training rows that have some labels but not all. The best cut of a row, within -1 and 1,
    has the fewest labels on the wrong side. t(x) = a'c + b is fitted to the best cuts of all training rows by
    least squares, and the score is c - t(x). Zhang & Zhou (2006) take a gradient step for each row; here a
    step of Adam takes 64 rows. Features are divided by their largest absolute value among training rows.

    Parameters
    ----------
    hidden : int, optional
        Number of hidden units; default a fifth of the features, rounded up, at most 500.
    epochs : int
        Passes over the rows.
    rate, decay : float
        Above 0; at least 0.

    Examples
    --------
    >>> X, Y = [[0.0, 1.0], [0.2, 0.9], [1.0, 0.0], [0.9, 0.3]], [[1, 0], [1, 0], [0, 1], [0, 1]]
    >>> (bp_mll(X, Y, [[0.1, 1.0], [1.0, 0.1]], hidden=4) >= 0).astype(int).tolist()
    [[1, 0], [0, 1]]
    """
    (x, new), y = pair(X, X_new), labels(Y, X)
    hidden = min(500, math.ceil(x.shape[1] / 5)) if hidden is None else hidden
    checks.whole("hidden", hidden, MANY, "units")
    checks.whole("epochs", epochs, MANY, "rounds")
    numbers("rate", rate=rate, decay=decay)
    kept = (y.max(1) == 1) & (y.min(1) == 0)
    if not kept.any():
        raise ValueError("Expected a row in Y with some labels but not all to learn from, got none")
    x, new = learners.in_unit_box(x, new)
    weights = learners.network(x[kept], y[kept], hidden, epochs, rate, decay, checks.seeded(seed))
    (_, c), (_, asked) = (learners.outputs(weights, part) for part in (x, new))
    with_one = np.column_stack([c, np.ones(len(c))])
    a = np.linalg.lstsq(with_one, learners.best_cuts(c, y))[0]
    return asked - (asked @ a[:-1] + a[-1])[:, None]


def adaboost_mh(X: Any, Y: Any, X_new: Any, *, rounds: int = 100, cuts: int = 32) -> np.ndarray:
    """AdaBoost.MH: decision stumps that vote on all labels at once; the score is the sum of their votes.

    Let s_il = 1 or -1 say whether row i has label l, and D be the weights of cells, equal at first. A round
    takes the feature j and the cut with the least Z; W+ and W- are the weights of a side where s = 1 and -1:

        Z = 2 sum_{sides b} sum_l sqrt(W+_bl W-_bl),     h_l(b) = 1/2 log (W+_bl + e) / (W-_bl + e)
        D_il <- D_il exp(-s_il h_l(side of x_ij)), scaled to sum to 1;     e = 1 / (rows x labels)

    Schapire & Singer (1999, 2000), with real-valued votes. Only nonzero cells are counted; zeros get the rest
    of the weight. On 0/1 features a stump asks whether a word is present.

    Parameters
    ----------
    cuts : int
        Largest number of cuts of a feature, midway between successive values, spread evenly over them.

    Examples
    --------
    >>> X, Y = [[0], [1], [2], [3]], [[0, 1], [0, 1], [1, 0], [1, 1]]
    >>> adaboost_mh(X, Y, [[0], [3]], rounds=1).round(2).tolist()
    [[-0.55, 0.55], [0.55, 0.0]]
    """
    (x, new), y = pair(X, X_new), labels(Y, X)
    checks.whole("rounds", rounds, MANY, "stumps")
    checks.whole("cuts", cuts, MANY, "of a feature")
    return learners.boosted(x, y, new, rounds, cuts)
