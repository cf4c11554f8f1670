"""skeleton_counts: one sweep computed by hand, and what the paper claims."""

import jax
import numpy as np

import bayesfac as bf
from bayesfac.core.method import REGISTRY

METHOD = REGISTRY["skeleton_counts"]


def golden(method):
    """One sweep on the example, on the table with its zeros."""
    data, h = method.example(jax.random.key(3))
    p = method.init(jax.random.key(4), data, h)
    table = np.zeros(data.shape)
    table[data.user, data.item] = data.value
    beta = np.exp(np.asarray(p.log_beta))
    theta = (h.shape_user + table.sum(1)) / (h.shape_user + beta.sum())
    beta = (h.shape_item + table.sum(0)) / (h.shape_item / h.mean + theta.sum())
    new = method.solver.update(p, data, h)
    np.testing.assert_allclose(np.exp(new.log_theta), theta, rtol=1e-5)
    np.testing.assert_allclose(np.exp(new.log_beta), beta, rtol=1e-5)


def test_golden_step():
    golden(METHOD)


def test_with_weak_priors_expected_counts_are_products_of_the_totals():
    table = np.random.default_rng(0).poisson(3.0, (6, 5)) + 1
    fit = bf.fit(METHOD, bf.Counts(table), shape_user=1e-3, shape_item=1e-3, progress=False)
    expected = np.outer(table.sum(1), table.sum(0)) / table.sum()
    np.testing.assert_allclose(fit.everywhere().mean, expected, rtol=1e-2)
