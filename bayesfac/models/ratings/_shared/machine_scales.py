"""The priors of a factorization machine for a point fit, by empirical Bayes: see
`core/laws/empirical_bayes.py`.

The rows of users, r_i = (b_i, u_i), and of items, r_j = (c_j, v_j), have normal laws. The score is the
product of (b_i, 1, u_i) and (1, c_j, v_j), so one table of second moments of such rows serves a side: row i
needs sum_j w_ij E[v_j v_j'] in its free entries, and the product of its free entries and its 1 is subtracted
from the target. With features, links and means of rows are solved together (`machine_moves.System`). The
prior is then set to its mode given the second moments. The variance of the links is replaced by a lower
bound, the inverse of the diagonal of their precision. The first sweeps draw the rows.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bayesfac.core.kernels import sparse
from bayesfac.core.laws.beliefs import doubled, half, square, whole
from bayesfac.core.laws.empirical_bayes import DRAWS, Early, Observe, biases, look
from bayesfac.core.math import inner
from bayesfac.models.ratings._shared import machine
from bayesfac.models.ratings._shared.machine import BIAS, ROWS, groups, rows_of
from bayesfac.models.ratings._shared.machine_moves import System, Tables, prior
from bayesfac.parts.factors import conditional

SWEEPS = 30
FIRST = 2  # sweeps in which the prior of the start is kept


class Belief(NamedTuple):
    """Rows (b, 1, u) of users or (1, c, v) of items, and the covariances of their free entries."""

    mean: jax.Array
    cov: jax.Array


def estimated(
    p: Any, data: Any, hyper: Any, own: Any, observe: Observe, early: Early | None = None
) -> tuple[Any, Any]:
    """Params with the sites of both sides for a point fit, and the method's own parameters.

    `observe` and `early` are as in `core/laws/empirical_bayes.py`.
    """
    p = from_biases(p, data, hyper)
    both: Any = tuple(certain(p, side) for side in ROWS)
    at = {side: free(side, both[0].mean.shape[1])[0] for side in ROWS}

    def sweep(count: jax.Array, state: tuple) -> tuple:
        p, both, own = state
        found = moments(both[0], both[1], data.cells)
        own, target, weight, _ = look(observe, early, count < DRAWS, own, *found)
        for number, side in enumerate(ROWS):
            new, L, doubt = updated(p, data, side, target, weight, both[1 - number])
            key = jax.random.fold_in(jax.random.key(number), count)
            new = jax.lax.cond(count < DRAWS, drawn, lambda key, new, at: new, key, new, at[side])
            both = (new, both[1]) if number == 0 else (both[0], new)
            p = with_rows(p, side, new, L)
            better = with_prior(p, data, hyper, side, new, doubt)
            p = jax.tree.map(lambda old, new: jnp.where(count < FIRST, old, new), p, better)
        return p, both, own

    p, both, own = jax.lax.fori_loop(0, DRAWS + SWEEPS, sweep, (p, both, own))
    own, _, weight, _ = observe(own, *moments(both[0], both[1], data.cells))
    tau = dict(p.tau)
    for number, side in enumerate(ROWS):
        tau[side] = tau[side] + ridge_of_doubt(data, side, weight, both[1 - number])
    return p._replace(tau=tau), own


def from_biases(p: Any, data: Any, hyper: Any) -> Any:
    """The start with regularised biases, so that factors start from the residuals of these biases."""
    y = data.y - jnp.mean(data.y)
    unit = jnp.std(data.y) if p.level is None else 1.0
    b, c = biases(data.cells, y / unit)
    return p._replace(bias_user=b, bias_item=c)


def drawn(key: jax.Array, rows: Belief, at: jax.Array) -> Belief:
    """Rows without variance, at a draw of their free entries: see `core/laws/empirical_bayes.py`."""
    e = jax.random.normal(key, rows.cov.shape[:2], rows.mean.dtype)
    moved = jnp.einsum("nkl,nl->nk", jnp.linalg.cholesky(rows.cov), e)
    return Belief(rows.mean.at[:, at].add(moved), jnp.zeros_like(rows.cov))


def free(side: str, K: int) -> tuple[jax.Array, int]:
    """Which entries of an extended row of a side vary, and which is 1."""
    own, one = (0, 1) if side == "user" else (1, 0)
    return jnp.array([own, *range(2, K)]), one


def certain(p: Any, side: str) -> Belief:
    rows, bias = getattr(p, ROWS[side]), getattr(p, BIAS[side])
    K = rows.shape[1] + 1
    return Belief(extended(side, bias, rows), jnp.zeros((len(rows), K, K), rows.dtype))


def extended(side: str, bias: jax.Array, rows: jax.Array) -> jax.Array:
    pair = [bias, jnp.ones_like(bias)]
    return jnp.concatenate([jnp.stack(pair if side == "user" else pair[::-1], 1), rows], 1)


def covariance(belief: Belief, side: str) -> jax.Array:
    """Covariances of the extended rows, with zeros for the entry that is 1."""
    at, _ = free(side, belief.mean.shape[1])
    n, K = belief.mean.shape
    return jnp.zeros((n, K, K), belief.mean.dtype).at[:, at[:, None], at].set(belief.cov)


def moments(user: Belief, item: Belief, cells: Any) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of the scores at the cells."""
    left, right = covariance(user, "user"), covariance(item, "item")
    a = jnp.concatenate([doubled(left), doubled(square(user.mean))], 1)
    b = jnp.concatenate([half(square(item.mean) + right), half(right)], 1)
    return inner(user.mean, item.mean, cells), inner(a, b, cells)


def updated(
    p: Any, data: Any, side: str, target: jax.Array, weight: jax.Array, other: Belief
) -> tuple[Belief, Tables, Tables]:
    """The law of the rows of a side given that of the other, and links with lower bounds of their
    variances."""
    mine, K = rows_of(data, side), other.mean.shape[1]
    at, one = free(side, K)
    second = square(other.mean) + covariance(other, machine.OTHER[side])
    seen = whole(sparse.spread(mine, weight, half(second)), K)
    h = sparse.spread(mine, weight * target, other.mean)[:, at] - seen[:, at, one]
    D, mean, R = prior(p, side)
    system = System({key: data.x[key] for key in R}, seen[:, at[:, None], at], D, mean, R)
    L = system.solved(system.right(h)) if R else {}
    doubt = {key: 1 / value for key, value in system.diagonal().items()}
    rows = system.rows(h, L)
    return Belief(extended(side, rows[:, 0], rows[:, 1:]), system.inverse), L, doubt


def with_rows(p: Any, side: str, rows: Belief, L: Tables) -> Any:
    at = 0 if side == "user" else 1
    p = p._replace(**{ROWS[side]: rows.mean[:, 2:], BIAS[side]: rows.mean[:, at]})
    if not L:
        return p
    B, C = ({k: L[k][:, part] for k in L} for part in (slice(1, None), slice(1)))
    return p._replace(B={**p.B, **B}, C={**p.C, **C})


def with_prior(p: Any, data: Any, h: Any, side: str, rows: Belief, doubt: Tables) -> Any:
    """mu, tau, level and ridges of a side at their modes given second moments of rows and links."""
    every = machine.FACTORS.every
    mu = conditional(f"mu.{side}", every, p, data, h).mean
    p = p._replace(mu={**p.mu, side: mu})
    if side == "user" and p.level is not None:
        p = p._replace(level=conditional("level", every, p, data, h).mean)
    # the features' own degrees of freedom are not counted: if features are many, few are determined
    spare, n = jnp.einsum("nkk->k", rows.cov), len(rows.mean)
    squares = jnp.sum(machine.lone_rows(p, data, side) ** 2, 0) + h.beta0 * mu**2 + spare[1:]
    tau = (h.tau_shape - 1 + n / 2) / (h.tau_rate + squares / 2)
    squares = jnp.sum(machine.lone_bias(p, data, side) ** 2) + spare[0]
    tau_bias = (h.tau_shape - 1 + n / 2) / (h.bias_rate + squares / 2)
    p = p._replace(tau={**p.tau, side: tau}, tau_bias={**p.tau_bias, side: tau_bias})
    for key in groups(p, side):
        for site, table, tau, own in (
            ("ridge", p.B[key], p.tau[side], doubt[key][:, 1:]),
            ("ridge_bias", p.C[key], p.tau_bias[side], doubt[key][:, :1]),
        ):
            squares = jnp.sum(tau * (table**2 + own))
            new = (h.ridge_shape - 1 + table.size / 2) / (h.ridge_rate + squares / 2)
            p = p._replace(**{site: {**getattr(p, site), key: new}})
    return p


def ridge_of_doubt(data: Any, side: str, weight: jax.Array, other: Belief) -> jax.Array:
    """The mean over cells of their row's sum_j w_ij var v_jf, which a point lacks because it treats v as
    certain."""
    mine = rows_of(data, side)
    count = jnp.diff(mine.ptr)
    variance = jnp.einsum("nkk->nk", other.cov)[:, 1:]
    return count @ sparse.spread(mine, weight, variance) / count.sum()
