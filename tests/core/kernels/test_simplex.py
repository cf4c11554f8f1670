"""Rows of tilted Dirichlet laws and Gamma numbers, by both backends; colours of graphs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats

from bayesfac.core.data.graphs import Graphs
from bayesfac.core.kernels import sparse
from bayesfac.core.kernels.simplex import gammas, shift, tilted_rows

MANY = 4000
SHAPE = jnp.asarray([[2.0, 3.0], [1.0, 1.0], [40.0, 7.0], [1.0, 300.0], [1.5, 0.4]])
TILT = jnp.asarray([[0.0, 0.0], [30.0, 0.0], [-9.0, 50.0], [0.0, 900.0], [7.0, 7.0]])


def drawn(backend, draw):
    with sparse.use(backend):
        return np.asarray(jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(0), MANY)))


@pytest.mark.parametrize("backend", ["numba", "jax"])
def test_tilted_rows_have_the_moments_of_their_density(backend):
    """Against a sum over a fine grid of the first probability; means within five standard errors."""
    rows = drawn(backend, lambda key: tilted_rows(key, SHAPE, TILT))
    np.testing.assert_allclose(rows.sum(-1), 1, rtol=1e-6)
    x = np.linspace(0, 1, 200_002)[1:-1]
    for i, ((a, b), (s, t)) in enumerate(zip(np.asarray(SHAPE), np.asarray(TILT), strict=True)):
        log = (a - 1) * np.log(x) + (b - 1) * np.log1p(-x) - s * x - t * (1 - x)
        share = np.exp(log - log.max())
        share /= share.sum()
        mean = share @ x
        variance = share @ (x - mean) ** 2
        assert abs(rows[:, i, 0].mean() - mean) < 5 * np.sqrt(variance / MANY)
        np.testing.assert_allclose(rows[:, i, 0].var(), variance, rtol=0.2)


@pytest.mark.parametrize("backend", ["numba", "jax"])
def test_gamma_numbers(backend):
    """Small whole shapes, numbers below one and others are drawn in three ways."""
    shape = jnp.asarray([0.0, 0.1, 0.9, 1.0, 1.2, 2.0, 4.0, 5.0, 30.0])
    rate = 1.0 + jnp.arange(len(shape))
    many = 100_000  # proposals that are always accepted have p-values below 1e-6
    with sparse.use(backend):
        x = gammas(jax.random.key(0), jnp.repeat(shape, many), jnp.repeat(rate, many))
    x = np.asarray(x).reshape(-1, many)
    assert (x[0] == 0).all()
    for k in range(1, len(shape)):
        law = stats.gamma(float(shape[k]), scale=1 / float(rate[k]))
        assert stats.kstest(x[k], law.cdf).pvalue > 1e-3, f"shape {shape[k]}"


@pytest.mark.parametrize("backend", ["numba", "jax"])
def test_parameters_that_are_not_numbers_give_rows_that_are_not(backend):
    with sparse.use(backend):
        rows = tilted_rows(jax.random.key(0), SHAPE, TILT.at[1, 0].set(jnp.nan))
    assert np.isnan(np.asarray(rows)[1]).all() and np.isfinite(np.asarray(rows)[[0, 2, 3]]).all()


def test_gamma_numbers_of_the_shift_sum_to_one_on_average():
    s = shift(SHAPE, TILT)
    np.testing.assert_allclose(np.sum(SHAPE / (TILT + s), -1), 1, rtol=1e-9)


@pytest.mark.parametrize(
    ("graph", "most"),
    [
        (sp.csr_matrix((4, 4)), 1), (sp.eye(9, k=1), 2), (sp.csr_matrix(np.ones((5, 5))), 5),
        (sp.random(200, 200, 0.03, random_state=0), 30),
    ],
)  # fmt: skip
def test_the_classes_of_a_graph_have_no_edge_inside(graph, most):
    graphs = Graphs({"g": sp.csr_matrix(graph)})
    n, classes = graphs.n_rows, np.asarray(graphs.classes)
    assert len(classes) <= most
    np.testing.assert_array_equal(np.sort(classes[classes < n]), np.arange(n))
    whole = graphs["g"].toarray()
    for rows in classes:
        rows = rows[rows < n]
        assert not whole[np.ix_(rows, rows)].any()
