"""The values of arguments: pairs, settings, names and levels from text; the engine that options name."""

import argparse
import ast
from decimal import Decimal
from typing import Any

# engine settings with their own option
SETTINGS = ("draws", "warmup", "chains", "steps", "max_iter")


def filled(text: str) -> str:
    """Any text but none, such as that of a shell variable which is not set."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"Expected a name, got {text!r}")
    return text


def pair(text: str) -> tuple[str, str]:
    """NAME=REST.

    >>> pair("Gibbs=runs/a=b")
    ('Gibbs', 'runs/a=b')
    """
    name, equals, rest = text.partition("=")
    if not (name and equals and rest):
        raise argparse.ArgumentTypeError(f"Expected NAME=VALUE, got {text!r}")
    return name, rest


def setting(text: str) -> tuple[str, Any]:
    """KEY=VALUE, the value as a Python literal, true, false, none, or else text.

    >>> setting("tol=1e-6"), setting("guide=lowrank"), setting("alpha=none")
    (('tol', 1e-06), ('guide', 'lowrank'), ('alpha', None))
    """
    name, value = pair(text)
    words = {"true": True, "false": False, "none": None}
    if value.lower() in words:
        return name, words[value.lower()]
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def names(text: str) -> tuple[str, ...]:
    """Comma-separated names.

    >>> names("who, film,stars")
    ('who', 'film', 'stars')
    """
    return tuple(name.strip() for name in text.split(","))


def matrix(text: str) -> tuple[str, tuple[str, ...]]:
    """NAME=ROWS,COLUMNS,FILE.

    >>> matrix("tags=user,tag,tags.csv")
    ('tags', ('user', 'tag', 'tags.csv'))
    """
    name, _, rest = text.partition("=")
    parts = tuple(part.strip() for part in rest.split(",", 2))
    if not name or len(parts) != 3 or not all(parts):
        raise argparse.ArgumentTypeError(f"Expected NAME=ROWS,COLUMNS,FILE, got {text!r}")
    return name, parts


def address(text: str) -> str:
    """HOST:PORT.

    >>> address("node7:8476")
    'node7:8476'
    """
    host, _, port = text.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 2**16):
        raise argparse.ArgumentTypeError(f"Expected HOST:PORT, such as node7:8476, got {text!r}")
    return text


def sizes(text: str) -> tuple[int, ...]:
    """Comma-separated whole numbers.

    >>> sizes("2,5,10")
    (2, 5, 10)
    """
    try:
        return tuple(map(int, names(text)))
    except ValueError:
        message = f"Expected whole numbers with commas, got {text!r}"
        raise argparse.ArgumentTypeError(message) from None


def levels(text: str) -> tuple[float, ...]:
    """The number of levels, FROM:TO in steps of one, FROM:TO:STEP, or a list.

    >>> levels("3"), levels("0:2"), levels("0.5,1"), levels("0.1:0.4:0.1")
    ((1, 2, 3), (0.0, 1.0, 2.0), (0.5, 1.0), (0.1, 0.2, 0.3, 0.4))
    """
    try:
        if "," in text:
            return tuple(map(float, text.split(",")))
        if ":" not in text:
            found: tuple[float, ...] = tuple(range(1, int(text) + 1))
        else:
            parts = text.split(":")
            # decimal numbers as in the file, because in binary numbers 3 * 0.1 is not 0.3
            first, last, step = map(Decimal, parts if len(parts) == 3 else (*parts, "1"))
            steps = (last - first) / step
            if steps != int(steps):
                raise ValueError(text)  # the steps do not end at TO
            found = tuple(float(first + step * i) for i in range(int(steps) + 1))
        if len(found) < 2:
            raise ValueError(text)
        return found
    except (ValueError, ArithmeticError):
        message = f"Expected 5, 1:5, 0.5:5:0.5 or 0.5,1,2, got {text!r}"
        raise argparse.ArgumentTypeError(message) from None


def engine(args: argparse.Namespace, default: str) -> Any:
    """The engine of --engine (or `default`) with its settings; unknown settings are refused."""
    from bayesfac.core.errors import check_names
    from bayesfac.inference import ENGINES

    kinds = {"fixed-point" if n == "FixedPoint" else n.lower(): k for n, k in ENGINES.items()}
    if args.engine:
        check_names("engine", (args.engine.lower(),), kinds)
    kind = kinds[args.engine.lower()] if args.engine else ENGINES[default]
    given = {name: getattr(args, name) for name in SETTINGS if getattr(args, name) is not None}
    further = dict(args.engine_settings)
    if both := given.keys() & further:
        name = min(both)
        raise ValueError(f"Expected --{name.replace('_', '-')} or --with {name}=..., got both")
    given |= further
    if args.processes or args.large:  # `processes.check` allows these for Gibbs and FixedPoint
        given["shares"] = True
    return kind(**given)


def sampler(name: str | None, engines: tuple[str, ...]) -> str:
    """The engine of that name; without a name Gibbs if the method has it, else NUTS."""
    from bayesfac.core.errors import check_names
    from bayesfac.simulation.samplers import SAMPLERS

    kinds = {kind.lower(): kind for kind in SAMPLERS}
    if name:
        check_names("engine of sbc", (name.lower(),), kinds)
    return kinds[name.lower()] if name else "Gibbs" if "Gibbs" in engines else "NUTS"
