r"""Factorization machine for ratings, users, items and their features, with a prior for each group.

Rendle, "Factorization Machines", ICDM 2010, eq. 1; Freudenthaler, Schmidt-Thieme & Rendle, "Bayesian
Factorization Machines", NIPS Workshop 2011 (priors of groups). The machine predicts a rating from a row of
numbers x: the ids of the user and the item, coded as indicators, and the features of both. The option
`implicit` adds which items the user rated, and which users rated the item.

    score = w_0 + sum_k w_k x_k + sum_{k<l} <v_k, v_l> x_k x_l

Here a pair consists of one entry of the user and one of the item. Then each side can be summed first:

    y_ij ~ N(m + b_i + c_j + u_i.v_j, 1/alpha),   b_i = w_i + sum_k x_ik w_k,   u_i = v_i + sum_k x_ik v_k

The paper also has pairs of two entries of the same user, or of the same item. Such a term depends on this
user alone. For a user with ratings, the free weight w_i already includes it. For a new user, these pairs
would say how the features act together on the bias; to model this, give products of columns as further
features.

    J = sum_ij [ alpha/2 (y_ij - m - b_i - c_j - u_i.v_j)^2 - 1/2 log alpha ] + b alpha - (a - 1) log alpha
      + minus the log density of the sites of both sides (`_shared/machine.py`)

    paper                     here                          shape
    v of ids and features     U, V: their sums              users x K, items x K
    w of ids and features     bias_user, bias_item          users, items
    w_0                       m + level                     scalar    (m: `offset`)
    mu, lambda of v of ids    mu.SIDE, tau.SIDE             K
    mu, lambda of w of ids    0 (users: level), tau_bias.SIDE    scalar
    v of a group of features  B.GROUP                       features x K    (None without features)
    w of a group              C.GROUP                       features x 1
    mu, lambda of a group     0, ridge.GROUP tau and ridge_bias.GROUP tau_bias
    alpha                     alpha                         scalar

Columns of features are centred, so their groups need no mean. As in Macau, the sites are the sums b_i, c_j,
u_i and v_j. Given the features, these rows are those of `bpmf` with independent components.

The joint mode of rows and priors (`scales="joint"`) often has rows of zero. With `scales="estimated"` a point
fit therefore sets the priors by empirical Bayes (`_shared/machine_scales.py`) and keeps them fixed. A Gibbs
sweep also makes the moves of `_shared/machine_moves.py`: it draws features and rows in one block, and it
moves along directions that do not change the scores.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfac.core import checks
from bayesfac.core.data.ratings import Ratings, few_ratings
from bayesfac.core.laws.empirical_bayes import normal
from bayesfac.core.method import Choose, register
from bayesfac.core.programs import compiled_for
from bayesfac.models.ratings._shared import machine, machine_moves, machine_scales
from bayesfac.parts.composition import composed
from bayesfac.parts.estimate import noise_choices
from bayesfac.parts.observed.normal import Normal


class Params(NamedTuple):
    U: jax.Array
    V: jax.Array
    bias_user: jax.Array
    bias_item: jax.Array
    level: jax.Array
    mu: dict[str, jax.Array]
    tau: dict[str, jax.Array]
    tau_bias: dict[str, jax.Array]
    alpha: jax.Array
    B: dict[str, jax.Array] | None = None
    C: dict[str, jax.Array] | None = None
    ridge: dict[str, jax.Array] | None = None
    ridge_bias: dict[str, jax.Array] | None = None


class Hyper(NamedTuple):
    n_components: int = 10
    implicit: bool = False  # which items a user rated, and which users an item, as features
    alpha_shape: float = 1.0  # alpha ~ Gamma(shape, rate)
    alpha_rate: float | None = (
        None  # None: the variance of the ratings, or chosen (`noise_choices`)
    )
    tau_shape: float = 1.0  # tau ~ Gamma(shape, tau_rate), tau_bias ~ Gamma(shape, bias_rate)
    tau_rate: float | None = None  # None: a quarter of the ratings' standard deviation / sqrt(K)
    bias_rate: float | None = None  # None: a tenth of the ratings' variance
    beta0: float = 0.01  # mu has ten times the standard deviation of a row
    scale_level: float | None = None  # None: the standard deviation of the ratings
    scales: str = "estimated"  # how a point fit sets priors and alpha; the other choice is "joint"
    offset: float | None = None  # None: the mean rating
    ridge_shape: float = 1.0  # ridge, ridge_bias ~ Gamma(shape, rate)
    ridge_rate: float = 0.1


def objective(p: Params, data: Ratings, h: Hyper) -> jax.Array:
    rest = data.y - h.offset - machine.scores(p, data.cells)
    rate = h.alpha_rate + 0.5 * jnp.sum(rest**2)
    J = rate * p.alpha - (h.alpha_shape - 1 + 0.5 * len(data)) * jnp.log(p.alpha)
    return J + machine.energy(p, data, h)


def model(data: Ratings, h: Hyper) -> None:
    score = machine.sample(data, h)
    alpha = numpyro.sample("alpha", dist.Gamma(h.alpha_shape, h.alpha_rate))
    with numpyro.plate("cell", score.shape[0]):
        numpyro.sample("rating", dist.Normal(h.offset + score, alpha**-0.5), obs=data.y)


def prepare(data: Ratings, hyper: Hyper) -> Hyper:
    checks.count(hyper, "n_components", min(data.shape), "the smaller of users and items")
    spread, tau_rate = data.spread, data.spread / 4 / hyper.n_components**0.5
    hyper = checks.filled(Normal().prepare(data, hyper), tau_rate=tau_rate)
    hyper = checks.filled(hyper, bias_rate=spread**2 / 10, scale_level=spread)
    checks.positive(hyper, "tau_shape", "tau_rate", "bias_rate")
    checks.positive(hyper, "beta0", "scale_level", "ridge_shape", "ridge_rate")
    checks.one_of(hyper, "scales", ("estimated", "joint"))
    return hyper


def init(key: jax.Array, data: Ratings, hyper: Hyper) -> Params:
    sites = machine.start(key, data, hyper.n_components, data.spread)
    return Params(**sites, alpha=jnp.asarray(data.spread**-2))


@compiled_for(2, once=True)
def start(key: jax.Array, data: Ratings, hyper: Hyper) -> Params:
    """Start a point fit: priors and alpha by empirical Bayes; the solver keeps them fixed."""
    p = init(key, data, hyper)
    if hyper.scales == "joint":
        return p
    observe = normal(data.y - hyper.offset, hyper.alpha_shape, hyper.alpha_rate)
    first = p.alpha, jnp.zeros_like(p.alpha)
    p, (alpha, variance) = machine_scales.estimated(p, data, hyper, first, observe)
    # a point predicts with the noise alone, so the noise must include the variance of the scores; all
    # precisions get the same factor, so that the modes of rows and biases stay where they are
    share = 1 / (1 + alpha * variance)
    tau, tau_bias = ({side: share * x for side, x in own.items()} for own in (p.tau, p.tau_bias))
    return p._replace(tau=tau, tau_bias=tau_bias, alpha=share * alpha)


def example(key: jax.Array) -> tuple[Ratings, Hyper]:
    data = few_ratings(key)
    hyper = Hyper(
        2, alpha_shape=2.0, alpha_rate=1.0, tau_shape=2.0, tau_rate=1.2, bias_rate=0.8, beta0=2.0,
        scale_level=0.7, scales="joint",
    )  # fmt: skip
    return data, prepare(data, hyper)


METHOD = register(
    composed(
        "fm", cite="freudenthaler2011bayesian", home=__name__, data=Ratings, Params=Params, Hyper=Hyper,
        structure=machine.FACTORS, observed=Normal(), together=("B", "C"),
        order=(*machine.ORDER, "level", "tau_bias", "ridge", "ridge_bias", "alpha", "B", "C"),
        objective=objective, model=model, example=example, prepare=prepare, init=init,
        ready=machine.ready,
        moves=machine_moves.moves(Normal().target), solver=dict(start=start),
        choose=Choose(candidates=noise_choices),
    )
)  # fmt: skip
