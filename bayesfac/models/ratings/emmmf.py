r"""An ensemble of maximum margin factorizations, from several starts or random samples of the ratings.

DeCoste, "Collaborative Prediction using Ensembles of Maximum Margin Matrix Factorizations", ICML 2006, with
the objective of Rennie & Srebro, ICML 2005 (thesis eq. 3.12).

    J = sum_{e=1}^{E} [ sum_ij w_ij^e loss(y_ij, x_ij^e, theta_i^e) + lambda/2 (|U^e|^2 + |V^e|^2)
                        + 1/(2 s^2) |theta_i^e - c|^2 + 1/(2 s_b^2) |b^e|^2 ]

    paper       here                shape
    U, V        U, V                members x users x K, members x items x K
    theta, c    theta, centres      members x users x R - 1, and their means in the prior
    -           bias_item           members x items: b^e; as in `mmmf`, x_ij = u_i.v_j + b_j
    -           members, bagging    w^e is 1, or how often rating ij is in bag e: Poisson(1) draws

The mean over several factorizations predicts better than one of them. Each factorization is a member of the
ensemble. It starts from its own random factors and is fitted to all ratings, or with `bagging` to its own
random sample of them. The members share no parameters, and one program fits them together. The ensemble
predicts the rounded mean of the members' levels, and its distribution over levels is the mean of the
members' distributions. The posterior is a product of E *generalised* posteriors (see `mmmf`).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro

from bayesfac.core import checks
from bayesfac.core.data.cells import Cells, Grid, Query
from bayesfac.core.data.ratings import Ratings, few_ratings
from bayesfac.core.errors import BayesfacError
from bayesfac.core.laws.ordinal import Levels, codes, levelled
from bayesfac.core.math import inner
from bayesfac.core.method import Axes, Choose, Method, Rotation, Solver, register
from bayesfac.parts.observed import margins


class Params(NamedTuple):
    U: jax.Array
    V: jax.Array
    theta: jax.Array
    bias_item: jax.Array | None = None


class Hyper(NamedTuple):
    n_components: int = 10
    penalty: float | None = None  # None: chosen by held-out ratings, or by the size of the data
    members: int = 10
    bagging: bool = False
    bag_seed: int = 0
    loss: str = "smooth_hinge"
    scale_theta: float = 1.0
    centres: tuple[float, ...] | None = None  # None: best if all users are alike
    biases: bool = True  # of items, as in `mmmf`
    scale_bias: float = 0.5
    levels: tuple[float, ...] | None = None  # None: the levels in the data


def prepare(data: Ratings, hyper: Hyper) -> Hyper:
    hyper = margins.penalised(data, levelled(data, hyper, "emmmf"))
    checks.count(hyper, "members", 1000, "the most that emmmf allows")
    checks.positive(hyper, "penalty", "scale_bias")
    checks.positive(hyper, "scale_theta", infinite=True)
    checks.smooth_loss(hyper)
    return margins.centred(data, hyper)


def init(key: jax.Array, data: Ratings, hyper: Hyper) -> Params:
    """Every member starts from its own random factors."""
    U, V = margins.start_factors(key, data.shape, hyper.n_components, (hyper.members,))
    biases = margins.start_biases(key, data.shape, hyper, ("item",), hyper.members)
    theta = margins.start_thresholds(hyper.centres, hyper.members, data.n_users)
    return Params(U, V, theta, **biases)


def bags(data: Ratings, hyper: Hyper, which: jax.Array) -> jax.Array | None:
    """How often each rating is in the bags of the members in `which`; None without bagging."""
    if not hyper.bagging:
        return None
    if not isinstance(data.cells, Cells):
        raise BayesfacError(
            "emmmf with bagging cannot use minibatches: a bag is drawn from all ratings"
        )
    keys = jax.vmap(lambda e: jax.random.fold_in(jax.random.key(hyper.bag_seed), e))(which)
    cells = (len(data.cells),)
    dtype = jnp.result_type(float)
    return jax.vmap(lambda key: jax.random.poisson(key, 1.0, cells))(keys).astype(dtype)


def terms(p: Params, data: Ratings, hyper: Hyper, which: jax.Array) -> jax.Array:
    """J of the members in `which`."""
    x = inner(*margins.joined(p.U, p.V, p.bias_item), data.cells)
    weight = bags(data, hyper, which)
    fit = margins.total_ordinal(x, p.theta, codes(data), data.cells.by_row, weight, hyper.loss)
    ridge = margins.factor_energy(p.U, p.V, hyper.penalty) + margins.bias_energy(hyper, p.bias_item)
    prior = hyper.centres, hyper.scale_theta
    return fit + ridge + jax.vmap(lambda theta: margins.threshold_energy(theta, *prior))(p.theta)


def objective(p: Params, data: Ratings, hyper: Hyper) -> jax.Array:
    return jnp.sum(terms(p, data, hyper, jnp.arange(hyper.members)))


def model(data: Ratings, hyper: Hyper) -> None:
    stack = ("member", hyper.members)
    U, V = margins.sample_factors(data.shape, hyper.n_components, hyper.penalty**-0.5, stack)
    with numpyro.plate(*stack, dim=-2), numpyro.plate("user", data.n_users):
        theta = margins.sample_thresholds(hyper.centres, hyper.scale_theta)
    biases = margins.sample_biases(data.shape, hyper, ("item",), stack)
    x, own = inner(*margins.joined(U, V, **biases), data.cells), theta[:, data.cells.row]
    each = margins.Margins(hyper.levels, x, own, hyper.loss)
    with numpyro.plate("cell", data.cells.row.shape[0]):
        weight = bags(data, hyper, jnp.arange(hyper.members))
        numpyro.sample("rating", margins.Product(each, weight), obs=data.y)


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> Levels:
    """The mean of the members' levels; rows of new users and items are drawn from their priors."""

    def member(p: Params) -> tuple[jax.Array, jax.Array]:
        U, V = margins.joined(p.U, p.V, p.bias_item)

        def x(cells: Query | Grid) -> tuple:
            return margins.products(U, V, cells, hyper.penalty, hyper)

        def known(x: jax.Array, theta: jax.Array) -> Levels:
            return margins.Margins(hyper.levels, x, theta, hyper.loss).levels()

        prior = hyper.centres, hyper.scale_theta
        levels = margins.predicted(known, x, U.shape[1], p.theta, query, *prior)
        return levels.probs, levels.choice

    # lax.map runs one member at a time; vmap would compute both branches of the condition in `averaged`
    probs, chosen = jax.lax.map(member, p)
    values = jnp.asarray(hyper.levels, p.U.dtype)
    # levels need not be evenly spaced, so this is the mean of their values and not of their numbers
    number = jnp.arange(len(values), dtype=values.dtype)
    place = jnp.interp(jnp.mean(values[chosen], 0), values, number)
    return Levels(hyper.levels, jnp.log(jnp.mean(probs, 0)), jnp.rint(place).astype(chosen.dtype))


def example(key: jax.Array) -> tuple[Ratings, Hyper]:
    """Seven users, five items, four levels, two members. No bags, because they depend on the order of
    cells."""
    data = few_ratings(key, levels=4)
    return data, prepare(data, Hyper(2, penalty=0.7, members=2, scale_theta=2.0))


# fmt: off
METHOD = register(Method(
    name="emmmf", cite="decoste2006ensembles", data=Ratings, Params=Params, Hyper=Hyper, init=init,
    objective=objective, model=model, predict=predict, example=example, prepare=prepare,
    solver=Solver(terms=terms), choose=Choose(candidates=margins.choices),
    axes=Axes(
        dims={"U": ("member", "user", "component"), "V": ("member", "item", "component"),
            "theta": ("member", "user", "threshold"), "bias_item": ("member", "item")},
        gauge=(Rotation(("U", "V"), {"U": 2, "V": 2}, each=True, floating=True),),
    ),
))
# fmt: on
