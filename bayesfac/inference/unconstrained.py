"""Maps between a model's parameters and unconstrained numbers, through the supports of its sites."""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.distribution import validation_enabled

from bayesfac.core.gauge import random_copy
from bayesfac.core.method import Method, from_sites, sites

EDGE = 1e-3  # share of a row's mass that is spread evenly where the row has a zero; size of other zeros


def sites_of_model(method: Method, data: Any, hyper: Any, params: Any) -> dict[str, Any]:
    """The model's sample sites at these parameters: {name: NumPyro's record with `fn`, `value`, ...}."""
    held = numpyro.handlers.substitute(method.model, data=sites(params))
    with numpyro.handlers.block():
        found = numpyro.handlers.trace(numpyro.handlers.seed(held, 0)).get_trace(data, hyper)
    return {name: site for name, site in found.items() if site["type"] == "sample"}


def supports(method: Method, data: Any, hyper: Any, params: Any) -> dict[str, Any]:
    """{site: the transform from real numbers to its support}; the model is traced, and nothing computed."""

    def supports_of(sites: dict[str, Any]) -> dict[str, Any]:
        return {n: s["fn"].support for n, s in sites.items() if not s["is_observed"]}

    found = supports_of(traced_sites(method, data, hyper, params))
    if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(found)):  # bounds that are data
        found = supports_of(sites_of_model(method, data, hyper, params))
    return {name: biject_to(support) for name, support in found.items()}


def traced_sites(method: Method, data: Any, hyper: Any, params: Any) -> dict[str, Any]:
    """The sites of the model in symbols: only kinds and shapes of their laws may be read."""
    found: dict[str, Any] = {}

    def look(params: Any, data: Any) -> None:
        with validation_enabled(False):
            found.update(sites_of_model(method, data, hyper, params))

    jax.eval_shape(look, params, data)
    return found


def require_proper(method: Method, data: Any, hyper: Any, params: Any) -> None:
    """Refuse to sample under a flat prior, whose posterior cannot be normalised."""
    for name, site in traced_sites(method, data, hyper, params).items():
        law = getattr(site["fn"], "base_dist", site["fn"])
        if isinstance(law, numpyro.distributions.ImproperUniform):
            raise ValueError(
                f"Expected a posterior to sample, but {name} has a flat prior, so the posterior of "
                f"{method.name} is improper: give it a finite scale, or fit a point"
            )


def off_edge(transform: Any, value: Any) -> jax.Array:
    """The value; a row of probabilities with an exact zero, where EM may end, is moved inside the simplex,
    and other zeros at the end of a half-line are replaced by a thousandth of the mean: the logarithm of zero
    is infinite, and no gradient engine could begin there. A support of a method's own moves such points by
    its `inside`."""
    x = jnp.asarray(value)
    support = getattr(transform.codomain, "base_constraint", transform.codomain)
    if support is constraints.positive:  # of the exponential, for laws that include zero too
        return jnp.where(x > 0, x, EDGE * jnp.maximum(jnp.mean(x), EDGE))
    if inside := getattr(support, "inside", None):
        return inside(x)
    if support is not constraints.simplex:
        return x
    zero = jnp.any(x <= jnp.finfo(x.dtype).tiny, -1, keepdims=True)
    return jnp.where(zero, (1 - EDGE) * x + EDGE / x.shape[-1], x)


def unconstrain(transforms: dict[str, Any], params: Any) -> dict[str, jax.Array]:
    """Params as unconstrained real numbers."""
    return {
        name: transforms[name].inv(off_edge(transforms[name], value))
        for name, value in sites(params).items()
    }


def scattered(
    method: Method, data: Any, hyper: Any, params: Any, key: jax.Array, jitter: float
) -> Any:
    """A chain's start near a point: a copy turned or relabelled as the gauge allows, then jittered.

    Without the turn, factors that still agree with the start would look like chains that have converged.
    """
    one, other = jax.random.split(key)
    transforms = supports(method, data, hyper, params)
    free = shaken(unconstrain(transforms, random_copy(one, method, params)), other, jitter)
    return constrain(method, transforms, free)


def shaken(free: dict[str, jax.Array], key: jax.Array, jitter: float) -> dict[str, jax.Array]:
    """The numbers, each plus normal noise of standard deviation `jitter`."""
    leaves, tree = jax.tree.flatten(free)
    keys = jax.random.split(key, len(leaves))
    moved = [x + jitter * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(tree, moved)


def constrain(method: Method, transforms: dict[str, Any], free: dict[str, jax.Array]) -> Any:
    """Params from unconstrained numbers."""
    return from_sites(method, {name: transforms[name](value) for name, value in free.items()})
