"""The solver's point, then a short Gibbs run from it: intervals for the price of a few points."""

from dataclasses import dataclass, replace
from typing import Any

import jax

from bayesfac.core import checks
from bayesfac.core.method import Method, sites
from bayesfac.inference.checkpoint import SAVE_EVERY
from bayesfac.inference.fixed_point import FixedPoint
from bayesfac.inference.gibbs import Gibbs, spread, sweep
from bayesfac.inference.gradient import LBFGS
from bayesfac.inference.result import Job, Result, check_settings
from bayesfac.inference.work import work

WARMUP = 2  # the first half of the sweeps is thrown away
FEWEST, MOST = 40, 1000  # sweeps of a chain: fewer show no spread; more are a run for `Gibbs`
FIXED = 3e8  # work of any fit, whatever its size: some 0.2 s
JITTER, OVER = 0.1, 0.5  # of the chains: both shorten the way from the point
SOLVERS: dict[str, Any] = {"FixedPoint": FixedPoint, "LBFGS": LBFGS}


@dataclass(frozen=True)
class Quick:
    """The method's own solver, then a short Gibbs run from its point, with predictions averaged exactly.

    Chains start at copies of the point, turned or relabelled as the method's gauge allows. A kept sweep gives
    several draws, as `Gibbs(pairs=...)` describes.

    Parameters
    ----------
    times : float
        What the fit may cost, in units of the solver's point. The sweeps that this pays for follow from
        counted multiplications and never from a clock, so that a seed is a fit: see `affordable`.
    sweeps : int, optional
        Gibbs sweeps of each chain instead, of which the first half is thrown away. `fit.engine.sweeps`
        says how many there were.
    chains : int
        Independent chains.
    draws : int
        Sweeps of each chain that are kept, at most, evenly spaced.
    pairs : int
        Pairs of draws of each block of normal rows at a kept sweep.
    folder : str, optional
        Write draws and checkpoints there, as Gibbs does; a killed run resumes to the same draws.
    """

    times: float = 3.0
    sweeps: int | None = None
    chains: int = 2
    draws: int = 30
    pairs: int = 2
    folder: str | None = None
    save_every: float = SAVE_EVERY

    def __post_init__(self) -> None:
        least = {"chains": 1, "draws": 1, "pairs": 0}
        check_settings(self, **least, **({} if self.sweeps is None else {"sweeps": 4}))
        checks.positive(self, "times")

    def run(self, job: Job) -> Result:
        """The point, and the chains that begin there. An interrupted solver gives its point so far."""
        solver = SOLVERS[job.method.solver](**self._place("point"))
        point = solver.run(replace(job, identity=f"{job.identity} point"))
        if point.partial:
            return point
        n = self.sweeps or affordable(self, job, point)
        gibbs = self.chains_of(n)
        start = dict(sites(point.params))
        found = gibbs.run(replace(job, start=start, identity=f"{job.identity} {n} sweeps"))
        if point.converged is False:
            found.notes.append("the solver did not converge: " + "; ".join(point.notes))
        found.engine = replace(self, sweeps=n)
        return found

    def chains_of(self, sweeps: int) -> Gibbs:
        """The run that begins at the point."""
        thin = max(1, -(-(sweeps - sweeps // WARMUP) // self.draws))
        kept = (sweeps - sweeps // WARMUP) // thin
        warmup = sweeps - kept * thin
        place = self._place("chains")
        return Gibbs(warmup, kept, self.chains, thin, JITTER, self.pairs, OVER, **place)

    def _place(self, part: str) -> dict[str, Any]:
        folder = None if self.folder is None else f"{self.folder}/{part}"
        return {"folder": folder, "save_every": self.save_every}


def affordable(engine: Quick, job: Job, point: Result) -> int:
    """The sweeps of each chain that `times` points pay for: as many as cost what remains after the point.

    Work is counted: of the solver its start, its sweeps and its looks at the objective; of the chains their
    sweeps and the draws of kept ones. There are FEWEST sweeps at least, MOST at most.
    """
    method, data, hyper, key = job.method, job.data, job.hyper, job.key
    p, looks = point.params, len(point.trace) - 1
    price = FIXED + looks * look_work(method, data, hyper, p) + start_work(job, p)
    left = (engine.times - 1) * price / engine.chains
    one = sweep_work(method, data, hyper, p, OVER)
    kept = work(lambda p, data: spread(method, hyper, p, data, key, engine.pairs), p, data)
    every = left / (one + kept * (1 - 1 / WARMUP))  # all sweeps after the warm-up are kept
    return int(min(MOST, max(FEWEST, every, (left - kept * engine.draws) / one)))


def start_work(job: Job, p: Any) -> float:
    """The work of the solver's start."""
    method, hyper = job.method, job.hyper
    if method.start_sweeps is None or method.update is None:
        begin = method.start or method.init
        return work(lambda data: begin(job.key, data, hyper), job.data)
    update, sweeps = method.update, method.start_sweeps(job.data, hyper)
    return sweeps * work(lambda p, data: update(p, data, hyper), p, job.data)


def look_work(method: Method, data: Any, hyper: Any, p: Any) -> float:
    """The work of the solver between two looks at its objective: one step of L-BFGS, or three sweeps."""
    if method.update is None:
        return gradient_work(method, data, hyper, p)
    sweeps = 3 * work(lambda p, data: method.update(p, data, hyper), p, data)  # type: ignore[misc]
    # the objective in double precision before and after the extrapolation
    return sweeps + 4 * work(lambda p, data: method.objective(p, data, hyper), p, data)


def gradient_work(method: Method, data: Any, hyper: Any, p: Any) -> float:
    """The work of the objective and its gradient."""
    return work(jax.value_and_grad(lambda p, data: method.objective(p, data, hyper)), p, data)


def sweep_work(method: Method, data: Any, hyper: Any, p: Any, over: float = 0.0) -> float:
    """The work of a sweep of Gibbs."""
    key = jax.random.key(0)
    return work(lambda p, data: sweep(method, hyper, p, data, key, over), p, data)
