"""Save a fit as a folder: a JSON header, NPZ arrays, and one NPY file for each site of draws; no pickle."""

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import jax.numpy as jnp
import numpy as np
import pandas as pd
import scipy.sparse as sp

from bayesfac.core import checks
from bayesfac.core.data.cards import Card, Scale
from bayesfac.core.data.features import SPARSE, Encoding
from bayesfac.core.errors import CorruptFile, check_names
from bayesfac.core.files import ask_space, atomic, named_if_full, sha256, umask
from bayesfac.core.method import Method, from_sites, lookup, sites
from bayesfac.core.programs import keep_programs
from bayesfac.fits.fitted import Fitted
from bayesfac.inference import ENGINES
from bayesfac.inference.checkpoint import read_arrays, write_arrays
from bayesfac.inference.predictions.conformal import WHERE, Recalibration
from bayesfac.inference.result import Result
from bayesfac.inference.stored_draws import StoredDraws

FORMAT = "bayesfac fit 1"
SMALLER = "free some space, name another folder, or save fewer numbers by thin=5 or dtype='float16'"
OF_ALL = ("diverging", "tree_depth", "reached_max_tree_depth")  # statistics that count every draw
CARD = """# {title}

| | |
|---|---|
{facts}

## Notes of the fit

{remarks}

## Use

```python
import bayesfac as bf

fit = bf.load("THIS_FOLDER")
print(fit.diagnostics())  # what it may be used for
```

A user, item or row without training data is predicted from the prior and flagged.
The folder holds labels and counts of the training data, but not the data themselves.
"""


def save(
    fit: Fitted,
    path: str | os.PathLike[str],
    *,
    thin: int = 1,
    dtype: str | None = None,
    overwrite: bool = False,
) -> str:
    """Write the fit into a folder, without pickle; `bf.load` reads it. The folder is whole or not there.

    For a smaller folder, `thin=5` keeps every fifth draw, and `dtype="float16"` or "float32" keeps fewer
    digits. The file `model_card.md` in the folder describes the fit. A saved fit of the same method is
    replaced; one of another method is replaced only with `overwrite=True`.
    """
    checks.whole_number("save(thin=...)", thin, 1)
    if dtype not in (None, "float16", "float32"):
        raise ValueError(f"Expected dtype 'float16' or 'float32', got {dtype!r}")
    if fit.is_point and (thin > 1 or dtype):
        raise ValueError("Expected draws for thin= and dtype=, got a point fit, which is small")
    target = Path(path)
    _check_free(target, fit.name, overwrite)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        with named_if_full(target, SMALLER):
            _write(fit, part, thin, dtype)
        os.chmod(part, 0o777 & ~umask())
        old = None
        if target.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
            os.replace(target, old / "fit")
        os.replace(part, target)
        if old:
            shutil.rmtree(old)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return str(target)


def _check_free(target: Path, name: str, overwrite: bool) -> None:
    """Refuse to replace files that no fit has, and without `overwrite` the fit of another method."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    wanted = f"Expected {target} to be free or a saved fit of {name}"
    place = target / "header.json"
    text = place.read_text("utf-8", "replace") if place.is_file() else ""
    if FORMAT.rsplit(" ", 1)[0] not in text:
        raise FileExistsError(f"{wanted}, got something else there")
    owner = re.search(r'"method": "(.+?)"', text)
    if owner and owner[1] != name and not overwrite:
        raise FileExistsError(
            f"{wanted}, got a fit of {owner[1]}: name another folder, or replace it by "
            "save(..., overwrite=True)"
        )


def _write(fit: Fitted, folder: Path, thin: int, dtype: str | None) -> None:
    arrays = {"trace": fit.trace, "rows": fit.data.row_counts, "cols": fit.data.col_counts}
    if fit.data.marks is not None:
        arrays["marks"] = fit.data.marks
    arrays |= {f"elsewhere {side}": count for side, count in fit.data.elsewhere.items()}
    arrays |= {f"recalibrated {r.what}": r.scores for r in [fit.recalibration] if r}
    for side, table in fit.data.aside.items():
        arrays |= {f"aside {side} {part}": x for part, x in _csr_arrays(table).items()}
    arrays |= {f"stat {name}": _fewer(name, value, thin) for name, value in fit.stats.items()}
    if fit.is_point:
        arrays |= {f"site {name}": np.asarray(value) for name, value in sites(fit.params).items()}
    write_arrays(folder / "arrays.npz", {"kind": "fit"}, arrays)
    files = {"arrays.npz": sha256(folder / "arrays.npz")}
    if fit.draws is not None:
        (folder / "draws").mkdir()
        for site in fit.draws:
            place = folder / "draws" / f"{site}.npy"
            whole = thin == 1 and dtype is None
            if whole and isinstance(fit.draws, StoredDraws):
                # never mapped: pages would count as memory
                source = fit.draws.path(site)
                ask_space(folder, source.stat().st_size)
                shutil.copyfile(source, place)
            else:
                kept = fit.draws[site] if whole else _less(site, fit.draws[site], thin, dtype)
                ask_space(folder, kept.nbytes)
                with open(place, "wb") as file:
                    # an object that only writes: for a file, NumPy has no word of a full disk
                    np.save(SimpleNamespace(write=file.write), kept, allow_pickle=False)
            files[f"draws/{site}.npy"] = sha256(place)
    header = {
        "format": FORMAT,
        "method": fit.name,
        **({"recipe": fit.method.recipe} if fit.method.recipe else {}),
        "hyper": fit.hyper._asdict(),
        "engine": [type(fit.engine).__name__, vars(fit.engine)],
        "seed": fit.seed,
        "seconds": fit.seconds,
        "converged": fit.converged,
        "partial": fit.partial,
        "notes": [*fit.result.notes, *_reduced(thin, dtype)],
        "info": fit.info | ({"thin": thin * fit.info.get("thin", 1)} if thin > 1 else {}),
        "data": _card_to_json(fit.data),
        "files": files,
    }
    card = model_card(fit, thin, dtype)
    # the card has no digest, so that users may edit it
    (folder / "model_card.md").write_text(card, encoding="utf-8")
    plain = json.loads(json.dumps(header, default=_plain_setting))
    with atomic(folder / "header.json") as part:
        part.write_text(json.dumps({**plain, "sha256": _seal(plain)}, indent=1), encoding="utf-8")


def _fewer(name: str, values: np.ndarray, thin: int) -> np.ndarray:
    """A statistic of every n-th draw. Problems of NUTS must stay visible: a draw that is kept gets the
    largest value of the draws that are dropped after it."""
    if name in OF_ALL and thin > 1:
        return np.maximum.reduceat(values, np.arange(0, values.shape[1], thin), axis=1)
    return values[:, ::thin]


def _less(site: str, draws: np.ndarray, thin: int, dtype: str | None) -> np.ndarray:
    """Every n-th draw of a site, in a smaller type; an error if the numbers do not fit into the type."""
    kept = draws[:, ::thin]
    if dtype is None or kept.dtype.kind != "f" or kept.dtype.itemsize <= np.dtype(dtype).itemsize:
        return kept
    with np.errstate(over="ignore"):
        small = kept.astype(dtype)
    if (np.isfinite(kept) & ~np.isfinite(small)).any():
        most = float(np.nanmax(np.abs(kept)))
        raise ValueError(
            f"Expected draws of {site} that fit into {dtype}, got {most:g}: use 'float32'"
        )
    return small


def _reduced(thin: int, dtype: str | None) -> list[str]:
    """Notes on what was left out of the folder."""
    every = [f"saved with one draw in {thin}"] if thin > 1 else []
    return every + ([f"saved as {dtype}"] if dtype else [])


def model_card(fit: Fitted, thin: int = 1, dtype: str | None = None) -> str:
    """A description of a saved fit in Markdown, for readers of the folder."""
    notes = [*fit.result.notes, *_reduced(thin, dtype)]
    notes += [str(fit.recalibration)] if fit.recalibration else []
    info = fit.info.get("versions", {})
    facts = {
        "method": f"{fit.name}: {fit.method.paper} ({fit.method.cite})",
        "what": "one point estimate" if fit.is_point else "draws from a posterior",
        "engine": f"{type(fit.engine).__name__}, seed {fit.seed}, {fit.seconds:.0f} s",
        "settings": ", ".join(f"{k}={v}" for k, v in fit.hyper._asdict().items() if v is not None),
        "data": fit.data.name or fit.data.kind,
        "size": ", ".join(f"{what} {number:g}" for what, number in fit.data.summary.items()),
        "versions": ", ".join(f"{name} {version}" for name, version in info.items()),
    }
    lines = [f"| {what} | {str(text).replace('|', '/')} |" for what, text in facts.items() if text]
    return CARD.format(
        title=f"{fit.name} on {fit.data.name or fit.data.kind}",
        facts="\n".join(lines),
        remarks="\n".join(f"- {note}" for note in notes or ["none"]),
    )


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The fields of the `Fit` in the folder; every file is checked against its digest first."""
    keep_programs()
    folder = Path(path)
    header = _header(folder)
    for name, digest in header["files"].items():
        if not (folder / name).is_file() or sha256(folder / name) != digest:
            raise CorruptFile(
                f"Expected {folder / name} unchanged since it was saved, got other bytes or none"
            )
    _, arrays = read_arrays(folder / "arrays.npz")
    method = lookup(header.get("recipe", header["method"]))
    stats = {k.removeprefix("stat "): v for k, v in arrays.items() if k.startswith("stat ")}
    point = {
        k.removeprefix("site "): jnp.asarray(v) for k, v in arrays.items() if k.startswith("site ")
    }
    result = Result(
        params=from_sites(method, point) if point else None,
        draws=None if point else StoredDraws(folder / "draws"),
        trace=arrays["trace"],
        stats=stats,
        **{name: header[name] for name in ("converged", "notes", "partial")},
    )
    made = (Recalibration(w, arrays[k]) for w in WHERE if (k := f"recalibrated {w}") in arrays)
    engine, settings = header["engine"]
    check_names("engine", (engine,), ENGINES)
    return {
        "method": method,
        "hyper": method.Hyper(
            **{k: _setting(method, k, value) for k, value in header["hyper"].items()}
        ),
        "engine": ENGINES[engine](**settings),
        "result": result,
        "data": _card_from_json(header["data"], arrays),
        "recalibration": next(made, None),
        **{name: header[name] for name in ("seed", "seconds", "info")},
    }


def _header(folder: Path) -> dict[str, Any]:
    place = folder / "header.json"
    if not place.is_file():
        raise CorruptFile(f"Expected a folder written by Fit.save, got no header.json in {folder}")
    try:
        header = json.loads(place.read_text(encoding="utf-8"))
        kind = header.get("format")
    except (ValueError, AttributeError) as error:
        raise CorruptFile(f"Expected JSON in {place}, got {error}") from error
    if kind != FORMAT:
        raise CorruptFile(f"Expected format {FORMAT!r} in {place}, got {kind!r}")
    if header.pop("sha256", None) != _seal(header):
        raise CorruptFile(f"Expected {place} unchanged since it was saved, got other text")
    return header


def _seal(header: dict[str, Any]) -> str:
    """A digest of the header, because a changed hyper-parameter would change the predictions."""
    return hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()


def _plain_setting(value: Any) -> Any:
    """A NumPy array, a number or a path among the settings, as JSON has it."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.item() if hasattr(value, "item") else os.fspath(value)


def _card_to_json(card: Card) -> dict[str, Any]:
    return {
        "kind": card.kind,
        "name": card.name,
        "coords": {axis: _of_axis(index, axis) for axis, index in card.coords.items()},
        "summary": card.summary,
        "levels": card.levels,
        "probe": {str(name): _of_axis(column, str(name)) for name, column in card.probe.items()},
        "scales": {view: scale._asdict() for view, scale in card.scales.items()},
        "encodings": {side: _encoding_to_json(known) for side, known in card.encodings.items()},
    }


def _card_from_json(saved: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> Card:
    coords = {axis: _to_axis(values) for axis, values in saved["coords"].items()}
    levels = None if saved["levels"] is None else tuple(saved["levels"])
    probe = pd.DataFrame({name: _to_axis(values) for name, values in saved["probe"].items()})
    name = saved.get("name", "")  # absent in fits of earlier versions, as the scales are
    scales = {view: _scale(**parts) for view, parts in saved.get("scales", {}).items()}
    encodings = {side: _encoding(**parts) for side, parts in saved.get("encodings", {}).items()}
    rows, cols = arrays["rows"], arrays["cols"]
    elsewhere = {
        k.removeprefix("elsewhere "): v for k, v in arrays.items() if k.startswith("elsewhere ")
    }
    whole = (saved["kind"], coords, saved["summary"], levels, rows, cols, probe, name)
    aside = {
        side: _aside(arrays, side, known)
        for side, known in encodings.items()
        if f"aside {side} data" in arrays
    }
    return Card(*whole, scales, encodings, elsewhere, aside, arrays.get("marks"))


def _csr_arrays(table: Any) -> dict[str, np.ndarray]:
    """The arrays of a table of features as a csr matrix."""
    csr = sp.csr_matrix(table)
    shape = np.array(csr.shape)
    return {"data": csr.data, "indices": csr.indices, "indptr": csr.indptr, "shape": shape}


def _aside(arrays: Mapping[str, np.ndarray], side: str, known: Encoding) -> Any:
    """The features of the labels of a side without cells."""
    data, indices, indptr, shape = (
        arrays[f"aside {side} {part}"] for part in ("data", "indices", "indptr", "shape")
    )
    csr = sp.csr_matrix((data, indices, indptr), shape=tuple(shape))
    return csr if SPARSE in known.kinds else csr.toarray()


def _encoding_to_json(known: Encoding) -> dict[str, Any]:
    return known._asdict() | {"columns": _plain(known.columns, "feature")}


def _encoding(columns: list, kinds: list, centre: list[float], scale: list[float]) -> Encoding:
    plain = tuple(kind if isinstance(kind, str) else tuple(kind) for kind in kinds)
    return Encoding(tuple(columns), plain, np.array(centre), np.array(scale))


def _scale(centre: list[float], spread: list[float], mirrored: list[int], constant: float) -> Scale:
    return Scale(np.array(centre), np.array(spread), np.array(mirrored, int), constant)


def check(card: Card, engine: Any) -> None:
    """Raise an error before the run if the engine writes into a folder and labels cannot be saved."""
    if getattr(engine, "folder", None) is not None:
        _card_to_json(card)


def check_labels(data: Any) -> None:
    """Refuse labels that no folder can hold before a run whose fit will be saved."""
    for axis, labels in data.coords().items():
        _of_axis(labels, axis)


def _of_axis(values: Any, axis: str) -> Any:
    """Labels for JSON: dates as whole numbers with their type, other labels as they are."""
    if values.dtype.kind == "M":
        return {"dtype": str(values.dtype), "values": pd.Index(values).asi8.tolist()}
    return _plain(values, axis)


def _to_axis(saved: Any) -> pd.Index:
    """The labels that `_of_axis` made ready for JSON."""
    if isinstance(saved, dict):
        return pd.Index(saved["values"], dtype=np.int64).astype(saved["dtype"])
    return pd.Index(saved)


def _plain(values: Any, axis: str) -> list[Any]:
    """Labels as JSON numbers and strings."""
    plain = [v.item() if isinstance(v, np.generic) else v for v in values]
    for value in plain:
        if not isinstance(value, str | int | float):
            raise TypeError(
                f"Expected {axis} labels that are numbers, text or dates (datetime64), got {value!r}: it "
                "cannot be saved"
            )
    return plain


def _setting(method: Method, name: str, value: Any) -> Any:
    """A hyper-parameter from JSON; in a field of `tuple[Record, ...]` each row is a record again."""
    plain = _hashable(value)
    for kind in get_args(method.Hyper.__annotations__.get(name)):
        record: Any = next(iter(get_args(kind)), None)
        if plain is not None and hasattr(record, "_fields"):
            return tuple(record(*row) for row in plain)
    return plain


def _hashable(value: Any) -> Any:
    """A hyper-parameter from JSON, where tuples have become lists."""
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
