"""New users and items: the prior's draws, compared with many draws, with products as wide as ten."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import norm

from bayesfac.core.data.cells import Query
from bayesfac.core.laws.ordinal import POINTS, points
from bayesfac.core.method import REGISTRY
from bayesfac.models.ratings.hmf import likelihood

N = 100_000
CASES = Query(np.array([-1, 2, -1]), np.array([1, -1, -1]))  # a new user, a new item, both


def case(name, **settings):
    method = REGISTRY[name]
    data, h = method.example(jax.random.key(0))
    p = method.init(jax.random.key(1), data, h)
    return method, h._replace(**settings), p


def products(rng, user, item, U, V):
    """Draws of u.v for each case; `user` and `item` draw rows of the priors."""
    for row, col in zip(CASES.row, CASES.col, strict=True):
        u = user(rng) if row < 0 else np.asarray(U[row])[None]
        v = item(rng) if col < 0 else np.asarray(V[col])[None]
        yield row, np.broadcast_to((u * v).sum(-1), N)


def normal(mean, cov):
    return lambda rng: rng.multivariate_normal(mean, cov, N)


def with_one(row, scale, one):
    """Rows of a prior with a bias, N(0, scale^2), and a column of ones, the first if `one` is 0."""

    def draw(rng):
        bias, ones = scale * rng.normal(size=(N, 1)), np.ones((N, 1))
        return np.hstack([row(rng), *((ones, bias) if one == 0 else (bias, ones))])

    return draw


def joined(p, q=...):
    """Factors of users with 1 and their biases, and of items with their biases and 1."""
    U, V, b, c = (np.asarray(x)[q] for x in (p.U, p.V, p.bias_user, p.bias_item))
    one = np.ones_like
    return np.c_[U, one(b), b], np.c_[V, c, one(c)]


def test_the_points_have_the_normals_moments():
    found = points(12)
    assert found.shape == (POINTS, 12)
    np.testing.assert_allclose(found.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(np.cov(found.T), np.eye(12), atol=0.15)
    np.testing.assert_allclose(expit(10 * found[:, 0] + 5).mean(), 0.6887, atol=2e-3)


@pytest.mark.parametrize("sd", [1.0, 10.0])
def test_mmmf_draws_products_and_thresholds(sd):
    """New rows of sd sd^(1/2) in two components, and thresholds of a new user as wide as ten."""
    mmmf, h, p = case("mmmf", penalty=1 / sd, scale_theta=10.0, scale_bias=2.0)
    found = np.asarray(mmmf.predict(p, CASES, h).probs)
    rng = np.random.default_rng(0)
    row = normal(np.zeros(2), sd * np.eye(2))
    centre = np.array(h.centres)
    bias = iter((np.asarray(p.bias_item)[1], *(h.scale_bias * rng.normal(size=N) for _ in "ab")))
    for (user, x), mine in zip(products(rng, row, row, p.U, p.V), found, strict=True):
        x = x + next(bias)
        shape = (N, 3) if user < 0 else (1, 3)
        theta = centre + 10 * rng.normal(size=shape) if user < 0 else np.asarray(p.theta[user])
        loss = np.empty((N, 4))
        for level in range(4):
            z = np.where(np.arange(3) < level, -1, 1) * (theta - x[:, None])
            hinge = np.where(z > 1, 0, np.where(z < 0, 0.5 - z, 0.5 * (1 - z) ** 2))
            loss[:, level] = hinge.sum(1)
        each = np.exp(loss.min(1, keepdims=True) - loss)
        np.testing.assert_allclose(mine, (each / each.sum(1, keepdims=True)).mean(0), atol=0.02)


def test_the_stages_of_hmf_are_independent():
    """A new pair: each stage has draws of its own, so that the levels in the middle lose nothing."""
    hmf, h, p = case("hmf", penalty=(0.2, 0.2, 0.2))
    found = np.asarray(hmf.predict(p, CASES, h).probs)
    rng = np.random.default_rng(0)
    row = normal(np.zeros(2), 5 * np.eye(2))
    sides = with_one(row, h.scale_bias, 0), with_one(row, h.scale_bias, 1)
    stages = [list(products(rng, *sides, *joined(p, q))) for q in range(3)]
    for number, mine in enumerate(found):
        x = jnp.asarray(np.stack([stage[number][1] for stage in stages], -1)) + np.array(h.offset)
        expected = np.asarray(likelihood(x, h).levels().probs).mean(0)
        np.testing.assert_allclose(mine, expected, atol=0.02)


def test_ordinal_mf_draws_thresholds_of_new_users():
    ordinal, h, p = case("ordinal_mf", scale_shift=3.0, scale_gap=0.8)
    found = np.asarray(ordinal.predict(p, CASES, h).probs)
    rng = np.random.default_rng(0)
    sides = [
        normal(np.asarray(mu), np.linalg.inv(np.asarray(L, float)))
        for mu, L in ((p.mu_U, p.Lambda_U), (p.mu_V, p.Lambda_V))
    ]
    for (user, x), mine in zip(products(rng, *sides, p.U, p.V), found, strict=True):
        t = np.asarray(p.centre) + np.array([3.0, 0.8, 0.8]) * rng.normal(size=(N, 3))
        theta = np.cumsum(np.concatenate([t[:, :1], np.exp(t[:, 1:])], 1), 1)
        theta = theta if user < 0 else np.asarray(p.theta[user])[None]
        below = norm.cdf(theta - x[:, None])
        each = np.diff(np.concatenate([np.zeros((N, 1)), below, np.ones((N, 1))], 1), axis=1)
        np.testing.assert_allclose(mine, each.mean(0), atol=0.015)
