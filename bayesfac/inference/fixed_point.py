"""Repeat a method's own update until the objective no longer changes."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayesfac.core import events
from bayesfac.core.data.divided import own_rows
from bayesfac.core.method import Method
from bayesfac.core.precision import cast
from bayesfac.core.programs import compiled_for
from bayesfac.core.together import Alone, Together, has_own_rows
from bayesfac.inference import standstill
from bayesfac.inference.checkpoint import SAVE_EVERY, Checkpoint
from bayesfac.inference.driver import Run
from bayesfac.inference.extrapolation import Bounds, Value, bounds_of, with_momentum
from bayesfac.inference.result import (
    Engine,
    Job,
    Result,
    check_number,
    check_settings,
    check_sites,
    is_number,
    named,
    program,
    replace_sites,
    require,
)

# relative rise that rounding of single-precision parameters makes (double: 1e-10): two units in the last
# place. On a processor with vectors of 512 bits, one of 900 sweeps of grople raised J by 1.3e-7 of its value
ROUNDING = 2.4e-7
ROOM = 1024  # values of the objective that one call of the compiled loop can return
LOST = 1e-3  # what single precision may cost, relative to 1 + |objective|


@dataclass(frozen=True)
class FixedPoint(Engine):
    """The solver of the method's paper: repeat its update until convergence.

    Parameters
    ----------
    max_iter : int
        The largest number of sweeps. A sweep is one update of all parameters.
    tol : float, optional
        Stop when a sweep changes the objective by less than this, relative to 1 + |objective|. By default
        the solver stops when ten times as many sweeps would change the objective by less than 1e-4 and the
        predictions by less than 0.01 of their spread (see `inference/standstill.py`).
    restarts : int
        The number of independent starts. The fit with the best objective is returned, and the objectives of
        the others are reported.
    accelerate : bool
        Begin a sweep not at the last parameters, but further along their last change (momentum with
        restarts: O'Donoghue & Candes 2015). A sweep that would raise the objective by more than rounding is
        dropped.
    every : int
        Sweeps between two evaluations of the objective, each of which takes a pass over the data. With more
        than 1, sweeps have no momentum.
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
            place = Together(*settings, has_own_rows) if self.shares else Alone(*settings)
            run = f"{job.identity} restart {number}"
            point = Checkpoint(folder, run, self.save_every, place.idle)
            start = one.start_point(key, job.method.solver.start)
            bounds = bounds_of(job.method, job.data, job.hyper, start)
            results.append(self.descend(one, start, point, place, bounds))
        best = min(results, key=lambda r: r.trace[-1])
        if results[-1].partial and not best.partial:
            best.partial = True
            best.notes.append(f"interrupted in restart {len(results)} of {self.restarts}")
        if self.restarts > 1:
            ends = ", ".join(f"{r.trace[-1]:.6g}" for r in results)
            best.notes.append(f"best of {len(results)} restarts, which ended at {ends}")
        return best

    def descend(
        self, job: Job, p: Any, point: Checkpoint, place: Alone | None = None, bounds: Bounds = ()
    ) -> Result:
        """Sweeps in a compiled loop that returns after about half a second. Momentum keeps a distance from
        the `bounds` of sites."""
        place = place or Alone(job, None, program)
        first = standstill.next_look(0, self.every) if self.tol is None else 0
        at, most = _begin(job, p, point, first), self.max_iter
        kept_from = bounds if self.accelerate and self.every == 1 else None
        share = standstill.SHARE if kept_from is None else standstill.AHEAD
        tol = -1.0 if self.tol is None else self.tol  # below zero: no fall is small enough
        block, data = place.solver(_block, (job.method, job.hyper, kept_from, tol), at.done)
        with events.listen() as heard, Run(job, at.done, most, point, at.arrays, place) as run:
            while at.done < most and not at.converged:
                left = min(most, at.look or most) - at.done
                steps = min(self.every, left)
                made = at.advance(block, data, steps, min(run.pace(), left // steps, ROOM))
                if at.done == at.look and not at.converged:
                    at.examine(job, steps, share)
                run.made(made, objective=f"{at.trace[-1]:.6g}")
        notes = [f"the objective rose in {at.rises} of {at.done} sweeps"] if at.rises else []
        notes += [f"{what} {times} times" for what, times in heard.items() if times]
        if at.converged and (lost := _lost_digits(job, at.p, at.trace[-1])):
            notes.append(lost)
            at.converged = False
        if run.interrupted:
            notes.append(f"interrupted after {at.done} sweeps")
        p, trace = jax.tree.map(jnp.asarray, at.p), np.asarray(at.trace)
        return Result(p, None, trace, at.converged, notes=notes, partial=run.interrupted)


class Momentum(NamedTuple):
    """What the next sweep needs to begin further along the last change."""

    before: Any  # the parameters before the last sweep
    count: Any  # sweeps since the last restart, a real number


@dataclass
class Descent:
    """The state of a descent: parameters, objectives so far, momentum, sweeps made, and rises of the
    objective.

    After `look` sweeps (0: never) convergence is tested again. `level` and `seen` are the objective and the
    predictions at the last test, and `changed` says how much they changed before.
    """

    p: Any
    trace: list[float]
    momentum: Momentum
    look: int = 0
    done: int = 0
    rises: int = 0
    converged: bool = False
    level: float = np.inf
    seen: np.ndarray = field(default_factory=lambda: np.zeros(0))
    changed: np.ndarray = field(default_factory=lambda: np.zeros(2))

    def arrays(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        own = {name: getattr(self, name) for name in KEPT}
        moving = {f"momentum.{name}": value for name, value in named(self.momentum).items()}
        return {"trace": self.trace, **own, **moving, **named(self.p)}

    def advance(self, block: Any, data: Any, steps: int, cycles: int) -> int:
        """Run so many cycles of so many sweeps, or fewer; return the number of sweeps made."""
        given = (self.p, data, *_halves(self.trace[-1], self.p), self.momentum, steps, cycles)
        p, momentum, values, number, rises, still = block(*given)
        # cut by NumPy: JAX would compile a program for each length
        new = np.asarray(values, np.float64)[: int(number)].sum(1)
        # only now, as Ctrl-C is heard after this wait: parameters belong to the end of the trace
        self.p, self.momentum = p, momentum
        self.trace.extend(new)
        self.done += len(new) * steps
        self.rises += int(rises)
        self.converged = bool(still)
        check_sites(self.p, f"after sweep {self.done}")
        check_number(self.trace[-1], "objective", f"after sweep {self.done}")
        return len(new) * steps

    def examine(self, job: Job, steps: int, share: float) -> None:
        """Converged if nothing has moved since the last test; otherwise decide when to test again."""
        before, last = (self.level, self.seen), self.changed
        self.level, self.seen = self.trace[-1], standstill.predictions(job, self.p)
        self.changed = standstill.change(before, (self.level, self.seen))
        self.converged = standstill.still(last, self.changed, self.done, share)
        self.look = standstill.next_look(self.done, steps)


# what a checkpoint holds of a descent beside its parameters, its momentum and its trace, and their types
KEPT: dict[str, Callable[[Any], Any]] = {
    "look": int,
    "done": int,
    "rises": int,
    "converged": bool,
    "level": float,
    "seen": np.asarray,
    "changed": np.asarray,
}


def _begin(job: Job, p: Any, point: Checkpoint, look: int) -> Descent:
    """The start, or the state in the checkpoint."""
    if saved := point.load():
        own = {name: kind(saved.pop(name)) for name, kind in KEPT.items()}
        trace = list(saved.pop("trace"))
        moving = {name.removeprefix("momentum."): value for name, value in saved.items()}
        return Descent(replace_sites(p, saved), trace, replace_sites(_at_rest(p), moving), **own)
    high, low = program(precise_objective, job.data, job.method, job.hyper)(p, job.data)
    value = float(np.float64(high) + np.float64(low))
    check_number(value, "objective", "at the start")
    return Descent(p, [value], _at_rest(p), look)


def _at_rest(p: Any) -> Momentum:
    """No momentum yet."""
    return Momentum(p, jnp.asarray(_halves(0.0, p)[0]))


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
    momentum: Momentum,
    steps: Any,
    cycles: Any,
) -> tuple:
    """Run at most so many cycles of so many sweeps, from parameters with the objective high + low.

    Sweeps have momentum unless `bounds` is None.

    Returns the parameters, the momentum, the objectives after each cycle, the number of these objectives,
    how many of them are rises, and whether the descent has stopped moving.
    """

    def objective(p: Any) -> Value:
        return precise_objective(method, hyper, p, data)

    def sweep(p: Any) -> Any:
        return method.solver.update(p, data, hyper)  # type: ignore[misc]

    def unfinished(state: tuple) -> jax.Array:
        _, _, (last, _), _, number, _, still = state
        return (number < cycles) & ~still & jnp.isfinite(last)

    def once(state: tuple) -> tuple:
        p, (before, count), old, values, number, rises, _ = state
        if bounds is None:
            now = jax.lax.fori_loop(0, steps, lambda _, p: sweep(p), p)
            new, moving = objective(now), jnp.asarray(False)
        else:
            now, new, moving = with_momentum(
                sweep, objective, bounds, p, before, count, old, of_all
            )
        fall, scale = (old[0] - new[0]) + (old[1] - new[1]), 1 + jnp.abs(new[0])
        rises += fall < -rounding * scale
        # only a sweep without momentum shows that nothing moves: after a small fall, the next sweep is one
        still = (count == 0) & (jnp.abs(fall) <= tol * scale * steps)
        momentum = Momentum(p, jnp.where(moving & (fall > tol * scale), count + 1, 0))
        return now, momentum, new, values.at[number].set(jnp.stack(new)), number + 1, rises, still

    rounding = ROUNDING if _single(p) else 1e-10
    of_all = (lambda total: total) if own_rows.division(data) is None else own_rows.added
    one = jnp.zeros((), int)
    room = jnp.zeros((ROOM, 2), high.dtype)
    own, before = (own_rows.owned(q, method.solver.own_rows, data) for q in (p, momentum.before))
    begin = (own, Momentum(before, momentum.count), (high, low), room, one, one, jnp.asarray(False))
    own, momentum, _, values, number, rises, still = jax.lax.while_loop(unfinished, once, begin)
    p, before = (own_rows.whole(q, method.solver.own_rows, data) for q in (own, momentum.before))
    return p, Momentum(before, momentum.count), values, number, rises, still


def _single(params: Any) -> bool:
    return any(x.dtype == np.float32 for x in jax.tree.leaves(params))


@compiled_for(0, 1)
def _after_a_sweep(method: Method, hyper: Any, p: Any, data: Any) -> jax.Array:
    """The objective after one more sweep."""
    assert method.solver.update is not None  # the sweeps before were its own
    return method.objective(method.solver.update(p, data, hyper), data, hyper)


def _lost_digits(job: Job, p: Any, value: float) -> str | None:
    """A note if single precision changed the objective of a regression on features, which may have any scale.

    The test is one more sweep in double precision, which should find the same objective.
    """
    if "views_given" not in job.method.notes.traits or not _single(p):
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
