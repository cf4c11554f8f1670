"""Statistics of ArviZ: the differences between its two families are handled here and in drawing.py.

Python 3.11 has the modular packages at 0.8, newer Pythons have 1.3. The families differ in four points:
plots take keywords only, `ci_prob` changed its name (so it is never passed), standard deviations divide by
n or by n - 1, and the rank plot has another envelope. All functions take arrays (chain, draw, ...).

The import of ArviZ takes half a second, so the first function that needs it makes it: a point fit needs none.
"""

from typing import Any

import numpy as np

SHORTEST = 8  # chains with fewer draws have neither R-hat nor ESS


def rhat(draws: np.ndarray) -> np.ndarray:
    """Rank-normalised split R-hat of each quantity; a single chain is split into two halves first.

    R-hat is NaN for constant or non-finite draws, and for fewer than 8 draws per chain.

    >>> draws = np.random.default_rng(0).normal(size=(4, 100, 2))
    >>> bool((rhat(draws) < 1.1).all()), bool(rhat(draws + np.arange(4)[:, None, None])[0] > 1.2)
    (True, True)
    """
    if len(draws) == 1:
        half = draws.shape[1] // 2
        draws = np.concatenate([draws[:, :half], draws[:, half : 2 * half]])
    return _each(draws, lambda kept: _arviz().rhat(kept, method="rank"))


def ess(draws: np.ndarray, method: str = "bulk") -> np.ndarray:
    """Effective sample size of each quantity; `method` is "bulk" or "tail" (quantiles 5 % and 95 %)."""
    prob = {"prob": (0.05, 0.95)} if method == "tail" else {}
    return _each(draws, lambda kept: _arviz().ess(kept, method=method, **prob))


def mcse(draws: np.ndarray) -> np.ndarray:
    """Monte Carlo standard error of the mean of each quantity."""
    return _each(draws, lambda kept: _arviz().mcse(kept, method="mean"))


def moves(draws: np.ndarray) -> np.ndarray:
    """Whether each quantity (last axis) is finite and varies by more than rounding."""
    size = np.abs(draws).max((0, 1))
    return np.isfinite(draws).all((0, 1)) & (np.ptp(draws, axis=(0, 1)) > 1e-7 * size)


def bfmi(energy: np.ndarray) -> np.ndarray:
    """Energy Bayesian fraction of missing information, per chain."""
    return np.atleast_1d(_quietly(lambda: _arviz().bfmi(np.asarray(energy, float))))


def _arviz() -> Any:
    import arviz_stats

    return arviz_stats


def _each(draws: np.ndarray, statistic: Any) -> np.ndarray:
    """A statistic over (chain, draw) of every quantity that is finite and moves; NaN elsewhere."""
    answer = np.full(draws.shape[2:], np.nan)
    if draws.shape[1] < SHORTEST:
        return answer
    flat = np.asarray(draws, float).reshape(*draws.shape[:2], -1)
    moving = moves(flat)
    if moving.any():
        answer.reshape(-1)[moving] = _quietly(lambda: statistic(flat[:, :, moving]))
    return answer


def _quietly(compute: Any) -> np.ndarray:
    with np.errstate(all="ignore"):  # a constant chain divides by zero: its R-hat is infinite
        return np.asarray(compute())
