"""What topic models set from the data, without labels: `scale` of features, `penalty` of graphs, `start`.

    scale     None (plsa, mvplsa): "none" for counts in views whose totals are of one size, else "rows"
    a         None (plsa, mvplsa): chosen by held-out counts, if all features are whole counts
    start     "best": a short run from each of several starts; the one with the lowest objective goes on
    penalty   None: neighbours of a row weigh o times as much as its words. o are the odds that k-means on the
              features, which has not seen the graphs, puts neighbours into one cluster,
              o = (chance - cut) / cut, with `cut` the share of edges between two clusters and `chance` the
              value for random edges. In the update of A, a row has lambda sum_t mu_t d_t from its neighbours
              and rho from its words; so lambda = o mean(rho) / mean(sum_t mu_t d_t), with mu by (10) for
              these clusters. A graph that contradicts the features gets a small penalty. It is quartered
              as long as sweeps that begin with clusters of k-means empty some of them

Without graphs the objective may be lowest at worse clusters than those of k-means, because words explain a
row as a mixture of parts. With this penalty, graphs hold clusters together where the graphs are good.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import scipy.sparse as sp

from bayesfac.core import checks
from bayesfac.core.clustering import kmeans_labels, leading, normalised, unit_rows
from bayesfac.core.data.graphs import Graphs, neighbours
from bayesfac.core.data.views import Views, side_by_side
from bayesfac.models.topics._graph_smoothing import DIVERGENCES, best_weights
from bayesfac.models.topics._words import Params, near_uniform

SCALES = ("none", "rows", "minmax", "unit", "complement")
WITHOUT_GRAPHS = (None, "none", "rows")  # scales of a row alone, so that new rows can be scaled
STARTS = ("best", "spectral", "kmeans", "random")
UNSURE = 0.1  # this share of every row's probability is spread evenly at the start
MEANS = 4  # runs of k-means among the starts
SHORT = 20  # sweeps from every start before one is chosen
RUNS, QUARTERS = 3, 6  # short runs one after another that judge a penalty; quarters at most
ALIKE = 3.0  # counts of two views are left as they are up to this ratio of their mean totals
DENSE = 0.5  # share of rows above 0 from which a feature is dense
TRUST = (0.01, 100.0)  # limits of the odds for neighbours
EXCESS, DOUBLINGS = (
    0.05,
    8,
)  # the excess over 1 of the weakest candidate of a; and how many there are


def check(data: Views, hyper: Any) -> None:
    """Check the settings of a topic model with graphs, before `ready`."""
    checks.one_of(hyper, "scale", SCALES)
    if hyper.scale in ("none", "rows"):
        checks.counts(data)
    checks.not_empty(data)
    checks.count(hyper, "n_components", data.n_rows, "the number of rows")
    if hyper.penalty is not None and hyper.penalty != 0:
        checks.positive(hyper, "penalty")
    checks.at_least_one(hyper, "a", "c")
    checks.one_of(hyper, "divergence", DIVERGENCES)
    checks.one_of(hyper, "start", STARTS)


def check_one_graph(data: Views, hyper: Any) -> None:
    """Check the settings, and that the views contain one graph at most."""
    if data.graphs is not None and len(data.graphs.names) != 1:
        raise ValueError(f"Expected one graph, got {list(data.graphs.names)} (see mggm)")
    check(data, hyper)


def settled(data: Views, hyper: Any, ready: Any, update: Any, objective: Any) -> Any:
    """The settings of a method with one graph, with a penalty if they have none."""
    check_one_graph(data, hyper)
    if hyper.penalty is not None:
        return hyper
    data = ready(data, hyper)
    hyper = hyper._replace(penalty=trust(data, hyper))
    return apart(data, hyper, start_one_view, update, objective)


def natural_scale(data: Views, hyper: Any) -> str:
    """Check the data and settings of a model without graphs; return its scale, chosen where it is None."""
    checks.counts(data)
    checks.one_of(hyper, "scale", WITHOUT_GRAPHS)
    checks.one_of(hyper, "start", ("best", "kmeans", "random"))
    if hyper.scale is not None:
        return hyper.scale
    totals = [float(data.totals(name).mean()) for name in data.names]
    counts = max(totals) <= ALIKE * min(totals) and all(map(is_whole, data.y.values()))
    return "none" if counts else "rows"


def concentrations(data: Views, hyper: Any, chosen: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Candidates of a, if all features are whole counts; their excess over 1 doubles."""
    counts = natural_scale(data, hyper) == "none" and all(map(is_whole, data.y.values()))
    if hyper.a is not None or "a" in chosen or not counts:
        return []
    return [{"a": 1 + EXCESS * 2.0**step} for step in range(DOUBLINGS)]


def is_whole(y: jax.Array) -> bool:
    return bool((y == jnp.round(y)).all())


def scaled(views: Views, scale: str) -> Views:
    """The views with rescaled features.

    none         unchanged, for counts
    rows         every row of every view has length one, so that all views weigh the same
    minmax       every feature from 0 to 1; a constant feature becomes 0 if it is 0, else 1
    unit         minmax, then rows
    complement   as unit, but between these two steps each feature above 0 in most rows gets a column 1 - x,
                 "NAME (rest)": rows of length one have lost their size, by which measurements often cluster
    """
    if scale == "none":
        return views
    tables, features = {}, {}
    for name in views.names:
        x, names = _rescaled(views[name], scale), views.features[name]
        if scale == "complement":
            x, names = _with_rest(x, names)
        tables[name] = unit_rows(x) if scale in ("unit", "complement") else x
        features[name] = names
    result = Views(tables, rows=views.rows, graphs=views.graphs)
    result.host = replace(result.host, features=features, name=views.name)
    return result


def _with_rest(x: sp.csr_matrix, names: pd.Index) -> tuple[sp.csr_matrix, pd.Index]:
    """Features from 0 to 1, and beside them what the dense ones lack to 1."""
    dense = np.flatnonzero(x.getnnz(0) > DENSE * x.shape[0])
    if not len(dense):
        return x, names
    wide = sp.csr_matrix(sp.hstack([x, sp.csr_matrix(1 - x[:, dense].toarray())]))
    return wide, pd.Index([*names, *[f"{names[int(j)]} (rest)" for j in dense]])


def _rescaled(x: sp.csr_matrix, scale: str) -> sp.csr_matrix:
    if scale == "rows":
        return unit_rows(x)
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
    return sp.csr_matrix(x @ sp.diags(1 / span))


def trust(views: Views, hyper: Any, selectivity: float | None = None) -> float:
    """The penalty for `penalty=None` (see the header); `selectivity` if the weights of graphs are learned."""
    graphs = views.graphs
    assert graphs is not None  # `linked` has added them
    label = kmeans_labels(_features(views), hyper.n_components, 0)
    cuts, edges = _cuts(graphs, label)
    mu = np.broadcast_to(getattr(hyper, "mu", None) or 1.0, len(edges))
    if selectivity is not None and len(edges) > 1:
        alpha = best_weights(jnp.asarray(cuts + 0.5), selectivity)
        mu = np.asarray(alpha, np.float64) ** (1 / selectivity)
    cut = (mu @ cuts + 0.5) / (mu @ edges + 1)  # never 0
    odds = float(np.clip((_chance(graphs, label, mu) - cut) / cut, *TRUST))
    words = sum(float(views.totals(name).sum()) for name in views.names)
    return odds * words / (2 * float(mu @ edges)) if (mu @ edges) > 0 else 0.0


def apart(
    data: Views, hyper: Any, begin: Callable[..., Any], update: Callable[..., Any],
    objective: Callable[..., Any],
) -> Any:  # fmt: skip
    """Hyper with its penalty, quartered as long as short runs from clusters of k-means empty some of them.

    Where clusters differ little in the shares of their features, the odds that neighbours are alike outweigh
    all that words tell, and clusters merge.
    """
    label = kmeans_labels(_features(data), hyper.n_components, 0, starts=1)
    filled = len(np.unique(label))
    for _ in range(QUARTERS):
        p = begin(jax.random.key(0), _nearly(label, hyper.n_components), data, hyper)
        for _ in range(RUNS):
            p, _ = _short_run(update, objective, hyper, p, data)
        if len(np.unique(np.asarray(p.A).argmax(1))) >= filled:
            break
        hyper = hyper._replace(penalty=hyper.penalty / 4)
    return hyper


def _cuts(graphs: Graphs, label: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The weight of the edges between clusters, and that of all edges, in every graph."""
    weight = np.asarray(graphs.weight, np.float64)
    apart = label[np.asarray(graphs.left)] != label[np.asarray(graphs.right)]
    return weight @ apart, weight.sum(1)


def _chance(graphs: Graphs, label: np.ndarray, mu: np.ndarray) -> float:
    """The share of edges between clusters if edges joined rows at random, in proportion to their degrees."""
    twice = np.tile(mu @ np.asarray(graphs.weight, np.float64), 2)
    ends = np.bincount(label[np.r_[np.asarray(graphs.left), np.asarray(graphs.right)]], twice)
    share = ends / max(ends.sum(), 1e-300)
    return 1 - float(share @ share)


def _features(views: Views) -> Any:
    """The features of all views side by side; every view has rows of length one."""
    x = sp.hstack([unit_rows(views[name]) for name in views.names]).tocsr()
    # with more than half of the cells stored, a sparse matrix is larger and slower than a dense one
    return x.toarray() if 2 * x.nnz > x.shape[0] * x.shape[1] else x


def chosen(
    key: jax.Array, data: Views, hyper: Any, begin: Callable[..., Any], update: Callable[..., Any],
    objective: Callable[..., Any],
) -> Any:  # fmt: skip
    """`begin(key, A, data, hyper)` for the starting value of A that `hyper.start` names.

    best: SHORT sweeps from each of `several_rows`; the parameters with the lowest objective.
    """
    ka, kb = jax.random.split(key)
    if hyper.start != "best":
        return begin(kb, start_rows(ka, data, hyper), data, hyper)
    found = []
    for number, A in enumerate(several_rows(ka, data, hyper)):
        p = begin(jax.random.fold_in(kb, number), A, data, hyper)
        p, cost = _short_run(update, objective, hyper, p, data)
        found.append((float(cost), number, p))
    return min(found)[2]


@partial(jax.jit, static_argnums=(0, 1, 2))
def _short_run(
    update: Callable[..., Any], objective: Callable[..., Any], hyper: Any, p: Any, data: Views
) -> tuple[Any, jax.Array]:
    """The parameters after SHORT sweeps from `p`, and their objective."""
    p = jax.lax.fori_loop(0, SHORT, lambda _, p: update(p, data, hyper), p)
    return p, objective(p, data, hyper)


def several_rows(key: jax.Array, views: Views, hyper: Any) -> list[jax.Array]:
    """Starting values of A for `start="best"`: MEANS runs of k-means and, with graphs, spectral clusterings.

    One spectral clustering of the eigenvectors of all graphs side by side. With several graphs, also one of
    their sum, one of their sum with weights (one over the share of edges between the clusters of the first
    k-means), and one of the graph over all features.
    """
    K = hyper.n_components
    seed = int(jax.random.randint(key, (), 0, 2**31 - 1 - MEANS))
    x = _features(views)
    labels = [kmeans_labels(x, K, seed + i, starts=1) for i in range(MEANS)]
    for block in _embeddings(views.graphs, K, labels[0], seed) if views.graphs is not None else ():
        labels.append(kmeans_labels(block, K, seed))
    return [_nearly(label, K) for label in labels]


def _embeddings(graphs: Graphs, K: int, label: np.ndarray, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)

    def embedding(graph: Any) -> np.ndarray:
        return unit_rows(leading(normalised(sp.csr_matrix(graph)), K, rng))

    named = {name: graphs[name] for name in graphs.names}
    each = {name: embedding(graph) for name, graph in named.items()}
    if len(named) == 1:
        return list(each.values())
    cuts, edges = _cuts(graphs, label)
    weights = (edges + 1) / (cuts + 0.5)
    several = [np.hstack(list(each.values())), embedding(sum(named.values()))]
    several.append(embedding(sum(w * g for w, g in zip(weights, named.values(), strict=True))))
    return several + [each[name] for name in named if name == "all"]


def _nearly(label: np.ndarray, K: int) -> jax.Array:
    return (1 - UNSURE) * jax.nn.one_hot(label, K) + UNSURE / K


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
    x = _features(views)
    if hyper.start == "spectral":
        count = min(hyper.neighbours, views.n_rows - 1)
        near = neighbours(side_by_side(views), count, hyper.metric)
        assert views.graphs is not None  # `linked` has added them
        graphs = [near] + [views.graphs[name] for name in views.graphs.names]
        rng = np.random.default_rng(seed)
        x = np.hstack([unit_rows(leading(normalised(graph), K, rng)) for graph in graphs])
    return _nearly(kmeans_labels(x, K, seed), K)


def start_words(
    key: jax.Array, A: jax.Array, x: sp.csr_matrix, Q: int, start: str
) -> tuple[jax.Array, jax.Array]:
    """The starting values of B and C of the view x.

    Topic q belongs to cluster q mod K (to several clusters where Q < K), and its words are those of a random
    half of that cluster's rows; 0.1 of the probability is spread evenly. With `start="random"` words are near
    the uniform. Were B near the uniform too, all clusters would have nearly the same words: a saddle, from
    which EM needs hundreds of sweeps.
    """
    (n, K), m = A.shape, x.shape[1]
    own = np.arange(K)[:, None] % Q == np.arange(Q) % K
    B = own / own.sum(1, keepdims=True)
    B = jnp.asarray((1 - UNSURE) * B + UNSURE / Q, A.dtype)
    if start == "random":
        return B, near_uniform(key, Q, m)
    half = np.asarray(jax.random.bernoulli(key, 0.5, (n, Q)))
    words = np.asarray(((np.asarray(A, np.float64) @ own) * half).T @ x) + 1e-12
    C = words / words.sum(1, keepdims=True)
    return B, jnp.asarray((1 - UNSURE) * C + UNSURE / m, A.dtype)


def start_one_view(key: jax.Array, A: jax.Array, data: Views, hyper: Any) -> Params:
    """The starting values of A and C of a single view, whose topics are the clusters."""
    (name,) = data.names
    return Params(A, start_words(key, A, data[name], hyper.n_components, hyper.start)[1])


def start_views(key: jax.Array, A: jax.Array, data: Views, hyper: Any) -> tuple[Any, Any, Any]:
    """The starting values of A, B and C of several views."""
    B, C = {}, {}
    for name in data.names:
        key, kt = jax.random.split(key)
        B[name], C[name] = start_words(kt, A, data[name], hyper.n_topics, hyper.start)
    return A, B, C
