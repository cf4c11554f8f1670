"""Code that the margin factorizations share: summed losses, priors of factors and thresholds, and laws.

J sums a margin loss over the observed cells. A law with density exp(-loss) does not sum to one over the
levels, so its posterior is a *generalised* one; `log_mass` is the log of that sum.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

from bayesfac.core import math
from bayesfac.core.data.cells import Cells, Grid, Query, Rows
from bayesfac.core.errors import BayesfacError
from bayesfac.core.kernels import sparse
from bayesfac.core.laws.losses import every_level, ordinal, proximal, proximal_centres
from bayesfac.core.laws.ordinal import Levels, averaged, centres, level_codes, thresholds_at
from bayesfac.core.math import edge


# -- losses summed over the observed cells; the kernels return the slopes with the value ------------
@partial(jax.custom_vjp, nondiff_argnums=(5, 6))
def total_ordinal(
    x: jax.Array,
    theta: jax.Array,
    code: jax.Array,
    rows: Rows,
    weight: jax.Array | None,
    loss: str,
    immediate: bool = False,
) -> jax.Array:
    """The ordinal loss of all cells (row-major) against their row's thresholds, theta (n, R - 1).

    `x` and `theta` may have a leading axis of independent problems; the result has one sum for each.
    """
    return sparse.ordinal_loss(x, theta, code, rows, weight, loss, immediate)[0]


def _ordinal_forward(*arguments: Any) -> tuple[jax.Array, list[jax.Array]]:
    total, *slopes = sparse.ordinal_loss(*arguments)
    return total, slopes


def _ordinal_backward(loss: str, immediate: bool, slopes: list[jax.Array], up: jax.Array) -> tuple:
    by_x, by_theta = slopes
    return up[..., None] * by_x, up[..., None, None] * by_theta, None, None, None


total_ordinal.defvjp(_ordinal_forward, _ordinal_backward)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def total_proximal(x: jax.Array, code: jax.Array, rows: Rows, n_levels: int) -> jax.Array:
    """The proximal loss of all cells; its gradient includes that of the centres theta*, which are means of
    x."""
    return sparse.proximal_loss(x, code, rows, n_levels)[0]


def _proximal_backward(n_levels: int, by_x: jax.Array, up: jax.Array) -> tuple:
    return up * by_x, None, None


total_proximal.defvjp(sparse.proximal_loss, _proximal_backward)


# -- the penalty where the user gave none ----------------------------------------------------------------
HALF = 0.5  # default penalty in units of `edge`: about what held-out ratings choose


def penalised(data: Any, hyper: Any) -> Any:
    """Hyper with a penalty. `bf.fit` chooses it by held-out ratings. If there are too few ratings, and for
    other callers, it is half of `edge`: about the largest singular value of the gradient at small factors if
    the data are noise. A penalty above this value leaves no factors."""
    return hyper if hyper.penalty is not None else hyper._replace(penalty=HALF * edge(data))


def choices(data: Any, hyper: Any, chosen: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Candidates for the penalty, from weak to strong."""
    if hyper.penalty is not None or "penalty" in chosen:
        return []
    return candidates(HALF * edge(data))


def candidates(middle: float) -> list[dict[str, Any]]:
    """Penalties from weak to strong, four in each decade."""
    return [{"penalty": middle * 10 ** (step / 4)} for step in range(-6, 7)]


# -- factors: normal, u_ik and v_jk ~ N(0, 1/lambda) --------------------------------------------------
def start_factors(
    key: jax.Array, shape: tuple[int, int], K: int, stack: tuple[int, ...] = ()
) -> tuple[jax.Array, jax.Array]:
    """Normal factors whose products have a standard deviation of 1/4, small compared with a margin of 1."""
    ku, kv = jax.random.split(key)
    scale = 0.5 * K**-0.25
    U = scale * jax.random.normal(ku, (*stack, shape[0], K))
    return U, scale * jax.random.normal(kv, (*stack, shape[1], K))


def factor_energy(U: jax.Array, V: jax.Array, penalty: Any) -> jax.Array:
    """lambda/2 (|U|^2 + |V|^2) of every pair along leading axes: minus the log prior, without constants."""
    return 0.5 * penalty * (jnp.sum(U**2, (-2, -1)) + jnp.sum(V**2, (-2, -1)))


def sample_factors(
    shape: tuple[int, int], K: int, scale: Any, stack: tuple[str, int] | None = None
) -> tuple[jax.Array, jax.Array]:
    """Sample the sites U (users x K) and V (items x K), standard normal times `scale`.

    `stack` (plate name, size) adds a leading axis of that many independent pairs.
    """
    one = jnp.asarray(scale) * jnp.ones(K)
    factors = []
    for name, plate, n in (("U", "user", shape[0]), ("V", "item", shape[1])):
        with numpyro.plate(*stack, dim=-2) if stack else nullcontext(), numpyro.plate(plate, n):
            factors.append(numpyro.sample(name, dist.Normal(0, one).to_event(1)))
    return factors[0], factors[1]


def products(U: jax.Array, V: jax.Array, query: Query | Grid, penalty: float) -> tuple:
    """As `core.math.products`; rows of users and items without training data are drawn from their prior."""
    K = U.shape[-1]
    prior = jnp.zeros(K, U.dtype), jnp.eye(K, dtype=U.dtype) / penalty
    return math.products(U, V, query, prior, prior)


# -- thresholds: normal about `centres`; flat where `scale` is infinite -------------------------------
def start_thresholds(n_levels: int, *shape: int) -> jax.Array:
    """All thresholds at their centres."""
    return jnp.tile(jnp.asarray(centres(n_levels)), (*shape, 1))


def sample_thresholds(n_levels: int, scale: float) -> jax.Array:
    """Sample the site theta, a row of thresholds; the prior is improper if `scale` is infinite."""
    if np.isinf(scale):
        prior = dist.ImproperUniform(constraints.real_vector, (), (n_levels - 1,))
    else:
        prior = dist.Normal(centres(n_levels), scale).to_event(1)
    return numpyro.sample("theta", prior)


def drawn_thresholds(theta: jax.Array, query: Any, scale: float, point: jax.Array) -> jax.Array:
    """The thresholds of every cell; those of a new user are drawn from the prior (if flat: the centres)."""
    shift = jnp.zeros_like(point) if np.isinf(scale) else scale * point
    return thresholds_at(theta, query, jnp.asarray(centres(theta.shape[-1] + 1)) + shift)


def predicted(
    known: Any, x: Any, K: int, theta: jax.Array, query: Query | Grid, scale: float
) -> Levels:
    """The levels `known(x, theta)`, averaged over the priors of new users and items.

    `x(cells)` is what `products` returns, for K components; `scale` is the sd of thresholds about their
    centres.
    """

    def law(cells: Query | Grid) -> tuple:
        mean, at = x(cells)

        def levels(point: jax.Array) -> Levels:
            return known(at(point[: K + 1]), drawn_thresholds(theta, cells, scale, point[K + 1 :]))

        return known(mean, thresholds_at(theta, cells)), levels

    return averaged(law, 1 + K + theta.shape[-1], query)


def threshold_energy(theta: jax.Array, scale: float, cells: Any = None) -> jax.Array | float:
    """Minus the log prior of thresholds, without constants. With `cells`, the table has a row for each row of
    the cells, which may be divided among devices."""
    if np.isinf(scale):
        return 0.0
    centre = jnp.asarray(centres(theta.shape[-1] + 1), theta.dtype)
    return 0.5 * math.total_of_rows(((theta - centre) / scale) ** 2, cells)


# -- laws of ratings: exp(-loss) ----------------------------------------------------------------------
class Margins(dist.Distribution):
    """The factor exp(-strength loss) of an ordinal loss; samples follow the normalised factor."""

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
        code = level_codes(value, self.values)
        return -self.strength * ordinal(self.x, self.theta, code, self.loss, self.immediate)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        return self.levels().sample(key, sample_shape)

    @property
    def scores(self) -> jax.Array:
        """The log of the factor at each level, (..., R)."""
        return -self.strength * every_level(self.x, self.theta, self.loss, self.immediate)

    @property
    def log_mass(self) -> jax.Array:
        """The log of the factor's sum over the levels."""
        return jax.nn.logsumexp(self.scores, -1)

    def levels(self) -> Levels:
        """The factor normalised over the levels; the choice is 1 + the number of thresholds below x."""
        choice = jnp.sum(jnp.expand_dims(self.x, -1) > self.theta, -1)
        return Levels(self.values, self.scores, choice)


class Product(dist.Distribution):
    """The product of several factors of the same rating.

    `each` has a leading axis of factors; `weight` (same shape, or None for one) is the weight of each.
    """

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
        """The log of the product at each level, (..., R)."""
        return jnp.sum(self.weight[..., None] * self.each.scores, 0)

    @property
    def log_mass(self) -> jax.Array:
        """The log of the product's sum over the levels."""
        return jax.nn.logsumexp(self.scores, -1)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        return Levels(self.each.values, self.scores).sample(key, sample_shape)


class Proximal(dist.Distribution):
    """The factor exp(-proximal loss) of all ratings together: a user's centres are means over the ratings."""

    arg_constraints: dict[str, Any] = {}
    support = constraints.real_vector
    pytree_data_fields = ("x", "cells")
    pytree_aux_fields = ("values",)

    def __init__(self, values: tuple[float, ...], x: jax.Array, cells: Cells) -> None:
        self.values, self.x, self.cells = values, x, cells
        super().__init__((), x.shape)

    def log_prob(self, value: jax.Array) -> jax.Array:
        row, R = self.cells.row, len(self.values)
        code = level_codes(value, self.values)
        theta, count = proximal_centres(self.x, code, row, (self.cells.shape[0], R))
        return -jnp.sum(proximal(self.x, theta[row], code, count[row] > 0))

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        raise BayesfacError(
            "pmmmf has no law of ratings: its centres are made of the ratings themselves"
        )
