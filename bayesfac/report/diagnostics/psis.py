"""Pareto-smoothed importance sampling of many cells at once.

Vehtari, Simpson, Gelman, Yao & Gabry, "Pareto smoothed importance sampling", JMLR 2024; the generalised
Pareto fit of Zhang & Stephens, Technometrics 2009. Arrays are cells x draws; the rows of an array may have
tails of different lengths.
"""

import math

import numpy as np
from scipy import fft

from bayesfac.core.errors import BayesfacError
from bayesfac.inference.predictions.pointwise import log_sum
from bayesfac.report import arviz_versions

FEWEST = 25  # draws: the tail is a fifth of the draws, and needs at least five
PRIOR = 10, 0.5  # k is drawn towards 1/2 with the weight of ten tail draws
NEAR = 2**19  # numbers smoothed at a time: this block and its copies fit the cache of the processor
WORK = 16  # arrays of the block's size that smoothing makes; together at most as large as the whole table


def threshold(draws: int) -> float:
    """The largest Pareto k for which an estimate from this number of draws can be trusted.

    >>> round(threshold(100), 2), threshold(4000)
    (0.5, 0.7)
    """
    return min(1 - 1 / math.log10(draws), 0.7)


def enough(draws: int) -> None:
    """Refuse fewer draws than a tail needs."""
    if draws < FEWEST:
        raise BayesfacError(f"Expected at least {FEWEST} draws (to fit a tail of 5), got {draws}")


def tail(log_weight: np.ndarray) -> float:
    """Pareto's k of the weights of independent draws; below the threshold the weights can be trusted.

    >>> tail(np.random.default_rng(0).normal(0, 4, 1000)) > 0.7 > tail(np.linspace(0, 1, 1000))
    True
    """
    flat = np.ravel(np.asarray(log_weight, float))[None]
    return float(smooth(flat, np.ones(1))[1][0])


def efficiency(log_likelihood: np.ndarray, chains: int) -> np.ndarray:
    """Effective number of draws / number of draws, of each cell's likelihood.

    The effective size of the mean (Vehtari, Gelman, Simpson, Carpenter & Burkner 2021) as in ArviZ, for
    all cells at once: chains are split; sums of pairs of autocorrelations count while they are positive,
    each at most as large as the one before. Constant cells and very short chains have efficiency 1.
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
    with np.errstate(invalid="ignore", divide="ignore"):  # constant cells: replaced by 1 below
        rho = 1 - (within - covariance) / (covariance[:, :1] + between)
    rho[:, 0] = 1
    last = -(-(half - 4) // 2)  # index of the last pair, used if all pairs before are positive
    pairs = rho[:, : 2 * last + 2].reshape(cells, -1, 2)
    sums = pairs.sum(2)
    # the last pair ends every sum; of 8 or 9 draws a chain there is no pair before it
    end = np.pad(sums[:, :last] <= 0, ((0, 0), (0, 1)), constant_values=True).argmax(1)
    falling = np.where(np.arange(last + 1) < end[:, None], np.minimum.accumulate(sums, 1), 0)
    rest = np.maximum(np.take_along_axis(pairs[..., 0], end[:, None], 1)[:, 0], 0)
    tau = np.maximum(2 * falling.sum(1) + rest - 1, 1 / np.log10(2 * chains * half))
    moving = np.ptp(likelihood, axis=1) > np.finfo(float).eps
    return np.where(moving & np.isfinite(tau), 1 / tau, 1.0)


def smooth(log_ratio: np.ndarray, efficiency: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Normalised log weights (cells, draws), and the shape k of each cell's tail.

    Equal ratios have no tail: their k is 0. If a quarter of the tail ties with its lower end, the law cannot
    be fitted: k is infinite, and the ratios are not smoothed.

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
    with np.errstate(all="ignore"):  # rows that could not be fitted are replaced below
        above = (np.arange(most + 1) + 0.5) / length[:, None]
        step = np.where(k == 0, -np.log(above).T, np.expm1(-k * np.log(above).T) / k).T
        smoothed = np.minimum(np.log(cut + sigma[:, None] * step), 0)
    fitted = tail & (np.isfinite(k) & (sigma > 0))[:, None] & np.isfinite(smoothed)
    np.put_along_axis(weight, order, np.where(fitted, smoothed, top), 1)
    weight -= log_sum(weight)[:, None]
    return weight, np.where(np.ptp(log_ratio, axis=1) == 0, 0.0, k)


def pareto(excess: np.ndarray, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shape and scale of the generalised Pareto law of each row's first `length` numbers.

    Rows are in falling order and zero after `length`. b = -k / sigma is averaged over a grid, with weights
    from its profile likelihood; then k is drawn towards 1/2.
    """
    quartile = length - (length / 4 + 0.5).astype(int)
    start = np.take_along_axis(excess, quartile[:, None], 1)[:, 0]
    grid = 30 + np.sqrt(length).astype(int)
    size = int(grid.max())
    b, score = np.zeros((2, len(excess), size))
    with np.errstate(all="ignore"):  # constant rows give NaN, which becomes infinite k below
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


def left_out(
    factor: np.ndarray, score: np.ndarray, chains: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log scores without and with each cell, and Pareto's k, from tables cells x draws.

    Leaving out a cell weights each draw by 1 / exp(factor). The score may differ from the factor: a log mass
    of a level is averaged with weights from the log density.
    """
    if not np.isfinite(factor).all():
        cell, draw = np.argwhere(~np.isfinite(factor))[0]
        raise BayesfacError(
            f"Expected finite log likelihoods, got {factor[cell, draw]} in draw {draw} of a cell"
        )
    cells, total = factor.shape
    elpd, whole, k = np.empty((3, cells))
    few = max(1, min(NEAR // total, cells // WORK))
    for part in (slice(first, first + few) for first in range(0, cells, few)):
        log_factor, scored = (np.array(x[part], float, order="C") for x in (factor, score))
        log_weight, k[part] = smooth(-log_factor, efficiency(log_factor, chains))
        elpd[part] = log_sum(log_weight + scored)
        whole[part] = log_sum(scored) - np.log(total)
    return elpd, whole, k
