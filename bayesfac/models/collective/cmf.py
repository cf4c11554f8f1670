r"""Collective matrix factorization: several matrices that share the factors of users, items, tags, words.

Singh & Gordon, "Relational Learning via Collective Matrix Factorization", KDD 2008; Bayesian: Klami,
Bouchard & Tripathi, "Group-sparse Embeddings in Collective Matrix Factorization", ICLR 2014. Each kind of
label e (user, item, tag, ...) has one factor table U_e, so that one matrix helps to predict another. Matrix r
has rows of kind e and columns of kind f:

    z_ij = (y_ij - m_r) / s_r ~ N(u_i . v_j, 1 / alpha_r)                              (real values)
    P(y_ij <= level l) = Phi(theta_rl - u_i . v_j)                                     (probit)

    J = sum over matrices of real values  sum_ij [ alpha/2 (z_ij - u_i.v_j)^2 - 1/2 log alpha ]
                                          + b alpha - (a - 1) log alpha
      + sum over matrices of levels       - sum_ij log P(y_ij) + 1/2 |t - c|^2         (`core/laws/cuts.py`)
      + sum over kinds e, with rows u_i and n of them, of
        1/2 sum_i (u_i - mu)' Lambda (u_i - mu) - n/2 log|Lambda|
      + beta0/2 mu' Lambda mu - 1/2 log|Lambda|
      + rate/2 tr Lambda - (nu0 - K - 1)/2 log|Lambda|                (W0 = I / rate, nu0 = K)

    paper               here                shape
    U_e                 U.KIND              labels of the kind x K
    mu, Lambda of U_e   mu.KIND, Lambda.    K, K x K
    tau_m               alpha.MATRIX        scalar      (of matrices of real values)
    -                   cuts.MATRIX         R - 1       free coordinates t of the thresholds theta
    m_r, s_r            offset and scale    of the matrices in `Hyper`: mean and standard deviation

Differences from the papers: the values of each matrix are standardised, and each matrix has its own noise,
which is learned. So the units of a matrix do not change its weight; Singh & Gordon choose weights by hand.
Klami et al. have a precision for each component and kind, which can remove a component from some kinds. Here
the full matrix Lambda, with a prior that is as wide, can do this in any direction. Biases of rows and columns
are components that are constant on the other side, as in `bpmf`. There is no law for counts.

A row, given everything else, is one Gaussian regression over its cells in all matrices, as in `bpmf`, with
one list of cells (`LinkedCells`). For matrices of levels, the sampler draws a latent normal for each cell
(Albert & Chib, 1993), and thresholds by Metropolis steps. The solver replaces log P by a parabola below it,
which touches it at the present x. The second derivative of log P is at least -1, so J never rises.

With `scales="estimated"` a point fit sets mu, Lambda, alpha and cuts once, by empirical Bayes
(`core/laws/empirical_bayes.py`), and the solver then minimises J over the rows alone. Gibbs has two further
moves (`parts/matrices.py`). If the kinds can be split into two groups such that no matrix joins two kinds of
one group, a sweep draws the scale of the rows of one group against the other. And it scales, along one
direction, the factors of a kind whose matrices are all probit.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfac.core import checks
from bayesfac.core.data.linked.relations import RATINGS, Relations, few_relations
from bayesfac.core.data.reading import spread
from bayesfac.core.laws import cuts
from bayesfac.core.method import Notes, register
from bayesfac.core.programs import compiled_for
from bayesfac.parts.composition import composed
from bayesfac.parts.estimate import estimated
from bayesfac.parts.matrices import Matrices, products
from bayesfac.parts.observed.per_matrix import Matrix, PerMatrix
from bayesfac.parts.priors import keyed
from bayesfac.parts.sites import put

LAW = PerMatrix()


class Params(NamedTuple):
    U: dict[str, jax.Array]
    mu: dict[str, jax.Array]
    Lambda: dict[str, jax.Array]
    alpha: dict[str, jax.Array] | None = None
    cuts: dict[str, jax.Array] | None = None


class Hyper(NamedTuple):
    n_components: int = 10
    probit: tuple[str, ...] | None = None  # matrices of levels; None: those of two levels
    alpha_shape: float = 1.0  # alpha ~ Gamma(shape, rate), of standardised values
    alpha_rate: float = 1.0
    beta0: float = 0.01
    rate: float = 1.0
    scales: str = "estimated"  # how a point fit sets mu, Lambda, alpha and cuts; or "joint"
    matrices: tuple[Matrix, ...] | None = None  # None: those of the data
    predicts: str = RATINGS  # the matrix whose cells `predict` predicts


def prepare(data: Relations, hyper: Hyper) -> Hyper:
    checks.count(hyper, "n_components", min(data.shape), "the smaller of users and items")
    checks.positive(hyper, "alpha_shape", "alpha_rate", "beta0", "rate")
    checks.one_of(hyper, "scales", ("estimated", "joint"))
    checks.one_of(hyper, "predicts", tuple(k.name for k in data.kinds))
    levelled = {k.name: k.levels for k in data.kinds if k.levels is not None}
    probit = hyper.probit
    if probit is None:
        probit = tuple(name for name, levels in levelled.items() if len(levels) == 2)
    for name in probit:
        if name not in levelled:
            raise ValueError(
                f"Expected as probit some of the matrices with levels, {tuple(levelled)}, got {name!r}"
            )
    own = []
    for k in data.kinds:
        value, levels = data.values(k.name), k.levels if k.name in probit else None
        own.append(Matrix(k.name, k.row, k.col, float(value.mean()), spread(value), levels))
    given = tuple(Matrix(*m) for m in hyper.matrices or own)
    # offsets and scales may come from other data
    shape = [(m.name, m.row, m.col, m.levels) for m in own]
    if [(m.name, m.row, m.col, m.levels) for m in given] != shape:
        raise ValueError(f"Expected the matrices of the data, {own}, got {given}")
    return hyper._replace(probit=probit, matrices=given)


def objective(p: Params, data: Relations, h: Hyper) -> jax.Array:
    every, J = products(p.U, data), jnp.zeros(())
    for m in h.matrices or ():
        x, y = every[m.name], data.observed(m.name)
        if p.alpha is not None and m.levels is None:
            alpha, z = p.alpha[m.name], (y - m.offset) / m.scale
            J += 0.5 * alpha * jnp.sum((z - x) ** 2) - 0.5 * len(z) * jnp.log(alpha)
            J += h.alpha_rate * alpha - (h.alpha_shape - 1) * jnp.log(alpha)
        elif p.cuts is not None:
            t = p.cuts[m.name]
            J += 0.5 * jnp.sum((t - cuts.middle(len(t) + 1)) ** 2)
            J -= jnp.sum(cuts.log_levels(t, x, m.coded(data)))
    for kind, U in p.U.items():
        away, mu, Lambda = U - p.mu[kind], p.mu[kind], p.Lambda[kind]
        J += 0.5 * jnp.sum(away @ Lambda * away) - 0.5 * len(away) * jnp.linalg.slogdet(Lambda)[1]
        J += 0.5 * (h.beta0 * mu @ Lambda @ mu + h.rate * jnp.trace(Lambda))
    return J


def model(data: Relations, h: Hyper) -> None:
    U, K = {}, h.n_components
    for kind, index in data.axes.items():
        law: Any = dist.Wishart(float(K), scale_tril=jnp.eye(K) / h.rate**0.5)
        Lambda = numpyro.sample(f"Lambda.{kind}", law)
        law = dist.MultivariateNormal(jnp.zeros(K), precision_matrix=h.beta0 * Lambda)
        law = dist.MultivariateNormal(numpyro.sample(f"mu.{kind}", law), precision_matrix=Lambda)
        with numpyro.plate(kind, len(index)):
            U[kind] = numpyro.sample(f"U.{kind}", law)
    every = products(U, data)
    for m in h.matrices or ():
        x = every[m.name]
        if m.levels is None:
            alpha = numpyro.sample(f"alpha.{m.name}", dist.Gamma(h.alpha_shape, h.alpha_rate))
            law = dist.Normal(m.offset + m.scale * x, m.scale * alpha**-0.5)
        else:
            free = dist.Normal(cuts.middle(len(m.levels)), 1).to_event(1)
            law = cuts.levels(numpyro.sample(f"cuts.{m.name}", free), x, m.levels)
        with numpyro.plate(f"cell.{m.name}", len(x)):
            site = "rating" if m.name == RATINGS else f"view.{m.name}"
            numpyro.sample(site, law, obs=data.observed(m.name))


@compiled_for(2, once=True)
def start(key: jax.Array, data: Relations, h: Hyper) -> Params:
    """Start a point fit: mu, Lambda, alpha and cuts by empirical Bayes; the solver keeps them fixed."""
    p = METHOD.init(key, data, h)
    if h.scales == "joint":
        return p
    main, zero = METHOD.parts.at(h).main, jnp.zeros((), data.y.dtype)
    first = dict(p.cuts or {}) | {name: (alpha, zero) for name, alpha in (p.alpha or {}).items()}
    y, observe = (data.y - jnp.mean(data.y)) / data.spread, LAW.observer(data, h)
    sides, own = estimated(main, p, data, h, y, 1.0, first, observe, cells=data.links)
    # a point predicts ratings with their noise alone, so the noise must include the variance of u.v; all
    # precisions get the same factor, so that the modes stay where they are. The noise of a probit is fixed:
    # its cells then count a little more beside the ratings. If the ratings are probit, nothing can be widened
    alpha, variance = own[RATINGS] if RATINGS in (p.alpha or {}) else (1.0, 0.0)
    share = 1 / (1 + alpha * variance)
    found = sides | {f.precision.site: share * sides[f.precision.site] for f in main}
    found |= {f"alpha.{name}": share * own[name][0] for name in p.alpha or ()}
    return put(p, found | {f"cuts.{name}": own[name] for name in p.cuts or ()})


def example(key: jax.Array) -> tuple[Relations, Hyper]:
    data = few_relations(key)
    h = Hyper(2, probit=("tags",), alpha_shape=2.0, beta0=2.0, rate=1.2, scales="joint")
    return data, prepare(data, h)


METHOD = register(
    composed(
        "cmf", cite="singh2008cmf", home=__name__, data=Relations, Params=Params, Hyper=Hyper,
        structure=Matrices(keyed), observed=LAW, objective=objective, model=model, example=example,
        prepare=prepare,
        solver=dict(start=start),
        notes=Notes(traits={"no_fold_in": "a new row may have cells in several matrices"}),
    )
)  # fmt: skip
