"""Every step of a Gibbs sweep leaves the joint distribution of parameters and data as it is.

Parameters are drawn from the prior, and data from the model: together they are an exact draw of the joint.
Then one step is made: the draw of a block, or a move, several times. A step that is right does not change
the law of the parameters, so for each statistic the mean of its changes is zero up to its standard error.
A mistake in a conditional, in how its law is drawn, in a Jacobian or in what is accepted shows as a mean that
is not. Geweke (JASA 2004) tests whole chains in this way.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayesfac.core.method import Method, Sampler, laws_of, sites
from bayesfac.inference.gibbs import sweep
from bayesfac.inference.joint import log_weight, obstacle, prior_draw, redrawn
from bayesfac.inference.unconstrained import sites_of_model
from bayesfac.testing.tools import example, listed, require

CHAINS = 1024  # of a round
POOL = 8  # draws of the prior for each chain, where they have weights
TIMES = 12  # how often a move is made: small changes in a wrong direction add up
SUSPECT, ROUNDS = 3.2, 8  # standard errors that call for another round, unless they leave no doubt
LIMIT = 4.8  # standard errors: of 300 means of right steps, one in 2,000 checks has a larger one
FEWEST = 100  # different draws of the prior in a round


@listed
def check_moves(method: Method, key: jax.Array) -> str | None:
    """Every draw and every move of a sweep leaves the joint invariant, and changes some parameter."""
    if not method.gibbs.conditionals and not method.gibbs.moves:
        return method.notes.traits.get("no_gibbs", "the method declares no conditionals")
    case = example(method, key)
    if reason := obstacle(method, case.data, case.hyper):
        return reason
    joint, idle = Joint(method, case.data, case.hyper, key), list[str]()
    if (different := len(set(joint.round(0).group))) < FEWEST:
        return f"of {POOL * CHAINS} draws of the prior, {different} have weight in the joint"
    for name, step in steps(method, case.hyper, case.start):
        worst, what, draws = standing_out(joint, step, name)
        by = f"by {worst:.1f} standard errors of {draws} draws of the joint"
        require(worst < LIMIT, f"{name} changes the mean of {what} {by}")
        if worst == 0:
            idle.append(name)
    return f"on this example, nothing changes by {', '.join(idle)}" if idle else None


def standing_out(joint: "Joint", step: Callable[..., Any], name: str) -> tuple[float, str, int]:
    """The statistic whose mean changes most in standard errors, which one it is, and of how many draws.

    Rounds follow one another until the answer is clear.
    """
    program = jax.jit(jax.vmap(step))
    changes: dict[str, list[np.ndarray]] = {}
    for number in range(ROUNDS):
        start = joint.round(number)
        after = joint.look(program(start.p, start.data, start.walks), start.data)
        for what, before in start.before.items():
            own = change(before, after[what], start.group, f"{what} after {name}")
            changes.setdefault(what, []).append(own)
        worst, what = max((in_errors(parts), what) for what, parts in changes.items())
        if not SUSPECT < worst < 2 * LIMIT:
            break
    return worst, what, CHAINS * (number + 1)


def steps(method: Method, hyper: Any, p: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """(name, step(params, data, key)) of each block and each move, as `sweep` makes them."""
    for site in laws_of(method, p):
        yield (
            f"the draw of {site}",
            lambda p, data, key, s=site: sweep(
                replace(method, gibbs=method.gibbs._replace(moves={})),
                hyper,
                p,
                data,
                key,
                only=(s,),
            ),
        )
    for name, move in method.gibbs.moves.items():
        alone = replace(method, gibbs=Sampler(moves={name: move}))

        def often(p: Any, data: Any, key: jax.Array, alone: Method = alone) -> Any:
            once = lambda time, p: sweep(alone, hyper, p, data, jax.random.fold_in(key, time))  # noqa: E731
            return jax.lax.fori_loop(0, TIMES, once, p)

        yield f"move {name}", often


class Round(NamedTuple):
    """Draws of the joint: Params and data of all chains, the draw of the prior that each chain has, keys of
    the steps, and the statistics."""

    p: Any
    data: Any
    group: np.ndarray
    walks: jax.Array
    before: dict[str, jax.Array]


class Joint:
    """Exact draws of parameters and data, round by round, from programs that are compiled once."""

    def __init__(self, method: Method, data: Any, hyper: Any, key: jax.Array) -> None:
        def weighed(key: jax.Array) -> tuple[Any, jax.Array]:
            p = prior_draw(method, data, hyper, key)
            return p, log_weight(method, p, data, hyper)

        self.weighed = jax.jit(jax.vmap(weighed))
        self.redrawn = jax.jit(jax.vmap(lambda p, key: redrawn(method, data, hyper, p, key)))
        self.look = jax.jit(jax.vmap(lambda p, data: statistics(method, p, data, hyper)))
        self.keys, self.rounds = jax.random.split(key, ROUNDS), list[Round]()

    def round(self, number: int) -> Round:
        """The round of this number; all steps begin at the same draws."""
        if number == len(self.rounds):
            self.rounds.append(self._drawn(self.keys[number]))
        return self.rounds[number]

    def _drawn(self, key: jax.Array) -> Round:
        """Where the likelihood or a factor is no density, draws of the prior have weights, and a draw of
        large weight begins several chains, each with data of its own."""
        prior, values, walk = jax.random.split(key, 3)
        p, logs = self.weighed(jax.random.split(prior, CHAINS))
        group = np.arange(CHAINS)
        if np.ptp(logs) > 1e-9:
            more = [self.weighed(keys) for keys in jax.random.split(prior, (POOL, CHAINS))]
            p, logs = jax.tree.map(lambda *x: jnp.concatenate(x), *more)
            share = np.exp(logs - np.max(logs))
            evenly = (np.arange(CHAINS) + 0.5) / CHAINS
            at = np.searchsorted(np.cumsum(share) / share.sum(), evenly)
            p, group = jax.tree.map(lambda x: x[at], p), np.unique(at, return_inverse=True)[1]
        data = self.redrawn(p, jax.random.split(values, CHAINS))
        return Round(p, data, group, jax.random.split(walk, CHAINS), self.look(p, data))


def statistics(method: Method, p: Any, data: Any, hyper: Any) -> dict[str, jax.Array]:
    """Numbers that depend on every site, on sites together, and on the data."""
    laws = sites_of_model(method, data, hyper, p).items()
    found = {f"the density of {name}": jnp.sum(s["fn"].log_prob(s["value"])) for name, s in laws}
    for site, value in sites(p).items():
        x = jnp.ravel(value)
        found |= {f"{site}": jnp.mean(x), f"the first of {site}": x[0], f"{site}^2": jnp.mean(x**2)}
        found[f"neighbours in {site}"] = jnp.mean(x[1:] * x[:-1]) if len(x) > 1 else x[0]
    return found


def change(before: Any, after: Any, group: np.ndarray, what: str) -> np.ndarray:
    """The change of a statistic, squashed to a bounded number, summed over the chains of one group."""
    before, after = np.asarray(before), np.asarray(after)
    bad = ~np.isfinite(before) | ~np.isfinite(after)
    require(not bad.any(), f"{what} is not finite in {bad.sum()} of {len(bad)} chains")
    low, middle, high = np.quantile(before, (0.1, 0.5, 0.9))
    if high - low <= 1e-9 * (
        1 + abs(middle)
    ):  # as the mean of shares, which differ by rounding alone
        return np.zeros(group.max() + 1)
    squash = lambda x: np.tanh((x - middle) / (high - low))  # noqa: E731
    return np.bincount(group, squash(after) - squash(before))


def in_errors(parts: list[np.ndarray]) -> float:
    """The mean of these numbers in standard errors."""
    x = np.concatenate(parts)
    return abs(x.sum()) / max(np.sqrt((x**2).sum()), 1e-300)
