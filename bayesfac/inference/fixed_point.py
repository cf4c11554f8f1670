"""Repeat a method's own update until its objective stands still."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from bayesfac.core import events
from bayesfac.core.method import sites
from bayesfac.core.precision import cast
from bayesfac.inference.checkpoint import SAVE_EVERY, Checkpoint
from bayesfac.inference.result import (
    Job,
    Result,
    bar,
    check_number,
    check_settings,
    check_sites,
    compiled,
    replace_sites,
    require,
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
        Independent starts: the fit with the best objective is returned, the other objectives are reported.
    every : int
        Sweeps between two evaluations of the objective (each costs a pass over the data).
    folder : str, optional
        Keep a checkpoint there, written every `save_every` seconds; a killed run resumes from it.
    """

    max_iter: int = 500
    tol: float = 1e-6
    restarts: int = 1
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
            results.append(self._descend(one, one.start_point(key, job.method.start), point))
        best = min(results, key=lambda r: r.trace[-1])
        if self.restarts > 1:
            ends = ", ".join(f"{r.trace[-1]:.6g}" for r in results)
            best.notes.append(f"best of {len(results)} restarts, which ended at {ends}")
        return best

    def _descend(self, job: Job, p: Any, point: Checkpoint) -> Result:
        sweep, data = job.method.update, job.data
        assert sweep is not None  # `bf.fit` refuses methods without an update
        objective = compiled(job.objective)
        update = compiled(lambda p, data: sweep(p, data, job.hyper))
        trace = [float(objective(p, data))]
        check_number(trace[0], "objective", "at the start")
        done, converged, partial, rises = 0, False, False, 0
        if saved := point.load():
            trace, done = list(saved.pop("trace")), int(saved.pop("done"))
            rises, converged = int(saved.pop("rises")), bool(saved.pop("converged"))
            p = replace_sites(p, saved)

        def state() -> dict[str, Any]:
            counters = {"trace": trace, "done": done, "rises": rises, "converged": converged}
            return {**counters, **sites(p)}

        with bar(job.progress, self.max_iter, job.method.name) as shown, events.listen() as heard:
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
                    change, scale = trace[-2] - trace[-1], 1 + abs(trace[-1])
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
        if converged and (lost := _lost_digits(job, objective, update, p, trace[-1])):
            notes.append(lost)
            converged = False
        if partial:
            notes.append(f"interrupted after {done} sweeps")
        return Result(p, None, np.asarray(trace), converged, notes=notes, partial=partial)


def _rounding(params: Any) -> float:
    return ROUNDING if _single(params) else 1e-10


def _single(params: Any) -> bool:
    return any(np.asarray(x).dtype == np.float32 for x in jax.tree.leaves(params))


def _lost_digits(job: Job, objective: Any, update: Any, p: Any, value: float) -> str | None:
    """A note if single precision changed the objective of a regression on features, which come in any scale.

    One more sweep in double precision should find the same objective.
    """
    if "views_given" not in job.method.traits or not _single(p):
        return None
    with jax.enable_x64(True):
        p, data = cast(p, np.float64), cast(job.data, np.float64)
        exact = float(objective(update(p, data), data))
    if abs(value - exact) <= LOST * (1 + abs(exact)):
        return None
    return (
        f"the objective is {value:.6g} in single precision and {exact:.6g} in double precision: scale the "
        'features, or call jax.config.update("jax_enable_x64", True)'
    )
