"""Settings of topic models with graphs: how features are scaled (`scale`) and where A begins (`start`)."""

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
UNSURE = 0.1  # this share of every row's probability is spread evenly at the start


def check(data: Views, hyper: Any) -> None:
    """Check the settings of a topic model with graphs, before `ready`."""
    if hyper.scale == "none":
        checks.counts(data)
    checks.count(hyper, "n_components", data.n_rows, "the number of rows")
    if hyper.penalty != 0:
        checks.positive(hyper, "penalty")
    checks.at_least_one(hyper, "a", "c")
    checks.one_of(hyper, "divergence", DIVERGENCES)
    checks.one_of(hyper, "scale", SCALES)
    checks.one_of(hyper, "start", STARTS)


def check_one_graph(data: Views, hyper: Any) -> None:
    """Check the settings, and that the views contain one graph at most."""
    if data.graphs is not None and len(data.graphs.names) != 1:
        raise ValueError(f"Expected one graph, got {list(data.graphs.names)} (see mggm)")
    check(data, hyper)


def scaled(views: Views, scale: str) -> Views:
    """The views with rescaled features.

    none     unchanged, for counts
    minmax   every feature from 0 to 1; a constant feature becomes 0 if it is 0, else 1
    unit     minmax, then every row of every view has length one, so that all views weigh the same
    """
    if scale == "none":
        return views
    tables = {}
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
        tables[name] = unit_rows(x) if scale == "unit" else x
    result = Views(tables, rows=views.rows, graphs=views.graphs)
    result.host = replace(result.host, features=views.features)
    return result


def start_rows(key: jax.Array, views: Views, hyper: Any) -> jax.Array:
    """The starting value of A, P(cluster | row).

    spectral   k-means on the concatenated first K eigenvectors of every graph in use and of a graph of
               neighbours over all features; every block has rows of length one, so that graphs weigh alike
    kmeans     k-means on the concatenated features
    random     near the uniform
    The first two put 0.9 of a row's probability on its cluster and spread 0.1 over all clusters.
    """
    K = hyper.n_components
    if hyper.start == "random":
        return near_uniform(key, views.n_rows, K)
    seed = int(jax.random.randint(key, (), 0, 2**31 - 1))
    x = side_by_side(views)
    if hyper.start == "spectral":
        near = neighbours(x, min(hyper.neighbours, views.n_rows - 1), hyper.metric)
        assert views.graphs is not None  # `linked` has added them
        graphs = [near] + [views.graphs[name] for name in views.graphs.names]
        rng = np.random.default_rng(seed)
        x = np.hstack([unit_rows(leading(normalised(graph), K, rng)) for graph in graphs])
    return (1 - UNSURE) * jax.nn.one_hot(kmeans_labels(x, K, seed), K) + UNSURE / K


def start_words(
    key: jax.Array, A: jax.Array, x: sp.csr_matrix, Q: int, start: str
) -> tuple[jax.Array, jax.Array]:
    """The starting values of B and C of the view x: near the uniform for `start="random"`.

    Else topic q belongs to cluster q mod K (to several clusters where Q < K), and its words are those of a
    random half of that cluster's rows; 0.1 of the probability is spread evenly.
    """
    (n, K), m = A.shape, x.shape[1]
    kb, kc = jax.random.split(key)
    if start == "random":
        return near_uniform(kb, K, Q), near_uniform(kc, Q, m)
    own = np.arange(K)[:, None] % Q == np.arange(Q) % K
    half = np.asarray(jax.random.bernoulli(kc, 0.5, (n, Q)))
    words = np.asarray(((np.asarray(A, np.float64) @ own) * half).T @ x) + 1e-12
    B, C = own / own.sum(1, keepdims=True), words / words.sum(1, keepdims=True)
    B, C = ((1 - UNSURE) * table + UNSURE / table.shape[1] for table in (B, C))
    return jnp.asarray(B, A.dtype), jnp.asarray(C, A.dtype)


def start_one_view(key: jax.Array, data: Views, hyper: Any) -> tuple[jax.Array, jax.Array]:
    """The starting values of A and C of a single view, whose topics are the clusters."""
    ka, kc = jax.random.split(key)
    (name,), A = data.names, start_rows(ka, data, hyper)
    return A, start_words(kc, A, data[name], hyper.n_components, hyper.start)[1]
