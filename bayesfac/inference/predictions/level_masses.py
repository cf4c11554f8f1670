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
LITTLE = 1e-25  # above this, a sum of probabilities has not changed by underflow


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
    log_mass, votes = np.full(shape, -np.inf), np.zeros(shape)
    # in parts that XLA runs side by side; all are awaited before the next block is read
    half = -(-shape[0] // 2)
    parts = [
        query._replace(row=query.row[at], col=query.col[at])
        for at in (slice(half), slice(half, None))
    ]
    for params in blocks:
        begun = [_tally(method, hyper, levels, params, part) for part in parts if len(part.row)]
        new = Tally(
            *(np.concatenate(part, 1).T for part in zip(*jax.device_get(begun), strict=True))
        )
        log_mass, votes = np.logaddexp(log_mass, new.log_mass), votes + new.votes
    return Tally(log_mass - np.logaddexp.reduce(log_mass, axis=1, keepdims=True), votes)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _tally(
    method: Method, hyper: Any, levels: tuple[float, ...], params: Any, query: Query
) -> Tally:
    """The log of the sum of masses over draws, and the votes; levels by cells, so that vectors hold cells."""

    def add(seen: tuple, p: Any) -> tuple[tuple, None]:
        outcome = method.predict(p, query, hyper)
        return (seen[0] + masses(outcome, levels), seen[1] + above(outcome, levels)), None

    def add_logs(seen: jax.Array, p: Any) -> tuple[jax.Array, None]:
        return jnp.logaddexp(seen, log_masses(method.predict(p, query, hyper), levels).T), None

    nothing = jnp.zeros((len(levels), len(query.row)))
    mass, higher = jax.lax.scan(add, (nothing, nothing[1:]), params)[0]
    exact = lambda: jax.lax.scan(add_logs, nothing - jnp.inf, params)[0]  # noqa: E731
    plain = jnp.all(mass > LITTLE)  # no level has lost a mass that counts to underflow
    draws = len(jax.tree.leaves(params)[0])
    votes = -jnp.diff(higher, axis=0, prepend=draws, append=0)
    return Tally(jax.lax.cond(plain, lambda: jnp.log(mass), exact), votes)


def masses(outcome: dist.Distribution, levels: tuple[float, ...]) -> jax.Array:
    """The mass of every level (levels by cells), as in `log_masses`; below the smallest number it is zero."""
    if not isinstance(outcome, dist.Normal):
        return jnp.exp(log_masses(outcome, levels)).T

    def add(lower: tuple, cut: jax.Array) -> tuple[tuple, jax.Array]:
        """The mass between two ends; of an end: whether it is above the mean, P(Y < end), P(Y > end)."""
        high, below, over = lower
        z = (cut - outcome.loc) / outcome.scale
        tail = 0.5 * jax.scipy.special.erfc(jnp.abs(z) * 0.5**0.5)
        upper = z > 0, jnp.where(z < 0, tail, 1 - tail), jnp.where(z < 0, 1 - tail, tail)
        # on the side of the mean where nothing cancels
        return upper, jnp.where(high, over - upper[2], upper[1] - below)

    none = jnp.zeros_like(outcome.mean)
    lowest, cuts = (none > 0, none, 1 - none), jnp.asarray(midpoints(levels), none.dtype)
    (high, below, over), found = jax.lax.scan(add, lowest, cuts)
    return jnp.concatenate([found, jnp.where(high, over, 1 - below)[None]])


def above(outcome: dist.Distribution, levels: tuple[float, ...]) -> jax.Array:
    """Whether the outcome's rule predicts a level above each level but the last (levels by cells)."""
    if isinstance(outcome, Levels):
        return outcome.choice > jnp.arange(len(levels) - 1)[:, None]
    return outcome.mean > midpoints(levels)[:, None]


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
            f"Expected a distribution with a cdf, which gives the probability of each level, got "
            f"{type(outcome).__name__}: let `predict` return one with a cdf, or fit to Ratings without levels"
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
    """The log probability between two ends; by logarithms if that of a tail underflows to zero."""
    flip = low > -high  # on the side where the normal CDF is below one half nothing cancels
    near, far = jnp.where(flip, -low, high), jnp.where(flip, -high, low)
    mass = jax.scipy.special.ndtr(near) - jax.scipy.special.ndtr(far)
    exact = lambda: log_between(low, high, "probit")  # noqa: E731
    return jax.lax.cond(jnp.all(mass > 0), lambda: jnp.log(mass), exact)


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
