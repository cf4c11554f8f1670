"""Held-out scores: how far off the mean was, and whether the stated uncertainty was right."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import binom

from bayesfac.metrics import nmae
from bayesfac.report.diagnostics import uniformity

LEVELS = (0.5, 0.8, 0.9, 0.95)
WIDTH = 0.9  # the level whose interval width is reported
LARGER_IS_BETTER = ("log score", "ordinal log score")  # tables show them so, losses are minus them


class Words(NamedTuple):
    """How to speak of held-out cells: what they are, whose, in which unit, and what training had of these."""

    what: str
    who: str
    unit: str
    known: str


WORDS = {
    "Ratings": Words("ratings", "users", "rating units", "ratings of the user"),
    "Tasks": Words("labels", "rows", "probability", "stored cells of the row"),
    "Views": Words("stored cells", "rows", "probability", "cells of the row"),
}


@dataclass(frozen=True, eq=False)
class Scores:
    """A fit's predictions of ratings beside what came true; every array in the test set's order.

    pit       the predictive distribution function at the truth, at random within its jump where it
              has one: uniform when calibrated
    width     of the 90 % predictive interval
    activity  how many ratings of the same user training had seen
    cluster   the user, whose ratings are not independent of one another
    """

    value: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    log_score: np.ndarray
    crps: np.ndarray
    pit: np.ndarray
    width: np.ndarray
    activity: np.ndarray
    cluster: np.ndarray
    flagged: np.ndarray
    kind: str = field(default="Ratings", kw_only=True)  # of the data

    @property
    def words(self) -> Words:
        """How to speak of them."""
        return WORDS[self.kind]

    def __len__(self) -> int:
        return len(self.value)

    @cached_property
    def losses(self) -> dict[str, np.ndarray]:
        """What each row costs; lower is better."""
        error = self.mean - self.value
        parts = {"RMSE": error**2, "MAE": np.abs(error), "log score": -self.log_score}
        return {**parts, "CRPS": self.crps}

    @property
    def weights(self) -> np.ndarray:
        """How much each row counts."""
        return np.ones(len(self))

    def inside(self, level: float) -> np.ndarray:
        """Which truths lie in the central predictive interval of that level."""
        return np.abs(self.pit - 0.5) <= level / 2

    def summary(self) -> dict[str, float]:
        """One row of the comparison."""
        return {"n": len(self), **self._part(slice(None))}

    def by_activity(self, groups: int = 10) -> pd.DataFrame:
        """The same scores for users that training knew little or well, in groups of equal size."""
        found = {}
        for name, rows in activity_groups(self.activity, groups).items():
            found[name] = {"n": int(rows.sum()), **self._part(rows)}
        return pd.DataFrame.from_dict(found, orient="index").rename_axis(self.words.known)

    def _part(self, rows: Any) -> dict[str, float]:
        means = {name: float(loss[rows].mean()) for name, loss in self.losses.items()}
        means["RMSE"] = means["RMSE"] ** 0.5
        means |= {name: -mean for name, mean in means.items() if name in LARGER_IS_BETTER}
        covered = {coverage(level): float(self.inside(level)[rows].mean()) for level in LEVELS}
        return {**means, **covered, "width": float(self.width[rows].mean())}

    def pit_histogram(self, bins: int | None = None) -> pd.DataFrame:
        """Relative frequency of each PIT bin (1 is calibrated), with a simultaneous 95 % band.

        The band is binomial with Bonferroni's correction: a calibrated forecast of independent rows
        stays inside it everywhere in 95 of 100 data sets.
        """
        bins = bins or (20 if len(self) >= 1000 else 10)
        counts, edges = np.histogram(self.pit, bins, (0, 1))
        tail = 0.05 / bins / 2
        low, high = binom.ppf([tail, 1 - tail], len(self), 1 / bins)
        table = {"left": edges[:-1], "right": edges[1:], "frequency": counts * bins / len(self)}
        return pd.DataFrame(table).assign(low=low * bins / len(self), high=high * bins / len(self))

    def pit_ecdf(self, points: int = 99) -> pd.DataFrame:
        """The distribution function of the PIT less the uniform one, with a simultaneous 95 % band, after
        Sailynoja, Buerkner & Vehtari (2022): calibrated forecasts of independent rows stay in it everywhere
        in 95 of 100 data sets."""
        at, total = np.arange(1, points + 1) / (points + 1), len(self)
        seen = uniformity.below(np.minimum(self.pit * (points + 1), points).astype(int), points)
        low, high = uniformity.band(total, points)
        parts = {"difference": seen, "low": low, "high": high}
        return pd.DataFrame({"PIT": at, **{n: part / total - at for n, part in parts.items()}})

    def coverage_curve(self) -> pd.DataFrame:
        """How many truths the central interval of each level holds."""
        levels = np.linspace(0.05, 0.95, 19)
        held = np.sort(np.abs(self.pit - 0.5))
        share = np.searchsorted(held, levels / 2, side="right") / len(self)
        return pd.DataFrame({"level": levels, "coverage": share})

    def selective(self) -> pd.DataFrame:
        """RMSE when only the predictions with the smallest stated sd are answered.

        Where all sds are alike they order nothing, and the curve is flat.
        """
        kept = np.linspace(0.1, 1, 19)
        if np.ptp(self.sd) <= 1e-6 * self.sd.max():
            return pd.DataFrame({"answered": kept, "RMSE": np.sqrt(self.losses["RMSE"].mean())})
        order = np.argsort(self.sd, kind="stable")
        running = np.cumsum(self.losses["RMSE"][order]) / np.arange(1, len(self) + 1)
        at = np.clip((kept * len(self)).astype(int) - 1, 0, None)
        return pd.DataFrame({"answered": kept, "RMSE": np.sqrt(running[at])})


@dataclass(frozen=True, eq=False)
class LevelScores(Scores):
    """The same for ratings on a scale, where every method is judged by the levels that it tells.

    A density cannot be compared with a mass, so only scores of masses are shown.
    """

    levels: tuple[float, ...]
    level: np.ndarray
    probabilities: np.ndarray
    ordinal_log_score: np.ndarray
    rps: np.ndarray

    @cached_property
    def losses(self) -> dict[str, np.ndarray]:
        """What each row costs; lower is better."""
        parts = {
            "RMSE": (self.mean - self.value) ** 2,
            "MAE of level": np.abs(self.level - self.value),
        }
        parts["zero-one"] = (self.level != self.value).astype(float)
        return {**parts, "ordinal log score": -self.ordinal_log_score, "RPS": self.rps}

    def _part(self, rows: Any) -> dict[str, float]:
        found = super()._part(rows)
        first = {name: found.pop(name) for name in ("RMSE", "MAE of level")}
        return {**first, "NMAE": nmae(self.value[rows], self.level[rows], self.levels), **found}

    def reliability(self, bins: int = 10) -> pd.DataFrame:
        """How often a level came true that was given about so much probability, all levels together."""
        told = self.probabilities.ravel()
        came = (self.value[:, None] == np.asarray(self.levels)).ravel()
        which = np.minimum((told * bins).astype(int), bins - 1)
        table = pd.DataFrame({"predicted": told, "observed": came}).groupby(which)
        return table.mean().assign(n=table.size()).reset_index(drop=True)


@dataclass(frozen=True, eq=False)
class TokenScores:
    """A fit's probabilities of the stored cells of several views, weighted by their counts."""

    count: np.ndarray
    log_p: np.ndarray
    view: np.ndarray
    cluster: np.ndarray
    activity: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def __len__(self) -> int:
        return len(self.count)

    @property
    def losses(self) -> dict[str, np.ndarray]:
        """Minus the log probability; lower is better."""
        return {"log score": -self.log_p}

    @property
    def weights(self) -> np.ndarray:
        """How often each cell was seen."""
        return self.count

    def summary(self) -> dict[str, float]:
        """Tokens, mean log probability of one, perplexity; then the same for each view."""
        score = self._mean(slice(None))
        found = {"n": self.count.sum(), "log score": score, "perplexity": float(np.exp(-score))}
        for name in pd.unique(self.view):
            found[f"perplexity {name}"] = float(np.exp(-self._mean(self.view == name)))
        return found

    def by_activity(self, groups: int = 10) -> pd.DataFrame:
        """Perplexity for rows that training knew little or well."""
        found = {}
        for name, rows in activity_groups(self.activity, groups).items():
            score = self._mean(rows)
            found[name] = {
                "n": self.count[rows].sum(),
                "log score": score,
                "perplexity": np.exp(-score),
            }
        return pd.DataFrame.from_dict(found, orient="index").rename_axis("cells of the row")

    def _mean(self, rows: Any) -> float:
        return float(np.average(self.log_p[rows], weights=self.count[rows]))


def coverage(level: float) -> str:
    """The name of a coverage column.

    >>> coverage(0.9)
    'covers 90 %'
    """
    return f"covers {100 * level:g} %"


def score(fit: Any, test: Any) -> Scores | TokenScores:
    """Score a fit on held-out data of the kind it was trained on; of tasks, on the labels they have.

    Examples
    --------
    >>> import bayesfac as bf
    >>> ratings = bf.datasets.make_ratings(30, 20, 2, seed=0)
    >>> train, test = bf.split.holdout(ratings, 0.2, seed=0)
    >>> scores = score(bf.fit("pmf", train, n_components=2, progress=False), test)
    >>> len(scores) == len(test), scores.summary()["RMSE"] > 0
    (True, True)
    """
    if type(test).__name__ != fit.data.kind:
        raise TypeError(
            f"Expected {fit.data.kind} to test {fit.name} on, got {type(test).__name__}"
        )
    prediction = fit.predict(test)
    frame = test.frame()
    axis = "user" if fit.data.kind == "Ratings" else "row"
    cluster = pd.factorize(frame[axis])[0]
    activity = _activity(fit, frame[axis], axis)
    if fit.data.kind == "Views":
        with np.errstate(
            divide="ignore"
        ):  # a word held to be impossible costs infinity, and is shown so
            log_p = np.log(prediction.mean)
        return TokenScores(
            frame["value"].to_numpy(), log_p, frame["view"].to_numpy(), cluster, activity
        )
    lower, upper = prediction.interval(WIDTH)
    given = prediction.scores(test.value)
    parts: dict[str, Any] = {name: np.asarray(part, float) for name, part in given.items()}
    parts |= {"width": upper - lower, "activity": activity, "cluster": cluster}
    parts |= {"kind": fit.data.kind}
    parts |= {"value": test.value, "flagged": np.asarray(prediction.flagged)}
    if fit.data.levels is None:
        return Scores(**parts)
    told = {"level": prediction.level, "probabilities": prediction.probabilities}
    return LevelScores(**parts, **told, levels=fit.data.levels)


def _activity(fit: Any, labels: pd.Series, axis: str) -> np.ndarray:
    """Training cells of each test row's user; none for a label that training never saw."""
    known = fit.data.coords[axis]
    code = known.get_indexer(pd.Index(labels))
    return np.where(code >= 0, np.asarray(fit.data.row_counts)[code], 0)


def activity_groups(activity: np.ndarray, groups: int) -> dict[str, np.ndarray]:
    """Row masks of about equal size by activity, named by its range; unknown users apart.

    >>> list(activity_groups(np.array([0, 3, 3, 5, 9, 9]), 2))
    ['0', '3–5', '9']
    """
    known = activity > 0
    found = {"0": ~known} if (~known).any() else {}
    if not known.any():
        return found
    cuts = np.unique(
        np.quantile(activity[known], np.linspace(0, 1, groups + 1)[1:-1], method="inverted_cdf")
    )
    which = np.searchsorted(cuts, activity, side="left")
    for group in np.unique(which[known]):
        rows = known & (which == group)
        low, high = int(activity[rows].min()), int(activity[rows].max())
        found[f"{low}" if low == high else f"{low}–{high}"] = rows
    return found


def paired_difference(one: Any, first: Any) -> Mapping[str, tuple[float, float]]:
    """Mean difference of each loss from the first fit's, and its standard error by user.

    Rows of one user are not independent, so their differences are summed before they are squared.
    For RMSE the difference is of the roots, its error by the delta method.
    """
    weight, found = one.weights, {}
    total = weight.sum()
    for name, loss in one.losses.items():
        pair = [loss, first.losses[name]]
        with np.errstate(invalid="ignore"):  # two impossible words: infinity minus infinity
            means = [(weight * part).sum() / total for part in pair]
            if name == "RMSE":  # the root's slope turns each row's loss into its share of the root
                roots = [max(np.sqrt(mean), np.finfo(float).tiny) for mean in means]
                pair = [part / (2 * root) for part, root in zip(pair, roots, strict=True)]
                means = roots
            each = pair[0] - pair[1]
            each = each - (weight * each).sum() / total
            by_user = np.bincount(one.cluster, weight * each)
            error = float(np.sqrt((by_user**2).sum()) / total)
            found[name] = (float(means[0] - means[1]), error)
    return found
