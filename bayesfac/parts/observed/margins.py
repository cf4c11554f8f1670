"""Code that the margin factorizations share: summed losses, priors of factors, biases and thresholds, laws.

The papers' x is u.v. Most methods here add biases of items (and of users where these have no thresholds):
without them, items with few ratings are scored as if nothing were known of them. A bias is one more column
of U or V, multiplied by a column of ones, so `inner`, new rows and the kernels need not know of it.

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
from bayesfac.core.kernels.losses import every_level, ordinal, proximal, proximal_centres
from bayesfac.core.laws.ordinal import Levels, averaged, codes, level_codes, of_users_at
from bayesfac.core.math import edge, normals

SIDES = ("user", "item")
DIMS = {
    "U": ("user", "component"),
    "V": ("item", "component"),
    "bias_user": ("user",),
    "bias_item": ("item",),
}


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


def penalised(data: Any, hyper: Any, times: float = HALF) -> Any:
    """Hyper with a penalty. `bf.fit` chooses it by held-out ratings. If there are too few ratings, and for
    other callers, it is half of `edge`: about the largest singular value of the gradient at small factors if
    the data are noise. A penalty above this value leaves no factors."""
    return hyper if hyper.penalty is not None else hyper._replace(penalty=times * edge(data))


def choices(
    data: Any, hyper: Any, chosen: Mapping[str, Any], times: float = HALF
) -> list[dict[str, Any]]:
    """Candidates for the penalty, from weak to strong, four in each decade."""
    if hyper.penalty is not None or "penalty" in chosen:
        return []
    middle = times * edge(data)
    return [{"penalty": middle * 10 ** (step / 4)} for step in range(-6, 7)]


# -- factors: normal, u_ik and v_jk ~ N(0, 1/lambda); biases: normal ------------------------------------
def start_factors(
    key: jax.Array, shape: tuple[int, int], K: int, stack: tuple[int, ...] = ()
) -> tuple[jax.Array, jax.Array]:
    """Normal factors whose products have a standard deviation of 1/4, small compared with a margin of 1."""
    ku, kv = jax.random.split(key)
    scale = 0.5 * K**-0.25
    U = scale * normals(ku, (*stack, shape[0], K))
    return U, scale * normals(kv, (*stack, shape[1], K))


def factor_energy(U: jax.Array, V: jax.Array, penalty: Any) -> jax.Array:
    """lambda/2 (|U|^2 + |V|^2) of every pair along leading axes: minus the log prior, without constants."""
    return 0.5 * penalty * (jnp.sum(U**2, (-2, -1)) + jnp.sum(V**2, (-2, -1)))


def start_biases(
    key: jax.Array, shape: tuple[int, int], h: Any, sides: tuple[str, ...], *stack: int
) -> dict[str, Any]:
    """Small normal biases of these sides ("user", "item"); None without biases."""
    sizes = dict(zip(SIDES, shape, strict=True))

    def draw(side: str) -> jax.Array:
        own = jax.random.fold_in(key, SIDES.index(side))
        return 0.25 * normals(own, (*stack, sizes[side]))

    return {f"bias_{side}": draw(side) if h.biases else None for side in sides}


def sample_biases(
    shape: tuple[int, int], h: Any, sides: tuple[str, ...], stack: tuple[str, int] | None = None
) -> dict[str, Any]:
    """Sample the sites bias_user and bias_item, N(0, scale_bias^2), as far as the method has them."""
    sizes = dict(zip(SIDES, shape, strict=True))

    def draw(side: str) -> jax.Array:
        plate = numpyro.plate(side, sizes[side])
        with numpyro.plate(*stack, dim=-2) if stack else nullcontext(), plate:
            return numpyro.sample(f"bias_{side}", dist.Normal(0, h.scale_bias))

    return {f"bias_{side}": draw(side) if h.biases else None for side in sides}


def bias_energy(h: Any, *biases: jax.Array | None) -> jax.Array | float:
    """Minus the log prior of biases, without constants; of each problem along a leading axis."""
    return sum(0.5 * jnp.sum((b / h.scale_bias) ** 2, -1) for b in biases if b is not None)


def joined(
    U: jax.Array, V: jax.Array, bias_item: Any, bias_user: Any = None, offset: Any = 0.0
) -> tuple[jax.Array, jax.Array]:
    """[U, 1] and [V, c], whose products are u.v + c; with biases of users [U, 1, offset + b] and [V, c, 1].

    >>> U, V = joined(jnp.ones((1, 1)), jnp.ones((1, 1)), jnp.full(1, 2.0), jnp.full(1, 3.0), 10.0)
    >>> (U @ V.T).tolist()
    [[16.0]]
    """
    if bias_item is None:
        return U, V
    one = jnp.ones_like(U[..., :1])
    left, right = [U, one], [V, bias_item[..., None]]
    if bias_user is not None:
        left.append(jnp.asarray(offset, U.dtype)[..., None, None] + bias_user[..., None])
        right.append(jnp.ones_like(V[..., :1]))
    return jnp.concatenate(left, -1), jnp.concatenate(right, -1)


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


def products(
    U: jax.Array, V: jax.Array, query: Query | Grid, penalty: Any, h: Any, offset: Any = 0.0
) -> tuple:
    """As `core.math.products`, of tables that `joined` made; rows of users and items without training data
    are drawn from their priors."""
    K, more, s2 = h.n_components, U.shape[-1] - h.n_components, h.scale_bias**2
    wide = [1 / penalty] * K
    tiny = jnp.finfo(U.dtype).tiny ** 0.5  # the variance of the ones: a Cholesky factor needs some

    def prior(means: list, variances: list) -> tuple:
        mean = jnp.asarray([0.0] * K + means[:more], U.dtype)
        return mean, jnp.diag(jnp.asarray(wide + variances[:more], U.dtype))

    return math.products(
        U, V, query, prior([1.0, offset], [tiny, s2]), prior([0.0, 1.0], [s2, tiny])
    )


# -- thresholds: normal about centres; flat where `scale` is infinite -----------------------------------
ALIKE = {  # the threshold t that minimises low h(t) + high h(-t)
    "smooth_hinge": lambda low, high: np.where(low > high, 1 - high / low, low / high - 1),
    "modified_square": lambda low, high: (low - high) / (low + high),
    "logistic": lambda low, high: np.log(low / high),
}


def alike(data: Any, loss: str) -> tuple[float, ...]:
    """The thresholds that fit the ratings best if all users and items are alike and x is 0.

    Half a rating is added on both sides of each, so that a level without ratings has finite thresholds.
    """
    low = np.cumsum(np.bincount(np.asarray(codes(data)), minlength=len(data.levels)))[:-1]
    high = len(data) - low
    return tuple(ALIKE[loss](low + 0.5, high + 0.5).tolist())


def centred(data: Any, hyper: Any) -> Any:
    """Hyper with centres of thresholds."""
    if hyper.centres is None:
        return hyper._replace(centres=alike(data, hyper.loss))
    found = tuple(map(float, hyper.centres))
    if len(found) != len(hyper.levels) - 1 or not np.isfinite(found).all():
        raise ValueError(
            f"Expected centres={len(hyper.levels) - 1} finite numbers, one for each threshold, got "
            f"{hyper.centres!r}"
        )
    return hyper._replace(centres=found)


def start_thresholds(centres: Any, *shape: int) -> jax.Array:
    """All thresholds at their centres."""
    return jnp.tile(jnp.asarray(centres), (*shape, 1))


def sample_thresholds(centres: Any, scale: float) -> jax.Array:
    """Sample the site theta, a row of thresholds; the prior is improper if `scale` is infinite."""
    if np.isinf(scale):
        prior = dist.ImproperUniform(constraints.real_vector, (), (len(centres),))
    else:
        prior = dist.Normal(jnp.asarray(centres), scale).to_event(1)
    return numpyro.sample("theta", prior)


def drawn_thresholds(
    theta: jax.Array, query: Any, centres: Any, scale: float, point: jax.Array
) -> jax.Array:
    """The thresholds of every cell; those of a new user are drawn from the prior (if flat: the centres)."""
    shift = jnp.zeros_like(point) if np.isinf(scale) else scale * point
    return of_users_at(theta, query, jnp.asarray(centres) + shift)


def predicted(
    known: Any, x: Any, K: int, theta: jax.Array, query: Query | Grid, centres: Any, scale: float
) -> Levels:
    """The levels `known(x, theta)`, averaged over the priors of new users and items.

    `x(cells)` is what `products` returns, for tables of K columns; `scale` is the sd of thresholds about
    their centres.
    """

    def law(cells: Query | Grid) -> tuple:
        mean, at = x(cells)

        def levels(point: jax.Array) -> Levels:
            own = drawn_thresholds(theta, cells, centres, scale, point[K + 1 :])
            return known(at(point[: K + 1]), own)

        return known(mean, of_users_at(theta, cells, jnp.asarray(centres))), levels

    return averaged(law, 1 + K + theta.shape[-1], query)


def threshold_energy(
    theta: jax.Array, centres: Any, scale: float, cells: Any = None
) -> jax.Array | float:
    """Minus the log prior of thresholds, without constants. With `cells`, the table has a row for each row of
    the cells, which may be divided among devices."""
    if np.isinf(scale):
        return 0.0
    away = (theta - jnp.asarray(centres, theta.dtype)) / scale
    return 0.5 * math.total_of_rows(away**2, cells)


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
