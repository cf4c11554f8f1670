r"""Locally-consistent topic modelling of all views side by side.

ConcatLTM, the comparison of section 4.2 of Wang et al., "Multi-view learning via multiple graph
regularized generative model", Knowledge-Based Systems 2017: Cai, Wang & He's LTM (ICML 2009) of the
concatenated features.

    P(w | x) = sum_z P(z|x) P(w|z) = (A C)_xw,      w a feature of any view
    J = - sum_xw n(x, w) log (A C)_xw + lambda R(A) - (a - 1) sum log A - (c - 1) sum log C

    paper        here                    shape
    P(z|d)       A                       rows x K        rows sum to one, and so do those of C
    P(w|z)       C                       K x features
    lambda       penalty
    W            data.graphs.weight[0]    over the edges
    R            models.topics._graph_smoothing.roughness

Everything is as in `ltm`, after the views were scaled one by one and put side by side: the fit's data are
one view, "all", whose features are called "view: feature", and so are those that a prediction asks for. The
graph is that of the neighbours over all features, unless the views bring one of their own. Twin: Dirichlet
rows times the factor exp(-lambda R(A)). Gauge: the order of the topics.
"""

from typing import NamedTuple

import jax
import numpyro
import numpyro.distributions as dist

from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.data.views import Views, concatenated, linked
from bayesfac.core.method import Method, register
from bayesfac.models.topics import _graph_smoothing as smooth
from bayesfac.models.topics import _starts as starts
from bayesfac.models.topics import _words as topics


class Params(NamedTuple):
    A: jax.Array
    C: jax.Array


class Hyper(NamedTuple):
    n_components: int = 10
    penalty: float = 10.0
    divergence: str = "kl"
    neighbours: int = 5
    metric: str = "euclidean"
    scale: str = "unit"
    start: str = "spectral"
    a: float = 1.0
    c: float = 1.0


def prepare(data: Views, hyper: Hyper) -> Hyper:
    if data.graphs is not None and len(data.graphs.names) != 1:
        raise ValueError(f"Expected one graph, got {list(data.graphs.names)} (see mggm)")
    starts.check(data, hyper)
    return hyper


def ready(data: Views, hyper: Hyper) -> Views:
    data = concatenated(starts.scaled(data, hyper.scale))
    return linked(data, hyper.neighbours, hyper.metric)


def init(key: jax.Array, data: Views, hyper: Hyper) -> Params:
    ka, kc = jax.random.split(key)
    (name,), A = data.names, starts.start_rows(ka, data, hyper)
    return Params(A, starts.start_words(kc, A, data[name], hyper.n_components, hyper.start)[1])


def objective(p: Params, data: Views, hyper: Hyper) -> jax.Array:
    return topics.misfit(p, data, hyper) + smooth.penalty(p.A, data.graphs, hyper)


def update(p: Params, data: Views, hyper: Hyper) -> Params:
    """C, and A as smooth as the graph asks, from the same posterior P(z|d, w)."""
    V, C = topics.em(p, data, hyper)
    return Params(smooth.smooth_rows(p.A, V, data.graphs, hyper), C)


def model(data: Views, hyper: Hyper) -> None:
    A = topics.sample_rows("A", "row", data.n_rows, hyper.n_components, hyper.a)
    numpyro.factor("graph", -smooth.penalty(A, data.graphs, hyper))
    topics.sample_view(A, data, hyper)


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> dist.Distribution:
    return topics.predict(p, query)


def example(key: jax.Array) -> tuple[Views, Hyper]:
    """Seven rows, two views of counts, one graph."""
    x = topics.few_counts(key, 9)
    data = Views({"left": x[:, :5], "right": x[:, 5:]})
    hyper = prepare(data, Hyper(3, 0.8, neighbours=2, scale="none", start="random", a=1.4, c=1.2))
    return ready(data, hyper), hyper


# fmt: off
METHOD = register(Method(
    name="concat_ltm", cite="wang2017mggm", data=Views, Params=Params, Hyper=Hyper,
    init=init, objective=objective, model=model, predict=predict, example=example,
    update=update, prepare=prepare, ready=ready, remarks=topics.remarks,
    gauge=topics.GAUGE, dims=topics.DIMS, traits=topics.TRAITS_OF_GRAPHS,
))
# fmt: on
