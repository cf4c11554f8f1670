"""Measures of predictions, recommendations and clusterings: point errors, probabilistic scores, agreement.

Every function takes plain arrays, which must have the same shape, at least one value and no NaN. `value` is
the observed value. Smaller is better, except for the log scores, the measures of recommendations and the two
clustering measures, for which larger is better.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr, logsumexp, ndtr, rel_entr

from bayesfac.core.math import crps_of_sample
from bayesfac.metrics.top_n import average_precision as average_precision
from bayesfac.metrics.top_n import catalogue_coverage as catalogue_coverage
from bayesfac.metrics.top_n import ndcg as ndcg
from bayesfac.metrics.top_n import popularity as popularity
from bayesfac.metrics.top_n import precision as precision
from bayesfac.metrics.top_n import recall as recall

__all__ = [
    "Histogram",
    "average_precision",
    "catalogue_coverage",
    "clustering_accuracy",
    "coverage",
    "crps_ensemble",
    "crps_normal",
    "fre",
    "log_score_mixture",
    "log_score_normal",
    "mae",
    "ndcg",
    "nmae",
    "normalized_mutual_information",
    "ordinal_log_score",
    "pit_ensemble",
    "pit_histogram",
    "pit_normal",
    "popularity",
    "precision",
    "recall",
    "rmse",
    "rps",
    "zero_one_error",
]


def __dir__() -> tuple[str, ...]:
    """The public names."""
    return tuple(__all__)


LOG_2PI = float(np.log(2 * np.pi))


# -- point errors of ratings --------------------------------------------------------------------
def rmse(value: ArrayLike, predicted: ArrayLike) -> float:
    """Root mean squared error.

    >>> rmse([1, 2, 3], [1, 2, 5])
    1.1547005383792515
    """
    value, predicted = _alike(value=value, predicted=predicted)
    return float(np.sqrt(np.mean((value - predicted) ** 2)))


def mae(value: ArrayLike, predicted: ArrayLike) -> float:
    """Mean absolute error.

    >>> mae([1, 2, 3], [1, 2, 5])
    0.6666666666666666
    """
    value, predicted = _alike(value=value, predicted=predicted)
    return float(np.mean(np.abs(value - predicted)))


def nmae(value: ArrayLike, predicted: ArrayLike, levels: int | Sequence[float]) -> float:
    """Mean absolute error, divided by the error of a guess: 1 is no better than a random level.

    The divisor is the expected distance of two independent uniform levels, (R^2 - 1) / 3R for
    1..R: 1.6 for five levels and 1.944 for six, as in the thesis, section 3.6.4.

    >>> nmae([1, 5], [2, 4], levels=5)
    0.625
    """
    scale = _scale(levels)
    return mae(value, predicted) / float(np.mean(np.abs(scale[:, None] - scale)))


def fre(value: ArrayLike, predicted: ArrayLike) -> float:
    """Frobenius-norm relative error: |value - predicted| / |value| over the observed cells.

    >>> fre([3, 4], [3, 9])
    1.0
    """
    value, predicted = _alike(value=value, predicted=predicted)
    size = np.linalg.norm(value)
    if size == 0:
        raise ValueError("Expected values that are not all zero, got all zeros: no relative error")
    return float(np.linalg.norm(value - predicted) / size)


def zero_one_error(
    value: ArrayLike, predicted: ArrayLike, levels: int | Sequence[float] | None = None
) -> float:
    """The share of predictions that are wrong; with `levels`, after rounding to the nearest one.

    >>> zero_one_error([1, 2, 3, 4], [1.2, 2.4, 3.6, 9], levels=4)
    0.25
    """
    value, predicted = _alike(value=value, predicted=predicted)
    if levels is not None:
        scale = _scale(levels)
        predicted = scale[np.searchsorted((scale[1:] + scale[:-1]) / 2, predicted)]
    return float(np.mean(value != predicted))


# -- predictive distributions -------------------------------------------------------------------
def coverage(lower: ArrayLike, upper: ArrayLike, value: ArrayLike) -> float:
    """The share of values that lie within their interval, ends included.

    >>> coverage([0, 0, 0], [1, 1, 1], [0.5, 1.0, 3.0])
    0.6666666666666666
    """
    lower, upper, value = _alike(lower=lower, upper=upper, value=value)
    _refuse(lower > upper, "lower <= upper", lower)
    return float(np.mean((lower <= value) & (value <= upper)))


def crps_normal(mean: ArrayLike, sd: ArrayLike, value: ArrayLike) -> np.ndarray:
    """Continuous ranked probability score of normal predictions, one per value.

    A prediction with sd = 0 is a point, and its score the absolute error.

    >>> crps_normal([0.0, 0.0], [1.0, 0.0], [0.0, 2.0]).round(4).tolist()
    [0.2337, 2.0]
    """
    mean, sd, value = _alike(mean=mean, sd=sd, value=value)
    _refuse(sd < 0, "sd >= 0", sd)
    point = sd == 0
    z = (value - mean) / np.where(point, 1.0, sd)
    density = np.exp(-0.5 * (z**2 + LOG_2PI))
    spread = sd * (z * (2 * ndtr(z) - 1) + 2 * density - 1 / np.sqrt(np.pi))
    return np.where(point, np.abs(value - mean), spread)


def crps_ensemble(draws: ArrayLike, value: ArrayLike) -> np.ndarray:
    """Continuous ranked probability score of draws (draw, value), one per value.

    E|X - y| - E|X - X'| / 2, where X and X' are different draws. This fair estimator divides by m (m - 1),
    as `Prediction.scores` does, so that few draws of a continuous distribution are not penalised. The score
    of a single value may then be negative. One draw is a point, and its score is the absolute error.

    >>> crps_ensemble([[0.0], [2.0]], [3.0]).tolist()
    [1.0]
    """
    return crps_of_sample(*_ensemble(draws, value))


def log_score_normal(mean: ArrayLike, sd: ArrayLike, value: ArrayLike) -> np.ndarray:
    """Log density of each value under its normal prediction.

    >>> log_score_normal([0.0], [1.0], [0.0]).round(4).tolist()
    [-0.9189]
    """
    mean, sd, value = _alike(mean=mean, sd=sd, value=value)
    _refuse(sd <= 0, "sd > 0", sd)
    return -0.5 * (((value - mean) / sd) ** 2 + LOG_2PI) - np.log(sd)


def log_score_mixture(means: ArrayLike, sd: ArrayLike, value: ArrayLike) -> np.ndarray:
    """Log density of each value under an equal mixture of normals, one per draw.

    `means` is (draw, value); `sd`, the noise, is broadcast against it: one number, one per value,
    or a column with one per draw.

    >>> log_score_mixture([[0.0], [0.0]], 1.0, [0.0]).round(4).tolist()
    [-0.9189]
    """
    means, value = _ensemble(means, value)
    sd = np.broadcast_to(np.asarray(sd, float), means.shape)
    _refuse(~(sd > 0), "sd > 0", sd)
    terms = -0.5 * (((value - means) / sd) ** 2 + LOG_2PI) - np.log(sd)
    return logsumexp(terms, axis=0) - np.log(len(means))


# -- distributions over levels ------------------------------------------------------------------
def ordinal_log_score(
    probabilities: ArrayLike, value: ArrayLike, levels: int | Sequence[float]
) -> np.ndarray:
    """Log probability of each value's level, which is comparable between all methods that predict levels.

    Parameters
    ----------
    probabilities : array (..., R)
        The probability of each level.
    value : array (...)
        The observed levels (not their codes).
    levels : int or sequence
        The scale, 1..R if a number.

    Returns
    -------
    array (...)
        Zero at best; minus infinity if the observed level had probability zero.

    Examples
    --------
    >>> ordinal_log_score([[0.5, 0.25, 0.25]], [1], levels=3).round(4).tolist()
    [-0.6931]
    """
    probabilities, code, _ = _masses(probabilities, value, levels)
    with np.errstate(divide="ignore"):
        return np.log(np.take_along_axis(probabilities, code[..., None], -1)[..., 0])


def rps(probabilities: ArrayLike, value: ArrayLike, levels: int | Sequence[float]) -> np.ndarray:
    """Ranked probability score: the squared error of P(level <= r), summed over r.

    The weight of r is the distance of its level from the next level. So the score is the continuous ranked
    probability score of a distribution over the levels, in the unit of the levels. The parameters are those
    of `ordinal_log_score`.

    Returns
    -------
    array (...)
        Zero at best; the absolute error if the prediction is certain of one level.

    Examples
    --------
    >>> rps([[0.5, 0.25, 0.25], [0.0, 0.0, 1.0]], [1, 1], levels=3).tolist()
    [0.3125, 2.0]
    """
    probabilities, code, scale = _masses(probabilities, value, levels)
    below = np.cumsum(probabilities, -1)[..., :-1]
    return (below - (code[..., None] <= np.arange(len(scale) - 1))) ** 2 @ np.diff(scale)


# -- calibration --------------------------------------------------------------------------------
def pit_normal(mean: ArrayLike, sd: ArrayLike, value: ArrayLike) -> np.ndarray:
    """The CDF of each normal prediction at its value: uniform on (0, 1) when calibrated.

    >>> pit_normal([0.0], [1.0], [0.0]).tolist()
    [0.5]
    """
    mean, sd, value = _alike(mean=mean, sd=sd, value=value)
    _refuse(sd <= 0, "sd > 0", sd)
    return ndtr((value - mean) / sd)


def pit_ensemble(draws: ArrayLike, value: ArrayLike) -> np.ndarray:
    """The share of draws (draw, value) below each value; ties count one half.

    >>> pit_ensemble([[1.0], [2.0], [3.0]], [2.0]).tolist()
    [0.5]
    """
    draws, value = _ensemble(draws, value)
    return np.mean((draws < value) + 0.5 * (draws == value), axis=0)


class Histogram(NamedTuple):
    """Shares of values per bin, the edges, and the share `flat` of each bin under a uniform law."""

    share: np.ndarray
    edges: np.ndarray
    flat: float


def pit_histogram(pit: ArrayLike, bins: int = 10) -> Histogram:
    """The histogram of PIT values: a U shape shows overconfidence, a hump too wide predictions.

    >>> pit_histogram([0.05, 0.15, 0.95, 1.0], bins=2).share.tolist()
    [0.5, 0.5]
    """
    (pit,) = _alike(pit=pit)
    _refuse((pit < 0) | (pit > 1), "PIT values within [0, 1]", pit)
    if bins < 2:
        raise ValueError(f"Expected at least two bins, got {bins}")
    count, edges = np.histogram(pit, bins=bins, range=(0.0, 1.0))
    return Histogram(count / pit.size, edges, 1 / bins)


# -- clusterings --------------------------------------------------------------------------------
def clustering_accuracy(y: ArrayLike, assigned: ArrayLike) -> float:
    """AC: the share of correct labels under the best one-to-one map of clusters to classes.

    >>> clustering_accuracy(["a", "a", "b", "b"], [1, 1, 0, 1])
    0.75
    """
    from scipy.optimize import linear_sum_assignment  # slow, and no fit needs it

    table = _contingency(y, assigned)
    return float(table[linear_sum_assignment(table, maximize=True)].sum() / table.sum())


def normalized_mutual_information(y: ArrayLike, assigned: ArrayLike) -> float:
    """NMI: mutual information over the larger of the two entropies (Wang et al., MGGM).

    Two partitions with a single group each agree fully: 1.

    >>> normalized_mutual_information([0, 0, 1, 1], [5, 5, 3, 3])
    1.0
    >>> normalized_mutual_information([0, 0, 1, 1], [0, 1, 0, 1])
    0.0
    """
    joint = _contingency(y, assigned)
    joint = joint / joint.sum()
    by_class, by_cluster = joint.sum(1), joint.sum(0)
    largest = max(entr(by_class).sum(), entr(by_cluster).sum())
    if largest == 0:
        return 1.0
    information = rel_entr(joint, np.outer(by_class, by_cluster)).sum()
    return float(np.clip(information / largest, 0.0, 1.0))


# -- checks -------------------------------------------------------------------------------------
def _alike(**arrays: ArrayLike) -> list[np.ndarray]:
    """The arrays as finite floats of one shape, or an error that names their shapes."""
    checked = {name: _finite(name, array) for name, array in arrays.items()}
    shapes = {name: array.shape for name, array in checked.items()}
    if len(set(shapes.values())) > 1:
        got = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"Expected arrays of one shape, got {got}")
    return list(checked.values())


def _ensemble(draws: ArrayLike, value: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    draws, value = _finite("draws", draws), _finite("value", value)
    if draws.shape[1:] != value.shape or draws.ndim == 0:
        raise ValueError(
            f"Expected draws of shape (draw, *{value.shape}), got {draws.shape} "
            f"for values of shape {value.shape}"
        )
    return draws, value


def _finite(name: str, array: ArrayLike) -> np.ndarray:
    try:
        numbers = np.asarray(array, dtype=float)
    except (TypeError, ValueError) as error:
        raise TypeError(f"Expected numbers as {name}, got {array!r:.60}") from error
    if numbers.size == 0:
        raise ValueError(f"Expected at least one {name}, got none")
    _refuse(~np.isfinite(numbers), f"finite {name}", numbers)
    return numbers


def _refuse(wrong: np.ndarray, expected: str, array: np.ndarray) -> None:
    """Raise for the first entry where `wrong` holds."""
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        place = f"position {at[0] if len(at) == 1 else at}" if at else "the only value"
        raise ValueError(f"Expected {expected}, got {array[at]:g} at {place}")


def _scale(levels: int | Sequence[float]) -> np.ndarray:
    from bayesfac.core.data import reading  # imports JAX, which other metrics do without

    return np.asarray(reading.levels(levels))


def _masses(
    probabilities: ArrayLike, value: ArrayLike, levels: int | Sequence[float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities, the codes of the values and the scale, or an error that says what does not fit."""
    scale = _scale(levels)
    p, value = _finite("probabilities", probabilities), _finite("value", value)
    if p.shape != (*value.shape, len(scale)):
        raise ValueError(
            f"Expected probabilities of shape {(*value.shape, len(scale))}, got {p.shape}"
        )
    _refuse(p < 0, "probabilities >= 0", p)
    total = p.sum(-1)
    _refuse(np.abs(total - 1) > 1e-4, "probabilities that sum to one", total)
    code = np.searchsorted(scale[:-1], value)
    _refuse(scale[code] != value, f"one of the levels {scale.tolist()}", value)
    return p, code, scale


def _contingency(y: ArrayLike, assigned: ArrayLike) -> np.ndarray:
    y, assigned = np.asarray(y), np.asarray(assigned)
    if y.ndim != 1 or y.shape != assigned.shape or not y.size:
        raise ValueError(
            "Expected two non-empty label lists of one length, "
            f"got shapes {y.shape} and {assigned.shape}"
        )
    classes, row = np.unique(y, return_inverse=True)
    clusters, column = np.unique(assigned, return_inverse=True)
    table = np.zeros((len(classes), len(clusters)), dtype=np.int64)
    np.add.at(table, (row, column), 1)
    return table
