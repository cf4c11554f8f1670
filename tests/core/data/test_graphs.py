"""Graphs over rows: how they are built and checked, and the arithmetic on their edges."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

import bayesfac as bf
from bayesfac.core import events
from bayesfac.core.data.cards import describe
from bayesfac.core.data.graphs import Graphs, degrees, differences, laplacian, neighbours
from bayesfac.core.kernels import sparse as kernels
from bayesfac.core.math import safe_log
from bayesfac.models.topics import _graph_smoothing as smoothing
from bayesfac.models.topics import ltm
from bayesfac.models.topics._graph_smoothing import best_weights, smooth_rows, solve

RNG = np.random.default_rng(0)


def random_graph(n, density=0.2, seed=0):
    return sp.random(n, n, density, "csr", random_state=np.random.default_rng(seed))


def dense_laplacian(weight):
    weight = np.asarray(weight.todense() if sp.issparse(weight) else weight)
    return np.diag(weight.sum(1)) - weight


# -- the container --------------------------------------------------------------------------------
def test_a_graph_is_symmetric_and_has_no_loops():
    given = random_graph(9)
    found = Graphs({"g": given})["g"].toarray()
    expected = np.maximum(given.toarray(), given.toarray().T)
    np.fill_diagonal(expected, 0)
    np.testing.assert_allclose(found, expected)


def test_several_graphs_share_one_list_of_edges():
    a, b = random_graph(8, seed=1), random_graph(8, seed=2)
    both = Graphs({"b": b, "a": a})
    assert both.names == ("a", "b")
    assert (np.asarray(both.left) < np.asarray(both.right)).all()
    for name, one in (("a", a), ("b", b)):
        np.testing.assert_allclose(both[name].toarray(), Graphs({name: one})[name].toarray())
        np.testing.assert_allclose(both.only(name)[name].toarray(), both[name].toarray())


def test_rows_may_be_taken_in_any_order():
    graph = Graphs({"g": random_graph(8)})
    rows = [5, 0, 3]
    np.testing.assert_allclose(
        graph.take(rows)["g"].toarray(), graph["g"].toarray()[np.ix_(rows, rows)]
    )
    views = bf.Views({"x": RNG.random((8, 3))}, graphs=graph)
    np.testing.assert_allclose(
        views.take(rows).graphs["g"].toarray(), graph["g"].toarray()[np.ix_(rows, rows)]
    )


def test_components_are_reported():
    two = sp.block_diag([sp.csr_matrix(np.ones((k, k))) for k in (3, 2)]).tocsr()
    graphs = Graphs({"apart": two, "empty": sp.csr_matrix((5, 5))})
    assert graphs.components() == {"apart": 2, "empty": 5}
    assert (
        repr(graphs) == "Graphs(5 rows, apart: 4 edges, 2 components; empty: 0 edges, 5 components)"
    )
    views = bf.Views({"x": np.ones((5, 2))}, graphs=graphs)
    assert "apart: 4 edges" in repr(views)
    card = describe(views).summary
    assert (card["edges of graph apart"], card["components of graph empty"]) == (4, 5)


@pytest.mark.parametrize(
    ("graphs", "error", "said"),
    [
        ({"g": np.eye(3)}, TypeError, "graph 'g' as a scipy sparse matrix, got ndarray"),
        ({"g": sp.csr_matrix((3, 4))}, ValueError, r"'g' to be square, got shape \(3, 4\)"),
        ({"g": -sp.eye(3, k=1)}, ValueError, "at least 0 in graph 'g', got -1.0 in row 0"),
        ({"g": np.nan * sp.eye(3, k=1)}, ValueError, "got nan in row 0"),
        ({"g": sp.eye(3), "h": sp.eye(4)}, ValueError, "over the same rows, got {'g': 3, 'h': 4}"),
        ({}, ValueError, "at least one graph"),
        ({"g": sp.eye(4)}, ValueError, "over 3 rows, got 4"),
    ],
)
def test_bad_graphs_are_named(graphs, error, said):
    with pytest.raises(error, match=said):
        bf.Views({"x": np.ones((3, 2))}, graphs=graphs)


# -- neighbours -----------------------------------------------------------------------------------
@pytest.mark.parametrize("columns", [3, 40], ids=["tree", "brute force"])
@pytest.mark.parametrize("sparse", [False, True])
def test_neighbours_are_the_nearest(columns, sparse):
    x = RNG.random((60, columns))
    distance = ((x[:, None] - x[None]) ** 2).sum(-1)
    np.fill_diagonal(distance, np.inf)
    near = np.zeros((60, 60))
    near[np.arange(60)[:, None], np.argsort(distance, 1)[:, :4]] = 1
    found = neighbours(sp.csr_matrix(x) if sparse else x, 4)
    np.testing.assert_array_equal(found.toarray(), np.maximum(near, near.T))


def test_the_cosine_does_not_know_lengths():
    x = RNG.random((50, 30))
    longer = x * RNG.uniform(0.1, 10, (50, 1))
    assert (neighbours(x, 3, "cosine") != neighbours(longer, 3, "cosine")).nnz == 0
    assert (neighbours(x, 3) != neighbours(longer, 3)).nnz > 0


def test_copies_of_a_row_have_neighbours_too():
    """Among more than p copies a row may not find itself; it is still nobody's own neighbour."""
    found = neighbours(np.zeros((20, 2)), 3)
    assert found.diagonal().sum() == 0
    assert (np.asarray(found.sum(1)).ravel() >= 3).all()


@pytest.mark.parametrize(
    ("p", "metric", "said"),
    [
        (5, "euclidean", "between 1 and 4"),
        (0, "cosine", "got 0"),
        (2, "manhattan", "got 'manhattan'"),
    ],
)
def test_bad_neighbours(p, metric, said):
    with pytest.raises(ValueError, match=said):
        neighbours(np.eye(5), p, metric)


def test_one_row_has_no_neighbours():
    with pytest.raises(ValueError, match="at least two rows to join neighbours, got one"):
        bf.fit("ltm", bf.Views(np.array([[1.0, 2.0]])), progress=False)


# -- arithmetic on edges --------------------------------------------------------------------------
@pytest.fixture(params=["numba", "jax"])
def problem(request):
    graph = Graphs({"g": random_graph(30, 0.1)})
    with kernels.use(request.param):
        yield graph, jnp.asarray(RNG.random((30, 4))), jnp.asarray(RNG.random((30, 4)))


def test_edges_sum_to_the_laplacian(problem):
    graph, A, B = problem
    weight = jnp.asarray(graph.weight[0])
    L = dense_laplacian(graph["g"])
    np.testing.assert_allclose(weight @ differences(graph, A, B), np.trace(A.T @ L @ B), rtol=1e-6)
    np.testing.assert_allclose(laplacian(graph, weight, A), L @ A, atol=1e-6)
    np.testing.assert_allclose(degrees(graph, weight), np.diag(L), rtol=1e-6)
    slope = jax.grad(lambda A, B: weight @ differences(graph, A, B), (0, 1))(A, B)
    np.testing.assert_allclose(slope[0], L @ B, atol=1e-6)
    np.testing.assert_allclose(slope[1], L @ A, atol=1e-6)


def test_the_step_of_15_stays_on_the_simplex(problem):
    """Omega + L is an M-matrix and L 1 = 0: Y >= 0 and its rows sum to one."""
    graph, A, _ = problem
    weight = 7.0 * jnp.asarray(graph.weight[0])
    V = A.at[3].set(0.0)  # a document without words takes its neighbours' clusters
    beside = partial(kernels.spread, graph.cells.by_row, weight[graph.edge])
    Y = np.asarray(solve(beside, degrees(graph, weight)[:, None], V, jnp.full_like(A, 0.25)))
    system = np.diag(V.sum(1)) + 7.0 * dense_laplacian(graph["g"])
    np.testing.assert_allclose(Y, np.linalg.solve(system, V), atol=1e-6)
    assert Y.min() > 0
    np.testing.assert_allclose(Y.sum(1), 1, atol=1e-6)


@pytest.mark.parametrize("divergence", ["kl", "squared"])
def test_smoothing_never_raises_its_cost_and_ends_where_it_is_flat(problem, divergence):
    graph, A, V = problem
    A = A / A.sum(1, keepdims=True)
    hyper = ltm.Hyper(penalty=3.0, divergence=divergence)
    weight = 3.0 * jnp.asarray(graph.weight[0])

    def cost(z):
        A = jax.nn.softmax(z, -1)
        other = jnp.log(A) if divergence == "kl" else A
        return weight @ differences(graph, A, other) - jnp.sum(V * jnp.log(A))

    def step(A):
        return smooth_rows(A, V, graph, hyper)

    step = jax.jit(step)
    before = cost(jnp.log(A))
    for _ in range(100):
        A = step(A)
        after = cost(jnp.log(A))
        assert after <= before + 1e-9 * abs(before)
        before = after
    assert jnp.abs(jax.grad(cost)(jnp.log(A))).max() < 1e-3


def test_steps_of_15_that_were_shortened_are_counted(problem):
    graph, A, V = problem
    hyper = ltm.Hyper(penalty=3.0, divergence="kl")
    with events.listen() as heard:
        for _ in range(20):
            A = smooth_rows(A, V, graph, hyper)
    assert 0 < heard["the step of (15) was shortened"] <= 20


def test_a_row_of_the_squared_difference_goes_to_the_lowest_point_of_its_bound():
    """A row with words and neighbours, one without words, one without neighbours, one without both."""
    A = jnp.asarray([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.3, 0.3, 0.4], [0.6, 0.2, 0.2]])
    V = jnp.asarray([[2.0, 0.0, 5.0], [0.0, 0.0, 0.0], [1.0, 3.0, 4.0], [0.0, 0.0, 0.0]])
    degree = jnp.asarray([[3.0], [2.0], [0.0], [0.0]])
    EA = degree * jnp.asarray([0.2, 0.7, 0.1])
    new = np.asarray(smoothing._apart(A, V, degree, EA))
    side = np.array([(i, j, 400 - i - j) for i in range(401) for j in range(401 - i)]) / 400
    for i in range(3):
        words = np.where(V[i] > 0, -V[i] * np.log(np.maximum(side, 1e-300)), 0).sum(1)
        bound = words + 2 * degree[i] * (side**2).sum(1) - 2 * side @ (degree[i] * A[i] + EA[i])
        np.testing.assert_allclose(new[i], side[bound.argmin()], atol=0.004)
    np.testing.assert_allclose(new[2], V[2] / 8, rtol=1e-6)  # without neighbours: the step of EM
    np.testing.assert_array_equal(new[3], A[3])


@pytest.mark.parametrize("penalty", [1e-3, 1.0, 1e6])
def test_the_squared_difference_never_raises_the_cost(problem, penalty):
    graph, A, V = problem
    A, hyper = A / A.sum(1, keepdims=True), ltm.Hyper(penalty=penalty)
    V = V.at[3].set(0).at[7, 1:].set(0)
    weight = penalty * jnp.asarray(graph.weight[0])
    costs = []
    for _ in range(30):
        costs.append(float(weight @ differences(graph, A, A) - jnp.sum(V * safe_log(A))))
        A = smooth_rows(A, V, graph, hyper)
        np.testing.assert_allclose(A.sum(1), 1, atol=1e-12)
    assert (np.diff(costs) <= 1e-12 * np.abs(costs[0])).all()


def test_the_weights_of_10_minimise_8():
    """Against every point of a fine grid on the simplex."""
    rough, sharp = np.array([1.0, 2.5, 4.0]), 0.7
    found = np.asarray(best_weights(jnp.asarray(rough), sharp))
    corner = np.array([(a, b, 100 - a - b) for a in range(101) for b in range(101 - a)]) / 100
    cost = corner ** (1 / sharp) @ rough
    assert found.sum() == pytest.approx(1, abs=1e-6)
    assert found ** (1 / sharp) @ rough <= cost.min() + 1e-6
    printed = rough ** (1 / (sharp - 1)) / (rough ** (sharp / (sharp - 1))).sum() ** (
        1 / sharp
    )  # eq. 10
    np.testing.assert_allclose(found ** (1 / sharp), printed, rtol=1e-5)
