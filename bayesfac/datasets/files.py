"""A user's own file -> Ratings or Views: CSV, TSV, parquet or NPZ.

Labels are read as they stand: the text "NA" is an id, not a gap. A column of ids that are all
whole numbers becomes numbers. What cannot be read is named by its line.
"""

import os
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from bayesfac.core.data import Ratings, Views

TEXT = (".csv", ".tsv", ".txt", ".tab", ".data")
RATINGS = ("user", "item", "rating")
VIEWS = ("row", "view", "feature", "value")

Maker = Callable[..., Ratings | Views]


def read(
    path: str | os.PathLike[str],
    kind: str = "ratings",
    *,
    columns: Sequence[str] | None = None,
    levels: int | Sequence[float] | None = None,
    duplicates: str = "error",
    ids: Mapping[str, type] | None = None,
) -> Ratings | Views:
    r"""Read ratings, or views, from a file.

    Parameters
    ----------
    path : path
        Text (.csv, .tsv, .txt; comma, semicolon or tab; header optional), .parquet or .npz.
        Ratings are a long table user, item, rating; views are one of row, view, feature, value.
        An NPZ holds user, item and rating, or view_NAME matrices, or one matrix (scipy's
        `save_npz` included).
    kind : {"ratings", "views"}
    columns : sequence of str, optional
        The names of those columns in this file; else these names, else the first columns.
    levels, duplicates
        As for `Ratings`.
    ids : mapping, optional
        Whether a column's labels are `int` or `str`, as {"user": str}; by default those of a text
        file are numbers where all of them are.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "r.csv"
    >>> _ = path.write_text("user,item,rating\nNA,x,4\nbob,x,2\n")
    >>> list(read(path).users)
    ['NA', 'bob']
    """
    path = Path(path)
    if kind not in ("ratings", "views"):
        raise ValueError(f"Expected kind 'ratings' or 'views', got {kind!r}")
    if not path.is_file():
        raise FileNotFoundError(f"Expected a file, got {path}, which does not exist")
    make = _maker(kind, levels, duplicates)
    if path.suffix.lower() == ".npz":
        return _from_npz(path, kind, make)
    wanted = RATINGS if kind == "ratings" else VIEWS
    table, line = _table(path, wanted, tuple(columns) if columns else None)
    kinds = ids or {}
    labels = [_ids(path, table[name], name, line, kinds.get(name)) for name in wanted[:-1]]
    values = _numbers(path, table[wanted[-1]], wanted[-1], line)
    try:
        return make(*labels, values) if kind == "ratings" else _long_views(labels, values)
    except ValueError as error:
        raise ValueError(f"{path}: {_by_line(str(error), line)}") from error


def views(arrays: Mapping[str, np.ndarray]) -> Views:
    """The arrays view_NAME (dense, or sparse as view_NAME_data, _indices, _indptr, _shape)."""
    found: dict[str, Any] = {}
    for key, array in arrays.items():
        name = key.removeprefix("view_")
        if name == key:
            continue
        if name.endswith("_indptr"):
            name = name.removesuffix("_indptr")
            parts = [arrays[f"view_{name}_{part}"] for part in ("data", "indices", "indptr")]
            found[name] = sp.csr_matrix(tuple(parts), shape=tuple(arrays[f"view_{name}_shape"]))
        elif array.ndim == 2:
            found[name] = array
    return Views(found)


def _maker(kind: str, levels: int | Sequence[float] | None, duplicates: str) -> Maker:
    return partial(Ratings, levels=levels, duplicates=duplicates) if kind == "ratings" else Views


def _from_npz(path: Path, kind: str, make: Maker) -> Ratings | Views:
    try:
        with np.load(path, allow_pickle=False) as npz:
            arrays = {name: npz[name] for name in npz.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"Expected a NumPy archive in {path}: {error}") from error
    if kind == "ratings" and all(name in arrays for name in RATINGS):
        return make(*(arrays[name] for name in RATINGS))
    if kind == "views" and any(name.startswith("view_") for name in arrays):
        return views(arrays)
    if {"format", "shape", "data"} <= set(arrays):
        return make(sp.load_npz(path))
    if len(arrays) == 1:
        return make(next(iter(arrays.values())))
    wanted = "user, item and rating" if kind == "ratings" else "view_NAME matrices"
    raise ValueError(f"Expected {wanted}, or one matrix, in {path}, got {sorted(arrays)}")


def _table(
    path: Path, wanted: tuple[str, ...], columns: tuple[str, ...] | None
) -> tuple[pd.DataFrame, int]:
    """The wanted columns under their own names, and the line of the first row (0: no lines)."""
    if columns is not None and len(columns) != len(wanted):
        raise ValueError(f"Expected {len(wanted)} columns {wanted}, got {columns}")
    if path.suffix.lower() == ".parquet":
        frame, line = _parquet(path), 0
    elif path.suffix.lower() in TEXT:
        frame, line = _text(path, len(wanted), named=columns is not None)
    else:
        known = ", ".join([*TEXT, ".parquet", ".npz"])
        raise ValueError(f"Expected a file ending in {known}, got {path.name}")
    names = columns or (wanted if set(wanted) <= set(frame.columns) else ())
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise ValueError(f"Expected a column {missing[0]!r} in {path}, got {list(frame.columns)}")
    if not names and frame.shape[1] < len(wanted):
        raise ValueError(
            f"Expected columns {', '.join(wanted)} in {path}, got {list(frame.columns)}"
        )
    if frame.empty:
        raise ValueError(f"Expected at least one row in {path}, got none")
    table = frame[list(names)] if names else frame.iloc[:, : len(wanted)]
    return table.set_axis(list(wanted), axis=1), line


def _parquet(path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path)
    except ImportError as error:
        raise ImportError(
            "Expected pyarrow, which reads parquet, got none: pip install 'bayesfac[datasets]'"
        ) from error
    except (ValueError, OSError) as error:
        raise ValueError(f"Expected parquet in {path}: {error}") from error


def _text(path: Path, width: int, named: bool) -> tuple[pd.DataFrame, int]:
    """All cells as text; the first line is a header unless its value is a number."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            first = file.readline().rstrip("\r\n")
        separator = max(",;\t", key=first.count)
        head = [cell.strip().strip('"') for cell in first.split(separator)]
        bare = not named and len(head) >= width and _is_number(head[width - 1])
        frame = pd.read_csv(
            path,
            sep=separator,
            header=None if bare else 0,
            dtype=str,
            keep_default_na=False,
            skip_blank_lines=False,
            index_col=False,
            encoding="utf-8-sig",
        )
    except (UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise ValueError(f"Expected a table as UTF-8 text in {path}: {error}") from error
    return frame.rename(columns=str), 1 if bare else 2


def _ids(path: Path, raw: pd.Series, what: str, line: int, kind: type | None) -> pd.Series:
    empty = (raw.isna() | (raw.astype(str).str.strip() == "")).to_numpy()
    if empty.any():
        raise ValueError(
            f"Expected a {what} in every row of {path}, got none in {_place(empty, line)}"
        )
    if not line:  # parquet has types of its own
        return raw
    if kind is str:
        return raw
    numbers = pd.to_numeric(raw, errors="coerce").fillna(0.5)
    whole = (numbers % 1 == 0) & (numbers.abs() < 2**53)
    same = whole & (numbers.where(whole, 0).astype(np.int64).astype(str) == raw)  # "007" is text
    if same.all():
        return numbers.astype(np.int64)
    if kind is int:
        got = raw[~same].iloc[0]
        raise ValueError(
            f"Expected a whole number as {what} in {path}, got {got!r} in {_place(~same, line)}"
        )
    return raw


def _numbers(path: Path, raw: pd.Series, what: str, line: int) -> np.ndarray:
    numbers = pd.to_numeric(raw, errors="coerce").to_numpy(dtype=float, na_value=np.nan)
    wrong = ~np.isfinite(numbers)
    if wrong.any():
        got = raw.iloc[int(np.flatnonzero(wrong)[0])]
        raise ValueError(
            f"Expected a finite number as {what} in {path}, got {got!r} in {_place(wrong, line)}"
        )
    return numbers


def _long_views(ids: list[pd.Series], value: np.ndarray) -> Views:
    row, view, feature = ids
    at, rows = pd.factorize(row, sort=True)
    matrices, features = {}, {}
    for name in sorted(view.astype(str).unique()):
        mine = (view.astype(str) == name).to_numpy()
        column, features[name] = pd.factorize(feature[mine], sort=True)
        shape = (len(rows), len(features[name]))
        matrices[name] = sp.csr_matrix((value[mine], (at[mine], column)), shape=shape)
    made = Views(matrices, rows=rows)
    made.host = replace(made.host, features={n: pd.Index(x) for n, x in features.items()})
    return made


def _place(wrong: Any, line: int) -> str:
    row = int(np.flatnonzero(np.asarray(wrong))[0])
    return f"line {row + line}" if line else f"row {row}"


def _by_line(message: str, line: int) -> str:
    """The rows that a message counts from 0, as lines of the file."""
    if not line:
        return message
    return re.sub(r"\brow (\d+)", lambda m: f"line {int(m[1]) + line}", message)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
