"""The engines. Each engine can run any method that has what the engine needs."""

import math
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from bayesfac.core.errors import BayesfacError, UnknownName, unknown
from bayesfac.core.method import Method
from bayesfac.inference.fixed_point import FixedPoint as FixedPoint
from bayesfac.inference.gibbs import Gibbs as Gibbs
from bayesfac.inference.gradient import LBFGS as LBFGS
from bayesfac.inference.nuts import NUTS as NUTS
from bayesfac.inference.quick import Quick as Quick
from bayesfac.inference.result import Result
from bayesfac.inference.variational.svi import MAP as MAP
from bayesfac.inference.variational.svi import SVI as SVI
from bayesfac.inference.variational.vb import VB as VB

KINDS = (FixedPoint, LBFGS, MAP, SVI, NUTS, Gibbs, Quick, VB)
ENGINES = {kind.__name__: kind for kind in KINDS}

AGAIN = 5.0  # seconds
_interrupted = [-math.inf]  # when a fit was interrupted last

_BUSY = threading.Lock()
_PROCESS = os.getpid()


def engine_for(engine: Any, method: Method) -> Any:
    """The given engine, or the method's own solver; an error if the method cannot run with the engine."""
    if engine is None:
        engine = ENGINES[method.default_engine]
    if isinstance(engine, type) and engine.__name__ in ENGINES:
        engine = engine()
    name = type(engine).__name__
    if name not in ENGINES:
        asked = engine if isinstance(engine, str) else name
        raise UnknownName(unknown("engine", asked, [f"bf.{known}()" for known in ENGINES]))
    if name not in method.engines:
        needed = "Gibbs" if name == "Quick" else name
        why = method.notes.traits.get(f"no_{needed.lower()}", f"it declares no {needed} step")
        raise BayesfacError(
            f"{method.name} cannot run with {name}: {why}. It runs with {', '.join(method.engines)}"
        )
    return engine


def check_hyper(method: Method, hyper: Mapping[str, Any], engine: Any) -> None:
    """Raise an error for a setting of engines among the hyper-parameters; the error says where it belongs."""
    for name in hyper:
        kinds = [type(engine).__name__, "Gibbs", *method.engines]
        takers = [
            kind
            for kind in dict.fromkeys(kinds)
            if kind in method.engines and name in [field.name for field in fields(ENGINES[kind])]
        ]
        if takers and name not in method.Hyper._fields:
            call = f"bf.fit({method.name!r}, data, bf.{takers[0]}({name}={hyper[name]!r}))"
            raise UnknownName(
                f"Unknown hyper-parameter of {method.name} {name!r}. It is a setting of "
                f"{', '.join(takers)}: {call}"
            )


def ended_early(name: str, result: Result, reasons: list[str]) -> str:
    """What to warn of after a run: that it was interrupted, or did not converge; "" if it was neither.

    Ctrl-C ends one fit, which keeps what it has. A second Ctrl-C soon after the first is meant for the loop
    of fits around it, and is raised.
    """
    if not result.partial:
        why = "; ".join(reasons) or "more iterations or a larger tol may help"
        return f"{name} did not converge: {why}" if result.converged is False else ""
    before, _interrupted[0] = _interrupted[0], time.monotonic()
    if _interrupted[0] - before < AGAIN:
        raise KeyboardInterrupt(f"twice within {AGAIN:g} seconds")
    return (
        f"the fit of {name} is partial: {'; '.join(reasons)}. A loop of fits goes on: Ctrl-C again within "
        f"{AGAIN:g} seconds ends the loop"
    )


@contextmanager
def alone() -> Iterator[None]:
    """Raise an error if another fit runs at the same time. Two threads, or a fork of a process that used
    JAX, would corrupt the global state of NumPyro."""
    if os.getpid() != _PROCESS:
        raise BayesfacError(
            "Expected a fresh process, got a fork after import: use spawn or joblib's loky"
        )
    if not _BUSY.acquire(blocking=False):
        raise BayesfacError(
            "Expected one fit at a time per process, got two threads: use processes (joblib's loky)"
        )
    try:
        yield
    finally:
        _BUSY.release()
