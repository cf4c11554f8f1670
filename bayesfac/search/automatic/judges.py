"""How `bf.auto` compares methods for one kind of data: a class for each kind, which has all that differs."""

from abc import ABC, abstractmethod
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd

from bayesfac.core.data.cards import describe
from bayesfac.inference import Gibbs
from bayesfac.inference.predictions import pointwise
from bayesfac.inference.predictions.predict import MEMORY
from bayesfac.metrics import rmse
from bayesfac.report.diagnostics.held_out import GAIN
from bayesfac.report.pair_scores import PairScores, score_pairs, score_popularity
from bayesfac.report.ranking import PLACES, POPULAR
from bayesfac.search.automatic.log_scores import (
    LogScores,
    Weights,
    biases,
    blocks_of,
    counts_held_out,
    in_groups,
    of_counts,
)
from bayesfac.split import holdout

SHORT = Gibbs(warmup=200, draws=200, chains=2)


class Judge(ABC):
    """One kind of data.

    what      what is held out
    share     the share of it
    score     the name of the score of each held-out cell, see `log_scores`
    measure   a measure that readers know
    baseline  the name of a simple prediction, which methods are compared with
    first     methods from fast to slow, as measured on MovieLens-100K and emotions
    then      those that come after other numbers of components of the first; methods that are not listed come
              last, in the order of their names
    """

    what: str
    share = 0.1
    score = "log score"
    measure: str
    baseline = "frequencies"
    first: tuple[Any, ...]
    then: tuple[Any, ...] = ()

    def amount(self, data: Any) -> tuple[float, str]:
        """How much can be held out, and of what; an error if methods for such data cannot be compared."""
        return float(len(data)), self.what

    def groups(self, data: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """`first` and `then`, for these data."""
        return self.first, self.then

    def divided(self, data: Any, share: float, seed: int) -> tuple[Any, Any]:
        """(train, test)."""
        return holdout(data, share, seed=seed)

    def weights(self, test: Any) -> Weights:
        """The weights of the cells of a test set."""
        frame = test.frame()
        return in_groups(frame[test.columns[0]], np.ones(len(frame)))

    @abstractmethod
    def of_fit(self, fit: Any, train: Any, test: Any) -> LogScores:
        """The scores of a fit to the training part."""

    @abstractmethod
    def of_baseline(self, train: Any, test: Any) -> LogScores:
        """The scores of the baseline."""


def by_law(fit: Any, test: Any) -> np.ndarray:
    """The log score of each held-out cell, by the law of the fit."""
    query, _, _ = fit.data.locate(test)
    told = pointwise.told(fit.method, test, query, fit.data.levels)
    return pointwise.log_means(fit.method, fit.hyper, fit._as_draws(), told, MEMORY)


class OfRatings(Judge):
    """Levels or real numbers; the baseline has biases of users and items and a normal error."""

    what, measure, baseline = "ratings", "RMSE", "biases"
    first: tuple[Any, ...] = (
        "urp", "bpmf", "pmf", "mmmf", "bmmmf", "attitude", "ordinal_mf", ("bpmf", {}, SHORT),
        ("ordinal_mf", {}, SHORT),
    )  # fmt: skip
    then = ("pmmmf", "hmf", "ipmmmf", "gibbs_mmmf", "emmmf")

    def of_fit(self, fit: Any, train: Any, test: Any) -> LogScores:
        return LogScores(by_law(fit, test), rmse(test.value, fit.predict(test).mean))

    def of_baseline(self, train: Any, test: Any) -> LogScores:
        return biases(train, test)


class OfPairs(Judge):
    """Pairs of users and items, which are ranked."""

    what, score, measure, baseline = "pairs", GAIN, "in first ten", POPULAR
    first = ("wrmf", "hpf")

    def amount(self, data: Any) -> tuple[float, str]:
        return float(len(data)), "pairs above zero"

    def of_fit(self, fit: Any, train: Any, test: Any) -> LogScores:
        return self._of(score_pairs(fit, test, train))

    def of_baseline(self, train: Any, test: Any) -> LogScores:
        return self._of(score_popularity(describe(train), test, train))

    def _of(self, scores: PairScores) -> LogScores:
        return LogScores(scores.gain, float((scores.rank <= PLACES).mean()))


class OfViews(Judge):
    """Counts of features; the baseline knows how frequent each feature is."""

    what, measure = "counts", "perplexity"
    first = ("plsa", "mvplsa")
    then = ("ltm", "concat_ltm", "mggm")

    def amount(self, data: Any) -> tuple[float, str]:
        return float(sum(data.totals(name).sum() for name in data.names)), self.what

    def groups(self, data: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        several = len(data.names) > 1  # concat_ltm is ltm for one view
        return self.first, tuple(n for n in self.then if several or n != "concat_ltm")

    def divided(self, data: Any, share: float, seed: int) -> tuple[Any, Any]:
        return counts_held_out(data, share, seed)

    def weights(self, test: Any) -> Weights:
        """Every cell counts as often as its count says."""
        frame: pd.DataFrame = test.frame()
        return in_groups(frame["row"], frame["value"].to_numpy())

    def of_fit(self, fit: Any, train: Any, test: Any) -> LogScores:
        return of_counts(train, test, self.weights(test), blocks_of(fit, train))

    def of_baseline(self, train: Any, test: Any) -> LogScores:
        return of_counts(train, test, self.weights(test), None)


JUDGES: dict[str, Judge] = {"Ratings": OfRatings(), "Counts": OfPairs(), "Views": OfViews()}


def judge_of(data: Any) -> Judge:
    """The judge of the methods for these data; other containers name their own."""
    module, _, name = data.judge.partition(":")
    return getattr(import_module(module), name)() if module else JUDGES[type(data).__name__]
