"""Limited-memory BFGS for one or many problems at the same time, each with its own history and step."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

Look = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
TRIALS = 40  # step lengths that one line search may try
SPENT = "all iterations are spent"
STUCK = (
    "no step along the slope lowers the objective: it is not smooth there, or its slope is wrong"
)


@dataclass
class Descent:
    """The state of B problems: their points (B, n), values and slopes there, and which of them are solved.

    why[b] is empty while problem b is unsolved; afterwards it says why the problem stopped.
    """

    z: np.ndarray
    value: np.ndarray
    slope: np.ndarray
    why: list[str]
    steps: list[np.ndarray] = field(default_factory=list)
    turns: list[np.ndarray] = field(default_factory=list)  # change of slope over each step
    weights: list[np.ndarray] = field(default_factory=list)  # 1 / (step . turn); 0 where unusable

    @property
    def live(self) -> np.ndarray:
        """Numbers of the unsolved problems."""
        return np.array([b for b, why in enumerate(self.why) if not why], int)


def begin(look: Look, z: np.ndarray) -> Descent:
    """`look(z, live)` gives values and slopes of the problems `live` at their points z (one row each)."""
    value, slope = look(z, np.arange(len(z)))
    return Descent(z, np.asarray(value, np.float64), np.array(slope), [""] * len(z))


def frozen(at: Descent) -> dict[str, np.ndarray]:
    """The state as arrays, for a checkpoint."""
    history = {"steps": at.steps, "turns": at.turns, "weights": at.weights}
    arrays = {name: np.asarray(kept) for name, kept in history.items() if kept}
    return {"z": at.z, "value": at.value, "slope": at.slope, "why": np.array(at.why), **arrays}


def resumed(saved: Mapping[str, np.ndarray]) -> Descent:
    """Rebuild the Descent from the arrays of a checkpoint."""
    why = [str(reason) for reason in saved["why"]]
    history = [list(saved[name]) if name in saved else [] for name in ("steps", "turns", "weights")]
    return Descent(saved["z"], saved["value"], saved["slope"], why, *history)


def advance(look: Look, at: Descent, memory: int, tol: float, gtol: float) -> None:
    """One step of every unsolved problem; no objective ever rises (Nocedal & Wright 2006, alg. 7.5)."""
    live = at.live
    slope, value = at.slope[live], at.value[live]
    direction = -_inverse_hessian_times_slope(at, live)
    down = _dot(slope, direction)
    uphill = down >= 0
    direction[uphill], down[uphill] = -slope[uphill], -_dot(slope[uphill], slope[uphill])
    # the scale of a problem without history is unknown: its first step has length one, and may lower it
    # little
    fresh = ~np.any([w[live] > 0 for w in [np.zeros(len(at.z)), *at.weights]], axis=0)
    norm = np.sqrt(_dot(slope, slope))
    length = np.where(fresh, np.minimum(1, 1 / np.maximum(norm, np.finfo(float).tiny)), 1.0)
    z, new_slope, new_value = at.z[live], slope.copy(), value.copy()
    seeking = np.arange(len(live))
    for _ in range(TRIALS):
        tried = z[seeking] + (length[seeking, None] * direction[seeking]).astype(z.dtype)
        costs, slopes = look(tried, live[seeking])
        fall = np.asarray(costs, np.float64) - value[seeking]
        fine = fall <= 1e-4 * length[seeking] * down[seeking]  # NaN is not fine
        taken = seeking[fine]
        z[taken], new_slope[taken] = tried[fine], np.asarray(slopes)[fine]
        new_value[taken] = np.asarray(costs)[fine]
        seeking, fall = seeking[~fine], fall[~fine]
        if not len(seeking):
            break
        # the minimum of the parabola through both values and the slope
        step = length[seeking]
        guess = -down[seeking] * step**2 / (2 * (fall - down[seeking] * step))
        guess = np.where(np.isfinite(guess), guess, 0)
        length[seeking] = np.clip(guess, 0.1 * step, 0.5 * step)
    _remember(at, live, z - at.z[live], new_slope - slope, memory)
    at.z[live], at.slope[live], at.value[live] = z, new_slope, new_value
    for k, b in enumerate(live):
        if k in seeking:
            rounding = 1e4 * np.finfo(at.z.dtype).eps * max(abs(value[k]), 1)
            at.why[b] = "no lower value at this precision" if -down[k] < rounding else STUCK
        elif np.abs(new_slope[k]).max(initial=0) <= gtol:
            at.why[b] = "the slope is zero"
        elif not fresh[k] and value[k] - new_value[k] <= tol * max(abs(value[k]), 1):
            at.why[b] = "the objective stands still"


def _remember(
    at: Descent, live: np.ndarray, step: np.ndarray, turn: np.ndarray, memory: int
) -> None:
    product = _dot(step, turn)
    usable = product > 1e-10 * _dot(turn, turn)
    for kept, new in ((at.steps, step), (at.turns, turn)):
        oldest = kept.pop(0) if len(kept) == memory else np.zeros_like(at.z)
        oldest[live] = new
        kept.append(oldest)
    weight = np.zeros(len(at.z))
    weight[live[usable]] = 1 / product[usable]
    at.weights = [*at.weights, weight][-memory:]


def _inverse_hessian_times_slope(at: Descent, live: np.ndarray) -> np.ndarray:
    """The two-loop recursion; the history approximates the inverse Hessian."""
    q = at.slope[live].copy()
    history = list(zip(at.steps, at.turns, at.weights, strict=True))
    if len(live) < len(at.z):  # else without copies
        history = [(s[live], y[live], w[live]) for s, y, w in history]
    alphas = []
    scale = np.ones(len(live))
    for s, y, w in reversed(history):
        alpha = w * _dot(s, q)
        alphas.append(alpha)
        q -= (alpha[:, None] * y).astype(q.dtype)
    for _, y, w in history:  # the latest usable step sets the scale
        scale = np.where(w > 0, 1 / np.maximum(w * _dot(y, y), np.finfo(float).tiny), scale)
    q *= scale[:, None].astype(q.dtype)
    for (s, y, w), alpha in zip(history, reversed(alphas), strict=True):
        beta = w * _dot(y, q)
        q += ((alpha - beta)[:, None] * s).astype(q.dtype)
    return q


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.array([float(x @ y) for x, y in zip(a, b, strict=True)])
