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
    Job,
    Result,
    bar,
    check_settings,
    check_sites,
    compiled,
    replace_sites,
    require,
)
from bayesfac.inference.stored_draws import Writer
from bayesfac.inference.unconstrained import scattered


@dataclass(frozen=True)
class Gibbs:
    """Draw every block from its full conditional, one block after another.

    Parameters
    ----------
    warmup, draws, chains : int
        Sweeps thrown away, draws kept, independent chains.
    thin : int
        Sweeps per kept draw.
    jitter : float
        How far chains start from `init`, in unconstrained units. Each chain starts from a copy of `init`,
        turned or relabelled as the method's gauge allows. With 0 chains start at `init` itself.
    folder : str, optional
        Write draws there as they come, never all in memory, and a checkpoint every `save_every` seconds;
        a killed run resumes from it, to the same draws.
    """

    warmup: int = 500
    draws: int = 500
    chains: int = 4
    thin: int = 1
    jitter: float = 0.1
    folder: str | None = None
    save_every: float = SAVE_EVERY

    def __post_init__(self) -> None:
        check_settings(self, warmup=0, draws=1, chains=1, thin=1)
        require(self.jitter >= 0, f"Expected Gibbs(jitter=...) of at least 0, got {self.jitter!r}")

    def run(self, job: Job) -> Result:
        """Chains one after another: on a CPU each sweep already uses every core."""
        method, data, hyper = job.method, job.data, job.hyper
        like = job.start_point(job.key)
        sweep, objective = sweep_of(method, hyper, data, like), compiled(job.objective)
        writer = Writer(self.folder, (self.chains, self.draws))
        lp = np.full((self.chains, self.draws), np.nan)
        total = self.warmup + self.draws * self.thin
        point = Checkpoint(self.folder, job.identity, self.save_every)
        first = 0
        if saved := point.load():
            first, lp = int(saved.pop("chain")), saved.pop("lp")
            writer.check(sites(like) if np.isfinite(lp).any() else ())
        with bar(job.progress, self.chains * total, method.name) as shown:
            shown.update(first * total)
            for chain in range(first, self.chains):
                begin, walk = jax.random.split(jax.random.fold_in(job.key, chain))
                p, done = job.start_point(begin), 0
                if job.start and self.jitter:
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
                            writer.write(chain, draw, {s: x[None] for s, x in sites(p).items()})
                            lp[chain, draw] = -float(objective(p, data))
                        shown.update(1)
                        if point.due():
                            point.save({"chain": chain, "done": done, "lp": lp, **sites(p)})
                except KeyboardInterrupt:
                    written = int(np.isfinite(lp[0]).sum())
                    return _partial(writer, lp, max(chain, 1), written)
        point.save({"chain": self.chains, "lp": lp})
        return Result(draws=writer.view(*lp.shape), trace=-lp.ravel(), stats={"lp": lp})


def _partial(writer: Writer, lp: np.ndarray, chains: int, draws: int) -> Result:
    """The Result of an interrupted run: its finished chains, or the first draws of its first chain."""
    if draws < 1:
        raise KeyboardInterrupt("interrupted during warm-up: there are no draws to return")
    lp, kept = lp[:chains, :draws], writer.view(chains, draws)
    note = f"interrupted: {chains} chain(s) of {draws} draws"
    return Result(draws=kept, trace=-lp.ravel(), stats={"lp": lp}, notes=[note], partial=True)


def sweep_of(method: Method, hyper: Any, data: Any, like: Any) -> Any:
    """(params, data, key) -> params: all blocks once, in the order that the method lists them.

    Where Numba runs the sparse loops, the blocks without such loops are compiled one by one.
    """

    def augment(p: Any, data: Any, key: jax.Array) -> tuple:
        return (method.augment(p, data, hyper).sample(key),) if method.augment else ()

    def law(f: Any, p: Any, data: Any, *auxiliary: Any) -> Any:
        return f(p, data, hyper, *auxiliary)

    laws = {site: partial(law, f) for site, f in laws_of(method, like).items()}
    blocks = {site: partial(_draw, law, _sample) for site, law in laws.items()}
    moves: dict[str, Any] = {name: partial(f, hyper=hyper) for name, f in method.moves.items()}
    if sparse.backend() == "numba":
        key = jax.random.key(0)
        auxiliary = jax.eval_shape(augment, like, data, key)
        augment = _jit_without_loops(augment, like, data, key)
        blocks = {s: _block_without_loops(f, like, data, key, *auxiliary) for s, f in laws.items()}
        moves = {name: _jit_without_loops(f, key, like, data) for name, f in moves.items()}

    def sweep(p: Any, data: Any, key: jax.Array) -> Any:
        auxiliary = augment(p, data, key)
        for number, (site, block) in enumerate(blocks.items()):
            new = block(p, data, jax.random.fold_in(key, number), *auxiliary)
            p = replace_sites(p, {site: new})
        for number, move in enumerate(moves.values(), len(blocks)):
            p = move(jax.random.fold_in(key, number), p, data)
        return p

    return compiled(sweep)


def _sample(law: Any, key: jax.Array) -> Any:
    return law.sample(key)


def _draw(law: Any, sample: Any, p: Any, data: Any, key: jax.Array, *auxiliary: Any) -> Any:
    return sample(law(p, data, *auxiliary), key)


def _jit_without_loops(step: Any, *args: Any) -> Any:
    """The jitted step; the plain one if it runs a Numba loop."""
    return step if sparse.needs_loops(step, *args) else jax.jit(step)


def _block_without_loops(law: Any, *args: Any) -> Any:
    """The jitted block; the plain one if its law runs a Numba loop. The draw is a program of its own, which
    laws of one kind and size share (bpmf at K = 32: the first call takes 9.5 s instead of 10.3)."""
    plain = partial(_draw, law, _sample)
    looped = sparse.needs_loops(plain, *args)
    return plain if looped else partial(_draw, jax.jit(law), jax.jit(_sample))
