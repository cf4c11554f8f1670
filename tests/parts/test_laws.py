"""The laws of observations that no method of the library has, in small methods with two kinds of priors.

J and the model of the cells are stated here by hand, so that the contract compares them with the parts.
"""

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.special import gammaln
from scipy import integrate, stats

import bayesfac as bf
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.math import inner
from bayesfac.models.ratings._shared import normal_wishart as wishart
from bayesfac.parts.composition import composed
from bayesfac.parts.matrix import Matrix
from bayesfac.parts.observed.bernoulli import Bernoulli
from bayesfac.parts.observed.negative_binomial import NegativeBinomial
from bayesfac.parts.observed.student_t import StudentT
from bayesfac.parts.priors import bias, ridge
from bayesfac.testing import CHECKS


class Params(NamedTuple):
    U: jax.Array
    V: jax.Array
    mu_U: jax.Array | None = None
    Lambda_U: jax.Array | None = None
    mu_V: jax.Array | None = None
    Lambda_V: jax.Array | None = None
    bias_user: jax.Array | None = None
    bias_item: jax.Array | None = None
    alpha: jax.Array | None = None
    r: jax.Array | None = None
    B: dict | None = None
    C: dict | None = None
    ridge: dict | None = None


class Hyper(NamedTuple):
    n_components: int = 2
    offset: float | None = None
    beta0: float = 2.0
    rate: float = 1.2
    ridge_shape: float = 1.0
    ridge_rate: float = 0.1
    scale: float = 0.7
    nu: float = 4.0
    alpha: float | None = None
    alpha_shape: float = 2.0
    alpha_rate: float | None = 1.0
    r: float | None = None
    r_shape: float = 3.0
    r_rate: float = 1.0


WISHART = Matrix(wishart.SIDES)
RIDGE = Matrix(
    (ridge("user", "U", "scale"), ridge("item", "V", "scale")),
    (bias("user", "scale"), bias("item", "scale")),
)


# -- J and the model of the cells by hand -----------------------------------------------------------------
def student(y, mean, p, h):
    alpha = h.alpha if p.alpha is None else p.alpha
    t = (y - mean) * jnp.sqrt(alpha)
    own = 0.0 if p.alpha is None else alpha - jnp.log(alpha)  # alpha ~ Gamma(2, 1)
    return jnp.sum(2.5 * jnp.log(1 + t**2 / 4)) - len(y) * jnp.log(alpha) / 2 + own


def student_law(mean, h):
    alpha = numpyro.sample("alpha", dist.Gamma(2.0, 1.0)) if h.alpha is None else h.alpha
    return dist.StudentT(4.0, mean, 1 / jnp.sqrt(alpha))


def logistic(y, mean, p, h):
    return jnp.sum(jnp.log(1 + jnp.exp(mean)) - y * mean)


def probit(y, mean, p, h):
    one = jax.scipy.stats.norm.cdf(mean)
    return -jnp.sum(jnp.log(jnp.where(y == 1, one, 1 - one)))


def counts(y, mean, p, h):
    r, m = h.r if p.r is None else p.r, jnp.exp(mean)
    fit = gammaln(y + r) - gammaln(r) + r * jnp.log(r / (r + m)) + y * jnp.log(m / (r + m))
    return -jnp.sum(fit) + (0.0 if p.r is None else r - 2 * jnp.log(r))  # r ~ Gamma(3, 1)


def counts_law(mean, h):
    r = numpyro.sample("r", dist.Gamma(3.0, 1.0)) if h.r is None else h.r
    return dist.NegativeBinomial2(jnp.exp(mean), r)


LAWS = {
    "student": (StudentT(), student, student_law),
    "logit": (Bernoulli(), logistic, lambda mean, h: dist.BernoulliLogits(mean)),
    "probit": (Bernoulli("probit"), probit, lambda mean, h: dist.BernoulliProbs(
        jax.scipy.stats.norm.cdf(mean))),
    "counts": (NegativeBinomial(), counts, counts_law),
}  # fmt: skip


def values(law, key, shape=(7, 5)):
    z = jax.random.normal(key, shape)
    if law == "student":
        return z.at[1, 2].set(9.0)
    return 1.0 * (z > 0.3) if law in ("logit", "probit") else jnp.round(jnp.exp(1.5 * z))


def few(law, key):
    seen = jax.random.uniform(jax.random.fold_in(key, 1), (7, 5)) < 0.75
    return Ratings(np.where(seen, values(law, key), np.nan))


@cache
def method(law, kind, **settings):
    """A method of this law and of these priors: "wishart", or "ridge" with biases."""
    own, by_hand, cells = LAWS[law]
    structure = WISHART if kind == "wishart" else RIDGE

    def objective(p, data, h):
        mean = h.offset + inner(p.U, p.V, data.cells)
        if kind == "wishart":
            return by_hand(data.y, mean, p, h) + wishart.energy(p, data, h)
        mean += p.bias_user[data.cells.row] + p.bias_item[data.cells.col]
        squares = [jnp.sum(x**2) for x in (p.U, p.V, p.bias_user, p.bias_item)]
        return by_hand(data.y, mean, p, h) + sum(squares) / (2 * h.scale**2)

    def model(data, h):
        if kind == "wishart":
            mean = inner(*wishart.sampled(data, h), data.cells)
        else:
            n, m, K = *data.shape, h.n_components
            rows = {"U": (n, K), "V": (m, K), "bias_user": (n,), "bias_item": (m,)}
            p = Params(**{
                site: numpyro.sample(site, dist.Normal(0, h.scale).expand(shape).to_event(len(shape)))
                for site, shape in rows.items()
            })  # fmt: skip
            mean = inner(p.U, p.V, data.cells)
            mean += p.bias_user[data.cells.row] + p.bias_item[data.cells.col]
        law = cells(h.offset + mean, h)
        with numpyro.plate("cell", len(mean)):
            numpyro.sample("rating", law, obs=data.y)

    def example(key):
        data = few(law, key)
        return data, own.prepare(data, Hyper(**settings))

    return composed(
        f"{law}_{kind}", cite="none", home=__name__, data=Ratings, Params=Params, Hyper=Hyper,
        structure=structure, observed=own, objective=objective, model=model, example=example,
        prepare=own.prepare,
    )  # fmt: skip
