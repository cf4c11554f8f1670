"""The No-U-Turn sampler on a method's NumPyro model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.infer.hmc import hmc
from numpyro.infer.reparam import TransformReparam
from numpyro.infer.util import constrain_fn, potential_energy

from bayesfac.core import checks
from bayesfac.core.gauge import random_copy
from bayesfac.core.laws.normal_wishart import RowAffine
from bayesfac.core.method import Method, site_dims, sites
from bayesfac.core.programs import side_by_side
from bayesfac.inference.checkpoint import SAVE_EVERY, Checkpoint, freeze, thaw
from bayesfac.inference.driver import Run
from bayesfac.inference.result import (
    Engine,
    Job,
    Result,
    check_number,
    check_settings,
    log_joints,
    program,
)
from bayesfac.inference.stored_draws import Writer
from bayesfac.inference.unconstrained import (
    require_proper,
    shaken,
    sites_of_model,
    supports,
    unconstrain,
)

STATISTICS = {  # ours -> NumPyro's
    "diverging": "diverging",
    "energy": "energy",
    "n_steps": "num_steps",
    "acceptance_rate": "accept_prob",
}
BLOCK = 25  # steps per compiled call: progress, checkpoints, Ctrl-C


@dataclass(frozen=True)
class NUTS(Engine):
    """The No-U-Turn sampler, a form of Hamiltonian Monte Carlo that tunes itself; slow on large data.

    Parameters
    ----------
    warmup, draws, chains : int
        Transitions for tuning, which are thrown away; draws that each chain keeps; independent chains.
    target_accept : float
        The aim for the mean acceptance probability. A value closer to 1 gives smaller steps and fewer
        divergences.
    max_tree_depth : int
        A transition makes at most 2^max_tree_depth - 1 steps.
    jitter : float
        How far chains start from their points, in unconstrained coordinates. With `init`, each chain starts
        from a copy of that point, which is rotated or relabelled at random. With 0, every chain starts at
        `init` itself.
    chain_method : {"parallel", "vectorized"}
        "parallel" runs one program for each chain at the same time. "vectorized" runs one program for all
        chains, in which every chain waits for the longest trajectory. By default "parallel" on CPUs, and
        "vectorized" on accelerators.
    thin : int
        Transitions for each kept draw. Statistics such as divergences count all transitions.
    folder : str, optional
        Write the draws to this folder during the run, so that they are never all in memory, and a checkpoint
        every `save_every` seconds. If the run is killed, the same call continues it, to the same draws.
    """

    warmup: int = 500
    draws: int = 500
    chains: int = 4
    target_accept: float = 0.8
    max_tree_depth: int = 10
    jitter: float = 0.1
    chain_method: str | None = None
    thin: int = 1
    folder: str | None = None
    save_every: float = SAVE_EVERY

    def __post_init__(self) -> None:
        check_settings(self, warmup=1, draws=1, chains=1, max_tree_depth=1, thin=1)
        checks.between(self, "target_accept", 0, 1)
        if self.chain_method is not None:
            checks.one_of(self, "chain_method", ("parallel", "vectorized"))

    def run(self, job: Job) -> Result:
        """Warm up and sample, in blocks of transitions; the log joint of every draw afterwards."""
        method, data, hyper = job.method, job.data, job.hyper
        settings = Settings(self.warmup, self.target_accept, self.max_tree_depth)
        keys = [jax.random.fold_in(job.key, chain) for chain in range(self.chains)]
        points = [self._start(job, key) for key in keys]
        require_proper(method, data, hyper, points[0])
        begin = program(_begin, data, method, hyper, settings, self.jitter)
        wanted = tuple(sites(points[0]))
        block = program(_block, data, method, hyper, settings, wanted)
        usual = "parallel" if jax.default_backend() == "cpu" else "vectorized"
        size = 1 if (self.chain_method or usual) == "parallel" else self.chains
        groups = [slice(first, first + size) for first in range(0, self.chains, size)]
        states = [begin(stacked(points[at], np.stack), jnp.stack(keys[at]), data) for at in groups]
        one = self.chains * sum(x.nbytes for x in jax.tree.leaves(points[0]))
        writer = Writer(self.folder, (self.chains, self.draws), one=one)
        seen, run = self._walk(job, block, states, writer, wanted)
        length = seen["energy"].shape[1] // self.thin
        notes, draws = run.notes(self.chains, length), writer.view(self.chains, length)
        stats = {"lp": log_joints(job, draws), **of_draws(seen, self.thin)}
        stats["reached_max_tree_depth"] = stats["tree_depth"] >= self.max_tree_depth
        trace = -stats["lp"].ravel()
        return Result(draws=draws, trace=trace, stats=stats, partial=run.interrupted, notes=notes)

    def _walk(
        self, job: Job, block: Any, states: list, writer: Writer, wanted: tuple[str, ...]
    ) -> tuple[dict[str, np.ndarray], Run]:
        """Write the draws of all chains; {statistic: (chain, transition)}, and how the loop ended."""
        done, total = 0, self.warmup + self.draws * self.thin
        seen = {name: np.zeros((self.chains, 0)) for name in STATISTICS}
        point = Checkpoint(self.folder, job.identity, self.save_every)
        if saved := point.load():
            done, states = int(saved.pop("done")), thaw(saved, states)
            seen = {name: saved[f"statistic {name}"] for name in STATISTICS}
            writer.check(wanted if seen["energy"].shape[1] >= self.thin else ())
        counted = lambda: {f"statistic {name}": v for name, v in seen.items()}  # noqa: E731
        arrays = lambda: {"done": done, **freeze(states), **counted()}  # noqa: E731
        with Run(job, done, total, point, arrays, what="NUTS") as run:
            while done < total:
                blocks = min(run.pace(), -(-(total - done) // BLOCK))
                ends = side_by_side(_blocks, [(block, blocks, one, job.data) for one in states])
                states = [one for one, _ in ends]
                for new in zip(*(found for _, found in ends), strict=True):
                    after, kept = self._after(done)
                    done += BLOCK
                    if len(after):
                        seen = self._write(writer, seen, jax.device_get(new), after, kept)
                run.made(blocks * BLOCK)
        return seen, run

    def _start(self, job: Job, key: jax.Array) -> Any:
        point = job.start_point(key)
        if job.start and self.jitter:
            return random_copy(jax.random.fold_in(key, 1), job.method, point)
        return point

    def _write(
        self,
        writer: Writer,
        seen: dict[str, np.ndarray],
        blocks: Sequence[tuple],
        after: np.ndarray,
        kept: np.ndarray,
    ) -> dict[str, np.ndarray]:
        """Write the kept draws of a block; the statistics of all transitions until now."""
        first = seen["energy"].shape[1] // self.thin
        values, fresh = (stacked(part, np.concatenate) for part in zip(*blocks, strict=True))
        for chain in range(self.chains if len(kept) else 0):
            now = {site: value[chain, kept] for site, value in values.items()}
            for site, value in now.items():
                check_number(float(np.abs(value).max(initial=0)), f"draw of {site}", "in NUTS")
            writer.write(chain, first, now)
        return {n: np.concatenate([seen[n], v[:, after]], 1) for n, v in fresh.items()}

    def _after(self, done: int) -> tuple[np.ndarray, np.ndarray]:
        """Which of the next BLOCK transitions come after the warm-up, and which are kept as draws."""
        step = done + 1 + np.arange(BLOCK) - self.warmup  # 1 is the first after the warm-up
        after = (step > 0) & (step <= self.draws * self.thin)
        return np.flatnonzero(after), np.flatnonzero(after & (step % self.thin == 0))


def of_draws(seen: dict[str, np.ndarray], thin: int) -> dict[str, np.ndarray]:
    """The statistics of kept draws, from the statistics of all transitions.

    A kept draw has the statistics of the last of its `thin` transitions, with two exceptions. It counts as
    divergent if any of these transitions diverged, and its tree depth is the largest of theirs. Transitions
    that are thrown away also show regions that the sampler cannot explore.
    """
    each = {n: v[:, : v.shape[1] // thin * thin].reshape(len(v), -1, thin) for n, v in seen.items()}
    found = {n: v[..., -1] for n, v in each.items()}
    found["diverging"] = each["diverging"].max(-1)
    found["tree_depth"] = np.ceil(np.log2(each["n_steps"].max(-1) + 1)).astype(int)
    return found


class Settings(NamedTuple):
    """The settings that determine the transitions, together with the model."""

    warmup: int
    target_accept: float
    max_tree_depth: int


def transitions(method: Method, data: Any, hyper: Any, settings: Settings) -> tuple[Any, Any, Any]:
    """NumPyro's sampler of the model, in which tables of rows are standardised: see `has_rows`.

    Returns begin(key, free) -> state, step(state) -> state, and values(free) -> {site: value}. All belong to
    one trace: `begin` must be called before `step`, because it sets variables outside of the state.
    """

    def model() -> None:
        method.model(data, hyper)

    def standard(site: Any) -> TransformReparam | None:
        return TransformReparam() if has_rows(method, site) else None

    model = numpyro.handlers.reparam(model, config=standard)
    init, step = hmc(partial(potential_energy, model, (), {}), algo="NUTS")

    def begin(key: jax.Array, free: dict[str, jax.Array]) -> Any:
        accept, depth = settings.target_accept, settings.max_tree_depth
        more = {"target_accept_prob": accept, "max_tree_depth": depth, "dense_mass": []}
        return init(free, settings.warmup, rng_key=key, **more)

    return begin, step, partial(constrain_fn, model, (), {}, return_deterministic=True)


def free_start(
    method: Method, data: Any, hyper: Any, p: Any, key: jax.Array, jitter: float
) -> dict[str, jax.Array]:
    """One chain's start in the coordinates of `transitions`."""
    free, bases = unconstrain(supports(method, data, hyper, p), p), _bases(method, data, hyper, p)
    kept = {site: value for site, value in free.items() if f"{site}_base" not in bases}
    return shaken(kept | bases, key, jitter)


def _begin(
    method: Method, hyper: Any, settings: Settings, jitter: float, p: Any, keys: Any, data: Any
) -> Any:
    """The states of all chains before the first transition."""
    begin, _, _ = transitions(method, data, hyper, settings)

    def one(p: Any, key: jax.Array) -> Any:
        return begin(jax.random.split(key)[0], free_start(method, data, hyper, p, key, jitter))

    return over_chains(one, len(keys))(p, keys)


def _blocks(block: Callable, count: int, state: Any, data: Any) -> tuple[Any, list[tuple]]:
    """So many calls of the compiled `_block`: the state at the end; draws and statistics of each call."""
    found = []
    for _ in range(count):
        state, *new = block(state, data)
        found.append(tuple(new))
    return state, found


def _block(
    method: Method, hyper: Any, settings: Settings, wanted: tuple[str, ...], state: Any, data: Any
) -> tuple[Any, dict[str, jax.Array], dict[str, jax.Array]]:
    """BLOCK transitions of all chains: state, draws, statistics."""
    begin, transition, values_of = transitions(method, data, hyper, settings)
    # only for the variables of NumPyro: nothing of the result is used, so nothing of it is computed
    begin(state.rng_key[0], jax.tree.map(lambda x: x[0], state.z))

    chains = len(state.rng_key)

    def step(state: Any, _: None) -> tuple[Any, Any]:
        state = over_chains(transition, chains)(state)
        values = over_chains(values_of, chains)(state.z)
        counted = {name: getattr(state, theirs) for name, theirs in STATISTICS.items()}
        return state, ({site: values[site] for site in wanted}, counted)

    state, seen = jax.lax.scan(step, state, None, length=BLOCK)
    return state, *jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1), seen)


def over_chains(function: Callable, chains: int) -> Callable:
    """`function` for each entry of the first axis of its arguments.

    One chain is not vectorised: `vmap` computes both branches of every condition, and JAX takes seconds to
    trace the loops of a trajectory that way.
    """
    if chains > 1:
        return jax.vmap(function)

    def alone(*arguments: Any) -> Any:
        first = jax.tree.map(lambda x: x[0], arguments)
        return jax.tree.map(lambda x: jnp.asarray(x)[None], function(*first))

    return alone


def stacked(trees: Sequence[Any], join: Callable) -> Any:
    """Trees of arrays as one tree of joined arrays."""
    return jax.tree.map(lambda *each: join(each), *trees)


def has_rows(method: Method, site: Any) -> bool:
    """Whether a site of the model is a table of `normal_rows`.

    NUTS draws the standard normals behind such rows. Links of features, which have the same law, are left as
    they are. The models of `cp` and `cmf` have a MultivariateNormal instead: on 40 % of the cells of a
    15 x 10 x 6 tensor, and of 40 x 25 ratings with tags, standard normals took two to three times the steps.
    """
    if site["type"] != "sample" or site["is_observed"]:
        return False
    law = site["fn"]
    while not hasattr(law, "transforms") and hasattr(law, "base_dist"):
        law = law.base_dist
    affine = any(isinstance(each, RowAffine) for each in getattr(law, "transforms", ()))
    return affine and not site_dims(method, site["name"])[0].endswith("_feature")


def _bases(method: Method, data: Any, hyper: Any, p: Any) -> dict[str, jax.Array]:
    """The standardised values behind tables of rows."""
    bases = {}
    for name, site in sites_of_model(method, data, hyper, p).items():
        if has_rows(method, site):
            law, value = site["fn"], site["value"]
            while not hasattr(law, "transforms"):
                law = law.base_dist
            for transform in reversed(law.transforms):
                value = transform.inv(value)
            bases[f"{name}_base"] = value
    return bases
