"""How well a fit predicts what it has not seen: sums of log scores, their errors, and which to believe."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from bayesfac.report import arviz_versions
from bayesfac.report.diagnostics import findings
from bayesfac.report.diagnostics.findings import Finding
from bayesfac.report.diagnostics.psis import threshold
from bayesfac.report.pages.templates import duration, number
from bayesfac.report.plots.figure import Picture, canvas, short


@dataclass(frozen=True, eq=False)
class Loo:
    """Every cell (or user) left out in turn, and predicted by the rest.

    Attributes
    ----------
    name : str
        The method's.
    table : DataFrame
        One row per cell that was looked at: its labels, `elpd` (the log score when it is left out), `p_loo`
        (how much better it is predicted when it is not) and `pareto_k`.
    what, unit : str
        What the scores are (fits can only be compared on the same), and of what.
    how : str
        "PSIS", or the number of folds.
    draws : int
        Behind each score.
    cluster : array
        The user (or row) of each cell, as cells of one are not independent.
    lpd : array or None
        Where the table is a random sample: the log score without leaving out, of all cells; `at` says which
        of them are in the table.
    """

    name: str
    table: pd.DataFrame
    what: str
    unit: str
    how: str
    draws: int
    cluster: np.ndarray
    lpd: np.ndarray | None = None
    at: np.ndarray | None = None
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        """Cells that the sum is over, looked at or not."""
        return len(self.table) if self.lpd is None else len(self.lpd)

    @property
    def pointwise(self) -> np.ndarray:
        """The log score of each cell of the table."""
        return self.table["elpd"].to_numpy()

    @property
    def elpd(self) -> float:
        """The sum of all log scores: expected log predictive density. Higher is better.

        Of a sample of n cells among N (difference estimator: Magnusson, Vehtari, Jonasson & Andersen 2020):
        the sum over all cells of the score without leaving out, plus N times the mean difference from it.
        """
        return estimate(self.pointwise, self.lpd, self.at)[0]

    @property
    def se(self) -> float:
        """Standard error of `elpd` for other data like these, cells taken as independent."""
        return spread(self.pointwise, self.lpd, self.at)

    @property
    def se_by_user(self) -> float:
        """The same where users (or rows) are independent, not their cells; NaN of a sample of cells."""
        if self.lpd is not None:
            return np.nan
        return clustered(self.pointwise, self.cluster)

    @property
    def subsampling_se(self) -> float:
        """Standard error that is there because only some cells were looked at; 0 if all were."""
        return estimate(self.pointwise, self.lpd, self.at)[1]

    @property
    def p_loo(self) -> float:
        """Effective number of parameters: how much leaving out costs, in all."""
        if self.lpd is not None:
            return float(self.lpd.sum() - self.elpd)
        return float(self.table["p_loo"].sum())

    @property
    def pareto_k(self) -> np.ndarray:
        """The shape of the tail of each cell's importance weights; NaN where none were needed."""
        return self.table["pareto_k"].to_numpy()

    @property
    def threshold(self) -> float:
        """The k up to which a score can be trusted: min(1 - 1/log10(draws), 0.7)."""
        return threshold(self.draws)

    @property
    def bad(self) -> np.ndarray:
        """Which cells of the table have scores that cannot be trusted."""
        return (
            self.pareto_k > self.threshold
            if self.how == "PSIS"
            else np.zeros(len(self.table), bool)
        )

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What to think of it, and what to do next."""
        return tuple([_tails(self), *(Finding("good", note) for note in self.notes)])

    @property
    def level(self) -> str:
        """The level of the worst finding: "good", "care" or "bad"."""
        return findings.worst(self.findings)

    def __repr__(self) -> str:
        some = "" if self.lpd is None else f"{len(self.table):,} of "
        took = f"{self.how}, {self.draws} draws, {duration(self.seconds)}"
        many = f"{self.n:,} {self.unit}{'s' * (self.n != 1)}"
        lines = [f"Leave-{self.unit}-out of {self.name}: {some}{many} ({took})"]
        errors = f"± {number(self.se)} over {self.unit}s"
        if self.unit != "user" and np.isfinite(self.se_by_user):
            errors += f", ± {number(self.se_by_user)} over their {_owner(self)}s"
        lines.append(f"  elpd  {number(self.elpd, 6)} {errors} ({self.what})")
        if self.lpd is not None:
            lines.append(
                f"        ± {number(self.subsampling_se)} from looking at some of them only"
            )
        lines.append(f"  p_loo {number(self.p_loo, 4)}")
        return "\n".join([*lines, *(f"  {f.marked}" for f in self.findings)])

    def picture(self) -> Picture:
        """Pareto k of every cell beside its score."""
        if self.how != "PSIS":
            raise ValueError(f"Expected importance weights to show, got {self.how}: it needs none")
        k = np.minimum(self.pareto_k, 1.5)
        with arviz_versions.style():
            figure, (axes,) = canvas()
            for rows, colour in (
                (~self.bad, arviz_versions.COLOURS[0]),
                (self.bad, arviz_versions.COLOURS[1]),
            ):
                axes.scatter(
                    self.pointwise[rows],
                    k[rows],
                    s=8,
                    color=colour,
                    alpha=0.5,
                    lw=0,
                    rasterized=True,
                )
            axes.axhline(self.threshold, color=arviz_versions.GREY, ls="--")
            axes.set(xlabel=f"{self.what}, left out (nats)", ylabel="Pareto k")
            axes.set_title(
                short(f"{self.name}: how far leaving one out can be trusted", 60), loc="left"
            )
        how = f"Each point is a {self.unit}; above the dashed line ({self.threshold:.2f}) its score cannot "
        how += "be trusted, and those far to the left came as a surprise."
        finding = _tails(self)
        return Picture(
            figure, f"Pareto k of {self.name}", how, Finding(finding.level, f"Here: {finding.text}")
        )


def _owner(loo: Loo) -> str:
    return "user" if loo.unit == "rating" else "row"


def estimate(e: np.ndarray, lpd: np.ndarray | None, at: np.ndarray | None) -> tuple[float, float]:
    """The sum of scores of all cells, and its error from sampling some, without replacement."""
    if lpd is None:
        return float(e.sum()), 0.0
    n, N, away = len(e), len(lpd), e - lpd[at]
    error = N * np.sqrt((1 - n / N) * away.var(ddof=1) / n) if n > 1 else np.inf
    return float(lpd.sum() + N * away.mean()), float(error)


def spread(e: np.ndarray, lpd: np.ndarray | None, at: np.ndarray | None) -> float:
    """Standard error of the sum over all cells as a sample of others like them; of one cell none."""
    if lpd is None:
        return float(np.sqrt(len(e) * e.var(ddof=1))) if len(e) > 1 else np.nan
    N, (total, error) = len(lpd), estimate(e, lpd, at)
    square = (lpd**2).sum() + N * (e**2 - lpd[at] ** 2).mean()
    variance = (square - (total**2 - error**2) / N) * N / (N - 1)
    return float(np.sqrt(max(variance, 0)))


def clustered(e: np.ndarray, cluster: np.ndarray) -> float:
    """Standard error of a sum whose terms are independent between clusters only."""
    each = np.bincount(cluster, e)[np.unique(cluster)]
    return float(np.sqrt(len(each) * each.var(ddof=1))) if len(each) > 1 else np.nan


def _tails(loo: Loo) -> Finding:
    """Whether the importance weights hold. Where they do not, what leaving out costs is too small; if
    those costs together are as large as the standard error, the sum itself says nothing."""
    if loo.how != "PSIS":
        return Finding(
            "good",
            f"Refitted, every {loo.unit} left out once ({loo.how}): there are no weights to fail.",
        )
    bad, limit = loo.bad, f"{loo.threshold:.2f}"
    if not bad.any():
        worst = number(float(loo.pareto_k.max()))
        return Finding(
            "good", f"Every Pareto k is at most {limit} (the largest: {worst}): trust it."
        )
    share = f"{int(bad.sum()):,} of {len(bad):,} {loo.unit}s ({bad.mean():.2%})"
    text = f"{share} have a Pareto k above {limit}: their scores are too good."
    advice = "fit.kfold(data) refits and needs no weights."
    if loo.unit == "user":
        advice = "Refit without them where it matters: bf.split.strong_generalisation."
    cost = float(loo.table["p_loo"].to_numpy()[bad].sum()) * loo.n / len(bad)
    if not cost <= loo.se:
        return Finding(
            "bad", f"{text} Together they may move the sum by more than its error.", advice
        )
    return Finding("care", text, advice)
