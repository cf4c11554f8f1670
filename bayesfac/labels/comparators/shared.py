"""Helpers of several comparators: checks of tables and settings, and distances to the nearest rows."""

import math
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from bayesfac.core.clustering import unit_rows
from bayesfac.core.data import reading
from bayesfac.core.data.graphs import METRICS

CELLS = 4_000_000  # largest size of a temporary table
# features and squared lengths, which are infinite for rows that are no neighbours of others
Rows = tuple[Any, np.ndarray]


# -- tables and settings ------------------------------------------------------------------------
def pair(X: Any, X_new: Any, what: str = "X") -> tuple[Any, Any]:
    """Features of training and new rows, both sparse, or both dense if over half of the cells are stored."""
    x, _, columns = reading.matrix(X, what)
    called = "X_new" if what == "X" else f"new {what}"
    shape = np.shape(X_new)
    if len(shape) == 2 and shape[0] == 0:
        new, others = sp.csr_matrix(shape), columns
    else:
        new, _, others = reading.matrix(X_new, called)
    if (m := x.shape[1]) != new.shape[1]:
        raise ValueError(f"Expected {m} features in {called}, as in {what}, got {new.shape[1]}")
    if all(isinstance(of, pd.DataFrame) for of in (X, X_new)) and not columns.equals(others):
        raise ValueError(f"Expected the features of {what} in {called}, in order, got others")
    return (x.toarray(), new.toarray()) if 2 * x.nnz > math.prod(x.shape) else (x, new)


def labels(Y: Any, X: Any, what: str = "X") -> np.ndarray:
    """Check the labels of the rows of X; return them as 0 and 1, rows x labels."""
    y, index, names = reading.matrix(Y, "Y")
    if y.shape[0] != (n := np.shape(X)[0]):
        raise ValueError(f"Expected {n} rows in Y, as in {what}, got {y.shape[0]}")
    if all(isinstance(of, pd.DataFrame) for of in (X, Y)) and not index.equals(X.index):
        raise ValueError(f"Expected the rows of {what} in Y, in order, got others")
    if len(wrong := np.flatnonzero(y.data != 1)):
        row = int(np.searchsorted(y.indptr, wrong[0], "right") - 1)
        label, got = reading.plain(names[y.indices[wrong[0]]]), y.data[wrong[0]]
        raise ValueError(f"Expected 0 or 1 in Y, got {got:g} in row {row}, label {label!r}")
    return y.toarray()


def dense(table: Any) -> np.ndarray:
    """A sparse or dense table as an array."""
    return table.toarray() if sp.issparse(table) else np.asarray(table)


def numbers(positive: str, **values: Any) -> None:
    """Check that settings are finite and at least 0, and that the one called `positive` is above 0."""
    for name, value in values.items():
        kind = "above 0" if name == positive else "of at least 0"
        fine = isinstance(value, int | float | np.number) and 0 <= value < math.inf
        if not fine or (value == 0 and name == positive):
            raise ValueError(f"Expected {name} to be a finite number {kind}, got {value!r}")


def choice(name: str, value: Any, known: tuple[str, ...]) -> None:
    """Check that a setting is one of the known words."""
    if value not in known:
        raise ValueError(f"Expected {name} to be one of {known}, got {value!r}")


# -- nearest rows -------------------------------------------------------------------------------
def below(x: Any, new: Any) -> Any:
    """The rows of x and, below them, new rows."""
    return sp.vstack([x, new], format="csr") if sp.issparse(x) else np.vstack([x, new])


def placed(x: Any, new: Any, metric: str) -> Rows:
    """Training rows and, below them, new rows, ready for `nearest`."""
    choice("metric", metric, METRICS)
    both = below(x, new)
    if metric == "euclidean" and not sp.issparse(x):
        both -= np.rint(x.mean(0))  # features far from 0 keep digits, whole numbers stay whole
    both = unit_rows(both) if metric == "cosine" else both
    size = np.asarray((both.multiply(both) if sp.issparse(both) else both**2).sum(1)).ravel()
    return both, size if metric == "euclidean" else np.where(size > 0, 1.0, np.inf)


def apart(asked: Rows, among: Rows) -> np.ndarray:
    """All squared distances, 0 where they are no more than rounding errors."""
    (x, size), (other, other_size) = asked, among
    total = size[:, None] + other_size
    d = total - 2 * dense(x @ other.T)
    return np.where(d < 4e-15 * total, 0, d)


def nearest(asked: Rows, among: Rows, k: int, own: bool = False) -> sp.csr_matrix:
    """Squared distances to the k nearest rows; with `own`, row i is not its own neighbour.

    Distances are rounded to 12 digits, so that rounding errors never decide between two rows."""
    (x, size), (_, other_size) = asked, among
    width = max(1, CELLS // len(other_size))
    blocks = [(np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for at in range(0, len(size), width):
        part, power = np.frexp(apart((x[at : at + width], size[at : at + width]), among))
        d = np.ldexp(np.round(part, 12), power)
        if own:
            d[np.arange(len(d)), at + np.arange(len(d))] = np.inf
        last = np.partition(d, k - 1)[:, k - 1 : k]
        less, tie = d < last, d == last
        first = tie & (np.cumsum(tie, 1) <= k - less.sum(1, keepdims=True))
        row, col = np.nonzero((less | first) & (d < np.inf))
        blocks.append((d[row, col], row + at, col))
    data, row, col = map(np.concatenate, zip(*blocks, strict=True))
    return sp.csr_matrix((data, (row, col)), shape=(len(size), len(other_size)))
