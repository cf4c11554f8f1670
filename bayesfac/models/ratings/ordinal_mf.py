r"""Ordinal matrix factorization: cumulative probit or logit, thresholds per user or shared.

Koren & Sill, "OrdRec", RecSys 2011 (thresholds per user); the priors of BPMF (Salakhutdinov & Mnih, ICML
2008); the probit sampler of Albert & Chib, JASA 1993. Thresholds as in mmmf, with a proper likelihood.

    P(y_ij <= r) = F(theta_ir - u_i.v_j),   r = 1..R-1,     F the normal or the logistic distribution function
    J = - sum_ij log( F(theta_{i,y} - x_ij) - F(theta_{i,y-1} - x_ij) )
      + the Normal-Wishart energy of both sides (bpmf)
      + sum_i [ 1/2 |(t_i - centre)/s|^2 + sum_{r>1} log(theta_ir - theta_{i,r-1}) ] + 1/2 |centre - c|^2

where t_i = (theta_i1, log(theta_i2 - theta_i1), ...), the free coordinates of theta_i, are normal about
`centre` with standard deviations s = (scale_shift, scale_gap, ...); the logarithms are the Jacobian.

    paper      here               shape
    U, V       U, V               users x K, items x K     with mu_U, Lambda_U, mu_V, Lambda_V
    t_i        theta              users x R - 1, rising     (None where thresholds are shared)
    beta       centre             R - 1                     free coordinates of the population's thresholds
    -          B, ridge           features x K, scalar      where there are features (`_shared/links.py`)

With `scales="estimated"` a point fit sets mu, Lambda and the centre of users' thresholds once, by empirical
Bayes (`core/laws/empirical_bayes.py`), and descends J in all other sites; with `scales="joint"` it descends
in all sites, and the factors often vanish.

A Gibbs sweep (probit only) draws a latent normal between the thresholds of each rating, then Gaussian blocks;
thresholds move by Metropolis steps with the latents integrated out.

VB takes either link. A user's row and first threshold have one normal law; log gaps are points (EM).

Length: more than 300 lines, for two kinds of thresholds, the moves that thresholds need to mix, and VB.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions.transforms import OrderedTransform

from bayesfac.core import checks
from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.data.ratings import Ratings, few_ratings
from bayesfac.core.errors import BayesfacError
from bayesfac.core.laws import ordinal
from bayesfac.core.laws.ordinal import Between, Levels, averaged, codes, log_between
from bayesfac.core.math import inner, metropolis, products, row_sums
from bayesfac.core.method import Method, register
from bayesfac.models.ratings._shared import empirical_bayes as bayes
from bayesfac.models.ratings._shared import normal_wishart as wishart
from bayesfac.models.ratings._shared import threshold_law as law
from bayesfac.models.ratings._shared import variational as bound

rising = OrderedTransform()  # free coordinates -> thresholds


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
    scales: str = "estimated"  # or "joint": what a point fit does with mu and Lambda
    levels: tuple[float, ...] | None = None  # None: those of the data
    ridge_shape: float = 1.0  # ridge ~ Gamma(shape, rate): the precision of B, in units of Lambda
    ridge_rate: float = 0.1


def prepare(data: Ratings, hyper: Hyper) -> Hyper:
    hyper = ordinal.levelled(data, hyper, "ordinal_mf")
    checks.positive(hyper, "scale_shift", "scale_gap", "beta0", "rate", "ridge_shape", "ridge_rate")
    checks.one_of(hyper, "scales", ("estimated", "joint"))
    checks.one_of(hyper, "link", ("probit", "logistic"))
    checks.one_of(hyper, "thresholds", ("user", "shared"))
    return hyper


def init(key: jax.Array, data: Ratings, hyper: Hyper) -> Params:
    """Small factors; the population's thresholds are the normal quantiles of the levels' shares."""
    sides, R = wishart.start(key, data, hyper.n_components), len(hyper.levels)
    share = (jnp.bincount(codes(data), length=R) + 1.0).cumsum()[:-1] / (len(data) + R)
    centre = rising.inv(jax.scipy.stats.norm.ppf(share))
    theta = jnp.tile(rising(centre), (data.n_users, 1)) if hyper.thresholds == "user" else None
    return Params(**sides, centre=centre, theta=theta)


def start(key: jax.Array, data: Ratings, hyper: Hyper) -> Params:
    """The start of a point fit: mu and Lambda by empirical Bayes, which the solver then holds.

    A cell's log probability bends by at most 1 in x (probit) or 1/2 (logistic): with this weight w and the
    target x + slope/w the normal is a bound. Free coordinates of thresholds take a preconditioned step in
    every sweep.
    """
    p = init(key, data, hyper)
    if hyper.scales == "joint":
        return p
    weight = jnp.full_like(data.y, 1.0 if hyper.link == "probit" else 0.5)

    def observe(own: dict, x: jax.Array, variance: jax.Array) -> tuple:
        q = p._replace(**own)
        total, slope = jax.value_and_grad(lambda x: jnp.sum(log_likelihood(q, x, data, hyper)))(x)
        fit = total - 0.5 * jnp.sum(weight * variance) - energy(q, hyper)
        q = stepped(q, x, data, hyper)
        return {site: getattr(q, site) for site in own}, x + slope / weight, weight, fit

    own = {site: value for site in ("centre", "theta") if (value := getattr(p, site)) is not None}
    y = (data.y - data.mean) / data.spread
    begin = bayes.starts(p, data, hyper, y, 1.0)
    sides, own = bayes.estimated(begin, data, hyper, own, observe)
    return Params(**sides, **own)


def held(hyper: Hyper) -> tuple[str, ...]:
    """`centre` too: the Jacobian would pull every user's gaps, and `centre` with them, towards zero."""
    if hyper.scales == "joint":
        return ()
    return bayes.HELD if hyper.thresholds == "shared" else (*bayes.HELD, "centre")


def stepped(p: Params, x: jax.Array, data: Ratings, hyper: Hyper) -> Params:
    """Thresholds a step towards the mode of their free coordinates given x; `centre` at its mode."""
    t = p.centre[None] if p.theta is None else rising.inv(p.theta)

    def density(t: jax.Array) -> jax.Array:
        q = p._replace(centre=t[0]) if p.theta is None else p._replace(theta=rising(t))
        return jnp.sum(log_likelihood(q, x, data, hyper)) - energy(q, hyper)

    t = t + jax.grad(density)(t) / bend(t, p, data, hyper)
    if p.theta is None:
        return p._replace(centre=t[0])
    (c, s), n = population(hyper), len(t)
    return p._replace(theta=rising(t), centre=(c + t.sum(0) / s**2) / (1 + n / s**2))


def bend(t: jax.Array, p: Params, data: Ratings, hyper: Hyper) -> jax.Array:
    """A bound on how much the log density of each row's free coordinates t bends, (rows, R - 1).

    The first coordinate shifts all thresholds; the logarithm of a gap shifts all above it by the gap.
    """
    shared, R = p.theta is None, len(hyper.levels)
    above = (codes(data)[:, None] >= jnp.arange(R - 1)).astype(data.y.dtype)
    count = above.sum(0)[None] if shared else row_sums(data.cells.by_row, above)
    reach = jnp.concatenate([jnp.ones_like(t[:, :1]), jnp.exp(t[:, 1:])], 1)
    prior = jnp.ones(R - 1) if shared else population(hyper)[1] ** -2.0
    return prior + (R - 1) / 2 * reach**2 * count


def population(hyper: Hyper) -> tuple[jax.Array, jax.Array]:
    """The prior mean of `centre`: thresholds one apart about zero; and the sds of users about `centre`."""
    gaps = len(hyper.levels) - 2
    sd = jnp.array([hyper.scale_shift] + [hyper.scale_gap] * gaps)
    return jnp.array([-gaps / 2] + [0.0] * gaps), sd


def limits(p: Params, data: Ratings) -> tuple[jax.Array, jax.Array]:
    """The thresholds below and above each rating, -inf and inf at the ends."""
    table = ordinal.edges(rising(p.centre)[None] if p.theta is None else p.theta)
    row, code = 0 if p.theta is None else data.cells.row, codes(data)
    return table[row, code], table[row, code + 1]


def log_likelihood(p: Params, x: jax.Array, data: Ratings, hyper: Hyper) -> jax.Array:
    """The log probability of every rating, given x = u.v."""
    low, high = limits(p, data)
    return log_between(low - x, high - x, hyper.link)


def energy(p: Params, hyper: Hyper) -> jax.Array:
    """Minus the log density of the free coordinates, without constants."""
    c, s = population(hyper)
    own = 0.0 if p.theta is None else jnp.sum(((rising.inv(p.theta) - p.centre) / s) ** 2)
    return 0.5 * (own + jnp.sum((p.centre - c) ** 2))


def objective(p: Params, data: Ratings, hyper: Hyper) -> jax.Array:
    fit = -jnp.sum(log_likelihood(p, inner(p.U, p.V, data.cells), data, hyper))
    cost = fit + wishart.energy(p, data, hyper) + energy(p, hyper)
    return cost if p.theta is None else cost + jnp.sum(rising.inv(p.theta)[:, 1:])


# -- blocks given the latent z_ij ~ N(x_ij, 1), which lies between its thresholds -------------------
def augment(p: Params, data: Ratings, hyper: Hyper) -> Between:
    if hyper.link != "probit":
        raise BayesfacError(
            "ordinal_mf has Gibbs for link='probit' only: use NUTS for link='logistic'"
        )
    return Between(inner(p.U, p.V, data.cells), *limits(p, data))


CONDITIONALS = wishart.blocks(lambda p, data, hyper, z: (z, 1.0))  # each cell observes u.v as z


def thresholds(key: jax.Array, p: Params, data: Ratings, hyper: Hyper) -> Params:
    """Metropolis steps of the free coordinates, with z integrated out; then a Gaussian draw of `centre`."""
    x, shared = inner(p.U, p.V, data.cells), p.theta is None
    (c, s), R = population(hyper), len(hyper.levels)
    used = jax.nn.one_hot(codes(data), R, dtype=x.dtype)
    count = used.sum(0)[None] if shared else row_sums(data.cells.by_row, used)
    prior = jnp.ones(R - 1) if shared else s**-2.0
    step = 1.7 / jnp.sqrt((prior + 0.3 * (count[:, 1:] + count[:, :-1])) * (R - 1))

    def density(t: jax.Array) -> jax.Array:
        if shared:
            q = p._replace(centre=t[0])
            return (jnp.sum(log_likelihood(q, x, data, hyper)) - energy(q, hyper))[None]
        each = log_likelihood(p._replace(theta=rising(t)), x, data, hyper)
        fit = row_sums(data.cells.by_row, each)
        return fit - 0.5 * jnp.sum(((t - p.centre) / s) ** 2, 1)

    walk, rest = jax.random.split(key)
    t = metropolis(walk, p.centre[None] if shared else rising.inv(p.theta), step, density, times=2)
    if shared:
        return p._replace(centre=t[0])
    precision = 1 + len(t) / s**2
    mean = (c + t.sum(0) / s**2) / precision
    centre = mean + jax.random.normal(rest, mean.shape, mean.dtype) / precision**0.5
    return p._replace(theta=rising(t), centre=centre)


def scaled(p: Params, t: jax.Array) -> tuple[Params, jax.Array]:
    """All thresholds times e^t, and the log Jacobian; of the free coordinates, the logarithms grow by t."""
    first = jnp.arange(len(p.centre)) == 0
    centre = jnp.where(first, jnp.exp(t) * p.centre, p.centre + t)
    if p.theta is None:
        return p._replace(centre=centre), t
    return p._replace(centre=centre, theta=jnp.exp(t) * p.theta), t * (1 + len(p.theta))


def swell(key: jax.Array, p: Params, data: Ratings, hyper: Hyper) -> Params:
    """Metropolis steps of the common scale of x and all thresholds."""
    x = inner(p.U, p.V, data.cells)

    def rest(t: jax.Array) -> jax.Array:
        q, jacobian = scaled(p, t)
        fit = jnp.sum(log_likelihood(q, jnp.exp(t) * x, data, hyper))
        return jacobian + fit - energy(q, hyper)

    t, p = wishart.swell(key, p, hyper, len(x), rest)
    return scaled(p, t)[0]


# -- the variational law: see `_shared/threshold_law.py`; log gaps (shared: all thresholds) are points -----
def begin(p: Params, data: Ratings, hyper: Hyper) -> dict[str, Any]:
    free = p.centre if p.theta is None else rising.inv(p.theta)
    return bound.wishart_begin(p) | law.begin(p.U, p.centre, free)


def climbed(q: Any, x: jax.Array, data: Ratings, hyper: Hyper) -> Any:
    """Points a step up the bound, row by row."""
    t, (c, s) = law.points(q), law.prior_of_points(q, *population(hyper))

    def density(t: jax.Array) -> jax.Array:
        each = log_likelihood(law.at(q, t), x, data, hyper)
        fit = jnp.sum(each)[None] if q.theta is None else row_sums(data.cells.by_row, each)
        return fit - 0.5 * jnp.sum(((t - c) / s) ** 2, 1)

    free = t if q.theta is None else jnp.pad(t, ((0, 0), (1, 0)))
    most = bend(free, law.at(q, t), data, hyper)[:, free.shape[1] - t.shape[1] :]
    return law.with_points(q, law.climbed(t, most, density))


def bending(hyper: Hyper) -> float:
    """The log probability of a level bends by this at most in x."""
    return 1.0 if hyper.link == "probit" else 0.5


def expected_observed(
    q: Any, x: jax.Array, variance: jax.Array, data: Ratings, hyper: Hyper
) -> tuple[Any, jax.Array, float]:
    """A cell observes x at E z, the mean of the truncated law about E x."""
    q, weight = climbed(q, x, data, hyper), bending(hyper)
    known = law.at(q, law.points(q))
    slope = jax.grad(lambda x: jnp.sum(log_likelihood(known, x, data, hyper)))(x)
    return q, x + slope / weight, weight


def expected(q: Any, x: jax.Array, variance: jax.Array, data: Ratings, hyper: Hyper) -> jax.Array:
    """A bound on minus the expected objective: with z at its best, or by `bending`."""
    fit = jnp.sum(log_likelihood(law.at(q, law.points(q)), x, data, hyper))
    fit -= 0.5 * bending(hyper) * jnp.sum(variance)
    return fit - bound.wishart_energy(q, hyper) - law.energy(q, *population(hyper))


def fitted(q: Any, x: jax.Array, variance: jax.Array, data: Ratings, hyper: Hyper) -> jax.Array:
    """The expected log likelihood by five points of Gauss and Hermite."""
    known, root = law.at(q, law.points(q)), jnp.sqrt(variance)
    points = zip(*np.polynomial.hermite_e.hermegauss(5), strict=True)
    each = (w * jnp.sum(log_likelihood(known, x + z * root, data, hyper)) for z, w in points)
    return sum(each, jnp.zeros(())) / (2 * np.pi) ** 0.5


VARIATIONAL = bound.record(
    begin, expected_observed, expected, law.laws, fitted=fitted,
    prior=lambda q, side, hyper: law.prior(q, side, hyper, population(hyper)[1]),
    settle=lambda q, hyper: law.settle(bound.wishart_settle(q, hyper), *population(hyper)),
    split=law.split, below=True,
)  # fmt: skip


def likelihood(x: jax.Array, theta: jax.Array, hyper: Hyper) -> Levels:
    edges = ordinal.edges(theta) - x[..., None]
    return Levels(hyper.levels, log_between(edges[..., :-1], edges[..., 1:], hyper.link))


def model(data: Ratings, hyper: Hyper) -> None:
    U, V = wishart.sample_sides(data, hyper)
    c, s = population(hyper)
    centre = numpyro.sample("centre", dist.Normal(c, 1).to_event(1))
    thresholds = rising(centre)
    if hyper.thresholds == "user":
        free = dist.Normal(centre, s).to_event(1)
        with numpyro.plate("user", data.n_users):
            theta = numpyro.sample("theta", dist.TransformedDistribution(free, rising))
        thresholds = theta[data.cells.row]
    with numpyro.plate("cell", data.cells.row.shape[0]):
        levels = likelihood(inner(U, V, data.cells), thresholds, hyper)
        numpyro.sample("rating", levels, obs=data.y)


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> Levels:
    """The levels; the choice is the median. New users, their thresholds and new items are prior draws."""
    mean, new, at = products(p.U, p.V, query, *wishart.new_rows(p, query))
    K, sd = hyper.n_components, population(hyper)[1]

    def theta(shift: jax.Array | float) -> jax.Array:
        if p.theta is None:
            return rising(p.centre)
        return ordinal.thresholds_at(p.theta, query, rising(p.centre + sd * shift))

    def levels(point: jax.Array) -> Levels:
        return likelihood(at(point[: K + 1]), theta(point[K + 1 :]), hyper)

    exact = likelihood(mean, theta(0.0), hyper)
    return averaged(exact, levels, K + len(hyper.levels), new)


def example(key: jax.Array) -> tuple[Ratings, Hyper]:
    """Seven users, five items, four levels."""
    data = few_ratings(key, levels=4)
    return data, prepare(data, Hyper(2, beta0=2.0, rate=1.2, scales="joint"))


# fmt: off
METHOD = register(Method(
    name="ordinal_mf", cite="koren2011ordrec", data=Ratings, Params=Params, Hyper=Hyper,
    init=init, objective=objective, model=model, predict=predict, example=example,
    prepare=prepare, start=start, held=held,
    conditionals=CONDITIONALS, augment=augment, variational=VARIATIONAL, noncentred=("U", "V"),
    moves={"thresholds": thresholds, "swell": swell, "rescale": wishart.rescale},
    row_moves=lambda hyper: ("thresholds",) if hyper.link == "probit" else None,
    gauge=partial(wishart.gauge, floating=True),
    dims=wishart.DIMS | {"centre": ("threshold",), "theta": ("user", "threshold")},
    waived={"moves": "two are Metropolis steps: what they leave as it is, Geweke's test shows"},
))
# fmt: on
