"""The values of arguments: text of the command line as pairs, settings, names and levels."""

import argparse
import ast
from decimal import Decimal
from typing import Any


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
    name, rest = pair(text)
    parts = tuple(part.strip() for part in rest.split(",", 2))
    if len(parts) != 3:
        raise argparse.ArgumentTypeError(f"Expected NAME=ROWS,COLUMNS,FILE, got {text!r}")
    return name, parts


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
            # decimals, as the file writes them: as binary numbers 3 * 0.1 is not 0.3
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
