"""Matrices whose columns lie in the unit ball: a uniform law, and a map from unbounded numbers."""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.transforms import ParameterFreeTransform


class _ColumnsInBall(constraints.ParameterFreeConstraint):
    event_dim = 2

    def __call__(self, x: Any) -> Any:
        return jnp.all(jnp.sum(x**2, -2) <= 1 + 1e-6, -1)

    def feasible_like(self, prototype: Any) -> Any:
        return jnp.zeros_like(prototype)


columns_in_ball = _ColumnsInBall()


class ToBall(ParameterFreeTransform):
    """z -> z / sqrt(1 + |z|^2) for every column, with determinant (1 + |z|^2)^-(d + 2)/2 in d dimensions."""

    domain = constraints.real_matrix
    codomain = columns_in_ball

    def __call__(self, x: jax.Array) -> jax.Array:
        return x / jnp.sqrt(1 + jnp.sum(x**2, -2, keepdims=True))

    def _inverse(self, y: jax.Array) -> jax.Array:
        return y / jnp.sqrt(1 - jnp.sum(y**2, -2, keepdims=True))

    def log_abs_det_jacobian(
        self, x: jax.Array, y: jax.Array, intermediates: Any = None
    ) -> jax.Array:
        d = x.shape[-2]
        return -0.5 * (d + 2) * jnp.sum(jnp.log1p(jnp.sum(x**2, -2)), -1)


@biject_to.register(_ColumnsInBall)
def _to_ball(constraint: Any) -> ToBall:
    return ToBall()


class UniformBall(dist.Distribution):
    """Independent columns, uniform in the unit ball; `log_prob` leaves out the constant."""

    arg_constraints: dict[str, Any] = {}
    support = columns_in_ball

    def __init__(self, d: int, columns: int) -> None:
        super().__init__((), (d, columns))

    def log_prob(self, value: jax.Array) -> jax.Array:
        return jnp.zeros(jnp.shape(value)[:-2], jnp.result_type(float))

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        direction, radius = jax.random.split(key)
        z = jax.random.normal(direction, (*sample_shape, *self.event_shape))
        shape = (*sample_shape, 1, self.event_shape[1])
        r = jax.random.uniform(radius, shape) ** (1 / self.event_shape[0])
        return z * r / jnp.linalg.norm(z, axis=-2, keepdims=True)


def into_ball(B: jax.Array) -> jax.Array:
    """Every column replaced by the nearest point in the unit ball."""
    return B / jnp.maximum(1, jnp.linalg.norm(B, axis=0))
