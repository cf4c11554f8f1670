"""Least squares of numbers that are at least 0, by coordinate descent, in Numba and in JAX."""

import jax
import jax.numpy as jnp

from bayesfac.core.kernels import sparse


def positive_root(a: jax.Array, b: jax.Array, c: jax.Array | float) -> jax.Array:
    """The root h >= 0 of a h^2 - b h - c for a, c >= 0, without cancellation where b < 0.

    Examples
    --------
    >>> float(positive_root(jnp.array(2.0), jnp.array(1.0), jnp.array(3.0)))
    1.5
    """
    root, tiny = jnp.sqrt(b**2 + 4 * a * c), jnp.finfo(b.dtype).tiny
    rising = (b + root) / jnp.maximum(2 * a, tiny)
    return jnp.where(b > 0, rising, 2 * c / jnp.maximum(root - b, tiny))


def descend(H: jax.Array, num: jax.Array, gram: jax.Array, shape: float, rate: float) -> jax.Array:
    """Set every entry of H to its minimum, column by column, with the others fixed.

    The objective is h' Q h - 2 h' n + sum of (rate h - (shape - 1) log h), for the rows h of H and n of `num`
    and the matrix Q = `gram`. In entry h_k it is Q_kk h_k^2 - 2 b h_k - (shape - 1) log h_k with
    b = n_k - (Q h)_k + Q_kk h_k - rate / 2, where (Q h)_k has the old h_k.
    """
    c, half = jnp.asarray((shape - 1) / 2, H.dtype), jnp.asarray(rate / 2, H.dtype)
    if sparse.backend() == "jax":
        return _descend(H, num, gram, c, half)
    from bayesfac.core.kernels import bridge, nonnegative_loops  # not at import: loads Numba

    args, cost = (H, num, gram, jnp.stack([c, half])), H.size * len(gram)
    return bridge.call(nonnegative_loops.descend, H.dtype, [H.shape], *args, cost=cost)[0]


def _descend(
    H: jax.Array, num: jax.Array, gram: jax.Array, c: jax.Array, half: jax.Array
) -> jax.Array:
    N = num.T

    def column(k: jax.Array, T: jax.Array) -> jax.Array:
        b = N[k] - gram[k] @ T + gram[k, k] * T[k] - half
        return T.at[k].set(positive_root(gram[k, k], b, c))

    return jax.lax.fori_loop(0, len(gram), column, H.T).T
