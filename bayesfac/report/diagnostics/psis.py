"""Pareto-smoothed importance sampling of many cells at once.

Vehtari, Simpson, Gelman, Yao & Gabry, "Pareto smoothed importance sampling", JMLR 2024; the generalised
Pareto fit of Zhang & Stephens, Technometrics 2009. Arrays are cells x draws; rows of one block may have
tails of different lengths.
"""

import math

import numpy as np
from scipy import fft

from bayesfac.core.errors import BayesfacError
from bayesfac.inference.pointwise import log_sum
from bayesfac.report import arviz_versions

FEWEST = 25  # draws: a fifth of them, five, are the shortest tail that can be fitted
PRIOR = 10, 0.5  # k is drawn towards 1/2 with the weight of ten tail draws


def threshold(draws: int) -> float:
    """The Pareto k up to which the estimate from so many draws can be trusted.

    >>> round(threshold(100), 2), threshold(4000)
    (0.5, 0.7)
    """
    return min(1 - 1 / math.log10(draws), 0.7)


def enough(draws: int) -> None:
    """Refuse too few draws for a tail."""
    if draws < FEWEST:
        raise BayesfacError(
            f"Expected at least {FEWEST} draws, so that their weights have a tail to look at, got {draws}"
        )


def tail(log_weight: np.ndarray) -> float:
    """Pareto's k of independent draws with these weights: below the threshold they can be relied on.

    >>> tail(np.random.default_rng(0).normal(0, 4, 1000)) > 0.7 > tail(np.linspace(0, 1, 1000))
    True
    """
    flat = np.ravel(np.asarray(log_weight, float))[None]
    return float(smooth(flat, np.ones(1))[1][0])


def efficiency(log_likelihood: np.ndarray, chains: int) -> np.ndarray:
    """Effective over all draws of each cell's likelihood; 1 where it is constant, or chains are too short.

    The effective size of the mean (Vehtari, Gelman, Simpson, Carpenter & Burkner 2021), as ArviZ has it, of
    all cells at once: chains are split, pairs of autocorrelations summed while positive, never rising.
    """
    likelihood = np.exp(log_likelihood - log_likelihood.max(1, keepdims=True))
    cells, total = likelihood.shape
    half = total // chains // 2
    if total // chains < arviz_versions.SHORTEST:
        return np.ones(cells)
    whole = likelihood.reshape(cells, chains, -1)
    split = np.stack([whole[..., :half], whole[..., -half:]], 2).reshape(cells, -1, half)
    mean = split.mean(2, keepdims=True)
    power = np.abs(fft.rfft(split - mean, fft.next_fast_len(2 * half), axis=2)) ** 2
    covariance = fft.irfft(power.mean(1), fft.next_fast_len(2 * half), axis=1)[:, :half] / half
    within = covariance[:, :1] * half / (half - 1)
    between = mean[..., 0].var(1, ddof=1)[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):  # constant: put right at the end
        rho = 1 - (within - covariance) / (covariance[:, :1] + between)
    rho[:, 0] = 1
    last = -(-(half - 4) // 2)  # the pair that is looked at last, if all before are positive
    pairs = rho[:, : 2 * last + 2].reshape(cells, -1, 2)
    sums = pairs.sum(2)
    end = np.where((sums[:, :last] <= 0).any(1), (sums[:, :last] <= 0).argmax(1), last)
    falling = np.where(np.arange(last + 1) < end[:, None], np.minimum.accumulate(sums, 1), 0)
    rest = np.maximum(np.take_along_axis(pairs[..., 0], end[:, None], 1)[:, 0], 0)
    tau = np.maximum(2 * falling.sum(1) + rest - 1, 1 / np.log10(2 * chains * half))
    moving = np.ptp(likelihood, axis=1) > np.finfo(float).eps
    return np.where(moving & np.isfinite(tau), 1 / tau, 1.0)


def smooth(log_ratio: np.ndarray, efficiency: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log weights (cells, draws) that sum to one, and k, the tail's shape, of each cell.

    Ratios that are all alike have no tail: their k is 0. Where a quarter of the tail ties with its lower
    end nothing can be fitted: k is infinite, and the ratios stay as they are.

    >>> k = smooth(np.random.default_rng(0).exponential(0.5, (1, 1000)), np.ones(1))[1]
    >>> bool(abs(k[0] - 0.5) < 0.2)  # exp of an exponential variable of mean k is Pareto of shape k
    True
    """
    weight = log_ratio - log_ratio.max(1, keepdims=True)
    draws = weight.shape[1]
    length = np.minimum(draws / 5, 3 * np.sqrt(draws / efficiency)).astype(int)
    most = int(length.max())
    order = np.argpartition(weight, draws - most - 1, axis=1)[:, draws - most - 1 :]
    top = np.take_along_axis(weight, order, 1)
    falling = np.argsort(-top, axis=1, kind="stable")
    order, top = (np.take_along_axis(table, falling, 1) for table in (order, top))
    cut = np.exp(np.take_along_axis(top, length[:, None], 1))  # the largest below the tail
    tail = np.arange(most + 1) < length[:, None]
    excess = np.where(tail, np.exp(top) - cut, 0)
    k, sigma = pareto(excess, length)
    with np.errstate(all="ignore"):  # what could not be fitted is put right below
        above = (np.arange(most + 1) + 0.5) / length[:, None]
        step = np.where(k == 0, -np.log(above).T, np.expm1(-k * np.log(above).T) / k).T
        smoothed = np.minimum(np.log(cut + sigma[:, None] * step), 0)
    fitted = tail & (np.isfinite(k) & (sigma > 0))[:, None] & np.isfinite(smoothed)
    np.put_along_axis(weight, order, np.where(fitted, smoothed, top), 1)
    weight -= log_sum(weight)[:, None]
    return weight, np.where(np.ptp(log_ratio, axis=1) == 0, 0.0, k)


def pareto(excess: np.ndarray, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shape and scale of the generalised Pareto law of every row's first `length` numbers, largest first,
    zeros after them.

    The mean over a grid of the profile likelihood in b = -k / sigma; then k is drawn towards 1/2.
    """
    quartile = length - (length / 4 + 0.5).astype(int)
    start = np.take_along_axis(excess, quartile[:, None], 1)[:, 0]
    grid = 30 + np.sqrt(length).astype(int)
    size = int(grid.max())
    b, score = np.zeros((2, len(excess), size))
    with np.errstate(
        all="ignore"
    ):  # rows without a spread give NaN, which becomes infinite k below
        for j in range(size):
            b[:, j] = (1 - np.sqrt(grid / (j + 0.5))) / (3 * start) + 1 / excess[:, 0]
            k = np.log1p(-b[:, j, None] * excess).sum(1) / length
            score[:, j] = np.where(j < grid, length * (np.log(-b[:, j] / k) - k - 1), -np.inf)
        weight = np.exp(score - log_sum(score)[:, None])
        weight[weight < 10 * np.finfo(float).eps] = 0
        mean = (np.where(weight > 0, b, 0) * weight).sum(1) / weight.sum(1)
        k = np.log1p(-mean[:, None] * excess).sum(1) / length
        sigma = -k / mean
    pull, centre = PRIOR
    k = (length * k + pull * centre) / (length + pull)
    fine = np.isfinite(k) & (start > 0)
    return np.where(fine, k, np.inf), np.where(fine, sigma, np.nan)
