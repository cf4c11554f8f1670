"""Read Ratings or Views from a user's own file: CSV, TSV (also .gz or .zip), parquet or NPZ.

The text "NA" is a label, not a missing value. Blanks around a label of a text file are dropped. If all labels
of a column are whole numbers, they become numbers. Error messages name the line of the file.
"""

import io
import os
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from bayesfac.core.data.columns import RATINGS, VIEWS, Columns, choose, is_role, with_time
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.data.reading import indefinite, with_places
from bayesfac.core.data.views import Views
from bayesfac.core.errors import DataWarning
from bayesfac.datasets import frames
from bayesfac.datasets.readers import npz_arrays


def read(
    path: str | os.PathLike[str],
    kind: str = "ratings",
    *,
    columns: Columns | None = None,
    levels: int | Sequence[float] | None = None,
    duplicates: str = "error",
    bad: str = "error",
    ids: Mapping[str, type] | None = None,
    decimal: str = ".",
    separator: str | None = None,
) -> Ratings | Views:
    r"""Read ratings, or views, from a file.

    Parameters
    ----------
    path : path
        Text (.csv, .tsv, .txt, .dat; comma, semicolon, tab, "::" or blanks), .parquet or .npz. Text may be
        compressed (.csv.gz, or .zip with one table or one table named ratings). Ratings are a long
        table user, item, rating; views a long table row, view, feature, value. Text without a header
        (a number in the last of these columns of line 1) is read by position; of four columns with "::"
        the last is the time, as MovieLens writes it. An NPZ holds user, item and rating, or view_NAME
        matrices, or one matrix (scipy's `save_npz` included).
    kind : {"ratings", "views"}
    columns : sequence of str or mapping, optional
        The names of these columns in the file, all in order or some as {"rating": "stars"}. By default
        the names above or usual names for them (userId, customer, movie, stars, ...). A header without
        such names is an error. A column with times (timestamp, date) is kept: see `Ratings`.
    levels : int or sequence, optional
        The ordinal scale: a number of levels, or all of them. By default ratings are real numbers.
    duplicates : {"error", "mean"}
        What to do with two values of one cell: raise an error, or take their mean, as `Ratings` does.
    bad : {"error", "skip"}
        What to do with rows without a label or a finite number: raise an error, or skip them with a warning.
        A number that is not in `levels` is always an error.
    ids : mapping, optional
        The type of the labels in a column of a text file, `int` or `str`, as {"user": str}. The default is
        `int` if all labels are whole numbers. Labels of both types match: see `Ratings`. Blanks before and
        after a label are dropped in text files, and kept in Parquet and NPZ files.
    decimal : {".", ","}
        The decimal sign of a text file. With "," columns are separated by a semicolon, a tab or blanks.
    separator : str, optional
        What separates the columns of a text file: one sign, "::", or " " for any blanks. By default what line
        1 has.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "r.csv"
    >>> _ = path.write_text("user,item,rating\nNA,x,4\nbob,x,2\n")
    >>> list(read(path).users)
    ['NA', 'bob']
    """
    check_choice("duplicates", duplicates, "mean")
    path = Path(path)
    signs = decimal, separator
    return _read(path, kind, columns, levels, duplicates, bad, ids, signs).named(path.name)


def _read(
    path: Path, kind: str, columns: Columns | None, levels: Any, duplicates: str, bad: str,
    ids: Mapping[str, type] | None, signs: tuple[str, str | None],
) -> Ratings | Views:  # fmt: skip
    if kind not in ("ratings", "views"):
        raise ValueError(f"Expected kind 'ratings' or 'views', got {kind!r}")
    if signs[0] not in (".", ","):
        raise ValueError(f"Expected decimal='.' or ',', got {signs[0]!r}")
    frames.check_file(path)
    check_choice("bad", bad, "skip")
    frames.check_options(path, kind, {"levels": levels, "columns": columns}, bad, signs)
    options: Any = {"levels": levels, "duplicates": duplicates} if kind == "ratings" else {}
    if path.suffix.lower() == ".npz":
        return _from_npz(path, kind, options)
    wanted = RATINGS if kind == "ratings" else VIEWS
    frames.check_ids(ids, wanted[:-1])
    table = _table(path, wanted, columns or None, signs)
    times = table.pop("time") if "time" in table else None
    if bad == "skip":
        table = _skipped(path, table)
        times = None if times is None else times[table.index]
    kinds = ids or {}
    labels = [_ids(path, table[name], kinds.get(name)) for name in wanted[:-1]]
    values = _numbers(path, table[wanted[-1]])
    try:
        if kind == "views":
            return frames.long_views(labels, values, duplicates)
        user, item = labels
        return Ratings(user, item, values, **options, times=None if times is None else times.array)
    except ValueError as error:  # rows are counted from 0: name the lines of the file instead
        index = table.index
        line = with_places(str(error), lambda row: f"{index.name} {index[row]}")
        raise ValueError(f"{path}: {line}") from error


def check_choice(name: str, value: str, other: str) -> None:
    """Refuse a setting that is neither "error" nor `other`."""
    if value not in ("error", other):
        raise ValueError(f"Expected {name}='error' or {other!r}, got {value!r}")


def read_pairs(
    path: str | os.PathLike[str],
    columns: Columns | None = None,
    ids: Mapping[str, type] | None = None,
) -> pd.DataFrame:
    r"""Read the pairs (user, item) of a file, to predict their ratings; other columns are ignored.

    Parameters
    ----------
    path : path
        Text or .parquet, as for `read`. Text without a header has users and items in its first two columns.
    columns, ids
        As for `read`, for user and item.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "q.csv"
    >>> _ = path.write_text("user,item\nann,x\n")
    >>> read_pairs(path).to_numpy().tolist()
    [['ann', 'x']]
    """
    path, wanted, kinds = Path(path), RATINGS[:2], ids or {}
    frames.check_ids(ids, wanted)
    frames.check_file(path)
    table = _table(path, wanted, columns or None, (".", None))
    read_as = {name: _ids(path, table[name], kinds.get(name)) for name in wanted}
    return pd.DataFrame(read_as).reset_index(drop=True)


def views(arrays: Mapping[str, np.ndarray]) -> Views:
    """Views from arrays view_NAME (dense, or sparse as view_NAME_data, _indices, _indptr, _shape)."""
    tables: dict[str, Any] = {}
    for key, array in arrays.items():
        name = key.removeprefix("view_")
        if name == key:
            continue
        if name.endswith("_indptr"):
            name = name.removesuffix("_indptr")
            parts = [arrays[f"view_{name}_{part}"] for part in ("data", "indices", "indptr")]
            tables[name] = sp.csr_matrix(tuple(parts), shape=tuple(arrays[f"view_{name}_shape"]))
        elif array.ndim == 2:
            tables[name] = array
    return Views(tables)


def _from_npz(path: Path, kind: str, options: dict[str, Any]) -> Ratings | Views:
    try:
        arrays = npz_arrays(path)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"Expected a NumPy archive in {path}: {error}") from error
    make: Any = partial(Ratings, **options) if kind == "ratings" else Views
    if kind == "ratings" and all(name in arrays for name in RATINGS):
        time = next((arrays[name] for name in ("time", "timestamp") if name in arrays), None)
        return make(*(arrays[name] for name in RATINGS), times=time)
    if kind == "views" and any(name.startswith("view_") for name in arrays):
        return views(arrays)
    if {"format", "shape", "data"} <= set(arrays):
        return make(sp.load_npz(path))
    if len(arrays) == 1:
        return make(next(iter(arrays.values())))
    wanted = "user, item and rating" if kind == "ratings" else "view_NAME matrices"
    raise ValueError(f"Expected {wanted}, or one matrix, in {path}, got {sorted(arrays)}")


def _table(
    path: Path, wanted: tuple[str, ...], columns: Columns | None, signs: tuple[str, str | None]
) -> pd.DataFrame:
    """The columns, renamed to `wanted`. The index is the line of a text file (from 2) or the row (from 0).
    For ratings also the column `time`, if there is one."""
    if path.suffix.lower() == ".parquet":
        frame, first = _parquet(path), 0
    else:
        text = frames.content(path, "ratings" if wanted == RATINGS else "views")
        frame, first = _text(path, text, wanted, columns is not None, signs)
    time = None
    if wanted == RATINGS:
        columns, time = with_time(list(frame.columns), columns)
    if first == 1 and columns is None:
        names = _by_position(path, frame, wanted)
    else:
        names = choose(list(frame.columns), wanted, columns, f" in {path}")
    if frame.empty:
        raise ValueError(f"Expected at least one row in {path}, got none")
    table = frame[names].set_axis(list(wanted), axis=1)
    if time is not None:
        table["time"] = frame[time]
    if first and signs[0] == ",":
        table[wanted[-1]] = table[wanted[-1]].str.replace(",", ".")
    place = pd.RangeIndex(first, first + len(table), name="line" if first else "row")
    return table.set_index(place)


def _by_position(path: Path, frame: pd.DataFrame, wanted: tuple[str, ...]) -> list[Any]:
    """The first columns of a text without header; a warning if there are more."""
    width = len(wanted)
    if list(frame.columns[:-1]) == list(wanted):
        return list(wanted)
    if more := frame.shape[1] - width:
        names = ", ".join(wanted)
        left = f"columns 1 to {width} are read as {names}; {more} more left aside"
        warnings.warn(f"No header in {path}: {left}", DataWarning, stacklevel=4)
    return list(frame.columns[:width])


def _skipped(path: Path, table: pd.DataFrame) -> pd.DataFrame:
    """The table without rows that cannot be read; a warning names these rows."""
    *labels, value = table.columns
    wrong = ~np.isfinite(as_numbers(table[value])) | np.any([empty(table[n]) for n in labels], 0)
    if wrong.any():
        left = f"{int(wrong.sum())} of {len(table)} rows of {path} are left out: "
        warnings.warn(left + _place(wrong, table.index, most=5), DataWarning, stacklevel=3)
    if wrong.all():
        raise ValueError(f"Expected at least one row in {path} that can be read, got none")
    return frames.whole_numbers(table[~wrong])


def _parquet(path: Path) -> pd.DataFrame:
    with as_parquet(path):
        import pyarrow.parquet as pq

        return frames.whole_numbers(pq.read_table(path).to_pandas(types_mapper=frames.nullable))


@contextmanager
def as_parquet(path: Path) -> Iterator[None]:
    """Turn errors of pyarrow into messages that say what to do."""
    try:
        import pyarrow as pa

        # pandas tells pyarrow of periods when it first converts one: before, they are read as integers
        pa.array(pd.period_range("2000", periods=1, freq="D").array)
        yield
    except ImportError as error:
        raise ImportError(
            "Expected pyarrow, which reads parquet, got none: pip install 'bayesfac[datasets]'"
        ) from error
    except (ValueError, OSError) as error:
        raise ValueError(f"Expected parquet in {path}: {error}") from error


def _text(
    path: Path, text: str, wanted: tuple[str, ...], named: bool, signs: tuple[str, str | None]
) -> tuple[pd.DataFrame, int]:
    """All cells as text, and the number of the first line with data (2 after a header, else 1)."""
    first, width, (decimal, separator) = text.split("\n", 1)[0].rstrip("\r"), len(wanted), signs
    doubled = separator == "::" or (separator is None and first.count("::") >= width - 1)
    if doubled:
        text, first, separator = text.replace("::", "\t"), first.replace("::", "\t"), "\t"
    if separator is None:
        separator = max(";\t" if decimal == "," else ",;\t", key=first.count)
        separator = separator if separator in first else " "
    cells = first.split() if separator == " " else first.split(separator)
    head, separator = [cell.strip().strip('"') for cell in cells], frames.pattern_of(separator)
    known = any(is_role(cell, role) for cell in head for role in (*wanted, "time"))
    number = len(head) >= width and _is_number(head[width - 1].replace(decimal, "."))
    bare = number and not (named or known)
    how: Any = {"dtype": str, "keep_default_na": False, "skip_blank_lines": False, "sep": separator}
    try:
        frame = pd.read_csv(io.StringIO(text), header=None if bare else 0, **how)
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise ValueError(frames.unreadable(path, error)) from error
    frame = frames.of_header(path, frame).rename(columns=str)
    if not bare:  # names as in the file: pandas adds a number to the second of two equal names
        frame.columns = pd.read_csv(io.StringIO(text), header=None, nrows=1, **how).iloc[0].tolist()
    if bare and doubled and wanted == RATINGS and frame.shape[1] == width + 1:
        frame = frame.set_axis([*wanted, "timestamp"], axis=1)  # as MovieLens writes its ratings
    return frame, 1 if bare else 2


def _ids(path: Path, raw: pd.Series, kind: type | None) -> pd.Series:
    missing = empty(raw)
    if missing.any():
        raise ValueError(no_label(path, str(raw.name), _place(missing, raw.index)))
    if raw.index.name == "row":  # columns of Parquet have types, so labels are not converted
        return raw
    raw = raw.str.strip()
    if kind is str:
        return raw
    numbers = pd.to_numeric(raw, errors="coerce").fillna(0.5)
    whole = (numbers % 1 == 0) & (numbers.abs() < 2**53)
    same = whole & (numbers.where(whole, 0).astype(np.int64).astype(str) == raw)  # "007" stays text
    if same.all():
        return numbers.astype(np.int64)
    if kind is int:
        got, where = raw[~same].iloc[0], _place(~same, raw.index)
        raise ValueError(f"Expected a whole number as {raw.name} in {path}, got {got!r} in {where}")
    return raw


def no_label(path: Path, what: str, where: str) -> str:
    """The message for rows without a label."""
    return (
        f"Expected {indefinite(what)} in every row of {path}, got none in {where}; "
        "bad='skip' leaves such rows out"
    )


def no_number(path: Path, what: str, got: Any, where: str) -> str:
    """The message for rows without a finite number, of which the first has `got`."""
    commas = isinstance(got, str) and "," in got and _is_number(got.replace(",", ".", 1))
    advice = "decimal=',' reads decimal commas" if commas else "bad='skip' leaves such rows out"
    return f"Expected a finite number as {what} in {path}, got {got!r} in {where}; {advice}"


def empty(raw: pd.Series) -> np.ndarray:
    """Which labels are missing or blank."""
    if raw.dtype.kind in "biuf":
        return raw.isna().to_numpy()
    return (raw.isna() | (raw.astype(str).str.strip() == "")).to_numpy()


def as_numbers(raw: pd.Series) -> np.ndarray:
    """The cells as numbers, or NaN. Dates and times become NaN, because pandas would convert them to numbers
    in some unit."""
    if raw.dtype.kind in "mMc":
        return np.full(len(raw), np.nan)
    return pd.to_numeric(raw, errors="coerce").to_numpy(dtype=float, na_value=np.nan)


def _numbers(path: Path, raw: pd.Series) -> np.ndarray:
    numbers = as_numbers(raw)
    wrong = ~np.isfinite(numbers)
    if wrong.any():
        got = raw.iloc[int(np.flatnonzero(wrong)[0])]
        raise ValueError(no_number(path, str(raw.name), got, _place(wrong, raw.index)))
    return numbers


def _place(wrong: Any, index: pd.Index, most: int = 1) -> str:
    """The places of wrong rows in words: "line 7, line 9 and 3 more"."""
    at = index[np.asarray(wrong)]
    named = ", ".join(f"{index.name} {number}" for number in at[:most])
    return named + (f" and {len(at) - most} more" if len(at) > most else "")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
