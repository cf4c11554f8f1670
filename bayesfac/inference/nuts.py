"""The No-U-Turn sampler on a method's NumPyro model."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.infer import NUTS as NumpyroNUTS
from numpyro.infer.reparam import TransformReparam

from bayesfac.core import checks
from bayesfac.core.gauge import random_copy
from bayesfac.core.method import Method, sites
from bayesfac.inference.checkpoint import SAVE_EVERY, Checkpoint, freeze, thaw
from bayesfac.inference.result import (
    Job,
    Result,
    bar,
    check_number,
    check_settings,
    log_joints,
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
class NUTS:
    """The No-U-Turn sampler: Hamiltonian Monte Carlo that tunes itself. Exact, and slow on large data.

    Parameters
    ----------
    warmup, draws, chains : int
    target_accept : float
        Closer to 1: smaller steps, fewer divergences.
    max_tree_depth : int
    jitter : float
        How far chains start from their points, in unconstrained units. With `init`, each chain starts from
        a copy of that point, turned or relabelled as the method's gauge allows.
    chain_method : {"vectorized", "sequential"}
        All chains in one program (the default), or one after another.
    thin : int
        Transitions per kept draw.
    folder : str, optional
        Write draws there as they come, never all in memory, and a checkpoint every `save_every` seconds;
        a killed run resumes from it, to the same draws.
    """

    warmup: int = 500
    draws: int = 500
    chains: int = 4
    target_accept: float = 0.8
    max_tree_depth: int = 10
    jitter: float = 0.1
    chain_method: str = "vectorized"
    thin: int = 1
    folder: str | None = None
    save_every: float = SAVE_EVERY

    def __post_init__(self) -> None:
        check_settings(self, warmup=1, draws=1, chains=1, max_tree_depth=1, thin=1)
        checks.between(self, "target_accept", 0, 1)
        checks.one_of(self, "chain_method", ("vectorized", "sequential"))

    def run(self, job: Job) -> Result:
        """Warm up and sample, in blocks; the log joint of every draw afterwards."""
        together = self.chain_method == "vectorized"
        groups = [range(self.chains)] if together else [[chain] for chain in range(self.chains)]
        writer = Writer(self.folder, (self.chains, self.draws))
        parts: list[dict[str, np.ndarray]] = []
        total = self.warmup + self.draws * self.thin
        with bar(job.progress, len(groups) * total, f"{job.method.name} NUTS") as shown:
            for number, chains in enumerate(groups):
                folder = None if self.folder is None else f"{self.folder}/{number}"
                point = Checkpoint(folder, f"{job.identity} group {number}", self.save_every)
                part = self._walk(job, chains, writer, point, shown)
                whole = part["energy"].shape[1] == self.draws
                parts += [part] if whole or not parts else []
                if not whole:
                    break
        length = min(part["energy"].shape[1] for part in parts)
        if not length:
            raise KeyboardInterrupt("interrupted during warm-up: there are no draws to return")
        stats = {k: np.concatenate([part[k][:, :length] for part in parts]) for k in STATISTICS}
        kept = len(stats["energy"])
        partial = length < self.draws or kept < self.chains
        draws = writer.view(kept, length)
        stats = {"lp": log_joints(job, draws), **stats}
        stats["tree_depth"] = np.ceil(np.log2(stats["n_steps"] + 1)).astype(int)
        stats["reached_max_tree_depth"] = stats["tree_depth"] >= self.max_tree_depth
        notes = [f"interrupted: {kept} chain(s) of {length} draws"] if partial else []
        return Result(
            draws=draws, trace=-stats["lp"].ravel(), stats=stats, partial=partial, notes=notes
        )

    def _walk(
        self, job: Job, chains: Any, writer: Writer, point: Checkpoint, shown: Any
    ) -> dict[str, np.ndarray]:
        """Run some chains side by side and write their draws; {statistic: (chain, draw)}, of an interrupted
        run with fewer draws."""
        method, data, hyper = job.method, job.data, job.hyper
        keys = jnp.stack([jax.random.fold_in(job.key, chain) for chain in chains])
        points = [job.start_point(k) for k in keys]
        if job.start:
            apart = [jax.random.fold_in(k, 1) for k in keys]
            points = [random_copy(k, method, p) for k, p in zip(apart, points, strict=True)]
        require_proper(method, data, hyper, points[0])
        free = [
            free_start(method, data, hyper, p, k, self.jitter)
            for p, k in zip(points, keys, strict=True)
        ]
        kernel = kernel_of(method, hyper, self)
        block = _block_of(kernel, list(sites(points[0])))
        first = jax.tree.map(lambda *x: jnp.stack(x), *free)
        state = kernel.init(keys, self.warmup, first, (data,), {})
        done, total = 0, self.warmup + self.draws * self.thin
        seen = {name: np.zeros((len(chains), 0)) for name in STATISTICS}
        if saved := point.load():
            done, state = int(saved.pop("done")), thaw(saved, state)
            seen = {name: saved[f"statistic {name}"] for name in STATISTICS}
            writer.check(sites(points[0]) if seen["energy"].size else ())
        shown.update(done)
        try:
            while done < total:
                state, values, fresh = block(state, data)
                kept = self._kept(done)
                done += BLOCK
                if len(kept):
                    at = seen["energy"].shape[1]
                    for chain, number in enumerate(chains):
                        now = {site: np.asarray(v[chain])[kept] for site, v in values.items()}
                        _check_finite(now)
                        writer.write(number, at, now)
                    fresh = {name: np.asarray(v)[:, kept] for name, v in fresh.items()}
                    seen = {n: np.concatenate([seen[n], v], 1) for n, v in fresh.items()}
                shown.update(BLOCK)
                if point.due() or done >= total:
                    counted = {f"statistic {name}": v for name, v in seen.items()}
                    point.save({"done": done, **freeze(state), **counted})
        except KeyboardInterrupt:
            return seen
        return seen

    def _kept(self, done: int) -> np.ndarray:
        """Which of the next BLOCK transitions are kept as draws."""
        step = done + 1 + np.arange(BLOCK) - self.warmup  # 1 is the first after the warm-up
        return np.flatnonzero(
            (step > 0) & (step % self.thin == 0) & (step <= self.draws * self.thin)
        )


def kernel_of(method: Method, hyper: Any, engine: NUTS) -> NumpyroNUTS:
    """NumPyro's kernel on the model as a function of the data; sites of `noncentred` are standardised."""

    def model(data: Any) -> None:
        method.model(data, hyper)

    config = {site: TransformReparam() for site in method.noncentred}
    return NumpyroNUTS(
        numpyro.handlers.reparam(model, config=config),
        target_accept_prob=engine.target_accept,
        max_tree_depth=engine.max_tree_depth,
    )


def free_start(
    method: Method, data: Any, hyper: Any, p: Any, key: jax.Array, jitter: float
) -> dict[str, jax.Array]:
    """One chain's start in the coordinates of `kernel_of`."""
    free = unconstrain(supports(method, data, hyper, p), p)
    for site in method.noncentred:
        del free[site]
    return shaken(free | _bases(method, data, hyper, p), key, jitter)


def _block_of(kernel: NumpyroNUTS, wanted: list[str]) -> Any:
    """BLOCK transitions of all chains: (state, data) -> state, draws, statistics."""

    @jax.jit
    def block(state: Any, data: Any) -> tuple[Any, dict[str, jax.Array], dict[str, jax.Array]]:
        back = jax.vmap(kernel.postprocess_fn((data,), {}))

        def step(state: Any, _: None) -> tuple[Any, Any]:
            state = kernel.sample(state, (data,), {})
            values = back(state.z)
            counted = {name: getattr(state, theirs) for name, theirs in STATISTICS.items()}
            return state, ({site: values[site] for site in wanted}, counted)

        state, seen = jax.lax.scan(step, state, None, length=BLOCK)
        return state, *jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1), seen)

    return block


def _check_finite(values: dict[str, np.ndarray]) -> None:
    for site, value in values.items():
        check_number(float(np.abs(value).max(initial=0)), f"draw of {site}", "in NUTS")


def _bases(method: Method, data: Any, hyper: Any, p: Any) -> dict[str, jax.Array]:
    """The standardised values behind the non-centred sites."""
    found = sites_of_model(method, data, hyper, p) if method.noncentred else {}
    bases = {}
    for site in method.noncentred:
        fn, value = found[site]["fn"], found[site]["value"]
        while not hasattr(fn, "transforms"):
            fn = fn.base_dist
        for transform in reversed(fn.transforms):
            value = transform.inv(value)
        bases[f"{site}_base"] = value
    return bases
