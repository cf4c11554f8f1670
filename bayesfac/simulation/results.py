"""The result of simulation-based calibration, in numbers, in words and as a picture."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from bayesfac.report import drawing
from bayesfac.report.diagnostics import uniformity
from bayesfac.report.diagnostics.findings import Finding
from bayesfac.report.plots.figure import Picture, canvas, short

LEVEL = 0.01  # a p-value at or below this level rejects the engine
SURE = 3.29  # standard errors from which the direction of an error is reported: two-sided p = .001
INTERVALS = (0.5, 0.9)


@dataclass(frozen=True, eq=False)
class Calibration:
    """The result of `bf.sbc`.

    Attributes
    ----------
    ranks : DataFrame
        replications x quantities: the number of draws below the true value.
    draws : int
        Draws of every replication; ranks are uniform on 0..draws if the engine is correct.
    ess : Series
        The effective sample size of every quantity, the mean over replications.
    settings : dict
        The seed, the lengths and the settings of the engine.
    notes : tuple
        Warnings for the reader: correlated draws, divergences, replications left out.
    broken : int
        Replications with NaN or infinity among the draws; they have no ranks.
    reason : str
        Why nothing could be checked; empty if something was checked.
    """

    method: str
    engine: str
    ranks: pd.DataFrame = field(default_factory=pd.DataFrame)
    draws: int = 0
    ess: pd.Series = field(default_factory=lambda: pd.Series(dtype=float))
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    broken: int = 0
    reason: str = ""

    @property
    def replications(self) -> int:
        return len(self.ranks)

    @cached_property
    def table(self) -> pd.DataFrame:
        """A table with a row for each quantity: p-values of both tests, coverage of central intervals,
        effective sample size, and the direction of the error."""
        rows = {name: self._row(ranks.to_numpy()) for name, ranks in self.ranks.items()}
        table = pd.DataFrame.from_dict(rows, orient="index")
        return table.assign(ess=self.ess) if rows else table

    def _row(self, ranks: np.ndarray) -> dict[str, Any]:
        place = (ranks + 0.5) / (self.draws + 1)
        inside = {covers(i): float((np.abs(place - 0.5) < i / 2).mean()) for i in INTERVALS}
        return {
            "chi-square": uniformity.chi_square(ranks, self.draws),
            "ecdf": uniformity.ecdf(ranks, self.draws),
            **inside,
            "the draws are": direction(place),
        }

    @cached_property
    def p(self) -> float:
        """The smallest p-value of all tests with Holm's correction; NaN without a test."""
        if self.table.empty:
            return float("nan")
        return float(uniformity.holm(self.table[["chi-square", "ecdf"]].to_numpy().ravel()).min())

    @property
    def ok(self) -> bool | None:
        """Whether no test rejects the engine; None if nothing could be checked."""
        if self.reason:
            return None
        return bool(not self.broken and self.p > LEVEL)

    @property
    def verdict(self) -> str:
        """`ok` in words, for a table."""
        return {None: "not applicable", True: "calibrated", False: "miscalibrated"}[self.ok]

    def __repr__(self) -> str:
        who = f"{self.method} by {self.engine}"
        if self.reason:
            return f"{who}: simulation-based calibration has no meaning here: {self.reason}."
        size = f"{self.replications} replications, {self.draws} draws each"
        lines = [f"{who}: {self.verdict}, {shown(self.p)} ({size})."]
        lines += [f"  {note}" for note in self.notes]
        if not self.table.empty:
            lines += ["", self.table.to_string(float_format=lambda x: f"{x:.3g}")]
        return "\n".join(lines)

    def record(self) -> dict[str, Any]:
        """All results as plain numbers and text, for a file."""
        return {
            "method": self.method,
            "engine": self.engine,
            "ok": self.ok,
            "p": None if np.isnan(self.p) else self.p,
            "reason": self.reason,
            "replications": self.replications,
            "draws": self.draws,
            "broken": self.broken,
            "settings": dict(self.settings),
            "notes": list(self.notes),
            "quantities": self.table.to_dict(orient="index"),
            "ranks": {name: ranks.tolist() for name, ranks in self.ranks.items()},
        }

    def plot(self, quantities: Any = None) -> Picture:
        """The distribution function of the ranks minus that of uniform ranks, with a simultaneous band.

        Parameters
        ----------
        quantities : sequence of str, optional
            The quantities to draw; by default the six that deviate most.
        """
        if self.ranks.empty:
            raise ValueError(f"Expected ranks to plot, got none: {self.reason or 'all are broken'}")
        names = list(self.table.sort_values("ecdf").index[:6] if quantities is None else quantities)
        total, at = self.replications, np.arange(1, self.draws + 1) / (self.draws + 1)
        columns = min(3, len(names))
        rows = -(-len(names) // columns)
        with drawing.style():
            figure, axes = canvas(rows, columns, (2.7 * columns + 0.4, 2.1 * rows + 0.4))
            for axis in axes[len(names) :]:
                axis.remove()
            low, high = (edge / total - at for edge in uniformity.band(total, self.draws))
            for axis, name in zip(axes, names, strict=False):
                seen = uniformity.below(self.ranks[name].to_numpy(), self.draws) / total - at
                out = (seen < low - 1e-12) | (seen > high + 1e-12)
                axis.fill_between(at, low, high, color="#d9e6f2", step="mid")
                colour = drawing.COLOURS[1 if out.any() else 0]
                axis.step(at, seen, where="mid", color=colour)
                axis.set_title(short(name))
                axis.set_xlim(0, 1)
            figure.supxlabel("rank of the true value among the draws, as a share")
            figure.supylabel("difference of the ECDF")
        how = (
            "A line that stays inside the band is calibrated. Below the band on the left and above it on the "
            "right, the draws spread too widely; above on the left and below on the right, too narrowly. A "
            "line above the band on both sides means draws that are too high; below it, too low."
        )
        level = "good" if self.ok else "bad"
        finding = Finding(level, f"Here: {self.verdict}, {shown(self.p)}.")
        return Picture(figure, f"Calibration of {self.method} by {self.engine}", how, finding)


def covers(level: float) -> str:
    """The name of the column of an interval.

    >>> covers(0.9)
    '90 % covers'
    """
    return f"{100 * level:g} % covers"


def shown(p: float) -> str:
    """A p-value in words.

    >>> shown(0.0312), shown(1e-30)
    ('p = 0.031', 'p < 0.0001')
    """
    return "p < 0.0001" if p < 1e-4 else f"p = {p:.2g}"


def direction(place: np.ndarray) -> str:
    """The error of the draws in words, judged by the places of the true values among them, in (0, 1).

    An error is reported if the mean of the places (variance 1/12 if uniform) or their mean square about 1/2
    (variance 1/180) is wrong by `SURE` standard errors.

    >>> place = (np.arange(1000) + 0.5) / 1000
    >>> direction(place), direction(place**0.5), direction(0.25 + place / 2)
    ('fine', 'too low', 'too wide')
    """
    root, bias = len(place) ** 0.5, place.mean() - 0.5
    # about the mean and about 1/2, because draws with a bias to one side are neither narrow nor wide
    spreads = np.array([place.var(), np.mean((place - 0.5) ** 2)]) - 1 / 12
    errors = []
    if abs(bias) * 12**0.5 * root >= SURE:
        errors.append("too low" if bias > 0 else "too high")
    if (spreads * 180**0.5 * root >= SURE).all():
        errors.append("too narrow")
    if (spreads * 180**0.5 * root <= -SURE).all():
        errors.append("too wide")
    return ", ".join(errors) or "fine"
