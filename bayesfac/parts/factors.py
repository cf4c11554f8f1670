"""Factors: tables of normal rows, u_i ~ N(mu + B'x_i, P^-1), with or without mean and features.

    mu ~ N(0, (beta0 P)^-1),   B ~ N(0, (ridge I x P)^-1),   ridge ~ Gamma(ridge_shape, ridge_rate)

The features x_i shift the mean of a row, as in Macau (Simm, Arany, Zakeri et al., MLSP 2017). They may come
in several groups, each with its own B and ridge, whose keys end with the name of the axis. All factors that
name the same precision P share it. What J knows of P is S and N of `precisions.py`, here

    S = sum_i r_i r_i' + beta0 mu mu' + ridge B'B,   r_i = u_i - mu - B'x_i
    N = rows + 1 for mu + features, the rows of B

summed over the factors that share P. Given all else a mean of n rows is normal:

    mu | rest ~ N(sum_i (u_i - B'x_i) / (n + beta0), P^-1 / (n + beta0))

Everything in this file holds for all laws of P. If rows depend on one another along their axis, S has R'QR in
place of the sum of r_i r_i' (`rows/coupled.py`).

A `level` is a mean whose law does not depend on P: N(0, scale_level^2). If P is diagonal and there is no
mean, rows may be cut to entries of at least 0: their density is then 2^K times as large, and S and N stay.
Or entries may be mixtures (`rows/mixtures.py`): then S has sum_i w_ik r_ik^2, given their scales.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfac.core.laws.distributions import HalfNormal
from bayesfac.core.laws.links import Links, ridge_energy
from bayesfac.core.laws.normal_wishart import normal_rows
from bayesfac.core.math import prior_mean
from bayesfac.parts.precisions import Precision
from bayesfac.parts.rows import mixtures
from bayesfac.parts.rows.coupled import CoupledPrior
from bayesfac.parts.sites import get, put


class Factor(NamedTuple):
    """The sites of one table of rows along an axis; a bias has one number for each row."""

    axis: str
    rows: str
    precision: Any  # Precision, or Given
    mean: str = ""
    link: str = ""  # the field of Params that has B of each group, and that of the ridges
    ridge: str = ""
    bias: bool = False
    level: str = ""
    mixture: Any = None  # Mixture, of entries; it has no mean and no link
    along: Any = None  # how rows depend on one another (`rows/along.py`); None: they do not
    positive: bool = False  # rows about zero, cut to entries of at least 0; P is diagonal

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

    def entries(self, p: Any, h: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        """tau u^2 of all entries of a mixture, the logarithms of its masses, and its scales."""
        square = jnp.diag(self.P(p, h)) * self.table(p) ** 2
        return square, self.mixture.masses(get(p, self.mixture.site), h), self.mixture.scales(h)

    def shares(self, p: Any, h: Any) -> jax.Array:
        """The probabilities of the scales of all entries of a mixture."""
        return mixtures.shares(*self.entries(p, h))

    def groups(self, p: Any) -> list[str]:
        """The groups of features that shift the rows."""
        table = getattr(p, self.link, None) if self.link else None
        return [key for key in table or () if key.endswith(self.axis)]

    def explained(self, p: Any, data: Any, without: str = "") -> jax.Array | None:
        """X B of all groups but one; None if there is none."""
        keys = [k for k in self.groups(p) if k != without]
        parts = [data.x[k].times(getattr(p, self.link)[k]) for k in keys]
        return sum(parts) if parts else None

    def unlinked(self, p: Any, data: Any, without: str = "") -> jax.Array:
        """The rows less X B (but of one group)."""
        rows, part = self.table(p), self.explained(p, data, without)
        return rows if part is None else rows - part

    def centre(self, p: Any) -> jax.Array | float:
        """mu or the level; 0 without."""
        own = [get(p, site) for site in (self.mean, self.level) if site]
        return sum(own) if own else 0.0

    def alone(self, p: Any, data: Any, without: str = "") -> jax.Array:
        """The rows less mean and X B (but of one group)."""
        return self.unlinked(p, data, without) - self.centre(p)

    def joined(self, data: Any, h: Any, R: jax.Array) -> jax.Array:
        """Q R; R itself if rows do not depend on one another."""
        return R if self.along is None else self.along.at(data, self.axis, h, len(R)).times(R)


Factors = Sequence[Factor]


# -- S, N and the energy ---------------------------------------------------------------------------------
def squares(p: Any, data: Any, f: Factor, h: Any) -> tuple[jax.Array, int]:
    """S and N of one factor."""
    away, mu = f.alone(p, data), get(p, f.mean)
    if f.mixture:
        return weighted(away, mixtures.expected(*f.entries(p, h)))
    S, N = away.T @ f.joined(data, h, away), len(away)
    if mu is not None:
        S, N = S + h.beta0 * jnp.outer(mu, mu), N + 1
    for key in f.groups(p):
        B, ridge = (getattr(p, name)[key] for name in (f.link, f.ridge))
        S, N = S + ridge * B.T @ B, N + len(B)
    return S, N


def weighted(rows: jax.Array, w: jax.Array) -> tuple[jax.Array, int]:
    """S and N of rows whose entries have the precisions tau w."""
    return jnp.diag(jnp.sum(w * rows**2, 0)), len(rows)


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


def ridges(every: Factors, p: Any) -> dict[str, list[tuple[Factor, str]]]:
    """{site of a ridge: the factors whose links it scales, with the sites of these links}."""
    found: dict[str, list[tuple[Factor, str]]] = {}
    for f in every:
        for key in f.groups(p):
            found.setdefault(f"{f.ridge}.{key}", []).append((f, f"{f.link}.{key}"))
    return found


def energy(every: Factors, p: Any, data: Any, h: Any) -> jax.Array:
    """Minus the log density of rows, means, precisions, links and ridges, without constants."""
    total = jnp.zeros(())
    for f in one_of_each(every):
        S, N = of_precision(every, f, p, data, h)
        P, logdet = f.precision.of(get(p, f.precision.site), h, len(S))
        if f.mixture:
            S, entries = f.precision.prior(h, len(P))[0], f.entries(p, h)
            total += f.mixture.energy(entries[1], h) - mixtures.log_density(*entries)
        total += 0.5 * (jnp.sum(P * S) - N * logdet)
    for site, own in ridges(every, p).items():
        size, ridge = sum(get(p, link).size for _, link in own), get(p, site)
        total += ridge_energy(ridge, h) - size / 2 * jnp.log(ridge)
    for f in every:
        total += 0.5 * (get(p, f.level) / h.scale_level) ** 2 if f.level else 0.0
    return total


# -- conditionals of all but the rows ----------------------------------------------------------------------
def conditional(site: str, every: Factors, p: Any, data: Any, h: Any) -> dist.Distribution:
    """The law of a precision, a mean, a link or a ridge, given all other sites."""
    name, _, key = site.partition(".")
    for f in every:
        if f.mixture and site in (f.precision.site, f.mixture.site):
            return of_mixture(site, f, p, h)
        if site == f.precision.site:
            return f.precision.law(*of_precision(every, f, p, data, h))
        if site == f.mean:
            rows, P = f.unlinked(p, data), f.P(p, h)
            total, weight = rows.sum(0), h.beta0 + len(rows)
            if f.along:
                ones = f.joined(data, h, jnp.ones_like(rows[:, 0:1]))[:, 0]
                total, weight = ones @ rows, h.beta0 + ones.sum()
            return dist.MultivariateNormal(total / weight, precision_matrix=weight * P)
        if site == f.level:
            rows, P = f.unlinked(p, data), f.P(p, h)[0, 0]
            precision = h.scale_level**-2.0 + len(rows) * P
            return dist.Normal(P * rows.sum() / precision, precision**-0.5)
        if name == f.link and key in f.groups(p):
            ridge = getattr(p, f.ridge)[key]
            return Links(data.x[key], f.alone(p, data, key), ridge, f.P(p, h))
    own = [(get(p, link), f.P(p, h)) for f, link in ridges(every, p)[site]]
    square, size = sum(jnp.sum(B @ P * B) for B, P in own), sum(B.size for B, _ in own)
    return dist.Gamma(h.ridge_shape + size / 2, h.ridge_rate + square / 2)


def of_mixture(site: str, f: Factor, p: Any, h: Any) -> mixtures.Through:
    """The law of the precision or of the share of a mixture, given its rows."""
    S0, N0 = f.precision.prior(h, f.width(h))

    def given(w: jax.Array) -> dist.Distribution:
        if site == f.mixture.site:
            return f.mixture.law(w, h)
        S, N = weighted(f.table(p), w)
        return f.precision.law(S0 + S, N0 + N)

    def log_density(value: jax.Array) -> jax.Array:
        q = put(p, {site: value})
        P, logdet = f.precision.of(get(q, f.precision.site), h, f.width(h))
        log, entries = 0.5 * ((N0 + len(f.table(p))) * logdet - jnp.sum(P * S0)), f.entries(q, h)
        return log - f.mixture.energy(entries[1], h) + mixtures.log_density(*entries)

    return mixtures.Through(given, f.entries(p, h), log_density, get(p, site).shape)


def rows_of_mixture(f: Factor, p: Any, h: Any, given: Callable[..., Any]) -> Any:
    """The law of the rows of a mixture; `given(P=)` is that with the precisions P of the prior, (n, K, K)."""
    tau, of = jnp.diag(f.P(p, h)), f.entries(p, h)

    def at(w: jax.Array) -> Any:
        return given(P=(tau * w)[..., None] * jnp.eye(len(tau)))

    def log_density(value: jax.Array) -> jax.Array:
        # that of the cells is the normal density without its prior
        w = mixtures.expected(*of)
        cells = jnp.sum(at(w).log_prob(value)) + 0.5 * jnp.sum(tau * w * value**2)
        return cells + mixtures.log_density(*f.entries(put(p, {f.rows: value}), h))

    return mixtures.Through(at, of, log_density, f.table(p).shape)


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
        if f.level:
            centre = centre + numpyro.sample(f.level, dist.Normal(0, h.scale_level))
        for key in [key for key in data.x if key.endswith(f.axis)] if f.link else []:
            if (site := f"{f.ridge}.{key}") not in ridge:
                ridge[site] = numpyro.sample(site, dist.Gamma(h.ridge_shape, h.ridge_rate))
            x, law = data.x[key], normal_rows(jnp.zeros(K), ridge[site] * own)
            with numpyro.plate(f"{key}_feature", x.width):
                centre = centre + x.times(numpyro.sample(f"{f.link}.{key}", law))
        found[f.rows] = _sampled_rows(f, centre, own, data, lengths[f.axis], h)
    return found


def _sampled_rows(f: Factor, centre: jax.Array, P: jax.Array, data: Any, n: int, h: Any) -> Any:
    """Sample the rows about `centre`, and the share of a mixture."""
    if f.along:
        law = CoupledPrior(f.along.at(data, f.axis, h, n), n, centre, P)
        return numpyro.sample(f.rows, law)
    if f.mixture:
        log = f.mixture.masses(f.mixture.sampled(h, len(P)), h)
        law = mixtures.rows(log, f.mixture.scales(h), jnp.diag(P))
    elif f.positive:
        law = HalfNormal(jnp.diag(P) ** -0.5).to_event(1)
    elif f.bias:
        law = dist.Normal(centre[..., 0], P[0, 0] ** -0.5)
    else:
        law = normal_rows(centre, P)
    with numpyro.plate(f.axis, n):
        return numpyro.sample(f.rows, law)


def new_row(f: Factor, p: Any, query: Any, h: Any) -> tuple[jax.Array, jax.Array]:
    """Mean and covariance of a row without training data; if the query has features, a table of means."""
    if f.positive:
        law = HalfNormal(jnp.diag(f.P(p, h)) ** -0.5)
        return law.mean, jnp.diag(law.variance)
    x = getattr(query, f.axis, None)
    mean = jnp.zeros(f.width(h)) + f.centre(p)
    if x is not None and f.axis in f.groups(p):
        mean = mean + x.times(getattr(p, f.link)[f.axis])
    wide: Any = 1.0
    if f.mixture:
        _, log, s = f.entries(p, h)
        wide = mixtures.variance(log, s)
    if f.along:
        mean, wide = f.along.new(h, f.table(p), mean)
    return mean, wide * jnp.linalg.inv(f.P(p, h))


def new_bias(f: Factor, p: Any, query: Any, h: Any, code: Any) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of the biases of these labels: those that training never saw have the code -1."""
    mean, cov = new_row(f, p, query, h)
    new = jnp.asarray(code) < 0
    return jnp.where(new, prior_mean(mean, code)[..., 0], 0), cov[0, 0] * new
