"""L-BFGS on the objective, in unconstrained coordinates."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayesfac.core.data.divided import own_rows
from bayesfac.core.together import Alone, Together, has_own_rows
from bayesfac.inference.checkpoint import SAVE_EVERY, Checkpoint
from bayesfac.inference.driver import Run
from bayesfac.inference.lbfgs import SPENT, STUCK, advance, begin, frozen, resumed
from bayesfac.inference.result import (
    Engine,
    Job,
    Result,
    check_number,
    check_settings,
    check_sites,
    require,
)
from bayesfac.inference.unconstrained import constrain, supports, unconstrain


@dataclass(frozen=True)
class LBFGS(Engine):
    """Limited-memory BFGS in unconstrained coordinates. No Jacobian is added, so the optimum is the MAP.

    If a method's objective is a sum of independent problems (its `terms`), they are solved at the same time.
    Each problem has its own history and step length, and takes no more time once it is solved.

    Parameters
    ----------
    max_iter : int
        The largest number of iterations.
    tol : float
        Stop when an iteration lowers the objective by less than this, relative to max(1, |objective|).
    memory : int
        The number of past steps that are used.
    folder : str, optional
        Write a checkpoint there every `save_every` seconds. If the run is killed, the same call continues it.
    shares : bool
        Divide the rows of the data among all devices of this process, or of all processes that
        `jax.distributed.initialize` has joined, for `mmmf` (users), `plsa` and `mvplsa`. The result is the
        same up to rounding. See "When one machine is not enough".
    """

    max_iter: int = 4000
    tol: float = 1e-9
    memory: int = 10
    folder: str | None = None
    save_every: float = SAVE_EVERY
    shares: bool = False

    def __post_init__(self) -> None:
        check_settings(self, max_iter=1, memory=1)
        require(0 <= self.tol < 1, f"Expected LBFGS(tol=...) in [0, 1), got {self.tol!r}")

    def run(self, job: Job) -> Result:
        """Descend from the start; the trace has the objective of every iteration."""
        method, p = job.method, job.start_point(job.key, job.method.solver.start)
        transforms = supports(method, job.data, job.hyper, p)
        free = unconstrain(transforms, p)
        held = {
            site: np.asarray(free.pop(site))
            for site in [*free]
            if site.partition(".")[0] in method.solver.held(job.hyper)
        }
        z, restore = as_rows(free, several=method.solver.terms is not None)

        def params(z: jax.Array) -> Any:
            known = {site: jnp.asarray(value) for site, value in held.items()}
            return constrain(method, transforms, known | restore(z))

        # the compiled function has arrays of this fit in it, so no other fit could use it
        settings = (job, self.folder, lambda function, data: jax.jit(function))
        place = Together(*settings, has_own_rows) if self.shares else Alone(*settings)
        point = Checkpoint(self.folder, job.identity, self.save_every, place.idle)
        saved = point.load()
        spent = int(saved["spent"]) if saved else 0
        look = _looker(job, params, np.array(z), place, spent)
        at = resumed(saved) if saved else begin(look, np.array(z))
        trace = list(saved["trace"]) if saved else [float(at.value.sum())]
        check_number(trace[0], "objective", "at the start")
        arrays = lambda: {**frozen(at), "trace": trace, "spent": spent}  # noqa: E731
        with Run(job, spent, self.max_iter, point, arrays, place) as run:
            while len(at.live) and spent < self.max_iter:
                spent += 1
                advance(look, at, self.memory, self.tol, gtol=1e-8)
                trace.append(float(at.value.sum()))
                check_number(trace[-1], "objective", f"in iteration {len(trace) - 1}")
                run.made(1, objective=f"{trace[-1]:.6g}", at_work=len(at.live))
            for problem in at.live:
                at.why[problem] = SPENT
        p = params(jnp.asarray(at.z))
        check_sites(p, "at the end")
        stopped = f"interrupted after {len(trace) - 1} iterations"
        notes = [stopped] if run.interrupted else self._notes(at.why)
        return Result(p, None, np.asarray(trace), not notes, notes=notes, partial=run.interrupted)

    def _notes(self, why: list[str]) -> list[str]:
        """The reasons why some problems are not solved."""
        notes = [f"L-BFGS: {STUCK}"] if STUCK in why else []
        if SPENT in why:
            notes.append(f"L-BFGS: {self.max_iter} iterations were not enough")
        return notes


def as_rows(free: dict[str, jax.Array], several: bool) -> tuple[jax.Array, Callable]:
    """Free parameters as a matrix, one row per independent problem, and the inverse function."""
    # by NumPy, for which JAX has nothing to compile
    rows = {n: np.asarray(x) if several else np.asarray(x)[None] for n, x in free.items()}
    shapes = {name: value.shape[1:] for name, value in rows.items()}
    sizes = [int(np.prod(shape)) for shape in shapes.values()]
    flat = [value.reshape(len(value), -1) for value in rows.values()]

    def restore(z: jax.Array) -> dict[str, jax.Array]:
        parts = jnp.split(z, np.cumsum(sizes)[:-1], axis=1)
        each = zip(shapes.items(), parts, strict=True)
        back = {name: jnp.reshape(part, (len(z), *shape)) for (name, shape), part in each}
        return back if several else {name: value[0] for name, value in back.items()}

    return jnp.asarray(np.concatenate(flat, 1)), restore


def _looker(job: Job, params: Callable, points: np.ndarray, place: Alone, spent: int) -> Callable:
    """(points of some problems, the numbers of these problems) -> values and slopes; `spent` iterations were
    made before."""
    method, hyper = job.method, job.hyper

    def total(z: jax.Array, data: Any, which: jax.Array) -> tuple[jax.Array, jax.Array]:
        p = own_rows.owned(params(z), method.solver.own_rows, data)
        if method.solver.terms is None:
            terms = method.objective(p, data, hyper)[None]
        else:
            terms = method.solver.terms(p, data, hyper, which)
        return jnp.sum(terms), terms

    both, data = place.solver(jax.value_and_grad(total, has_aux=True), (), spent)

    def look(z: np.ndarray, live: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # a program evaluates all problems, half of them, a quarter: few shapes to compile
        size = len(points)
        while size // 2 >= len(live):
            size //= 2
        at = np.resize(live, size)
        (_, terms), slope = both(jnp.asarray(z[np.arange(size) % len(live)]), data, jnp.asarray(at))
        return np.array(terms[: len(live)]), np.array(slope[: len(live)])

    return look
