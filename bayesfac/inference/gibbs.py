"""Gibbs sweeps through a method's declared conditionals."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayesfac.core.data.divided.shares import Divided, fresh, seen
from bayesfac.core.errors import NumericalError
from bayesfac.core.laws.distributions import NormalRows
from bayesfac.core.method import Method, laws_of, site_dims, sites
from bayesfac.core.together import Alone, Together
from bayesfac.inference.checkpoint import SAVE_EVERY, Checkpoint
from bayesfac.inference.driver import Run
from bayesfac.inference.result import (
    Engine,
    Job,
    Result,
    check_settings,
    program,
    replace_sites,
    require,
)
from bayesfac.inference.stored_draws import Writer
from bayesfac.inference.unconstrained import scattered

SPREAD = 2**20  # numbers the random key of a kept sweep, beyond those of its blocks
BUFFER = 64 * 2**20  # bytes of draws that the compiled program holds


@dataclass(frozen=True)
class Gibbs(Engine):
    """Gibbs sampling: draw each block of parameters from its conditional distribution given all others.

    Parameters
    ----------
    warmup : int
        Sweeps that are thrown away at the beginning. A sweep draws every block once.
    draws, chains : int
        The number of draws that each chain keeps, and the number of independent chains.
    thin : int
        Sweeps for each kept draw.
    jitter : float
        How far chains start from `init`, in unconstrained coordinates. Each chain starts from a copy of
        `init` that is rotated or relabelled at random. With 0, every chain starts at `init` itself.
    pairs : int
        With more than 0, a kept sweep gives several draws. Each block of normal rows (a factor) is drawn
        2 x `pairs` times from its conditional, in pairs m + e and m - e about the conditional mean m, while
        all other parameters stay. Averages over these draws are exact conditional means (Rao-Blackwell), so
        that few sweeps give smooth predictions. A method without normal rows ignores this option.
    over : float
        Overrelaxation of blocks of normal rows, from 0 to below 1 (Adler 1981; Neal 1998): a block moves from
        x to m - over (x - m) + sqrt(1 - over^2) e. The posterior stays the same, and slow chains explore it
        faster.
    folder : str, optional
        Write the draws to this folder during the run, so that they are never all in memory, and a checkpoint
        every `save_every` seconds. If the run is killed, the same call continues it, to the same draws.
    shares : bool
        Divide the rows of both factors among all devices of this process, or of all processes that
        `jax.distributed.initialize` has joined. The draws are the same up to rounding. A run may be resumed
        with another number of processes. See "When one machine is not enough".
    """

    warmup: int = 500
    draws: int = 500
    chains: int = 4
    thin: int = 1
    jitter: float = 0.1
    pairs: int = 0
    over: float = 0.0
    folder: str | None = None
    save_every: float = SAVE_EVERY
    shares: bool = False

    def __post_init__(self) -> None:
        check_settings(self, warmup=0, draws=1, chains=1, thin=1, pairs=0)
        require(0 <= self.over < 1, f"Expected Gibbs(over=...) in [0, 1), got {self.over!r}")
        require(self.jitter >= 0, f"Expected Gibbs(jitter=...) of at least 0, got {self.jitter!r}")

    def run(self, job: Job, past: tuple[int, Any] | None = None) -> Result:
        """Run all chains in one compiled program, which returns about every half second.

        With `past`, which is `Result.last` of a shorter run, the chains continue from there.
        """
        place = (Together if self.shares else Alone)(job, self.folder, program)
        done, p = past or (0, self.starts(job))
        each = draws_of_a_sweep(job, jax.tree.map(lambda x: x[0], p), self.pairs)
        one = sum(x.nbytes for x in jax.tree.leaves(p))
        # a power of two, so that one program serves runs of several lengths
        size = max(1, min(1 << (self.draws - 1).bit_length(), BUFFER // max(1, each * one)))
        writer = Writer(self.folder, (self.chains, each * self.draws), place.idle, one)
        lp = np.full((self.chains, each * self.draws), np.nan)
        point = Checkpoint(self.folder, job.identity, self.save_every, place.idle)
        total = self.warmup + self.draws * self.thin
        if saved := point.load():
            done, lp = int(saved.pop("done")), saved.pop("lp")
            p = replace_sites(p, saved)
            writer.check(sites(p) if done > self.warmup else ())
        settings = job.method, job.hyper, size, self.pairs, self.over
        block, p, data, walks = place.program(_block, settings, p, self._walks(job), done)
        arrays = lambda: {"done": done, "lp": lp, **sites(p)}  # noqa: E731
        with Run(job, done, total, point, arrays, place) as run:
            while done < total:
                first = (done - self.warmup) // self.thin * each
                if done < self.warmup:  # many sweeps, of which the program keeps the last
                    count, sweeps = 1, min(run.pace(), self.warmup - done)
                else:
                    count, sweeps = min(size, run.pace(), self.draws - first // each), self.thin
                p, draws, values = block(p, data, walks, done, count, sweeps)
                # on the host: JAX would compile a slice for every new count
                kept = {site: np.asarray(x)[:, :count] for site, x in draws.items()}
                _check(kept, done, sweeps)
                if done >= self.warmup:
                    _write(writer, first, kept)
                    of_each = np.repeat(np.asarray(values)[:, :count], each, 1)
                    lp[:, first : first + count * each] = of_each
                done += count * sweeps
                run.made(count * sweeps)
        length = (done - self.warmup) // self.thin * each
        notes, draws = run.notes(self.chains, length), writer.view(self.chains, length)
        stats, last = {"lp": lp[:, :length]}, None if run.interrupted else (total, p)
        trace = -stats["lp"].ravel()
        return Result(None, draws, trace, None, stats, notes, run.interrupted, last=last)

    def starts(self, job: Job) -> Any:
        """The first Params of all chains."""
        keys = enumerate(self._keys(job))
        starts = [self._start(job.of_chain(c, self.chains), key) for c, (key, _) in keys]
        return jax.tree.map(lambda *each: np.stack(each), *starts)

    def _walks(self, job: Job) -> jax.Array:
        """The random keys of the sweeps of all chains."""
        return jnp.stack([walk for _, walk in self._keys(job)])

    def _keys(self, job: Job) -> list[jax.Array]:
        """Two random keys for each chain, of its start and of its sweeps."""
        return [jax.random.split(jax.random.fold_in(job.key, c)) for c in range(self.chains)]

    def _start(self, job: Job, key: jax.Array) -> Any:
        p = job.start_point(key)
        if job.start and self.jitter:
            return scattered(job.method, job.data, job.hyper, p, key, self.jitter)
        return p


def _write(writer: Writer, first: int, kept: dict[str, np.ndarray]) -> None:
    """Write the draws of all chains, from number `first` on."""
    for chain in range(len(next(iter(kept.values())))):
        rows = {site: x[chain].reshape(-1, *x.shape[3:]) for site, x in kept.items()}
        writer.write(chain, first, rows)


def _check(draws: dict[str, np.ndarray], done: int, sweeps: int) -> None:
    """Raise an error for NaN or infinity in a draw; the error names the parameter and the sweep."""
    for site, values in draws.items():
        flat = values.reshape(*values.shape[:2], -1)
        if not np.isfinite(flat).all():
            draw, chain = np.argwhere(~np.isfinite(flat).all(-1).T)[0]
            where = f"in chain {chain}, sweep {done + (draw + 1) * sweeps}"
            what = f"NaN or infinity in {site} {where}"
            raise NumericalError(f"Expected finite parameters, got {what}")


def _block(
    method: Method,
    hyper: Any,
    size: int,
    pairs: int,
    over: float,
    p: Any,
    data: Any,
    walks: jax.Array,
    done: Any,
    count: Any,
    sweeps: Any,
) -> tuple[Any, dict[str, jax.Array], jax.Array]:
    """Keep `count` states of all chains, each after so many sweeps; `done` sweeps were made before.

    Returns Params of all chains; draws (chain, size, draws of a state, ...); and the log joint of each state.
    The first `count` entries are filled.
    """

    def step(p: Any, number: jax.Array) -> Any:
        now, key = fresh(data, p), lambda walk: jax.random.fold_in(walk, number)
        return jax.vmap(lambda p, walk: sweep(method, hyper, p, now, key(walk), over))(p, walks)

    def log_joints(p: Any) -> jax.Array:
        now = seen(fresh(data, p))
        return jax.vmap(lambda p: -method.objective(p, now, hyper))(p)

    def keep(draw: jax.Array, state: Any) -> Any:
        p, draws, lp = state
        first = done + draw * sweeps
        p = jax.lax.fori_loop(0, sweeps, lambda s, p: step(p, first + s), p)
        new = told(p, first + sweeps)
        draws = {site: draws[site].at[:, draw].set(x) for site, x in new.items()}
        return p, draws, lp.at[:, draw].set(log_joints(p))

    def told(p: Any, number: jax.Array) -> dict[str, jax.Array]:
        key = lambda walk: jax.random.fold_in(jax.random.fold_in(walk, number), SPREAD)  # noqa: E731
        return jax.vmap(lambda p, walk: spread(method, hyper, p, data, key(walk), pairs))(p, walks)

    like = jax.eval_shape(lambda p: told(p, done), p)
    room = {s: jnp.zeros((len(x), size, *x.shape[1:]), x.dtype) for s, x in like.items()}
    lp = jnp.zeros((len(walks), size), jax.eval_shape(log_joints, p).dtype)
    return jax.lax.fori_loop(0, count, keep, (p, room, lp))


def continued(
    job: Job, p: Any, walks: jax.Array, warmup: int, draws: int, pairs: int
) -> dict[str, np.ndarray]:
    """{site: (chain, draw, ...)} of each sweep of chains from `p`; `warmup` sweeps before are dropped."""
    block = program(_block, job.data, job.method, job.hyper, draws, pairs, 0.0)
    p = block(p, job.data, walks, 0, 1, warmup)[0]
    new = block(p, job.data, walks, warmup, draws, 1)[1]
    return {site: np.asarray(x).reshape(len(walks), -1, *x.shape[3:]) for site, x in new.items()}


def draws_of_a_sweep(job: Job, p: Any, pairs: int) -> int:
    """How many draws a kept sweep gives."""
    one = lambda p, data: spread(job.method, job.hyper, p, data, job.key, pairs)  # noqa: E731
    return len(next(iter(jax.eval_shape(one, p, job.data).values())))


def spread(
    method: Method, hyper: Any, p: Any, data: Any, key: jax.Array, pairs: int
) -> dict[str, jax.Array]:
    """{site: (draws, ...)}: the state of a chain. With `pairs`, blocks of normal rows have balanced draws,
    and all other sites keep their state."""
    state, found = sites(p), []
    auxiliary = _auxiliary(method, hyper, p, data, key)
    for number, (site, law) in enumerate(laws_of(method, p).items() if pairs else ()):
        rows = law(p, _for(site, method, data), hyper, *auxiliary(site))
        if isinstance(rows, NormalRows):
            new = rows.balanced(jax.random.fold_in(key, number), pairs)
            alike = {s: jnp.broadcast_to(x, (2 * pairs, *x.shape)) for s, x in state.items()}
            found.append(alike | {site: new.astype(state[site].dtype)})
    if not found:
        return {site: x[None] for site, x in state.items()}
    return {site: jnp.concatenate([each[site] for each in found]) for site in state}


def sweep(
    method: Method,
    hyper: Any,
    p: Any,
    data: Any,
    key: jax.Array,
    over: float = 0.0,
    only: tuple[str, ...] | None = None,
) -> Any:
    """Draw all blocks of one chain once, in the order in which the method lists them, then make its moves.

    With `only`, only these sites change, and only `Method.row_moves` are made.
    """
    laws, auxiliary = laws_of(method, p), _auxiliary(method, hyper, p, data, key)
    for number, (site, law) in enumerate(laws.items()):
        if only is not None and site not in only:
            continue
        conditional = law(p, _for(site, method, data), hyper, *auxiliary(site))
        own = jax.random.fold_in(key, number)
        if over and isinstance(conditional, NormalRows):
            new = conditional.beyond(own, sites(p)[site], over)
        else:
            new = conditional.sample(own)
        p = replace_sites(p, {site: new})
    for number, (name, move) in enumerate(method.gibbs.moves.items(), len(laws)):
        if only is None:
            p = move(jax.random.fold_in(key, number), p, seen(data), hyper)
        elif name in (method.gibbs.row_moves(hyper) or ()):
            moved = sites(move(jax.random.fold_in(key, number), p, data, hyper))
            p = replace_sites(p, {site: moved[site] for site in only})
    return p


def _auxiliary(
    method: Method, hyper: Any, p: Any, data: Any, key: jax.Array
) -> Callable[[str], tuple]:
    """The auxiliary variables at p, in the form that the conditional of a site takes.

    If the data are divided among devices, the variables of a cell are drawn twice from the same random
    numbers: with the cells of its row, and with the cells of its column.
    """
    drawn: dict[int, Any] = {}

    def of(site: str) -> tuple:
        if method.gibbs.augment is None:
            return ()
        own = _for(site, method, data)
        if id(own) not in drawn:
            drawn[id(own)] = method.gibbs.augment(p, own, hyper).sample(key)
        return (drawn[id(own)],)

    return of


def _for(site: str, method: Method, data: Any) -> Any:
    """The data that the conditional of a site takes: if they are divided, the cells of its rows."""
    if not isinstance(data, Divided):
        return data
    return seen(data, next(iter(site_dims(method, site)), ""))
