"""The guide of rows: its linear map, and widths that mean field cannot have. The curvature of Laplace's."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.flatten_util import ravel_pytree
from numpyro.infer import SVI, Trace_ELBO, init_to_value

from bayesfac.core.method import log_joint, lookup
from bayesfac.inference.unconstrained import constrain, supports, unconstrain
from bayesfac.inference.variational.guides import Blocks, Rows, curvature

MIXED = jnp.array([[1.0, 0.8], [0.8, 1.0]])


def blocks(key):
    first, second, third = jax.random.split(key, 3)
    roots = jnp.tril(jax.random.normal(first, (3, 2, 2))) + 2 * jnp.eye(2)
    widths = jnp.exp(jax.random.normal(second, (4,)))
    return Blocks(jax.random.normal(third, (10,)), (roots, widths), ((3, 2), (4,)))


def test_the_map_of_rows_is_the_matrix_of_its_blocks():
    with jax.enable_x64(True):
        there = blocks(jax.random.key(0))
        x = jax.random.normal(jax.random.key(1), (5, 10))
        dense = jax.jacobian(there)(x[0])
        np.testing.assert_allclose(there(x), there.loc + x @ dense.T, rtol=1e-12)
        np.testing.assert_allclose(there._inverse(there(x)), x, rtol=1e-9)
        log_det = jnp.linalg.slogdet(dense)[1]
        np.testing.assert_allclose(there.log_abs_det_jacobian(x, there(x)), log_det, rtol=1e-12)


def test_rows_have_the_covariance_of_their_posterior():
    """Rows that are normal with correlated numbers: the guide can be exact, and mean field is too narrow."""

    def model():
        with numpyro.plate("users", 3):
            numpyro.sample("U", dist.MultivariateNormal(jnp.ones(2), MIXED))
        numpyro.sample("noise", dist.LogNormal(0.0, 0.5))

    start = init_to_value(values={"U": jnp.zeros((3, 2)), "noise": jnp.ones(())})
    guide = Rows(model, init_loc_fn=start)
    rate = numpyro.optim.Adam(lambda step: 0.03 * 0.01 ** (step / 1500))
    svi = SVI(model, guide, rate, Trace_ELBO(num_particles=16))
    params = svi.run(jax.random.key(0), 1500, progress_bar=False).params
    root = params["auto_root_U"]
    np.testing.assert_allclose(root @ jnp.swapaxes(root, 1, 2), [MIXED] * 3, atol=0.1)
    np.testing.assert_allclose(params["auto_root_noise"], 0.5, atol=0.05)
    np.testing.assert_allclose(guide.median(params)["U"], 1, atol=0.15)


@pytest.mark.parametrize("name", ["ltm", "cp", "heres"])
def test_laplace_finds_the_curvature_of_loops_and_graphs(name):
    """They have slopes of their own, through which forward mode does not pass."""
    method = lookup(name)
    data, hyper = method.example(jax.random.key(0))
    p = method.init(jax.random.key(1), data, hyper)
    maps = supports(method, data, hyper, p)
    x, restore = ravel_pytree(unconstrain(maps, p))

    def energy(x):
        return -log_joint(method, constrain(method, maps, restore(x)), data, hyper)

    found, slope = jax.jit(lambda x: curvature(energy, x))(x), jax.jit(jax.grad(energy))
    step = 1e-5 * jnp.eye(len(x))
    expected = [(slope(x + h) - slope(x - h)) / 2e-5 for h in step]
    np.testing.assert_allclose(found, jnp.stack(expected), rtol=1e-5, atol=1e-5)
