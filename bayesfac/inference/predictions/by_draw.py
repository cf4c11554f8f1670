"""Passes over the draws: predictions of some cells by each draw, averaged in compiled programs."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from bayesfac.core.data.cells import Query
from bayesfac.core.errors import BayesfacError
from bayesfac.core.laws.ordinal import Levels
from bayesfac.core.math import normals, uniforms
from bayesfac.core.method import Method, from_sites, site_dims
from bayesfac.core.programs import side_by_side
from bayesfac.inference.predictions.level_masses import log_of_sums, no_masses
from bayesfac.inference.predictions.summaries import PARTS, shares

AVERAGES = ("score", "variance", "cdf", "below")


class Settings(NamedTuple):
    """What a pass computes: `repeat` simulated outcomes of each draw, the masses of `levels`, and scores."""

    method: Method
    hyper: Any
    levels: tuple[float, ...] | None
    repeat: int
    scored: bool


def param_blocks(
    method: Method,
    draws: Mapping[str, np.ndarray],
    width: int,
    memory: int,
    users: np.ndarray | None = None,
) -> Iterator[Any]:
    """Blocks of draws within `memory` bytes: Params with a leading axis of draws, of these users only.

    A caller must wait for the results of one block before it takes the next one. Otherwise, queued work
    keeps its block in memory, and on a busy machine all blocks would be read before the first is done.
    """
    chains, length = next(iter(draws.values())).shape[:2]
    shapes = {site: list(value.shape[2:]) for site, value in draws.items()}
    axis = {}
    if users is not None:
        dims = {site: site_dims(method, site) for site in draws}
        axis = {site: names.index("user") for site, names in dims.items() if "user" in names}
        for site, along in axis.items():
            shapes[site][along] = len(users)
    largest = max((shape[-1] for shape in shapes.values() if shape), default=1)
    bytes_each = 8 * sum(int(np.prod(s)) for s in shapes.values()) + 16 * width * largest
    size = int(np.clip(memory // bytes_each, 1, length))
    for chain in range(chains):
        for start in range(0, length, size):
            at = slice(start, start + size)
            some = {site: value[chain, at] for site, value in draws.items()}
            for site, along in axis.items():
                some[site] = np.take(some[site], np.asarray(users), 1 + along)
            yield from_sites(method, {site: jnp.array(value) for site, value in some.items()})


def over_draws(
    settings: Settings,
    draws: Mapping[str, np.ndarray],
    query: Query,
    value: Any,
    key: jax.Array,
    memory: int,
) -> list[dict[str, Any]]:
    """The averages of consecutive parts of the draws, equally many of each chain; see `_averages`."""
    method, hyper, levels, *_ = settings
    chains, found = len(next(iter(draws.values()))), []
    blocks = param_blocks(method, draws, len(query.row), memory)
    for number, params in enumerate(blocks):
        mine = jax.random.fold_in(key, number)
        parts = shares(len(jax.tree.leaves(params)[0]), -(-PARTS // chains))
        calls = [
            (settings, len(at), at.start, params, query, value, jax.random.fold_in(mine, i))
            for i, at in enumerate(parts)
        ]
        # all are awaited before the next block is read
        for at, averages in zip(parts, side_by_side(_averages, calls), strict=True):
            seen = jax.device_get(averages)
            if levels:
                masses = seen.pop("masses")
                seen["log_mass"] = log_of_sums(
                    masses.mass, method, hyper, levels, params, query, at
                )
                seen["above"] = masses.above
            found.append(seen | {"draws": len(at)})
    return found


@partial(jax.jit, static_argnums=(0, 1))
def _averages(
    settings: Settings,
    draws: int,
    first: int,
    params: Any,
    query: Query,
    value: Any,
    key: jax.Array,
) -> dict[str, Any]:
    """Averages over so many draws for every cell, and their simulated outcomes; if scored also averages of
    density and CDF at the observed values, with levels sums of the masses of levels."""
    method, hyper, levels, repeat, scored = settings
    cells = len(query.row)

    def add(found: dict[str, Any], step: tuple) -> tuple[dict[str, Any], jax.Array]:
        number, key = step
        p, count = jax.tree.map(lambda x: x[first + number], params), number + 1
        outcome = method.predict(p, query, hyper)
        mean = outcome.mean
        seen = {"variance": outcome.variance, "score": getattr(outcome, "score", mean)}
        drawn = simulated(outcome, key, repeat) if repeat else jnp.zeros((0, cells), mean.dtype)
        if scored:
            if isinstance(outcome, dist.Delta):
                what = "probabilities, not outcomes"
                raise BayesfacError(f"{method.name} predicts {what}: no scores")
            log_prob = outcome.log_prob(value)
            seen["cdf"], seen["below"] = _cdf(outcome, value, log_prob, drawn)
            found["log_sum"] = jnp.logaddexp(found["log_sum"], log_prob)
        if levels:
            found["masses"] = found["masses"].plus(outcome, levels)
        for name, x in seen.items():
            found[name] += x
        # the mean so far, and the mean square about it (Welford 1962)
        off = mean - found["mean"]
        found["mean"] += off / count
        found["spread"] += (off * (mean - found["mean"]) - found["spread"]) / count
        return found, drawn

    nothing = jnp.zeros(cells)
    none: dict[str, Any] = dict.fromkeys(("mean", "spread", *AVERAGES), nothing)
    none["log_sum"] = nothing - jnp.inf
    if levels:
        none["masses"] = no_masses(levels, cells)
    steps = jnp.arange(draws), jax.random.split(key, draws)
    # draw by draw, not vmapped: a method's `cond` runs one branch, and levels need little memory
    found, outcome = jax.lax.scan(add, none, steps)
    log_mean = found.pop("log_sum") - np.log(draws) if scored else nothing
    outcome = jnp.reshape(outcome, (draws * repeat, cells))
    averages = {name: found[name] / draws for name in AVERAGES}
    return found | averages | {"log_mean": log_mean, "outcome": outcome}


@partial(jax.jit, static_argnums=(0, 1))
def means_by_draw(method: Method, hyper: Any, params: Any, query: Query) -> jax.Array:
    """(draw, cell) expected outcomes."""
    return jax.lax.map(lambda p: method.predict(p, query, hyper).mean, params)


def simulated(outcome: dist.Distribution, key: jax.Array, repeat: int) -> jax.Array:
    """Simulated outcomes, repeat x cells: quantiles of one point in each of `repeat` strata, or draws."""
    # for other distributions NumPyro has no quantiles, or only with packages that are not required here
    if not isinstance(outcome, dist.Normal | Levels):
        return outcome.sample(key, (repeat,))
    shape, dtype = (repeat, *outcome.mean.shape), outcome.mean.dtype
    if repeat == 1 and isinstance(outcome, dist.Normal):
        return outcome.loc + outcome.scale * normals(key, shape, dtype)
    u = uniforms(key, shape, dtype)
    # strata cover the whole distribution of every draw
    strata = (jnp.arange(repeat)[:, None] + u) / repeat
    return outcome.icdf(jnp.clip(strata, 1e-6, 1 - 1e-6))


def _cdf(
    outcome: dist.Distribution, value: Any, log_prob: jax.Array, drawn: jax.Array
) -> tuple[Any, Any]:
    """P(Y <= value), and P(Y < value), which is smaller where the outcome is discrete."""
    if hasattr(outcome, "below"):
        return outcome.cdf(value), outcome.below(value)
    if type(outcome).cdf is dist.Distribution.cdf:  # the law has none: by its simulated outcomes
        return (drawn <= value).mean(0), (drawn < value).mean(0)
    cdf = outcome.cdf(value)
    return cdf, cdf - jnp.exp(log_prob) if outcome.is_discrete else cdf
