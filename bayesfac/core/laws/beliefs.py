"""Distributions of parameters in variational Bayes, and their expectations.

A belief is the distribution of a site, as a mapping of its parameters: {mean, cov} of normal rows, {mean,
var} of independent normals, {shape, rate} of a Wishart or a gamma distribution, {conc} of Dirichlet rows.
"""

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


def wishart(belief: Belief) -> dist.Wishart:
    """The Wishart law."""
    return dist.Wishart(belief["shape"], rate_matrix=belief["rate"])
