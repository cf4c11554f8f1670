"""Draw new rows of a finished fit from their conditional distribution; all other parameters stay.

Given all other parameters, a row is independent of all other rows. So the rows of new users, and new rows of
topic models without graphs, are drawn from the conditionals of their sites, as if they were the only rows.
This is done anew for each draw of a posterior. If a method has auxiliary variables, two sites for a row, or
rows of at least 0, each draw takes `SWEEPS` sweeps. The sweeps for a draw begin at the rows of the draw
before. Those for the first draw of a chain begin at the mean of the training rows, and are `FIRST` sweeps
more. `benchmarks/new_rows.py` compares the result with that of 64 sweeps.
"""

import warnings
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from bayesfac.core.errors import ConvergenceWarning, NumericalError
from bayesfac.core.laws.distributions import NormalRows, PositiveRows
from bayesfac.core.laws.normal_wishart import mode
from bayesfac.core.method import Method, from_sites, laws_of, site_dims, sites
from bayesfac.inference.gibbs import sweep
from bayesfac.inference.result import program, replace_sites

SWEEPS, FIRST = 8, 40
BUFFER = 256 * 2**20  # bytes of draws on the device
STEPS = 1000  # of the blocks of a point, at most

Sites = Mapping[str, np.ndarray]  # {site: (chain, draw, ...)}


def own_sites(method: Method, held: Sites, axis: str) -> tuple[str, ...]:
    """The sites with a row for each user, for each item, or for each row of views."""
    return tuple(site for site in held if axis in site_dims(method, site))


def drawable(method: Method, hyper: Any, held: Sites, axis: str) -> bool:
    """Whether conditionals, and moves of users' rows, can draw all sites of the axis."""
    moves = method.gibbs.row_moves(hyper)
    laws = laws_of(method, from_sites(method, held))
    lacking = [site for site in own_sites(method, held, axis) if site not in laws]
    return bool(laws) and moves is not None and (not lacking or (axis == "user" and bool(moves)))


def at_mean(method: Method, held: Sites, axis: str, count: int) -> dict[str, np.ndarray]:
    """{site: (chain, row, ...)}: `count` copies of the mean row of the first draw of each chain."""
    found = {}
    for site in own_sites(method, held, axis):
        at = 1 + site_dims(method, site).index(axis)
        found[site] = np.repeat(np.asarray(held[site][:, 0]).mean(at, keepdims=True), count, at)
    return found


def drawn(
    method: Method, hyper: Any, data: Any, held: Sites, axis: str, key: jax.Array
) -> dict[str, np.ndarray]:
    """{site: (chain, draw, ...)} of the rows of `data`, one draw of them for each draw of `held`."""
    count = data.n_rows if axis == "row" else data.shape[axis == "item"]
    rows: Any = at_mean(method, held, axis, count)
    others = {site: value for site, value in held.items() if site not in rows}
    chains, draws = next(iter(held.values())).shape[:2]
    begin = {site: x[0, 0] for site, x in others.items()} | {site: x[0] for site, x in rows.items()}
    laws = kinds(method, hyper, data, from_sites(method, begin), tuple(rows))
    exact = len(rows) == 1 and bool(laws) and all(getattr(law, "exact", True) for law in laws)
    one = sum(x[:, 0].nbytes for x in others.values()) + sum(x.nbytes for x in rows.values())
    size = -(-draws // -(-draws * one // BUFFER))
    block = program(_block, data, method, hyper, tuple(rows))
    walks = jax.random.split(key, chains)
    found = {site: np.empty((chains, draws, *x.shape[1:]), x.dtype) for site, x in rows.items()}
    for first in range(0, draws, size):
        # the last block is padded with the last draw, so that one program serves all
        at = np.minimum(np.arange(first, first + size), draws - 1)
        some = {site: jnp.asarray(np.asarray(x[:, at])) for site, x in others.items()}
        times = (1, 0) if exact else (SWEEPS, 0 if first else FIRST)
        rows, new = block(rows, some, data, walks, first, *times)
        for site, x in new.items():
            found[site][:, first : first + size] = np.asarray(x)[:, : draws - first]
    for site, x in found.items():
        if not np.isfinite(x).all():
            raise NumericalError(f"Expected finite new rows, got NaN or infinity in {site}")
    return found


def _block(
    method: Method,
    hyper: Any,
    own: tuple[str, ...],
    rows: Any,
    others: Any,
    data: Any,
    walks: jax.Array,
    first: Any,
    sweeps: Any,
    extra: Any,
) -> tuple[Any, Any]:
    """The rows of the last draw of a block, for each chain, and the rows of all its draws. The draws are
    numbered from `first`. Each draw takes `sweeps` sweeps, and the first one `extra` more."""

    def chain(rows: Any, others: Any, walk: jax.Array) -> tuple[Any, Any]:
        def swept(rows: Any, held: Any, key: jax.Array, times: Any) -> Any:
            def once(number: jax.Array, rows: Any) -> Any:
                p = from_sites(method, held | rows)
                new = sites(
                    sweep(method, hyper, p, data, jax.random.fold_in(key, number), only=own)
                )
                return {site: new[site] for site in own}

            return jax.lax.fori_loop(0, times, once, rows)

        def draw(rows: Any, at: Any) -> tuple[Any, Any]:
            number, held = at
            key = jax.random.fold_in(walk, number)
            times = sweeps + jnp.where(number == first, extra, 0)
            rows = swept(rows, held, key, times)
            return rows, rows

        count = len(next(iter(others.values())))
        return jax.lax.scan(draw, rows, (first + jnp.arange(count), others))

    return jax.vmap(chain)(rows, others, walks)


# -- points --------------------------------------------------------------------------------------------
def moded(method: Method, hyper: Any, data: Any, p: Any, own: tuple[str, ...]) -> bool:
    """Whether the rows have no auxiliary variables, and conditionals that are normal or cut normal, so that
    their joint mode is found by setting one after the other to its mode."""
    laws = kinds(method, hyper, data, p, own)
    return bool(laws) and all(
        isinstance(law, NormalRows | dist.Normal | PositiveRows) for law in laws
    )


def kinds(method: Method, hyper: Any, data: Any, p: Any, own: tuple[str, ...]) -> list[Any]:
    """The conditionals of these sites, without values; none if there are auxiliary variables, or sites
    without a conditional."""
    laws, found = laws_of(method, p), list[Any]()
    if method.gibbs.augment is not None or not set(own) <= set(laws):
        return found

    def look(p: Any, data: Any) -> int:
        for site in own:
            law = laws[site](p, data, hyper)
            found.append(law.base_dist if isinstance(law, dist.Independent) else law)
        return 0

    jax.eval_shape(look, p, data)
    return found


def at_modes(method: Method, hyper: Any, data: Any, p: Any, own: tuple[str, ...]) -> Any:
    """Params with rows at their joint mode: sites are set to their conditional modes in turn."""
    p, change = program(_at_modes, data, method, hyper, own)(p, data)
    if change > tolerance(p):
        message = f"new rows of {method.name}: more than {STEPS} steps are needed"
        warnings.warn(message, ConvergenceWarning, stacklevel=5)
    return p


def tolerance(p: Any) -> float:
    """The relative change below which the rows have converged."""
    return 32 * float(jnp.finfo(jax.tree.leaves(p)[0].dtype).eps)


def _at_modes(method: Method, hyper: Any, own: tuple[str, ...], p: Any, data: Any) -> Any:
    def step(state: Any) -> Any:
        old, _, count = state
        p = old
        for site, law in laws_of(method, p).items():
            if site in own:
                p = replace_sites(p, {site: mode(law(p, data, hyper))})
        before, after = sites(old), sites(p)
        moved = [
            jnp.max(jnp.abs(after[s] - before[s])) / (jnp.max(jnp.abs(after[s])) + 1e-30)
            for s in own
        ]
        return p, jnp.max(jnp.stack(moved)), count + 1

    def going(state: Any) -> jax.Array:
        return (state[1] > tolerance(p)) & (state[2] < STEPS)

    p, change, _ = jax.lax.while_loop(going, step, step((p, 0.0, 0)))
    return p, change
