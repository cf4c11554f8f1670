"""Moves of a Gibbs sweep of `cmf` for what the blocks alone change slowly: thresholds and factor scales."""

from typing import Any

import jax
import jax.numpy as jnp

from bayesfac.core.data.relations import Relations
from bayesfac.core.laws import cuts
from bayesfac.core.laws import normal_wishart as wishart
from bayesfac.core.math import metropolis
from bayesfac.models.collective._matrices import Matrix, coded, matrices, probits, seen


def thresholds(key: jax.Array, p: Any, data: Relations, hyper: Any) -> Any:
    """Metropolis steps of the thresholds, with z integrated out."""
    if p.cuts is None:
        return p
    new = {}
    for number, (m, x, code) in enumerate(probits(p, data, hyper)):
        new[m.name] = cuts.walked(jax.random.fold_in(key, number), p.cuts[m.name], x, code)
    return p._replace(cuts=new)


def swell(key: jax.Array, p: Any, data: Relations, hyper: Any) -> Any:
    """Apply `swollen` to each kind of label whose matrices are all probit.

    If the factors separate the levels, the posterior is as wide as the prior. But given z, the scale of the
    factors changes little.
    """
    for number, kind in enumerate(p.U):
        own = [m for m in matrices(hyper) if kind in (m.row, m.col)]
        if all(m.levels is not None for m in own):
            p = swollen(jax.random.fold_in(key, number), p, data, hyper, kind, own)
    return p


def swollen(
    key: jax.Array, p: Any, data: Relations, hyper: Any, kind: str, own: list[Matrix]
) -> Any:
    """Metropolis steps along u -> u + (e^t - 1) (u.q) q for rows u of a kind and a random direction q, with z
    integrated out.

    Rows and means keep their densities, with Jacobians; Lambda, which shrinks along q, leaves
    -K t - rate/2 q'Lambda q e^-2t.
    """
    direction, width, walk = jax.random.split(key, 3)
    q = jax.random.normal(direction, p.mu[kind].shape, p.mu[kind].dtype)
    q /= jnp.linalg.norm(q)
    along, precise = jnp.outer(p.U[kind] @ q, q), q @ p.Lambda[kind] @ q
    x, part = seen(p, data), seen(p._replace(U={**p.U, kind: along}), data)

    def density(t: jax.Array) -> jax.Array:
        c = jnp.exp(t[0, 0])
        total = -len(q) * t[0] - hyper.rate / 2 * precise * c**-2
        for m in own:
            grown = x[m.name] + (c - 1) * part[m.name]
            total += jnp.sum(cuts.log_levels(p.cuts[m.name], grown, coded(data, m)))
        return total

    step = 10 ** (-2 * jax.random.uniform(width, (), q.dtype))
    c = jnp.exp(metropolis(walk, jnp.zeros((1, 1), q.dtype), step, density, times=4)[0, 0])
    T = jnp.eye(len(q), dtype=q.dtype) + (1 / c - 1) * jnp.outer(q, q)
    return p._replace(
        U={**p.U, kind: p.U[kind] + (c - 1) * along},
        mu={**p.mu, kind: p.mu[kind] + (c - 1) * (p.mu[kind] @ q) * q},
        Lambda={**p.Lambda, kind: T @ p.Lambda[kind] @ T},
    )


def rescale(key: jax.Array, p: Any, data: Relations, hyper: Any) -> Any:
    """Draw the scales of kinds of one colour against those of the other, exactly: see `bpmf`."""
    colours = data.colours
    if not colours:
        return p
    U, mu, Lambda = wishart.rescaled(key, p.U, p.mu, p.Lambda, hyper.rate, colours)
    return p._replace(U=U, mu=mu, Lambda=Lambda)
