"""Where fits begin whose factors have entries of at least 0."""

from typing import Any

import jax
import jax.numpy as jnp

from bayesfac.core.laws.normal_wishart import drawn
from bayesfac.parts.sites import get, put

SWEEPS = 100  # of Gibbs before a point; scores are averaged over the second half


def begun(c: Any, key: jax.Array, data: Any, h: Any) -> Any:
    """The start of a composition. If all its rows are at least 0, they are multiplied, so that the mean of
    the scores is the root mean square of the values, and precisions match them."""
    p, s = c.init(key, data, h), c.at(h)
    if not all(f.positive for f in s.main):
        return p
    size = jnp.sqrt(jnp.mean((data.y - h.offset) ** 2))
    size = jnp.where(size > 0, size, 1)
    times = (size / jnp.mean(s.scores(p, data))) ** (1 / s.degree)
    new = {f.rows: times * get(p, f.rows) for f in s.main}
    new |= {f.precision.site: get(p, f.precision.site) / times**2 for f in s.main}
    return put(p, new)


def settled(c: Any, key: jax.Array, p: Any, data: Any, h: Any) -> Any:
    """Params where a point begins: p after some sweeps of Gibbs, whose precisions it keeps. A point predicts
    with the noise alone, so the noise includes the variance of the scores. All precisions get the same
    factor, so that the modes of the rows stay where they are. With `scales="joint"`, p itself."""
    if h.scales == "joint":
        return p
    s, laws, moves = c.at(h), c.conditionals(), c.moves().values()

    def sweep(number: jax.Array, state: tuple) -> tuple:
        p, total, squares = state
        blocks, *own = jax.random.split(jax.random.fold_in(key, number), 2 + len(moves))
        given: tuple[Any, ...] = ()
        if hasattr(c.observed, "augment"):
            given = (c.augment(p, data, h).sample(own[0]),)
        p = drawn(blocks, p, laws, data, h, *given)
        for move, walk in zip(moves, own[1:], strict=True):
            p = move(walk, p, data, h)
        x = jnp.where(number < SWEEPS // 2, 0, s.scores(p, data))
        return p, total + x, squares + x**2

    none = jnp.zeros_like(data.y)
    p, total, squares = jax.lax.fori_loop(0, SWEEPS, sweep, (p, none, none))
    kept = SWEEPS - SWEEPS // 2
    variance = jnp.mean(squares / kept - (total / kept) ** 2)
    if p.alpha is None:
        return p
    share = 1 / (1 + p.alpha * variance)
    learned = {f.precision.site for f in s.main if f.precision.site}
    return put(p, {site: share * get(p, site) for site in (*learned, "alpha")})
