"""Fit one block by Gibbs on its ratings, with the results of earlier blocks as priors."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from bayesfac.core.data.cells import Query
from bayesfac.core.errors import BayesfacError
from bayesfac.core.laws.distributions import GaussianRows
from bayesfac.core.method import (
    Method,
    Permutation,
    from_sites,
    gauge_of,
    laws_of,
    lookup,
    site_dims,
    sites,
)
from bayesfac.inference.gibbs import Gibbs, sweep
from bayesfac.inference.propagation import beliefs
from bayesfac.inference.propagation.beliefs import Belief
from bayesfac.inference.result import Job, each_draw, replace_sites

PROBES = 50  # cells of a block at which chains are compared
AFTER = 5  # sweeps of means and precisions given their rows, which determine them well


class BlockData(NamedTuple):
    """The ratings of a block, and the results of earlier blocks for its sites.

    rows    {site: belief} of factors: this prior replaces the method's prior
    more    {site: belief} of biases and noise: this information is added to the method's prior
    """

    data: Any
    rows: dict[str, Belief]
    more: dict[str, Belief]


def kinds(method: Method, p: Any, data: Any, hyper: Any) -> dict[str, str]:
    """How the posterior of each site is passed on between blocks: as "rows" of a factor, "biases" or
    "gamma"; or "after", if the site is drawn after all blocks given the rows. Other sites are an error."""
    found = {}
    for site, law in laws_of(method, p).items():
        own, axes = jax.eval_shape(lambda law=law: law(p, data, hyper)), site_dims(method, site)
        side = axes[:1] in (("user",), ("item",))
        normal = isinstance(own, dist.Independent) and isinstance(own.base_dist, dist.Normal)
        if side and isinstance(own, GaussianRows):
            found[site] = "rows"
        elif side and normal:
            found[site] = "biases"
        elif not axes and isinstance(own, dist.Gamma):
            found[site] = "gamma"
        elif isinstance(own, dist.Wishart | dist.MultivariateNormal):
            found[site] = "after"
        else:
            raise BayesfacError(
                f"Expected a method whose sites are rows of factors, biases or noise, got {method.name} with "
                f"{site}, whose posterior cannot be passed between blocks"
            )
    return found


def natural(law: Any) -> Belief:
    """The natural parameters of a distribution of biases or noise."""
    if isinstance(law, dist.Gamma):
        return Belief(law.concentration, law.rate)
    return Belief(1 / law.variance, law.mean / law.variance)


def revised(law: Any, known: BlockData, site: str) -> Any:
    """A conditional, changed by the results of earlier blocks for its site."""
    if site in known.rows:
        own_prior: tuple[Any, Any] = known.rows[site]
        return GaussianRows(law.rows, law.target, law.V, law.weight, *own_prior)
    if site not in known.more:
        return law
    own, more = natural(law), known.more[site]
    precision, shift = own.precision + more.precision, own.shift + more.shift
    if isinstance(law, dist.Gamma):
        return dist.Gamma(precision, shift)
    return dist.Normal(shift / precision, precision**-0.5).to_event(1)


@lru_cache
def propagated(method: Method) -> Method:
    """The method for data of the type `BlockData`. It has no moves, because moves would rotate or scale the
    factors, and the priors fix their rotation and scale."""

    def init(key: jax.Array, known: BlockData, hyper: Any) -> Any:
        p = method.init(key, known.data, hyper)
        p = replace_sites(p, {site: _mean(belief) for site, belief in known.rows.items()})
        for site, law in laws_of(method, p).items():
            own = law(p, known.data, hyper)
            if isinstance(own, GaussianRows) and site not in known.rows:
                p = replace_sites(p, {site: own.mean})
        return p

    def under(site: str, law: Callable) -> Callable:
        return lambda p, known, hyper: revised(law(p, known.data, hyper), known, site)

    return replace(
        method,
        init=init,
        objective=lambda p, known, hyper: method.objective(p, known.data, hyper),
        gibbs=method.gibbs._replace(
            conditionals={
                site: under(site, law) for site, law in method.gibbs.conditionals.items()
            },
            moves={},
        ),
    )


def _mean(belief: Belief) -> jax.Array:
    return jnp.linalg.solve(belief.precision, belief.shift[..., None])[..., 0]


def of_block(
    name: str | Method,
    place: tuple[int, int],
    known: BlockData,
    hyper: Any,
    key: Any,
    engine: Gibbs,
    kind: Mapping[str, str],
) -> tuple[tuple[int, int], dict[str, Belief], float]:
    """The place of a block, its results for its sites, and R-hat of predictions at some of its cells."""
    method, first = lookup(name), not known.rows
    record, data = (method, known.data) if first else (propagated(method), known)
    job = Job(record, data, hyper, jax.random.wrap_key_data(jnp.asarray(key)))
    result = engine.run(job)
    if result.partial:  # the moments of so few draws are not those of the block
        raise KeyboardInterrupt(
            f"interrupted in block ({place[0] + 1}, {place[1] + 1}): a folder has the finished blocks"
        )
    draws: Any = result.draws
    flat = {site: np.concatenate(x) for site, x in draws.items() if kind[site] != "after"}
    if first:
        flat |= _in_one_frame(method, {s: x for s, x in flat.items() if kind[s] == "rows"}, draws)
    law = {"rows": beliefs.normal, "biases": beliefs.normal, "gamma": beliefs.gamma}
    found = {site: law[kind[site]](x) for site, x in flat.items()}
    return place, found, _r_hat(method, hyper, draws, known.data)


def _in_one_frame(method: Method, factors: dict[str, np.ndarray], names: Any) -> dict[str, Any]:
    """The factors of the first block, with one rotation, which all other blocks take over."""
    gauge = gauge_of(method, names)
    if any(isinstance(free, Permutation) for free in gauge):
        raise BayesfacError(
            f"Expected a method whose factors may rotate, got {method.name}, whose components change places"
        )
    return beliefs.aligned(factors) if gauge else factors


def _r_hat(method: Method, hyper: Any, draws: Any, data: Any) -> float:
    """The largest R-hat of the expected ratings at evenly spaced cells, with each chain in two halves."""
    at = np.unique(np.linspace(0, len(data) - 1, PROBES).astype(int))
    cells = Query(np.asarray(data.cells.row)[at], np.asarray(data.cells.col)[at])
    x = each_draw(_at_cells, draws, cells, method, hyper)
    half = x.shape[1] // 2
    if half < 2:
        return float("nan")
    x = np.concatenate([x[:, :half], x[:, half : 2 * half]]).astype(np.float64)
    within, between = x.var(1, ddof=1).mean(0), x.mean(1).var(0, ddof=1)
    return float(np.sqrt(1 - 1 / half + between / within).max())


def _at_cells(method: Method, hyper: Any, cells: Query) -> Any:
    return lambda draw: method.predict(from_sites(method, draw), cells, hyper).mean


def prior_of(method: Method, site: str, p: Any, data: Any, hyper: Any) -> Belief:
    """The method's prior of biases or noise: the conditional given no ratings."""
    nothing = np.zeros(0, np.int32)
    none = data._part(nothing, nothing, np.zeros(0), data.users, data.items, nothing)
    own = natural(laws_of(method, p)[site](p, none, hyper))
    return Belief(*np.broadcast_arrays(*(np.asarray(x, np.float64) for x in own)))


def completed(method: Method, hyper: Any, data: Any) -> Callable:
    """The function that adds to a draw of rows a draw of the sites that come after all blocks."""

    def one(draw: dict[str, jax.Array]) -> dict[str, jax.Array]:
        key = jax.random.wrap_key_data(draw["key"])
        rows = {site: x for site, x in draw.items() if site != "key"}
        p = replace_sites(method.init(key, data, hyper), rows)
        last = tuple(site for site in laws_of(method, p) if site not in rows)

        def step(number: int, p: Any) -> Any:
            return sweep(method, hyper, p, data, jax.random.fold_in(key, number), only=last)

        return sites(jax.lax.fori_loop(0, AFTER, step, p) if last else p)

    return one
