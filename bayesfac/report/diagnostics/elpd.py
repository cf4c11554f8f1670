"""Results of leave-one-out: sums of log scores, standard errors, and which scores can be trusted.

Several results are compared cell by cell.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from bayesfac.core.data.reading import indefinite, same_labels
from bayesfac.report import drawing
from bayesfac.report.believed import clustered, stacking
from bayesfac.report.diagnostics.findings import Finding, Judged
from bayesfac.report.diagnostics.psis import threshold
from bayesfac.report.pages.templates import SHARES, duration, number
from bayesfac.report.plots.figure import Picture, colour, panel, short

# whose cells are not independent, for each unit that is left out
OWNERS = {"rating": "users", "cell": "labels of the first mode", "label": "rows"}


@dataclass(frozen=True, eq=False)
class Loo(Judged):
    """Scores of every cell (or user), predicted from the other cells (or users).

    Attributes
    ----------
    name : str
        The name of the method.
    table : DataFrame
        One row per scored cell: its labels, `elpd` (the log score with the cell left out), `p_loo` (the log
        score without leaving out, minus `elpd`) and `pareto_k`.
    what, unit : str
        The kind of score, and the unit that is left out.
    how : str
        "PSIS", or the number of folds.
    draws : int
        The number of draws behind each score.
    cluster : array
        The user (or row) of each cell, as cells of one user are not independent.
    lpd, at : array or None
        If the table is a random sample: the log scores of all cells without leaving out, and the indices of
        the cells in the table.
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
        """The number of cells in the sum, scored or not."""
        return len(self.table) if self.lpd is None else len(self.lpd)

    @property
    def pointwise(self) -> np.ndarray:
        """The log score of each cell of the table."""
        return self.table["elpd"].to_numpy()

    @property
    def elpd(self) -> float:
        """The sum of all log scores (expected log predictive density); higher is better.

        If only n of N cells were scored, it comes from the difference estimator of Magnusson, Vehtari,
        Jonasson & Andersen (2020): the sum of all scores without leaving out, plus N times the mean
        difference in the sample.
        """
        return estimate(self.pointwise, self.lpd, self.at)[0]

    @property
    def se(self) -> float:
        """Standard error of `elpd` over data sets of this kind, with independent cells."""
        return spread(self.pointwise, self.lpd, self.at)

    @property
    def se_by_user(self) -> float:
        """Standard error with independent users (or rows) instead; NaN for a sample of cells."""
        return np.nan if self.lpd is not None else clustered(self.pointwise, self.cluster)

    @property
    def subsampling_se(self) -> float:
        """Standard error from scoring only a sample of the cells; 0 if all were scored."""
        return estimate(self.pointwise, self.lpd, self.at)[1]

    @property
    def p_loo(self) -> float:
        """Effective number of parameters: the total loss of log score from leaving out."""
        if self.lpd is not None:
            return float(self.lpd.sum() - self.elpd)
        return float(self.table["p_loo"].sum())

    @property
    def pareto_k(self) -> np.ndarray:
        """The shape of the tail of each cell's importance weights; NaN for refits."""
        return self.table["pareto_k"].to_numpy()

    @property
    def threshold(self) -> float:
        """The largest k of a trusted score: min(1 - 1/log10(draws), 0.7)."""
        return threshold(self.draws)

    @property
    def bad(self) -> np.ndarray:
        """Which cells of the table have scores that cannot be trusted."""
        return (self.pareto_k > self.threshold) & (self.how == "PSIS")

    @property
    def doubt(self) -> float:
        """By how much the sum of the untrusted scores may be too high: their p_loo, in nats."""
        bad = self.bad
        return float(self.table["p_loo"].to_numpy()[bad].sum()) * self.n / len(bad)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Whether the scores can be trusted, and what to do next."""
        return (_tails(self), *(Finding("good", note) for note in self.notes))

    def __repr__(self) -> str:
        some = "" if self.lpd is None else f"{len(self.table):,} of "
        took = f"{self.how}, {self.draws} draws, {duration(self.seconds)}"
        many = f"{self.n:,} {self.unit}{'s' * (self.n != 1)}"
        lines = [f"Leave-{self.unit}-out of {self.name}: {some}{many} ({took})"]
        errors = f"± {number(self.se)} over {self.unit}s"
        if self.unit != "user" and np.isfinite(self.se_by_user):
            errors += f", ± {number(self.se_by_user)} over their {OWNERS[self.unit]}"
        lines.append(f"  elpd  {number(self.elpd, 6)} {errors} ({self.what})")
        if self.lpd is not None:
            lines.append(f"        ± {number(self.subsampling_se)} from scoring only a sample")
        lines.append(f"  p_loo {number(self.p_loo, 4)}")
        return "\n".join([*lines, *(f"  {f.marked}" for f in self.findings)])

    def picture(self) -> Picture:
        """Pareto k of every cell beside its score."""
        if self.how != "PSIS":
            raise ValueError(
                f"Expected a result of fit.loo to draw, got {self.how} (no importance weights)"
            )
        k = np.minimum(self.pareto_k, 1.5)
        title = short(f"{self.name}: which leave-one-out scores can be trusted", 60)
        x = f"{self.what}, left out (nats)"
        with panel(title, x, "Pareto k", legend="") as (figure, axes):
            points: dict[str, Any] = {"s": 8, "alpha": 0.5, "lw": 0, "rasterized": True}
            for i, rows in enumerate((~self.bad, self.bad)):
                axes.scatter(self.pointwise[rows], k[rows], color=colour(i), **points)
            axes.axhline(self.threshold, color=drawing.GREY, ls="--")
        line = f"the dashed line ({self.threshold:.2f})"
        how = f"Each point is {indefinite(self.unit)}; above {line} its score cannot be trusted. "
        how += "Points far to the left were predicted badly."
        finding = _tails(self)
        finding = Finding(finding.level, f"Here: {finding.text}")
        return Picture(figure, f"Pareto k of {self.name}", how, finding)


def estimate(e: np.ndarray, lpd: np.ndarray | None, at: np.ndarray | None) -> tuple[float, float]:
    """The sum of the scores of all cells, and its error from sampling cells without replacement."""
    if lpd is None:
        return float(e.sum()), 0.0
    n, N, away = len(e), len(lpd), e - lpd[at]
    error = N * np.sqrt((1 - n / N) * away.var(ddof=1) / n) if n > 1 else np.inf
    return float(lpd.sum() + N * away.mean()), float(error)


def spread(e: np.ndarray, lpd: np.ndarray | None, at: np.ndarray | None) -> float:
    """Standard error of the sum of all scores, cells taken as a random sample; NaN for one cell."""
    if lpd is None:
        return float(np.sqrt(len(e) * e.var(ddof=1))) if len(e) > 1 else np.nan
    N, (total, error) = len(lpd), estimate(e, lpd, at)
    square = (lpd**2).sum() + N * (e**2 - lpd[at] ** 2).mean()
    variance = (square - (total**2 - error**2) / N) * N / (N - 1)
    return float(np.sqrt(max(variance, 0)))


def _tails(loo: Loo) -> Finding:
    """Whether the importance weights can be trusted.

    Where they cannot, p_loo is too small. If p_loo of these cells exceeds the standard error, the sum is bad.
    """
    if loo.how != "PSIS":
        text = f"Refitted, every {loo.unit} left out once ({loo.how}): no importance weights are needed."
        return Finding("good", text)
    bad, limit = loo.bad, f"{loo.threshold:.2f}"
    if not bad.any():
        largest = number(float(loo.pareto_k.max()))
        text = f"Every Pareto k is at most {limit} (the largest: {largest}): the scores can be trusted."
        return Finding("good", text)
    share = f"{int(bad.sum()):,} of {len(bad):,} {loo.unit}s ({bad.mean():.2%})"
    text = f"{share} have a Pareto k above {limit}: their scores are too high."
    advice = "fit.kfold(data) refits and needs no weights."
    if loo.unit == "user":
        advice = "Refit without these users: bf.split.strong_generalisation."
    if not loo.doubt <= loo.se:
        text += " Together they may change the sum by more than its standard error."
        return Finding("bad", text, advice)
    return Finding("care", text, advice)


# -- several results ----------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class LooComparison:
    """Leave-one-out scores of several fits, the best first.

    table     elpd, se; `difference` from the best with `se of difference` over cells and, if all cells were
              scored, over users; the share of cells whose score cannot be trusted; the weight in the mixture
              of all predictions with the highest score
    findings  each difference in words: whether it is clear, or why the scores cannot decide
    """

    table: pd.DataFrame
    findings: tuple[Finding, ...]
    what: str

    def __repr__(self) -> str:
        how: dict[str, Any] = {"na_rep": "-", "formatters": SHARES}
        shown = self.table.to_string(float_format=lambda x: f"{x:.4g}", **how)
        return "\n".join([shown, f"({self.what})", *(f.marked for f in self.findings)])


def loo_compare(*results: Mapping[str, Loo] | Loo) -> LooComparison:
    """Differences of leave-one-out scores, paired cell by cell.

    Parameters
    ----------
    *results : mapping, or two or more Loo
        Name -> result of `Fit.loo` or `Fit.kfold`, all with the same data and kind of score. Results without
        names get the names of their methods. If only some cells were scored, they must be the same cells
        (the same `subsample` and `seed`).

    Examples
    --------
    >>> import bayesfac as bf
    >>> ratings = bf.datasets.make_ratings(30, 20, 2, seed=0)
    >>> gibbs = bf.Gibbs(warmup=50, draws=50, chains=2)
    >>> results = {}
    >>> for k in (1, 2):
    ...     fit = bf.fit("pmf", ratings, gibbs, n_components=k, progress=False)
    ...     results[f"rank {k}"] = fit.loo(ratings)
    >>> sorted(bf.loo_compare(results).table.index)
    ['rank 1', 'rank 2']
    """
    fits = _named(results)
    first_name, first = next(iter(fits.items()))
    for name, one in fits.items():
        _comparable(first_name, first, name, one)
    order = sorted(fits, key=lambda name: -fits[name].elpd)
    best = fits[order[0]]
    rows = {name: _row(fits[name], best) for name in order}
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("fit")
    table["stacking weight"] = stacking([fits[name].pointwise for name in order])
    findings = [_difference(fits, name, order[0], rows[name]) for name in order[1:]]
    for name, one in fits.items():
        warnings = [finding for finding in one.findings if finding.level != "good"]
        findings += [Finding(one.level, f"{name}: {finding}") for finding in warnings]
    return LooComparison(table, tuple(findings), f"{best.what}; higher is better")


def _named(results: tuple[Any, ...]) -> Mapping[str, Loo]:
    """The results by name; two of one method are called pmf and pmf (2)."""
    if len(results) == 1 and isinstance(results[0], Mapping):
        fits = results[0]
    else:
        names = [getattr(one, "name", f"argument {k}") for k, one in enumerate(results, 1)]
        before = [names[:k].count(name) for k, name in enumerate(names)]
        shown = (f"{n} ({k + 1})" if k else n for n, k in zip(names, before, strict=True))
        fits = dict(zip(shown, results, strict=True))
    for name, one in fits.items():
        if not isinstance(one, Loo):
            raise TypeError(
                f"Expected results of fit.loo or fit.kfold, got {type(one).__name__} as {name!r}: "
                "pass fit.loo(data) with the training data"
            )
    if len(fits) < 2:
        raise ValueError(f"Expected two or more results of fit.loo, got {len(fits)}")
    return fits


def _comparable(first_name: str, first: Loo, name: str, one: Loo) -> None:
    pair = f"{first_name} and {name}"
    if one.what != first.what or one.unit != first.unit:
        raise ValueError(
            f"Expected scores of one kind, got {first.what} of {first.unit}s and {one.what} of {one.unit}s "
            f"({pair})"
        )
    labels = [t.drop(columns=["elpd", "p_loo", "pareto_k"]) for t in (first.table, one.table)]
    if one.n != first.n or not _same(*labels):
        raise ValueError(
            f"Expected the same {first.unit}s left out, got {len(first.table)} of {first.n} and "
            f"{len(one.table)} of {one.n}, or different ones ({pair})"
        )


def _same(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    axes = list(one) == list(other)
    return axes and all(same_labels(pd.Index(one[name]), pd.Index(other[name])) for name in one)


def _row(one: Loo, best: Loo) -> dict[str, float]:
    away = one.pointwise - best.pointwise
    lpd = None if one.lpd is None or best.lpd is None else one.lpd - best.lpd
    difference, sampling = estimate(away, lpd, one.at)
    by_cell = spread(away, lpd, one.at)
    by_user = clustered(away, one.cluster) if lpd is None else np.nan
    return {
        "elpd": one.elpd, "se": one.se, "difference": difference, "se of difference": by_cell,
        "se by user": by_user, "subsampling se": sampling, "p_loo": one.p_loo,
        "not to be trusted": float(one.bad.mean()),
    }  # fmt: skip


def _difference(fits: Mapping[str, Loo], name: str, best: str, row: Mapping[str, float]) -> Finding:
    """The difference with its error: the larger standard error, combined with the error of sampling.

    A difference is clear if it exceeds two errors and the untrusted scores of both fits together. There is
    no verdict if the sum of either fit is not to be trusted.
    """
    error = np.hypot(np.nanmax([row["se of difference"], row["se by user"]]), row["subsampling se"])
    text = f"{name} is {number(-row['difference'])} ± {number(error)} nats below {best}"
    broken = [one for one in (best, name) if fits[one].level == "bad"]
    if broken:
        text += f": no verdict, because the scores of {' and '.join(broken)} are not to be trusted."
        return Finding("bad", text, "Compare results of fit.kfold(data) instead.")
    doubt = fits[best].doubt + fits[name].doubt
    distance = abs(row["difference"])
    if distance <= 2 * error:
        return Finding("good", f"{text}: no clear difference.")
    if distance <= 2 * error + doubt:
        text += f": no verdict, because untrusted scores may change it by {number(doubt)} nats."
        return Finding("care", text, "Compare results of fit.kfold(data) instead.")
    return Finding("good", f"{text}: a clear difference.")
