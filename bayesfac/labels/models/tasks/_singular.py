"""Leading singular vectors of all blocks side by side, a possible start of HiMLS, HiMLSD and HERES."""

from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp

from bayesfac.core.kernels import tables
from bayesfac.labels.data.tasks import Tasks

TURNS = 8  # steps of subspace iteration (Halko, Martinsson & Tropp 2011)


@partial(jax.jit, static_argnums=2)
def leading(
    key: jax.Array, data: Tasks, k: int, weights: Mapping[str, float]
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """U, and V_b = sqrt(w_b) X_b' U: about k singular pairs of [sqrt(w_b) X_b]_b, the largest first.

    Columns of U have length one, those of V the singular values. Columns beyond the number of rows are zero.
    """

    def forth(U: jax.Array) -> dict[str, jax.Array]:
        found = {b: tables.transposed(data.cells[b], data.y[b], U) for b in data.blocks}
        return {b: jnp.sqrt(weights[b]) * v for b, v in found.items()}

    def back(V: dict[str, jax.Array]) -> jax.Array:
        parts = (jnp.sqrt(weights[b]) * tables.product(data.cells[b], data.y[b], V[b]) for b in V)
        return sum(parts, jnp.zeros(()))

    def turn(_: int, Q: jax.Array) -> jax.Array:
        return jnp.linalg.qr(back(forth(Q)))[0]

    basis = jax.random.normal(key, (data.n_rows, min(k, data.n_rows)))
    Q = jax.lax.fori_loop(0, TURNS, turn, jnp.linalg.qr(basis)[0])
    V = forth(Q)
    W = jnp.linalg.eigh(sum(v.T @ v for v in V.values()))[1][:, ::-1]  # largest first

    def filled(table: jax.Array) -> jax.Array:
        return jnp.pad(table @ W, ((0, 0), (0, k - Q.shape[1])))

    return filled(Q), {b: filled(v) for b, v in V.items()}
