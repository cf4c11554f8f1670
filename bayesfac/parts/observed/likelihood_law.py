"""Variational laws of bilinear models whose expected log likelihood has no closed form; see `matrix.py`.

A cell adds F(m, s2) = E log p(y | x) to the ELBO, where x is normal with the mean and the variance of u.v.
The expectation is computed by quadrature. With all other sites given, the best law of a row of U has

    S_i^-1 = E Lambda + sum_j w_ij (m_j m_j' + S_j),   m_i = S_i (E[Lambda mu] + sum_j w_ij t_ij m_j)
    w = -2 dF/ds2,   t = m + (dF/dm) / w

as if t were a normal value of precision w. But t and w depend on the law of the row, so a sweep computes them
at the present law and takes one step: a natural gradient step of length 1 (Khan & Lin, AISTATS 2017). If this
would lower the row's part of the ELBO, the step is shortened.

With the latent values of Albert & Chib (1993), independent of the rows in q, all expectations have closed
forms. But the ELBO is lower: the variance of x costs the same at every cell, even where a rating says little,
such as a five among many fives. On such ratings the factors vanish.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from bayesfac.core.data.cells import Rows
from bayesfac.core.kernels import sparse
from bayesfac.core.laws.beliefs import Belief, inverse, times_rows
from bayesfac.core.math import expectation
from bayesfac.core.method import Variational
from bayesfac.parts import matrix
from bayesfac.parts.factors import Factor
from bayesfac.parts.matrix import Matrix
from bayesfac.parts.sites import put

NODES = 4  # of the quadrature: with an sd of 1, F is exact to 3e-4
LEAST = 1e-6  # the least weight and variance of a cell: rounding may make both negative
SHORTEST = 0.02  # after a shorter step a row would stay nearly as it is, and keeps its law


def expected(log_likelihood: Callable, x: jax.Array, variance: jax.Array) -> jax.Array:
    """F of every cell."""
    return expectation(log_likelihood, x, jnp.maximum(variance, LEAST), NODES)


def as_normal(
    log_likelihood: Callable, x: jax.Array, variance: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """F, target and weight of every cell.

    Weights are derivatives of the quadrature itself, so that sweeps end at a maximum of this ELBO. Those of
    `empirical_bayes.as_normal` approximate them.
    """

    def total(x: jax.Array, variance: jax.Array) -> tuple[jax.Array, jax.Array]:
        each = expectation(log_likelihood, x, variance, NODES)
        return jnp.sum(each), each

    (slope, by_variance), each = jax.grad(total, (0, 1), has_aux=True)(
        x, jnp.maximum(variance, LEAST)
    )
    weight = jnp.maximum(-2 * by_variance, LEAST)
    return each, x + slope / weight, weight


def raised(
    own: Belief, best: Belief, before: jax.Array, part: Callable[[Belief], jax.Array]
) -> Belief:
    """Each row at `best`, or after a shorter step where its part of the ELBO would fall below `before`.

    Between two laws, a step takes means of the precision and of the precision times mean.
    """
    least = before - 8 * jnp.finfo(before.dtype).eps * (1 + jnp.abs(before))

    def rejected(law: Belief) -> jax.Array:
        return ~(part(law) >= least)  # also where it is not a number

    def shortened(state: tuple) -> tuple:
        law, step, falls = state
        step = step / 4
        P, Q = inverse(own["cov"]), inverse(best["cov"])
        both = (1 - step) * times_rows(P, own["mean"]) + step * times_rows(Q, best["mean"])
        cov = inverse((1 - step) * P + step * Q)
        nearer = {"mean": times_rows(cov, both), "cov": cov}
        nearer = where(jnp.asarray(step > SHORTEST), nearer, own)
        law = where(falls, nearer, law)
        return law, step, rejected(law)

    def unfinished(state: tuple) -> jax.Array:
        return jnp.any(state[2]) & (state[1] > SHORTEST)

    return jax.lax.while_loop(unfinished, shortened, (best, 1.0, rejected(best)))[0]


def where(chosen: jax.Array, new: Belief, old: Belief) -> Belief:
    """The new law of the chosen rows."""

    def each(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(chosen.reshape(chosen.shape + (1,) * (new.ndim - chosen.ndim)), new, old)

    return jax.tree.map(each, new, old)


def gaussian_part(own: Belief, precision: jax.Array, shift: jax.Array) -> jax.Array:
    """The expected log prior of each row and its entropy, without constants."""
    mean, cov = own["mean"], own["cov"]
    spread = jnp.einsum("kl,nkl->n", precision, cov)
    square = jnp.sum(mean @ precision * mean, 1) - 2 * jnp.sum(shift * mean, 1)
    volume = jnp.sum(jnp.log(jnp.einsum("nkk->nk", jnp.linalg.cholesky(cov))), 1)
    volume = jnp.where(jnp.isnan(volume), -jnp.inf, volume)  # at the start rows have no variance
    return volume - 0.5 * (spread + square)


def record(
    begin: Callable[..., dict[str, Belief]],
    moved: Callable[..., Any],
    of_cells: Callable[..., jax.Array],
    energy: Callable[..., jax.Array],
    laws: Callable[..., dict[str, Any]],
    s: Matrix,
    prior: Callable[..., tuple[jax.Array, jax.Array]],
    of_prior: Callable[..., Any],
    **more: Any,
) -> Variational:
    """The record of a method with any log-concave likelihood of u.v.

    begin(p, data, hyper)                       the laws of all sites, without variance
    moved(q, x, variance, data, hyper)          q with the method's own sites updated
    of_cells(q, data, hyper, x)                 the log likelihood of every cell
    energy(q, data, hyper)                      the expected energy of the prior
    laws(q)                                     {site: Distribution}
    s                                           the factors
    prior(q, factor, data, hyper)               precision of the rows, and precision times mean
    of_prior(q, data, hyper)                    the laws of the prior's sites, updated

    `more` are other fields of the record.
    """

    def fit(q: Any, data: Any, hyper: Any) -> jax.Array:
        return expected(partial(of_cells, q, data, hyper), *s.moments(q, data.cells))

    def step(q: Any, f: Factor, mine: Rows, data: Any, hyper: Any) -> Any:
        own, given = getattr(q, f.rows), prior(q, f, data, hyper)
        other = matrix.facing(q.U, q.V) if f.axis == "user" else q.U
        ones = jnp.ones((len(other["mean"]), 1))

        def part(law: Belief, each: jax.Array) -> jax.Array:
            return sparse.spread(mine, each, ones)[:, 0] + gaussian_part(law, *given)

        def part_of(law: Belief) -> jax.Array:
            return part(law, fit(q._replace(**{f.rows: law}), data, hyper))

        x, variance = s.moments(q, data.cells)
        each, target, weight = as_normal(partial(of_cells, q, data, hyper), x, variance)
        best = matrix.rows(mine, target, weight, other, *given)
        return q._replace(**{f.rows: raised(own, best, part(own, each), part_of)})

    def update(q: Any, data: Any, hyper: Any) -> Any:
        q = moved(q, *s.moments(q, data.cells), data, hyper)
        user, item = s.main
        q = step(q, user, data.cells.by_row, data, hyper)
        q = step(q, item, data.cells.by_col, data, hyper)
        return of_prior(q, data, hyper)

    def start(p: Any, data: Any, hyper: Any) -> Any:
        return update(put(p, begin(p, data, hyper)), data, hyper)

    def all_of(q: Any, data: Any, hyper: Any) -> jax.Array:
        return jnp.sum(fit(q, data, hyper)) - energy(q, data, hyper)

    def widened(key: jax.Array, q: Any, data: Any, hyper: Any) -> tuple[Any, jax.Array]:
        def each(x: jax.Array, variance: jax.Array) -> jax.Array:
            return jnp.sum(expected(partial(of_cells, q, data, hyper), x, variance))

        return matrix.widened(key, q, data.cells, each)

    return Variational(start, update, all_of, laws, widened, **more)
