"""Cross-validation of several methods on several data sets: tables, ranks and tests."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from bayesfac.core import checks
from bayesfac.core.data.reading import plain
from bayesfac.core.data.tasks import LABELS, Tasks
from bayesfac.core.errors import BayesfacError
from bayesfac.evaluation.kept_trials import Trial, planned, precise, read, write
from bayesfac.evaluation.methods_and_measures import (
    DECISIONS,
    METRICS,
    Runner,
    name_of,
    read_method,
    read_metric,
)
from bayesfac.evaluation.methods_and_measures import Tuned as Tuned
from bayesfac.evaluation.results import Evaluation as Evaluation
from bayesfac.evaluation.trials import trial
from bayesfac.inference.result import bar


def evaluate(
    methods: Mapping[Any, Any],
    datasets: Mapping[Any, Any],
    *,
    folds: int = 5,
    metrics: Sequence[Any] = DECISIONS,
    seed: int = 0,
    folder: Any = None,
    finished: bool = False,
    jobs: int = 1,
    empty: float = 1.0,
    progress: bool = True,
) -> Evaluation:
    """Cross-validate methods on data sets: mean ± sd, ranks, Friedman's and Nemenyi's tests.

    Every row is tested once. Folds are random, dealt task by task, and the same for all methods. A
    factorization is fitted to the training rows and predicts the test rows by `fold_in`, with their labels
    hidden. A factorization without `fold_in` is fitted to all rows, and a note says "transductive". Scores
    above one half are labels, unless `Tuned` chooses a threshold; comparators have rules of their own.
    Ctrl-C returns the finished cells.

    Parameters
    ----------
    methods : mapping
        name -> a method for `Tasks` or a comparator by its name; (name, settings), (name, settings,
        engine); `bf.Tuned(...)` of one of these; or a function (train, test without labels) -> scores,
        rows x labels, as an array in the order of `test.rows` or a DataFrame.
    datasets : mapping
        name -> Tasks with labels 0 and 1 in every row, or (views, labels).
    folds : int
        The number of parts; each part is the test set once.
    metrics : sequence
        Names of measures in `bf.multilabel`, or functions (Y, predicted) -> float. Measures of
        probabilities are NaN for methods whose scores are no probabilities.
    seed : int
        Seeds the folds, the rows held out for tuning, and every fit.
    folder : path, optional
        Keep each finished cell there, in a file of its own; a second call runs the other cells only. A
        function is recognised by its name and code, not by data it refers to: when these change, give the
        function another name in `methods`.
    finished : bool
        Run nothing: show the cells that `folder` has by now, for example of a run in another process.
    jobs : int
        Processes; -1 takes all cores. Results do not depend on it.
    empty : float
        The score of a row (in `macro_f1` of a label) with nothing true and nothing predicted.

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
    checks.whole_number("seed", seed, 0)
    if jobs != -1:
        checks.whole_number("jobs", jobs, 1)
    if isinstance(empty, bool | str) or not 0 <= empty <= 1:
        raise ValueError(f"Expected empty within [0, 1], got {empty!r}")
    dealt = {name: deal(data, folds, seed, name) for name, data in tasks.items()}
    own = tuple(metric for metric in wanted if callable(metric))
    settings = {"folds": folds, "seed": seed, "empty": float(empty), "metrics": own}
    if finished and (folder is None or not Path(folder).is_dir()):
        raise ValueError(f"Expected a folder in which finished cells are, got {folder}")
    cells = planned(tasks, runners, settings, _folder(folder))
    done = _finished(cells)
    # all measures with a name are kept, so that another choice of them needs no other run
    how: dict[str, Any] = {"seed": seed, "metrics": (*METRICS, *own), "empty": empty}
    how["precise"] = precise()
    host = {name: jax.tree.map(np.asarray, data) for name, data in tasks.items()}
    calls = [
        partial(_run, i, cell, host[cell.dataset], runners[cell.method], dealt[cell.dataset], **how)
        for i, cell in enumerate(cells)
        if i not in done and not finished
    ]
    with bar(progress, len(cells), "evaluate") as shown:
        shown.update(len(done))
        try:
            for i, result in finished_calls(calls, jobs if len(calls) > 1 else 1):
                done[i] = result
                shown.update(1)
        except KeyboardInterrupt:
            done = _finished(cells) | done
    names = tuple(map(name_of, wanted))
    frame = _frame({cells[i]: done[i] for i in sorted(done)}, names)
    return Evaluation(frame, tuple(tasks), tuple(runners), names, folds, len(done) < len(cells))


def deal(data: Tasks, folds: int, seed: int, name: str = "data") -> np.ndarray:
    """The fold of every row: at random, task by task, so that each fold has its share of each task.

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


# -- running the cells --------------------------------------------------------------------------
def finished_calls(calls: Iterable[Callable[[], Any]], jobs: int) -> Iterator[Any]:
    """The results of the calls, in the order in which they finish; a call is asked for when it can begin."""
    if jobs == 1:
        for call in calls:
            yield call()
        return
    from joblib import Parallel, delayed

    pool = Parallel(
        jobs, backend="loky", batch_size=1, pre_dispatch="n_jobs", return_as="generator_unordered"
    )
    yield from pool(delayed(call)() for call in calls)


def _run(
    i: int, cell: Trial, data: Tasks, runner: Runner, fold: np.ndarray, *, precise: bool, **how: Any
) -> tuple[int, dict[str, Any]]:
    """Run one cell; `precise` sets the precision, which another process would not know."""
    try:
        with jax.enable_x64(precise):
            result = trial(jax.tree.map(jnp.asarray, data), runner, fold, cell.fold, **how)
    except Exception as wrong:
        where = f"{cell.method!r} on {cell.dataset!r}, fold {cell.fold}"
        raise BayesfacError(f"{where}: {type(wrong).__name__}: {wrong}") from wrong
    if cell.path is not None:
        write(cell.path, cell, result)
    if runner.tuned is not None:  # hundreds of programs, for shapes that no other fold has
        jax.clear_caches()
    return i, result


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
    """Names and functions; no name may occur twice."""
    if isinstance(metrics, str) or not isinstance(metrics, Sequence) or not metrics:
        raise TypeError(f"Expected a list of metrics, got {metrics!r}")
    known = tuple(read_metric(metric) for metric in metrics)
    names = [name_of(metric) for metric in known]
    if again := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"Expected metrics by distinct names, got {again[0]!r} twice")
    return known


def _folder(path: Any) -> Path | None:
    folder = None if path is None else Path(path)
    if folder is not None and folder.exists() and not folder.is_dir():
        raise ValueError(f"Expected a folder for finished cells, got the file {folder}")
    return folder
