"""Distributions that NumPyro lacks: what a conjugate block or a table of counts is made of."""

from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

from bayesfac.core.data.cells import Cells, Query, Rows
from bayesfac.core.kernels import sparse
from bayesfac.core.math import inner, safe_log


class GaussianRows(dist.Distribution):
    """One side of a bilinear Gaussian model given the other: independent rows.

        x_i ~ N(P_i^-1 b_i, P_i^-1),   P_i = L + sum_j w_ij v_j v_j',   b_i = s + sum_j w_ij t_ij v_j.

    `weight` is one number, or one per cell. It keeps the data instead of n matrices P_i: `mean` is one
    ridge sweep (ALS) and `sample` the same sweep with noise (Gibbs), so the two can never differ.
    `log_prob` builds the P_i; it is for checks.
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
        given = (self.rows, self.target, self.V, self.weight, self.precision, self.shift)
        P, b = sparse.normal_equations(*given)
        mean = jnp.linalg.solve(P, b[..., None])[..., 0]
        return dist.MultivariateNormal(mean, precision_matrix=P).log_prob(value).sum()

    def _sweep(self, noise: jax.Array | None) -> jax.Array:
        given = (self.rows, self.target, self.V, self.weight, self.precision, self.shift)
        return sparse.solve_rows(*given, noise)


def with_level(law: GaussianRows, tau: float) -> GaussianRows:
    """Rows (x_i, d_i) where x_i.v_j - d_i = (x_i, d_i).(v_j, -1) is seen and d_i ~ N(0, 1/tau)."""
    V = jnp.concatenate([law.V, jnp.full_like(law.V[:, :1], -1)], 1)
    prior = jax.scipy.linalg.block_diag(law.precision, jnp.full((1, 1), tau, V.dtype))
    return GaussianRows(law.rows, law.target, V, law.weight, prior, jnp.append(law.shift, 0))


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


class InverseGaussian(dist.Distribution):
    """g > 0 with density (2 pi g^3)^{-1/2} exp(-(g - m)^2 / (2 m^2 g)): mean m, shape 1."""

    arg_constraints: dict[str, Any] = {}
    support = constraints.positive
    pytree_data_fields = ("loc",)

    def __init__(self, loc: jax.Array) -> None:
        self.loc = loc
        super().__init__(jnp.shape(loc), ())

    @property
    def mean(self) -> jax.Array:
        return self.loc

    def log_prob(self, value: jax.Array) -> jax.Array:
        away = (value / self.loc - 1) ** 2 / value
        return -0.5 * (jnp.log(2 * jnp.pi) + 3 * jnp.log(value) + away)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Michael, Schucany & Haas 1976; the smaller root written so that nothing cancels. The tail, which
        as a precision would leave a Cholesky factor no digits, ends at eps^-0.6 (1e4 in float32)."""
        normal, uniform = jax.random.split(key)
        shape, dtype = (*sample_shape, *self.batch_shape), self.loc.dtype
        b = self.loc * jax.random.normal(normal, shape, dtype) ** 2 / 2
        ratio = 1 / (1 + b + jnp.sqrt(b * (b + 2)))  # the smaller root over the mean
        small = jax.random.uniform(uniform, shape, dtype) * (1 + ratio) <= 1
        g = self.loc * jnp.where(small, ratio, 1 / ratio)
        return jnp.minimum(g, jnp.finfo(dtype).eps ** -0.6)


def kl_bernoulli(z: jax.Array, pi: jax.Array) -> jax.Array:
    """KL(z || pi) of two coins."""
    xlogy = jax.scipy.special.xlogy
    return xlogy(z, z / pi) + xlogy(1 - z, (1 - z) / (1 - pi))


class Membership(dist.Distribution):
    """The factor exp(-KL(z || pi)) over probabilities z in (0, 1), without its normaliser (which knows
    pi: a generalised prior). Samples and moments are of the density that it is proportional to."""

    arg_constraints: dict[str, Any] = {}
    support = constraints.unit_interval
    pytree_data_fields = ("pi",)
    GRID = 512

    def __init__(self, pi: jax.Array) -> None:
        self.pi = pi
        super().__init__(jnp.shape(pi), ())

    def log_prob(self, value: jax.Array) -> jax.Array:
        return -kl_bernoulli(value, self.pi)

    def _scores(self) -> tuple[jax.Array, jax.Array]:
        """Midpoints of a grid, and the log factor there: (..., GRID)."""
        z = (jnp.arange(self.GRID, dtype=self.pi.dtype) + 0.5) / self.GRID
        return z, -kl_bernoulli(z, self.pi[..., None])

    def _table(self) -> tuple[jax.Array, jax.Array]:
        """The midpoints, and the probability of each cell of the grid."""
        z, scores = self._scores()
        return z, jax.nn.softmax(scores, -1)

    @property
    def log_mass(self) -> jax.Array:
        """log of what the factor integrates to."""
        return jax.nn.logsumexp(self._scores()[1], -1) - jnp.log(self.GRID)

    @property
    def mean(self) -> jax.Array:
        z, p = self._table()
        return p @ z

    @property
    def variance(self) -> jax.Array:
        z, p = self._table()
        return p @ z**2 - (p @ z) ** 2

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        which, where = jax.random.split(key)
        shape = (*sample_shape, *self.batch_shape)
        cell = jax.random.categorical(which, jnp.log(self._table()[1]), shape=shape)
        return (cell + jax.random.uniform(where, shape, self.pi.dtype)) / self.GRID


def start_factors(
    key: jax.Array, shape: tuple[int, int], K: int, stack: tuple[int, ...] = ()
) -> tuple[jax.Array, jax.Array]:
    """Normal factors whose products have a standard deviation of 1/4: small beside a margin of 1."""
    ku, kv = jax.random.split(key)
    scale = 0.5 * K**-0.25
    U = scale * jax.random.normal(ku, (*stack, shape[0], K))
    return U, scale * jax.random.normal(kv, (*stack, shape[1], K))


def factor_energy(U: jax.Array, V: jax.Array, penalty: Any) -> jax.Array:
    """lambda/2 (|U|^2 + |V|^2), of every pair along leading axes: minus the log density of `sample_factors`
    at scale lambda^-1/2, without constants."""
    return 0.5 * penalty * (jnp.sum(U**2, (-2, -1)) + jnp.sum(V**2, (-2, -1)))


def new_factor(U: jax.Array, penalty: float) -> tuple[jax.Array, jax.Array]:
    """(mean, covariance) of a row of U that training never saw: its prior's."""
    K = U.shape[-1]
    return jnp.zeros(K, U.dtype), jnp.eye(K, dtype=U.dtype) / penalty


def sample_factors(
    shape: tuple[int, int], K: int, scale: Any, stack: tuple[str, int] | None = None
) -> tuple[jax.Array, jax.Array]:
    """The sites U (users x K) and V (items x K), standard normal times `scale`; with `stack` (plate
    name, size) as many independent pairs along a leading axis."""
    one = jnp.asarray(scale) * jnp.ones(K)
    found = []
    for name, plate, n in (("U", "user", shape[0]), ("V", "item", shape[1])):
        with numpyro.plate(*stack, dim=-2) if stack else nullcontext(), numpyro.plate(plate, n):
            found.append(numpyro.sample(name, dist.Normal(0, one).to_event(1)))
    return found[0], found[1]
