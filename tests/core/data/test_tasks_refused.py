"""Tasks that cannot be meant are refused, with the task, view or row at fault."""

import jax
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from bayesfac.core.data.views import Views
from bayesfac.labels.data.tasks import Tasks
from tests.core.data.tables_of_tasks import NAN

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
    (lambda: Tasks(s(np.zeros((2, 0)))), r"Task 's': .* one row and feature in view 'v', got shape \(2, 0\)"),
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
    (lambda: Tasks(UNEVEN).pooled(), "every view in every task, got no 'w' in 't'"),
    (lambda: Tasks(UNEVEN).concatenated(), "every view in every task, got no 'w' in 't'"),
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


def test_rows_in_another_order_are_refused_also_where_they_are_numbered():
    """A shuffled table keeps its numbers; by position every row had the labels of another one."""
    x, y = pd.DataFrame(np.eye(3)), pd.DataFrame({"l": [1, 0, 0]})
    mixed = y.iloc[[2, 0, 1]]
    task = pd.Series(list("abb"))
    for wrong in (
        lambda: Tasks({"x": x}, mixed),
        lambda: Tasks(Views({"x": x}), mixed),
        lambda: Tasks({"x": x.loc[mixed.index]}, y),
        lambda: Tasks({"t": {"x": x}}, {"t": mixed}),
        lambda: Tasks({"x": x}, y, task=task.loc[mixed.index]),
    ):
        with pytest.raises(ValueError, match="in the order of the views' rows: . in row 0, got"):
            wrong()
    right = Tasks({"x": x.loc[mixed.index]}, mixed)
    assert right["labels"].toarray().ravel().tolist() == [0, 1, 0]
    places = Tasks({"x": x.to_numpy()}, mixed)  # an array has no labels
    assert places["labels"].toarray().ravel().tolist() == [0, 1, 0]
