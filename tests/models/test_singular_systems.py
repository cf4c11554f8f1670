"""What single precision cannot tell from a singular system, or from a column of zeros."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core import events
from bayesfac.core.math import factor
from bayesfac.labels.models.labels import _grople_steps as steps
from bayesfac.labels.models.tasks._row_groups import alone

pytestmark = pytest.mark.filterwarnings("ignore::bayesfac.core.errors.ConvergenceWarning")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [1e-12, 1.0, 1e12])
def test_a_definite_matrix_is_left_as_it_is(dtype, size):
    A = np.random.default_rng(0).normal(size=(5, 8))
    P = jnp.asarray(size * A @ A.T, dtype)
    with events.listen() as heard:
        np.testing.assert_array_equal(factor(P), jnp.linalg.cholesky(P))
    assert not sum(heard.values())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [1e-12, 1.0, 1e12])
def test_a_singular_one_gets_the_least_ridge_and_says_so(dtype, size):
    A = np.random.default_rng(0).normal(size=(8, 3))
    P = jnp.asarray(size * A @ A.T, dtype)
    assert jnp.isnan(jnp.linalg.cholesky(P)).any(), "or this test shows nothing"
    with events.listen() as heard:
        L = jax.jit(lambda P: factor(P))(
            P
        )  # a function of its own: who listens is asked when traced
        jax.effects_barrier()
    eps = float(jnp.finfo(P.dtype).eps)
    np.testing.assert_allclose(L @ L.T, P, rtol=0, atol=1e4 * eps * float(jnp.abs(P).max()))
    assert [*heard.values()] == [1] and "singular" in next(iter(heard))


def test_no_ridge_mends_a_matrix_that_is_broken():
    assert jnp.isnan(factor(jnp.full((3, 3), jnp.nan))).any()
    assert jnp.isnan(factor(-jnp.eye(3))).any()


def test_a_draw_is_never_of_another_system():
    """A solver is told of a ridge; a sampler would draw from another law, and nobody would know."""
    A = np.random.default_rng(0).normal(size=(8, 3))
    law = alone(jnp.ones((2, 8)), jnp.asarray(A @ A.T))
    assert jnp.isfinite(law.mean).all()
    assert jnp.isnan(law.sample(jax.random.key(0))).any()


def test_columns_of_rounding_have_no_correlations():
    rng = np.random.default_rng(0)
    U = np.hstack([rng.normal(size=(30, 2)), 1e-17 * rng.normal(size=(30, 2))])
    known = jnp.ones((30, 1), "float32")

    def likeness(U):
        return jnp.sum(steps.unlike_columns(U, known) ** 2)

    slope = jax.grad(likeness)(jnp.asarray(U, "float32"))
    assert jnp.isfinite(slope).all() and float(jnp.abs(slope[:, 2:]).max()) == 0
    wide = jax.grad(likeness)(jnp.asarray(U / [1, 1, 1e-17, 1e-17], "float32"))
    assert jnp.isfinite(wide).all() and float(jnp.abs(wide[:, 2:]).max()) > 0


def test_a_narrow_view_alone_is_fitted_exactly_in_single_precision():
    """More columns than features, and weights from the noise: B'B has rank 4 of 8, times a huge weight."""
    rng = np.random.default_rng(0)
    x = rng.dirichlet(np.full(4, 0.1), 80)
    y = (x[:, :3] > 0.3).astype(float)
    with jax.enable_x64(False):
        data = bf.Tasks({"topics": x}, y)
        given = {"noise": True, "n_components": 8, "weight": 100.0, "alignment": 0.0}
        fit = bf.fit("lsa_mml", data, bf.FixedPoint(60, tol=1e-6), progress=False, **given)
    assert all(np.isfinite(np.asarray(x)).all() for x in jax.tree.leaves(fit.params))
    assert np.isfinite(fit.trace).all()
