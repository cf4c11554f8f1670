"""Probabilities of the levels of a scale, summed over draws, one draw at a time."""

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

MASSES = 2**16  # levels of all cells of a block: one draw's results stay in the processor's cache
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


class Masses(NamedTuple):
    """Sums over draws, levels by cells, so that vectors hold cells: the mass of every level, and the number
    of draws that predict a level above each level but the last."""

    mass: jax.Array
    above: jax.Array

    def plus(self, outcome: dist.Distribution, levels: tuple[float, ...]) -> "Masses":
        """The sums with one more draw."""
        return Masses(self.mass + masses(outcome, levels), self.above + above(outcome, levels))


def no_masses(levels: tuple[float, ...], cells: int) -> Masses:
    """The sums over no draws."""
    nothing = jnp.zeros((len(levels), cells))
    return Masses(nothing, nothing[1:])


def log_of_sums(
    mass: np.ndarray, method: Method, hyper: Any, levels: tuple[float, ...],
    params: Any, query: Query, draws: range,
) -> np.ndarray:  # fmt: skip
    """The log of masses summed over these draws, computed by logarithms if a mass may have underflowed."""
    if np.all(mass > LITTLE):
        return np.log(mass, dtype=float)
    some = jax.tree.map(lambda x: x[draws.start : draws.stop], params)
    return np.asarray(_log_sums(method, hyper, levels, some, query), float)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _log_sums(
    method: Method, hyper: Any, levels: tuple[float, ...], params: Any, query: Query
) -> jax.Array:
    def add(seen: jax.Array, p: Any) -> tuple[jax.Array, None]:
        return jnp.logaddexp(seen, log_masses(method.predict(p, query, hyper), levels).T), None

    nothing = jnp.full((len(levels), len(query.row)), -jnp.inf)
    return jax.lax.scan(add, nothing, params)[0]


def masses(outcome: dist.Distribution, levels: tuple[float, ...]) -> jax.Array:
    """The mass of every level (levels by cells), as in `log_masses`; below the smallest number it is zero."""
    if not isinstance(outcome, dist.Normal):
        return jnp.exp(log_masses(outcome, levels)).T

    cuts = jnp.asarray(midpoints(levels), outcome.mean.dtype)[:, None]
    z = (cuts - outcome.loc) / outcome.scale
    tail = 0.5 * jax.scipy.special.erfc(jnp.abs(z) * 0.5**0.5)
    high = z > 0
    below, over = jnp.where(high, 1 - tail, tail), jnp.where(high, tail, 1 - tail)
    # on the side of the mean where nothing cancels
    inner = jnp.where(high[:-1], over[:-1] - over[1:], below[1:] - below[:-1])
    return jnp.concatenate([below[:1], inner, over[-1:]])


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
