"""One cell of a cross-validation: a method, a data set and a fold; alone, or beside other processes."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bayesfac.core import checks
from bayesfac.core.calls import finished_calls
from bayesfac.core.data.tasks import Tasks
from bayesfac.core.errors import BayesfacError
from bayesfac.core.locks import lock
from bayesfac.evaluation.kept_trials import Trial, read, write
from bayesfac.evaluation.methods_and_measures import Runner
from bayesfac.evaluation.trials import trial

PAUSE = 2.0  # seconds between two looks at cells that other processes have


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


def run(
    i: int, cell: Trial, data: Tasks, runner: Runner, fold: np.ndarray, *how: Any
) -> tuple[int, dict[str, Any] | None]:
    """Run one cell and keep its result."""
    try:
        result = trial(data, runner, fold, cell.fold, *how)
    except Exception as wrong:
        where = f"{cell.method!r} on {cell.dataset!r}, fold {cell.fold}"
        raise BayesfacError(f"{where}: {type(wrong).__name__}: {wrong}") from wrong
    if cell.path is not None:
        write(cell.path, cell, result)
    if runner.tuned is not None:  # hundreds of programs, for shapes that no other fold has
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
    """Results as they come, also of cells that other processes run; the cells of dead ones are taken over."""
    while calls:
        done = set()
        for i, result in finished_calls(calls, jobs if len(calls) > 1 else 1):
            if result is not None:
                done.add(i)
                yield i, result
        calls = [call for call in calls if call[1] not in done]
        if calls and not done:
            time.sleep(PAUSE)
