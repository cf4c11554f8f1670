"""How `bf.auto` compares methods for one kind of data: a class for each kind, which has all that differs.

The scores of held-out cells, of a fit and of a simple baseline:

counts    of users and items: no log score, as some methods predict preferences and others counts, but
          the gain 1 / log2(1 + rank) of every held-out pair among the items new to its user
ratings   the log mass of the level, or the log density of a real number
labels    the log probability of every known label of the held-out rows
views     the log probability of the feature of every held-out count, among the features of its view. Some
          methods scale features or put all views side by side. So the probabilities P of a row are
          first multiplied by a number for each feature, so that the predicted total of each feature is
          its total in training, and then divided by their sums over each view.
          Views of measurements are used in the fits, but no part of them is held out, because they have
          no likelihood. A share BACKGROUND of every prediction is the frequency of the features, so that
          no probability is zero
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from importlib import import_module
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import scipy.sparse as sp

from bayesfac.core.data.cards import describe
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.data.views import Views, side_by_side
from bayesfac.inference import Gibbs
from bayesfac.inference.predictions import pointwise
from bayesfac.inference.predictions.everywhere import moments
from bayesfac.inference.predictions.level_masses import codes, log_mass
from bayesfac.inference.predictions.predict import MEMORY
from bayesfac.metrics import rmse
from bayesfac.report.diagnostics.held_out import GAIN
from bayesfac.report.pair_scores import PairScores, score_pairs, score_popularity
from bayesfac.report.ranking import PLACES, POPULAR
from bayesfac.split import holdout

BACKGROUND = 0.01  # share of the feature frequencies in every prediction of a count
RIDGE = 5.0  # the penalty of the biases of users and items, in ratings
ROUNDS = 20  # of the two regressions that find the biases
FULL = 0.1  # share of the columns of a view of counts that may be above 0 in every row, at most
SCALINGS = 4  # steps towards the numbers that give every feature its training frequency
CELLS = 2**22  # rows x features that are predicted at once
TINY = 1e-300  # in place of zero, in a denominator
GROUPS = 1000  # of users or rows, whose sums are kept for standard errors


class LogScores(NamedTuple):
    """The score of every held-out cell, and a measure that readers know."""

    log: np.ndarray
    measure: float


class Weights(NamedTuple):
    """The group of users or rows to which each held-out cell belongs, and how often the cell counts."""

    group: np.ndarray
    weight: np.ndarray

    def sums(self, values: Any = 1.0) -> np.ndarray:
        """The weighted sum of the values in every group."""
        return np.bincount(self.group, self.weight * values)


def counts_held_out(data: Views, share: float, seed: int) -> tuple[Any, Any]:
    """(train, test). Views that are not counts stay in training and are not in the test part."""
    tables = {name: data[name] for name in data.names}
    counts = [name for name, table in tables.items() if _is_counts(table)]
    if not counts:
        raise ValueError(
            f"Expected counts in at least one view, of which some are held out (whole numbers, and zeros in "
            f"nearly every column), got measurements in {list(tables)}: bf.fit(NAME, views) holds nothing out"
        )
    train, test = holdout(
        data.relabelled({name: tables[name] for name in counts}), share, seed=seed
    )
    return data.relabelled(tables | {name: train[name] for name in counts}), test


def _is_counts(table: sp.csr_matrix) -> bool:
    """Whether a view holds counts: whole numbers of at least 0, with few columns above 0 in every row.

    Methods that scale features subtract the smallest number of a column: if it is above 0, they give no
    probabilities of the counts.
    """
    whole = (table.data >= 0).all() and (table.data == np.rint(table.data)).all()
    full = np.bincount(table.indices, minlength=table.shape[1]) == table.shape[0]
    return bool(whole and full.mean() <= FULL)


def in_groups(units: Any, weight: np.ndarray) -> Weights:
    """Cells of these users or rows with their weights."""
    return Weights(pd.factorize(units)[0] % GROUPS, weight)


# -- ratings ------------------------------------------------------------------------------------
def biases(train: Ratings, test: Ratings) -> LogScores:
    """Mean + user + item, ridge regressions on one another."""
    user, item, y = train.user, train.item, train.value - train.mean
    b, c = np.zeros(train.n_users), np.zeros(train.n_items)
    for _ in range(ROUNDS):
        c = np.bincount(item, y - b[user], len(c)) / (np.bincount(item, minlength=len(c)) + RIDGE)
        b = np.bincount(user, y - c[item], len(b)) / (np.bincount(user, minlength=len(b)) + RIDGE)
    sd = max(float((y - b[user] - c[item]).std()), 1e-6)
    mean = train.mean + b[test.user] + c[test.item]
    error = (test.value - mean) / sd
    log = -0.5 * error**2 - np.log(sd * np.sqrt(2 * np.pi))
    if train.levels is not None:
        with jax.enable_x64(True):
            code = jnp.asarray(codes(train.levels, test.value))
            log = np.asarray(log_mass(dist.Normal(mean, sd), train.levels, code))
    return LogScores(log, rmse(test.value, mean))


# -- counts -------------------------------------------------------------------------------------
def blocks_of(fit: Any, train: Views) -> Any:
    """A function that goes through the rows of a fit: (rows, P), with all features of `train`."""
    n, m = fit.data.shape
    labels = [(name, label) for name in train.names for label in train.features[name]]
    asked = pd.DataFrame(labels, columns=["view", "feature"]).assign(row=train.rows[0])
    columns = fit.data.locate(asked)[0].col  # a method may have added columns when it scaled a view

    def blocks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        height = max(1, CELLS // m)
        for first in range(0, n, height):
            rows = np.arange(first, min(first + height, n))
            found = moments(fit.method, fit.hyper, fit._as_draws(), rows, m, MEMORY)
            yield rows, np.asarray(found.mean[:, columns], np.float64)

    return blocks


def of_counts(train: Views, test: Views, weights: Weights, blocks: Any) -> LogScores:
    """The log probability of the feature of every stored cell of the test part, view by view."""
    known, ends = sp.csr_matrix(side_by_side(train)), np.cumsum([0, *train.n_features.values()])
    place = dict(zip(train.names, map(slice, ends[:-1], ends[1:]), strict=True))
    spans = [place[name] for name in test.names]
    frequency = np.asarray(known.sum(0), float).ravel() + 1
    for s in spans:
        frequency[s] /= frequency[s].sum()
    parts = [(np.asarray(c.row), np.asarray(c.col)) for c in test.cells.values()]
    row = np.concatenate([row for row, _ in parts])
    column = np.concatenate([col + s.start for (_, col), s in zip(parts, spans, strict=True)])
    p = frequency[column]
    if blocks is not None:
        scale = _matched(known, spans, blocks)
        for rows, table in blocks():
            at = np.flatnonzero((row >= rows[0]) & (row <= rows[-1]))
            share = np.zeros_like(table)
            for s in spans:
                share[:, s] = _shares(table[:, s] * scale[s])
            p[at] += (1 - BACKGROUND) * (share[row[at] - rows[0], column[at]] - p[at])
    mean = np.average(np.log(p), weights=weights.weight)
    return LogScores(np.log(p), float(np.exp(-mean)))


def _matched(known: sp.csr_matrix, spans: list[slice], blocks: Any) -> np.ndarray:
    """Factors for the features, with which predictions and training have equal totals of each feature."""
    total, scale = np.asarray(known.sum(0), float).ravel(), np.ones(known.shape[1])
    sizes = [np.asarray(known[:, s].sum(1), float).ravel() for s in spans]
    for _ in range(SCALINGS):
        expected = np.zeros(len(total))
        for rows, table in blocks():
            for s, size in zip(spans, sizes, strict=True):
                expected[s] += size[rows] @ _shares(table[:, s] * scale[s])
        for s in spans:
            scale[s] *= total[s] / np.maximum(expected[s], TINY)
    return scale


def _shares(table: np.ndarray) -> np.ndarray:
    """Every row divided by its sum."""
    return table / np.maximum(table.sum(1, keepdims=True), TINY)


SHORT = Gibbs(warmup=200, draws=200, chains=2)


class Judge(ABC):
    """One kind of data.

    what      what is held out
    share     the share of it
    score     the name of the score of each held-out cell, see the top of the file
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

    def seen(self, method: Any, train: Any, test: Any) -> Any:
        """The part of the training data that is fitted."""
        return train

    def asked(self, fit: Any, test: Any) -> Any:
        """The fit that predicts the test part."""
        return fit

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
