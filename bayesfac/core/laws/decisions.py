"""The cut of the scores of labels: a label is predicted if its score is above it.

What a cut is judged by, on rows that were left out of the fit that scored them:

accuracy   the share of labels that are right, if there are two classes: a single label, or two labels of
           which every row has exactly one
micro-F1   with any other labels, of which most rows lack most

A predicted label of probability p raises the accuracy if p > 1/2, and a micro-F1 of F if p > F / 2. So one
half, or F / 2, is the best cut of scores that are probabilities. If all scores are clearly too small or too
large on average, it moves with them. `placed_cut` leaves it only as far as the rows bear: it is the nearest
cut that is not clearly worse than the best one. The best cut itself is that of the luckiest among as many
cuts as there are scores, and predicts new rows worse.

Clearly means by more than two standard errors; from F / 2 the cut moves if it is worse by one. One half is
right for any two classes with scores around it, but F / 2 only if scores are probabilities, and those of rare
labels are shrunk. For two classes the cut follows the mean of the scores only if that is worth one standard
error of accuracy: the scores of short fits may be too small where those of the whole fit are not.
"""

from typing import NamedTuple

import numpy as np

HALF = 0.5  # the cut if none was chosen by rows left out
CERTAIN = 1e-3  # the probability of a label is at least this far from 0 and 1
CLEARLY, FROM_F1, MOVED = 2.0, 1.0, 1.0  # standard errors
STEPS = 50  # from one half, or F / 2, to the best cut


class Measured(NamedTuple):
    """Accuracy or micro-F1, a ratio of two sums over rows, and the part of each row in its error.

    Two measures of the same rows differ with a standard error of |own parts - other parts|.
    """

    value: float
    parts: np.ndarray


def two_classes(truth: np.ndarray) -> bool:
    """Whether there is one label, or there are two of which every row has exactly one."""
    return truth.shape[1] == 1 or (truth.shape[1] == 2 and bool((truth.sum(1) == 1).all()))


def measured(truth: np.ndarray, decided: np.ndarray) -> Measured:
    """The accuracy or the micro-F1 of decisions, rows x labels; unknown labels are NaN.

    >>> round(measured(np.array([[1, 0, 0], [1, 1, 0]]), np.array([[1, 0, 0], [0, 1, 1]])).value, 3)
    0.667
    >>> measured(np.array([[1], [0], [1], [1]]), np.array([[1], [0], [0], [1]])).value
    0.75
    """
    known, decided = ~np.isnan(truth), np.asarray(decided, bool)
    had, told = known & (truth > 0), known & decided
    if two_classes(truth):
        right, among = (known & (had == told)).sum(1), known.sum(1)
    else:
        right, among = 2 * (had & told).sum(1), had.sum(1) + told.sum(1)
    total = max(1, int(among.sum()))
    value = float(right.sum() / total)
    return Measured(value, (right - value * among) / total)


def name_of(truth: np.ndarray) -> str:
    """The name of what `measured` measures."""
    return "accuracy" if two_classes(truth) else "micro-F1"


def clearly(better: Measured, worse: Measured, errors: float = CLEARLY) -> bool:
    """Whether one of two measures of the same rows is larger by more than so many standard errors."""
    error = float(np.linalg.norm(better.parts - worse.parts))
    return better.value - worse.value > errors * error


def best_cut(truth: np.ndarray, score: np.ndarray) -> float:
    """The cut of the scores with the largest accuracy or micro-F1, halfway between two scores.

    Labels and scores are rows x labels. The scores must come from a fit that did not use these rows: scores
    of training rows are too good, and the best cut for them is not the best cut for new rows.

    Examples
    --------
    >>> round(best_cut(np.array([[1, 0], [1, 1]]), np.array([[0.4, 0.1], [0.3, 0.2]])), 6)
    0.15
    """
    known = ~np.isnan(truth)
    y, s = truth[known] > 0, score[known]
    order = np.argsort(-s, kind="stable")
    s, right = s[order], np.cumsum(y[order])
    if not len(s) or not right[-1]:
        return HALF
    many = np.arange(1, len(s) + 1)
    quality = 2.0 * right - many if two_classes(truth) else 2 * right / (many + right[-1])
    quality[:-1][s[:-1] == s[1:]] = -np.inf  # no cut separates equal scores
    best = int(np.argmax(quality))
    after = s[best + 1] if best + 1 < len(s) else s[best] - 1.0
    return _allowed((s[best] + after) / 2)


def placed_cut(truth: np.ndarray, score: np.ndarray) -> float:
    """The cut nearest to the usual one that these rows do not tell from the best one (see above).

    Examples
    --------
    Forty scores that are probabilities:

    >>> score = np.repeat([[0.9], [0.6], [0.4], [0.1]], 10, 0)
    >>> truth = (np.arange(40)[:, None] % 10 < 10 * score).astype(float)
    >>> placed_cut(truth, score)
    0.5
    """
    if not (truth > 0).any():
        return HALF
    best = best_cut(truth, score)
    top = measured(truth, score > best)
    two = two_classes(truth)
    usual, errors = (HALF, CLEARLY) if two else (top.value / 2, FROM_F1)
    moved = _allowed(usual + _too_large(truth, score))
    at_moved, at_usual = (measured(truth, score > cut) for cut in (moved, usual))
    usual = moved if not two or clearly(at_moved, at_usual, MOVED) else _allowed(usual)
    for cut in np.linspace(usual, best, STEPS).tolist():
        if not clearly(top, measured(truth, score > cut), errors):
            return float(cut)
    return best


def _too_large(truth: np.ndarray, score: np.ndarray) -> float:
    """The part of the mean of score - label that exceeds two standard errors."""
    away = np.where(np.isnan(truth), 0, score - np.nan_to_num(truth)).sum(1)
    mean, error = away.mean(), away.std() / len(away) ** 0.5
    return float(np.sign(mean) * max(0.0, abs(mean) - CLEARLY * error) / truth.shape[1])


def _allowed(cut: float) -> float:
    return float(np.clip(cut, 2 * CERTAIN, 1 - 2 * CERTAIN))
