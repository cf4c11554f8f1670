"""Features of positions for `gplvm`: a constant, the position, and waves that give an RBF kernel."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def frequencies(hyper: Any) -> jax.Array:
    """The frequencies z_r, R x K, from a fixed seed, in orthogonal blocks of K (Yu et al., 2016)."""
    R, K, rng = hyper.n_frequencies, hyper.n_components, np.random.default_rng(0)
    blocks = [np.linalg.qr(rng.normal(size=(K, K)))[0] for _ in range(-(-R // K))]
    turned = np.concatenate([np.zeros((0, K)), *blocks])[:R]
    return jnp.asarray(turned * np.sqrt(rng.chisquare(K, (R, 1)))) / hyper.length


def features(X: jax.Array, hyper: Any) -> jax.Array:
    """F(x) of every row, rows x M."""
    z, share = X @ frequencies(hyper).T.astype(X.dtype), max(hyper.n_frequencies, 1) ** -0.5
    return jnp.concatenate([jnp.ones_like(X[:, :1]), X, share * jnp.cos(z), share * jnp.sin(z)], 1)


def slopes(X: jax.Array, hyper: Any) -> jax.Array:
    """The Jacobian of F at every row, rows x M x K."""
    return jax.vmap(jax.jacfwd(lambda x: features(x[None], hyper)[0]))(X)


def groups(hyper: Any) -> np.ndarray:
    """The entry of `precision` that belongs to each feature; the last entry is that of `bias_item`."""
    K, R = hyper.n_components, hyper.n_frequencies
    return np.concatenate([np.arange(1 + K), np.full(2 * R, 1 + K)])


def n_groups(hyper: Any) -> int:
    return int(groups(hyper)[-1]) + 2


def square_of(rows: jax.Array) -> jax.Array:
    return rows[:, :, None] * rows[:, None, :]


def flat(table: jax.Array) -> jax.Array:
    return jnp.reshape(table, (len(table), -1))


def anywhere(hyper: Any, dtype: Any) -> tuple[jax.Array, jax.Array]:
    """Mean and covariance of F(x) for x ~ N(0, I)."""
    z, K, R = frequencies(hyper).astype(dtype), hyper.n_components, hyper.n_frequencies
    share, a = max(R, 1) ** -0.5, jnp.exp(-0.5 * jnp.sum(z**2, 1))
    gap, both = (jnp.exp(-0.5 * jnp.sum((z[:, None] - s * z) ** 2, -1)) for s in (1, -1))
    mean = jnp.concatenate([jnp.ones(1), jnp.zeros(K), share * a, jnp.zeros(R)]).astype(dtype)
    cov = jnp.zeros((len(mean), len(mean)), dtype)
    x, cos, sin = slice(1, K + 1), slice(K + 1, K + R + 1), slice(K + R + 1, None)
    cov = (
        cov.at[x, x]
        .set(jnp.eye(K))
        .at[cos, cos]
        .set((gap + both - 2 * jnp.outer(a, a)) * share**2 / 2)
    )
    cov = cov.at[sin, sin].set((gap - both) * share**2 / 2)
    cross = share * z.T * a
    return mean, cov.at[x, sin].set(cross).at[sin, x].set(cross.T)
