"""Tables of files as pandas reads them, without what pandas rounds or leaves out."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd


def nullable(kind: Any) -> Any:
    """The type for a column of 64-bit whole numbers, of which some may be missing: as floats, those from
    2**53 on would be rounded, so that labels become one."""
    return {"int64": pd.Int64Dtype(), "uint64": pd.UInt64Dtype()}.get(str(kind))


def whole_numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """The columns of whole numbers of which none is missing as NumPy's."""
    full = {name: whole(column).dtype for name, column in frame.items()}
    return frame.astype(full)


def whole(labels: Any) -> Any:
    """Whole numbers of which none is missing as NumPy's."""
    kind = labels.dtype
    nullable = isinstance(kind, pd.Int64Dtype | pd.UInt64Dtype)
    return labels.astype(kind.numpy_dtype) if nullable and not pd.isna(labels).any() else labels


def of_header(path: Path, frame: pd.DataFrame) -> pd.DataFrame:
    """Rows with more cells than the header, of which the last ones are empty (a separator at their ends)."""
    if isinstance(frame.index, pd.RangeIndex):  # as many cells in the rows as in the header
        return frame
    names, extra = frame.columns, frame.index.nlevels
    cells = frame.reset_index()
    beyond = (cells.iloc[:, -extra:].fillna("") != "").any(axis=1).to_numpy()
    if beyond.any():
        raise ValueError(
            f"Expected {len(names)} cells in every row of {path}, as in its header, got "
            f"{len(names) + extra} in line {int(np.argmax(beyond)) + 2}: name every column, or put quotes "
            "around a cell that contains the separator"
        )
    return cells.iloc[:, : len(names)].set_axis(names, axis=1)
