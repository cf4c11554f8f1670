"""Views from a long table row, view, feature, value."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from bayesfac.core.data.reading import plain
from bayesfac.core.data.views import Views

CELL = ["row", "view", "feature"]


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
    """Every cell once."""
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
