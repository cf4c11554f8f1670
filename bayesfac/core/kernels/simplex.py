"""Gamma numbers, and rows of probabilities from tilted Dirichlet laws, in Numba and in JAX."""

from typing import Any

import jax
import jax.numpy as jnp

from bayesfac.core.kernels import sparse
from bayesfac.core.kernels.splitting import seed_of

ROUNDS = 10_000  # largest number of proposals; only NaN parameters need so many, giving NaN rows
EACH = 200  # a Gamma number takes as long as this number of multiplications, as measured
STEPS = 20  # of Newton's method; the law of a row is right after any number of them


def gammas(key: jax.Array, shape: jax.Array, rate: jax.Array) -> jax.Array:
    """A vector of Gamma(shape, rate) numbers; a number of shape 0 is 0.

    The numbers of the two backends differ, but have the same law, here and in `tilted_rows`.
    """
    shape, rate = shape.astype(rate.dtype), rate
    if sparse.backend() == "jax":
        some = jnp.where(shape > 0, shape, 1)
        return jnp.where(shape > 0, jax.random.gamma(key, some) / rate, 0)
    from bayesfac.core.kernels import bridge, simplex_loops  # not at import: loads Numba

    args, cost = (seed_of(key), shape, rate), EACH * len(rate)
    return bridge.call(simplex_loops.gammas, rate.dtype, [rate.shape], *args, cost=cost)[0]


def polya_gammas(key: jax.Array, b: Any, c: jax.Array, terms: int, rest: Any) -> jax.Array:
    """A vector of PG(b, c) numbers by Numba: exact ones for the number b = 1 of Python, and else sums of
    Gamma numbers, of which the `rest` has this mean and this variance."""
    from bayesfac.core.kernels import bridge, random_loops  # not at import: loads Numba

    if isinstance(b, int):
        kernel, cost, more = random_loops.polya_gammas, EACH, ()
    else:
        kernel, cost = random_loops.polya_gamma_sums, EACH * (terms + 1)
        more = jnp.array([terms], jnp.int32), b.astype(c.dtype), *rest
    given = seed_of(key), c, *more
    return bridge.call(kernel, c.dtype, [c.shape], *given, cost=cost * len(c))[0]


def tilted_rows(key: jax.Array, shape: jax.Array, tilt: jax.Array) -> jax.Array:
    """Rows x that sum to one, each with a density proportional to prod x^(shape - 1) exp(-tilt . x).

    On the simplex any number s may be added to the tilts of a row. Independent Gamma(shape, tilt + s)
    numbers, divided by their sum, have the density prod x^(shape - 1) / y^a, y = (tilt + s) . x, a = sum
    shape. The target density has exp(-y) instead of y^-a. The ratio y^a exp(-y) is at most a^a exp(-a), so
    such a row is accepted with probability (y/a)^a exp(a - y). With the s of `shift`, y is near a and most
    rows are accepted; without a tilt, y = a and all rows are accepted.
    """
    shape, tilt = jnp.broadcast_arrays(shape, tilt)
    if sparse.backend() == "jax":
        return _tilted_rows(key, shape, tilt)
    from bayesfac.core.kernels import bridge, simplex_loops  # not at import: loads Numba

    args = seed_of(key), shape, tilt.astype(shape.dtype)
    cost = EACH * shape.size
    return bridge.call(simplex_loops.tilted_rows, shape.dtype, [shape.shape], *args, cost=cost)[0]


def shift(shape: jax.Array, tilt: jax.Array) -> jax.Array:
    """The number s of each row at which sum shape / (tilt + s) is 1.

    One divided by this sum increases with s and is concave. So Newton's method approaches s from below. It
    starts at the largest shape - tilt, where one term of the sum is 1.
    """

    def step(_: int, s: jax.Array) -> jax.Array:
        part = shape / (tilt + s)
        whole = jnp.sum(part, -1, keepdims=True)
        return s + jnp.maximum(whole * (whole - 1), 0) / jnp.sum(
            part / (tilt + s), -1, keepdims=True
        )

    return jax.lax.fori_loop(0, STEPS, step, jnp.max(shape - tilt, -1, keepdims=True))


def _tilted_rows(key: jax.Array, shape: jax.Array, tilt: jax.Array) -> jax.Array:
    rate, total = tilt + shift(shape, tilt), jnp.sum(shape, -1)

    def waiting(state: tuple) -> jax.Array:
        return ~jnp.all(state[1]) & (state[2] < ROUNDS)

    def draw(state: tuple) -> tuple:
        x, done, number = state
        walk, coin = jax.random.split(jax.random.fold_in(key, number))
        even = jax.random.gamma(walk, shape)
        new = even / rate
        size = jnp.sum(new, -1)
        gap = jnp.sum(even, -1) / size / total - 1
        u = jax.random.uniform(coin, total.shape, total.dtype)
        fine = (jnp.log1p(-u) < total * (jnp.log1p(gap) - gap)) & ~done
        return jnp.where(fine[:, None], new / size[:, None], x), done | fine, number + 1

    start = jnp.full_like(shape, jnp.nan), jnp.zeros(total.shape, bool), 0
    return jax.lax.while_loop(waiting, draw, start)[0]


def colours(rows: tuple) -> tuple:
    """For rows of a symmetric graph (ptr, index): a colour for each, different from its neighbours; their
    number."""
    from bayesfac.core.kernels import simplex_loops  # not at import: loads Numba

    return simplex_loops.colours(*rows)
