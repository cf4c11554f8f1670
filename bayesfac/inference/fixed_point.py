"""Iterate a method's own update until its objective stands still."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from bayesfac.core import events
from bayesfac.core.method import Method, sites
from bayesfac.core.precision import cast
from bayesfac.inference.checkpoint import SAVE_EVERY, Checkpoint
from bayesfac.inference.result import (
    Result,
    bar,
    check_number,
    check_sites,
    compiled,
    count_setting,
    replace_sites,
    require,
    seconds_setting,
    start_point,
)

ROUNDING = 1e-5  # relative rise of a float32 objective that is only rounding (float64: 1e-10)
LOST = 1e-3  # what single precision may cost, relative to 1 + |objective|


@dataclass(frozen=True)
class FixedPoint:
    """The paper's own solver.

    Parameters
    ----------
    max_iter : int
        Sweeps at most.
    tol : float
        Stop when the objective changes by less than this, relative to 1 + |objective|, per sweep.
    restarts : int
        Independent starts; the best objective wins and the others are reported.
    every : int
        Sweeps between two looks at the objective (a look costs a pass over the data).
    folder : str, optional
        Where checkpoints go; a killed run resumes from there.
    save_every : float
        Seconds between checkpoints.
    """

    max_iter: int = 500
    tol: float = 1e-6
    restarts: int = 1
    every: int = 1
    folder: str | None = None
    save_every: float = SAVE_EVERY

    def __post_init__(self) -> None:
        count_setting(self, max_iter=1, restarts=1, every=1)
        require(0 <= self.tol < 1, f"Expected FixedPoint(tol=...) in [0, 1), got {self.tol!r}")
        seconds_setting(self)

    def run(
        self,
        method: Method,
        data: Any,
        hyper: Any,
        *,
        key: jax.Array,
        start: Any,
        progress: bool,
        run: str,
    ) -> Result:
        """The best of the restarts; the first of them from `start` where one is given."""
        results = []
        for number, sub in enumerate(jax.random.split(key, self.restarts)):
            first = start_point(method, data, hyper, sub, start if number == 0 else None)
            folder = None if self.folder is None else f"{self.folder}/{number}"
            point = Checkpoint(folder, f"{run} restart {number}", self.save_every)
            results.append(self._descend(method, data, hyper, first, point, progress))
            if results[-1].partial:
                break
        best = min(results, key=lambda r: r.trace[-1])
        if self.restarts > 1:
            ends = ", ".join(f"{r.trace[-1]:.6g}" for r in results)
            best.notes.append(f"best of {len(results)} restarts, which ended at {ends}")
        return best

    def _descend(
        self, method: Method, data: Any, hyper: Any, p: Any, point: Checkpoint, progress: bool
    ) -> Result:
        objective, update = _functions(method, hyper)
        trace = [float(objective(p, data))]
        check_number(trace[0], "objective", "at the start")
        done, converged, partial, rises = 0, False, False, 0
        if saved := point.load():
            trace = list(saved.pop("trace"))
            done = int(saved.pop("done"))
            rises, converged = int(saved.pop("rises")), bool(saved.pop("converged"))
            p = replace_sites(p, saved)

        def state() -> dict[str, Any]:
            counters = {"trace": trace, "done": done, "rises": rises, "converged": converged}
            return {**counters, **sites(p)}

        with bar(progress, self.max_iter, method.name) as shown, events.listen() as heard:
            shown.update(done)
            try:
                while done < self.max_iter and not converged:
                    steps = min(self.every, self.max_iter - done)
                    for _ in range(steps):
                        p = update(p, data)
                    done += steps
                    trace.append(float(objective(p, data)))
                    check_sites(p, f"after sweep {done}")
                    check_number(trace[-1], "objective", f"after sweep {done}")
                    change = trace[-2] - trace[-1]
                    scale = 1 + abs(trace[-1])
                    rises += change < -_rounding(p) * scale
                    converged = abs(change) <= self.tol * scale * steps
                    shown.update(steps)
                    shown.set_postfix(objective=f"{trace[-1]:.6g}")
                    if point.due():
                        point.save(state())
            except KeyboardInterrupt:
                partial = True
        point.save(state())
        notes = [f"the objective rose in {rises} of {done} sweeps"] if rises else []
        notes += [f"{what} {times} times" for what, times in heard.items() if times]
        if converged and (lost := _lost(method, data, hyper, p, trace[-1])):
            notes.append(lost)
            converged = False
        if partial:
            notes.append(f"interrupted after {done} sweeps")
        return Result(p, None, np.asarray(trace), converged, notes=notes, partial=partial)


def _rounding(params: Any) -> float:
    return ROUNDING if _single(params) else 1e-10


def _single(params: Any) -> bool:
    return any(np.asarray(x).dtype == np.float32 for x in jax.tree.leaves(params))


def _lost(method: Method, data: Any, hyper: Any, p: Any, value: float) -> str | None:
    """In words: what single precision costs a regression on features, which come in any scale.

    One sweep in double precision goes on from the point where the fit stands: it should find the same
    objective.
    """
    if not method.views_given or not _single(p):
        return None
    objective, update = _functions(method, hyper)
    with jax.enable_x64(True):
        p, data = cast(p, np.float64), cast(data, np.float64)
        there = float(objective(update(p, data), data))
    if abs(value - there) <= LOST * (1 + abs(there)):
        return None
    found = f"the objective is {value:.6g} in single precision, {there:.6g} in double precision"
    return f'{found}: scale the features, or call jax.config.update("jax_enable_x64", True)'


def _functions(method: Method, hyper: Any) -> tuple[Any, Any]:
    """Objective and update of (params, data)."""

    def objective(p: Any, data: Any) -> jax.Array:
        return method.objective(p, data, hyper)

    sweep = method.update
    if sweep is None:
        raise ValueError(f"Expected a method with an update, got {method.name}")

    def update(p: Any, data: Any) -> Any:
        return sweep(p, data, hyper)

    return compiled(objective), compiled(update)
