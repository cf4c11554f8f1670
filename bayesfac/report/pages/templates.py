"""Templates to HTML: everything that a user typed is escaped, nothing is undefined."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined


def render(template: str, **context: Any) -> str:
    """A template of the folder `templates` as text."""
    return _environment().get_template(template).render(**context)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "duration": duration, "cell": cell}
    environment.filters["heading"] = lambda column: HEADINGS.get(column, column)
    return environment


HEADINGS = {
    "r_hat": "R-hat",
    "ess_bulk": "ESS bulk",
    "ess_tail": "ESS tail",
    "mcse / sd": "MCSE / sd",
}


def cell(value: Any, column: str) -> str:
    """A number as its column shows it: R-hat needs its third decimal, coverage is per cent.

    >>> cell(1.0, "r_hat"), cell(0.9, "covers 90 %"), cell(612.3, "ess_tail"), cell(3.14159, "RMSE")
    ('1.000', '90.0 %', '612', '3.142')
    """
    if isinstance(value, str) or not np.isfinite(value):
        return number(value)
    if column.startswith("covers"):
        return percent(value)
    if column == "r_hat":
        return f"{value:.3f}"
    whole = column in ("count", "n") or column.startswith("ess")
    return f"{value:,.0f}" if whole else number(value, 4)


def number(value: Any, digits: int = 3) -> str:
    """A number for a reader: thousands apart, no needless digits, a dash where there is none.

    >>> number(1000209), number(0.8912345), number(float("nan")), number(-1234.5678), number("x")
    ('1,000,209', '0.891', '–', '-1,235', 'x')
    """
    if value is None or isinstance(value, bool | str):
        return "–" if value is None else str(value)
    if not np.isfinite(value):
        return "∞" if value == np.inf else "–"
    if isinstance(value, int | np.integer) or abs(value) >= 1000:
        return f"{value:,.0f}"
    text = f"{value:.{digits}g}"
    return text if "e" not in text or abs(value) < 1e-4 else f"{value:.{digits}f}"


def percent(value: float, digits: int = 1) -> str:
    """A share as per cent.

    >>> percent(0.9012), percent(float("nan"))
    ('90.1 %', '–')
    """
    return f"{100 * value:.{digits}f} %" if np.isfinite(value) else "–"


def duration(seconds: float) -> str:
    """A time for a reader.

    >>> duration(0.25), duration(61), duration(3700)
    ('0.25 s', '1 min 1 s', '1 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
