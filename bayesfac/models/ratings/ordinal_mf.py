r"""Ordinal matrix factorization: cumulative probit or logit, with shared thresholds or thresholds per user.

Koren & Sill, "OrdRec", RecSys 2011 (thresholds per user); the priors of BPMF (Salakhutdinov & Mnih, ICML
2008); the probit sampler of Albert & Chib, JASA 1993. The thresholds are as in `mmmf`, but with a likelihood
that sums to one over the levels.

    P(y_ij <= r) = F(theta_ir - u_i.v_j),   r = 1..R-1,     F the normal or the logistic distribution function
    J = - sum_ij log( F(theta_{i,y} - x_ij) - F(theta_{i,y-1} - x_ij) )
      + the Normal-Wishart energy of both sides (bpmf)
      + sum_i [ 1/2 |(t_i - centre)/s|^2 + sum_{r>1} log(theta_ir - theta_{i,r-1}) ] + 1/2 |centre - c|^2

Here t_i = (theta_i1, log(theta_i2 - theta_i1), ...) are the free coordinates of theta_i
(`parts/observed/thresholds.py`). They are normal about `centre` with standard deviations s = (scale_shift,
scale_gap, ...). The logarithms in J come from the Jacobian of the transformation.

    paper      here               shape
    U, V       U, V               users x K, items x K     with mu_U, Lambda_U, mu_V, Lambda_V
    t_i        theta              users x R - 1, rising     (None where thresholds are shared)
    beta       centre             R - 1                     free coordinates of the population's thresholds
    -          B, ridge           features x K, scalar      where there are features (`parts/links.py`)

With `scales="estimated"` a point fit sets mu, Lambda and the centre of users' thresholds once, by empirical
Bayes (`core/laws/empirical_bayes.py`), and minimises J over all other sites. With `scales="joint"` it
minimises J over all sites, and the factors often vanish.

A Gibbs sweep (probit only) draws a latent normal between the thresholds of each rating, and then the Gaussian
blocks. The thresholds change by Metropolis steps with the latent normals integrated out.

VB works with both links. A user's row and first threshold have one joint normal law; the log gaps are points
(EM).
"""

from typing import NamedTuple

import jax

from bayesfac.core import checks
from bayesfac.core.data.ratings import Ratings, few_ratings
from bayesfac.core.laws.ordinal import levelled
from bayesfac.core.math import inner
from bayesfac.core.method import register
from bayesfac.core.programs import compiled_for
from bayesfac.models.ratings._shared import normal_wishart as wishart
from bayesfac.models.ratings._shared.normal_wishart import SIDES
from bayesfac.parts.composition import composed
from bayesfac.parts.estimate import point
from bayesfac.parts.matrix import Matrix
from bayesfac.parts.observed import thresholds as cuts
from bayesfac.parts.observed.ordinal import Ordinal


class Params(NamedTuple):
    U: jax.Array
    V: jax.Array
    mu_U: jax.Array
    Lambda_U: jax.Array
    mu_V: jax.Array
    Lambda_V: jax.Array
    centre: jax.Array
    theta: jax.Array | None = None
    B: dict[str, jax.Array] | None = None
    ridge: dict[str, jax.Array] | None = None


class Hyper(NamedTuple):
    n_components: int = 10
    link: str = "probit"
    thresholds: str = "user"  # or "shared"
    scale_shift: float = 0.5  # sd of a user's first threshold about the population's first
    scale_gap: float = 0.3  # sd of the logarithm of each gap
    beta0: float = 0.01
    rate: float = 1.0
    scales: str = "estimated"  # how a point fit sets mu and Lambda; the other choice is "joint"
    levels: tuple[float, ...] | None = None  # None: the levels in the data
    ridge_shape: float = 1.0  # ridge ~ Gamma(shape, rate): the precision of B, in units of Lambda
    ridge_rate: float = 0.1


def prepare(data: Ratings, hyper: Hyper) -> Hyper:
    hyper = levelled(data, hyper, "ordinal_mf")
    cuts.checked(hyper)
    checks.positive(hyper, "beta0", "rate", "ridge_shape", "ridge_rate")
    checks.one_of(hyper, "scales", ("estimated", "joint"))
    return hyper


@compiled_for(2, once=True)
def start(key: jax.Array, data: Ratings, hyper: Hyper) -> Params:
    """Start a point fit: mu and Lambda by empirical Bayes; the solver keeps them fixed."""
    return point(METHOD.parts, METHOD.init(key, data, hyper), data, hyper)


def objective(p: Params, data: Ratings, hyper: Hyper) -> jax.Array:
    fit = cuts.objective(p, inner(p.U, p.V, data.cells), data, hyper)
    return fit + wishart.energy(p, data, hyper)


def model(data: Ratings, hyper: Hyper) -> None:
    U, V = wishart.sampled(data, hyper)
    cuts.sample(inner(U, V, data.cells), data, hyper)


def example(key: jax.Array) -> tuple[Ratings, Hyper]:
    data = few_ratings(key, levels=4)
    return data, prepare(data, Hyper(2, beta0=2.0, rate=1.2, scales="joint"))


METHOD = register(
    composed(
        "ordinal_mf", cite="koren2011ordrec", home=__name__, data=Ratings, Params=Params, Hyper=Hyper,
        structure=Matrix(SIDES), observed=Ordinal("ordinal_mf"), objective=objective, model=model,
        example=example, prepare=prepare,
        solver=dict(update=None, start=start),
        gibbs=dict(
            row_moves=lambda hyper: ("thresholds",) if hyper.link == "probit" else None,
            divisible=True,
        ),
    )
)  # fmt: skip
