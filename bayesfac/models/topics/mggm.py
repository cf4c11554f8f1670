r"""Multiple graph regularized generative model, by a safeguarded EM.

Wang et al., "Multi-view learning via multiple graph regularized generative model", Knowledge-Based Systems
2017, eq. 1-15.

    P(w | x, t) = sum_c P(c|x) sum_z P(z|c, t) P(w|z, t) = (A B_t C_t)_xw
    J = - sum_t sum_xw n_t(x, w) log (A B_t C_t)_xw + lambda sum_t alpha_t^(1/l) R_t(A)
        - (a - 1) sum log A - (b - 1) sum log B - (c - 1) sum log C

    paper          here                     shape
    P(c|x)         A                        rows x K     rows sum to one, and so do those of B_t, C_t
    P(z|c, t)      B[t]                     K x Q_t
    P(w|z, t)      C[t]                     Q_t x features of view t
    alpha          alpha                    graphs, sums to one; mu_t = alpha_t^(1/l) weighs graph t
    lambda_1       penalty, lambda
    lambda_2       selectivity, l
    U^t            data.graphs.weight[t]    over the edges
    R (3), (7)     models.topics._graph_smoothing.roughness
    z, c           Parts[t]                 of the words, as sums; only Gibbs draws them

The method clusters rows by several views of counts and by graphs between the rows. The paper contradicts
itself: by (6) mu sums to one, by (8) alpha does. This module follows (8), whose closed form is (10). The
paper weights the graphs by the squared difference (7) but penalises by the Kullback-Leibler divergence (3),
so its steps lower no common objective. Here one `divergence` is used for both, and J falls in every step,
also in that of alpha. (15) replaces (3) by a quadratic, so J may rise. With "kl", `smooth_rows` uses this
step only as a proposal, and a fit reports the number of shortened steps. With "squared", it minimises a bound
on J instead. If `mu` is set, alpha is no parameter. One graph (`graph="name"`) is MGGM_SV, and `penalty=0` is
MVPLSA; the option `joint` is an addition. The NumPyro model has Dirichlet rows times the factor exp(-lambda
sum mu_t R_t), and uniform alpha. The normalising constant of this factor depends on alpha; J and the model
omit it, so the posterior is a *generalised* one. Real-valued features are used as pseudo-counts, scaled by
`scale`; the graphs and `start` use the scaled features.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
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
from bayesfac.models.topics._smooth_draws import GraphWeights


class Params(NamedTuple):
    A: jax.Array
    B: dict[str, jax.Array]
    C: dict[str, jax.Array]
    alpha: jax.Array | None


class Hyper(NamedTuple):
    n_components: int = 10  # K clusters, shared by the views
    n_topics: int = 20  # Q topics in every view
    penalty: float | None = None  # lambda; None: from the odds that neighbours share a cluster
    selectivity: float = 0.5
    mu: tuple[float, ...] | None = None  # None: learned
    divergence: str = "squared"  # or "kl"
    neighbours: int = 5
    metric: str = "euclidean"
    graph: str | None = None  # None: all graphs
    joint: bool | None = None  # adds a graph "all" over all features; None: if no graph is given
    scale: str = "complement"  # or "none", "rows", "minmax", "unit"
    start: str = "best"  # "best", "spectral", "kmeans" or "random"
    a: float = 1.0
    b: float = 1.0
    c: float = 1.0


def prepare(data: Views, hyper: Hyper) -> Hyper:
    starts.check(data, hyper)
    checks.count(hyper, "n_topics", max(data.n_features.values()), "the widest view")
    checks.between(hyper, "selectivity", 0, 1)
    checks.at_least_one(hyper, "b", "c")
    if hyper.mu is not None and not all(0 <= mu < np.inf for mu in hyper.mu):
        raise ValueError(f"Expected mu as finite weights of at least 0, got {hyper.mu}")
    hyper = hyper._replace(mu=None if hyper.mu is None else tuple(map(float, hyper.mu)))
    if hyper.joint is None:
        named = data.graphs is not None or hyper.graph is not None or hyper.mu is not None
        hyper = hyper._replace(joint=not named and len(data.names) > 1)
    if hyper.penalty is None:
        learned = hyper.selectivity if hyper.mu is None else None
        data = ready(data, hyper)
        hyper = hyper._replace(penalty=starts.trust(data, hyper, learned))
        hyper = starts.apart(data, hyper, begin, update, objective)
    return hyper


def ready(data: Views, hyper: Hyper) -> Views:
    data = starts.scaled(data, hyper.scale)
    data = linked(data, hyper.neighbours, hyper.metric, hyper.graph, hyper.joint)
    if hyper.mu is not None and len(hyper.mu) != len(data.graphs.names):
        raise ValueError(
            f"Expected one mu for each of the graphs {list(data.graphs.names)}, got {len(hyper.mu)} numbers"
        )
    return data


def begin(key: jax.Array, A: jax.Array, data: Views, hyper: Hyper) -> Params:
    """Topics that match A, and the weights of the graphs by (10)."""
    alpha = None
    if learns_weights(data, hyper):
        rough = smooth.roughness(A, data.graphs, hyper.divergence)
        alpha = smooth.best_weights(rough, hyper.selectivity)
    return Params(*starts.start_views(key, A, data, hyper), alpha)


def init(key: jax.Array, data: Views, hyper: Hyper) -> Params:
    """A by `start`, and the other parameters by `begin`."""
    return starts.chosen(key, data, hyper, begin, update, objective)


def learns_weights(data: Views, hyper: Hyper) -> bool:
    return hyper.mu is None and len(data.graphs.names) > 1


def weights(alpha: jax.Array | None, hyper: Hyper) -> jax.Array:
    """mu_t."""
    if alpha is None:
        return jnp.asarray(hyper.mu or (1.0,), jnp.result_type(float))
    return alpha ** (1 / hyper.selectivity)


def objective(p: Params, data: Views, hyper: Hyper) -> jax.Array:
    rough = smooth.penalty(p.A, data.graphs, hyper, weights(p.alpha, hyper))
    return topics.misfit_of_views(p, data, hyper) + rough


def update(p: Params, data: Views, hyper: Hyper) -> Params:
    """Algorithm 1: B_t and C_t by (14) and A by (15) from the same posterior (12), then alpha by (10)."""
    V, B, C = topics.em_of_views(p, data, hyper)
    A = smooth.smooth_rows(p.A, V, data.graphs, hyper, weights(p.alpha, hyper))
    if p.alpha is None or not hyper.penalty:
        return Params(A, B, C, p.alpha)
    rough = smooth.roughness(A, data.graphs, hyper.divergence)
    return Params(A, B, C, smooth.best_weights(rough, hyper.selectivity))


def conditional_A(p: Params, data: Views, hyper: Hyper, parts: Any) -> dist.Distribution:
    """A | B, C, alpha, z, u: rows given their neighbours (see models.topics._smooth_draws)."""
    words = splitting.conditional_A_of_views(p, data, hyper, parts)
    return smooth.rows(p.A, words, data.graphs, hyper, weights(p.alpha, hyper))


def conditional_alpha(p: Params, data: Views, hyper: Hyper, parts: Any) -> dist.Distribution:
    """alpha | A: a density proportional to exp(-lambda sum R_t alpha_t^(1/l)) on the simplex."""
    rough = smooth.roughness(p.A, data.graphs, hyper.divergence)
    peak = smooth.best_weights(rough, hyper.selectivity)
    return GraphWeights(p.alpha, hyper.penalty * rough, peak, 1 / hyper.selectivity)


def model(data: Views, hyper: Hyper) -> None:
    A = topics.sample_rows("A", "row", data.n_rows, hyper.n_components, hyper.a)
    alpha = None
    if learns_weights(data, hyper):
        alpha = numpyro.sample("alpha", dist.Dirichlet(jnp.ones(len(data.graphs.names))))
    numpyro.factor("graphs", -smooth.penalty(A, data.graphs, hyper, weights(alpha, hyper)))
    topics.sample_views(A, data, hyper)


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> dist.Distribution:
    return topics.predict_views(p, query)


def example(key: jax.Array) -> tuple[Views, Hyper]:
    x = topics.few_counts(key, 9)
    hyper = Hyper(
        3, 2, 0.8, 0.5, divergence="kl", neighbours=2, joint=False, scale="none", start="random",
        a=1.5, b=1.4, c=1.3,
    )  # fmt: skip
    data = Views({"left": x[:, :5], "right": x[:, 5:]})
    hyper = prepare(data, hyper)
    return ready(data, hyper), hyper


# fmt: off
METHOD = register(Method(
    name="mggm", cite="wang2017mggm", data=Views, Params=Params, Hyper=Hyper, init=init,
    objective=objective, model=model, predict=predict, example=example, prepare=prepare, ready=ready,
    solver=Solver(update=update),
    gibbs=Sampler(
        conditionals=splitting.CONDITIONALS_OF_VIEWS | {"A": conditional_A,
            "alpha": conditional_alpha},
        augment=splitting.augment_views,
    ),
    axes=Axes(dims=topics.DIMS_OF_VIEWS | {"alpha": ("graph",)}, gauge=topics.gauge_of_views),
    notes=Notes(remarks=topics.remarks, traits=topics.TRAITS_OF_GRAPHS),
))
# fmt: on
