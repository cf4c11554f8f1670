r"""Bayesian maximum margin matrix factorization, Gibbs sampling by data augmentation.

Xu, Zhu & Zhang, "Fast Max-Margin Matrix Factorization with Data Augmentation", ICML 2013, with the
Normal-Wishart priors of BPMF; the mixture of Polson & Scott, Bayesian Analysis 2011.

    J = 2C sum_ij sum_{r=1}^{R-1} max(0, 1 - T_ij^r (theta_ir - u_i.v_j))
      + 1/(2 s^2) sum_ir (theta_ir - c_r)^2 + the Normal-Wishart energy of both sides (bpmf)

    paper         here              shape
    U_i, V_j      U, V              users x K, items x K
    mu, Lambda    mu_U, Lambda_U, mu_V, Lambda_V
    theta         theta             users x R - 1
    -             B, ridge          features x K, scalar   where there are features (`_shared/links.py`)
    C, rho, s     cost, centres c_r one apart, scale_theta

Let T_ij^r = +1 if r >= y_ij else -1, and z = C (1 - T (theta - x)). The hinge loss is a mixture of Gaussians
(Polson & Scott, theorem 1):

    exp(-2 max(0, z)) = int_0^inf (2 pi w)^{-1/2} exp(-(z + w)^2 / (2w)) dw
    1/w | z ~ InverseGaussian(1/|z|, 1)

Given g = 1/w, each pair of a cell and a threshold observes x as the Gaussian target theta - T (1 + w/C) with
precision C^2 g. So the conditionals of U, V and theta are Gaussian. The solver is EM: it sets the same blocks
to their modes, with g at E[g] = 1/|z|, and J never rises. Near the kink of a hinge, g is so large that its
cell hardly moves, and EM stops far above the mode. A point fit therefore starts with sweeps in which |z| is
at least C s, where s falls from 1 to `SHARP`.

The joint mode over factors and scales is a poor estimate. With `scales="estimated"` a point fit sets mu and
Lambda once, by empirical Bayes (`core/laws/empirical_bayes.py`), and minimises J over U, V and theta. With
`scales="joint"` it minimises J over all sites. exp(-J) is not a likelihood, so the evidence cannot determine
its scale. The empirical Bayes step therefore treats the levels as numbers with normal noise of precision
alpha (`start`). If the cost and Lambda are multiplied by the same number, the mode of U and V stays the same
but the posterior changes. So Lambda is multiplied by C / alpha, and the cost is chosen by the log score of
held-out ratings. Gibbs draws all sites in both cases. The posterior is a *generalised* one: exp(-J) does not
sum to one over the levels.

Length: in addition to the solver, the sampler has moves and VB has a law of its own.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from bayesfac.core import checks
from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.data.ratings import Ratings, few_ratings
from bayesfac.core.laws import beliefs
from bayesfac.core.laws.distributions import GaussianRows, InverseGaussian
from bayesfac.core.laws.empirical_bayes import normal
from bayesfac.core.laws.normal_wishart import settled
from bayesfac.core.laws.ordinal import Levels, centres, codes, levelled
from bayesfac.core.math import inner, products, row_sums
from bayesfac.core.method import Method, register
from bayesfac.core.precision import doubled
from bayesfac.core.programs import compiled_for
from bayesfac.models.ratings._shared import empirical_bayes as bayes
from bayesfac.models.ratings._shared import margins
from bayesfac.models.ratings._shared import normal_wishart as wishart
from bayesfac.models.ratings._shared import variational as bound

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


def prior_of_theta(hyper: Hyper) -> tuple[np.ndarray, float]:
    """Means and standard deviation of the thresholds."""
    return centres(len(hyper.levels)), hyper.scale_theta


@jax.jit
def extent(data: Ratings) -> tuple[jax.Array, jax.Array]:
    """The variance of the level codes about biases of users and items, and their standard deviation."""
    code = codes(data).astype(data.y.dtype)
    return jnp.maximum(bayes.noise(data.cells, code), LEAST), jnp.std(code)


def width(noise: jax.Array | float) -> jax.Array:
    """The distance between the middles of two levels. It is 2, a margin on both sides, if the noise is
    within the margin. With more noise it falls towards 1, the distance in the prior of the thresholds."""
    return 1 + 1 / jnp.maximum(1, noise)


def init(key: jax.Array, data: Ratings, hyper: Hyper) -> Params:
    """Draw factors whose products have half the standard deviation of u.v; thresholds are one apart."""
    theta = margins.start_thresholds(centres(len(hyper.levels)), data.n_users)
    return Params(**wishart.start(key, data, hyper.n_components, hyper.rate / 2), theta=theta)


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
    p = init(key, data, hyper)
    if hyper.scales == "joint":
        return sharpened(p, data, hyper, sweeps)
    R, (noise, spread) = len(hyper.levels), extent(data)
    apart = width(noise)
    y, variance = apart * (codes(data) - (R - 1) / 2), (apart * spread) ** 2
    begin = bayes.starts(p, data, hyper, y, hyper.rate**0.5)
    first = 1 / variance, jnp.zeros_like(variance)
    sides, (alpha, _) = bayes.estimated(begin, data, hyper, first, normal(y, 1, variance))
    sides |= {site: sides[site] * hyper.cost / alpha for site in ("Lambda_U", "Lambda_V")}
    theta = apart * margins.start_thresholds(centres(R), data.n_users)
    return sharpened(Params(**sides, theta=theta), data, hyper, sweeps)


def sharpened(p: Params, data: Ratings, hyper: Hyper, sweeps: jax.Array | int) -> Params:
    """Sweeps with hinges that get sharper. With more sweeps, they reach a lower J."""

    def step(count: jax.Array, p: Params) -> Params:
        return em(p, data, hyper, hyper.cost * SHARP ** (count / sweeps))

    return jax.lax.fori_loop(0, sweeps, step, p)


def held(hyper: Hyper) -> tuple[str, ...]:
    return () if hyper.scales == "joint" else bayes.HELD


def objective(p: Params, data: Ratings, hyper: Hyper) -> jax.Array:
    x, rows = inner(p.U, p.V, data.cells), data.cells.by_row
    fit = 2 * hyper.cost * margins.total_ordinal(x, p.theta, codes(data), rows, None, "hinge")
    fit += margins.threshold_energy(p.theta, *prior_of_theta(hyper))
    return fit + wishart.energy(p, data, hyper)


# -- blocks given g = 1/w, (cells, R - 1) ------------------------------------------------------------------
def signs(data: Ratings, hyper: Hyper) -> jax.Array:
    """T: +1 where the threshold should be above x, else -1."""
    return jnp.where(jnp.arange(len(hyper.levels) - 1) < codes(data)[:, None], -1.0, 1.0)


def shortfall(p: Params, data: Ratings, hyper: Hyper) -> jax.Array:
    """|z| = C |1 - T (theta - x)|, at least `smallest`."""
    x = inner(p.U, p.V, data.cells)
    z = 1 - signs(data, hyper) * (p.theta[data.cells.row] - x[:, None])
    return jnp.maximum(hyper.cost * jnp.abs(z), smallest(x, hyper))


def smallest(x: jax.Array, hyper: Hyper) -> float:
    """C eps^0.6: with a smaller |z| the precision is too large for a Cholesky factorization."""
    return hyper.cost * float(jnp.finfo(x.dtype).eps) ** 0.6


def augment(p: Params, data: Ratings, hyper: Hyper) -> InverseGaussian:
    return InverseGaussian(1 / shortfall(p, data, hyper))


def observed(p: Params, data: Ratings, hyper: Hyper, g: jax.Array) -> tuple[jax.Array, jax.Array]:
    """All thresholds of a cell together observe x: the mean target, with precision sum_r C^2 g_r."""
    target = p.theta[data.cells.row] - signs(data, hyper) * (1 + 1 / (hyper.cost * g))
    total = jnp.sum(g, 1)
    return jnp.sum(g * target, 1) / total, hyper.cost**2 * total


def conditional_theta(p: Params, data: Ratings, hyper: Hyper, g: jax.Array) -> dist.Distribution:
    """theta_ir given the rest: each rating of i observes x + T (1 + w/C), and the prior has mean c_r."""
    x, rows = inner(p.U, p.V, data.cells), data.cells.by_row
    target = x[:, None] + signs(data, hyper) * (1 + 1 / (hyper.cost * g))
    precision = hyper.scale_theta**-2 + hyper.cost**2 * row_sums(rows, g)
    prior = jnp.asarray(centres(len(hyper.levels)), x.dtype) / hyper.scale_theta**2
    mean = (prior + hyper.cost**2 * row_sums(rows, g * target)) / precision
    return dist.Normal(mean, precision**-0.5).to_event(2)


CONDITIONALS = wishart.blocks(observed) | {"theta": conditional_theta}


def swell(key: jax.Array, p: Params, data: Ratings, hyper: Hyper) -> Params:
    """Metropolis steps of the common scale of x and the thresholds, with w integrated out."""
    x, code, rows = inner(p.U, p.V, data.cells), codes(data), data.cells.by_row

    def rest(t: jax.Array) -> jax.Array:
        c = jnp.exp(t)
        fit = 2 * hyper.cost * margins.total_ordinal(c * x, c * p.theta, code, rows, None, "hinge")
        prior = margins.threshold_energy(c * p.theta, *prior_of_theta(hyper))
        return p.theta.size * t - fit - prior

    t, p = wishart.swell(key, p, hyper, len(x), rest)
    return p._replace(theta=jnp.exp(t) * p.theta)


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
    g = augment(p, data, hyper).sample(kg)
    centred = p._replace(theta=p.theta - jnp.mean(p.theta, 1, keepdims=True))
    # precision of the mean threshold; its prior mean is 0
    tau = p.theta.shape[1] / hyper.scale_theta**2
    both = with_level(CONDITIONALS["U"](centred, data, hyper, g), tau).sample(ku)
    return p._replace(U=both[:, :-1], theta=centred.theta + both[:, -1:])


def update(p: Params, data: Ratings, hyper: Hyper) -> Params:
    """A sweep of EM in double precision. Near the kinks g spans five orders of magnitude, and in single
    precision the solutions of the rows' linear systems could raise J by 1e-4 of its value."""
    return precise_em(p, data, hyper, smallest(p.U, hyper))


def em(p: Params, data: Ratings, hyper: Hyper, blunt: jax.Array | float) -> Params:
    """Compute the expected g for |z| >= blunt, set every block to its mode, then minimise along `stretch`."""
    g = 1 / jnp.maximum(shortfall(p, data, hyper), blunt)
    p = settled(p, CONDITIONALS, held(hyper), data, hyper, g)
    return p if held(hyper) else wishart.stretch(p, wishart.lowest_scale(p, hyper))


precise_em = doubled(em)


# -- the variational law: g at 1 / sqrt(E z^2), thresholds independent normals ---------------------
def begin(p: Params, data: Ratings, hyper: Hyper) -> dict[str, Any]:
    sides = bound.wishart_begin(p, data, hyper)
    return sides | {"theta": {"mean": p.theta, "var": jnp.zeros_like(p.theta)}}


def squared(q: Any, x: jax.Array, variance: jax.Array, data: Ratings, hyper: Hyper) -> tuple:
    """E z, and the square root of E z^2."""
    at, own = data.cells.row, q.theta
    z = hyper.cost * (1 - signs(data, hyper) * (own["mean"][at] - x[:, None]))
    wide = hyper.cost**2 * (own["var"][at] + variance[:, None])
    return z, jnp.maximum(jnp.sqrt(z**2 + wide), smallest(x, hyper))


def expected_observed(
    q: Any, x: jax.Array, variance: jax.Array, data: Ratings, hyper: Hyper
) -> tuple[Any, jax.Array, jax.Array]:
    g = 1 / squared(q, x, variance, data, hyper)[1]
    p = q._replace(U=q.U["mean"], V=q.V["mean"])
    law: Any = conditional_theta(p, data, hyper, g).base_dist  # the others enter its mean linearly
    q = q._replace(theta={"mean": law.mean, "var": law.variance})
    return q, *observed(p._replace(theta=law.mean), data, hyper, g)


def expected(q: Any, x: jax.Array, variance: jax.Array, data: Ratings, hyper: Hyper) -> jax.Array:
    """A bound on minus the expected objective: 2 max(0, z) = z + |z|, and E|z| is at most sqrt(E z^2)."""
    z, root = squared(q, x, variance, data, hyper)
    wide = 0.5 * jnp.sum(q.theta["var"]) / hyper.scale_theta**2
    prior = margins.threshold_energy(q.theta["mean"], *prior_of_theta(hyper)) + wide
    return -jnp.sum(z + root) - prior - bound.wishart_energy(q, data, hyper)


def laws(q: Any) -> dict[str, dist.Distribution]:
    return bound.wishart_laws(q) | {"theta": beliefs.normal(q.theta)}


def likelihood(x: jax.Array, theta: jax.Array, hyper: Hyper) -> margins.Margins:
    return margins.Margins(hyper.levels, x, theta, "hinge", strength=2 * hyper.cost)


def model(data: Ratings, hyper: Hyper) -> None:
    U, V = wishart.sample_sides(data, hyper)
    with numpyro.plate("user", data.n_users):
        theta = margins.sample_thresholds(*prior_of_theta(hyper))
    x = inner(U, V, data.cells)
    with numpyro.plate("cell", data.cells.row.shape[0]):
        numpyro.sample("rating", likelihood(x, theta[data.cells.row], hyper), obs=data.y)


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> Levels:
    """The levels; rows of new users and items are drawn from N(mu, Lambda^-1)."""
    K = hyper.n_components

    def x(cells: Query | Grid) -> tuple:
        return products(p.U, p.V, cells, *wishart.new_rows(p, cells))

    def known(x: jax.Array, theta: jax.Array) -> Levels:
        return likelihood(x, theta, hyper).levels()

    return margins.predicted(known, x, K, p.theta, query, *prior_of_theta(hyper))


def example(key: jax.Array) -> tuple[Ratings, Hyper]:
    data = few_ratings(key, levels=4)
    hyper = Hyper(2, cost=0.4, scale_theta=1.5, beta0=2.0, rate=1.2, scales="joint")
    return data, prepare(data, hyper)


# fmt: off
KINK = "the hinge has no slope where it bends, and there its minimum lies"
METHOD = register(Method(
    name="gibbs_mmmf", cite="xu2013gibbs", data=Ratings, Params=Params, Hyper=Hyper,
    init=init, objective=objective, model=model, predict=predict, example=example,
    update=update, prepare=prepare, start=start, held=held, choices=choices,
    choice_by="law", choice_start=choice_start,
    conditionals=CONDITIONALS, augment=augment,
    variational=bound.record(begin, expected_observed, expected, laws, below=True),
    noncentred=("U", "V"),
    moves={"shift": shift, "swell": swell, "rescale": wishart.rescale},
    row_moves=lambda hyper: ("shift",),
    gauge=partial(wishart.gauge, floating=True),
    dims=wishart.DIMS | {"theta": ("user", "threshold")},
    traits={"no_fold_in": KINK},
    waived={"optimum": KINK, "map": KINK},
))
# fmt: on
