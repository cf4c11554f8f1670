"""Leave-one-out scores of several fits, paired cell by cell."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bayesfac.core.data.reading import same_labels
from bayesfac.report.believed import stacking
from bayesfac.report.diagnostics.elpd import Loo, estimate, spread
from bayesfac.report.diagnostics.findings import Finding
from bayesfac.report.diagnostics.held_out import clustered
from bayesfac.report.pages.templates import number


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
        shown = self.table.to_string(float_format=lambda x: f"{x:.4g}", na_rep="-")
        return "\n".join([shown, f"({self.what})", *(f.marked for f in self.findings)])


def loo_compare(*results: Mapping[str, Loo] | Loo) -> LooComparison:
    """Differences of leave-one-out scores, paired cell by cell.

    Parameters
    ----------
    *results : mapping, or two or more Loo
        Name -> result of `Fit.loo` or `Fit.kfold`, all with the same data and kind of score. Results without
        names are called by their methods. Samples must hold the same cells (same `subsample` and `seed`).

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
