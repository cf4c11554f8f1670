"""Variational laws of what stands above the rows of factors: precisions, means, links and ridges.

In q all sites are independent, and every row has its own covariance. The energy of `factors.py` is linear in
S, so its expectation needs E S: squares of means plus covariances. The laws of rows themselves depend on the
structure: see `matrix.py` and `tensor.py`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from bayesfac.core.laws import beliefs
from bayesfac.core.laws import link_beliefs as link
from bayesfac.core.laws.beliefs import Belief
from bayesfac.parts.factors import (
    Factor,
    Factors,
    of_precision,
    one_of_each,
    pooled,
    ridges,
    sharing,
)
from bayesfac.parts.rows import mixtures
from bayesfac.parts.sites import get, put


def rows_of(q: Any, f: Factor, h: Any) -> Belief:
    """The law of the rows of a factor; of a bias as rows of one number, of rows with a level without it."""
    own = get(q, f.rows)
    if f.bias:
        return {"mean": own["mean"][:, None], "cov": own["var"][:, None, None]}
    return beliefs.front(own, f.width(h))


def begin(every: Factors, p: Any, data: Any, h: Any) -> dict[str, Belief]:
    """The laws at a point: only precisions and ridges have a variance."""
    found: dict[str, Any] = {}
    for f in one_of_each(every):
        if f.precision.site:
            P, N = f.P(p, h), of_precision(every, f, p, data, h)[1]
            # its shape as after a sweep, and its mean at the point
            shape = f.precision.belief(jnp.eye(len(P)), N)["shape"]
            found[f.precision.site] = f.precision.belief(shape * beliefs.inverse(P), N)
    for f in every:
        rows = get(p, f.rows)
        if f.mixture and f.mixture.site:
            value = get(p, f.mixture.site)
            found[f.mixture.site] = f.mixture.begin(value, h, len(rows))
        none = {"mean": rows, "var": jnp.zeros_like(rows)}
        found[f.rows] = none if f.bias else beliefs.certain(rows)
        if f.mean:
            found[f.mean] = beliefs.certain(get(p, f.mean))
    for site, own in ridges(every, p).items():
        for f, B in own:
            found[B] = link.begin(get(p, B), f.P(p, h), data.x[B.partition(".")[2]])
        found[site] = link.begin_ridge(get(p, site), h, sum(get(p, B).size for _, B in own))
    return found


def expected_P(f: Factor, q: Any, h: Any) -> jax.Array:
    """E P of a factor."""
    return f.precision.believed(get(q, f.precision.site), h, f.width(h))[0]


def explained(f: Factor, q: Any, data: Any, without: str = "") -> jax.Array:
    """X E[B] of all groups but one; 0 without features."""
    own = (k for k in f.groups(q) if k != without)
    return sum((data.x[k].times(getattr(q, f.link)[k]["mean"]) for k in own), jnp.zeros(()))


def entries(f: Factor, q: Any, h: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    """E tau u^2 of all entries of a mixture, E log of its masses, and its scales."""
    own = rows_of(q, f, h)
    square = own["mean"] ** 2 + jnp.einsum("nkk->nk", own["cov"])
    log = f.mixture.believed(get(q, f.mixture.site), h)
    return jnp.diag(expected_P(f, q, h)) * square, log, f.mixture.scales(h)


def prior(f: Factor, q: Any, data: Any, h: Any) -> tuple[jax.Array, jax.Array]:
    """E P of the rows of a factor, and E P times their prior mean; P of each row if it is a mixture."""
    P, mu = expected_P(f, q, h), get(q, f.mean)
    if f.mixture:
        w = mixtures.expected(*entries(f, q, h))
        return P * w[..., None], jnp.zeros_like(w)
    centre = explained(f, q, data) + (jnp.zeros(len(P), P.dtype) if mu is None else mu["mean"])
    return P, centre @ P


def expected_squares(q: Any, data: Any, f: Factor, h: Any) -> tuple[jax.Array, int]:
    """E S and N of one factor."""
    own, mu = rows_of(q, f, h), get(q, f.mean)
    if f.mixture:
        square, log, s = entries(f, q, h)
        tau = jnp.diag(expected_P(f, q, h))
        return jnp.diag(jnp.sum(mixtures.expected(square, log, s) * square / tau, 0)), len(square)
    away = own["mean"] - explained(f, q, data) - (0 if mu is None else mu["mean"])
    S, N = away.T @ away + own["cov"].sum(0), len(away)
    if mu is not None:
        S += h.beta0 * beliefs.square(mu["mean"]) + (N + h.beta0) * mu["cov"]
        N += 1
    for key in f.groups(q):
        B, ridge = getattr(q, f.link)[key], beliefs.gamma(getattr(q, f.ridge)[key]).mean
        S += link.spread(data.x[key], B) + ridge * link.second(B)
        N += len(B["mean"])
    return S, N


def of_belief(every: Factors, f: Factor, q: Any, data: Any, h: Any) -> tuple[jax.Array, float]:
    """E S and N for the precision of a factor, with those of its prior."""
    own = sharing(every, f.precision)
    return pooled(own, f.precision, lambda f: expected_squares(q, data, f, h), h, f.width(h))


def update(every: Factors, q: Any, data: Any, h: Any) -> Any:
    """The laws of links, means, precisions and ridges given those of the rows."""
    for f in every:
        P, rows = expected_P(f, q, h), rows_of(q, f, h)["mean"]
        for key in f.groups(q):
            away = rows - explained(f, q, data, key) - (get(q, f.mean)["mean"] if f.mean else 0)
            new = link.updated(data.x[key], away, getattr(q, f.ridge)[key], P)
            q = put(q, {f"{f.link}.{key}": new})
        if f.mean:
            weight = h.beta0 + len(rows)
            mean = (rows - explained(f, q, data)).sum(0) / weight
            q = put(q, {f.mean: {"mean": mean, "cov": beliefs.inverse(weight * P)}})
    for f in one_of_each(every):
        if share := f.mixture and f.mixture.site:
            w = mixtures.expected(*entries(f, q, h))
            q = put(q, {share: f.mixture.belief(w, h)})
        if f.precision.site:
            q = put(q, {f.precision.site: f.precision.belief(*of_belief(every, f, q, data, h))})
    for site, own in ridges(every, q).items():
        pairs = [(get(q, B), expected_P(f, q, h)) for f, B in own]
        q = put(q, {site: link.updated_ridge(get(q, site), h, *pairs)})
    return q


def energy(every: Factors, q: Any, data: Any, h: Any) -> jax.Array:
    """The expectation of `factors.energy`."""
    total = jnp.zeros(())
    for f in one_of_each(every):
        S, N = of_belief(every, f, q, data, h)
        P, logdet = f.precision.believed(get(q, f.precision.site), h, len(S))
        if f.mixture:  # each scale is at its best law
            S, each = f.precision.prior(h, len(P))[0], entries(f, q, h)
            total += f.mixture.energy(each[1], h) - mixtures.log_density(*each)
        total += 0.5 * (jnp.sum(P * S) - N * logdet)
    for site, own in ridges(every, q).items():
        size = sum(get(q, B)["mean"].size for _, B in own)
        total += link.expected_ridge_energy(get(q, site), h, size)
    return total


def laws(every: Factors, q: Any) -> dict[str, dist.Distribution]:
    """The laws of all sites of these factors."""
    found: dict[str, dist.Distribution] = {}
    for f in every:
        found |= {site: beliefs.normal(get(q, site)) for site in (f.rows, f.mean) if site}
        if f.precision.site:
            found[f.precision.site] = f.precision.law_of(get(q, f.precision.site))
        if share := f.mixture and f.mixture.site:
            found[share] = f.mixture.law_of(get(q, share))
    for site, own in ridges(every, q).items():
        found |= {B: link.law(get(q, B)) for _, B in own} | {site: beliefs.gamma(get(q, site))}
    return found
