"""The scores of a matrix, x_ij = u_i.v_j + b_i + c_j.

Given V and the biases, a cell observes u_i.v_j as t_ij with the precision w_ij, and a row of U is a ridge
regression about its mean c_i under the factor, whose precision is P:

    u_i | rest ~ N(m_i, S_i),   S_i^-1 = P + sum_j w_ij v_j v_j',   m_i = S_i (P c_i + sum_j w_ij t_ij v_j)

In a variational law every row has a normal law with a full K x K covariance S (Lim & Teh, KDD Cup
2007). The best law of a row given all others is its conditional with expectations instead of values, where
E[v v'] = m m' + S:

    S_i^-1 = E P + sum_j w_ij (m_j m_j' + S_j),   m_i = S_i (E[P mu] + sum_j w_ij t_ij m_j)

If users have levels t_i too, a row of U is (u_i, t_i) with one covariance. A cell depends on u.v - t, so the
row (v_j, -1) replaces v_j. With separate laws for u_i and t_i, the same uncertainty would count twice.
Memory: one n x K x K table for each factor, and copies of it only inside a sweep.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from bayesfac.core.data.cells import Cells, Grid, Query, Rows
from bayesfac.core.kernels import sparse
from bayesfac.core.laws import beliefs, response
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
from bayesfac.core.laws.distributions import GaussianRows
from bayesfac.core.math import bilinear, inner, pick, products
from bayesfac.parts import factor_beliefs as law
from bayesfac.parts import scales
from bayesfac.parts.factors import Factor, new_bias, new_row
from bayesfac.parts.rows.coupled import CoupledRows
from bayesfac.parts.sites import get, put

CELLS = 5000  # number of cells whose predictions a probe sums
Pair = tuple[jax.Array, jax.Array]


def ordered(cells: Any, f: Factor) -> Rows:
    """The cells sorted by the axis of a factor."""
    return cells.by_row if f.axis == "user" else cells.by_col


def codes(cells: Any, f: Factor) -> jax.Array:
    """The numbers of the cells' labels on the axis of a factor."""
    return cells.row if f.axis == "user" else cells.col


@dataclass(frozen=True)
class Matrix:
    """The factors of users and items, in this order, and of their biases."""

    main: tuple[Factor, Factor]
    biases: tuple[Factor, ...] = ()
    degree: ClassVar[int] = 2
    rotates: ClassVar[bool] = True
    balanced: ClassVar[bool] = True

    @property
    def every(self) -> tuple[Factor, ...]:
        return self.main + self.biases

    def at(self, h: Any) -> Self:
        return self if getattr(h, "biases", True) else replace(self, biases=())

    def seen(self, names: Any) -> Self:
        return replace(self, biases=tuple(f for f in self.biases if f.rows in names))

    def lengths(self, data: Any) -> dict[str, int]:
        return dict(zip(("user", "item"), data.shape, strict=True))

    def opposed(self, data: Any) -> list[scales.Groups]:
        return [(self.main[:1], self.main[1:])]

    def offsets(self, p: Any, cells: Any, without: Factor | None = None) -> Any:
        """The biases at the cells, but one."""
        own = (f for f in self.biases if f != without)
        return sum((get(p, f.rows)[codes(cells, f)] for f in own), 0.0)

    def scores(self, p: Any, data: Any) -> jax.Array:
        one, two = self.main
        return self.offsets(p, data.cells) + inner(get(p, one.rows), get(p, two.rows), data.cells)

    def swollen(self, key: jax.Array, p: Any, data: Any, h: Any, grown: Any) -> Any:
        """Metropolis steps of the common scale of the scores and all thresholds."""
        width, walk = jax.random.split(key)
        step = 2 / len(data) ** 0.5 * jnp.exp(jax.random.normal(width, ()))
        own = [(f, jnp.eye(f.width(h))) for f in (self.main[0], *self.biases)]
        x = self.scores(p, data)

        def rest(t: jax.Array) -> jax.Array:
            return grown(p, t, jnp.exp(t) * x, data, h)[1]

        t, q = scales.swollen(walk, step, self.every, own, p, data, h, rest)
        return grown(q, t, x, data, h)[0]

    def rows(
        self, p: Any, data: Any, f: Factor, h: Any, target: Any, weight: Any, zeros: float = 0.0,
        P: jax.Array | None = None,
    ) -> Any:  # fmt: skip
        """Every cell of the table also observes 0 with the precision `zeros`. P are the precisions of rows
        about 0, if each has its own."""
        if f.bias:
            return self.bias(p, data, f, h, target, weight)
        cells, centre = data.cells, f.explained(p, data)
        u, v = (get(p, g.rows) for g in self.main)
        target = target - self.offsets(p, cells)
        if centre is not None:
            one, two = (centre, v) if f.axis == "user" else (u, centre)
            target = target - inner(one, two, cells)
        mine, faced = ordered(cells, f), v if f.axis == "user" else u
        P = f.P(p, h) if P is None else P
        if f.along:
            along = f.along.at(data, f.axis, h, len(mine.ptr) - 1)
            return CoupledRows(along, mine, target, faced, weight, P, f.centre(p))
        shift = P @ get(p, f.mean) if f.mean else jnp.zeros(P.shape[:-1], P.dtype)
        own = P + zeros * faced.T @ faced if zeros else P
        return GaussianRows(mine, target, faced, weight, own, shift, centre)

    def bias(self, p: Any, data: Any, f: Factor, h: Any, target: Any, weight: Any) -> Any:
        """A ridge regression on the constant 1."""
        cells, mine = data.cells, ordered(data.cells, f)
        u, v = (get(p, g.rows) for g in self.main)
        rest = target - self.offsets(p, cells, f) - inner(u, v, cells)
        ones = jnp.ones((len(v if f.axis == "user" else u), 1), u.dtype)
        P, part = f.P(p, h)[0, 0], f.explained(p, data)
        centre = f.centre(p) if part is None else f.centre(p) + part[:, 0]
        if jnp.ndim(weight):
            precision = P + sparse.spread(mine, weight, ones)[:, 0]
            mean = sparse.spread(mine, weight * rest, ones)[:, 0] / precision
        else:
            precision = P + jnp.diff(mine.ptr) * weight
            mean = sparse.spread(mine, rest, ones)[:, 0] * weight / precision
        mean += centre * P / precision
        return dist.Normal(mean, precision**-0.5).to_event(1)

    def predicted(self, p: Any, query: Query | Grid, h: Any) -> tuple[jax.Array, jax.Array]:
        """Mean and variance of the scores; rows without training data are drawn from their priors."""
        u, v = (get(p, f.rows) for f in self.main)
        mean, variance = bilinear(u, v, query, *(new_row(f, p, query, h) for f in self.main))
        for f in self.biases:
            code = codes(query, f)
            own = pick(get(p, f.rows), code)
            if isinstance(query, Grid):
                mean += own[:, None] if f.axis == "user" else own
            else:
                about, wide = new_bias(f, p, query, h, code)
                mean, variance = mean + own + about, variance + wide
        return mean, variance

    def drawn(self, p: Any, query: Query | Grid, h: Any) -> tuple[jax.Array, Any]:
        """The scores, and draws of them at standard normal points (`core.math.products`).

        With biases, of the rows (b_i, 1, u_i) and (1, c_j, v_j), whose products are the scores; of those of
        one side, (1, u_i) and (c_j, v_j).
        """
        tables = [get(p, f.rows) for f in self.main]
        new = [new_row(f, p, query, h) for f in self.main]
        for f in self.biases[::-1]:
            b, (about, wide) = get(p, f.rows), new_row(f, p, query, h)
            for m, side in enumerate(self.main):
                (mean, cov), own = new[m], f.axis == side.axis
                column = b if own else jnp.ones(len(tables[m]), b.dtype)
                first = about[..., 0] if own else jnp.ones_like(mean[..., 0])
                # the 1 gets a very small variance, so that the covariance has a Cholesky factor
                more = wide[0, 0] if own else jnp.asarray(jnp.finfo(b.dtype).eps ** 2, b.dtype)
                tables[m] = jnp.concatenate([column[:, None], tables[m]], 1)
                first = jnp.broadcast_to(first, mean.shape[:-1])[..., None]
                both = jnp.concatenate([first, mean], -1)
                new[m] = both, jax.scipy.linalg.block_diag(more, cov)
        return products(tables[0], tables[1], query, *new)

    # -- variational laws of rows ---------------------------------------------------------------------
    def moments(self, q: Any, cells: Cells) -> tuple[jax.Array, jax.Array]:
        """Mean and variance of the scores."""
        one, two = self.main
        x, variance = moments(get(q, one.rows), get(q, two.rows), cells)
        for f in self.biases:
            b, at = get(q, f.rows), codes(cells, f)
            x, variance = x + b["mean"][at], variance + b["var"][at]
        return x, variance

    def updated(self, q: Any, data: Any, h: Any, target: jax.Array, weight: Any) -> Any:
        """The laws of all rows, biases first."""
        at = {f.rows: get(q, f.rows)["mean"] for f in self.every}
        links = [f"{f.link}.{key}" for f in self.biases for key in f.groups(q)]
        at |= {site: get(q, site)["mean"] for site in links}
        for f in [f for f in self.biases if f.precision.site]:
            at[f.precision.site] = f.precision.value(law.expected_P(f, q, h))
        for f in self.biases:
            own = self.bias(put(q, at), data, f, h, target, weight)
            at[f.rows] = own.mean
            q = put(q, {f.rows: {"mean": own.mean, "var": own.variance}})
        target = target - self.offsets(put(q, at), data.cells)
        one, two = (f.rows for f in self.main)
        priors = [lambda q, f=f: law.prior(f, q, data, h) for f in self.main]
        faced = facing(get(q, one), get(q, two))
        q = put(q, {one: rows(data.cells.by_row, target, weight, faced, *priors[0](q))})
        return put(q, {two: rows(data.cells.by_col, target, weight, get(q, one), *priors[1](q))})

    def widened(self, key: jax.Array, q: Any, data: Any, bound: Any, elbo: Any) -> tuple[Any, Any]:
        """Rows wider by linear response; `bound(x, variance)` is the ELBO without the prior's part."""
        if not self.biases:
            return widened(key, q, data.cells, bound)
        at = put(q, {f.rows: get(q, f.rows)["mean"] for f in self.biases})
        offsets, wide = self.offsets(at, data.cells), jnp.zeros(())
        for f in self.biases:
            wide += get(q, f.rows)["var"][codes(data.cells, f)]
        return widened(key, q, data.cells, lambda x, v: bound(offsets + x, wide + v))


# -- variational laws of the rows of U and V ----------------------------------------------------------
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
    K, L = precision.shape[-1], other["mean"].shape[1]
    weight = jnp.broadcast_to(jnp.asarray(weight, target.dtype), target.shape)
    table = whole(sparse.spread(mine, weight, half(second(other))), L)
    b = sparse.spread(mine, weight * target, other["mean"])[:, :K]
    if L > K:
        b += table[:, :K, K]
    cov = inverse(precision + table[:, :K, :K])
    return {"mean": times_rows(cov, shift + b), "cov": cov}


# -- linear response -----------------------------------------------------------------------------------------
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
