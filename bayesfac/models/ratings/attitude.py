r"""Attitude model: a rating is a product of experts, one for each attitude of the user, by L-BFGS.

Marlin, "Collaborative Filtering: A Machine Learning Perspective", MSc thesis, Toronto 2004.

    P(y_ij = r) = exp(x_ijr) / sum_s exp(x_ijs),      x_ijr = b_jr + sum_k a_ik B_jrk
    J(A, B, b) = - sum_ij log P(y_ij) + 1/2 |A|^2 + 1/(2 s^2) |B|^2 + 1/(2 s_b^2) |b|^2

    paper                  here       shape
    expression levels      A          users x K           how strongly a user holds each attitude
    preference parameters  B          R x items x K       how much an attitude favours a level of an item
                           bias       R x items           b: how much all users favour a level of an item
                           scale, scale_bias              s, s_b

Each attitude is an expert that multiplies the odds of the levels by exp(a_ik B_jrk). In the thesis the
expression levels are discrete; here a_i ~ N(0, I) is real, so that the model is a multinomial-logit
factorization with a smooth mode. A constant added to the scores of all levels cancels; the prior determines
that constant and the scale of A against B. A rotation of the attitudes remains free.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfac.core import checks
from bayesfac.core.data.cells import Cells, Grid, Query
from bayesfac.core.data.ratings import Ratings, few_ratings
from bayesfac.core.laws.ordinal import Levels, averaged, codes, levelled
from bayesfac.core.math import inner
from bayesfac.core.method import Method, Rotation, register


class Params(NamedTuple):
    A: jax.Array
    B: jax.Array
    bias: jax.Array


class Hyper(NamedTuple):
    n_components: int = 5
    scale: float = 0.2
    scale_bias: float = 1.0
    levels: tuple[float, ...] | None = None  # None: those of the data


def prepare(data: Ratings, hyper: Hyper) -> Hyper:
    hyper = levelled(data, hyper, "attitude")
    checks.positive(hyper, "scale", "scale_bias")
    return hyper


def init(key: jax.Array, data: Ratings, hyper: Hyper) -> Params:
    """Attitudes and preferences drawn from their priors; biases zero."""
    ka, kb = jax.random.split(key)
    (n, m), K, R = data.shape, hyper.n_components, len(hyper.levels)
    B = hyper.scale * jax.random.normal(kb, (R, m, K))
    return Params(jax.random.normal(ka, (n, K)), B, jnp.zeros((R, m)))


def scores(p: Params, query: Cells | Query | Grid) -> jax.Array:
    """x_ijr, levels x cells; a user or item without training data (-1) adds nothing."""
    x = inner(jnp.broadcast_to(p.A, (len(p.B), *p.A.shape)), p.B, query)
    b = jnp.where(jnp.asarray(query.col) >= 0, p.bias[:, query.col], 0)
    return x + (b[:, None] if isinstance(query, Grid) else b)


def objective(p: Params, data: Ratings, hyper: Hyper) -> jax.Array:
    own = codes(data) == jnp.arange(len(hyper.levels))[:, None]
    fit = -jnp.sum(jnp.where(own, jax.nn.log_softmax(scores(p, data.cells), 0), 0))
    ridge = jnp.sum(p.A**2) + jnp.sum(p.B**2) / hyper.scale**2
    return fit + 0.5 * (ridge + jnp.sum(p.bias**2) / hyper.scale_bias**2)


def model(data: Ratings, hyper: Hyper) -> None:
    (n, m), one = data.shape, jnp.ones(hyper.n_components)
    with numpyro.plate("user", n):
        A = numpyro.sample("A", dist.Normal(0, one).to_event(1))
    with numpyro.plate("level", len(hyper.levels), dim=-2), numpyro.plate("item", m, dim=-1):
        B = numpyro.sample("B", dist.Normal(0, hyper.scale * one).to_event(1))
        bias = numpyro.sample("bias", dist.Normal(0, hyper.scale_bias))
    score = scores(Params(A, B, bias), data.cells).T
    with numpyro.plate("cell", score.shape[0]):
        numpyro.sample("rating", Levels(hyper.levels, score), obs=data.y)


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> Levels:
    """The levels; a new user is a draw from N(0, I). A new item favours no level: uniform levels."""

    def levels(p: Params, query: Query | Grid) -> Levels:
        return Levels(hyper.levels, jnp.moveaxis(scores(p, query), 0, -1))

    exact = levels(p, query)
    if isinstance(query, Grid):
        return exact
    row, col = jnp.asarray(query.row), jnp.asarray(query.col)
    own = Query(jnp.where(row < 0, len(p.A), row), col)  # a new user is the row after the last

    def at(point: jax.Array) -> Levels:
        return levels(p._replace(A=jnp.concatenate([p.A, point[None]])), own)

    found = averaged(exact, at, hyper.n_components, (row < 0) & (col >= 0))
    return Levels(hyper.levels, found.log_p)


def example(key: jax.Array) -> tuple[Ratings, Hyper]:
    """Seven users, five items, four levels."""
    data = few_ratings(key, levels=4)
    return data, prepare(data, Hyper(2, scale=0.9, scale_bias=0.7))


# fmt: off
METHOD = register(Method(
    name="attitude", cite="marlin2004thesis", data=Ratings, Params=Params, Hyper=Hyper,
    init=init, objective=objective, model=model, predict=predict, example=example,
    prepare=prepare,
    # what turning leaves alone is A A': B has an axis too many to be paired with A
    gauge=(Rotation(("A", "A"), {"A": 1, "B": 2}),),
    dims={"A": ("user", "component"), "B": ("level", "item", "component"), "bias": ("level", "item")},
))
# fmt: on
