"""The variational law of Dirichlet rows."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from bayesfac.core.laws import dirichlet_rows


@pytest.fixture
def belief():
    return {"conc": jnp.array([[0.7, 2.0, 5.0], [1.1, 0.4, 9.0]])}


def test_flatter_rows_keep_their_means_and_have_sds_larger_by_the_factor(belief):
    old, new = (
        dist.Dirichlet(law["conc"]) for law in (belief, dirichlet_rows.flatter(belief, 1.2))
    )
    np.testing.assert_allclose(new.mean, old.mean, rtol=1e-12)
    np.testing.assert_allclose(new.variance, 1.2**2 * old.variance, rtol=1e-12)


def test_the_covariance_of_logarithms_and_its_inverse(belief):
    """V is the Hessian of log B(conc), the second derivative of the normaliser."""
    d = jnp.array([[0.3, -1.0, 2.0], [0.5, 0.1, -0.2]])

    def normaliser(conc):
        return jnp.sum(jax.scipy.special.gammaln(conc)) - jax.scipy.special.gammaln(jnp.sum(conc))

    V = jax.vmap(jax.hessian(normaliser))(belief["conc"])
    np.testing.assert_allclose(
        dirichlet_rows._spread(belief, d), jnp.einsum("nkl,nl->nk", V, d), rtol=1e-9
    )
    back = dirichlet_rows._precise(belief, dirichlet_rows._spread(belief, d))
    np.testing.assert_allclose(back, d, rtol=1e-9)
