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
topics are reordered. `_ltm.py` has the functions that this method and `concat_ltm` share.
"""

import jax

from bayesfac.core import checks
from bayesfac.core.data.views import Views, linked
from bayesfac.core.method import Method, register
from bayesfac.models.topics import _ltm as shared
from bayesfac.models.topics import _starts as starts
from bayesfac.models.topics import _words as topics
from bayesfac.models.topics._ltm import Hyper, Params


def prepare(data: Views, hyper: Hyper) -> Hyper:
    checks.one_view(data, "concat_ltm, mggm")
    return shared.settled(data, hyper, ready)


def ready(data: Views, hyper: Hyper) -> Views:
    return linked(starts.scaled(data, hyper.scale), hyper.neighbours, hyper.metric)


def init(key: jax.Array, data: Views, hyper: Hyper) -> Params:
    return shared.start(key, data, hyper)


def example(key: jax.Array) -> tuple[Views, Hyper]:
    data = Views(topics.few_counts(key, 5))
    hyper = prepare(data, shared.FEW)
    return ready(data, hyper), hyper


METHOD = register(Method(
    name="ltm", cite="cai2009ltm", init=init, prepare=prepare, ready=ready, example=example,
    **shared.SHARED,
))  # fmt: skip
