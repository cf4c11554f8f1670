r"""Proximal maximum margin matrix factorization: a score is near the centre of its level, far from others.

Kumar, Pujari, Sahu, Kagita & Padmanabhan, "Proximal Maximum Margin Matrix Factorization for Collaborative
Filtering", Pattern Recognition Letters 2017; Kumar's thesis, Hyderabad 2018, eq. 4.1-4.7.

    J(U, V) = sum_ij [ (x_ij - theta*_{i,y_ij})^2 + sum_{r != y_ij} h(T_ij^r (x_ij - theta*_ir)) ]
            + lambda/2 (|U|^2 + |V|^2) + 1/(2 s_b^2) |b|^2
    x_ij = u_i.v_j + b_j,   T_ij^r = +1 if r < y_ij else -1
    theta*_ir = the mean of x_ij over the items that i gave r

    paper      here      shape
    U, V       U, V      users x K, items x K
    -          bias_item, scale_bias   items: b, and s_b   (None with biases=False, as in the paper)
    lambda     penalty
    theta*     theta     users x R            derived: a function of U, V and the ratings
    -          cut       users x R - 1        derived: x below cut_r predicts at most level r

The method predicts ratings with levels. Each user has a centre theta* for each level, the mean score of the
items with this level. theta* is a function of U and V, so the gradient of J includes its derivative. Eq. 4.5
is hard to read in print; a test compares the gradient with automatic differentiation. A level that a user
never gave has no theta*: it is omitted from the sums and never predicted. Let a and b be consecutive levels
that the user gave, n_a and n_b times. The cut between them is theta_a + n_a / (n_a + n_b) (theta_b -
theta_a); the formula in print is garbled. For a distribution over levels, a missing theta is interpolated
between its neighbours, or set at distance one beyond the first and the last. The posterior is a *generalised*
one. The method is good at levels: on MovieLens-100K their absolute error is below that of biases of users and
items, but the means of its probabilities predict worse than these biases (docs/ratings.md has the figures).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro

from bayesfac.core import checks
from bayesfac.core.data.cells import Cells, Grid, Query
from bayesfac.core.data.ratings import Ratings, few_ratings
from bayesfac.core.errors import BayesfacError
from bayesfac.core.kernels.losses import proximal, proximal_centres
from bayesfac.core.laws.ordinal import Levels, averaged, codes, levelled, of_users_at
from bayesfac.core.math import inner
from bayesfac.core.method import Axes, Choose, Method, Notes, Rotation, register
from bayesfac.parts.observed import margins

TIMES = 1.5  # penalty in units of `edge`; large, since centres pull more than margins do


SCALES = (2.0, 0.5, 0.125, 0.03)  # candidates for scale_bias; the last is nearly none


class Params(NamedTuple):
    U: jax.Array
    V: jax.Array
    bias_item: jax.Array | None = None
    theta: jax.Array | None = None
    cut: jax.Array | None = None


class Hyper(NamedTuple):
    n_components: int | None = (
        None  # None: 50, or fewer users or items; with few, no penalty is good
    )
    penalty: float | None = None  # None: chosen by held-out ratings, or by the size of the data
    biases: bool = True  # of items, as in `mmmf`
    scale_bias: float | None = None  # None: chosen by held-out ratings, or nearly none
    levels: tuple[float, ...] | None = None  # None: the levels in the data


def prepare(data: Ratings, hyper: Hyper) -> Hyper:
    if hyper.n_components is None:
        hyper = hyper._replace(n_components=min(50, *data.shape))
    hyper = margins.penalised(data, levelled(data, hyper, "pmmmf"), TIMES)
    hyper = checks.filled(hyper, scale_bias=SCALES[-1])
    checks.positive(hyper, "penalty", "scale_bias")
    return hyper


def choices(data: Ratings, hyper: Hyper, chosen: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Candidates for the penalty, then for the scale of biases. With many ratings of each user, biases keep
    scores from the centres, and do harm; with few they help."""
    if hyper.penalty is None and "penalty" not in chosen:
        return margins.choices(data, hyper, chosen, TIMES)
    if not hyper.biases or hyper.scale_bias is not None or "scale_bias" in chosen:
        return []
    return [{"scale_bias": scale} for scale in SCALES]


def init(key: jax.Array, data: Ratings, hyper: Hyper) -> Params:
    biases = margins.start_biases(key, data.shape, hyper, ("item",))
    return Params(*margins.start_factors(key, data.shape, hyper.n_components), **biases)


def scores(p: Params, data: Ratings) -> jax.Array:
    """x of every cell."""
    return inner(*margins.joined(p.U, p.V, p.bias_item), data.cells)


def objective(p: Params, data: Ratings, hyper: Hyper) -> jax.Array:
    x, rows = scores(p, data), data.cells.by_row
    ridge = margins.factor_energy(p.U, p.V, hyper.penalty) + margins.bias_energy(hyper, p.bias_item)
    return margins.total_proximal(x, codes(data), rows, len(hyper.levels)) + ridge


def model(data: Ratings, hyper: Hyper) -> None:
    if not isinstance(data.cells, Cells):
        raise BayesfacError(
            "pmmmf cannot use minibatches: theta* is a mean over all ratings of a user"
        )
    U, V = margins.sample_factors(data.shape, hyper.n_components, hyper.penalty**-0.5)
    biases = margins.sample_biases(data.shape, hyper, ("item",))
    x = inner(*margins.joined(U, V, **biases), data.cells)
    numpyro.sample("rating", margins.Proximal(hyper.levels, x, data.cells), obs=data.y)


def derive(p: Params, data: Ratings, hyper: Hyper) -> dict[str, jax.Array]:
    """theta* of every user and level, interpolated for levels that the user never gave, and the cuts."""
    R, x = len(hyper.levels), scores(p, data)
    theta, count = proximal_centres(x, codes(data), data.cells.row, (data.n_users, R))
    r, used = jnp.arange(R), count > 0
    left = jax.lax.cummax(jnp.where(used, r, -1), axis=1)  # the nearest used level at or below r
    right = jax.lax.cummin(jnp.where(used, r, R), axis=1, reverse=True)
    at_left = jnp.take_along_axis(theta, jnp.maximum(left, 0), 1)
    at_right = jnp.take_along_axis(theta, jnp.minimum(right, R - 1), 1)
    between = at_left + (r - left) / jnp.maximum(right - left, 1) * (at_right - at_left)
    filled = jnp.where(right == R, at_left + (r - left), between)
    below = jnp.where(right == R, r - (R - 1) / 2, at_right - (right - r))
    filled = jnp.where(left < 0, below, filled)
    a, b = left[:, :-1], right[:, 1:]  # used levels on both sides of each threshold
    n_a, n_b = (jnp.take_along_axis(count, jnp.clip(i, 0, R - 1), 1) for i in (a, b))
    theta_a, theta_b = at_left[:, :-1], at_right[:, 1:]
    cut = theta_a + n_a / jnp.maximum(n_a + n_b, 1) * (theta_b - theta_a)
    cut = jnp.where(b == R, jnp.inf, jnp.where(a < 0, -jnp.inf, cut))
    nothing = ~used.any(1, keepdims=True)
    return {"theta": filled, "cut": jnp.where(nothing, r[1:] - R / 2, cut).astype(x.dtype)}


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> Levels:
    """The levels; the chosen level has x between its cuts. Rows of new users and items are prior draws."""
    R, (U, V) = len(hyper.levels), margins.joined(p.U, p.V, p.bias_item)

    def law(cells: Query | Grid) -> tuple:
        mean, at = margins.products(U, V, cells, hyper.penalty, hyper)
        theta = of_users_at(p.theta, cells, jnp.arange(R) - (R - 1) / 2)

        def levels(x: jax.Array) -> Levels:
            costs = [proximal(x, theta, jnp.full(x.shape, r), jnp.ones(R, bool)) for r in range(R)]
            return Levels(hyper.levels, -jnp.stack(costs, -1))

        return levels(mean), lambda point: levels(at(point))

    mean, _ = margins.products(U, V, query, hyper.penalty, hyper)
    chosen = jnp.sum(mean[..., None] > of_users_at(p.cut, query, jnp.arange(1, R) - R / 2), -1)
    return averaged(law, 1 + U.shape[1], query, chosen)


def example(key: jax.Array) -> tuple[Ratings, Hyper]:
    data = few_ratings(key, levels=4)
    return data, prepare(data, Hyper(2, penalty=0.7))


# fmt: off
METHOD = register(Method(
    name="pmmmf", cite="kumar2017pmmmf", data=Ratings, Params=Params, Hyper=Hyper, init=init,
    objective=objective, model=model, predict=predict, example=example, prepare=prepare,
    derive=derive,
    choose=Choose(candidates=choices),
    axes=Axes(
        dims=margins.DIMS | {"theta": ("user", "level"), "cut": ("user", "threshold")},
        gauge=(Rotation(("U", "V"), {"U": 1, "V": 1}, floating=True),),
    ),
    notes=Notes(traits={
        "no_prior_predictive": "theta* is a function of the ratings, so ratings have no law given factors",
        "no_minibatch": "theta* is a mean over all of a user's ratings",
    }),
))
# fmt: on
