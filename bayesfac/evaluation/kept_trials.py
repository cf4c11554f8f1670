"""Finished cells on disk, each in a file named by a digest of all that decides it."""

import hashlib
import json
import math
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from importlib.metadata import version
from inspect import unwrap
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
import scipy.sparse as sp

from bayesfac.core.data.reading import digest
from bayesfac.core.data.tasks import Tasks
from bayesfac.core.errors import CorruptFile
from bayesfac.core.files import atomic
from bayesfac.evaluation.methods_and_measures import Way

KIND = "finished cell of bf.evaluate, version 1"


class Cell(NamedTuple):
    """One data set, one method, one fold, and where its results are kept."""

    dataset: str
    method: str
    fold: int
    path: Path | None = None


def place(
    tasks: Mapping[str, Tasks], ways: Mapping[str, Way], settings: dict[str, Any], folder: Path | None
) -> list[Cell]:  # fmt: skip
    """Every cell; with a folder also the file that its results have or will have."""
    cells = [Cell(d, m, k) for d in tasks for m in ways for k in range(settings["folds"])]
    if folder is None:
        return cells
    settings = settings | {"bayesfac": version("bayesfac"), "float64": precise()}
    data = {name: own.fingerprint() for name, own in tasks.items()}
    # of a function its name here too: it is all that tells two of the same code apart
    how = {name: [name if way.kind == "function" else "", *way] for name, way in ways.items()}
    found = []
    for cell in cells:
        key = {
            "data": data[cell.dataset],
            "method": how[cell.method],
            "fold": cell.fold,
            **settings,
        }
        name = hashlib.sha256(_text(told(key)).encode()).hexdigest()[:32]
        found.append(cell._replace(path=folder / f"{name}.json"))
    return found


def precise() -> bool:
    """Whether numbers have 64 bits."""
    return bool(jax.dtypes.canonicalize_dtype(np.float64) == np.float64)


def write(path: Path, cell: Cell, found: Mapping[str, Any]) -> None:
    """Keep what a trial found."""
    # JSON has no NaN and no infinity
    scores = {n: v if math.isfinite(v) else str(v) for n, v in found["scores"].items()}
    result = {**found, "scores": scores}
    labels = {"dataset": cell.dataset, "method": cell.method, "fold": cell.fold}
    whole = {"what": KIND, **labels, "result": result, "sha256": _sha(path, result)}
    with atomic(path) as part:
        part.write_text(json.dumps(whole, indent=1, allow_nan=False), encoding="utf-8")


def read(path: Path) -> dict[str, Any]:
    """What `write` kept, as it was."""
    reason = None
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
        fine = whole["what"] == KIND and whole["sha256"] == _sha(path, whole["result"])
    except (ValueError, LookupError, TypeError) as wrong:  # no text, no JSON, or other JSON
        fine, reason = False, wrong
    if not fine:
        raise CorruptFile(
            f"Expected a finished cell of bf.evaluate in {path}, got a damaged or foreign file: "
            "without it the cell is run again"
        ) from reason
    found = whole["result"]
    return {**found, "scores": {name: float(value) for name, value in found["scores"].items()}}


def _sha(path: Path, result: Mapping[str, Any]) -> str:
    """Of the result and of the file's name: under another name it is no answer."""
    return hashlib.sha256(f"{path.stem} {_text(result)}".encode()).hexdigest()


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, allow_nan=False)


def told(value: Any) -> Any:
    """A setting as JSON has it: the same for equal ones, in any process.

    Examples
    --------
    >>> told({"b": (1, 2.5), "a": None})
    [['a', None], ['b', [1, '2.5']]]
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float | complex | bytes):
        return repr(value)
    if isinstance(value, Mapping):
        return [[told(key), told(value[key])] for key in sorted(value, key=str)]
    if isinstance(value, set | frozenset):
        return [told(one) for one in sorted(value, key=str)]
    if isinstance(value, list | tuple | range):
        return [told(one) for one in value]
    if is_dataclass(value) and not isinstance(value, type):
        own = [told(getattr(value, f.name)) for f in fields(value)]
        return [type(value).__qualname__, own]
    return _array(value) or _function(value)


def _array(value: Any) -> Any:
    if sp.issparse(value):
        value = sp.coo_array(value)
        return digest([value.shape, *value.coords, value.data])
    if isinstance(value, np.ndarray | jax.Array | pd.Index | pd.Series | pd.DataFrame):
        return digest([np.asarray(value)])
    return None


def _function(value: Any) -> Any:
    if isinstance(value, partial):
        return told([value.func, value.args, value.keywords])
    if isinstance(value, types.CodeType):
        return told([value.co_code, value.co_consts, value.co_names])
    if not callable(value) or not hasattr(value, "__qualname__"):
        raise TypeError(
            f"Expected settings of numbers, text, arrays, functions and lists of them, got {value!r:.60}: "
            "a finished cell could not be told from others"
        )
    inner = unwrap(value)
    code = getattr(inner, "__code__", None)  # none of a class and of what is written in C
    return [
        f"{value.__module__}.{value.__qualname__}",
        told(code),
        told(getattr(inner, "__defaults__", None)),
    ]
