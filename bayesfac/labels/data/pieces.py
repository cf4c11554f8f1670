"""Read tasks as users write them: one consistent piece for each task, or an error that names the task."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp

from bayesfac.core.data import reading
from bayesfac.core.data.views import Views

LABELS = "labels"  # the name of the block of labels, beside the blocks of the views
CONSTANT = "(constant)"  # the feature of ones


class Piece(NamedTuple):
    """One task: its blocks, and which rows have labels."""

    blocks: dict[str, sp.csr_matrix]
    known: np.ndarray
    rows: pd.Index

    def sorted(self) -> "Piece":
        """The same piece with labelled rows first and no stored labels in the other rows."""
        order = np.argsort(~self.known, kind="stable")
        blocks, known = {name: t[order] for name, t in self.blocks.items()}, self.known[order]
        if LABELS in blocks:
            labels = blocks[LABELS]
            labels.data[~np.repeat(known, np.diff(labels.indptr))] = 0
            labels.eliminate_zeros()
        return Piece(blocks, known, self.rows[order])


def read(views: Any, labels: Any, task: Any) -> tuple[dict[Any, Piece], dict[str, pd.Index]]:
    """The pieces of all tasks, and the columns of every block."""
    nested = list(views.items()) if reading.is_named(views) else views
    if not _by_task(nested):
        whole = _views(views)
        for raw, what in ((labels, "labels"), (task, "task")):
            _check_order(views, raw, whole.rows, what)
        return _pooled(whole, labels, task)
    if task is not None:
        raise ValueError("Expected `task` only where views hold all rows together, got both")
    if labels is not None and not reading.is_named(labels):
        raise TypeError(f"Expected labels as task -> matrix, got {type(labels).__name__}")
    names = [name for name, _ in nested]
    if again := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"Expected distinct names of tasks, got {again[0]!r} twice")
    answers = labels or {}
    if strange := [name for name in answers if name not in names]:
        raise ValueError(f"Expected labels of the tasks {names}, got some of {strange[0]!r}")
    pieces: dict[Any, Piece] = {}
    features: dict[str, pd.Index] = {}
    for name, own in nested:
        try:
            read = _views(own)
        except (TypeError, ValueError) as wrong:
            raise type(wrong)(f"Task {name!r}: {wrong}") from wrong
        _check_order(own, answers.get(name), read.rows, f"labels of task {name!r}")
        pieces[name], columns = _piece(read, answers.get(name), f"labels of task {name!r}")
        _agree(features, columns, name)
    return _told_apart(pieces), features


def _by_task(nested: Any) -> bool:
    """Whether `nested` lists pairs (task, views of the task) rather than the views of all rows."""
    if not isinstance(nested, list) or not nested:
        return False
    pair = [isinstance(part, tuple) and len(part) == 2 for part in nested]
    own = [
        two and (isinstance(part[1], Views) or reading.is_named(part[1]))
        for two, part in zip(pair, nested, strict=True)
    ]
    if any(own) and not all(own):
        odd, two = nested[own.index(False)], pair[own.index(False)]
        what = f"{type(odd[1]).__name__} for task {odd[0]!r}" if two else type(odd).__name__
        raise TypeError(f"Expected the views of every task as view -> matrix, got {what}")
    return all(own)


def _check_order(views: Any, raw: Any, rows: pd.Index, what: str) -> None:
    """Refuse a table with the labels of the views' rows in another order, also where these are numbers. Views
    of arrays have places only, so that the place decides."""
    parts = list(views.values()) if reading.is_named(views) else views
    parts = parts if isinstance(parts, list | tuple) else [parts]
    if not isinstance(raw, pd.DataFrame | pd.Series) or len(raw) != len(rows):
        return
    if not any(isinstance(part, pd.DataFrame | Views) for part in parts):
        return
    at = reading.positions_of(rows, raw.index)
    if (np.sort(at) == np.arange(len(rows))).all() and (np.diff(at) != 1).any():
        row = int(np.argmax(at != np.arange(len(rows))))
        wanted, got = reading.plain(rows[row]), reading.plain(raw.index[row])
        raise ValueError(
            f"Expected {what} in the order of the views' rows: {wanted!r} in row {row}, got {got!r} (an "
            "array is taken by position)"
        )


def _told_apart(pieces: dict[Any, Piece]) -> dict[Any, Piece]:
    """Make rows without labels of their own distinct across tasks: row i of a task becomes "task:i"."""
    rows = [piece.rows for piece in pieces.values()]
    every = rows[0].append(rows[1:])
    if every.is_unique and every.dtype.kind in "iu":
        return pieces
    for name, piece in pieces.items():
        if isinstance(piece.rows, pd.RangeIndex):
            pieces[name] = piece._replace(rows=pd.Index([f"{name}:{i}" for i in piece.rows]))
    return pieces


def _views(data: Any) -> Views:
    if reading.is_named(data) and not data:
        raise ValueError("Expected at least one view, got none")
    views = data if isinstance(data, Views) else Views(data)
    if LABELS in views.names:
        raise ValueError(f"Expected views by other names than that of the labels, got {LABELS!r}")
    return views


def _piece(views: Views, labels: Any, what: str) -> tuple[Piece, dict[str, pd.Index]]:
    """The piece of some rows, and the columns of every block."""
    blocks, features = {view: views[view] for view in views.names}, dict(views.features)
    table, known, columns = _answers(labels, views.rows, what)
    if columns is not None:
        blocks[LABELS], features[LABELS] = table, columns
    return Piece(blocks, known, views.rows), features


def _pooled(views: Views, labels: Any, task: Any) -> tuple[dict[Any, Piece], dict[str, pd.Index]]:
    """Pieces from the views of all rows and the task of each row."""
    whole, features = _piece(views, labels, "labels")
    if task is None:
        return {"all": whole}, features
    if isinstance(task, str) or not hasattr(task, "__len__"):
        raise TypeError(f"Expected the task of every row, got {task!r}")
    code, names = reading.labels(task, "task")
    if len(code) != views.n_rows:
        raise ValueError(f"Expected a task for each of {views.n_rows} rows, got {len(code)}")
    pieces = {}
    for i, name in enumerate(names):
        at = np.flatnonzero(code == i)
        own = {block: table[at] for block, table in whole.blocks.items()}
        pieces[reading.plain(name)] = Piece(own, whole.known[at], whole.rows[at])
    return pieces, features


def _answers(
    raw: Any, rows: pd.Index, what: str
) -> tuple[sp.csr_matrix, np.ndarray, pd.Index | None]:
    """The labels (NaN in unknown cells of labelled rows), which rows have labels, and the names of labels."""
    if raw is None:
        return sp.csr_matrix((len(rows), 0)), np.zeros(len(rows), bool), None
    table, names = _table(raw, rows, what), raw.columns if isinstance(raw, pd.DataFrame) else None
    if table.shape[0] != len(rows):
        raise ValueError(f"Expected {what} for {len(rows)} rows, got {table.shape[0]}")
    hidden = np.isnan(table.data)
    known = np.bincount(table.row[hidden], minlength=len(rows)) < table.shape[1]
    gaps = hidden & known[table.row]
    table.data[hidden] = 0
    csr, _, numbers = reading.matrix(table, what)
    if gaps.any():
        cells = table.row[gaps], table.col[gaps]
        csr = sp.csr_matrix(csr + sp.csr_matrix((np.full(gaps.sum(), np.nan), cells), csr.shape))
    names = numbers if names is None else names
    if len(twice := reading.repeated(names)):
        again = reading.plain(twice[0])
        raise ValueError(f"Expected distinct names in {what}, got {again!r} twice")
    return csr, known, names


def _table(raw: Any, rows: pd.Index, what: str) -> sp.coo_matrix:
    """Labels as numbers, possibly NaN, with every cell stored at most once."""
    if isinstance(raw, pd.DataFrame):
        cells = reading.cells(raw, f"in {what}")
        others = len(raw) == len(rows) and not reading.same_labels(raw.index, rows)
        if others and _named(raw.index, rows):
            row = int(np.argmax(reading.positions_of(rows, raw.index) != np.arange(len(rows))))
            raise ValueError(
                f"Expected {what} in the order of the views' rows: {reading.plain(rows[row])!r} in row "
                f"{row}, got {reading.plain(raw.index[row])!r}"
            )
        raw = cells
    if reading.is_named(raw):
        raise TypeError(f"Expected {what} as one matrix for all rows, got {type(raw).__name__}")
    try:
        table = raw if sp.issparse(raw) else reading.array(raw)
    except ValueError as ragged:
        raise ValueError(f"Expected as many {what} in every row, got more in some") from ragged
    if table.ndim != 2 or 0 in table.shape or table.dtype.kind not in "biuf":
        raise ValueError(
            f"Expected numbers in {what}, rows x labels, got {table.dtype} of shape {table.shape}"
        )
    csr = reading.in_double(table)
    csr.sum_duplicates()
    return csr.tocoo()


def _named(*rows: pd.Index) -> bool:
    """Whether none of the indexes is the default 0, 1, ..."""
    return not any(isinstance(r, pd.RangeIndex) and r.equals(pd.RangeIndex(len(r))) for r in rows)


def _agree(features: dict[str, pd.Index], own: Mapping[str, pd.Index], task: Any) -> None:
    """Check that a task has the same columns in a block as the tasks before it."""
    for block, columns in own.items():
        if not reading.same_labels(features.setdefault(block, columns), columns):
            raise ValueError(
                f"Expected the same columns of {block!r} in every task ({len(features[block])}), "
                f"got others in task {task!r} ({len(columns)})"
            )


def clusters_by_position(given: Any, tasks: list) -> dict[str, tuple[int, ...]]:
    """{cluster: positions of its tasks in the list of all tasks}."""
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(f"Expected clusters as name -> tasks, got {type(given).__name__}")
    positions = {}
    for name, members in (given or {}).items():
        one = isinstance(members, str) or not hasattr(members, "__iter__")
        members = [members] if one else list(members)
        at = {tasks.index(member) for member in members if member in tasks}
        if not members or len(at) < len(members):
            raise ValueError(
                f"Expected cluster {name!r} to list some of the tasks {tasks}, each once, got {members}"
            )
        positions[str(name)] = tuple(sorted(at))
    return dict(sorted(positions.items()))


def add_constant(pieces: dict[Any, Piece], features: dict[str, pd.Index]) -> None:
    """Add a feature of ones to every view."""
    for view in set(features) - {LABELS}:
        if CONSTANT in features[view]:
            raise ValueError(f"Expected no feature called {CONSTANT!r} in {view!r} yet, got one")
        features[view] = features[view].append(pd.Index([CONSTANT]))
        for piece in pieces.values():
            if view in piece.blocks:
                one = sp.csr_matrix(np.ones((len(piece.rows), 1)))
                piece.blocks[view] = sp.csr_matrix(sp.hstack([piece.blocks[view], one]))
