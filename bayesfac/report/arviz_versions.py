"""The one door to ArviZ: where its two families differ, the difference ends here.

Python 3.11 has the modular packages at 0.8, newer Pythons have 1.3. Names and most values agree;
what does not: plots take keywords only (and `ci_prob` changed its name, so none is ever passed),
`summary` rounds by default, standard deviations divide by n or by n - 1, and the rank plot has
another envelope. Everything here takes arrays (chain, draw, ...) or a DataTree.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import arviz_plots
import arviz_stats
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xarray as xr
from cycler import cycler
from matplotlib.figure import Figure

# Okabe and Ito's colours: told apart by every kind of colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
GREY = "#666666"
TAIL = (0.05, 0.95)  # the quantiles that the tail ESS looks at
SHORTEST = 8  # with fewer draws than this a chain says nothing about its own convergence

_STYLE: Any = {  # Matplotlib 3.11 has a type for every key, 3.10 for none
    "text.parse_math": False,  # a `$` in somebody's label is a dollar, not mathematics
    "axes.prop_cycle": cycler(color=COLOURS),
    "font.size": 9.5, "axes.titlesize": 10, "axes.labelsize": 9.5, "legend.fontsize": 8.5,
    "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": GREY,
    "axes.grid": True, "grid.color": "#e3e3e3", "grid.linewidth": 0.6, "axes.axisbelow": True,
    "figure.facecolor": "white", "savefig.facecolor": "white", "legend.frameon": False,
    "lines.linewidth": 1.4, "figure.dpi": 100, "figure.constrained_layout.use": True,
}  # fmt: skip


@contextmanager
def style() -> Iterator[None]:
    """How every picture of bayesfac looks; the user's own settings come back afterwards."""
    with matplotlib.rc_context(_STYLE), plt.ioff():
        yield


def rhat(draws: np.ndarray) -> np.ndarray:
    """Rank-normalised split R-hat of each quantity; one chain is split into halves.

    NaN where there is nothing to compare: constant, non-finite, or fewer than 8 draws a chain.

    >>> draws = np.random.default_rng(0).normal(size=(4, 100, 2))
    >>> bool((rhat(draws) < 1.1).all()), bool(rhat(draws + np.arange(4)[:, None, None])[0] > 1.2)
    (True, True)
    """
    if len(draws) == 1:
        half = draws.shape[1] // 2
        draws = np.concatenate([draws[:, :half], draws[:, half : 2 * half]])
    return _each(draws, lambda kept: arviz_stats.rhat(kept, method="rank"))


def ess(draws: np.ndarray, method: str = "bulk") -> np.ndarray:
    """Effective sample size of each quantity, "bulk", "tail" or "mean"."""
    prob = {"prob": TAIL} if method == "tail" else {}
    return _each(draws, lambda kept: arviz_stats.ess(kept, method=method, **prob))


def mcse(draws: np.ndarray) -> np.ndarray:
    """Monte Carlo standard error of the mean of each quantity."""
    return _each(draws, lambda kept: arviz_stats.mcse(kept, method="mean"))


def moves(draws: np.ndarray) -> np.ndarray:
    """Which quantities (the last axis) are finite and more than constant up to rounding."""
    size = np.abs(draws).max((0, 1))
    return np.isfinite(draws).all((0, 1)) & (np.ptp(draws, axis=(0, 1)) > 1e-7 * size)


def bfmi(energy: np.ndarray) -> np.ndarray:
    """Energy Bayesian fraction of missing information, per chain."""
    return np.atleast_1d(_quietly(lambda: arviz_stats.bfmi(np.asarray(energy, float))))


def summary(tree: xr.DataTree, **settings: Any) -> pd.DataFrame:
    """ArviZ's summary, never rounded, so that both families give numbers."""
    return arviz_stats.summary(tree, **{"round_to": "none", **settings})


def figure(plot: str, tree: xr.DataTree, size: tuple[float, float], **settings: Any) -> Figure:
    """`arviz_plots.plot_<plot>` as a matplotlib figure that pyplot does not hold on to."""
    draw = getattr(arviz_plots, f"plot_{plot}")
    if (
        plot == "rank"
    ):  # both envelopes are misleading for correlated draws, and 0.8 draws it wrongly
        settings = {"visuals": {"credible_interval": False, "remove_axis": False}, **settings}
        known = inspect.signature(draw).parameters
        settings |= {k: v for k, v in (("method", "envelope"), ("thin", False)) if k in known}
    with style():
        draw(tree, backend="matplotlib", figure_kwargs={"figsize": size}, **settings)
        drawn = plt.gcf()
        plt.close(drawn)
        drawn.set_layout_engine("constrained")
    return drawn


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
    with np.errstate(all="ignore"):  # a chain that stands still divides by zero: R-hat is infinite
        return np.asarray(compute())
