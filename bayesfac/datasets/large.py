"""Ratings that do not fit in memory: Parquet files or arrays, which are read twice in blocks.

The first pass checks every row and counts the ratings of each label. The second pass replaces the ids by
numbers and distributes the rows to processes (`core/data/divided/piles.py`). A process has in memory a block,
the labels and its share of the ratings. Error messages are those of `files.read`.
"""

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bayesfac.core.data import reading, triplets
from bayesfac.core.data.columns import RATINGS, Columns, choose, with_time
from bayesfac.core.data.divided.large import LargeRatings, Summary
from bayesfac.core.data.divided.piles import Block, deal
from bayesfac.core.data.divided.shares import SIDES
from bayesfac.core.errors import DataWarning
from bayesfac.datasets import files, frames

ROWS = 2**18  # number of rows of a block

Pieces = Callable[[], Iterator["Piece"]]


class Piece(NamedTuple):
    """Rows of a file: a table with the columns of `RATINGS`, the number of its first row, and the name of the
    file if there are several."""

    table: pd.DataFrame
    first: int
    file: str = ""

    def place(self, row: int) -> str:
        """The place of a row of the table, in words."""
        return f"row {self.first + row}" + (f" of {self.file}" if self.file else "")


def source(path: Path, columns: Columns | None) -> Pieces:
    """The function that reads the file or folder, block by block, from its beginning."""
    if path.is_dir():
        parts = sorted(each for each in path.iterdir() if each.name[0] not in "._")
        tables = [part for part in parts if part.suffix.lower() == ".parquet"]
        arrays = {part.stem: part for part in parts if part.suffix.lower() == ".npy"}
        if bool(tables) == bool(arrays):
            raise ValueError(
                f"Expected .parquet files, or user.npy, item.npy and rating.npy, in {path}, got "
                f"{[part.name for part in parts]}"
            )
        return _tables(tables, columns) if tables else _arrays(path, arrays, columns)
    if not path.is_file():
        raise FileNotFoundError(f"Expected a file or a folder, got {path}, which does not exist")
    if path.suffix.lower() != ".parquet":
        raise ValueError(
            f"Expected a .parquet file, or a folder of .parquet or .npy files, got {path.name}; "
            "bf.datasets.read reads other files"
        )
    return _tables([path], columns)


def _tables(tables: list[Path], columns: Columns | None) -> Pieces:
    """The rows of Parquet files, all with the same columns."""
    first = _kinds(tables[0])
    wanted = choose(list(first), RATINGS, with_time(list(first), columns)[0], f" in {tables[0]}")
    for table in tables[1:]:
        found = _kinds(table)
        if any(found.get(name) != first[name] for name in wanted):
            said = ", ".join(f"{name} ({first[name]})" for name in wanted)
            got = ", ".join(f"{name} ({kind})" for name, kind in found.items())
            raise ValueError(
                f"Expected the columns of {tables[0].name}, {said}, in {table}, got {got}"
            )

    def pieces() -> Iterator[Piece]:
        import pyarrow as pa

        for table in tables:
            begin, name = 0, table.name if len(tables) > 1 else ""
            with files.as_parquet(table), _opened(table) as file:
                for batch in file.iter_batches(ROWS, columns=wanted, use_threads=False):
                    frame = batch.to_pandas(types_mapper=frames.nullable)
                    frame = frames.whole_numbers(frame.reset_index(drop=True)[wanted])
                    yield Piece(_plain(frame.set_axis(list(RATINGS), axis=1)), begin, name)
                    begin += batch.num_rows
            # pyarrow keeps the memory of freed blocks for later ones; this returns it to the system
            pa.default_memory_pool().release_unused()

    return pieces


def _kinds(path: Path) -> dict[Any, str]:
    """The columns of a Parquet file, and their types."""
    with files.as_parquet(path), _opened(path) as file:
        schema = file.schema_arrow
    if len(set(schema.names)) < len(schema.names):
        again = next(name for name in schema.names if schema.names.count(name) > 1)
        raise ValueError(f"Expected different columns in {path}, got {again!r} twice")
    names = schema.empty_table().to_pandas().columns  # without a stored index
    return {name: str(schema.field(name).type) for name in names}


def _opened(path: Path) -> Any:
    """A Parquet file, opened so that only a small part is in memory at a time."""
    import pyarrow.parquet as pq

    return pq.ParquetFile(path, buffer_size=2**20, pre_buffer=False)


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Replace categories by their values, because their codes differ from block to block."""
    kinds = {
        name: frame[name].cat.categories.dtype
        for name in frame
        if isinstance(frame[name].dtype, pd.CategoricalDtype)
    }
    return frame.astype(kinds) if kinds else frame


def _arrays(path: Path, arrays: dict[str, Path], columns: Columns | None) -> Pieces:
    """The rows of arrays of one length, each in a file of its own."""
    seen = list(arrays)
    names = list(map(str, choose(seen, RATINGS, with_time(seen, columns)[0], f" in {path}")))
    sizes = []
    for name in names:
        if (array := _mapped(arrays[name])).ndim != 1:
            raise ValueError(
                f"Expected a one-dimensional array in {arrays[name]}, got shape {array.shape}"
            )
        sizes.append(len(array))
    if len(set(sizes)) > 1:
        raise ValueError(f"Expected users, items and values of one length in {path}, got {sizes}")

    def pieces() -> Iterator[Piece]:
        for begin in range(0, sizes[0], ROWS):
            # mapped again for each block: pages of an open map would count as memory of this process
            maps = [_mapped(arrays[name])[begin : begin + ROWS] for name in names]
            parts = [np.array(reading.native(one)) for one in maps]
            yield Piece(pd.DataFrame(dict(zip(RATINGS, parts, strict=True))), begin)

    return pieces


def _mapped(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"Expected a NumPy array in {path}: {error}") from error


SHOWN = 5  # number of left-out rows that are named


def read_large(
    path: str | os.PathLike[str],
    *,
    columns: Columns | None = None,
    levels: int | Sequence[float] | None = None,
    duplicates: str = "error",
    bad: str = "error",
) -> LargeRatings:
    r"""Read ratings that do not fit in memory: each process of `bf.Gibbs(shares=True)` keeps its share.

    All processes that `jax.distributed.initialize` has joined call this function with the same arguments.
    Each reads the file twice, in blocks of 262,144 rows, and keeps the ratings of rows that its devices draw.
    Error messages are those of `read`. Times are not read.

    Parameters
    ----------
    path : path
        A .parquet file; a folder of .parquet files with the same columns, read in the order of their
        names; or a folder with the arrays user.npy, item.npy and rating.npy (or usual names for them).
    columns, levels, duplicates, bad
        As for `read`.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name, array in {"user": [7, 9], "item": [1, 1], "rating": [4, 2]}.items():
    ...     np.save(folder / f"{name}.npy", array)
    >>> read_large(folder)
    LargeRatings(2 users x 1 items, 2 ratings, density 1, real values, 1 of 1 shares here)
    """
    path = Path(path)
    files.check_choice("duplicates", duplicates, "mean")
    files.check_choice("bad", bad, "skip")
    scale = None if levels is None else reading.levels(levels)
    pieces = source(path, columns or None)
    seen = First(path, scale, bad == "skip")
    for piece in pieces():
        seen.look(piece)
    seen.judge()
    labels, counts = {}, {}
    for side in SIDES:
        labels[side], counts[side] = seen.labels[side].sorted(side)

    def coded() -> Iterator[Block]:
        for piece in pieces():
            found = Parsed.of(piece)
            codes = [found.codes(side, labels[side]) for side in SIDES]
            yield codes[0], codes[1], found.value[found.good]

    try:
        made = deal(coded, labels, counts, seen.summary, scale, duplicates)
    except ValueError as error:
        said = reading.with_places(str(error), lambda row: seen.place(row, pieces))
        raise ValueError(f"{path}: {said}") from error
    return made.named(path.name)


@dataclass(frozen=True)
class Parsed:
    """A block: codes into the block's own labels, values, and which rows are good."""

    code: dict[str, np.ndarray]
    distinct: dict[str, pd.Index]
    value: np.ndarray
    wrong: dict[str, np.ndarray]  # by column of `RATINGS`
    good: np.ndarray

    @classmethod
    def of(cls, piece: Piece) -> "Parsed":
        """Read a block."""
        code, distinct, wrong = {}, {}, {}
        for side in SIDES:
            codes, labels = pd.factorize(piece.table[side])
            code[side], distinct[side] = codes, pd.Index(frames.whole(labels))
            empty = np.append(files.empty(pd.Series(distinct[side])), True)  # a missing label is -1
            wrong[side] = empty[codes]
        value = files.as_numbers(piece.table["rating"])
        wrong["rating"] = ~np.isfinite(value)
        good = ~(wrong["user"] | wrong["item"] | wrong["rating"])
        return cls(code, distinct, value, wrong, good)

    def count(self, side: str) -> tuple[pd.Index, np.ndarray]:
        """The labels of the good rows, and how many rows each has."""
        count = np.bincount(self.code[side][self.good], minlength=len(self.distinct[side]))
        return self.distinct[side][count > 0], count[count > 0]

    def codes(self, side: str, labels: pd.Index) -> np.ndarray:
        """The positions among all labels, for the good rows."""
        code, known = self.code[side][self.good], self.count(side)[0]
        at = np.full(len(self.distinct[side]), -1, np.int32)
        at[np.unique(code)] = reading.positions_of(labels, known)
        return at[code]


class Labels:
    """Distinct labels in the order of the file, and how many rows each has."""

    def __init__(self) -> None:
        self.parts: list[pd.Index] = []
        self.counts: list[np.ndarray] = []

    def add(self, labels: pd.Index, count: np.ndarray) -> None:
        """Add the labels of a block. They are merged when the new ones outnumber the others: linear work."""
        self.parts.append(labels)
        self.counts.append(count)
        if sum(map(len, self.parts[1:])) > max(len(self.parts[0]), 2**18):
            self._merge()

    def _merge(self) -> None:
        codes, labels = pd.factorize(self.parts[0].append(self.parts[1:]))
        count = np.bincount(codes, np.concatenate(self.counts)).astype(np.int64)
        self.parts, self.counts = [pd.Index(labels)], [count]

    def sorted(self, what: str) -> tuple[pd.Index, np.ndarray]:
        """The labels as `Ratings` has them, and how many rows each has."""
        self._merge()
        codes, labels = reading.labels(self.parts[0], what)
        return labels, np.bincount(codes, self.counts[0], len(labels)).astype(np.int64)


@dataclass
class Fault:
    """Rows with a fault: the places of the first ones, the first value, and the number of rows."""

    places: list[str] = field(default_factory=list)
    count: int = 0
    got: Any = None

    def add(self, piece: Piece, wrong: np.ndarray, got: Any = None) -> None:
        """Record the wrong rows of a block."""
        rows = np.flatnonzero(wrong)
        if len(rows) and not self.count:
            self.got = None if got is None else got(int(rows[0]))
        self.places += [piece.place(int(row)) for row in rows[: SHOWN - len(self.places)]]
        self.count += len(rows)

    def where(self, most: int = 1) -> str:
        """The places in words, as `files.read` writes them."""
        shown = self.places[:most]
        more = f" and {self.count - len(shown)} more" if self.count > len(shown) else ""
        return ", ".join(shown) + more


class First:
    """The result of the first pass: labels, values, and faults."""

    def __init__(self, path: Path, levels: tuple[float, ...] | None, skip: bool) -> None:
        self.path, self.levels, self.skip = path, levels, skip
        self.labels = {side: Labels() for side in SIDES}
        self.summary, self.rows = Summary(levels or ()), 0
        self.faults = {what: Fault() for what in (*RATINGS, "left out", "beyond", "levels")}

    def look(self, piece: Piece) -> None:
        """Check and count a block."""
        found = Parsed.of(piece)
        self.rows += len(found.good)
        if self.skip:
            self.faults["left out"].add(piece, ~found.good)
        else:
            for name in RATINGS:
                self.faults[name].add(piece, found.wrong[name], piece.table[name].iloc.__getitem__)
        value = found.value
        beyond = found.good & reading.beyond(value)
        self.faults["beyond"].add(piece, beyond, value.__getitem__)
        if self.levels is not None:
            off = found.good & ~np.isin(value, self.levels)
            self.faults["levels"].add(
                piece, off, lambda row: [piece.table[name].iloc[row] for name in RATINGS]
            )
        self.summary.add(value[found.good & ~beyond])
        for side in SIDES:
            self.labels[side].add(*found.count(side))

    def judge(self) -> None:
        """Raise the error that `files.read` would raise, or warn of rows that are skipped."""
        if not self.rows:
            raise ValueError(f"Expected at least one row in {self.path}, got none")
        if (left := self.faults["left out"]).count:
            said = f"{left.count} of {self.rows} rows of {self.path} are left out: "
            warnings.warn(said + left.where(SHOWN), DataWarning, stacklevel=3)
        for side in SIDES:
            if (fault := self.faults[side]).count:
                raise ValueError(files.no_label(self.path, side, fault.where()))
        if (fault := self.faults["rating"]).count:
            raise ValueError(files.no_number(self.path, "rating", fault.got, fault.where()))
        if not len(self.summary):
            raise ValueError(f"Expected at least one row in {self.path} that can be read, got none")
        if (fault := self.faults["beyond"]).count:
            got = f"got {fault.got} in {fault.places[0]}"
            raise ValueError(f"{self.path}: Expected finite ratings, {got}")
        if (fault := self.faults["levels"]).count:
            assert self.levels is not None
            user, item, value = fault.got
            said = triplets.off_levels(self.levels, float(value), fault.places[0], user, item)
            raise ValueError(f"{self.path}: {said}")

    def place(self, position: int, pieces: Any) -> str:
        """The place of the good row with this number."""
        for piece in pieces():
            rows = np.flatnonzero(Parsed.of(piece).good)
            if position < len(rows):
                return piece.place(int(rows[position]))
            position -= len(rows)
        raise IndexError(position)
