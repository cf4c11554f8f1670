"""The results of an evaluation: tables, ranks and tests."""

from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from bayesfac import ranks as ranking
from bayesfac.search.evaluation.methods_and_measures import METRICS, SMALLER


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The results of `bf.evaluate`. By default `metric` is the first metric.

    Attributes
    ----------
    cells : DataFrame
        One row for each data set, method and fold, with the metrics, the seconds, the chosen settings, the
        chosen threshold and notes.
    datasets, methods, metrics : tuple
        The names, in the order of the call.
    partial : bool
        Whether cells are missing, because of an interrupt or `finished=True`.
    """

    cells: pd.DataFrame
    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    metrics: tuple[str, ...]
    folds: int
    partial: bool = False

    def mean(self, metric: str | None = None) -> pd.DataFrame:
        """Means over folds in which the metric is defined, data sets x methods; NaN if a fold is missing."""
        return self._over_folds(metric, "mean")

    def sd(self, metric: str | None = None) -> pd.DataFrame:
        """Standard deviations over folds (with n - 1), data sets x methods."""
        return self._over_folds(metric, "std")

    def ranks(
        self, metric: str | None = None, *, higher: bool | None = None, digits: int = 3
    ) -> pd.DataFrame:
        """Ranks of the means, data sets x methods.

        Means are first rounded to `digits`, so that means that look equal in print have equal ranks. Data
        sets on which a method has no mean are left out. For a metric of your own, `higher` says whether
        larger values are better.
        """
        name = self._metric(metric)
        if higher is None and name not in METRICS:
            raise ValueError(
                f"Expected higher=True or False for {name!r}: the user's own metric has no known direction"
            )
        mean = self.mean(name)
        full = mean.dropna().round(digits)
        if full.empty:
            lacking = [m for m in self.methods if mean[m].isna().any()]
            raise ValueError(
                f"Expected a data set on which every method has {name}, got none: "
                f"{', '.join(lacking)} lack it"
            )
        return ranking.ranks(full, name not in SMALLER if higher is None else higher)

    def friedman(
        self, metric: str | None = None, *, alpha: float = 0.05, **how: Any
    ) -> ranking.Friedman:
        """Friedman's test that all methods are equal; `how` is passed to `ranks`."""
        return ranking.friedman(self.ranks(metric, **how), alpha)

    def critical_difference(
        self, metric: str | None = None, *, alpha: float = 0.05, **how: Any
    ) -> float:
        """The smallest significant difference of two mean ranks (Nemenyi)."""
        N, K = self.ranks(metric, **how).shape
        return ranking.critical_difference(K, N, alpha)

    def cd_diagram(self, metric: str | None = None, *, alpha: float = 0.05, **how: Any) -> Any:
        """The critical-difference diagram with a caption; `bf.ranks.cd_diagram` can draw into given axes."""
        from bayesfac.report.diagnostics.findings import Finding
        from bayesfac.report.plots.figure import Picture

        name, ranks = self._metric(metric), self.ranks(metric, **how)
        figure = ranking.cd_diagram(ranks, alpha, title=name).figure
        read = f"Bars join methods whose mean ranks differ by less than CD (Nemenyi, alpha = {alpha:g})."
        if len(ranks) < 2:
            finding = Finding("care", "Here: one data set cannot show that methods differ.")
        else:
            test = ranking.friedman(ranks, alpha)
            alike = test.F <= test.critical
            text = f"Here: Friedman's test {'does not reject' if alike else 'rejects'} that all are alike"
            text += f" (F_F = {test.F:.3f}, critical value {test.critical:.3f})."
            finding = Finding("care" if alike else "good", text)
        return Picture(figure, f"Critical difference, {name}", read, finding)

    def table(
        self, metric: str | None = None, *, higher: bool | None = None, digits: int = 3
    ) -> pd.DataFrame:
        """A table of means ± sds. With several methods, ranks are in brackets, and mean ranks are in the
        last row. A metric of your own has ranks only with `higher`."""
        name = self._metric(metric)
        mean, sd = self.mean(name), self.sd(name)
        known = higher is not None or name in METRICS
        ranked = known and not mean.dropna().empty and len(mean.columns) > 1
        ranks = self.ranks(name, higher=higher, digits=digits) if ranked else mean[:0]
        rank = ranks.reindex(mean.index).to_numpy()
        shown = [
            [_text(*three, digits) for three in zip(*row, strict=True)]
            for row in zip(mean.to_numpy(), sd.to_numpy(), rank, strict=True)
        ]
        table = pd.DataFrame(shown, mean.index, mean.columns, dtype=object)
        if ranked:
            table.loc["mean rank"] = [f"{own:.2f}" for own in ranks.mean()]
        return table

    def __repr__(self) -> str:
        return f"{self._headline()}\n\n{self.table().to_string()}"

    def _repr_html_(self) -> str:
        return f"<p>{escape(self._headline())}</p>{self.table().to_html()}"

    def _headline(self) -> str:
        some = {"method": len(self.methods), "data set": len(self.datasets), "fold": self.folds}
        parts = [f"{n} {what}{'s' * (n > 1)}" for what, n in some.items()]
        if self.partial:
            cells = len(self.methods) * len(self.datasets) * self.folds
            parts.append(f"{len(self.cells)} of {cells} cells finished")
        first, *more = (f"{m} (smaller is better)" if m in SMALLER else m for m in self.metrics)
        also = f"; also {', '.join(more)}" if more else ""
        return f"Evaluation({', '.join(parts)}): {first}, mean ± sd (rank){also}"

    def _metric(self, metric: str | None) -> str:
        name = self.metrics[0] if metric is None else metric
        if name not in self.metrics:
            raise ValueError(f"Expected one of the metrics {self.metrics}, got {name!r}")
        return name

    def _over_folds(self, metric: str | None, how: Any) -> pd.DataFrame:
        by = self.cells.groupby(["dataset", "method"])
        with np.errstate(invalid="ignore"):  # an infinite loss has no sd
            table = by[self._metric(metric)].agg(how).where(by.size() == self.folds)
        rows, columns = (
            pd.Index(self.datasets, name="dataset"),
            pd.Index(self.methods, name="method"),
        )
        return table.unstack().reindex(index=rows, columns=columns).astype(float)


def _text(mean: float, sd: float, rank: float, digits: int) -> str:
    if np.isnan(mean):
        return "–"
    return f"{mean:.{digits}f} ± {sd:.{digits}f}" + ("" if np.isnan(rank) else f" ({rank:g})")
