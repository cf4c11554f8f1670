"""Polya-Gamma numbers, which make logistic likelihoods Gaussian (Polson, Scott & Windle, JASA 2013).

PG(b, c) is the law of an infinite sum of independent Gamma numbers g_k ~ Gamma(b, 1):

    w = sum_k g_k / d_k,   d_k = 2 pi^2 ((k - 1/2)^2 + a^2),   a = c / (2 pi)
    e^{kappa x} / (1 + e^x)^b = 2^-b e^{(kappa - b/2) x} E exp(-w x^2 / 2),   w ~ PG(b, 0)

On a CPU samples for b = 1 are exact (`kernels/random_loops.py`). Others have the first `TERMS` of the sum,
and for the rest one Gamma number of the same mean and variance. So
mean and variance are those of PG(b, c), and for |c| <= 10 the third cumulant is too, up to 4e-5 of its value.
The largest errors of the distribution function, by inversion of both characteristic functions, are

    b      c = 0    5        10       20       50
    0.1    5.5e-3   6.4e-3   7.9e-3   1.1e-2   1.6e-2
    1      9.6e-7   4.1e-6   1.8e-5   1.2e-4   1.5e-3
    10     2.4e-9   7.8e-8   1.3e-6   2.2e-5   4.0e-4
    300    6e-10    1.3e-8   2.2e-7   3.9e-6   7.1e-5

Those of b = 0.1 lie at w below a third of the mean, for |c| <= 10 below a tenth
(tests/core/laws/test_polya_gamma.py).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints

from bayesfac.core.kernels import sparse
from bayesfac.core.kernels.simplex import polya_gammas
from bayesfac.core.laws.counts import log_gamma
from bayesfac.core.math import uniforms

TERMS = 8


def share(c: jax.Array) -> jax.Array:
    """E w / b = tanh(c/2) / (2c): also the curvature of the parabola that touches -log(2 cosh(x/2)) at x = c
    and lies below it (Jaakkola & Jordan, Statistics and Computing 2000)."""
    small = jnp.abs(c) < 1e-3
    safe = jnp.where(small, 1, c)
    return jnp.where(small, 0.25 - c**2 / 48, jnp.tanh(safe / 2) / (2 * safe))


def log_cosh(c: jax.Array) -> jax.Array:
    """log(2 cosh(c/2))."""
    return jnp.logaddexp(c / 2, -c / 2)


class PolyaGamma(dist.Distribution):
    """PG(b, c) for any b > 0. `log_prob` omits a term that depends on the value and b alone."""

    arg_constraints: dict[str, Any] = {}
    support = constraints.positive
    reparametrized_params: list[str] = []
    pytree_data_fields = ("b", "c")

    def __init__(self, b: Any, c: jax.Array) -> None:
        shape = jnp.broadcast_shapes(jnp.shape(b), jnp.shape(c))
        self.b, self.c = b, jnp.broadcast_to(c, shape)
        super().__init__(shape, ())

    @property
    def mean(self) -> jax.Array:
        return self.b * share(self.c)

    @property
    def variance(self) -> jax.Array:
        return jnp.sum(self.b / self._divisors**2, 0) + self._rest[1]

    def log_prob(self, value: jax.Array) -> jax.Array:
        return self.b * log_cosh(self.c) - self.c**2 * value / 2

    @property
    def _divisors(self) -> jax.Array:
        """d_1 ... d_K along a new first axis."""
        k = np.arange(TERMS).reshape(-1, *[1] * jnp.ndim(self.c)) + 0.5
        return 2 * np.pi**2 * jnp.asarray(k**2, self.c.dtype) + self.c**2 / 2

    @property
    def _rest(self) -> tuple[jax.Array, jax.Array]:
        """Mean and variance of what follows the first terms; sums as integrals, by Euler and Maclaurin."""
        t = self.c / (2 * np.pi * TERMS)
        near = jnp.abs(t) < 0.05
        s = jnp.where(near, 1, t)
        far = (jnp.arctan(s) / s - 1 / (1 + s**2)) / (2 * s**2)
        area = jnp.where(near, 1 / 3 - 0.4 * t**2 + 3 / 7 * t**4, far) / TERMS**3
        area -= 1 / (6 * TERMS**5 * (1 + t**2) ** 3)
        mean = share(self.c) - jnp.sum(1 / self._divisors, 0)
        return self.b * mean, self.b * area / (4 * np.pi**4)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        shape, (mean, variance) = (*sample_shape, *self.batch_shape), self._rest
        # the root of the least number, of which 1/w is still finite
        least = jnp.finfo(self.c.dtype).tiny ** 0.5
        if sparse.backend() == "numba":
            fine = jnp.isfinite(self.c)
            given = jnp.where(fine, self.c, 0), mean, variance
            c, *other = (jnp.broadcast_to(x, shape).ravel() for x in given)
            exact = isinstance(self.b, int) and self.b == 1
            b = 1 if exact else jnp.broadcast_to(self.b, shape).ravel()
            w = polya_gammas(key, b, c, TERMS, other).reshape(shape)
            return jnp.where(fine, jnp.maximum(w, least), jnp.nan)
        first, last = jax.random.split(key)
        rest = jnp.broadcast_to(mean**2 / variance, shape)
        if isinstance(self.b, int):  # exponential numbers, for b = 1, need a tenth of the time
            size = (self.b, TERMS, *shape)
            g = -jnp.sum(jnp.log1p(-uniforms(first, size, self.c.dtype)), 0)
        else:
            g = jnp.exp(log_gamma(first, jnp.broadcast_to(self.b, (TERMS, *shape))))
        d = jnp.reshape(self._divisors, (TERMS, *[1] * len(sample_shape), *self.batch_shape))
        w = jnp.sum(g / d, 0) + jnp.exp(log_gamma(last, rest)) * variance / mean
        return jnp.maximum(w, least)
