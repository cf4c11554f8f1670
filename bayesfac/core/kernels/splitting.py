"""Counts divided at random among components, in Numba and in JAX: one pass over the listed cells."""

import jax
import jax.numpy as jnp

from bayesfac.core.data.cells import Cells
from bayesfac.core.kernels import sparse


def split_counts(
    key: jax.Array, cells: Cells, y: jax.Array, A: jax.Array, G: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Divide every count y_ij among components k, multinomial with shares a_ik g_jk / (a_i . g_j).

    Returns the sums by row (n x K) and by column (m x K). The numbers of the two backends differ, but have
    the same law. Time grows with the listed cells, and with the logarithm of a large count.
    """
    (n, K), m = A.shape, len(G)
    if sparse.backend() == "jax":
        shares = A[cells.row] * G[cells.col]
        shares /= jnp.sum(shares, -1, keepdims=True)
        parts = jax.random.multinomial(key, y, shares)
        by_row = jax.ops.segment_sum(parts, cells.row, n, indices_are_sorted=True)
        return by_row, jax.ops.segment_sum(parts, cells.col, m)
    from bayesfac.core.kernels import bridge, splitting_loops  # not at import: loads Numba

    # as timed with counts below ten; larger ones take up to six times as long
    cost = (80 + 6 * K) * len(cells)
    copies, rows = sparse._copies(cost), cells.by_row
    args = seed_of(key), rows.ptr, rows.index, y.astype(A.dtype), A, G
    plan = {"cost": cost, "blocks": copies}
    by_row, by_col = bridge.call(
        splitting_loops.split_counts, A.dtype, [(n, K), (copies * m, K)], *args, **plan
    )
    return by_row, by_col.reshape(copies, m, K).sum(0)


def seed_of(key: jax.Array) -> jax.Array:
    """A random key as a Numba loop takes it: two words."""
    return jax.lax.bitcast_convert_type(jax.random.key_data(key).ravel()[-2:], jnp.int32)
