"""Thresholds that all rows share: a cumulative probit model of levels, in unconstrained coordinates.

    P(y <= r) = Phi(theta_r - x),   t = (theta_1, log(theta_2 - theta_1), ...),   t ~ N(c, 1)

with c such that the thresholds of the prior have distance one and are centred at zero. There is no Jacobian,
because the coordinates t themselves are the parameter.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from numpyro.distributions.transforms import OrderedTransform

from bayesfac.core.laws.empirical_bayes import Seen, as_normal
from bayesfac.core.laws.ordinal import Levels, edges, log_between
from bayesfac.core.math import metropolis

rising = OrderedTransform()  # free coordinates -> thresholds


def middle(R: int) -> jax.Array:
    """The prior mean of the free coordinates of R levels."""
    return jnp.array([-(R - 2) / 2] + [0.0] * (R - 2))


def begin(count: jax.Array) -> jax.Array:
    """Free coordinates of the normal quantiles of the levels' shares, from the number of ratings with each
    level; every level counts once more."""
    share = (count + 1.0).cumsum()[:-1] / (count.sum() + len(count))
    return rising.inv(jax.scipy.stats.norm.ppf(share))


def limits(t: jax.Array, code: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The thresholds below and above each level of `code`, -inf and inf at the ends."""
    table = edges(rising(t))
    return table[code], table[code + 1]


def log_levels(t: jax.Array, x: jax.Array, code: jax.Array) -> jax.Array:
    """The log probability of every level in `code`."""
    low, high = limits(t, code)
    return log_between(low - x, high - x, "probit")


def energy(t: jax.Array) -> jax.Array:
    """Minus the log density of the free coordinates, without constants."""
    return 0.5 * jnp.sum((t - middle(len(t) + 1)) ** 2)


def levels(t: jax.Array, x: jax.Array, values: tuple[float, ...]) -> Levels:
    """The law of the levels at x."""
    ends = edges(rising(t)) - x[..., None]
    return Levels(values, log_between(ends[..., :-1], ends[..., 1:], "probit"))


def _density(t: jax.Array, x: jax.Array, code: jax.Array) -> jax.Array:
    return jnp.sum(log_levels(t, x, code)) - energy(t)


def touching(t: jax.Array, x: jax.Array, code: jax.Array) -> jax.Array:
    """The centre of the parabola of curvature 1 that touches the log probability at x and lies below it; the
    second derivative of the log probability is at least -1."""
    return x + jax.grad(lambda x: jnp.sum(log_levels(t, x, code)))(x)


def observed(code: jax.Array, t: jax.Array, x: jax.Array, variance: jax.Array) -> Seen:
    """`observe` of empirical Bayes: t updated, targets and weights of cells, and minus log probabilities."""
    t = lowered(t, x, code)
    each = partial(log_levels, t, code=code)
    return Seen(t, *as_normal(each, x, variance), -each(x))


def walked(key: jax.Array, t: jax.Array, x: jax.Array, code: jax.Array) -> jax.Array:
    """Two Metropolis steps of t given x."""
    R = len(t) + 1
    count = jnp.bincount(code, length=R)
    step = 1.7 / jnp.sqrt((1 + 0.3 * (count[1:] + count[:-1])) * (R - 1))

    def density(t: jax.Array) -> jax.Array:
        return _density(t[0], x, code)[None]

    return metropolis(key, t[None], step, density, times=2)[0]


def lowered(t: jax.Array, x: jax.Array, code: jax.Array) -> jax.Array:
    """A Newton step of t towards its mode given x, halved until the density does not fall."""
    return uphill(partial(_density, x=x, code=code), t)


def uphill(density: Callable[[jax.Array], jax.Array], t: jax.Array) -> jax.Array:
    """t after a Newton step that is halved until the density does not fall.

    The eigenvalues of the Hessian are made positive, so that the step increases the density.
    """
    value, slope = jax.value_and_grad(density)(t)
    bend, Q = jnp.linalg.eigh(-jax.hessian(density)(t))
    step = Q @ ((Q.T @ slope) / jnp.maximum(jnp.abs(bend), 1e-3))

    def falls(state: tuple) -> jax.Array:
        size, _, new = state
        return ~(new >= value) & (size > 1e-9)

    def halve(state: tuple) -> tuple:
        size = state[0] / 2
        return size, t + size * step, density(t + size * step)

    size, new, found = jax.lax.while_loop(falls, halve, (jnp.ones(()), t + step, density(t + step)))
    return jnp.where(found >= value, new, t)
