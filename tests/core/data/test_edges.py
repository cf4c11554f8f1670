"""Graphs of users and items: what they say, what is refused, and that parts of the data keep them."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import bayesfac as bf
from bayesfac.core.data import edges

LONG = pd.DataFrame({"user": [7, 9, 7], "item": ["x", "y", "y"], "rating": [1.0, 2.0, 4.0]})
FRIENDS = pd.DataFrame({"one": [7, 9], "other": [9, 8], "weight": [2.0, 1.0]})


def test_edges_have_no_direction_and_the_larger_weight_counts():
    table = [[7, 9, 2.0], [9, 7, 1.0], [9, 8, 0.5], [9, 8, 1.0], [7, 7, 5.0], [7, 8, 0.0]]
    data = bf.Ratings(LONG, user_graph=table)
    assert list(data.users) == [7, 8, 9]  # 8 is in the graph alone
    np.testing.assert_array_equal(data.user_graph.toarray(), [[0, 0, 2], [0, 0, 1], [2, 1, 0]])
    assert data.fingerprint() == bf.Ratings(LONG, user_graph=FRIENDS).fingerprint()
    assert data.fingerprint() != bf.Ratings(LONG, user_graph=FRIENDS[:1]).fingerprint()
    assert "2 edges of users" in repr(data)


def test_a_sparse_matrix_is_in_the_order_of_the_labels():
    given = sp.csr_matrix([[0, 3.0], [1.0, 0]])
    data = bf.Ratings(LONG, item_graph=given)
    np.testing.assert_array_equal(data.item_graph.toarray(), [[0, 3], [3, 0]])
    assert data.user_graph is None


def test_parts_keep_the_graph():
    data = bf.Ratings(LONG, user_graph=FRIENDS, user_features=np.ones((3, 1)))
    assert data.take([0, 1]).graphs is data.graphs
    part = data.within(np.array([0, 2]), np.array([0, 1]))
    np.testing.assert_array_equal(part.user_graph.toarray(), [[0, 2], [2, 0]])
    assert len(part.graphs["user"].graphs.left) == 1
    more = data.on(pd.Index([6, 7, 8, 9]), "user")
    np.testing.assert_array_equal(more.user_graph.toarray()[1:, 1:], data.user_graph.toarray())
    assert list(more.graphs["user"].linked) == [False, True, True, True]
    assert bf.Ratings(data).fingerprint() == data.fingerprint()
    assert data.named("a").graphs and data.hide().graphs
    fewer = data.within(np.array([0, 1]), np.array([0]))
    assert fewer.user_graph.nnz == 0 and not fewer.graphs["user"].linked.any()
    train, test = bf.split.holdout(bf.Ratings(np.ones((5, 4)), user_graph=[(0, 4)]), 0.2, seed=0)
    assert train.user_graph[0, 4] == test.user_graph[0, 4] == 1


def test_labels_of_features_and_of_the_graph_are_put_together():
    about = pd.DataFrame({"age": [1.0, 2, 3, 4]}, index=[5, 7, 8, 9])
    data = bf.Ratings(LONG, user_graph=FRIENDS, user_features=about)
    assert list(data.users) == [5, 7, 8, 9]
    assert data.user_graph[1, 3] == 2 and data.x["user"].table.shape == (4, 1)
    with pytest.raises(ValueError, match="Expected features of every user, got none of 8"):
        bf.Ratings(LONG, user_graph=FRIENDS, user_features=about.loc[[7, 9]])


@pytest.mark.parametrize(
    ("graph", "says"),
    [
        ([[7, 9, -1.0]], r"Expected finite weights of at least 0 .* got -1.0 for \(7, 9\)"),
        ([[7, 9, np.nan]], r"Expected finite weights .* got nan for \(7, 9\)"),
        ([[7, 9, np.inf]], r"Expected finite weights .* got inf"),
        ([[7, 7, 1.0]], "Expected at least one edge between two users"),
        ([[7, None]], "Expected two users in every row of edges, got .* in row 0"),
        ([[7, 9, 1.0, 1.0]], "a table of two labels and perhaps a weight, .* got shape"),
        (pd.DataFrame({"a": [7], "b": [9], "w": ["much"]}), "Expected numbers as weights of edges"),
        (sp.eye(3), r"Expected a graph of the 2 users .* got shape \(3, 3\)"),
        (sp.csr_matrix([[0, -1.0], [0, 0]]), "Expected finite weights"),
    ],
)
def test_what_is_refused(graph, says):
    with pytest.raises((TypeError, ValueError), match=says):
        bf.Ratings(LONG, user_graph=graph)


def test_relations_take_no_graph():
    with pytest.raises(ValueError, match="Expected features as another matrix, .* and no graph"):
        bf.Relations(bf.Ratings(LONG, user_graph=FRIENDS))


def test_means_over_eigenvalues_of_a_large_graph_are_near():
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 700, (2, 1400))
    net = edges.described(ends.T, pd.RangeIndex(700), "user")
    joined = net.design("user")
    weights, kept = net.both.toarray(), np.asarray(joined.linked)
    weights = weights[kept][:, kept] / weights.sum(1)[kept].mean()
    exact = np.linalg.eigvalsh(np.diag(weights.sum(1)) - weights)
    for strength in (0.1, 1, 10):
        near = (joined.shares / (1 + strength * joined.values)).sum()
        assert near == pytest.approx((1 / (1 + strength * exact)).mean(), rel=0.05)
