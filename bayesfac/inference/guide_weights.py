"""How far a fitted guide is from the posterior: the importance weights of its draws."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.infer import autoguide

from bayesfac.core.method import from_sites, sites
from bayesfac.inference.result import Job, each_draw
from bayesfac.inference.unconstrained import supports


def log_weights(guide: Any, fitted: Any, job: Job, draws: Mapping[str, np.ndarray]) -> np.ndarray:
    """(chain, draw): log joint minus log guide, both in unconstrained coordinates, up to one constant.

    Draws weighted by the exponential are draws of the posterior if the guide's tails are wide enough;
    Pareto's k of the largest weights tells whether they are (Yao et al. 2018).
    """
    first = from_sites(job.method, {site: np.asarray(v[0, 0]) for site, v in draws.items()})
    transforms = supports(job.method, job.data, job.hyper, first)
    density = _density(guide, fitted)

    def log_weight(values: dict[str, jax.Array]) -> jax.Array:
        free = {site: transforms[site].inv(value) for site, value in values.items()}
        volume = sum(
            jnp.sum(transforms[site].log_abs_det_jacobian(free[site], value))
            for site, value in values.items()
        )
        joint = -job.objective(from_sites(job.method, values), job.data)
        return joint + volume - density(free)

    return each_draw(log_weight, {site: draws[site] for site in sites(first)})


def _density(guide: Any, fitted: Any) -> Any:
    """The guide's log density as a function of unconstrained numbers {site: value}."""
    if isinstance(guide, autoguide.AutoNormal):

        def by_site(free: dict[str, jax.Array]) -> jax.Array:
            laws = {
                site: dist.Normal(fitted[f"{site}_auto_loc"], fitted[f"{site}_auto_scale"])
                for site in free
            }
            return jnp.stack([law.log_prob(free[site]).sum() for site, law in laws.items()]).sum()

        return by_site
    law, order = guide.get_posterior(fitted), list(guide._init_locs)
    # JAX sorts the keys of a dict; the guide's own order differs where the model has plates
    return lambda free: law.log_prob(jnp.concatenate([jnp.ravel(free[site]) for site in order]))
