"""Checks of user data: tables become numbers with labels, or an error names the wrong row.

Labels are compared as text: 7, 7.0 and "7" are the same label, and "007" is another one.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import jax
import numpy as np
import pandas as pd
import scipy.sparse as sp

from bayesfac.core.data import columns as names
from bayesfac.core.data.cells import copied

BLOCK = 2**16  # numbers of a long array that are copied at a time
MISSING = ": bf.Measurements takes tables of numbers with missing cells"
LONGEST = 200  # bytes of a name of a view; a name of a file has at most 255
QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""


def labels(raw: Any, what: str) -> tuple[np.ndarray, pd.Index]:
    """Codes into the sorted distinct labels, and these labels; a missing label is an error.

    Whole numbers are sorted as numbers, also if they are text.
    """
    # np.asarray would turn the list [1, "a"] into two strings
    flat = raw if isinstance(raw, pd.Series | pd.Index | np.ndarray) else pd.Series(list(raw))
    if getattr(flat, "ndim", 1) != 1:
        raise ValueError(
            f"Expected a one-dimensional list of {what} labels, got shape {flat.shape}"
        )
    if (found := _whole_numbers(flat)) is not None:
        return found
    codes, distinct = pd.factorize(native(flat))
    if (codes < 0).any():
        row = int(np.argmax(codes < 0))
        raise ValueError(f"Expected {indefinite(what)} label in every row, got none in row {row}")
    distinct = pd.Index(distinct)
    read = as_read(distinct)
    if not read.is_unique:  # 7 and "7" in one column
        same, first = pd.factorize(read)[0], ~read.duplicated()
        codes, distinct, read = same[codes], distinct[first], read[first]
    order = _order(distinct if read.dtype.kind not in "iu" else read)
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return rank[codes], distinct[order]


def _whole_numbers(flat: Any) -> tuple[np.ndarray, pd.Index] | None:
    """`labels` of whole numbers, by a table of all numbers between the least and the largest; None if the
    labels are none, or so far apart that the table would be longer than the list."""
    if not isinstance(flat.dtype, np.dtype) or flat.dtype.kind not in "iu" or not len(flat):
        return None
    numbers = np.asarray(flat)
    low, high = int(numbers.min()), int(numbers.max())
    if high - low > max(len(numbers), 2**16) or high > np.iinfo(np.int64).max:
        return None
    known = np.zeros(high - low + 1, bool)
    codes = np.empty(len(numbers), np.int32)
    for block in _blocks(len(numbers)):
        known[numbers[block].astype(np.int64) - low] = True
    rank = None if known.all() else (np.cumsum(known) - 1).astype(np.int32)
    for block in _blocks(len(numbers)):
        at = numbers[block].astype(np.int64) - low
        codes[block] = at if rank is None else rank[at]
    return codes, pd.Index((np.flatnonzero(known) + low).astype(native(flat).dtype))


def _blocks(size: int) -> Iterator[slice]:
    """Slices of a long array, whose temporary copies are small."""
    return (slice(start, start + BLOCK) for start in range(0, size, BLOCK))


def native(flat: Any) -> Any:
    """Numbers in the byte order of this machine: pandas finds no others, as some files have them."""
    if isinstance(flat.dtype, np.dtype) and not flat.dtype.isnative:
        return flat.astype(flat.dtype.newbyteorder("="))
    return flat


def _order(distinct: pd.Index) -> np.ndarray:
    try:
        return np.argsort(distinct.to_numpy(), kind="stable")
    except TypeError:  # labels of several types cannot be compared
        typed = [(type(label).__name__, str(label)) for label in distinct]
        return np.array(sorted(range(len(typed)), key=typed.__getitem__))


def as_read(index: pd.Index) -> pd.Index:
    """Labels as they are compared: integers if all are whole numbers, else text.

    Examples
    --------
    >>> list(as_read(pd.Index(["7", "10"]))), list(as_read(pd.Index([7.0, "007"])))
    ([7, 10], ['7', '007'])
    """
    if index.dtype.kind in "iu":
        beyond_int64 = (
            index.dtype.kind == "u" and len(index) and index.max() > np.iinfo(np.int64).max
        )
        return native(index) if beyond_int64 else index.astype(np.int64)
    texts = [_text(label) for label in index]
    try:
        whole = [int(text) for text in texts]
    except ValueError:
        return pd.Index(texts, dtype=object)
    same = all(str(number) == text for number, text in zip(whole, texts, strict=True))
    return pd.Index(whole) if same and whole else pd.Index(texts, dtype=object)


def repeated(index: pd.Index) -> pd.Index:
    """The labels that stand in an axis for the second time or later."""
    return index[as_read(index).duplicated()]


def same_labels(one: pd.Index, other: pd.Index) -> bool:
    """Whether two axes have the same labels in the same order."""
    return one.equals(other) or (len(one) == len(other) and as_read(one).equals(as_read(other)))


def positions_of(known: pd.Index, asked: Any) -> np.ndarray:
    """The positions of labels among the known ones, -1 if unknown or missing."""
    known, index = native(known), native(pd.Index(asked))
    at = np.array(known.get_indexer(index))
    lost = (at < 0) & ~np.asarray(index.isna())
    if lost.any() and len(known):
        codes, labels_ = pd.factorize(index[lost])
        texts = pd.Index([_text(label) for label in known], dtype=object)
        wanted = pd.Index([_text(label) for label in labels_], dtype=object)
        at[lost] = texts.get_indexer(wanted)[codes]
    return at


def _text(label: Any) -> str:
    """The text of a label; 7.0 reads as 7."""
    label = plain(label)
    return str(int(label) if isinstance(label, float) and label.is_integer() else label)


def indefinite(noun: str) -> str:
    """The noun with its article: "a user", "an item"."""
    return f"{'an' if noun[:1] in 'aeio' else 'a'} {noun}"


def check_name(what: str, name: str) -> None:
    """Refuse a name that cannot be a part of the name of a file: a saved fit has files for each name."""
    if "\0" in name or len(name.encode()) > LONGEST:
        raise ValueError(
            f"Expected {what} of at most {LONGEST} bytes, none of which is 0, got {name!r:.60}"
        )


def array(raw: Any) -> np.ndarray:
    """The input as a NumPy array; masked entries become NaN."""
    if np.ma.isMaskedArray(raw):
        return np.ma.filled(raw.astype(np.float64), np.nan)
    return np.asarray(raw)


def numbers(raw: Any, what: str) -> np.ndarray:
    """Finite float64 values of a numeric input (always a copy), or an error that names the row."""
    values = array(raw)
    if values.dtype.kind in "OUSTmM":
        converted = pd.to_numeric(pd.Series(raw).reset_index(drop=True), errors="coerce")
        bad = converted.isna().to_numpy() & ~pd.isna(pd.Series(raw)).to_numpy()
        if values.dtype.kind in "mM" or bad.any():
            row = int(np.argmax(bad))
            raise TypeError(f"Expected numbers as {what}, got {values[row]!r} in row {row}")
        values = converted.to_numpy(dtype=np.float64, na_value=np.nan)
    if values.dtype.kind not in "biuf":
        raise TypeError(f"Expected real numbers as {what}, got dtype {values.dtype}")
    values = values.astype(np.float64)
    check_finite(values, what)
    return values


def levels(scale: int | Sequence[float]) -> tuple[float, ...]:
    """An ordinal scale: 5 means 1..5, a sequence rises.

    Examples
    --------
    >>> levels(3), levels([0.5, 1])
    ((1.0, 2.0, 3.0), (0.5, 1.0))
    """
    rising: Any = scale
    if not hasattr(scale, "__iter__"):  # how many
        if scale != int(scale):
            raise ValueError(f"Expected a whole number of levels, or a list of them, got {scale!r}")
        rising = range(1, int(scale) + 1)
    values = tuple(float(level) for level in rising)
    if len(values) < 2 or not np.isfinite(values).all() or (np.diff(values) <= 0).any():
        raise ValueError(f"Expected at least two rising levels (or how many), got {scale!r}")
    return values


def halfway(levels: Sequence[float]) -> list[float]:
    """The limits between levels: a value between two of them has the level between. In single precision a
    value is not exactly its level."""
    return [low + (high - low) / 2 for low, high in pairwise(levels)]


def positions(rows: Any) -> np.ndarray:
    """Positions or a mask as an array; an empty list becomes an array of integers."""
    array = np.asarray(rows)
    return array if array.size else array.astype(np.int64)


def with_places(message: str, place: Callable[[int], str]) -> str:
    """The message with place(7) for "row 7"; labels, which are quoted, stay as they are.

    Examples
    --------
    >>> with_places("a second in row 0 (user 'row 7')", lambda row: f"line {row + 2}")
    "a second in line 2 (user 'row 7')"
    """
    return re.sub(rf"{QUOTED}|\brow (\d+)", lambda m: place(int(m[1])) if m[1] else m[0], message)


def plain(label: Any) -> Any:
    """A label as a Python object: 7, not np.int64(7)."""
    return label.item() if hasattr(label, "item") else label


def beyond(values: np.ndarray) -> np.ndarray:
    """Which values are NaN, infinite or too large for the working precision."""
    return ~(np.abs(values) <= np.finfo(jax.dtypes.canonicalize_dtype(np.float64)).max)


def check_finite(values: np.ndarray, what: str, hint: str = "") -> None:
    """Check that no value is NaN, infinite or too large for the working precision."""
    ends = np.array([values.min(), values.max()] if values.size else [])  # NaN if one value is
    if beyond(ends).any():
        bad = beyond(values)
        where = np.argwhere(bad)[0]
        place = f"row {where[0]}" + (f", column {where[1]}" if values.ndim == 2 else "")
        got = values[tuple(where)]
        hint = hint if np.isnan(got) else ""
        raise ValueError(f"Expected finite {what}, got {got} in {place}{hint}")


def real(values: np.ndarray) -> jax.Array:
    """A copy on the device, in the working precision."""
    return jax.device_put(copied(values, jax.dtypes.canonicalize_dtype(np.float64)))


def times(raw: Any) -> np.ndarray:
    """Times as numbers or as datetime64: numbers as they are, text as numbers or as dates.

    Examples
    --------
    >>> times(["881250949", "891717742"]).tolist()
    [881250949, 891717742]
    >>> times(["2020-01-02"]).astype(str).tolist()
    ['2020-01-02T00:00:00.000000000']
    """
    column = pd.Series(raw).reset_index(drop=True)
    if column.dtype.kind not in "biufM":
        whole = pd.to_numeric(column, errors="coerce")
        dates = pd.to_datetime(column, errors="coerce", utc=True, format="ISO8601")
        column = whole if whole.count() >= dates.count() else dates.dt.tz_localize(None)
    elif getattr(column.dtype, "tz", None) is not None:
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    if column.isna().any():
        row = int(np.argmax(column.isna()))
        raise ValueError(
            f"Expected a time (a number or an ISO date), got {plain(raw[row])!r} in row {row}"
        )
    is_date = column.dtype.kind == "M"
    return (column.astype("datetime64[ns]") if is_date else column).to_numpy()


def triplets(frame: pd.DataFrame, columns: names.Columns | None) -> list[Any]:
    """The user, item, rating and time of a long table: `columns`, or the columns with usual names. Without
    a column with times, the time is None."""
    columns, time = names.with_time(list(frame.columns), columns)
    if columns is None and names.find(list(frame.columns), names.RATINGS) is None:
        raise ValueError(names.wide_or_long(frame))
    chosen = names.choose(list(frame.columns), names.RATINGS, columns)
    return [*(frame[name] for name in chosen), None if time is None else frame[time].to_numpy()]


def narrow(values: np.ndarray) -> np.ndarray:
    """The same numbers in the smallest of int8, float32 and float64 that holds all of them exactly."""
    for dtype in (np.int8, np.float32):
        if all(_held(values[block], dtype) for block in _blocks(len(values))):
            return values.astype(dtype)
    return values


def _held(values: np.ndarray, dtype: Any) -> bool:
    own = values.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        other = values.astype(dtype).astype(np.float64)
    return np.array_equal(own.view(np.int64), other.view(np.int64))  # 0 is not -0


def deviation(value: Any) -> float:
    """The standard deviation; 0 if all numbers are equal, where rounding may leave more."""
    return float(value.std()) if value.max() > value.min() else 0.0


def spread(value: Any) -> float:
    """The standard deviation; 1 if all numbers are equal."""
    return deviation(value) or 1.0


def in_double(table: Any) -> sp.csr_matrix:
    """A sparse copy in double precision, before cells that are listed twice are summed: two int8 may wrap."""
    return sp.csr_matrix(table.astype(np.float64))


def cells(frame: pd.DataFrame, what: str) -> np.ndarray:
    """The numbers of a table, NaN where one is missing; `what` they are, after "Expected numbers"."""
    for column, kind in zip(frame.columns, frame.dtypes, strict=True):
        if kind.kind not in "biuf":
            raise TypeError(f"Expected numbers {what}, got {kind} in column {column!r}")
    return frame.to_numpy(dtype=np.float64, na_value=np.nan)


def matrix(raw: Any, what: str) -> tuple[sp.csr_matrix, pd.Index, pd.Index]:
    """A table as a sparse float64 matrix, with its row and column labels."""
    rows = columns = None
    if isinstance(raw, pd.DataFrame):
        rows, columns = native(raw.index), native(raw.columns)
        raw = cells(raw, f"in {what}")
    if not sp.issparse(raw):
        raw = array(raw)
        if raw.ndim != 2:
            raise ValueError(f"Expected a two-dimensional {what}, got shape {raw.shape}")
    if raw.dtype.kind not in "biuf":
        raise TypeError(f"Expected real numbers in {what}, got dtype {raw.dtype}")
    if 0 in raw.shape:
        raise ValueError(f"Expected at least one row and feature in {what}, got shape {raw.shape}")
    if sp.issparse(raw):
        csr = in_double(raw)
        csr.sum_duplicates()
        coo = csr.tocoo()
        bad = np.flatnonzero(beyond(coo.data))
        if len(bad):
            at = f"row {coo.row[bad[0]]}, column {coo.col[bad[0]]}"
            raise ValueError(f"Expected finite values in {what}, got {coo.data[bad[0]]} in {at}")
    else:
        dense = raw.astype(np.float64)
        check_finite(dense, f"values in {what}", MISSING)
        csr = sp.csr_matrix(dense)
    csr.eliminate_zeros()
    rows = pd.RangeIndex(csr.shape[0]) if rows is None else rows
    return csr, rows, pd.RangeIndex(csr.shape[1]) if columns is None else columns


def is_named(raw: Any) -> bool:
    """Whether the data are a mapping name -> part. A scipy dok matrix is a dict too, but one part."""
    return isinstance(raw, Mapping) and not sp.issparse(raw)


def digest(parts: Sequence[Any]) -> str:
    """The sha256 of labels (an Index, by what they read as) and arrays, in order."""
    digest = hashlib.sha256()
    for part in parts:
        part = as_read(part) if isinstance(part, pd.Index) else part
        array = np.asarray(part) if part is not None else np.zeros(0)
        if array.dtype.kind not in "biuf":
            array = np.frombuffer("\x1f".join(map(str, array.ravel())).encode(), np.uint8)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
