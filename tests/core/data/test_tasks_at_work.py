"""What models, small data and the card of a fit ask of `Tasks`."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import bayesfac as bf
from bayesfac.core.data.cards import describe
from bayesfac.labels.data.tasks import LABELS, Tasks
from tests.core.data.tables_of_tasks import CLUSTERS, NAMES, NAN, by_task, made, truth

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
        "no row of t, u has labels: its predictions use the other tasks only",
        "no row has the label 1: it is never predicted",
    ]
    many = Tasks(x, pd.DataFrame(np.zeros((2, 7)), columns=list("abcdefg"))).unlabelled()
    assert many == ["no row has the label a, b, c, d, e, ...: it is never predicted"]
    assert Tasks(x).unlabelled() == [
        "no row of all has labels: its predictions use the other tasks only"
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


# -- unknown cells and a constant -----------------------------------------------------------------
GAPPY = np.array([[1, 0, 1], [NAN, 1, 0], [NAN, NAN, NAN], [0, 0, NAN]])


@pytest.mark.parametrize(
    "labels",
    [GAPPY, sp.csr_matrix(GAPPY), pd.DataFrame(GAPPY), np.ma.masked_invalid(GAPPY)],
    ids=["array", "sparse", "frame", "masked"],
)
def test_single_labels_may_be_unknown(labels):
    data = Tasks(np.eye(4), labels)
    assert data.labelled.sum() == 3 and data.binary and len(data) == 7
    np.testing.assert_array_equal(data["labels"].toarray()[:3], GAPPY[[0, 1, 3]])
    long = data.frame()
    assert len(long) == len(data) and long["value"].notna().all()
    np.testing.assert_array_equal(long["value"], data.value)
    asked = {(r, c): GAPPY[r, c] for r, c in np.argwhere(~np.isnan(GAPPY)).tolist()}
    found = zip(long["row"], long["label"], long["value"], strict=True)
    assert {(r, c): v for r, c, v in found} == asked


def test_unknown_labels_survive_taking_rows_and_are_no_positives():
    data = Tasks(np.eye(4), GAPPY, task=list("aabb"))
    part = data.take(np.isin(data.rows, [1, 3]))
    np.testing.assert_array_equal(part["labels"].toarray(), GAPPY[[1, 3]])
    assert Tasks(np.eye(2), [[NAN, 0], [1, 0]]).unlabelled() == [
        "no row has the label 1: it is never predicted"
    ]
    whole = Tasks(np.eye(4), np.nan_to_num(GAPPY), task=list("aabb"))
    assert data.fingerprint() != whole.fingerprint()


@pytest.mark.parametrize("method", ["heres", "himls", "himlsd", "lsa_mml"])
def test_methods_that_need_whole_rows_say_so(method):
    data = Tasks(np.eye(4) + 1, pd.DataFrame(GAPPY, columns=["x", "y", "z"]))
    with pytest.raises(ValueError, match="all labels of a row or none, got NaN for 'x' in row 1"):
        bf.fit(method, data, progress=False)


def test_a_constant_is_one_more_feature_of_every_view():
    views = {"v": pd.DataFrame(np.eye(2), columns=["f", "g"]), "w": sp.csr_matrix((2, 3))}
    data = Tasks(views, constant=True)
    assert list(data.features["v"]) == ["f", "g", "(constant)"]
    np.testing.assert_array_equal(data["v"].toarray(), [[1, 0, 1], [0, 1, 1]])
    np.testing.assert_array_equal(data["w"].toarray(), [[0, 0, 0, 1]] * 2)
    twice = pd.DataFrame(np.eye(2), columns=["f", "(constant)"])
    with pytest.raises(ValueError, match=r"no feature called '\(constant\)' in 'v' yet, got one"):
        Tasks({"v": twice}, constant=True)
