"""Laws of rows of probabilities that NumPyro lacks."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import constraints

from bayesfac.core.kernels.simplex import shift, tilted_rows
from bayesfac.core.math import safe_log


class TiltedDirichlet(dist.Distribution):
    """Rows x that sum to one, each with a density proportional to prod x^(concentration - 1) exp(-tilt . x).

    Without a tilt a row is Dirichlet. `log_prob` lacks the logarithm of the normaliser, which depends on the
    parameters alone. A draw is exact.

    Examples
    --------
    >>> law = TiltedDirichlet(jnp.array([[2.0, 2.0]]), jnp.array([[0.0, 9.0]]))
    >>> bool(law.sample(jax.random.key(0))[0, 0] > 0.5)
    True
    """

    arg_constraints: dict[str, Any] = {}
    support = constraints.simplex
    pytree_data_fields = ("concentration", "tilt")

    def __init__(self, concentration: Any, tilt: Any) -> None:
        self.concentration, self.tilt = jnp.broadcast_arrays(concentration, tilt)
        super().__init__(self.tilt.shape[:1], self.tilt.shape[1:])

    @property
    def centre(self) -> jax.Array:
        """Rows near the means: the means of Gamma numbers that sum to one on average (`tilted_rows`)."""
        a, b = self.concentration, self.tilt
        return a / (b + shift(a, b))

    def log_prob(self, value: jax.Array) -> jax.Array:
        return jnp.sum((self.concentration - 1) * safe_log(value) - self.tilt * value, -1)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        if not sample_shape:
            return tilted_rows(key, self.concentration, self.tilt)
        rows = jax.vmap(self.sample)(jax.random.split(key, math.prod(sample_shape)))
        return rows.reshape(*sample_shape, *self.tilt.shape)
