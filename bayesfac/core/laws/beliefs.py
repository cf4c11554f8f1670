"""Distributions of parameters in variational Bayes, and their expectations.

A belief is the distribution of a site, as a mapping of its parameters: {mean, cov} of normal rows, {mean,
var} of independent normals, {shape, rate} of a Wishart or a gamma distribution, {conc} of Dirichlet rows.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import digamma

Belief = dict[str, jax.Array]


# -- normal rows ----------------------------------------------------------------------------------------
def certain(mean: jax.Array) -> Belief:
    """Normal rows without variance."""
    return {"mean": mean, "cov": jnp.zeros((*mean.shape, mean.shape[-1]), mean.dtype)}


def square(mean: jax.Array) -> jax.Array:
    """m m' of every row."""
    return mean[..., :, None] * mean[..., None, :]


def second(belief: Belief) -> jax.Array:
    """E[v v'] of every row."""
    return square(belief["mean"]) + belief["cov"]


def half(table: jax.Array) -> jax.Array:
    """The lower triangles of symmetric matrices, one row for each."""
    # indices by NumPy: those of JAX would be computed in every program, and take long to compile
    return table[..., *np.tril_indices(table.shape[-1])]


def doubled(table: jax.Array) -> jax.Array:
    """The lower triangles with entries below the diagonal doubled. The sum of their products with `half` of
    another table is the sum of the products of all entries of both tables."""
    i, j = np.tril_indices(table.shape[-1])
    return table[..., i, j] * np.where(i == j, 1, 2).astype(table.dtype)


def whole(half: jax.Array, K: int) -> jax.Array:
    """The symmetric matrices with these lower triangles."""
    i, j = np.tril_indices(K)
    place = np.zeros((K, K), int)
    place[i, j] = place[j, i] = np.arange(len(i))
    return half[..., place]


def inverse(P: jax.Array) -> jax.Array:
    """The inverse of positive definite matrices, made exactly symmetric."""
    L = jnp.linalg.cholesky(P)
    eye = jnp.broadcast_to(jnp.eye(P.shape[-1], dtype=P.dtype), P.shape)
    root = jax.lax.linalg.triangular_solve(L, eye, left_side=True, lower=True)
    return jnp.swapaxes(root, -1, -2) @ root


def times_rows(tables: jax.Array, x: jax.Array) -> jax.Array:
    """The product of each row's table and the row."""
    return jnp.einsum("nkl,nl->nk", tables, x)


def front(belief: Belief, K: int) -> Belief:
    """The first K numbers of every row."""
    return {"mean": belief["mean"][:, :K], "cov": belief["cov"][:, :K, :K]}


def normal(belief: Belief) -> dist.Distribution:
    """The normal law of rows, or of independent numbers."""
    if "cov" in belief:
        return dist.MultivariateNormal(belief["mean"], covariance_matrix=belief["cov"])
    return dist.Normal(belief["mean"], belief["var"] ** 0.5)


# -- gamma numbers and Dirichlet rows ---------------------------------------------------------------------
def gamma(belief: Belief) -> dist.Gamma:
    """The gamma law."""
    return dist.Gamma(belief["shape"], belief["rate"])


def expected_log(belief: Belief) -> jax.Array:
    """E log of a gamma number, or of the shares of Dirichlet rows."""
    if "conc" in belief:
        total = jnp.sum(belief["conc"], -1, keepdims=True)
        return digamma(belief["conc"]) - digamma(total)
    return digamma(belief["shape"]) - jnp.log(belief["rate"])


# -- Normal-Wishart priors of rows ------------------------------------------------------------------------
def expected_precision(belief: Belief) -> jax.Array:
    """E Lambda."""
    return belief["shape"] * inverse(belief["rate"])


def expected_logdet(belief: Belief) -> jax.Array:
    """E log|Lambda|."""
    K = len(belief["rate"])
    halves = digamma((belief["shape"] - jnp.arange(K)) / 2).sum()
    return halves + K * jnp.log(2.0) - jnp.linalg.slogdet(belief["rate"])[1]


# If rows have features, `own` is their law minus X E[B], `links` is what B adds to the rate of Lambda, and
# `extra` is the number of rows of B.
def wishart_rate(own: Belief, mu: Belief, h: Any, links: Any = 0.0) -> jax.Array:
    """The expected rate of Lambda given rows and mu: see `normal_wishart_precision`."""
    n, K = own["mean"].shape
    away = own["mean"] - mu["mean"]
    prior = h.rate * jnp.eye(K, dtype=away.dtype) + h.beta0 * square(mu["mean"])
    return prior + away.T @ away + own["cov"].sum(0) + (n + h.beta0) * mu["cov"] + links


def wishart_begin(
    rows: jax.Array, mu: jax.Array, precision: jax.Array, extra: int = 0
) -> list[Belief]:
    """Beliefs about rows, mu and Lambda at a point, with the variance of Lambda alone."""
    shape = jnp.asarray(len(rows) + rows.shape[1] + extra + 1.0, rows.dtype)
    return [certain(rows), certain(mu), {"shape": shape, "rate": shape * inverse(precision)}]


def wishart_settle(own: Belief, wide: Belief, h: Any, links: Any = 0.0) -> tuple[Belief, Belief]:
    """The laws of mu and Lambda given the rows."""
    n = len(own["mean"])
    precision = (h.beta0 + n) * expected_precision(wide)
    mu = {"mean": own["mean"].sum(0) / (h.beta0 + n), "cov": inverse(precision)}
    return mu, {**wide, "rate": wishart_rate(own, mu, h, links)}


def wishart_energy(
    own: Belief, mu: Belief, wide: Belief, h: Any, links: Any = 0.0, extra: int = 0
) -> jax.Array:
    """The expectation of `normal_wishart_energy`."""
    fit = jnp.sum(expected_precision(wide) * wishart_rate(own, mu, h, links))
    return 0.5 * (fit - (len(own["mean"]) + extra) * expected_logdet(wide))


def wishart(belief: Belief) -> dist.Wishart:
    """The Wishart law."""
    return dist.Wishart(belief["shape"], rate_matrix=belief["rate"])
