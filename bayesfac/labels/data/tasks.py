"""Tasks: rows of several tasks with views and labels, checked once, here.

Length: one container, with what other code asks of it: cells, blocks of rows, hidden labels, new orders.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import scipy.sparse as sp

from bayesfac.core.data import reading
from bayesfac.core.data.cells import Cells, full_table
from bayesfac.core.data.container import Container, HostParts
from bayesfac.labels.data.pieces import LABELS as LABELS
from bayesfac.labels.data.pieces import Piece, add_constant, clusters_by_position, read


@dataclass(frozen=True, eq=False)
class TasksFrame(HostParts):
    """The parts of a set of tasks that stay on the host. Rows are sorted by task, labelled rows first."""

    rows: pd.Index
    tasks: pd.Index
    features: dict[str, pd.Index]  # of every block, that is of the views and the labels
    start: tuple[int, ...]  # the first row of each task, and the number of all rows
    labelled: tuple[int, ...]  # the number of labelled rows of each task
    present: dict[str, tuple[bool, ...]]  # which tasks have the view
    clusters: dict[str, tuple[int, ...]]  # positions of the tasks of each cluster
    name: str = ""
    scales: dict[str, Any] = field(default_factory=dict)  # how views were scaled; see `scaling`


@jax.tree_util.register_pytree_node_class
class Tasks(Container):
    """Rows of several tasks, with features in several views; some of the rows have labels.

    Parameters
    ----------
    views : mapping, Views, list or matrix
        {task: {view: matrix (dense, scipy sparse or DataFrame)}}; a task may lack a view. For one task, or
        with `task`, pass all rows together in any form that `Views` takes. Zeros need not be stored.
    labels : mapping or matrix, optional
        {task: rows x labels}, or one matrix for all rows: 0 and 1, or real numbers. A row of NaN is
        unlabelled, and so are all rows of a task that is not listed. Single cells may be NaN (for `leml`).
    task : sequence, optional
        The task of every row, if `views` has all rows together.
    clusters : mapping, optional
        {name: similar tasks}; clusters may overlap (`heres` uses them).
    constant : bool
        Whether to add a feature of ones, an intercept, to every view. New rows need it too.

    Rows are sorted by task, labelled rows first; `rows` lists the row labels in this order.

    Examples
    --------
    >>> x = [[1, 0], [0, 2], [1, 1]]
    >>> Tasks({"words": x}, [[1, 0], [0, 1], [np.nan, np.nan]], task=["a", "b", "b"])
    Tasks(3 rows in 2 tasks, words: 2 features; 2 labels of 2 rows)
    """

    kind, unit, columns, axis = "Tasks", "label", ("row", "label"), f"feature.{LABELS}"
    site, listed, closed, by_cut = f"view.{LABELS}", False, True, True
    judge = "bayesfac.labels.judge:OfLabels"
    hint_of_folds = ": bf.evaluate has folds of rows, bf.split.holdout hides labels of rows"

    cells: Any  # {block: Cells over all rows}
    y: Any  # {block: values, row-major}; None where they are to be sampled
    host: TasksFrame

    def __init__(
        self,
        views: Any,
        labels: Any = None,
        *,
        task: Any = None,
        clusters: Any = None,
        constant: bool = False,
    ) -> None:
        pieces, features = read(views, labels, task)
        if constant:
            add_constant(pieces, features)
        self._build(pieces, features, clusters_by_position(clusters, list(pieces)))

    def _build(
        self,
        pieces: Mapping[Any, Piece],
        features: dict[str, pd.Index],
        clusters: dict[str, tuple[int, ...]],
    ) -> None:
        parts = [piece.sorted() for piece in pieces.values()]
        sizes = [len(part.rows) for part in parts]
        self.cells, self.y = {}, {}
        for block in sorted(features):
            tables = [part.blocks.get(block) for part in parts]
            empty = [sp.csr_matrix((n, len(features[block]))) for n in sizes]
            whole = sp.vstack([e if t is None else t for t, e in zip(tables, empty, strict=True)])
            whole = sp.coo_matrix(whole)
            self.cells[block] = Cells(whole.row, whole.col, whole.shape)
            self.y[block] = reading.real(whole.data)
        rows = parts[0].rows.append([part.rows for part in parts[1:]])
        if len(twice := reading.repeated(rows)):
            again = reading.plain(twice[0])
            has = [str(again) in set(map(str, part.rows)) for part in parts]
            where = [name for name, own in zip(pieces, has, strict=True) if own]
            raise ValueError(f"Expected distinct row labels, got {again!r} twice (tasks {where})")
        views = [name for name in sorted(features) if name != LABELS]
        self.host = TasksFrame(
            rows,
            pd.Index(list(pieces)),
            features,
            (0, *np.cumsum(sizes).tolist()),
            tuple(int(part.known.sum()) for part in parts),
            {view: tuple(view in part.blocks for part in parts) for view in views},
            clusters,
        )

    @classmethod
    def of_pieces(
        cls,
        pieces: Mapping[Any, Piece],
        features: dict[str, pd.Index],
        clusters: Mapping[str, list[Any]],
    ) -> "Tasks":
        """Tasks from consistent pieces, and clusters by the names of their tasks."""
        self = object.__new__(cls)
        self._build(pieces, features, clusters_by_position(clusters, list(pieces)))
        return self

    def pieces(
        self, tables: Mapping[str, sp.csr_matrix], wanted: Any = None, known: Any = None
    ) -> dict[Any, Piece]:
        """{task: its `wanted` rows of these tables, with labels if `known`}, without missing views."""
        found, present, labelled = {}, self.host.present, self.labelled if known is None else known
        for i, (task, at) in enumerate(zip(self.tasks, self.bounds, strict=True)):
            here = at if wanted is None else wanted[self.task[wanted] == i]
            own = {b: t[here] for b, t in tables.items() if b not in present or present[b][i]}
            found[task] = Piece(own, labelled[here], self.rows[here])
        return {task: piece for task, piece in found.items() if len(piece.rows)}

    def tasks_of_clusters(self) -> dict[str, list[Any]]:
        """{cluster: its tasks}."""
        return {name: [self.tasks[i] for i in own] for name, own in self.clusters.items()}

    @property
    def names(self) -> tuple[str, ...]:
        """The views, sorted by name."""
        return tuple(self.host.present)

    @property
    def blocks(self) -> tuple[str, ...]:
        """The names of the views, and of the labels if there are any."""
        return tuple(self.cells)

    @property
    def rows(self) -> pd.Index:
        return self.host.rows

    @property
    def tasks(self) -> pd.Index:
        return self.host.tasks

    @property
    def labels(self) -> pd.Index:
        """Names of the labels."""
        return self.host.features.get(LABELS, pd.Index([]))

    @property
    def features(self) -> dict[str, pd.Index]:
        """The column labels of every block."""
        return self.host.features

    @property
    def clusters(self) -> dict[str, tuple[int, ...]]:
        return self.host.clusters

    @property
    def n_rows(self) -> int:
        return len(self.host.rows)

    @property
    def n_tasks(self) -> int:
        return len(self.host.tasks)

    @property
    def n_features(self) -> dict[str, int]:
        """Columns of every block."""
        return {name: self.cells[name].shape[1] for name in self.blocks}

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, labels)."""
        return self.n_rows, len(self.labels)

    @property
    def size(self) -> int:
        """The number of stored cells."""
        return sum(cells.row.shape[0] for cells in self.cells.values())

    @property
    def cells_by_view(self) -> tuple[int, ...]:
        """The number of cells of every view, over the tasks that have it."""
        rows = (sum(at.stop - at.start for _, at in self.spans(v)) for v in self.names)
        return tuple(n * self.n_features[v] for n, v in zip(rows, self.names, strict=True))

    @property
    def task(self) -> np.ndarray:
        """The task (position) of every row."""
        return np.repeat(np.arange(self.n_tasks), np.diff(self.host.start))

    @property
    def labelled(self) -> np.ndarray:
        """Which rows have labels."""
        start, known = (np.array(by)[self.task] for by in (self.host.start, self.host.labelled))
        return np.arange(self.n_rows) < start + known

    def span(self, block: str, i: int) -> slice:
        """The rows of task i in a block: all or none; in the labels, the labelled rows."""
        first, last = self.host.start[i : i + 2]
        if block == LABELS:
            return slice(first, first + self.host.labelled[i])
        return slice(first, last if self.host.present[block][i] else first)

    def spans(self, block: str) -> Iterator[tuple[int, slice]]:
        """(task, rows) of every task that has the block."""
        for i in range(self.n_tasks):
            if (at := self.span(block, i)).start < at.stop:
                yield i, at

    @property
    def bounds(self) -> tuple[slice, ...]:  # rows of each task
        return tuple(slice(*self.host.start[i : i + 2]) for i in range(self.n_tasks))

    def parts(self) -> list[tuple[int, slice, tuple[str, ...]]]:
        """(task, rows, blocks of these rows) for the labelled and the unlabelled rows of every task."""
        found = []
        for i, every in enumerate(self.bounds):
            views = tuple(b for b in self.names if self.host.present[b][i])
            known = self.span(LABELS, i)
            found += [(i, known, (*views, LABELS)), (i, slice(known.stop, every.stop), views)]
        return [part for part in found if part[1].start < part[1].stop]

    def seen(self, block: str, table: jax.Array) -> jax.Array:
        """The table, with zeros in the rows that do not have the block."""
        found = jnp.zeros_like(table)
        for _, at in self.spans(block):
            found = found.at[at].set(table[at])
        return found

    @property
    def bare(self) -> list[Any]:
        """Tasks without a labelled row."""
        return [t for t, n in zip(self.tasks, self.host.labelled, strict=True) if not n]

    @property
    def had(self) -> np.ndarray:
        """Which labels at least one row has."""
        has = self.known & (np.asarray(self.y[LABELS]) != 0)
        return np.bincount(np.asarray(self.cells[LABELS].col)[has], minlength=len(self.labels)) > 0

    def unlabelled(self) -> list[str]:
        """Sentences about tasks without a labelled row and labels that no row has."""
        notes, bare = [], ", ".join(map(str, self.bare))
        if bare:
            notes.append(f"no row of {bare} has labels: its predictions use the other tasks only")
        known = self.host.scales.get(LABELS)  # numbers less their mean may all be 0
        zero = known is None or known.centre == 0
        if LABELS in self.cells and len(never := self.labels[~self.had & zero]):
            named = ", ".join(map(str, never[:5])) + ", ..." * (len(never) > 5)
            notes.append(f"no row has the label {named}: it is never predicted")
        return notes

    @property
    def binary(self) -> bool:
        """Whether every label is 0 or 1."""
        own = (self.y or {}).keys() - self.host.scales  # labels that were scaled are numbers
        return LABELS in own and bool(np.isin(self.value, (0, 1)).all())

    @property
    def known(self) -> np.ndarray:
        """Which stored labels are numbers; an unknown cell of a labelled row is stored as NaN."""
        return ~np.isnan(self.y[LABELS])

    @property
    def levels(self) -> tuple[float, ...] | None:
        return (0.0, 1.0) if self.binary else None

    @property
    def code(self) -> np.ndarray:
        """(cell, axis) codes of the known labels, in the order of `value`."""
        return np.argwhere(self.labelled[:, None] & ~np.isnan(self[LABELS].toarray()))

    @property
    def value(self) -> np.ndarray:
        """The labels of the labelled rows, row by row: the last column of `frame()`."""
        if LABELS not in self.blocks:
            return np.zeros(0)
        every = self[LABELS][self.labelled].toarray().ravel()
        return every[~np.isnan(every)]

    def __len__(self) -> int:
        gaps = int((~self.known).sum()) if LABELS in (self.y or {}) else 0
        return int(self.labelled.sum()) * len(self.labels) - gaps

    def __getitem__(self, block: str) -> sp.csr_matrix:
        """One view, or the labels, as a scipy sparse matrix over all rows (a copy)."""
        cells = self.cells[block]
        at = np.asarray(cells.row), np.asarray(cells.col)
        return sp.csr_matrix((np.array(self.y[block], np.float64), at), shape=cells.shape)

    def __repr__(self) -> str:
        views = "; ".join(f"{v}: {len(self.host.features[v])} features" for v in self.names)
        many = f"{self.n_tasks} task{'s' * (self.n_tasks > 1)}"
        some = f"{len(self.labels)} labels of {int(self.labelled.sum())} rows"
        return f"Tasks({self.n_rows} rows in {many}, {views}; {some})"

    def frame(self) -> pd.DataFrame:
        """The known labels as a long table: row, label, value."""
        if LABELS not in self.blocks:
            return self.grid().assign(value=np.zeros(0))
        every = self.grid()[np.repeat(self.labelled, len(self.labels))]
        values = self[LABELS][self.labelled].toarray().ravel()
        return every.assign(value=values)[~np.isnan(values)].reset_index(drop=True)

    def grid(self, labels: Any = None) -> pd.DataFrame:
        """Every row with every label, as a query."""
        labels = pd.Index(self.labels if labels is None else labels)
        row = np.repeat(np.asarray(self.rows), len(labels))
        return pd.DataFrame({"row": row, "label": np.tile(np.asarray(labels), self.n_rows)})

    def coords(self) -> dict[str, pd.Index]:
        """The labels of the axes of parameters."""
        features = {f"feature.{name}": index for name, index in self.host.features.items()}
        return {"row": self.rows, "task": self.tasks, **features}

    def asked(self, coords: Mapping[str, pd.Index]) -> Any:
        """The labelled cells; of rows without labels all cells."""
        return self if len(self) else self.grid(coords[self.axis])

    def in_users_unit(self) -> np.ndarray:
        """The labels of the labelled rows, row by row, as the user gave them."""
        if (scale := self.host.scales.get(LABELS)) is None:
            return self.value
        y = self[LABELS].toarray()[self.labelled] * scale.spread + scale.centre
        return y[~np.isnan(y)]

    def same_columns(self) -> bool:
        """Whether every row has all labels or none of them."""
        row, y = np.asarray(self.cells[LABELS].row), np.asarray(self.y[LABELS])
        return bool(np.isin(np.bincount(row, y), (0, len(self.labels))).all())

    def held_out(self, fraction: float, rng: np.random.Generator) -> tuple["Tasks", "Tasks"]:
        """(train, test): random labelled rows lose their labels; the test part has these rows alone."""
        held = np.zeros(self.n_rows, bool)
        for i in range(self.n_tasks):
            known = np.flatnonzero(self.labelled & (self.task == i))
            some = min(
                round(fraction * len(known)), len(known) - 1
            )  # a task keeps one labelled row
            held[rng.permutation(known)[: max(0, some)]] = True
        if not held.any() or not (self.labelled & ~held).any():
            raise ValueError(
                f"Expected a fraction that leaves labelled rows on both sides, got {fraction} of "
                f"{int(self.labelled.sum())}"
            )
        return self.take(np.ones(self.n_rows, bool), labelled=~held), self.take(held)

    def rows_in_order(self, tasks: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """An order of the rows: tasks in the given order; in each task labelled rows first, shuffled."""
        parts = {
            (i, name): rng.permutation(np.r_[at])
            for i, at, blocks in self.parts()
            for name in [LABELS in blocks]
        }
        return np.concatenate(
            [parts[i, known] for i in tasks for known in (True, False) if (i, known) in parts]
        )

    def reordered(self, orders: dict[str, np.ndarray]) -> "Tasks":
        """The data with tasks, rows and columns in these orders."""
        tables = {
            b: self[b].toarray()[orders["row"]][:, orders[f"feature.{b}"]] for b in self.blocks
        }
        tables[LABELS][~self.labelled[orders["row"]]] = np.nan
        task = self.task[orders["row"]]
        views = {
            f"{i}": {v: tables[v][task == i] for v in self.names if self.host.present[v][i]}
            for i in orders["task"]
        }
        return Tasks(views, {f"{i}": tables[LABELS][task == i] for i in orders["task"]})

    def take(self, rows: Any, labelled: Any = None) -> "Tasks":
        """Some of the rows (positions or a mask). Rows outside the mask `labelled` lose their labels; by
        default all labels stay. Tasks without rows are dropped, also from clusters."""
        wanted = np.sort(np.arange(self.n_rows)[reading.positions(rows)])
        mask = np.ones(self.n_rows, bool) if labelled is None else np.asarray(labelled)
        if mask.dtype != bool or mask.shape != (self.n_rows,):
            raise ValueError(
                f"Expected `labelled` as a mask over {self.n_rows} rows, got {mask.dtype} of {mask.shape}"
            )
        pieces = self.pieces({b: self[b] for b in self.blocks}, wanted, self.labelled & mask)
        if not pieces:
            raise ValueError("Expected at least one row, got none")
        named = self.tasks_of_clusters()
        kept = {name: [task for task in named[name] if task in pieces] for name in named}
        return self._with(pieces, {name: tasks for name, tasks in kept.items() if tasks})

    def _with(self, pieces: Mapping[Any, Piece], clusters: Mapping[str, list[Any]]) -> "Tasks":
        """Tasks from these pieces, with the columns, scales and name of these data."""
        made = Tasks.of_pieces(pieces, self.host.features, clusters)
        made.host = replace(made.host, scales=self.host.scales, name=self.name)
        return made

    def pooled(self) -> "Tasks":
        """All rows as one task, "all". Every task must have every view."""
        self._complete()
        whole = Piece({block: self[block] for block in self.blocks}, self.labelled, self.rows)
        return self._with({"all": whole}, {})

    def concatenated(self) -> "Tasks":
        """One view, "all", with the features of all views, labelled "view: feature". Every task must have
        every view: a missing view is not a view of zeros."""
        self._complete()
        names = pd.Index([f"{v}: {one}" for v in self.names for one in self.host.features[v]])
        blocks, features = {"all": sp.hstack([self[v] for v in self.names]).tocsr()}, {"all": names}
        if LABELS in self.blocks:
            blocks[LABELS], features[LABELS] = self[LABELS], self.labels
        made = Tasks.of_pieces(self.pieces(blocks), features, self.tasks_of_clusters())
        return made.named(self.name)

    def _complete(self) -> None:
        for view, present in self.host.present.items():
            if not all(present):
                task = reading.plain(self.tasks[present.index(False)])
                raise ValueError(f"Expected every view in every task, got no {view!r} in {task!r}")

    def fingerprint(self) -> str:
        """A digest of labels and values."""
        host = self.host
        parts: list[Any] = [host.rows, host.tasks, host.start, host.labelled]
        for name, cells in self.cells.items():
            present = host.present.get(name, ())
            parts += [name, host.features[name], present, cells.row, cells.col, self.y[name]]
        parts += [part for cluster in host.clusters.items() for part in cluster]
        return reading.digest(parts)

    def hide(self, views: bool = True) -> "Tasks":
        """The same shapes without values, which the model then samples; `views=False` hides labels only."""
        y = None if views else {name: self.y[name] for name in self.names}
        return self.replaced(y=y)

    def fill(self, draw: Mapping[str, Any]) -> "Tasks":
        """The same data with the values that the model drew at the sites `view.NAME`."""
        cells, y = dict(self.cells), dict(self.y or {})
        for name in self.blocks:
            if f"view.{name}" in draw:
                table = self.seen(name, jnp.asarray(draw[f"view.{name}"]))
                cells[name], y[name] = full_table(table)
        return self.replaced(cells=cells, y=y)

    drawn = fill

    def like(self, tables: Mapping[str, jax.Array]) -> "Tasks":
        """New values for the same tasks and blocks: dense tables (task, row, column), all rows labelled."""
        T, n, _ = next(iter(tables.values())).shape
        features: dict[str, pd.Index] = {n: pd.RangeIndex(t.shape[2]) for n, t in tables.items()}
        host = TasksFrame(
            pd.RangeIndex(T * n), self.tasks, features, tuple(range(0, T * n + 1, n)), (n,) * T,
            {name: (True,) * T for name in self.names}, self.clusters,
        )  # fmt: skip
        full = {name: full_table(jnp.reshape(t, (T * n, -1))) for name, t in tables.items()}
        cells, y = ({name: pair[k] for name, pair in full.items()} for k in (0, 1))
        return Tasks.tree_unflatten(host, (cells, y))
