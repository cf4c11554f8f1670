"""Finished trials on disk, each in a file whose name is a digest of everything that decides the result."""

import hashlib
import json
import math
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from bayesfac.core.data.tasks import Tasks
from bayesfac.core.errors import CorruptFile
from bayesfac.core.files import atomic
from bayesfac.core.keys import as_json, own_code
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
