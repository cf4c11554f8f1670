"""Rows of the factors of all axes with normal laws, and one step of mean-field variational Bayes for an axis.

`empirical_bayes.py` makes sweeps of such steps. The rows of all axes are a list with a `Side` for each.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bayesfac.core.data.cells import Cells, LinkedCells, TensorCells
from bayesfac.core.data.features import Features
from bayesfac.core.kernels import sparse
from bayesfac.core.laws.beliefs import doubled, half, inverse, square, whole
from bayesfac.core.laws.distributions import GaussianRows
from bayesfac.core.laws.links import Links
from bayesfac.core.multilinear import crossed, multiplied, others


class Side(NamedTuple):
    """Means (n x K) and covariances (n x K x K) of the rows of a factor, and the prior's mean and precision;
    with features, B and ridge."""

    mean: jax.Array
    cov: jax.Array
    mu: jax.Array
    precision: jax.Array
    B: jax.Array | None = None
    ridge: jax.Array | None = None


Sides = list[Side]


def certain(mean: jax.Array, *rest: Any) -> Side:
    """A side whose rows have no variance; the first sweep computes their covariances."""
    return Side(mean, jnp.zeros((*mean.shape, mean.shape[-1]), mean.dtype), *rest)


def means(sides: Sides) -> list[jax.Array]:
    """The means of the rows of every axis."""
    return [side.mean for side in sides]


def moments(sides: Sides, cells: Cells | TensorCells) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of the products at the cells."""
    mean = multiplied(means(sides), cells)
    if isinstance(cells, LinkedCells):
        cov = [doubled(s.cov) for s in sides]
        variance = crossed(cov, [half(square(s.mean)) for s in sides], cells)
        return mean, variance + crossed([half(_second(s)) for s in sides], cov, cells)
    variance = jnp.zeros(())
    for m in range(len(sides)):
        first, *rest = _differences(m, sides)
        variance += multiplied([doubled(first), *map(half, rest)], cells)
    return mean, variance


def _differences(m: int, sides: Sides) -> list[jax.Array]:
    """Tables whose product is that of the second moments up to m, minus that up to m - 1."""
    return [
        _second(s) if j < m else s.cov if j == m else square(s.mean) for j, s in enumerate(sides)
    ]


def drawn_rows(
    m: Any, x: Features | None, cells: Any, key: Any, sides: Sides, target: Any, weight: Any
) -> Side:
    """The side of mode m at a draw of its rows given the means of the others, as in a Gibbs sweep."""
    side, table, centre = sides[m], others(means(sides), m, cells), None
    if x is not None and side.B is not None:
        centre = x.times(side.B)
        pair = (centre, table) if m == 0 else (table, centre)
        target = target - multiplied(pair, cells)
    shift = side.precision @ side.mu
    law = GaussianRows(cells.modes[m], target, table, weight, side.precision, shift, centre)
    return certain(law.sample(key), *side[2:])


def certain_moments(sides: Sides, cells: Any) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of the products of rows without variance."""
    mean = multiplied(means(sides), cells)
    return mean, jnp.zeros_like(mean)


def _second(side: Side) -> jax.Array:
    return square(side.mean) + side.cov


def prior_of(side: Side, x: Features | None, h: Any, count: jax.Array | int) -> Side:
    """mu, Lambda, B and ridge at their modes; the first two sweeps keep the values of the start."""
    mean, new = side.mean, side
    n, K = mean.shape
    if x is not None and side.B is not None:
        law = Links(x, mean - side.mu, side.ridge, side.precision)
        B = law.mean
        square = jnp.sum(B @ side.precision * B) + K * law.trace_of_inverse()
        power = h.ridge_shape - 1 + B.size / 2
        new = side._replace(B=B, ridge=power / (h.ridge_rate + square / 2))
        mean = mean - x.times(B)
    mu = mean.sum(0) / (h.beta0 + n)
    away = mean - mu
    own = h.rate * jnp.eye(K, dtype=mu.dtype) + h.beta0 * jnp.outer(mu, mu)
    rate = own + away.T @ away + side.cov.sum(0)
    if new.B is not None and side.ridge is not None:
        rate += side.ridge * new.B.T @ new.B
    new = new._replace(mu=mu, precision=n * inverse(rate))
    return jax.tree.map(lambda old, new: jnp.where(count < 2, old, new), side, new)


def unchanged(m: Any, x: Any, cells: Any, _: Any, sides: Sides, *rest: Any) -> Side:
    """The side of mode m as it is."""
    return sides[m]


def rows_of(
    m: Any, x: Features | None, cells: Any, _: Any, sides: Sides, target: Any, weight: Any
) -> Side:
    """The normal laws of the rows of mode m, given the means and second moments of the other modes."""
    rows, side = cells.modes[m], sides[m]
    mean = others(means(sides), m, cells)
    square = others([half(_second(s)) for s in sides], m, cells)
    precision = side.precision + whole(sparse.spread(rows, weight, square), side.mean.shape[1])
    shift = side.precision @ side.mu + sparse.spread(rows, weight * target, mean)
    if x is not None and side.B is not None:
        shift += x.times(side.B) @ side.precision
    cov = inverse(precision)
    return side._replace(mean=jnp.einsum("nkl,nl->nk", cov, shift), cov=cov)


def doubts(sides: Sides, weight: jax.Array, cells: Any) -> list[jax.Array]:
    """For every mode, the ridge that the uncertainty of all other modes adds to it: the mean over cells of
    their row's sum_j w_ij cov_j."""
    found = []
    for m, side in enumerate(sides):
        rows, K = cells.modes[m], side.mean.shape[1]
        parts = [_differences(j, sides) for j in range(len(sides)) if j != m]
        if isinstance(cells, LinkedCells):
            parts = [[s.cov for s in sides]]
        spread = [
            sparse.spread(rows, weight, others([half(table) for table in part], m, cells))
            for part in parts
        ]
        count = jnp.diff(rows.ptr)
        found.append(whole(count @ sum(spread) / count.sum(), K))
    return found
