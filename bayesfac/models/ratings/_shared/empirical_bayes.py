"""Scales of the Normal-Wishart sides for a point fit, by empirical Bayes.

A joint mode over factors and scales is a poor point: the density is high where factors are small and Lambda
is large, and on sparse data the factors vanish. Here every row has a normal q(u_i) = N(mean, cov), as in
mean-field variational Bayes (Lim & Teh, KDD Cup 2007), and mu and Lambda are set to the modes given the
second moments of the rows, which count the uncertainty. With weights w_ij and targets t_ij of the cells:

    cov_i^-1 = Lambda_U + sum_j w_ij (v_j v_j' + cov_j)
    mean_i = cov_i (Lambda_U (mu_U + B'x_i) + sum_j w_ij t_ij v_j)

Where rows have features x_i, B is set to its mean given the means of the rows, and ridge to its mode given
the second moment of B; the uncertainty of B adds F Lambda^-1 to the moments from which Lambda comes.

The sweeps begin twice, from random factors and from regularised biases of users and items (`starts`),
which few ratings show best. What ends with the larger lower bound of the evidence is taken.

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
from bayesfac.models.ratings._shared import links
from bayesfac.models.ratings._shared.normal_wishart import NAMES

SWEEPS = 30
FAINT = 1e-3  # of the targets' variance: a u.v that varies less is a collapse, which is no point
SMALL = 0.1  # of the start's random factors, beside biases
RIDGE = 5.0  # ratings: the weight of the prior of a bias in the start
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


Observe = Callable[[Any, jax.Array, jax.Array], tuple[Any, jax.Array, jax.Array, jax.Array]]


def estimated(
    starts: list[dict[str, Any]], data: Any, h: Any, own: Any, observe: Observe
) -> tuple[dict[str, Any], Any]:
    """The sites of both sides, with scales for a point fit, and the method's own unknowns.

    The sweeps run from each of the `starts`; that with the largest lower bound of the evidence counts, among
    those whose factors did not vanish: with few ratings the bound prefers no factors to biases that predict.
    `observe(own, x, variance)` is called with mean and variance of u.v at the cells. It returns the method's
    own unknowns (noise, thresholds) anew, target and weight of every cell, and the expected log likelihood.
    """
    cells, x = data.cells, (data.x.get("user"), data.x.get("item"))

    def run(sides: dict[str, Any]) -> tuple:
        user, item = (_begin(sides, side) for side in NAMES)

        def sweep(_: int, state: tuple) -> tuple:
            count, user, item, own, target, weight, _ = state
            user = _rows(cells.by_row, target, weight, item, _prior(user, x[0], h, count), x[0])
            item = _rows(cells.by_col, target, weight, user, _prior(item, x[1], h, count), x[1])
            return count + 1, user, item, *observe(own, *moments(user, item, cells))

        first = (0, user, item, *observe(own, *moments(user, item, cells)))
        _, user, item, new, target, weight, fit = jax.lax.fori_loop(0, SWEEPS, sweep, first)
        alive = jnp.var(moments(user, item, cells)[0]) > FAINT * jnp.var(target)
        bound = fit + _evidence(user, x[0], h) + _evidence(item, x[1], h)
        return jnp.where(alive, bound, -jnp.inf), user, item, new, weight

    ends = jax.lax.map(run, jax.tree.map(lambda *tables: jnp.stack(tables), *starts))
    best = jnp.argmax(ends[0])
    _, user, item, own, weight = jax.tree.map(lambda table: table[best], ends)
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


def normal(y: jax.Array, shape: float, rate: Any, alpha: float | None = None) -> Observe:
    """`observe` of normal ratings y, whose precision is Gamma(shape, rate) unless `alpha` fixes it; `own` is
    the precision, and the mean variance of u.v."""

    def observe(own: tuple, x: jax.Array, variance: jax.Array) -> tuple:
        misfit = 0.5 * jnp.sum((y - x) ** 2 + variance)
        new = own[0] if alpha is not None else (shape - 1 + 0.5 * len(y)) / (rate + misfit)
        fit = 0.5 * len(y) * jnp.log(new) - new * misfit
        if alpha is None:
            fit += (shape - 1) * jnp.log(new) - rate * new
        return (new, jnp.mean(variance)), y, jnp.full_like(y, new), fit

    return observe


def _evidence(side: Side, x: Features | None, h: Any) -> jax.Array:
    """What a side adds to the bound: the expected log density of its rows, mu, Lambda, B and ridge, and the
    entropy of the rows."""
    n, away, links_energy = len(side.mean), side.mean - side.mu, jnp.zeros(())
    if x is not None and side.B is not None:
        away = away - x.times(side.B)
        links_energy = links.energy(side.B, side.ridge, side.precision)
        links_energy += links.ridge_energy(side.ridge, h)
    scatter = away.T @ away + side.cov.sum(0)
    prior = h.beta0 * side.mu @ side.precision @ side.mu + h.rate * jnp.trace(side.precision)
    logdets = n * jnp.linalg.slogdet(side.precision)[1] + jnp.linalg.slogdet(side.cov)[1].sum()
    return 0.5 * (logdets - jnp.sum(side.precision * scatter) - prior) - links_energy


def starts(p: Any, data: Any, h: Any, y: jax.Array, a: float) -> list[dict[str, Any]]:
    """The sides of p, with random factors; and with biases b and c of users and items as first components.

    u.v is b_i + c_j, from u = (b_i / a, a, ...) and v = (a, c_j / a, ...); b has the mean of y. mu and
    Lambda fit these rows: under a wide prior the first sweeps would overfit, and would not come back.
    """
    cells, sides = data.cells, {name: getattr(p, name) for name in ("U", "V", *SITES, "B", "ridge")}
    if sides["U"].shape[1] < 2:
        return [sides]
    mean = jnp.mean(y)
    b, c = biases(cells, y - mean)
    b = b + mean
    U = (SMALL * sides["U"]).at[:, 0].set(b / a).at[:, 1].set(a)
    V = (SMALL * sides["V"]).at[:, 0].set(a).at[:, 1].set(c / a)
    begun = sides | {"U": U, "V": V}
    user, item = (_prior(_begin(begun, side), None, h, 2) for side in NAMES)
    found = dict(zip(SITES, (user.mu, user.precision, item.mu, item.precision), strict=True))
    return [sides, begun | found]


def biases(cells: Cells, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Regularised biases of rows and columns, by ridge regressions on each other; y is centred."""
    ones = [jnp.ones((n, 1), y.dtype) for n in cells.shape]

    def ridge(rows: Rows, rest: jax.Array, other: jax.Array) -> jax.Array:
        return sparse.spread(rows, rest, other)[:, 0] / (jnp.diff(rows.ptr) + RIDGE)

    def step(_: int, found: tuple) -> tuple:
        c = ridge(cells.by_col, y - found[0][cells.row], ones[0])
        return ridge(cells.by_row, y - c[cells.col], ones[1]), c

    begin = tuple(jnp.zeros(n, y.dtype) for n in cells.shape)
    return jax.lax.fori_loop(0, 10, step, begin)


def noise(cells: Cells, y: jax.Array) -> jax.Array:
    """The variance that regularised biases leave, over the ratings less what the biases cost."""
    y = y - jnp.mean(y)
    b, c = biases(cells, y)
    counts = jnp.concatenate([jnp.diff(cells.by_row.ptr), jnp.diff(cells.by_col.ptr)])
    free = len(y) - jnp.sum(counts / (counts + RIDGE))
    return jnp.sum((y - b[cells.row] - c[cells.col]) ** 2) / free


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


def _prior(side: Side, x: Features | None, h: Any, count: jax.Array | int) -> Side:
    """mu, Lambda, B and ridge at their modes; the first two sweeps keep those of the start."""
    (n, K), mean, new = side.mean.shape, side.mean, side
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
