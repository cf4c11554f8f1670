"""The link from features to the rows of a factor, given the rows: a multivariate regression."""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import constraints

from bayesfac.core.data.features import Design
from bayesfac.core.math import factor


class Links(dist.Distribution):
    """B (F x K) given rows r_i = B'x_i + e_i with e_i ~ N(0, L^-1), where B ~ N(0, (ridge I_F x L)^-1).

    With A = X'X + ridge I, B is matrix normal: its mean is A^-1 X'R, the precision of its rows is A, and that
    of its columns L (Simm et al. 2017, eq. 7). One Cholesky factor of A gives the mean and a draw.
    """

    arg_constraints: dict[str, Any] = {}
    support = constraints.real_matrix
    reparametrized_params: list[str] = []
    pytree_data_fields = ("design", "rows", "ridge", "precision")

    def __init__(self, design: Design, rows: jax.Array, ridge: Any, precision: jax.Array) -> None:
        self.design, self.rows, self.ridge, self.precision = design, rows, ridge, precision
        super().__init__((), (design.width, rows.shape[1]))

    @property
    def mean(self) -> jax.Array:
        return self._solved()[0]

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        mean, L = self._solved()
        noise = jax.random.normal(key, (*sample_shape, *self.event_shape), mean.dtype)
        # C'^-1 z with C C' the precision of the columns: rows of noise of precision L
        C = jnp.linalg.cholesky(self.precision)
        turned = noise @ jax.scipy.linalg.solve_triangular(
            C, jnp.eye(len(C), dtype=C.dtype), lower=True
        )
        solve = jax.scipy.linalg.solve_triangular
        over = turned.reshape(-1, *self.event_shape)
        drawn = jax.vmap(lambda z: solve(L, z, lower=True, trans=1))(over)
        return mean + drawn.reshape(noise.shape)

    def log_prob(self, value: jax.Array) -> jax.Array:
        mean, L = self._solved()
        (F, K), away = self.event_shape, L.T @ (value - mean)
        square = jnp.sum(away @ self.precision * away)
        logs = K * jnp.sum(jnp.log(jnp.diag(L))) + F / 2 * jnp.linalg.slogdet(self.precision)[1]
        return logs - 0.5 * (square + F * K * jnp.log(2 * jnp.pi))

    def trace_of_inverse(self) -> jax.Array:
        """tr A^-1."""
        L = self._solved()[1]
        eye = jnp.eye(len(L), dtype=L.dtype)
        return jnp.sum(jax.scipy.linalg.solve_triangular(L, eye, lower=True) ** 2)

    def _solved(self) -> tuple[jax.Array, jax.Array]:
        gram = self.design.gram
        L = factor(gram + self.ridge * jnp.eye(len(gram), dtype=gram.dtype))
        return jax.scipy.linalg.cho_solve((L, True), self.design.across(self.rows)), L
