"""One self-contained page for a fit, or for a comparison of fits."""

import os
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bayesfac.core.files import atomic
from bayesfac.core.method import site_dims, sites
from bayesfac.core.programs import for_threads
from bayesfac.report.compared import Compared
from bayesfac.report.diagnostics.diagnose import Diagnostics, diagnostics
from bayesfac.report.diagnostics.findings import judge_point
from bayesfac.report.diagnostics.held_out import LARGER_IS_BETTER
from bayesfac.report.diagnostics.uses import USES
from bayesfac.report.pages.templates import duration, number, render, score
from bayesfac.report.plots.chain_plots import objective, posterior_pictures
from bayesfac.report.plots.held_out_plots import held_out

CONTENTS = {
    "verdict": "Verdict",
    "data": "Data",
    "scores": "Held-out scores",
    "ranking": "Recommendations",
    "calibration": "Held-out quality",
    "convergence": "Convergence",
    "making": "Settings and versions",
    "words": "Words",
}


def to_html(fit: Any, path: str | os.PathLike[str]) -> Path:
    """Write the report on a fit as one HTML file that needs no other file.

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
    return write(fit_page(fit), path)


def write(text: str, path: str | os.PathLike[str]) -> Path:
    """Write a page; a failed write leaves an older file as it was."""
    with atomic(path) as part:
        part.write_text(text, encoding="utf-8")
    return Path(path)


def fit_html(fit: Any) -> str:
    """A fit in a notebook: a short description without diagnostics."""
    if fit.is_point:
        what, findings = "a point", judge_point(fit)
        shapes = {name: np.shape(value) for name, value in sites(fit.params).items()}
        hint = ".params has the estimate, .predict(query) predicts, .to_html(path) writes a report."
    else:
        chains, draws = next(iter(fit.draws.values())).shape[:2]
        what, findings = f"{chains} chain{'s' * (chains > 1)} of {draws} draws", []
        shapes = {name: tuple(values.shape[2:]) for name, values in fit.draws.items()}
        hint = ".diagnostics() judges it, .posterior has the draws, .predict(query) predicts."
    rows = []
    for site, shape in shapes.items():
        axes, sizes = (
            " × ".join(map(str, of)) or "–" for of in (site_dims(fit.method, site), shape)
        )
        rows.append({"name": site, "axes": axes, "shape": sizes})
    texts = {"engine": type(fit.engine).__name__, "what": what, "hint": hint}
    return render("fit.html.j2", fit=fit, findings=findings, sites=rows, **texts)


# -- pages --------------------------------------------------------------------------------------
def comparison_page(source: Compared) -> str:
    """The page of a comparison as text."""
    methods = list(dict.fromkeys(fit.name for fit in source.fits.values()))
    *names, last = source.fits
    joined = f"{', '.join(names)} and {last}" if names else last
    # compiled loops find the recommendations, and NumPy the diagnostics, while Python draws
    with ThreadPoolExecutor(2) as beside:
        part = for_threads(partial(getattr, source))
        ranked, judged = (beside.submit(part, name) for name in ("ranking", "diagnoses"))
        pictures = held_out(source.fits, source.scores)
        _ = [picture.uri for picture in pictures]  # drawn now
        judged.result()
        parts = {
            "columns": list(source.table.index),
            "title": f"{', '.join(methods)}{_on(source.fits)}: {joined}",
            "lead": source.answers(),
            "tested": f"Tested on {source.spread}",
            "rows": score_rows(source),
            "differences": source.sentences(),
            "believed": source.believed if len(source.believed) > 1 else None,
            "held_out": pictures,
            "activity": source.by_activity.set_axis(
                [", ".join(i) for i in source.by_activity.index]
            ),
        }
        ranking = ranked.result()
    contents = {k: v for k, v in CONTENTS.items() if k != "ranking" or ranking}
    return _page(
        source.fits, source.diagnoses, source.scores, contents=contents, ranking=ranking, **parts
    )


def fit_page(fit: Any) -> str:
    """The page of a fit as text."""
    name = type(fit.engine).__name__
    contents = {k: v for k, v in CONTENTS.items() if k not in ("scores", "ranking", "calibration")}
    fits, parts = {name: fit}, {"contents": contents, "columns": [name]}
    # without rows the template reads nothing else of a comparison
    untested = dict.fromkeys(("lead", "tested", "rows"))
    title = f"{fit.name} by {name}{_on(fits)}"
    return _page(fits, {name: diagnostics(fit)}, {}, title=title, **parts, **untested)


def _page(
    fits: Mapping[str, Any],
    diagnoses: Mapping[str, Diagnostics],
    scores: Mapping[str, Any],
    **parts: Any,
) -> str:
    """The parts that all pages share: data, convergence, settings, subtitle and footer."""
    first = next(iter(fits.values()))
    card = {"name": first.data.name} if first.data.name else {}
    card |= {str(key): number(value) for key, value in first.data.summary.items()}
    if first.data.levels:
        card["levels"] = f"{first.data.levels[0]:g} to {first.data.levels[-1]:g}"
    facts = [_facts(fit) for fit in fits.values()]
    version = first.info.get("versions", {}).get("bayesfac", "")
    return render(
        "report.html.j2",
        diagnoses=diagnoses,
        card=card,
        chapters={n: _chapter(n, fit, diagnoses[n], scores.get(n)) for n, fit in fits.items()},
        making={name: [each[name] for each in facts] for name in facts[0]},
        uses=USES,
        subtitle=f"{first.data.kind}; {facts[-1]['finished']}; bayesfac {version}",
        footer=f"Made by bayesfac {version}. This file loads no other files.",
        **parts,
    )


def _on(fits: Mapping[str, Any]) -> str:
    """The name of the data, for a title."""
    names = dict.fromkeys(fit.data.name for fit in fits.values() if fit.data.name)
    return f" on {', '.join(names)}" if names else ""


def _chapter(name: str, fit: Any, diagnosis: Diagnostics, scores: Any) -> dict[str, Any]:
    """The worst numbers of a fit's diagnostics, and the pictures of its convergence."""
    sampler = diagnosis.kind == "sampler"
    pictures = [] if sampler else [objective(name, fit, diagnosis)]
    if fit.draws is not None:
        pictures += posterior_pictures(name, fit, diagnosis, scores)
    return {"worst": diagnosis.worst if sampler else None, "pictures": pictures}


def _facts(fit: Any) -> dict[str, str]:
    """Method, settings, time, versions and seed of a fit."""
    info = fit.info
    versions = ", ".join(f"{name} {v}" for name, v in info.get("versions", {}).items())
    stamp = r"^(\S+)T(\d\d:\d\d):\d\d(?:\+00:00|Z)$"  # 2026-11-21T06:01:21+00:00
    return {
        "method": f"{fit.name}: {fit.method.paper}",
        "engine": f"{type(fit.engine).__name__}({_settings(asdict(fit.engine))})",
        "hyper-parameters": _settings(fit.hyper._asdict()),
        "seed": str(fit.seed),
        "time": duration(fit.seconds),
        "finished": re.sub(stamp, r"\1 \2 UTC", info.get("when", "–")),
        "machine": f"{info.get('device', '–')}, {info.get('precision', '–')}",
        "versions": versions or "–",
    }


def _settings(settings: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name}={number(v, 6) if isinstance(v, float) else v}"
        for name, v in settings.items()
        if v is not None
    )


# -- scores of a comparison ---------------------------------------------------------------------
HINTS = {
    **dict.fromkeys(
        ("RMSE", "MAE", "MAE of level", "CRPS", "RPS", "perplexity"), "lower is better"
    ),
    **dict.fromkeys(LARGER_IS_BETTER, "higher is better"),
    "n": "held out",
    "NMAE": "1 is a guess at random",
    "zero-one": "share of wrong levels",
    "width": "of 90 % intervals",
    "seconds": "compilation included",
}


def score_rows(source: Compared) -> list[dict[str, Any]]:
    """The table of a comparison transposed: one row per score, one cell per fit."""
    words = next(iter(source.scores.values())).words
    tested = "tokens" if "perplexity" in source.table else words.what
    rows = []
    for column in source.table.columns:
        stars = source.starred.get(column, [])
        near = column.startswith("covers")  # not "perplexity covers", of a view of this name
        hint = "nearest to the level is best" if near else HINTS.get(column, "")
        name = {"n": tested, "width": "interval width"}.get(column, column)
        values = source.table[column].items()
        cells = [{"text": score(value, column), "best": fit in stars} for fit, value in values]
        rows.append({"name": name, "hint": hint, "cells": cells})
    return rows
