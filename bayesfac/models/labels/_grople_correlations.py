"""Columns of a factor that are alike, and what it costs: tr(R Z'Z) with R = 1 - the correlations of U."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from bayesfac.models.labels._proximal import rounding

STEPS = 0.5 ** np.arange(12)  # lengths of a step that are tried, the longest first
NEWTON = 20


def centred(U: jax.Array, known: jax.Array) -> jax.Array:
    """U less the mean of its known rows; zero in the others, and in columns that are only rounding beside the
    largest: in single precision the slope of their correlations would be infinite."""
    U = jnp.where(known, U, 0)
    W = known * (U - jnp.sum(U, 0) / jnp.sum(known))
    least = (16 * jnp.finfo(U.dtype).eps) ** 2 * jnp.max(jnp.sum(U**2, 0), initial=0.0)
    return jnp.where(jnp.sum(W**2, 0) > least, W, 0)


def unlike(S: jax.Array) -> jax.Array:
    """R from covariances: zero on the diagonal, and one beside a column that never varies."""
    var = jnp.diag(S)
    varies = var > 0
    sd = jnp.where(varies, jnp.sqrt(jnp.where(varies, var, 1)), 1)
    return (1 - S / sd[:, None] / sd) * (1 - jnp.eye(len(S), dtype=S.dtype))


def unlike_columns(U: jax.Array, known: jax.Array) -> jax.Array:
    """R from the factor itself.

    Examples
    --------
    >>> unlike_columns(jnp.array([[1.0, -1.0], [2.0, -2.0]]), jnp.ones((2, 1))).round(3).tolist()
    [[0.0, 2.0], [2.0, 0.0]]
    """
    W = centred(U, known)
    return unlike(W.T @ W)


def lower(
    U: jax.Array, A: jax.Array, B: jax.Array, M: jax.Array, known: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Lower tr(U A U') - 2 tr(U'B) + tr(R M) over the known rows of U; and whether a full step would not.

    The slope goes through A^-1: where M is zero a full step is the minimum, B A^-1. All that the length of
    a step changes is in K x K tables, so many lengths are tried at the price of one.
    """
    W = centred(U, known)
    S = W.T @ W

    def likeness(S: jax.Array) -> jax.Array:
        return jnp.sum(unlike(S) * M)

    now, bend = jax.value_and_grad(likeness)(S)
    pull = known * (U @ A - B)  # half of the slope, without the likeness
    way = -jnp.linalg.solve(A, (pull + W @ (bend + bend.T) / 2).T).T
    D = centred(way, known)
    once, twice = W.T @ D + D.T @ W, D.T @ D
    first, second = 2 * jnp.sum(pull * way), jnp.sum((way @ A) * way)

    def rise(t: jax.Array) -> jax.Array:
        return t * first + t**2 * second + likeness(S + t * once + t**2 * twice) - now

    t, short = longest(rise, jnp.abs(now))
    return U + t * way, short


def lengths(square: jax.Array, plain: jax.Array, inverse: jax.Array, Q: jax.Array) -> jax.Array:
    """Positive s that lower sum_r (square s^2 + plain s + inverse / s)_r + s'Q s from s = 1.

    Newton's steps of log s without Q, where the columns fall apart, and of the way there what also lowers the
    whole. Where nothing is known of a column it stays.
    """

    def step(_: int, t: jax.Array) -> jax.Array:
        s = jnp.exp(t)
        slope = 2 * square * s**2 + plain * s - inverse / s
        bend = 4 * square * s**2 + plain * s + inverse / s
        return t - slope / jnp.where(bend > 0, bend, 1)

    way = jax.lax.fori_loop(0, NEWTON, step, jnp.zeros_like(square))

    def cost(s: jax.Array) -> jax.Array:
        return jnp.sum(square * s**2 + plain * s + inverse / s) + s @ Q @ s

    now = cost(jnp.ones_like(way))
    return jnp.exp(longest(lambda t: cost(jnp.exp(t * way)) - now, jnp.abs(now))[0] * way)


def longest(rise: Callable[[jax.Array], jax.Array], size: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The first length of `STEPS` at which a cost of this size does not rise, else 0; and if it is short."""
    steps = jnp.asarray(STEPS, size.dtype)
    fine = jax.vmap(rise)(steps) <= rounding(size)
    return jnp.where(jnp.any(fine), steps[jnp.argmax(fine)], 0), ~fine[0]
