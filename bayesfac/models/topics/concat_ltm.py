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
The density does not change when topics are reordered. `_ltm.py` has the functions that this method and `ltm`
share.
"""

import jax

from bayesfac.core.data.views import Views, concatenated, linked
from bayesfac.core.method import Method, register
from bayesfac.models.topics import _ltm as shared
from bayesfac.models.topics import _starts as starts
from bayesfac.models.topics import _words as topics
from bayesfac.models.topics._ltm import Hyper, Params


def prepare(data: Views, hyper: Hyper) -> Hyper:
    return shared.settled(data, hyper, ready)


def ready(data: Views, hyper: Hyper) -> Views:
    data = concatenated(starts.scaled(data, hyper.scale))
    return linked(data, hyper.neighbours, hyper.metric)


def init(key: jax.Array, data: Views, hyper: Hyper) -> Params:
    return shared.start(key, data, hyper)


def example(key: jax.Array) -> tuple[Views, Hyper]:
    x = topics.few_counts(key, 9)
    data = Views({"left": x[:, :5], "right": x[:, 5:]})
    hyper = prepare(data, shared.FEW)
    return ready(data, hyper), hyper


METHOD = register(Method(
    name="concat_ltm", cite="wang2017mggm", init=init, prepare=prepare, ready=ready, example=example,
    **shared.SHARED,
))  # fmt: skip
