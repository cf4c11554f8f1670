"""Margin losses of Kumar's thesis, Hyderabad 2018 (eq. 2.2-2.8, 4.2); binary losses with derivatives.

Binary losses are functions of the margin z = y x. Two constructions make a binary loss h an ordinal loss,
with thresholds theta_1..theta_{R-1} between the R levels. With T_r = +1 if r >= y and -1 if r < y, and levels
y counted from 1, they are

    all        sum_{r=1}^{R-1} h(T_r (theta_r - x))                         (2.8, 3.13)
    immediate  h(x - theta_{y-1}) + h(theta_y - x)                          (2.7)

For the first and the last level the immediate form has one term: theta_0 and theta_R are infinite.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp


class Loss(NamedTuple):
    """A function of the margin and its derivative."""

    value: Callable[[jax.Array], jax.Array]
    slope: Callable[[jax.Array], jax.Array]


# -- binary: of the margin z ----------------------------------------------------------------------
def smooth_hinge(z: jax.Array) -> jax.Array:
    """(1 - z)^2 / 2 between 0 and 1, linear below, zero above."""
    u = jnp.clip(1 - z, 0, 1)
    return u * (1 - z) - u**2 / 2


BINARY = {
    "zero_one": Loss(lambda z: jnp.where(z >= 0, 0.0, 1.0), jnp.zeros_like),
    "hinge": Loss(lambda z: jnp.maximum(1 - z, 0), lambda z: jnp.where(z < 1, -1.0, 0.0)),
    "smooth_hinge": Loss(smooth_hinge, lambda z: -jnp.clip(1 - z, 0, 1)),
    "modified_square": Loss(
        lambda z: jnp.maximum(1 - z, 0) ** 2, lambda z: -2 * jnp.maximum(1 - z, 0)
    ),
    "logistic": Loss(lambda z: jnp.logaddexp(0.0, -z), lambda z: -jax.nn.sigmoid(-z)),
}


# -- ordinal: of x, thresholds and a level --------------------------------------------------------
def ordinal(
    x: jax.Array, theta: jax.Array, code: jax.Array, loss: str, immediate: bool = False
) -> jax.Array:
    """The ordinal loss of every cell; `code` counts levels from 0, `theta` is (..., R - 1)."""
    r, y = jnp.arange(theta.shape[-1]), jnp.expand_dims(code, -1)
    sign = jnp.where(r < y, -1.0, 1.0)
    each = BINARY[loss].value(sign * (theta - jnp.expand_dims(x, -1)))
    if immediate:
        each = jnp.where((r == y - 1) | (r == y), each, 0)
    return jnp.sum(each, -1)


def every_level(x: jax.Array, theta: jax.Array, loss: str, immediate: bool = False) -> jax.Array:
    """The ordinal loss that each of the R levels would have, (..., R)."""
    levels = jnp.arange(theta.shape[-1] + 1)
    return jax.vmap(lambda c: ordinal(x, theta, c, loss, immediate), out_axes=-1)(levels)


# -- proximal: the thesis's chapter 4 -------------------------------------------------------------
def proximal(x: jax.Array, theta: jax.Array, code: jax.Array, used: jax.Array) -> jax.Array:
    """Eq. 4.2 for each cell: (x - theta_y)^2 + the sum of h(T (x - theta_r)) over the other levels used.

    T is +1 for levels r < y and -1 for levels r > y: x has to stay a margin away, on the side of y.
    """
    r, y = jnp.arange(theta.shape[-1]), jnp.expand_dims(code, -1)
    distance = jnp.expand_dims(x, -1) - theta
    side = jnp.where(r < y, 1.0, -1.0)
    each = jnp.where(r == y, distance**2, smooth_hinge(side * distance))
    return jnp.sum(jnp.where(used, each, 0), -1)


def proximal_centres(x: jax.Array, code: jax.Array, row: jax.Array, shape: tuple) -> tuple:
    """theta*, the mean of x over the cells of each row and level (n, R), and the number of those cells."""
    n, R = shape
    segment = row * R + code
    count = jax.ops.segment_sum(jnp.ones_like(x), segment, n * R).reshape(n, R)
    total = jax.ops.segment_sum(x, segment, n * R).reshape(n, R)
    return total / jnp.maximum(count, 1), count
