"""Sparse tables X near A C': products, errors and a distribution, without building A C'."""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import constraints

from bayesfac.core.data.cells import Cells, Query
from bayesfac.core.kernels import sparse
from bayesfac.core.math import inner, safe_log


@jax.custom_vjp
def product(cells: Cells, y: jax.Array, C: jax.Array) -> jax.Array:
    """X C of the sparse table X, whose stored cells are `cells` with the values `y`."""
    return sparse.spread(cells.by_row, y, C)


def _forward(cells: Cells, y: jax.Array, C: jax.Array) -> tuple[jax.Array, tuple]:
    return product(cells, y, C), (cells, y)


def _backward(residuals: tuple, slope: jax.Array) -> tuple[None, None, jax.Array]:
    # X' times the slope by sorted sums over columns, in place of an unsorted scatter
    cells, y = residuals
    return None, None, sparse.spread(cells.by_col, y, slope)


product.defvjp(_forward, _backward)


def transposed(cells: Cells, y: jax.Array, A: jax.Array) -> jax.Array:
    """X' A."""
    return sparse.spread(cells.by_col, y, A)


def squared_error(cells: Cells, y: jax.Array, A: jax.Array, C: jax.Array) -> jax.Array:
    """|X - A C'|^2 over the whole table with its zeros, in O((nnz + n + d) q)."""
    cross = jnp.sum(A * product(cells, y, C))
    return jnp.sum(y**2) - 2 * cross + jnp.sum((A.T @ A) * (C.T @ C))


def divergence(cells: Cells, y: jax.Array, A: jax.Array, C: jax.Array) -> jax.Array:
    """The generalised Kullback-Leibler divergence D(X || A C')."""
    stored = jnp.sum(y * (safe_log(y) - safe_log(inner(A, C, cells))) - y)
    return stored + jnp.sum(A, 0) @ jnp.sum(C, 0)


class CellwiseLaw(dist.Distribution):
    """One distribution of a whole table whose log density is a sum over cells."""

    def of_cells(self, query: Query, value: jax.Array) -> jax.Array:
        """The terms of these cells, whose values are `value`, in `log_prob`."""
        raise NotImplementedError


class Table(CellwiseLaw):
    """A whole table with density exp(-w error(X, A C')); `how` makes it normal or similar to a Poisson law.

    The error w |X - A C'|^2 ("squared") makes cells normal with precision 2 w. With w D(X || A C') they are
    similar to Poisson counts. A value is the list of values in `cells`, with zeros elsewhere; a sample is a
    table.
    """

    arg_constraints: dict[str, Any] = {}
    support = constraints.real_vector
    pytree_data_fields = ("A", "C", "cells")
    pytree_aux_fields = ("weight", "how")

    def __init__(self, A: jax.Array, C: jax.Array, cells: Cells, weight: float, how: str) -> None:
        self.A, self.C, self.cells, self.weight, self.how = A, C, cells, weight, how
        super().__init__((), (cells.row.shape[0],))

    def log_prob(self, value: jax.Array) -> jax.Array:
        error = squared_error if self.how == "squared" else divergence
        return -self.weight * error(self.cells, value, self.A, self.C)

    def of_cells(self, query: Query, value: jax.Array) -> jax.Array:
        """The terms of single cells in `log_prob`; the cells may be zeros."""
        mean = inner(self.A, self.C, query)
        if self.how == "squared":
            return -self.weight * (value - mean) ** 2
        return -self.weight * (value * (safe_log(value) - safe_log(mean)) - value + mean)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        mean = self.A @ self.C.T
        shape = (*sample_shape, *mean.shape)
        if self.how == "squared":
            return mean + jax.random.normal(key, shape, mean.dtype) / (2 * self.weight) ** 0.5
        return jax.random.poisson(key, self.weight * mean, shape) / self.weight
