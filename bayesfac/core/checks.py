"""Checks of hyper-parameters and data; every method raises the same messages."""

import math
from collections.abc import Sequence
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from bayesfac.core.data.reading import plain

# losses for gradient solvers: the derivative is continuous
SMOOTH = ("smooth_hinge", "logistic", "modified_square")
NONNEGATIVE = {"nonnegative": "the factors are not negative, so their products are not either"}
WORDS = {  # for types of settings: in the singular, in the plural
    float: ("a number", "numbers"),
    int: ("a whole number", "whole numbers"),
    str: ("a string", "strings"),
    bool: ("True or False", "True or False"),
    NoneType: ("None", "None"),
}


def typed(kind: type, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings, each checked against the annotation of its field in `kind`, a named tuple.

    Lists and arrays become tuples and NumPy's numbers become Python's, because settings are hashed, compared
    and saved. Annotations with other types than numbers, strings and tuples of them allow every value.
    """
    hints = _hints(kind)
    return {name: _typed(name, value, hints.get(name, Any)) for name, value in settings.items()}


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _typed(name: str, value: Any, hint: Any) -> Any:
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if not all(map(_known, options)):
        return value.item() if hasattr(value, "item") and np.ndim(value) == 0 else value
    own = _in_python(value)
    if not any(_matches(own, option) for option in options):
        wanted = " or ".join(map(_words, options))
        raise ValueError(f"Expected {name} to be {wanted}, got {value!r}")
    return bool(own) if bool in options and own is not None else own


def _in_python(value: Any) -> Any:
    """Arrays and sequences as tuples, NumPy's numbers as Python's."""
    value = value.tolist() if hasattr(value, "tolist") else value
    listed = isinstance(value, Sequence) and not isinstance(value, str)
    return tuple(map(_in_python, value)) if listed else value


def _known(hint: Any) -> bool:
    inner = [part for part in get_args(hint) if part is not Ellipsis]
    return all(map(_known, inner)) if get_origin(hint) is tuple else hint in WORDS


def _matches(value: Any, hint: Any) -> bool:
    """Whether a value is of this type. Truth values are no numbers, and neither is NaN."""
    if get_origin(hint) is tuple:
        if not isinstance(value, tuple):
            return False
        parts = get_args(hint)
        parts = parts[:1] * len(value) if parts[-1] is Ellipsis else parts
        return len(parts) == len(value) and all(map(_matches, value, parts))
    if hint is bool:
        return isinstance(value, Integral) and value in (0, 1)
    if hint in (int, float):
        number = isinstance(value, Integral if hint is int else Real)
        return number and not isinstance(value, bool) and not math.isnan(value)
    return isinstance(value, hint)


def _words(hint: Any, many: bool = False) -> str:
    """A type in words: "a number", "a list of pairs of whole numbers"."""
    if get_origin(hint) is not tuple:
        return WORDS[hint][many]
    first, *rest = get_args(hint)
    noun = "pair" if len(rest) == 1 and rest != [Ellipsis] else "list"
    return f"{noun}s of {_words(first, True)}" if many else f"a {noun} of {_words(first, True)}"


def filled(hyper: Any, **usual: Any) -> Any:
    """The settings, with the `usual` values of those that are left at None."""
    return hyper._replace(**{k: v for k, v in usual.items() if getattr(hyper, k) is None})


def count(hyper: Any, name: str, limit: int, of: str) -> None:
    """Check that the setting `name` is an integer from 1 to `limit`; `of` explains the limit."""
    whole(name, getattr(hyper, name), limit, of)


class TooLarge(ValueError):
    """A setting is larger than the data allow; `limit` is the largest allowed value."""

    def __init__(self, name: str, value: Any, limit: float, of: str) -> None:
        super().__init__(f"Expected {name} between 1 and {limit} ({of}), got {value!r}")
        self.name, self.limit = name, limit


def sized(hyper: Any, data: Any) -> Any:
    """The settings with no more components than a table has users and items: the default may have more."""
    return hyper._replace(n_components=min(hyper.n_components, *data.shape))


def whole(name: str, value: Any, limit: float, of: str) -> None:
    """Check that `value` is an integer from 1 to `limit`; `of` explains the limit."""
    integer = hasattr(value, "__index__") and not isinstance(value, bool)
    if integer and value > limit >= 1:
        raise TooLarge(name, value, limit, of)
    if not integer or not 1 <= value <= limit:
        raise ValueError(f"Expected {name} between 1 and {limit} ({of}), got {value!r}")


def positive(hyper: Any, *names: str, infinite: bool = False, zero: bool = False) -> None:
    """Check that each setting is a number above 0, or 0 with `zero`, and finite unless `infinite`."""
    for name in names:
        value = getattr(hyper, name)
        try:
            valid = (math.isfinite(value) or infinite) and (value >= 0 if zero else value > 0)
        except TypeError:
            valid = False
        if not valid:
            kind = "a number" if infinite else "a finite number"
            where = "of at least 0" if zero else "above 0"
            raise ValueError(f"Expected {name} to be {kind} {where}, got {value!r}")


def one_of(hyper: Any, name: str, known: tuple[str, ...]) -> None:
    """Check that the setting `name` is one of the `known` options."""
    value = getattr(hyper, name)
    if value not in known:
        raise ValueError(f"Expected {name} to be one of {known}, got {value!r}")


def smooth_loss(hyper: Any) -> None:
    """Check that the setting `loss` is a loss with a continuous slope."""
    if hyper.loss in ("hinge", "zero_one"):
        raise ValueError(
            f"Expected a loss with a slope everywhere, one of {SMOOTH}, got {hyper.loss!r}; "
            "for the hinge use gibbs_mmmf"
        )
    one_of(hyper, "loss", SMOOTH)


def at_least_one(hyper: Any, *names: str) -> None:
    """Check that Dirichlet concentrations are finite and at least 1, so that the joint has a mode."""
    positive(hyper, *names)
    for name in names:
        if getattr(hyper, name) < 1:
            raise ValueError(
                f"Expected a concentration {name} of at least 1 (below 1 the joint has no mode), "
                f"got {getattr(hyper, name)!r}"
            )


def between(hyper: Any, name: str, low: float, high: float) -> None:
    """Check that a positive setting lies strictly between `low` and `high`."""
    positive(hyper, name)
    if not low < getattr(hyper, name) < high:
        raise ValueError(f"Expected {name} between {low} and {high}, got {getattr(hyper, name)!r}")


def one_view(data: Any, several: str) -> None:
    """Check that the data have one view; the message names `several`, a method of several views."""
    if len(data.names) != 1:
        raise ValueError(
            f"Expected one view, got {len(data.names)}: {', '.join(data.names)} (see {several})"
        )


def counts(data: Any) -> None:
    """Check that every view has a positive cell and no negative cell."""
    not_empty(data, "count above zero")
    advice = "; subtract the least value of each such feature, or see scale='unit' of mggm"
    nonnegative(data, "counts", advice)


def not_empty(data: Any, what: str = "cell that is not zero") -> None:
    """Check that every view has a cell that is not zero."""
    for name, y in data.y.items():
        if not len(y):
            raise ValueError(f"Expected at least one {what} in view {name!r}, got none")


def nonnegative(
    data: Any, what: str = "numbers", advice: str = "", only: str | None = None
) -> None:
    """Check that no cell of any block, or of the block `only`, is negative."""
    for name, y in data.y.items():
        if not len(y) or name != (only or name):
            continue
        low = int(y.argmin())
        if y[low] < 0:
            row, col = int(data.cells[name].row[low]), int(data.cells[name].col[low])
            raise ValueError(
                f"Expected {what} of at least 0 in view {name!r}, got {float(y[low]):g} in row "
                f"{plain(data.rows[row])!r}, feature {plain(data.features[name][col])!r}{advice}"
            )


def cells(data: Any, wrong: np.ndarray, expected: str) -> None:
    """Check that no listed cell is `wrong`, and that cells which are not listed are missing; `expected` says
    which values are right."""
    if data.implicit:
        kind = type(data).__name__
        raise ValueError(f"Expected data whose missing cells are no zeros, as Ratings, got {kind}")
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        places = zip(data.coords().items(), data.code[at], strict=False)
        where = ", ".join(f"{axis} {plain(labels[code])!r}" for (axis, labels), code in places)
        raise ValueError(f"Expected {expected}, got {data.value[at]:g} ({where})")


def whole_number(name: str, value: Any, least: int, most: float = math.inf, of: str = "") -> None:
    """Check that `value` is an integer from `least` to `most`; `of` says in brackets what limits it."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or not least <= value <= most:
        limit = f"between {least} and {most}{of}" if most < math.inf else f"from {least} on"
        raise ValueError(f"Expected {name} to be a whole number {limit}, got {value!r}")


def seeded(seed: Any) -> int:
    """Check that NumPy, JAX and scikit-learn all accept a seed."""
    if isinstance(seed, bool) or not hasattr(seed, "__index__") or not 0 <= seed < 2**32:
        raise ValueError(f"Expected a seed from 0 to 2**32 - 1, got {seed!r}")
    return int(seed)


def generator(seed: Any) -> np.random.Generator:
    """NumPy's random numbers for a seed."""
    return np.random.default_rng(seeded(seed))
