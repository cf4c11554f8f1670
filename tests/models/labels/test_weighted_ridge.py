"""Ridge systems of many columns, each with a weight of its own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesfac.core.kernels import sparse
from bayesfac.labels.data.tasks import Tasks
from bayesfac.labels.models.labels import _embedding as embedding


@pytest.mark.parametrize("features", [6, 1000], ids=["eigenvectors", "conjugate gradients"])
@pytest.mark.parametrize("backend", ["numba", "jax"])
def test_every_column_solves_its_own_system(features, backend):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, features)), np.ones((30, 1))
    x[rng.random(x.shape) < 0.5] = 0
    y[20:] = np.nan  # rows without labels stay out
    data, right = Tasks({"v": x}, y), rng.normal(size=(features, 3))
    weight = np.array([1.0, 5.0, 0.0])
    assert embedding.few_features(data) == (features == 6)  # both ways are taken
    with sparse.use(backend):
        found = embedding.ridge(data, jnp.asarray(right), 0.5, jnp.asarray(weight))
    for w, column, answer in zip(weight, right.T, np.asarray(found).T, strict=True):
        system = w * x[:20].T @ x[:20] + 0.5 * np.eye(features)
        np.testing.assert_allclose(answer, np.linalg.solve(system, column), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("features", "table"), [(20, True), (100, True), (300, False)])
def test_a_square_table_is_made_where_it_is_small_or_fast(features, table):
    """400 cells: 20^2 of them are no more than twice as many, and up to 200^3 takes less time."""
    x = np.zeros((400, features))
    x[np.arange(400), np.arange(400) % features] = 1
    assert embedding.few_features(Tasks({"v": x}, np.ones((400, 1)))) == table


def test_a_system_that_is_zero_has_the_answer_zero():
    zero = jnp.zeros((4, 2))
    found = jax.jit(lambda b: embedding.conjugate(lambda W: W, b, jnp.ones((4, 1))))(zero)
    np.testing.assert_array_equal(found, zero)
