"""Finished trials on disk, each in a file whose name is a digest of everything that decides the result."""

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
from bayesfac.core.method import REGISTRY
from bayesfac.core.precision import precise
from bayesfac.evaluation.methods_and_measures import Runner

KIND = "finished cell of bf.evaluate, version 1"


class Trial(NamedTuple):
    """One data set, one method, one fold, and the file of the result (None: it is not kept)."""

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
    # the name of a function counts too: it is the only difference between two functions of the same code
    how = {
        name: [name if run.kind == "function" else "", own_code(run.what), *run[1:]]
        for name, run in runners.items()
    }
    kept = []
    for one in trials:
        key = {"data": data[one.dataset], "method": how[one.method], "fold": one.fold, **settings}
        kept.append(one._replace(path=place(folder, key)))
    return kept


def own_code(what: Any) -> Any:
    """The name of a method of bayesfac, whose version is known; of a user's own method its functions too."""
    method = REGISTRY.get(what) if isinstance(what, str) else None
    if method is None or (method.init.__module__ or "").startswith("bayesfac."):
        return what
    return [what, method]


def place(folder: Path, key: Mapping[str, Any]) -> Path:
    """The file for the result that `key` decides."""
    name = hashlib.sha256(_text(as_json(key)).encode()).hexdigest()[:32]
    return folder / f"{name}.json"


def write(path: Path, one: Trial, result: Mapping[str, Any]) -> None:
    """Keep the result of a trial."""
    # JSON has no NaN and no infinity
    scores = {n: v if math.isfinite(v) else str(v) for n, v in result["scores"].items()}
    result = {**result, "scores": scores}
    labels = {"dataset": one.dataset, "method": one.method, "fold": one.fold}
    whole = {"what": KIND, **labels, "result": result, "sha256": _sha(path, result)}
    with atomic(path) as part:
        part.write_text(json.dumps(whole, indent=1, allow_nan=False), encoding="utf-8")


def read(path: Path) -> dict[str, Any]:
    """The result that `write` kept."""
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


def as_json(value: Any) -> Any:
    """A setting in terms of JSON; equal settings give equal JSON, in any process.

    Examples
    --------
    >>> as_json({"b": (1, 2.5), "a": None})
    [['a', None], ['b', [1, '2.5']]]
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float | complex | bytes) or value is Ellipsis:  # x[..., 0] in a function
        return repr(value)
    if isinstance(value, Mapping):
        return [[as_json(key), as_json(value[key])] for key in sorted(value, key=str)]
    if isinstance(value, set | frozenset):
        return [as_json(one) for one in sorted(value, key=str)]
    if isinstance(value, list | tuple | range):
        return [as_json(one) for one in value]
    if is_dataclass(value) and not isinstance(value, type):
        own = [as_json(getattr(value, f.name)) for f in fields(value)]
        return [type(value).__qualname__, own]
    return _array(value) or _function(value)


def _array(value: Any) -> Any:
    if sp.issparse(value):
        value = sp.coo_array(value)
        return digest([value.shape, *value.coords, value.data])
    if isinstance(value, pd.Series | pd.DataFrame):
        # labels decide too; those that count from 0 are the places of an array
        named = [axis for axis in value.axes if not axis.equals(pd.RangeIndex(len(axis)))]
        return digest([np.asarray(value), *named])
    if isinstance(value, np.ndarray | jax.Array | pd.Index):
        return digest([np.asarray(value)])
    return None


def _function(value: Any) -> Any:
    if isinstance(value, partial):
        return as_json([value.func, value.args, value.keywords])
    if isinstance(value, types.CodeType):
        return as_json([value.co_code, value.co_consts, value.co_names, value.co_varnames])
    if not callable(value) or not hasattr(value, "__qualname__"):
        raise TypeError(
            f"Expected settings of numbers, text, arrays, functions and lists of them, got {value!r:.60}: "
            "the finished cells of two such settings would share a file"
        )
    layers = [value]  # a decorator decides too, and then the function inside of it
    unwrap(value, stop=lambda layer: layers.append(layer.__wrapped__))
    parts = ("__code__", "__defaults__", "__kwdefaults__")  # classes and functions in C have none
    return [
        f"{value.__module__}.{value.__qualname__}",
        *(as_json(getattr(layer, part, None)) for layer in layers for part in parts),
    ]
