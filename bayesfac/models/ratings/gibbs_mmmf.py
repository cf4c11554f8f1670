r"""Bayesian maximum margin matrix factorization, Gibbs sampling by data augmentation.

Xu, Zhu & Zhang, "Fast Max-Margin Matrix Factorization with Data Augmentation", ICML 2013, with the
Normal-Wishart priors of BPMF; the mixture of Polson & Scott, Bayesian Analysis 2011.

    J = 2C sum_ij sum_{r=1}^{R-1} max(0, 1 - T_ij^r (theta_ir - u_i.v_j))
      + 1/(2 s^2) sum_ir (theta_ir - c_r)^2 + the Normal-Wishart energy of both sides (bpmf)

    paper         here              shape
    U_i, V_j      U, V              users x K, items x K
    mu, Lambda    mu_U, Lambda_U, mu_V, Lambda_V
    theta         theta             users x R - 1
    -             B, ridge          features x K, scalar   where there are features (`parts/links.py`)
    C, rho, s     cost, centres c_r one apart, scale_theta

T_ij^r = +1 if r >= y_ij else -1. Given auxiliary variables g, each hinge is Gaussian, and so are the
conditionals of U, V and theta (`parts/observed/hinge.py`). The solver is EM: it sets the same blocks to their
modes, with g at its mean, and J never rises. Near the kink of a hinge, g is so large that its cell hardly
moves, and EM stops far above the mode. A point fit therefore starts with sweeps in which |z| = C |1 - T
(theta - x)| is at least C s, where s falls from 1 to `SHARP`.

The joint mode over factors and scales is a poor estimate. With `scales="estimated"` a point fit sets mu and
Lambda once, by empirical Bayes (`core/laws/empirical_bayes.py`), and minimises J over U, V and theta. With
`scales="joint"` it minimises J over all sites. exp(-J) is not a likelihood, so the evidence cannot determine
its scale. The empirical Bayes step therefore treats the levels as numbers with normal noise of precision
alpha (`start`). If the cost and Lambda are multiplied by the same number, the mode of U and V stays the same
but the posterior changes. So Lambda is multiplied by C / alpha, and the cost is chosen by the log score of
held-out ratings. Gibbs draws all sites in both cases. The posterior is a *generalised* one: exp(-J) does not
sum to one over the levels.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro

from bayesfac.core import checks
from bayesfac.core.data.ratings import Ratings, few_ratings
from bayesfac.core.laws.distributions import GaussianRows
from bayesfac.core.laws.empirical_bayes import normal
from bayesfac.core.laws.ordinal import centres, codes, levelled
from bayesfac.core.math import inner
from bayesfac.core.method import Choose, Notes, register
from bayesfac.core.precision import doubled
from bayesfac.core.programs import compiled_for
from bayesfac.models.ratings._shared import normal_wishart as wishart
from bayesfac.models.ratings._shared.normal_wishart import SIDES
from bayesfac.parts import estimate
from bayesfac.parts.composition import composed
from bayesfac.parts.matrix import Matrix
from bayesfac.parts.observed import margins
from bayesfac.parts.observed.hinge import Hinge
from bayesfac.parts.sites import put

HINGE = Hinge()
LEAST = 0.3  # smallest variance of the level codes about biases, which limits the cost
SHARP = 1e-3  # the last s of a start
# sweeps of a start while the cost is chosen: minimum, maximum, and number times cells. A fit has `MORE` times
# as many, and not more than the maximum: after 300 on 100,000 ratings, its predictions would drift for
# thousands of sweeps
FEW, MANY, PRICE, MORE = 300, 3000, 3e7, 5


class Params(NamedTuple):
    U: jax.Array
    V: jax.Array
    mu_U: jax.Array
    Lambda_U: jax.Array
    mu_V: jax.Array
    Lambda_V: jax.Array
    theta: jax.Array
    B: dict[str, jax.Array] | None = None
    ridge: dict[str, jax.Array] | None = None


class Hyper(NamedTuple):
    n_components: int = 10
    cost: float | None = None  # None: chosen by held-out ratings, or with few by their noise
    scale_theta: float = 0.5
    beta0: float = 0.01
    rate: float | None = None  # None: the standard deviation of u.v (BPMF's paper: 1)
    scales: str = "estimated"  # how a point fit sets mu and Lambda; the other choice is "joint"
    levels: tuple[float, ...] | None = None  # None: the levels in the data
    ridge_shape: float = 1.0  # ridge ~ Gamma(shape, rate): the precision of B, in units of Lambda
    ridge_rate: float = 0.1


def prepare(data: Ratings, hyper: Hyper) -> Hyper:
    hyper = levelled(data, hyper, "gibbs_mmmf")
    noise, spread = map(float, extent(data))
    apart = float(width(noise))
    hyper = checks.filled(hyper, cost=1 / (2 * apart * noise), rate=apart * spread)
    checks.positive(hyper, "cost", "scale_theta", "beta0", "rate", "ridge_shape", "ridge_rate")
    checks.one_of(hyper, "scales", ("estimated", "joint"))
    return hyper


@jax.jit
def extent(data: Ratings) -> tuple[jax.Array, jax.Array]:
    """The variance of the level codes about biases of users and items, and their standard deviation."""
    code = codes(data).astype(data.y.dtype)
    return jnp.maximum(estimate.noise(data.cells, code), LEAST), jnp.std(code)


def width(noise: jax.Array | float) -> jax.Array:
    """The distance between the middles of two levels. It is 2, a margin on both sides, if the noise is
    within the margin. With more noise it falls towards 1, the distance in the prior of the thresholds."""
    return 1 + 1 / jnp.maximum(1, noise)


def choices(data: Ratings, hyper: Hyper, chosen: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Costs around that of `prepare`; none with scales="joint", where all sites would move with the cost."""
    if hyper.scales == "joint" or hyper.cost is not None or "cost" in chosen:
        return []
    middle = prepare(data, checks.sized(hyper, data)).cost
    return [{"cost": middle * 2.0**-step} for step in range(-2, 4)]


def start(key: jax.Array, data: Ratings, hyper: Hyper, more: int = MORE) -> Params:
    """Start a point fit, with one compiled program for all costs and numbers of sweeps."""
    numbers = {name: jnp.asarray(getattr(hyper, name), data.y.dtype) for name in ("cost", "rate")}
    sweeps = more * max(FEW, int(PRICE / len(data.y)))
    return started(key, data, hyper._replace(cost=None, rate=None), numbers, min(sweeps, MANY))


choice_start = partial(start, more=1)


@compiled_for(2, once=True)
def started(
    key: jax.Array, data: Ratings, hyper: Hyper, numbers: dict[str, Any], sweeps: jax.Array | int
) -> Params:
    """Find mu and Lambda by empirical Bayes, which the solver keeps fixed, and rows that match them.

    The normal law is centred at the middles of the levels. If middles are 2 apart, the hinges of a u.v at
    distance d from the middle of its level are about C d^2/2, so C takes the place of the precision alpha.
    """
    hyper = hyper._replace(**numbers)
    p = METHOD.init(key, data, hyper)
    if hyper.scales == "joint":
        return sharpened(p, data, hyper, sweeps)
    noise, spread = extent(data)
    apart = width(noise)
    y, variance = apart * (codes(data) - (len(hyper.levels) - 1) / 2), (apart * spread) ** 2
    first, observe = (1 / variance, jnp.zeros_like(variance)), normal(y, 1, variance)
    found = estimate.estimated(SIDES, p, data, hyper, y, hyper.rate, first, observe)
    sides, (alpha, _) = found
    sides |= {site: sides[site] * hyper.cost / alpha for site in ("Lambda_U", "Lambda_V")}
    return sharpened(put(p, sides | {"theta": apart * p.theta}), data, hyper, sweeps)


def sharpened(p: Params, data: Ratings, hyper: Hyper, sweeps: jax.Array | int) -> Params:
    """Sweeps with hinges that get sharper. With more sweeps, they reach a lower J."""

    def step(count: jax.Array, p: Params) -> Params:
        return em(p, data, hyper, hyper.cost * SHARP ** (count / sweeps))

    return jax.lax.fori_loop(0, sweeps, step, p)


def objective(p: Params, data: Ratings, hyper: Hyper) -> jax.Array:
    x, rows = inner(p.U, p.V, data.cells), data.cells.by_row
    fit = 2 * hyper.cost * margins.total_ordinal(x, p.theta, codes(data), rows, None, "hinge")
    fit += margins.threshold_energy(p.theta, centres(len(hyper.levels)), hyper.scale_theta)
    return fit + wishart.energy(p, data, hyper)


def model(data: Ratings, hyper: Hyper) -> None:
    U, V = wishart.sampled(data, hyper)
    with numpyro.plate("user", data.n_users):
        theta = margins.sample_thresholds(centres(len(hyper.levels)), hyper.scale_theta)
    x, strength = inner(U, V, data.cells), 2 * hyper.cost
    law = margins.Margins(hyper.levels, x, theta[data.cells.row], "hinge", strength=strength)
    with numpyro.plate("cell", len(x)):
        numpyro.sample("rating", law, obs=data.y)


# -- a move of the sampler, and the solver --------------------------------------------------------------
def with_level(law: GaussianRows, tau: float) -> GaussianRows:
    """Rows (x_i, d_i) where cells observe x_i.v_j - d_i = (x_i, d_i).(v_j, -1), with d_i ~ N(0, 1/tau)."""
    V = jnp.concatenate([law.V, jnp.full_like(law.V[:, :1], -1)], 1)
    prior = jax.scipy.linalg.block_diag(law.precision, jnp.full((1, 1), tau, V.dtype))
    centre = law.centre if law.centre is None else jnp.pad(law.centre, ((0, 0), (0, 1)))
    return GaussianRows(
        law.rows, law.target, V, law.weight, prior, jnp.append(law.shift, 0), centre
    )


def shift(key: jax.Array, p: Params, data: Ratings, hyper: Hyper) -> Params:
    """Draw U and the mean of each user's thresholds jointly, given a new g; separate draws mix slowly."""
    kg, ku = jax.random.split(key)
    g = METHOD.gibbs.augment(p, data, hyper).sample(kg)
    centred = p._replace(theta=p.theta - jnp.mean(p.theta, 1, keepdims=True))
    # precision of the mean threshold; its prior mean is 0
    tau = p.theta.shape[1] / hyper.scale_theta**2
    both = with_level(METHOD.gibbs.conditionals["U"](centred, data, hyper, g), tau).sample(ku)
    return p._replace(U=both[:, :-1], theta=centred.theta + both[:, -1:])


def update(p: Params, data: Ratings, hyper: Hyper) -> Params:
    """A sweep of EM in double precision. Near the kinks g spans five orders of magnitude, and in single
    precision the solutions of the rows' linear systems could raise J by 1e-4 of its value."""
    return precise_em(p, data, hyper, HINGE.smallest(p.U, hyper))


def em(p: Params, data: Ratings, hyper: Hyper, blunt: jax.Array | float) -> Params:
    """Compute the expected g for |z| >= blunt, then set every block to its mode."""
    x = inner(p.U, p.V, data.cells)
    g = 1 / jnp.maximum(HINGE.shortfall(p, x, data, hyper), blunt)
    return METHOD.parts.update(p, data, hyper, g)


precise_em = doubled(em)


def example(key: jax.Array) -> tuple[Ratings, Hyper]:
    data = few_ratings(key, levels=4)
    hyper = Hyper(2, cost=0.4, scale_theta=1.5, beta0=2.0, rate=1.2, scales="joint")
    return data, prepare(data, hyper)


KINK = "the hinge has no slope where it bends, and there its minimum lies"
METHOD = register(
    composed(
        "gibbs_mmmf", cite="xu2013gibbs", home=__name__, data=Ratings, Params=Params, Hyper=Hyper,
        structure=Matrix(SIDES), observed=HINGE, objective=objective, model=model, example=example,
        prepare=prepare,
        solver=dict(update=update, start=start),
        moves={"shift": shift}, gibbs=dict(row_moves=lambda hyper: ("shift",)),
        choose=Choose(candidates=choices, start=choice_start, by="law"),
        notes=Notes(traits={"no_fold_in": KINK}),
    )
)  # fmt: skip
