"""Measures of predictions of several labels at once: decisions, rankings, probabilities.

`Y` is the truth: a table of rows x labels with the values 0 and 1. It is compared with `predicted` (0 or 1),
with `score` (larger is more relevant), or with `probability`. Each may be an array, a DataFrame or a scipy
sparse matrix, which is made dense. Smaller is better for *losses*, *errors* and `brier`. The conventions are:

- A row (in `macro_f1` a label) with no true and no predicted label has the score `empty`. Its default is 1;
  scikit-learn's default is 0.
- Measures of rankings leave out a row with no true label or with only true labels, because no score can rank
  it wrongly; scikit-learn counts such a row as perfect.
- A tie counts as a mistake: false labels are ranked before true labels of the same score.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import ArrayLike

__all__ = [
    "abstain",
    "abstain_curve",
    "accuracy",
    "average_precision",
    "brier",
    "coverage_error",
    "example_f1",
    "expected_calibration_error",
    "hamming_loss",
    "log_loss",
    "macro_f1",
    "micro_f1",
    "one_error",
    "ranking_loss",
    "reliability",
    "scores",
    "subset_accuracy",
]


def __dir__() -> tuple[str, ...]:
    """The public names."""
    return tuple(__all__)


Table: TypeAlias = ArrayLike | pd.DataFrame | sp.sparray | sp.spmatrix
Metric = Callable[[np.ndarray, np.ndarray], float]


# -- decisions ----------------------------------------------------------------------------------
def hamming_loss(Y: Table, predicted: Table) -> float:
    """The share of cells that are wrong.

    >>> hamming_loss([[1, 0], [1, 1]], [[1, 1], [1, 1]])
    0.25
    """
    Y, predicted = _checked(Y, "predicted", predicted)
    return float(np.mean(Y != predicted))


def subset_accuracy(Y: Table, predicted: Table) -> float:
    """The share of rows with every label right.

    >>> subset_accuracy([[1, 0], [1, 1]], [[1, 1], [1, 1]])
    0.5
    """
    Y, predicted = _checked(Y, "predicted", predicted)
    return float(np.mean((Y == predicted).all(1)))


def accuracy(Y: Table, predicted: Table, empty: float = 1.0) -> float:
    """The Jaccard index of true and predicted labels, averaged over rows: |both| / |either|.

    >>> accuracy([[1, 0], [1, 1], [0, 0]], [[1, 1], [1, 1], [0, 0]])
    0.8333333333333334
    """
    Y, predicted = _checked(Y, "predicted", predicted)
    return _mean_ratio((Y & predicted).sum(1), (Y | predicted).sum(1), empty)


def example_f1(Y: Table, predicted: Table, empty: float = 1.0) -> float:
    """F1 of each row, averaged: 2 |both| / (|true| + |predicted|).

    >>> example_f1([[1, 0], [1, 1], [0, 0]], [[1, 1], [1, 1], [0, 0]], empty=0.0)
    0.5555555555555555
    """
    Y, predicted = _checked(Y, "predicted", predicted)
    return _mean_ratio(2 * (Y & predicted).sum(1), Y.sum(1) + predicted.sum(1), empty)


def macro_f1(Y: Table, predicted: Table, empty: float = 1.0) -> float:
    """F1 of each label, averaged over labels.

    >>> macro_f1([[1, 0], [1, 1]], [[1, 1], [1, 1]])
    0.8333333333333333
    """
    Y, predicted = _checked(Y, "predicted", predicted)
    return _mean_ratio(2 * (Y & predicted).sum(0), Y.sum(0) + predicted.sum(0), empty)


def micro_f1(Y: Table, predicted: Table, empty: float = 1.0) -> float:
    """F1 over all cells; `empty` if no cell is true or predicted.

    >>> micro_f1([[1, 0], [1, 1]], [[1, 1], [1, 1]])
    0.8571428571428571
    """
    Y, predicted = _checked(Y, "predicted", predicted)
    return _mean_ratio(2 * (Y & predicted).sum(), Y.sum() + predicted.sum(), empty)


# -- rankings -----------------------------------------------------------------------------------
def ranking_loss(Y: Table, score: Table) -> float:
    """The share of pairs (true label, false label) of a row that are ranked wrongly, averaged over rows.

    >>> ranking_loss([[1, 0, 0], [1, 1, 1]], [[0.5, 0.1, 0.5], [0.1, 0.2, 0.3]])
    0.5
    """
    Y, rank, own_rank = _ranked(Y, score)
    return float(np.mean((Y * (rank - own_rank)).sum(1) / (Y.sum(1) * (~Y).sum(1))))


def average_precision(Y: Table, score: Table) -> float:
    """The share of true labels among all labels down to a true one, averaged over true labels, then rows.

    >>> average_precision([[1, 0, 1]], [[0.9, 0.5, 0.1]])
    0.8333333333333333
    """
    Y, rank, own_rank = _ranked(Y, score)
    return float(np.mean((Y * own_rank / rank).sum(1) / Y.sum(1)))


def coverage_error(Y: Table, score: Table) -> float:
    """The steps from the first label of a row's ranking down to its last true label, averaged over rows.

    This is the definition of Zhang and Zhou, "A review on multi-label learning algorithms" (2014): the value
    is zero if only the first label is true. scikit-learn counts labels instead of steps, which is one more,
    and 0 for a row with no label.

    >>> coverage_error([[1, 0, 1], [0, 1, 0]], [[0.9, 0.5, 0.1], [0.2, 0.8, 0.1]])
    1.0
    """
    Y, rank, _ = _ranked(Y, score)
    return float(np.mean((Y * rank).max(1) - 1))


def one_error(Y: Table, score: Table) -> float:
    """The share of rows whose first label is false, where false labels win ties.

    >>> one_error([[1, 0, 0], [1, 0, 0]], [[0.9, 0.5, 0.1], [0.9, 0.9, 0.1]])
    0.5
    """
    Y, rank, _ = _ranked(Y, score)
    return float(np.mean(((rank == rank.min(1, keepdims=True)) & ~Y).any(1)))


# -- probabilities ------------------------------------------------------------------------------
def brier(Y: Table, probability: Table) -> float:
    """The squared difference between probability and truth, averaged over cells.

    >>> brier([[1, 0]], [[0.5, 0.0]])
    0.125
    """
    Y, probability = _checked(Y, "probability", probability)
    return float(np.mean((probability - Y) ** 2))


def log_loss(Y: Table, probability: Table, clip: float = 0.0) -> float:
    """Minus the log probability of the truth, averaged over cells; infinite if one probability is zero.

    Probabilities are first moved into [clip, 1 - clip]. scikit-learn's clip is 2.2e-16.

    >>> log_loss([[1, 0]], [[0.5, 0.0]]), log_loss([[1]], [[0.0]])
    (0.34657359027997264, inf)
    """
    Y, probability = _checked(Y, "probability", probability)
    if not 0 <= clip < 0.5:
        raise ValueError(f"Expected clip within [0, 0.5), got {clip!r}")
    truth = np.clip(np.where(Y, probability, 1 - probability), clip, 1 - clip)
    with np.errstate(divide="ignore"):
        return max(0.0, -float(np.mean(np.log(truth))))


def reliability(Y: Table, probability: Table, bins: int = 10) -> pd.DataFrame:
    """Mean probability and share of true cells in bins of equal width, for all labels together.

    A bin includes its upper edge, and the first bin also includes zero. Means of an empty bin are NaN.

    >>> reliability([[1, 0], [1, 1]], [[0.75, 0.25], [0.5, 1.0]], bins=2)
       low  high  predicted  observed  count
    0  0.0   0.5      0.375       0.5      2
    1  0.5   1.0      0.875       1.0      2
    """
    Y, probability = _checked(Y, "probability", probability)
    if not hasattr(bins, "__index__") or bins < 1:
        raise ValueError(f"Expected at least one bin, got {bins!r}")
    edges = np.linspace(0, 1, bins + 1)
    code = np.searchsorted(edges[1:-1], probability.ravel())
    table = pd.DataFrame({"low": edges[:-1], "high": edges[1:]})
    count = np.bincount(code, minlength=bins)
    for name, cells in (("predicted", probability), ("observed", Y)):
        table[name] = np.bincount(code, cells.ravel(), bins) / np.where(count, count, np.nan)
    return table.assign(count=count)


def expected_calibration_error(Y: Table, probability: Table, bins: int = 10) -> float:
    """The difference |predicted - observed| of the bins of `reliability`, averaged over cells.

    >>> expected_calibration_error([[1, 0], [1, 1]], [[0.75, 0.25], [0.5, 1.0]], bins=2)
    0.125
    """
    predicted, observed, count = reliability(Y, probability, bins).to_numpy().T[2:]
    return float(np.nansum(np.abs(predicted - observed) * count) / count.sum())


def abstain(Y: Table, probability: Table, share: float, metric: Metric) -> float:
    """The metric without the `share` least certain rows; at least one row is kept.

    The certainty of a row is the mean of max(p, 1 - p) over its labels, which is the expected share of
    correct labels. Among equally certain rows the later ones are left out first. The metric gets Y (bool)
    and probability (float).

    >>> abstain([[1], [0]], [[0.9], [0.6]], 0.5, lambda Y, p: hamming_loss(Y, p > 0.5))
    0.0
    """
    Y, probability = _checked(Y, "probability", probability)
    if not 0 <= share < 1:
        raise ValueError(f"Expected a share of the rows within [0, 1), got {share!r}")
    order = np.argsort(-np.maximum(probability, 1 - probability).mean(1), kind="stable")
    kept = np.sort(order[: max(1, len(Y) - round(share * len(Y)))])
    return float(metric(Y[kept], probability[kept]))


def abstain_curve(Y: Table, probability: Table, shares: ArrayLike, metric: Metric) -> np.ndarray:
    """`abstain` for several shares. If uncertain rows are often wrong, a loss falls as the share grows.

    >>> abstain_curve([[1, 0], [0, 1]], [[1, 0], [0.5, 0.5]], [0, 0.5], brier)
    array([0.125, 0.   ])
    """
    return np.array([abstain(Y, probability, share, metric) for share in np.ravel(shares).tolist()])


# -- all of them --------------------------------------------------------------------------------
def scores(
    Y: Table,
    predicted: Table | None = None,
    score: Table | None = None,
    probability: Table | None = None,
    empty: float = 1.0,
) -> dict[str, float]:
    """All measures that can be computed, as {name: value}.

    Without a `score`, the probabilities are ranked. No decisions are made from probabilities. If no row has
    both true and false labels, there are no measures of rankings.

    >>> scores([[1, 0], [1, 1]], score=[[0.9, 0.2], [0.4, 0.8]])
    {'ranking_loss': 0.0, 'average_precision': 1.0, 'coverage_error': 0.0, 'one_error': 0.0}
    """
    if predicted is None and score is None and probability is None:
        raise ValueError("Expected predicted, score or probability, got none of them")
    measures: dict[str, float] = {}
    if predicted is not None:
        measures |= {f.__name__: f(Y, predicted) for f in (hamming_loss, subset_accuracy)}
        for ratio in (accuracy, example_f1, macro_f1, micro_f1):
            measures[ratio.__name__] = ratio(Y, predicted, empty)
    if probability is not None:
        for error in (brier, log_loss, expected_calibration_error):
            measures[error.__name__] = error(Y, probability)
    ranked = probability if score is None else score
    if ranked is not None:
        truth, order = _checked(Y, "score", ranked)
        if (truth.any(1) & ~truth.all(1)).any():
            for ranking in (ranking_loss, average_precision, coverage_error, one_error):
                measures[ranking.__name__] = ranking(truth, order)
    return measures


# -- checks and shared steps --------------------------------------------------------------------
def _checked(Y: Table, name: str, raw: Table) -> tuple[np.ndarray, np.ndarray]:
    """The truth and the predictions as arrays; two DataFrames must have the same rows and labels."""
    truth, numbers = _table("Y", Y), _table(name, raw)
    if truth.shape != numbers.shape:
        raise ValueError(f"Expected one shape, got Y {truth.shape}, {name} {numbers.shape}")
    if isinstance(Y, pd.DataFrame) and isinstance(raw, pd.DataFrame):
        if not (Y.index.equals(raw.index) and Y.columns.equals(raw.columns)):
            raise ValueError(f"Expected rows and labels of Y in its order, got others in {name}")
    _refuse((truth != 0) & (truth != 1), "0 or 1 in Y", truth)
    if name == "predicted":
        _refuse((numbers != 0) & (numbers != 1), "0 or 1 in predicted", numbers)
        numbers = numbers == 1
    if name == "probability":
        _refuse((numbers < 0) | (numbers > 1), "a probability within [0, 1]", numbers)
    return truth == 1, numbers


def _table(name: str, raw: Any) -> np.ndarray:
    """Finite numbers, rows x labels."""
    try:
        numbers = np.asarray(raw.toarray() if sp.issparse(raw) else raw, dtype=float, order="C")
    except (TypeError, ValueError) as error:
        raise TypeError(f"Expected numbers as {name}, rows x labels, got {raw!r:.60}") from error
    if numbers.ndim != 2 or not numbers.size:
        raise ValueError(f"Expected {name} as rows x labels, got shape {numbers.shape}")
    _refuse(~np.isfinite(numbers), f"finite {name}", numbers)
    return numbers


def _refuse(wrong: np.ndarray, expected: str, numbers: np.ndarray) -> None:
    """Raise for the first cell where `wrong` holds."""
    if wrong.any():
        row, label = np.argwhere(wrong)[0].tolist()
        got = numbers[row, label]
        raise ValueError(f"Expected {expected}, got {got} at row {row}, label {label}")


def _mean_ratio(part: np.ndarray, whole: np.ndarray, empty: float) -> float:
    if not 0 <= empty <= 1:
        raise ValueError(f"Expected empty within [0, 1], got {empty!r}")
    return float(np.mean(np.where(whole == 0, empty, part / np.maximum(whole, 1))))


def _ranked(Y: Table, score: Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows with some labels but not all; the rank of each cell, of ties the last, and among true cells."""
    Y, score = _checked(Y, "score", score)
    kept = Y.any(1) & ~Y.all(1)
    if not kept.any():
        raise ValueError("Expected a row with some labels but not all, got none to rank")
    from scipy.stats import rankdata  # here: it takes a quarter of a second, and no fit needs it

    down, true_first = -score[kept], np.where(Y, -score, np.inf)[kept]
    return Y[kept], rankdata(down, "max", axis=1), rankdata(true_first, "max", axis=1)
