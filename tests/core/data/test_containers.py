"""The containers: whatever users have is read as meant, or refused with the row that is wrong."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import bayesfac as bf
from bayesfac.core.data.cards import check_same, describe
from bayesfac.core.errors import DataWarning
from bayesfac.core.kernels import sparse

NAN = np.nan
TABLE = pd.DataFrame(
    {"user": ["bob", "ann", "ann"], "item": [30, 4, 30], "rating": [1.0, 5.0, 2.5]}
)
DENSE = np.array([[5.0, 2.5], [NAN, 1.0]])


def same(ratings):
    assert ratings.shape == (2, 2)
    got = {(u, i): v for u, i, v in zip(ratings.user, ratings.item, ratings.value, strict=True)}
    assert got == {(0, 0): 5.0, (0, 1): 2.5, (1, 1): 1.0}


def test_every_form_is_the_same_data():
    same(bf.Ratings(TABLE))
    same(bf.Ratings(TABLE["user"], TABLE["item"], TABLE["rating"]))
    same(bf.Ratings((list(TABLE["user"]), list(TABLE["item"]), list(TABLE["rating"]))))
    same(bf.Ratings(DENSE))
    same(bf.Ratings(np.asfortranarray(DENSE)))
    same(bf.Ratings(sp.csr_matrix(np.nan_to_num(DENSE))))
    same(bf.Ratings(sp.coo_array(np.nan_to_num(DENSE))))
    same(bf.Ratings(TABLE.rename(columns={"user": "userId", "item": "Movie", "rating": "stars"})))
    same(bf.Ratings(TABLE.set_axis([0, 1, 2], axis=1), columns=[0, 1, 2]))
    same(
        bf.Ratings(TABLE.set_axis(["user", "x", "y"], axis=1), columns={"item": "x", "rating": "y"})
    )
    named = TABLE.rename(columns={"rating": "stars"})[["stars", "item", "user"]]
    same(bf.Ratings(named, columns=("user", "item", "stars")))
    same(bf.Ratings(TABLE.astype({"user": "string", "item": "Int64", "rating": "Float64"})))
    same(bf.Ratings(TABLE.astype({"user": "category"})))
    same(bf.Ratings(bf.Ratings(TABLE)))
    same(bf.Ratings(jnp.asarray(DENSE)))
    same(bf.Ratings(np.ma.masked_array(np.where(np.isnan(DENSE), 9.0, DENSE), np.isnan(DENSE))))


@pytest.mark.parametrize(
    ("header", "roles"),
    [
        (["timestamp", "uid", "iid", "score"], ["uid", "iid", "score"]),
        (["product", "customer", "stars"], ["customer", "product", "stars"]),
        (["Book ID", "Reader Name", "Mark", "shelf"], ["Reader Name", "Book ID", "Mark"]),
        (["user", "user_name", "movieId", "rating"], ["user", "movieId", "rating"]),
    ],
)
def test_usual_names_say_which_column_is_which(header, roles):
    values = dict(zip(roles, ([7, 8], [1, 2], [4.0, 3.0]), strict=True))
    frame = pd.DataFrame({name: values.get(name, [90, 91]) for name in header})
    read = bf.Ratings(frame)
    assert read.frame()[["user", "item", "rating"]].to_numpy().tolist() == [[7, 1, 4], [8, 2, 3]]
    assert (read.time is not None) == ("timestamp" in header)


def test_times_stay_with_their_ratings():
    frame = pd.DataFrame(
        {"user": list("bab"), "item": list("xyy"), "rating": [1.0, 2, 3], "when": [30, 10, 20]}
    )
    ratings = bf.Ratings(frame)
    assert ratings.time.tolist() == [30, 10, 20]
    assert ratings.take([2, 0]).time.tolist() == [20, 30]
    assert ratings.of_users(1, 2).time.tolist() == [30, 20]
    assert ratings.on(pd.Index(list("wxy"))).time.tolist() == [30, 10, 20]
    assert bf.Ratings(ratings).time.tolist() == [30, 10, 20]
    assert ratings.hide().time is ratings.time
    pd.testing.assert_frame_equal(ratings.frame(), frame.rename(columns={"when": "time"}))
    twice = bf.Ratings(pd.concat([frame, frame.assign(when=99)]), duplicates="mean")
    assert twice.time.tolist() == [30, 10, 20]
    assert bf.Ratings(frame.drop(columns="when")).time is None


@pytest.mark.parametrize(
    "raw",
    [
        ["2020-01-02", "2019-05-01T10:00", "2021-01-01"],
        pd.to_datetime(["2020-01-02", "2019-05-01", "2021-01-01"], utc=True),
        ["30", "4", "100"],
        [3.5, 0.5, 7.25],
    ],
)
def test_times_of_several_kinds_have_an_order(raw):
    ratings = bf.Ratings([1, 2, 3], [1, 1, 1], [4.0, 2, 3], times=raw)
    assert np.argsort(ratings.time).tolist() == [1, 0, 2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: bf.Ratings(f, times=[1, 2]), "Expected 3 times, one for each rating"),
        (lambda f: bf.Ratings(f, times=["1", "soon", "3"]), "ISO date.*got 'soon' in row 1"),
        (lambda f: bf.Ratings(f, times=[1, NAN, 3]), "got nan in row 1"),
        (lambda f: bf.Ratings(f, columns={"time": "x"}), "Expected a column 'x'"),
    ],
)
def test_times_that_cannot_be_read_are_refused(call, message):
    frame = pd.DataFrame({"user": [1, 2, 3], "item": [1, 1, 1], "rating": [4.0, 2, 3]})
    with pytest.raises(ValueError, match=message):
        call(frame)


def test_two_columns_that_may_be_times_are_left_aside_with_a_warning():
    frame = pd.DataFrame(
        {"user": [1], "item": [1], "rating": [4.0], "date": ["2020"], "timestamp": [5]}
    )
    with pytest.warns(DataWarning, match="several columns may have it.*columns="):
        assert bf.Ratings(frame).time is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert bf.Ratings(frame, columns={"time": "timestamp"}).time.tolist() == [5]
        assert bf.Ratings(frame, columns=["user", "item", "rating", "timestamp"]).time.tolist() == [
            5
        ]


WIDE = pd.DataFrame([[5, NAN, 1, 2], [NAN, 3, NAN, 4.0]], ["bob", "ann"], ["w", "z", "y", "x"])


def test_a_wide_table_keeps_its_labels_and_nan_is_missing():
    cells = [("bob", "w", 5), ("bob", "y", 1), ("bob", "x", 2), ("ann", "z", 3), ("ann", "x", 4)]
    numbered = WIDE.set_axis([11, 7], axis=0).set_axis([4, 30, 5, 6], axis=1)
    named = numbered.rename_axis(index="user", columns="item")
    assert [tuple(row) for row in bf.Ratings(WIDE).frame().to_numpy()] == cells
    wide = bf.Ratings(named)
    assert list(wide.users) == [7, 11] and list(wide.items) == [4, 5, 6, 30]
    long = wide.frame()
    again = bf.Ratings(long.pivot(index="user", columns="item", values="rating")).frame()
    assert again.equals(long.sort_values(["user", "item"], ignore_index=True))
    empty = pd.DataFrame([[1.0, NAN], [NAN, NAN]], ["a", "b"], ["x", "y"])
    assert bf.Ratings(empty).shape == (2, 2), "a user without ratings stays"
    with pytest.raises(ValueError, match=r"got items as rows: bf.Ratings\(frame.T\)"):
        bf.Ratings(named.T)


@pytest.mark.parametrize(
    "frame",
    [
        WIDE.reset_index(drop=True),
        WIDE.set_axis(range(4), axis=1).reset_index(drop=True),
        WIDE.set_axis([3, 5], axis=0),
        WIDE.set_axis([1, 2, 3, 4], axis=1).rename_axis(index="user", columns="item").reset_index(),
        TABLE.set_axis(["kunde", "produkt", "sterne"], axis=1),
        TABLE.set_axis(["user", "customer", "rating"], axis=1),
        TABLE.set_index("user"),
    ],
)
def test_a_table_of_unknown_columns_is_refused_with_the_calls(frame):
    both = r"columns=\['USER', 'ITEM', 'RATING'\].*rename_axis\(index='user', columns='item'\)"
    with pytest.raises(ValueError, match=both) as caught:
        bf.Ratings(frame)
    assert str(list(frame.columns)) in str(caught.value)


@pytest.mark.parametrize("kind", [str, float, object])
def test_a_label_is_what_it_reads_as_whatever_its_type(kind):
    numbers = bf.Ratings([10, 9, 100], [1, 2, 1], [1.0, 2.0, 3.0])
    others = bf.Ratings(pd.Series([10, 9, 100]).astype(kind), ["1", "2", "1"], [1.0, 2.0, 3.0])
    assert [float(label) for label in others.users] == [9, 10, 100]
    np.testing.assert_array_equal(others.user, numbers.user)
    assert others.fingerprint() == numbers.fingerprint()
    assert others.on(numbers.items).items.equals(numbers.items)
    check_same(describe(numbers), others)
    check_same(describe(others), numbers)


def test_padded_numbers_are_other_labels_and_mixed_columns_have_one_of_each():
    assert list(bf.Ratings(["7", "007"], [1, 1], [1, 2]).users) == ["007", "7"]
    mixed = bf.Ratings([7, "7", "a"], [1, 2, 1], [1, 2, 3])
    assert mixed.shape == (2, 2) and set(mixed.users) == {7, "a"}
    with pytest.raises(ValueError, match="2 distinct row labels, got 1 of 2, '1' twice"):
        bf.Views({"a": np.eye(2)}, rows=[1, "1"])
    views = {"a": pd.DataFrame(np.eye(2), [1, 2]), "b": pd.DataFrame(np.eye(2), ["1", "2"])}
    assert list(bf.Views(views).rows) == [1, 2]


def test_labels_are_sorted_and_survive():
    ratings = bf.Ratings(TABLE)
    assert list(ratings.users) == ["ann", "bob"]
    assert list(ratings.items) == [4, 30]
    assert ratings.frame().equals(TABLE.astype({"user": ratings.frame()["user"].dtype}))
    huge = bf.Ratings([2**40, 2**32 + 5], [0, 0], [1.0, 2.0])
    assert list(huge.users) == [2**32 + 5, 2**40]  # JAX alone would wrap both
    mixed = bf.Ratings([1, "a", 2.5], ["x", "x", "x"], [1, 2, 3])
    assert set(mixed.users) == {1, "a", 2.5}


def test_a_stored_zero_is_a_rating_of_zero():
    ratings = bf.Ratings(sp.csr_matrix(([0.0, 3.0], ([0, 1], [1, 0])), shape=(2, 3)))
    assert len(ratings) == 2
    assert sorted(ratings.value) == [0.0, 3.0]
    assert ratings.n_items == 3  # columns that nobody rated stay


def test_the_users_arrays_are_copied():
    value = np.array([1.0, 5.0, 2.5])
    ratings = bf.Ratings(TABLE["user"], TABLE["item"], value)
    value[:] = -9
    same(ratings)
    frozen = DENSE.copy()
    frozen.setflags(write=False)
    same(bf.Ratings(frozen))


TWICE = pd.concat([TABLE, TABLE.iloc[[1]]])
BAD = [
    (lambda: bf.Ratings(TABLE.assign(rating=[1, NAN, 2])), ValueError, "finite ratings, got nan in row 1"),
    (lambda: bf.Ratings(TABLE.assign(rating=[1, 2, np.inf])), ValueError, "got inf in row 2"),
    (lambda: bf.Ratings(TABLE.assign(rating=["1", "five", "2"])), TypeError, "got 'five' in row 1"),
    (lambda: bf.Ratings(TABLE.assign(rating=[1j, 2, 3])), TypeError, "real numbers"),
    (lambda: bf.Ratings(TABLE.assign(rating=pd.to_datetime(["2020"] * 3))), TypeError, "Expected numbers"),
    (lambda: bf.Ratings(TABLE.assign(user=["a", None, "b"])), ValueError, "a user label .* none in row 1"),
    (lambda: bf.Ratings(TABLE.assign(item=["a", None, "b"])), ValueError, "an item label .* none in row 1"),
    (lambda: bf.Ratings(TABLE.iloc[:0]), ValueError, "at least one rating, got none"),
    (lambda: bf.Ratings(np.full((2, 2), NAN)), ValueError, "at least one rating, got none"),
    (lambda: bf.Ratings(np.array([[1.0, np.inf]])), ValueError, "got inf in row 0, column 1"),
    (lambda: bf.Ratings(TABLE[["user", "item"]]), ValueError, r"got \['user', 'item'\]"),
    (lambda: bf.Ratings(TABLE, columns=("user", "item", "stars")), ValueError, "a column 'stars', got"),
    (lambda: bf.Ratings([1, 2], [1, 2], [1]), ValueError, r"one length, got \[2, 2, 1\]"),
    (lambda: bf.Ratings([1, 2], [1, 2]), ValueError, "together"),
    (lambda: bf.Ratings("ratings.csv"), TypeError, "got str"),
    (lambda: bf.Ratings(TABLE, levels=5), ValueError, "got 2.5 in row 2 .user 'ann', item 30."),
    (lambda: bf.Ratings(TABLE.assign(rating=[1, 6, 2]), levels=5), ValueError, "got 6 in row 1"),
    (lambda: bf.Ratings(TABLE, levels=[3, 2]), ValueError, "rising levels"),
    (lambda: bf.Ratings(TABLE, levels=1), ValueError, "at least two"),
    (lambda: bf.Ratings(TABLE, levels=2.5), ValueError, "whole number of levels, or a list of them, got 2.5"),
    (lambda: bf.Ratings([1], [1], np.float32([0.1]), levels=[0.1, 1]), ValueError, "got 0.10000000149"),
    (lambda: bf.Ratings(sp.bsr_matrix(np.eye(4), blocksize=(2, 2))), ValueError, "bsr with zeros"),
    (lambda: bf.Ratings(TWICE), ValueError, "in row 3 .user 'ann', item 4; the first is row 1"),
    (lambda: bf.Ratings(TABLE, duplicates="last"), ValueError, "duplicates='error' or 'mean'"),
    (lambda: bf.Ratings(TABLE).take([]), ValueError, "at least one rating to take"),
    (lambda: bf.Ratings(np.ones((2, 2, 2))), TypeError, "got ndarray"),
    (lambda: bf.Ratings(sp.coo_array(([1.0], ([0],)), shape=(3,))), ValueError, "two-dimensional"),
    (lambda: bf.Ratings([1, 2], [1, 1], np.ma.masked_array([1, 2], [0, 1])), ValueError, "got nan in row 1"),
    (lambda: bf.Views(np.ma.masked_array(np.eye(2), np.eye(2))), ValueError, "got nan in row 0, column 0"),
    (lambda: bf.Views(pd.DataFrame(np.eye(2), columns=["w", "w"])), ValueError, "'x', got 'w' twice"),
    (lambda: bf.Views({"a": [[1.0, NAN]]}), ValueError, "got nan in row 0, column 1"),
    (lambda: bf.Views({"a": sp.csr_matrix([[1.0, np.inf]])}), ValueError, "got inf in row 0, column 1"),
    (lambda: bf.Views({"a": np.eye(2), "b": np.eye(3)}), ValueError, "as many rows in every view"),
    (lambda: bf.Views({"a/b": np.eye(2)}), ValueError, "got 'a/b'"),
    (lambda: bf.Views({}), TypeError, "Expected views"),
    (lambda: bf.Views({"a": np.zeros((0, 3))}), ValueError, "at least one row"),
    (lambda: bf.Views({"a": [["x"]]}), TypeError, "real numbers in view 'a'"),
    (lambda: bf.Views({"a": pd.DataFrame({"w": ["x", "y"]})}), TypeError, "in column 'w'"),
    (lambda: bf.Views(pd.DataFrame([["x", "y"]], columns=["w", "w"])), TypeError, "in column 'w'"),
    (lambda: bf.Views({"a": np.eye(2)}, rows=["x", "x"]), ValueError, "2 distinct row labels, got 1"),
    (lambda: bf.Views({"a": np.ones(3)}), ValueError, "two-dimensional"),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(BAD)))
def test_bad_input_is_one_line_that_says_where(case):
    call, error, said = BAD[case]
    with pytest.raises(error, match=said) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_values_beyond_the_working_precision_are_refused():
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.raises(ValueError, match=r"finite ratings, got 1e\+300 in row 1"):
            bf.Ratings(TABLE.assign(rating=[1.0, 1e300, 2.0]))
        with pytest.raises(ValueError, match=r"finite values in view 'x', got 1e\+300"):
            bf.Views(sp.csr_matrix([[1.0, 1e300]]))
    finally:
        jax.config.update("jax_enable_x64", True)


def test_duplicates_can_be_averaged():
    twice = pd.concat([TABLE, TABLE.iloc[[1]].assign(rating=4.0)])
    merged = bf.Ratings(twice, duplicates="mean")
    assert len(merged) == 3
    assert merged.frame()["rating"].tolist() == [1.0, 4.5, 2.5]


def test_a_mean_on_a_scale_of_levels_is_a_level():
    user, item, value = ["a", "a", "b", "b", "c"], ["x", "x", "x", "x", "x"], [1.0, 4, 2, 5, 3]
    merged = bf.Ratings((user, item, value), levels=5, duplicates="mean")
    np.testing.assert_array_equal(merged.value, [2, 3, 3])  # 2.5 and 3.5: the lower of two
    assert bf.Ratings(merged.frame(), levels=5).value.tolist() == [2, 3, 3]


SHAPES = [(1, 1), (1, 5), (4, 1), (5, 7)]
FINITE = st.floats(-100, 100, width=32)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.data(), st.sampled_from(SHAPES))
def test_dense_to_ratings_and_back(data, shape):
    values = data.draw(hnp.arrays(np.float64, shape, elements=FINITE))
    seen = data.draw(hnp.arrays(bool, shape))
    seen.flat[data.draw(st.integers(0, seen.size - 1))] = True
    ratings = bf.Ratings(np.where(seen, values, NAN))
    back = np.full(shape, NAN)
    back[ratings.user, ratings.item] = ratings.value
    np.testing.assert_array_equal(back, np.where(seen, values, NAN))
    # both orientations list every cell once, in rows of the right length
    for side, axis in ((ratings.cells.by_row, 1), (ratings.cells.by_col, 0)):
        np.testing.assert_array_equal(np.diff(side.ptr), seen.sum(axis))
        chunk = np.asarray(sparse.chunks(side))
        assert sorted(chunk[chunk >= 0].tolist()) == list(range(len(ratings)))


@settings(derandomize=True, deadline=None, max_examples=30)
@given(st.permutations(range(6)))
def test_the_order_of_rows_is_kept_and_changes_nothing_else(order):
    table = pd.DataFrame({"user": list("aabbcd"), "item": list("xyxzyz"), "rating": range(6)})
    plain, mixed = bf.Ratings(table), bf.Ratings(table.iloc[order])
    assert mixed.frame()["rating"].tolist() == list(order)
    np.testing.assert_array_equal(plain.y, mixed.y)  # row-major below, whatever the order above
    np.testing.assert_array_equal(plain.cells.col, mixed.cells.col)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(st.data(), st.sampled_from(SHAPES))
def test_views_keep_their_numbers(data, shape):
    left = data.draw(hnp.arrays(np.float64, shape, elements=FINITE))
    views = bf.Views({"b": left, "a": sp.csc_matrix(left)})
    assert views.names == ("a", "b")
    for name in views.names:
        np.testing.assert_array_equal(views[name].toarray(), left)
    assert views.size == 2 * np.count_nonzero(left)


def test_views_keep_labels():
    table = pd.DataFrame([[1, 0], [2, 3]], index=["d1", "d2"], columns=["cat", "dog"])
    views = bf.Views({"words": table, "links": sp.eye(2)})
    assert list(views.rows) == ["d1", "d2"]
    assert list(views.features["words"]) == ["cat", "dog"]
    assert views.take([1]).rows.tolist() == ["d2"]
    with pytest.raises(ValueError, match="same row labels"):
        bf.Views({"a": table, "b": table.rename(index={"d1": "other"})})
    again = bf.Views(views, graphs={"links": sp.eye(2)})
    assert again.fingerprint() != views.fingerprint() == bf.Views(views).fingerprint()
    assert again.coords()["feature.words"].equals(table.columns)


def test_columns_of_what_is_no_table_are_refused():
    for cells in (DENSE, list(TABLE.to_numpy().T)):
        with pytest.raises(ValueError, match="Expected columns= for a table, got it for"):
            bf.Ratings(cells, columns=("user", "item", "rating"))


def test_taking_keeps_the_labels_of_all():
    ratings = bf.Ratings(TABLE)
    part = ratings.take([0])
    assert part.shape == ratings.shape
    assert part.frame()["user"].tolist() == ["bob"]
    assert part.fingerprint() != ratings.fingerprint() == bf.Ratings(TABLE).fingerprint()


def test_equal_values_have_no_spread_of_rounding():
    """The standard deviation of twelve times 3.3 is 4e-16."""
    cells = np.repeat(np.arange(4), 3), np.tile(np.arange(3), 4)
    assert bf.Ratings(*cells, np.full(12, 3.3)).spread == 1
    table = pd.DataFrame({"a": cells[0], "b": cells[1], "c": 0, "value": 3.3})
    assert bf.Tensor(table).spread == 1


@pytest.mark.parametrize("kind", [np.uint8, np.int8, bool, np.float32])
def test_duplicates_of_a_narrow_sparse_matrix_are_summed(kind):
    value = np.array([200, 100] if kind is np.uint8 else [100, 100]).astype(kind)
    table = sp.coo_matrix((value, ([0, 0], [1, 1])), shape=(2, 2))
    total = float(value.astype(float).sum())
    assert bf.Counts(table).value.tolist() == [total]
    assert bf.Views(table)["x"].toarray()[0, 1] == total
    assert bf.Views(np.eye(2), graphs={"g": table}).graphs["g"][0, 1] == total
    assert bf.Tasks(table, [[0], [1]])["x"].toarray()[0, 1] == total


@pytest.mark.parametrize("single", [True, False])
def test_ratings_that_single_precision_rounds_are_named(single):
    with jax.enable_x64(not single), warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always", DataWarning)
        ratings = bf.datasets.make_ratings(12, 10, 2, seed=0)
        for shift in (0, 1e5):
            own = bf.Ratings(ratings.user, ratings.item, ratings.value + shift)
            bf.fit("bpmf", own, bf.FixedPoint(2, tol=0.5), n_components=1, progress=False)
    said = [str(one.message) for one in heard if "single precision" in str(one.message)]
    assert len(said) == single and all("numbers around 1" in one for one in said)


def test_a_name_that_no_file_can_have_is_refused():
    """A saved fit has a file for each view; the error would come after the run."""
    for name in ("v" * 201, "ü" * 101, "a\0"):
        for views in ({name: np.ones((3, 2))}, {"x": np.ones((3, 2)), name: np.ones((3, 2))}):
            with pytest.raises(ValueError, match="Expected view names of at most 200 bytes"):
                bf.Views(views)
        with pytest.raises(ValueError, match="Expected names of modes of at most 200 bytes"):
            bf.Tensor(np.ones((2, 2, 2)), modes=["a", "b", name])
    assert bf.Views({"v" * 200: np.ones((3, 2))}).n_rows == 3
