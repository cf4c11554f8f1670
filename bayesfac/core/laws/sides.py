"""Rows of the factors of all axes with normal laws, and one step of mean-field variational Bayes for an axis.

`empirical_bayes.py` makes sweeps of such steps. The rows of a matrix or of several linked matrices are a
list with a `Side` for each axis. Those of a small tensor (`EvenCells`) are one `Side`, whose arrays have an
axis of modes before their own: a loop over the modes is then compiled once.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayesfac.core.data.cells import Cells, LinkedCells, TensorCells
from bayesfac.core.data.features import Features
from bayesfac.core.kernels import sparse
from bayesfac.core.laws.beliefs import doubled, half, inverse, square, whole
from bayesfac.core.laws.distributions import GaussianRows
from bayesfac.core.laws.links import Links
from bayesfac.core.multilinear import EvenCells, at, crossed, multiplied, others, rows_at


class Side(NamedTuple):
    """Means (n x K) and covariances (n x K x K) of the rows of a factor, and the prior's mean and precision;
    with features, B and ridge. `live` is 1 for each row, and 0 for rows that only fill up a table."""

    mean: jax.Array
    cov: jax.Array
    mu: jax.Array
    precision: jax.Array
    B: jax.Array | None = None
    ridge: jax.Array | None = None
    live: jax.Array | None = None


Sides = Any  # a list with a `Side` for each axis; of `EvenCells` one, whose arrays have an axis of modes


def certain(mean: jax.Array, *rest: Any, **more: Any) -> Side:
    """A side whose rows have no variance; the first sweep computes their covariances."""
    return Side(mean, jnp.zeros((*mean.shape, mean.shape[-1]), mean.dtype), *rest, **more)


def sides_of(tables: Any, precision: jax.Array, shape: tuple[int, ...]) -> Sides:
    """Rows without variance about zero, for axes of these sizes, with the same precision of the prior."""
    if isinstance(tables, list):
        return [certain(table, jnp.zeros_like(table[0]), precision) for table in tables]
    M, n, K = tables.shape
    live = np.arange(n) < np.array(shape)[:, None]
    prior = jnp.zeros((M, K), tables.dtype), jnp.broadcast_to(precision, (M, K, K))
    return certain(tables, *prior, live=jnp.asarray(live, tables.dtype))


def each_side(function: Callable[..., Any], sides: Sides, *more: Any) -> Any:
    """The function of every side; of `EvenCells`, of all at once."""
    if isinstance(sides, list):
        return [function(*given) for given in zip(sides, *more, strict=True)]
    return function(sides, *more)


def means(sides: Sides) -> Any:
    """The means of the rows of every axis."""
    return each_side(lambda side: side.mean, sides)


def moments(sides: Sides, cells: Cells | TensorCells) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of the products at the cells."""
    mean = multiplied(means(sides), cells)
    if isinstance(cells, EvenCells):

        def part(m: jax.Array) -> jax.Array:
            tables = _differences(m, sides)
            halves: Any = half(tables).at[0].set(doubled(tables[0]))
            return multiplied(halves, cells)

        return mean, jnp.sum(jax.lax.map(part, jnp.arange(len(cells.shape))), 0)
    if isinstance(cells, LinkedCells):
        cov = [doubled(s.cov) for s in sides]
        variance = crossed(cov, [half(square(s.mean)) for s in sides], cells)
        return mean, variance + crossed([half(_second(s)) for s in sides], cov, cells)
    variance = jnp.zeros(())
    for m in range(len(sides)):
        first, *rest = _differences(m, sides)
        variance += multiplied([doubled(first), *map(half, rest)], cells)
    return mean, variance


def _differences(m: Any, sides: Sides) -> Any:
    """Tables whose product is that of the second moments up to m, minus that up to m - 1."""
    if isinstance(sides, list):
        return [
            _second(s) if j < m else s.cov if j == m else square(s.mean)
            for j, s in enumerate(sides)
        ]
    j = jnp.arange(len(sides.mean))[:, None, None, None]
    return jnp.where(j == m, 0, square(sides.mean)) + jnp.where(j <= m, sides.cov, 0)


def drawn_rows(
    m: Any, x: Features | None, cells: Any, key: Any, sides: Sides, target: Any, weight: Any
) -> Side:
    """The side of mode m at a draw of its rows given the means of the others, as in a Gibbs sweep."""
    side, table, centre = at(sides, m), others(means(sides), m, cells), None
    if x is not None and side.B is not None:
        centre = x.times(side.B)
        pair = (centre, table) if m == 0 else (table, centre)
        target = target - multiplied(pair, cells)
    shift = side.precision @ side.mu
    law = GaussianRows(rows_at(cells, m), target, table, weight, side.precision, shift, centre)
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
    n: Any = mean.shape[0]
    K = mean.shape[1]
    if x is not None and side.B is not None:
        law = Links(x, mean - side.mu, side.ridge, side.precision)
        B = law.mean
        square = jnp.sum(B @ side.precision * B) + K * law.trace_of_inverse()
        power = h.ridge_shape - 1 + B.size / 2
        new = side._replace(B=B, ridge=power / (h.ridge_rate + square / 2))
        mean = mean - x.times(B)
    cov = side.cov
    if side.live is not None:  # the other rows only fill up the table
        n, mean, cov = side.live.sum(), side.live[:, None] * mean, side.live[:, None, None] * cov
    mu = mean.sum(0) / (h.beta0 + n)
    away = mean - mu if side.live is None else mean - side.live[:, None] * mu
    own = h.rate * jnp.eye(K, dtype=mu.dtype) + h.beta0 * jnp.outer(mu, mu)
    rate = own + away.T @ away + cov.sum(0)
    if new.B is not None and side.ridge is not None:
        rate += side.ridge * new.B.T @ new.B
    new = new._replace(mu=mu, precision=n * inverse(rate))
    return jax.tree.map(lambda old, new: jnp.where(count < 2, old, new), side, new)


def unchanged(m: Any, x: Any, cells: Any, _: Any, sides: Sides, *rest: Any) -> Side:
    """The side of mode m as it is."""
    return at(sides, m)


def rows_of(
    m: Any, x: Features | None, cells: Any, _: Any, sides: Sides, target: Any, weight: Any
) -> Side:
    """The normal laws of the rows of mode m, given the means and second moments of the other modes."""
    rows, side = rows_at(cells, m), at(sides, m)
    mean = others(means(sides), m, cells)
    square = others(each_side(lambda s: half(_second(s)), sides), m, cells)
    precision = side.precision + whole(sparse.spread(rows, weight, square), side.mean.shape[1])
    shift = side.precision @ side.mu + sparse.spread(rows, weight * target, mean)
    if x is not None and side.B is not None:
        shift += x.times(side.B) @ side.precision
    cov = inverse(precision)
    return side._replace(mean=jnp.einsum("nkl,nl->nk", cov, shift), cov=cov)


def doubts(sides: Sides, weight: jax.Array, cells: Any) -> Any:
    """For every mode, the ridge that the uncertainty of all other modes adds to it: `_doubt`."""
    if isinstance(cells, EvenCells):
        each = jnp.arange(len(cells.shape))
        return jax.lax.map(lambda m: _doubt(m, sides, weight, cells), each)
    return [_doubt(m, sides, weight, cells) for m in range(len(sides))]


def _doubt(m: Any, sides: Sides, weight: jax.Array, cells: Cells | TensorCells) -> jax.Array:
    """The mean over cells of their row's sum_j w_ij cov_j: the ridge that the uncertainty of all other modes
    adds to mode m."""
    rows, K = rows_at(cells, m), at(sides, m).mean.shape[1]

    def spread(weight: jax.Array, tables: Any) -> jax.Array:
        return sparse.spread(rows, weight, others(tables, m, cells))

    if isinstance(cells, EvenCells):

        def added(j: jax.Array, total: jax.Array) -> jax.Array:
            return total + spread(jnp.where(j == m, 0, weight), half(_differences(j, sides)))

        begin = jnp.zeros((cells.shape[0], K * (K + 1) // 2), weight.dtype)
        each = jax.lax.fori_loop(0, len(cells.shape), added, begin)
    else:
        parts = [_differences(j, sides) for j in range(len(sides)) if j != m]
        if isinstance(cells, LinkedCells):
            parts = [[s.cov for s in sides]]
        each = sum(spread(weight, [half(table) for table in part]) for part in parts)
    count = jnp.diff(rows.ptr)
    return whole(count @ each / count.sum(), K)
