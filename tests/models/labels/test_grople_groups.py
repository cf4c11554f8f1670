"""Groups of labels, columns that are on or off for a group, shrinkages, and steps that never climb."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from bayesfac.core.kernels.lasso import soft
from bayesfac.labels.models.labels import _grople_groups as label_groups
from bayesfac.labels.models.labels import _grople_steps as steps


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def lengths_of(V, groups):
    """|V[group, column]|, groups x columns."""
    groups = np.asarray(groups)
    return np.array([np.sqrt((V[groups == k] ** 2).sum(0)) for k in range(groups.max() + 1)])


# -- shrinkages ---------------------------------------------------------------------------------
def test_shrinkages_are_the_minimum_of_what_they_claim():
    rng = np.random.default_rng(0)
    V, groups, t = rng.normal(size=(5, 3)), (0, 1, 0, 1, 1), np.array([0.3, 1.2, 9.0])
    z = np.asarray(label_groups.shrink(V, groups, t))
    assert (z[:, 2] == 0).all() and (z[:, 0] != 0).all()
    s = np.asarray(soft(V, 0.5))
    assert ((s == 0) == (np.abs(V) <= 0.5)).all()
    group = lambda W: ((W - V) ** 2).sum() / 2 + (t * lengths_of(W, groups)).sum()  # noqa: E731
    lasso = lambda W: ((W - V) ** 2).sum() / 2 + 0.5 * np.abs(W).sum()  # noqa: E731
    for best, cost in ((z, group), (s, lasso)):
        for size in (1e-3, 1e-1, 1.0):
            assert all(cost(best + size * rng.normal(size=V.shape)) > cost(best) for _ in range(50))


def test_a_group_laplace_law_has_gamma_lengths():
    """Mean m / w and variance m / w^2 of a group of m labels; directions in balance."""
    law = label_groups.GroupLaplace((0, 1, 0, 0), 2, 1.5)
    draws = np.asarray(law.sample(jax.random.key(0), (40_000,)))
    assert draws.shape == (40_000, 4, 2)
    size = np.sqrt((draws[:, [0, 2, 3]] ** 2).sum(1))
    error = np.sqrt(3) / 1.5 / np.sqrt(40_000)
    np.testing.assert_allclose(size.mean(0), 3 / 1.5, atol=5 * error)
    np.testing.assert_allclose(size.var(0), 3 / 1.5**2, rtol=0.1)
    np.testing.assert_allclose(draws.mean(0), 0, atol=5 * draws.std() / 200)
    np.testing.assert_allclose(
        law.log_prob(draws[:2]), [-1.5 * lengths_of(v, law.groups).sum() for v in draws[:2]]
    )


def test_at_zero_norms_have_a_slope_of_zero():
    slope = jax.grad(lambda V: jnp.sum(label_groups.norms(V, (0, 0, 1))))(jnp.zeros((3, 2)))
    assert (np.asarray(slope) == 0).all()


# -- groups ------------------------------------------------------------------------------------
def test_planted_groups_of_labels_are_found():
    """Labels of a group follow the same direction, up to noise; they stand in any order."""
    rng = np.random.default_rng(0)
    truth = rng.permutation(np.repeat([0, 1, 2], 5))
    x = rng.normal(size=(300, 3))[:, truth]
    y = (x + 0.4 * rng.normal(size=x.shape) > 0.5).astype(float)
    assert label_groups.spectral_groups(y, 3) == label_groups.in_order(truth)


def test_groups_know_neither_the_order_of_rows_nor_of_labels():
    rng = np.random.default_rng(0)
    y = (rng.random((60, 12)) < rng.uniform(0.05, 0.6, 12)).astype(float)  # nothing to find
    found = np.asarray(label_groups.spectral_groups(y, 4))
    for seed in range(3):
        rng = np.random.default_rng(seed)
        rows, labels = rng.permutation(60), rng.permutation(12)
        again = label_groups.spectral_groups(sp.csc_matrix(y[rows][:, labels]), 4)
        assert again == label_groups.in_order(found[labels])


def test_empty_and_equal_labels_have_a_group():
    y = np.zeros((8, 6))
    y[:3, 1] = y[:3, 4] = y[5, 2] = 1
    found = label_groups.spectral_groups(y, 3)
    assert found[1] == found[4] and found[0] == found[3] == found[5]
    assert max(label_groups.spectral_groups(np.zeros((4, 3)), 3)) < 3
    assert label_groups.spectral_groups(np.ones((4, 1)), 1) == (0,)


def test_a_column_that_never_varies_has_no_correlation():
    """A constant leaves only rounding about its mean: that has no direction."""
    U = jnp.asarray(np.c_[np.full(9, 0.1), np.arange(9.0), np.arange(9.0) ** 2])
    R = steps.unlike_columns(U, jnp.ones((9, 1)))
    np.testing.assert_allclose(R[0], [0, 1, 1], atol=1e-15)
    np.testing.assert_allclose(R[1, 2], 1 - np.corrcoef(U[:, 1], U[:, 2])[0, 1], rtol=1e-12)
