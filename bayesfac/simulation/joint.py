"""Parameters and data from a method's own joint: what its samplers ought to leave as it is.

A likelihood that is proper leaves the parameters of the joint to the prior. A generalised one, exp(-loss),
does not sum to one over all data, nor does a prior with a factor in it: the parameters of the joint are then
those of the prior, weighted by what everything else sums to.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.handlers import seed, substitute, trace

from bayesfac.core.data.cells import full_table
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.data.views import Views
from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import Method, from_sites, sites

POOL = 400  # draws of the prior for every one that is wanted, where they have weights
ENOUGH = 5  # effective draws of that pool for every one that is wanted
BLOCK = 1000


def observed(site: str) -> bool:
    """Whether the site is data, by its name: the contract of a method fixes what these are called."""
    return site == "rating" or site.startswith("view.")


def hidden(method: Method, data: Any) -> Any:
    """The same shapes without what the model explains."""
    return data.hide(views=False) if "views_given" in method.traits else data.hide()


def with_values(data: Any, y: Any, cells: Any = None) -> Any:
    """The same data with other values, in other cells where these are given."""
    (old, _, *rest), host = data.tree_flatten()
    return type(data).tree_unflatten(host, (old if cells is None else cells, y, *rest))


# -- drawing --------------------------------------------------------------------------------------
def prior_draw(method: Method, data: Any, hyper: Any, key: jax.Array) -> Any:
    """Params from the priors of the model, factors left aside."""
    found = trace(seed(method.model, key)).get_trace(hidden(method, data), hyper)
    return from_sites(method, {n: s["value"] for n, s in found.items() if _latent(n, s)})


def _latent(name: str, site: dict[str, Any]) -> bool:
    return site["type"] == "sample" and not observed(name) and not isinstance(site["fn"], dist.Unit)


def redrawn(method: Method, data: Any, hyper: Any, p: Any, key: jax.Array) -> Any:
    """New values for the data from the model's law, given Params; of a table every cell is one."""
    given = seed(substitute(method.model, data=sites(p)), key)
    found = trace(given).get_trace(hidden(method, data), hyper)
    drawn = {name: site["value"] for name, site in found.items() if observed(name)}
    if isinstance(data, Ratings):
        return with_values(data, drawn["rating"])
    cells, y = dict(data.cells), dict(data.y)
    for name in cells:
        if (table := drawn.get(f"view.{name}")) is not None:
            table = table if isinstance(data, Views) else data.seen(name, table)
            cells[name], y[name] = full_table(table)
    return with_values(data, y, cells)


# -- weights --------------------------------------------------------------------------------------
def log_mass(law: dist.Distribution) -> jax.Array:
    """log of what exp(log_prob) sums to, one number for each entry of the batch, up to a constant: zero
    but for the generalised laws, which say it themselves."""
    if isinstance(law, dist.ExpandedDistribution):
        return jnp.broadcast_to(log_mass(law.base_dist), law.batch_shape)
    if isinstance(law, dist.Independent):
        inside = tuple(range(-law.reinterpreted_batch_ndims, 0))
        return jnp.sum(log_mass(law.base_dist), inside)
    return jnp.broadcast_to(getattr(law, "log_mass", 0.0), law.batch_shape)


def log_weight(method: Method, p: Any, data: Any, hyper: Any) -> jax.Array:
    """log of the joint's density of Params over the prior's, up to a constant; zero for proper models."""
    given = seed(substitute(method.model, data=sites(p)), 0)
    found = trace(given).get_trace(hidden(method, data), hyper)
    total = jnp.zeros(())
    for site in found.values():
        if site["type"] == "sample":
            law = site["fn"]
            factor = isinstance(law, dist.Unit)
            total += jnp.sum(law.log_prob(site["value"]) if factor else log_mass(law))
    return total


class Truths(NamedTuple):
    """Keys of `prior_draw` that give draws of the joint, or the reason why there are none.

    pool, effective   draws of the prior that they were chosen from by weight, and how many these are worth;
                      zero where no weights were needed
    """

    keys: jax.Array
    pool: int = 0
    effective: float = 0.0
    reason: str = ""


def truths(method: Method, data: Any, hyper: Any, key: jax.Array, count: int) -> Truths:
    """So many draws of the joint's own parameters, as keys: a draw may be large, its key is not."""
    at = jax.random.split(key)
    few = jax.random.split(at[0], 32)

    @jax.jit
    def weigh(keys: jax.Array) -> jax.Array:
        return jax.vmap(
            lambda k: log_weight(method, prior_draw(method, data, hyper, k), data, hyper)
        )(keys)

    if np.ptp(np.asarray(weigh(few))) < 1e-9:
        return Truths(jax.random.split(at[0], count))
    pool = -(-POOL * count // BLOCK) * BLOCK
    keys = jax.random.split(at[0], pool)
    logs = np.concatenate([np.asarray(weigh(keys[i : i + BLOCK])) for i in range(0, pool, BLOCK)])
    share = np.exp(logs - logs.max())
    share /= share.sum()
    effective = float(1 / (share**2).sum())
    if effective < ENOUGH * count:
        return Truths(keys[:0], pool, effective, _too_few(pool, effective, count))
    # evenly spaced through the cumulated weights: no draw comes twice unless it weighs as much as two
    steps = (np.arange(count) + float(jax.random.uniform(at[1]))) / count
    chosen = np.minimum(np.searchsorted(np.cumsum(share), steps), pool - 1)
    return Truths(keys[jax.random.permutation(at[1], jnp.asarray(chosen))], pool, effective)


def _too_few(pool: int, effective: float, count: int) -> str:
    return (
        f"the joint's parameters are draws of the prior by weight, as the model has a factor that is no "
        f"density, and {pool} draws are worth {effective:.0f} by these weights: too few to take {count} "
        "from. Weaker factors (hyper=...) or fewer replications would do"
    )


# -- whether it can be done -----------------------------------------------------------------------
def obstacle(method: Method, data: Any, hyper: Any) -> str:
    """Why the model has no joint to draw from, read off its own trace; empty where it has one."""

    def laws(p: Any, data: Any) -> dict[str, Any]:
        found = trace(seed(substitute(method.model, data=sites(p)), 0)).get_trace(data, hyper)
        return {name: site["fn"] for name, site in found.items() if site["type"] == "sample"}

    @jax.jit
    def factors(p: Any, data: Any) -> dict[str, jax.Array]:
        found = laws(p, data)
        return {n: law.log_factor for n, law in found.items() if isinstance(law, dist.Unit)}

    seen: dict[str, Any] = {}
    start = jax.jit(lambda key: method.init(key, data, hyper))
    p = jax.eval_shape(start, key := jax.random.key(0))
    jax.eval_shape(lambda p: seen.update(laws(p, data)), p)  # names and kinds; nothing is run
    for name, law in seen.items():
        if isinstance(getattr(law, "base_dist", law), dist.ImproperUniform):
            return f"the prior of {name} is flat: it cannot be drawn from"
    if any(isinstance(law, dist.Unit) for law in seen.values()):
        here, there = (factors(start(key), some) for some in (data, _moved(method, data)))
        for name, value in here.items():
            if not np.allclose(value, there[name]):
                return f"the factor {name!r} looks at the data that the model explains, and is no law of them"
    try:
        jax.eval_shape(lambda p: redrawn(method, data, hyper, p, key), p)
    # a law that has no sampler raises NotImplementedError, NumPyro's too: the answer to what is asked here
    except (BayesfacError, NotImplementedError) as none:
        return str(none) or "its law of the data cannot be drawn from"
    return ""


def _moved(method: Method, data: Any) -> Any:
    """Other values wherever the model is to explain them."""
    if isinstance(data, Ratings):
        return with_values(data, data.y + 1)
    given = hidden(method, data).y or {}
    return with_values(data, {b: y if b in given else y + 1 for b, y in data.y.items()})
