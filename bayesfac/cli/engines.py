"""The engine that the options of a command name."""

import argparse
from dataclasses import fields
from typing import Any

# engine settings with their own option
SETTINGS = ("draws", "warmup", "chains", "steps", "max_iter")


def chosen(args: argparse.Namespace, default: str) -> Any:
    """The engine of --engine (or `default`) with its settings; unknown settings are refused."""
    from bayesfac.core.method import unknown
    from bayesfac.inference import ENGINES

    kinds = {"fixed-point" if n == "FixedPoint" else n.lower(): k for n, k in ENGINES.items()}
    if args.engine and args.engine.lower() not in kinds:
        raise LookupError(unknown("engine", args.engine, kinds))
    kind = kinds[args.engine.lower()] if args.engine else ENGINES[default]
    given = {name: getattr(args, name) for name in SETTINGS if getattr(args, name) is not None}
    given |= dict(args.engine_settings)
    own = [field.name for field in fields(kind)]
    for name in given:
        if name not in own:
            raise LookupError(unknown(f"setting of {kind.__name__}", name, own))
    if args.processes or args.large:  # which `processes.check` allows for Gibbs and FixedPoint
        given["shares"] = True
    return kind(**given)


def sampler(name: str | None, engines: tuple[str, ...]) -> str:
    """The engine of that name; without a name Gibbs if the method has it, else NUTS."""
    from bayesfac.core.method import unknown
    from bayesfac.simulation.samplers import SAMPLERS

    kinds = {kind.lower(): kind for kind in SAMPLERS}
    if name and name.lower() not in kinds:
        raise LookupError(unknown("engine of sbc", name, kinds))
    return kinds[name.lower()] if name else "Gibbs" if "Gibbs" in engines else "NUTS"
