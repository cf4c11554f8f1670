"""Tables of files as read by pandas, without its rounding and its omissions; long tables as views."""

import gzip
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from bayesfac.core.data.reading import plain
from bayesfac.core.data.views import Views

CELL = ["row", "view", "feature"]
TEXT = (".csv", ".tsv", ".txt", ".tab", ".data", ".dat")


def check_options(
    path: Path, kind: str, given: dict[str, Any], bad: str, signs: tuple[str, str | None]
) -> None:
    """Refuse options that have no meaning for this kind of data, or of file."""
    binary, arrays = (path.suffix.lower() in kinds for kinds in ((".npz", ".parquet"), (".npz",)))
    for name, useless, wanted in (
        ("levels", kind == "views" and given["levels"] is not None, f"ratings, got it for {kind}"),
        ("columns", arrays and given["columns"], f"a table, got it for {path.name}"),
        ("bad", arrays and bad != "error", f"a table, got it for {path.name}"),
        ("decimal", binary and signs[0] != ".", f"a text file, got it for {path.name}"),
        ("separator", binary and signs[1], f"a text file, got it for {path.name}"),
    ):
        if useless:
            raise ValueError(f"Expected {name}= for {wanted}")


def check_ids(ids: Mapping[str, type] | None, columns: Sequence[str]) -> None:
    """Refuse types for columns that have no labels, and types that labels cannot have."""
    for name, kind in (ids or {}).items():
        if name not in columns:
            raise ValueError(f"Expected ids= for {' or '.join(columns)}, got {name!r}")
        if kind not in (int, str):
            raise ValueError(f"Expected int or str as ids={{{name!r}: ...}}, got {kind!r}")


def check_file(path: Path) -> None:
    """Refuse folders, pipes and paths that do not exist."""
    if path.is_dir():
        raise ValueError(
            f"Expected a file, got the folder {path}, which bf.datasets.read_large may read"
        )
    if not path.is_file():
        what = "is a pipe or device" if path.exists() else "does not exist"
        raise FileNotFoundError(f"Expected a file, got {path}, which {what}")


def content(path: Path, kind: str) -> str:
    """The text of a file, which may be compressed."""
    name, raw = path.name.lower(), path.read_bytes()
    try:
        if name.endswith(".zip"):
            name, raw = _member(path, kind)
        elif name.endswith(".gz"):
            name, raw = name.removesuffix(".gz"), gzip.decompress(raw)
    except (zipfile.BadZipFile, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"Expected a compressed table in {path}: {error}") from error
    if not name.endswith(TEXT):
        known = ", ".join([*TEXT, ".csv.gz", ".zip", ".parquet", ".npz"])
        raise ValueError(f"Expected a file ending in {known}, got {path.name}")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"Expected a table as UTF-8 text in {path}: {error}") from error
    if not text.strip():
        raise ValueError(f"Expected a table in {path}, got an empty file")
    return text


def _member(path: Path, kind: str) -> tuple[str, bytes]:
    """The name and content of the only table in an archive, or of the only table named `kind`."""
    with zipfile.ZipFile(path) as archive:
        # macOS puts a hidden copy of each file's attributes into that folder
        names = [name for name in archive.namelist() if not name.startswith("__MACOSX/")]
        tables = [name for name in names if name.lower().endswith(TEXT)]
        named = [name for name in tables if Path(name).stem.lower() == kind]
        chosen = named if len(tables) > 1 else tables
        if len(chosen) != 1:
            raise ValueError(f"Expected one table, or one named {kind}, in {path}, got {tables}")
        return chosen[0].lower(), archive.read(chosen[0])


def pattern_of(separator: str) -> str:
    """What pandas takes for a sign that separates columns: for a blank, any number of blanks."""
    if len(separator) != 1:
        raise ValueError(f"Expected a separator of one sign, or '::', got {separator!r}")
    return r"\s+" if separator == " " else separator


def nullable(kind: Any) -> Any:
    """The type for a column of 64-bit whole numbers, some of which may be missing. As floats, numbers from
    2**53 on would be rounded, and different labels could become equal."""
    return {"int64": pd.Int64Dtype(), "uint64": pd.UInt64Dtype()}.get(str(kind))


def whole_numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """The table with NumPy's types for columns of whole numbers without missing values."""
    full = {name: whole(column).dtype for name, column in frame.items()}
    return frame.astype(full)


def whole(labels: Any) -> Any:
    """The labels; whole numbers without gaps as a type of NumPy."""
    kind = labels.dtype
    nullable = isinstance(kind, pd.Int64Dtype | pd.UInt64Dtype)
    return labels.astype(kind.numpy_dtype) if nullable and not pd.isna(labels).any() else labels


def of_header(path: Path, frame: pd.DataFrame) -> pd.DataFrame:
    """The table without the empty cells after a separator at the ends of rows."""
    if isinstance(frame.index, pd.RangeIndex):  # rows and header have the same number of cells
        return frame
    names, extra = frame.columns, frame.index.nlevels
    cells = frame.reset_index()
    beyond = (cells.iloc[:, -extra:].fillna("") != "").any(axis=1).to_numpy()
    if beyond.any():
        got, line = len(names) + extra, int(np.argmax(beyond)) + 2
        raise ValueError(_too_many(path, len(names), "its header", got, line))
    return cells.iloc[:, : len(names)].set_axis(names, axis=1)


def unreadable(path: Path, error: Exception) -> str:
    """The message for a text that pandas cannot split into cells."""
    numbers = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
    if numbers is None:
        return f"Expected a table as UTF-8 text in {path}: {error}"
    wanted, line, got = map(int, numbers.groups())
    return _too_many(path, wanted, "line 1", got, line)


def _too_many(path: Path, wanted: int, where: str, got: int, line: int) -> str:
    """The message for a row with more cells than the first row."""
    return (
        f"Expected {wanted} cells in every row of {path}, as in {where}, got {got} in line {line}: name "
        "every column, or put quotes around a cell that contains the separator"
    )


def long_views(labels: list[pd.Series], value: np.ndarray, duplicates: str) -> Views:
    """Views of these cells; a cell that is listed twice is an error, or has the mean of its values."""
    cells = pd.DataFrame(dict(zip(CELL, labels, strict=True))).reset_index(drop=True)
    cells["view"] = cells["view"].astype(str)
    cells, value = _distinct(cells, value, duplicates)
    at, rows = pd.factorize(cells["row"], sort=True)
    matrices, features = {}, {}
    for name in sorted(cells["view"].unique()):
        mine = (cells["view"] == name).to_numpy()
        column, features[name] = pd.factorize(cells["feature"][mine], sort=True)
        shape = (len(rows), len(features[name]))
        matrices[name] = sp.csr_matrix((value[mine], (at[mine], column)), shape=shape)
    made = Views(matrices, rows=rows)
    made.host = replace(made.host, features={n: pd.Index(x) for n, x in features.items()})
    return made


def _distinct(
    cells: pd.DataFrame, value: np.ndarray, duplicates: str
) -> tuple[pd.DataFrame, np.ndarray]:
    """The distinct cells and their values."""
    again: Any = cells.duplicated().to_numpy()
    if not again.any():
        return cells, value
    which = cells.groupby(CELL, sort=False, observed=True).ngroup().to_numpy()
    if duplicates == "error":
        row = int(np.argmax(again))
        label, view, feature = (plain(cells[name][row]) for name in CELL)
        raise ValueError(
            f"Expected one value per row, view and feature, got a second in row {row} ({label!r}, view "
            f"{view!r}, feature {feature!r}; the first is row {int(np.argmax(which == which[row]))}); "
            "duplicates='mean' averages them"
        )
    mean = np.bincount(which, value) / np.bincount(which)
    return cells[~again].reset_index(drop=True), mean[which[~again]]
