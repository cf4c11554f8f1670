"""Decide when a descent has converged: ten times as many sweeps would hardly change J or the predictions.

Convergence is tested again and again, each time after 1.5 times as many sweeps. `FALL` and `MOVE` are limits
for ten times as many sweeps. The descent ends if, since the last test, the objective and the predictions at
the probe cells have changed by no more than a share of these limits. A slow descent by plain sweeps moves
about evenly in the logarithm of the number of sweeps, so this is the share that belongs to 1.5 times as many
sweeps. With momentum, what is left of a slow descent falls as 1 / sweeps^2, and 5/9 of it since the last
test. If changes grow from test to test, as those of a drift from a good start, they are expected to go on
growing, and the share is smaller. Predictions are tested too, because the objective of many ratings hardly
changes with what a few ratings say.

Near a saddle point a descent is slow for a while, and may then be taken for converged.
"""

import math
from typing import Any

import numpy as np

from bayesfac.core.data.cells import Query, padded
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
MORE = math.log(10, GROWTH)  # tests in ten times the sweeps

Look = tuple[float, np.ndarray]  # the objective and the predictions at a test


def next_look(done: int, steps: int) -> int:
    """The number of sweeps, a multiple of `steps`, at which convergence is tested again."""
    return math.ceil(max(FIRST, GROWTH * done) / steps) * steps


def predictions(job: Job, p: Any) -> np.ndarray:
    """Predictions at the probe cells; an empty array if the job has no such cells."""
    if job.probe is None:
        return np.zeros(0)
    many = program(probed, job.data, job.method, job.hyper)
    found = np.asarray(many(p, job.data, padded(job.probe)), np.float64)
    return found[..., : len(job.probe.row)]


def change(before: Look, now: Look) -> np.ndarray:
    """The fall of the objective and the move of predictions between two tests, over `FALL` and `MOVE`."""
    (value, seen), (new_value, new_seen) = before, now
    fall = (value - new_value) / (FALL * (1 + abs(new_value)))
    if not new_seen.size:
        return np.array([fall, 0.0])
    if not seen.size:
        return np.array([fall, np.inf])
    spread = max(new_seen.std(), CONSTANT * np.abs(new_seen).max())
    move = np.sqrt(np.mean((new_seen - seen) ** 2))
    if spread == 0:
        return np.array([fall, np.inf if move else 0.0])
    return np.array([fall, move / (MOVE * spread)])


def still(last: np.ndarray, new: np.ndarray, done: int, share: float = SHARE) -> bool:
    """Whether this change, after the `last` one, is small enough; `done` sweeps were made."""
    limits = (allowed(share, *pair) for pair in zip(last, new, strict=True))
    early = EXACT if done <= EARLY else 1
    return all(now <= early * limit for now, limit in zip(new, limits, strict=True))


def allowed(share: float, before: float, now: float) -> float:
    """The share of a limit for a change: `share`, or less if it is larger than the change before.

    If changes go on to grow by the factor g from test to test, a change c is followed by c (g + g^2 + ...) in
    ten times the sweeps. The factor of a drift of even speed is `GROWTH`; a larger one counts as this.

    >>> round(allowed(SHARE, 1.0, 0.5), 3), round(allowed(SHARE, 1.0, 1.5), 3)
    (0.176, 0.037)
    """
    growth = min(now / before, GROWTH) if 0 < before < np.inf else 1.0
    if not growth > 1:
        return share
    return min(share, (growth - 1) / (growth * (growth**MORE - 1)))


def probed(method: Method, hyper: Any, p: Any, data: Any, probe: Query) -> Any:
    """The predictions of p for the probe cells."""
    if method.derive is not None:
        p = p._replace(**method.derive(p, data, hyper))
    outcome = method.predict(p, probe, hyper)
    return getattr(outcome, "score", outcome.mean)
