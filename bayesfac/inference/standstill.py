"""When a descent has converged: ten times the sweeps would hardly change J or the predictions.

A slow descent moves about evenly in the logarithm of its sweeps. So the descent is looked at again and again,
each time after half as many sweeps again. It ends at a look if, since the look before, the objective fell and
predictions at probe cells moved by no more than the shares of `FALL` and `MOVE` that belong to so few sweeps.
Predictions are needed because an objective of many ratings hardly shows what a few ratings tell.
"""

import math
from typing import Any

import numpy as np

from bayesfac.core.data.cells import Query
from bayesfac.core.method import Method
from bayesfac.inference.result import Job, program

FIRST = 6  # sweeps before the first look
GROWTH = 1.5  # sweeps at a look over those at the look before
EARLY, EXACT = 30, 1e-3  # up to so many sweeps, so much of the shares: a slow start is not the end
FALL = 1e-4  # of the objective, in ten times the sweeps
MOVE = 0.01  # of predictions (root mean square) over their spread, in ten times the sweeps
SHARE = math.log10(GROWTH)
CONSTANT = 1e-6  # of their size: predictions that spread by less count as all alike


def next_look(done: int, steps: int) -> int:
    """After how many sweeps, a multiple of `steps`, the descent is looked at again."""
    return math.ceil(max(FIRST, GROWTH * done) / steps) * steps


def predictions(job: Job, p: Any) -> np.ndarray:
    """Predictions at the probe cells; none where the job knows no such cells."""
    if job.probe is None:
        return np.zeros(0)
    found = program(probed, job.data, job.method, job.hyper)(p, job.data, job.probe)
    return np.asarray(found, np.float64)


def still(before: tuple[float, np.ndarray], now: tuple[float, np.ndarray], done: int) -> bool:
    """Whether objective and predictions stand still from the last look to this one, after `done` sweeps."""
    (value, seen), (new_value, new_seen) = before, now
    share = SHARE * (EXACT if done <= EARLY else 1)
    if value - new_value > FALL * share * (1 + abs(new_value)):
        return False
    if not new_seen.size:
        return True
    spread = max(new_seen.std(), CONSTANT * np.abs(new_seen).max())
    return bool(np.sqrt(np.mean((new_seen - seen) ** 2)) <= MOVE * share * spread)


def probed(method: Method, hyper: Any, p: Any, data: Any, probe: Query) -> Any:
    """What p predicts for the cells of the probe."""
    if method.derive is not None:
        p = p._replace(**method.derive(p, data, hyper))
    outcome = method.predict(p, probe, hyper)
    return getattr(outcome, "score", outcome.mean)
