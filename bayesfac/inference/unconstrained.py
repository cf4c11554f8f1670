"""Between a model's parameters and free real numbers, through the supports of its sites."""

from typing import Any

import jax
import numpyro
from numpyro.distributions import biject_to

from bayesfac.core.method import Method, from_sites, sites


def supports(method: Method, data: Any, hyper: Any, params: Any) -> dict[str, Any]:
    """{site: the transform from real numbers to its support}; the model is traced once."""
    given = numpyro.handlers.substitute(method.model, data=sites(params))
    with numpyro.handlers.block():
        trace = numpyro.handlers.trace(numpyro.handlers.seed(given, 0)).get_trace(data, hyper)
    latent = {n: s for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}
    return {name: biject_to(site["fn"].support) for name, site in latent.items()}


def unconstrain(transforms: dict[str, Any], params: Any) -> dict[str, jax.Array]:
    """Params as free real numbers."""
    return {name: transforms[name].inv(value) for name, value in sites(params).items()}


def constrain(method: Method, transforms: dict[str, Any], free: dict[str, jax.Array]) -> Any:
    """And back."""
    return from_sites(method, {name: transforms[name](value) for name, value in free.items()})
