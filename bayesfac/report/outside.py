"""Scores of predictions that were made elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bayesfac.inference.predictions.level_masses import midpoints
from bayesfac.metrics import nmae
from bayesfac.report.diagnostics.held_out import Rows, errors_of


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
