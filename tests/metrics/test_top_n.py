"""Measures of recommendations, against numbers computed by hand."""

import numpy as np
import pandas as pd
import pytest

import bayesfac as bf
from bayesfac.metrics import top_n

LISTS = [[3, 1, 2], [5, 4, -1], [0, 1, 2]]
LIKED = [{1, 9}, {5}, {7}]


def test_measures_by_hand():
    log = np.log2
    gain = [1 / log(3) / (1 + 1 / log(3)), 1.0, 0.0]
    np.testing.assert_allclose(bf.metrics.ndcg(LISTS, LIKED, 3), gain)
    np.testing.assert_allclose(bf.metrics.recall(LISTS, LIKED, 3), [0.5, 1, 0])
    np.testing.assert_allclose(bf.metrics.precision(LISTS, LIKED, 3), [1 / 3, 1 / 3, 0])
    np.testing.assert_allclose(bf.metrics.average_precision(LISTS, LIKED, 3), [0.25, 1, 0])
    assert bf.metrics.catalogue_coverage(LISTS, 10, 3) == 0.6  # 0..5; -1 is no item


@pytest.mark.parametrize("measure", [top_n.ndcg, top_n.recall, top_n.average_precision])
def test_a_perfect_list_scores_one_and_more_places_change_nothing(measure):
    liked = [{1, 2}]
    assert measure([[1, 2, 3, 4]], liked, 2) == measure([[1, 2, 3, 4]], liked, 4) == 1


def test_the_first_k_places_count():
    assert top_n.recall([[4, 1]], [{1}], 1) == 0
    assert top_n.catalogue_coverage([[4, 1]], 2, 1) == 0.5


def test_top_leaves_closed_items_out_and_breaks_ties():
    score = np.array([[2.0, 2.0, 1.0], [5.0, 4.0, 3.0]])
    closed = np.array([[False, False, False], [True, False, True]])
    assert top_n.top(score, 2, closed).tolist() == [[0, 1], [1, -1]]
    tie = np.array([[0.0, 1.0, 0.0]] * 2)
    assert top_n.top(score, 2, closed, tie).tolist() == [[1, 0], [1, -1]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: top_n.recall([[1]], [set()]), "relevant items of every user, got none in row 0"),
        (lambda: top_n.recall([[1]], [{1}, {2}]), "same users, got 1 and 2"),
        (lambda: top_n.ndcg([[1]], [{1}], 0), "k of at least 1"),
        (lambda: top_n.catalogue_coverage([[1]], 0), "at least one item"),
        (lambda: top_n.catalogue_coverage([[1]], 3, k=-1), "k of at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_relevant_items_are_values_and_lists_name_an_item_once():
    relevant = [pd.Series([10, 11]), pd.Series([12], index=[2])]
    assert bf.metrics.recall([[10, 11], [2, 10]], relevant, 2).tolist() == [1, 0]
    assert bf.metrics.recall([["a"]], [["a", "a"]], 1).tolist() == [1]
    assert bf.metrics.recall([["a", None, None]], [["a"]], 3).tolist() == [1]
    with pytest.raises(ValueError, match="once, got one twice in row 0"):
        bf.metrics.ndcg([["a", "a"]], [{"a"}], 2)


def test_the_number_that_fills_a_short_list_is_no_hit():
    assert bf.metrics.recall([[-1, -1]], [{-1}], 2).tolist() == [0]
