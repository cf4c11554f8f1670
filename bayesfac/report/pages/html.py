"""One self-contained page: for a comparison, or for one fit."""

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bayesfac.core.files import atomic
from bayesfac.core.method import site_dims, sites
from bayesfac.report.compare import Comparison, show
from bayesfac.report.diagnostics import findings as words
from bayesfac.report.diagnostics.diagnose import Diagnostics, diagnostics
from bayesfac.report.diagnostics.held_out import WORDS
from bayesfac.report.pages.templates import duration, number, percent, render
from bayesfac.report.plots.chain_plots import posterior_pictures
from bayesfac.report.plots.figure import Picture
from bayesfac.report.plots.held_out_plots import held_out
from bayesfac.report.plots.trace_plot import objective

CONTENTS = [
    ("verdict", "Verdict"),
    ("data", "Data"),
    ("scores", "Point beside posterior"),
    ("calibration", "Held-out quality"),
    ("convergence", "Convergence"),
    ("making", "How it was made"),
]


@dataclass(frozen=True, eq=False)
class Chapter:
    """One fit's own convergence."""

    name: str
    worst: pd.DataFrame | None
    pictures: list[Picture]


def to_html(source: Any, path: str | os.PathLike[str]) -> Path:
    """Write a comparison, or one fit, as one HTML file that needs nothing else.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import bayesfac as bf
    >>> ratings = bf.datasets.make_ratings(30, 20, 2, seed=0)
    >>> fit = bf.fit("pmf", ratings, n_components=2, progress=False)
    >>> page = to_html(fit, pathlib.Path(tempfile.mkdtemp()) / "report.html")
    >>> page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    True
    """
    text = page(source)
    with atomic(path) as part:
        part.write_text(text, encoding="utf-8")
    return Path(path)


def page(source: Any) -> str:
    """The page as text."""
    if isinstance(source, Comparison):
        return render("report.html.j2", **_comparison_page(source))
    return render("report.html.j2", **_fit_page(source))


def fit_html(fit: Any) -> str:
    """A fit in a notebook: what it is, in a few lines, without computing anything."""
    shapes = _shapes(fit)
    found = [
        {
            "name": s,
            "axes": " × ".join(site_dims(fit.method, s)) or "–",
            "shape": " × ".join(map(str, n)) or "–",
        }
        for s, n in shapes.items()
    ]
    if fit.is_point:
        what, findings = "a point", words.judge_point(fit)
        hint = ".params has the estimate, .predict(query) predicts, .to_html(path) writes a report."
    else:
        chains, draws = next(iter(fit.draws.values())).shape[:2]
        what, findings = f"{chains} chain{'s' * (chains > 1)} of {draws} draws", []
        hint = ".diagnostics() judges it, .posterior has the draws, .predict(query) predicts."
    engine = type(fit.engine).__name__
    return render(
        "fit.html.j2", fit=fit, engine=engine, what=what, findings=findings, sites=found, hint=hint
    )


# -- a comparison -------------------------------------------------------------------------------
def _comparison_page(source: Comparison) -> dict[str, Any]:
    first = next(iter(source.fits.values()))
    methods = list(dict.fromkeys(fit.name for fit in source.fits.values()))
    activity = source.by_activity.set_axis([", ".join(i) for i in source.by_activity.index])
    chapters = [
        _chapter(n, fit, source.diagnoses[n], source.test) for n, fit in source.fits.items()
    ]
    return {
        "title": f"{', '.join(methods)}: {_and(list(source.fits))}",
        "lead": lead(source),
        "diagnoses": source.diagnoses,
        "card": _card(first),
        "tested": f"Tested on {source.spread}",
        "columns": list(source.fits),
        "rows": score_rows(source),
        "differences": source.sentences(),
        "held_out": held_out(source),
        "activity": activity,
        "chapters": chapters,
        **_making(source.fits),
        "contents": CONTENTS,
    }


def lead(source: Comparison) -> list[str]:
    """What a reader in a hurry takes away."""
    table = source.table
    main = "RMSE" if "RMSE" in table else "perplexity"
    order = table[main].sort_values()
    said = [f"{name} {show(main, value)}" for name, value in order.items()]
    lines = [f"Held-out {main}, best first: {', '.join(said)}."]
    if "covers 90 %" in table:
        held = [f"{name} {percent(value)}" for name, value in table["covers 90 %"].items()]
        what = WORDS[next(iter(source.fits.values())).data.kind].what.capitalize()
        lines.append(f"{what} inside the 90 % predictive intervals: {', '.join(held)}.")
    took = [f"{name} {duration(value)}" for name, value in table["seconds"].items()]
    return [*lines, f"Time: {', '.join(took)}."]


HINTS = {
    "n": "held out",
    "RMSE": "lower is better",
    "MAE": "lower is better",
    "MAE of level": "lower is better",
    "NMAE": "1 is a guess at random",
    "zero-one": "levels missed, as a share",
    "log score": "higher is better",
    "ordinal log score": "higher is better",
    "CRPS": "lower is better",
    "RPS": "lower is better",
    "width": "of 90 % intervals",
    "perplexity": "lower is better",
    "seconds": "compilation included",
}


def score_rows(source: Comparison) -> list[dict[str, Any]]:
    """The comparison's table on its side: one row a score, one column a fit."""
    by_fit = source.cells()
    kind = next(iter(source.fits.values())).data.kind
    tested = WORDS[kind].what if "RMSE" in source.table else "tokens"
    rows = []
    for i, column in enumerate(source.table.columns):
        cells = [{"text": cells[i][1], "best": cells[i][2]} for _, cells in by_fit]
        hint = "nearest is best" if column.startswith("covers") else HINTS.get(column, "")
        name = {"n": tested, "width": "interval width"}.get(column, column)
        rows.append({"name": name, "hint": hint, "cells": cells})
    return rows


# -- one fit ------------------------------------------------------------------------------------
def _fit_page(fit: Any) -> dict[str, Any]:
    found = diagnostics(fit)
    name = type(fit.engine).__name__
    return {
        "title": f"{fit.name} by {name}",
        "lead": [],
        "diagnoses": {name: found},
        "card": _card(fit),
        "tested": "",
        "columns": [name],
        "rows": [],
        "differences": [],
        "held_out": [],
        "activity": None,
        "chapters": [_chapter(name, fit, found, None)],
        **_making({name: fit}),
        "contents": [entry for entry in CONTENTS if entry[0] not in ("scores", "calibration")],
    }


def _chapter(name: str, fit: Any, found: Diagnostics, test: Any) -> Chapter:
    pictures = [] if found.kind == "sampler" else [objective(name, fit, found)]
    if fit.draws is not None:
        pictures += posterior_pictures(name, fit, found, test)
    worst = found.worst if found.kind == "sampler" else None
    return Chapter(name, worst, pictures)


def _card(fit: Any) -> dict[str, str]:
    card = {str(key): number(value) for key, value in fit.data.summary.items()}
    if fit.data.levels:
        card["levels"] = f"{fit.data.levels[0]:g} to {fit.data.levels[-1]:g}"
    return card


def _making(fits: Mapping[str, Any]) -> dict[str, Any]:
    """Method, settings, time, versions and seed of every fit; the subtitle and the footer."""
    rows: dict[str, list[str]] = {}
    for fit in fits.values():
        info = fit.info
        versions = ", ".join(f"{name} {v}" for name, v in info.get("versions", {}).items())
        facts = {
            "method": f"{fit.name}: {fit.method.paper}",
            "engine": f"{type(fit.engine).__name__}({_settings(asdict(fit.engine))})",
            "hyper-parameters": _settings(fit.hyper._asdict()),
            "seed": str(fit.seed),
            "time": duration(fit.seconds),
            "finished": _time(info.get("when", "–")),
            "machine": f"{info.get('device', '–')}, {info.get('precision', '–')}",
            "versions": versions or "–",
        }
        for name, value in facts.items():
            rows.setdefault(name, []).append(value)
    first = next(iter(fits.values()))
    version = first.info.get("versions", {}).get("bayesfac", "")
    return {
        "making": [{"name": name, "cells": cells} for name, cells in rows.items()],
        "subtitle": f"{first.data.kind}; {rows['finished'][-1]}; bayesfac {version}",
        "footer": f"Made by bayesfac {version}. One file: it loads nothing from anywhere.",
    }


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _time(stamp: str) -> str:
    """2026-11-21T06:01:21+00:00 for a reader; anything else as it is."""
    return re.sub(r"^(\S+)T(\d\d:\d\d):\d\d(?:\+00:00|Z)$", r"\1 \2 UTC", stamp)


def _settings(given: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name}={number(v, 6) if isinstance(v, float) else v}"
        for name, v in given.items()
        if v is not None
    )


def _shapes(fit: Any) -> dict[str, tuple[int, ...]]:
    if fit.is_point:
        return {name: np.shape(value) for name, value in sites(fit.params).items()}
    return {name: tuple(draws.shape[2:]) for name, draws in fit.draws.items()}
