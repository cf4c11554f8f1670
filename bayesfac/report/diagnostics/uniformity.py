"""Whether ranks 0..L are uniform: a chi-square test, and a test of the whole distribution function.

Sailynoja, Buerkner & Vehtari, "Graphical test for discrete uniformity and its applications in goodness-of-fit
evaluation and multiple sample comparison", Statistics and Computing 2022: the statistic is the smallest
pointwise binomial p-value; its distribution for uniform ranks is simulated.
"""

from functools import cache

import numpy as np
from scipy.stats import binom, chisquare

CHANCE = 10_000  # simulated sets of ranks
TOGETHER = 2500  # of them in one array; each array needs a table of p-values of its own
EXPECTED = 5  # least expected number of ranks in a bin of the chi-square test


def bins_for(count: int, draws: int) -> int:
    """The number of bins of the chi-square test: a divisor of L + 1, at most 20.

    >>> bins_for(500, 99), bins_for(60, 99)
    (20, 10)
    """
    most = min(20, max(2, count // EXPECTED))
    return max(b for b in range(1, most + 1) if (draws + 1) % b == 0)


def chi_square(ranks: np.ndarray, draws: int) -> float:
    """p-value of the chi-square test; 1 if L + 1 has no divisor for at least 2 bins.

    >>> chi_square(np.arange(100), 99), chi_square(np.zeros(100, int), 99) < 1e-6
    (1.0, True)
    """
    bins = bins_for(len(ranks), draws)
    if bins < 2:
        return 1.0
    counts = np.bincount(ranks * bins // (draws + 1), minlength=bins)
    return float(chisquare(counts).pvalue)


def below(ranks: np.ndarray, draws: int) -> np.ndarray:
    """The numbers of ranks below 1, ..., L."""
    return np.cumsum(np.bincount(ranks, minlength=draws + 1))[:-1]


def smallest(counts: np.ndarray, total: int) -> np.ndarray:
    """The smallest two-sided pointwise p-value of cumulative counts (..., L).

    The p-values come from a table: many sets of ranks share their counts.
    """
    draws = counts.shape[-1]
    at = np.arange(1, draws + 1) / (draws + 1)
    sets = counts.reshape(-1, draws)
    least = sets.min(0)
    known = least + np.arange((sets - least).max() + 1)[:, None]
    low, high = binom.cdf(known, total, at), binom.sf(known - 1, total, at)
    table = np.minimum(1, 2 * np.minimum(low, high))
    return np.take_along_axis(table, sets - least, 0).min(-1).reshape(counts.shape[:-1])


@cache
def chance(total: int, draws: int) -> np.ndarray:
    """Sorted simulated values of `smallest` for uniform ranks."""
    rng = np.random.default_rng(0)
    one = np.full(draws + 1, 1 / (draws + 1))
    parts = [
        smallest(np.cumsum(rng.multinomial(total, one, TOGETHER), -1)[:, :-1], total)
        for _ in range(CHANCE // TOGETHER)
    ]
    return np.sort(np.concatenate(parts))


def ecdf(ranks: np.ndarray, draws: int) -> float:
    """p-value of the test of the whole distribution function.

    >>> ecdf(np.arange(100), 99) > 0.9, ecdf(np.arange(100) // 2, 99) < 0.001
    (True, True)
    """
    null = chance(len(ranks), draws)
    seen = smallest(below(ranks, draws), len(ranks))
    return float((1 + np.searchsorted(null, seen * (1 + 1e-9), "right")) / (1 + len(null)))


def band(total: int, draws: int, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper cumulative counts; uniform ranks lie within everywhere with probability `level`."""
    tail = np.quantile(chance(total, draws), 1 - level) / 2
    at = np.arange(1, draws + 1) / (draws + 1)
    return binom.ppf(tail, total, at), binom.isf(tail, total, at)


def holm(p: np.ndarray) -> np.ndarray:
    """Holm's correction of p-values for the number of tests.

    >>> holm(np.array([0.01, 0.5, 0.02])).round(3).tolist()
    [0.03, 0.5, 0.04]
    """
    order = np.argsort(p)
    scaled = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(scaled, 1)
    return corrected
