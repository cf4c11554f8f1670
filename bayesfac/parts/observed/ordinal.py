"""Levels of an ordinal scale, P(y <= r) = F((theta_r - x) / s), as a law of observations: see
`thresholds.py`.

Given a latent normal z ~ N(x, s^2) between the thresholds of each rating (Albert & Chib, JASA 1993; probit
alone), each cell observes its score as z, with precision 1 / s^2.
"""

from typing import Any, NamedTuple

import jax

from bayesfac.core.laws.empirical_bayes import Evidence
from bayesfac.core.laws.ordinal import Between, Levels
from bayesfac.core.math import total
from bayesfac.core.method import Variational
from bayesfac.parts.observed import level_beliefs
from bayesfac.parts.observed import thresholds as cuts


class Ordinal(NamedTuple):
    """Thresholds that are shared, or of each user; `spread`: whether users have a spread s, which is else 1;
    `name` is that of the method, for messages."""

    name: str
    spread: bool = False
    floating: tuple[str, ...] = ("centre",)
    conditionals: dict[str, Any] = {}  # never changed

    @property
    def sites(self) -> dict[str, tuple[str, ...]]:
        return cuts.DIMS | (cuts.SPREAD if self.spread else {})

    def unit(self, data: Any, h: Any) -> float:
        return 0.5

    def first(self, data: Any, h: Any) -> dict[str, Any]:
        return cuts.quantiles(data, h)

    def held(self, h: Any) -> tuple[str, ...]:
        """`centre`, because the Jacobian would pull every user's gaps, and with them `centre`, towards 0; and
        spreads, as they would be too small given the best rows."""
        centre = ("centre",) if h.thresholds == "user" else ()
        return (*centre, "log_spread") if self.spread else centre

    def evidence(self, p: Any, data: Any, h: Any) -> Evidence:
        y = (data.y - data.mean) / data.spread
        return Evidence(y, 1.0, cuts.own(p), cuts.observer(p, data, h), cuts.as_values(y))

    def energy(self, p: Any, x: jax.Array, data: Any, h: Any) -> jax.Array:
        return cuts.objective(p, x, data, h)

    def augment(self, p: Any, x: jax.Array, data: Any, h: Any) -> Between:
        return cuts.augmented(p, x, data, h, self.name)

    def target(self, p: Any, data: Any, h: Any, z: jax.Array) -> tuple[jax.Array, Any]:
        """z is in units of the spreads."""
        inverse = cuts.inverse_spread(p, data.cells)
        return z / inverse, inverse**2

    @property
    def moves(self) -> dict[str, Any]:
        """Metropolis steps of the thresholds and of the spreads given the scores, with z integrated out."""
        return {"thresholds": cuts.moved} | ({"spreads": cuts.respread} if self.spread else {})

    def grown(self, p: Any, t: jax.Array, x: jax.Array, data: Any, h: Any) -> tuple[Any, jax.Array]:
        q, jacobian = cuts.scaled(p, t)
        fit = total(cuts.log_likelihood(q, x, data, h), data.cells)
        return q, jacobian + fit - cuts.energy(q, h)

    def sampled(self, p: Any, x: jax.Array, data: Any, h: Any) -> None:
        cuts.sample(x, data, h)

    def variational(self, s: Any) -> Variational | None:
        """For both links, of a matrix without biases."""
        return None if s.biases else level_beliefs.record(s)

    def predict(self, p: Any, query: Any, h: Any, s: Any) -> Levels:
        """The levels, chosen as the median."""
        K = h.n_components + len(s.biases)
        return cuts.predicted(p, query, h, lambda cells: s.drawn(p, cells, h), K)
