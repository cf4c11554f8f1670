"""Variational laws of bilinear models: coordinate ascent with a full covariance for each row.

Every site has a law of its own, q = prod q(site), and every row of U and V a normal with a full K x K
covariance S (Lim & Teh, KDD Cup 2007). The best law of a row given all others is its conditional with
expectations in place of values, E[v v'] = m m' + S:

    S_i^-1 = E Lambda + sum_j w_ij (m_j m_j' + S_j),   m_i = S_i (E[Lambda mu] + sum_j w_ij t_ij m_j)

A site of q is a mapping: {mean, cov} of normal rows, {mean, var} of independent normals, {shape, rate} of a
Wishart or a gamma law. Memory: one n x K x K table for each side, and copies of it only inside a sweep.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import digamma

from bayesfac.core.data.cells import Cells, Rows
from bayesfac.core.errors import BayesfacError
from bayesfac.core.kernels import sparse
from bayesfac.core.math import inner
from bayesfac.core.method import Variational

NAMES = {"user": ("U", "mu_U", "Lambda_U"), "item": ("V", "mu_V", "Lambda_V")}  # rows, mu, Lambda
Belief = dict[str, jax.Array]


# -- rows --------------------------------------------------------------------------------------------------
def certain(mean: jax.Array) -> Belief:
    """Normal rows without variance."""
    return {"mean": mean, "cov": jnp.zeros((*mean.shape, mean.shape[-1]), mean.dtype)}


def square(mean: jax.Array) -> jax.Array:
    """m m' of every row."""
    return mean[..., :, None] * mean[..., None, :]


def moments(U: Belief, V: Belief, cells: Cells) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of u.v at the cells: tr S_u E[v v'] + m_u' S_v m_u."""
    at, own, right = jnp.tril_indices(U["mean"].shape[1]), square(U["mean"]), square(V["mean"])
    twice = jnp.where(at[0] == at[1], 1, 2).astype(own.dtype)  # the other half of a symmetric table
    a = jnp.concatenate([table[:, *at] * twice for table in (U["cov"], own)], 1)
    b = jnp.concatenate([table[:, *at] for table in (right + V["cov"], V["cov"])], 1)
    return inner(U["mean"], V["mean"], cells), inner(a, b, cells)


def rows(
    mine: Rows, target: jax.Array, weight: Any, other: Belief, precision: jax.Array, shift: Any
) -> Belief:
    """The rows' normals given the other side; `weight` is one number, or one for each cell."""
    K = other["mean"].shape[1]
    weight = jnp.broadcast_to(jnp.asarray(weight, target.dtype), target.shape)
    i, j = jnp.tril_indices(K)
    place = jnp.zeros((K, K), int).at[i, j].set(jnp.arange(len(i))).at[j, i].set(jnp.arange(len(i)))
    half = sparse.spread(mine, weight, (square(other["mean"]) + other["cov"])[:, i, j])
    cov = inverse(precision + half[:, place])
    b = shift + sparse.spread(mine, weight * target, other["mean"])
    return {"mean": times_rows(cov, b), "cov": cov}


def inverse(P: jax.Array) -> jax.Array:
    """The inverse of positive definite matrices, symmetric to the last digit."""
    L = jnp.linalg.cholesky(P)
    eye = jnp.broadcast_to(jnp.eye(P.shape[-1], dtype=P.dtype), P.shape)
    root = jax.lax.linalg.triangular_solve(L, eye, left_side=True, lower=True)
    return jnp.swapaxes(root, -1, -2) @ root


def normal(belief: Belief) -> dist.Distribution:
    """The normal law of rows, or of independent numbers."""
    if "cov" in belief:
        return dist.MultivariateNormal(belief["mean"], covariance_matrix=belief["cov"])
    return dist.Normal(belief["mean"], belief["var"] ** 0.5)


def gamma(belief: Belief) -> dist.Gamma:
    """The gamma law."""
    return dist.Gamma(belief["shape"], belief["rate"])


def expected_log(belief: Belief) -> jax.Array:
    """E log of a gamma number."""
    return digamma(belief["shape"]) - jnp.log(belief["rate"])


# -- Normal-Wishart sides ---------------------------------------------------------------------------------
def expected_precision(belief: Belief) -> jax.Array:
    """E Lambda."""
    return belief["shape"] * inverse(belief["rate"])


def expected_logdet(belief: Belief) -> jax.Array:
    """E log|Lambda|."""
    K = len(belief["rate"])
    halves = digamma((belief["shape"] - jnp.arange(K)) / 2).sum()
    return halves + K * jnp.log(2.0) - jnp.linalg.slogdet(belief["rate"])[1]


def wishart_rate(own: Belief, mu: Belief, h: Any) -> jax.Array:
    """The expected rate of Lambda given rows and mu: see `normal_wishart_precision`."""
    n, K = own["mean"].shape
    away = own["mean"] - mu["mean"]
    prior = h.rate * jnp.eye(K, dtype=away.dtype) + h.beta0 * square(mu["mean"])
    return prior + away.T @ away + own["cov"].sum(0) + (n + h.beta0) * mu["cov"]


def wishart_begin(p: Any) -> dict[str, Belief]:
    """Laws of both sides at a point, with the variance of Lambda alone."""
    found: dict[str, Belief] = {}
    for name, mean, scale in NAMES.values():
        own, precision = getattr(p, name), getattr(p, scale)
        shape = jnp.asarray(len(own) + own.shape[1] + 1.0, own.dtype)
        found |= {name: certain(own), mean: certain(getattr(p, mean))}
        found[scale] = {"shape": shape, "rate": shape * inverse(precision)}
    return found


def wishart_prior(q: Any, side: str, h: Any) -> tuple[jax.Array, jax.Array]:
    """E Lambda and E Lambda mu."""
    _, mean, scale = NAMES[side]
    precision = expected_precision(getattr(q, scale))
    return precision, precision @ getattr(q, mean)["mean"]


def wishart_settle(q: Any, h: Any) -> Any:
    """The laws of mu and Lambda given the rows."""
    for name, mean, scale in NAMES.values():
        own, n = getattr(q, name), len(getattr(q, name)["mean"])
        precision = (h.beta0 + n) * expected_precision(getattr(q, scale))
        mu = {"mean": own["mean"].sum(0) / (h.beta0 + n), "cov": inverse(precision)}
        wide = {**getattr(q, scale), "rate": wishart_rate(own, mu, h)}
        q = q._replace(**{mean: mu, scale: wide})
    return q


def wishart_energy(q: Any, h: Any) -> jax.Array:
    """The expectation of `normal_wishart.energy`."""
    total = jnp.zeros(())
    for name, mean, scale in NAMES.values():
        own, mu, wide = (getattr(q, site) for site in (name, mean, scale))
        fit = jnp.sum(expected_precision(wide) * wishart_rate(own, mu, h))
        total += 0.5 * (fit - len(own["mean"]) * expected_logdet(wide))
    return total


def wishart_laws(q: Any) -> dict[str, dist.Distribution]:
    """The laws of the sites of both sides."""
    found: dict[str, dist.Distribution] = {}
    for name, mean, scale in NAMES.values():
        wide = getattr(q, scale)
        found |= {name: normal(getattr(q, name)), mean: normal(getattr(q, mean))}
        found[scale] = dist.Wishart(wide["shape"], rate_matrix=wide["rate"])
    return found


# -- the whole -----------------------------------------------------------------------------------------------
def record(
    begin: Callable[..., dict[str, Belief]],
    observed: Callable[..., tuple[Any, jax.Array, Any]],
    expected: Callable[..., jax.Array],
    laws: Callable[..., dict[str, dist.Distribution]],
    prior: Callable[..., tuple[jax.Array, jax.Array]] = wishart_prior,
    settle: Callable[..., Any] = wishart_settle,
) -> Variational:
    """The record of a method whose data see u.v as a Gaussian, given the rest.

    begin(p, data, hyper)                       the laws of all sites, without variance
    observed(q, x, variance, data, hyper)       q with the method's own sites anew; target, weight of cells
    expected(q, x, variance, data, hyper)       minus the expected objective, or a lower bound of it
    laws(q)                                     {site: Distribution}
    prior(q, side, hyper), settle(q, hyper)     of the rows; the laws of the prior's sites anew

    x and variance are those of u.v at the cells.
    """

    def update(q: Any, data: Any, hyper: Any) -> Any:
        cells = data.cells
        q, target, weight = observed(q, *moments(q.U, q.V, cells), data, hyper)
        q = q._replace(U=rows(cells.by_row, target, weight, q.V, *prior(q, "user", hyper)))
        q = q._replace(V=rows(cells.by_col, target, weight, q.U, *prior(q, "item", hyper)))
        return settle(q, hyper)

    def start(p: Any, data: Any, hyper: Any) -> Any:
        if data.x:
            raise BayesfacError(
                "VB takes no features of users and items: fit without them, or with bf.Gibbs()"
            )
        return update(p._replace(**begin(p, data, hyper)), data, hyper)

    def whole(q: Any, data: Any, hyper: Any) -> jax.Array:
        return expected(q, *moments(q.U, q.V, data.cells), data, hyper)

    def widened(key: jax.Array, q: Any, data: Any, hyper: Any) -> tuple[Any, jax.Array]:
        def of_cells(x: jax.Array, variance: jax.Array) -> jax.Array:
            return expected(q, x, variance, data, hyper)

        factor = response(key, q.U, q.V, data.cells, of_cells)
        wide = {site: {**getattr(q, site)} for site in ("U", "V")}
        for own in wide.values():
            own["cov"] = factor**2 * own["cov"]
        return q._replace(**wide), factor

    return Variational(start, update, whole, laws, widened)


# -- linear response -----------------------------------------------------------------------------------------
STEPS, PROBES, CELLS = 10, 4, 5000  # of conjugate gradients: on ratings five bring two digits

Pair = tuple[jax.Array, jax.Array]


def response(key: jax.Array, U: Belief, V: Belief, cells: Cells, of_cells: Any) -> jax.Array:
    """The factor that sds of products lack for rows that are independent of one another.

    By linear response (Giordano, Broderick & Jordan, JMLR 2018) the covariance of all rows is H^-1, with H of
    `bend`; all other sites stay. For a sum a of products with random signs, each over its sd under q,
    a'H^-1 a / a'Sa estimates the ratio of variances, averaged over products of a random user and a random
    item, both by number of ratings.
    """
    times, (u, v), n = bend(U, V, cells, of_cells), (U["mean"], V["mean"]), len(cells)

    def smoothed(d: Pair) -> Pair:
        return times_rows(U["cov"], d[0]), times_rows(V["cov"], d[1])

    def ratio(key: jax.Array) -> jax.Array:
        a, b, c = jax.random.split(key, 3)
        size = min(n, CELLS)
        i = jax.random.choice(a, cells.row, (size,), replace=False)
        j = jax.random.choice(b, cells.col, (size,), replace=False)
        spread = jnp.sum(times_rows(U["cov"][i], v[j]) * v[j], 1)
        spread += jnp.sum(times_rows(V["cov"][j], u[i]) * u[i], 1)
        signs = jax.random.rademacher(c, (size, 1), u.dtype) / jnp.sqrt(spread)[:, None]
        ahead = (
            jnp.zeros_like(u).at[i].add(signs * v[j]),
            jnp.zeros_like(v).at[j].add(signs * u[i]),
        )
        found = jax.scipy.sparse.linalg.cg(times, ahead, maxiter=STEPS, M=smoothed)[0]
        return dot(ahead, found) / dot(ahead, smoothed(ahead))

    return jnp.sqrt(jax.lax.map(ratio, jax.random.split(key, PROBES)).mean())


def bend(U: Belief, V: Belief, cells: Cells, of_cells: Any) -> Callable[[Pair], Pair]:
    """d -> H d, with H minus the second derivatives of the ELBO in the means m of all rows.

    With the slope l', the curvature c = -l'' and the weight w of a cell, where q is at its best,

        (H d)_i = S_i^-1 d_i + sum_j [ (c_ij (d_i.m_j + m_i.d_j) - w_ij d_i.m_j) m_j - l'_ij d_j ]

    `of_cells(x, variance)` is the ELBO as a sum over cells. How the slope changes with the variance of a cell
    is left out: nothing with Gaussian ratings.
    """
    x, variance = moments(U, V, cells)
    slope, by_variance = jax.grad(of_cells, (0, 1))(x, variance)
    curved = -jax.jvp(lambda x: jax.grad(of_cells)(x, variance), (x,), (jnp.ones_like(x),))[1]
    weight, u, v = -2 * by_variance, U["mean"], V["mean"]
    P, Q = inverse(U["cov"]), inverse(V["cov"])

    def times(d: Pair) -> Pair:
        left, right = inner(d[0], v, cells), inner(u, d[1], cells)
        both = curved * (left + right)
        by_user = sparse.spread(cells.by_row, both - weight * left, v)
        by_user -= sparse.spread(cells.by_row, slope, d[1])
        by_item = sparse.spread(cells.by_col, both - weight * right, u)
        by_item -= sparse.spread(cells.by_col, slope, d[0])
        return times_rows(P, d[0]) + by_user, times_rows(Q, d[1]) + by_item

    return times


def times_rows(tables: jax.Array, x: jax.Array) -> jax.Array:
    """The product of each row's table and the row."""
    return jnp.einsum("nkl,nl->nk", tables, x)


def dot(a: Pair, b: Pair) -> jax.Array:
    """The inner product of two changes of all rows."""
    return jnp.sum(a[0] * b[0]) + jnp.sum(a[1] * b[1])
