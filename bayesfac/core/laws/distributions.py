"""Full conditionals that NumPyro lacks: Gaussian rows of a factor, and the inverse Gaussian."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import constraints

from bayesfac.core.data.cells import Rows
from bayesfac.core.kernels import sparse


class GaussianRows(dist.Distribution):
    """The rows of one factor of a bilinear Gaussian model, given the other factor; rows are independent.

        x_i ~ N(P_i^-1 b_i, P_i^-1),   P_i = L + sum_j w_ij v_j v_j',   b_i = s + sum_j w_ij t_ij v_j.

    `weight` is one number, or one per cell. The object stores the data, not n matrices P_i: `mean` is one
    ridge sweep (ALS) and `sample` the same sweep with noise (Gibbs). Only `log_prob`, for tests, builds P_i.
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
        return sparse.solve_rows(*self._system)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        noise = jax.random.normal(key, (*sample_shape, *self.event_shape), self.V.dtype)
        draw: Any = partial(sparse.solve_rows, *self._system)
        return jax.vmap(draw)(noise) if sample_shape else draw(noise)

    def log_prob(self, value: jax.Array) -> jax.Array:
        P, b = sparse.normal_equations(*self._system)
        mean = jnp.linalg.solve(P, b[..., None])[..., 0]
        return dist.MultivariateNormal(mean, precision_matrix=P).log_prob(value).sum()

    @property
    def _system(self) -> tuple[Any, ...]:
        return self.rows, self.target, self.V, self.weight, self.precision, self.shift


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
        distance = (value / self.loc - 1) ** 2 / value
        return -0.5 * (jnp.log(2 * jnp.pi) + 3 * jnp.log(value) + distance)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Sample as Michael, Schucany & Haas 1976, with the smaller root written so that nothing cancels.

        g serves as a precision, and a huge one would leave a Cholesky factor no correct digits. Samples are
        therefore cut at eps^-0.6 (1e4 in float32).
        """
        normal, uniform = jax.random.split(key)
        shape, dtype = (*sample_shape, *self.batch_shape), self.loc.dtype
        b = self.loc * jax.random.normal(normal, shape, dtype) ** 2 / 2
        ratio = 1 / (1 + b + jnp.sqrt(b * (b + 2)))  # the smaller root over the mean
        small = jax.random.uniform(uniform, shape, dtype) * (1 + ratio) <= 1
        g = self.loc * jnp.where(small, ratio, 1 / ratio)
        return jnp.minimum(g, jnp.finfo(dtype).eps ** -0.6)
