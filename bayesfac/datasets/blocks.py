"""Blocks of rows of large files: Parquet, or a folder of Parquet files or of arrays."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bayesfac.core.data import reading
from bayesfac.core.data.columns import RATINGS, Columns, choose, with_time
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
