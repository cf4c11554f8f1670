"""The values of arguments: pairs, settings, names and levels from text; the sampler that an option names."""

import argparse
import ast
from decimal import Decimal
from typing import Any


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


def sampler(name: str | None, engines: tuple[str, ...]) -> str:
    """The engine of that name; without a name Gibbs if the method has it, else NUTS."""
    from bayesfac.core.errors import check_names
    from bayesfac.simulation.samplers import SAMPLERS

    kinds = {kind.lower(): kind for kind in SAMPLERS}
    if name:
        check_names("engine of sbc", (name.lower(),), kinds)
    return kinds[name.lower()] if name else "Gibbs" if "Gibbs" in engines else "NUTS"
