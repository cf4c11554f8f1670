"""Topics of one table whose rows have one graph: what `ltm` and `concat_ltm` share, in the paper's order."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpyro
import numpyro.distributions as dist

from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.data.views import Views
from bayesfac.core.method import Axes, Notes, Sampler, Solver
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


def settled(data: Views, hyper: Hyper, ready: Callable[..., Views]) -> Hyper:
    return starts.settled(data, hyper, ready, update, objective)


def start(key: jax.Array, data: Views, hyper: Hyper) -> Params:
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


# fmt: off
SHARED: dict[str, Any] = dict(
    data=Views, Params=Params, Hyper=Hyper, objective=objective, model=model, predict=predict,
    solver=Solver(update=update),
    gibbs=Sampler(
        conditionals={"A": conditional_A, "C": splitting.conditional_C},
        augment=splitting.augment,
    ),
    axes=Axes(dims=topics.DIMS, gauge=topics.GAUGE),
    notes=Notes(remarks=topics.remarks, traits=topics.TRAITS_OF_GRAPHS),
)
# fmt: on

# the settings of their examples
FEW = Hyper(3, 0.8, neighbours=2, scale="none", start="random", divergence="kl", a=1.4, c=1.2)
