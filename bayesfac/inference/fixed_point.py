"""Repeat a method's own update until the objective no longer changes."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayesfac.core import events
from bayesfac.core.data.divided import own_rows
from bayesfac.core.method import Method
from bayesfac.core.precision import cast
from bayesfac.core.programs import compiled_for
from bayesfac.core.together import Alone, Together
from bayesfac.inference import standstill
from bayesfac.inference.checkpoint import SAVE_EVERY, Checkpoint
from bayesfac.inference.extrapolation import Bounds, Value, bounds_of, extrapolated
from bayesfac.inference.result import (
    Job,
    Result,
    bar,
    check_number,
    check_settings,
    check_sites,
    is_number,
    named,
    paced,
    program,
    replace_sites,
    require,
)

ROUNDING = 1e-7  # relative rise that rounding of single-precision parameters makes (double: 1e-10)
ROOM = 1024  # values of the objective that one call of the compiled loop can return
LOST = 1e-3  # what single precision may cost, relative to 1 + |objective|


@dataclass(frozen=True)
class FixedPoint:
    """The solver of the method's paper: repeat its update until convergence.

    Parameters
    ----------
    max_iter : int
        The largest number of sweeps. A sweep is one update of all parameters. An extrapolated step takes
        three sweeps.
    tol : float, optional
        Stop when a sweep changes the objective by less than this, relative to 1 + |objective|. By default
        the solver stops when ten times as many sweeps would change the objective by less than 1e-4 and the
        predictions by less than 0.01 of their spread (see `inference/standstill.py`).
    restarts : int
        The number of independent starts. The fit with the best objective is returned, and the objectives of
        the others are reported.
    accelerate : bool
        Extrapolate from every two sweeps (SQUAREM: Varadhan & Roland 2008). A step that would raise the
        objective is not taken.
    every : int
        Sweeps between two evaluations of the objective, each of which takes a pass over the data. With more
        than 1, sweeps are not extrapolated.
    folder : str, optional
        Write a checkpoint there every `save_every` seconds. If the run is killed, the same call continues it.
    shares : bool
        Divide the rows of the data among all devices of this process, or of all processes that
        `jax.distributed.initialize` has joined, for `plsa` and `mvplsa`. The parameters are the same up to
        rounding. See "When one machine is not enough".
    """

    max_iter: int = 12_000
    tol: float | None = None
    restarts: int = 1
    accelerate: bool = True
    every: int = 1
    folder: str | None = None
    save_every: float = SAVE_EVERY
    shares: bool = False

    def __post_init__(self) -> None:
        check_settings(self, max_iter=1, restarts=1, every=1)
        valid = self.tol is None or (is_number(self.tol) and 0 <= self.tol < 1)
        require(valid, f"Expected FixedPoint(tol=...) in [0, 1), got {self.tol!r}")

    def run(self, job: Job) -> Result:
        """The best of the restarts; only the first restart begins at `job.start`."""
        results: list[Result] = []
        for number, key in enumerate(jax.random.split(job.key, self.restarts)):
            if results and results[-1].partial:
                break
            folder = None if self.folder is None else f"{self.folder}/{number}"
            one = job if number == 0 else replace(job, start=None)
            settings = one, folder, program
            place = Together(*settings, "own_rows") if self.shares else Alone(*settings)
            run = f"{job.identity} restart {number}"
            point = Checkpoint(folder, run, self.save_every, place.idle)
            start = one.start_point(key, job.method.start)
            results.append(self.descend(one, start, point, place))
        best = min(results, key=lambda r: r.trace[-1])
        if results[-1].partial and not best.partial:
            best.partial = True
            best.notes.append(f"interrupted in restart {len(results)} of {self.restarts}")
        if self.restarts > 1:
            ends = ", ".join(f"{r.trace[-1]:.6g}" for r in results)
            best.notes.append(f"best of {len(results)} restarts, which ended at {ends}")
        return best

    def descend(self, job: Job, p: Any, point: Checkpoint, place: Alone | None = None) -> Result:
        """Sweeps in a compiled loop that returns after about half a second."""
        place = place or Alone(job, None, program)
        first = standstill.next_look(0, self._length) if self.tol is None else 0
        at, interrupted = _begin(job, p, point, first), False
        bounds = bounds_of(job.method, job.data, job.hyper, at.p) if self._accelerated else None
        tol = -1.0 if self.tol is None else self.tol  # below zero: no fall is small enough
        block, data = place.solver(_block, (job.method, job.hyper, bounds, tol), at.done)
        pace, most = 1, self.max_iter - self.max_iter % 3 * self._accelerated
        with bar(job.progress, self.max_iter, job.method.name) as shown, events.listen() as heard:
            shown.update(at.done)
            try:
                while at.done < most and not at.converged:
                    begun, left = time.perf_counter(), min(most, at.look or most) - at.done
                    steps = min(self._length, left)
                    cycles = min(pace, left // steps, ROOM)
                    made = at.advance(block, data, steps, cycles)
                    if at.done == at.look and not at.converged:
                        at.examine(job, steps)
                    shown.update(made)
                    shown.set_postfix(objective=f"{at.trace[-1]:.6g}")
                    if point.due():
                        point.save(at.arrays())
                    pace = paced(pace, place.agreed(time.perf_counter() - begun))
            except KeyboardInterrupt:
                place.interrupted()
                interrupted = True
        point.save(at.arrays())
        place.finished()
        notes = [f"the objective rose in {at.rises} of {at.done} sweeps"] if at.rises else []
        notes += [f"{what} {times} times" for what, times in heard.items() if times]
        if at.converged and (lost := _lost_digits(job, at.p, at.trace[-1])):
            notes.append(lost)
            at.converged = False
        if interrupted:
            notes.append(f"interrupted after {at.done} sweeps")
        p, trace = jax.tree.map(jnp.asarray, at.p), np.asarray(at.trace)
        return Result(p, None, trace, at.converged, notes=notes, partial=interrupted)

    @property
    def _length(self) -> int:
        """Sweeps between two evaluations of the objective that enter the trace."""
        return 3 if self._accelerated else self.every

    @property
    def _accelerated(self) -> bool:
        return self.accelerate and self.every == 1 and self.max_iter >= 3


@dataclass
class Descent:
    """The state of a descent: parameters, objectives so far, sweeps made, rises of the objective, and
    `reach`.

    `reach` limits the extrapolation. After `look` sweeps (0: never) convergence is tested again. `level` and
    `seen` are the objective and the predictions at the last test.
    """

    p: Any
    trace: list[float]
    reach: Any
    look: int = 0
    done: int = 0
    rises: int = 0
    converged: bool = False
    level: float = np.inf
    seen: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def arrays(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        own = {name: getattr(self, name) for name in KEPT}
        return {"trace": self.trace, "reach": self.reach, **own, **named(self.p)}

    def advance(self, block: Any, data: Any, steps: int, cycles: int) -> int:
        """Run so many cycles of so many sweeps, or fewer; return the number of sweeps made."""
        given = (self.p, data, *_halves(self.trace[-1], self.p), self.reach, steps, cycles)
        self.p, self.reach, values, number, rises, still = block(*given)
        new = np.asarray(values[: int(number)], np.float64).sum(1)
        self.trace.extend(new)
        self.done += len(new) * steps
        self.rises += int(rises)
        self.converged = bool(still)
        check_sites(self.p, f"after sweep {self.done}")
        check_number(self.trace[-1], "objective", f"after sweep {self.done}")
        return len(new) * steps

    def examine(self, job: Job, steps: int) -> None:
        """Converged if nothing has moved since the last test; otherwise decide when to test again."""
        before = self.level, self.seen
        self.level, self.seen = self.trace[-1], standstill.predictions(job, self.p)
        self.converged = standstill.still(before, (self.level, self.seen), self.done)
        self.look = standstill.next_look(self.done, steps)


# what a checkpoint holds of a descent beside its parameters, its trace and its reach, and their types
KEPT: dict[str, Callable[[Any], Any]] = {
    "look": int,
    "done": int,
    "rises": int,
    "converged": bool,
    "level": float,
    "seen": np.asarray,
}


def _begin(job: Job, p: Any, point: Checkpoint, look: int) -> Descent:
    """The start, or the state in the checkpoint."""
    if saved := point.load():
        own = {name: kind(saved.pop(name)) for name, kind in KEPT.items()}
        trace, reach = list(saved.pop("trace")), _halves(float(saved.pop("reach")), p)[0]
        return Descent(replace_sites(p, saved), trace, reach, **own)
    high, low = program(precise_objective, job.data, job.method, job.hyper)(p, job.data)
    value = float(np.float64(high) + np.float64(low))
    check_number(value, "objective", "at the start")
    return Descent(p, [value], _halves(1.0, p)[0], look)


def precise_objective(method: Method, hyper: Any, p: Any, data: Any) -> Value:
    """The objective in double precision, as the sum of two numbers of the working precision."""
    working = jax.dtypes.canonicalize_dtype(np.float64)
    with jax.enable_x64(True):
        p, data = cast(p, np.float64), cast(data, np.float64)
        value = jnp.asarray(method.objective(p, data, hyper))
        high = value.astype(working)
        return high, (value - high).astype(working)


def _halves(value: float, p: Any) -> tuple[Any, Any]:
    """A number as the sum of two in the precision of the parameters."""
    dtype = np.float32 if _single(p) else np.float64
    high = dtype(value)
    return high, dtype(value - np.float64(high))


def _block(
    method: Method,
    hyper: Any,
    bounds: Bounds | None,
    tol: float,
    p: Any,
    data: Any,
    high: Any,
    low: Any,
    reach: Any,
    steps: Any,
    cycles: Any,
) -> tuple:
    """Run at most so many cycles of so many sweeps, from parameters with the objective high + low.

    Returns the parameters, the reach of the extrapolation, the objectives after each cycle, the number of
    these objectives, how many of them are rises, and whether the descent has stopped moving.
    """
    objective = partial(precise_objective, method, hyper)

    def sweep(p: Any, data: Any) -> Any:
        return method.update(p, data, hyper)  # type: ignore[misc]

    def squares(p: Any, data: Any) -> jax.Array:
        return own_rows.squares(p, method.own_rows, data)

    def unfinished(state: tuple) -> jax.Array:
        _, _, (last, _), _, number, _, still = state
        return (number < cycles) & ~still & jnp.isfinite(last)

    def once(state: tuple) -> tuple:
        p, reach, old, values, number, rises, _ = state
        if bounds is None:
            p = jax.lax.fori_loop(0, steps, lambda _, p: sweep(p, data), p)
            new = objective(p, data)
        else:
            p, reach, new = extrapolated(sweep, objective, squares, bounds, p, data, reach)
        fall, scale = (old[0] - new[0]) + (old[1] - new[1]), 1 + jnp.abs(new[0])
        rises += fall < -rounding * scale
        still = jnp.abs(fall) <= tol * scale * steps
        return p, reach, new, values.at[number].set(jnp.stack(new)), number + 1, rises, still

    rounding = ROUNDING if _single(p) else 1e-10
    one = jnp.zeros((), int)
    room = jnp.zeros((ROOM, 2), high.dtype)
    own = own_rows.owned(p, method.own_rows, data)
    begin = (own, reach, (high, low), room, one, one, jnp.asarray(False))
    own, reach, _, values, number, rises, still = jax.lax.while_loop(unfinished, once, begin)
    return own_rows.whole(own, method.own_rows, data), reach, values, number, rises, still


def _single(params: Any) -> bool:
    return any(x.dtype == np.float32 for x in jax.tree.leaves(params))


@compiled_for(0, 1)
def _after_a_sweep(method: Method, hyper: Any, p: Any, data: Any) -> jax.Array:
    """The objective after one more sweep."""
    assert method.update is not None  # the sweeps before were its own
    return method.objective(method.update(p, data, hyper), data, hyper)


def _lost_digits(job: Job, p: Any, value: float) -> str | None:
    """A note if single precision changed the objective of a regression on features, which may have any scale.

    The test is one more sweep in double precision, which should find the same objective.
    """
    if "views_given" not in job.method.traits or not _single(p):
        return None
    with jax.enable_x64(True):
        wide = cast(p, np.float64), cast(job.data, np.float64)
        exact = float(_after_a_sweep(job.method, job.hyper, *wide))
    if abs(value - exact) <= LOST * (1 + abs(exact)):
        return None
    return (
        f"the objective is {value:.6g} in single precision and {exact:.6g} in double precision: scale the "
        'features, or call jax.config.update("jax_enable_x64", True)'
    )
