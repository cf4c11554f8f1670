"""Regressions with a penalty on absolute values (lasso), by coordinate descent, in Numba and in JAX."""

import jax
import jax.numpy as jnp

from bayesfac.core.data.cells import Cells, Rows
from bayesfac.core.kernels import sparse


def soft(x: jax.Array, threshold: jax.Array | float) -> jax.Array:
    """Move every entry towards zero by `threshold`, at most to zero."""
    return jnp.sign(x) * jnp.maximum(jnp.abs(x) - threshold, 0)


def lasso_pass(
    cells: Cells, x: jax.Array, squares: jax.Array, Z: jax.Array, left: jax.Array, K: jax.Array,
    penalty: float,
) -> tuple[jax.Array, jax.Array]:  # fmt: skip
    """Set every entry of Z to its minimum, feature by feature, with the others fixed; return Z and U - X Z.

    The objective is |U - X Z|^2 + tr(Z K Z') + penalty sum |Z|, for the sparse table X with the values `x` in
    `cells`, `squares` = x_j'x_j for each feature j, and `left` = U - X Z. In entry z = Z[j, k] it is a z^2 -
    2 b z + penalty |z| with a = x_j'x_j + K_kk and b = x_j'left_k + x_j'x_j z - sum over l != k of Z_jl K_lk.
    K is symmetric, and its diagonal is not negative. If a = 0, z does not change. The feature with the
    largest x_j'x_j comes first, so that the result does not depend on the order of the features unless two of
    them are equally large.
    """
    columns, order = cells.by_col, jnp.argsort(-squares).astype(jnp.int32)
    x, half = x[columns.order], jnp.asarray([penalty / 2], Z.dtype)
    if sparse.backend() == "jax":
        return _lasso_pass(columns, order, x, squares, Z, left, K, half[0])
    from bayesfac.core.kernels import bridge, lasso_loops  # not at import: loads Numba

    args = (columns.ptr, columns.index, order, x, squares, Z, left, K, half)
    cost = 2.0 * len(cells) * Z.shape[1]
    shapes = [Z.shape, left.shape]
    return tuple(bridge.call(lasso_loops.lasso_pass, Z.dtype, shapes, *args, cost=cost, blocks=1))


def _lasso_pass(
    columns: Rows, order: jax.Array, x: jax.Array, squares: jax.Array, Z: jax.Array, left: jax.Array,
    K: jax.Array, half: jax.Array,
) -> tuple[jax.Array, jax.Array]:  # fmt: skip
    own, places = jnp.diag(K), jnp.arange(len(left))
    others = K - jnp.diag(own)
    ptr, index = jnp.asarray(columns.ptr), jnp.append(columns.index, 0)
    x = jnp.append(x, 0)  # a cell for the places after the last one

    def feature(
        number: jax.Array, state: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        (Z, left), j = state, order[number]
        at = jnp.where(ptr[j] + places < ptr[j + 1], ptr[j] + places, len(x) - 1)
        rows, column, square, old = index[at], x[at], squares[j], Z[j]
        slope = column @ left[rows]

        def entry(k: jax.Array, z: jax.Array) -> jax.Array:
            a, b = square + own[k], slope[k] + square * old[k] - others[k] @ z
            new = soft(b, half) / jnp.where(a > 0, a, 1)
            return z.at[k].set(jnp.where(a > 0, new, old[k]))

        z = jax.lax.fori_loop(0, len(K), entry, old)
        return Z.at[j].set(z), left.at[rows].add(-column[:, None] * (z - old))

    return jax.lax.fori_loop(0, len(Z), feature, (Z, left))
