"""Minimising a smooth function plus a penalty with kinks: down the slope, then a shrinkage, and again."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from bayesfac.core.kernels import sparse

Cost = Callable[[jax.Array, jax.Array], jax.Array]
FARTHEST = 64.0  # times the way of a sweep


def accelerated(
    x: jax.Array,
    image: Callable[[jax.Array], jax.Array],
    cost: Cost,
    slope: Cost,
    shrink: Cost,
    steps: int,
) -> jax.Array:
    """Lower f + h from x, f smooth and h with kinks: accelerated proximal gradient in its monotone form
    (Beck & Teboulle, "Fast gradient-based algorithms for constrained total variation", IEEE TIP 2009).

    image(x)      A x, linear: all that is slow about f, asked for once a step
    cost(x, Ax)   f + h
    slope(x, Ax)  of f
    shrink(x, g)  the z with the least <g, z> + |z - x|^2 / 2 + h(z), in a metric that bounds f's curvature

    Examples
    --------
    >>> goal = jnp.array([3.0, 0.5])
    >>> cost = lambda x, _: jnp.sum((x - goal) ** 2) / 2 + jnp.sum(jnp.abs(x))
    >>> found = accelerated(
    ...     jnp.zeros(2), lambda x: x, cost, lambda x, _: x - goal, lambda x, g: soft(x - g, 1.0), 5
    ... )
    >>> found.tolist()
    [2.0, 0.0]
    """
    Ax = image(x)

    def step(state: Any) -> Any:
        number, x, Ax, value, y, Ay, t = state
        z = shrink(y, slope(y, Ay))
        Az = image(z)
        return (number + 1, *_onward(x, Ax, value, z, Az, cost(z, Az), t))

    begin = (0, x, Ax, cost(x, Ax), x, Ax, jnp.ones((), x.dtype))
    return sparse.loop(lambda state: state[0] < steps, step, begin)[1]


@jax.jit
def _onward(
    x: jax.Array,
    Ax: jax.Array,
    value: jax.Array,
    z: jax.Array,
    Az: jax.Array,
    there: jax.Array,
    t: jax.Array,
) -> tuple[jax.Array, ...]:
    """z where it costs no more, else x; and the point that the next step is taken from, with its image."""
    fine = there <= value + rounding(value)
    later = (1 + jnp.sqrt(1 + 4 * t**2)) / 2

    def both(x: jax.Array, z: jax.Array) -> tuple[jax.Array, jax.Array]:
        new = jnp.where(fine, z, x)
        return new, new + t / later * (z - new) + (t - 1) / later * (new - x)

    (new, y), (image, Ay) = both(x, z), both(Ax, Az)
    return new, image, jnp.where(fine, there, value), y, Ay, later


def soft(x: jax.Array, threshold: jax.Array | float) -> jax.Array:
    """Every number nearer to zero by so much, at most zero: the shrinkage of |x|_1 (6.15 of GroPLE)."""
    return jnp.sign(x) * jnp.maximum(jnp.abs(x) - threshold, 0)


def rounding(cost: jax.Array) -> jax.Array:
    """What two ways to the same cost may differ by: where it decided, so would the order of additions."""
    return 8 * jnp.finfo(cost.dtype).eps * jnp.abs(cost)


def farther(cost: Callable[[jax.Array], jax.Array], like: jax.Array) -> jax.Array:
    """The last of t = 0, 1, 2, 4, ... up to which the cost falls from each to the next; t is of the dtype of
    `like`.

    Examples
    --------
    >>> farther(lambda t: (t - 5) ** 2, jnp.zeros(())).item()
    4.0
    """

    def further(state: Any) -> Any:
        _, t, _, there = state
        return t, 2 * t, there, cost(2 * t)

    zero, one = jnp.zeros((), like.dtype), jnp.ones((), like.dtype)

    def falls(state: Any) -> Any:
        _, t, value, there = state
        return (there < value - rounding(value)) & (t <= FARTHEST)

    return jax.lax.while_loop(falls, further, (zero, one, cost(zero), cost(one)))[0]
