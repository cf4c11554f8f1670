"""What a method asks of its hyper-parameters, said the same way everywhere."""

import math
from typing import Any

from bayesfac.core.data.reading import plain
from bayesfac.core.laws.losses import SMOOTH

NONNEGATIVE = {"negative": "its factors are not below zero, so the data must not be"}


def count(hyper: Any, name: str, limit: int, of: str) -> None:
    """A size: a whole number from 1 to `limit`."""
    whole(name, getattr(hyper, name), limit, of)


def whole(name: str, value: Any, limit: float, of: str) -> None:
    """The same of any value."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or not 1 <= value <= limit:
        raise ValueError(f"Expected {name} between 1 and {limit} ({of}), got {value!r}")


def positive(hyper: Any, *names: str, infinite: bool = False) -> None:
    """Numbers above zero, finite ones unless `infinite` allows the limit."""
    for name in names:
        value = getattr(hyper, name)
        try:
            fine = (math.isfinite(value) or infinite) and value > 0
        except TypeError:
            fine = False
        if not fine:
            kind = "a number" if infinite else "a finite number"
            raise ValueError(f"Expected {name} to be {kind} above 0, got {value!r}")


def one_of(hyper: Any, name: str, known: tuple[str, ...]) -> None:
    """An option by its name."""
    value = getattr(hyper, name)
    if value not in known:
        raise ValueError(f"Expected {name} to be one of {known}, got {value!r}")


def smooth_loss(hyper: Any) -> None:
    """A binary loss that a gradient can descend."""
    if hyper.loss in ("hinge", "zero_one"):
        raise ValueError(
            f"Expected a loss with a slope everywhere, one of {SMOOTH}, got {hyper.loss!r}; gibbs_mmmf "
            "takes the hinge as it is"
        )
    one_of(hyper, "loss", SMOOTH)


def at_least_one(hyper: Any, *names: str) -> None:
    """Dirichlet concentrations with a bounded mode: finite and not below 1."""
    positive(hyper, *names)
    for name in names:
        if getattr(hyper, name) < 1:
            raise ValueError(
                f"Expected a concentration {name} of at least 1 (below 1 the joint has no mode), "
                f"got {getattr(hyper, name)!r}"
            )


def between(hyper: Any, name: str, low: float, high: float) -> None:
    """A number strictly inside an interval."""
    positive(hyper, name)
    if not low < getattr(hyper, name) < high:
        raise ValueError(f"Expected {name} between {low} and {high}, got {getattr(hyper, name)!r}")


def one_view(data: Any, several: str) -> None:
    """A method of one view, and which one takes more."""
    if len(data.names) != 1:
        raise ValueError(
            f"Expected one view, got {len(data.names)}: {', '.join(data.names)} (see {several})"
        )


def counts(data: Any) -> None:
    """No negative cell in any view, and something to count."""
    for name, y in data.y.items():
        if not len(y):
            raise ValueError(f"Expected at least one count above zero in view {name!r}, got none")
    nonnegative(data, "counts")


def nonnegative(data: Any, what: str = "numbers") -> None:
    """No negative cell in any view."""
    for name, y in data.y.items():
        if not len(y):
            continue
        low = int(y.argmin())
        if y[low] < 0:
            row, col = int(data.cells[name].row[low]), int(data.cells[name].col[low])
            raise ValueError(
                f"Expected {what} of at least 0 in view {name!r}, got {float(y[low]):g} in row "
                f"{plain(data.rows[row])!r}, feature {plain(data.features[name][col])!r}"
            )


def whole_number(name: str, value: Any, least: int, most: float = math.inf, of: str = "") -> None:
    """Check that `value` is an integer from `least` to `most`; `of` says in brackets what limits it."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or not least <= value <= most:
        limit = f"between {least} and {most}{of}" if most < math.inf else f"from {least} on"
        raise ValueError(f"Expected {name} to be a whole number {limit}, got {value!r}")
