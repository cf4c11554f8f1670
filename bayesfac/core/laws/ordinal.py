"""Ordinal scales: codes of levels, thresholds between them, and distributions over them."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints
from scipy.special import ndtri

from bayesfac.core import checks
from bayesfac.core.data.cells import Grid, Known, Query
from bayesfac.core.data.reading import halfway
from bayesfac.core.math import apart, uniforms, uniforms_at

POINTS = 256  # the number of points in averages over the prior of a new user or item
TOGETHER = 8  # cells with a new user or item that are averaged at a time, with padding


def levelled(data: Any, hyper: Any, name: str) -> Any:
    """Check the ratings and settings of the ordinal method `name`; return Hyper with the data's levels."""
    if data.levels is None:
        raise ValueError(
            f"Expected ordinal ratings for {name}, got real values: write Ratings(..., levels=5), or list "
            "the levels (half stars: levels=np.arange(0.5, 5.5, 0.5))"
        )
    if hyper.levels is not None and tuple(hyper.levels) != data.levels:
        raise ValueError(
            f"Expected the levels of the data, {data.levels}, got levels={hyper.levels}"
        )
    if (least := data.value.min()) == data.value.max():
        raise ValueError(
            f"Expected ratings of at least two levels for {name}, got {least:g} everywhere: "
            "data that only record what a user chose (implicit feedback) do not rank the items; see bf.Counts"
        )
    checks.count(hyper, "n_components", min(data.shape), "the smaller of users and items")
    return hyper._replace(levels=data.levels)


def codes(data: Any) -> jax.Array:
    """The level of each observed cell, as a number counted from 0."""
    return level_codes(data.y, data.levels)


@partial(jax.jit, static_argnums=1)
def level_codes(y: jax.Array, levels: tuple[float, ...]) -> jax.Array:
    """The number of the level that each y equals, counted from 0."""
    # there are few levels, so counting those below y is faster than a search
    return jnp.sum(y[..., None] > jnp.asarray(halfway(levels), y.dtype), -1, dtype=jnp.int32)


def centres(n_levels: int) -> np.ndarray:
    """The prior means of the R - 1 thresholds: one apart, symmetric about zero."""
    return np.arange(1, n_levels) - n_levels / 2


def of_users_at(table: jax.Array, query: Query | Grid, new: Any) -> jax.Array:
    """The row of the user of every cell in `query`; a user without training data has `new`."""
    if isinstance(query, Grid):
        return table[query.row, None, :]
    known = jnp.asarray(query.row)[:, None] >= 0
    return jnp.where(known, jnp.asarray(table)[query.row], jnp.asarray(new, table.dtype))


def edges(theta: jax.Array) -> jax.Array:
    """The thresholds with -inf before and inf after them; level c is between entries c and c + 1."""
    ends = jnp.full((*theta.shape[:-1], 1), jnp.inf, theta.dtype)
    return jnp.concatenate([-ends, theta, ends], -1)


class Levels(dist.Distribution):
    """A categorical distribution over the levels of a scale, P proportional to exp(score).

    `choice` is the code of the level that the method's own rule predicts; by default the median.
    """

    arg_constraints: dict[str, Any] = {}
    support = constraints.real
    pytree_data_fields: tuple[str, ...] = ("log_p", "chosen")
    pytree_aux_fields = ("values",)

    def __init__(self, values: tuple[float, ...], score: jax.Array, choice: Any = None) -> None:
        self.values, self.log_p, self.chosen = values, jax.nn.log_softmax(score, -1), choice
        super().__init__(score.shape[:-1], ())

    @property
    def probs(self) -> jax.Array:
        return jnp.exp(self.log_p)

    @property
    def scale(self) -> jax.Array:
        return jnp.asarray(self.values, self.log_p.dtype)

    @property
    def choice(self) -> jax.Array:
        if self.chosen is not None:
            return self.chosen
        return jnp.sum(jnp.cumsum(self.probs, -1)[..., :-1] < 0.5, -1)

    @property
    def mean(self) -> jax.Array:
        return self.probs @ self.scale

    @property
    def variance(self) -> jax.Array:
        # centred at the mean: with squares of levels far from zero, the difference would lose all digits
        return jnp.sum(self.probs * (self.scale - self.mean[..., None]) ** 2, -1)

    def log_prob(self, value: jax.Array) -> jax.Array:
        hit = jnp.expand_dims(value, -1) == self.scale
        return jnp.where(hit.any(-1), jnp.sum(jnp.where(hit, self.log_p, 0), -1), -jnp.inf)

    def cdf(self, value: jax.Array) -> jax.Array:
        return jnp.sum(jnp.where(self.scale <= jnp.expand_dims(value, -1), self.probs, 0), -1)

    def below(self, value: jax.Array) -> jax.Array:
        """The probability strictly below `value`; a randomised PIT is uniform between this and `cdf`."""
        return jnp.sum(jnp.where(self.scale < jnp.expand_dims(value, -1), self.probs, 0), -1)

    def icdf(self, q: jax.Array) -> jax.Array:
        steps = jnp.cumsum(self.probs, -1)[..., :-1]
        return self.scale[jnp.sum(steps < jnp.expand_dims(q, -1), -1)]

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        shape = (*sample_shape, *self.batch_shape)
        return self.scale[jax.random.categorical(key, self.log_p, shape=shape)]


@partial(jax.jit, static_argnums=2)
def log_between(low: jax.Array, high: jax.Array, link: str) -> jax.Array:
    """log(F(high) - F(low)) for low < high, where either may be infinite.

    The difference is computed where F is below one half, by F(x) = 1 - F(-x), which avoids cancellation.
    """
    log_cdf = jax.scipy.special.log_ndtr if link == "probit" else jax.nn.log_sigmoid
    open_low, open_high = jnp.isneginf(low), jnp.isposinf(high)
    low, high = jnp.where(open_low, high - 1, low), jnp.where(open_high, low + 1, high)
    flip = jnp.where(open_low, False, open_high | (low + high > 0))
    near, far = jnp.where(flip, -low, high), jnp.where(flip, -high, low)
    top = log_cdf(near)
    gap = jnp.log1p(-jnp.exp(jnp.minimum(log_cdf(far) - top, -jnp.finfo(top.dtype).eps)))
    return top + jnp.where(open_low | open_high, 0, gap)


class Between(dist.Distribution):
    """A normal with mean x and sd 1 truncated to (low, high): the latent value of an ordinal level.

    With `cells`, each random number depends only on the row and the column of its cell. So a device that has
    some of the cells draws the same numbers for them as a device with all cells.
    """

    arg_constraints: dict[str, Any] = {}
    support = constraints.real
    pytree_data_fields = ("x", "low", "high", "cells")

    def __init__(self, x: jax.Array, low: jax.Array, high: jax.Array, cells: Any = None) -> None:
        self.x, self.low, self.high, self.cells = x, low, high, cells
        super().__init__(x.shape, ())

    def log_prob(self, value: jax.Array) -> jax.Array:
        inside = (self.low < value) & (value < self.high)
        whole = log_between(self.low - self.x, self.high - self.x, "probit")
        return jnp.where(inside, dist.Normal(self.x, 1).log_prob(value) - whole, -jnp.inf)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Sample by the inverse distribution function, evaluated in the tail where it is exact."""
        ndtr, a, b = jax.scipy.special.ndtr, self.low - self.x, self.high - self.x
        flip = a + b > 0  # if both ends are infinite, a + b is NaN and nothing is flipped
        low, high = jnp.where(flip, -b, a), jnp.where(flip, -a, b)
        if sample_shape or self.cells is None:
            u = uniforms(key, (*sample_shape, *self.x.shape), self.x.dtype)
        else:
            u = uniforms_at(key, self.cells.row, self.cells.col, self.x.dtype)
        part = ndtr(low) + u * (ndtr(high) - ndtr(low))
        tiny = jnp.finfo(part.dtype).tiny
        z = jnp.clip(jax.scipy.special.ndtri(jnp.maximum(part, tiny)), low, high)
        return self.x + jnp.where(flip, -z, z)


@lru_cache
def points(dim: int) -> np.ndarray:
    """POINTS standard normal points that fill `dim` dimensions evenly (Sobol); each column has the same
    quantiles, so that a function of one coordinate is integrated by the midpoint rule."""
    from scipy.stats import qmc  # imported here, because it is slow and only new rows need it

    even = qmc.Sobol(dim, scramble=False).random_base2(int(np.log2(POINTS))) + 0.5 / POINTS
    return ndtri(even)


def averaged(
    law: Callable[[Any], tuple[Levels, Callable[[jax.Array], Levels]]],
    dim: int,
    query: Query | Grid,
    choice: Any = None,
) -> Levels:
    """The levels of all cells: those of a new user or item are averaged over the prior.

    `law(cells)` returns the levels of cells whose user and item are known, and a function that returns the
    levels for a draw of new users and items, given a standard normal point with `dim` coordinates. The
    average over such points takes hundreds of times as long. So new cells are computed separately,
    `TOGETHER` of them at a time. Known cells have `choice`; for new cells the choice is the median of the
    average.
    """
    exact, _ = law(query)
    choice = exact.choice if choice is None else choice
    if isinstance(query, Grid | Known):
        return Levels(exact.values, exact.log_p, choice)
    # Cells of training have no features.
    features = [getattr(query, side, None) for side in ("user", "item")]
    row, col = jnp.asarray(query.row), jnp.asarray(query.col)
    new = (row < 0) | (col < 0)
    every = jnp.asarray(points(dim), exact.log_p.dtype)

    def average(at: jax.Array) -> jax.Array:
        _, levels = law(Query(row[at], col[at], *features))
        return jnp.log(jnp.mean(jax.vmap(lambda point: levels(point).probs)(every), 0))

    log_p = apart(new, average, exact.log_p, TOGETHER)
    choice = jnp.where(new, Levels(exact.values, log_p).choice, choice)
    return Levels(exact.values, log_p, choice)
