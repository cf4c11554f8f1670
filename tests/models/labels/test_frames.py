"""Frames: the root and its derivatives where eigenvalues coincide, the polar factor, and the law of A."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import fractional_matrix_power

from bayesfac.labels.models.labels._frames import (
    Frame,
    inverse_root,
    leading,
    lyapunov,
    nearest,
    polar,
    turned,
)


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def normal(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def spd(K, seed=0):
    A = normal(K + 2, K, seed=seed)
    return A.T @ A


SPECTRA = {
    "distinct": np.array([0.3, 1.0, 4.0]),
    "one twice": np.array([2.0, 2.0, 0.5]),
    "identity": np.ones(3),
}


@pytest.mark.parametrize("spectrum", SPECTRA)
def test_the_root_and_both_its_derivatives(spectrum):
    """Also where eigenvalues coincide, and the derivatives of eigenvectors are infinite."""
    Q = np.linalg.qr(normal(3, 3))[0]
    S = jnp.asarray((Q * SPECTRA[spectrum]) @ Q.T)
    np.testing.assert_allclose(inverse_root(S), fractional_matrix_power(S, -0.5), atol=1e-12)
    E = spd(3, 1) / 9
    F = spd(3, 2) / 9

    def along(t, u):
        return inverse_root(S + t * E + u * F)

    h = 1e-5
    slope = (along(h, 0) - along(-h, 0)) / (2 * h)
    np.testing.assert_allclose(
        jax.jvp(lambda t: along(t, 0.0), (0.0,), (1.0,))[1], slope, atol=1e-8
    )
    G = normal(3, 3, seed=3)
    back = jax.grad(lambda S: jnp.sum(G * inverse_root(S)))(S)  # in reverse
    np.testing.assert_allclose(jnp.sum(back * E), jnp.sum(G * slope), atol=1e-8)
    bend = jax.jacfwd(jax.grad(lambda t, u: jnp.sum(G * along(t, u))), 1)(0.0, 0.0)
    h = 1e-4
    corners = along(h, h) - along(h, -h) - along(-h, h) + along(-h, -h)
    np.testing.assert_allclose(bend, jnp.sum(G * corners) / (4 * h * h), rtol=1e-5)


def test_the_equation_of_lyapunov():
    R, C = spd(4), normal(4, 4, seed=1)
    X = lyapunov(R, C)
    np.testing.assert_allclose(R @ X + X @ R, C, atol=1e-10)


def test_a_frame_is_orthonormal_turns_along_and_is_the_nearest():
    A, R = normal(7, 3), np.linalg.qr(normal(3, 3, seed=1))[0]
    Q = polar(A)
    np.testing.assert_allclose(Q.T @ Q, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(polar(A @ R), Q @ R, atol=1e-12)
    np.testing.assert_allclose(polar(Q), Q, atol=1e-12)
    np.testing.assert_allclose(nearest(A), Q, atol=1e-12)
    best = jnp.sum(Q * A)
    for seed in range(20):
        assert jnp.sum(polar(Q + 0.1 * normal(7, 3, seed=seed + 10)) * A) < best
    short = A.at[:, 2].set(A[:, 0])  # of rank two
    found = nearest(short)
    np.testing.assert_allclose(found.T @ found, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(jnp.sum(found * short), jnp.linalg.norm(short, "nuc"), rtol=1e-12)


def test_leading_eigenvectors_turned_to_others():
    S, like = spd(5), normal(5, 2, seed=1)
    V = leading(S, 2)
    np.testing.assert_allclose(S @ V, V * np.linalg.eigvalsh(S)[:-3:-1], atol=1e-10)
    near = turned(V, like)
    np.testing.assert_allclose(near @ near.T, V @ V.T, atol=1e-12)
    np.testing.assert_allclose(turned(V * jnp.asarray([1, -1]), like), near, atol=1e-12)
    gaps = [jnp.sum((V @ np.linalg.qr(normal(2, 2, seed=i))[0] - like) ** 2) for i in range(50)]
    assert jnp.sum((near - like) ** 2) < min(gaps)


@pytest.mark.parametrize("nu", [1.0, 3.0])
def test_the_law_is_that_of_its_density(nu):
    """Normal matrices weighted by |A'A|^(nu/2) have Frame's density: their moments are the sampler's, and
    those of a Wishart with nu + rows degrees of freedom and scale I / nu."""
    rows, K, draws = 6, 2, 50_000
    law = Frame(rows, K, nu)
    A = jax.random.normal(jax.random.key(0), (draws, rows, K)) / nu**0.5
    log = law.log_prob(A) + 0.5 * nu * jnp.sum(A**2, (1, 2))  # over the normal density
    share = np.asarray(jax.nn.softmax(log))
    grams = np.einsum("sik,sil->skl", A, A)
    effective = 1 / np.sum(share**2)
    assert effective > 5_000
    B = np.asarray(law.sample(jax.random.key(1), (draws,)))
    own = np.einsum("sik,sil->skl", B, B)
    mean, dof = (nu + rows) / nu * np.eye(K), nu + rows
    sd = np.sqrt(dof * (np.eye(K) + 1)) / nu  # of a Wishart's entries
    for got, size in ((np.einsum("s,skl->kl", share, grams), effective), (own.mean(0), draws)):
        assert (np.abs(got - mean) < 5 * sd / np.sqrt(size)).all()
    np.testing.assert_allclose(own.std(0), sd, rtol=0.05)
    spread = np.einsum("s,skl->kl", share, (grams - mean) ** 2)
    np.testing.assert_allclose(np.sqrt(spread), sd, rtol=0.1)


def test_frames_of_its_draws_are_uniform():
    """E QQ' = K / rows I, every entry squared is Beta(1/2, (rows - 1)/2), and Q knows nothing of A'A."""
    rows, K = 5, 2
    A = np.asarray(Frame(rows, K).sample(jax.random.key(0), (40_000,)))
    Q = np.asarray(jax.vmap(polar)(A))
    np.testing.assert_allclose(
        np.einsum("sik,sjk->ij", Q, Q) / len(Q), K / rows * np.eye(rows), atol=0.01
    )
    np.testing.assert_allclose(np.mean(Q**4), 3 / (rows * (rows + 2)), rtol=0.02)
    assert np.abs(Q.mean(0)).max() < 5 / np.sqrt(rows * len(Q))
    size = np.linalg.norm(A, axis=(1, 2))
    assert abs(np.corrcoef(size, Q[:, 0, 0] ** 2)[0, 1]) < 0.025
    assert Frame(rows, K).sample(jax.random.key(0)).shape == (rows, K)


def test_the_mode_is_a_frame():
    law, Q = Frame(5, 2), polar(normal(5, 2))
    assert abs(law.log_prob(Q)) < 1e-12 and np.abs(jax.grad(law.log_prob)(Q)).max() < 1e-12
    for seed in range(10):
        assert law.log_prob(Q + 0.1 * normal(5, 2, seed=seed + 10)) < law.log_prob(Q)
