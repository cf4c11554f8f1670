"""How far a fitted guide is from the posterior: the weight that would make each of its draws one of it."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.infer import autoguide

from bayesfac.core.method import Method, from_sites, sites
from bayesfac.inference.result import each_draw
from bayesfac.inference.unconstrained import supports


def log_weights(
    guide: Any, fitted: Any, method: Method, data: Any, hyper: Any, draws: Mapping[str, np.ndarray]
) -> np.ndarray:
    """(chain, draw): log joint less log guide, both in unconstrained coordinates; up to one constant.

    Weighted by their exponential the draws are draws of the posterior, where the guide's tails reach as
    far; whether they do is what Pareto's k of the largest weights tells (Yao et al. 2018).
    """
    first = from_sites(method, {site: np.asarray(v[0, 0]) for site, v in draws.items()})
    transforms = supports(method, data, hyper, first)
    density = _density(guide, fitted)

    def log_weight(values: dict[str, jax.Array]) -> jax.Array:
        free = {site: transforms[site].inv(value) for site, value in values.items()}
        volume = sum(
            jnp.sum(transforms[site].log_abs_det_jacobian(free[site], value))
            for site, value in values.items()
        )
        joint = -method.objective(from_sites(method, values), data, hyper)
        return joint + volume - density(free)

    few = {site: draws[site] for site in sites(first)}
    return each_draw(log_weight, few)


def _density(guide: Any, fitted: Any) -> Any:
    """The guide's log density of free numbers {site: value}."""
    if isinstance(guide, autoguide.AutoNormal):

        def by_site(free: dict[str, jax.Array]) -> jax.Array:
            laws = {
                site: dist.Normal(fitted[f"{site}_auto_loc"], fitted[f"{site}_auto_scale"])
                for site in free
            }
            return jnp.stack([law.log_prob(free[site]).sum() for site, law in laws.items()]).sum()

        return by_site
    law, order = guide.get_posterior(fitted), list(guide._init_locs)
    # JAX keeps no order of keys but the alphabet's, and that is not the one of guides with plates
    return lambda free: law.log_prob(jnp.concatenate([jnp.ravel(free[site]) for site in order]))
