"""Cross-validation of several methods on several data sets: tables, ranks and tests."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from bayesfac.core.data.reading import plain
from bayesfac.core.data.tasks import LABELS, Tasks
from bayesfac.core.errors import BayesfacError
from bayesfac.evaluation.kept_trials import Cell, place, precise, read, write
from bayesfac.evaluation.methods_and_measures import (
    DECISIONS,
    METRICS,
    Way,
    name_of,
    read_metric,
    read_way,
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
    factorization is fitted to the training rows and predicts the others by `fold_in`, with their labels
    hidden; one without `fold_in` is fitted to all rows, and a note says "transductive". Scores above one
    half are labels, unless `Tuned` chooses a threshold; comparators have their own rules. Ctrl-C gives
    what there is.

    Parameters
    ----------
    methods : mapping
        name -> a method for `Tasks` or a comparator by its name; (name, settings), (name, settings,
        engine); `bf.Tuned(...)` of one of these; or a function (train, test without labels) -> scores,
        rows x labels, as an array in the order of `test.rows` or a DataFrame.
    datasets : mapping
        name -> Tasks with labels 0 and 1 in every row, or (views, labels).
    folds : int
        Parts that each are tested on, once.
    metrics : sequence
        Names of measures in `bf.multilabel`, or functions (Y, predicted) -> float. Measures of
        probabilities are NaN where scores are none.
    seed : int
        Of the folds, of what is held out for tuning, and of every fit.
    folder : path, optional
        Where each finished cell is kept, in a file of its own: a second call goes on from there. A function
        is known by its name and code, not by what it refers to: change its label when that has changed.
    finished : bool
        Run nothing: show what `folder` has by now, as of a long run in another process.
    jobs : int
        Processes; -1 takes all cores. Results do not depend on it.
    empty : float
        What a row (a label in `macro_f1`) counts with nothing true and nothing predicted.

    Examples
    --------
    >>> import bayesfac as bf
    >>> data, _ = bf.datasets.make_tasks(40, 1, labelled=1.0, seed=0)
    >>> found = bf.evaluate({"near": "ml_knn", "linear": "ls_ml"}, {"made up": data}, folds=2)
    >>> found.mean("hamming_loss").shape
    (1, 2)
    """
    wanted = _metrics(metrics)
    ways, tasks = _named("methods", methods, read_way), _named("datasets", datasets, _data)
    _whole("seed", seed, 0)
    if jobs != -1:
        _whole("jobs", jobs, 1)
    if isinstance(empty, bool | str) or not 0 <= empty <= 1:
        raise ValueError(f"Expected empty within [0, 1], got {empty!r}")
    dealt = {name: deal(data, folds, seed, name) for name, data in tasks.items()}
    own = tuple(metric for metric in wanted if callable(metric))
    settings = {"folds": folds, "seed": seed, "empty": float(empty), "metrics": own}
    if finished and (folder is None or not Path(folder).is_dir()):
        raise ValueError(f"Expected a folder in which finished cells are, got {folder}")
    cells = place(tasks, ways, settings, _folder(folder))
    done = _finished(cells)
    # every measure that has a name is kept: another choice of them needs no other run
    how: dict[str, Any] = {"seed": seed, "metrics": (*METRICS, *own), "empty": empty}
    how["precise"] = precise()
    host = {name: jax.tree.map(np.asarray, data) for name, data in tasks.items()}
    calls = [
        partial(_run, i, cell, host[cell.dataset], ways[cell.method], dealt[cell.dataset], **how)
        for i, cell in enumerate(cells)
        if i not in done and not finished
    ]
    with bar(progress, len(cells), "evaluate") as shown:
        shown.update(len(done))
        try:
            for i, found in _results(calls, jobs):
                done[i] = found
                shown.update(1)
        except KeyboardInterrupt:
            done = _finished(cells) | done
    names = tuple(map(name_of, wanted))
    frame = _frame({cells[i]: done[i] for i in sorted(done)}, names)
    return Evaluation(frame, tuple(tasks), tuple(ways), names, folds, len(done) < len(cells))


def deal(data: Tasks, folds: int, seed: int, name: str = "data") -> np.ndarray:
    """The fold of every row: at random, task by task, so that each has its share in each fold.

    Examples
    --------
    >>> deal(Tasks({"x": [[1], [2], [3], [4]]}, [[0], [1], [0], [1]]), 2, seed=0).tolist()
    [1, 0, 0, 1]
    """
    _whole("folds", folds, 2, data.n_rows, f" (rows of {name!r})")
    rng, fold = np.random.default_rng(seed), np.zeros(data.n_rows, int)
    order = [rng.permutation(np.arange(span.start, span.stop)) for span in data.bounds]
    fold[np.concatenate(order)] = np.arange(data.n_rows) % folds
    return fold


# -- running the cells --------------------------------------------------------------------------
def _results(calls: Sequence[Callable[[], Any]], jobs: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """What the calls return, as it comes."""
    if jobs == 1 or len(calls) < 2:
        for call in calls:
            yield call()
        return
    from joblib import Parallel, delayed

    pool = Parallel(jobs, backend="loky", batch_size=1, return_as="generator_unordered")
    yield from pool(delayed(call)() for call in calls)


def _run(
    i: int, cell: Cell, data: Tasks, way: Way, fold: np.ndarray, *, precise: bool, **how: Any
) -> tuple[int, dict[str, Any]]:
    """One cell, perhaps in a process that knows nothing of this one's precision."""
    try:
        with jax.enable_x64(precise):
            found = trial(jax.tree.map(jnp.asarray, data), way, fold, cell.fold, **how)
    except Exception as wrong:
        where = f"{cell.method!r} on {cell.dataset!r}, fold {cell.fold}"
        raise BayesfacError(f"{where}: {type(wrong).__name__}: {wrong}") from wrong
    if cell.path is not None:
        write(cell.path, cell, found)
    if way.tuned is not None:  # hundreds of programs, for shapes that no other fold has
        jax.clear_caches()
    return i, found


def _finished(cells: Sequence[Cell]) -> dict[int, dict[str, Any]]:
    """What is on disk."""
    return {i: read(cell.path) for i, cell in enumerate(cells) if cell.path and cell.path.exists()}


def _frame(found: Mapping[Cell, Mapping[str, Any]], names: Sequence[str]) -> pd.DataFrame:
    """A row for each finished cell."""
    rows = [
        (c.dataset, c.method, c.fold, *(own["scores"][name] for name in names), own["seconds"],
         own["chosen"], own["threshold"], "; ".join(own["notes"]))
        for c, own in found.items()
    ]  # fmt: skip
    columns = ["dataset", "method", "fold", *names, "seconds", "chosen", "threshold", "notes"]
    numbers = dict.fromkeys([*names, "seconds", "threshold"], float)
    return pd.DataFrame(rows, columns=columns).astype(numbers)


# -- checks -------------------------------------------------------------------------------------
def _named(what: str, given: Any, read: Callable[[Any], Any]) -> dict[str, Any]:
    """Each of them read; an error says which."""
    if not isinstance(given, Mapping):
        raise TypeError(f"Expected {what} as name -> ..., got {type(given).__name__}")
    if not given:
        raise ValueError(f"Expected at least one of the {what}, got none")
    found = {}
    for name, one in given.items():
        if not isinstance(name, str):
            raise TypeError(f"Expected {what} named by text, got {name!r}")
        try:
            found[name] = read(one)
        except (TypeError, ValueError, BayesfacError) as wrong:
            raise type(wrong)(f"{what} {name!r}: {wrong}") from wrong
    return found


def _data(given: Any) -> Tasks:
    if isinstance(given, tuple) and len(given) == 2:
        given = Tasks(*given)
    if not isinstance(given, Tasks):
        raise TypeError(f"Expected Tasks or (views, labels), got {type(given).__name__}")
    if LABELS not in given.blocks:
        raise ValueError("Expected labels of every row, got none at all")
    if not given.labelled.all():
        row = plain(given.rows[int(np.argmin(given.labelled))])
        raise ValueError(
            f"Expected labels of every row, got none of row {row!r}: data.take(data.labelled) has the others"
        )
    if not given.known.all():
        raise ValueError("Expected every label of every row, got NaN for some")
    if not given.binary:
        raise ValueError("Expected labels 0 and 1, got other numbers among them")
    return given


def _metrics(given: Any) -> tuple[Any, ...]:
    """Names and functions, told apart by name."""
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise TypeError(f"Expected a list of metrics, got {given!r}")
    found = tuple(read_metric(metric) for metric in given)
    names = [name_of(metric) for metric in found]
    if again := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"Expected metrics by distinct names, got {again[0]!r} twice")
    return found


def _whole(name: str, value: Any, least: int, most: float = math.inf, why: str = "") -> None:
    if isinstance(value, bool) or not hasattr(value, "__index__") or not least <= value <= most:
        limit = f"between {least} and {most}{why}" if most < math.inf else f"from {least} on"
        raise ValueError(f"Expected {name} to be a whole number {limit}, got {value!r}")


def _folder(given: Any) -> Path | None:
    if given is None:
        return None
    folder = Path(given)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"Expected a folder for finished cells, got the file {folder}")
    return folder
