r"""Biases only: a baseline for factorizations. Copy this file to begin a method.

Koren, "Factorization Meets the Neighborhood", KDD 2008, eq. 1 and the least-squares problem that
follows it, with one penalty per side; the solver takes each side's exact optimum in turn.

    J(b, c) = 1/(2 s^2) sum_ij (y_ij - m - b_i - c_j)^2 + |b|^2/(2 s_b^2) + |c|^2/(2 s_c^2)

    paper       here                     shape
    b_u, b_i    b, c                     users, items
    mu          offset, m: fixed
    lambda_1    s^2/s_b^2 and s^2/s_c^2

A letter of the paper may be used in this file once this table names the letter. The fields of Params
are the sample sites of `model`, so a point, a draw and a prediction have the same names.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from bayesfac.core import checks
from bayesfac.core.data.cells import Cells, Grid, Query
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.math import pick
from bayesfac.core.method import Axes, Method, Sampler, Solver, register


class Params(NamedTuple):
    b: jax.Array
    c: jax.Array


class Hyper(NamedTuple):
    noise: float | None = None  # None: the standard deviation of the ratings
    scale_user: float | None = None  # None: half the noise
    scale_item: float | None = None
    offset: float | None = None  # None: the mean rating


def prepare(data: Ratings, hyper: Hyper) -> Hyper:
    """Compute defaults from the data and refuse wrong settings. `prepare` may be left out."""
    half = data.spread / 2
    default = {"noise": 2 * half, "scale_user": half, "scale_item": half, "offset": data.mean}
    hyper = hyper._replace(**{k: v for k, v in default.items() if getattr(hyper, k) is None})
    checks.positive(hyper, "noise", "scale_user", "scale_item")
    return hyper


def init(key: jax.Array, data: Ratings, hyper: Hyper) -> Params:
    ku, ki = jax.random.split(key)
    n, m = data.shape
    b, c = jax.random.normal(ku, (n,)), jax.random.normal(ki, (m,))
    return Params(hyper.scale_user * b, hyper.scale_item * c)


def expected(p: Params, at: Cells | Query | Grid, hyper: Hyper) -> jax.Array:
    """m + b_i + c_j; a user or item that training never saw (-1) adds nothing."""
    b, c = pick(p.b, at.row), pick(p.c, at.col)
    return hyper.offset + (b[:, None] + c if isinstance(at, Grid) else b + c)


def objective(p: Params, data: Ratings, hyper: Hyper) -> jax.Array:
    """Priors included: minus the log joint of `model`, up to a constant."""
    fit = jnp.sum((data.y - expected(p, data.cells, hyper)) ** 2) / hyper.noise**2
    ridge = jnp.sum(p.b**2) / hyper.scale_user**2 + jnp.sum(p.c**2) / hyper.scale_item**2
    return 0.5 * (fit + ridge)


def conditional_b(p: Params, data: Ratings, hyper: Hyper) -> dist.Distribution:
    """b | c, y: for user i precision 1/s_b^2 + n_i/s^2, mean sum_j (y - m - c_j)/s^2 over the precision."""
    rest = data.y - hyper.offset - p.c[data.cells.col]
    return biases(rest, data.cells.row, p.b.shape[0], hyper.noise, hyper.scale_user)


def conditional_c(p: Params, data: Ratings, hyper: Hyper) -> dist.Distribution:
    """c | b, y: as `conditional_b`, with users and items exchanged."""
    rest = data.y - hyper.offset - p.b[data.cells.row]
    return biases(rest, data.cells.col, p.c.shape[0], hyper.noise, hyper.scale_item)


def biases(
    rest: jax.Array, index: jax.Array, size: int, noise: float, scale: float
) -> dist.Distribution:
    total = jax.ops.segment_sum(rest, index, size)
    count = jax.ops.segment_sum(jnp.ones_like(rest), index, size)
    precision = scale**-2 + count / noise**2
    return dist.Normal(total / noise**2 / precision, precision**-0.5).to_event(1)


def update(p: Params, data: Ratings, hyper: Hyper) -> Params:
    """One sweep: each block moves to the mean of its conditional, so the objective never rises."""
    p = p._replace(b=conditional_b(p, data, hyper).mean)
    return p._replace(c=conditional_c(p, data, hyper).mean)


def model(data: Ratings, hyper: Hyper) -> None:
    """The generative twin: plates on all axes; the container fixes the observed site's name."""
    n, m = data.shape
    with numpyro.plate("user", n):
        b = numpyro.sample("b", dist.Normal(0, hyper.scale_user))
    with numpyro.plate("item", m):
        c = numpyro.sample("c", dist.Normal(0, hyper.scale_item))
    mean = expected(Params(b, c), data.cells, hyper)
    with numpyro.plate("cell", data.cells.row.shape[0]):
        numpyro.sample("rating", dist.Normal(mean, hyper.noise), obs=data.y)


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> dist.Distribution:
    """A rating, for one value of Params; engines map `predict` over draws."""
    variance = jnp.asarray(hyper.noise**2)
    if isinstance(query, Query):  # a user or item without training data is a draw from its prior
        variance += hyper.scale_user**2 * (jnp.asarray(query.row) < 0)
        variance += hyper.scale_item**2 * (jnp.asarray(query.col) < 0)
    return dist.Normal(expected(p, query, hyper), jnp.sqrt(variance))


def example(key: jax.Array) -> tuple[Ratings, Hyper]:
    """Seven users, five items, three cells in four; tiny: the contract runs on this example."""
    kv, ks = jax.random.split(key)
    values, seen = jax.random.normal(kv, (7, 5)), jax.random.uniform(ks, (7, 5)) < 0.75
    data = Ratings(np.where(seen, values, np.nan))
    return data, prepare(data, Hyper(noise=0.7, scale_user=0.8, scale_item=0.9))


METHOD = register(
    Method(
        name="skeleton_method",
        cite="koren2008factorization",
        data=Ratings,
        Params=Params,
        Hyper=Hyper,
        prepare=prepare,
        init=init,
        objective=objective,
        model=model,
        predict=predict,
        example=example,
        solver=Solver(update=update),
        gibbs=Sampler(conditionals={"b": conditional_b, "c": conditional_c}),
        axes=Axes(dims={"b": ("user",), "c": ("item",)}),
    )
)
