"""Repeat a method's own update until its objective stands still."""

import time
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayesfac.core import events
from bayesfac.core.method import sites
from bayesfac.core.precision import cast
from bayesfac.inference.checkpoint import SAVE_EVERY, Checkpoint
from bayesfac.inference.extrapolation import Cycle, extrapolated, lower_bounds, plain
from bayesfac.inference.result import (
    Job,
    Result,
    bar,
    check_number,
    check_settings,
    check_sites,
    paced,
    replace_sites,
    require,
)

ROUNDING = 1e-7  # relative rise that rounding of single-precision parameters makes (double: 1e-10)
ROOM = 1024  # values of the objective that one call of the compiled loop can return
LOST = 1e-3  # what single precision may cost, relative to 1 + |objective|


@dataclass(frozen=True)
class FixedPoint:
    """The paper's own solver.

    Parameters
    ----------
    max_iter : int
        Sweeps at most. An extrapolated step takes three of them.
    tol : float
        Stop when the objective changes by less than this, relative to 1 + |objective|, per sweep.
    restarts : int
        Independent starts: the fit with the best objective is returned, the other objectives are reported.
    accelerate : bool
        Extrapolate from every two sweeps (SQUAREM: Varadhan & Roland 2008); a step that would raise the
        objective is not taken.
    every : int
        Sweeps between two evaluations of the objective (each costs a pass over the data). With more than 1,
        sweeps are plain.
    folder : str, optional
        Keep a checkpoint there, written every `save_every` seconds; a killed run resumes from it.
    """

    max_iter: int = 500
    tol: float = 1e-6
    restarts: int = 1
    accelerate: bool = True
    every: int = 1
    folder: str | None = None
    save_every: float = SAVE_EVERY

    def __post_init__(self) -> None:
        check_settings(self, max_iter=1, restarts=1, every=1)
        require(0 <= self.tol < 1, f"Expected FixedPoint(tol=...) in [0, 1), got {self.tol!r}")

    def run(self, job: Job) -> Result:
        """The best of the restarts; only the first restart begins at `job.start`."""
        results: list[Result] = []
        for number, key in enumerate(jax.random.split(job.key, self.restarts)):
            if results and results[-1].partial:
                break
            folder = None if self.folder is None else f"{self.folder}/{number}"
            point = Checkpoint(folder, f"{job.identity} restart {number}", self.save_every)
            one = job if number == 0 else replace(job, start=None)
            results.append(self._descend(one, one.start_point(key), point))
        best = min(results, key=lambda r: r.trace[-1])
        if self.restarts > 1:
            ends = ", ".join(f"{r.trace[-1]:.6g}" for r in results)
            best.notes.append(f"best of {len(results)} restarts, which ended at {ends}")
        return best

    def _descend(self, job: Job, p: Any, point: Checkpoint) -> Result:
        """Sweeps in a compiled loop that returns after about half a second."""
        assert job.method.update is not None  # `bf.fit` refuses methods without an update
        objective = jax.jit(precisely(job.objective))
        first = objective(p, job.data)
        trace = [float(np.float64(first[0]) + first[1])]
        check_number(trace[0], "objective", "at the start")
        done, converged, partial, rises, reach = 0, False, False, 0, 1.0
        if saved := point.load():
            trace, done, reach = list(saved.pop("trace")), int(saved.pop("done")), saved.pop("reach")
            rises, converged = int(saved.pop("rises")), bool(saved.pop("converged"))
            p = replace_sites(p, saved)
        cycle = self._cycle(job, p)
        block = _block_of(cycle, precisely(job.objective), self.tol, self._length, _rounding(p))

        def state() -> dict[str, Any]:
            counters = {"trace": trace, "done": done, "rises": rises, "converged": converged}
            return {**counters, "reach": reach, **sites(p)}

        pace, most = 1, self.max_iter - self.max_iter % 3 * self._accelerated
        with bar(job.progress, self.max_iter, job.method.name) as shown, events.listen() as heard:
            shown.update(done)
            try:
                while done < most and not converged:
                    begun, left = time.perf_counter(), most - done
                    steps = min(self._length, left)
                    cycles = min(pace, left // steps, ROOM)
                    p, reach, values, made, up, converged = jax.device_get(
                        block(p, job.data, *_halves(trace[-1], p), reach, steps, cycles)
                    )
                    new = values[: int(made)].astype(np.float64).sum(1)
                    trace.extend(new)
                    bad = np.flatnonzero(~np.isfinite(new))
                    done += int(made) * steps
                    rises += int(up)
                    if len(bad):
                        check_number(new[bad[0]], "objective", f"after sweep {done}")
                    check_sites(p, f"after sweep {done}")
                    shown.update(int(made) * steps)
                    shown.set_postfix(objective=f"{trace[-1]:.6g}")
                    if point.due():
                        point.save(state())
                    pace = paced(pace, time.perf_counter() - begun)
            except KeyboardInterrupt:
                partial = True
        p = jax.tree.map(jnp.asarray, p)
        point.save(state())
        notes = [f"the objective rose in {rises} of {done} sweeps"] if rises else []
        notes += [f"{what} {times} times" for what, times in heard.items() if times]
        if converged and (lost := _lost_digits(job, p, trace[-1])):
            notes.append(lost)
            converged = False
        if partial:
            notes.append(f"interrupted after {done} sweeps")
        return Result(p, None, np.asarray(trace), bool(converged), notes=notes, partial=partial)

    @property
    def _length(self) -> int:
        """Sweeps between two evaluations of the objective that enter the trace."""
        return 3 if self._accelerated else self.every

    @property
    def _accelerated(self) -> bool:
        return self.accelerate and self.every == 1 and self.max_iter >= 3

    def _cycle(self, job: Job, p: Any) -> Cycle:
        update, hyper = job.method.update, job.hyper

        def sweep(p: Any, data: Any) -> Any:
            return update(p, data, hyper)  # type: ignore[misc]

        if self._accelerated:
            return extrapolated(sweep, precisely(job.objective), lower_bounds(job, p))
        return plain(sweep)


Value = tuple[jax.Array, jax.Array]  # a number in double precision as the sum of two in single precision


def precisely(objective: Any) -> Any:
    """The objective in double precision, as a sum of two numbers of the working precision."""

    def both(p: Any, data: Any) -> Value:
        working = jax.dtypes.canonicalize_dtype(np.float64)
        with jax.enable_x64(True):
            value = jnp.asarray(objective(cast(p, np.float64), cast(data, np.float64)))
            high = value.astype(working)
            return high, (value - high).astype(working)

    return both


def _halves(value: float, p: Any) -> Value:
    """A number as the sum of two in the precision of the parameters."""
    dtype = np.float32 if _single(p) else np.float64
    high = dtype(value)
    return high, dtype(value - np.float64(high))


def _block_of(cycle: Any, objective: Any, tol: float, length: int, rounding: float) -> Any:
    """(params, data, value as two halves, reach, sweeps of a cycle, cycles) -> params, reach, the values
    after each cycle, how many there are, how many of them are rises, whether the descent stands still."""

    @jax.jit
    def block(p: Any, data: Any, high: Any, low: Any, reach: Any, steps: Any, cycles: Any) -> tuple:
        def unfinished(state: tuple) -> jax.Array:
            _, _, (last, _), _, number, _, still = state
            return (number < cycles) & ~still & jnp.isfinite(last)

        def once(state: tuple) -> tuple:
            p, reach, old, values, number, rises, _ = state
            p, reach, new = cycle(p, data, reach, steps)
            new = objective(p, data) if new is None else new
            fall, scale = (old[0] - new[0]) + (old[1] - new[1]), 1 + jnp.abs(new[0])
            rises += fall < -rounding * scale
            still = jnp.abs(fall) <= tol * scale * steps
            return p, reach, new, values.at[number].set(jnp.stack(new)), number + 1, rises, still

        one = jnp.zeros((), int)
        begin = (p, reach, (high, low), jnp.zeros((ROOM, 2), high.dtype), one, one, jnp.asarray(False))
        p, reach, _, values, number, rises, still = jax.lax.while_loop(unfinished, once, begin)
        return p, reach, values, number, rises, still

    return block


def _rounding(params: Any) -> float:
    return ROUNDING if _single(params) else 1e-10


def _single(params: Any) -> bool:
    return any(np.asarray(x).dtype == np.float32 for x in jax.tree.leaves(params))


def _lost_digits(job: Job, p: Any, value: float) -> str | None:
    """A note if single precision changed the objective of a regression on features, which come in any scale.

    One more sweep in double precision should find the same objective.
    """
    if "views_given" not in job.method.traits or not _single(p):
        return None
    with jax.enable_x64(True):
        p, data = cast(p, np.float64), cast(job.data, np.float64)
        once_more = jax.jit(lambda p, data: job.objective(job.method.update(p, data, job.hyper), data))  # type: ignore[misc]
        exact = float(once_more(p, data))
    if abs(value - exact) <= LOST * (1 + abs(exact)):
        return None
    return (
        f"the objective is {value:.6g} in single precision and {exact:.6g} in double precision: scale the "
        'features, or call jax.config.update("jax_enable_x64", True)'
    )
