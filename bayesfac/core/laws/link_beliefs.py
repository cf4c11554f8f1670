"""The variational distribution of the link matrix from features to the rows of a factor; see `links.py`.

Given the expectations of the rows R (n x K, minus mu), of their precision L and of ridge, the best
distribution of B is matrix normal:

    E B = A^-1 X'E[R],   A = X'X + E[ridge] I,   covariances A^-1 of features and E[L]^-1 of components

For a sparse X, A^-1 would be too large for the memory. In this case features are also independent in q, with
the diagonal of A as their precisions. E B is the same.

A belief about B is {mean, features_cov, components_cov}. If features are independent, `features_cov` has only
the variances.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import constraints

from bayesfac.core.data.features import Design, Features
from bayesfac.core.laws.beliefs import Belief, expected_log, gamma, inverse
from bayesfac.core.laws.links import Links


class MatrixNormal(dist.Distribution):
    """B whose rows have the covariance `rows` (F x F, or F variances) and columns `columns` (K x K)."""

    arg_constraints: dict[str, Any] = {}
    support = constraints.real_matrix
    pytree_data_fields = ("centre", "rows", "columns")

    def __init__(self, mean: jax.Array, rows: jax.Array, columns: jax.Array) -> None:
        self.centre, self.rows, self.columns = mean, rows, columns
        super().__init__((), mean.shape)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        noise = jax.random.normal(key, (*sample_shape, *self.event_shape), self.centre.dtype)
        noise = noise @ jnp.linalg.cholesky(self.columns).T
        if self.rows.ndim == 1:
            return self.centre + jnp.sqrt(self.rows)[:, None] * noise
        return self.centre + jnp.linalg.cholesky(self.rows) @ noise

    def log_prob(self, value: jax.Array) -> jax.Array:
        away = value - self.centre
        flat = self.rows.ndim == 1
        right = away / self.rows[:, None] if flat else jnp.linalg.solve(self.rows, away)
        square = jnp.sum(right * jnp.linalg.solve(self.columns, away.T).T)
        return -0.5 * (square + self._logdet() + value.size * jnp.log(2 * jnp.pi))

    def entropy(self) -> jax.Array:
        return 0.5 * (self._logdet() + self.centre.size * (1 + jnp.log(2 * jnp.pi)))

    def _logdet(self) -> jax.Array:
        F, K = self.event_shape
        flat = self.rows.ndim == 1
        rows = jnp.sum(jnp.log(self.rows)) if flat else jnp.linalg.slogdet(self.rows)[1]
        return K * rows + F * jnp.linalg.slogdet(self.columns)[1]


def law(B: Belief) -> MatrixNormal:
    """The law of B."""
    return MatrixNormal(B["mean"], B["features_cov"], B["components_cov"])


def begin(B: jax.Array, precision: jax.Array, x: Features) -> Belief:
    """B without variance of its features."""
    F = x.width
    none = jnp.zeros((F, F) if isinstance(x, Design) else F, B.dtype)
    return {"mean": B, "features_cov": none, "components_cov": inverse(precision)}


def begin_ridge(ridge: jax.Array, hyper: Any, size: int) -> Belief:
    """The belief about ridge, which scales matrices B of `size` numbers in all, with this mean."""
    shape = jnp.asarray(hyper.ridge_shape + size / 2, ridge.dtype)
    return {"shape": shape, "rate": shape / ridge}


def updated(x: Features, rows: jax.Array, ridge: Belief, precision: jax.Array) -> Belief:
    """The law of B given the means of `rows`, and E L."""
    mean_ridge = gamma(ridge).mean
    mean = Links(x, rows, mean_ridge, precision).mean
    squares = own_products(x)
    if squares.ndim == 1:
        wide = 1 / (squares + mean_ridge)
    else:
        wide = inverse(squares + mean_ridge * jnp.eye(len(squares), dtype=squares.dtype))
    return {"mean": mean, "features_cov": wide, "components_cov": inverse(precision)}


def own_products(x: Features) -> jax.Array:
    """X'X, or its diagonal for a sparse X."""
    if not isinstance(x, Design):
        return x.squares
    return x.across(x.table) if x.gram is None else x.gram


def updated_ridge(ridge: Belief, hyper: Any, *links: tuple[Belief, jax.Array]) -> Belief:
    """The law of ridge given the laws of the matrices that it scales, each with E L."""
    square = sum((jnp.sum(second(B) * precision) for B, precision in links), jnp.zeros(()))
    return {**ridge, "rate": hyper.ridge_rate + square / 2}


def second(B: Belief) -> jax.Array:
    """E[B'B]."""
    wide = B["features_cov"]
    trace = jnp.sum(wide) if wide.ndim == 1 else jnp.trace(wide)
    return B["mean"].T @ B["mean"] + trace * B["components_cov"]


def spread(x: Features, B: Belief) -> jax.Array:
    """E[(XB)'(XB)] minus E[XB]'E[XB]."""
    return jnp.sum(B["features_cov"] * own_products(x)) * B["components_cov"]


def expected_ridge_energy(ridge: Belief, hyper: Any, size: int) -> jax.Array:
    """The expectation of `ridge_energy` and of -size/2 log ridge, which comes from the densities of B."""
    power = hyper.ridge_shape - 1 + size / 2
    return hyper.ridge_rate * gamma(ridge).mean - power * expected_log(ridge)
