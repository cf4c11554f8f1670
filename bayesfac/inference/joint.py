"""Draw parameters and data from the joint distribution of a method, which samplers must leave unchanged.

With a proper likelihood, the parameters of the joint follow the prior. A generalised likelihood, exp(-loss),
does not sum to one over all data, and a prior may contain a factor that is not a density. The parameters of
the joint are then weighted draws of the prior. Their weight is the sum of the likelihood over all data, times
the factor.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.handlers import seed, substitute, trace

from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import Method, from_sites, sites
from bayesfac.inference.predictions.pointwise import laws
from bayesfac.inference.unconstrained import sites_of_model

POOL = 400  # weighted draws of the prior for every draw of the joint
ENOUGH = 5  # effective draws of the pool for every draw of the joint
BLOCK = 1000
ALONE = 1.25  # effective draws of the first block: a tenth of the ENOUGH / POOL * BLOCK needed


def observed(site: str) -> bool:
    """Whether the site is data: the contract of a method fixes the names of such sites."""
    return site == "rating" or site.startswith("view.")


def hidden(method: Method, data: Any) -> Any:
    """The data without the values that the model generates."""
    return data.hide(views=False) if "views_given" in method.notes.traits else data.hide()


def with_values(data: Any, y: Any, cells: Any = None) -> Any:
    """The same data with other values, and in other cells unless `cells` is None."""
    (old, _, *rest), host = data.tree_flatten()
    return type(data).tree_unflatten(host, (old if cells is None else cells, y, *rest))


def doubled(data: Any) -> Any:
    """The same data in double precision, where JAX has it."""
    return jax.tree.map(lambda x: jnp.asarray(x, float) if x.dtype.kind == "f" else x, data)


# -- drawing --------------------------------------------------------------------------------------
def prior_draw(method: Method, data: Any, hyper: Any, key: jax.Array) -> Any:
    """Params from the priors of the model; factors are ignored."""
    found = trace(seed(method.model, key)).get_trace(hidden(method, data), hyper)
    return from_sites(method, {n: s["value"] for n, s in found.items() if _latent(n, s)})


def _latent(name: str, site: dict[str, Any]) -> bool:
    return site["type"] == "sample" and not observed(name) and not isinstance(site["fn"], dist.Unit)


def redrawn(method: Method, data: Any, hyper: Any, p: Any, key: jax.Array) -> Any:
    """New values of the data, drawn from the model at Params; a table gets a value in every cell."""
    held = seed(substitute(method.model, data=sites(p)), key)
    found = trace(held).get_trace(hidden(method, data), hyper)
    return data.drawn({name: site["value"] for name, site in found.items() if observed(name)})


# -- weights --------------------------------------------------------------------------------------
def log_mass(law: dist.Distribution) -> jax.Array:
    """log of the sum of exp(log_prob) over all values, for each entry of the batch, up to a constant: zero
    for proper laws; generalised laws have a `log_mass` of their own."""
    if isinstance(law, dist.ExpandedDistribution):
        return jnp.broadcast_to(log_mass(law.base_dist), law.batch_shape)
    if isinstance(law, dist.Independent):
        inside = tuple(range(-law.reinterpreted_batch_ndims, 0))
        return jnp.sum(log_mass(law.base_dist), inside)
    return jnp.broadcast_to(getattr(law, "log_mass", 0.0), law.batch_shape)


def log_weight(method: Method, p: Any, data: Any, hyper: Any) -> jax.Array:
    """log of the joint's density of Params over the prior's, up to a constant; zero for proper models."""
    total = jnp.zeros(())
    for site in sites_of_model(method, hidden(method, data), hyper, p).values():
        law = site["fn"]
        factor = isinstance(law, dist.Unit)
        total += jnp.sum(law.log_prob(site["value"]) if factor else log_mass(law))
    return total


def log_factors(sites: dict[str, Any]) -> jax.Array:
    """The sum of the factors that are no density among the sites of a model's trace."""
    every = (s["fn"] for s in sites.values() if s["type"] == "sample")
    return sum((jnp.sum(f.log_factor) for f in every if isinstance(f, dist.Unit)), jnp.zeros(()))


class Truths(NamedTuple):
    """Keys for which `prior_draw` gives draws of the joint, or the reason why there are no such keys.

    pool, effective   the number of weighted draws of the prior from which the keys were chosen, and their
                      effective number; zero if no weights were needed
    """

    keys: jax.Array
    pool: int = 0
    effective: float = 0.0
    reason: str = ""


def truths(method: Method, data: Any, hyper: Any, key: jax.Array, count: int) -> Truths:
    """`count` draws of the parameters of the joint, as keys, because a draw may be large."""

    def weigh(key: jax.Array) -> jax.Array:
        return log_weight(method, prior_draw(method, data, hyper, key), data, hyper)

    return chosen(jax.jit(jax.vmap(weigh)), key, count)


def chosen(weigh: Callable[[jax.Array], jax.Array], key: jax.Array, count: int) -> Truths:
    """`count` keys whose draws follow the prior times exp(weigh(keys)), from a pool of weighted draws."""
    at = jax.random.split(key)
    few = jax.random.split(at[0], 32)
    if np.ptp(np.asarray(weigh(few))) < 1e-9:
        return Truths(jax.random.split(at[0], count))
    pool = -(-POOL * count // BLOCK) * BLOCK
    keys = jax.random.split(at[0], pool)
    first = np.asarray(weigh(keys[:BLOCK]))
    # if one draw has nearly all the weight of a block, the whole pool would not be enough either
    if (alone := _effective(first)) < ALONE:
        return Truths(keys[:0], BLOCK, alone, _too_few(BLOCK, alone, count))
    rest = [np.asarray(weigh(keys[i : i + BLOCK])) for i in range(BLOCK, pool, BLOCK)]
    logs = np.concatenate([first, *rest])
    share = np.exp(logs - logs.max())
    share /= share.sum()
    effective = _effective(logs)
    if effective < ENOUGH * count:
        return Truths(keys[:0], pool, effective, _too_few(pool, effective, count))
    # evenly spaced in the cumulated weights: a draw repeats only if its weight is above 1 / count
    steps = (np.arange(count) + float(jax.random.uniform(at[1]))) / count
    picked = np.minimum(np.searchsorted(np.cumsum(share), steps), pool - 1)
    return Truths(keys[jax.random.permutation(at[1], jnp.asarray(picked))], pool, effective)


def _effective(logs: np.ndarray) -> float:
    """The effective number of draws with these log weights."""
    share = np.exp(logs - logs.max())
    return float(share.sum() ** 2 / (share**2).sum())


def _too_few(pool: int, effective: float, count: int) -> str:
    return (
        f"the model has a factor that is not a density, so parameters are drawn from the prior with weights. "
        f"The effective size of {pool} draws is {effective:.0f}: too few to take {count} from. "
        "Fewer draws, weaker factors or fewer rows and columns may help"
    )


# -- whether the joint can be drawn from ----------------------------------------------------------
DEPENDS = "the factor {!r} depends on the data, but is not a distribution that could generate them"


def obstacle(method: Method, data: Any, hyper: Any) -> str:
    """Why the joint cannot be drawn from, by the model's trace or the method's traits; empty if it can."""
    seen: dict[str, Any] = {}
    start = jax.jit(lambda key: method.init(key, data, hyper))
    p = jax.eval_shape(start, key := jax.random.key(0))
    # names and kinds of the laws; nothing is run
    jax.eval_shape(lambda p: seen.update(laws(method, p, data, hyper)), p)
    for name, law in seen.items():
        if isinstance(getattr(law, "base_dist", law), dist.ImproperUniform):
            return f"the prior of {name} is flat, so it cannot be sampled"
    if any(isinstance(law, dist.Unit) for law in seen.values()):
        if name := data_factor(method, data, hyper):
            return DEPENDS.format(name)
    try:
        jax.eval_shape(lambda p: redrawn(method, data, hyper, p, key), p)
    # a distribution without a sampler raises NotImplementedError, which is the obstacle
    except (BayesfacError, NotImplementedError) as none:
        return str(none) or "data cannot be drawn from its distribution"
    return method.notes.traits.get("no_prior_predictive", "")


def data_factor(method: Method, data: Any, hyper: Any) -> str:
    """The name of a factor that changes with the values of the data; empty if there is none."""

    @jax.jit
    def factors(data: Any) -> dict[str, jax.Array]:
        found = trace(seed(method.model, 0)).get_trace(data, hyper).items()
        every = {name: site["fn"] for name, site in found if site["type"] == "sample"}
        return {n: law.log_factor for n, law in every.items() if isinstance(law, dist.Unit)}

    here, there = factors(data), factors(_moved(method, data))
    return next((name for name in here if not np.allclose(here[name], there[name])), "")


def _moved(method: Method, data: Any) -> Any:
    """The data with other values wherever the model explains them."""
    changed, not_explained = jax.tree.map(lambda y: y + 1, data.y), hidden(method, data).y
    return with_values(data, changed if not_explained is None else changed | not_explained)
