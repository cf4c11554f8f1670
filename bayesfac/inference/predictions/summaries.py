"""Summaries of blocks of draws for some cells, merged: moments, scores, quantiles of simulated outcomes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from bayesfac.core.math import crps_of_sorted

FEW = 16  # draws that are not worth sharing between cores
SORTED = 128  # cells whose outcomes are sorted at a time


@dataclass(frozen=True)
class Summary:
    """A summary of all draws for some cells.

    mean, sd, sd_mean, score   as in Prediction
    outcome                    (simulated outcomes, cells)
    log_score, cdf, below      of the observed values: log density, P(Y <= y), P(Y < y); zeros without values
    """

    mean: np.ndarray
    sd: np.ndarray
    sd_mean: np.ndarray
    score: np.ndarray
    outcome: np.ndarray
    log_score: np.ndarray
    cdf: np.ndarray
    below: np.ndarray


def merged(parts: list[dict[str, np.ndarray]], size: int) -> Summary:
    """The Summary of the first `size` cells, from those of consecutive draws."""
    draws = np.array([part["draws"] for part in parts], float)
    cut = {
        k: np.stack([p[k][..., :size] for p in parts])
        for k in parts[0]
        if k not in ("draws", "outcome")
    }
    exact = {k: v.astype(np.float64) for k, v in cut.items()}
    share = draws / draws.sum()
    mean = share @ exact["mean"]
    # the variance within parts and between them (Chan, Golub & LeVeque 1983, eq. 2.1)
    spread = share @ (exact["spread"] + (exact["mean"] - mean) ** 2)
    told = {k: share @ exact[k] for k in ("score", "cdf", "below")}
    return Summary(
        mean=mean,
        sd=np.sqrt(spread + share @ exact["variance"]),
        sd_mean=np.sqrt(spread),
        outcome=np.concatenate([p["outcome"][:, :size] for p in parts]),
        log_score=np.logaddexp.reduce(exact["log_mean"] + np.log(share)[:, None]),
        **told,
    )


def sorted_summary(
    outcome: np.ndarray, value: np.ndarray | None, tails: Sequence[float]
) -> tuple[np.ndarray, np.ndarray]:
    """(tail, cell) quantiles of simulated outcomes, and their CRPS at the observed values if there are any.

    The quantiles are the nearest outcomes, so that each is possible.
    """
    count, cells = outcome.shape
    at = np.rint((count - 1) * np.asarray(tails)).astype(int)
    ends = np.empty((len(tails), cells), outcome.dtype)
    crps = np.zeros(0 if value is None else cells)
    for first in range(0, cells, SORTED):  # so few cells that their outcomes stay in the cache
        some = slice(first, first + SORTED)
        ordered = np.sort(outcome[:, some].T, axis=1).T
        ends[:, some] = ordered[at]
        if value is not None:
            crps[some] = crps_of_sorted(ordered, value[some])
    return ends, crps


def shares(params: Any) -> list[Any]:
    """Blocks of draws of like length, one for each of two cores; one block if there are few draws."""
    draws = len(jax.tree.leaves(params)[0])
    half = draws // 2
    if draws % 2 or draws < FEW:
        return [params]
    return [jax.tree.map(lambda x: x[:half], params), jax.tree.map(lambda x: x[half:], params)]
