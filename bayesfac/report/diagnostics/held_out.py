"""Held-out scores: the error of the predicted means, and whether the predicted uncertainty was right.

Length: the scores of all kinds of data are one class and what it lacks for levels, views and counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import binom

from bayesfac.core.data.container import Container
from bayesfac.core.data.linked.measured import Measurements
from bayesfac.core.data.reading import positions_of
from bayesfac.metrics import nmae
from bayesfac.report.believed import clustered
from bayesfac.report.diagnostics import uniformity
from bayesfac.report.diagnostics.shares import among_features

LEVELS = (0.5, 0.8, 0.9, 0.95)
WIDTH = 0.9  # the level whose interval width is reported
GAIN = "gain of rank"  # of held-out pairs of counts
LARGER_IS_BETTER = ("log score", "ordinal log score", GAIN)  # losses are minus these scores
TOLERANCE = 0.03  # a coverage is off if it differs by more than this and by more than its own noise
POINTS = 99  # where the ECDF of the PIT is compared with the uniform one


class Words(NamedTuple):
    """Words for texts about held-out cells: what they are, whose, in which unit, and their training cells."""

    what: str
    who: str
    unit: str
    known: str


WORDS = {
    "Ratings": Words("ratings", "users", "rating units", "ratings of the user"),
    "Counts": Words("pairs", "users", "ranks", "pairs of the user"),
    "Measurements": Words("cells", "rows", "standard deviations of the view", "cells of the row"),
    "Tensor": Words("cells", "labels of the first mode", "value units", "cells of the label"),
    "Tasks": Words("labels", "rows", "probability", "stored cells of the row"),
    "Views": Words("stored cells", "rows", "probability", "cells of the row"),
}


class Rows:
    """The parts that the scores of all kinds of data share.

    Each subclass has `losses`: for every score the loss of each test row; lower is better.
    """

    kind = "Ratings"  # the kind of the data
    activity: np.ndarray
    cluster: np.ndarray
    losses: Any

    def summary(self, rows: Any = slice(None)) -> dict[str, float]:
        """The scores of some test rows, by default of all."""
        return {"n": len(self.cluster[rows]), **self._part(rows)}

    def __repr__(self) -> str:
        """The summary instead of the arrays, which may have millions of entries."""
        parts = ", ".join(f"{name} {value:.4g}" for name, value in self.summary().items())
        return f"{type(self).__name__}({parts})"

    def __len__(self) -> int:
        return len(self.cluster)

    @property
    def unseen(self) -> np.ndarray:
        """Which test rows have a label without training data."""
        return self.activity == 0

    @property
    def words(self) -> Words:
        """Words for texts about the scores."""
        return WORDS[self.kind]

    @property
    def weights(self) -> np.ndarray:
        """The weight of each row."""
        return np.ones(len(self))

    def by_activity(self, groups: int = 10) -> pd.DataFrame:
        """The scores in groups of equal size, from users with few training ratings to those with many."""
        masks = activity_groups(self.activity, groups)
        table = {name: self.summary(rows) for name, rows in masks.items()}
        return pd.DataFrame.from_dict(table, orient="index").rename_axis(self.words.known)

    def _part(self, rows: Any) -> dict[str, float]:
        """The mean of every loss over these rows, of which RMSE is the root."""
        means = {name: float(loss[rows].mean()) for name, loss in self.losses.items()}
        return {**means, "RMSE": means["RMSE"] ** 0.5}


def errors_of(
    value: np.ndarray, mean: np.ndarray, level: np.ndarray | None
) -> dict[str, np.ndarray]:
    """The losses of the predicted means, or of the predicted levels where there are levels."""
    square = {"RMSE": (mean - value) ** 2}
    if level is None:
        return {**square, "MAE": np.abs(mean - value)}
    off = np.abs(level - value)
    return {**square, "MAE of level": off, "zero-one": (off > 0).astype(float)}


def nothing() -> np.ndarray:
    """No numbers for any row."""
    return np.zeros((0, 0))


@dataclass(frozen=True, eq=False, repr=False)
class Scores(Rows):
    """Predictions of ratings beside the true values; every array is in the order of the test set.

    pit       predictive distribution function at the true value (at random within a jump): uniform
              for a calibrated fit
    lower, upper
              the ends of the 90 % predictive interval
    activity  number of training ratings of the same user
    cluster   index of the user, as ratings of one user are not independent
    parts     (part, row) means of consecutive parts of the draws
    shown, replicates
              some rows, and simulated values (replicate, row) of them
    """

    value: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    log_score: np.ndarray
    crps: np.ndarray
    pit: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    activity: np.ndarray
    cluster: np.ndarray
    flagged: np.ndarray
    parts: np.ndarray = field(default_factory=nothing, kw_only=True)
    shown: np.ndarray = field(default_factory=nothing, kw_only=True)
    replicates: np.ndarray = field(default_factory=nothing, kw_only=True)
    kind: str = field(default="Ratings", kw_only=True)

    @cached_property
    def losses(self) -> dict[str, np.ndarray]:
        errors = errors_of(self.value, self.mean, None)
        return {**errors, "log score": -self.log_score, "CRPS": self.crps}

    @property
    def unseen(self) -> np.ndarray:
        return self.flagged

    def inside(self, level: float) -> np.ndarray:
        """Which true values lie in the central predictive interval of this level."""
        return np.abs(self.pit - 0.5) <= level / 2

    def noise(self, level: float) -> float:
        """The standard error of a coverage over users; infinite for one user."""
        inside = self.inside(level)
        error = clustered(inside - inside.mean(), self.cluster) / len(inside)
        return np.inf if np.isnan(error) else error

    def off(self, level: float, errors: float = 2) -> float:
        """The coverage less the level; 0 within TOLERANCE, or within so many standard errors."""
        gap = float(self.inside(level).mean()) - level
        return gap if abs(gap) > max(TOLERANCE, errors * self.noise(level)) else 0.0

    def _part(self, rows: Any) -> dict[str, float]:
        means = super()._part(rows)
        means |= {name: -mean for name, mean in means.items() if name in LARGER_IS_BETTER}
        covered = {coverage(level): float(self.inside(level)[rows].mean()) for level in LEVELS}
        return {**means, **covered, "width": float((self.upper - self.lower)[rows].mean())}

    def pit_histogram(self) -> pd.DataFrame:
        """Relative frequency of each PIT bin (1 is calibrated), with a simultaneous 95 % band.

        The band is binomial with Bonferroni's correction: if the fit is calibrated and rows are
        independent, all bins lie inside the band in at least 95 of 100 data sets.
        """
        bins = 20 if len(self) >= 1000 else 10
        counts, edges = np.histogram(self.pit, bins, (0, 1))
        tail = 0.05 / bins / 2
        low, high = binom.ppf([tail, 1 - tail], len(self), 1 / bins)
        table = {"left": edges[:-1], "right": edges[1:], "frequency": counts * bins / len(self)}
        return pd.DataFrame(table).assign(low=low * bins / len(self), high=high * bins / len(self))

    def pit_ecdf(self) -> pd.DataFrame:
        """ECDF of the PIT minus that of the uniform distribution, with a simultaneous 95 % band.

        After Sailynoja, Buerkner & Vehtari (2022): if the fit is calibrated and rows are independent,
        the whole curve lies inside the band in 95 of 100 data sets.
        """
        at, total = np.arange(1, POINTS + 1) / (POINTS + 1), len(self)
        seen = uniformity.below(np.minimum(self.pit * (POINTS + 1), POINTS).astype(int), POINTS)
        low, high = uniformity.band(total, POINTS)
        parts = {"difference": seen, "low": low, "high": high}
        return pd.DataFrame({"PIT": at, **{n: part / total - at for n, part in parts.items()}})

    def coverage_curve(self) -> pd.DataFrame:
        """The share of true values in the central interval of each level."""
        levels = np.linspace(0.05, 0.95, 19)
        held = np.sort(np.abs(self.pit - 0.5))
        share = np.searchsorted(held, levels / 2, side="right") / len(self)
        return pd.DataFrame({"level": levels, "coverage": share})

    @property
    def orders(self) -> bool:
        """Whether the predicted standard deviations differ, so that they order the rows."""
        return bool(np.ptp(self.sd) > 1e-6 * self.sd.max())

    def selective(self) -> pd.DataFrame:
        """RMSE of the predictions with the smallest standard deviations; constant if all are equal."""
        kept = np.linspace(0.1, 1, 19)
        if not self.orders:
            return pd.DataFrame({"answered": kept, "RMSE": np.sqrt(self.losses["RMSE"].mean())})
        order = np.argsort(self.sd, kind="stable")
        running = np.cumsum(self.losses["RMSE"][order]) / np.arange(1, len(self) + 1)
        at = np.clip((kept * len(self)).astype(int) - 1, 0, None)
        return pd.DataFrame({"answered": kept, "RMSE": np.sqrt(running[at])})


@dataclass(frozen=True, eq=False, repr=False)
class ViewScores(Scores):
    """Scores of measurements: errors are in units of the standard deviation that the view had in training, so
    that views with large numbers do not hide all others."""

    view: np.ndarray
    unit: np.ndarray

    @cached_property
    def losses(self) -> dict[str, np.ndarray]:
        errors = errors_of(self.value / self.unit, self.mean / self.unit, None)
        return {**errors, "log score": -self.log_score, "CRPS": self.crps / self.unit}

    def summary(self, rows: Any = slice(None)) -> dict[str, float]:
        """As of all scores; for all rows also the RMSE of each view."""
        scores = super().summary(rows)
        for name in pd.unique(self.view) if isinstance(rows, slice) else ():
            scores[f"RMSE {name}"] = float(np.sqrt(self.losses["RMSE"][self.view == name].mean()))
        return scores

    def _part(self, rows: Any) -> dict[str, float]:
        width = ((self.upper - self.lower) / self.unit)[rows].mean()
        return super()._part(rows) | {"width": float(width)}


@dataclass(frozen=True, eq=False, repr=False)
class LevelScores(Scores):
    """Scores for ratings on levels: every method is scored by its probabilities of the levels.

    Scores of densities are left out, as a density cannot be compared with a probability.
    """

    levels: tuple[float, ...]
    level: np.ndarray
    probabilities: np.ndarray
    ordinal_log_score: np.ndarray
    rps: np.ndarray

    @cached_property
    def losses(self) -> dict[str, np.ndarray]:
        errors = errors_of(self.value, self.mean, self.level)
        return {**errors, "ordinal log score": -self.ordinal_log_score, "RPS": self.rps}

    def _part(self, rows: Any) -> dict[str, float]:
        part = super()._part(rows)
        first = {name: part.pop(name) for name in ("RMSE", "MAE of level")}
        return {**first, "NMAE": nmae(self.value[rows], self.level[rows], self.levels), **part}

    def reliability(self, bins: int = 10) -> pd.DataFrame:
        """Mean predicted probability and observed frequency of all levels, in bins of probability."""
        predicted = self.probabilities.ravel()
        came = (self.value[:, None] == np.asarray(self.levels)).ravel()
        which = np.minimum((predicted * bins).astype(int), bins - 1)
        table = pd.DataFrame({"predicted": predicted, "observed": came}).groupby(which)
        return table.mean().assign(n=table.size()).reset_index(drop=True)


@dataclass(frozen=True, eq=False, repr=False)
class TokenScores(Rows):
    """Probabilities of the stored cells, among the features of their view, weighted by their counts."""

    count: np.ndarray
    log_p: np.ndarray
    view: np.ndarray
    cluster: np.ndarray
    activity: np.ndarray = field(default_factory=lambda: np.zeros(0))
    parts: np.ndarray = field(default_factory=nothing)
    kind = "Views"

    @property
    def losses(self) -> dict[str, np.ndarray]:
        return {"log score": -self.log_p}

    @property
    def weights(self) -> np.ndarray:
        return self.count

    def summary(self, rows: Any = slice(None)) -> dict[str, float]:
        """Number of tokens, mean log probability and perplexity; for all rows also by view."""
        score = self._mean(rows)
        scores = {"n": self.count[rows].sum(), "log score": score, "perplexity": np.exp(-score)}
        for name in pd.unique(self.view) if isinstance(rows, slice) else ():
            scores[f"perplexity {name}"] = float(np.exp(-self._mean(self.view == name)))
        return scores

    def _mean(self, rows: Any) -> float:
        return float(np.average(self.log_p[rows], weights=self.count[rows]))


def coverage(level: float) -> str:
    """The name of a coverage column.

    >>> coverage(0.9)
    'covers 90 %'
    """
    return f"covers {100 * level:g} %"


def as_test(fit: Any, test: Any) -> Any:
    """Held-out data in the container of the training data, on the same levels; a container stays as it is."""
    known = isinstance(test, Container)
    return test if known else fit.method.data.of_test(test, fit.data.levels)


def score(fit: Any, test: Any) -> Scores | TokenScores:
    """Score a fit on held-out data of the same kind as its training data; of tasks, on their labels.

    Examples
    --------
    >>> import bayesfac as bf
    >>> ratings = bf.datasets.make_ratings(30, 20, 2, seed=0)
    >>> train, test = bf.split.holdout(ratings, 0.2, seed=0)
    >>> scores = score(bf.fit("pmf", train, n_components=2, progress=False), test)
    >>> len(scores) == len(test), scores.summary()["RMSE"] > 0
    (True, True)
    """
    test = as_test(fit, test)
    kind, got = fit.data.kind, type(test).__name__
    if got not in (kind, "Relations" if kind == "Ratings" else kind):
        why = ", whose zeros are not listed: bf.compare ranks pairs" if got == "Counts" else ""
        raise TypeError(f"Expected {kind} to test {fit.name} on, got {got}{why}")
    prediction = fit.predict(test)
    frame, axis = test.frame(), fit.data.columns[0]
    cluster = pd.factorize(frame[axis])[0]
    code = positions_of(fit.data.coords[axis], frame[axis])
    activity = np.where(code >= 0, np.asarray(fit.data.row_counts)[code], 0)
    if not test.site:
        with np.errstate(divide="ignore"):  # a feature of probability 0 has log probability -inf
            log_p = np.log(among_features(fit, test, prediction.mean))
        count, view = (frame[name].to_numpy() for name in ("value", "view"))
        return TokenScores(count, log_p, view, cluster, activity, prediction.means_of_parts)
    scores = prediction.scores(test.value)
    shown, replicates = prediction.replicates
    lower, upper = prediction.interval(WIDTH)
    parts: dict[str, Any] = {
        **{name: np.asarray(part, float) for name, part in scores.items()},
        "lower": lower, "upper": upper, "activity": activity, "cluster": cluster, "kind": kind,
        "value": test.value, "flagged": np.asarray(prediction.flagged),
        "parts": prediction.means_of_parts, "shown": shown, "replicates": replicates,
    }  # fmt: skip
    if isinstance(test, Measurements):
        view = np.repeat([*test.views], [*map(len, test.views.values())])[test.item]
        sd = {name: fit.data.summary[f"sd of {name}"] for name in test.views}
        return ViewScores(**parts, view=view, unit=np.array([sd[name] for name in view]))
    if fit.data.levels is None:
        return Scores(**parts)
    parts |= {"level": prediction.level, "probabilities": prediction.probabilities}
    return LevelScores(**parts, levels=fit.data.levels)


def activity_groups(activity: np.ndarray, groups: int) -> dict[str, np.ndarray]:
    """Row masks of about equal size by activity, named by its range; unknown users are the group "0".

    >>> list(activity_groups(np.array([0, 3, 3, 5, 9, 9]), 2))
    ['0', '3–5', '9']
    """
    known = activity > 0
    masks = {"0": ~known} if (~known).any() else {}
    if not known.any():
        return masks
    shares = np.linspace(0, 1, groups + 1)[1:-1]
    cuts = np.unique(np.quantile(activity[known], shares, method="inverted_cdf"))
    which = np.searchsorted(cuts, activity, side="left")
    for group in np.unique(which[known]):
        rows = known & (which == group)
        low, high = int(activity[rows].min()), int(activity[rows].max())
        masks[f"{low}" if low == high else f"{low}–{high}"] = rows
    return masks


def paired_difference(one: Any, first: Any) -> Mapping[str, tuple[float, float]]:
    """Mean difference of each loss from the first fit's, and its standard error over users; NaN for one user.

    Rows of one user are not independent, so their differences are summed before they are squared.
    For RMSE the difference is that of the roots; its error follows from the delta method.
    """
    weight, differences = one.weights, {}
    total = weight.sum()
    for name, loss in one.losses.items():
        if name not in first.losses:  # predictions made elsewhere have errors only
            continue
        pair = [loss, first.losses[name]]
        with np.errstate(invalid="ignore"):  # both probabilities 0: infinity minus infinity
            means = [(weight * part).sum() / total for part in pair]
            if name == "RMSE":  # d root = d mean / (2 root)
                roots = [max(np.sqrt(mean), np.finfo(float).tiny) for mean in means]
                pair = [part / (2 * root) for part, root in zip(pair, roots, strict=True)]
                means = roots
            each = pair[0] - pair[1]
            each = each - (weight * each).sum() / total
            error = clustered(weight * each, one.cluster) / total
            differences[name] = (float(means[0] - means[1]), error)
    return differences
