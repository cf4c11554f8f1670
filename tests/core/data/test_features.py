"""Tables of features become numbers, by label; what is wrong in them is refused with its label."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import bayesfac as bf

LONG = pd.DataFrame({"user": [7, 9, 7], "item": ["x", "y", "y"], "rating": [1.0, 2.0, 4.0]})
USERS = pd.DataFrame(
    {"age": [20.0, np.nan, 40.0], "job": ["a", "b", None], "new": [True, False, False]},
    index=["9", "7", "8"],
)


def test_columns_become_numbers_in_the_order_of_the_labels():
    data = bf.Ratings(LONG, user_features=USERS)
    assert list(data.users) == [7, "8", 9] or [str(u) for u in data.users] == ["7", "8", "9"]
    names = list(data.coords()["user_feature"])
    assert names == ["age", "job=a", "job=b", "new"]
    want = [[0, -0.5, 0.5, -1 / 3], [1, 0, 0, -1 / 3], [-1, 0.5, -0.5, 2 / 3]]
    np.testing.assert_allclose(data.x["user"].table, want)
    np.testing.assert_allclose(data.x["user"].gram, np.transpose(want) @ want)
    assert len(data) == 3 and data.frame()["rating"].tolist() == [1.0, 2.0, 4.0]
    assert data.frame()["user"].astype(str).tolist() == ["7", "9", "7"]
    (note,) = data.host.features["user"].told()
    assert "1 of 'age', 1 of 'job'" in note


def test_a_column_with_the_ids_is_the_index():
    table = USERS.rename_axis("userId").reset_index()
    one, other = (bf.Ratings(LONG, user_features=t) for t in (USERS, table))
    assert one.fingerprint() == other.fingerprint() != bf.Ratings(LONG).fingerprint()


def test_parts_carry_the_features_along():
    data = bf.Ratings(LONG, user_features=USERS, item_features=[[1.0], [3.0]])
    for part in (
        data.take([0, 2]),
        bf.split.holdout(data, 0.4)[0],
        data.named("it"),
        bf.Ratings(data),
    ):
        np.testing.assert_array_equal(part.x["user"].table, data.x["user"].table)
        np.testing.assert_array_equal(part.x["item"].table, [[-1], [1]])
    one = data.of_users(1, 3)
    np.testing.assert_array_equal(one.x["user"].table, data.x["user"].table[1:])
    assert one.user_features.equals(data.user_features.iloc[1:])
    wide = data.on(pd.Index(["w", "x", "y"]))
    np.testing.assert_array_equal(wide.x["item"].table, [[0], [-1], [1]])


def test_a_sparse_matrix_is_taken_as_it_is():
    table = sp.coo_matrix([[0.0, 2.0], [5.0, 0.0]])
    data = bf.Ratings(LONG, user_features=table)
    for part, want in ((data, table.toarray()), (data.of_users(1, 2), [[5, 0]])):
        np.testing.assert_array_equal(part.x["user"].times(np.eye(2)), want)
        np.testing.assert_array_equal(part.x["user"].across(np.eye(len(want))), np.transpose(want))
    assert bf.Ratings(LONG, user_features=sp.eye(2, 6000)).x["user"].width == 6000


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (USERS.drop("7"), r"none of 7 \(1 of 2 users have none\)"),
        (pd.concat([USERS, USERS.loc[["9"]]]), "two of '9'"),
        ([[1.0, 2.0]], r"each of the 2 users, .* got shape \(1, 2\)"),
        (USERS.assign(age=[1.0, np.inf, 2.0]), r"got inf in column 'age' \(user 7\)"),
        (USERS.assign(when=pd.Timestamp("2020-01-01")), "got datetime64.* in column 'when'"),
        (USERS[[]], "1 to 5000 features of users, got 0"),
        (np.zeros((2, 5001)), "1 to 5000 features of users, got 5001"),
    ],
)
def test_what_is_wrong_is_refused(table, said):
    with pytest.raises((ValueError, TypeError), match=said):
        bf.Ratings(LONG, user_features=table)
