"""Counts that vary more than Poisson numbers, as a law of observations of the listed cells.

    y ~ NB(r, p),   E y = exp(m + x),   logit p = c = m + x - log r,   Var y = E y + (E y)^2 / r

So r, with a Gamma prior or given, is the dispersion alone, and the meaning of a score does not depend on it.
Given w ~ PG(y + r, c) each cell observes x as (y - r) / (2w) - m + log r with precision w (Polson, Scott &
Windle, JASA 2013). The solver and VB take the expectation of w given c, or given E c^2. r moves with w
integrated out: by Metropolis steps in Gibbs, by a Newton step in the solver. VB has it at a point.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import gammaln

from bayesfac.core import checks
from bayesfac.core.data.cells import Grid, Known
from bayesfac.core.laws.beliefs import Belief
from bayesfac.core.laws.counts import NegativeBinomial as Law
from bayesfac.core.laws.cuts import uphill
from bayesfac.core.laws.empirical_bayes import Evidence, Seen, as_normal
from bayesfac.core.laws.polya_gamma import PolyaGamma, log_cosh, share
from bayesfac.core.math import metropolis, total


class NegativeBinomial(NamedTuple):
    """`h` has offset, the m above (by default the log of the mean count), r, r_shape and r_rate."""

    below: bool = True  # the variational bound has each w at its best law
    conditionals: dict[str, Any] = {}  # never changed

    @property
    def sites(self) -> dict[str, tuple[str, ...]]:
        return {"r": ()}

    def prepare(self, data: Any, h: Any) -> Any:
        y = data.value
        checks.cells(data, (y < 0) | (y % 1 != 0), "whole numbers of at least 0")
        if not y.any():
            raise ValueError("Expected a count above 0, got 0 everywhere")
        h = checks.filled(h, offset=float(np.log(y.mean())))
        checks.positive(h, "r_shape", "r_rate", *(["r"] if h.r is not None else []))
        return h

    def held(self, h: Any) -> tuple[str, ...]:
        return ("r",)

    def unit(self, data: Any, h: Any) -> float:
        return 0.5

    def first(self, data: Any, h: Any) -> dict[str, jax.Array]:
        return {} if h.r is not None else {"r": jnp.ones(())}

    def r(self, p: Any, h: Any) -> Any:
        return h.r if p.r is None else p.r

    def evidence(self, p: Any, data: Any, h: Any) -> Evidence:
        y = jnp.log(data.y + 0.5)

        def observe(known: dict, x: jax.Array, variance: jax.Array) -> Seen:
            r = known.get("r", h.r)
            if known:
                known = {"r": (r := self.climbed(r, x, data, h, variance))}

            def each(x: jax.Array) -> jax.Array:
                return self.of_cells(r, x, data, h)

            return Seen(known, *as_normal(each, x, variance), -each(x))

        own = {} if p.r is None else {"r": p.r}
        return Evidence(y - jnp.mean(y), jnp.std(y), own, observe)

    def odds(self, x: jax.Array, r: Any, h: Any) -> jax.Array:
        """c, the logarithm of p / (1 - p)."""
        return h.offset + x - jnp.log(r)

    def prior(self, r: jax.Array, h: Any) -> Any:
        """The log density of r, without constants; 0 if it is given."""
        return 0.0 if h.r is not None else (h.r_shape - 1) * jnp.log(r) - h.r_rate * r

    def density(self, r: Any, x: jax.Array, data: Any, h: Any, wide: Any = 0.0) -> jax.Array:
        """The log density of counts and r; with a variance of scores, the bound of its expectation."""
        return total(self.of_cells(r, x, data, h, wide), data.cells) + self.prior(r, h)

    def of_cells(self, r: Any, x: jax.Array, data: Any, h: Any, wide: Any = 0.0) -> jax.Array:
        """The log probability of every count at its score."""
        c, y = self.odds(x, r, h), data.y
        # with the constant, terms are small, and their sum has more digits in single precision
        ways = gammaln(y + r) - gammaln(r) - gammaln(y + 1)
        return ways + (y - r) * c / 2 - (y + r) * log_cosh(self.root(c, wide))

    def root(self, c: jax.Array, wide: Any) -> jax.Array:
        """sqrt(E c^2); c itself without variance, whose gradient is finite at 0."""
        return c if isinstance(wide, float) else jnp.sqrt(c**2 + wide)

    def energy(self, p: Any, x: jax.Array, data: Any, h: Any) -> jax.Array:
        return -self.density(self.r(p, h), x, data, h)

    def augment(self, p: Any, x: jax.Array, data: Any, h: Any) -> PolyaGamma:
        r = self.r(p, h)
        return PolyaGamma(data.y + r, self.odds(x, r, h))

    def touching(self, p: Any, x: jax.Array, data: Any, h: Any) -> jax.Array:
        """E w given the rest."""
        return self.augment(p, x, data, h).mean

    def target(self, p: Any, data: Any, h: Any, w: jax.Array) -> tuple[jax.Array, jax.Array]:
        r = self.r(p, h)
        return (data.y - r) / (2 * w) - h.offset + jnp.log(r), w

    def lowered(self, p: Any, x: jax.Array, data: Any, h: Any) -> Any:
        """A Newton step of log r that lowers J."""
        return p if p.r is None else p._replace(r=self.climbed(p.r, x, data, h))

    def climbed(self, r: jax.Array, x: jax.Array, data: Any, h: Any, wide: Any = 0.0) -> jax.Array:
        at = lambda t: self.density(jnp.exp(t[0]), x, data, h, wide)  # noqa: E731
        return jnp.exp(uphill(at, jnp.log(r)[None])[0])

    @property
    def moves(self) -> dict[str, Any]:
        return {"dispersion": self.walked}

    def walked(self, key: jax.Array, p: Any, x: jax.Array, data: Any, h: Any) -> Any:
        """Metropolis steps of log r, of random sizes, with w integrated out."""
        if p.r is None:
            return p
        size, walk = jax.random.split(key)
        step = 3 / len(data) ** 0.5 * jnp.exp(jax.random.normal(size, ()))

        def density(t: jax.Array) -> jax.Array:
            return t[0] + self.density(jnp.exp(t[0, 0]), x, data, h)

        return p._replace(
            r=jnp.exp(metropolis(walk, jnp.log(p.r)[None, None], step, density, 2)[0, 0])
        )

    def sampled(self, p: Any, x: jax.Array, data: Any, h: Any) -> None:
        r = h.r if h.r is not None else numpyro.sample("r", dist.Gamma(h.r_shape, h.r_rate))
        with numpyro.plate("cell", x.shape[0]):
            numpyro.sample("rating", Law(r, self.odds(x, r, h)), obs=data.y)

    def predict(self, p: Any, query: Any, h: Any, s: Any) -> Law:
        """Scores of rows without training data are normal, exactly if either the user or the item is new."""
        mean, variance = s.predicted(p, query, h)
        r, known = self.r(p, h), isinstance(query, Grid | Known)
        return Law(r, self.odds(mean, r, h), None if known else variance)

    # -- the variational law: w at its mean given E c^2, r at a point -------------------------------------
    def begin(self, p: Any, data: Any, h: Any) -> dict[str, Belief]:
        return {} if p.r is None else {"r": {"point": p.r}}

    def point(self, q: Any, h: Any) -> Any:
        return h.r if q.r is None else q.r["point"]

    def updated(self, q: Any, x: jax.Array, variance: jax.Array, data: Any, h: Any) -> tuple:
        if q.r is not None:
            q = q._replace(r={"point": self.climbed(q.r["point"], x, data, h, variance)})
        r = self.point(q, h)
        w = (data.y + r) * share(self.root(self.odds(x, r, h), variance))
        return q, *self.target(q._replace(r=r), data, h, w)

    def bound(self, q: Any, x: jax.Array, variance: jax.Array, data: Any, h: Any) -> jax.Array:
        return self.density(self.point(q, h), x, data, h, variance)

    def laws(self, q: Any) -> dict[str, dist.Distribution]:
        return {} if q.r is None else {"r": dist.Delta(q.r["point"])}
