"""How real-valued views become the weights that topic models count, and where clusters begin.

Both decide the result, so both are choices that are named: `scale=` and `start=`.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from bayesfac.core import checks
from bayesfac.core.clustering import kmeans_labels, leading, normalised, unit_rows
from bayesfac.core.data.graphs import neighbours
from bayesfac.core.data.views import Views, side_by_side
from bayesfac.models.topics._graph_smoothing import DIVERGENCES
from bayesfac.models.topics._words import near_uniform

SCALES = ("none", "minmax", "unit")
STARTS = ("spectral", "kmeans", "random")
UNSURE = 0.1  # of every row's mass begins spread over all clusters


def check(data: Views, hyper: Any) -> None:
    """What topic models with graphs ask of their settings, before `ready`."""
    if hyper.scale == "none":
        checks.counts(data)
    checks.count(hyper, "n_components", data.n_rows, "the number of rows")
    if hyper.penalty != 0:
        checks.positive(hyper, "penalty")
    checks.at_least_one(hyper, "a", "c")
    checks.one_of(hyper, "divergence", DIVERGENCES)
    checks.one_of(hyper, "scale", SCALES)
    checks.one_of(hyper, "start", STARTS)


def scaled(views: Views, how: str) -> Views:
    """The same views, rescaled.

    none     as they are: counts
    minmax   every feature between 0 and 1; one that never varies becomes 0 if it is 0, else 1
    unit     minmax, then every row of every view of length one: all views weigh alike
    """
    if how == "none":
        return views
    found = {}
    for name in views.names:
        x = views[name]
        if x.nnz and x.data.min() < 0:
            dense = x.toarray()
            x = sp.csr_matrix(dense - np.minimum(dense.min(0), 0))
        low = np.asarray(x.min(0).todense()).ravel()
        high = np.asarray(x.max(0).todense()).ravel()
        varies = high > low
        if (low[varies] > 0).any():  # every cell of such a feature is stored already
            x = sp.csc_matrix(x)
            x.data -= np.repeat(np.where(varies, low, 0), np.diff(x.indptr))
            x.eliminate_zeros()
        span = np.where(varies, high - low, np.where(high > 0, high, 1))
        x = sp.csr_matrix(x @ sp.diags(1 / span))
        found[name] = unit_rows(x) if how == "unit" else x
    again = Views(found, rows=views.rows, graphs=views.graphs)
    again.host = replace(again.host, features=views.features)
    return again


def start_rows(key: jax.Array, views: Views, hyper: Any) -> jax.Array:
    """Where P(cluster | row) begins.

    spectral   k-means on the first K eigenvectors of every graph in use and of one of neighbours over all
               features, side by side, rows of each of length one: no graph has more say than another
    kmeans     k-means on all features side by side
    random     near the uniform
    The first two put 0.9 of a row's mass on its cluster and spread the rest over all.
    """
    K = hyper.n_components
    if hyper.start == "random":
        return near_uniform(key, views.n_rows, K)
    seed = int(jax.random.randint(key, (), 0, 2**31 - 1))
    x = side_by_side(views)
    if hyper.start == "spectral":
        near = neighbours(x, min(hyper.neighbours, views.n_rows - 1), hyper.metric)
        assert views.graphs is not None  # `linked` has seen to it
        graphs = [near] + [views.graphs[name] for name in views.graphs.names]
        rng = np.random.default_rng(seed)
        x = np.hstack([unit_rows(leading(normalised(graph), K, rng)) for graph in graphs])
    return (1 - UNSURE) * jax.nn.one_hot(kmeans_labels(x, K, seed), K) + UNSURE / K


def start_words(
    key: jax.Array, A: jax.Array, x: sp.csr_matrix, Q: int, how: str
) -> tuple[jax.Array, jax.Array]:
    """Where B and C begin: near the uniform where A does. Else topic q belongs to cluster q mod K (to several
    where Q < K), and its words are those of a random half of that cluster's rows; 0.1 is spread evenly."""
    (n, K), m = A.shape, x.shape[1]
    kb, kc = jax.random.split(key)
    if how == "random":
        return near_uniform(kb, K, Q), near_uniform(kc, Q, m)
    own = np.arange(K)[:, None] % Q == np.arange(Q) % K
    half = np.asarray(jax.random.bernoulli(kc, 0.5, (n, Q)))
    words = np.asarray(((np.asarray(A, np.float64) @ own) * half).T @ x) + 1e-12
    B, C = own / own.sum(1, keepdims=True), words / words.sum(1, keepdims=True)
    B, C = ((1 - UNSURE) * table + UNSURE / table.shape[1] for table in (B, C))
    return jnp.asarray(B, A.dtype), jnp.asarray(C, A.dtype)
