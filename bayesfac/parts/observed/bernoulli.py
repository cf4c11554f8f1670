"""Values 0 and 1, P(y = 1) = F(m + x), as a law of observations; F is the logistic or the normal distribution
function.

    logit     w ~ PG(1, m + x): each cell observes x as (y - 1/2) / w - m with precision w
              (Polson, Scott & Windle, JASA 2013; `core/laws/polya_gamma.py`)
    probit    z ~ N(x, 1), above -m if y = 1 and below if y = 0: each cell observes x as z with precision 1
              (Albert & Chib, JASA 1993)

The solver and VB take expectations of w and z. Those of w give the bound of Jaakkola & Jordan (Statistics and
Computing 2000). Both bounds are low where a value says little; with a few ones among many zeros, VB makes the
factors too small (`likelihood_law.py`).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import log_ndtr
from scipy.special import logit, ndtri

from bayesfac.core import checks
from bayesfac.core.laws.beliefs import Belief
from bayesfac.core.laws.empirical_bayes import Evidence, Seen, as_normal
from bayesfac.core.laws.ordinal import Between, Levels, averaged
from bayesfac.core.laws.polya_gamma import PolyaGamma, log_cosh, share
from bayesfac.core.math import total
from bayesfac.parts.observed.thresholds import as_values

BOTH = (0.0, 1.0)


class Bernoulli(NamedTuple):
    """`link` is "logit" or "probit"; `h` has offset, the m above, by default that of the share of ones."""

    link: str = "logit"
    sites: dict[str, tuple[str, ...]] = {}  # never changed
    conditionals: dict[str, Any] = {}
    below: bool = True  # the variational bound has each auxiliary variable at its best law

    def prepare(self, data: Any, h: Any) -> Any:
        checks.cells(data, ~np.isin(data.value, BOTH), "values 0 and 1")
        if h.offset is not None:
            return h
        ones, n = float(data.value.sum()), len(data)
        if ones in (0, n):
            raise ValueError(f"Expected values 0 and 1, got {data.value[0]:g} everywhere")
        return h._replace(offset=float((logit if self.link == "logit" else ndtri)(ones / n)))

    def held(self, h: Any) -> tuple[str, ...]:
        return ()

    def unit(self, data: Any, h: Any) -> float:
        return 0.5

    def first(self, data: Any, h: Any) -> dict[str, jax.Array]:
        return {}

    def log_cdf(self, x: jax.Array) -> jax.Array:
        return jax.nn.log_sigmoid(x) if self.link == "logit" else log_ndtr(x)

    def of_cells(self, x: jax.Array, data: Any, h: Any) -> jax.Array:
        """The log probability of every value at its score."""
        return self.log_cdf((2 * data.y - 1) * (h.offset + x))

    def evidence(self, p: Any, data: Any, h: Any) -> Evidence:
        y = (data.y - data.mean) / data.spread

        def each(x: jax.Array) -> jax.Array:
            return self.of_cells(x, data, h)

        def observe(known: dict, x: jax.Array, variance: jax.Array) -> Seen:
            return Seen(known, *as_normal(each, x, variance), -each(x))

        return Evidence(y, 1.0, {}, observe, as_values(y))

    def energy(self, p: Any, x: jax.Array, data: Any, h: Any) -> jax.Array:
        return -total(self.of_cells(x, data, h), data.cells)

    def augment(self, p: Any, x: jax.Array, data: Any, h: Any) -> dist.Distribution:
        if self.link == "logit":
            return PolyaGamma(1, h.offset + x)
        one = data.y > 0.5
        low = jnp.where(one, -h.offset, -jnp.inf).astype(x.dtype)
        high = jnp.where(one, jnp.inf, -h.offset).astype(x.dtype)
        return Between(x, low, high, data.cells)

    def touching(self, p: Any, x: jax.Array, data: Any, h: Any) -> jax.Array:
        """E w, or E z, given the rest."""
        if self.link == "logit":
            return share(h.offset + x)
        return x + jax.grad(lambda x: jnp.sum(self.of_cells(x, data, h)))(x)

    def target(self, p: Any, data: Any, h: Any, given: jax.Array) -> tuple[jax.Array, Any]:
        if self.link == "logit":
            return (data.y - 0.5) / given - h.offset, given
        return given, 1.0

    def likelihood(self, x: jax.Array, h: Any) -> Levels:
        c = h.offset + x
        return Levels(BOTH, jnp.stack([self.log_cdf(-c), self.log_cdf(c)], -1))

    def sampled(self, p: Any, x: jax.Array, data: Any, h: Any) -> None:
        with numpyro.plate("cell", x.shape[0]):
            numpyro.sample("rating", self.likelihood(x, h), obs=data.y)

    def predict(self, p: Any, query: Any, h: Any, s: Any) -> Levels:
        """Levels 0 and 1; rows without training data are drawn from their priors."""

        def law(cells: Any) -> tuple:
            mean, at = s.drawn(p, cells, h)
            return self.likelihood(mean, h), lambda point: self.likelihood(at(point), h)

        return averaged(law, h.n_components + len(s.biases) + 1, query)

    # -- the variational law: w at its mean given E (m + x)^2, or z truncated normal about E x ------------
    def begin(self, p: Any, data: Any, h: Any) -> dict[str, Belief]:
        return {}

    def root(self, x: jax.Array, variance: jax.Array, h: Any) -> jax.Array:
        return jnp.sqrt((h.offset + x) ** 2 + variance)

    def updated(self, q: Any, x: jax.Array, variance: jax.Array, data: Any, h: Any) -> tuple:
        if self.link == "logit":
            return q, *self.target(q, data, h, share(self.root(x, variance, h)))
        return q, *self.target(q, data, h, self.touching(q, x, data, h))

    def bound(self, q: Any, x: jax.Array, variance: jax.Array, data: Any, h: Any) -> jax.Array:
        if self.link == "logit":
            own = (data.y - 0.5) * (h.offset + x)
            return jnp.sum(own - log_cosh(self.root(x, variance, h)))
        return jnp.sum(self.of_cells(x, data, h) - 0.5 * variance)

    def laws(self, q: Any) -> dict[str, dist.Distribution]:
        return {}
