"""Several fits on the same held-out data: point beside posterior, in one table."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bayesfac.report.diagnostics.diagnose import Diagnostics, diagnostics
from bayesfac.report.diagnostics.held_out import (
    LARGER_IS_BETTER,
    LEVELS,
    WORDS,
    Scores,
    coverage,
    paired_difference,
    score,
)
from bayesfac.report.pages.templates import number, render

SMALLER_IS_BETTER = ("RMSE", "MAE", "NMAE", "zero-one", "CRPS", "RPS", "perplexity")


@dataclass(frozen=True, eq=False)
class Comparison:
    """Fits beside one another on the same test set.

    Attributes
    ----------
    fits, scores : dict
        By the names given.
    about : str
        How the test set was made, in words.
    """

    fits: dict[str, Any]
    test: Any
    scores: Mapping[str, Any]  # of Scores, or of TokenScores
    about: str = ""

    @cached_property
    def diagnoses(self) -> dict[str, Diagnostics]:
        """The verdict on each fit by itself."""
        return {name: diagnostics(fit) for name, fit in self.fits.items()}

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per fit: held-out scores, seconds, verdict."""
        rows = {}
        for name, fit in self.fits.items():
            rest = {"seconds": fit.seconds, "verdict": self.diagnoses[name].short}
            rows[name] = {**self.scores[name].summary(), **rest}
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("fit")

    @cached_property
    def differences(self) -> pd.DataFrame:
        """Each loss minus the first fit's, with its standard error over users; lower is better."""
        first = next(iter(self.scores.values()))
        rows = {}
        for name, scores in list(self.scores.items())[1:]:
            for loss, (mean, error) in paired_difference(scores, first).items():
                rows[name, loss] = {"difference": mean, "standard error": error}
        index = pd.MultiIndex.from_tuples(list(rows), names=["fit", "loss"]) if rows else None
        return pd.DataFrame(
            list(rows.values()), index=index, columns=["difference", "standard error"]
        )

    @cached_property
    def best(self) -> dict[str, str]:
        """Column -> the fit that is best there; coverage is best when nearest to its level."""
        found = {}
        for column in self.table.columns:
            cost = _cost(column, self.table[column])
            if cost is not None and len(self.table) > 1 and np.isfinite(cost).any():
                found[column] = str(cost.idxmin())
        return found

    @cached_property
    def by_activity(self) -> pd.DataFrame:
        """The scores by how much training knew of the user; index (fit, activity)."""
        parts = {name: scores.by_activity() for name, scores in self.scores.items()}
        return pd.concat(parts, names=["fit"])

    @cached_property
    def pit(self) -> pd.DataFrame:
        """PIT histograms with their band; index (fit, bin). Empty for counts, which have no PIT."""
        known = {n: s.pit_histogram() for n, s in self.scores.items() if isinstance(s, Scores)}
        return pd.concat(known, names=["fit", "bin"]) if known else pd.DataFrame()

    @property
    def spread(self) -> str:
        """What was tested on, with which seeds, and what the standard errors mean."""
        first = next(iter(self.scores.values()))
        seeds = ", ".join(f"{name} {fit.seed}" for name, fit in self.fits.items())
        what, who, *_ = WORDS[next(iter(self.fits.values())).data.kind]
        made = f" ({self.about})" if self.about else ""
        return (
            f"{len(first):,} held-out {what} of {len(np.unique(first.cluster)):,} {who}{made}; "
            f"seeds: {seeds}; one run each; standard errors are over {who}, paired."
        )

    def __repr__(self) -> str:
        lines = [self.table.to_string(float_format=lambda x: f"{x:.4g}"), "", self.spread]
        lines += [f"{n}: {d.verdict}" for n, d in self.diagnoses.items()]
        return "\n".join(lines + self.sentences())

    def sentences(self) -> list[str]:
        """Each fit's differences from the first, in words."""
        first = next(iter(self.fits))
        said: dict[str, list[str]] = {}
        for name, loss, mean, error in self.differences.reset_index().itertuples(index=False):
            if np.isfinite([mean, error]).all():
                clear = abs(mean) > 2 * error
                word = ("better" if mean < 0 else "worse") if clear else "no clear difference"
                change = f"{loss} {_signed(mean, loss)} ± {number(error, 2)} ({word})"
                said.setdefault(name, []).append(change)
        return [f"{name} against {first}: {', '.join(parts)}." for name, parts in said.items()]

    def _repr_html_(self) -> str:
        from bayesfac.report.pages.html import score_rows

        shown = {"columns": list(self.fits), "rows": score_rows(self)}
        return render("compare.html.j2", comparison=self, **shown)

    def cells(self) -> list[tuple[str, list[tuple[str, str, bool]]]]:
        """The table as text: (fit, [(column, text, whether it is the best)])."""
        rows = []
        for name, row in self.table.iterrows():
            cells = []
            for column in self.table.columns:
                text = show(column, row[column])
                best = self.best.get(column)
                is_best = best is not None and text == show(column, self.table.loc[best, column])
                cells.append((column, text, is_best))
            rows.append((str(name), cells))
        return rows

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Write one self-contained HTML file."""
        from bayesfac.report.pages.html import to_html

        return to_html(self, path)


def compare(fits: Mapping[str, Any], test: Any, *, about: str = "") -> Comparison:
    """Score fits on the same held-out data.

    Parameters
    ----------
    fits : mapping
        Name -> Fit; differences are taken from the first.
    test : Ratings, Tasks or Views
        What none of them has seen, of the kind they were trained on.
    about : str
        How the test set was made ("random 90/10, seed 0"), for the header.

    Examples
    --------
    >>> import bayesfac as bf
    >>> train, test = bf.split.holdout(bf.datasets.make_ratings(30, 20, 2, seed=0), 0.2, seed=0)
    >>> point = bf.fit("pmf", train, n_components=2, progress=False)
    >>> compare({"point": point}, test).table["verdict"].item()
    'converged'
    """
    if not isinstance(fits, Mapping) or not fits:
        raise TypeError(
            f"Expected a mapping from names to fits, got {type(fits).__name__} {fits!r:.60}"
        )
    wrong = [n for n, fit in fits.items() if not (hasattr(fit, "predict") and hasattr(fit, "data"))]
    if wrong:
        raise TypeError(f"Expected a fit as {wrong[0]!r}, got {type(fits[wrong[0]]).__name__}")
    named = {str(name): fit for name, fit in fits.items()}
    _same_scale(named)
    scores = {name: score(fit, test) for name, fit in named.items()}
    activity = next(iter(scores.values())).activity  # the same groups for all
    same = {name: replace(each, activity=activity) for name, each in scores.items()}
    return Comparison(named, test, same, about)


def _same_scale(fits: Mapping[str, Any]) -> None:
    """A mass on levels and a density, or masses on other levels, cannot be compared."""
    (first, one), *others = ((name, fit.data.levels) for name, fit in fits.items())
    for name, levels in others:
        if levels != one:
            said = [f"{n!r} with levels {s or 'none'}" for n, s in ((first, one), (name, levels))]
            raise ValueError(f"Expected fits to ratings on one scale, got {' and '.join(said)}")


def show(column: str, value: Any) -> str:
    """One cell of the table as text."""
    if isinstance(value, str):
        return value
    if column.startswith("covers"):
        return f"{100 * value:.1f} %"
    if column == "n":
        return f"{value:,.0f}"
    if column == "seconds":
        return f"{value:,.3g}" if value < 100 else f"{value:,.0f}"
    if not np.isfinite(value):
        return number(value)
    return f"{value:,.4f}" if abs(value) < 100 else f"{value:,.1f}"


def _cost(column: str, values: pd.Series) -> pd.Series | None:
    """What to minimise to be best in a column, or None where nothing is better."""
    for level in LEVELS:
        if column == coverage(level):
            return (values - level).abs()
    if column.startswith(SMALLER_IS_BETTER):
        return values
    return -values if column in LARGER_IS_BETTER else None


def _signed(value: float, loss: str) -> str:
    # the table shows log scores (higher is better), so their difference is shown that way round too
    value = -value if loss in LARGER_IS_BETTER else value
    return f"{value:+.4f}"
