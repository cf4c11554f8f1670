"""The variational law of a matrix whose values are levels: see `likelihood_law.py` and `threshold_law.py`.

A user's row and first threshold have one joint normal law; the log gaps and spreads are points (EM).
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from bayesfac.core.math import row_sums
from bayesfac.core.method import Variational
from bayesfac.parts import factor_beliefs
from bayesfac.parts.factors import Factor
from bayesfac.parts.matrix import Matrix
from bayesfac.parts.observed import likelihood_law
from bayesfac.parts.observed import threshold_law as law
from bayesfac.parts.observed import thresholds as cuts


def record(s: Matrix) -> Variational:
    """The record for the factors of a matrix without biases."""

    def begin(p: Any, data: Any, h: Any) -> dict[str, Any]:
        free = p.centre if p.theta is None else cuts.rising.inv(p.theta)
        found = factor_beliefs.begin(s.main, p, data, h) | law.begin(p.U, p.centre, free)
        g = cuts.spreads(p)
        return found if g is None else found | {"log_spread": {"point": g}}

    def energy(q: Any, data: Any, h: Any) -> jax.Array:
        found = factor_beliefs.energy(s.main, q, data, h) + law.energy(q, *cuts.population(h))
        g = cuts.spreads(q)
        return found if g is None else found + 0.5 * jnp.sum((g / h.scale_spread) ** 2)

    def prior(q: Any, f: Factor, data: Any, h: Any) -> tuple[jax.Array, jax.Array]:
        return law.prior(q, f, data, h, cuts.population(h)[1])

    def of_prior(q: Any, data: Any, h: Any) -> Any:
        return law.update(factor_beliefs.update(s.main, q, data, h), *cuts.population(h))

    return likelihood_law.record(
        begin, moved, of_cells, energy, partial(law.laws, s.main), s, prior, of_prior,
        split=law.split,
    )  # fmt: skip


def moved(q: Any, x: jax.Array, variance: jax.Array, data: Any, h: Any) -> Any:
    """The sites that are points, after a step that increases the ELBO, row by row."""
    t, (c, s) = law.points(q), law.prior_of_points(q, *cuts.population(h))

    def density(t: jax.Array) -> jax.Array:
        log_likelihood = partial(of_cells, law.with_points(q, t), data, h)
        each = likelihood_law.expected(log_likelihood, x, variance)
        fit = jnp.sum(each)[None] if q.theta is None else row_sums(data.cells.by_row, each)
        return fit - 0.5 * jnp.sum(((t - c) / s) ** 2, 1)

    free = t if q.theta is None else jnp.pad(t, ((0, 0), (1, 0)))
    most = cuts.bend(free, law.at(q, t), data, h)[:, free.shape[1] - t.shape[1] :]
    q = law.with_points(q, law.climbed(t, most, density))
    g = cuts.spreads(q)
    return q if g is None else narrowed(q, g, x, variance, data, h)


def narrowed(q: Any, g: jax.Array, x: jax.Array, variance: jax.Array, data: Any, h: Any) -> Any:
    """The spreads of users after a step from g that increases the ELBO, row by row."""
    p, variance = law.at(q, law.points(q)), jnp.maximum(variance, likelihood_law.LEAST)
    density, most = cuts.of_users(p, x, data, h, variance), cuts.curvature(p, x, data, h)
    new = law.climbed(g[:, None], most, density)
    return q._replace(log_spread={"point": new[:, 0]})


def of_cells(q: Any, data: Any, h: Any, x: jax.Array) -> jax.Array:
    """The log likelihood of every rating at x, which is relative to the first threshold if users have one."""
    return cuts.log_likelihood(law.at(q, law.points(q)), x, data, h)
