"""skeleton_topics: one sweep computed by hand, and what the paper claims."""

import jax
import numpy as np

from bayesfac.core.method import REGISTRY

METHOD = REGISTRY["skeleton_topics"]


def golden(method):
    """One EM step on the example, with the posterior of every word's topic as a dense table."""
    data, h = method.example(jax.random.key(3))
    p = method.init(jax.random.key(4), data, h)
    (view,) = data.names
    joint = np.einsum("ik,kw->iwk", p.A, p.C)
    counts = data[view].toarray()[:, :, None] * joint / joint.sum(2, keepdims=True)
    A, C = h.a - 1 + counts.sum(1), h.c - 1 + counts.sum(0).T
    new = method.solver.update(p, data, h)
    np.testing.assert_allclose(new.A, A / A.sum(1, keepdims=True), rtol=1e-10)
    np.testing.assert_allclose(new.C, C / C.sum(1, keepdims=True), rtol=1e-10)


def test_golden_step():
    golden(METHOD)


def test_with_flat_priors_one_topic_is_the_share_of_each_word():
    data, h = METHOD.example(jax.random.key(0))
    h = h._replace(n_components=1, a=1.0, c=1.0)
    new = METHOD.solver.update(METHOD.init(jax.random.key(1), data, h), data, h)
    (view,) = data.names
    words = data[view].toarray().sum(0)
    np.testing.assert_allclose(new.C[0], words / words.sum(), rtol=1e-10)
