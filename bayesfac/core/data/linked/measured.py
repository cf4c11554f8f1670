"""Measurements: several tables (views) of the same rows, each with columns of its own, checked once, here.

The views stand side by side in one matrix: its users are the rows, its items the features of all views. So
cells can be missing anywhere, and whatever takes ratings takes measurements. Besides, every view has its own
cells, for the law of its values and for the factors of its features.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import scipy.sparse as sp

from bayesfac.core.data import reading
from bayesfac.core.data.cards import Card, card_of, ratings_card
from bayesfac.core.data.cells import Cells, row_major
from bayesfac.core.data.ratings import Frame, Ratings
from bayesfac.core.data.views import Views, named_views

JOINED = ": "  # between the name of a view and a feature, in the label of an item


@dataclass(frozen=True, eq=False)
class MeasuredFrame(Frame):
    """The host's part of measurements: also the features of each view, and the part of each view alone."""

    views: dict[str, pd.Index] = field(default_factory=dict)
    parts: dict[str, Frame] = field(default_factory=dict)


@jax.tree_util.register_pytree_node_class
class Measurements(Ratings):
    """Tables (views) of the same rows: patients by genes, by proteins and by clinical values, for example.

    A cell with NaN is missing, and a row may lack whole views. Rows are matched by their labels.

    Parameters
    ----------
    data : mapping, MuData, AnnData, Views or one table
        {name of the view: DataFrame, array or sparse matrix}, rows x features. DataFrames are matched by
        their index, and a row may be in some of them only. Arrays and sparse matrices must all have the same
        rows; zeros of a sparse matrix are values. Values are numbers, or True and False. Of MuData and
        AnnData `X` is read, with the names of observations and variables.
    rows : sequence, optional
        The labels of the rows of arrays.

    Notes
    -----
    Everything that takes ratings takes measurements: rows are its users, and the features of all views its
    items, with labels such as "genes: TP53". `bf.split.holdout` leaves out cells, `fit.predict` fills them.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> genes = pd.DataFrame({"TP53": [1.0, np.nan], "MYC": [0.2, 1.4]}, index=["ann", "bob"])
    >>> clinic = pd.DataFrame({"smokes": [True, False]}, index=["bob", "cid"])
    >>> data = Measurements({"genes": genes, "clinic": clinic})
    >>> data
    Measurements(3 rows; clinic: 1 features, 2 cells; genes: 2 features, 3 cells)
    >>> list(data.items)
    ['clinic: smokes', 'genes: TP53', 'genes: MYC']
    >>> data.table("genes").loc["bob"].tolist()
    [nan, 1.4]
    """

    inside: dict[str, Cells]  # {view: its cells}
    order: Any  # the cells of all views, one view after the other, as places in the row-major list
    place: Any  # the inverse
    kind, unit = "Measurements", "cell"
    closed, ranks = True, False
    reads = ("Views",)
    leaves = ("cells", "y", "x", "graphs", "inside", "order", "place")
    host: MeasuredFrame

    def __init__(self, data: Any, *, rows: Any = None) -> None:
        if isinstance(data, Measurements):
            data = {name: data.table(name) for name in data.views}
        tables = {name: _table(name, table, rows) for name, table in _tables(data).items()}
        labels = _rows(tables)
        row, col, value, features = [], [], [], {}
        for first, (name, table) in zip(_firsts(tables), tables.items(), strict=True):
            at, j, y = table.found(labels)
            row.append(at)
            col.append(j + first)
            value.append(y)
            features[name] = table.columns
        user, item, values = (np.concatenate(part) for part in (row, col, value))
        by_row = np.lexsort((item, user))
        user, item, values = user[by_row], item[by_row], values[by_row]
        names = [f"{name}{JOINED}{label}" for name, index in features.items() for label in index]
        items = pd.Index(names, dtype=object)
        cells = row_major(user.astype(np.int32), item.astype(np.int32), (len(labels), len(items)))
        self._fill(cells, values, labels, items, None, None)
        self._divide(features)

    def _divide(self, views: dict[str, pd.Index]) -> None:
        """The cells of each view, from the cells of all."""
        row, col = np.asarray(self.cells.row), np.asarray(self.cells.col)
        first = np.cumsum([0, *map(len, views.values())])
        order = np.argsort(np.searchsorted(first, col, "right"), kind="stable").astype(np.int32)
        place = np.empty_like(order)
        place[order] = np.arange(len(order), dtype=np.int32)
        known = {f.name: getattr(self.host, f.name) for f in fields(Frame)}
        value, ends = self.value[self.host.origin], [0]
        self.inside, parts = {}, {}
        for (name, index), begin in zip(views.items(), first[:-1], strict=True):
            kept = order[(begin <= col[order]) & (col[order] < begin + len(index))]
            ends.append(len(kept))
            at = np.arange(len(kept))
            self.inside[name] = Cells(row[kept], col[kept] - begin, (len(self.users), len(index)))
            parts[name] = Frame(self.users, index, None, at, value[kept], name=name)
        self.order, self.place = jax.device_put(order), jax.device_put(place)
        self.host = MeasuredFrame(**known, views=views, parts=parts)

    def _part(
        self, user: Any, item: Any, value: Any, users: Any, items: Any, kept: Any
    ) -> "Measurements":
        part: Any = super()._part(user, item, value, users, items, kept)
        views = self.host.views
        if items is not self.items:  # some features, or features of other data in another order
            known = [(n, label) for n, index in self.host.views.items() for label in index]
            text = pd.Index([f"{name}{JOINED}{label}" for name, label in known], dtype=object)
            at = reading.positions_of(text, items)
            named: dict[str, list[Any]] = {}
            for label, number in zip(items, at, strict=True):
                name, own = known[number] if number >= 0 else str(label).split(JOINED, 1)
                named.setdefault(name, []).append(own)
            views = {name: pd.Index(own) for name, own in named.items()}
        part._divide(views)
        return part

    # -- views --------------------------------------------------------------------------------------
    @property
    def views(self) -> dict[str, pd.Index]:
        """{view: its features}, sorted by name."""
        return self.host.views

    @property
    def spans(self) -> dict[str, slice]:
        """{view: the places of its cells in `order`}."""
        ends = [0, *accumulate(len(cells) for cells in self.inside.values())]
        return {name: slice(*ends[k : k + 2]) for k, name in enumerate(self.inside)}

    def of_view(self, name: str, values: Any) -> Any:
        """Numbers of all cells at the cells of one view."""
        return values[self.order[self.spans[name]]]

    def together(self, values: Mapping[str, Any]) -> Any:
        """{view: numbers of its cells} as numbers of all cells."""
        return jnp.concatenate([values[name] for name in self.inside])[self.place]

    def view(self, name: str) -> Ratings:
        """The cells of one view as ratings of its features."""
        y = None if self.y is None else self.of_view(name, self.y)
        return Ratings.tree_unflatten(self.host.parts[name], (self.inside[name], y, self.x, {}))

    def table(self, name: str) -> pd.DataFrame:
        """One view as a table, rows x features, with NaN in missing cells."""
        if name not in self.views:
            raise ValueError(f"Expected a view among {list(self.views)}, got {name!r}")
        cells, index = self.inside[name], self.views[name]
        found = np.full((len(self.users), len(index)), np.nan)
        found[np.asarray(cells.row), np.asarray(cells.col)] = self.host.parts[name].value
        return pd.DataFrame(found, self.users, index)

    def __repr__(self) -> str:
        parts = (
            f"{name}: {len(index)} features, {len(self.inside[name])} cells"
            for name, index in self.views.items()
        )
        return f"Measurements({len(self.users)} rows; {'; '.join(parts)})"

    def coords(self) -> dict[str, pd.Index]:
        return super().coords() | {f"feature.{name}": i for name, i in self.views.items()}

    def fill(self, draw: Mapping[str, Any]) -> "Measurements":
        filled: Any = super().fill(draw)
        filled._divide(self.views)
        return filled


@card_of.register
def _measured_card(data: Measurements) -> Card:
    card = replace(ratings_card(data), kind="Measurements")
    names = {"users": "rows", "items": "features", "ratings": "cells"}
    names |= {f"{what} per user": f"{what} per row" for what in ("fewest", "most")}
    card.summary = {names.get(name, name): number for name, number in card.summary.items()}
    for name, cells in data.inside.items():
        card.summary |= {f"features of {name}": cells.shape[1], f"cells of {name}": len(cells)}
        card.summary |= {
            f"mean of {name}": data.view(name).mean,
            f"sd of {name}": data.view(name).spread,
        }
    return card


@dataclass(frozen=True)
class _Table:
    """One view as it was read: labels or None, features, and values, NaN where they are missing."""

    rows: pd.Index | None
    columns: pd.Index
    values: np.ndarray

    def found(self, labels: pd.Index) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Row, feature and value of every cell that is not missing."""
        row, col = np.nonzero(~np.isnan(self.values))
        code = row if self.rows is None else reading.positions_of(labels, self.rows)[row]
        return code, col, self.values[row, col]


def _tables(data: Any) -> dict[str, Any]:
    """{view: table}, sorted by name, as JAX sorts mappings."""
    if hasattr(data, "mod") and hasattr(data, "obs_names"):  # MuData
        data = dict(data.mod)
    elif hasattr(data, "obs_names") or isinstance(data, sp.spmatrix | sp.sparray):
        data = {"x": data}
    elif isinstance(data, Views):
        rows, views = data.rows, data.features.items()
        data = {n: pd.DataFrame(data[n].toarray(), rows, index) for n, index in views}
    named = named_views(data)
    return {name: named[name] for name in sorted(named)}


def _table(name: str, table: Any, rows: Any) -> _Table:
    """The labels and the numbers of one view."""
    what = f"view {name!r}"
    if hasattr(table, "obs_names") and hasattr(table, "X"):  # AnnData
        dense = table.X.toarray() if sp.issparse(table.X) else np.asarray(table.X)
        table = pd.DataFrame(dense, pd.Index(table.obs_names), pd.Index(table.var_names))
    labels, columns = None if rows is None else reading.native(pd.Index(rows)), None
    if isinstance(table, pd.DataFrame):
        labels, columns = reading.native(table.index), reading.native(table.columns)
        table = _of_frame(table, what)
    table = np.asarray(table.toarray() if sp.issparse(table) else table)
    if table.dtype.kind not in "biuf":
        raise TypeError(f"Expected real numbers in {what}, got dtype {table.dtype}")
    if table.ndim != 2 or 0 in table.shape:
        raise ValueError(f"Expected a table of rows x features in {what}, got shape {table.shape}")
    found = _Table(
        labels,
        pd.RangeIndex(table.shape[1]) if columns is None else columns,
        table.astype(np.float64),
    )
    _check_labels(found, what)
    _check_values(found, what)
    return found


def _of_frame(frame: pd.DataFrame, what: str) -> np.ndarray:
    """The numbers of a table; columns of True and False count as 1 and 0."""
    for label, dtype in frame.dtypes.items():
        if not (pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_bool_dtype(dtype)):
            raise TypeError(
                f"Expected numbers, or True and False, in {what}, got the column {label!r} of {dtype}: "
                "pd.get_dummies makes numbers of categories"
            )
    return frame.to_numpy(np.float64, na_value=np.nan)


def _check_labels(table: _Table, what: str) -> None:
    """Refuse labels that are there twice, and others than one for each row."""
    for of, index in (("rows", table.rows), ("features", table.columns)):
        if index is not None and len(twice := reading.repeated(index)):
            again = reading.plain(twice[0])
            raise ValueError(f"Expected distinct {of} in {what}, got {again!r} twice")
    if table.rows is not None and len(table.rows) != len(table.values):
        raise ValueError(f"Expected {len(table.rows)} rows in {what}, got {len(table.values)}")


def _check_values(table: _Table, what: str) -> None:
    """Refuse infinite values, and features without any."""
    if len(bad := np.argwhere(np.isinf(table.values))):
        row, col = bad[0]
        label = int(row) if table.rows is None else reading.plain(table.rows[row])
        at = f"row {label!r}, feature {reading.plain(table.columns[col])!r}"
        got = table.values[row, col]
        raise ValueError(f"Expected finite numbers or NaN in {what}, got {got} in {at}")
    if len(empty := np.flatnonzero(np.isnan(table.values).all(0))):
        label = reading.plain(table.columns[empty[0]])
        raise ValueError(
            f"Expected a value in every feature of {what}, got none in {label!r}: leave such columns out "
            f"({len(empty)} of {len(table.columns)})"
        )


def _firsts(tables: dict[str, _Table]) -> list[int]:
    """The number of the first feature of each view."""
    return [0, *accumulate(len(table.columns) for table in tables.values())][:-1]


def _rows(tables: dict[str, _Table]) -> pd.Index:
    """The labels of all rows, sorted as those of users are."""
    known = [table.rows for table in tables.values()]
    if all(rows is None for rows in known):
        sizes = {name: len(table.values) for name, table in tables.items()}
        if len(set(sizes.values())) > 1:
            raise ValueError(f"Expected as many rows in every view of arrays, got {sizes}")
        return pd.RangeIndex(next(iter(sizes.values())))
    if bare := [name for name, table in tables.items() if table.rows is None]:
        raise ValueError(
            f"Expected labels of the rows in every view, got none in {bare[0]!r}: a DataFrame has them in "
            "its index, and rows= names those of arrays"
        )
    return reading.labels(
        pd.concat([pd.Series(rows) for rows in known if rows is not None]), "row"
    )[1]
