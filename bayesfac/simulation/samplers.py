"""Engines as functions (key, data) -> draws of Params, which JAX can compile and map over data sets."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from bayesfac.core.method import from_sites, sites
from bayesfac.inference.gibbs import Gibbs, draws_of_a_sweep, spread, sweep
from bayesfac.inference.nuts import NUTS, Settings, free_start, transitions
from bayesfac.inference.quick import FEWEST, Quick
from bayesfac.inference.result import Job
from bayesfac.inference.variational.svi import SVI, settings_of, variational
from bayesfac.inference.variational.vb import VB, drawn

Posterior = Callable[[jax.Array, Any], tuple[Any, dict[str, jax.Array]]]


@dataclass(frozen=True)
class Length:
    """The length of a run: steps thrown away, draws kept, steps for each draw."""

    warmup: int
    draws: int
    thin: int


def gibbs(job: Job, engine: Gibbs, length: Length) -> Posterior:
    """Gibbs sweeps from the method's own start."""
    method, hyper, fresh = job.method, job.hyper, starts(job)

    def posterior(key: jax.Array, data: Any) -> tuple[Any, dict[str, jax.Array]]:
        begin, walk = jax.random.split(key)
        p = fresh(begin)
        return kept(lambda p, key: sweep(method, hyper, p, data, key), p, walk, length), {}

    return posterior


def nuts(job: Job, engine: NUTS, length: Length) -> Posterior:
    """NumPyro's kernel, whose warm-up tunes every replication by itself."""
    method, hyper = job.method, job.hyper

    def posterior(key: jax.Array, data: Any) -> tuple[Any, dict[str, jax.Array]]:
        begin, jitter, walk = jax.random.split(key, 3)
        p = method.init(begin, job.data, hyper)
        first = free_start(method, data, hyper, p, jitter, engine.jitter)
        settings = Settings(length.warmup, engine.target_accept, engine.max_tree_depth)
        start, step, values_of = transitions(method, data, hyper, settings)
        state = start(walk, first)
        states = kept(lambda s, _: step(s), state, walk, length, lambda s: (s.z, s.diverging))
        values = jax.vmap(values_of)(states[0])
        draws = jax.vmap(lambda v: from_sites(method, {s: v[s] for s in sites(p)}))(values)
        return draws, {"diverging": jnp.mean(states[1])}

    return posterior


def svi(job: Job, engine: SVI, length: Length) -> Posterior:
    """Independent draws of the guide after all steps of its fit."""
    method, hyper = job.method, job.hyper

    def posterior(key: jax.Array, data: Any) -> tuple[Any, dict[str, jax.Array]]:
        begin, fit, draw = jax.random.split(key, 3)
        p = method.init(begin, job.data, hyper)
        svi, guide, state = variational(method, hyper, settings_of(engine), p, fit, data)

        def step(state: Any, _: None) -> tuple[Any, None]:
            return svi.update(state, data, {})[0], None

        state, _ = jax.lax.scan(step, state, None, length=engine.steps)
        many = guide.sample_posterior(draw, svi.get_params(state), sample_shape=(length.draws,))
        return from_sites(method, {site: many[site] for site in sites(p)}), {}

    return posterior


def vb(job: Job, engine: VB, length: Length) -> Posterior:
    """Independent draws of the law of all sites, after `max_iter` sweeps of coordinate ascent."""
    method, hyper, fresh, law = job.method, job.hyper, starts(job), job.method.variational

    def posterior(key: jax.Array, data: Any) -> tuple[Any, dict[str, jax.Array]]:
        begin, walk, draw = jax.random.split(key, 3)
        p = fresh(begin)

        def once(number: jax.Array, p: Any) -> Any:
            return sweep(method, hyper, p, data, jax.random.fold_in(walk, number))

        if method.gibbs.conditionals:
            p = jax.lax.fori_loop(0, length.warmup, once, p)
        q = law.begin(p, data, hyper)  # type: ignore[union-attr]
        q = jax.lax.fori_loop(0, engine.max_iter, lambda _, q: law.update(q, data, hyper), q)  # type: ignore[union-attr]
        found, _ = drawn(method, hyper, length.draws, engine.widen, q, draw, data)
        return from_sites(method, found), {}

    return posterior


def quick(job: Job, engine: Quick, length: Length) -> Posterior:
    """The chains of Quick from the method's own starts.

    Of the draws of all chains, `length.draws` are taken at random, with repetition if there are fewer.
    """
    method, hyper, fresh = job.method, job.hyper, starts(job)
    each = draws_of_a_sweep(job, fresh(job.key), engine.pairs)
    run = engine.chains_of(engine.sweeps or FEWEST, each)
    own = Length(run.warmup, run.draws, run.thin)

    def posterior(key: jax.Array, data: Any) -> tuple[Any, dict[str, jax.Array]]:
        chains, pick = jax.random.split(key)

        def step(state: Any, key: jax.Array) -> Any:
            move, more = jax.random.split(key)
            return sweep(method, hyper, state[0], data, move, run.over), more

        def several(state: Any) -> dict[str, jax.Array]:
            p, more = state
            return spread(method, hyper, p, data, more, run.pairs)

        def chain(key: jax.Array) -> dict[str, jax.Array]:
            begin, walk = jax.random.split(key)
            return kept(step, (fresh(begin), walk), walk, own, several)

        many = jax.lax.map(chain, jax.random.split(chains, run.chains))
        # chains, kept sweeps and draws of one sweep, on one axis
        flat = {site: x.reshape(-1, *x.shape[3:]) for site, x in many.items()}
        size = len(next(iter(flat.values())))
        at = jax.random.choice(pick, size, (length.draws,), replace=size < length.draws)
        return from_sites(method, {site: x[at] for site, x in flat.items()}), {}

    return posterior


def starts(job: Job) -> Callable[[jax.Array], Any]:
    """A function key -> the method's own start, with the types that it has outside of compiled programs."""
    like = job.method.init(jax.random.key(0), job.data, job.hyper)

    def start(key: jax.Array) -> Any:
        fresh = job.method.init(key, job.data, job.hyper)
        return jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), fresh, like)

    return start


def kept(
    step: Callable[[Any, jax.Array], Any],
    state: Any,
    key: jax.Array,
    length: Length,
    keep: Callable[[Any], Any] = lambda state: state,
) -> Any:
    """The result of `keep` for the states of a chain after warm-up and thinning, stacked."""

    def draw(state: Any, keys: jax.Array) -> tuple[Any, Any]:
        state = jax.lax.scan(lambda s, k: (step(s, k), None), state, keys)[0]
        return state, keep(state)

    # the warm-up is made of whole draws, so that one loop is compiled
    before = -(-length.warmup // length.thin)
    keys = jax.random.split(key, (before + length.draws, length.thin))
    return jax.tree.map(lambda x: x[before:], jax.lax.scan(draw, state, keys)[1])


SAMPLERS: dict[str, Callable[[Job, Any, Length], Posterior]] = {
    "Gibbs": gibbs,
    "NUTS": nuts,
    "SVI": svi,
    "VB": vb,
    "Quick": quick,
}
