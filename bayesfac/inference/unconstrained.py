"""Between a model's parameters and free real numbers, through the supports of its sites."""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from numpyro.distributions import biject_to, constraints

from bayesfac.core.gauge import random_copy
from bayesfac.core.method import Method, from_sites, sites

EDGE = 1e-3  # of a row's mass, spread evenly, where the row has a zero


def _trace(method: Method, data: Any, hyper: Any, params: Any) -> dict[str, Any]:
    """The model's sites at these parameters."""
    given = numpyro.handlers.substitute(method.model, data=sites(params))
    with numpyro.handlers.block():
        return numpyro.handlers.trace(numpyro.handlers.seed(given, 0)).get_trace(data, hyper)


def supports(method: Method, data: Any, hyper: Any, params: Any) -> dict[str, Any]:
    """{site: the transform from real numbers to its support}; the model is traced once."""
    trace = _trace(method, data, hyper, params)
    latent = {n: s for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}
    return {name: biject_to(site["fn"].support) for name, site in latent.items()}


def require_proper(method: Method, data: Any, hyper: Any, params: Any) -> None:
    """No flat prior: a posterior that cannot be normalised must not be sampled."""
    for name, site in _trace(method, data, hyper, params).items():
        flat = site["type"] == "sample" and getattr(site["fn"], "base_dist", site["fn"])
        if isinstance(flat, numpyro.distributions.ImproperUniform):
            raise ValueError(
                f"Expected a posterior to sample, but {name} has a flat prior, so the posterior of "
                f"{method.name} is improper: give it a finite scale, or fit a point"
            )


def off_edge(transform: Any, value: Any) -> jax.Array:
    """The value; of probabilities with an exact zero, where EM may well end, a hair inside the simplex: the
    log-odds of zero are infinite, and no gradient engine could begin there."""
    x = jnp.asarray(value)
    if (
        getattr(transform.codomain, "base_constraint", transform.codomain)
        is not constraints.simplex
    ):
        return x
    zero = jnp.any(x <= jnp.finfo(x.dtype).tiny, -1, keepdims=True)
    return jnp.where(zero, (1 - EDGE) * x + EDGE / x.shape[-1], x)


def unconstrain(transforms: dict[str, Any], params: Any) -> dict[str, jax.Array]:
    """Params as free real numbers."""
    return {
        name: transforms[name].inv(off_edge(transforms[name], value))
        for name, value in sites(params).items()
    }


def scattered(
    method: Method, data: Any, hyper: Any, params: Any, key: jax.Array, jitter: float
) -> Any:
    """Another copy of a point that was given, a little way off: where one of several chains may start.

    In a frame of its own, so that nobody takes factors that still agree for chains that do.
    """
    one, other = jax.random.split(key)
    transforms = supports(method, data, hyper, params)
    free = shaken(unconstrain(transforms, random_copy(one, method, params)), other, jitter)
    return constrain(method, transforms, free)


def shaken(free: dict[str, jax.Array], key: jax.Array, jitter: float) -> dict[str, jax.Array]:
    """Free numbers, each moved by a normal number of this sd."""
    leaves, tree = jax.tree.flatten(free)
    keys = jax.random.split(key, len(leaves))
    moved = [x + jitter * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(tree, moved)


def constrain(method: Method, transforms: dict[str, Any], free: dict[str, jax.Array]) -> Any:
    """And back."""
    return from_sites(method, {name: transforms[name](value) for name, value in free.items()})
