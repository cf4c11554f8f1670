"""The scores of a tensor, x = sum_k u_ik v_jk ... w_tk: products of one row of each mode.

Given the other modes, the rows of one are regressions on the products of the others: z_c is that of the other
rows of a cell c, which observes u_i.z_c as t_c with the precision w_c, and c_i the mean of a row:

    u_i | rest ~ N(m_i, S_i),   S_i^-1 = P + sum_c w_c z_c z_c',   m_i = S_i (P c_i + sum_c w_c t_c z_c)

In a variational law,
second moments of products are products of second moments:

    S_i^-1 = E P + sum_c w_c prod_m (m m' + S),   m_i = S_i (E[P mu] + sum_c w_c t_c prod_m m)
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp

from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.kernels import sparse
from bayesfac.core.laws import response
from bayesfac.core.laws.beliefs import doubled, half, inverse, second, square, times_rows, whole
from bayesfac.core.laws.distributions import GaussianRows, NormalRows
from bayesfac.core.multilinear import multilinear, multiplied, others
from bayesfac.parts import factor_beliefs as law
from bayesfac.parts.factors import Factor, new_row
from bayesfac.parts.rows.coupled import CoupledRows
from bayesfac.parts.scales import Groups
from bayesfac.parts.sites import get, put

CELLS = 5000  # number of cells whose predictions a probe sums
TRIES, SWEEPS = 4, 25  # number of annealed starts, of which the best is used, and sweeps of each
HEAT = 0.5, 3.0  # the precision of the noise, first and last, times the variance of the values


@dataclass(frozen=True)
class Keyed:
    """Factors whose sites are entries of mappings: `factor(key)` for each mode, or for each kind of label.

    Before the keys are known, one stands for all.
    """

    factor: Callable[[str], Factor]
    keys: tuple[str, ...] = ("{key}",)
    biases: tuple[Factor, ...] = ()
    balanced: ClassVar[bool] = False

    @property
    def main(self) -> tuple[Factor, ...]:
        return tuple(map(self.factor, self.keys))

    @property
    def every(self) -> tuple[Factor, ...]:
        return self.main

    def seen(self, names: Any) -> Self:
        return replace(self, keys=tuple(n.partition(".")[2] for n in names if n.startswith("U.")))

    def cells(self, data: Any) -> Any:
        """Cells that have the rows of each key in a layout of their own."""
        return data.cells

    def lengths(self, data: Any) -> dict[str, int]:
        return dict(zip(self.keys, self.cells(data).shape, strict=True))

    def tables(self, p: Any) -> list[jax.Array]:
        return [get(p, f.rows) for f in self.main]

    def rows(
        self, p: Any, data: Any, f: Factor, h: Any, target: Any, weight: Any,
        P: jax.Array | None = None,
    ) -> NormalRows:  # fmt: skip
        """P are the precisions of rows about 0, if each has its own."""
        m, mu, cells = self.main.index(f), get(p, f.mean), self.cells(data)
        P = f.P(p, h) if P is None else P
        shift = jnp.zeros(P.shape[:-1], P.dtype) if mu is None else P @ mu
        table = others(self.tables(p), m, cells)
        if f.along:
            along = f.along.at(data, f.axis, h, cells.shape[m])
            return CoupledRows(along, cells.modes[m], target, table, weight, P, f.centre(p))
        return GaussianRows(cells.modes[m], target, table, weight, P, shift)


class Tensor(Keyed):
    """One factor for each mode, in the order in which cells name the modes."""

    rotates: ClassVar[bool] = False

    @property
    def degree(self) -> int:
        return len(self.keys)

    def at(self, h: Any) -> Self:
        return replace(self, keys=h.modes)

    def scores(self, p: Any, data: Any) -> jax.Array:
        return multiplied(self.tables(p), data.cells)

    def opposed(self, data: Any) -> list[Groups]:
        return [((one,), (two,)) for one, two in pairwise(self.main)]

    def predicted(self, p: Any, query: Query | Grid, h: Any) -> tuple[jax.Array, jax.Array]:
        """Mean and variance of the scores; rows without training data are drawn from their priors."""
        return multilinear(self.tables(p), query, [new_row(f, p, query, h) for f in self.main])

    # -- variational laws of rows ---------------------------------------------------------------------
    def moments(self, q: Any, cells: Any) -> tuple[jax.Array, jax.Array]:
        """Mean and variance of the scores.

        The variance is a sum over modes: second moments of earlier modes, covariance of this mode, squares
        of later ones.
        """
        own, variance = [get(q, f.rows) for f in self.main], jnp.zeros(())
        for m, belief in enumerate(own):
            behind = [square(later["mean"]) for later in own[m + 1 :]]
            before = [second(earlier) for earlier in own[:m]]
            parts = [*before, belief["cov"], *behind]
            variance += multiplied([doubled(parts[0]), *map(half, parts[1:])], cells)
        return multiplied([belief["mean"] for belief in own], cells), variance

    def updated(self, q: Any, data: Any, h: Any, target: jax.Array, weight: Any) -> Any:
        """The laws of the rows of all modes, in turn."""
        w = jnp.full_like(target, 1) * weight
        for m, f in enumerate(self.main):
            own, mine = [get(q, g.rows) for g in self.main], data.cells.modes[m]
            P, shift = law.prior(f, q, data, h)
            twice = others([half(second(belief)) for belief in own], m, data.cells)
            once = others([belief["mean"] for belief in own], m, data.cells)
            cov = inverse(P + whole(sparse.spread(mine, w, twice), P.shape[-1]))
            mean = times_rows(cov, shift + sparse.spread(mine, w * target, once))
            q = put(q, {f.rows: {"mean": mean, "cov": cov}})
        return q

    def widened(self, key: jax.Array, q: Any, data: Any, bound: Any, elbo: Any) -> tuple[Any, Any]:
        """Multiply the width of the rows by one factor, from the linear response of products at random
        labels; `elbo(q)` is the ELBO without entropies."""
        cells, names = data.cells, [f.rows for f in self.main]
        means, covs = {n: get(q, n)["mean"] for n in names}, [get(q, n)["cov"] for n in names]
        size = min(len(data), CELLS)

        def slope(means: Any) -> Any:
            def at(means: Any) -> jax.Array:
                return elbo(put(q, {n: {**get(q, n), "mean": x} for n, x in means.items()}))

            return jax.grad(at)(means)

        def times(d: Any) -> Any:
            return jax.grad(lambda at: -response.dot(slope(at), d))(means)

        def smoothed(d: Any) -> Any:
            return {n: times_rows(get(q, n)["cov"], x) for n, x in d.items()}

        def probe(key: jax.Array) -> Any:
            *keys, last = jax.random.split(key, len(covs) + 1)
            each = zip(keys, cells.codes, strict=True)
            at = [jax.random.choice(k, code, (size,), replace=False) for k, code in each]
            picked = [means[n][i] for n, i in zip(names, at, strict=True)]
            variance = jnp.zeros(size)
            for m, (cov, i) in enumerate(zip(covs, at, strict=True)):
                rest = jnp.stack(picked[:m] + picked[m + 1 :]).prod(0)
                variance += jnp.sum(times_rows(cov[i], rest) * rest, 1)
            signs = response.signs(last, variance)

            def total(means: Any) -> jax.Array:
                found = [means[n][i] for n, i in zip(names, at, strict=True)]
                return jnp.sum(signs[:, None] * jnp.stack(found).prod(0))

            return jax.grad(total)(means)

        with sparse.use("jax"):  # the form of the loops that has second derivatives
            factor = response.factor(key, times, smoothed, probe)
        wide = {n: {**get(q, n), "cov": factor**2 * get(q, n)["cov"]} for n in names}
        return put(q, wide), factor


def annealed(c: Any, init: Any, key: jax.Array, data: Any, h: Any) -> Any:
    """The best of a few annealed starts of a composition: from `init`, rows are drawn from their
    conditionals, while the precision of a normal noise rises.

    From random factors, which explain nothing, precisions would rise until a component is zero in all modes,
    and a Gibbs chain would stay without this component: one chain in five on 6,000 cells of rank 3.
    """
    s, (low, high) = c.at(h), HEAT
    seen = c.observed.evidence(init(key, data, h), data, h)

    def sweep(key: jax.Array, number: jax.Array, p: Any) -> Any:
        weight = low * (high / low) ** (number / SWEEPS) / seen.unit**2
        for m, f in enumerate(s.main):
            own = jax.random.fold_in(jax.random.fold_in(key, number), m)
            p = put(p, {f.rows: c.rows(f, p, data, h, seen.y, weight).sample(own)})
        return p

    def tried(key: jax.Array) -> tuple[Any, jax.Array]:
        first, later = jax.random.split(key)
        begin = init(first, data, h)
        p = jax.lax.fori_loop(0, SWEEPS, lambda number, p: sweep(later, number, p), begin)
        return p, jnp.sum((seen.y - s.scores(p, data)) ** 2)

    tries, misfits = jax.lax.map(tried, jax.random.split(key, TRIES))
    return jax.tree.map(lambda x: x[jnp.argmin(misfits)], tries)
