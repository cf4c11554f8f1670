"""Trials: one fit that is scored by held-out data, and a store of finished ones.

A finished trial is stored in a file whose name is a digest of everything that determines the result.
"""

import hashlib
import json
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bayesfac.core.errors import ConvergenceWarning, CorruptFile
from bayesfac.core.files import atomic
from bayesfac.core.keys import as_json

KIND = "finished cell of bf.evaluate, version 1"


class Trial(NamedTuple):
    """One data set, one method, one fold, and the file of the result (None: it is not stored)."""

    dataset: str
    method: str
    fold: int
    path: Path | None = None


def parts_of(method: Any) -> tuple[Any, dict[str, Any], Any]:
    """Name, settings and engine of a method that users write with or without the last two."""
    parts = method if isinstance(method, tuple) else (method,)
    if not 1 <= len(parts) <= 3 or len(parts) > 1 and not isinstance(parts[1], Mapping):
        raise TypeError(
            f"Expected name, (name, settings) or (name, settings, engine), got {method!r}"
        )
    whole: tuple[Any, ...] = (*parts, *({}, None)[len(parts) - 1 :])
    return whole[0], dict(whole[1]), whole[2]


@contextmanager
def heard(notes: list[str], when: str = "") -> Iterator[None]:
    """Turn warnings about convergence into notes; other warnings stay warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        yield
    for one in caught:
        if issubclass(one.category, ConvergenceWarning):
            notes.append(when + str(one.message).partition(":")[0])
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


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
