"""Tensors: every form of the same cells, what is refused, and what other labels than users and items need."""

import numpy as np
import pandas as pd
import pytest

import bayesfac as bf
from bayesfac.core.data.cards import describe
from bayesfac.core.data.cells import codes_of

FRAME = pd.DataFrame(
    {
        "user": ["bob", "ann", "ann"],
        "item": ["y", "x", "x"],
        "week": [2, 1, 2],
        "value": [3.0, 1, 2],
    }
)
MODES = ("user", "item", "week")
TABLE = np.full((2, 2, 2), np.nan)
TABLE[1, 1, 1], TABLE[0, 0, 0], TABLE[0, 0, 1] = 3, 1, 2


def dense(tensor):
    table = np.full(tensor.shape, np.nan)
    table[tuple(tensor.code.T)] = tensor.value
    return table


def test_a_table_is_read():
    found = bf.Tensor(FRAME)
    assert found.modes == MODES and found.shape == (2, 2, 2) and len(found) == found.size == 3
    assert [list(index) for index in found.axes.values()] == [["ann", "bob"], ["x", "y"], [1, 2]]
    assert repr(found) == "Tensor(2 user x 2 item x 2 week, 3 cells, density 0.375)"
    assert found.mean == 2 and found.spread == pytest.approx(np.std([1, 2, 3]))
    pd.testing.assert_frame_equal(found.frame(), FRAME, check_dtype=False)


@pytest.mark.parametrize(
    "made",
    [
        lambda: bf.Tensor(FRAME.rename(columns={"value": "rating"})),
        lambda: bf.Tensor(FRAME[["value", *MODES]]),
        lambda: bf.Tensor(FRAME.assign(shop=1), columns=[*MODES, "value"]),
        lambda: bf.Tensor(
            FRAME.rename(columns={"user": "who", "value": "n"}),
            columns={"user": "who", "item": "item", "week": "week", "value": "n"},
        ),
        lambda: bf.Tensor(*(FRAME[name] for name in FRAME), modes=MODES),
        lambda: bf.Tensor([FRAME[name].tolist() for name in FRAME], modes=MODES),
        lambda: bf.Tensor(TABLE, modes=MODES),
        lambda: bf.Tensor(bf.Tensor(FRAME)),
        lambda: bf.Tensor(FRAME.sample(frac=1, random_state=0)),
        lambda: bf.Tensor(pd.concat([FRAME, FRAME]), duplicates="mean"),
    ],
)
def test_every_form_of_the_same_cells(made):
    assert made().modes == MODES
    np.testing.assert_array_equal(dense(made()), TABLE)


def test_arrays_without_names_have_numbered_modes():
    assert bf.Tensor(TABLE).modes == ("mode_1", "mode_2", "mode_3")


def test_the_mean_of_a_cell_that_is_listed_twice():
    twice = bf.Tensor(pd.concat([FRAME, FRAME.assign(value=[5.0, 1, 2])]), duplicates="mean")
    assert len(twice) == 3 and twice.value.tolist() == [4, 1, 2]


def row(**change):
    """The frame with another last row."""
    frame = FRAME.astype(object)
    for name, value in change.items():
        frame.loc[2, name] = value
    return frame


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: bf.Tensor(row(value=np.nan)), "got nan in row 2"),
        (lambda: bf.Tensor(row(value=np.inf)), "got inf in row 2"),
        (lambda: bf.Tensor(row(week=None)), "a week label in every row, got none in row 2"),
        (lambda: bf.Tensor(row(week=1)), r"in row 2 \(user 'ann', item 'x', week 1; the first is row 1"),
        (lambda: bf.Tensor(FRAME[:0]), "at least one cell, got none"),
        (lambda: bf.Tensor(np.full((2, 2, 2), np.nan)), "at least one cell, got none"),
        (lambda: bf.Tensor(np.full((2, 1, 1), [[[np.inf]], [[1.0]]])), r"got inf in cell \(0, 0, 0\)"),
        (lambda: bf.Tensor(FRAME.drop(columns="week")), "3 or more labels for each cell, got 2"),
        (lambda: bf.Tensor(FRAME.rename(columns={"value": "n"})), "one column with values"),
        (lambda: bf.Tensor(FRAME.assign(rating=1.0)), r"got \['value', 'rating'\]"),
        (lambda: bf.Tensor(FRAME, columns=[*MODES, "n"]), "a column 'n', got it not among"),
        (lambda: bf.Tensor(FRAME, columns={"user": "user"}), "a column for 'value'"),
        (lambda: bf.Tensor(FRAME, modes=MODES), "columns= for a table, got modes="),
        (lambda: bf.Tensor(TABLE, modes=("user", "item")), "3 names of modes, got"),
        (lambda: bf.Tensor(TABLE, modes=("a", "a", "b")), "got 'a' twice"),
        (lambda: bf.Tensor(TABLE, modes=("a", "b", "component")), "names of modes without"),
        (lambda: bf.Tensor([0, 1], [0, 1], [0, 1], [1.0]), "of one length, got"),
        (lambda: bf.Tensor(FRAME, duplicates="last"), "duplicates='error' or 'mean', got 'last'"),
        (lambda: bf.Tensor(FRAME).take([]), "at least one cell to take"),
    ],
)  # fmt: skip
def test_what_is_refused(made, said):
    with pytest.raises(ValueError, match=said):
        made()


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: bf.Tensor(np.eye(3)), r"got ndarray of shape \(3, 3\): two labels .* bf.Ratings"),
        (lambda: bf.Tensor(row(value="many")), "got 'many' in row 2"),
        (lambda: bf.Tensor(TABLE + 1j), "Expected real numbers as values"),
        (lambda: bf.Tensor([0, 1], [0, 1], [2.0, 1.0]), "got tuple: two labels"),
    ],
)
def test_what_is_no_tensor(made, said):
    with pytest.raises(TypeError, match=said):
        made()


def test_parts_keep_labels_and_order():
    whole = bf.Tensor(FRAME)
    part = whole.take([2, 0])
    assert part.shape == whole.shape and part.value.tolist() == [2, 3]
    pd.testing.assert_frame_equal(
        part.frame(), FRAME.iloc[[2, 0]].reset_index(drop=True), check_dtype=False
    )
    assert whole.take([0, 1, 2]).fingerprint() == whole.fingerprint() != part.fingerprint()
    renamed = bf.Tensor(FRAME.rename(columns={"week": "day"}))
    assert renamed.fingerprint() != whole.fingerprint()
    train, test = bf.split.holdout(whole, 1 / 3, seed=0)
    assert len(train) == 2 and len(test) == 1 and train.modes == MODES


def test_cells_are_sorted_by_every_mode():
    tensor, _ = bf.datasets.make_tensor((5, 4, 3, 2), 1, density=0.5, seed=0)
    assert tensor.cells.shape == (5, 4, 3, 2)
    first = np.cumsum([0, 5, 4, 3])
    for mode, rows in enumerate(tensor.cells.modes):
        code = np.asarray(tensor.cells.code)[np.asarray(rows.order)]
        assert (np.diff(code[:, mode]) >= 0).all()
        np.testing.assert_array_equal(np.delete(code, mode, 1), rows.index)
        np.testing.assert_array_equal(np.diff(rows.ptr), np.bincount(tensor.code[:, mode]))
    np.testing.assert_array_equal(
        np.asarray(tensor.cells.code) - first, np.stack(tensor.cells.codes, 1)
    )


def test_a_query_of_unknown_labels_is_flagged():
    asked = pd.DataFrame({"week": [2, 2], "item": ["y", "z"], "user": ["bob", "cat"]})
    query, labels, flagged = describe(bf.Tensor(FRAME)).locate(asked)
    assert codes_of(query).tolist() == [[1, 1, 1], [-1, -1, 1]]
    assert list(labels) == list(MODES) and flagged.tolist() == [False, True]
