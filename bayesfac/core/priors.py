"""Distributions that NumPyro lacks: what a conjugate block or a table of counts is made of."""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints
from numpyro.distributions.transforms import Transform

from bayesfac.core import kernels
from bayesfac.core.cells import Cells, Query, Rows
from bayesfac.core.math import inner, safe_log


class GaussianRows(dist.Distribution):
    """One side of a bilinear Gaussian model given the other: independent rows.

        x_i ~ N(P_i^-1 b_i, P_i^-1),   P_i = L + w sum_j v_j v_j',   b_i = s + w sum_j t_ij v_j.

    It keeps the data instead of n matrices P_i: `mean` is one ridge sweep (ALS) and `sample` the same
    sweep with noise (Gibbs), so the two can never differ. `log_prob` builds the P_i; it is for checks.
    """

    arg_constraints: dict[str, Any] = {}
    support = constraints.real_matrix
    reparametrized_params: list[str] = []
    pytree_data_fields = ("rows", "target", "V", "weight", "precision", "shift")

    def __init__(
        self,
        rows: Rows,
        target: jax.Array,
        V: jax.Array,
        weight: Any,
        precision: jax.Array,
        shift: jax.Array,
    ) -> None:
        self.rows, self.target, self.V = rows, target, V
        self.weight, self.precision, self.shift = jnp.asarray(weight, V.dtype), precision, shift
        super().__init__((), (rows.ptr.shape[0] - 1, V.shape[1]))

    @property
    def mean(self) -> jax.Array:
        return self._sweep(None)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        noise = jax.random.normal(key, (*sample_shape, *self.event_shape), self.V.dtype)
        return jax.vmap(self._sweep)(noise) if sample_shape else self._sweep(noise)

    def log_prob(self, value: jax.Array) -> jax.Array:
        P = self.precision + self.weight * kernels.gram(self.rows, self.V)
        b = self.shift + self.weight * kernels.spread(self.rows, self.target, self.V)
        mean = jnp.linalg.solve(P, b[..., None])[..., 0]
        return dist.MultivariateNormal(mean, precision_matrix=P).log_prob(value).sum()

    def _sweep(self, noise: jax.Array | None) -> jax.Array:
        given = (self.rows, self.target, self.V, self.weight, self.precision, self.shift)
        return kernels.solve_rows(*given, noise)


class TableOfCounts(dist.Distribution):
    """Row by row a multinomial: n_i words of document i from the probabilities (A G')_i.

    A value is the list of counts in `cells` (all others are zero) and enters as sum x log p, without
    the multinomial coefficient, which knows no parameter; so real-valued pseudo-counts are possible.
    A sample is the whole n x m table; it needs the integer `totals`.
    """

    arg_constraints: dict[str, Any] = {}
    support = constraints.nonnegative
    pytree_data_fields = ("A", "G", "cells", "totals")

    def __init__(self, A: jax.Array, G: jax.Array, cells: Cells | Query, totals: Any) -> None:
        self.A, self.G, self.cells, self.totals = A, G, cells, totals
        super().__init__((), (cells.row.shape[0],))

    def log_prob(self, value: jax.Array) -> jax.Array:
        return jnp.sum(value * safe_log(inner(self.A, self.G, self.cells)))

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        p = self.A @ self.G.T
        p = p / p.sum(-1, keepdims=True)
        # row by row: versions of JAX differ in how they broadcast the totals
        draw = jax.vmap(jax.random.multinomial)
        if not sample_shape:
            return draw(jax.random.split(key, len(p)), jnp.asarray(self.totals), p)
        keys = jax.random.split(key, (*sample_shape, len(p)))
        flat = jax.vmap(lambda k: draw(k, jnp.asarray(self.totals), p))(
            jnp.reshape(keys, (-1, len(p)))
        )
        return jnp.reshape(flat, (*sample_shape, *p.shape))


class RowAffine(Transform):
    """x = mu + root z for every row at once: one triangular solve, however many rows."""

    domain = constraints.real_vector
    codomain = constraints.real_vector

    def __init__(self, mu: jax.Array, root: jax.Array) -> None:
        self.mu, self.root = mu, root

    def __call__(self, z: jax.Array) -> jax.Array:
        return self.mu + z @ self.root.T

    def _inverse(self, x: jax.Array) -> jax.Array:
        flat = jnp.reshape(x - self.mu, (-1, self.mu.shape[-1]))
        z = jax.scipy.linalg.solve_triangular(self.root, flat.T, lower=True).T
        return jnp.reshape(z, x.shape)

    def log_abs_det_jacobian(
        self, x: jax.Array, y: jax.Array, intermediates: Any = None
    ) -> jax.Array:
        return jnp.broadcast_to(jnp.sum(jnp.log(jnp.diag(self.root))), jnp.shape(x)[:-1])

    def tree_flatten(self) -> tuple:
        return (self.mu, self.root), (("mu", "root"), {})


def normal_rows(mu: jax.Array, precision: jax.Array) -> dist.TransformedDistribution:
    """x ~ N(mu, precision^-1), written through its standard base so that NUTS may sample that."""
    zero = jnp.zeros_like(mu)
    root = dist.MultivariateNormal(zero, precision_matrix=precision).scale_tril
    return dist.TransformedDistribution(dist.Normal(zero, 1).to_event(1), RowAffine(mu, root))


# -- Normal-Wishart: Lambda ~ Wishart(K, I), mu ~ N(0, (beta0 Lambda)^-1), x_i ~ N(mu, Lambda^-1) ------


def sample_normal_wishart(name: str, plate: str, n: int, K: int, beta0: float) -> jax.Array:
    """The three sites Lambda_NAME, mu_NAME and NAME (n x K)."""
    wishart = dist.Wishart(float(K), scale_tril=jnp.eye(K))
    precision = numpyro.sample(f"Lambda_{name}", wishart)
    spread = dist.MultivariateNormal(jnp.zeros(K), precision_matrix=beta0 * precision)
    mu = numpyro.sample(f"mu_{name}", spread)
    with numpyro.plate(plate, n):
        return numpyro.sample(name, normal_rows(mu, precision))


def normal_wishart_energy(
    x: jax.Array, mu: jax.Array, precision: jax.Array, beta0: float
) -> jax.Array:
    """Minus the log density of rows, mean and precision, without constants.

    1/2 sum (x - mu)' L (x - mu) - n/2 log|L| + beta0/2 mu' L mu - 1/2 log|L| + 1/2 tr L + 1/2 log|L|,
    the last term from (nu0 - K - 1)/2 = -1/2 at nu0 = K: it cancels the one before.
    """
    logdet = jnp.linalg.slogdet(precision)[1]
    rows = jnp.sum((x - mu) @ precision * (x - mu)) - x.shape[0] * logdet
    return 0.5 * (rows + beta0 * mu @ precision @ mu + jnp.trace(precision))


@jax.jit
def normal_wishart_mean(
    x: jax.Array, precision: jax.Array, beta0: float
) -> dist.MultivariateNormal:
    """mu | x, Lambda."""
    n = x.shape[0]
    return dist.MultivariateNormal(x.sum(0) / (beta0 + n), precision_matrix=(beta0 + n) * precision)


@jax.jit
def normal_wishart_precision(x: jax.Array, mu: jax.Array, beta0: float) -> dist.Wishart:
    """Lambda | x, mu: each row of x, and mu itself, adds one degree of freedom."""
    n, K = x.shape
    rate = jnp.eye(K, dtype=x.dtype) + (x - mu).T @ (x - mu) + beta0 * jnp.outer(mu, mu)
    return dist.Wishart(K + n + 1.0, rate_matrix=rate)


def mode(conditional: dist.Distribution) -> jax.Array:
    """Where a full conditional is highest: iterated conditional modes go there, Gibbs samples it."""
    if isinstance(conditional, dist.Wishart):
        K, nu = conditional.event_shape[0], conditional.concentration
        return (nu - K - 1) / nu * conditional.mean
    if isinstance(conditional, dist.Gamma):
        return (conditional.concentration - 1) / conditional.rate
    return conditional.mean


def balance(key: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
    """t with density exp(-a e^{-2t} - b e^{2t}): exp(-c cosh 2(t - t0)), c = 2 sqrt(a b), e^{4 t0} = a/b.

    Drawn by rejection: cosh x >= 1 + x^2/2 makes N(0, 1/c) an envelope, tight where c is large.
    """
    c = 2 * jnp.sqrt(a * b)

    def attempt(state: tuple) -> tuple:
        key, x, open_ = state
        key, kx, ku = jax.random.split(key, 3)
        new = jax.random.normal(kx, c.shape, c.dtype) / jnp.sqrt(c)
        excess = c * (jnp.cosh(new) - 1 - new**2 / 2)
        fine = jnp.log(jax.random.uniform(ku, c.shape, c.dtype)) < -excess
        return key, jnp.where(open_ & fine, new, x), open_ & ~fine

    start = (key, jnp.zeros_like(c), jnp.isfinite(c))  # NaN stays NaN instead of looping for ever
    x = jax.lax.while_loop(lambda s: jnp.any(s[2]), attempt, start)[1]
    return jnp.log(a / b) / 4 + x / 2
