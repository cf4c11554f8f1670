"""Jinja templates to HTML, and numbers to text.

Text from users is escaped, and a name that a template does not know raises an error.
"""

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

HEADINGS = {
    "r_hat": "R-hat",
    "ess_bulk": "ESS bulk",
    "ess_tail": "ESS tail",
    "mcse / sd": "MCSE / sd",
}


# columns of shares that may be as good as 0, and how they are printed
SHARES = dict.fromkeys(("best", "stacking weight"), "{:.3f}".format)

WORDS = {  # shown when the mouse rests on a word, and listed at the end of a page
    "RMSE": "root mean squared error of the predicted mean, in rating units",
    "MAE": "mean absolute error of the predicted mean",
    "MAE of level": "mean distance between the predicted and the true level",
    "NMAE": "mean distance of levels, divided by that of a guess at random",
    "zero-one": "share of ratings whose level is predicted wrongly",
    "log score": "log of the predicted density at the true value, averaged",
    "ordinal log score": "log of the predicted probability of the true level, averaged",
    "gain of rank": "1 / log2(1 + rank) of held-out pairs among the items new to their users, averaged",
    "CRPS": "continuous ranked probability score: the error of the whole predicted distribution",
    "RPS": "ranked probability score: the error of the predicted probabilities of all levels",
    "PIT": "the predicted probability of a value at most as large as the true one; uniform if calibrated",
    "R-hat": "how much chains differ, as a ratio of spreads: 1 if they agree",
    "ESS": "effective sample size: the number of independent draws that would be worth as much",
    "ESS bulk": "effective sample size for the middle of the distribution",
    "ESS tail": "effective sample size for its 5 % and 95 % quantiles",
    "MCSE": "Monte Carlo standard error: what another run of the sampler would change",
    "MCSE / sd": "Monte Carlo standard error, as a share of the posterior standard deviation",
    "ELBO": "evidence lower bound: what variational inference maximises",
    "NDCG@10": "hits among the first ten recommendations, early places counting more; 1 is perfect",
    "recall@10": "share of a user's relevant items among the first ten recommendations",
    "precision@10": "share of the first ten places that hold a relevant item",
    "MAP@10": "mean average precision: precision at the place of each hit, averaged",
    "catalogue shown": "share of all items that are recommended to somebody",
}


def term(name: Any) -> Any:
    """A word with its meaning as a hover, if the word is in WORDS.

    >>> str(term("ELBO")), term("items")
    ('<abbr title="evidence lower bound: what variational inference maximises">ELBO</abbr>', 'items')
    """
    return Markup('<abbr title="{}">{}</abbr>').format(WORDS[name], name) if name in WORDS else name


def spoken(page: str) -> dict[str, str]:
    """The words of WORDS that the text of a page has; the longest stands for those in it.

    >>> list(spoken("<b>MAE of level</b> .45, <i title='PIT'>ESS bulk</i> 300, VERMAEL"))
    ['MAE of level', 'ESS bulk']
    """
    longest = "|".join(map(re.escape, sorted(WORDS, key=len, reverse=True)))
    text = re.sub("<[^>]*>", " ", page)
    found = re.findall(rf"(?<!\w)(?:{longest})(?!\w)", text)
    return {word: meaning for word, meaning in WORDS.items() if word in found}


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
    environment.filters["heading"] = lambda column: term(HEADINGS.get(column, column))
    environment.filters |= {"term": term, "spoken": spoken}
    return environment


def cell(value: Any, column: str) -> str:
    """A number in the format of its column: R-hat with three decimals, coverage in per cent.

    >>> cell(1.0, "r_hat"), cell(0.9, "covers 90 %"), cell(612.3, "ess_tail"), cell(0.178, "MAP@10")
    ('1.000', '90.0 %', '612', '0.1780')
    >>> cell(1.7e-6, "stacking weight")
    '0.000'
    """
    if isinstance(value, str) or not np.isfinite(value):
        return number(value)
    if column.startswith("covers"):
        return percent(value)
    if column in ("r_hat", *SHARES):
        return f"{value:.3f}"
    if column.endswith("@10") or column == "catalogue shown":
        return f"{value:.4f}"
    whole = column in ("count", "n") or column.startswith("ess")
    return f"{value:,.0f}" if whole else number(value, 4)


def score(value: Any, column: str) -> str:
    """A number of the table of held-out scores: four decimals, so that fits can be compared.

    >>> score(0.5, "RMSE"), score(0.9, "covers 90 %"), score(612.3, "seconds"), score("good", "verdict")
    ('0.5000', '90.0 %', '612', 'good')
    >>> score(5.25, "perplexity covers")
    '5.2500'
    """
    of_cells = column == "n" or column.startswith("covers")  # a view may be called "covers"
    if isinstance(value, str) or not np.isfinite(value) or of_cells:
        return cell(value, column)
    if column == "seconds":
        return f"{value:,.3g}" if value < 100 else f"{value:,.0f}"
    return f"{value:,.4f}" if abs(value) < 100 else f"{value:,.1f}"


def number(value: Any, digits: int = 3) -> str:
    """A number with separators of thousands and few digits; a dash for None and NaN.

    >>> number(1000209), number(0.8912345), number(float("nan")), number(-1234.5678), number("x")
    ('1,000,209', '0.891', '–', '-1,235', 'x')
    >>> number(float("-inf"))
    '-∞'
    """
    if value is None or isinstance(value, bool | str):
        return "–" if value is None else str(value)
    if not np.isfinite(value):
        return "–" if np.isnan(value) else "∞" if value > 0 else "-∞"
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
