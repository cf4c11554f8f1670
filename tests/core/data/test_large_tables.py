"""Large tables: whole numbers as labels, cells in any order, cells that are there again, and memory."""

import tracemalloc

import jax
import numpy as np
import pandas as pd
import pytest

import bayesfac as bf
from bayesfac.core.data import reading


@pytest.mark.parametrize(
    "raw",
    [
        np.array([7, 5, 7, 6], np.int8),
        np.array([-128, 127, 0], np.int8),
        np.array([3, -40, 900, -40]),
        np.array([2**63 + 5, 2**63 + 2], np.uint64),
        np.array([9, 4, 9], ">i4"),
        np.array([0, 10**12, 3]),
        pd.Series([30, 10, 20], index=[5, 6, 7], dtype="uint16"),
        pd.Index([2, 1, 2]),
    ],
)
def test_whole_numbers_are_read_as_other_labels_are(raw):
    codes, labels = reading.labels(raw, "user")
    known, expected = np.unique(np.asarray(raw), return_inverse=True)
    np.testing.assert_array_equal(codes, expected)
    np.testing.assert_array_equal(labels, known)
    assert codes.dtype == np.int32 and labels.dtype == np.asarray(raw).dtype.newbyteorder("=")


def many(cells=20_000, users=300, items=80):
    """Cells in any order, most of them several times, with values that need double precision."""
    rng = np.random.default_rng(0)
    user, item = rng.integers(users, size=cells), rng.integers(items, size=cells)
    return pd.DataFrame({"user": 5 * user - 70, "item": item, "rating": rng.normal(size=cells)})


def test_the_mean_of_cells_in_any_order_is_that_of_a_grouped_table():
    frame = many()
    ratings = bf.Ratings(frame, duplicates="mean")
    expected = frame.groupby(["user", "item"], sort=False, as_index=False).mean()
    found = ratings.frame()
    pd.testing.assert_frame_equal(found[["user", "item"]], expected[["user", "item"]])
    np.testing.assert_allclose(found["rating"], expected["rating"], atol=1e-15)
    row, col = np.asarray(ratings.cells.row), np.asarray(ratings.cells.col)
    assert (np.diff(row.astype(np.int64) * ratings.n_items + col) > 0).all()
    by = ratings.cells.by_col
    np.testing.assert_array_equal(row[by.order], by.index)
    assert (np.diff(col[by.order].astype(np.int64) * ratings.n_users + by.index) > 0).all()
    np.testing.assert_array_equal(
        ratings.y, ratings.value[ratings.host.origin].astype(ratings.y.dtype)
    )


def test_the_first_row_that_is_there_again_is_named():
    frame = many()
    again = frame.duplicated(["user", "item"]).to_numpy()
    row = int(np.argmax(again))
    same = (frame[["user", "item"]] == frame.loc[row, ["user", "item"]]).all(axis=1)
    first = int(np.argmax(same.to_numpy()))
    where = f"row {row} .user {frame.user[row]}, item {frame.item[row]}"
    said = rf"a second in {where}; the first is row {first}\)"
    with pytest.raises(ValueError, match=said):
        bf.Ratings(frame)


def test_counts_that_are_there_again_are_added_and_sums_of_zero_are_left_out():
    frame = many().assign(rating=lambda f: (f.rating > 1.5).astype(float))
    counts = bf.Counts(frame.rename(columns={"rating": "count"}))
    expected = frame.groupby(["user", "item"], sort=False, as_index=False).sum()
    found, expected = counts.frame(), expected[expected.rating > 0].reset_index(drop=True)
    pd.testing.assert_frame_equal(found, expected)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ([1.0, -3, 127], np.int8),
        ([0.5, 1, 128], np.float32),
        ([0.0, 1 / 3], np.float64),
        ([-0.0, 1], np.float32),
        ([1e-40, 3e38], np.float64),
    ],
)
def test_values_are_kept_small_and_exact(value, dtype):
    value = np.array(value)
    kept = reading.narrow(value)
    assert kept.dtype == dtype
    np.testing.assert_array_equal(kept.astype(float).view(np.int64), value.view(np.int64))


def test_arrays_that_change_later_change_no_ratings():
    user, item = np.array([0, 0, 1], np.int32), np.array([0, 1, 0], np.int32)
    value = np.array([1, 2, 3], np.float32)
    ratings = bf.Ratings(user, item, value)
    for array in (user, item, value):
        array[:] = 0
    assert ratings.frame().to_numpy().tolist() == [[0, 0, 1], [0, 1, 2], [1, 0, 3]]
    np.testing.assert_array_equal(ratings.y, [1, 2, 3])


def test_reading_takes_few_bytes_for_each_cell():
    """At most two codes, a position and a sorted copy of two of them stand side by side: 4 bytes each."""
    users, items = 1000, 400
    code = np.random.default_rng(0).permutation(users * items)
    arrays = (code // items).astype(np.int32), (code % items).astype(np.int32)
    value = (1 + code % 5).astype(np.float32)
    bf.Ratings(*arrays, value)  # programs and modules
    tracemalloc.start()
    bf.Ratings(*arrays, value)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 24 * len(code) + 2**21  # and copies of blocks


def test_a_program_may_be_the_first_to_ask_for_the_rows_of_cells():
    """A value that belongs to the program would be kept, and no other program could use it."""
    data = bf.Ratings([0, 1, 1], [0, 0, 1], [1.0, 2.0, 3.0])
    first = jax.jit(lambda x: x + data.cells.row)(0)
    np.testing.assert_array_equal(first, [0, 1, 1])
    np.testing.assert_array_equal(jax.jit(lambda x: x - data.cells.row)(0), [0, -1, -1])
