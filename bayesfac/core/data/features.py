"""Features of users and items: tables are checked here and turned into numbers.

Numbers are centred and divided by their standard deviation. A column of booleans, and each category of a
column of text, becomes a column of zeros and ones minus its mean. A missing value is replaced by the mean,
0. A sparse matrix is not changed, because centring would fill it.
"""

from dataclasses import dataclass
from functools import singledispatch
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
import scipy.sparse as sp

from bayesfac.core.data import reading
from bayesfac.core.data.cells import Cells
from bayesfac.core.data.columns import is_role
from bayesfac.core.kernels import sparse

LIMIT = 5000  # columns of a dense table: a Gibbs sweep factorises a matrix of this size
NUMBER, FLAG, SPARSE = "number", "flag", "sparse"


class Design(NamedTuple):
    """Features on the device: X (n x F), and X'X, which rows to predict do not need."""

    table: jax.Array
    gram: jax.Array | None = None

    @property
    def width(self) -> int:
        """The number of features."""
        return int(self.table.shape[1])

    def times(self, B: jax.Array) -> jax.Array:
        """X B."""
        return self.table @ B

    def across(self, R: jax.Array) -> jax.Array:
        """X'R."""
        return self.table.T @ R


class SparseDesign(NamedTuple):
    """Sparse features on the device: the cells of X and their values, and the diagonal of X'X.

    `leading` has the largest eigenvalues of X'X and their vectors, F x r, where they were asked for: solvers
    by conjugate gradients then need fewer steps.
    """

    cells: Cells
    value: jax.Array
    squares: jax.Array
    leading: tuple[jax.Array, jax.Array] | None = None

    @property
    def width(self) -> int:
        """The number of features."""
        return self.cells.shape[1]

    def times(self, B: jax.Array) -> jax.Array:
        """X B."""
        return _product(self.cells, self.value, B)

    def across(self, R: jax.Array) -> jax.Array:
        """X'R."""
        return _product(self.cells.flip(), self.value, R)


@jax.custom_vjp
def _product(cells: Cells, value: jax.Array, B: jax.Array) -> jax.Array:
    return sparse.spread(cells.by_row, value, B)


def _backward(kept: tuple, slope: jax.Array) -> tuple[None, None, jax.Array]:
    # features are no unknowns: the gradient is in B alone, by a sorted sum in place of a scatter
    cells, value = kept
    return None, None, sparse.spread(cells.by_col, value, slope)


_product.defvjp(
    lambda cells, value, B: (sparse.spread(cells.by_row, value, B), (cells, value)), _backward
)
Features = Design | SparseDesign


class Encoding(NamedTuple):
    """How the columns of a table became features.

    columns   the names of the columns
    kinds     of each column: "number", "flag", "sparse" (taken as it is), or the list of its categories
    centre    what was subtracted from each feature, scale: what it was then divided by
    """

    columns: tuple[Any, ...]
    kinds: tuple[str | tuple[str, ...], ...]
    centre: np.ndarray
    scale: np.ndarray

    @property
    def names(self) -> pd.Index:
        """The names of the features: a column's, or column=category."""
        names: list[str] = []
        for column, kind in zip(self.columns, self.kinds, strict=True):
            some = [str(column)] if isinstance(kind, str) else [f"{column}={c}" for c in kind]
            names += some
        return pd.Index(names, dtype=object)

    def encoded(self, raw: Any, labels: pd.Index, what: str) -> Any:
        """The features of these rows: an array, or a csr matrix where the features of training were one."""
        if not sp.issparse(raw):
            return self.numbers(raw, labels, what)
        if raw.shape[1] != len(self.columns):
            raise ValueError(
                f"Expected {len(self.columns)} features of {what}s, got {raw.shape[1]}"
            )
        return sp.csr_matrix(raw)

    def numbers(self, raw: Any, labels: pd.Index, what: str) -> np.ndarray:
        """The features of the rows of a DataFrame, rows x features."""
        lost = [column for column in self.columns if column not in raw.columns]
        if lost:
            raise ValueError(
                f"Expected features of {what}s in the columns {list(self.columns)}, got no column {lost[0]!r}"
            )
        parts = [
            _expanded(raw[column], kind, labels, what)
            for column, kind in zip(self.columns, self.kinds, strict=True)
        ]
        table = (np.concatenate(parts, 1) - self.centre) / self.scale
        return np.where(np.isnan(table), 0.0, table)


@dataclass(frozen=True, eq=False)
class Side:
    """The features of all users, or of all items: the table as it was given, with one row for each label."""

    labels: pd.Index
    raw: Any  # DataFrame or csr matrix
    encoding: Encoding
    what: str

    def at(self, place: np.ndarray, labels: pd.Index) -> "Side":
        """The rows at these places, under these labels; a row at -1 has every value missing."""
        raw: Any
        if sp.issparse(self.raw):
            raw = self.raw[place]
            raw = sp.diags((place >= 0).astype(float)) @ raw
        else:
            raw = self.raw.reset_index(drop=True).reindex(place).set_axis(labels)
        return Side(labels, raw, self.encoding, self.what)

    @classmethod
    def unknown(cls, labels: pd.Index, encoding: Encoding, what: str) -> "Side":
        """Features that all are missing."""
        size = len(labels), len(encoding.columns)
        sparse_ = SPARSE in encoding.kinds
        raw = sp.csr_matrix(size) if sparse_ else pd.DataFrame(np.nan, labels, [*encoding.columns])
        return cls(labels, raw, encoding, what)

    def design(self) -> Features:
        """The features on the device."""
        table = self.encoding.encoded(self.raw, self.labels, self.what)
        if sp.issparse(table):
            return _sparse_design(table)
        return Design(reading.real(table), reading.real(table.T @ table))

    def rows(self, place: np.ndarray) -> Any:
        """The encoded features of some labels: an array or a csr matrix."""
        part = self.at(place, self.labels[place])
        return self.encoding.encoded(part.raw, part.labels, self.what)

    def digest(self) -> list[Any]:
        """What tells these features from others."""
        if sp.issparse(self.raw):
            return [self.raw.shape, self.raw.indptr, self.raw.indices, self.raw.data]
        names = self.encoding.names
        return [names, self.encoding.numbers(self.raw, self.labels, self.what)]

    def told(self) -> list[str]:
        """A note about missing values."""
        if sp.issparse(self.raw):
            return []
        missing = self.raw[list(self.encoding.columns)].isna().sum()
        missing = missing[missing > 0]
        if not len(missing):
            return []
        some = ", ".join(f"{number} of {str(column)!r}" for column, number in missing.items())
        return [
            f"missing features of {self.what}s are replaced by the mean of their column: {some}"
        ]


def described(raw: Any, labels: pd.Index, what: str) -> Side:
    """Features of these labels and of those that the table alone knows, in the order of `everyone`."""
    known, raw = _with_labels(raw, labels, what)
    again = reading.repeated(known)
    if len(again):
        raise ValueError(
            f"Expected one row of features for every {what}, got two of {reading.plain(again[0])!r}"
        )
    at = reading.positions_of(known, labels)
    if (lost := at < 0).any():
        first = reading.plain(labels[int(np.argmax(lost))])
        raise ValueError(
            f"Expected features of every {what}, got none of {first!r} ({int(lost.sum())} of "
            f"{len(labels)} {what}s have none); a row of NaN stands for the mean: "
            f"features.reindex(...) adds such rows"
        )
    extra = known[reading.positions_of(labels, known) < 0]
    everyone = reading.labels(labels.append(extra), what)[1] if len(extra) else labels
    at = reading.positions_of(known, everyone)
    raw = raw[at] if sp.issparse(raw) else raw.iloc[at].set_axis(everyone)
    return Side(everyone, raw, _learned(raw, everyone, what), what)


@singledispatch
def told_of_scaling(data: Any, given: Any) -> list[str]:
    """Notes on what scaling did; `given` are the data before."""
    return []


def told(method: Any, data: Any, given: Any) -> list[str]:
    """Notes for a fit of the method: values that are missing, features that are constant, or a method that
    does not read features. `given` are the data before they were scaled."""
    if getattr(data.host, "scales", None):
        return told_of_scaling(data, given)
    sides = getattr(data.host, "features", None)
    if not getattr(data, "x", None) or not sides:
        return []
    if not method.reads_features:
        return [f"{method.name} does not use the features of users and items"]
    return [note for side in sides.values() for note in side.told()]


def of_new(raw: Any, labels: pd.Index, encoding: Encoding, what: str) -> tuple[np.ndarray, Any]:
    """Which of these labels, which training did not know, a table has; and their features, encoded as in
    training."""
    if not isinstance(raw, Side | pd.DataFrame | pd.Series):
        raise TypeError(
            f"Expected features of new {what}s as a DataFrame with their labels as index, got "
            f"{type(raw).__name__}"
        )
    known, raw = _with_labels(raw, labels, what)
    at = reading.positions_of(known, labels)
    found = np.flatnonzero(at >= 0)
    rows = raw[at[found]] if sp.issparse(raw) else raw.iloc[at[found]]
    return found, encoding.encoded(rows, labels[found], what)


def to_predict(parts: list[Any]) -> Features:
    """The design of encoded features, one below the other, below a row of means, for `Query`."""
    width = parts[0].shape[1]
    if any(map(sp.issparse, parts)):
        return _sparse_design(sp.vstack([sp.csr_matrix((1, width)), *parts], format="csr"))
    return Design(reading.real(np.concatenate([np.zeros((1, width)), *parts])))


def no_features(rows: int, width: int) -> SparseDesign:
    """Features of which none is known."""
    return _sparse_design(sp.csr_matrix((rows, width)))


def _sparse_design(table: sp.csr_matrix) -> SparseDesign:
    coo = sp.coo_matrix(table)
    cells = Cells(coo.row.astype(np.int32), coo.col.astype(np.int32), coo.shape)
    squares = np.bincount(coo.col, coo.data**2, minlength=table.shape[1])
    return SparseDesign(cells, reading.real(coo.data), reading.real(squares))


def _with_labels(raw: Any, labels: pd.Index, what: str) -> tuple[pd.Index, Any]:
    """The labels of the rows of a table, and the table."""
    if isinstance(raw, Side):
        return raw.labels, raw.raw
    if isinstance(raw, pd.Series):
        raw = raw.to_frame()
    if isinstance(raw, pd.DataFrame):
        own = [name for name in raw.columns if is_role(name, what)]
        if isinstance(raw.index, pd.RangeIndex) and len(own) == 1:
            raw = raw.set_index(own[0])
        return raw.index, raw
    table = raw if sp.issparse(raw) else reading.array(raw)
    if table.ndim != 2 or table.shape[0] != len(labels):
        raise ValueError(
            f"Expected a table with one row of features for each of the {len(labels)} {what}s, in the order "
            f"of the labels, got shape {table.shape}; a DataFrame with {what}s as index is matched by label"
        )
    if sp.issparse(table):
        return labels, reading.in_double(table)
    return labels, pd.DataFrame(table)


def _learned(raw: Any, labels: pd.Index, what: str) -> Encoding:
    """The encoding of a table, with centres and scales of its rows."""
    if sp.issparse(raw):
        wide = raw.shape[1]
        encoding = Encoding(tuple(range(wide)), (SPARSE,) * wide, np.zeros(wide), np.ones(wide))
        finite = ~reading.beyond(raw.data)
        if not finite.all():
            raise ValueError(f"Expected finite features of {what}s, got {raw.data[~finite][0]}")
    else:
        columns = tuple(raw.columns)
        if len(set(columns)) < len(columns):
            raise ValueError(f"Expected features of {what}s with distinct names, got {columns}")
        kinds = tuple(_kind(raw[column], what) for column in columns)
        parts = [
            _expanded(raw[column], kind, labels, what)
            for column, kind in zip(columns, kinds, strict=True)
        ]
        table = np.concatenate([np.zeros((len(labels), 0)), *parts], 1)
        seen = ~np.isnan(table)
        count = np.maximum(seen.sum(0), 1)
        centre = np.where(seen, table, 0).sum(0) / count
        spread = np.sqrt(np.where(seen, (table - centre) ** 2, 0).sum(0) / count)
        numbers = np.array([kind == NUMBER for kind in kinds], bool)
        scaled = np.repeat(numbers, [part.shape[1] for part in parts])
        encoding = Encoding(columns, kinds, centre, np.where(scaled & (spread > 0), spread, 1.0))
    width = len(encoding.centre)
    if not width or (width > LIMIT and not sp.issparse(raw)):
        raise ValueError(
            f"Expected 1 to {LIMIT} features of {what}s, got {width}: every category of a column of text is "
            "a feature of its own; a sparse matrix may have more"
        )
    return encoding


def _kind(column: pd.Series, what: str) -> str | tuple[str, ...]:
    kind = column.dtype.kind if not isinstance(column.dtype, pd.CategoricalDtype) else "O"
    if kind == "b":
        return FLAG
    if kind in "iuf":
        return NUMBER
    if kind not in "OUST":
        raise TypeError(
            f"Expected numbers, booleans or text as features of {what}s, got {column.dtype} in column "
            f"{column.name!r}"
        )
    return tuple(sorted({str(value) for value in column.dropna()}))


def _expanded(
    column: pd.Series, kind: str | tuple[str, ...], labels: pd.Index, what: str
) -> np.ndarray:
    """One column as one or more columns of numbers, NaN where a value is missing."""
    if isinstance(kind, str):
        try:
            values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        except (TypeError, ValueError) as error:
            raise TypeError(f"Expected numbers in column {column.name!r}, got {error}") from error
        bad = ~np.isnan(values) & reading.beyond(values)
        if bad.any():
            row = int(np.argmax(bad))
            raise ValueError(
                f"Expected finite features of {what}s, got {values[row]} in column {column.name!r} "
                f"({what} {reading.plain(labels[row])!r})"
            )
        return values[:, None]
    missing = column.isna().to_numpy()
    values = column.astype(object).where(~missing, "").map(str).to_numpy()
    table = (values[:, None] == np.asarray(kind, object)).astype(np.float64)
    table[missing] = np.nan
    new = ~missing & (table.sum(1) == 0)
    if new.any():
        row = int(np.argmax(new))
        raise ValueError(
            f"Expected one of the categories {list(kind)} in column {column.name!r}, got {values[row]!r} "
            f"({what} {reading.plain(labels[row])!r}); NaN stands for a missing one"
        )
    return table
