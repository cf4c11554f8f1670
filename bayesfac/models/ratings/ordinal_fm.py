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

from bayesfac.core import checks
from bayesfac.core.data.ratings import Ratings, few_ratings
from bayesfac.core.laws.ordinal import levelled
from bayesfac.core.method import register
from bayesfac.core.programs import compiled_for
from bayesfac.models.ratings._shared import machine, machine_moves, machine_scales
from bayesfac.parts.composition import composed
from bayesfac.parts.matrix import Matrix
from bayesfac.parts.observed import thresholds as cuts
from bayesfac.parts.observed.ordinal import Ordinal
from bayesfac.parts.priors import group_of_biases

ORDINAL = Ordinal("ordinal_fm")
FACTORS = Matrix(machine.FACTORS.main, (group_of_biases("user"), group_of_biases("item")))


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
    hyper = levelled(data, hyper, "ordinal_fm")
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


def objective(p: Params, data: Ratings, hyper: Hyper) -> jax.Array:
    fit = cuts.objective(p, machine.scores(p, data.cells), data, hyper)
    return fit + machine.energy(p, data, hyper)


def model(data: Ratings, hyper: Hyper) -> None:
    cuts.sample(machine.sample(data, hyper, level=False), data, hyper)


def latent(key: jax.Array, p: Params, data: Ratings, hyper: Hyper) -> jax.Array:
    return METHOD.gibbs.augment(p, data, hyper).sample(key)


def example(key: jax.Array) -> tuple[Ratings, Hyper]:
    """Seven users, five items, four levels; each user has thresholds, so that all sites exist."""
    data = few_ratings(key, levels=4)
    settings: dict[str, Any] = {"tau_shape": 2.0, "tau_rate": 1.2, "bias_rate": 0.8, "beta0": 2.0}
    return data, prepare(data, Hyper(2, thresholds="user", **settings, scales="joint"))


METHOD = register(
    composed(
        "ordinal_fm", cite="rendle2010factorization", home=__name__, data=Ratings, Params=Params,
        Hyper=Hyper, structure=FACTORS, observed=ORDINAL, together=("B", "C"),
        order=(*machine.ORDER, "tau_bias", "ridge", "ridge_bias", "B", "C"), objective=objective,
        model=model, example=example, prepare=prepare, init=init, ready=machine.ready,
        moves=machine_moves.moves(ORDINAL.target, latent), solver=dict(update=None, start=start),
        gibbs=dict(row_moves=lambda hyper: ("thresholds",) if hyper.link == "probit" else None),
    )
)  # fmt: skip
