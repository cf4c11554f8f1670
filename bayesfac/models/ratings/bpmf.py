r"""Bayesian probabilistic matrix factorization of ratings, with Normal-Wishart priors.

Salakhutdinov & Mnih, "Bayesian Probabilistic Matrix Factorization using Markov Chain Monte Carlo",
ICML 2008, eq. 1-14. The precision alpha of the noise is learned unless the option `alpha` fixes it (the paper
uses 2). Features of users and items shift the means of their rows, as in Macau (`parts/links.py`).

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

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfac.core import checks
from bayesfac.core.data.ratings import Ratings, few_ratings
from bayesfac.core.laws.normal_wishart import normal_rows
from bayesfac.core.math import inner, total
from bayesfac.core.method import Choose, Notes, register
from bayesfac.core.programs import compiled_for
from bayesfac.parts import links
from bayesfac.parts.composition import composed
from bayesfac.parts.estimate import noise_choices, point
from bayesfac.parts.matrix import Matrix
from bayesfac.parts.observed.normal import Normal
from bayesfac.parts.priors import normal_wishart

# settings that programs take as arguments: see `Method.numbers`
NUMBERS = (
    "alpha", "alpha_shape", "alpha_rate", "beta0", "rate", "offset", "ridge_shape", "ridge_rate"
)  # fmt: skip
SIDES = normal_wishart("user", "U"), normal_wishart("item", "V")


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


def objective(p: Params, data: Ratings, h: Hyper) -> jax.Array:
    """Eq. 1-6, with Macau's links."""
    alpha = h.alpha if p.alpha is None else p.alpha
    rest = data.y - h.offset - inner(p.U, p.V, data.cells)
    J = 0.5 * alpha * total(rest**2, data.cells) - 0.5 * len(data) * jnp.log(alpha)
    if p.alpha is not None:
        J += h.alpha_rate * alpha - (h.alpha_shape - 1) * jnp.log(alpha)
    for side, mu, Lambda in zip(SIDES, (p.mu_U, p.mu_V), (p.Lambda_U, p.Lambda_V), strict=True):
        away = side.unlinked(p, data) - mu
        J += 0.5 * jnp.sum(away @ Lambda * away) - 0.5 * len(away) * jnp.linalg.slogdet(Lambda)[1]
        J += 0.5 * (h.beta0 * mu @ Lambda @ mu + h.rate * jnp.trace(Lambda))
    return J + links.energy(SIDES, p, h)


def model(data: Ratings, h: Hyper) -> None:
    """Eq. 1-6, with Macau's links."""
    K, rows = h.n_components, []
    for side, n in zip(SIDES, data.shape, strict=True):
        law = dist.Wishart(float(K), scale_tril=jnp.eye(K) / h.rate**0.5)
        Lambda = numpyro.sample(side.precision.site, law)
        law = dist.MultivariateNormal(jnp.zeros(K), precision_matrix=h.beta0 * Lambda)
        mu = numpyro.sample(side.mean, law) + links.sampled([side], data, [Lambda], h)[0]
        with numpyro.plate(side.axis, n):
            rows.append(numpyro.sample(side.rows, normal_rows(mu, Lambda)))
    alpha = h.alpha
    if alpha is None:
        alpha = numpyro.sample("alpha", dist.Gamma(h.alpha_shape, h.alpha_rate))
    U, V = rows
    mean = h.offset + inner(U, V, data.cells)
    with numpyro.plate("cell", mean.shape[0]):
        numpyro.sample("rating", dist.Normal(mean, alpha**-0.5), obs=data.y)


def prepare(data: Ratings, h: Hyper) -> Hyper:
    checks.count(h, "n_components", min(data.shape), "the smaller of users and items")
    h = checks.filled(Normal().prepare(data, h), rate=data.spread)
    checks.positive(h, "beta0", "rate", "ridge_shape", "ridge_rate")
    checks.one_of(h, "scales", ("estimated", "joint"))
    return h


@compiled_for(2, once=True, numbers=NUMBERS)
def start(key: jax.Array, data: Ratings, h: Hyper) -> Params:
    """Start a point fit: mu, Lambda and alpha by empirical Bayes; the solver keeps them fixed."""
    return point(METHOD.parts, METHOD.init(key, data, h), data, h)


def example(key: jax.Array) -> tuple[Ratings, Hyper]:
    data = few_ratings(key)
    hyper = Hyper(2, alpha_shape=2.0, alpha_rate=1.0, beta0=2.0, rate=1.2, scales="joint")
    return data, prepare(data, hyper)


METHOD = register(
    composed(
        "bpmf", cite="salakhutdinov2008bpmf", home=__name__, data=Ratings, Params=Params, Hyper=Hyper,
        structure=Matrix(SIDES), observed=Normal(), objective=objective, model=model, example=example,
        prepare=prepare,
        solver=dict(start=start), gibbs=dict(divisible=True), choose=Choose(candidates=noise_choices),
        notes=Notes(numbers=NUMBERS),
    )
)  # fmt: skip
