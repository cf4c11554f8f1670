"""Jinja templates to HTML, and numbers to text.

Text from users is escaped, and a name that a template does not know raises an error.
"""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined

HEADINGS = {
    "r_hat": "R-hat",
    "ess_bulk": "ESS bulk",
    "ess_tail": "ESS tail",
    "mcse / sd": "MCSE / sd",
}


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


def cell(value: Any, column: str) -> str:
    """A number in the format of its column: R-hat with three decimals, coverage in per cent.

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


def score(value: Any, column: str) -> str:
    """A number of the table of held-out scores: four decimals, so that fits can be compared.

    >>> score(0.5, "RMSE"), score(0.9, "covers 90 %"), score(612.3, "seconds"), score("good", "verdict")
    ('0.5000', '90.0 %', '612', 'good')
    """
    if isinstance(value, str) or not np.isfinite(value) or column == "n" or "covers" in column:
        return cell(value, column)
    if column == "seconds":
        return f"{value:,.3g}" if value < 100 else f"{value:,.0f}"
    return f"{value:,.4f}" if abs(value) < 100 else f"{value:,.1f}"


def number(value: Any, digits: int = 3) -> str:
    """A number with separators of thousands and few digits; a dash for None and NaN.

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


def percent(value: float) -> str:
    """A share in per cent.

    >>> percent(0.9012), percent(float("nan"))
    ('90.1 %', '–')
    """
    return f"{100 * value:.1f} %" if np.isfinite(value) else "–"


def duration(seconds: float) -> str:
    """A time in words.

    >>> duration(0.25), duration(61), duration(3700)
    ('0.25 s', '1 min 1 s', '1 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
