"""Values with heavy tails, Student's t about their scores, as a law of observations.

    y_ij ~ N(m + x_ij, 1 / (alpha w_ij)),   w_ij ~ Gamma(nu/2, nu/2)

With w integrated out, (y - m - x) sqrt(alpha) has Student's t law with nu degrees of freedom. Given w, a cell
observes its score with a precision of its own, alpha w. The solver and VB take the expectations of w, so that
values far from their scores count little (Lange, Little & Taylor, JASA 1989).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfac.core import checks
from bayesfac.core.laws import beliefs
from bayesfac.core.laws.counts import GammaNumbers
from bayesfac.core.laws.distributions import SpreadStudentT
from bayesfac.core.laws.empirical_bayes import Evidence, Seen, left_out
from bayesfac.core.math import total
from bayesfac.parts.observed.normal import Normal


class StudentT(Normal):
    """`h` has nu beside the settings of `Normal`. Sites, start and beliefs are those of `Normal`."""

    below = True  # the variational bound has each w at its best law

    @property
    def conditionals(self) -> dict[str, Any]:
        return {"alpha": self.given_alpha}

    def prepare(self, data: Any, h: Any) -> Any:
        checks.positive(h, "nu")
        if h.nu <= 2:
            raise ValueError(f"Expected nu above 2, so that values have a variance, got {h.nu!r}")
        return super().prepare(data, h)

    def evidence(self, p: Any, data: Any, h: Any) -> Evidence:
        seen, given = super().evidence(p, data, h), getattr(h, "alpha", None)

        def observe(known: tuple, x: jax.Array, variance: jax.Array) -> Seen:
            alpha, square = known[0], (seen.y - x) ** 2
            w = self.weight(alpha * (square + variance), h)
            rate = h.alpha_rate + 0.5 * jnp.sum(w * (square + variance))
            new = alpha if given is not None else (h.alpha_shape - 1 + 0.5 * len(w)) / rate
            loss = (h.nu + 1) / 2 * jnp.log1p(new * square / h.nu) - 0.5 * jnp.log(new)
            return Seen((new, left_out(variance, new * w)), seen.y, new * w, loss)

        return seen._replace(observe=observe)

    def rest(self, x: jax.Array, data: Any, h: Any) -> jax.Array:
        return data.y - h.offset - x

    def fit(self, square: jax.Array, cells: Any, h: Any) -> jax.Array:
        """Minus the log density of the values, but for alpha^(n/2), where `square` is alpha (y - m - x)^2."""
        return (h.nu + 1) / 2 * total(jnp.log1p(square / h.nu), cells)

    def energy(self, p: Any, x: jax.Array, data: Any, h: Any) -> jax.Array:
        alpha = self.precision(p, h)
        J = self.fit(alpha * self.rest(x, data, h) ** 2, data.cells, h)
        J -= 0.5 * len(data) * jnp.log(alpha)
        if p.alpha is None:
            return J
        return J + h.alpha_rate * alpha - (h.alpha_shape - 1) * jnp.log(alpha)

    def augment(self, p: Any, x: jax.Array, data: Any, h: Any) -> GammaNumbers:
        """w given the rest."""
        square = self.precision(p, h) * self.rest(x, data, h) ** 2
        return GammaNumbers((h.nu + 1) / 2, (h.nu + square) / 2)

    def touching(self, p: Any, x: jax.Array, data: Any, h: Any) -> jax.Array:
        """E w given the rest."""
        return self.weight(self.precision(p, h) * self.rest(x, data, h) ** 2, h)

    def weight(self, square: jax.Array, h: Any) -> jax.Array:
        return (h.nu + 1) / (h.nu + square)

    def target(self, p: Any, data: Any, h: Any, w: Any = 1.0) -> tuple[jax.Array, Any]:
        return data.y - h.offset, self.precision(p, h) * w

    def given_alpha(self, p: Any, x: jax.Array, data: Any, h: Any, w: Any = 1.0) -> dist.Gamma:
        misfit = total(w * self.rest(x, data, h) ** 2, data.cells)
        return dist.Gamma(h.alpha_shape + 0.5 * len(data), h.alpha_rate + 0.5 * misfit)

    def sampled(self, p: Any, x: jax.Array, data: Any, h: Any) -> None:
        alpha = getattr(h, "alpha", None)
        if alpha is None:
            alpha = numpyro.sample("alpha", dist.Gamma(h.alpha_shape, h.alpha_rate))
        with numpyro.plate("cell", x.shape[0]):
            numpyro.sample("rating", dist.StudentT(h.nu, h.offset + x, alpha**-0.5), obs=data.y)

    def predict(self, p: Any, query: Any, h: Any, s: Any) -> dist.Distribution:
        mean, variance = s.predicted(p, query, h)
        scale = jnp.asarray(self.precision(p, h), mean.dtype) ** -0.5
        return SpreadStudentT(h.nu, h.offset + mean, scale, variance)

    # -- the variational law: alpha is Gamma, and each w too -------------------------------------------
    def squares(self, q: Any, x: jax.Array, variance: jax.Array, data: Any, h: Any) -> tuple:
        """E (y - m - x)^2, and E alpha."""
        alpha = h.alpha if q.alpha is None else beliefs.gamma(q.alpha).mean
        return self.rest(x, data, h) ** 2 + variance, alpha

    def updated(self, q: Any, x: jax.Array, variance: jax.Array, data: Any, h: Any) -> tuple:
        square, alpha = self.squares(q, x, variance, data, h)
        w = self.weight(alpha * square, h)
        if q.alpha is not None:
            rate = h.alpha_rate + 0.5 * jnp.sum(w * square)
            q = q._replace(alpha={**q.alpha, "rate": rate})
            alpha = q.alpha["shape"] / rate
        return q, data.y - h.offset, alpha * w

    def bound(self, q: Any, x: jax.Array, variance: jax.Array, data: Any, h: Any) -> jax.Array:
        square, alpha = self.squares(q, x, variance, data, h)
        fit = -self.fit(alpha * square, data.cells, h)
        if q.alpha is None:
            return fit + 0.5 * len(data.y) * jnp.log(alpha)
        log = beliefs.expected_log(q.alpha)
        return fit + (0.5 * len(data.y) + h.alpha_shape - 1) * log - h.alpha_rate * alpha
