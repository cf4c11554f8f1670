"""Gibbs sweeps through a method's declared conditionals."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from bayesfac.core.kernels import sparse
from bayesfac.core.method import Method, laws_of, sites
from bayesfac.inference.checkpoint import SAVE_EVERY, Checkpoint
from bayesfac.inference.result import (
    Result,
    bar,
    check_sites,
    compiled,
    count_setting,
    replace_sites,
    require,
    seconds_setting,
    start_point,
)
from bayesfac.inference.stored_draws import Writer
from bayesfac.inference.unconstrained import scattered


@dataclass(frozen=True)
class Gibbs:
    """Every block drawn from its full conditional in turn.

    Parameters
    ----------
    warmup, draws, chains : int
        Sweeps thrown away, sweeps kept, independent chains.
    thin : int
        Sweeps per kept draw.
    jitter : float
        How far chains start from the point that `init` gives, in unconstrained units; each from a copy
        of its own, turned or relabelled as the method's gauge allows. 0 goes on from the point itself.
    folder : str, optional
        Draws are written here as they come (they are never all in memory), with checkpoints; a killed
        run resumes from there to the same draws.
    save_every : float
        Seconds between checkpoints.
    """

    warmup: int = 500
    draws: int = 500
    chains: int = 4
    thin: int = 1
    jitter: float = 0.1
    folder: str | None = None
    save_every: float = SAVE_EVERY

    def __post_init__(self) -> None:
        count_setting(self, warmup=0, draws=1, chains=1, thin=1)
        seconds_setting(self)
        require(self.jitter >= 0, f"Expected Gibbs(jitter=...) of at least 0, got {self.jitter!r}")

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
        """Chains one after another: on a CPU each sweep already uses every core."""
        like = start_point(method, data, hyper, key, start)
        sweep = sweep_of(method, hyper, data, like)
        objective = compiled(lambda p, data: method.objective(p, data, hyper))
        writer = Writer(self.folder, (self.chains, self.draws))
        lp = np.full((self.chains, self.draws), np.nan)
        total = self.warmup + self.draws * self.thin
        point = Checkpoint(self.folder, run, self.save_every)
        saved = point.load()
        first = 0
        if saved:
            first, lp = int(saved.pop("chain")), saved.pop("lp")
            writer.check(sites(like) if np.isfinite(lp).any() else ())
        with bar(progress, self.chains * total, method.name) as shown:
            shown.update(first * total)
            for chain in range(first, self.chains):
                begin, walk = jax.random.split(jax.random.fold_in(key, chain))
                p, done = start_point(method, data, hyper, begin, start), 0
                if start and self.jitter:
                    p = scattered(method, data, hyper, p, begin, self.jitter)
                if saved:
                    done = int(saved.pop("done"))
                    p, saved = replace_sites(p, saved), None
                    shown.update(done)
                try:
                    while done < total:
                        p = sweep(p, data, jax.random.fold_in(walk, done))
                        done += 1
                        draw, last = divmod(done - self.warmup - 1, self.thin)
                        if draw >= 0 and last == self.thin - 1:
                            check_sites(p, f"in chain {chain}, sweep {done}")
                            now = {
                                site: np.asarray(value)[None] for site, value in sites(p).items()
                            }
                            writer.write(chain, draw, now)
                            lp[chain, draw] = -float(objective(p, data))
                        shown.update(1)
                        if point.due():
                            point.save({"chain": chain, "done": done, "lp": lp, **sites(p)})
                except KeyboardInterrupt:
                    written = int(np.isfinite(lp[0]).sum())
                    return _partial(writer, lp, max(chain, 1), written)
        point.save({"chain": self.chains, "lp": lp})
        return Result(draws=writer.view(), trace=-lp.ravel(), stats={"lp": lp})


def _partial(writer: Writer, lp: np.ndarray, chains: int, draws: int) -> Result:
    """What an interrupted run has: its finished chains, or the first draws of its first chain."""
    if draws < 1:
        raise KeyboardInterrupt("interrupted during warm-up: there are no draws to return")
    stored = writer.view()
    kept = {site: stored[site][:chains, :draws] for site in stored}
    lp = lp[:chains, :draws]
    note = f"interrupted: {chains} chain(s) of {draws} draws"
    return Result(draws=kept, trace=-lp.ravel(), stats={"lp": lp}, notes=[note], partial=True)


def sweep_of(method: Method, hyper: Any, data: Any, like: Any) -> Any:
    """(params, data, key) -> params: all blocks once, in the order that the method lists them.

    Where Numba runs the sparse loops, the blocks that need none are compiled one by one.
    """

    def auxiliary(p: Any, data: Any, key: jax.Array) -> tuple:
        return (method.augment(p, data, hyper).sample(key),) if method.augment else ()

    def law(f: Any, p: Any, data: Any, *given: Any) -> Any:
        return f(p, data, hyper, *given)

    laws = {site: partial(law, f) for site, f in laws_of(method, like).items()}
    blocks = {site: partial(_draw, law, _sample) for site, law in laws.items()}
    moves: dict[str, Any] = {name: partial(f, hyper=hyper) for name, f in method.moves.items()}
    if sparse.backend() == "numba":
        key = jax.random.key(0)
        given = jax.eval_shape(auxiliary, like, data, key)
        auxiliary = _ready(auxiliary, like, data, key)
        blocks = {site: _ready_block(law, like, data, key, *given) for site, law in laws.items()}
        moves = {name: _ready(f, key, like, data) for name, f in moves.items()}

    def sweep(p: Any, data: Any, key: jax.Array) -> Any:
        given = auxiliary(p, data, key)
        for number, (site, block) in enumerate(blocks.items()):
            p = replace_sites(p, {site: block(p, data, jax.random.fold_in(key, number), *given)})
        for number, move in enumerate(moves.values(), len(blocks)):
            p = move(jax.random.fold_in(key, number), p, data)
        return p

    return compiled(sweep)


def _sample(law: Any, key: jax.Array) -> Any:
    return law.sample(key)


def _draw(law: Any, sample: Any, p: Any, data: Any, key: jax.Array, *given: Any) -> Any:
    return sample(law(p, data, *given), key)


def _ready(step: Any, *args: Any) -> Any:
    """Compiled, or as it is where it asks for a sparse loop."""
    return step if sparse.needs_loops(step, *args) else jax.jit(step)


def _ready_block(law: Any, *args: Any) -> Any:
    """The same for a block; the draw is a program of its own, which laws of one kind and size share
    (bpmf at K = 32: the first call takes 9.5 s instead of 10.3)."""
    plain = partial(_draw, law, _sample)
    looped = sparse.needs_loops(plain, *args)
    return plain if looped else partial(_draw, jax.jit(law), jax.jit(_sample))
