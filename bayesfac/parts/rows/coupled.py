"""Rows that depend on one another along their axis: vec(R) ~ N(0, (Q x P)^-1), R = rows less their mean.

Q is known given the settings, n x n, sparse and positive definite (`along.py`); P is the K x K precision of
any law. Then all that J knows of P is S and N again, with S = R'QR (`factors.squares`). The rows are drawn at
once. Given cells, their precision is Q x P + diag(G_i), G_i = sum_j w_ij v_j v_j', and

    x = (Q x P + diag(G_i))^-1 (b + e),   e ~ N(0, Q x P + diag(G_i))

is a draw (Papandreou & Yuille, NIPS 2010). As Q = A'A, the noise e is A'Z L' + sum_j sqrt(w_ij) z_ij v_j with
P = LL' and standard normal Z and z.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import constraints

from bayesfac.core.data.cells import Rows
from bayesfac.core.kernels import sparse
from bayesfac.core.laws.beliefs import half, square, whole
from bayesfac.core.laws.distributions import NormalRows
from bayesfac.core.math import normals
from bayesfac.parts.rows.along import Q


class CoupledPrior(dist.Distribution):
    """Rows about one mean, vec(x - mean) ~ N(0, (Q x P)^-1)."""

    arg_constraints: dict[str, Any] = {}
    support = constraints.real_matrix
    reparametrized_params: list[str] = []
    pytree_data_fields = ("Q", "centre", "precision")

    def __init__(self, Q: Q, n: int, centre: jax.Array, precision: jax.Array) -> None:
        self.Q, self.centre, self.precision = Q, centre, precision
        super().__init__((), (n, len(precision)))

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        if sample_shape:
            return jax.vmap(lambda key: self.sample(key))(jax.random.split(key, sample_shape))
        (n, K), P = self.event_shape, self.precision
        noise = self.Q.noise(key, n, K, P.dtype) @ jnp.linalg.cholesky(P).T
        return self.centre + self.Q.solved(P, jnp.zeros((n, K, K), P.dtype), noise)

    def log_prob(self, value: jax.Array) -> jax.Array:
        (n, K), R = self.event_shape, value - self.centre
        square = jnp.sum(self.precision * (R.T @ self.Q.times(R)))
        logs = n * jnp.linalg.slogdet(self.precision)[1] + K * self.Q.logdet(n)
        return 0.5 * (logs - square - n * K * jnp.log(2 * jnp.pi))


class CoupledRows(NormalRows):
    """The rows given their cells; each cell observes v'x as `target` with the precision `weight`."""

    arg_constraints: dict[str, Any] = {}
    support = constraints.real_matrix
    reparametrized_params: list[str] = []
    pytree_data_fields = ("Q", "rows", "target", "V", "weight", "precision", "centre")

    def __init__(
        self, Q: Q, rows: Rows, target: jax.Array, V: jax.Array, weight: Any, precision: jax.Array,
        centre: Any,
    ) -> None:  # fmt: skip
        self.Q, self.rows, self.target, self.V, self.precision = Q, rows, target, V, precision
        self.weight = jnp.broadcast_to(jnp.asarray(weight, V.dtype), target.shape)
        self.centre = jnp.zeros(V.shape[1], V.dtype) + centre
        super().__init__((), (rows.ptr.shape[0] - 1, V.shape[1]))

    @property
    def _system(self) -> tuple[jax.Array, jax.Array]:
        """G_i and b."""
        (n, K), V = self.event_shape, self.V
        G = whole(sparse.spread(self.rows, self.weight, half(square(V))), K)
        prior = self.Q.times(jnp.ones((n, 1), V.dtype)) * (self.precision @ self.centre)
        return G, prior + sparse.spread(self.rows, self.weight * self.target, V)

    @property
    def mean(self) -> jax.Array:
        G, b = self._system
        return self.Q.solved(self.precision, G, b)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        if sample_shape:
            return jax.vmap(lambda key: self.sample(key))(jax.random.split(key, sample_shape))
        G, b = self._system
        return self.Q.solved(self.precision, G, b + self._noise(key))

    def _noise(self, key: jax.Array) -> jax.Array:
        """Noise whose covariance is the precision of the rows."""
        (n, K), (one, two), like = self.event_shape, jax.random.split(key), self.V.dtype
        prior = self.Q.noise(one, n, K, like) @ jnp.linalg.cholesky(self.precision).T
        each = jnp.sqrt(self.weight) * normals(two, self.weight.shape, like)
        return prior + sparse.spread(self.rows, each, self.V)

    def beyond(self, key: jax.Array, old: jax.Array, over: float) -> jax.Array:
        mean = self.mean
        return mean - over * (old - mean) + (1 - over**2) ** 0.5 * (self.sample(key) - mean)

    def balanced(self, key: jax.Array, pairs: int) -> jax.Array:
        mean = self.mean
        away = self.sample(key, (pairs,)) - mean
        return jnp.concatenate([mean + away, mean - away])

    def log_prob(self, value: jax.Array) -> jax.Array:
        """By dense matrices, for tests."""
        (n, K), (G, b) = self.event_shape, self._system
        dense = jnp.kron(self.Q.times(jnp.eye(n, dtype=b.dtype)), self.precision)
        at = jnp.arange(n)
        dense = dense.reshape(n, K, n, K).at[at, :, at].add(G).reshape(n * K, n * K)
        law = dist.MultivariateNormal(jnp.linalg.solve(dense, b.ravel()), precision_matrix=dense)
        return law.log_prob(value.ravel())
