r"""Bayesian probabilistic matrix factorization of ratings, with Normal-Wishart priors.

Salakhutdinov & Mnih, "Bayesian Probabilistic Matrix Factorization using Markov Chain Monte Carlo",
ICML 2008, eq. 1-14. The precision alpha of the noise is learned unless the option `alpha` fixes it (the paper
uses 2). Features of users and items shift the means of their rows, as in Macau (`_shared/links.py`).

    J = sum_ij [ alpha/2 (y_ij - m - u_i.v_j)^2 - 1/2 log alpha ] + b alpha - (a - 1) log alpha
      + sum over both sides of
        1/2 sum_i (u_i - mu)' Lambda (u_i - mu) - n/2 log|Lambda|                      (eq. 3-4)
      + beta0/2 mu' Lambda mu - 1/2 log|Lambda|                                       (eq. 5-6)
      + rate/2 tr Lambda - (nu0 - K - 1)/2 log|Lambda|                  (W0 = I / rate, nu0 = K)

    paper             here               shape
    U_i, V_j          U, V               users x K, items x K
    mu_U, mu_V        mu_U, mu_V         K
    Lambda_U, _V      Lambda_U, _V       K x K, positive definite
    alpha             alpha              scalar   (None where fixed)
    mu0, beta0        0, beta0;  nu0 = K, and W0 = I / rate
    Macau: beta       B.user, B.item     features x K     (None without features)
    lambda_beta       ridge.user, .item  scalar

With features x_i, u_i - mu becomes u_i - mu - B'x_i in J, and each side adds
        1/2 ridge tr Lambda B'B - F/2 log|Lambda| - (FK/2 + a - 1) log ridge + b ridge.

The paper has beta0 = 2 and rate = 1. With few rows, beta0 = 2 is too strong. A component of u that is the
same for all users gives each item a bias. Such a component has a mean far from 0 compared with its spread,
and beta0 = 2 makes this so improbable that the biases of users and items vanish. Here the prior standard
deviation of mu is ten times that of a row, and `rate` is set from the scale of the ratings. With a twentieth
of this `rate`, point estimates on 250 ratings are better. But chains on 100,000 ratings then do not agree,
because a component that has become very small hardly ever grows again.

If nearly all ratings are the same, as 95 % fives, factors explain the others in training, and alpha becomes
far too large. `bf.fit` then chooses the prior of alpha by held-out ratings (`noise_choices`).

The joint mode is a poor estimate: the density is high where U is small and Lambda is large. With
`scales="estimated"` a point fit sets mu, Lambda and alpha once, by empirical Bayes
(`core/laws/empirical_bayes.py`), that is by mean-field sweeps that include the uncertainty of the rows. The
solver then minimises J over U and V alone. With `scales="joint"` the solver sets each site in turn to its
conditional mode. A Gibbs sweep also draws the scale of U against V (`rescale`), because the ratings do not
determine this scale and the other blocks change it slowly.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfac.core import checks
from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.data.ratings import Ratings, few_ratings
from bayesfac.core.laws import beliefs
from bayesfac.core.laws.empirical_bayes import normal
from bayesfac.core.laws.normal_wishart import settled
from bayesfac.core.math import bilinear, inner, normals, total
from bayesfac.core.method import Method, register
from bayesfac.core.programs import compiled_for
from bayesfac.models.ratings._shared import empirical_bayes as bayes
from bayesfac.models.ratings._shared import links
from bayesfac.models.ratings._shared import normal_wishart as wishart
from bayesfac.models.ratings._shared import variational as bound


class Params(NamedTuple):
    U: jax.Array
    V: jax.Array
    mu_U: jax.Array
    Lambda_U: jax.Array
    mu_V: jax.Array
    Lambda_V: jax.Array
    alpha: jax.Array | None = None
    B: dict[str, jax.Array] | None = None
    ridge: dict[str, jax.Array] | None = None


class Hyper(NamedTuple):
    n_components: int = 10
    alpha: float | None = None  # a number fixes the noise precision (the paper: 2)
    alpha_shape: float = 1.0  # alpha ~ Gamma(shape, rate)
    alpha_rate: float | None = (
        None  # None: the variance of the ratings, or chosen (`noise_choices`)
    )
    beta0: float = 0.01  # the paper: 2
    rate: float | None = None  # None: the standard deviation of the ratings (the paper: 1)
    scales: str = "estimated"  # or "joint": how a point fit sets mu, Lambda and alpha
    offset: float | None = None  # None: the mean rating
    ridge_shape: float = 1.0  # ridge ~ Gamma(shape, rate): the precision of B, in units of Lambda
    ridge_rate: float = 0.1


def prepare(data: Ratings, hyper: Hyper) -> Hyper:
    checks.count(hyper, "n_components", min(data.shape), "the smaller of users and items")
    hyper = checks.filled(hyper, alpha_rate=data.spread**2, rate=data.spread, offset=data.mean)
    checks.positive(hyper, "alpha_shape", "alpha_rate", "beta0", "rate")
    checks.positive(hyper, "ridge_shape", "ridge_rate")
    checks.one_of(hyper, "scales", ("estimated", "joint"))
    if hyper.alpha is not None:
        checks.positive(hyper, "alpha")
    return hyper


def init(key: jax.Array, data: Ratings, hyper: Hyper) -> Params:
    """Draw factors whose products have half the standard deviation of the ratings, and Lambda to match."""
    K, (ku, kv) = hyper.n_components, jax.random.split(key)
    scale = (data.spread / 2) ** 0.5 / K**0.25
    U = scale * normals(ku, (data.n_users, K))
    V = scale * normals(kv, (data.n_items, K))
    zero, precision = jnp.zeros(K), jnp.eye(K) / scale**2
    alpha = None if hyper.alpha is not None else jnp.asarray(data.spread**-2)
    return Params(U, V, zero, precision, zero, precision, alpha, **links.start(data, K))


@compiled_for(2, once=True)
def start(key: jax.Array, data: Ratings, hyper: Hyper) -> Params:
    """Start a point fit: mu, Lambda and alpha by empirical Bayes; the solver keeps them fixed."""
    p = init(key, data, hyper)
    if hyper.scales == "joint":
        return p
    y = data.y - hyper.offset

    observe = normal(y, hyper.alpha_shape, hyper.alpha_rate, hyper.alpha)
    first = jnp.asarray(precision_of_noise(p, hyper), y.dtype), jnp.zeros((), y.dtype)
    begin = bayes.starts(p, data, hyper, y, data.spread**0.5)
    sides, (alpha, variance) = bayes.estimated(begin, data, hyper, first, observe)
    if p.alpha is None:
        return Params(**sides)
    # a point predicts with the noise alone, so the noise must include the variance of u.v; all precisions
    # get the same factor, so that the modes of U and V stay where they are
    share = 1 / (1 + alpha * variance)
    scaled = {site: share * sides[site] for site in ("Lambda_U", "Lambda_V")}
    return Params(**sides | scaled, alpha=share * alpha)


def held(hyper: Hyper) -> tuple[str, ...]:
    return () if hyper.scales == "joint" else (*bayes.HELD, "alpha")


def precision_of_noise(p: Params, hyper: Hyper) -> jax.Array | float:
    return hyper.alpha if p.alpha is None else p.alpha


def objective(p: Params, data: Ratings, hyper: Hyper) -> jax.Array:
    alpha = precision_of_noise(p, hyper)
    residual = data.y - hyper.offset - inner(p.U, p.V, data.cells)
    fit = 0.5 * alpha * total(residual**2, data.cells) - 0.5 * len(data) * jnp.log(alpha)
    if p.alpha is not None:
        fit += hyper.alpha_rate * alpha - (hyper.alpha_shape - 1) * jnp.log(alpha)
    return fit + wishart.energy(p, data, hyper)


def observed(p: Params, data: Ratings, hyper: Hyper) -> tuple:
    """Eq. 11-13: each cell observes u.v as y - m with precision alpha."""
    return data.y - hyper.offset, precision_of_noise(p, hyper)


def conditional_alpha(p: Params, data: Ratings, hyper: Hyper) -> dist.Gamma:
    residual = data.y - hyper.offset - inner(p.U, p.V, data.cells)
    shape = hyper.alpha_shape + 0.5 * len(data)
    return dist.Gamma(shape, hyper.alpha_rate + 0.5 * total(residual**2, data.cells))


CONDITIONALS = wishart.blocks(observed) | {"alpha": conditional_alpha}


def update(p: Params, data: Ratings, hyper: Hyper) -> Params:
    """Set each block to the mode of its conditional; a Gibbs sweep samples the same conditionals."""
    p = settled(p, CONDITIONALS, held(hyper), data, hyper)
    return p if held(hyper) else wishart.stretch(p, wishart.lowest_scale(p, hyper))


# -- the variational law: alpha is Gamma -------------------------------------------------------------
def begin(p: Params, data: Ratings, hyper: Hyper) -> dict[str, Any]:
    sides = bound.wishart_begin(p, data, hyper)
    if p.alpha is None:
        return sides
    shape = jnp.asarray(hyper.alpha_shape + 0.5 * len(data.y), p.U.dtype)
    return sides | {"alpha": {"shape": shape, "rate": shape / p.alpha}}


def misfit(x: jax.Array, variance: jax.Array, data: Ratings, hyper: Hyper) -> jax.Array:
    """The expected sum of squares of the ratings about u.v."""
    return jnp.sum((data.y - hyper.offset - x) ** 2 + variance)


def expected_observed(
    q: Any, x: jax.Array, variance: jax.Array, data: Ratings, hyper: Hyper
) -> tuple[Any, jax.Array, Any]:
    if q.alpha is None:
        return q, data.y - hyper.offset, hyper.alpha
    rate = hyper.alpha_rate + 0.5 * misfit(x, variance, data, hyper)
    alpha = {**q.alpha, "rate": rate}
    return q._replace(alpha=alpha), data.y - hyper.offset, alpha["shape"] / rate


def expected(q: Any, x: jax.Array, variance: jax.Array, data: Ratings, hyper: Hyper) -> jax.Array:
    """Minus the expected objective."""
    noise = beliefs.gamma(q.alpha) if q.alpha is not None else None
    alpha = hyper.alpha if noise is None else noise.mean
    log = jnp.log(hyper.alpha) if noise is None else beliefs.expected_log(q.alpha)
    fit = 0.5 * (len(data.y) * log - alpha * misfit(x, variance, data, hyper))
    if noise is not None:
        fit += (hyper.alpha_shape - 1) * log - hyper.alpha_rate * alpha
    return fit - bound.wishart_energy(q, data, hyper)


def laws(q: Any) -> dict[str, dist.Distribution]:
    noise = {} if q.alpha is None else {"alpha": beliefs.gamma(q.alpha)}
    return bound.wishart_laws(q) | noise


def model(data: Ratings, hyper: Hyper) -> None:
    U, V = wishart.sample_sides(data, hyper)
    alpha = hyper.alpha
    if alpha is None:
        alpha = numpyro.sample("alpha", dist.Gamma(hyper.alpha_shape, hyper.alpha_rate))
    mean = hyper.offset + inner(U, V, data.cells)
    with numpyro.plate("cell", data.cells.row.shape[0]):
        numpyro.sample("rating", dist.Normal(mean, alpha**-0.5), obs=data.y)


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> dist.Distribution:
    """The rating; the row of a user or item without training data is drawn from N(mu, Lambda^-1)."""
    mean, variance = bilinear(p.U, p.V, query, *wishart.new_rows(p, query))
    noise = 1 / jnp.asarray(precision_of_noise(p, hyper), mean.dtype)
    return dist.Normal(hyper.offset + mean, jnp.sqrt(noise + variance))


def example(key: jax.Array) -> tuple[Ratings, Hyper]:
    data = few_ratings(key)
    hyper = Hyper(2, alpha_shape=2.0, alpha_rate=1.0, beta0=2.0, rate=1.2, scales="joint")
    return data, prepare(data, hyper)


# fmt: off
METHOD = register(Method(
    name="bpmf", cite="salakhutdinov2008bpmf", data=Ratings, Params=Params, Hyper=Hyper,
    init=init, objective=objective, model=model, predict=predict, example=example,
    update=update, prepare=prepare, start=start, held=held, choices=bayes.noise_choices,
    conditionals=CONDITIONALS, moves={"rescale": wishart.rescale}, noncentred=("U", "V"),
    variational=bound.record(begin, expected_observed, expected, laws),
    gauge=wishart.gauge, divisible=True,
    dims=wishart.DIMS | {"alpha": ()},
))
# fmt: on
