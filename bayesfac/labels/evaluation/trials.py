"""One trial: a method is fitted to some rows of a data set and scored on other rows.

A trial is a cell of a cross-validation. Other processes may run other cells at the same time; a finished cell
is stored in a file whose name is a digest of everything that determines the result.
"""

import inspect
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
import scipy.sparse as sp

from bayesfac.api import fit as run_fit
from bayesfac.choosing.trials import Trial, heard, place, read, write
from bayesfac.core import checks
from bayesfac.core.calls import finished_calls
from bayesfac.core.data.reading import check_finite
from bayesfac.core.errors import BayesfacError
from bayesfac.core.keys import own_code
from bayesfac.core.laws.units import cut_of
from bayesfac.core.locks import lock
from bayesfac.core.method import lookup
from bayesfac.core.precision import precise
from bayesfac.labels import comparators, multilabel
from bayesfac.labels.data.scaling import rescaled, scaled
from bayesfac.labels.data.tasks import LABELS, Tasks
from bayesfac.labels.evaluation.methods_and_measures import (
    DECISIONS,
    METRICS,
    SMALLER,
    Runner,
    name_of,
    options_of,
)
from bayesfac.labels.laws import HALF

CELLS = 2_000_000  # rows x labels that are predicted at once


# -- scores of new rows -------------------------------------------------------------------------
class Rows(NamedTuple):
    """Masks over the rows of a data set."""

    train: np.ndarray
    test: np.ndarray


class Scores(NamedTuple):
    """Scores of the test rows, rows x labels, in the order of the data; and notes.

    `score` is used for decisions and `ranked` for rankings. Both are equal, except for a factorization, whose
    `ranked` has the scores before clipping. `cut` is the score above which a factorization predicts a label.
    """

    score: np.ndarray
    ranked: np.ndarray
    notes: list[str]
    cut: float = HALF


def scores(runner: Runner, data: Tasks, rows: Rows, seed: int) -> Scores:
    """Fit a method to the training rows, and compute its scores of the test rows."""
    ask = {"factorization": _of_fit, "comparator": _of_comparator, "function": _of_function}
    told = ask[runner.kind](runner, data, rows, seed)
    shape = int(rows.test.sum()), len(data.labels)
    if told.score.shape != shape:
        raise ValueError(
            f"Expected scores of {shape[0]} rows x {shape[1]} labels, got {told.score.shape}"
        )
    check_finite(told.ranked, "scores")
    return told


def _of_fit(runner: Runner, data: Tasks, rows: Rows, seed: int) -> Scores:
    method, notes = lookup(runner.what), []
    if method.fold_in is None:
        seen = data.take(rows.train | rows.test, labelled=rows.train)
        notes = ["transductive: the fit saw the views of the test rows"]
    else:
        seen = data.take(rows.train)
    fit = run_fit(method, seen, runner.engine, seed=seed, progress=False, **runner.hyper)
    if fit.partial:
        raise KeyboardInterrupt("interrupted during a fit: a part of it is no finished cell")
    notes += fit.result.notes
    if method.fold_in is not None:
        fit = fit.fold_in(_unlabelled(data, rows.test))
    names, labels = np.asarray(data.rows[rows.test]), np.asarray(data.labels)
    width, parts, ranked = max(1, CELLS // len(labels)), [], []
    for at in range(0, len(names), width):
        block = names[at : at + width]
        query = {"row": np.repeat(block, len(labels)), "label": np.tile(labels, len(block))}
        predicted = fit.predict(pd.DataFrame(query))
        parts.append(predicted.mean.reshape(len(block), -1))
        ranked.append(predicted.score.reshape(len(block), -1))
    cut = cut_of(fit.hyper)
    return Scores(np.concatenate(parts), np.concatenate(ranked), notes, cut)


def _of_comparator(runner: Runner, data: Tasks, rows: Rows, seed: int) -> Scores:
    function, options = comparators.NAMED[runner.what], dict(runner.hyper)
    if "seed" in options_of(runner.what):
        options.setdefault("seed", seed)
    whole = data.pooled()  # every view in every task
    if options.pop("scaled", True) and not whole.host.scales:  # as the methods do
        whole = rescaled(whole, scaled(whole.take(rows.train)).host.scales)
    Y = whole[LABELS].toarray()
    views = {view: whole[view] for view in whole.names}
    parts: list[Any] = [{view: x[at] for view, x in views.items()} for at in rows]
    if next(iter(inspect.signature(function).parameters)) != "views":
        parts = [sp.hstack(list(part.values())).tocsr() for part in parts]
    score = np.asarray(function(parts[0], Y[rows.train], parts[1], **options), float)
    return Scores(score, score, [])


def _of_function(runner: Runner, data: Tasks, rows: Rows, seed: int) -> Scores:
    train, test = data.take(rows.train), _unlabelled(data, rows.test)
    score = runner.what(train, test, **runner.hyper)
    if isinstance(score, pd.DataFrame):
        if set(score.index) != set(test.rows) or set(score.columns) != set(data.labels):
            raise ValueError("Expected scores of the test rows and all labels by name, got others")
        score = score.loc[data.rows[rows.test], data.labels]
    score = np.asarray(score, float)
    return Scores(score, score, [])


def _unlabelled(data: Tasks, rows: np.ndarray) -> Tasks:
    return data.take(rows, labelled=np.zeros(data.n_rows, bool))


# -- decisions and measures ---------------------------------------------------------------------
def decisions(
    runner: Runner, score: np.ndarray, threshold: float | None, cut: float = HALF
) -> np.ndarray:
    """Decisions 0 and 1: by the threshold (inclusive), or without it above the cut or by the own rule."""
    if runner.kind == "comparator":
        return comparators.as_labels(score, runner.what, threshold)
    return (score > cut if threshold is None else score >= threshold).astype(int)


def probabilities(runner: Runner, score: np.ndarray) -> np.ndarray | None:
    """The scores if they are probabilities, otherwise None."""
    sure = runner.kind == "comparator" and runner.what in comparators.PROBABILITIES
    return np.clip(score, 0, 1) if sure or runner.kind == "factorization" else None


def measured(
    metrics: Sequence[Any], runner: Runner, Y: np.ndarray, told: Scores, threshold: float | None,
    empty: float,
) -> dict[str, float]:  # fmt: skip
    """Metric -> value; NaN where the metric is not defined."""
    predicted = decisions(runner, told.score, threshold, told.cut)
    named: dict[str, float] = {}
    if any(metric in DECISIONS for metric in metrics):
        named |= multilabel.scores(Y, predicted, empty=empty)
    if any(metric in METRICS[len(DECISIONS) :] for metric in metrics):
        probability = probabilities(runner, told.score)
        named |= multilabel.scores(Y, score=told.ranked, probability=probability, empty=empty)
    return {
        name_of(m): float(m(Y, predicted)) if callable(m) else named.get(m, math.nan)
        for m in metrics
    }


def choose(
    runner: Runner,
    data: Tasks,
    train: np.ndarray,
    seed: Sequence[int],
    empty: float,
    notes: list[str],
) -> tuple[dict[str, Any], float | None]:
    """The settings and the threshold with the best score on rows that are held out from the training rows.
    Settings that the method refuses on these data become notes."""
    if (tuned := runner.tuned) is None:
        return {}, None
    options = list(tuned.settings())
    if len(options) == 1 and tuned.threshold is False:
        return options[0], None
    held, rng = np.zeros(data.n_rows, bool), np.random.default_rng(seed)
    for span in data.bounds:
        own = rng.permutation(np.flatnonzero(train[span]) + span.start)
        held[own[: min(max(1, round(tuned.share * len(own))), len(own) - 1)]] = True
    if not held.any():
        raise ValueError(
            "Expected a task with at least two training rows to hold some out, got none"
        )
    rows, truth = Rows(train & ~held, held), data[LABELS][held].toarray()
    metric = tuned.metric
    sign = -1 if metric in SMALLER else 1
    best, chosen = -math.inf, None
    for values, told in _tried(runner, options, data, rows, seed[0], notes):
        for threshold in tuned.thresholds(truth, told.score):
            (value,) = measured([metric], runner, truth, told, threshold, empty).values()
            # the first choice counts even if its loss is infinite
            if sign * value > best or (chosen is None and sign * value == best):
                best, chosen = sign * value, (values, threshold)
    if chosen is None:
        raise ValueError(
            f"Expected a measure that the held-out rows have, got no {name_of(metric)}"
        )
    return chosen


def _tried(
    runner: Runner, options: Sequence[dict[str, Any]], data: Tasks, rows: Rows, seed: int, notes: list[str]
) -> Iterator[tuple[dict[str, Any], Scores]]:  # fmt: skip
    """Settings and the scores that the method gives with them."""
    refused = []
    for values in options:
        try:
            told = scores(runner._replace(hyper=runner.hyper | values), data, rows, seed)
        except ValueError as error:
            if runner.kind == "function":  # probably a mistake in the function
                raise
            refused.append(error)
            notes.append(f"while tuning: {_listed(values)} refused: {error}")
        else:
            yield values, told
    if len(refused) == len(options):
        raise ValueError(f"Expected settings that the data allow, got none: {refused[-1]}")


# -- the trial ----------------------------------------------------------------------------------
def trial(
    data: Tasks, runner: Runner, fold: np.ndarray, number: int, seed: int, metrics: Sequence[Any],
    empty: float,
) -> dict[str, Any]:  # fmt: skip
    """Fit to all folds but one; returns scores, seconds, the chosen settings and threshold, and notes."""
    begun = time.perf_counter()
    rows, notes = Rows(fold != number, fold == number), list[str]()
    with heard(notes, "while tuning: "):
        values, threshold = choose(runner, data, rows.train, (seed, number), empty, notes)
    with heard(notes):
        told = scores(runner._replace(hyper=runner.hyper | values), data, rows, seed)
    truth = data[LABELS][rows.test].toarray()
    return {
        "scores": measured(metrics, runner, truth, told, threshold, empty),
        "seconds": time.perf_counter() - begun,
        "chosen": _listed(values),
        "threshold": threshold,
        "notes": list(dict.fromkeys([*notes, *told.notes])),
    }


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


# -- a cell: one method, one data set and one fold, in a file of its own --------------------------
PAUSE = 2.0  # seconds between two checks of cells that other processes run


def planned(
    tasks: Mapping[str, Tasks], runners: Mapping[str, Runner], settings: dict[str, Any],
    folder: Path | None,
) -> list[Trial]:  # fmt: skip
    """Every trial; with a folder also the file of its result."""
    trials = [Trial(d, m, k) for d in tasks for m in runners for k in range(settings["folds"])]
    if folder is None:
        return trials
    settings = settings | {"bayesfac": version("bayesfac"), "float64": precise()}
    data = {name: own.fingerprint() for name, own in tasks.items()}
    # the name of a function is in the key too: two functions may have the same code
    how = {
        name: [name if run.kind == "function" else "", own_code(run.what), *run[1:]]
        for name, run in runners.items()
    }
    kept = []
    for one in trials:
        key = {"data": data[one.dataset], "method": how[one.method], "fold": one.fold, **settings}
        kept.append(one._replace(path=place(folder, key)))
    return kept


def deal(data: Tasks, folds: int, seed: int, name: str = "data") -> np.ndarray:
    """The fold of every row: random within each task, so that each fold has its share of each task.

    Examples
    --------
    >>> deal(Tasks({"x": [[1], [2], [3], [4]]}, [[0], [1], [0], [1]]), 2, seed=0).tolist()
    [1, 0, 0, 1]
    """
    checks.whole_number("folds", folds, 2, data.n_rows, f" (rows of {name!r})")
    rng, fold = np.random.default_rng(seed), np.zeros(data.n_rows, int)
    order = [rng.permutation(np.arange(span.start, span.stop)) for span in data.bounds]
    fold[np.concatenate(order)] = np.arange(data.n_rows) % folds
    return fold


def run(
    i: int, cell: Trial, data: Tasks, runner: Runner, fold: np.ndarray, *how: Any
) -> tuple[int, dict[str, Any] | None]:
    """Run one cell and store its result."""
    try:
        result = trial(data, runner, fold, cell.fold, *how)
    except Exception as wrong:
        where = f"{cell.method!r} on {cell.dataset!r}, fold {cell.fold}"
        raise BayesfacError(f"{where}: {type(wrong).__name__}: {wrong}") from wrong
    if cell.path is not None:
        write(cell.path, cell, result)
    if runner.tuned is not None:  # it compiled hundreds of programs for shapes of this fold
        jax.clear_caches()
    return i, result


def run_if_free(i: int, cell: Trial, *rest: Any) -> tuple[int, dict[str, Any] | None]:
    """Run one cell, unless another process has finished it; None while another process runs it."""
    assert cell.path is not None
    with lock(place_of_lock(cell.path)) as mine:
        if cell.path.exists():
            return i, read(cell.path)
        return run(i, cell, *rest) if mine else (i, None)


def place_of_lock(path: Path) -> Path:
    """The lock of the cell with this file."""
    return path.parent / "locks" / f"{path.stem}.lock"


def until_all_are_finished(
    calls: list[tuple[Callable, int, Any]], jobs: int | None
) -> Iterator[tuple[int, Any]]:  # fmt: skip
    """Yield results when they are finished, by any process; cells of dead processes are run here."""
    while calls:
        done = set()
        for i, result in finished_calls(calls, jobs if len(calls) > 1 else 1):
            if result is not None:
                done.add(i)
                yield i, result
        calls = [call for call in calls if call[1] not in done]
        if calls and not done:
            time.sleep(PAUSE)
