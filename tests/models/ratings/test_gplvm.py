"""GP-LVM: objective and functions of the users by hand, its kernel, and a point that does not overfit."""

import jax
import jax.numpy as jnp
import numpy as np

import bayesfac as bf
from bayesfac.core.method import REGISTRY
from bayesfac.models.ratings import gplvm

METHOD = REGISTRY["gplvm"]


def golden(method):
    """The objective on a dense table with holes, and W as the means of Gaussian processes."""
    data, h = method.example(jax.random.key(3))
    p = method.init(jax.random.key(4), data, h)
    W, X, c, precision, alpha = (np.asarray(x, float) for x in p)
    z = X @ np.asarray(gplvm.frequencies(h), float).T
    F = np.hstack([np.ones((len(X), 1)), X, np.cos(z) / 2**0.5, np.sin(z) / 2**0.5])
    own = precision[[0, 1, 2, 3, 3, 3, 3]]
    y = np.full(data.shape, np.nan)
    y[data.user, data.item] = data.value - h.offset
    y -= c
    J = 0.5 * alpha * np.nansum((y - W @ F.T) ** 2) - 0.5 * len(data) * np.log(alpha)
    J += h.alpha_rate * alpha - (h.alpha_shape - 1) * np.log(alpha)
    J += 0.5 * np.sum(X**2) + 0.5 * np.sum(own * W**2) - 0.5 * len(W) * np.log(own).sum()
    J += 0.5 * precision[-1] * np.sum(c**2) - 0.5 * len(c) * np.log(precision[-1])
    J += np.sum(h.rate * precision - (h.shape - 1) * np.log(precision))
    np.testing.assert_allclose(method.objective(p, data, h), J, rtol=1e-10)
    law = method.gibbs.conditionals["W"](p, data, h)
    for i in range(len(W)):  # the kernel F L^-1 F' at what the user rated
        f = F[~np.isnan(y[i])]
        k = f / own @ f.T + np.eye(len(f)) / alpha
        mean = (f / own).T @ np.linalg.solve(k, y[i][~np.isnan(y[i])])
        np.testing.assert_allclose(law.mean[i], mean, rtol=1e-8)


def test_golden_step():
    golden(METHOD)


def test_the_waves_are_an_rbf_kernel():
    """Its error falls with the root of the number of frequencies."""
    h = gplvm.Hyper(2, 2000, length=1.3)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(6, 2)))
    waves = gplvm.features(x, h)[:, 3:]
    square = ((x[:, None] - x) ** 2).sum(-1)
    np.testing.assert_allclose(waves @ waves.T, np.exp(-square / (2 * 1.3**2)), atol=0.05)


def test_a_new_item_has_the_moments_of_its_prior():
    h = gplvm.Hyper(2, 3, length=1.0)
    mean, cov = gplvm.anywhere(h, jnp.zeros(1).dtype)
    draws = gplvm.features(jax.random.normal(jax.random.key(0), (200_000, 2)), h)
    np.testing.assert_allclose(draws.mean(0), mean, atol=0.012)
    np.testing.assert_allclose(np.cov(draws.T), cov, atol=0.02)


def test_gradients_descend_where_the_scales_are_held():
    ratings = bf.datasets.make_gaussian(30, 20, 2, seed=0)[0]
    fit = bf.fit("gplvm", ratings, bf.LBFGS(), n_components=2, progress=False)
    assert fit.trace[-1] < fit.trace[0]
    start = METHOD.solver.start(jax.random.key(0), ratings, fit.hyper)
    np.testing.assert_allclose(fit.params.precision, start.precision, rtol=1e-6)


def test_nuts_samples_functions_by_their_standard_normals():
    ratings = bf.datasets.make_gaussian(8, 6, 2, seed=0)[0]
    fit = bf.fit("gplvm", ratings, bf.NUTS(20, 20, 1), n_components=2, progress=False)
    assert fit.draws["W"].shape[1:] == (20, 8, len(gplvm.groups(fit.hyper)))
    assert len(np.unique(fit.draws["W"][0, :, 0, 0])) > 1
