"""Decide when a descent has converged: ten times as many sweeps would hardly change J or the predictions.

Convergence is tested again and again, each time after 1.5 times as many sweeps. `FALL` and `MOVE` are limits
for ten times as many sweeps. The descent ends if, since the last test, the objective and the predictions at
the probe cells have changed by no more than a share of these limits. A slow descent by plain sweeps moves
about evenly in the logarithm of the number of sweeps, so this is the share that belongs to 1.5 times as many
sweeps. With momentum, what is left of a slow descent falls as 1 / sweeps^2, and 5/9 of it since the last
test. Predictions are tested too, because the objective of many ratings hardly changes with what a few ratings
say.

Near a saddle point a descent is slow for a while, and may then be taken for converged.
"""

import math
from typing import Any

import numpy as np

from bayesfac.core.data.cells import Query
from bayesfac.core.method import Method
from bayesfac.inference.result import Job, program

FIRST = 6  # sweeps before the first test
GROWTH = 1.5  # the number of sweeps at a test, divided by that at the test before
EARLY, EXACT = 30, 1e-3  # in the first 30 sweeps the limits are smaller, by this factor
FALL = 1e-4  # of the objective, in ten times the sweeps
MOVE = 0.01  # of predictions (root mean square) over their spread, in ten times the sweeps
SHARE = math.log10(GROWTH)  # of the limits, for plain sweeps
AHEAD = 1 - GROWTH**-2  # of the limits, with momentum
CONSTANT = 1e-6  # of their size: predictions that vary by less count as equal


def next_look(done: int, steps: int) -> int:
    """The number of sweeps, a multiple of `steps`, at which convergence is tested again."""
    return math.ceil(max(FIRST, GROWTH * done) / steps) * steps


def predictions(job: Job, p: Any) -> np.ndarray:
    """Predictions at the probe cells; an empty array if the job has no such cells."""
    if job.probe is None:
        return np.zeros(0)
    found = program(probed, job.data, job.method, job.hyper)(p, job.data, job.probe)
    return np.asarray(found, np.float64)


def still(
    before: tuple[float, np.ndarray],
    now: tuple[float, np.ndarray],
    done: int,
    share: float = SHARE,
) -> bool:
    """Whether objective and predictions hardly changed since the last test; `done` sweeps were made."""
    (value, seen), (new_value, new_seen) = before, now
    share *= EXACT if done <= EARLY else 1
    if value - new_value > FALL * share * (1 + abs(new_value)):
        return False
    if not new_seen.size:
        return True
    spread = max(new_seen.std(), CONSTANT * np.abs(new_seen).max())
    return bool(np.sqrt(np.mean((new_seen - seen) ** 2)) <= MOVE * share * spread)


def probed(method: Method, hyper: Any, p: Any, data: Any, probe: Query) -> Any:
    """The predictions of p for the probe cells."""
    if method.derive is not None:
        p = p._replace(**method.derive(p, data, hyper))
    outcome = method.predict(p, probe, hyper)
    return getattr(outcome, "score", outcome.mean)
