"""A cross-validation as files, so that `bayesfac worker FOLDER` can take part from other machines.

    FOLDER/DIGEST.json         a finished cell (see `trials`)
    FOLDER/plan/DIGEST.json    a cell that is to be run: data set, method with settings, fold, seed
    FOLDER/plan/data/*.npz     the data sets, each under the digest of its labels and values
    FOLDER/locks/DIGEST.lock   who runs the cell (see `core.locks`)

The digest of a cell depends on everything that determines its result. A worker computes the digest again
from what it has read. It leaves out a file with another digest, so no cell is run with other settings.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from bayesfac import models  # noqa: F401  # registers every method
from bayesfac.core.calls import Shared
from bayesfac.core.data.reading import plain
from bayesfac.core.errors import BayesfacError, CorruptFile
from bayesfac.core.files import atomic
from bayesfac.core.precision import precise
from bayesfac.inference import ENGINES
from bayesfac.labels.data.pieces import LABELS, Piece
from bayesfac.labels.data.tasks import Tasks
from bayesfac.labels.evaluation import trials as running
from bayesfac.labels.evaluation.methods_and_measures import METRICS, Runner, Tuned, read_method
from bayesfac.labels.evaluation.trials import Trial, planned

KIND = "planned cell of bf.evaluate, version 1"
SETTINGS = ("folds", "seed", "empty")
COMMON = ("dataset", "data", "float64", *SETTINGS)  # equal in cells that are planned together


# -- the plan -------------------------------------------------------------------------------------
def publish(
    folder: Path,
    trials: Sequence[Trial],
    tasks: Mapping[str, Tasks],
    runners: Mapping[str, Runner],
    settings: Mapping[str, Any],
) -> None:
    """Write the plan of these cells."""
    if settings["metrics"]:
        name = settings["metrics"][0].__name__
        raise TypeError(f"Expected measures by name for other processes, got the function {name}")
    told = {name: as_text(name, runner) for name, runner in runners.items()}
    prints = {name: data.fingerprint() for name, data in tasks.items()}
    for name, data in tasks.items():
        if not (path := _data_path(folder, prints[name])).exists():
            save_tasks(path, data)
    rest = {name: settings[name] for name in SETTINGS} | {"float64": precise()}
    for one in trials:
        assert one.path is not None
        cell = {"data": prints[one.dataset], "runner": told[one.method], **rest}
        cell |= {"dataset": one.dataset, "method": one.method, "fold": one.fold}
        with atomic(folder / "plan" / one.path.name) as part:
            part.write_text(json.dumps({"what": KIND, **cell}, indent=1), encoding="utf-8")


def work(folder: Path, jobs: int | None, tell: Callable[[str], Any]) -> tuple[int, int]:
    """Run the unfinished cells of the plan that no other process runs, until all are finished.

    Returns how many cells were unfinished at the beginning, and how many the plan has that are not left out.
    """
    found = {path.name: _read(path) for path in sorted((folder / "plan").glob("*.json"))}
    if not found:
        raise FileNotFoundError(
            f"Expected a folder of bf.evaluate(..., folder=..., shared=True), got {folder} without a plan"
        )
    groups: dict[tuple, list[dict[str, Any]]] = {}
    for cell in found.values():
        groups.setdefault(tuple(cell[name] for name in COMMON), []).append(cell)
    known = {
        trial.path.name: one for each in groups.values() for trial, *one in _group(folder, each)
    }
    if strange := len(found.keys() - known.keys()):
        tell(f"left out: {strange} cells that another version of bayesfac planned")
    left = [(folder / name, *known[name]) for name in found if name in known]
    calls = [
        (running.run_if_free, i, *rest) for i, (path, *rest) in enumerate(left) if not path.exists()
    ]
    for i, _ in running.until_all_are_finished(calls, jobs):
        trial = left[i][1]
        tell(f"{trial.method} on {trial.dataset}, fold {trial.fold}")
    return len(calls), len(left)


def _group(folder: Path, cells: Sequence[Mapping[str, Any]]) -> Iterator[tuple]:
    """The trials of cells that have all but method and fold in common, with what `cells.run` takes."""
    one = cells[0]
    if one["float64"] != precise():
        raise BayesfacError(
            f"Expected a process that computes in {64 if one['float64'] else 32} bits, as the run does: set "
            f"the environment variable JAX_ENABLE_X64={int(one['float64'])}"
        )
    data = _data(folder, one["data"])
    told = {json.dumps([cell["method"], cell["runner"]]): cell["method"] for cell in cells}
    runners = {text: read_method(from_text(json.loads(text)[1])) for text in told}
    settings = {name: one[name] for name in SETTINGS} | {"metrics": ()}
    fold = running.deal(data, one["folds"], one["seed"], one["dataset"])
    shared, rest = Shared(data), (fold, one["seed"], METRICS, one["empty"])
    for trial in planned({one["dataset"]: data}, runners, settings, folder):
        named = trial._replace(method=told[trial.method])
        yield named, named, shared, runners[trial.method], *rest


def _read(path: Path) -> dict[str, Any]:
    try:
        cell = json.loads(path.read_text(encoding="utf-8"))
        fine = cell["what"] == KIND
    except (ValueError, LookupError, TypeError):  # no text, no JSON, or other JSON
        fine = False
    if not fine:
        raise CorruptFile(f"Expected a planned cell in {path}, got a damaged or foreign file")
    return cell


# -- methods and settings as JSON ---------------------------------------------------------------
def as_text(name: str, runner: Runner) -> Any:
    """A method as `read_method` takes it, as JSON: by its name, with plain settings."""
    if not isinstance(runner.what, str):
        raise TypeError(
            f"Expected methods by name for other processes, got {name!r}, which is a function or a record: "
            "without shared=True it runs here, or on the processes of joblib.parallel_config"
        )
    if (tuned := runner.tuned) is not None:
        return {"tuned": {f.name: encoded(getattr(tuned, f.name)) for f in fields(tuned)}}
    return {"method": [encoded(part) for part in (runner.what, runner.hyper, runner.engine)]}


def from_text(told: Mapping[str, Any]) -> Any:
    """The method that `as_text` wrote."""
    if "tuned" in told:
        return Tuned(**{name: decoded(value) for name, value in told["tuned"].items()})
    return tuple(map(decoded, told["method"]))


def encoded(value: Any) -> Any:
    """A setting as JSON, from which `decoded` makes the same setting.

    >>> decoded(encoded({"size": (2, 0.1), "init": None}))
    {'size': (2, 0.1), 'init': None}
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [encoded(one) for one in value]
    if type(value) is tuple:
        return {"tuple": [encoded(one) for one in value]}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {"mapping": {key: encoded(one) for key, one in value.items()}}
    if type(value) in ENGINES.values():
        own = {f.name: encoded(getattr(value, f.name)) for f in fields(value)}
        return {"engine": [type(value).__name__, own]}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return {"array": [value.tolist(), str(value.dtype)]}
    raise TypeError(
        f"Expected settings of numbers, text, arrays and engines for other processes, got {value!r:.60}"
    )


def decoded(told: Any) -> Any:
    """The setting that `encoded` wrote."""
    if isinstance(told, list):
        return [decoded(one) for one in told]
    if not isinstance(told, dict):
        return told
    ((kind, value),) = told.items()
    if kind == "tuple":
        return tuple(map(decoded, value))
    if kind == "mapping":
        return {key: decoded(one) for key, one in value.items()}
    if kind == "array":
        return np.array(value[0], value[1])
    name, own = value
    return ENGINES[name](**{key: decoded(one) for key, one in own.items()})


# -- data as arrays -----------------------------------------------------------------------------
SPARSE = ("data", "indices", "indptr")


def _data_path(folder: Path, digest: str) -> Path:
    return folder / "plan" / "data" / f"{digest}.npz"


def _data(folder: Path, digest: str) -> Tasks:
    """The data of a plan; their digest is checked."""
    path = _data_path(folder, digest)
    data = load_tasks(path)
    if data.fingerprint() != digest:
        raise CorruptFile(f"Expected the data of digest {digest} in {path}, got other data")
    return data


def save_tasks(path: Path, data: Tasks) -> None:
    """Write tasks as arrays."""
    host = data.host
    arrays: dict[str, Any] = {"rows": _names(data.rows), "tasks": _names(data.tasks)}
    arrays |= {"start": np.array(host.start), "labelled": np.array(host.labelled)}
    for block in data.blocks:
        table = data[block]
        arrays[f"features {block}"] = _names(host.features[block])
        arrays |= {f"{part} {block}": getattr(table, part) for part in SPARSE}
        arrays[f"present {block}"] = np.array(host.present.get(block, ()), bool)
    for cluster, members in host.clusters.items():
        arrays[f"cluster {cluster}"] = np.array(members, int)
    with atomic(path) as part:
        np.savez(part, **arrays)


def load_tasks(path: Path) -> Tasks:
    """The tasks that `save_tasks` wrote."""
    with np.load(path, allow_pickle=False) as found:
        arrays = dict(found)
    kinds: dict[str, dict[str, Any]] = {}
    for name, value in arrays.items():
        kind, _, block = name.partition(" ")
        kinds.setdefault(kind, {})[block] = value
    features = {block: _index(names) for block, names in kinds["features"].items()}
    rows, tasks, start = _index(arrays["rows"]), _index(arrays["tasks"]), arrays["start"]
    tables = {
        block: sp.csr_matrix(
            tuple(kinds[part][block] for part in SPARSE), (len(rows), len(features[block]))
        )
        for block in features
    }
    pieces = {}
    for i, name in enumerate(tasks):
        at = slice(start[i], start[i + 1])
        here = [b for b in tables if b == LABELS or kinds["present"][b][i]]
        known = np.arange(at.stop - at.start) < arrays["labelled"][i]
        pieces[name] = Piece({b: tables[b][at] for b in here}, known, rows[at])
    clusters = {c: [tasks[i] for i in own] for c, own in kinds.get("cluster", {}).items()}
    return Tasks.of_pieces(pieces, features, clusters)


def _names(index: pd.Index) -> np.ndarray:
    """Labels as an array without objects; text beside numbers (a constant feature) becomes one JSON text."""
    names = np.asarray(index)
    if names.dtype.kind in "iu":
        return names
    plain_names = [plain(name) for name in names]
    kinds = set(map(type, plain_names))
    if odd := kinds - {str, int}:
        name = next(name for name in plain_names if type(name) in odd)
        raise TypeError(
            f"Expected labels of text or whole numbers for other processes, got {name!r}"
        )
    return np.array(json.dumps(plain_names)) if int in kinds else np.array(plain_names, str)


def _index(names: np.ndarray) -> pd.Index:
    """The labels that `_names` wrote."""
    return pd.Index(names if names.ndim else json.loads(str(names)))
