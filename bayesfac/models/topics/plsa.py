r"""Probabilistic latent semantic analysis, by EM.

Hofmann, "Probabilistic Latent Semantic Analysis", UAI 1999, eq. 1-6, in its asymmetric form.

    P(w | x) = sum_z P(z|x) P(w|z) = (A C)_xw
    J = - sum_xw n(x, w) log (A C)_xw - (a - 1) sum log A - (c - 1) sum log C

    paper        here   shape
    P(z|d)       A      rows x K         rows sum to one, and so do those of C
    P(w|z)       C      K x features
    n(d, w)      data.y on data.cells, of the only view
    z            Parts   the topics of the words, as sums; only Gibbs draws z

The method finds topics of documents, or of other rows of counts. a and c are Dirichlet concentrations; with
both 1, J is the paper's maximum likelihood. For short documents, nearly all of its shares are 0 or 1, and it
predicts their other words worse than word frequencies do. For whole counts `bf.fit` therefore chooses a by
held-out counts. With c above 1, a word that no training row has would change the topics of a row. Latent
Dirichlet allocation integrates over A; here A is estimated. The posterior P(z|d, w) is never stored. With R =
n / (A C) on the stored cells, A <- A * (R C') and C <- C * (A' R), with normalised rows, in one pass of O(nnz
K). Real-valued non-negative data are used as pseudo-counts. Gibbs draws z and u (models.topics._splitting),
and then A and C. The posterior does not change when topics are reordered.
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
from bayesfac.models.topics._words import Params


class Hyper(NamedTuple):
    n_components: int = 10
    a: float | None = None  # None: chosen by held-out counts; 1 if nothing is held out
    c: float = 1.0
    scale: str | None = None  # "none" or "rows"; None: "none" for counts
    start: str = "best"  # "best", "kmeans" or "random"


def prepare(data: Views, hyper: Hyper) -> Hyper:
    checks.one_view(data, "mvplsa")
    hyper = checks.filled(hyper, a=1.0)
    hyper = hyper._replace(scale=starts.natural_scale(data, hyper))
    limit = min(data.n_rows, *data.n_features.values())
    checks.count(hyper, "n_components", limit, "the smaller of rows and features")
    checks.at_least_one(hyper, "a", "c")
    return hyper


def ready(data: Views, hyper: Hyper) -> Views:
    return starts.scaled(data, hyper.scale)


def init(key: jax.Array, data: Views, hyper: Hyper) -> Params:
    flat = hyper._replace(a=1.0)  # the same start and one compiled program for all candidates
    return starts.chosen(key, data, flat, starts.start_one_view, update, objective)


def objective(p: Params, data: Views, hyper: Hyper) -> jax.Array:
    return topics.misfit(p, data, hyper)


def update(p: Params, data: Views, hyper: Hyper) -> Params:
    """One EM iteration: both blocks from the same posterior P(z|d, w)."""
    V, C = topics.em(p, data, hyper)
    return Params(topics.mixtures(V), C)


def model(data: Views, hyper: Hyper) -> None:
    A = topics.sample_rows("A", "row", data.n_rows, hyper.n_components, hyper.a)
    topics.sample_view(A, data, hyper)


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> dist.Distribution:
    return topics.predict_words(p.A, p.C.T, query)


def example(key: jax.Array) -> tuple[Views, Hyper]:
    """Seven documents of five words; concentrations above 1 keep the mode inside the simplex."""
    data = Views(np.asarray(jax.random.poisson(key, 2.0, (7, 5)), float))
    return data, prepare(data, Hyper(3, start="random", a=1.4, c=1.2))


# fmt: off
METHOD = register(Method(
    name="plsa", cite="hofmann1999plsa", data=Views, Params=Params, Hyper=Hyper, init=init,
    objective=objective, model=model, predict=predict, example=example, fold_in=topics.fold_in,
    prepare=prepare, ready=ready,
    solver=Solver(update=update, own_rows=("A",)),
    gibbs=Sampler(conditionals=splitting.CONDITIONALS, augment=splitting.augment),
    variational=_laws.ONE_VIEW, choose=Choose(candidates=starts.concentrations),
    axes=Axes(dims=topics.DIMS, gauge=topics.GAUGE),
    notes=Notes(remarks=topics.remarks, traits=checks.NONNEGATIVE),
))
# fmt: on
