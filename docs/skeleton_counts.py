r"""Activity times popularity: a baseline for factorizations of counts. Copy this file to begin a method.

Gopalan, Hofman & Blei, "Scalable Recommendation with Hierarchical Poisson Factorization", UAI 2015, with one
component and fixed rates; the solver takes each side's exact optimum in turn.

    J(t, b) = - sum_ui (y_ui log x_ui - log y_ui!) + sum_ui x_ui + a sum (e^t - t) + c sum (e^b / m - b)
    x_ui = exp(t_u + b_i)

    paper       here          shape
    theta, t    log_theta     users    the logarithm of how much a user counts; theta ~ Gamma(a, a)
    beta, b     log_beta      items    the logarithm of how popular an item is; beta ~ Gamma(c, c/m)
    a, c        shape_user, shape_item
    m           mean          of the table, with its zeros

A letter of the paper may be used in this file once this table names the letter. The fields of Params
are the sample sites of `model`, so a point, a draw and a prediction have the same names.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro

from bayesfac.core import checks
from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.data.counts import Counts
from bayesfac.core.laws.counts import LogGamma, PoissonTable, UnsurePoisson
from bayesfac.core.math import normals
from bayesfac.core.method import Axes, Method, Notes, Sampler, Solver, register


class Params(NamedTuple):
    log_theta: jax.Array
    log_beta: jax.Array


class Hyper(NamedTuple):
    shape_user: float = 1.0
    shape_item: float = 1.0
    mean: float | None = None  # None: the mean of the table


def prepare(data: Counts, hyper: Hyper) -> Hyper:
    """Compute defaults from the data and refuse wrong settings. `prepare` may be left out."""
    hyper = checks.filled(hyper, mean=data.mean)
    checks.positive(hyper, "shape_user", "shape_item", "mean")
    return hyper


def init(key: jax.Array, data: Counts, hyper: Hyper) -> Params:
    ku, ki = jax.random.split(key)
    log_theta = 0.3 * normals(ku, (data.n_users,))
    return Params(log_theta, jnp.log(hyper.mean) + 0.3 * normals(ki, (data.n_items,)))


def objective(p: Params, data: Counts, hyper: Hyper) -> jax.Array:
    """Priors included: minus the log joint of `model`, up to a constant. A product of sums has the zeros."""
    t, b = p
    listed = data.y * (t[data.cells.row] + b[data.cells.col])
    fit = jnp.sum(listed - jax.scipy.special.gammaln(data.y + 1))
    fit -= jnp.exp(t).sum() * jnp.exp(b).sum()
    prior = hyper.shape_user * jnp.sum(jnp.exp(t) - t)
    return prior + hyper.shape_item * jnp.sum(jnp.exp(b) / hyper.mean - b) - fit


def conditional_log_theta(p: Params, data: Counts, hyper: Hyper) -> LogGamma:
    """theta_u | beta, y: Gamma(a + sum_i y_ui, a + sum_i beta_i)."""
    total = jax.ops.segment_sum(data.y, data.cells.row, data.n_users)
    return LogGamma(hyper.shape_user + total, hyper.shape_user + jnp.exp(p.log_beta).sum())


def conditional_log_beta(p: Params, data: Counts, hyper: Hyper) -> LogGamma:
    """beta_i | theta, y: Gamma(c + sum_u y_ui, c/m + sum_u theta_u)."""
    total = jax.ops.segment_sum(data.y, data.cells.col, data.n_items)
    rate = hyper.shape_item / hyper.mean + jnp.exp(p.log_theta).sum()
    return LogGamma(hyper.shape_item + total, rate)


def update(p: Params, data: Counts, hyper: Hyper) -> Params:
    """One sweep: each block moves to the mode of its conditional, so the objective never rises."""
    p = p._replace(log_theta=conditional_log_theta(p, data, hyper).mode)
    return p._replace(log_beta=conditional_log_beta(p, data, hyper).mode)


def model(data: Counts, hyper: Hyper) -> None:
    """The generative twin: plates on all axes; the container fixes the observed site's name."""
    n, m = data.shape
    a, c = hyper.shape_user, hyper.shape_item
    with numpyro.plate("user", n):
        t = numpyro.sample("log_theta", LogGamma(a, a))
    with numpyro.plate("item", m):
        b = numpyro.sample("log_beta", LogGamma(c, c / hyper.mean))
    law = PoissonTable(jnp.exp(t)[:, None], jnp.exp(b)[:, None], data.cells)
    numpyro.sample("rating", law, obs=data.y)


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> UnsurePoisson:
    """The count, for one value of Params; engines map `predict` over draws."""
    theta, beta = jnp.exp(p.log_theta), jnp.exp(p.log_beta)
    row, col = jnp.asarray(query.row), jnp.asarray(query.col)
    if isinstance(query, Grid):
        return UnsurePoisson(theta[row][:, None] * beta[col], 0.0)
    # a user or item without training data is a draw from its prior, with E theta^2 = (1 + 1/a) (E theta)^2
    rate = jnp.where(row < 0, 1.0, theta[row]) * jnp.where(col < 0, hyper.mean, beta[col])
    spread = (1 + (row < 0) / hyper.shape_user) * (1 + (col < 0) / hyper.shape_item) - 1
    return UnsurePoisson(rate, spread * rate**2)


def example(key: jax.Array) -> tuple[Counts, Hyper]:
    """Seven users, five items, counts of about one; tiny: the contract runs on this example."""
    data = Counts(np.asarray(jax.random.poisson(key, 1.3, (7, 5))))
    return data, prepare(data, Hyper(shape_user=2.5, shape_item=3.0))


METHOD = register(
    Method(
        name="skeleton_counts",
        cite="gopalan2015hpf",
        data=Counts,
        Params=Params,
        Hyper=Hyper,
        prepare=prepare,
        init=init,
        objective=objective,
        model=model,
        predict=predict,
        example=example,
        solver=Solver(update=update),
        gibbs=Sampler(
            conditionals={"log_theta": conditional_log_theta, "log_beta": conditional_log_beta}
        ),
        axes=Axes(dims={"log_theta": ("user",), "log_beta": ("item",)}),
        notes=Notes(
            traits={
                "nonnegative": "counts are not negative",
                "poisson": "counts are Poisson numbers, given the factors",
                "no_minibatch": "a law of the whole table: a sample of the listed pairs lacks the zeros",
            },
        ),
    )
)
