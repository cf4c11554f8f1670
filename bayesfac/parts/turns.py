"""Rotations of two components in both factors of a matrix: u.v stays, but not the law of sparse rows.

Rows with the law of a mixture (`rows/mixtures.py`) have few large entries in some coordinates alone. Their
conditionals move all rows of one factor at a time, so they turn the coordinates slowly. Here disjoint pairs
of components are turned by a random angle, each with a Metropolis step. A rotation has the Jacobian 1. Rows
with a given round precision keep their density, and so do rows whose Wishart precision and mean turn with
them.
"""

from typing import Any

import jax
import jax.numpy as jnp

from bayesfac.parts.factors import Factor, Factors
from bayesfac.parts.rows import mixtures
from bayesfac.parts.scales import carried, free
from bayesfac.parts.sites import get, put

TURNS = 4  # angles that each pair tries in a sweep
LEAST, MOST = 0.005, 0.8  # between which the logarithm of an angle's scale is uniform


def possible(every: Factors, main: Factors) -> bool:
    """Whether there are sparse rows to turn, and the density of all others is known to stay."""
    known = (bool(f.mixture) or not f.precision.site or free(every, f) for f in main)
    return any(f.mixture for f in main) and all(known)


def turned(key: jax.Array, main: Factors, p: Any, h: Any) -> Any:
    """Metropolis steps of the angles of random pairs of components."""
    if h.n_components < 2:
        return p

    def turn(number: Any, p: Any) -> Any:
        return _turned(jax.random.fold_in(key, number), main, p, h)

    return jax.lax.fori_loop(0, TURNS, turn, p)


def _turned(key: jax.Array, main: Factors, p: Any, h: Any) -> Any:
    order, scale, walk, accept = jax.random.split(key, 4)
    K = h.n_components
    one, two = jax.random.permutation(order, K)[: K - K % 2].reshape(2, -1)
    low, high = jnp.log(LEAST), jnp.log(MOST)
    width = jnp.exp(jax.random.uniform(scale, one.shape, minval=low, maxval=high))
    angle = width * jax.random.normal(walk, one.shape)
    mixed = [f for f in main if f.mixture]
    q, gain = _carried(p, mixed, rotation(one, two, angle, K)), jnp.zeros(K)
    for f in mixed:
        gain += _by_component(f, q, h) - _by_component(f, p, h)
    keep = jnp.log(jax.random.uniform(accept, one.shape)) < gain[one] + gain[two]
    return _carried(p, main, rotation(one, two, jnp.where(keep, angle, 0), K))


def rotation(one: jax.Array, two: jax.Array, angle: jax.Array, K: int) -> jax.Array:
    """The rotation of the components `one` and `two` of each pair by its angle."""
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    R = jnp.eye(K, dtype=angle.dtype).at[one, one].set(cos).at[two, two].set(cos)
    return R.at[one, two].set(sin).at[two, one].set(-sin)


def _carried(p: Any, factors: Factors, R: jax.Array) -> Any:
    """u -> u R, with mean, links and a Wishart precision; those of a mixture stay."""
    for f in factors:
        if f.precision.site and not f.mixture:
            p = put(p, {f.precision.site: R.T @ get(p, f.precision.site) @ R})
        p = carried(p, f, R)
    return p


def _by_component(f: Factor, p: Any, h: Any) -> jax.Array:
    """The log density of the rows of a mixture, for each component."""
    square, log, s = f.entries(p, h)
    return jnp.sum(jax.nn.logsumexp(mixtures.weighed(square, log, s), -1), 0)
