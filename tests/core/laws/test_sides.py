"""The rows of all modes of a tensor in tables of one size: the same steps as with a table for each mode."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.kernels import sparse
from bayesfac.core.laws import empirical_bayes as bayes
from bayesfac.core.laws import sides as laws
from bayesfac.core.method import REGISTRY
from bayesfac.core.multilinear import at, evened, in_turn, multiplied, put

CP = REGISTRY["cp"]


def both_forms(K=3):
    """A tensor, its settings, and cells and sides of each form, with made-up moments in all true rows."""
    data, _ = bf.datasets.make_tensor((7, 2, 5, 3), 2, density=0.5, seed=0)
    rng, h = np.random.default_rng(1), CP.prepare(data, CP.Hyper(K))
    root = rng.normal(size=(4, 7, K, K)) / 3
    cov, mean = (
        root @ root.swapaxes(-1, -2),
        rng.normal(size=(4, 7, K)),
    )  # also in rows that fill up
    mu, precision = jnp.asarray(rng.normal(size=(4, K))), jnp.asarray(cov[:, 0] + np.eye(K))
    even = laws.sides_of(jnp.asarray(mean), jnp.eye(K), data.shape)
    even = even._replace(cov=jnp.asarray(cov), mu=mu, precision=precision)
    listed = [
        laws.Side(side.mean[:n], side.cov[:n], side.mu, side.precision)
        for n, side in ((n, at(even, m)) for m, n in enumerate(data.shape))
    ]
    return data, h, (data.cells, listed), (evened(data.cells), even)


def steps(data, h, cells, sides):
    """Everything that sweeps compute, with the rows of all modes in turn."""

    def renewed(m, sides):
        sides = put(sides, m, laws.prior_of(at(sides, m), None, h, 2))
        return laws.rows_of(m, None, cells, None, sides, data.y, jnp.linspace(1, 2, len(data)))

    new = in_turn(renewed, sides, cells)
    biases = bayes.biases(cells, data.y - data.y.mean())
    found = [at(new, m) for m in range(4)], [at(biases, m) for m in range(4)]
    doubts = laws.doubts(new, data.y**2, cells)
    products = laws.moments(new, cells), multiplied(laws.means(new), cells)
    return *found, [at(doubts, m) for m in range(4)], products


@pytest.mark.parametrize("loops", ["numba", "jax"])
def test_tables_of_one_size_have_the_same_steps(loops):
    data, h, listed, even = both_forms()
    h = h._replace(modes=None, scales=None)  # a program takes numbers alone
    with sparse.use(loops):
        one, two = (jax.jit(steps)(data, h, *form) for form in (listed, even))
    for m, n in enumerate(data.shape):
        for mine, theirs in zip(one[:3], two[:3], strict=True):
            for x, y in zip(jax.tree.leaves(mine[m]), jax.tree.leaves(theirs[m]), strict=False):
                np.testing.assert_allclose(x, y[: len(x)], rtol=1e-9, atol=1e-12)
        assert len(one[0][m].mean) == n
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-9), one[3], two[3])


def test_a_large_tensor_has_a_table_for_each_mode(monkeypatch):
    """Both forms end at the same scales from the same start."""
    data, h, (cells, listed), (tables, even) = both_forms(2)
    observe = bayes.normal(data.y - h.offset, h.alpha_shape, h.alpha_rate)
    monkeypatch.setattr(bayes, "DRAWS", 0)  # random rows differ
    found = []
    for cells_of, sides in ((cells, listed), (tables, even)):
        problem = bayes.Problem(cells_of, (None,) * 4, h, observe)
        own = jnp.asarray(1.0), jnp.asarray(0.0)
        end, own = jax.jit(lambda s, p=problem, o=own: bayes.estimated([s, s], p, o))(sides)
        found.append(([(at(end, m).mu, at(end, m).precision) for m in range(4)], own))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-8), *found)
