"""Values that are normal about their scores: with a noise that is learned or given, or in all cells."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfac.core import checks
from bayesfac.core.laws import beliefs
from bayesfac.core.laws import empirical_bayes as bayes
from bayesfac.core.laws.beliefs import Belief
from bayesfac.core.laws.counts import WeightedTable, weighted_error
from bayesfac.core.laws.empirical_bayes import Evidence
from bayesfac.core.math import total


def spread(data: Any) -> Any:
    """The standard deviation of the values, or 1 if they are equal up to rounding; of data in a program that
    other data run too, computed there (`Method.numbers`)."""
    if not math.isnan(data.spread):
        return data.spread
    found, least = jnp.std(data.y), 4 * jnp.finfo(data.y.dtype).eps * jnp.max(jnp.abs(data.y))
    return jnp.where(found > least, found, 1)


class Normal(NamedTuple):
    """y ~ N(m + x, 1 / alpha) with alpha ~ Gamma(alpha_shape, alpha_rate), or a number alpha.

    alpha | rest ~ Gamma(alpha_shape + n/2, alpha_rate + 1/2 sum_c (y_c - m - x_c)^2)
    """

    @property
    def sites(self) -> dict[str, tuple[str, ...]]:
        return {"alpha": ()}

    @property
    def conditionals(self) -> dict[str, Any]:
        return {"alpha": self.given_alpha}

    def prepare(self, data: Any, h: Any) -> Any:
        h = checks.filled(h, alpha_rate=data.spread**2, offset=data.mean)
        checks.positive(h, "alpha_shape", "alpha_rate")
        if getattr(h, "alpha", None) is not None:
            checks.positive(h, "alpha")
        return h

    def unit(self, data: Any, h: Any) -> float:
        return spread(data)

    def first(self, data: Any, h: Any) -> dict[str, jax.Array]:
        fixed = getattr(h, "alpha", None) is not None
        return {} if fixed else {"alpha": jnp.asarray(spread(data) ** -2.0)}

    def evidence(self, p: Any, data: Any, h: Any) -> Evidence:
        """A point predicts with the noise alone, so at the end the noise includes the variance of the scores.
        All precisions get the same factor, so that the modes of the rows stay where they are."""
        y = data.y - h.offset
        own = jnp.asarray(self.precision(p, h), y.dtype), jnp.zeros((), y.dtype)
        observe = bayes.normal(y, h.alpha_shape, h.alpha_rate, getattr(h, "alpha", None))

        def end(own: tuple) -> tuple[dict[str, Any], Any]:
            alpha, variance = own
            share = 1 / (1 + alpha * variance)
            return ({}, 1.0) if p.alpha is None else ({"alpha": share * alpha}, share)

        return Evidence(y, self.unit(data, h), own, observe, end=end)

    def precision(self, p: Any, h: Any) -> Any:
        return h.alpha if p.alpha is None else p.alpha

    def misfit(self, x: jax.Array, data: Any, h: Any) -> jax.Array:
        """The sum of squares about the scores."""
        return total((data.y - h.offset - x) ** 2, data.cells)

    def held(self, h: Any) -> tuple[str, ...]:
        return ("alpha",)

    def energy(self, p: Any, x: jax.Array, data: Any, h: Any) -> jax.Array:
        alpha = self.precision(p, h)
        fit = 0.5 * alpha * self.misfit(x, data, h) - 0.5 * len(data) * jnp.log(alpha)
        if p.alpha is None:
            return fit
        return fit + h.alpha_rate * alpha - (h.alpha_shape - 1) * jnp.log(alpha)

    def target(self, p: Any, data: Any, h: Any) -> tuple[jax.Array, Any]:
        return data.y - h.offset, self.precision(p, h)

    def given_alpha(self, p: Any, x: jax.Array, data: Any, h: Any) -> dist.Gamma:
        shape = h.alpha_shape + 0.5 * len(data)
        return dist.Gamma(shape, h.alpha_rate + 0.5 * self.misfit(x, data, h))

    def sampled(self, p: Any, x: jax.Array, data: Any, h: Any) -> None:
        alpha = getattr(h, "alpha", None)
        if alpha is None:
            alpha = numpyro.sample("alpha", dist.Gamma(h.alpha_shape, h.alpha_rate))
        with numpyro.plate("cell", x.shape[0]):
            numpyro.sample("rating", dist.Normal(h.offset + x, alpha**-0.5), obs=data.y)

    def predict(self, p: Any, query: Any, h: Any, s: Any) -> dist.Normal:
        mean, variance = s.predicted(p, query, h)
        noise = 1 / jnp.asarray(self.precision(p, h), mean.dtype)
        return dist.Normal(h.offset + mean, jnp.sqrt(noise + variance))

    # -- the variational law: alpha is Gamma ----------------------------------------------------------
    def begin(self, p: Any, data: Any, h: Any) -> dict[str, Belief]:
        if p.alpha is None:
            return {}
        shape = jnp.asarray(h.alpha_shape + 0.5 * len(data.y), p.alpha.dtype)
        return {"alpha": {"shape": shape, "rate": shape / p.alpha}}

    def wide(self, x: jax.Array, variance: jax.Array, data: Any, h: Any) -> jax.Array:
        """The expected sum of squares."""
        return jnp.sum((data.y - h.offset - x) ** 2 + variance)

    def updated(self, q: Any, x: jax.Array, variance: jax.Array, data: Any, h: Any) -> tuple:
        if q.alpha is None:
            return q, data.y - h.offset, h.alpha
        alpha = {**q.alpha, "rate": h.alpha_rate + 0.5 * self.wide(x, variance, data, h)}
        return q._replace(alpha=alpha), data.y - h.offset, alpha["shape"] / alpha["rate"]

    def bound(self, q: Any, x: jax.Array, variance: jax.Array, data: Any, h: Any) -> jax.Array:
        wide = self.wide(x, variance, data, h)
        if q.alpha is None:
            return 0.5 * (len(data.y) * jnp.log(h.alpha) - h.alpha * wide)
        alpha, log = beliefs.gamma(q.alpha).mean, beliefs.expected_log(q.alpha)
        fit = 0.5 * (len(data.y) * log - alpha * wide)
        return fit + (h.alpha_shape - 1) * log - h.alpha_rate * alpha

    def laws(self, q: Any) -> dict[str, dist.Distribution]:
        return {} if q.alpha is None else {"alpha": beliefs.gamma(q.alpha)}


class GivenNoise(NamedTuple):
    """y ~ N(m + x, noise^2); `noise` is a setting, not a site."""

    sites: dict[str, tuple[str, ...]] = {}  # never changed
    conditionals: dict[str, Any] = {}

    def unit(self, data: Any, h: Any) -> float:
        return data.spread

    def first(self, data: Any, h: Any) -> dict[str, jax.Array]:
        return {}

    def energy(self, p: Any, x: jax.Array, data: Any, h: Any) -> jax.Array:
        return 0.5 * total((data.y - h.offset - x) ** 2, data.cells) / h.noise**2

    def target(self, p: Any, data: Any, h: Any) -> tuple[jax.Array, Any]:
        return data.y - h.offset, h.noise**-2

    def sampled(self, p: Any, x: jax.Array, data: Any, h: Any) -> None:
        with numpyro.plate("cell", x.shape[0]):
            numpyro.sample("rating", dist.Normal(h.offset + x, h.noise), obs=data.y)

    def predict(self, p: Any, query: Any, h: Any, s: Any) -> dist.Normal:
        mean, variance = s.predicted(p, query, h)
        return dist.Normal(h.offset + mean, jnp.sqrt(h.noise**2 + variance))

    def begin(self, p: Any, data: Any, h: Any) -> dict[str, Belief]:
        return {}

    def updated(self, q: Any, x: jax.Array, variance: jax.Array, data: Any, h: Any) -> tuple:
        return q, data.y - h.offset, h.noise**-2

    def bound(self, q: Any, x: jax.Array, variance: jax.Array, data: Any, h: Any) -> jax.Array:
        return -0.5 * jnp.sum((data.y - h.offset - x) ** 2 + variance) / h.noise**2

    def laws(self, q: Any) -> dict[str, dist.Distribution]:
        return {}


class Preference(NamedTuple):
    """p ~ N(x, noise^2 / c) in all cells: listed cells have p = 1 and a confidence c, all others 0 and 1."""

    sites: dict[str, tuple[str, ...]] = {}  # never changed
    conditionals: dict[str, Any] = {}

    def unit(self, data: Any, h: Any) -> float:
        return 1.0

    def first(self, data: Any, h: Any) -> dict[str, jax.Array]:
        return {}

    def energy(self, p: Any, x: jax.Array, data: Any, h: Any) -> jax.Array:
        return 0.5 * weighted_error(data.cells, data.y, data.weight, p.U, p.V) / h.noise**2

    def target(self, p: Any, data: Any, h: Any) -> tuple[jax.Array, jax.Array, float]:
        """All cells observe 0 with confidence 1, and listed cells add c - 1. If every cell is listed, there
        are no others, and c replaces c - 1."""
        zeros = 1.0 if len(data.cells) < data.n_users * data.n_items else 0.0
        # not zero, because added to 1, confidences below 1e-7 are lost in single precision
        own = jnp.maximum(data.weight - zeros, jnp.finfo(data.weight.dtype).eps)
        return data.weight * data.y / own, own / h.noise**2, zeros / h.noise**2

    def sampled(self, p: Any, x: jax.Array, data: Any, h: Any) -> None:
        law = WeightedTable(p.U, p.V, data.cells, data.weight, h.noise**-2)
        numpyro.sample("rating", law, obs=data.y)

    def predict(self, p: Any, query: Any, h: Any, s: Any) -> dist.Normal:
        """The preference, with the confidence of a cell that was not counted."""
        mean, variance = s.predicted(p, query, h)
        return dist.Normal(mean, jnp.sqrt(h.noise**2 + variance))
