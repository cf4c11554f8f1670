"""The scores of several views of the same rows, x_ij = u_i.v_j + c_j: every view has its own features j.

The features of all views stand side by side, so for the rows this is one matrix. The features of one view are
those of the matrix of this view alone, with a factor and intercepts of its own: sites V.VIEW and c.VIEW.

    u_i | rest ~ N(m_i, S_i),   S_i^-1 = P + sum_j w_ij v_j v_j',   m_i = S_i sum_j w_ij t_ij v_j

where j goes through the features of all views, and w and t are as in `matrix.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp

from bayesfac.core.data.linked.measured import Measurements
from bayesfac.core.kernels import sparse
from bayesfac.core.laws import empirical_bayes as bayes
from bayesfac.parts import factor_beliefs as law
from bayesfac.parts import matrix
from bayesfac.parts.estimate import LEAST, Scales, estimated, fitted_mixture, less
from bayesfac.parts.factors import Factor
from bayesfac.parts.matrix import Matrix
from bayesfac.parts.scales import Groups
from bayesfac.parts.sites import get, put

FEATURE = "feature."  # the axis of the features of a view is named FEATURE + VIEW


@dataclass(frozen=True)
class SharedRows:
    """The factor of the rows, and for each view that of its features and their intercepts, whose sites are
    entries of mappings. Before the views are known, one stands for all."""

    user: Factor
    of_view: Callable[[str], Factor]
    intercept: Callable[[str], Factor]
    views: tuple[str, ...] = ("{key}",)
    degree: ClassVar[int] = 2
    rotates: ClassVar[bool] = True
    balanced: ClassVar[bool] = True

    @property
    def main(self) -> tuple[Factor, ...]:
        return (self.user, *map(self.of_view, self.views))

    @property
    def biases(self) -> tuple[Factor, ...]:
        return tuple(map(self.intercept, self.views))

    @property
    def every(self) -> tuple[Factor, ...]:
        return self.main + self.biases

    def at(self, h: Any) -> Self:
        return replace(self, views=tuple(view.name for view in h.views))

    def seen(self, names: Any) -> Self:
        known = tuple(n.partition(".")[2] for n in names if n.startswith("V."))
        return replace(self, views=known or self.views)

    def lengths(self, data: Measurements) -> dict[str, int]:
        own = {f"{FEATURE}{name}": len(index) for name, index in data.views.items()}
        return {self.user.axis: data.shape[0]} | own

    def opposed(self, data: Any) -> list[Groups]:
        return [(self.main[:1], self.main[1:])]

    # -- one matrix ---------------------------------------------------------------------------------------
    def alone(self, view: str) -> Matrix:
        """The matrix of one view."""
        return Matrix((self.user, self.of_view(view)), (self.intercept(view),))

    @property
    def whole(self) -> Matrix:
        """The matrix of all views, which takes `joined` parameters."""
        one = self.of_view(self.views[0])
        item = one._replace(axis="item", rows="V", precision=one.precision._replace(site="tau"))
        if one.mixture:
            item = item._replace(mixture=one.mixture._replace(site="share"))
        return Matrix((self.user, item), (Factor("item", "c", None, bias=True),))

    def joined(self, p: Any) -> Any:
        """Parameters, or beliefs, with the rows of all features in one table, and their intercepts."""

        def tables(found: Any) -> Any:
            return jax.tree.map(lambda *x: jnp.concatenate(x), *(found[n] for n in self.views))

        return p._replace(V=tables(p.V), c=tables(p.c))

    def scores(self, p: Any, data: Any) -> jax.Array:
        return self.whole.scores(self.joined(p), data)

    def rows(
        self, p: Any, data: Measurements, f: Factor, h: Any, target: Any, weight: Any,
        P: jax.Array | None = None,
    ) -> Any:  # fmt: skip
        if f == self.user:
            return self.whole.rows(self.joined(p), data, f, h, target, weight, P=P)
        view = f.axis.removeprefix(FEATURE)
        t, w = (data.of_view(view, jnp.broadcast_to(x, target.shape)) for x in (target, weight))
        return self.alone(view).rows(p, data.view(view), f, h, t, w, P=P)

    def predicted(self, p: Any, query: Any, h: Any) -> tuple[jax.Array, jax.Array]:
        """Mean and variance of the scores; rows without training data are drawn from their prior."""
        found = [self.alone(v.name).predicted(p, v.asked(query), h) for v in h.views]
        mean, variance = found[0]
        for view, (own, wide) in zip(h.views[1:], found[1:], strict=True):
            mine = view.holds(query)
            mean, variance = jnp.where(mine, own, mean), jnp.where(mine, wide, variance)
        return mean, variance

    # -- variational laws of rows ---------------------------------------------------------------------
    def moments(self, q: Any, cells: Any) -> tuple[jax.Array, jax.Array]:
        """Mean and variance of the scores."""
        return self.whole.moments(self.joined(q), cells)

    def updated(self, q: Any, data: Measurements, h: Any, target: jax.Array, weight: Any) -> Any:
        """The laws of intercepts, then of the rows, then of the features of every view."""
        weight = jnp.broadcast_to(weight, target.shape)
        parts = {v: [data.of_view(v, x) for x in (target, weight)] for v in self.views}
        at = {f.rows: get(q, f.rows)["mean"] for f in self.every}
        at |= {f.precision.site: f.precision.value(law.expected_P(f, q, h)) for f in self.biases}
        for view, f in zip(self.views, self.biases, strict=True):
            own = self.alone(view).bias(put(q, at), data.view(view), f, h, *parts[view])
            at[f.rows] = own.mean
            q = put(q, {f.rows: {"mean": own.mean, "var": own.variance}})
        target = target - self.whole.offsets(self.joined(put(q, at)), data.cells)
        rows, faced = data.cells.by_row, self.joined(q).V
        own = matrix.rows(rows, target, weight, faced, *law.prior(self.user, q, data, h))
        q = put(q, {self.user.rows: own})
        for view, f in zip(self.views, self.main[1:], strict=True):
            mine, t = data.inside[view].by_col, data.of_view(view, target)
            given = law.prior(f, q, data.view(view), h)
            own = matrix.rows(mine, t, parts[view][1], get(q, self.user.rows), *given)
            q = put(q, {f.rows: own})
        return q

    def widened(
        self, key: jax.Array, q: Any, data: Measurements, bound: Any, elbo: Any
    ) -> tuple[Any, jax.Array]:
        """Rows wider by linear response, as those of one matrix."""
        wide, factor = self.whole.widened(key, self.joined(q), data, bound, elbo)
        tables, first = {}, 0
        for f, (view, index) in zip(self.main[1:], data.views.items(), strict=True):
            cov = wide.V["cov"][first : first + len(index)]
            tables[f.rows], first = {**q.V[view], "cov": cov}, first + len(index)
        return put(q, tables | {self.user.rows: wide.U}), factor


def point(c: Any, key: jax.Array, p: Any, data: Measurements, h: Any) -> Any:
    """Params where the point of a composition begins. The rows of all views are found as those of one
    matrix, by empirical Bayes from the leading components of the cells, and rotated to where loadings are
    sparse; then the law of the loadings of each view is fitted to them. With `scales="joint"`, p itself."""
    if h.scales == "joint":
        return p
    s, seen, cells = c.at(h), c.observed.evidence(p, data, h), data.cells
    sums = sparse.spread(cells.by_col, seen.y, jnp.ones((data.shape[0], 1), seen.y.dtype))[:, 0]
    b = sums / (jnp.diff(cells.by_col.ptr) + bayes.RIDGE)
    seen = less(seen, b[cells.col])
    U, V = bayes.leading(key, cells, seen.y, h.n_components)
    ones = jnp.ones(h.n_components, U.dtype)
    q = s.joined(p)._replace(U=U, V=V, c=b, tau=ones, share=ones / 2)
    known = Scales(h.n_components, seen.unit, 0.01, 1.0, 0.1)
    given = seen.y, seen.unit, seen.own, seen.observe, seen.early
    found, own = estimated(s.whole.main, q, data, h, *given, scales=known, near=True)
    sites = seen.end(own)[0] | {s.user.rows: found["U"]}
    first = 0
    for f, intercept, index in zip(s.main[1:], s.biases, data.views.values(), strict=True):
        mine = slice(first, first := first + len(index))
        mean = b[mine]
        sites |= {f.rows: found["V"][mine], intercept.rows: mean}
        sites |= {intercept.precision.site: 1 / (jnp.mean(mean**2) + LEAST)}
        sites |= fitted_mixture(put(p, {f.rows: found["V"][mine]}), f, h)
    return put(p, sites)
