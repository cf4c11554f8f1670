"""Variational laws of bilinear models: coordinate ascent with a full covariance for each row.

Every site has a distribution of its own, q = prod q(site). Every row of U and V is normal with a full K x K
covariance S (Lim & Teh, KDD Cup 2007). The best law of a row given all others is its conditional, with
expectations instead of values, E[v v'] = m m' + S:

    S_i^-1 = E Lambda + sum_j w_ij (m_j m_j' + S_j),   m_i = S_i (E[Lambda mu] + sum_j w_ij t_ij m_j)

If users have levels t_i too, a row of U is (u_i, t_i) with one covariance. A cell depends on u.v - t, so the
row (v_j, -1) replaces v_j. With separate laws for u_i and t_i, the same uncertainty would count twice.

The distribution of a site in q is a `Belief` (`core/laws/beliefs.py`). Memory: one n x K x K table for each
side, and copies of it only inside a sweep.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from bayesfac.core.data.cells import Cells, Rows
from bayesfac.core.kernels import sparse
from bayesfac.core.laws import beliefs, response
from bayesfac.core.laws import link_beliefs as link
from bayesfac.core.laws.beliefs import (
    Belief,
    doubled,
    half,
    inverse,
    second,
    square,
    times_rows,
    whole,
)
from bayesfac.core.math import inner
from bayesfac.core.method import Variational
from bayesfac.models.ratings._shared.links import linked

NAMES = {"user": ("U", "mu_U", "Lambda_U"), "item": ("V", "mu_V", "Lambda_V")}  # rows, mu, Lambda


# -- rows --------------------------------------------------------------------------------------------------
def facing(U: Belief, V: Belief) -> Belief:
    """V as it enters the products with rows of U: with -1 at the end if these have a level."""
    if U["mean"].shape[1] == V["mean"].shape[1]:
        return V
    mean = jnp.concatenate([V["mean"], jnp.full_like(V["mean"][:, :1], -1)], 1)
    return {"mean": mean, "cov": jnp.pad(V["cov"], ((0, 0), (0, 1), (0, 1)))}


def moments(U: Belief, V: Belief, cells: Cells) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of u.v at the cells: tr S_u E[v v'] + m_u' S_v m_u."""
    V = facing(U, V)
    a = jnp.concatenate([doubled(table) for table in (U["cov"], square(U["mean"]))], 1)
    b = jnp.concatenate([half(second(V)), half(V["cov"])], 1)
    return inner(U["mean"], V["mean"], cells), inner(a, b, cells)


def rows(
    mine: Rows, target: jax.Array, weight: Any, other: Belief, precision: jax.Array, shift: Any
) -> Belief:
    """The rows' normals given the other side; `weight` is one number, or one for each cell.

    If rows of the other side are longer by one, they have a level, which is observed too.
    """
    K, L = precision.shape[0], other["mean"].shape[1]
    weight = jnp.broadcast_to(jnp.asarray(weight, target.dtype), target.shape)
    table = whole(sparse.spread(mine, weight, half(second(other))), L)
    b = sparse.spread(mine, weight * target, other["mean"])[:, :K]
    if L > K:
        b += table[:, :K, K]
    cov = inverse(precision + table[:, :K, :K])
    return {"mean": times_rows(cov, shift + b), "cov": cov}


# -- Normal-Wishart sides, with features in `core/laws/link_beliefs.py` -------------------------------------
def wishart_begin(p: Any, data: Any, h: Any) -> dict[str, Any]:
    """Laws of both sides at a point."""
    found: dict[str, Any] = {}
    for side, names in NAMES.items():
        rows, mu, precision = (getattr(p, name) for name in names)
        extra = data.x[side].width if linked(p, side) else 0
        laws = beliefs.wishart_begin(rows, mu, precision, extra)
        found |= dict(zip(names, laws, strict=True))
    if p.B is None:
        return found
    found["B"] = {s: link.begin(B, getattr(p, NAMES[s][2]), data.x[s]) for s, B in p.B.items()}
    ridge = {s: link.begin_ridge(r, h, p.B[s].size) for s, r in p.ridge.items()}
    return found | {"ridge": ridge}


def without_features(q: Any, side: str, data: Any) -> tuple[Belief, Any]:
    """The rows of a side without levels, minus the part that features explain; the term of B in Lambda's
    rate."""
    name, mean, _ = NAMES[side]
    own = beliefs.front(getattr(q, name), len(getattr(q, mean)["mean"]))
    if not linked(q, side):
        return own, 0.0
    x, B = data.x[side], q.B[side]
    added = link.spread(x, B) + beliefs.gamma(q.ridge[side]).mean * link.second(B)
    return {**own, "mean": own["mean"] - x.times(B["mean"])}, added


def wishart_prior(q: Any, side: str, data: Any, h: Any) -> tuple[jax.Array, jax.Array]:
    """E Lambda, and E Lambda times the prior mean of the rows."""
    _, mean, scale = NAMES[side]
    precision, centre = beliefs.expected_precision(getattr(q, scale)), getattr(q, mean)["mean"]
    if linked(q, side):
        centre = centre + data.x[side].times(q.B[side]["mean"])
    return precision, centre @ precision


def wishart_settle(q: Any, data: Any, h: Any) -> Any:
    """The laws of B, mu, Lambda and ridge given the rows."""
    for side, (name, mean, scale) in NAMES.items():
        if linked(q, side):
            mu, precision = getattr(q, mean), beliefs.expected_precision(getattr(q, scale))
            rows = getattr(q, name)["mean"][:, : len(precision)] - mu["mean"]
            new = link.settled(data.x[side], rows, q.ridge[side], precision)
            q = q._replace(B={**q.B, side: new})
        own, added = without_features(q, side, data)
        mu, wide = beliefs.wishart_settle(own, getattr(q, scale), h, added)
        q = q._replace(**{mean: mu, scale: wide})
        if linked(q, side):
            pair = q.B[side], beliefs.expected_precision(wide)
            ridge = link.settled_ridge(q.ridge[side], h, pair)
            q = q._replace(ridge={**q.ridge, side: ridge})
    return q


def wishart_energy(q: Any, data: Any, h: Any) -> jax.Array:
    """The expectation of `normal_wishart.energy`."""
    total = jnp.zeros(())
    for side, (_, mean, scale) in NAMES.items():
        own, added = without_features(q, side, data)
        extra = data.x[side].width if linked(q, side) else 0
        total += beliefs.wishart_energy(own, getattr(q, mean), getattr(q, scale), h, added, extra)
        if extra:
            total += link.expected_ridge_energy(q.ridge[side], h, q.B[side]["mean"].size)
    return total


def wishart_laws(q: Any) -> dict[str, dist.Distribution]:
    """The laws of the sites of both sides."""
    found: dict[str, dist.Distribution] = {}
    for name, mean, scale in NAMES.values():
        found |= {site: beliefs.normal(getattr(q, site)) for site in (name, mean)}
        found[scale] = beliefs.wishart(getattr(q, scale))
    return found | link_laws(q)


def link_laws(q: Any) -> dict[str, dist.Distribution]:
    """The laws of B and ridge."""
    found: dict[str, dist.Distribution] = {f"B.{s}": link.law(B) for s, B in (q.B or {}).items()}
    return found | {f"ridge.{s}": beliefs.gamma(r) for s, r in (q.ridge or {}).items()}


# -- the whole -----------------------------------------------------------------------------------------------
def record(
    begin: Callable[..., dict[str, Belief]],
    observed: Callable[..., tuple[Any, jax.Array, Any]],
    expected: Callable[..., jax.Array],
    laws: Callable[..., dict[str, dist.Distribution]],
    prior: Callable[..., tuple[jax.Array, jax.Array]] = wishart_prior,
    settle: Callable[..., Any] = wishart_settle,
    **more: Any,
) -> Variational:
    """The record of a method whose data are Gaussian observations of u.v, given the other sites.

    begin(p, data, hyper)                       the laws of all sites, without variance
    observed(q, x, variance, data, hyper)       q with the method's own sites updated; target, weight of cells
    expected(q, x, variance, data, hyper)       minus the expected objective, or a lower bound of it
    laws(q)                                     {site: Distribution}
    prior(q, side, data, hyper)                 precision of the rows, and precision times mean
    settle(q, data, hyper)                      the laws of the prior's sites, updated

    x and variance are those of u.v at the cells; `more` are other fields of the record.
    """

    def update(q: Any, data: Any, hyper: Any) -> Any:
        cells = data.cells
        q, target, weight = observed(q, *moments(q.U, q.V, cells), data, hyper)
        other = facing(q.U, q.V)
        q = q._replace(U=rows(cells.by_row, target, weight, other, *prior(q, "user", data, hyper)))
        q = q._replace(V=rows(cells.by_col, target, weight, q.U, *prior(q, "item", data, hyper)))
        return settle(q, data, hyper)

    def start(p: Any, data: Any, hyper: Any) -> Any:
        return update(p._replace(**begin(p, data, hyper)), data, hyper)

    def all_of(q: Any, data: Any, hyper: Any) -> jax.Array:
        return expected(q, *moments(q.U, q.V, data.cells), data, hyper)

    def wider(key: jax.Array, q: Any, data: Any, hyper: Any) -> tuple[Any, jax.Array]:
        return widened(key, q, data.cells, partial(expected, q, data=data, hyper=hyper))

    return Variational(start, update, all_of, laws, wider, **more)


# -- linear response -----------------------------------------------------------------------------------------
CELLS = 5000  # number of cells whose predictions a probe sums

Pair = tuple[jax.Array, jax.Array]


def widened(key: jax.Array, q: Any, cells: Cells, of_cells: Any) -> tuple[Any, jax.Array]:
    """q with wider rows, and the mean factor of their sds; `of_cells(x, variance)` is the ELBO without the
    terms that depend on the rows alone."""
    blocks, factor = respond(key, q.U, q.V, cells, of_cells)
    wide = {s: {**getattr(q, s), "cov": factor**2 * S} for s, S in blocks.items()}
    # the blocks themselves may be wider than the law if auxiliary variables are uncertain
    grown = [deviations(S) / deviations(getattr(q, s)["cov"]) for s, S in blocks.items()]
    return q._replace(**wide), factor * jnp.mean(jnp.concatenate([x.ravel() for x in grown]))


def respond(
    key: jax.Array, U: Belief, V: Belief, cells: Cells, of_cells: Any
) -> tuple[dict[str, jax.Array], jax.Array]:
    """Covariances {"U", "V"} of rows given all other rows, and the factor by which sds of predictions are
    small.

    The predictions are products of a random user and a random item, both drawn by their number of ratings,
    with random signs, each divided by its sd.
    """
    times, P = bend(U, V, cells, of_cells)
    S = tuple(map(inverse, P))
    (u, v), n = (U["mean"], facing(U, V)["mean"]), len(cells)
    K = V["mean"].shape[1]

    def smoothed(d: Pair) -> Pair:
        return times_rows(S[0], d[0]), times_rows(S[1], d[1])

    def probe(key: jax.Array) -> Pair:
        a, b, c = jax.random.split(key, 3)
        size = min(n, CELLS)
        i = jax.random.choice(a, cells.row, (size,), replace=False)
        j = jax.random.choice(b, cells.col, (size,), replace=False)
        spread = jnp.sum(times_rows(S[0][i], v[j]) * v[j], 1)
        spread += jnp.sum(times_rows(S[1][j], u[i, :K]) * u[i, :K], 1)
        signs = response.signs(c, spread)[:, None]
        by_user = jnp.zeros_like(u).at[i].add(signs * v[j])
        return by_user, jnp.zeros_like(V["mean"]).at[j].add(signs * u[i, :K])

    return dict(zip("UV", S, strict=True)), response.factor(key, times, smoothed, probe)


def deviations(cov: jax.Array) -> jax.Array:
    """The standard deviations of all entries of rows with these covariances."""
    return jnp.sqrt(jnp.einsum("nkk->nk", cov))


def bend(
    U: Belief, V: Belief, cells: Cells, of_cells: Any
) -> tuple[Callable[[Pair], Pair], tuple[jax.Array, jax.Array]]:
    """d -> H d, with H minus the second derivatives of the ELBO in the means m of all rows; and the blocks of
    H for each row.

    With the gradient l' of a cell, its weight w, and its curvature c = -l'', if q is at its best,

        H_ii = S_i^-1 + sum_j (c_ij - w_ij) (m_j m_j' + S_j)
        (H d)_i = H_ii d_i + sum_j [ c_ij m_i.d_j m_j - l'_ij d_j ]

    `of_cells(x, variance)` is the ELBO as a sum over cells. The change of the gradient with the variance of a
    cell is ignored; it is zero for Gaussian ratings. Blocks differ from S^-1 if auxiliary variables, which S
    treats as given, are uncertain.
    """
    x, variance = moments(U, V, cells)
    slope, by_variance = jax.grad(of_cells, (0, 1))(x, variance)
    curved = -jax.jvp(lambda x: jax.grad(of_cells)(x, variance), (x,), (jnp.ones_like(x),))[1]
    faced, K = facing(U, V), V["mean"].shape[1]
    u, v, extra = U["mean"], faced["mean"], curved + 2 * by_variance

    def block(own: Belief, mine: Rows, other: Belief) -> jax.Array:
        added = sparse.spread(mine, extra, half(second(other)))
        return inverse(own["cov"]) + whole(added, own["mean"].shape[1])

    P = block(U, cells.by_row, faced)
    Q = block(V, cells.by_col, beliefs.front(U, K))

    def times(d: Pair) -> Pair:
        aside = jnp.pad(d[1], ((0, 0), (0, v.shape[1] - K)))  # the level's -1 is constant
        left, right = inner(d[0], v, cells), inner(u, aside, cells)
        by_user = sparse.spread(cells.by_row, curved * right, v)
        by_user -= sparse.spread(cells.by_row, slope, aside)
        by_item = sparse.spread(cells.by_col, curved * left, u)
        by_item -= sparse.spread(cells.by_col, slope, d[0])
        return times_rows(P, d[0]) + by_user, times_rows(Q, d[1]) + by_item[:, :K]

    return times, (P, Q)
