"""Margin losses summed over the observed cells, through the kernels: the slope comes with the value."""

from functools import partial

import jax

from bayesfac.core.data.cells import Rows
from bayesfac.core.kernels import sparse


@partial(jax.custom_vjp, nondiff_argnums=(5, 6))
def total_ordinal(
    x: jax.Array,
    theta: jax.Array,
    code: jax.Array,
    rows: Rows,
    weight: jax.Array | None,
    loss: str,
    immediate: bool = False,
) -> jax.Array:
    """Summed over the observed cells (row-major) with the thresholds of their row: (n, R - 1).

    `x` may have a leading axis of independent problems, and then theta has it, and the sum keeps it.
    """
    return sparse.ordinal_loss(x, theta, code, rows, weight, loss, immediate)[0]


def _forward(
    x: jax.Array,
    theta: jax.Array,
    code: jax.Array,
    rows: Rows,
    weight: jax.Array | None,
    loss: str,
    immediate: bool,
) -> tuple[jax.Array, tuple]:
    total, by_x, by_theta = sparse.ordinal_loss(x, theta, code, rows, weight, loss, immediate)
    return total, (by_x, by_theta)


def _backward(loss: str, immediate: bool, kept: tuple, up: jax.Array) -> tuple:
    by_x, by_theta = kept
    return up[..., None] * by_x, up[..., None, None] * by_theta, None, None, None


total_ordinal.defvjp(_forward, _backward)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def total_proximal(x: jax.Array, code: jax.Array, rows: Rows, n_levels: int) -> jax.Array:
    """Summed over the observed cells, the centres theta* being functions of x themselves."""
    return sparse.proximal_loss(x, code, rows, n_levels)[0]


def _proximal_forward(x: jax.Array, code: jax.Array, rows: Rows, n_levels: int) -> tuple:
    total, by_x = sparse.proximal_loss(x, code, rows, n_levels)
    return total, by_x


def _proximal_backward(n_levels: int, by_x: jax.Array, up: jax.Array) -> tuple:
    return up * by_x, None, None


total_proximal.defvjp(_proximal_forward, _proximal_backward)
