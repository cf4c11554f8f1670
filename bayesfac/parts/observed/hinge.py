"""Hinges at thresholds, exp(-2 C sum_r max(0, 1 - T_r (theta_r - x))), as a law of observations.

T_r = +1 where r >= y, else -1. With z = C (1 - T (theta - x)), a hinge is a mixture of Gaussians (Polson &
Scott, Bayesian Analysis 2011, theorem 1):

    exp(-2 max(0, z)) = int_0^inf (2 pi w)^{-1/2} exp(-(z + w)^2 / (2w)) dw
    1/w | z ~ InverseGaussian(1/|z|, 1)

Given g = 1/w, each pair of a cell and a threshold observes x as the Gaussian target theta - T (1 + w/C) with
precision C^2 g. Thresholds theta_ir of a user are normal about c_r with standard deviation s.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from bayesfac.core.laws import beliefs
from bayesfac.core.laws.beliefs import Belief
from bayesfac.core.laws.distributions import InverseGaussian
from bayesfac.core.laws.ordinal import Levels, centres, codes
from bayesfac.core.math import row_sums
from bayesfac.parts.observed import margins


class Hinge(NamedTuple):
    """Thresholds of each user with hinges; `h` has cost, scale_theta and levels."""

    floating: tuple[str, ...] = ("theta",)
    below: bool = True  # the variational bound is one of the ELBO

    @property
    def sites(self) -> dict[str, tuple[str, ...]]:
        return {"theta": ("user", "threshold")}

    @property
    def conditionals(self) -> dict[str, Any]:
        return {"theta": self.given_theta}

    def held(self, h: Any) -> tuple[str, ...]:
        return ()

    def unit(self, data: Any, h: Any) -> Any:
        return h.rate

    def first(self, data: Any, h: Any) -> dict[str, jax.Array]:
        """Thresholds one apart."""
        return {"theta": margins.start_thresholds(centres(len(h.levels)), data.n_users)}

    def prior(self, h: Any) -> tuple[np.ndarray, float]:
        """Means and standard deviation of the thresholds."""
        return centres(len(h.levels)), h.scale_theta

    def energy(self, p: Any, x: jax.Array, data: Any, h: Any) -> jax.Array:
        fit = margins.total_ordinal(x, p.theta, codes(data), data.cells.by_row, None, "hinge")
        return 2 * h.cost * fit + margins.threshold_energy(p.theta, *self.prior(h))

    def signs(self, data: Any, h: Any) -> jax.Array:
        """T: +1 where the threshold should be above x, else -1."""
        return jnp.where(jnp.arange(len(h.levels) - 1) < codes(data)[:, None], -1.0, 1.0)

    def smallest(self, x: jax.Array, h: Any) -> float:
        """C eps^0.6: with a smaller |z| the precision is too large for a Cholesky factorization."""
        return h.cost * float(jnp.finfo(x.dtype).eps) ** 0.6

    def shortfall(self, p: Any, x: jax.Array, data: Any, h: Any) -> jax.Array:
        """|z| = C |1 - T (theta - x)|, at least `smallest`."""
        z = 1 - self.signs(data, h) * (p.theta[data.cells.row] - x[:, None])
        return jnp.maximum(h.cost * jnp.abs(z), self.smallest(x, h))

    def augment(self, p: Any, x: jax.Array, data: Any, h: Any) -> InverseGaussian:
        return InverseGaussian(1 / self.shortfall(p, x, data, h))

    def target(self, p: Any, data: Any, h: Any, g: jax.Array) -> tuple[jax.Array, jax.Array]:
        """All thresholds of a cell together observe x: the mean target, with precision sum_r C^2 g_r."""
        target = p.theta[data.cells.row] - self.signs(data, h) * (1 + 1 / (h.cost * g))
        total = jnp.sum(g, 1)
        return jnp.sum(g * target, 1) / total, h.cost**2 * total

    def given_theta(self, p: Any, x: jax.Array, data: Any, h: Any, g: jax.Array) -> Any:
        """theta_ir given the rest: each rating of i observes x + T (1 + w/C), and the prior has mean c_r."""
        rows, target = data.cells.by_row, x[:, None] + self.signs(data, h) * (1 + 1 / (h.cost * g))
        precision = h.scale_theta**-2 + h.cost**2 * row_sums(rows, g)
        prior = jnp.asarray(centres(len(h.levels)), x.dtype) / h.scale_theta**2
        mean = (prior + h.cost**2 * row_sums(rows, g * target)) / precision
        return dist.Normal(mean, precision**-0.5).to_event(2)

    def grown(self, p: Any, t: jax.Array, x: jax.Array, data: Any, h: Any) -> tuple[Any, jax.Array]:
        """With w integrated out."""
        q = p._replace(theta=jnp.exp(t) * p.theta)
        return q, p.theta.size * t - self.energy(q, x, data, h)

    def likelihood(self, x: jax.Array, theta: jax.Array, h: Any) -> margins.Margins:
        return margins.Margins(h.levels, x, theta, "hinge", strength=2 * h.cost)

    def sampled(self, p: Any, x: jax.Array, data: Any, h: Any) -> None:
        with numpyro.plate("user", data.n_users):
            theta = margins.sample_thresholds(*self.prior(h))
        with numpyro.plate("cell", len(x)):
            law = self.likelihood(x, theta[data.cells.row], h)
            numpyro.sample("rating", law, obs=data.y)

    def predict(self, p: Any, query: Any, h: Any, s: Any) -> Levels:
        """The levels; rows without training data are drawn from their priors."""

        def known(x: jax.Array, theta: jax.Array) -> Levels:
            return self.likelihood(x, theta, h).levels()

        at = lambda cells: s.drawn(p, cells, h)  # noqa: E731
        K = h.n_components + len(s.biases)
        return margins.predicted(known, at, K, p.theta, query, *self.prior(h))

    # -- the variational law: g at 1 / sqrt(E z^2), thresholds independent normals ---------------------
    def begin(self, p: Any, data: Any, h: Any) -> dict[str, Belief]:
        return {"theta": {"mean": p.theta, "var": jnp.zeros_like(p.theta)}}

    def squared(self, q: Any, x: jax.Array, variance: jax.Array, data: Any, h: Any) -> tuple:
        """E z, and the square root of E z^2."""
        at, own = data.cells.row, q.theta
        z = h.cost * (1 - self.signs(data, h) * (own["mean"][at] - x[:, None]))
        wide = h.cost**2 * (own["var"][at] + variance[:, None])
        return z, jnp.maximum(jnp.sqrt(z**2 + wide), self.smallest(x, h))

    def updated(self, q: Any, x: jax.Array, variance: jax.Array, data: Any, h: Any) -> tuple:
        g = 1 / self.squared(q, x, variance, data, h)[1]
        law = self.given_theta(q, x, data, h, g).base_dist  # the scores enter its mean linearly
        q = q._replace(theta={"mean": law.mean, "var": law.variance})
        return q, *self.target(q._replace(theta=law.mean), data, h, g)

    def bound(self, q: Any, x: jax.Array, variance: jax.Array, data: Any, h: Any) -> jax.Array:
        """2 max(0, z) = z + |z|, and E|z| is at most sqrt(E z^2)."""
        z, root = self.squared(q, x, variance, data, h)
        wide = 0.5 * jnp.sum(q.theta["var"]) / h.scale_theta**2
        return -jnp.sum(z + root) - margins.threshold_energy(q.theta["mean"], *self.prior(h)) - wide

    def laws(self, q: Any) -> dict[str, dist.Distribution]:
        return {"theta": beliefs.normal(q.theta)}
