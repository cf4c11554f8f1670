"""What topic models share: words from two factors (A C) of one view, or three (A B_t C_t) of several."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

from bayesfac.core.clustering import inhabited
from bayesfac.core.data.cells import Cells, Grid, Query
from bayesfac.core.kernels.sparse import ratio_step
from bayesfac.core.math import dirichlets, inner, normalise, safe_log, total, total_of_rows
from bayesfac.core.method import COLLAPSED, Permutation

Tables = dict[str, jax.Array]
SWEEPS = 200  # EM iterations for new rows
LEAST = 0.01  # smallest share of the differences between rows that clusters should explain


class TableOfCounts(dist.Distribution):
    """Rows are multinomial: the n_i words of document i have the probabilities (A G')_i.

    A value is the list of counts in `cells`; all other cells are zero. The log density is sum x log p,
    without the multinomial coefficient: it does not depend on parameters, and without it counts may be real
    numbers. A sample is the whole n x m table and needs the integer `totals`.
    """

    arg_constraints: dict[str, Any] = {}
    support = constraints.nonnegative
    pytree_data_fields = ("A", "G", "cells", "totals")

    def __init__(self, A: jax.Array, G: jax.Array, cells: Cells | Query, totals: Any) -> None:
        self.A, self.G, self.cells, self.totals = A, G, cells, totals
        super().__init__((), (cells.row.shape[0],))

    def log_prob(self, value: jax.Array) -> jax.Array:
        return jnp.sum(value * safe_log(inner(self.A, self.G, self.cells)))

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        p = self.A @ self.G.T
        p = p / p.sum(-1, keepdims=True)
        # vmap over rows, because versions of JAX broadcast the totals differently
        draw = jax.vmap(jax.random.multinomial)
        if not sample_shape:
            return draw(jax.random.split(key, len(p)), jnp.asarray(self.totals), p)
        keys = jax.random.split(key, (*sample_shape, len(p)))
        each = jax.vmap(lambda k: draw(k, jnp.asarray(self.totals), p))
        flat = each(jnp.reshape(keys, (-1, len(p))))
        return jnp.reshape(flat, (*sample_shape, *p.shape))


def near_uniform(key: jax.Array, rows: int, columns: int) -> jax.Array:
    """Random rows that sum to one and differ enough that topics do not stay equal."""
    return dirichlets(key, jnp.full(columns, 5.0), (rows,))


def few_counts(key: jax.Array, columns: int) -> np.ndarray:
    """Seven rows of counts of about three topics, for a method's `example`."""
    same_topic = np.arange(7)[:, None] % 3 == np.arange(columns) % 3
    return np.asarray(jax.random.poisson(key, 1.0 + 8.0 * same_topic), float)


def dirichlet_energy(table: jax.Array, concentration: Any, cells: Any = None) -> jax.Array:
    """Minus the log density of Dirichlet rows, without its constant. With `cells`, for tables with a row for
    each row of the cells, which may be divided among devices."""
    if not isinstance(concentration, jax.Array) and concentration == 1:
        return jnp.zeros((), table.dtype)  # without computing logarithms
    return -(concentration - 1) * total_of_rows(safe_log(table), cells)


def sample_rows(site: str, plate: str, rows: int, columns: int, concentration: float) -> jax.Array:
    """Sample the site `site`: Dirichlet rows."""
    with numpyro.plate(plate, rows):
        return numpyro.sample(site, dist.Dirichlet(jnp.full(columns, concentration)))


def sample_words(name: str, A: jax.Array, G: jax.Array, data: Any) -> None:
    """Sample the counts of view `name`, given P(w | x) = (A G')_xw."""
    y = None if data.y is None else data.y[name]
    words = TableOfCounts(A, G, data.cells[name], data.totals(name))
    numpyro.sample(f"view.{name}", words, obs=y)


def predict_words(A: jax.Array, G: jax.Array, query: Query | Grid) -> dist.Distribution:
    """P(w | x); a row without training data has the prior mean 1/K for every cluster."""
    if isinstance(query, Grid):
        return dist.Delta(inner(A, G, query))
    A = jnp.concatenate([A, jnp.full((1, A.shape[1]), 1 / A.shape[1], A.dtype)])
    return dist.Delta(inner(A, G, Query(jnp.asarray(query.row) % len(A), query.col)))


def remarks(p: Any, data: Any, hyper: Any) -> list[str]:
    """Notes on empty clusters, and on clusters that explain nothing: a collapse, or a symmetric saddle
    point."""
    K = p.A.shape[1]
    empty = K - inhabited(np.asarray(p.A))
    advice = "another start, fewer clusters or a smaller penalty may help"
    notes = [f"{COLLAPSED}{empty} of {K} clusters have no row: {advice}"] if empty else []
    if K > 1 and (share := explained(p, data)) < LEAST:
        notes.append(
            f"{COLLAPSED}the clusters explain {share:.1%} of the differences between rows: all clusters "
            "have nearly the same features; another start may help (start=, seed=)"
        )
    return notes


def explained(p: Any, data: Any) -> float:
    """The log likelihood as a share of the way from equal rows (0) to the highest of any model (1)."""
    ours = equal = highest = 0.0
    for name, cells in data.cells.items():
        y, row, col = (np.asarray(x) for x in (data.y[name], cells.row, cells.col))
        kept, y = y > 0, y.astype(np.float64)
        G = p.C if not isinstance(p.C, dict) else p.B[name] @ p.C[name]
        words = np.maximum(np.asarray(inner(p.A, G.T, cells), np.float64), 1e-300)
        rows, columns = np.bincount(row, y), np.bincount(col, y)
        ours += float(y @ np.log(words))
        equal += float(y[kept] @ np.log(columns[col[kept]] / y.sum()))
        highest += float(y[kept] @ np.log(y[kept] / rows[row[kept]]))
    return (ours - equal) / (highest - equal) if highest - equal > 1e-9 * abs(highest) else 1.0


def mixtures(V: jax.Array) -> jax.Array:
    """A from the expected counts V. A row without words has the prior mean, as a new row has, because it has
    no information on its clusters; otherwise it would keep the clusters of its random start."""
    return normalise(V, jnp.full_like(V, 1 / V.shape[1]))


def fold_in(p: Any, data: Any, hyper: Any, step: Callable[..., Any] | None = None) -> Any:
    """A of new rows by EM with fixed topics, from uniform rows: a row depends on its own words only."""

    def sweep(_: int, A: jax.Array) -> jax.Array:
        return normalise((step or em)(p._replace(A=A), data, hyper)[0], A)

    K = p.A.shape[1]
    uniform = jnp.full((data.n_rows, K), 1 / K, p.A.dtype)
    return p._replace(A=jax.lax.fori_loop(0, SWEEPS, sweep, uniform))


def fold_in_views(p: Any, data: Any, hyper: Any) -> Any:
    return fold_in(p, data, hyper, em_of_views)


TRAITS_OF_GRAPHS = {
    "no_fold_in": "a row depends on its neighbours, and features are scaled over all rows"
}


# -- two factors ----------------------------------------------------------------------------------
class Params(NamedTuple):
    A: jax.Array
    C: jax.Array


DIMS = {"A": ("row", "topic"), "C": ("topic", "feature")}
GAUGE = (Permutation({"A": 1, "C": 0}, "topic"),)


def misfit(p: Any, data: Any, hyper: Any) -> jax.Array:
    """J without a graph: - sum n log (A C), and the priors' energies."""
    (cells,), (y,) = data.cells.values(), data.y.values()
    prior = dirichlet_energy(p.A, hyper.a, cells) + dirichlet_energy(p.C, hyper.c)
    return -total(y * safe_log(inner(p.A, p.C.T, cells)), cells) + prior


def em(p: Any, data: Any, hyper: Any) -> tuple[jax.Array, jax.Array]:
    """(V, C): the expected counts of every row's topics, with the prior's, and the new C (see plsa)."""
    (cells,), (y,) = data.cells.values(), data.y.values()
    RC, RA = ratio_step(cells, y, p.A, p.C.T)
    return hyper.a - 1 + p.A * RC, normalise(hyper.c - 1 + p.C * RA.T, p.C)


def sample_view(A: jax.Array, data: Any, hyper: Any) -> None:
    """Sample the topics of the only view, and its words."""
    ((name, m),) = data.n_features.items()
    C = sample_rows("C", "topic", hyper.n_components, m, hyper.c)
    sample_words(name, A, C.T, data)


# -- three factors --------------------------------------------------------------------------------
DIMS_OF_VIEWS = {
    "A": ("row", "cluster"),
    "B": ("cluster", "topic.{key}"),
    "C": ("topic.{key}", "feature.{key}"),
}


def misfit_of_views(p: Any, data: Any, hyper: Any) -> jax.Array:
    """J without graphs: - sum_t sum n_t log (A B_t C_t), and the priors' energies."""
    J = dirichlet_energy(p.A, hyper.a, next(iter(data.cells.values())))
    for name, cells in data.cells.items():
        B, C = p.B[name], p.C[name]
        J -= total(data.y[name] * safe_log(inner(p.A, (B @ C).T, cells)), cells)
        J += dirichlet_energy(B, hyper.b) + dirichlet_energy(C, hyper.c)
    return J


def em_of_views(p: Any, data: Any, hyper: Any) -> tuple[jax.Array, Tables, Tables]:
    """(V, B, C): the expected counts of every row's clusters, with the prior's, and the new B and C.

    All three follow from R_t G_t and R_t' A (see mvplsa).
    """
    V = jnp.full_like(p.A, hyper.a - 1)
    B_new, C_new = {}, {}
    for name, cells in data.cells.items():
        B, C = p.B[name], p.C[name]
        RG, RA = ratio_step(cells, data.y[name], p.A, (B @ C).T)
        V += p.A * RG
        B_new[name] = normalise(hyper.b - 1 + B * (RA.T @ C.T), B)
        C_new[name] = normalise(hyper.c - 1 + C * (B.T @ RA.T), C)
    return V, B_new, C_new


def sample_views(A: jax.Array, data: Any, hyper: Any) -> None:
    """Sample the topics of every view, and its words."""
    K, Q = hyper.n_components, hyper.n_topics
    for name, m in data.n_features.items():
        B = sample_rows(f"B.{name}", f"cluster.{name}", K, Q, hyper.b)
        C = sample_rows(f"C.{name}", f"topic.{name}", Q, m, hyper.c)
        sample_words(name, A, (B @ C).T, data)


def predict_views(p: Any, query: Query | Grid) -> dist.Distribution:
    """P(w | x, t); columns are numbered through the views in the order of their names."""
    return predict_words(p.A, jnp.concatenate([(p.B[name] @ p.C[name]).T for name in p.B]), query)


def gauge_of_views(names: tuple[str, ...]) -> tuple[Permutation, ...]:
    """One permutation of the clusters, and one of the topics in every view."""
    views = [name.partition(".")[2] for name in names if name.startswith("B.")]
    clusters = Permutation({"A": 1, **{f"B.{v}": 0 for v in views}}, "cluster")
    topics = (Permutation({f"B.{v}": 1, f"C.{v}": 0}, f"topic.{v}") for v in views)
    return (clusters, *topics)
