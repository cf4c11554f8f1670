"""The engines for a method and data: the result of each, its time in seconds, and which one to use."""

from typing import Any

import jax
import pandas as pd

import bayesfac.models  # noqa: F401  # registers every method
from bayesfac.api import Listing
from bayesfac.core.method import Method, contain, lookup, settle
from bayesfac.inference import ENGINES
from bayesfac.inference.gibbs import sweep
from bayesfac.inference.variational.vb import FEW
from bayesfac.inference.work import SECONDS, work

FIXED = 3e8  # work of any fit, whatever its size: some 0.2 s
QUICK_SWEEPS = 110  # of Quick: usually 80, and what it keeps of 60 of them costs as much as 30 more
STEPS = 60  # of L-BFGS, or times three sweeps: the usual number is not known before the fit
LEAPFROGS = 63  # of a transition of NUTS: trees of depth 6
VB_SWEEPS = 60  # of coordinate ascent
SVI_STEP = 3  # gradients: a draw of the guide, its density and the step of Adam cost as much as two
SOON, LONG = 60, 900  # seconds that a user waits for a first posterior, and for a final one

GIVES = {
    "FixedPoint": "a point, by the paper's solver",
    "LBFGS": "a point, by gradients",
    "MAP": "a point, by Adam on the model",
    "Quick": "draws of a short Gibbs run",
    "VB": "draws of independent laws, widened",
    "Gibbs": "draws of the posterior",
    "NUTS": "draws of the posterior",
    "SVI": "draws of a guide, often too narrow",
}


class Costs(Listing):
    """A table of engines that is printed without omissions."""

    @property
    def recommended(self) -> list[str]:
        """The engines to use, in this order."""
        return list(self.index[self["advice"] != ""])

    def __repr__(self) -> str:
        lines = [f"{'':12}{'seconds':>9}  of one core, without compilation"]
        for name, row in self.iterrows():
            said = f"; {row['advice']}" if row["advice"] else ""
            lines.append(f"{name:12}{_short(row['seconds']):>9}  {row['gives']}{said}")
        return "\n".join(lines)


def engines(method: str, data: Any, **hyper: Any) -> Costs:
    """List the engines for this method and data: the result of each, its time in seconds, and which to use.

    The seconds are estimates for one core and default settings of the engines, without compilation and
    without the search for settings. They follow from the number of operations in the traced programs; no
    program is run. Compared with runs on one machine, the estimate for `Gibbs`, whose number of sweeps is
    known, was right up to a factor of two. For engines that stop by a rule, it had the right order of
    magnitude.

    Parameters
    ----------
    method : str
        The name of a method.
    data
        The data, as for `bf.fit`.
    **hyper
        Hyper-parameters, as for `bf.fit`.

    Examples
    --------
    >>> import bayesfac as bf
    >>> costs = bf.engines("bpmf", bf.datasets.make_ratings(30, 20, 2, seed=0), n_components=2)
    >>> costs.recommended
    ['FixedPoint', 'Gibbs']
    """
    known = lookup(method)
    data = contain(known, data)
    settled = settle(known, data, hyper)
    data = known.ready(data, settled)
    p = known.init(jax.random.key(0), data, settled)
    seconds = {
        name: SECONDS * (FIXED + _work(name, known, data, settled, p)) for name in known.engines
    }
    advice = _advice(known.default_engine, seconds)
    rows = [
        {"engine": name, "gives": GIVES[name], "seconds": s, "advice": advice.get(name, "")}
        for name, s in sorted(seconds.items(), key=lambda one: one[1])
    ]
    return Costs(pd.DataFrame(rows).set_index("engine"))


def _work(name: str, method: Any, data: Any, hyper: Any, p: Any) -> float:
    """The work of a run with default settings, in units of `inference.work`."""
    engine: Any = ENGINES[name]()
    known = (method, data, hyper, p)
    if name in ("FixedPoint", "LBFGS"):
        return STEPS * step_work(*known)
    if name == "Quick":
        return engine.chains * QUICK_SWEEPS * sweep_work(*known)
    if name == "Gibbs":
        return engine.chains * (engine.warmup + engine.draws * engine.thin) * sweep_work(*known)
    if name == "VB":
        first = (
            engine.chains * engine.warmup * sweep_work(*known) if method.gibbs.conditionals else 0.0
        )
        # a law begins with a sweep; each chain has a law for a few of them
        return first + (VB_SWEEPS + engine.chains * FEW) * work(
            lambda p, data: method.variational.begin(p, data, hyper), p, data
        )
    if name == "NUTS":
        transitions = engine.chains * (engine.warmup + engine.draws * engine.thin)
        return transitions * LEAPFROGS * gradient_work(*known)
    if name == "SVI":
        return SVI_STEP * engine.steps * gradient_work(*known)
    return engine.steps * gradient_work(*known)


def step_work(method: Method, data: Any, hyper: Any, p: Any) -> float:
    """The work of one step of L-BFGS, or of three sweeps of the method's own solver."""
    if method.solver.update is None:
        return gradient_work(method, data, hyper, p)
    sweep = work(lambda p, data: method.solver.update(p, data, hyper), p, data)  # type: ignore[misc]
    # after each sweep the objective, in double precision
    return 3 * (sweep + 2 * work(lambda p, data: method.objective(p, data, hyper), p, data))


def gradient_work(method: Method, data: Any, hyper: Any, p: Any) -> float:
    """The work of the objective and its gradient."""
    return work(jax.value_and_grad(lambda p, data: method.objective(p, data, hyper)), p, data)


def sweep_work(method: Method, data: Any, hyper: Any, p: Any) -> float:
    """The work of a sweep of Gibbs."""
    key = jax.random.key(0)
    return work(lambda p, data: sweep(method, hyper, p, data, key), p, data)


def _advice(solver: str, seconds: dict[str, float]) -> dict[str, str]:
    """Which engine to use first, and which for the posterior."""
    found = {solver: "take it first"}
    if "Gibbs" in seconds:
        if seconds["Gibbs"] > SOON:
            found["Quick"] = "then take it for first intervals"
        found["Gibbs"] = "take it for the posterior"
    elif seconds.get("NUTS", LONG + 1) <= LONG:
        found["NUTS"] = "take it for the posterior"
    elif "SVI" in seconds:
        found["SVI"] = "take it with care: NUTS would take too long here"
    return found


def _short(seconds: float) -> str:
    """Seconds with two digits.

    >>> _short(0.1234), _short(7.7), _short(1234.5)
    ('0.12', '7.7', '1,200')
    """
    return f"{float(f'{seconds:.2g}'):,g}"
