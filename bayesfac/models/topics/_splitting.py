r"""Gibbs for topic models: each count is split over components; given the parts, rows are Dirichlet.

With p = sum_k a_k g_k the probability of a word and n its count, which may be a real number, let m be the
next whole number and r = m - n. As p^-r = 1/Gamma(r) int u^(r - 1) exp(-u p) du,

    p^n = p^m p^-r,     p^m = sum_z m! / prod z_k! prod (a_k g_k)^z_k

Given p, z is multinomial with shares a_k g_k / p, and u is Gamma(r, rate p). Given z and u the likelihood is
prod (a_k g_k)^z_k exp(-u a_k g_k). So a row of A, B_t or C_t is Dirichlet given the other tables, with the
prior's concentration plus its parts, times exp(-tilt . row), where the tilts sum u times the other tables.
`TiltedDirichlet` draws such a row exactly. Whole counts have r = 0 and no tilt. If the counts are real
numbers that are small compared with the next whole numbers m, the parts are many for little data, and the
steps of a chain are small.

With several views g = B_t C_t: the parts z_kw, summed over rows, are split over topics once more, with shares
b_kq c_qw / (B_t C_t)_kw.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import constraints

from bayesfac.core.data.cells import full_table
from bayesfac.core.kernels.simplex import gammas
from bayesfac.core.kernels.sparse import spread
from bayesfac.core.kernels.splitting import split_counts
from bayesfac.core.laws.simplex import TiltedDirichlet
from bayesfac.core.math import inner, safe_log

APART = 2**21  # number of the random key of the parts; smaller numbers are for sites


class Parts(NamedTuple):
    """The parts of one view's counts, summed: by row and cluster, cluster and topic, feature and topic."""

    by_row: jax.Array
    by_cluster: jax.Array | None  # None: topics are the clusters
    by_feature: jax.Array
    u: jax.Array  # of every cell; 0 for a whole count


Split = dict[str, Parts]


class SplitWords(dist.Distribution):
    """The parts of all counts, {view: `Parts`}; `B` is None where topics are the clusters.

    `log_prob` omits terms that depend on the value alone.
    """

    arg_constraints: dict[str, Any] = {}
    support = constraints.real_matrix
    pytree_data_fields = ("A", "B", "C", "cells", "y")

    def __init__(self, A: jax.Array, B: Any, C: Any, cells: Any, y: Any) -> None:
        self.A, self.B, self.C, self.cells, self.y = A, B, C, cells, y
        super().__init__((), A.shape)

    def _words(self, name: str) -> jax.Array:
        """P(feature | cluster), features x clusters."""
        return (self.C[name] if self.B is None else self.B[name] @ self.C[name]).T

    def log_prob(self, value: dict[str, Parts]) -> jax.Array:
        total = jnp.zeros((), self.A.dtype)
        for name, parts in value.items():
            p = inner(self.A, self._words(name), self.cells[name])
            total -= jnp.sum(self.y[name] * safe_log(p) + parts.u * p)
            total += jnp.sum(parts.by_row * safe_log(self.A))
            total += jnp.sum(parts.by_feature * safe_log(self.C[name].T))
            if parts.by_cluster is not None:
                total += jnp.sum(parts.by_cluster * safe_log(self.B[name]))
        return total

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> dict[str, Parts]:
        if sample_shape:
            raise NotImplementedError("one division of all counts at a time")
        keys = jax.random.split(jax.random.fold_in(key, APART), len(self.cells))
        return {name: self._split(name, k) for name, k in zip(self.cells, keys, strict=True)}

    def _split(self, name: str, key: jax.Array) -> Parts:
        cells, y, G = self.cells[name], self.y[name], self._words(name)
        rest, over, again = jax.random.split(key, 3)
        by_row, by_feature = split_counts(again, cells, jnp.ceil(y), self.A, G)
        fresh = lambda: gammas(rest, jnp.ceil(y) - y, inner(self.A, G, cells))  # noqa: E731
        u = _where_real(y, fresh, jnp.zeros_like(y))
        if self.B is None:
            return Parts(by_row, None, by_feature, u)
        table, parts = full_table(by_feature.T)
        by_cluster, by_feature = split_counts(over, table, parts, self.B[name], self.C[name].T)
        return Parts(by_row, by_cluster, by_feature, u)


def _where_real(y: jax.Array, make: Any, otherwise: jax.Array) -> jax.Array:
    """The result of `make` for counts that are not whole, else `otherwise`; computed only if there are
    any."""
    return jax.lax.cond(jnp.any(y != jnp.round(y)), make, lambda: otherwise)


def _tilt_of_rows(A: jax.Array, G: jax.Array, data: Any, name: str, u: jax.Array) -> jax.Array:
    """sum_w u_iw g_wk."""
    rows = data.cells[name].by_row
    return _where_real(data.y[name], lambda: spread(rows, u, G), jnp.zeros_like(A))


def _tilt_of_words(A: jax.Array, G: jax.Array, data: Any, name: str, u: jax.Array) -> jax.Array:
    """sum_i u_iw a_ik, clusters x features."""
    columns = data.cells[name].by_col
    return _where_real(data.y[name], lambda: spread(columns, u, A), jnp.zeros_like(G)).T


# -- two factors ----------------------------------------------------------------------------------
def augment(p: Any, data: Any, hyper: Any) -> SplitWords:
    """The topic of every word."""
    (name,) = data.cells
    return SplitWords(p.A, None, {name: p.C}, data.cells, data.y)


def conditional_A(p: Any, data: Any, hyper: Any, parts: Split) -> TiltedDirichlet:
    """A_i | z, u: a tilted Dirichlet with the counts of each topic among the words of row i."""
    ((name, own),) = parts.items()
    tilt = _tilt_of_rows(p.A, p.C.T, data, name, own.u)
    return TiltedDirichlet(hyper.a + own.by_row, tilt)


def conditional_C(p: Any, data: Any, hyper: Any, parts: Split) -> TiltedDirichlet:
    """C_k | z, u: a tilted Dirichlet with the counts of each feature in topic k."""
    ((name, own),) = parts.items()
    tilt = _tilt_of_words(p.A, p.C.T, data, name, own.u)
    return TiltedDirichlet(hyper.c + own.by_feature.T, tilt)


CONDITIONALS: dict[str, Callable[..., Any]] = {"A": conditional_A, "C": conditional_C}


# -- three factors --------------------------------------------------------------------------------
def augment_views(p: Any, data: Any, hyper: Any) -> SplitWords:
    """The cluster and the topic of every word of every view."""
    return SplitWords(p.A, p.B, p.C, data.cells, data.y)


def conditional_A_of_views(p: Any, data: Any, hyper: Any, parts: Split) -> TiltedDirichlet:
    """A_i | z, u: a tilted Dirichlet with the counts of each cluster among the words of all views."""
    concentration, tilt = jnp.full_like(p.A, hyper.a), jnp.zeros_like(p.A)
    for name, own in parts.items():
        G = (p.B[name] @ p.C[name]).T
        concentration += own.by_row
        tilt += _tilt_of_rows(p.A, G, data, name, own.u)
    return TiltedDirichlet(concentration, tilt)


def conditional_B(p: Any, data: Any, hyper: Any, parts: Split, name: str) -> TiltedDirichlet:
    """B_tk | z, u: a tilted Dirichlet with the counts of each topic in cluster k."""
    own, C = parts[name], p.C[name]
    U = _tilt_of_words(p.A, (p.B[name] @ C).T, data, name, own.u)
    return TiltedDirichlet(hyper.b + own.by_cluster, U @ C.T)


def conditional_C_of_views(
    p: Any, data: Any, hyper: Any, parts: Split, name: str
) -> TiltedDirichlet:
    """C_tq | z, u: a tilted Dirichlet with the counts of each feature in topic q."""
    own, B = parts[name], p.B[name]
    U = _tilt_of_words(p.A, (B @ p.C[name]).T, data, name, own.u)
    return TiltedDirichlet(hyper.c + own.by_feature.T, B.T @ U)


CONDITIONALS_OF_VIEWS: dict[str, Callable[..., Any]] = {
    "A": conditional_A_of_views, "B": conditional_B, "C": conditional_C_of_views,
}  # fmt: skip
