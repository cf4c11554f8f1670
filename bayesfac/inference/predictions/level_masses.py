"""Probabilities of the levels of a scale, summed over draws, one draw at a time."""

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from bayesfac.core.data.cells import Query
from bayesfac.core.errors import BayesfacError
from bayesfac.core.laws.ordinal import Levels, log_between
from bayesfac.core.method import Method

CELLS = 2**13  # cells at a time, so that one draw's results stay in the processor's cache


class Tally(NamedTuple):
    """Cells by levels, over all draws: log mass, and how many draws predict the level."""

    log_mass: Any
    votes: Any

    @property
    def median(self) -> np.ndarray:
        """The code of the first level at which half of the votes are reached."""
        below = np.cumsum(self.votes, 1)[:, :-1]
        return (2 * below < self.votes.sum(1, keepdims=True)).sum(1)

    def scores(self, levels: tuple[float, ...], code: np.ndarray) -> dict[str, np.ndarray]:
        """Log mass of the true level, and the ranked probability score, of each cell."""
        gaps, below = np.diff(levels), np.cumsum(np.exp(self.log_mass), 1)[:, :-1]
        true = code[:, None] <= np.arange(len(gaps))
        own = np.take_along_axis(self.log_mass, code[:, None], 1)[:, 0]
        return {"ordinal_log_score": own, "rps": (below - true) ** 2 @ gaps}


def tally(
    method: Method, hyper: Any, levels: tuple[float, ...], blocks: Iterable[Any], query: Query
) -> Tally:
    """The tally of the cells over blocks of draws; only sums are kept."""
    shape = (len(query.row), len(levels))
    seen = Tally(np.full(shape, -np.inf), np.zeros(shape))
    for params in blocks:
        seen = jax.block_until_ready(_add(method, hyper, levels, params, query, seen))
    log_mass, votes = (np.asarray(part, np.float64) for part in seen)
    return Tally(log_mass - np.logaddexp.reduce(log_mass, axis=1, keepdims=True), votes)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _add(
    method: Method, hyper: Any, levels: tuple[float, ...], params: Any, query: Query, seen: Tally
) -> Tally:
    def one(before: Tally, p: Any) -> tuple[Tally, None]:
        outcome = method.predict(p, query, hyper)
        vote = jax.nn.one_hot(choice(outcome, levels), len(levels), dtype=before.votes.dtype)
        mass = log_masses(outcome, levels).astype(before.log_mass.dtype)
        return Tally(jnp.logaddexp(before.log_mass, mass), before.votes + vote), None

    return jax.lax.scan(one, jax.tree.map(jnp.asarray, seen), params)[0]


def log_masses(outcome: dist.Distribution, levels: tuple[float, ...]) -> jax.Array:
    """Log mass of every level, on the last axis. A continuous outcome is cut at the midpoints between
    neighbouring levels; the first and the last level get the tails."""
    if isinstance(outcome, Levels):
        return outcome.log_p
    if isinstance(outcome, dist.Normal):
        mean, sd = outcome.loc[..., None], outcome.scale[..., None]
        return _normal_mass(*((end - mean) / sd for end in _ends(levels)))
    if type(outcome).cdf is dist.Distribution.cdf:
        raise BayesfacError(
            f"Expected a law with a cdf, to give each level its mass, got {type(outcome).__name__}: "
            "let `predict` return a law that has one, or fit to Ratings without levels"
        )
    inner = jnp.stack([outcome.cdf(cut) for cut in midpoints(levels)], -1)
    return jnp.log(jnp.diff(inner, axis=-1, prepend=0, append=1))


def log_mass(outcome: dist.Distribution, levels: tuple[float, ...], code: jax.Array) -> jax.Array:
    """Log mass of one level for each outcome."""
    if isinstance(outcome, dist.Normal):  # the other levels, most of the work, are not needed
        ends = (jnp.asarray(end)[code] for end in _ends(levels))
        return _normal_mass(*((end - outcome.loc) / outcome.scale for end in ends))
    return jnp.take_along_axis(log_masses(outcome, levels), code[:, None], -1)[:, 0]


def _ends(levels: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The lower and the upper end of each level."""
    cuts = midpoints(levels)
    return np.append(-np.inf, cuts), np.append(cuts, np.inf)


def _normal_mass(low: jax.Array, high: jax.Array) -> jax.Array:
    """Log mass between two ends; by logarithms where the mass of a tail underflows to zero."""
    flip = low > -high  # on the side where the normal CDF is below one half nothing cancels
    near, far = jnp.where(flip, -low, high), jnp.where(flip, -high, low)
    mass = jax.scipy.special.ndtr(near) - jax.scipy.special.ndtr(far)
    exact = lambda: log_between(low, high, "probit")  # noqa: E731
    return jax.lax.cond(jnp.all(mass > 0), lambda: jnp.log(mass), exact)


def choice(outcome: dist.Distribution, levels: tuple[float, ...]) -> jax.Array:
    """The code of the level that the outcome's rule predicts; of a continuous one the nearest to its mean."""
    if isinstance(outcome, Levels):
        return outcome.choice
    return jnp.sum(outcome.mean[..., None] > midpoints(levels), -1)


def midpoints(levels: tuple[float, ...]) -> np.ndarray:
    """The midpoints between neighbouring levels."""
    scale = np.asarray(levels)
    return (scale[1:] + scale[:-1]) / 2


def codes(levels: tuple[float, ...], value: np.ndarray) -> np.ndarray:
    """The code of each outcome's level."""
    code = np.searchsorted(levels[:-1], value)
    wrong = np.flatnonzero(np.asarray(levels)[code] != value)
    if len(wrong):
        raise ValueError(
            f"Expected outcomes among the levels {levels}, "
            f"got {value[wrong[0]]:g} at position {wrong[0]}"
        )
    return code
