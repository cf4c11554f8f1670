r"""Probabilistic latent semantic analysis, by EM.

Hofmann, "Probabilistic Latent Semantic Analysis", UAI 1999, eq. 1-6, in its asymmetric form.

    P(w | x) = sum_z P(z|x) P(w|z) = (A C)_xw
    J = - sum_xw n(x, w) log (A C)_xw - (a - 1) sum log A - (c - 1) sum log C

    paper        here   shape
    P(z|d)       A      rows x K         rows sum to one, and so do those of C
    P(w|z)       C      K x features
    n(d, w)      data.y on data.cells, of the only view

a and c are Dirichlet concentrations; both 1 is the paper's maximum likelihood, and A then estimates
what latent Dirichlet allocation integrates over. The posterior P(z|d, w) is never built: with
R = n / (A C) on the stored cells, A <- A * (R C') and C <- C * (A' R), rows normalised, in one pass of
O(nnz K). Real-valued non-negative data enter as pseudo-counts. Gauge: the order of the topics.
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
    C: jax.Array


class Hyper(NamedTuple):
    n_components: int = 10
    a: float = 1.0
    c: float = 1.0


def prepare(data: Views, hyper: Hyper) -> Hyper:
    checks.counts(data)
    if len(data.names) != 1:
        raise ValueError(
            f"Expected one view, got {len(data.names)}: {', '.join(data.names)} (see mvplsa)"
        )
    limit = min(data.n_rows, *data.n_features.values())
    checks.count(hyper, "n_components", limit, "the smaller of rows and features")
    checks.at_least_one(hyper, "a", "c")
    return hyper


def init(key: jax.Array, data: Views, hyper: Hyper) -> Params:
    """Rows drawn near the uniform: far enough apart to break the symmetry."""
    ka, kc = jax.random.split(key)
    (m,), K = data.n_features.values(), hyper.n_components
    A = jax.random.dirichlet(ka, jnp.full(K, 5.0), (data.n_rows,))
    return Params(A, jax.random.dirichlet(kc, jnp.full(m, 5.0), (K,)))


def objective(p: Params, data: Views, hyper: Hyper) -> jax.Array:
    (cells,), (y,) = data.cells.values(), data.y.values()
    fit = -jnp.sum(y * safe_log(inner(p.A, p.C.T, cells)))
    smooth = (hyper.a - 1) * jnp.sum(safe_log(p.A)) + (hyper.c - 1) * jnp.sum(safe_log(p.C))
    return fit - smooth


def update(p: Params, data: Views, hyper: Hyper) -> Params:
    """One EM iteration: both blocks from the same posterior P(z|d, w)."""
    (cells,), (y,) = data.cells.values(), data.y.values()
    RC, RA = ratio_step(cells, y, p.A, p.C.T)
    A = normalise(hyper.a - 1 + p.A * RC, p.A)
    return Params(A, normalise(hyper.c - 1 + p.C * RA.T, p.C))


def model(data: Views, hyper: Hyper) -> None:
    ((name, m),) = data.n_features.items()
    K = hyper.n_components
    with numpyro.plate("row", data.n_rows):
        A = numpyro.sample("A", dist.Dirichlet(jnp.full(K, hyper.a)))
    with numpyro.plate("topic", K):
        C = numpyro.sample("C", dist.Dirichlet(jnp.full(m, hyper.c)))
    y = None if data.y is None else data.y[name]
    numpyro.sample(
        f"view.{name}", TableOfCounts(A, C.T, data.cells[name], data.totals(name)), obs=y
    )


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> dist.Distribution:
    """P(w | x); a row that training never saw takes every topic with its prior's mean, 1/K."""
    if isinstance(query, Grid):
        return dist.Delta(inner(p.A, p.C.T, query))
    A = jnp.concatenate([p.A, jnp.full((1, p.A.shape[1]), 1 / p.A.shape[1], p.A.dtype)])
    return dist.Delta(inner(A, p.C.T, Query(jnp.asarray(query.row) % len(A), query.col)))


def example(key: jax.Array) -> tuple[Views, Hyper]:
    """Seven documents of five words; concentrations above one keep the mode inside."""
    data = Views(np.asarray(jax.random.poisson(key, 2.0, (7, 5)), float))
    return data, prepare(data, Hyper(3, a=1.4, c=1.2))


# fmt: off
METHOD = register(Method(
    "plsa", "hofmann1999plsa", Views, Params, Hyper, init, objective, model, predict, example,
    update=update, prepare=prepare,
    gauge=(Permutation({"A": 1, "C": 0}, "topic"),),
    dims={"A": ("row", "topic"), "C": ("topic", "feature")},
    waived={
        "gibbs": "the words' topics are summed out; no block is conjugate without them",
        "mask": "views have no missing cells: a cell that is not stored is a count of zero",
    },
))
# fmt: on
