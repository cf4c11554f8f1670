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
moves (`_moves.py`). If the kinds can be split into two groups such that no matrix joins two kinds of one
group, a sweep draws the scale of the rows of one group against the other. And it scales, along one direction,
the factors of a kind whose matrices are all probit.

Length: more than 300 lines, for two laws of the data, each with its solver, sampler and prediction.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfac.core import checks
from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.data.reading import spread
from bayesfac.core.data.relations import RATINGS, Relations, few_relations
from bayesfac.core.laws import cuts
from bayesfac.core.laws import empirical_bayes as bayes
from bayesfac.core.laws import normal_wishart as wishart
from bayesfac.core.laws.distributions import GaussianRows
from bayesfac.core.laws.ordinal import Between, Levels, averaged
from bayesfac.core.math import bilinear, normals, products
from bayesfac.core.method import Axes, Method, Notes, Rotation, Sampler, Solver, register
from bayesfac.core.programs import compiled_for
from bayesfac.models.collective._matrices import Matrix, coded, matrices, probits, seen, standard
from bayesfac.models.collective._moves import rescale, swell, thresholds

SMALL = 0.1  # size of the random factors besides the biases, at the second start of a point fit


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
        value = data.values(k.name)
        scale = spread(value)
        levels = k.levels if k.name in probit else None
        own.append(Matrix(k.name, k.row, k.col, float(value.mean()), scale, levels))
    given = tuple(Matrix(*m) for m in hyper.matrices or own)
    # offsets and scales may come from other data
    shape = [(m.name, m.row, m.col, m.levels) for m in own]
    if [(m.name, m.row, m.col, m.levels) for m in given] != shape:
        raise ValueError(f"Expected the matrices of the data, {own}, got {given}")
    return hyper._replace(probit=probit, matrices=given)


def init(key: jax.Array, data: Relations, hyper: Hyper) -> Params:
    """Draw factors whose products have half the standard deviation of the values, and Lambda to match."""
    K, names = hyper.n_components, data.axes
    scale = 0.5**0.5 / K**0.25
    keys = zip(data.axes.items(), jax.random.split(key, len(names)), strict=True)
    U = {kind: scale * normals(k, (len(index), K)) for (kind, index), k in keys}
    alpha = {m.name: jnp.ones(()) for m in matrices(hyper) if m.levels is None}
    own = [m for m in matrices(hyper) if m.levels is not None]
    begun = {
        m.name: cuts.begin(jnp.bincount(coded(data, m), length=len(m.levels or ()))) for m in own
    }
    mu, precision = jnp.zeros(K), jnp.eye(K) / scale**2
    same = (dict.fromkeys(names, mu), dict.fromkeys(names, precision))
    return Params(U, *same, alpha or None, begun or None)


@compiled_for(2, once=True)
def start(key: jax.Array, data: Relations, hyper: Hyper) -> Params:
    """Start a point fit: mu, Lambda, alpha and cuts by empirical Bayes; the solver keeps them fixed."""
    p = init(key, data, hyper)
    if hyper.scales == "joint":
        return p
    zero = jnp.zeros((), data.y.dtype)
    first = dict(p.cuts or {}) | {name: (a, zero) for name, a in (p.alpha or {}).items()}

    def observe(own: dict, x: jax.Array, variance: jax.Array) -> bayes.Seen:
        parts = []
        for m in matrices(hyper):
            law: Any
            if m.levels is None:
                law = bayes.normal(standard(data, m), hyper.alpha_shape, hyper.alpha_rate)
            else:
                law = partial(cuts.observed, coded(data, m))
            at = data.spans[m.name]
            parts.append(law(own[m.name], x[at], variance[at]))
        new, target, weight, loss = zip(*parts, strict=True)
        own = {m.name: law for m, law in zip(matrices(hyper), new, strict=True)}
        t, w, lost = (jnp.concatenate(each) for each in (target, weight, loss))
        return bayes.Seen(own, t, w, lost)

    problem = bayes.Problem(data.links, (None,) * len(p.U), hyper, observe)
    sides, own = bayes.estimated(starts(p, data, hyper), problem, first)
    named = dict(zip(data.axes, sides, strict=True))
    # a point predicts ratings with their noise alone, so the noise must include the variance of u.v; all
    # precisions get the same factor, so that the modes stay where they are. The noise of a probit is fixed:
    # its cells then count a little more beside the ratings. If the ratings are probit, nothing can be widened
    alpha, variance = own[RATINGS] if RATINGS in (p.alpha or {}) else (1.0, 0.0)
    share = 1 / (1 + alpha * variance)
    return Params(
        {kind: s.mean for kind, s in named.items()},
        {kind: s.mu for kind, s in named.items()},
        {kind: share * s.precision for kind, s in named.items()},
        p.alpha and {name: share * own[name][0] for name in p.alpha},
        p.cuts and {name: own[name] for name in p.cuts},
    )


def starts(p: Params, data: Relations, hyper: Hyper) -> list[list[bayes.Side]]:
    """Two starts: the factors of p, and biases of users and items, each as a component that is constant on
    the other side."""
    sides = [bayes.certain(p.U[kind], p.mu[kind], p.Lambda[kind]) for kind in data.axes]
    if hyper.n_components < 2:
        return [sides]
    y = (data.y - jnp.mean(data.y)) / data.spread
    user, item = bayes.biases(data.cells, y)
    begun = [s._replace(mean=SMALL * s.mean) for s in sides]
    at = {kind: k for k, kind in enumerate(data.axes)}
    for kind, bias, own, other in (("user", user, 0, 1), ("item", item, 1, 0)):
        rows = begun[at[kind]].mean.at[:, own].set(bias).at[:, other].set(1.0)
        begun[at[kind]] = begun[at[kind]]._replace(mean=rows)
    return [sides, [bayes.fitted(side, hyper) for side in begun]]


def held(hyper: Hyper) -> tuple[str, ...]:
    return () if hyper.scales == "joint" else ("mu", "Lambda", "alpha", "cuts")


def objective(p: Params, data: Relations, hyper: Hyper) -> jax.Array:
    every, fit = seen(p, data), jnp.zeros(())
    for m in matrices(hyper):
        x = every[m.name]
        if p.alpha is not None and m.levels is None:
            alpha, z = p.alpha[m.name], standard(data, m)
            fit += 0.5 * alpha * jnp.sum((z - x) ** 2) - 0.5 * len(z) * jnp.log(alpha)
            fit += hyper.alpha_rate * alpha - (hyper.alpha_shape - 1) * jnp.log(alpha)
        elif p.cuts is not None:
            t = p.cuts[m.name]
            fit += cuts.energy(t) - jnp.sum(cuts.log_levels(t, x, coded(data, m)))
    rows = ((p.U[kind], p.mu[kind], p.Lambda[kind]) for kind in p.U)
    return fit + sum(wishart.normal_wishart_energy(*own, hyper) for own in rows)


# -- blocks given z, the latent normals of all cells of probit matrices, matrix by matrix ------------
def augment(p: Params, data: Relations, hyper: Hyper) -> Between:
    levelled = probits(p, data, hyper)
    parts = [jnp.stack([x, *cuts.limits(p.cuts[m.name], code)]) for m, x, code in levelled]
    return Between(*jnp.concatenate([jnp.zeros((3, 0), p.mu["user"].dtype), *parts], 1))


def below(p: Params, data: Relations, hyper: Hyper) -> jax.Array:
    """The parabolas below log P at the present x, which the solver uses instead of z."""
    parts = [cuts.touching(p.cuts[m.name], x, code) for m, x, code in probits(p, data, hyper)]
    return jnp.concatenate([jnp.zeros(0, p.mu["user"].dtype), *parts])


def conditional_Lambda(
    p: Params, data: Relations, hyper: Hyper, z: jax.Array, kind: str
) -> dist.Wishart:
    return wishart.normal_wishart_precision(p.U[kind], p.mu[kind], hyper)


def conditional_mu(
    p: Params, data: Relations, hyper: Hyper, z: jax.Array, kind: str
) -> dist.Distribution:
    return wishart.normal_wishart_mean(p.U[kind], p.Lambda[kind], hyper.beta0)


def conditional_U(
    p: Params, data: Relations, hyper: Hyper, z: jax.Array, kind: str
) -> GaussianRows:
    """The rows as in `bpmf`, with the cells of all matrices of this kind in one list."""
    targets, weights, first = [], [], 0
    for m in matrices(hyper):
        if m.levels is None:
            targets.append(standard(data, m))
            weights.append(jnp.full_like(targets[-1], p.alpha[m.name]))
        else:
            size = len(data.observed(m.name))
            targets.append(z[first : first + size])
            weights.append(jnp.ones_like(targets[-1]))
            first += size
    rows = data.links.modes[tuple(data.axes).index(kind)]
    target, weight = jnp.concatenate(targets), jnp.concatenate(weights)
    table, precision = jnp.concatenate([p.U[k] for k in data.axes]), p.Lambda[kind]
    return GaussianRows(rows, target, table, weight, precision, precision @ p.mu[kind])


def conditional_alpha(
    p: Params, data: Relations, hyper: Hyper, z: jax.Array, name: str
) -> dist.Gamma:
    m = next(m for m in matrices(hyper) if m.name == name)
    residual = standard(data, m) - seen(p, data)[name]
    shape = hyper.alpha_shape + 0.5 * len(residual)
    return dist.Gamma(shape, hyper.alpha_rate + 0.5 * jnp.sum(residual**2))


CONDITIONALS: dict[str, Any] = {
    "Lambda": conditional_Lambda,
    "mu": conditional_mu,
    "U": conditional_U,
    "alpha": conditional_alpha,
}


def update(p: Params, data: Relations, hyper: Hyper) -> Params:
    """Set each block to the mode of its conditional, given the parabolas at the beginning of the sweep;
    then the thresholds by a Newton step."""
    fixed = held(hyper)
    free = {site: law for site, law in CONDITIONALS.items() if site not in fixed}
    p = wishart.settled(p, free, (), data, hyper, below(p, data, hyper))
    if "cuts" in fixed or p.cuts is None:
        return p
    parts = probits(p, data, hyper)
    return p._replace(cuts={m.name: cuts.lowered(p.cuts[m.name], x, c) for m, x, c in parts})


def model(data: Relations, hyper: Hyper) -> None:
    U, K = {}, hyper.n_components
    for kind, index in data.axes.items():
        mu, precision = wishart.sample_hyper(f"mu.{kind}", f"Lambda.{kind}", K, hyper)
        with numpyro.plate(kind, len(index)):
            U[kind] = numpyro.sample(
                f"U.{kind}", dist.MultivariateNormal(mu, precision_matrix=precision)
            )
    every = seen(Params(U, {}, {}), data)
    for m in matrices(hyper):
        x, site = every[m.name], "rating" if m.name == RATINGS else f"view.{m.name}"
        if m.levels is None:
            noise = dist.Gamma(hyper.alpha_shape, hyper.alpha_rate)
            alpha = numpyro.sample(f"alpha.{m.name}", noise)
            law: Any = dist.Normal(m.offset + m.scale * x, m.scale * alpha**-0.5)
        else:
            free = dist.Normal(cuts.middle(len(m.levels)), 1).to_event(1)
            law = cuts.levels(numpyro.sample(f"cuts.{m.name}", free), x, m.levels)
        with numpyro.plate(f"cell.{m.name}", len(x)):
            numpyro.sample(site, law, obs=data.observed(m.name))


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> dist.Distribution:
    """The value in the matrix `predicts`; the row of a label without data is drawn from N(mu, Lambda^-1)."""
    m = next(m for m in matrices(hyper) if m.name == hyper.predicts)
    row, col = ((p.mu[kind], jnp.linalg.inv(p.Lambda[kind])) for kind in (m.row, m.col))
    U, V = p.U[m.row], p.U[m.col]
    if m.levels is None:
        mean, variance = bilinear(U, V, query, row, col)
        sd = jnp.sqrt(1 / jnp.asarray(p.alpha[m.name], mean.dtype) + variance)
        return dist.Normal(m.offset + m.scale * mean, m.scale * sd)

    def levels(x: jax.Array) -> Levels:
        return cuts.levels(p.cuts[m.name], x, m.levels)

    def law(cells: Query | Grid) -> tuple:
        mean, at = products(U, V, cells, row, col)
        return levels(mean), lambda point: levels(at(point))

    return averaged(law, hyper.n_components + 1, query)


def gauge(names: tuple[str, ...]) -> tuple[Rotation, ...]:
    """The rows of all kinds rotate together, and with them their means and precisions."""
    own = [name.partition(".")[2] for name in names if name.startswith("U.")]
    axes = {f"U.{kind}": 1 for kind in own} | {f"mu.{kind}": 0 for kind in own}
    floating = any(name.startswith("cuts.") for name in names)
    forms = tuple(f"Lambda.{kind}" for kind in own)
    return (Rotation(("U.user", "U.item"), axes, forms, floating=floating),)


def example(key: jax.Array) -> tuple[Relations, Hyper]:
    data = few_relations(key)
    h = Hyper(2, probit=("tags",), alpha_shape=2.0, beta0=2.0, rate=1.2, scales="joint")
    return data, prepare(data, h)


# fmt: off
METHOD = register(Method(
    name="cmf", cite="singh2008cmf", data=Relations, Params=Params, Hyper=Hyper, init=init,
    objective=objective, model=model, predict=predict, example=example, prepare=prepare,
    solver=Solver(update=update, start=start, held=held),
    gibbs=Sampler(
        conditionals=CONDITIONALS,
        augment=augment,
        moves={"thresholds": thresholds, "swell": swell, "rescale": rescale},
    ),
    axes=Axes(
        dims={"U": ("{key}", "component"), "mu": ("component",),
            "Lambda": ("component", "component_"), "alpha": (), "cuts": ("{key}_threshold",)},
        gauge=gauge,
    ),
    notes=Notes(traits={"no_fold_in": "a new row may have cells in several matrices"}),
))
# fmt: on
