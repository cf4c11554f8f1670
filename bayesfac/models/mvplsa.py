r"""Multi-view probabilistic latent semantic analysis, by EM.

Zhuang et al.'s MVPLSA as stated in Wang et al., "Multi-view learning via multiple graph regularized
generative model", Knowledge-Based Systems 2017, eq. 1-2 and 12-14.

    P(w | x, t) = sum_c P(c|x) sum_z P(z|c, t) P(w|z, t) = (A B_t C_t)_xw
    J = - sum_t sum_xw n_t(x, w) log (A B_t C_t)_xw
        - (a - 1) sum log A - (b - 1) sum log B - (c - 1) sum log C

    paper          here   shape
    P(c|x)         A      rows x K          rows sum to one, and so do those of B_t and C_t
    P(z|c, t)      B[t]   K x Q_t
    P(w|z, t)      C[t]   Q_t x features of view t
    n(x, w, t)     data.y[t] on data.cells[t]

a, b, c are Dirichlet concentrations; all of them 1 is the paper's maximum likelihood. The posterior
(12) over (z, c) for every word is never built: with R_t = n_t / (A B_t C_t) on the stored cells, one
pass gives R_t G_t and R_t' A (G_t = (B_t C_t)'), and all three M-steps (14) follow from these, so an
iteration costs O(nnz K + K Q M) and not the paper's O(K Q T M N). Real-valued non-negative data enter
as pseudo-counts. Gauge: one relabelling of the clusters, and one of the topics in every view.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from bayesfac.core import checks
from bayesfac.core.cells import Grid, Query
from bayesfac.core.data import Views
from bayesfac.core.kernels import ratio_step
from bayesfac.core.math import inner, normalise, safe_log
from bayesfac.core.method import Method, Permutation, register
from bayesfac.core.priors import TableOfCounts


class Params(NamedTuple):
    A: jax.Array
    B: dict[str, jax.Array]
    C: dict[str, jax.Array]


class Hyper(NamedTuple):
    n_components: int = 10  # K clusters, shared by the views
    n_topics: int = 20  # Q topics in every view
    a: float = 1.0
    b: float = 1.0
    c: float = 1.0


def prepare(data: Views, hyper: Hyper) -> Hyper:
    checks.counts(data)
    checks.count(hyper, "n_components", data.n_rows, "the number of rows")
    checks.count(hyper, "n_topics", max(data.n_features.values()), "the widest view")
    checks.at_least_one(hyper, "a", "b", "c")
    return hyper


def init(key: jax.Array, data: Views, hyper: Hyper) -> Params:
    """Rows drawn near the uniform: far enough apart to break the symmetry."""
    key, ka = jax.random.split(key)
    K, Q = hyper.n_components, hyper.n_topics
    A = jax.random.dirichlet(ka, jnp.full(K, 5.0), (data.n_rows,))
    B, C = {}, {}
    for name, m in data.n_features.items():
        key, kb, kc = jax.random.split(key, 3)
        B[name] = jax.random.dirichlet(kb, jnp.full(Q, 5.0), (K,))
        C[name] = jax.random.dirichlet(kc, jnp.full(m, 5.0), (Q,))
    return Params(A, B, C)


def objective(p: Params, data: Views, hyper: Hyper) -> jax.Array:
    J = -(hyper.a - 1) * jnp.sum(safe_log(p.A))
    for name, cells in data.cells.items():
        B, C = p.B[name], p.C[name]
        J -= jnp.sum(data.y[name] * safe_log(inner(p.A, (B @ C).T, cells)))
        J -= (hyper.b - 1) * jnp.sum(safe_log(B)) + (hyper.c - 1) * jnp.sum(safe_log(C))
    return J


def update(p: Params, data: Views, hyper: Hyper) -> Params:
    """One EM iteration: every row of A, B_t and C_t from the same posterior (12), eq. 14."""
    A_new = jnp.full_like(p.A, hyper.a - 1)
    B_new, C_new = {}, {}
    for name, cells in data.cells.items():
        B, C = p.B[name], p.C[name]
        RG, RA = ratio_step(cells, data.y[name], p.A, (B @ C).T)
        A_new += p.A * RG
        B_new[name] = normalise(hyper.b - 1 + B * (RA.T @ C.T), B)
        C_new[name] = normalise(hyper.c - 1 + C * (B.T @ RA.T), C)
    return Params(normalise(A_new, p.A), B_new, C_new)


def model(data: Views, hyper: Hyper) -> None:
    K, Q = hyper.n_components, hyper.n_topics
    with numpyro.plate("row", data.n_rows):
        A = numpyro.sample("A", dist.Dirichlet(jnp.full(K, hyper.a)))
    for name, m in data.n_features.items():
        with numpyro.plate(f"cluster.{name}", K):
            B = numpyro.sample(f"B.{name}", dist.Dirichlet(jnp.full(Q, hyper.b)))
        with numpyro.plate(f"topic.{name}", Q):
            C = numpyro.sample(f"C.{name}", dist.Dirichlet(jnp.full(m, hyper.c)))
        y = None if data.y is None else data.y[name]
        words = TableOfCounts(A, (B @ C).T, data.cells[name], data.totals(name))
        numpyro.sample(f"view.{name}", words, obs=y)


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> dist.Distribution:
    """P(w | x, t); columns count through the views in order of their names. A row that training
    never saw belongs to every cluster with the probability that its prior gives: 1/K."""
    G = jnp.concatenate([(p.B[name] @ p.C[name]).T for name in p.B])
    if isinstance(query, Grid):
        return dist.Delta(inner(p.A, G, query))
    A = jnp.concatenate([p.A, jnp.full((1, p.A.shape[1]), 1 / p.A.shape[1], p.A.dtype)])
    return dist.Delta(inner(A, G, Query(jnp.asarray(query.row) % len(A), query.col)))


def example(key: jax.Array) -> tuple[Views, Hyper]:
    """Seven rows, two views of counts; concentrations above one keep the mode inside."""
    x = np.asarray(jax.random.poisson(key, 2.0, (7, 9)), float)
    data = Views({"left": x[:, :5], "right": x[:, 5:]})
    return data, prepare(data, Hyper(3, 2, a=1.5, b=1.4, c=1.3))


def gauge(names: tuple[str, ...]) -> tuple[Permutation, ...]:
    views = [name.partition(".")[2] for name in names if name.startswith("B.")]
    clusters = Permutation({"A": 1, **{f"B.{v}": 0 for v in views}}, "cluster")
    topics = (Permutation({f"B.{v}": 1, f"C.{v}": 0}, f"topic.{v}") for v in views)
    return (clusters, *topics)


# fmt: off
METHOD = register(Method(
    "mvplsa", "wang2017mggm", Views, Params, Hyper, init, objective, model, predict, example,
    update=update, prepare=prepare,
    gauge=gauge,
    dims={
        "A": ("row", "cluster"),
        "B": ("cluster", "topic.{key}"),
        "C": ("topic.{key}", "feature.{key}"),
    },
    waived={
        "gibbs": "the words' cluster and topic are summed out; no block is conjugate without them",
        "mask": "views have no missing cells: a cell that is not stored is a count of zero",
    },
))
# fmt: on
