"""skeleton_method: one sweep computed by hand, and what the paper claims."""

import jax
import jax.numpy as jnp
import numpy as np

import bayesfac as bf
from bayesfac.core.method import REGISTRY

METHOD = REGISTRY["skeleton_method"]


def golden(method):
    """One sweep on the example, row by row, on a dense table with holes."""
    data, h = method.example(jax.random.key(3))
    p = method.init(jax.random.key(4), data, h)
    y = np.full(data.shape, np.nan)
    y[data.user, data.item] = data.value - h.offset
    known, c = ~np.isnan(y), np.array(p.c)
    b = np.nansum(y - c, 1) / (known.sum(1) + (h.noise / h.scale_user) ** 2)
    c = np.nansum(y - b[:, None], 0) / (known.sum(0) + (h.noise / h.scale_item) ** 2)
    new = method.solver.update(p, data, h)
    np.testing.assert_allclose(new.b, b, rtol=1e-10)
    np.testing.assert_allclose(new.c, c, rtol=1e-10)


def test_golden_step():
    golden(METHOD)


def test_weak_priors_on_a_full_table_give_the_means_of_rows_and_columns():
    y = np.random.default_rng(0).normal(size=(6, 5))
    data = bf.Ratings(y)
    h = METHOD.prepare(data, METHOD.Hyper(noise=1.0, scale_user=1e4, scale_item=1e4))
    p = METHOD.solver.update(METHOD.Params(jnp.zeros(6), jnp.zeros(5)), data, h)
    expected = y.mean(1)[:, None] + y.mean(0) - y.mean()
    np.testing.assert_allclose(h.offset + np.add.outer(p.b, p.c), expected, atol=1e-6)
