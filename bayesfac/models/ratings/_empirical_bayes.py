"""Scales of the Normal-Wishart sides for a point fit, by empirical Bayes.

A joint mode over factors and scales is a poor point: the density is high where factors are small and Lambda
is large, and on sparse data the factors vanish. Here every row has a normal q(u_i) = N(mean, cov), as in
mean-field variational Bayes (Lim & Teh, KDD Cup 2007), and mu and Lambda are set to the modes given the
second moments of the rows, which count the uncertainty. With weights w_ij and targets t_ij of the cells:

    cov_i^-1 = Lambda_U + sum_j w_ij (v_j v_j' + cov_j)
    mean_i = cov_i (Lambda_U (mu_U + B'x_i) + sum_j w_ij t_ij v_j)

Where rows have features x_i, B is set to its mean given the means of the rows, and ridge to its mode given
the second moment of B; the uncertainty of B adds F Lambda^-1 to the moments from which Lambda comes.

A point fit then holds mu and Lambda. As it takes factors for certain, it lacks the ridge sum_j w_ij cov_j
that their uncertainty adds: `estimated` adds the mean of this ridge over the cells to Lambda.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bayesfac.core.data.cells import Cells, Rows
from bayesfac.core.data.features import Features
from bayesfac.core.kernels import sparse
from bayesfac.core.laws.links import Links
from bayesfac.core.math import inner
from bayesfac.models.ratings import _links as links
from bayesfac.models.ratings._normal_wishart import NAMES

SWEEPS = 30
SITES = ("mu_U", "Lambda_U", "mu_V", "Lambda_V")
HELD = (*SITES, *links.SITES)


class Side(NamedTuple):
    """Means (n x K) and covariances (n x K x K) of the rows, and the prior's mean and precision; with
    features, B and ridge."""

    mean: jax.Array
    cov: jax.Array
    mu: jax.Array
    precision: jax.Array
    B: jax.Array | None = None
    ridge: jax.Array | None = None


Observe = Callable[[Any, jax.Array, jax.Array], tuple[Any, jax.Array, jax.Array]]


def estimated(
    sides: dict[str, Any], data: Any, hyper: Any, own: Any, observe: Observe
) -> tuple[dict[str, Any], Any]:
    """The sites of both sides, with scales for a point fit, and the method's own unknowns.

    `sides` is the start. `observe(own, x, variance)` is called with mean and variance of u.v at the cells; it
    returns the method's own unknowns (noise, thresholds) anew, and target and weight of every cell.
    """
    cells, x = data.cells, (data.x.get("user"), data.x.get("item"))
    user, item = (_begin(sides, side) for side in NAMES)
    own, target, weight = observe(own, *moments(user, item, cells))

    def sweep(state: tuple) -> tuple:
        count, user, item, own, target, weight = state
        user = _rows(cells.by_row, target, weight, item, _prior(user, x[0], hyper, count), x[0])
        item = _rows(cells.by_col, target, weight, user, _prior(item, x[1], hyper, count), x[1])
        return count + 1, user, item, *observe(own, *moments(user, item, cells))

    first = (jnp.zeros((), jnp.int32), user, item, own, target, weight)
    _, user, item, own, _, weight = jax.lax.while_loop(
        lambda state: state[0] < SWEEPS, sweep, first
    )
    found: dict[str, Any] = dict(
        zip(SITES, (user.mu, user.precision, item.mu, item.precision), strict=True)
    )
    found["Lambda_U"] = _even(found["Lambda_U"] + _doubt(cells.by_row, weight, item))
    found["Lambda_V"] = _even(found["Lambda_V"] + _doubt(cells.by_col, weight, user))
    if data.x:
        both = {"user": user, "item": item}
        found["B"] = {side: both[side].B for side in data.x}
        found["ridge"] = {side: both[side].ridge for side in data.x}
    return {"U": user.mean, "V": item.mean, **found}, own


def _begin(sides: dict[str, Any], side: str) -> Side:
    """Certain rows: the first sweep finds their covariances."""
    mean, mu, precision = (sides[name] for name in NAMES[side])
    more = ((sides[name] or {}).get(side) for name in ("B", "ridge"))
    return Side(mean, jnp.zeros((*mean.shape, mean.shape[1]), mean.dtype), mu, precision, *more)


def _even(table: jax.Array) -> jax.Array:
    """The symmetric part, without the rounding of an inverse."""
    return (table + jnp.swapaxes(table, -1, -2)) / 2


def _flat(table: jax.Array) -> jax.Array:
    return jnp.reshape(table, (len(table), -1))


def _square(mean: jax.Array) -> jax.Array:
    return mean[:, :, None] * mean[:, None, :]


def moments(user: Side, item: Side, cells: Cells) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of u.v at the cells."""
    both = inner(_flat(_square(user.mean) + user.cov), _flat(item.cov), cells)
    return inner(user.mean, item.mean, cells), both + inner(
        _flat(user.cov), _flat(_square(item.mean)), cells
    )


def _prior(side: Side, x: Features | None, hyper: Any, count: jax.Array) -> Side:
    """mu, Lambda, B and ridge at their modes; the first two sweeps keep those of the start."""
    (n, K), beta0 = side.mean.shape, hyper.beta0
    mean, new = side.mean, side
    if x is not None and side.B is not None:
        law = Links(x, mean - side.mu, side.ridge, side.precision)
        B = law.mean
        square = jnp.sum(B @ side.precision * B) + K * law.trace_of_inverse()
        power = hyper.ridge_shape - 1 + B.size / 2
        new = side._replace(B=B, ridge=power / (hyper.ridge_rate + square / 2))
        mean = mean - x.times(B)
    mu = mean.sum(0) / (beta0 + n)
    away = mean - mu
    rate = jnp.eye(K, dtype=mu.dtype) + away.T @ away + side.cov.sum(0) + beta0 * jnp.outer(mu, mu)
    if new.B is not None:
        rate += side.ridge * new.B.T @ new.B
    new = new._replace(mu=mu, precision=n * jnp.linalg.inv(rate))
    return jax.tree.map(lambda old, new: jnp.where(count < 2, old, new), side, new)


def _rows(
    rows: Rows, target: jax.Array, weight: jax.Array, other: Side, side: Side, x: Features | None
) -> Side:
    """The rows' normals given the other side."""
    K = side.mean.shape[1]
    square = sparse.spread(rows, weight, _flat(_square(other.mean) + other.cov))
    precision = side.precision + jnp.reshape(square, (-1, K, K))
    shift = side.precision @ side.mu + sparse.spread(rows, weight * target, other.mean)
    if x is not None and side.B is not None:
        shift += x.times(side.B) @ side.precision
    cov = _even(jnp.linalg.inv(precision))
    return side._replace(mean=jnp.einsum("nkl,nl->nk", cov, shift), cov=cov)


def _doubt(rows: Rows, weight: jax.Array, other: Side) -> jax.Array:
    """The mean over cells of their row's sum_j w_ij cov_j: the ridge that the other side's doubt adds."""
    K, count = other.mean.shape[1], jnp.diff(rows.ptr)
    each = sparse.spread(rows, weight, _flat(other.cov))
    return jnp.reshape(count @ each / count.sum(), (K, K))
