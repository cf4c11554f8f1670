"""Losses and penalties of the thesis's chapter 2, each with its slope (eq. 2.2-2.15).

Binary losses are functions of the margin z = y x. Two constructions make an ordinal loss of any of
them, with thresholds theta_1..theta_{R-1} between the R levels; with T_r = +1 where r >= y and -1
where r < y, and level y counted from 1,

    all        sum_{r=1}^{R-1} h(T_r (theta_r - x))                         (2.8, 3.13)
    immediate  h(x - theta_{y-1}) + h(theta_y - x)                          (2.7)

at the ends, where theta_0 or theta_R would be infinite, the immediate form has one term.

The print of (2.11), and the beta = 0 line of (2.12), say y/x - y log(y/x) - 1. That is negative
at y = 2, x = 1, so no divergence: the Itakura-Saito divergence is y/x - log(y/x) - 1.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

Function = Callable[..., jax.Array]


class Loss(NamedTuple):
    """A function and its derivative in its last argument."""

    value: Function
    slope: Function


# -- binary: of the margin z ----------------------------------------------------------------------
def hinge(z: jax.Array) -> jax.Array:
    """1 - z below 1, zero above."""
    return jnp.maximum(1 - z, 0)


def smooth_hinge(z: jax.Array) -> jax.Array:
    """(1 - z)^2 / 2 between 0 and 1, straight below, zero above."""
    u = jnp.clip(1 - z, 0, 1)
    return u * (1 - z) - u**2 / 2


BINARY = {
    "zero_one": Loss(lambda z: jnp.where(z >= 0, 0.0, 1.0), jnp.zeros_like),
    "hinge": Loss(hinge, lambda z: jnp.where(z < 1, -1.0, 0.0)),
    "smooth_hinge": Loss(smooth_hinge, lambda z: -jnp.clip(1 - z, 0, 1)),
    "modified_square": Loss(
        lambda z: jnp.maximum(1 - z, 0) ** 2, lambda z: -2 * jnp.maximum(1 - z, 0)
    ),
    "logistic": Loss(lambda z: jnp.logaddexp(0.0, -z), lambda z: -jax.nn.sigmoid(-z)),
}
SMOOTH = ("smooth_hinge", "logistic", "modified_square")  # what a gradient solver can descend


# -- real-valued: of y and its approximation x ----------------------------------------------------
def beta_divergence(beta: float) -> Loss:
    """Eq. 2.12; 2 is half the squared error, 1 Kullback-Leibler, 0 Itakura-Saito."""
    if beta == 1:
        return REAL["kullback_leibler"]
    if beta == 0:
        return REAL["itakura_saito"]

    def value(y: jax.Array, x: jax.Array) -> jax.Array:
        return y**beta / (beta * (beta - 1)) + x**beta / beta - y * x ** (beta - 1) / (beta - 1)

    return Loss(value, lambda y, x: (x - y) * x ** (beta - 2))


REAL = {
    "squared": Loss(lambda y, x: (y - x) ** 2, lambda y, x: 2 * (x - y)),
    "kullback_leibler": Loss(
        lambda y, x: jax.scipy.special.xlogy(y, y / x) - y + x, lambda y, x: 1 - y / x
    ),
    "itakura_saito": Loss(lambda y, x: y / x - jnp.log(y / x) - 1, lambda y, x: (x - y) / x**2),
}


# -- penalties: of a matrix -----------------------------------------------------------------------
def _row_norms(A: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.sum(A**2, -1, keepdims=True))


def _unit_rows(A: jax.Array) -> jax.Array:
    norm = _row_norms(A)
    return jnp.where(norm > 0, A / jnp.where(norm > 0, norm, 1), 0)


PENALTIES = {  # at zero, where l1 and l2,1 have no slope, the smallest subgradient: zero
    "l1": Loss(lambda A: jnp.sum(jnp.abs(A)), jnp.sign),
    "frobenius": Loss(lambda A: jnp.sum(A**2), lambda A: 2 * A),  # squared
    "l21": Loss(lambda A: jnp.sum(_row_norms(A)), _unit_rows),
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
    """(..., R): the loss that each of the levels would have."""
    levels = jnp.arange(theta.shape[-1] + 1)
    return jax.vmap(lambda c: ordinal(x, theta, c, loss, immediate), out_axes=-1)(levels)


# -- proximal: the thesis's chapter 4 -------------------------------------------------------------
def proximal(x: jax.Array, theta: jax.Array, code: jax.Array, used: jax.Array) -> jax.Array:
    """Eq. 4.2, one cell: (x - theta_y)^2 + sum over the other levels used, h(T (x - theta_r)).

    T is +1 below the cell's level and -1 above it: it is to stay on the right side, a margin away.
    """
    r, y = jnp.arange(theta.shape[-1]), jnp.expand_dims(code, -1)
    away = jnp.expand_dims(x, -1) - theta
    side = jnp.where(r < y, 1.0, -1.0)
    each = jnp.where(r == y, away**2, smooth_hinge(side * away))
    return jnp.sum(jnp.where(used, each, 0), -1)


def proximal_centres(x: jax.Array, code: jax.Array, row: jax.Array, shape: tuple) -> tuple:
    """theta*: the mean of x over the cells of a row and level (n, R), and how many there are."""
    n, R = shape
    at = row * R + code
    count = jax.ops.segment_sum(jnp.ones_like(x), at, n * R).reshape(n, R)
    total = jax.ops.segment_sum(x, at, n * R).reshape(n, R)
    return total / jnp.maximum(count, 1), count
