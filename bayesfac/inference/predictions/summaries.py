"""Summaries of blocks of draws for some cells, merged: moments, scores, quantiles of simulated outcomes."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bayesfac.core.math import crps_of_sorted

PARTS = 8  # consecutive parts of the draws whose means are kept, at least
SORTED = 128  # cells whose outcomes are sorted at a time


@dataclass(frozen=True)
class Summary:
    """A summary of all draws for some cells.

    mean, sd, sd_mean, score   as in Prediction
    parts                      (cells, parts): means of consecutive parts of the draws
    outcome                    (simulated outcomes, cells)
    log_score, cdf, below      of the observed values: log density, P(Y <= y), P(Y < y); zeros without values
    log_mass, votes            (cells, levels), as in `Tally`; without levels there are none
    """

    mean: np.ndarray
    sd: np.ndarray
    sd_mean: np.ndarray
    score: np.ndarray
    parts: np.ndarray
    outcome: np.ndarray
    log_score: np.ndarray
    cdf: np.ndarray
    below: np.ndarray
    log_mass: np.ndarray
    votes: np.ndarray


def merged(blocks: list[dict[str, np.ndarray]], size: int, chains: int) -> Summary:
    """The Summary of the first `size` cells, from those of consecutive draws, equally many for each chain."""
    draws = np.array([block["draws"] for block in blocks], float)
    cut = {
        k: np.stack([block[k][..., :size] for block in blocks])
        for k in blocks[0]
        if k not in ("draws", "outcome", "above", "log_mass")
    }
    exact = {k: v.astype(np.float64) for k, v in cut.items()}
    share = draws / draws.sum()
    mean = share @ exact["mean"]
    # the variance within blocks and between them (Chan, Golub & LeVeque 1983, eq. 2.1)
    spread = share @ (exact["spread"] + (exact["mean"] - mean) ** 2)
    told = {k: share @ exact[k] for k in ("score", "cdf", "below")}
    # a part ends where a chain ends
    chain = np.array_split(np.arange(len(blocks)), chains)
    parts = [
        part for own in chain for part in np.array_split(own, min(len(own), -(-PARTS // chains)))
    ]
    return Summary(
        mean=mean,
        sd=np.sqrt(spread + share @ exact["variance"]),
        sd_mean=np.sqrt(spread),
        parts=np.stack(
            [draws[part] @ exact["mean"][part] / draws[part].sum() for part in parts], 1
        ),
        outcome=np.concatenate([block["outcome"][:, :size] for block in blocks]),
        log_score=np.logaddexp.reduce(exact["log_mean"] + np.log(share)[:, None]),
        **told,
        **_tally(blocks, size),
    )


def _tally(blocks: list[dict[str, np.ndarray]], size: int) -> dict[str, np.ndarray]:
    """The log probability of each level, and the number of draws that predict the level."""
    if "log_mass" not in blocks[0]:
        return {"log_mass": np.zeros((size, 0)), "votes": np.zeros((size, 0))}
    log_mass = np.logaddexp.reduce([block["log_mass"][:, :size] for block in blocks])
    above = np.sum([block["above"][:, :size] for block in blocks], 0, dtype=float)
    votes = -np.diff(above, axis=0, prepend=sum(block["draws"] for block in blocks), append=0)
    return {"log_mass": (log_mass - np.logaddexp.reduce(log_mass)).T, "votes": votes.T}


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


def chosen(outcome: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """`count` random ones of the simulated outcomes of each cell, whose order may be that of strata."""
    which = rng.integers(len(outcome), size=(count, outcome.shape[1]))
    return np.take_along_axis(outcome, which, 0)


def shares(draws: int, count: int) -> list[range]:
    """Parts of consecutive draws, `count` or more if there are so many draws; at least 2, for two cores.

    They are equally long if a number up to twice as large divides the draws, so that one program serves all.

    >>> shares(6, 1), shares(7, 1)
    ([range(0, 3), range(3, 6)], [range(0, 3), range(3, 7)])
    """
    least = min(draws, max(2, count))
    number = next((n for n in range(least, 2 * least + 1) if draws % n == 0), least)
    return [range(a, b) for a, b in pairwise(draws * k // number for k in range(number + 1))]
