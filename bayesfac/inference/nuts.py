"""The No-U-Turn sampler on a method's NumPyro model."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro.infer import NUTS as NumpyroNUTS
from numpyro.infer.reparam import TransformReparam

from bayesfac.core.method import Method, sites
from bayesfac.inference.checkpoint import Checkpoint, freeze, thaw
from bayesfac.inference.result import (
    Result,
    bar,
    check_number,
    count_setting,
    log_joints,
    require,
    start_point,
)
from bayesfac.inference.unconstrained import require_proper, supports, unconstrain

STATISTICS = {  # ours -> NumPyro's
    "diverging": "diverging",
    "energy": "energy",
    "n_steps": "num_steps",
    "acceptance_rate": "accept_prob",
}
BLOCK = 25  # steps per compiled call: progress, checkpoints, Ctrl-C


@dataclass(frozen=True)
class NUTS:
    """Hamiltonian Monte Carlo that tunes itself; exact, and dear for large data.

    Parameters
    ----------
    warmup, draws, chains : int
    target_accept : float
        Closer to 1: smaller steps, fewer divergences.
    max_tree_depth : int
    jitter : float
        How far chains start from the given point, in unconstrained units.
    chain_method : {"vectorized", "sequential"}
        All chains in one program (the default), or one after another.
    folder : str, optional
        Where checkpoints go after warm-up; a killed run resumes from there to the same draws.
    """

    warmup: int = 500
    draws: int = 500
    chains: int = 4
    target_accept: float = 0.8
    max_tree_depth: int = 10
    jitter: float = 0.1
    chain_method: str = "vectorized"
    folder: str | None = None

    def __post_init__(self) -> None:
        count_setting(self, warmup=1, draws=1, chains=1, max_tree_depth=1)
        require(
            0 < self.target_accept < 1,
            f"Expected target_accept in (0, 1), got {self.target_accept!r}",
        )
        methods = ("vectorized", "sequential")
        require(
            self.chain_method in methods,
            f"Expected chain_method in {methods}, got {self.chain_method!r}",
        )

    def run(
        self,
        method: Method,
        data: Any,
        hyper: Any,
        *,
        key: jax.Array,
        start: Any,
        progress: bool,
        run: str,
    ) -> Result:
        """Warm up and sample, in blocks; the log joint of every draw afterwards."""
        groups = (
            [range(self.chains)]
            if self.chain_method == "vectorized"
            else [[c] for c in range(self.chains)]
        )
        parts: list[dict[str, np.ndarray]] = []
        partial = False
        with bar(
            progress, len(groups) * (self.warmup + self.draws), f"{method.name} NUTS"
        ) as shown:
            for number, chains in enumerate(groups):
                folder = None if self.folder is None else f"{self.folder}/{number}"
                point = Checkpoint(folder, f"{run} group {number}")
                part, partial = self._walk(method, data, hyper, key, start, chains, point, shown)
                parts += [part] if part or not parts else []
                if partial:
                    break
        if not parts[0]:
            raise KeyboardInterrupt("interrupted during warm-up: there are no draws to return")
        length = min(part["energy"].shape[1] for part in parts)
        merged = {k: np.concatenate([p[k][:, :length] for p in parts]) for k in parts[0]}
        draws = {site: merged[site] for site in merged if site not in STATISTICS}
        for site, value in draws.items():
            check_number(float(np.abs(value).max()), f"draw of {site}", "in NUTS")
        steps = merged["n_steps"]
        stats = {"lp": log_joints(method, data, hyper, draws), **{k: merged[k] for k in STATISTICS}}
        stats["tree_depth"] = np.ceil(np.log2(steps + 1)).astype(int)
        stats["reached_max_tree_depth"] = stats["tree_depth"] >= self.max_tree_depth
        notes = [f"interrupted: {len(stats['lp'])} chain(s) of {length} draws"] if partial else []
        return Result(
            draws=draws, trace=-stats["lp"].ravel(), stats=stats, partial=partial, notes=notes
        )

    def _walk(
        self,
        method: Method,
        data: Any,
        hyper: Any,
        key: jax.Array,
        start: Any,
        chains: Any,
        point: Checkpoint,
        shown: Any,
    ) -> tuple[dict[str, np.ndarray], bool]:
        """Some chains side by side: {site or statistic: (chain, draw, ...)}, and whether cut short."""
        keys = jnp.stack([jax.random.fold_in(key, chain) for chain in chains])
        points = [start_point(method, data, hyper, k, start) for k in keys]
        require_proper(method, data, hyper, points[0])
        free = [
            free_start(method, data, hyper, p, k, self.jitter)
            for p, k in zip(points, keys, strict=True)
        ]
        wanted = list(sites(points[0]))
        kernel = kernel_of(method, hyper, self)
        first = jax.tree.map(lambda *x: jnp.stack(x), *free)
        state = kernel.init(keys, self.warmup, first, (data,), {})

        @jax.jit
        def block(state: Any, data: Any) -> tuple[Any, dict[str, jax.Array]]:
            back = jax.vmap(kernel.postprocess_fn((data,), {}))

            def step(state: Any, _: None) -> tuple[Any, dict[str, jax.Array]]:
                state = kernel.sample(state, (data,), {})
                values = back(state.z)
                found = {site: values[site] for site in wanted}
                return state, found | {k: getattr(state, v) for k, v in STATISTICS.items()}

            state, seen = jax.lax.scan(step, state, None, length=BLOCK)
            return state, jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1), seen)

        blocks: list[dict[str, np.ndarray]] = []
        done, total = 0, self.warmup + self.draws
        if saved := point.load():
            done, state = int(saved.pop("done")), thaw(saved, state)
            kept = {k.removeprefix("draw "): v for k, v in saved.items() if k.startswith("draw ")}
            blocks = [kept] if kept else []
        shown.update(done)
        try:
            while done < total:
                state, seen = block(state, data)
                done += BLOCK
                fresh = min(BLOCK, done - self.warmup)  # what of this block is past the warm-up
                if fresh > 0:
                    blocks.append({k: np.asarray(v)[:, BLOCK - fresh :] for k, v in seen.items()})
                shown.update(BLOCK)
                if point.due() or done >= total:
                    so_far = {f"draw {k}": v for k, v in _merge(blocks).items()}
                    point.save({"done": done, **freeze(state), **so_far})
        except KeyboardInterrupt:
            return _merge(blocks), True
        return {k: v[:, : self.draws] for k, v in _merge(blocks).items()}, False


def kernel_of(method: Method, hyper: Any, engine: NUTS) -> NumpyroNUTS:
    """NumPyro's kernel on the model as a function of the data, standardised where the method says so."""

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
    """One chain's start in NUTS's own coordinates: standardised where the method says so."""
    free = unconstrain(supports(method, data, hyper, p), p)
    for site in method.noncentred:
        del free[site]
    free |= _bases(method, data, hyper, p)
    leaves, tree = jax.tree.flatten(free)
    keys = jax.random.split(key, len(leaves))
    moved = [x + jitter * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(tree, moved)


def _merge(blocks: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {k: np.concatenate([b[k] for b in blocks], 1) for k in blocks[0]} if blocks else {}


def _bases(method: Method, data: Any, hyper: Any, p: Any) -> dict[str, jax.Array]:
    """The standardised values behind the non-centred sites."""
    given = numpyro.handlers.substitute(method.model, data=sites(p))
    trace = numpyro.handlers.trace(numpyro.handlers.seed(given, 0)).get_trace(data, hyper)
    bases = {}
    for site in method.noncentred:
        fn, value = trace[site]["fn"], trace[site]["value"]
        while not hasattr(fn, "transforms"):
            fn = fn.base_dist
        for transform in reversed(fn.transforms):
            value = transform.inv(value)
        bases[f"{site}_base"] = value
    return bases
