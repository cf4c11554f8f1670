"""Distributions of rows of probabilities that NumPyro does not have."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import gammaln, logsumexp
from numpyro.distributions import constraints

from bayesfac.core.kernels.simplex import shift, tilted_rows
from bayesfac.core.math import safe_log, stirling


class TiltedDirichlet(dist.Distribution):
    """Rows x that sum to one, each with a density proportional to prod x^(concentration - 1) exp(-tilt . x).

    Without a tilt a row is Dirichlet. `log_prob` omits the logarithm of the normalising constant, which
    depends only on the parameters. A draw is exact.

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


class MixedDirichlet(dist.Distribution):
    """Tables with rows that sum to one: a mixture of parts with independent Dirichlet rows.

    `log_weight` has an entry for each part, up to a constant, and `concentration` a table for each.

    Examples
    --------
    >>> parts = jnp.array([[[9.0, 1.0], [9.0, 1.0]], [[1.0, 9.0], [1.0, 9.0]]])  # both rows, or neither
    >>> law = MixedDirichlet(jnp.zeros(2), parts)
    >>> seen = law.given(jnp.array([[5.0, 0.0], [0.0, 0.0]]))
    >>> bool(seen.mean[1, 0] > 0.8)
    True
    """

    arg_constraints: dict[str, Any] = {}
    support = constraints.independent(constraints.simplex, 1)
    pytree_data_fields = ("log_weight", "concentration")

    def __init__(self, log_weight: jax.Array, concentration: jax.Array) -> None:
        self.log_weight = jax.nn.log_softmax(log_weight)
        self.concentration = concentration
        super().__init__(log_weight.shape[:-1], concentration.shape[-2:])

    @property
    def mean(self) -> jax.Array:
        rows = self.concentration / jnp.sum(self.concentration, -1, keepdims=True)
        return jnp.einsum("...l,...lkr->...kr", jnp.exp(self.log_weight), rows)

    @property
    def normalisers(self) -> jax.Array:
        """The logarithm of the normalising constant of each part."""
        a = self.concentration
        return jnp.sum(gammaln(jnp.sum(a, -1)) - jnp.sum(gammaln(a), -1), -1)

    def of_logs(self, logs: jax.Array) -> jax.Array:
        """The log density of tables with these logarithms, a convex function. The largest constant is
        omitted, because it would cause cancellation."""
        constant = self.normalisers - jnp.max(self.normalisers, -1, keepdims=True)
        fit = jnp.einsum("...lkr,...kr->...l", self.concentration - 1, logs)
        return logsumexp(self.log_weight + constant + fit, -1)

    def log_prob(self, value: jax.Array) -> jax.Array:
        return self.of_logs(safe_log(value)) + jnp.max(self.normalisers, -1)

    def given(self, counts: jax.Array) -> "MixedDirichlet":
        """The distribution after multinomial counts (... x rows x columns) were observed."""
        tables = counts.reshape(-1, *counts.shape[-2:])
        old = self.concentration[..., None]
        new = old + jnp.moveaxis(tables, 0, -1)  # tables last: XLA's loops run along the last axis
        rows = jnp.sum(stirling(new) - stirling(old), -2)
        rows += stirling(jnp.sum(old, -2)) - stirling(jnp.sum(new, -2))
        more = jnp.sum(rows, -2).T.reshape(*counts.shape[:-2], -1)
        return MixedDirichlet(self.log_weight + more, self.concentration + counts[..., None, :, :])

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        of_part, of_rows = jax.random.split(key)
        shape = (*sample_shape, *self.batch_shape)
        part = jax.random.categorical(of_part, self.log_weight, shape=shape)
        tables = jnp.broadcast_to(self.concentration, (*shape, *self.concentration.shape[-3:]))
        a = jnp.take_along_axis(tables, part[..., None, None, None], -3)
        rows = a.reshape(-1, a.shape[-1])
        return tilted_rows(of_rows, rows, jnp.zeros_like(rows)).reshape(*shape, *a.shape[-2:])
