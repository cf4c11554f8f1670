"""Rows of several tasks: read as meant whatever their form, or refused with the task, view or row at fault.

What a container should hold is written down as a dictionary, {row: (task, {view: numbers}, labels or
None)}, and compared with it cell by cell.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import bayesfac as bf
from bayesfac.core.cards import describe
from bayesfac.core.tasks import LABELS, Tasks

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


# ---------------------------------------------------------------------- every form


def pooled(given):
    """All rows together, in an order that mixes the tasks, and the task of each."""
    mixed = {label: given[label] for label in sorted(given, key=lambda label: label[::-1])}
    views = {v: table(mixed, v) for v in WIDTHS}
    return mixed, views, table(mixed, LABELS), [row.task for row in mixed.values()]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("lacking", ["c", "b", None])
def test_tasks_are_what_was_given(seed, lacking):
    given = truth(seed, lacking)
    data = made(given)
    same(data, given)
    assert list(data.tasks) == ["b", "a", "c"]  # in the order given
    assert data.names == ("links", "words") and data.blocks == ("labels", "links", "words")
    assert list(data.labels) == NAMES and data.levels == (0.0, 1.0)
    assert data.size == sum(data[b].nnz for b in data.blocks)


def test_every_form_is_the_same_data():
    given = truth(lacking=None)
    nested, answers = by_task(given)
    same(Tasks(nested, answers), given)
    same(Tasks(list(nested.items()), answers), given)
    same(Tasks({t: bf.Views(own) for t, own in nested.items()}, answers), given)
    shuffled = {t: answers[t] for t in "cab"}
    assert Tasks(nested, shuffled).fingerprint() == Tasks(nested, answers).fingerprint()
    mixed, views, labels, task = pooled(given)
    for own in (views, bf.Views(views)):
        for of in (task, pd.Series(task), np.array(task), pd.Categorical(task)):
            data = Tasks(own, labels, task=of)
            same(data, mixed)
            assert list(data.tasks) == ["a", "b", "c"]  # sorted: rows have no order of tasks
    alone = {label: row._replace(task="all") for label, row in mixed.items()}
    same(Tasks(views, labels), alone)
    same(Tasks({"all": views}, {"all": labels}), alone)


def test_matrices_alone_get_names():
    x, y = np.eye(3), [[1, 0], [0, 1], [NAN, NAN]]
    assert Tasks(x, y).names == ("x",) and Tasks(x.tolist(), y).names == ("x",)
    data = Tasks([x, sp.eye(3)], y, task=[7, 3, 7])
    assert data.names == ("view0", "view1") and list(data.tasks) == [3, 7]
    assert data.rows.tolist() == [1, 0, 2] and list(data.labels) == [0, 1]


COUNTS = np.array([[0, 1], [1, 0], [1, 1], [0, 1]])
KINDS = [
    lambda x: x.astype(np.float32), lambda x: x.astype(np.uint8), lambda x: x.astype(bool),
    np.asfortranarray, lambda x: x.tolist(), lambda x: tuple(map(tuple, x)), pd.DataFrame, jnp.asarray,
    lambda x: np.ma.masked_array(x, np.zeros_like(x)), sp.csr_matrix, sp.csc_array,
    lambda x: sp.coo_matrix(x.astype(bool)),
    lambda x: sp.coo_matrix((np.r_[1.0, x[x > 0]], (np.r_[0, x.nonzero()[0]], np.r_[0, x.nonzero()[1]])))
    - sp.coo_matrix(([1.0], ([0], [0])), shape=x.shape),  # a stored zero
    lambda x: pd.DataFrame(x).astype("Int64"), lambda x: pd.DataFrame(x).astype("boolean"),
]  # fmt: skip


@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_every_kind_of_array_is_the_same_numbers(kind):
    made, task = KINDS[kind](COUNTS), ["b", "a", "b", "a"]
    first = Tasks({"v": COUNTS}, COUNTS, task=task)
    assert Tasks({"v": made}, made, task=task).fingerprint() == first.fingerprint()
    own = Tasks({"b": {"v": made}}, {"b": made})
    assert own.fingerprint() == Tasks({"b": {"v": COUNTS}}, {"b": COUNTS}).fingerprint()


def test_the_users_arrays_are_copied_and_may_be_read_only():
    x, y = COUNTS.astype(float), COUNTS.astype(float)
    data, sparse = Tasks(x, y), sp.csr_matrix(x)
    from_sparse = Tasks(sparse, sparse)
    was = data.fingerprint()
    x[:], y[:], sparse.data[:] = 9, 9, 9
    assert data.fingerprint() == from_sparse.fingerprint() == was
    x, y = COUNTS.astype(float), COUNTS.astype(float)
    for array in (x, y):
        array.setflags(write=False)
    assert Tasks(x, y).fingerprint() == was
    y = np.where([[True], [False], [False], [False]], NAN, y)
    Tasks(x, y)
    assert np.isnan(y[0]).all()  # still the user's NaN


UNKNOWN = np.array([[1.0, 0.0], [NAN, NAN], [0.0, 0.0]])


@pytest.mark.parametrize(
    "labels",
    [
        UNKNOWN,
        UNKNOWN.tolist(),
        np.asfortranarray(UNKNOWN),
        pd.DataFrame(UNKNOWN),
        pd.DataFrame([[1, 0], [pd.NA, pd.NA], [0, 0]], dtype="Int64"),
        pd.DataFrame([[True, False], [pd.NA, pd.NA], [False, False]], dtype="boolean"),
        np.ma.masked_array([[1, 0], [9, 9], [0, 0]], [[0, 0], [1, 1], [0, 0]]),
        sp.csr_matrix(UNKNOWN),
        sp.coo_array(([1.0, NAN, NAN], ([0, 1, 1], [0, 1, 0])), shape=(3, 2)),
    ],
    ids=range(9),
)
def test_rows_of_nan_have_no_labels_yet(labels):
    data = Tasks(np.eye(3), labels)
    assert data.rows.tolist() == [0, 2, 1] and data.labelled.tolist() == [True, True, False]
    assert data.value.tolist() == [1, 0, 0, 0] and data.binary and len(data) == 4
    assert data.fingerprint() == Tasks(np.eye(3), UNKNOWN).fingerprint()


def test_real_labels_have_no_levels():
    given = truth(1, real=True)
    data = made(given)
    same(data, given)
    assert data.levels is None and not data.binary
    assert Tasks(np.eye(2), [[0.5], [1]]).levels is None
    assert Tasks(np.eye(2), [[-1], [1]]).levels is None
    assert Tasks(np.eye(2), [[0], [0]]).levels == (0.0, 1.0)


# ---------------------------------------------------------------------- labels of the axes


@pytest.mark.parametrize("rows", [["u", "v", "w", "x"], [30, 4, 7, 2**40]])
@pytest.mark.parametrize("tasks", [["s", "t"], [12, 5]])
@pytest.mark.parametrize("labels", [["l", "m"], [9, 1]])
def test_text_and_numbers_survive_as_labels(rows, tasks, labels):
    x = pd.DataFrame(np.eye(4), index=rows)
    y = pd.DataFrame([[1, 0], [0, 1], [NAN, NAN], [1, 1]], index=rows, columns=labels)
    whole = Tasks({"v": x}, y, task=np.repeat(tasks, 2))
    one, two = tasks
    parted = Tasks(
        {one: {"v": x[:2]}, two: {"v": x[2:]}}, {one: y[:2], two: y[2:]}, clusters={"c": [two]}
    )
    for data in (whole, parted):
        assert sorted(data.tasks) == sorted(tasks) and list(data.labels) == labels
        frame = data.frame().set_index("row")["value"]
        assert frame[rows[0]].tolist() == [1, 0] and frame[rows[3]].tolist() == [1, 1]
        assert set(frame.index) == {rows[i] for i in (0, 1, 3)}
        assert data.coords()["row"].tolist() == data.rows.tolist()
    assert parted.clusters == {"c": (1,)}
    assert list(parted.tasks) == tasks and parted.rows.tolist() == [rows[i] for i in (0, 1, 3, 2)]


def test_counted_rows_are_told_apart():
    x = pd.DataFrame(np.eye(4))

    def rows(first, second):
        return Tasks({"s": {"v": first}, "t": {"v": second}}).rows.tolist()

    assert rows(np.eye(2), np.eye(2)) == ["s:0", "s:1", "t:0", "t:1"]
    assert rows(x[:2], x[2:]) == [0, 1, 2, 3]  # numbers of one table: the user's own
    assert rows(x[::2], x[1::2]) == [0, 2, 1, 3]
    assert rows(x, x) == [f"{t}:{i}" for t in "st" for i in range(4)]
    assert rows(np.eye(4), x.set_axis(list("abcd"))) == ["s:0", "s:1", "s:2", "s:3", *"abcd"]
    assert Tasks({"s": {"v": x[2:]}}).rows.tolist() == [2, 3]
    assert Tasks({1: {"v": np.eye(1)}, 2: {"v": np.eye(1)}}).rows.tolist() == ["1:0", "2:0"]


def test_labels_whose_rows_only_count_are_taken_as_they_stand():
    named = pd.DataFrame(np.eye(2), index=["r", "s"])
    for x, y in [(named, pd.DataFrame([[1], [0]])), (np.eye(2), named), (named, named)]:
        assert Tasks(x, y).value[0] == 1


# ---------------------------------------------------------------------- parts of it


@pytest.mark.parametrize("seed", range(4))
def test_blocks_are_where_they_should_be(seed):
    data = made(given := truth(seed))
    rows = [given[label] for label in data.rows]
    assert [b.stop - b.start for b in data.bounds] == [4, 5, 3]
    seen = np.zeros(data.n_rows, int)
    for i, at, blocks in data.parts():
        for row in rows[at]:
            assert data.tasks[i] == row.task
            assert set(blocks) == set(row.views) | ({LABELS} if row.y is not None else set())
        seen[at] += 1
    assert (seen == 1).all()
    numbers = jnp.arange(1.0, 1 + data.n_rows)[:, None] * jnp.ones(2)
    for block in data.blocks:
        has = [row.y is not None if block == LABELS else block in row.views for row in rows]
        wanted = np.where(np.array(has)[:, None], numbers, 0)
        np.testing.assert_array_equal(data.seen(block, numbers), wanted)
        assert all(at == data.span(block, i) for i, at in data.spans(block))
        assert sum((has[at] for _, at in data.spans(block)), []) == [True] * sum(has)
    assert data.cells_by_view == (2 * sum("links" in row.views for row in rows), 3 * data.n_rows)
    assert data.n_features == {LABELS: 2, "links": 2, "words": 3}


@pytest.mark.parametrize("seed", range(6))
def test_taking_some_rows_with_some_labels(seed):
    given, rng = truth(seed), np.random.default_rng(seed + 100)
    data = made(given, CLUSTERS)
    mask, keep = rng.random((2, data.n_rows)) < 0.5
    mask[rng.integers(data.n_rows)] = True
    same(data.take(mask), {r: row for r, row in given.items() if r in set(data.rows[mask])})
    positions = rng.permutation(np.flatnonzero(mask))
    assert data.take(positions).fingerprint() == data.take(mask).fingerprint()
    hidden = {r: given[r]._replace(y=given[r].y if k else None)
              for r, k in zip(data.rows[mask], keep[mask], strict=True)}  # fmt: skip
    part = data.take(mask, keep)
    same(part, hidden)  # of labels that were taken away no cell is left, not even a zero
    assert part.binary and part.size == sum(
        np.count_nonzero(part[b].toarray()) for b in part.blocks
    )
    assert part.features is data.features
    stay = {row.task for row in hidden.values()}
    named = {c: {part.tasks[i] for i in own} for c, own in part.clusters.items()}
    assert named == {c: set(own) & stay for c, own in CLUSTERS.items() if set(own) & stay}
    assert data.take(np.ones(data.n_rows, bool)).fingerprint() == data.fingerprint()


def test_a_task_that_goes_takes_its_place_with_it():
    data = made(truth(), CLUSTERS)
    part = data.take(data.task != 0)  # without b
    assert list(part.tasks) == ["a", "c"]
    assert part.clusters == {"all": (0, 1), "lone": (1,), "pair": (0,)}
    assert part.host.present == {"links": (True, False), "words": (True, True)}
    gone = part.take(part.task == 1)
    assert gone.names == ("links", "words") and gone.cells_by_view == (0, 9)
    assert gone["links"].shape == (3, 2) and gone["links"].nnz == 0
    assert data.take([-1]).rows.tolist() == [data.rows[-1]]


def test_pooled_and_concatenated():
    given = truth(2, lacking=None)
    data = made(given, CLUSTERS)
    one = data.pooled()
    same(one, {label: given[label]._replace(task="all") for label in data.rows})
    assert list(one.tasks) == ["all"] and one.clusters == {}
    wide = data.concatenated()
    assert wide.names == ("all",) and wide.clusters == data.clusters
    assert list(wide.features["all"]) == [
        "links: in", "links: out", "words: cat", "words: dog", "words: emu",
    ]  # fmt: skip
    both = sp.hstack([data["links"], data["words"]]).toarray()
    np.testing.assert_array_equal(wide["all"].toarray(), both)
    assert wide.frame().equals(data.frame()) and wide.rows.equals(data.rows)
    assert one.concatenated().fingerprint() == wide.pooled().fingerprint()
    bare = Tasks(by_task(given)[0])
    assert bare.concatenated().blocks == ("all",) and bare.pooled().n_tasks == 1


# ---------------------------------------------------------------------- the digest


def put(given, label, **new):
    return given | {label: given[label]._replace(**new)}


def with_links(given, numbers):
    """The task that lacks a view gets one."""
    return {r: row._replace(views={"links": numbers, **row.views}) for r, row in given.items()}


CHANGES = {
    "a number": lambda g: put(g, "b0", views={**g["b0"].views, "links": np.array([7.0, 7.0])}),
    "a label": lambda g: put(g, "a0", y=np.array([0.0, 1.0])),
    "no labels": lambda g: put(g, "a0", y=None),
    "labels that are zero": lambda g: put(g, "a0", y=np.zeros(2)),
    "zero where none were known": lambda g: put(g, "b1", y=np.zeros(2)),
    "the label of a row": lambda g: {("b9" if r == "b0" else r): row for r, row in g.items()},
    "the name of a task": lambda g: {r: row._replace(task=row.task.upper()) for r, row in g.items()},
    "the order of tasks": lambda g: dict(sorted(g.items())),
    "the task of a row": lambda g: put(g, "a4", task="b"),
    "a view of zeros": lambda g: with_links(g, np.zeros(2)),
    "a row less": lambda g: {r: row for r, row in g.items() if r != "c2"},
}  # fmt: skip


def test_the_digest_knows_every_change():
    given = truth()
    views, labels = by_task(given)
    prints = [made(change(given)).fingerprint() for change in CHANGES.values()]
    gnu = {"b": {"words": views["b"]["words"].rename(columns={"cat": "gnu"})}}
    for mine, answers in [
        (views, {}),
        (views, {t: y * NAN for t, y in labels.items()}),
        (views, {t: y.rename(columns={"old": "odd"}) for t, y in labels.items()}),
        ({t: {v.upper(): x for v, x in own.items()} for t, own in views.items()}, labels),
        ({"b": {"words": views["b"]["words"]}}, {"b": labels["b"]}),
        (gnu, {"b": labels["b"]}),
    ]:
        prints.append(Tasks(mine, answers).fingerprint())
    for clusters in [
        None, CLUSTERS, {**CLUSTERS, "lone": ["b"]}, {**CLUSTERS, "more": ["b"]}, {"pair": ["b", "a"]},
        {"twin": ["b", "a"]},
    ]:  # fmt: skip
        prints.append(made(given, clusters).fingerprint())
    prints += [Tasks([[1.0]], [[y]]).fingerprint() for y in (0, 1, NAN)]
    assert len(set(prints)) == len(prints)


def test_the_digest_knows_nothing_else():
    given = truth()
    views, labels = by_task(given)
    first = made(given, CLUSTERS).fingerprint()
    backwards = {t: dict(reversed(own.items())) for t, own in views.items()}
    again = {c: own[::-1] for c, own in reversed(CLUSTERS.items())}
    assert Tasks(backwards, labels, clusters=again).fingerprint() == first
    assert jax.tree.map(lambda x: x, made(given, CLUSTERS)).fingerprint() == first
    unlisted = {t: y for t, y in labels.items() if t != "c"}
    told = {**labels, "c": labels["c"] * NAN}
    assert Tasks(views, unlisted).fingerprint() == Tasks(views, told).fingerprint()


# ---------------------------------------------------------------------- what models need


def test_values_can_be_hidden_and_filled_in():
    data = made(truth())
    hidden = data.hide()
    assert hidden.y is None and hidden.levels is None and not hidden.binary
    assert hidden.rows is data.rows and repr(hidden) == repr(data)
    drawn = {f"view.{b}": np.full((data.n_rows, k), 0.5) for b, k in data.n_features.items()}
    filled = hidden.fill(drawn)
    for block in data.blocks:
        inside = np.zeros(data.n_rows)
        for _, at in data.spans(block):
            inside[at] = 0.5
        np.testing.assert_array_equal(
            filled[block].toarray(), inside[:, None] * np.ones(data.n_features[block])
        )
    assert filled.levels is None and filled.labelled.tolist() == data.labelled.tolist()
    back = data.fill({f"view.{b}": data[b].toarray() for b in data.blocks})
    assert back.frame().equals(data.frame())


def test_a_grid_asks_for_every_row_and_label():
    data = made(truth())
    grid = data.grid()
    assert list(zip(grid["row"], grid["label"], strict=True)) == [
        (row, label) for row in data.rows for label in NAMES
    ]
    assert data.grid(["new"])["label"].tolist() == ["new"] * data.n_rows
    assert Tasks(np.eye(2)).grid().empty and len(Tasks(np.eye(2)).grid([1, 2])) == 4


def test_the_same_tasks_with_other_numbers():
    data = made(truth(lacking=None), CLUSTERS)
    rng = np.random.default_rng(0)
    tables = {b: jnp.asarray(rng.random((3, 2, 4))) for b in data.blocks}
    other = data.like(tables)
    assert other.n_rows == 6 and other.tasks is data.tasks and other.clusters == data.clusters
    assert other.labelled.all() and other.task.tolist() == [0, 0, 1, 1, 2, 2]
    for block in data.blocks:
        np.testing.assert_array_equal(other[block].toarray(), tables[block].reshape(6, 4))
        assert [at for _, at in other.spans(block)] == [slice(0, 2), slice(2, 4), slice(4, 6)]
    traced = jax.jit(lambda t: jnp.sum(data.like(t).y["words"]))(tables)
    assert traced == pytest.approx(float(tables["words"].sum()))


def test_it_is_a_pytree():
    data = made(truth(), CLUSTERS)
    leaves, shape = jax.tree.flatten(data)
    assert all(isinstance(leaf, jax.Array) for leaf in leaves)
    assert jax.tree.unflatten(shape, leaves).fingerprint() == data.fingerprint()
    calls = []

    @jax.jit
    def twice(given):
        calls.append(given.n_rows)
        assert given.parts() == data.parts() and given.n_features == data.n_features
        return jax.tree.map(lambda x: x * 2, given.y), given

    for _ in range(2):
        double, same_data = twice(data)
    assert calls == [12] and same_data.fingerprint() == data.fingerprint()
    assert same_data.frame().equals(data.frame())
    np.testing.assert_array_equal(double["words"], 2 * np.asarray(data.y["words"]))
    assert jax.jit(lambda t: t)(data.hide()).y is None


# ---------------------------------------------------------------------- few of everything


def test_few_of_everything():
    one = Tasks([[1.0, 2.0]], [[1]])
    assert (one.n_rows, one.n_tasks, len(one.labels), one.size) == (1, 1, 1, 3)
    assert one.value.tolist() == [1] and one.frame().to_numpy().tolist() == [[0, 0, 1]]
    assert one.parts() == [(0, slice(0, 1), ("x", LABELS))]
    assert one.take([0]).fingerprint() == one.fingerprint() == one.take([0], [True]).fingerprint()
    none = Tasks([[1.0, 2.0]])
    assert none.blocks == ("x",) and not none.labelled.any() and len(none) == 0
    assert none.frame().empty and none.frame().columns.tolist() == ["row", "label", "value"]
    assert none.value.shape == (0,) and none.levels is None and list(none.labels) == []
    assert none.bare == ["all"] and none.pooled().concatenated().blocks == ("all",)
    nothing = Tasks(np.zeros((2, 2)), np.zeros((2, 1)))
    assert nothing.size == 0 and nothing.binary and nothing.value.tolist() == [0, 0]


def test_what_the_labels_cannot_tell_is_said():
    x, y = np.eye(2), [[1, 0], [1, 0]]
    views = {t: {"v": x} for t in ("s", "t", "u")}
    assert Tasks(views, dict.fromkeys("stu", [[1, 0], [0, 1]])).unlabelled() == []
    data = Tasks(views, {"s": y, "u": np.full((2, 2), NAN)})
    assert data.bare == ["t", "u"] and data.labelled.sum() == 2
    assert data.unlabelled() == [
        "no row of t, u has labels: theirs come from the other tasks alone",
        "no row has the label 1: it is never predicted",
    ]
    many = Tasks(x, pd.DataFrame(np.zeros((2, 7)), columns=list("abcdefg"))).unlabelled()
    assert many == ["no row has the label a, b, c, d, e, ...: it is never predicted"]
    assert Tasks(x).unlabelled() == [
        "no row of all has labels: theirs come from the other tasks alone"
    ]


def test_it_says_what_it_is():
    said = repr(made(truth()))
    known = sum(row.y is not None for row in truth().values())
    assert said == (
        f"Tasks(12 rows in 3 tasks, links: 2 features; words: 3 features; 2 labels of {known} rows)"
    )
    assert repr(Tasks(np.eye(2))) == "Tasks(2 rows in 1 task, x: 2 features; 0 labels of 0 rows)"


# ---------------------------------------------------------------------- the card of a fit


def test_the_card_knows_labels_and_sizes():
    data = made(truth())
    card = describe(data)
    assert card.kind == "Tasks" and card.shape == (12, 2) and card.levels == (0.0, 1.0)
    assert card.summary["tasks"] == 3 and card.summary["labelled rows"] == data.labelled.sum()
    assert card.summary["stored in words"] == data["words"].nnz
    stored = (data["words"].toarray() != 0).sum(1) + (data["links"].toarray() != 0).sum(1)
    assert card.row_counts.tolist() == stored.tolist()
    assert card.col_counts.tolist() == data[LABELS].sum(0).astype(int).ravel().tolist()[0]
    assert set(card.probe["row"]) <= set(data.rows) and set(card.probe["label"]) <= set(NAMES)
    assert not card.probe.duplicated().any() and len(card.probe)
    assert describe(Tasks(np.eye(2))).probe.empty
    assert describe(made(truth(1, real=True))).levels is None


def test_cells_are_found_by_label():
    given = truth()
    data = made(given)
    card = describe(data)
    ask = pd.DataFrame({"label": ["new", "old", "new"], "row": ["c1", "b0", "a4"], "value": 0})
    for query in (
        ask,
        ask.to_dict("list"),
        (ask["row"], ask["label"]),
        [list(ask["row"]), list(ask["label"])],
    ):
        cells, labels, flagged = card.locate(query)
        assert [data.rows[i] for i in cells.row] == ["c1", "b0", "a4"]
        assert cells.col.tolist() == [1, 0, 1] and not flagged.any()
        assert labels.to_numpy().tolist() == [["c1", "new"], ["b0", "old"], ["a4", "new"]]
    cells, _, flagged = card.locate({"row": ["nobody", "a0"], "label": ["old", "old"]})
    assert cells.row[0] == -1 and cells.row[1] >= 0 and flagged.tolist() == [True, False]
    assert len(card.locate({"row": [], "label": []})[2]) == 0
    empty = describe(Tasks([[0.0], [1.0]], [[1], [0]]))  # a row without a stored cell
    assert empty.locate({"row": [0, 1], "label": [0, 0]})[2].tolist() == [True, False]


def test_tasks_ask_for_their_labels_or_for_all():
    data = made(truth())
    card = describe(data)
    cells, labels, flagged = card.locate(data)
    assert labels.equals(data.frame()[["row", "label"]]) and len(flagged) == len(data)
    assert data[LABELS].toarray()[cells.row, cells.col].tolist() == data.value.tolist()
    hidden = data.take(~data.labelled)
    bare = Tasks({t: own for t, own in by_task(truth())[0].items() if t == "a"})
    for asked in (hidden, bare, data.take(range(12), np.zeros(12, bool))):
        cells, labels, _ = card.locate(asked)
        assert labels.equals(asked.grid(NAMES)) and len(labels) == 2 * asked.n_rows
        assert [data.rows[i] for i in cells.row] == labels["row"].tolist()


ASKED = [
    (lambda: {"row": ["a0"], "label": ["newest"]}, ValueError, "label that training knew, got 'newest'"),
    (lambda: {"row": [3], "label": ["old"]}, TypeError, r"labels like 'b\d' \(str\), got 3 \(int\)"),
    (lambda: {"row": ["a0"], "label": [0]}, TypeError, r"like 'old' \(str\), got 0 \(int\)"),
    (lambda: {"row": ["a0"]}, ValueError, r"columns \['row', 'label'\], got \['row'\]"),
    (lambda: bf.Views(np.eye(2)), TypeError, "Expected a query of Tasks, got Views"),
    (lambda: 7, TypeError, r"Expected Tasks or a table with columns \['row', 'label'\], got int"),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(ASKED)))
def test_bad_queries(case):
    query, error, said = ASKED[case]
    with pytest.raises(error, match=said):
        describe(made(truth())).locate(query())


# ---------------------------------------------------------------------- bad input

X, Y = np.eye(2), [[1, 0], [0, 1]]
NEST = {"s": {"v": X}, "t": {"v": X}}
UNEVEN = {"s": {"v": X, "w": X}, "t": {"v": X}}


def s(x, **more):
    """One task called s, its view v and more."""
    return {"s": {"v": x, **more}}


def named(rows, x=X, columns=None):
    """A matrix whose rows are called by these letters."""
    return pd.DataFrame(x, index=list(rows), columns=columns)


BAD = [
    # tasks
    (lambda: Tasks([*s(X).items(), *s(X).items()]), "names of tasks, got 's' twice"),
    (lambda: Tasks([("s", {"v": X}), ("t", X)]), "view -> matrix, got ndarray for task 't'"),
    (lambda: Tasks(s(X) | {"t": X}), "view -> matrix, got ndarray for task 't'"),
    (lambda: Tasks([("s", {"v": X}), X]), "Expected the views of every task .*, got ndarray"),
    (lambda: Tasks(X, task=["s"]), "Expected a task for each of 2 rows, got 1"),
    (lambda: Tasks(X, task=["s", None]), "task label in every row, got none in row 1"),
    (lambda: Tasks(X, task=[1.0, NAN]), "task label in every row, got none in row 1"),
    (lambda: Tasks(X, task="st"), "Expected the task of every row, got 'st'"),
    (lambda: Tasks(X, task=3), "Expected the task of every row, got 3"),
    (lambda: Tasks(NEST, task=["s"] * 4), "Expected `task` only where views hold all rows together"),
    # clusters
    (lambda: Tasks(NEST, clusters={"c": "sz"}), r"cluster 'c' .* the tasks \['s', 't'\], .* got \['sz'\]"),
    (lambda: Tasks(NEST, clusters={"c": ["s", "z"]}), r"each once, got \['s', 'z'\]"),
    (lambda: Tasks(NEST, clusters={"c": []}), r"Expected cluster 'c' to list some .* got \[\]"),
    (lambda: Tasks(NEST, clusters={"c": ["s", "s"]}), r"each once, got \['s', 's'\]"),
    (lambda: Tasks(NEST, clusters={"c": 3}), r"each once, got \[3\]"),
    (lambda: Tasks(NEST, clusters=[["s"]]), "Expected clusters as name -> tasks, got list"),
    # views
    (lambda: Tasks(s(X, w=np.eye(3))), "Task 's': Expected as many rows .* 'w': 3"),
    (lambda: Tasks(s(X) | {"t": {"v": np.eye(3)}}), r"of 'v' .* \(2\), got others in task 't' \(3\)"),
    (lambda: Tasks(s(named("ab", columns=["f", "g"])) | {"t": {"v": named("cd", columns=["f", "h"])}}),
     r"columns of 'v' in every task \(2\), got others in task 't'"),
    (lambda: Tasks({"s": {"labels": X}}), "Task 's': .* other names than .* labels, got 'labels'"),
    (lambda: Tasks({"labels": X}), "Expected views by other names .* got 'labels'"),
    (lambda: Tasks({"s": {"a.b": X}}), "Task 's': Expected view names without .* got 'a.b'"),
    (lambda: Tasks(s([[1, NAN]])), "Task 's': .* finite values in view 'v', got nan in row 0, column 1"),
    (lambda: Tasks(s(sp.csr_matrix([[np.inf]]))), "Task 's': .* view 'v', got inf in row 0, column 0"),
    (lambda: Tasks(s(np.ma.masked_array(X, X))), "Task 's': .* got nan in row 0, column 0"),
    (lambda: Tasks(s([["x"]])), "Task 's': Expected real numbers in view 'v', got dtype <U1"),
    (lambda: Tasks(s(pd.DataFrame({"f": ["x"]}))), "Task 's': .* in view 'v', got .* in column 'f'"),
    (lambda: Tasks(s(np.ones(3))), "Task 's': Expected a two-dimensional view 'v'"),
    (lambda: Tasks(s(np.zeros((0, 3)))), r"Task 's': .* one row .* view 'v', got shape \(0, 3\)"),
    (lambda: Tasks(s(np.zeros((2, 0)))), r"Task 's': .* one feature in view 'v', got shape \(2, 0\)"),
    (lambda: Tasks({"s": {}, "t": {"v": X}}), "Task 's': Expected at least one view, got none"),
    (lambda: Tasks({}), "Expected at least one view, got none"),
    (lambda: Tasks(None), "Expected views as .* got NoneType"),
    # labels
    (lambda: Tasks(NEST, {"z": Y}), r"labels of the tasks \['s', 't'\], got some of 'z'"),
    (lambda: Tasks(NEST, {"s": Y, "t": [[1], [0]]}), r"'labels' .* \(2\), got others in task 't' \(1\)"),
    (lambda: Tasks(NEST, Y), "Expected labels as task -> matrix, got list"),
    (lambda: Tasks(X, {"all": Y}), "Expected labels as one matrix for all rows, got dict"),
    (lambda: Tasks(NEST, {"t": [[1, 0]]}), "Expected labels of task 't' for 2 rows, got 1"),
    (lambda: Tasks(X, [[1, 0]] * 3), "Expected labels for 2 rows, got 3"),
    (lambda: Tasks(NEST, {"t": [[1, 0], [NAN, 0]]}), "labels of task 't' in row 1, .* got only some"),
    (lambda: Tasks(X, sp.csr_matrix([[1, 0], [NAN, 0]])), "all labels in row 1, or NaN"),
    (lambda: Tasks(X, np.ma.masked_array(Y, [[0, 0], [0, 1]])), "all labels in row 1, or NaN"),
    (lambda: Tasks(NEST, {"t": [[1, np.inf]] * 2}), "labels of task 't', got inf in row 0, column 1"),
    (lambda: Tasks(X, sp.csr_matrix([[1], [-np.inf]])), "in labels, got -inf in row 1, column 0"),
    (lambda: Tasks(NEST, {"t": [["x"], ["y"]]}), "labels of task 't', rows x labels, got <U1"),
    (lambda: Tasks(X, pd.DataFrame({"l": ["x", "y"]})), "numbers in labels, got .* in column 'l'"),
    (lambda: Tasks(X, [1, 0]), r"rows x labels, got int64 of shape \(2,\)"),
    (lambda: Tasks(X, np.ones((2, 0))), r"rows x labels, got float64 of shape \(2, 0\)"),
    (lambda: Tasks(X, np.ones((2, 1)) * 1j), "rows x labels, got complex128"),
    (lambda: Tasks(X, [[1, 0], [1]]), "Expected as many labels in every row, got more in some"),
    (lambda: Tasks(X, named("rs", Y, ["l", "l"])), "distinct names in labels, got 'l' twice"),
    (lambda: Tasks(named("rs"), named("sr", Y)), "order of the views' rows: 'r' in row 0, got 's'"),
    # rows
    (lambda: Tasks(s(named("rq")) | {"t": {"v": named("pq")}}), r"got 'q' twice \(tasks \['s', 't'\]\)"),
    (lambda: Tasks(s(named("rr"))), "Task 's': Expected 2 distinct row labels, got 1"),
    (lambda: Tasks(s(named("rq"), w=named("qr"))), "Task 's': .* same row labels .*, got others in 'w'"),
    # parts
    (lambda: Tasks(NEST).take([]), "Expected at least one row, got none"),
    (lambda: Tasks(NEST).take(np.zeros(4, bool)), "Expected at least one row, got none"),
    (lambda: Tasks(NEST).take([0, 0]), "distinct row labels, got 's:0' twice"),
    (lambda: Tasks(NEST).take([0], [0]), r"`labelled` as a mask over 4 rows, got int64 of \(1,\)"),
    (lambda: Tasks(UNEVEN).pooled(), "every view in every task, got none of 'w' in 't'"),
    (lambda: Tasks(UNEVEN).concatenated(), "every view in every task, got none of 'w' in 't'"),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(BAD)))
def test_bad_input_is_one_line_that_says_where(case):
    call, said = BAD[case]
    with pytest.raises((TypeError, ValueError), match=said) as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text and "Expected" in text and ", got " in text


def test_values_beyond_the_working_precision_are_refused():
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.raises(ValueError, match=r"finite values in labels, got 1e\+300 in row 1"):
            Tasks(np.eye(2), [[1.0], [1e300]])
    finally:
        jax.config.update("jax_enable_x64", True)
