"""What a `Tasks` should hold, {row: (task, {view: numbers}, labels or None)}, and the comparison with it."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from bayesfac.labels.data.tasks import LABELS, Tasks

NAN = np.nan
WIDTHS = {"words": ["cat", "dog", "emu"], "links": ["in", "out"]}
NAMES = ["old", "new"]
CLUSTERS = {"pair": ["b", "a"], "all": ["a", "b", "c"], "lone": ["c"]}


class Row(NamedTuple):
    task: str
    views: dict
    y: np.ndarray | None


def truth(seed=0, lacking="c", real=False):
    """Tasks b, a, c in this order; some rows without labels, and a task that lacks a view."""
    rng = np.random.default_rng(seed)
    found = {}
    for task, n in (("b", 4), ("a", 5), ("c", 3)):
        own = [v for v in WIDTHS if (v, task) != ("links", lacking)]
        for i in range(n):
            views = {v: rng.integers(0, 3, len(WIDTHS[v])).astype(float) for v in own}
            y = rng.normal(size=2) if real else rng.integers(0, 2, 2).astype(float)
            found[f"{task}{i}"] = Row(task, views, y if rng.random() < 0.6 else None)
    return found | {"b1": found["b1"]._replace(y=None), "a0": found["a0"]._replace(y=np.ones(2))}


def table(given, block):
    """One view of some rows, or their labels, NaN where unknown, as a DataFrame."""
    if block == LABELS:
        rows = [np.full(2, NAN) if row.y is None else row.y for row in given.values()]
        return pd.DataFrame(np.array(rows), index=list(given), columns=NAMES)
    rows = [row.views[block] for row in given.values()]
    return pd.DataFrame(np.array(rows), index=list(given), columns=WIDTHS[block])


def by_task(given):
    """{task: {view: table}}, {task: labels}."""
    tasks = dict.fromkeys(row.task for row in given.values())
    own = {t: {label: row for label, row in given.items() if row.task == t} for t in tasks}
    views = {t: {v: table(o, v) for v in next(iter(o.values())).views} for t, o in own.items()}
    return views, {t: table(o, LABELS) for t, o in own.items()}


def made(given, clusters=None):
    return Tasks(*by_task(given), clusters=clusters)


def same(data, given):
    """Everything the container says agrees with the dictionary."""
    assert sorted(data.rows) == sorted(given) and len(data.rows) == data.n_rows
    rows = [given[label] for label in data.rows]
    assert [data.tasks[i] for i in data.task] == [row.task for row in rows]
    assert data.labelled.tolist() == [row.y is not None for row in rows]
    place = {label: i for i, label in enumerate(given)}  # by task, labelled first, then as given
    keys = list(zip(data.task, ~data.labelled, map(place.get, data.rows), strict=True))
    assert keys == sorted(keys)
    for view in data.names:
        nothing = np.zeros(len(WIDTHS[view]))
        wanted = [row.views.get(view, nothing) for row in rows]
        np.testing.assert_array_equal(data[view].toarray(), wanted)
        cells = np.asarray(data.cells[view].row), np.asarray(data.cells[view].col)
        assert (np.lexsort(cells[::-1]) == np.arange(len(cells[0]))).all()  # row-major
        has = {row.task for row in rows if view in row.views}
        assert [data.tasks[i] for i, _ in data.spans(view)] == [t for t in data.tasks if t in has]
    wanted = [np.zeros(2) if row.y is None else row.y for row in rows]
    np.testing.assert_array_equal(data[LABELS].toarray(), wanted)
    frame, known = data.frame(), {label: row.y for label, row in given.items() if row.y is not None}
    assert frame.columns.tolist() == ["row", "label", "value"]
    assert frame["value"].tolist() == data.value.tolist() and len(frame) == len(data)
    got = frame.set_index(["row", "label"])["value"].to_dict()
    assert got == {(r, n): v for r, y in known.items() for n, v in zip(NAMES, y, strict=True)}
