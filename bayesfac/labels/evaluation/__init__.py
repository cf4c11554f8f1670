"""Cross-validation of several methods on several data sets, with tables, ranks and tests."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bayesfac.choosing.trials import folder_of
from bayesfac.core import checks
from bayesfac.core.calls import Shared, workers
from bayesfac.core.data.reading import plain
from bayesfac.core.errors import BayesfacError
from bayesfac.inference.result import bar
from bayesfac.labels.data.tasks import LABELS, Tasks
from bayesfac.labels.evaluation.methods_and_measures import (
    DECISIONS,
    METRICS,
    name_of,
    read_method,
    read_metric,
)
from bayesfac.labels.evaluation.methods_and_measures import Tuned as Tuned
from bayesfac.labels.evaluation.results import Evaluation as Evaluation
from bayesfac.labels.evaluation.shared_runs import publish
from bayesfac.labels.evaluation.trials import (
    Trial,
    planned,
    read,
    run,
    run_if_free,
    until_all_are_finished,
)
from bayesfac.labels.evaluation.trials import deal as deal


def evaluate(
    methods: Mapping[Any, Any],
    datasets: Mapping[Any, Any],
    *,
    folds: int = 5,
    metrics: Sequence[Any] = DECISIONS,
    seed: int = 0,
    folder: Any = None,
    finished: bool = False,
    shared: bool = False,
    jobs: int | None = None,
    empty: float = 1.0,
    progress: bool = True,
) -> Evaluation:
    """Cross-validate methods on data sets: mean ± sd, ranks, Friedman's and Nemenyi's tests.

    A *cell* is one method, one data set and one fold. Every row is in exactly one test set. Folds are random,
    divide each task evenly, and are the same for all methods.

    A factorization is fitted to the training rows, and predicts the test rows by `fold_in` without their
    labels. A factorization without `fold_in` is fitted to all rows, with the labels of the test rows hidden;
    a note then says "transductive". A factorization predicts the labels whose scores are above a threshold
    (`fit.cut`), which the fit or `Tuned` chooses. Comparators have their own rules. They get features that
    are scaled by the training rows, as for the methods; the setting scaled=False gives them unscaled
    features. Ctrl-C returns the finished cells.

    Parameters
    ----------
    methods : mapping
        name -> method. A method is the name of a method for `Tasks` or of a comparator; a tuple (name,
        settings) or (name, settings, engine); `bf.Tuned(...)` of one of these; or a function (train, test
        without labels) -> scores, rows x labels, as an array in the order of `test.rows` or a DataFrame.
    datasets : mapping
        name -> Tasks with labels 0 and 1 in every row, or (views, labels).
    folds : int
        The number of folds; each fold is the test set once.
    metrics : sequence
        Names of measures in `bf.multilabel`, or functions (Y, predicted) -> float. Measures of
        probabilities are NaN for methods whose scores are not probabilities.
    seed : int
        The seed of the folds, of the rows held out for tuning, and of every fit.
    folder : path, optional
        Write each finished cell into a file there. A second call runs only the other cells. A function is
        recognised by its name and code. If other data that it uses change, give it another name in `methods`.
    finished : bool
        Run nothing, and show the cells that `folder` has at present, for example of a run in another process.
    shared : bool
        Let other processes run cells. The plan of the run is written to `folder`, and
        `bayesfac worker FOLDER` runs cells on any machine that has access to the folder. All methods and
        measures must be names.
    jobs : int, optional
        The number of processes; -1 means all cores. Without it `joblib.parallel_config` decides, which can
        also use other machines (`docs/machines.md`). Results do not depend on it.
    empty : float
        The score of a row (in `macro_f1` of a label) with no true and no predicted label.

    Examples
    --------
    >>> import bayesfac as bf
    >>> data, _ = bf.datasets.make_tasks(40, 1, labelled=1.0, seed=0)
    >>> found = bf.evaluate({"near": "ml_knn", "linear": "ls_ml"}, {"made up": data}, folds=2)
    >>> found.mean("hamming_loss").shape
    (1, 2)
    """
    wanted = _metrics(metrics)
    runners, tasks = _named("methods", methods, read_method), _named("datasets", datasets, _data)
    checks.seeded(seed)
    workers(jobs)
    if isinstance(empty, bool | str) or not 0 <= empty <= 1:
        raise ValueError(f"Expected empty within [0, 1], got {empty!r}")
    dealt = {name: deal(data, folds, seed, name) for name, data in tasks.items()}
    own = tuple(metric for metric in wanted if callable(metric))
    folds, seed = int(folds), int(seed)  # JSON takes no numbers of NumPy
    settings = {"folds": folds, "seed": seed, "empty": float(empty), "metrics": own}
    # with shared=True the plan makes the folder
    if finished and (folder is None or not (shared or Path(folder).is_dir())):
        raise ValueError(f"Expected a folder in which finished cells are, got {folder}")
    cells = planned(tasks, runners, settings, folder_of(folder, "cells"))
    done = _finished(cells)
    # all measures with a name are kept, so that another choice of them needs no other run
    how = (seed, (*METRICS, *own), empty)
    host = {name: Shared(data) for name, data in tasks.items()}
    if shared:
        if folder is None:
            raise ValueError(
                "Expected a folder that other processes see, with shared=True, got None"
            )
        publish(Path(folder), cells, tasks, runners, settings)
    one = run_if_free if shared else run
    calls: list[tuple] = [
        (one, i, cell, host[cell.dataset], runners[cell.method], dealt[cell.dataset], *how)
        for i, cell in enumerate(cells)
        if i not in done and not finished
    ]
    with bar(progress, len(cells), "evaluate") as shown:
        shown.update(len(done))
        try:
            for i, result in until_all_are_finished(calls, jobs):
                done[i] = result
                shown.update(1)
        except KeyboardInterrupt:
            done = _finished(cells) | done
    names = tuple(map(name_of, wanted))
    frame = _frame({cells[i]: done[i] for i in sorted(done)}, names)
    return Evaluation(frame, tuple(tasks), tuple(runners), names, folds, len(done) < len(cells))


def _finished(cells: Sequence[Trial]) -> dict[int, dict[str, Any]]:
    """The results on disk, by the number of the cell."""
    return {i: read(cell.path) for i, cell in enumerate(cells) if cell.path and cell.path.exists()}


def _frame(results: Mapping[Trial, Mapping[str, Any]], names: Sequence[str]) -> pd.DataFrame:
    """A row for each finished cell."""
    rows = [
        (c.dataset, c.method, c.fold, *(own["scores"][name] for name in names), own["seconds"],
         own["chosen"], own["threshold"], "; ".join(own["notes"]))
        for c, own in results.items()
    ]  # fmt: skip
    columns = ["dataset", "method", "fold", *names, "seconds", "chosen", "threshold", "notes"]
    numbers = dict.fromkeys([*names, "seconds", "threshold"], float)
    return pd.DataFrame(rows, columns=columns).astype(numbers)


# -- checks -------------------------------------------------------------------------------------
def _named(what: str, entries: Any, read: Callable[[Any], Any]) -> dict[str, Any]:
    """Read every entry of a mapping; an error says which entry is wrong."""
    if not isinstance(entries, Mapping):
        raise TypeError(f"Expected {what} as name -> ..., got {type(entries).__name__}")
    if not entries:
        raise ValueError(f"Expected at least one of the {what}, got none")
    checked = {}
    for name, one in entries.items():
        if not isinstance(name, str):
            raise TypeError(f"Expected {what} named by text, got {name!r}")
        try:
            checked[name] = read(one)
        except (TypeError, ValueError, BayesfacError) as wrong:
            raise type(wrong)(f"{what} {name!r}: {wrong}") from wrong
    return checked


def _data(data: Any) -> Tasks:
    if isinstance(data, tuple) and len(data) == 2:
        data = Tasks(*data)
    if not isinstance(data, Tasks):
        raise TypeError(f"Expected Tasks or (views, labels), got {type(data).__name__}")
    if LABELS not in data.blocks:
        raise ValueError("Expected labels of every row, got none at all")
    if not data.labelled.all():
        row = plain(data.rows[int(np.argmin(data.labelled))])
        raise ValueError(
            f"Expected labels of every row, got none of row {row!r}: data.take(data.labelled) drops such rows"
        )
    if not data.known.all():
        raise ValueError("Expected every label of every row, got NaN for some")
    if not data.binary:
        raise ValueError("Expected labels 0 and 1, got other numbers among them")
    return data


def _metrics(metrics: Any) -> tuple[Any, ...]:
    """The names and functions, checked; no name may occur twice."""
    if isinstance(metrics, str) or not isinstance(metrics, Sequence) or not metrics:
        raise TypeError(f"Expected a list of metrics, got {metrics!r}")
    known = tuple(read_metric(metric) for metric in metrics)
    names = [name_of(metric) for metric in known]
    if again := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"Expected metrics by distinct names, got {again[0]!r} twice")
    return known
