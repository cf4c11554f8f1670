r"""Factorization machine for ordinal ratings: the scores of `fm`, an ordered probit, and thresholds.

Rendle, "Factorization Machines", ICDM 2010, with the priors of Freudenthaler, Schmidt-Thieme & Rendle,
"Bayesian Factorization Machines", NIPS Workshop 2011, as in `fm`; the probit sampler of Albert & Chib, JASA
1993.

    P(y_ij <= r) = F(theta_ir - s_ij),   s_ij = b_i + c_j + u_i.v_j,   r = 1..R-1

    J = - sum_ij log P(y_ij) + minus the log density of thresholds (`parts/observed/thresholds.py`)
      + minus the log density of the sites of both sides (`_shared/machine.py`, without a level)

    paper                     here                  shape
    w and v                   as in `fm`            (no w_0, because thresholds take its place)
    -                         centre                R - 1: free coordinates of the thresholds
    -                         theta                 users x R - 1    (None where thresholds are shared)

With `thresholds="shared"` all users have the same thresholds; with "user" each user has its own.

A point fit sets the priors by empirical Bayes and keeps them fixed (`scales="estimated"`). A Gibbs sweep
(probit only) draws a latent normal between the thresholds of each rating, and then the blocks and moves of
`fm`. The thresholds, and the common scale of scores and thresholds, change by Metropolis steps with the
latent normals integrated out.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bayesfac.core import checks
from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.data.ratings import Ratings, few_ratings
from bayesfac.core.laws import ordinal
from bayesfac.core.laws.ordinal import Between, Levels
from bayesfac.core.math import metropolis, products
from bayesfac.core.method import Method, register
from bayesfac.core.programs import compiled_for
from bayesfac.models.ratings._shared import machine, machine_moves, machine_scales
from bayesfac.parts.observed import thresholds as cuts


class Params(NamedTuple):
    U: jax.Array
    V: jax.Array
    bias_user: jax.Array
    bias_item: jax.Array
    mu: dict[str, jax.Array]
    tau: dict[str, jax.Array]
    tau_bias: dict[str, jax.Array]
    centre: jax.Array
    theta: jax.Array | None = None
    level: None = None
    B: dict[str, jax.Array] | None = None
    C: dict[str, jax.Array] | None = None
    ridge: dict[str, jax.Array] | None = None
    ridge_bias: dict[str, jax.Array] | None = None


class Hyper(NamedTuple):
    n_components: int = 10
    implicit: bool = False  # which items a user rated, and which users an item, as features
    link: str = "probit"
    thresholds: str = "shared"  # or "user"
    scale_shift: float = 0.5  # sd of a user's first threshold about the population's first
    scale_gap: float = 0.3  # sd of the logarithm of each gap
    tau_shape: float = 1.0  # tau ~ Gamma(shape, tau_rate), tau_bias ~ Gamma(shape, bias_rate)
    tau_rate: float | None = None  # None: 1 / (4 sqrt(K)), in the units of the latent normal
    bias_rate: float = 0.1
    beta0: float = 0.01  # mu has ten times the standard deviation of a row
    scales: str = "estimated"  # how a point fit sets the priors; the other choice is "joint"
    levels: tuple[float, ...] | None = None  # None: the levels in the data
    ridge_shape: float = 1.0  # ridge, ridge_bias ~ Gamma(shape, rate)
    ridge_rate: float = 0.1


def prepare(data: Ratings, hyper: Hyper) -> Hyper:
    hyper = ordinal.levelled(data, hyper, "ordinal_fm")
    if hyper.tau_rate is None:
        hyper = hyper._replace(tau_rate=0.25 / hyper.n_components**0.5)
    cuts.checked(hyper)
    checks.positive(hyper, "tau_shape", "tau_rate", "bias_rate", "beta0")
    checks.positive(hyper, "ridge_shape", "ridge_rate")
    checks.one_of(hyper, "scales", ("estimated", "joint"))
    return hyper


def init(key: jax.Array, data: Ratings, hyper: Hyper) -> Params:
    """Small rows and biases; thresholds at the normal quantiles of the levels' shares."""
    sites = machine.start(key, data, hyper.n_components, 1.0, level=None)
    return Params(**sites, **cuts.quantiles(data, hyper))


@compiled_for(2, once=True)
def start(key: jax.Array, data: Ratings, hyper: Hyper) -> Params:
    """Start a point fit: priors by empirical Bayes; the solver keeps them fixed."""
    p = init(key, data, hyper)
    if hyper.scales == "joint":
        return p
    observe = cuts.observer(p, data, hyper)
    early = cuts.as_values(data.y)
    p, own = machine_scales.estimated(p, data, hyper, cuts.own(p), observe, early)
    return p._replace(**own)


def held(hyper: Hyper) -> tuple[str, ...]:
    """Also hold `centre`: the Jacobian would pull every user's gaps, and with them `centre`, towards zero."""
    if hyper.scales == "joint":
        return ()
    return machine.HELD if hyper.thresholds == "shared" else (*machine.HELD, "centre")


def objective(p: Params, data: Ratings, hyper: Hyper) -> jax.Array:
    fit = cuts.objective(p, machine.scores(p, data.cells), data, hyper)
    return fit + machine.energy(p, data, hyper)


# -- blocks given the latent z_ij ~ N(s_ij, 1), which lies between its thresholds -------------------
def augment(p: Params, data: Ratings, hyper: Hyper) -> Between:
    return cuts.augmented(p, machine.scores(p, data.cells), data, hyper, "ordinal_fm")


def observed(p: Params, data: Ratings, hyper: Hyper, z: jax.Array) -> tuple[jax.Array, float]:
    """Each cell observes its score as z with precision 1."""
    return z, 1.0


def latent(key: jax.Array, p: Params, data: Ratings, hyper: Hyper) -> jax.Array:
    return augment(p, data, hyper).sample(key)


def thresholds(key: jax.Array, p: Params, data: Ratings, hyper: Hyper) -> Params:
    """Metropolis steps of the thresholds given the scores."""
    return cuts.moved(key, p, machine.scores(p, data.cells), data, hyper)


def swell(key: jax.Array, p: Params, data: Ratings, hyper: Hyper) -> Params:
    """Metropolis steps of the common scale of all scores and thresholds."""
    x = machine.scores(p, data.cells)

    def grown(t: jax.Array) -> tuple[Params, jax.Array]:
        q, change = machine_moves.swollen_scores(p, t, hyper)
        q, jacobian = cuts.scaled(q, t)
        return q, change + jacobian

    def density(t: jax.Array) -> jax.Array:
        q, change = grown(t[0, 0])
        fit = jnp.sum(cuts.log_likelihood(q, jnp.exp(t[0, 0]) * x, data, hyper))
        return (change + fit - cuts.energy(q, hyper))[None]

    width, walk = jax.random.split(key)
    step = 2 / len(x) ** 0.5 * jnp.exp(jax.random.normal(width, (), x.dtype))
    t = metropolis(walk, jnp.zeros((1, 1), x.dtype), step, density, times=2)[0, 0]
    return grown(t)[0]


CONDITIONALS = machine.blocks(observed)
MOVES: dict[str, Any] = machine_moves.moves(observed, latent)
MOVES |= {"thresholds": thresholds, "swell": swell}


def model(data: Ratings, hyper: Hyper) -> None:
    cuts.sample(machine.sample(data, hyper, level=False), data, hyper)


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> Levels:
    """The levels, chosen as the median. Parameters of new users and items are drawn from their priors."""

    def x(cells: Query | Grid) -> tuple:
        return products(*machine.extended(p, cells))

    return cuts.predicted(p, query, hyper, x, hyper.n_components + 2)


def example(key: jax.Array) -> tuple[Ratings, Hyper]:
    """Seven users, five items, four levels; each user has thresholds, so that all sites exist."""
    data = few_ratings(key, levels=4)
    settings: dict[str, Any] = {"tau_shape": 2.0, "tau_rate": 1.2, "bias_rate": 0.8, "beta0": 2.0}
    return data, prepare(data, Hyper(2, thresholds="user", **settings, scales="joint"))


# fmt: off
METHOD = register(Method(
    name="ordinal_fm", cite="rendle2010factorization", data=Ratings, Params=Params, Hyper=Hyper,
    init=init, objective=objective, model=model, predict=predict, example=example,
    prepare=prepare, start=start, held=held, ready=machine.ready,
    conditionals=CONDITIONALS, augment=augment, moves=MOVES, noncentred=("U", "V"),
    row_moves=lambda hyper: ("thresholds",) if hyper.link == "probit" else None,
    gauge=machine.gauge, dims=machine.DIMS | cuts.DIMS,
))
# fmt: on
