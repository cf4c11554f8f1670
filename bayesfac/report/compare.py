"""Several fits scored on the same held-out data, in one table."""

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bayesfac.core.data.counts import Counts
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.errors import DataWarning
from bayesfac.report.believed import believed, clustered
from bayesfac.report.diagnostics.diagnose import Diagnostics, diagnostics
from bayesfac.report.diagnostics.findings import LEVELS as FINDINGS
from bayesfac.report.diagnostics.held_out import (
    GAIN,
    LARGER_IS_BETTER,
    LEVELS,
    WIDTH,
    Scores,
    Words,
    as_test,
    coverage,
    paired_difference,
    score,
)
from bayesfac.report.diagnostics.uses import judge_averages, same_posterior
from bayesfac.report.outside import elsewhere
from bayesfac.report.pages.html import comparison_page, score_rows, write
from bayesfac.report.pages.templates import SHARES, number, percent, render
from bayesfac.report.pair_scores import score_pairs, score_popularity
from bayesfac.report.ranking import POPULAR, Ranking, ranking

LOSS_OF = {"NMAE": "MAE of level", "perplexity": "log score"}  # a score -> the loss that orders it
LEVEL_OF = {coverage(level): level for level in LEVELS}
SMALLER_IS_BETTER = ("RMSE", "MAE", "NMAE", "zero-one", "CRPS", "RPS", "perplexity")


@dataclass(frozen=True, eq=False)
class Comparison:
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

    fits: dict[str, Any]
    test: Any
    scores: Mapping[str, Any]  # Scores, PairScores or TokenScores
    about: str = ""
    train: Any = None
    outside: Mapping[str, Any] = field(default_factory=dict)

    @property
    def _every(self) -> dict[str, Any]:
        """All scores; those of other predictions come last."""
        return {**self.scores, **self.outside}

    @property
    def _words(self) -> Words:
        return next(iter(self.scores.values())).words

    @property
    def _main(self) -> str:
        return next(name for name in ("RMSE", GAIN, "perplexity") if name in self.table)

    @property
    def _order(self) -> pd.Series:
        """The main score of every row, the best first."""
        return self.table[self._main].sort_values(ascending=self._main not in LARGER_IS_BETTER)

    @cached_property
    def diagnoses(self) -> dict[str, Diagnostics]:
        """The diagnostics of each fit, with the Monte Carlo error of its main score."""
        found = {}
        for name, fit in self.fits.items():
            found[name] = diagnostics(fit)
            if not fit.is_point:
                twins = [n for n, b in self.fits.items() if n != name and same_posterior(fit, b)]
                known = {n: each for n, each in self._every.items() if n not in twins}
                averages = judge_averages(name, known)
                found[name] = replace(found[name], findings=(*found[name].findings, averages))
        return found

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per fit: held-out scores, seconds, verdict."""
        rows = {}
        for name, fit in self.fits.items():
            rest = {"seconds": fit.seconds, "verdict": self.diagnoses[name].short}
            rows[name] = {**self.scores[name].summary(), **rest}
        for name, each in self.outside.items():
            rows[name] = {**each.summary(), "verdict": each.verdict}
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("fit")

    @cached_property
    def differences(self) -> pd.DataFrame:
        """Each loss minus that of the first fit, with its standard error over users; lower is better."""
        (_, first), *others = self._every.items()
        rows = {
            (name, loss): pair
            for name, scores in others
            for loss, pair in paired_difference(scores, first).items()
        }
        index = pd.MultiIndex.from_tuples(list(rows), names=["fit", "loss"]) if rows else None
        columns = ["difference", "standard error"]
        return pd.DataFrame(list(rows.values()), index=index, columns=columns)

    @cached_property
    def best(self) -> dict[str, str]:
        """Column -> the best fit; the best coverage is the one nearest to its level."""
        best = {}
        for column in self.table.columns:
            cost = _cost(column, self.table[column])
            if cost is not None and len(self.table) > 1 and np.isfinite(cost).any():
                best[column] = str(cost.idxmin())
        return best

    @cached_property
    def starred(self) -> dict[str, list[str]]:
        """Column -> the fits that are best or as good as the best, if another fit is worse beyond noise.

        Noise is two standard errors of the paired difference over users. Columns without such an error
        (interval width, perplexity of one view) have no star.
        """
        every, stars = self._every, {}
        for column, best in self.best.items():
            loss = LOSS_OF.get(column, column)
            known = [name for name, each in every.items() if _has(each, loss)]
            if best not in known:
                continue
            worse = [n for n in known if n != best and clearly_worse(every[n], every[best], loss)]
            if worse:
                stars[column] = [name for name in known if name not in worse]
        return stars

    @cached_property
    def by_activity(self) -> pd.DataFrame:
        """The scores by the number of training cells of the user or row; index (fit, activity)."""
        parts = {name: scores.by_activity() for name, scores in self._every.items()}
        return pd.concat(parts, names=["fit"])

    @cached_property
    def pit(self) -> pd.DataFrame:
        """PIT histograms with their band; index (fit, bin). Empty for counts, which have no PIT."""
        known = {n: s.pit_histogram() for n, s in self.scores.items() if isinstance(s, Scores)}
        return pd.concat(known, names=["fit", "bin"]) if known else pd.DataFrame()

    @cached_property
    def believed(self) -> pd.DataFrame:
        """Which fit is believed: log scores, the posterior of their differences, and stacking weights."""
        return believed(self.scores)

    @cached_property
    def ranking(self) -> Ranking | None:
        """Scores of recommendations, with popularity as a baseline; None without `train`."""
        return None if self.train is None else ranking(self.fits, self.test, self.train)

    @property
    def spread(self) -> str:
        """The test set, the seeds, and the meaning of the standard errors, in one sentence."""
        first = next(iter(self.scores.values()))
        seeds = ", ".join(f"{name} {fit.seed}" for name, fit in self.fits.items())
        what, who, *_ = self._words
        made = f" ({self.about})" if self.about else ""
        return (
            f"{len(first):,} held-out {what} of {len(np.unique(first.cluster)):,} {who}{made}; "
            f"seeds: {seeds}; one run each; standard errors are over {who}, paired."
        )

    def __repr__(self) -> str:
        shown = self.table.to_string(float_format=lambda x: f"{x:.4g}")
        lines = [shown, "", *self.answers(), self.spread]
        lines += [f"{n}: {d.verdict}" for n, d in self.diagnoses.items()] + self.sentences()
        if len(self.believed) > 1:
            shown = self.believed.to_string(float_format=lambda x: f"{x:.4g}", formatters=SHARES)
            lines += ["", shown]
        if self.ranking is not None:
            shown = self.ranking.table.to_string(float_format=lambda x: f"{x:.4f}")
            lines += ["", shown, self.ranking.about]
        return "\n".join(lines)

    def sentences(self) -> list[str]:
        """The differences of each fit from the first, in words."""
        first = next(iter(self.fits))
        changes: dict[str, list[str]] = {}
        for name, loss, mean, error in self.differences.reset_index().itertuples(index=False):
            if np.isfinite([mean, error]).all():
                verdict = "no clear difference"
                if abs(mean) > 2 * error:
                    verdict = "better" if mean < 0 else "worse"
                shown = -mean if loss in LARGER_IS_BETTER else mean  # scores, as in the table
                change = f"{loss} {shown:+.4f} ± {number(error, 2)} ({verdict})"
                changes.setdefault(name, []).append(change)
        return [f"{name} against {first}: {', '.join(parts)}." for name, parts in changes.items()]

    def answers(self) -> list[str]:
        """Which fit is better and by how much, whether intervals can be believed, and what to do next."""
        return [self._better(), *self._intervals(), *self.unseen(), *self.taken(), self._next()]

    def taken(self) -> list[str]:
        """That items of the training pairs are ranked too, if these pairs are not known."""
        said = "Items that users have in training are ranked too: train= leaves them out."
        return [said] if self.train is None and isinstance(self.test, Counts) else []

    def unseen(self) -> list[str]:
        """How many test rows have labels without training data, which only the prior predicts."""
        counts: dict[int, list[str]] = {}
        for name, scores in self.scores.items():
            counts.setdefault(int(scores.unseen.sum()), []).append(name)
        what, said = self._words.what, list[str]()
        for count, names in counts.items():
            if count:
                axes = self.fits[names[0]].data.columns
                labels = " or ".join(f"a{'n' * (axis[0] in 'aeio')} {axis}" for axis in axes)
                fits = f" ({', '.join(names)})" if len(counts) > 1 else ""
                total = f"{count:,} of {len(self.scores[names[0]]):,} held-out {what}"
                said.append(f"{total} have {labels} without training data{fits}.")
        return said

    def _better(self) -> str:
        """The best fit by the main score, and its difference from each other fit."""
        main, every = self._main, self._every
        loss = LOSS_OF.get(main, main)
        order, end = self._order, "highest" if main in LARGER_IS_BETTER else "lowest"
        best, shown = str(order.index[0]), number(order.iloc[0], 4)
        if len(order) == 1:
            alone = "there is no other fit to compare it with"
            return f"{best} has a held-out {main} of {shown}; {alone}."
        parts, unit = [], "" if loss == main else f" ({loss})"
        for other in map(str, order.index[1:]):
            gap, error = paired_difference(every[other], every[best])[loss]
            share = f", which is {order[other] / order.iloc[0] - 1:.0%}" if main == "RMSE" else ""
            parts.append(f"{other} {self._beside(gap, error, unit, share)}")
        return f"{best} has the {end} held-out {main}, {shown}: {'; '.join(parts)}."

    def _beside(self, gap: float, error: float, unit: str, share: str) -> str:
        """How much worse a fit is than the best one, in words."""
        if not np.isfinite(gap):  # there is no error beside an infinite loss
            return "gives probability 0 to a held-out feature"
        if gap and np.isnan(error):
            who = self._words.who
            return f"is worse by {gap:.3f}{unit}, of unknown error (one of the {who} has all cells)"
        if abs(gap) > 2 * error:
            return f"is worse by {gap:.3f} ± {number(error, 2)}{unit}{share}"
        return f"is no different beyond noise ({gap:+.3f} ± {number(error, 2)}{unit})"

    def _intervals(self) -> list[str]:
        """Whether the 90 % intervals contain about 90 % of the held-out values."""
        column = coverage(WIDTH)
        if column not in self.table:
            return []
        parts = []
        for name, share in self.table[column].dropna().items():
            scores = self.scores[str(name)]
            gap, known = scores.off(WIDTH), np.isfinite(scores.noise(WIDTH))
            verdict = "believable" if known else "of unknown error"
            if gap:
                verdict = f"too {'narrow' if gap < 0 else 'wide'}"
            parts.append(f"{name} {percent(share)} ({verdict})")
        shares = f"these shares of the {self._words.what}: {', '.join(parts)}"
        return [f"The 90 % intervals hold {shares}."]

    def _next(self) -> str:
        """What to do next: the advice on the best fit, if there is any."""
        best = next(name for name in self._order.index if name in self.fits)
        found = self.diagnoses[best]
        advice = [f for f in found.findings if f.advice and f.level != "good"]
        if found.level == "good" or not advice:
            if found.kind == "sampler":
                return f"Next: predict with {best}. More draws would not change these scores."
            return f"Next: predict with {best}, as far as its verdict allows."
        worst = max(advice, key=lambda finding: FINDINGS.index(finding.level))
        return f"Next, for {best}: {worst.advice}"

    def _repr_html_(self) -> str:
        shown = {"columns": list(self.table.index), "rows": score_rows(self)}
        return render("compare.html.j2", comparison=self, **shown)

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Write one self-contained HTML file."""
        return write(comparison_page(self), path)


def compare(
    fits: Mapping[str, Any], test: Any, *, about: str = "", train: Any = None
) -> Comparison:
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
    >>> compare({"point": point}, test).table["verdict"].item()
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
    if train is not None and not (isinstance(train, Ratings) and isinstance(test, Ratings)):
        got = f"{type(train).__name__} for a test on {type(test).__name__}"
        raise TypeError(f"Expected train= for a test on Ratings, as Ratings, got {got}")
    ranked = issubclass(named[first].method.data, Counts)
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
        warnings.warn(told, DataWarning, stacklevel=3)
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


def _has(scores: Any, loss: str) -> bool:
    return loss in scores.losses or (loss in LEVEL_OF and isinstance(scores, Scores))


def clearly_worse(one: Any, best: Any, loss: str) -> bool:
    """Whether a score is worse than the best by more than two standard errors of the difference."""
    if (level := LEVEL_OF.get(loss)) is None:
        gap, error = paired_difference(one, best)[loss]
        return gap == np.inf or gap > 2 * error
    off = abs(float(one.inside(level).mean()) - level)
    each = one.inside(level).astype(float) - best.inside(level)
    error = clustered(each - each.mean(), one.cluster) / len(each)
    return off > 2 * one.noise(level) and abs(each.mean()) > 2 * error


def _cost(column: str, values: pd.Series) -> pd.Series | None:
    """The values to minimise in a column, or None for a column without a best fit."""
    if (level := LEVEL_OF.get(column)) is not None:
        return (values - level).abs()
    if column.startswith(SMALLER_IS_BETTER):
        return values
    return -values if column in LARGER_IS_BETTER else None
