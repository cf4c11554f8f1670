r"""Locally-consistent topic modelling of all views, put side by side as one view.

ConcatLTM, the method compared in section 4.2 of Wang et al., "Multi-view learning via multiple graph
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
    z            Parts   the topics of the words, as sums; only Gibbs draws z

The method is `ltm` of one view, "all", which has the features of all views after each view was scaled. Its
features are named "view: feature", also in predictions. The graph joins nearest neighbours over all features,
unless the views contain a graph. The NumPyro model has Dirichlet rows times the factor exp(-lambda R(A)), so
the posterior is a *generalised* one. Gibbs draws rows given their neighbours (models.topics._smooth_draws).
The density does not change when topics are reordered.
"""

from typing import Any, NamedTuple

import jax
import numpyro
import numpyro.distributions as dist

from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.data.views import Views, concatenated, linked
from bayesfac.core.method import Axes, Method, Notes, Sampler, Solver, register
from bayesfac.models.topics import _graph_smoothing as smooth
from bayesfac.models.topics import _splitting as splitting
from bayesfac.models.topics import _starts as starts
from bayesfac.models.topics import _words as topics
from bayesfac.models.topics._words import Params


class Hyper(NamedTuple):
    n_components: int = 10
    penalty: float | None = None  # lambda; None: by the odds for neighbours
    divergence: str = "squared"  # or "kl"
    neighbours: int = 5
    metric: str = "euclidean"  # or "cosine"
    scale: str = "complement"  # or "none", "rows", "minmax", "unit"
    start: str = "best"  # "best", "spectral", "kmeans" or "random"
    a: float = 1.0
    c: float = 1.0


def prepare(data: Views, hyper: Hyper) -> Hyper:
    return starts.settled(data, hyper, ready, update, objective)


def ready(data: Views, hyper: Hyper) -> Views:
    data = concatenated(starts.scaled(data, hyper.scale))
    return linked(data, hyper.neighbours, hyper.metric)


def init(key: jax.Array, data: Views, hyper: Hyper) -> Params:
    return starts.chosen(key, data, hyper, starts.start_one_view, update, objective)


def objective(p: Params, data: Views, hyper: Hyper) -> jax.Array:
    return topics.misfit(p, data, hyper) + smooth.penalty(p.A, data.graphs, hyper)


def update(p: Params, data: Views, hyper: Hyper) -> Params:
    """EM for C, and a smoothed step for A, from the same posterior P(z|d, w)."""
    V, C = topics.em(p, data, hyper)
    return Params(smooth.smooth_rows(p.A, V, data.graphs, hyper), C)


def conditional_A(p: Params, data: Views, hyper: Hyper, parts: Any) -> dist.Distribution:
    """A | C, z, u: rows that know their neighbours (see models.topics._smooth_draws)."""
    words = splitting.conditional_A(p, data, hyper, parts)
    return smooth.rows(p.A, words, data.graphs, hyper)


def model(data: Views, hyper: Hyper) -> None:
    A = topics.sample_rows("A", "row", data.n_rows, hyper.n_components, hyper.a)
    numpyro.factor("graph", -smooth.penalty(A, data.graphs, hyper))
    topics.sample_view(A, data, hyper)


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> dist.Distribution:
    return topics.predict_words(p.A, p.C.T, query)


def example(key: jax.Array) -> tuple[Views, Hyper]:
    x = topics.few_counts(key, 9)
    data = Views({"left": x[:, :5], "right": x[:, 5:]})
    own = Hyper(3, 0.8, neighbours=2, scale="none", start="random", divergence="kl", a=1.4, c=1.2)
    hyper = prepare(data, own)
    return ready(data, hyper), hyper


# fmt: off
METHOD = register(Method(
    name="concat_ltm", cite="wang2017mggm", data=Views, Params=Params, Hyper=Hyper, init=init,
    objective=objective, model=model, predict=predict, example=example, prepare=prepare, ready=ready,
    solver=Solver(update=update),
    gibbs=Sampler(
        conditionals={"A": conditional_A, "C": splitting.conditional_C},
        augment=splitting.augment,
    ),
    axes=Axes(dims=topics.DIMS, gauge=topics.GAUGE),
    notes=Notes(remarks=topics.remarks, traits=topics.TRAITS_OF_GRAPHS),
))
# fmt: on
