"""Links from features to rows, as in Macau (Simm, Arany, Zakeri et al., MLSP 2017), by hand.

    u_i ~ N(mu + B'x_i, P^-1),   B ~ N(0, (ridge I x P)^-1), F x K,   ridge ~ Gamma(ridge_shape, ridge_rate)

The files of methods add these to the J and the model that their papers state.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfac.core.laws.links import ridge_energy
from bayesfac.core.laws.normal_wishart import normal_rows
from bayesfac.parts.factors import Factor, ridges
from bayesfac.parts.sites import get


def energy(linked: Sequence[Factor], p: Any, h: Any) -> jax.Array | float:
    """Minus the log density of all B and ridge, without constants: 1/2 ridge tr P B'B - F/2 log|P| - (FK/2 +
    a - 1) log ridge + b ridge; 0 without features."""
    total: jax.Array | float = 0.0
    for site, own in ridges(linked, p).items():
        ridge = get(p, site)
        total += ridge_energy(ridge, h)
        for f, link in own:
            B, (P, logdet) = get(p, link), f.precision.of(get(p, f.precision.site), h, f.width(h))
            total += 0.5 * (ridge * jnp.sum(B @ P * B) - len(B) * logdet - B.size * jnp.log(ridge))
    return total


def sampled(linked: Sequence[Factor], data: Any, P: Sequence[jax.Array], h: Any) -> list[Any]:
    """X B of each factor of an axis, after B and the axis's one ridge are sampled; zeros without features."""
    axis, site = linked[0].axis, f"{linked[0].ridge}.{linked[0].axis}"
    if axis not in data.x:
        return [0.0] * len(linked)
    x, found = data.x[axis], []
    ridge = numpyro.sample(site, dist.Gamma(h.ridge_shape, h.ridge_rate))
    for f, own in zip(linked, P, strict=True):
        with numpyro.plate(f"{axis}_feature", x.width):
            B = numpyro.sample(f"{f.link}.{axis}", normal_rows(jnp.zeros(len(own)), ridge * own))
        found.append(x.times(B))
    return found
