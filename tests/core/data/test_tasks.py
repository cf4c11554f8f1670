"""Rows of several tasks are read as meant, whatever their form."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import bayesfac as bf
from bayesfac.labels.data.tasks import LABELS, Tasks
from tests.core.data.tables_of_tasks import (
    CLUSTERS,
    NAMES,
    NAN,
    WIDTHS,
    by_task,
    made,
    same,
    table,
    truth,
)

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
    lambda x: np.ma.masked_array(x, np.zeros_like(x)), sp.csr_matrix, sp.csc_array, sp.dok_matrix,
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
    assert Tasks(made, made).fingerprint() == Tasks(COUNTS, COUNTS).fingerprint()
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
