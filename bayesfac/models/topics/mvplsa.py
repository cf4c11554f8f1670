r"""Multi-view probabilistic latent semantic analysis, by EM.

Zhuang et al.'s MVPLSA, as stated in Wang et al., "Multi-view learning via multiple graph regularized
generative model", Knowledge-Based Systems 2017, eq. 1-2 and 12-14.

    P(w | x, t) = sum_c P(c|x) sum_z P(z|c, t) P(w|z, t) = (A B_t C_t)_xw
    J = - sum_t sum_xw n_t(x, w) log (A B_t C_t)_xw
        - (a - 1) sum log A - (b - 1) sum log B - (c - 1) sum log C

    paper          here   shape
    P(c|x)         A      rows x K          rows sum to one, and so do those of B_t and C_t
    P(z|c, t)      B[t]   K x Q_t
    P(w|z, t)      C[t]   Q_t x features of view t
    n(x, w, t)     data.y[t] on data.cells[t]
    z, c           Parts[t]   of the words, as sums; only Gibbs draws them

The method clusters rows by several views of counts; each view also has its own topics. a, b and c are
Dirichlet concentrations; with all three 1, J is the paper's maximum likelihood. For whole counts `bf.fit`
chooses a by held-out counts (see plsa). The posterior (12) over (z, c) is never stored. With R_t = n_t / (A
B_t C_t) on the stored cells, one pass computes R_t G_t and R_t' A (G_t = (B_t C_t)'), and all three M-steps
(14) follow from these two products. An iteration costs O(nnz K + K Q M); the paper's costs O(K Q T M N).
Real-valued non-negative data are used as pseudo-counts. The posterior does not change when clusters are
reordered, or the topics of a view.
"""

from typing import NamedTuple

import jax
import numpy as np
import numpyro.distributions as dist

from bayesfac.core import checks
from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.data.views import Views
from bayesfac.core.method import Axes, Choose, Method, Notes, Sampler, Solver, register
from bayesfac.models.topics import _laws
from bayesfac.models.topics import _splitting as splitting
from bayesfac.models.topics import _starts as starts
from bayesfac.models.topics import _words as topics


class Params(NamedTuple):
    A: jax.Array
    B: dict[str, jax.Array]
    C: dict[str, jax.Array]


class Hyper(NamedTuple):
    n_components: int = 10  # K clusters, shared by the views
    n_topics: int = 20  # Q topics in every view
    a: float | None = None  # None: chosen by held-out counts; 1 if nothing is held out
    b: float = 1.0
    c: float = 1.0
    scale: str | None = None  # "none" or "rows"; None: "none" for counts with totals of one size
    start: str = "best"  # "best", "kmeans" or "random"


def prepare(data: Views, hyper: Hyper) -> Hyper:
    hyper = checks.filled(hyper, a=1.0)
    hyper = hyper._replace(scale=starts.natural_scale(data, hyper))
    checks.count(hyper, "n_components", data.n_rows, "the number of rows")
    checks.count(hyper, "n_topics", max(data.n_features.values()), "the widest view")
    checks.at_least_one(hyper, "a", "b", "c")
    return hyper


def ready(data: Views, hyper: Hyper) -> Views:
    return starts.scaled(data, hyper.scale)


def begin(key: jax.Array, A: jax.Array, data: Views, hyper: Hyper) -> Params:
    return Params(*starts.start_views(key, A, data, hyper))


def init(key: jax.Array, data: Views, hyper: Hyper) -> Params:
    flat = hyper._replace(a=1.0)  # the same start and one compiled program for all candidates
    return starts.chosen(key, data, flat, begin, update, objective)


def objective(p: Params, data: Views, hyper: Hyper) -> jax.Array:
    return topics.misfit_of_views(p, data, hyper)


def update(p: Params, data: Views, hyper: Hyper) -> Params:
    """One EM iteration: every row of A, B_t and C_t from the same posterior (12), eq. 14."""
    V, B, C = topics.em_of_views(p, data, hyper)
    return Params(topics.mixtures(V), B, C)


def model(data: Views, hyper: Hyper) -> None:
    A = topics.sample_rows("A", "row", data.n_rows, hyper.n_components, hyper.a)
    topics.sample_views(A, data, hyper)


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> dist.Distribution:
    return topics.predict_views(p, query)


def example(key: jax.Array) -> tuple[Views, Hyper]:
    """Seven rows, two views of counts; concentrations above 1 keep the mode inside the simplex."""
    x = np.asarray(jax.random.poisson(key, 2.0, (7, 9)), float)
    data = Views({"left": x[:, :5], "right": x[:, 5:]})
    return data, prepare(data, Hyper(3, 2, start="random", a=1.5, b=1.4, c=1.3))


# fmt: off
METHOD = register(Method(
    name="mvplsa", cite="wang2017mggm", data=Views, Params=Params, Hyper=Hyper, init=init,
    objective=objective, model=model, predict=predict, example=example, fold_in=topics.fold_in_views,
    prepare=prepare, ready=ready,
    solver=Solver(update=update, own_rows=("A",)),
    gibbs=Sampler(conditionals=splitting.CONDITIONALS_OF_VIEWS, augment=splitting.augment_views),
    variational=_laws.VIEWS, choose=Choose(candidates=starts.concentrations),
    axes=Axes(dims=topics.DIMS_OF_VIEWS, gauge=topics.gauge_of_views),
    notes=Notes(remarks=topics.remarks, traits=checks.NONNEGATIVE),
))
# fmt: on
