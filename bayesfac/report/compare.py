"""Several fits scored on the same held-out data, in one table."""

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bayesfac.core.errors import DataWarning
from bayesfac.inference.predictions.level_masses import midpoints
from bayesfac.metrics import nmae
from bayesfac.report.compared import Compared
from bayesfac.report.diagnostics.held_out import Rows, as_test, errors_of, score
from bayesfac.report.pages.html import comparison_page, score_rows, write
from bayesfac.report.pages.templates import render
from bayesfac.report.pair_scores import score_pairs, score_popularity
from bayesfac.report.ranking import POPULAR


@dataclass(frozen=True, eq=False, repr=False)
class OutsideScores(Rows):
    """Predictions that were made elsewhere: one number per test row, so errors only. See `Scores`."""

    value: np.ndarray
    mean: np.ndarray
    cluster: np.ndarray
    activity: np.ndarray
    levels: tuple[float, ...] | None = None
    kind: str = "Ratings"
    verdict = "made elsewhere"

    @cached_property
    def level(self) -> np.ndarray | None:
        """The level that is nearest to each prediction, if the ratings have levels."""
        if self.levels is None:
            return None
        return np.asarray(self.levels)[np.searchsorted(midpoints(self.levels), self.mean)]

    @cached_property
    def losses(self) -> dict[str, np.ndarray]:
        return errors_of(self.value, self.mean, self.level)

    def _part(self, rows: Any) -> dict[str, float]:
        means = super()._part(rows)
        if self.levels is not None and self.level is not None:
            means["NMAE"] = nmae(self.value[rows], self.level[rows], self.levels)
        return means


def elsewhere(others: Mapping[str, Any], first: Any, card: Any) -> dict[str, OutsideScores]:
    """The scores of all predictions that were made elsewhere, beside those of the first fit."""
    if others and first.kind in ("Counts", "Views"):
        what = first.kind.lower()
        raise TypeError(f"Expected fits only for a test on {what}, got {next(iter(others))!r}")
    return {name: outside(name, other, first, card) for name, other in others.items()}


def outside(name: str, predicted: Any, first: Any, card: Any) -> OutsideScores:
    """Score predictions that were made elsewhere, one per row of the test set, in its order."""
    try:
        numbers = np.asarray(predicted, np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"Expected a fit, or numbers in the order of the test set, as {name!r}, "
            f"got {type(predicted).__name__}"
        ) from error
    shaped = numbers.shape == (len(first),)
    if not shaped or not np.isfinite(numbers).all():
        got = "NaN or infinity in them" if shaped else numbers.shape
        raise ValueError(
            f"Expected {len(first)} finite predictions as {name!r}, one per row of the test set in its "
            f"order, got {got}"
        )
    same = (first.cluster, first.activity, card.levels, card.kind)
    return OutsideScores(first.value, numbers, *same)


class Comparison(Compared):
    """Scores of several fits on the same test set.

    Attributes
    ----------
    fits, scores : dict
        Fits and their scores by name.
    test : Ratings, Counts, Tasks or Views
        The test set.
    about : str
        How the test set was made, in words.
    train : Ratings or Counts, optional
        The training data, for scores of recommendations.
    outside : dict
        Scores of other predictions, which were passed as numbers, by name; of counts those of popularity.
    """

    def _repr_html_(self) -> str:
        shown = {"columns": list(self.table.index), "rows": score_rows(self)}
        return render("compare.html.j2", comparison=self, **shown)

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Write one self-contained HTML file."""
        return write(comparison_page(self), path)


def compare(fits: Mapping[str, Any], test: Any, about: str = "", train: Any = None) -> Comparison:
    """Score fits on the same held-out data.

    Parameters
    ----------
    fits : mapping
        Name -> Fit, or numbers in the order of the test set. Numbers are other predictions, which are scored
        by their errors. At least one entry is a fit. Differences are from the first fit.
    test : Ratings, Counts, Tasks, Views, or a table
        Data of the same kind as the training data, which were not used in any fit. A table is read as the
        training data were, on the same levels. Pairs of Counts are scored by their ranks, with popular items
        as a baseline: the gain of a rank is 1 / log2(1 + rank), as in NDCG.
    about : str
        How the test set was made ("random 90/10, seed 0"), for the header.
    train : Ratings, Counts or a table, optional
        The training data. If given, recommendations of each fit are scored too. Items that a user rated in
        the training data are not recommended, and the most popular items are the baseline.

    Examples
    --------
    >>> import bayesfac as bf
    >>> train, test = bf.split.holdout(bf.datasets.make_ratings(30, 20, 2, seed=0), 0.2, seed=0)
    >>> point = bf.fit("pmf", train, n_components=2, progress=False)
    >>> bf.compare({"point": point}, test).table["verdict"].item()
    'usable in part'
    """
    if not isinstance(fits, Mapping) or not fits:
        raise TypeError(
            f"Expected a mapping from names to fits, got {type(fits).__name__} {fits!r:.60}"
        )
    if len({str(name) for name in fits}) < len(fits):  # 1 and "1" would be one row
        raise ValueError(f"Expected names that differ as text, got {list(fits)!r:.60}")
    named = {str(name): fit for name, fit in fits.items() if _is_fit(fit)}
    if not named:
        got = type(next(iter(fits.values()))).__name__
        raise TypeError(f"Expected at least one fit, got only {got}")
    _same_scale(named)
    first = next(iter(named))
    test = as_test(named[first], test)
    train = None if train is None else as_test(named[first], train)
    if train is not None and not (train.ranks and test.ranks):
        got = f"{type(train).__name__} for a test on {type(test).__name__}"
        raise TypeError(f"Expected train= for a test on Ratings, as Ratings, got {got}")
    ranked = named[first].method.data.implicit
    scores = {
        n: score_pairs(f, test, train) if ranked else score(f, test) for n, f in named.items()
    }
    activity = next(iter(scores.values())).activity  # so that all fits have the same groups
    same = {name: replace(each, activity=activity) for name, each in scores.items()}
    others = {str(name): other for name, other in fits.items() if not _is_fit(other)}
    made: dict[str, Any] = elsewhere(others, same[first], named[first].data)
    if ranked:
        if POPULAR in named:
            raise ValueError(f"Expected another name than {POPULAR!r}, which is the baseline")
        popular = score_popularity(named[first].data, test, train)
        made[POPULAR] = replace(popular, activity=activity)
    comparison = Comparison(named, test, same, about, train, made)
    advice = " If there should be none, the columns of the test set may be exchanged"
    for told in [*(one + advice for one in comparison.unseen()), *comparison.taken()]:
        warnings.warn(told, DataWarning, stacklevel=2)
    return comparison


def _is_fit(one: Any) -> bool:
    return hasattr(one, "predict") and hasattr(one, "data")


def _same_scale(fits: Mapping[str, Any]) -> None:
    """Raise an error for different scales: probabilities of levels and densities cannot be compared."""
    scales = {name: fit.data.levels for name, fit in fits.items()}
    first = next(iter(fits))
    for name, levels in scales.items():
        if levels != scales[first]:
            both = (f"{n!r} with levels {scales[n] or 'none'}" for n in (first, name))
            raise ValueError(f"Expected fits to ratings on one scale, got {' and '.join(both)}")
