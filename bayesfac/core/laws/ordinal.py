"""Ordinal scales: codes of levels, thresholds between them, and distributions over them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints

from bayesfac.core import checks
from bayesfac.core.data.cells import Cells, Grid, Query
from bayesfac.core.errors import BayesfacError
from bayesfac.core.laws.losses import every_level, ordinal, proximal, proximal_centres

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(15)


def levelled(data: Any, hyper: Any, name: str) -> Any:
    """What every ordinal method asks of its data and settings; Hyper with `levels`, the data's scale."""
    if data.levels is None:
        raise ValueError(
            f"Expected ordinal ratings for {name}, got real values: say Ratings(..., levels=5), or list "
            "the levels (half stars: levels=np.arange(0.5, 5.5, 0.5))"
        )
    if hyper.levels is not None and tuple(hyper.levels) != data.levels:
        raise ValueError(
            f"Expected the levels of the data, {data.levels}, got levels={hyper.levels}"
        )
    if (data.value == data.value[0]).all():
        raise ValueError(
            f"Expected ratings of at least two levels for {name}, got {data.value[0]:g} everywhere: "
            "data that only say what was seen (implicit feedback) do not rank anything"
        )
    checks.count(hyper, "n_components", min(data.shape), "the smaller of users and items")
    return hyper._replace(levels=data.levels)


def codes(data: Any) -> jax.Array:
    """Which level each observed cell has, from 0."""
    return _codes(data.y, data.levels)


@partial(jax.jit, static_argnums=1)
def _codes(y: jax.Array, levels: tuple[float, ...]) -> jax.Array:
    # few levels: counting those below is faster than a search
    return jnp.sum(y[..., None] > jnp.asarray(levels[:-1], y.dtype), -1, dtype=jnp.int32)


def centres(n_levels: int) -> np.ndarray:
    """Where the R - 1 thresholds are expected: one apart, about zero."""
    return np.arange(1, n_levels) - n_levels / 2


def start_thresholds(n_levels: int, *shape: int) -> jax.Array:
    """All of them at the centres."""
    return jnp.tile(jnp.asarray(centres(n_levels)), (*shape, 1))


def thresholds_prior(n_levels: int, scale: float) -> dist.Distribution:
    """Normal about the centres; flat, so improper, where the scale is infinite."""
    if np.isinf(scale):
        return dist.ImproperUniform(constraints.real_vector, (), (n_levels - 1,))
    return dist.Normal(centres(n_levels), scale).to_event(1)


def threshold_energy(theta: jax.Array, scale: float) -> jax.Array | float:
    """Minus its log density, without constants."""
    if np.isinf(scale):
        return 0.0
    centre = jnp.asarray(centres(theta.shape[-1] + 1), theta.dtype)
    return 0.5 * jnp.sum(((theta - centre) / scale) ** 2)


def thresholds_at(theta: jax.Array, query: Query | Grid, new: Any = None) -> jax.Array:
    """The thresholds of every cell asked for; a user that training never saw has `new`, the centres."""
    if isinstance(query, Grid):
        return theta[query.row, None, :]
    new = centres(theta.shape[-1] + 1) if new is None else new
    known = jnp.asarray(query.row)[:, None] >= 0
    return jnp.where(known, theta[query.row], jnp.asarray(new, theta.dtype))


def edges(theta: jax.Array) -> jax.Array:
    """The thresholds with -inf before and inf after them: level c lies between c and c + 1."""
    ends = jnp.full((*theta.shape[:-1], 1), jnp.inf, theta.dtype)
    return jnp.concatenate([-ends, theta, ends], -1)


class Levels(dist.Distribution):
    """One of the levels of a scale, with P proportional to exp(score); what ordinal methods predict.

    `choice` is the code of the level that the method's own rule names; by default the median.
    """

    arg_constraints: dict[str, Any] = {}
    support = constraints.real
    pytree_data_fields = ("log_p", "chosen")
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
        return jnp.maximum(self.probs @ self.scale**2 - self.mean**2, 0)

    def log_prob(self, value: jax.Array) -> jax.Array:
        hit = jnp.expand_dims(value, -1) == self.scale
        return jnp.where(hit.any(-1), jnp.sum(jnp.where(hit, self.log_p, 0), -1), -jnp.inf)

    def cdf(self, value: jax.Array) -> jax.Array:
        return jnp.sum(jnp.where(self.scale <= jnp.expand_dims(value, -1), self.probs, 0), -1)

    def below(self, value: jax.Array) -> jax.Array:
        """The mass strictly under `value`: with `cdf`, the jump that a randomised PIT fills."""
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

    On the side where F is below one half nothing cancels: F(x) = 1 - F(-x) takes it there.
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
    """A normal of mean x and sd 1 within (low, high): the latent value behind an ordinal level."""

    arg_constraints: dict[str, Any] = {}
    support = constraints.real
    pytree_data_fields = ("x", "low", "high")

    def __init__(self, x: jax.Array, low: jax.Array, high: jax.Array) -> None:
        self.x, self.low, self.high = x, low, high
        super().__init__(x.shape, ())

    def log_prob(self, value: jax.Array) -> jax.Array:
        inside = (self.low < value) & (value < self.high)
        whole = log_between(self.low - self.x, self.high - self.x, "probit")
        return jnp.where(inside, dist.Normal(self.x, 1).log_prob(value) - whole, -jnp.inf)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """By the inverse distribution function, in the tail where that is exact."""
        ndtr, a, b = jax.scipy.special.ndtr, self.low - self.x, self.high - self.x
        flip = a + b > 0  # NaN where both ends are open: no
        low, high = jnp.where(flip, -b, a), jnp.where(flip, -a, b)
        u = jax.random.uniform(key, (*sample_shape, *self.x.shape), self.x.dtype)
        part = ndtr(low) + u * (ndtr(high) - ndtr(low))
        tiny = jnp.finfo(part.dtype).tiny
        z = jnp.clip(jax.scipy.special.ndtri(jnp.maximum(part, tiny)), low, high)
        return self.x + jnp.where(flip, -z, z)


class Margins(dist.Distribution):
    """The factor exp(-loss) of an ordinal loss: a generalised likelihood, as it does not sum to one
    over the levels. A sample is of the distribution that it is proportional to."""

    arg_constraints: dict[str, Any] = {}
    support = constraints.real
    pytree_data_fields = ("x", "theta")
    pytree_aux_fields = ("values", "loss", "immediate", "strength")

    def __init__(
        self,
        values: tuple[float, ...],
        x: jax.Array,
        theta: jax.Array,
        loss: str,
        immediate: bool = False,
        strength: float = 1.0,
    ) -> None:
        self.values, self.x, self.theta = values, x, theta
        self.loss, self.immediate, self.strength = loss, immediate, strength
        super().__init__(x.shape, ())

    def log_prob(self, value: jax.Array) -> jax.Array:
        code = _codes(value, self.values)
        return -self.strength * ordinal(self.x, self.theta, code, self.loss, self.immediate)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        return self.levels().sample(key, sample_shape)

    @property
    def scores(self) -> jax.Array:
        """log of the factor at each level, (..., R)."""
        return -self.strength * every_level(self.x, self.theta, self.loss, self.immediate)

    @property
    def log_mass(self) -> jax.Array:
        """log of what the factor sums to over the levels."""
        return jax.nn.logsumexp(self.scores, -1)

    def levels(self) -> Levels:
        """As a proper distribution over the levels, of which the thresholds below x name one."""
        choice = jnp.sum(jnp.expand_dims(self.x, -1) > self.theta, -1)
        return Levels(self.values, self.scores, choice)


class Product(dist.Distribution):
    """The product of several factors of the same rating: `each` has a leading axis of them, `weight`
    (the same shape, or None for one) says how often each counts."""

    arg_constraints: dict[str, Any] = {}
    support = constraints.real
    pytree_data_fields = ("each", "weight")

    def __init__(self, each: Margins, weight: jax.Array | None = None) -> None:
        self.each = each
        self.weight = jnp.ones_like(each.x) if weight is None else weight
        super().__init__(each.batch_shape[1:], ())

    def log_prob(self, value: jax.Array) -> jax.Array:
        return jnp.sum(self.weight * self.each.log_prob(value), 0)

    @property
    def scores(self) -> jax.Array:
        """log of the product at each level, (..., R)."""
        return jnp.sum(self.weight[..., None] * self.each.scores, 0)

    @property
    def log_mass(self) -> jax.Array:
        """log of what the product sums to over the levels."""
        return jax.nn.logsumexp(self.scores, -1)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        return Levels(self.each.values, self.scores).sample(key, sample_shape)


class Proximal(dist.Distribution):
    """The factor exp(-proximal loss) of all ratings at once, as each user's centres are means over
    theirs; there is no law of ratings to sample."""

    arg_constraints: dict[str, Any] = {}
    support = constraints.real_vector
    pytree_data_fields = ("x", "cells")
    pytree_aux_fields = ("values",)

    def __init__(self, values: tuple[float, ...], x: jax.Array, cells: Cells) -> None:
        self.values, self.x, self.cells = values, x, cells
        super().__init__((), x.shape)

    def log_prob(self, value: jax.Array) -> jax.Array:
        row, R = self.cells.row, len(self.values)
        code = _codes(value, self.values)
        theta, count = proximal_centres(self.x, code, row, (self.cells.shape[0], R))
        return -jnp.sum(proximal(self.x, theta[row], code, count[row] > 0))

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        raise BayesfacError(
            "pmmmf has no law of ratings: its centres are made of the ratings themselves"
        )


def blurred(
    known: Callable[[jax.Array], Levels], mean: jax.Array, variance: jax.Array, choice: Any = None
) -> Levels:
    """`known(x)` averaged over x ~ N(mean, variance), by quadrature.

    The variance is zero, and nothing is averaged, but where a label is asked for that training never saw:
    there a rule that looks at the mean of x knows nothing, and the median of the average is the choice.
    Several x for one cell (a last axis) are averaged over by one common standard normal.
    """
    exact = known(mean)
    choice = exact.choice if choice is None else choice
    if jnp.ndim(variance) < jnp.ndim(mean):  # a block of known users and items
        return Levels(exact.values, exact.log_p, choice)

    def average(_: None) -> jax.Array:
        nodes = jnp.reshape(jnp.asarray(NODES, mean.dtype), (-1,) + (1,) * mean.ndim)
        parts = jax.vmap(lambda x: known(x).probs)(mean + jnp.sqrt(variance) * nodes)
        return jnp.log(jnp.tensordot(jnp.asarray(WEIGHTS / WEIGHTS.sum(), mean.dtype), parts, 1))

    log_p = jax.lax.cond(jnp.any(variance > 0), average, lambda _: exact.log_p, None)
    new = variance > 0 if jnp.ndim(variance) == jnp.ndim(choice) else jnp.any(variance > 0, -1)
    return Levels(exact.values, log_p, jnp.where(new, Levels(exact.values, log_p).choice, choice))
