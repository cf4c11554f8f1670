r"""Attitude model for ratings with levels: each attitude of a user changes the odds of the levels.

Marlin, "Collaborative Filtering: A Machine Learning Perspective", MSc thesis, Toronto 2004.

    P(y_ij = r) = exp(x_ijr) / sum_s exp(x_ijs),      x_ijr = b_jr + c_ir + sum_k a_ik B_jrk
    J(A, B, b, c) = - sum_ij log P(y_ij) + 1/2 |A|^2 + 1/(2 s^2) |B|^2 + 1/(2 s_b^2) (|b|^2 + |c|^2)

    paper                  here       shape
    expression levels      A          users x K           how strongly a user holds each attitude
    preference parameters  B          R x items x K       how much an attitude favours a level of an item
                           bias       R x items           b: how much all users favour a level of an item
    -                      bias_user  R x users           c: how much a user favours a level of any item
                           scale, scale_bias              s, s_b

The method predicts a distribution over the levels of a rating. It is a product of experts: each attitude is
an expert that multiplies the odds of the levels by exp(a_ik B_jrk). In the thesis the expression levels are
discrete. Here a_i ~ N(0, I) is real, so that J is smooth and its mode can be found by L-BFGS. The bias c is
not in the thesis either. Without c the model would have to learn for each item separately that a user rates
high or low, and a regression on biases predicts better. The same constant can be added to the scores of all
levels without an effect; only the prior determines this constant and the scale of A against B. The
posterior does not change when the attitudes are rotated.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfac.core import checks
from bayesfac.core.data.cells import Cells, Grid, Query
from bayesfac.core.data.ratings import Ratings, few_ratings
from bayesfac.core.laws.ordinal import Levels, averaged, codes, levelled
from bayesfac.core.math import inner, normals
from bayesfac.core.method import Axes, Choose, Method, Rotation, register

SCALE = 0.2


class Params(NamedTuple):
    A: jax.Array
    B: jax.Array
    bias: jax.Array
    bias_user: jax.Array


class Hyper(NamedTuple):
    n_components: int = 5
    scale: float | None = None  # None: chosen by held-out ratings; 0.2 if nothing is held out
    scale_bias: float = 1.0
    levels: tuple[float, ...] | None = None  # None: the levels in the data


def prepare(data: Ratings, hyper: Hyper) -> Hyper:
    hyper = levelled(data, hyper, "attitude")
    if hyper.scale is None:
        hyper = hyper._replace(scale=SCALE)
    checks.positive(hyper, "scale", "scale_bias")
    return hyper


def choices(data: Ratings, hyper: Hyper, chosen: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Candidates for the scale of the preferences, from wide to narrow."""
    if hyper.scale is not None or "scale" in chosen:
        return []
    return [{"scale": SCALE * 10 ** (-step / 8)} for step in range(-6, 7)]


def init(key: jax.Array, data: Ratings, hyper: Hyper) -> Params:
    """Attitudes and preferences drawn from their priors; biases zero."""
    ka, kb = jax.random.split(key)
    (n, m), K, R = data.shape, hyper.n_components, len(hyper.levels)
    B = hyper.scale * normals(kb, (R, m, K))
    return Params(normals(ka, (n, K)), B, jnp.zeros((R, m)), jnp.zeros((R, n)))


def scores(p: Params, query: Cells | Query | Grid) -> jax.Array:
    """x_ijr, levels x cells, of known users and items."""
    x = inner(jnp.broadcast_to(p.A, (len(p.B), *p.A.shape)), p.B, query)
    b, c = p.bias[:, query.col], p.bias_user[:, query.row]
    return x + (b[:, None] + c[..., None] if isinstance(query, Grid) else b + c)


def objective(p: Params, data: Ratings, hyper: Hyper) -> jax.Array:
    own = codes(data) == jnp.arange(len(hyper.levels))[:, None]
    fit = -jnp.sum(jnp.where(own, jax.nn.log_softmax(scores(p, data.cells), 0), 0))
    ridge = jnp.sum(p.A**2) + jnp.sum(p.B**2) / hyper.scale**2
    biases = jnp.sum(p.bias**2) + jnp.sum(p.bias_user**2)
    return fit + 0.5 * (ridge + biases / hyper.scale_bias**2)


def model(data: Ratings, hyper: Hyper) -> None:
    (n, m), R, one = data.shape, len(hyper.levels), jnp.ones(hyper.n_components)
    with numpyro.plate("user", n):
        A = numpyro.sample("A", dist.Normal(0, one).to_event(1))
    with numpyro.plate("level", R, dim=-2), numpyro.plate("user", n, dim=-1):
        bias_user = numpyro.sample("bias_user", dist.Normal(0, hyper.scale_bias))
    with numpyro.plate("level", R, dim=-2), numpyro.plate("item", m, dim=-1):
        B = numpyro.sample("B", dist.Normal(0, hyper.scale * one).to_event(1))
        bias = numpyro.sample("bias", dist.Normal(0, hyper.scale_bias))
    score = scores(Params(A, B, bias, bias_user), data.cells).T
    with numpyro.plate("cell", score.shape[0]):
        numpyro.sample("rating", Levels(hyper.levels, score), obs=data.y)


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> Levels:
    """The distribution over levels; parameters of new users and items are drawn from their priors."""
    K, R = hyper.n_components, len(hyper.levels)

    def law(cells: Query | Grid) -> tuple:
        exact = Levels(hyper.levels, jnp.moveaxis(scores(p, cells), 0, -1))
        row, col = jnp.asarray(cells.row), jnp.asarray(cells.col)

        def at(point: jax.Array) -> Levels:
            a, c, b = jnp.split(point, [K, K + R])
            A = jnp.where(row[:, None] < 0, a, jnp.asarray(p.A)[row])
            habit = jnp.where(row[:, None] < 0, hyper.scale_bias * c, p.bias_user[:, row].T)
            known = p.bias[:, col].T + jnp.einsum("ck,rck->cr", A, p.B[:, col])
            # for a new item, b_r + a.B_r is normal and independent between levels
            sd = jnp.sqrt(hyper.scale_bias**2 + hyper.scale**2 * jnp.sum(A**2, 1))
            return Levels(hyper.levels, habit + jnp.where(col[:, None] < 0, sd[:, None] * b, known))

        return exact, at

    return averaged(law, K + 2 * R, query)


def example(key: jax.Array) -> tuple[Ratings, Hyper]:
    data = few_ratings(key, levels=4)
    return data, prepare(data, Hyper(2, scale=0.9, scale_bias=0.7))


# fmt: off
METHOD = register(Method(
    name="attitude", cite="marlin2004thesis", data=Ratings, Params=Params, Hyper=Hyper, init=init,
    objective=objective, model=model, predict=predict, example=example, prepare=prepare,
    choose=Choose(candidates=choices),
    axes=Axes(
        dims={"A": ("user", "component"), "B": ("level", "item", "component"),
            "bias": ("level", "item"), "bias_user": ("level", "user")},
        gauge=(Rotation(("A", "A"), {"A": 1, "B": 2}),),
    ),
))
# fmt: on
