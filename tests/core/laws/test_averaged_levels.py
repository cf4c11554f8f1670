"""Levels of new users and items: averaged over the prior apart from known cells."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.laws import ordinal
from bayesfac.core.laws.ordinal import Levels, averaged

SD = 2.0


def law(cells):
    """Two levels, the second with probability Phi(x); of a new user x is normal with sd 2."""
    x, new = jnp.asarray(cells.col) / 10.0, jnp.asarray(cells.row) < 0

    def at(point):
        score = jnp.where(new, x + SD * point[0], x)
        log_p = jnp.stack([jax.scipy.stats.norm.logcdf(s * score) for s in (-1, 1)], -1)
        return Levels((0.0, 1.0), log_p)

    return at(jnp.zeros(1)), at


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 300])
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_only_new_cells_are_averaged_however_many_there_are(n, share):
    rng = np.random.default_rng(0)
    row, col = np.where(rng.random(n) < share, -1, 3), rng.integers(0, 20, n)
    found = jax.jit(lambda row, col: averaged(law, 1, Query(row, col)).probs[:, 1])(row, col)
    sd = np.where(row < 0, (1 + SD**2) ** 0.5, 1)  # a normal score in Phi is Phi of a smaller one
    exact = jax.scipy.stats.norm.cdf(col / 10 / sd)
    np.testing.assert_allclose(found, exact, atol=2e-4)


def test_known_cells_keep_the_rule_of_the_method_and_a_grid_has_no_new_cells():
    query = Query(np.array([0, -1]), np.array([10, 10]))
    assert averaged(law, 1, query, jnp.array([0, 0])).choice.tolist() == [0, 1]
    grid = Grid(np.array([0, 1]), np.array([10, 10]))
    assert jnp.array_equal(averaged(law, 1, grid).probs, law(grid)[0].probs)


def test_few_new_cells_cost_little():
    """The work of averaging is that of the new cells: one call of the law for `TOGETHER` of them."""
    seen = []

    def counted(cells):
        jax.debug.callback(lambda x: seen.append(x.shape[0]), jnp.asarray(cells.col))
        return law(cells)

    row = np.zeros(1000, int)
    row[[5, 700]] = -1
    jax.jit(lambda row: averaged(counted, 1, Query(row, jnp.arange(1000))).probs)(row)
    jax.effects_barrier()
    assert sorted(seen) == [ordinal.TOGETHER, 1000]


@pytest.mark.parametrize("method", ["ordinal_mf", "hmf", "attitude", "pmmmf", "ipmmmf"])
def test_a_prediction_does_not_depend_on_the_other_cells(method):
    data = bf.datasets.make_ratings(30, 20, 2, seed=0)
    engine = bf.FixedPoint(5) if method == "ipmmmf" else bf.LBFGS(5)
    with pytest.warns(bf.ConvergenceWarning):
        fit = bf.fit(method, data, engine, n_components=2, progress=False)
    users, items = (labels.ravel() for labels in np.meshgrid(np.arange(33), np.arange(22)))
    whole = fit.predict((users, items))
    for at in (0, 31, 20 * 33 + 5, 21 * 33 + 32):
        alone = fit.predict((users[[at]], items[[at]]))
        np.testing.assert_allclose(whole.probabilities[at], alone.probabilities[0], atol=1e-6)
        assert whole.level[at] == alone.level[0]


def test_the_variance_of_levels_far_from_zero():
    """Years, in single precision: the difference of two squares would have no correct digit."""
    logits = jnp.log(jnp.array([[0.1, 0.2, 0.4, 0.2, 0.1]], jnp.float32))
    near, far = (Levels(tuple(np.arange(5.0) + first), logits) for first in (1, 2001))
    np.testing.assert_allclose(far.variance, near.variance, rtol=1e-4)
