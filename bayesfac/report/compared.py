"""Tables and sentences that compare several fits by their scores on the same held-out data."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

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
    coverage,
    paired_difference,
)
from bayesfac.report.diagnostics.uses import judge_averages, same_posterior
from bayesfac.report.pages.templates import SHARES, number, percent
from bayesfac.report.ranking import Ranking, ranking
from bayesfac.report.top import top_table, top_words

LOSS_OF = {"NMAE": "MAE of level", "perplexity": "log score"}  # a score -> the loss that orders it
LEVEL_OF = {coverage(level): level for level in LEVELS}
SMALLER_IS_BETTER = ("RMSE", "MAE", "NMAE", "zero-one", "CRPS", "RPS", "perplexity")


@dataclass(frozen=True, eq=False)
class Compared:
    """Tables and sentences on several fits and their scores on the same test set; see `Comparison`."""

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

    @cached_property
    def top(self) -> pd.DataFrame:
        """The best predicted held-out ratings of each user beside what was observed; index (fit, n)."""
        return top_table(self.scores if self.test.ranks else {})

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
        """The differences of each fit from the first, and whether the top of the list is right, in words."""
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
        found = [f"{name} against {first}: {', '.join(parts)}." for name, parts in changes.items()]
        return found + top_words(self.top)

    def answers(self) -> list[str]:
        """Which fit is better and by how much, whether intervals can be believed, and what to do next."""
        return [self._better(), *self._intervals(), *self.unseen(), *self.taken(), self._next()]

    def taken(self) -> list[str]:
        """That items of the training pairs are ranked too, if these pairs are not known."""
        said = "Items that users have in training are ranked too: train= leaves them out."
        return [said] if self.train is None and self.test.implicit else []

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
