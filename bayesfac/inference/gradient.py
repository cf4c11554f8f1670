"""L-BFGS on the objective, in unconstrained coordinates."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize

from bayesfac.core.method import Method
from bayesfac.inference.result import (
    Result,
    bar,
    check_number,
    check_sites,
    compiled,
    count_setting,
    require,
    start_point,
)
from bayesfac.inference.unconstrained import constrain, supports, unconstrain


@dataclass(frozen=True)
class LBFGS:
    """Limited-memory BFGS (SciPy) through the model's supports; no Jacobian, so it finds the MAP.

    Parameters
    ----------
    max_iter : int
        Iterations at most.
    tol : float
        Stop when the objective changes by less than this, relative.
    memory : int
        Past steps that are kept.
    """

    max_iter: int = 1000
    tol: float = 1e-9
    memory: int = 20

    def __post_init__(self) -> None:
        count_setting(self, max_iter=1, memory=1)
        require(0 <= self.tol < 1, f"Expected LBFGS(tol=...) in [0, 1), got {self.tol!r}")

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
        """Descend from the start; the trace has the objective of every iteration."""
        p = start_point(method, data, hyper, key, start)
        transforms = supports(method, data, hyper, p)
        free, restore = ravel_pytree(unconstrain(transforms, p))

        def objective(z: jax.Array, data: Any) -> jax.Array:
            return method.objective(constrain(method, transforms, restore(z)), data, hyper)

        slope = compiled(jax.value_and_grad(objective))

        def both(z: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = slope(jax.numpy.asarray(z, free.dtype), data)
            return float(value), np.asarray(gradient, np.float64)

        trace = [both(np.asarray(free))[0]]
        check_number(trace[0], "objective", "at the start")
        latest = np.asarray(free, np.float64)
        partial = False
        with bar(progress, self.max_iter, method.name) as shown:

            def record(intermediate_result: Any) -> None:
                nonlocal latest
                latest = intermediate_result.x.copy()
                trace.append(float(intermediate_result.fun))
                check_number(trace[-1], "objective", f"in iteration {len(trace) - 1}")
                shown.update(1)
                shown.set_postfix(objective=f"{trace[-1]:.6g}")

            options = {
                "maxiter": self.max_iter,
                "maxcor": self.memory,
                "ftol": self.tol,
                "gtol": 1e-8,
                "maxfun": 20 * self.max_iter,
            }
            try:
                answer = minimize(
                    both, latest, jac=True, method="L-BFGS-B", callback=record, options=options
                )
                latest, converged, message = answer.x, bool(answer.success), str(answer.message)
            except KeyboardInterrupt:
                partial, converged, message = (
                    True,
                    False,
                    f"interrupted after {len(trace) - 1} iterations",
                )
        p = constrain(method, transforms, restore(jax.numpy.asarray(latest, free.dtype)))
        check_sites(p, "at the end")
        notes = [] if converged else [f"L-BFGS: {message}"]
        return Result(p, None, np.asarray(trace), converged, notes=notes, partial=partial)
