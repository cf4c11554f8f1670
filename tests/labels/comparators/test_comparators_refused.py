"""What the comparators refuse, and how they say it."""

import numpy as np
import pandas as pd
import pytest

from bayesfac.labels.comparators import NAMED, as_labels, l2f, ls_ml, tram
from tests.labels.comparators.test_comparators import call

GOOD = {"X": np.eye(6), "Y": np.eye(6)[:, :2], "X_new": np.ones((2, 6))}


def put(of, row, column, value):
    changed = GOOD[of].copy()
    changed[row, column] = value
    return {of: changed}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (put("X", 4, 2, np.nan), r"finite values in X, got nan in row 4, column 2"),
        (put("X", 4, 2, np.inf), r"finite values in X, got inf in row 4, column 2"),
        (put("X_new", 1, 3, np.nan), r"finite values in X_new, got nan in row 1, column 3"),
        (put("Y", 3, 1, 2), r"0 or 1 in Y, got 2 in row 3, label 1"),
        (put("Y", 3, 1, -1), r"0 or 1 in Y, got -1 in row 3, label 1"),
        (put("Y", 3, 1, np.nan), r"finite values in Y, got nan in row 3, column 1"),
        ({"Y": np.ones((5, 2))}, r"6 rows in Y, as in X, got 5"),
        ({"Y": np.ones(6)}, r"a two-dimensional Y, got shape \(6,\)"),
        ({"Y": np.ones((6, 0))}, r"at least one row and feature in Y, got shape \(6, 0\)"),
        ({"X": np.ones(6)}, r"a two-dimensional X, got shape \(6,\)"),
        ({"X_new": np.ones(6)}, r"a two-dimensional X_new, got shape \(6,\)"),
        ({"X_new": np.ones((2, 5))}, r"6 features in X_new, as in X, got 5"),
        ({"X_new": np.ones((0, 5))}, r"6 features in X_new, as in X, got 5"),
    ],
)
@pytest.mark.parametrize("name", ["ls_ml", "ml_knn", "tram"])
def test_bad_tables_are_said(name, given, said):
    more = {} if name == "ls_ml" else {"k": 2}
    with pytest.raises(ValueError, match=f"^Expected {said}"):
        NAMED[name](*(GOOD | given).values(), **more)


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("ml_knn", {"k": 6}, r"k between 1 and 5 \(one less than training rows\), got 6"),
        ("ml_knn", {"k": 0}, "k between 1 and 5 .*, got 0"),
        ("ml_knn", {"k": 2, "smooth": 0}, "smooth to be a finite number above 0, got 0"),
        ("ml_knn", {"k": 2, "smooth": np.nan}, "smooth to be a finite number above 0, got nan"),
        ("ml_knn", {"k": 2, "metric": "cos"}, "metric to be one of .*, got 'cos'"),
        ("tram", {"k": 8}, r"k between 1 and 7 \(one less than rows in all\), got 8"),
        ("tram", {"k": 2.0}, r"k between 1 and 7 .*, got 2\.0"),
        ("tram", {"metric": None}, "metric to be one of .*, got None"),
        ("ls_ml", {"r": 3}, r"r between 1 and 2 \(the number of labels\), got 3"),
        ("ls_ml", {"beta": 0}, "beta to be a finite number above 0, got 0"),
        ("ls_ml", {"alpha": -1.0}, r"alpha to be a finite number of at least 0, got -1\.0"),
        ("ls_ml", {"alpha": "1"}, "alpha to be a finite number of at least 0, got '1'"),
        ("l2f", {"k": 8}, "k between 1 and 7 .*, got 8"),
        ("l2f", {"k": 2, "fit": 0}, "fit to be a finite number above 0, got 0"),
        ("l2f", {"k": 2, "alike": np.inf}, "alike to be a finite number of at least 0, got inf"),
        ("l2f", {"k": 2, "agreement": -1}, "agreement to be a finite number of at least 0, got -1"),
    ],
)
def test_bad_settings_are_said(name, given, said):
    with pytest.raises(ValueError, match=f"^Expected {said}"):
        call(name, *GOOD.values(), **given)


def test_bad_views_are_said():
    X, Y, new = GOOD.values()
    with pytest.raises(TypeError, match="^Expected views_new as name -> matrix, got ndarray"):
        l2f({"a": X}, Y, new)
    with pytest.raises(ValueError, match=r"^Expected the views \['a'\], one at least, got \['b'\]"):
        l2f({"a": X}, Y, {"b": new})
    with pytest.raises(ValueError, match=r"^Expected the views \[\], one at least"):
        l2f({}, Y, {})
    with pytest.raises(
        ValueError, match="^Expected 6 features in new view 'a', as in view 'a', got 5"
    ):
        l2f({"a": X}, Y, {"a": new[:, 1:]})
    with pytest.raises(ValueError, match="^Expected 5 rows in Y, as in view 'b', got 6"):
        l2f({"a": X, "b": X[1:]}, Y, {"a": new, "b": new})
    with pytest.raises(ValueError, match="^Expected as many new rows in every view, got .*'b': 1"):
        l2f({"a": X, "b": X}, Y, {"a": new, "b": new[1:]})
    with pytest.raises(
        ValueError, match="^Expected finite values in new view 'a', got nan in row 1"
    ):
        l2f({"a": X}, Y, {"a": put("X_new", 1, 1, np.nan)["X_new"]})


def test_tables_with_other_names_are_said():
    X, Y, new = (pd.DataFrame(table) for table in GOOD.values())
    with pytest.raises(
        ValueError, match="^Expected the features of X in X_new, in order, got others"
    ):
        ls_ml(X, Y, new[new.columns[::-1]])
    with pytest.raises(ValueError, match="^Expected the rows of X in Y, in order, got others"):
        tram(X, Y[::-1], new, k=2)
    with pytest.raises(ValueError, match="^Expected 0 or 1 in Y, got 3 in row 0, label 'dog'"):
        tram(X, pd.DataFrame({"cat": [1] * 6, "dog": [3] * 6}), new, k=2)
    with pytest.raises(TypeError, match="^Expected numbers in X, got object in column"):
        tram(X.astype(object), Y, new, k=2)


def test_bad_scores_are_said():
    with pytest.raises(ValueError, match="^Expected method to be one of .*, got 'knn'"):
        as_labels([[1.0]], "knn")
    with pytest.raises(ValueError, match=r"^Expected scores as rows x labels, got shape \(1,\)"):
        as_labels([1.0], "tram")
    with pytest.raises(ValueError, match="^Expected finite scores, got nan in row 0, column 1"):
        as_labels([[1.0, np.nan]], "tram")
