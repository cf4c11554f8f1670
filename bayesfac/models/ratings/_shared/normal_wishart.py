"""The Normal-Wishart priors of users and items by hand, for methods that take them from BPMF.

Salakhutdinov & Mnih, ICML 2008, eq. 3-6, with Macau's links (`parts/links.py`).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfac.core.laws.normal_wishart import normal_rows
from bayesfac.parts import links
from bayesfac.parts.priors import normal_wishart

SIDES = normal_wishart("user", "U"), normal_wishart("item", "V")


def energy(p: Any, data: Any, h: Any) -> jax.Array:
    """Minus the log density of both sides, without constants."""
    J: Any = links.energy(SIDES, p, h)
    for side, mu, Lambda in zip(SIDES, (p.mu_U, p.mu_V), (p.Lambda_U, p.Lambda_V), strict=True):
        away = side.unlinked(p, data) - mu
        J += 0.5 * jnp.sum(away @ Lambda * away) - 0.5 * len(away) * jnp.linalg.slogdet(Lambda)[1]
        J += 0.5 * (h.beta0 * mu @ Lambda @ mu + h.rate * jnp.trace(Lambda))
    return J


def sampled(data: Any, h: Any) -> list[jax.Array]:
    """U and V, after all sites of both sides are sampled."""
    K, rows = h.n_components, []
    for side, n in zip(SIDES, data.shape, strict=True):
        law = dist.Wishart(float(K), scale_tril=jnp.eye(K) / h.rate**0.5)
        Lambda = numpyro.sample(side.precision.site, law)
        law = dist.MultivariateNormal(jnp.zeros(K), precision_matrix=h.beta0 * Lambda)
        mu = numpyro.sample(side.mean, law) + links.sampled([side], data, [Lambda], h)[0]
        with numpyro.plate(side.axis, n):
            rows.append(numpyro.sample(side.rows, normal_rows(mu, Lambda)))
    return rows
