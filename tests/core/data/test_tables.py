"""Tables as users have them: with labels in the index, and as test sets beside a fit to such a table."""

import numpy as np
import pandas as pd
import pytest

import bayesfac as bf

RNG = np.random.default_rng(0)
ROWS = pd.DataFrame({"user": np.repeat(list("abcdefgh"), 5), "item": list("vwxyz") * 8})
ROWS["rating"] = RNG.integers(1, 6, 40)
TRAIN, TEST = ROWS.iloc[::2], ROWS.iloc[1::2]
INDEXED = TRAIN.set_index(["user", "item"])


def same(one, other):
    pd.testing.assert_frame_equal(one.frame(), other.frame())


@pytest.mark.parametrize("table", [INDEXED, INDEXED["rating"], INDEXED["rating"].rename(None)])
def test_labels_may_be_in_the_index(table):
    same(bf.Ratings(table), bf.Ratings(TRAIN))
    same(bf.Ratings(table, levels=5), bf.Ratings(TRAIN, levels=5))


def test_an_index_beside_columns_of_the_same_names_is_no_second_label():
    same(bf.Ratings(TRAIN.set_index(["user", "item"], drop=False)), bf.Ratings(TRAIN))
    levels = INDEXED.rename_axis(["who", "what"])
    same(bf.Ratings(levels, columns=["who", "what", "rating"]), bf.Ratings(TRAIN))
    with pytest.raises(ValueError, match=r"got \['level_0', 'level_1', 'rating'\]"):
        bf.Ratings(INDEXED.rename_axis([None, None]))


def test_counts_of_pairs_by_pandas_are_counts():
    plays = pd.concat([TRAIN, TRAIN.iloc[:7]])[["user", "item"]]
    same(bf.Counts(plays.groupby(["user", "item"]).size()), bf.Counts(plays))
    days = ROWS.assign(day=RNG.integers(1, 4, 40))
    means = days.groupby(["user", "item", "day"])["rating"].mean()
    same(bf.Tensor(means), bf.Tensor(means.reset_index()))


@pytest.fixture(scope="module", params=["ordinal_mf", "pmf"])
def fit(request):
    levelled = request.param == "ordinal_mf"
    few = (bf.LBFGS if levelled else bf.FixedPoint)(3, tol=0.9)
    data = bf.Ratings(TRAIN, levels=5 if levelled else None)
    return bf.fit(request.param, data, few, n_components=1, progress=False)


def test_a_test_set_may_be_a_table(fit):
    """It is read on the levels of the training data."""
    test, train = (bf.Ratings(part, levels=fit.data.levels) for part in (TEST, TRAIN))
    whole = bf.compare({"one": fit}, test, train=train)
    for table in (TEST, TEST.set_index(["user", "item"])):
        found = bf.compare({"one": fit}, table, train=TRAIN)
        pd.testing.assert_frame_equal(found.table, whole.table)
        pd.testing.assert_frame_equal(found.ranking.table, whole.ranking.table)
    curves = [fit.plot.coverage(part).lines[1].get_xydata() for part in (TEST, test)]
    np.testing.assert_array_equal(*curves)
    asked = fit.predict(TEST.set_index(["user", "item"])).mean
    np.testing.assert_array_equal(asked, fit.predict(TEST).mean)


def test_a_table_that_is_no_test_set_says_what_is_missing(fit):
    with pytest.raises(ValueError, match="Expected columns user, item, rating"):
        bf.compare({"one": fit}, TEST[["user", "rating"]])
    if fit.data.levels:
        with pytest.raises(ValueError, match=r"one of the levels .*got 7 in row 0 \(user 'a'"):
            fit.plot.coverage(TEST.assign(rating=7))
