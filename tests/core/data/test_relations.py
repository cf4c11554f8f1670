"""Relations: labels that several matrices share, cells in one list, and what is refused."""

import jax
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import bayesfac as bf
from bayesfac.core.data.cards import describe
from bayesfac.core.data.linked.relations import few_relations

SEEN = pd.DataFrame(
    {"user": ["bob", "ann", "bob"], "item": ["y", "x", "x"], "rating": [1.0, 2.0, 3.0]}
)
TAGS = pd.DataFrame({"tag": ["t", "s"], "user": ["cid", "ann"], "value": [5.0, 6.0]})
WORDS = pd.DataFrame([[1.0, np.nan], [0.5, 2.0]], index=["z", "x"], columns=["w", "v"])


@pytest.fixture
def data():
    return bf.Relations(SEEN, {"tags": ("user", "tag", TAGS), "words": ("item", "word", WORDS)})


def cells(data):
    """{matrix: {(row label, column label): value}}, read from the one list of all cells."""
    names = [(kind, label) for kind, index in data.axes.items() for label in index]
    code = np.asarray(data.links.code)
    found = {}
    for k in data.kinds:
        value = np.asarray(data.observed(k.name))
        found[k.name] = {
            (names[a], names[b]): y
            for (a, b), y in zip(code[data.spans[k.name]], value, strict=True)
        }
    return found


def test_labels_in_any_order_and_in_one_matrix_only_meet(data):
    assert {kind: list(index) for kind, index in data.axes.items()} == {
        "user": ["ann", "bob", "cid"],
        "item": ["x", "y", "z"],
        "tag": ["s", "t"],
        "word": ["v", "w"],
    }
    assert cells(data) == {
        "ratings": {
            (("user", "bob"), ("item", "y")): 1.0,
            (("user", "ann"), ("item", "x")): 2.0,
            (("user", "bob"), ("item", "x")): 3.0,
        },
        "tags": {(("user", "cid"), ("tag", "t")): 5.0, (("user", "ann"), ("tag", "s")): 6.0},
        "words": {
            (("item", "z"), ("word", "w")): 1.0,
            (("item", "x"), ("word", "w")): 0.5,
            (("item", "x"), ("word", "v")): 2.0,
        },
    }
    assert data.frame().drop(columns=[]).equals(SEEN)  # in the user's order
    assert data.matrix("words").frame()["rating"].tolist() == [2.0, 0.5, 1.0]


def test_rows_have_the_cells_of_all_matrices(data):
    """`modes[kind]` against a search through the list of all cells."""
    links, first = data.links, np.concatenate([[0], np.cumsum(data.links.shape)])
    code = np.asarray(links.code)
    for kind, rows in enumerate(links.modes):
        for i in range(links.shape[kind]):
            at = np.asarray(rows.order)[int(rows.ptr[i]) : int(rows.ptr[i + 1])]
            here = code == first[kind] + i
            np.testing.assert_array_equal(at, np.flatnonzero(here.any(1)))
            other = np.asarray(rows.index)[int(rows.ptr[i]) : int(rows.ptr[i + 1])]
            np.testing.assert_array_equal(other, code[at][~here[at]])


def test_numbers_read_as_text_are_the_same_labels():
    tags = pd.DataFrame({"user": ["2", "10"], "tag": ["s", "s"], "value": [0.0, 1.0]})
    data = bf.Relations(bf.Ratings([10, 2], [0, 1], [1.0, 2.0]), {"tags": ("user", "tag", tags)})
    assert list(data.users) == [2, 10]


def test_a_part_keeps_the_other_matrices(data):
    part = data.take([0])
    assert len(part) == 1 and cells(part)["words"] == cells(data)["words"]
    assert cells(part)["ratings"] == {(("user", "bob"), ("item", "y")): 1.0}
    train, test = bf.split.holdout(data, 0.34, seed=0)
    assert len(train) == 2 and len(test) == 1 and train.axes is not data.axes
    some = data.of_users(1, 3)  # bob and cid
    assert list(some.users) == ["bob", "cid"]
    assert cells(some)["tags"] == {(("user", "cid"), ("tag", "t")): 5.0}


def test_forms_of_tables():
    dense = np.array([[1.0, np.nan], [0.0, 2.0]])
    wide = pd.DataFrame(
        {"s": [True, False], "t": [False, False]}, index=pd.Index([0, 1], name="user")
    )
    stored = sp.coo_matrix(([0.0, 3.0], ([0, 1], [1, 0])), shape=(2, 2))
    ratings = bf.Ratings([0, 1], [0, 1], [1.0, 2.0])
    data = bf.Relations(
        ratings,
        {
            "dense": ("user", "a", dense),
            "wide": ("user", "b", wide),
            "stored": ("item", "c", stored),
            "three": ("item", "d", ([0, 1], ["p", "q"], [1, 2])),
            "levels": ("a", "d", bf.Ratings([0, 1], ["p", "p"], [1, 3], levels=3)),
        },
    )
    assert {k.name: k.levels for k in data.kinds} == {
        "ratings": None, "dense": None, "wide": (0.0, 1.0), "stored": None, "three": None,
        "levels": (1.0, 2.0, 3.0),
    }  # fmt: skip
    assert [len(data.values(k.name)) for k in data.kinds] == [2, 3, 4, 2, 2, 2]
    assert data.values("stored").tolist() == [0.0, 3.0]


def test_one_matrix_alone_and_one_cell():
    assert bf.Relations(SEEN).others == {}
    one = bf.Relations(SEEN, {"tags": ("user", "tag", TAGS.iloc[[1]])})
    assert len(one.values("tags")) == 1 and list(one.axes["tag"]) == ["s"]
    again = bf.Relations(one, {"words": ("item", "word", WORDS)})
    assert cells(again)["tags"] == cells(one)["tags"] and len(again.kinds) == 3


def test_colours_are_there_unless_kinds_form_an_odd_circle(data):
    assert data.colours == {"user": 1, "item": -1, "tag": -1, "word": 1}
    odd = {"tags": ("user", "tag", TAGS), "kinds": ("item", "tag", (["x"], ["s"], [1.0]))}
    assert bf.Relations(SEEN, odd).colours == {}


def test_the_card_counts_cells_elsewhere(data):
    card = describe(data)
    assert card.kind == "Ratings"
    assert {side: n.tolist() for side, n in card.elsewhere.items()} == {
        "user": [1, 0, 1],
        "item": [2, 0, 1],
    }
    flagged = card.locate({"user": ["cid", "bob", "eve"], "item": ["z", "z", "x"]})[2]
    assert flagged.tolist() == [False, False, True]


def test_equal_data_have_equal_fingerprints(data):
    same = bf.Relations(SEEN, {"tags": ("user", "tag", TAGS), "words": ("item", "word", WORDS)})
    assert same.fingerprint() == data.fingerprint()
    other = bf.Relations(
        SEEN, {"tags": ("user", "tag", TAGS), "words": ("item", "word", WORDS * 2)}
    )
    assert other.fingerprint() != data.fingerprint()


def test_values_are_hidden_and_filled():
    data = few_relations(jax.random.key(0))
    hidden = data.hide()
    assert hidden.y is None and set(hidden.others.values()) == {None}
    draw = {
        "rating": data.y + 1,
        "view.tags": data.others["tags"],
        "view.words": data.others["words"] * 2,
    }
    filled = data.fill(draw)
    np.testing.assert_allclose(filled.value, data.value + 1, rtol=1e-6)
    np.testing.assert_allclose(filled.values("words"), 2 * data.values("words"), rtol=1e-6)
    assert filled.kinds[1].levels == (1.0, 2.0, 3.0)


def tags(**change):
    return {"tags": ("user", "tag", TAGS.assign(**change))}


@pytest.mark.parametrize(
    ("matrices", "said"),
    [
        ({"tags": ("users", "tag", TAGS)}, r"one of the kinds.*got \['tag', 'users'\]; did you mean 'user'"),
        ({"tags": ("user", "user", TAGS)}, "two kinds of labels.*'user' twice"),
        ({"tags": TAGS}, "kind of rows, kind of columns, table"),
        ({"ratings": ("user", "tag", TAGS)}, "another name than 'ratings'"),
        ({"a.b": ("user", "tag", TAGS)}, "without '.'"),
        ({"tags": ("user", "draw", TAGS)}, "none of.*got 'draw'"),
        (tags(more=1.0), r"one column of values.*\['value', 'more'\]"),
        ({"tags": ("user", "tag", TAGS[["user", "tag"]])}, "got none: choose one, and list zeros"),
        ({"tags": ("user", "mark", TAGS)}, "columns 'user', 'mark' and one of values"),
        (tags(user=["ann", "ann"], tag=["s", "s"]), "a second in row 1.*in the matrix 'tags'"),
        (tags(value=[np.nan, 1.0]), "in the matrix 'tags'"),
        (tags(value=[np.inf, 1.0]), "in the matrix 'tags'"),
        (tags(user=[None, "ann"]), "label in every row.*in the matrix 'tags'"),
        (tags(user=["ANN", "BOB"]), "user labels of 'tags' that other matrices have too, got none: 'ANN'"),
        ({"tags": ("user", "tag", TAGS.iloc[:0])}, "at least one rating.*in the matrix 'tags'"),
        ({"tags": ("user", "tag", np.full((2, 2), np.nan))}, "in the matrix 'tags'"),
        ({"words": ("item", "word", WORDS.astype(str))}, "numbers as values, got .* in column 'w'"),
        ({"seen": ("user", "tag", bf.Counts([0], [0], [1]))}, "without features or a table.*got Counts"),
    ],
)  # fmt: skip
def test_wrong_matrices_are_refused(matrices, said):
    with pytest.raises((ValueError, TypeError), match=said):
        bf.Relations(SEEN, matrices)


def test_wrong_ratings_are_refused(data):
    with pytest.raises(TypeError, match="got Counts, whose zeros"):
        bf.Relations(bf.Counts([0], [0], [1]))
    about = bf.Ratings(SEEN, user_features=pd.DataFrame({"age": [3.0, 4.0]}, index=["ann", "bob"]))
    with pytest.raises(ValueError, match="features as another matrix"):
        bf.Relations(about)
    with pytest.raises(ValueError, match="among .*'tags', 'words'.*did you mean 'tags'"):
        data.matrix("tag")
    with pytest.warns(bf.DataWarning, match="'tags' has the value 1 in all of its 2 cells"):
        bf.Relations(SEEN, tags(value=[1.0, 1.0]))


def test_duplicates_are_averaged_if_asked_to():
    twice = pd.concat([TAGS, TAGS.assign(value=[7.0, 8.0])])
    doubled = bf.Relations(SEEN, {"tags": ("user", "tag", twice)}, duplicates="mean")
    assert doubled.matrix("tags").value.tolist() == [7.0, 6.0]
