"""Run one cell of a cross-validation: one method, one data set and one fold.

Other processes may run other cells at the same time. A finished cell is stored in a file whose name is a
digest of everything that determines the result.
"""

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from bayesfac.core import checks
from bayesfac.core.calls import finished_calls
from bayesfac.core.data.tasks import Tasks
from bayesfac.core.errors import BayesfacError, CorruptFile
from bayesfac.core.files import atomic
from bayesfac.core.keys import as_json, own_code
from bayesfac.core.locks import lock
from bayesfac.core.precision import precise
from bayesfac.search.evaluation.methods_and_measures import Runner
from bayesfac.search.evaluation.trials import trial

KIND = "finished cell of bf.evaluate, version 1"
PAUSE = 2.0  # seconds between two checks of cells that other processes run


class Trial(NamedTuple):
    """One data set, one method, one fold, and the file of the result (None: it is not stored)."""

    dataset: str
    method: str
    fold: int
    path: Path | None = None


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


# -- finished cells on disk ---------------------------------------------------------------------
def folder_of(path: Any, what: str) -> Path | None:
    """The folder in which finished cells or candidates are stored, if there is one."""
    folder = None if path is None else Path(path)
    if folder is not None and folder.exists() and not folder.is_dir():
        raise ValueError(f"Expected a folder for finished {what}, got the file {folder}")
    return folder


def place(folder: Path, key: Mapping[str, Any]) -> Path:
    """The file for the result that `key` determines."""
    name = hashlib.sha256(_text(as_json(key)).encode()).hexdigest()[:32]
    return folder / f"{name}.json"


def write(path: Path, one: Trial, result: Mapping[str, Any]) -> None:
    """Store the result of a trial."""
    # JSON has no NaN and no infinity
    scores = {n: v if math.isfinite(v) else str(v) for n, v in result["scores"].items()}
    result = {**result, "scores": scores}
    labels = {"dataset": one.dataset, "method": one.method, "fold": one.fold}
    whole = {"what": KIND, **labels, "result": result, "sha256": _sha(path, result)}
    with atomic(path) as part:
        part.write_text(json.dumps(whole, indent=1, allow_nan=False), encoding="utf-8")


def read(path: Path) -> dict[str, Any]:
    """The result that `write` stored."""
    reason = None
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
        fine = whole["what"] == KIND and whole["sha256"] == _sha(path, whole["result"])
    except (ValueError, LookupError, TypeError) as wrong:  # no text, no JSON, or other JSON
        fine, reason = False, wrong
    if not fine:
        raise CorruptFile(
            f"Expected a finished cell of bf.evaluate or bf.auto in {path}, got a damaged or foreign file: "
            "without it the cell is run again"
        ) from reason
    result = whole["result"]
    return {**result, "scores": {name: float(value) for name, value in result["scores"].items()}}


def _sha(path: Path, result: Mapping[str, Any]) -> str:
    """A digest of the result and the file's name, so that a renamed file is refused."""
    return hashlib.sha256(f"{path.stem} {_text(result)}".encode()).hexdigest()


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, allow_nan=False)
