r"""Locally-consistent topic modelling, by a safeguarded EM.

Cai, Wang & He, "Probabilistic Dyadic Data Analysis with Local and Global Consistency", ICML 2009; with
`divergence="squared"` the penalty is that of Cai, Mei, Han & Zhai, "Modeling Hidden Topics on Document
Manifold" (LapPLSI), CIKM 2008.

    P(w | x) = sum_z P(z|x) P(w|z) = (A C)_xw
    J = - sum_xw n(x, w) log (A C)_xw + lambda R(A) - (a - 1) sum log A - (c - 1) sum log C

    paper        here                    shape
    P(z|d)       A                       rows x K        rows sum to one, and so do those of C
    P(w|z)       C                       K x features
    lambda       penalty
    W            data.graphs.weight[0]    over the edges
    R            models.topics._graph_smoothing.roughness
    z            Parts   the topics of the words, as sums; only Gibbs draws z

The method finds topics, or soft clusters, of rows. It is PLSA with the additional rule that neighbours have
similar topic weights. R is the symmetric Kullback-Leibler divergence (`divergence="kl"`) over the edges of
one graph. The views contain this graph, or it joins each row to its nearest neighbours. The paper's step,
(Omega + lambda L)^-1 applied to the expected counts, replaces R by a quadratic, so J may rise. `smooth_rows`
shortens the step until J does not rise, and a fit reports the number of shortened steps. With the squared
difference, `smooth_rows` minimises a bound on J instead. lambda is in units of the row sums of the counts.
The NumPyro model has Dirichlet rows times the factor exp(-lambda R(A)), so the posterior is a *generalised*
one. Gibbs draws rows given their neighbours (models.topics._smooth_draws). The density does not change when
topics are reordered.
"""

from typing import Any, NamedTuple

import jax
import numpyro
import numpyro.distributions as dist

from bayesfac.core import checks
from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.data.views import Views, linked
from bayesfac.core.method import Axes, Method, Notes, Sampler, Solver, register
from bayesfac.models.topics import _graph_smoothing as smooth
from bayesfac.models.topics import _splitting as splitting
from bayesfac.models.topics import _starts as starts
from bayesfac.models.topics import _words as topics
from bayesfac.models.topics._words import Params


class Hyper(NamedTuple):
    n_components: int = 10
    penalty: float | None = None  # lambda; None: from the odds that neighbours share a cluster
    divergence: str = "squared"  # or "kl"
    neighbours: int = 5
    metric: str = "euclidean"  # or "cosine"
    scale: str = "complement"  # or "none", "rows", "minmax", "unit"
    start: str = "best"  # "best", "spectral", "kmeans" or "random"
    a: float = 1.0
    c: float = 1.0


def prepare(data: Views, hyper: Hyper) -> Hyper:
    checks.one_view(data, "concat_ltm, mggm")
    return starts.settled(data, hyper, ready, update, objective)


def ready(data: Views, hyper: Hyper) -> Views:
    return linked(starts.scaled(data, hyper.scale), hyper.neighbours, hyper.metric)


def init(key: jax.Array, data: Views, hyper: Hyper) -> Params:
    return starts.chosen(key, data, hyper, starts.start_one_view, update, objective)


def objective(p: Params, data: Views, hyper: Hyper) -> jax.Array:
    return topics.misfit(p, data, hyper) + smooth.penalty(p.A, data.graphs, hyper)


def update(p: Params, data: Views, hyper: Hyper) -> Params:
    """EM for C, and a smoothed step for A, from the same posterior P(z|d, w)."""
    V, C = topics.em(p, data, hyper)
    return Params(smooth.smooth_rows(p.A, V, data.graphs, hyper), C)


def conditional_A(p: Params, data: Views, hyper: Hyper, parts: Any) -> dist.Distribution:
    """A | C, z, u: rows given their neighbours (see models.topics._smooth_draws)."""
    words = splitting.conditional_A(p, data, hyper, parts)
    return smooth.rows(p.A, words, data.graphs, hyper)


def model(data: Views, hyper: Hyper) -> None:
    A = topics.sample_rows("A", "row", data.n_rows, hyper.n_components, hyper.a)
    numpyro.factor("graph", -smooth.penalty(A, data.graphs, hyper))
    topics.sample_view(A, data, hyper)


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> dist.Distribution:
    return topics.predict_words(p.A, p.C.T, query)


def example(key: jax.Array) -> tuple[Views, Hyper]:
    data = Views(topics.few_counts(key, 5))
    own = Hyper(3, 0.8, neighbours=2, scale="none", start="random", divergence="kl", a=1.4, c=1.2)
    hyper = prepare(data, own)
    return ready(data, hyper), hyper


# fmt: off
METHOD = register(Method(
    name="ltm", cite="cai2009ltm", data=Views, Params=Params, Hyper=Hyper, init=init,
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
