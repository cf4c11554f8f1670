"""The card of the training data, which a fit stores: labels, sizes and cells for diagnostics, no values."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bayesfac.core.data.cells import Query, narrowed
from bayesfac.core.data.columns import find, with_index
from bayesfac.core.data.container import KINDS, Container
from bayesfac.core.data.features import Encoding, of_new, to_predict
from bayesfac.core.data.linked.relations import Relations
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.data.reading import deviation, plain, positions_of, same_labels
from bayesfac.core.data.row_marks import marks
from bayesfac.core.data.tensor import Tensor
from bayesfac.core.data.views import Views

PROBES = 100  # number of cells on which diagnostics are computed
TAIL = 10.0  # the highest rating is so many times as far from the mean as the lowest; of exponential ones 9


class Scale(NamedTuple):
    """How the columns of one view, or the labels, were scaled.

    centre, spread   subtracted from and divided into every column; a spread of 0 means a constant column,
                     which becomes zero
    mirrored         the columns whose negative part becomes a column of its own; the column keeps the
                     positive part
    constant         the value of the added column; 0: none
    """

    centre: np.ndarray
    spread: np.ndarray
    mirrored: np.ndarray
    constant: float


@dataclass(eq=False)
class Card:
    """The identity of a training set.

    kind        "Ratings" (also for `Counts` and `Relations`), "Tensor", "Views" or "Tasks"
    coords      {axis: labels}
    summary     {what: number}
    levels      the ordinal scale, or None
    row_counts  observed cells per row (ratings per user), col_counts per column; of a tensor per label of
                the first mode, and of all other modes, one mode after the other
    probe       labels of about 100 cells, observed or not, spread over rows with few and with many cells
    name        the name of the data set, or ""
    scales      {view: how its columns were scaled}; empty if they were not
    encodings   {"user" or "item": how its columns became features}, see `core.data.features`
    elsewhere   {axis: cells of each label in matrices beside the ratings, of counts the zeros; or whether
                other rows inform that of the label}; empty without these
    aside       {"user" or "item": encoded features of the labels without cells}; empty without features
    marks       of views and tasks a number for each row that its features decide, see `core.data.row_marks`;
                None in fits that earlier versions saved
    """

    kind: str
    coords: dict[str, pd.Index]
    summary: dict[str, float]
    levels: tuple[float, ...] | None
    row_counts: np.ndarray
    col_counts: np.ndarray
    probe: pd.DataFrame
    name: str = ""
    scales: dict[str, Scale] = field(default_factory=dict)
    encodings: dict[str, Encoding] = field(default_factory=dict)
    elsewhere: dict[str, np.ndarray] = field(default_factory=dict)
    aside: dict[str, Any] = field(default_factory=dict)
    marks: np.ndarray | None = None

    @property
    def form(self) -> Any:
        """The container of this kind of data."""
        return KINDS[self.kind]

    @property
    def columns(self) -> list[str]:
        """The columns of a table that name a cell."""
        return list(self.form.columns or self.coords)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns), with the columns of all views side by side."""
        return len(self.row_counts), len(self.col_counts)

    @property
    def features(self) -> dict[str, pd.Index]:
        """{block: its columns}, of views and tasks."""
        axes = self.coords.items()
        return {n.removeprefix("feature."): i for n, i in axes if n.startswith("feature.")}

    @property
    def remarks(self) -> list[str]:
        """A remark on ratings, or values of a tensor, that are all equal, and on ratings with a long tail."""
        if not self.form.listed:
            return []
        lowest, mean, highest = (self.summary[name] for name in ("lowest", "mean", "highest"))
        if lowest == highest:
            return [
                f"every value is {lowest:g}: such data do not rank items; if they only record what users "
                "chose (implicit feedback), see bf.Counts"
            ]
        if not self.form.by_pair or self.levels is not None:
            return []
        above, below = highest - mean, mean - lowest
        if 0 < TAIL * below < above and lowest > 0:
            return [
                f"the highest rating, {highest:g}, is {above / below:.0f} times as far from the mean as the "
                f"lowest, {lowest:g}: a few such ratings decide a fit with normal noise. If they are right, "
                "a fit to the logarithms of all ratings often predicts better (see the FAQ)"
            ]
        if 0 < TAIL * above < below:
            return [
                f"the lowest rating, {lowest:g}, is {below / above:.0f} times as far from the mean as the "
                f"highest, {highest:g}: a few such ratings decide a fit with normal noise. If ratings are "
                "levels, ordinal_mf and ordinal_fm often predict better"
            ]
        return []

    def locate(
        self, query: Any, tables: Mapping[str, Any] | None = None
    ) -> tuple[Query, pd.DataFrame, np.ndarray]:
        """The codes of a query, its labels, and which cells only the prior can predict.

        A label without cells in training has a negative code, as one that training did not know: the row of
        a point would say nothing of the spread of the prior. `tables` of features, {"user" or "item": table},
        describe unknown labels; by default the query's own.
        """
        if isinstance(query, self.form):
            query = query.asked(self.coords)
        labels = _labels(self.kind, self.columns, query)
        if not self.form.listed:
            axis = self.columns[0]
            row, col = _codes(self.coords[axis], labels[axis], axis), self._columns(labels)
            flagged = (row < 0) | (col < 0) | (self.row_counts[row] == 0)
            return narrowed(Query(row, col)), labels, flagged
        closed = self.columns[1] if self.form.closed else ""
        every = {
            axis: _codes(
                self.coords[axis], labels[axis], axis, "one of training" * (axis == closed)
            )
            for axis in self.columns
        }
        found, flagged = {}, np.zeros(len(labels), bool)
        for axis, code in every.items():
            new = (code < 0) | ((axis != closed) & (self.cells(axis)[code] == 0))
            every[axis], flagged = np.where(new, -1, code), flagged | new
            if axis in self.encodings and new.any():
                table = (tables or {}).get(axis)
                if table is None and isinstance(query, Container):
                    table = query.host.features.get(axis)
                every[axis], found[axis] = self._described(axis, code, labels[axis], table)
        first, *rest = every.values()
        col = rest[0] if self.form.two_way else np.stack(rest, 1)
        return narrowed(Query(first, col, **found)), labels, flagged

    def cells(self, axis: str) -> np.ndarray:
        """The number of cells of each label of an axis in all matrices."""
        at = self.columns.index(axis)
        begin = sum(len(self.coords[before]) for before in self.columns[1:at])
        counts = self.col_counts[begin : begin + len(self.coords[axis])] if at else self.row_counts
        return counts + self.elsewhere.get(axis, 0)

    @property
    def empty(self) -> tuple[np.ndarray, np.ndarray]:
        """Which rows and columns have no cells, so that only the prior predicts them. Columns of views and
        tasks are never predicted by the prior alone."""
        row, none = self.cells(self.columns[0]) == 0, np.zeros(len(self.col_counts), bool)
        return row, (self.cells(self.columns[1]) == 0 if self.form.listed else none)

    def _described(
        self, side: str, code: np.ndarray, labels: pd.Series, table: Any
    ) -> tuple[np.ndarray, Any]:
        """Codes with -2, -3, ... for labels without cells that have features; these by code, see `Query`."""
        encoding, counts = self.encodings[side], self.cells(side)
        unknown, aside = pd.Index(labels[code < 0].unique()), np.flatnonzero(counts == 0)
        parts = [np.zeros((0, len(encoding.centre)))]
        of_unknown, of_known = np.full(len(unknown), -1), np.arange(len(counts))
        if table is not None and len(unknown):
            found, rows = of_new(table, unknown, encoding, side)
            of_unknown[found], parts = -2 - np.arange(len(found)), [rows]
        of_known[aside] = -1
        if side in self.aside:  # absent in fits that earlier versions saved
            of_known[aside] = -2 - parts[0].shape[0] - np.arange(len(aside))
            parts.append(self.aside[side])
        own = of_known[code]
        own[code < 0] = of_unknown[positions_of(unknown, labels[code < 0])]
        return own, to_predict(parts)

    def _columns(self, labels: pd.DataFrame) -> np.ndarray:
        if self.form.axis:
            name = self.columns[1]
            wanted = f"a {name} that training knew" if self.form.closed else ""
            return _codes(self.coords[self.form.axis], labels[name], name, wanted)
        col, offset = np.full(len(labels), -1), 0
        axes = self.features
        unknown = sorted(set(labels["view"]) - set(axes))
        if unknown and list(axes) == ["all"]:  # views side by side, whose features have other names
            joined = labels["view"].astype(str) + ": " + labels["feature"].astype(str)
            return _codes(axes["all"], joined, "feature of all", "a feature of the joined views")
        if unknown:
            raise ValueError(f"Expected views among {list(axes)}, got {unknown[0]!r}")
        for name, index in axes.items():
            here = (labels["view"] == name).to_numpy()
            feature, what = labels["feature"][here], f"feature of {name}"
            col[here] = offset + _codes(index, feature, what, f"a feature of view {name!r}")
            offset += len(index)
        return col


def describe(data: Any, given: Any = None) -> Card:
    """The card of a training set; `given` is the set before its features were scaled."""
    card = card_of(data)
    if given is not None and not data.listed:
        card = replace(card, marks=marks(given))
    return replace(card, name=data.name)


@singledispatch
def card_of(data: Any) -> Card:
    """The card of data of one kind, without name and marks."""
    raise TypeError(f"Expected data in a container, got {type(data).__name__}")


def check_same(card: Card, data: Any) -> None:
    """Raise an error if data differ from a card in labels, levels, sizes, counts or means.

    A card keeps no values, so different values with equal sums are not detected.
    """
    new = describe(data)
    if new.kind != card.kind:
        raise TypeError(f"Expected the {card.kind} of training, got {type(data).__name__}")
    for axis, labels in card.coords.items():
        if not same_labels(labels, new.coords.get(axis, pd.Index([]))):
            mine, others = len(labels), len(new.coords.get(axis, ()))
            raise ValueError(f"Expected the {mine} {axis} labels of training, got {others} others")
    if new.levels != card.levels:
        raise ValueError(f"Expected the levels of training, {card.levels}, got {new.levels}")
    for what, number in card.summary.items():
        if not np.isclose(new.summary.get(what, np.nan), number, rtol=1e-6, atol=1e-9):
            got = new.summary.get(what)
            raise ValueError(f"Expected the training data, with {what} {number:g}, got {got:g}")
    counts = ((card.row_counts, new.row_counts), (card.col_counts, new.col_counts))
    if not all(np.array_equal(*pair) for pair in counts):
        raise ValueError("Expected the training data, got as many cells in other places")


@card_of.register
def ratings_card(data: Ratings) -> Card:
    """The card of users x items."""
    rows, cols, n = data.per_row("user"), data.per_row("item"), len(data)
    host: Any = data.host
    value = host.value
    summary: dict[str, float] = {"users": data.n_users, "items": data.n_items, "ratings": n}
    summary |= {"density": n / (data.n_users * data.n_items), "mean": data.mean}
    summary |= {"sd": data.spread if data.implicit else host.moments[1]}
    summary |= {"lowest": float(0 if data.implicit else value.min()), "highest": float(value.max())}
    summary |= {"fewest per user": int(rows.min()), "most per user": int(rows.max())}
    rng, sides = np.random.default_rng(0), host.features.items()
    if data.present:
        at = stratified(rows[user := data.user], min(len(data), 3 * PROBES // 5), rng)
        seen_users, seen_items = user[at], data.item[at]
    else:
        seen_users, seen_items = host.some
    users = stratified(rows, 2 * PROBES // 5, rng)
    items = rng.integers(data.n_items, size=len(users))
    user, item = np.concatenate([seen_users, users]), np.concatenate([seen_items, items])
    probe = pd.DataFrame({"user": data.users[user], "item": data.items[item]})
    probe = probe.drop_duplicates(ignore_index=True)
    summary |= {f"{side} features": x.width for side, x in data.x.items()}
    summary |= {f"edges of {side}s": len(net.graphs.left) for side, net in data.graphs.items()}
    card = Card("Ratings", data.coords(), summary, data.levels, rows, cols, probe)
    card.elsewhere = data.elsewhere()
    aside = {side: known.rows(np.flatnonzero(card.cells(side) == 0)) for side, known in sides}
    return replace(card, encodings={s: known.encoding for s, known in sides}, aside=aside)


@card_of.register
def _relations_card(data: Relations) -> Card:
    card = ratings_card(data)
    card.summary |= {f"labels of {kind}": len(i) for kind, i in data.host.axes.items()}
    for name in data.others:
        card.summary |= {f"cells of {name}": len(data.values(name))}
        card.summary |= {f"mean of {name}": float(data.values(name).mean())}
    return card


@card_of.register
def _tensor_card(data: Tensor) -> Card:
    counts = [np.bincount(data.code[:, m], minlength=n) for m, n in enumerate(data.shape)]
    n, value = len(data), data.value
    summary: dict[str, float] = {f"labels of {mode}": len(i) for mode, i in data.axes.items()}
    summary |= {"cells": n, "density": n / float(np.prod([float(k) for k in data.shape]))}
    summary |= {"mean": data.mean, "sd": deviation(value)}
    summary |= {"lowest": float(value.min()), "highest": float(value.max())}
    rng = np.random.default_rng(0)
    seen = stratified(counts[0][data.code[:, 0]], min(n, 3 * PROBES // 5), rng)
    some = stratified(counts[0], 2 * PROBES // 5, rng)
    rest = [rng.integers(k, size=len(some)) for k in data.shape[1:]]
    code = np.concatenate([data.code[seen], np.stack([some, *rest], 1)])
    labels = {mode: index[code[:, m]] for m, (mode, index) in enumerate(data.axes.items())}
    probe = pd.DataFrame(labels).drop_duplicates(ignore_index=True)
    return Card(
        "Tensor", data.coords(), summary, None, counts[0], np.concatenate(counts[1:]), probe
    )


@card_of.register
def _views_card(data: Views) -> Card:
    each = data.cells.values()
    rows = np.sum([np.bincount(np.asarray(c.row), minlength=data.n_rows) for c in each], 0)
    cols = [np.bincount(np.asarray(c.col), minlength=c.shape[1]) for c in each]
    summary: dict[str, float] = {"rows": data.n_rows, "views": len(data.names)}
    for name, cells in data.cells.items():
        summary[f"features of {name}"] = cells.shape[1]
        summary[f"stored in {name}"] = len(cells)
        summary[f"sum of {name}"] = float(np.sum(np.asarray(data.y[name], np.float64)))
    if data.graphs is not None:
        for name, parts in data.graphs.components().items():
            summary[f"edges of graph {name}"] = data.graphs.n_edges(name)
            summary[f"components of graph {name}"] = parts
    frame, rng = data.frame(), np.random.default_rng(0)
    code = np.concatenate([np.asarray(c.row) for c in each])
    probe = frame.iloc[stratified(rows[code], min(len(frame), PROBES), rng)]
    probe = probe[["row", "view", "feature"]].reset_index(drop=True)
    return Card("Views", data.coords(), summary, None, rows, np.concatenate(cols), probe)


def stratified(activity: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """One random position from each of `size` strata of equal size, sorted by activity."""
    n, most = len(activity), 2**20  # more than that are represented by so many random ones
    some = np.arange(n) if n <= most else rng.integers(n, size=most)
    order = some[np.lexsort((rng.random(len(some)), activity[some]))]
    strata = np.array_split(order, min(size, len(order))) if len(order) else []
    return np.array([rng.choice(part) for part in strata], int)


def _labels(kind: str, wanted: list[str], query: Any) -> pd.DataFrame:
    if isinstance(query, Container):
        if not isinstance(query, KINDS[kind]):
            raise TypeError(f"Expected a query of {kind}, got {type(query).__name__}")
        query = query.frame()
    if isinstance(query, tuple | list) and len(query) == len(wanted):
        query = dict(zip(wanted, query, strict=True))
    if isinstance(query, Mapping):
        query = _table(query)
    query = with_index(query)
    if not isinstance(query, pd.DataFrame):
        raise TypeError(
            f"Expected {kind} or a table with columns {wanted}, got {type(query).__name__}"
        )
    if all(name in query.columns for name in wanted):
        frame = query[wanted]
    elif kind == "Ratings" and (names := find(list(query.columns), ("user", "item"))):
        frame = query[names].set_axis(wanted, axis=1)
    else:
        hint = ", or two columns (users, items)" if kind == "Ratings" else ""
        raise ValueError(f"Expected a query with columns {wanted}{hint}, got {list(query.columns)}")
    if frame.shape[1] > len(wanted):
        raise ValueError(f"Expected each column of {wanted} once, got {list(query.columns)}")
    return frame.reset_index(drop=True)


def _table(columns: Mapping[Any, Any]) -> pd.DataFrame:
    """A DataFrame of the columns by position; their indexes are ignored."""
    for name, column in columns.items():
        one = isinstance(column, str | bytes) or not hasattr(column, "__len__")
        if one or getattr(column, "ndim", 1) != 1:
            got = repr(column) if one else f"shape {column.shape}"
            raise ValueError(f"Expected a column of labels as {name!r}, got {got}")
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"Expected columns of one length, got {lengths}")
    return pd.DataFrame({name: pd.Index(column) for name, column in columns.items()})


def _codes(known: pd.Index, asked: pd.Series, what: str, wanted: str = "") -> np.ndarray:
    """The positions of labels, -1 if unknown; with `wanted`, an unknown label is an error that says so."""
    codes = positions_of(known, asked)
    if len(codes) and (codes < 0).all() and _texts(known) != _texts(pd.Index(asked)):
        ours, theirs = plain(known[0]), plain(asked.iloc[0])
        raise TypeError(
            f"Expected {what} labels like {ours!r} ({type(ours).__name__}), "
            f"got {theirs!r} ({type(theirs).__name__})"
        )
    if wanted and (codes < 0).any():
        raise ValueError(f"Expected {wanted}, got {plain(asked.iloc[int(np.argmin(codes))])!r}")
    return codes


def _texts(index: pd.Index) -> bool:
    return isinstance(index[0], str)
