"""Factors: tables of normal rows, u_i ~ N(mu + B'x_i, P^-1), with or without mean and features.

    mu ~ N(0, (beta0 P)^-1),   B ~ N(0, (ridge I x P)^-1),   ridge ~ Gamma(ridge_shape, ridge_rate)

The features x_i shift the mean of a row, as in Macau (Simm, Arany, Zakeri et al., MLSP 2017). All factors
that name the same precision P share it. What J knows of P is S and N of `precisions.py`, here

    S = sum_i r_i r_i' + beta0 mu mu' + ridge B'B,   r_i = u_i - mu - B'x_i
    N = rows + 1 for mu + features, the rows of B

summed over the factors that share P. Everything in this file holds for all laws of P.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfac.core.laws.links import Links, ridge_energy
from bayesfac.core.laws.normal_wishart import normal_rows
from bayesfac.core.math import prior_mean
from bayesfac.parts.precisions import Precision
from bayesfac.parts.sites import get


class Factor(NamedTuple):
    """The sites of one table of rows along an axis; a bias has one number for each row."""

    axis: str
    rows: str
    precision: Any  # Precision, or Given
    mean: str = ""
    link: str = ""  # B
    ridge: str = ""
    bias: bool = False

    def width(self, h: Any) -> int:
        """The length of a row."""
        return 1 if self.bias else h.n_components

    def table(self, p: Any) -> jax.Array:
        """The rows, also of a bias as a table."""
        rows = get(p, self.rows)
        return rows[:, None] if self.bias else rows

    def P(self, p: Any, h: Any) -> jax.Array:
        """The precision of a row."""
        return self.precision.of(get(p, self.precision.site), h, self.width(h))[0]

    def linked(self, p: Any) -> bool:
        """Whether features shift the rows."""
        return get(p, self.link) is not None

    def explained(self, p: Any, data: Any) -> jax.Array | None:
        """X B; None without features."""
        return data.x[self.axis].times(get(p, self.link)) if self.linked(p) else None

    def unlinked(self, p: Any, data: Any) -> jax.Array:
        """The rows less X B."""
        rows, part = self.table(p), self.explained(p, data)
        return rows if part is None else rows - part

    def alone(self, p: Any, data: Any) -> jax.Array:
        """The rows less mean and X B."""
        rows = self.unlinked(p, data)
        return rows - get(p, self.mean) if self.mean else rows


Factors = Sequence[Factor]


# -- S, N and the energy ---------------------------------------------------------------------------------
def squares(p: Any, data: Any, f: Factor, h: Any) -> tuple[jax.Array, int]:
    """S and N of one factor."""
    away, mu, B = f.alone(p, data), get(p, f.mean), get(p, f.link)
    S, N = away.T @ away, len(away)
    if mu is not None:
        S, N = S + h.beta0 * jnp.outer(mu, mu), N + 1
    return (S, N) if B is None else (S + get(p, f.ridge) * B.T @ B, N + len(B))


def sharing(every: Factors, precision: Precision) -> list[Factor]:
    """The factors with this precision."""
    return [f for f in every if f.precision == precision]


def pooled(
    every: Iterable[Factor], precision: Precision, each: Callable[[Factor], tuple], h: Any, K: int
) -> tuple[jax.Array, float]:
    """S and N of all these factors, and those of the prior of their precision."""
    S, N = precision.prior(h, K) if precision.site else (jnp.zeros((K, K)), 0.0)
    for f in every:
        more, count = each(f)
        S, N = S + more, N + count
    return S, N


def of_precision(every: Factors, f: Factor, p: Any, data: Any, h: Any) -> tuple[jax.Array, float]:
    """`pooled` at a point, for the precision of a factor."""
    own = sharing(every, f.precision)
    return pooled(own, f.precision, lambda f: squares(p, data, f, h), h, f.width(h))


def one_of_each(every: Factors) -> list[Factor]:
    """One factor for each precision."""
    return list({f.precision: f for f in reversed(every)}.values())[::-1]


def ridges(every: Factors, p: Any) -> dict[str, list[Factor]]:
    """{site of a ridge: the factors whose links it scales}."""
    linked = [f for f in every if f.linked(p)]
    return {site: [f for f in linked if f.ridge == site] for site in {f.ridge: 0 for f in linked}}


def energy(every: Factors, p: Any, data: Any, h: Any) -> jax.Array:
    """Minus the log density of rows, means, precisions, links and ridges, without constants."""
    total = jnp.zeros(())
    for f in one_of_each(every):
        S, N = of_precision(every, f, p, data, h)
        P, logdet = f.precision.of(get(p, f.precision.site), h, len(S))
        total += 0.5 * (jnp.sum(P * S) - N * logdet)
    for site, own in ridges(every, p).items():
        size, ridge = sum(get(p, f.link).size for f in own), get(p, site)
        total += ridge_energy(ridge, h) - size / 2 * jnp.log(ridge)
    return total


# -- conditionals of all but the rows ----------------------------------------------------------------------
def conditional(site: str, every: Factors, p: Any, data: Any, h: Any) -> dist.Distribution:
    """The law of a precision, a mean, a link or a ridge, given all other sites."""
    for f in every:
        if site == f.precision.site:
            return f.precision.law(*of_precision(every, f, p, data, h))
        if site == f.mean:
            rows, P = f.unlinked(p, data), f.P(p, h)
            weight = h.beta0 + len(rows)
            return dist.MultivariateNormal(rows.sum(0) / weight, precision_matrix=weight * P)
        if site == f.link:
            rows = f.table(p) - (get(p, f.mean) if f.mean else 0)
            return Links(data.x[f.axis], rows, get(p, f.ridge), f.P(p, h))
        if site == f.ridge:
            own = [(get(p, f.link), f.P(p, h)) for f in ridges(every, p)[site]]
            square, size = sum(jnp.sum(B @ P * B) for B, P in own), sum(B.size for B, _ in own)
            return dist.Gamma(h.ridge_shape + size / 2, h.ridge_rate + square / 2)
    raise KeyError(site)


# -- the model, and rows without training data -------------------------------------------------------------
def sample(every: Factors, data: Any, lengths: dict[str, int], h: Any) -> dict[str, jax.Array]:
    """Sample all sites of these factors; return {site: rows}."""
    P: dict[Any, jax.Array] = {}
    ridge: dict[str, jax.Array] = {}
    found = {}
    for f in every:
        K = f.width(h)
        if f.precision not in P:
            P[f.precision] = f.precision.sampled(h, K)
        own = P[f.precision]
        centre = jnp.zeros(K)
        if f.mean:
            law = dist.MultivariateNormal(centre, precision_matrix=h.beta0 * own)
            centre = numpyro.sample(f.mean, law)
        if f.link and f.axis in data.x:
            if f.ridge not in ridge:
                law = dist.Gamma(h.ridge_shape, h.ridge_rate)
                ridge[f.ridge] = numpyro.sample(f.ridge, law)
            x, law = data.x[f.axis], normal_rows(jnp.zeros(K), ridge[f.ridge] * own)
            with numpyro.plate(f"{f.link}_feature", x.width):
                centre = centre + x.times(numpyro.sample(f.link, law))
        with numpyro.plate(f"{f.rows}_{f.axis}", lengths[f.axis]):
            one = dist.Normal(centre[..., 0], own[0, 0] ** -0.5)
            found[f.rows] = numpyro.sample(f.rows, one if f.bias else normal_rows(centre, own))
    return found


def new_row(f: Factor, p: Any, query: Any, h: Any) -> tuple[jax.Array, jax.Array]:
    """Mean and covariance of a row without training data; if the query has features, a table of means."""
    mu, x = get(p, f.mean), getattr(query, f.axis, None)
    mean = jnp.zeros(f.width(h)) if mu is None else mu
    if x is not None and f.linked(p):
        mean = mean + x.times(get(p, f.link))
    return mean, jnp.linalg.inv(f.P(p, h))


def new_bias(f: Factor, p: Any, query: Any, h: Any, code: Any) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of the biases of these labels: those that training never saw have the code -1."""
    mean, cov = new_row(f, p, query, h)
    new = jnp.asarray(code) < 0
    return jnp.where(new, prior_mean(mean, code)[..., 0], 0), cov[0, 0] * new
