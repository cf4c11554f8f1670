"""Views: several matrices over the same rows, checked once, here."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
import pandas as pd
import scipy.sparse as sp

from bayesfac.core.data import reading
from bayesfac.core.data.cells import Cells, Query, full_table
from bayesfac.core.data.container import Container, HostParts
from bayesfac.core.data.graphs import Graphs, neighbours
from bayesfac.core.data.row_marks import marks


@dataclass(frozen=True, eq=False)
class ViewsFrame(HostParts):
    """The parts of a set of views that stay on the host."""

    rows: pd.Index
    features: dict[str, pd.Index]
    totals: dict[str, np.ndarray]  # row sums of every view
    name: str = ""
    marks: np.ndarray | None = None  # of a part of the counts: those of all counts, see `row_marks`


@jax.tree_util.register_pytree_node_class
class Views(Container):
    """Several matrices (views) with the same rows, without missing cells.

    Parameters
    ----------
    data : mapping, list or matrix
        {name: matrix (dense, scipy sparse or DataFrame)}. The views of a list get the names view0, view1, ...
        A single matrix is one view, "x". Zeros need not be stored. NaN is an error.
    rows : sequence, optional
        Labels of the rows; by default those of the first DataFrame, or 0, 1, ...
    graphs : mapping, optional
        {name: sparse rows x rows matrix of weights}, such as citations, co-authors or neighbours. Methods
        that need graphs use these. Without any, they connect each row to its nearest neighbours in every
        view.

    Examples
    --------
    >>> Views({"words": [[1, 0], [0, 2]], "links": [[1], [1]]})
    Views(2 rows, links: 1 features, 2 stored; words: 2 features, 2 stored)
    """

    cells: Any  # {view: Cells}; in a minibatch {view: Query}
    y: Any  # {view: values, row-major}; None where they are to be sampled
    graphs: Graphs | None
    host: ViewsFrame
    kind, columns, site, listed = "Views", ("row", "view", "feature"), "", False
    leaves = ("cells", "y", "graphs")

    def __init__(self, data: Any, *, rows: Any = None, graphs: Any = None) -> None:
        named, known = named_views(data), data if isinstance(data, Views) else None
        if known is not None:
            rows = known.rows if rows is None else rows
            graphs = known.graphs if graphs is None else graphs
        index, features, totals, self.cells, self.y = None, {}, {}, {}, {}
        for name in sorted(named):  # the order in which JAX traverses a dictionary
            csr, row_labels, columns = reading.matrix(named[name], f"view {name!r}")
            if isinstance(named[name], pd.DataFrame):
                if index is not None and not reading.same_labels(index, row_labels):
                    raise ValueError(
                        f"Expected the same row labels in every view, got others in {name!r}"
                    )
                index = row_labels if index is None else index
            if len(twice := reading.repeated(columns)):
                again = reading.plain(twice[0])
                raise ValueError(
                    f"Expected distinct features in view {name!r}, got {again!r} twice"
                )
            features[name] = columns
            coo = csr.tocoo()
            self.cells[name] = Cells(coo.row, coo.col, csr.shape)
            self.y[name] = reading.real(coo.data)
            totals[name] = np.asarray(csr.sum(1)).ravel()
        sizes = {name: cells.shape[0] for name, cells in self.cells.items()}
        if len(set(sizes.values())) > 1:
            raise ValueError(f"Expected as many rows in every view, got {sizes}")
        n = next(iter(sizes.values()))
        if rows is not None:
            index = reading.native(pd.Index(rows))
        index = pd.RangeIndex(n) if index is None else index
        twice = reading.repeated(index)
        if len(index) != n or len(twice):
            again = f", {reading.plain(twice[0])!r} twice" if len(twice) else ""
            got = f"{len(index) - len(twice)} of {len(index)}{again}"
            raise ValueError(f"Expected {n} distinct row labels, got {got}")
        host = ViewsFrame(index, features, totals)
        self.host = host if known is None else replace(known.host, rows=index)
        self.graphs = Graphs(graphs) if isinstance(graphs, Mapping) else graphs
        if self.graphs is not None and self.graphs.n_rows != n:
            raise ValueError(f"Expected graphs over {n} rows, got {self.graphs.n_rows}")

    @property
    def names(self) -> tuple[str, ...]:
        """The views, sorted by name."""
        return tuple(self.cells)

    @property
    def rows(self) -> pd.Index:
        """The row labels."""
        return self.host.rows

    @property
    def features(self) -> dict[str, pd.Index]:
        """The feature labels of every view."""
        return self.host.features

    @property
    def n_rows(self) -> int:
        return len(self.host.rows)

    @property
    def n_features(self) -> dict[str, int]:
        return {name: len(index) for name, index in self.host.features.items()}

    @property
    def size(self) -> int:
        """The number of stored cells."""
        return sum(cells.row.shape[0] for cells in self.cells.values())

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, features of all views)."""
        return self.n_rows, sum(self.n_features.values())

    @property
    def amount(self) -> float:
        return int(sum(y.sum() for y in self.y.values()))

    def __len__(self) -> int:
        return self.n_rows

    def __getitem__(self, name: str) -> sp.csr_matrix:
        """One view as a scipy sparse matrix (a copy)."""
        cells = self.cells[name]
        entries = (np.array(self.y[name]), (np.asarray(cells.row), np.asarray(cells.col)))
        return sp.csr_matrix(entries, shape=(self.n_rows, len(self.features[name])))

    def __repr__(self) -> str:
        views = (
            f"{v}: {m} features, {len(self.cells[v])} stored" for v, m in self.n_features.items()
        )
        graphs = "" if self.graphs is None else f"; {self.graphs}"
        return f"Views({self.n_rows} rows, {'; '.join(views)}{graphs})"

    def frame(self) -> pd.DataFrame:
        """The stored cells as a long table: row, view, feature, value."""
        parts = [
            pd.DataFrame(
                {
                    "row": self.rows[np.asarray(cells.row)],
                    "view": name,
                    "feature": self.features[name][np.asarray(cells.col)].astype(object),
                    "value": np.asarray(self.y[name], np.float64),
                }
            )
            for name, cells in self.cells.items()
        ]
        return pd.concat(parts, ignore_index=True)

    def coords(self) -> dict[str, pd.Index]:
        """The labels of the axes of parameters."""
        return {"row": self.rows, **{f"feature.{n}": i for n, i in self.features.items()}}

    def take(self, rows: Any) -> "Views":
        """Some of the rows (positions or a mask)."""
        kept = np.arange(self.n_rows)[reading.positions(rows)]
        graphs = None if self.graphs is None else self.graphs.take(kept)
        views = {name: self[name][kept] for name in self.names}
        part = Views(views, rows=self.rows[kept], graphs=graphs)
        marks = None if self.host.marks is None else self.host.marks[kept]
        part.host = replace(part.host, features=self.features, name=self.name, marks=marks)
        return part

    def held_out(self, fraction: float, rng: np.random.Generator) -> tuple["Views", "Views"]:
        """(train, test): every single count goes to the test part with probability `fraction`."""
        kept: dict[str, sp.csr_matrix] = {}
        held: dict[str, sp.csr_matrix] = {}
        for name in self.names:
            counts = self[name]
            _check_counts(name, counts)
            # counts in float32 are exact; the binomial needs int64
            taken = rng.binomial(counts.data.astype(np.int64), fraction)
            kept[name], held[name] = (
                sp.csr_matrix((part, counts.indices, counts.indptr), shape=counts.shape)
                for part in (counts.data - taken, taken)
            )
        return self.relabelled(kept), self.relabelled(held)

    def relabelled(self, matrices: dict[str, sp.csr_matrix]) -> "Views":
        """Views with these matrices, and the labels, graphs and marks of all these views."""
        part = Views(matrices, rows=self.rows, graphs=self.graphs)
        features = {name: self.features[name] for name in part.names}
        part.host = replace(part.host, features=features, name=self.name, marks=marks(self)[-1])
        return part

    def fingerprint(self) -> str:
        """A digest of labels and values."""
        parts: list[Any] = [self.rows]
        for name, cells in self.cells.items():
            parts += [name, self.features[name], cells.row, cells.col, self.y[name]]
        if self.graphs is not None:
            parts += [self.graphs.names, self.graphs.left, self.graphs.right, self.graphs.weight]
        return reading.digest(parts)

    def totals(self, name: str) -> np.ndarray:
        """The row sums of one view, which a draw of new counts keeps."""
        return self.host.totals[name]

    def drawn(self, draw: Mapping[str, Any]) -> "Views":
        full = {name: full_table(draw[f"view.{name}"]) for name in self.names}
        cells, y = ({name: pair[k] for name, pair in full.items()} for k in (0, 1))
        return self.replaced(cells=cells, y=y)

    def fill(self, draw: Mapping[str, Any]) -> "Views":
        """The same views with the counts that the model drew at the sites `view.NAME`."""
        views = {name: np.asarray(draw[f"view.{name}"]) for name in self.names}
        drawn = Views(views, rows=self.rows, graphs=self.graphs)
        drawn.host = self.host
        return drawn

    def batch(self, key: jax.Array, size: int) -> tuple["Views", dict[str, float]]:
        """About `size` random cells, in proportion to the sizes of the views, and their weights, by site."""
        stored = {name: len(y) for name, y in self.y.items()}
        cells, y, weight = {}, {}, {}
        for name, sub in zip(stored, jax.random.split(key, len(stored)), strict=True):
            take = max(1, round(size * stored[name] / sum(stored.values())))
            at = jax.random.randint(sub, (take,), 0, stored[name])
            cells[name] = Query(self.cells[name].row[at], self.cells[name].col[at])
            y[name] = self.y[name][at]
            weight[f"view.{name}"] = stored[name] / take
        return Views.tree_unflatten(self.host, (cells, y, self.graphs)), weight


def named_views(data: Any) -> dict[str, Any]:
    """{view: table} of whatever `Views` reads, with names that sites can have."""
    if isinstance(data, Views):
        data = {name: data[name] for name in data.names}
    is_rows = isinstance(data, list | tuple) and len(data) and np.ndim(data[0]) == 1
    if is_rows or isinstance(data, pd.DataFrame) or hasattr(data, "shape"):
        data = {"x": data}
    elif isinstance(data, list | tuple):
        data = {f"view{i}": part for i, part in enumerate(data)}
    if not isinstance(data, Mapping) or not data:
        raise TypeError(
            "Expected views as a mapping name -> matrix, a list of matrices or one matrix, "
            f"got {type(data).__name__}"
        )
    for name in data:
        if not isinstance(name, str) or not name or set("/.{}") & set(name):
            raise ValueError(f"Expected view names without '/', '.', '{{' or '}}', got {name!r}")
        reading.check_name("view names", name)
    return dict(data)


def _check_counts(name: str, counts: sp.csr_matrix) -> None:
    """Raise an error for counts that cannot be thinned."""
    wrong = (counts.data < 0) | (counts.data != np.rint(counts.data))
    if wrong.any():
        cell = counts.tocoo()
        at = int(np.flatnonzero(wrong)[0])
        raise ValueError(
            f"Expected whole counts in view {name!r} to thin them, got {cell.data[at]:g} in row "
            f"{cell.row[at]}, column {cell.col[at]}; real-valued views cannot be held out: "
            "take rows instead (views.take)"
        )


def concatenated(views: Views) -> Views:
    """One view with the features of all views, labelled "view: feature"; a single view stays as it is."""
    if len(views.names) == 1:
        return views
    names = [f"{name}: {label}" for name in views.names for label in views.features[name]]
    whole = Views({"all": side_by_side(views)}, rows=views.rows, graphs=views.graphs)
    whole.host = replace(whole.host, features={"all": pd.Index(names)}, name=views.name)
    return whole


def side_by_side(views: Views) -> sp.csr_matrix:
    """The features of all views in one matrix."""
    return sp.hstack([views[name] for name in views.names]).tocsr()


def linked(
    views: Views, p: int, metric: str, only: str | None = None, joint: bool = False
) -> Views:
    """The views with their own graphs, or with a graph of nearest neighbours for each view (or for `only`).

    `joint` adds a graph of neighbours in all features, called "all".
    """
    graphs = views.graphs
    if graphs is None:
        if only is not None and only not in views.names:
            raise ValueError(f"Expected one of the views {list(views.names)}, got {only!r}")
        wanted = views.names if only is None else (only,)
        graphs = Graphs({name: neighbours(views[name], p, metric) for name in wanted})
    elif only is not None:
        graphs = graphs.only(only)
    if joint:
        if "all" in graphs.names:
            raise ValueError("Expected no graph called 'all', as joint=True adds one, got one")
        named = {name: graphs[name] for name in graphs.names}
        graphs = Graphs(named | {"all": neighbours(side_by_side(views), p, metric)})
    return Views.tree_unflatten(views.host, (views.cells, views.y, graphs))
