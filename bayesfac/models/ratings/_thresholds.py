"""Thresholds of a cumulative model: a population's, and users' own about them, in free coordinates.

Rising numbers theta_1 < theta_2 < ... have the coordinates (theta_1, log(theta_2 - theta_1), ...). A method
with them has the sites `centre` (R - 1, the population's, in free coordinates) and `theta` (users x R - 1,
or None where all share the population's), and the settings scale_shift, scale_gap, link and levels.
"""

from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions.transforms import OrderedTransform

from bayesfac.core.laws.ordinal import codes, edges, log_between

rising = OrderedTransform()  # free coordinates -> thresholds


def population(hyper: Any) -> tuple[jax.Array, jax.Array]:
    """Where `centre` is expected, thresholds one apart about zero; and the users' sds about it."""
    gaps = len(hyper.levels) - 2
    sd = jnp.array([hyper.scale_shift] + [hyper.scale_gap] * gaps)
    return jnp.array([-gaps / 2] + [0.0] * gaps), sd


def limits(p: Any, data: Any) -> tuple[jax.Array, jax.Array]:
    """The thresholds below and above each rating, -inf and inf at the ends."""
    table = edges(rising(p.centre)[None] if p.theta is None else p.theta)
    row, code = 0 if p.theta is None else data.cells.row, codes(data)
    return table[row, code], table[row, code + 1]


def seen(p: Any, x: jax.Array, data: Any, hyper: Any) -> jax.Array:
    """The log probability of every rating."""
    low, high = limits(p, data)
    return log_between(low - x, high - x, hyper.link)


def away(p: Any, hyper: Any) -> jax.Array:
    """Minus the log density of the free coordinates."""
    c, s = population(hyper)
    own = 0.0 if p.theta is None else jnp.sum(((rising.inv(p.theta) - p.centre) / s) ** 2)
    return 0.5 * (own + jnp.sum((p.centre - c) ** 2))


def scaled(p: Any, t: jax.Array) -> tuple[Any, jax.Array]:
    """All thresholds times e^t, and the log Jacobian: of the free coordinates the first is multiplied too,
    the others only move by t."""
    first = jnp.arange(len(p.centre)) == 0
    centre = jnp.where(first, jnp.exp(t) * p.centre, p.centre + t)
    if p.theta is None:
        return p._replace(centre=centre), t
    return p._replace(centre=centre, theta=jnp.exp(t) * p.theta), t * (1 + len(p.theta))
