r"""Locally-consistent topic modelling of all views side by side.

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
features are named "view: feature", in predictions too. The graph joins neighbours over all features, unless
the views contain a graph. Twin: Dirichlet rows times the factor exp(-lambda R(A)), so the posterior is a
*generalised* one. Gibbs moves rows given their neighbours (models.topics._smooth_draws). Gauge: the order of
the topics.
"""

import jax

from bayesfac.core.data.views import Views, concatenated, linked
from bayesfac.core.method import Method, register
from bayesfac.models.topics import _splitting as splitting
from bayesfac.models.topics import _starts as starts
from bayesfac.models.topics import _words as topics
from bayesfac.models.topics import ltm
from bayesfac.models.topics._words import Params
from bayesfac.models.topics.ltm import Hyper


def prepare(data: Views, hyper: Hyper) -> Hyper:
    return starts.settled(data, hyper, ready, ltm.update, ltm.objective)


def ready(data: Views, hyper: Hyper) -> Views:
    """One view with the features of all views, and a graph."""
    data = concatenated(starts.scaled(data, hyper.scale))
    return linked(data, hyper.neighbours, hyper.metric)


def example(key: jax.Array) -> tuple[Views, Hyper]:
    x = topics.few_counts(key, 9)
    data = Views({"left": x[:, :5], "right": x[:, 5:]})
    own = Hyper(3, 0.8, neighbours=2, scale="none", start="random", divergence="kl", a=1.4, c=1.2)
    hyper = prepare(data, own)
    return ready(data, hyper), hyper


# fmt: off
METHOD = register(Method(
    name="concat_ltm", cite="wang2017mggm", data=Views, Params=Params, Hyper=Hyper,
    init=ltm.init, objective=ltm.objective, model=ltm.model, predict=ltm.predict, example=example,
    update=ltm.update, prepare=prepare, ready=ready, remarks=topics.remarks,
    conditionals={"A": ltm.conditional_A, "C": splitting.conditional_C}, augment=splitting.augment,
    gauge=topics.GAUGE, dims=topics.DIMS, traits=topics.TRAITS_OF_GRAPHS,
))
# fmt: on
