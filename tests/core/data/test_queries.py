"""Queries whose labels all have training data say so."""

import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.data.cards import describe
from bayesfac.core.data.cells import Known, Query, narrowed

RATINGS = bf.Ratings(["ann", "ann", "bob"], ["x", "y", "x"], [1, 5, 3], levels=5)


@pytest.mark.parametrize(
    ("row", "col", "known"),
    [([0, 1], [2, 0], True), ([0, -1], [2, 0], False), ([0, 1], [-3, 0], False), ([], [], True)],
)
def test_one_negative_code_is_enough_for_a_query_of_any_cells(row, col, known):
    query = narrowed(Query(np.array(row, int), np.array(col, int)))
    assert type(query) is (Known if known else Query)
    assert query.row.tolist() == row and query.col.tolist() == col


def test_cells_of_a_tensor_have_several_columns():
    code = np.array([[0, 1], [2, -1]])
    assert type(narrowed(Query(code[:, 0], code))) is Query
    assert type(narrowed(Query(code[:, 0], np.abs(code)))) is Known


def test_a_query_of_training_labels_is_known_and_keeps_no_features():
    card = describe(RATINGS)
    assert type(card.locate({"user": ["bob"], "item": ["y"]})[0]) is Known
    located, _, flagged = card.locate({"user": ["bob", "cid"], "item": ["y", "y"]})
    assert type(located) is Query and flagged.tolist() == [False, True]


def test_one_new_user_does_not_change_the_others():
    fit = bf.fit("mmmf", RATINGS, n_components=1, penalty=0.1, progress=False)
    alone = fit.predict({"user": ["bob"], "item": ["y"]})
    beside = fit.predict({"user": ["bob", "cid"], "item": ["y", "y"]})
    np.testing.assert_allclose(alone.probabilities[0], beside.probabilities[0], rtol=1e-10)
    assert not np.allclose(beside.probabilities[1], beside.probabilities[0])
