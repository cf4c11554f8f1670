"""Read files of pairs, tensors and matrices beside the ratings; refuse data that the command cannot read."""

import argparse
from pathlib import Path
from typing import Any


def check_kind(kind: str, args: argparse.Namespace) -> None:
    """Refuse data that the command cannot read, and --levels for data without levels."""
    if kind == "tasks":
        raise TypeError(
            "Expected a method of ratings, counts, views, a tensor or several matrices, got one of rows with "
            "labels, which the command does not read: use bf.fit and bf.Tasks in Python"
        )
    if args.levels and kind in ("views", "counts"):
        raise ValueError(f"Expected --levels for ratings, got it for {kind}")


def pairs(name: str, roles: dict[str, str]) -> Any:
    """The users and items of a data set, or of a file; the columns are named as the roles."""
    from bayesfac import datasets
    from bayesfac.datasets.registry import RECORDS

    if name in RECORDS or Path(name).suffix == ".npz":
        if roles:
            raise ValueError(f"Expected a table for --{next(iter(roles))}, got {name!r}")
        return datasets.load(name) if name in RECORDS else datasets.read(name)
    return datasets.read_pairs(name, roles)


def tensor(name: str, args: argparse.Namespace) -> Any:
    """Read a CSV file with a header: a column for each mode, and one of values."""
    from bayesfac.core.data.tensor import Tensor

    if not Path(name).is_file():
        raise FileNotFoundError(f"Expected a CSV file of cells for a tensor, got {name!r}")
    for option in ("user", "item", "rating", "levels"):
        if getattr(args, option) is not None:
            raise ValueError(f"Expected --columns A,B,C,VALUE for a tensor, got --{option}")
    if args.bad != "error":
        raise ValueError("Expected a file without bad rows for a tensor, got --bad skip")
    options = {"columns": args.columns or None, "duplicates": args.duplicates}
    table = _read(name, args)
    try:
        return Tensor(table, **options).named(Path(name).stem)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def relations(ratings: Any, args: argparse.Namespace) -> Any:
    """The ratings and the files of `--matrix`: a column for each of the two kinds, and one of values."""
    from bayesfac.core.data.linked.relations import Relations

    matrices = {}
    for name, (row, col, file) in getattr(args, "matrix", None) or ():
        if not Path(file).is_file():
            raise FileNotFoundError(f"Expected a CSV file of the matrix {name!r}, got {file!r}")
        if name in matrices:
            raise ValueError(f"Expected different names of matrices, got --matrix {name} twice")
        matrices[name] = (row, col, _read(file, args))
    return Relations(ratings, matrices, duplicates=args.duplicates)


def _read(file: str, args: argparse.Namespace) -> Any:
    """Read a table. Columns of numbers become numbers. Labels such as "007" and "NA" stay text; blanks around
    them are removed, as in other files."""
    import pandas as pd

    from bayesfac.datasets.frames import pattern_of

    usual = ";" if args.decimal == "," else ","
    how: dict[str, Any] = {"sep": pattern_of(args.separator or usual)}
    try:
        frame = pd.read_csv(file, decimal=args.decimal, **how)
    except pd.errors.EmptyDataError as error:
        raise ValueError(f"Expected a table in {file}, got an empty file") from error
    if frame.empty:
        raise ValueError(f"Expected at least one row in {file}, got none")
    text = pd.read_csv(file, dtype=str, keep_default_na=False, **how)
    head = pd.read_csv(file, header=None, nrows=1, dtype=str, **how).iloc[0].dropna()
    if head.duplicated().any():  # pandas calls the second of them another name
        again = head[head.duplicated()].iloc[0]
        raise ValueError(f"Expected different columns in {file}, got {again!r} twice")
    for name, column in frame.items():
        kind, written = column.dtype.kind, text[name].str.strip()
        if kind not in "bf" and not (kind in "iu" and (column.astype(str) == written).all()):
            frame[name] = written.mask(written == "")
    return frame
