r"""User rating profiles (URP): each user's ratings are a mixture over attitudes, fitted by EM.

Marlin, "Modeling User Rating Profiles for Collaborative Filtering", NIPS 2003.

    P(y_ij = r) = sum_k A_ik B_jkr
    J(A, B) = - sum_ij log P(y_ij) - (alpha - 1) sum log A - sum_j log p(B_j)

    paper      here     shape
    theta_i    A        users x K           probabilities of a user's attitudes, sum to one
    beta_v^z   B        items x K x R       probabilities of an item's levels given an attitude, sum to one
    z          z        cells               the attitude behind a rating; only Gibbs draws z
    alpha      alpha    one number for all attitudes, fixed

The paper has no prior of B. Then what is learned about an item under one attitude does not help another
attitude, and a regression on biases predicts better. Here some attitudes rate higher than others, and some
items are better than others, as in a model with biases:

    B_jk ~ Dirichlet(eta + pull share(h_k + q_j)),   share(t)_r proportional to base_r exp(t x_r)
    q_j ~ N(0, quality^2), on a grid of numbers, and summed out of p(B_j)

    x_r the levels, with mean 0 and sd 1 under `base`, the shares of levels in the data
    h_k `habit` times the (k - 1/2)/K quantile of the standard normal law
    pull the weight of the prior of a row of B_j, in ratings; with pull = 0 and eta = 1 B has no prior

Marlin fits by variational EM, with a Dirichlet q(theta_i) for each user. `bf.VB` does so here, with laws of B
too (`core/laws/dirichlet_rows.py`). The solver finds the mode of the joint density by exact EM, from the
posterior A_ik B_jkr / P(y_ij = r) of z. As in the paper, the predicted level is the median, which minimises
the expected absolute error. The method describes groups of users: on MovieLens-100K its levels are better
than those of biases of users and items, its means are as good, and other methods predict better
(docs/ratings.md has the figures). If `habit` or `pull` is 0, the posterior does not change when attitudes are
reordered. Otherwise the prior prefers one order, sometimes only a little.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import ndtri

from bayesfac.core import checks
from bayesfac.core.data.cells import Cells, Grid, Query
from bayesfac.core.data.ratings import Ratings, few_ratings
from bayesfac.core.laws.counts import Splitting, Sums
from bayesfac.core.laws.dirichlet_rows import record
from bayesfac.core.laws.ordinal import Levels, codes, levelled
from bayesfac.core.laws.simplex import MixedDirichlet
from bayesfac.core.math import dirichlets, inner, normalise, safe_log
from bayesfac.core.method import Axes, Choose, Method, Permutation, Sampler, Solver, register

GRID = np.linspace(-2.5, 2.5, 15)  # qualities of items, in standard deviations
MIDDLE = {"habit": 1.5, "pull": 10.0}  # the values in the middle of the candidates


class Params(NamedTuple):
    A: jax.Array
    B: jax.Array


class Hyper(NamedTuple):
    n_components: int = 5
    alpha: float = 1.5
    eta: float = 1.0
    pull: float | None = None  # None, as for habit: chosen by held-out ratings, or as in MIDDLE
    habit: float | None = None
    quality: float = 0.4
    base: tuple[float, ...] | None = None  # None: the shares of the levels in the data
    levels: tuple[float, ...] | None = None  # None: the levels in the data


def prepare(data: Ratings, hyper: Hyper) -> Hyper:
    hyper = levelled(data, hyper, "urp")
    count = 1 + np.bincount(np.searchsorted(hyper.levels, data.value), minlength=len(hyper.levels))
    hyper = checks.filled(hyper, base=tuple((count / count.sum()).tolist()), **MIDDLE)
    checks.at_least_one(hyper, "alpha", "eta")
    checks.positive(hyper, "pull", "habit", "quality", zero=True)
    if len(hyper.base) != len(hyper.levels) or not min(hyper.base) > 0:
        raise ValueError(
            f"Expected base as {len(hyper.levels)} numbers above 0, one for each level, got {hyper.base}"
        )
    return hyper


def choices(data: Ratings, hyper: Hyper, chosen: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Candidates for the habit, and then for the pull."""
    for name, middle in MIDDLE.items():
        if getattr(hyper, name) is None and name not in chosen:
            return [{name: middle * 3.0**step} for step in range(-3, 4)]
    return []


def tables(hyper: Hyper) -> MixedDirichlet:
    """The prior of an item's table B_j, one for each quality on the grid."""
    base, levels = np.array(hyper.base), np.array(hyper.levels)
    x = levels - base @ levels
    x /= np.sqrt(base @ x**2)
    habit = ndtri((np.arange(hyper.n_components) + 0.5) / hyper.n_components)
    tilt = hyper.habit * habit + hyper.quality * GRID[:, None]
    share = jax.nn.softmax(np.log(base) + tilt[..., None] * x, -1)
    return MixedDirichlet(jnp.asarray(-(GRID**2) / 2), hyper.eta + hyper.pull * share)


def init(key: jax.Array, data: Ratings, hyper: Hyper) -> Params:
    """Random rows near the prior means, but different enough that the attitudes do not stay equal."""
    ka, kb = jax.random.split(key)
    K, R = hyper.n_components, len(hyper.levels)
    A = dirichlets(ka, jnp.full(K, 5.0), (data.n_users,))
    near = 1 + 4 * R * tables(hyper).mean
    return Params(A, dirichlets(kb, near, (data.n_items, K)))


def probabilities(A: jax.Array, B: jax.Array, query: Cells | Query | Grid) -> jax.Array:
    """P(y_ij = r) at the cells of the query, levels x cells: one inner product for each level."""
    by_level = jnp.moveaxis(B, -1, 0)
    return inner(jnp.broadcast_to(A, (len(by_level), *A.shape)), by_level, query)


def seen(p: Params, data: Ratings) -> tuple[jax.Array, jax.Array]:
    """P(y_ij) of the ratings, and the weight of each, which is 1."""
    own = codes(data) == jnp.arange(p.B.shape[-1])[:, None]
    return jnp.sum(jnp.where(own, probabilities(*p, data.cells), 0), 0), jnp.ones_like(data.y)


def log_likelihood(p: Params, data: Ratings) -> jax.Array:
    return jnp.sum(safe_log(seen(p, data)[0]))


def log_prior(logs: Params, hyper: Hyper) -> jax.Array:
    """log p(A, B) up to a constant, as a function of log A and log B."""
    return (hyper.alpha - 1) * jnp.sum(logs.A) + jnp.sum(tables(hyper).of_logs(logs.B))


def objective(p: Params, data: Ratings, hyper: Hyper) -> jax.Array:
    return -log_likelihood(p, data) - log_prior(jax.tree.map(safe_log, p), hyper)


def update(p: Params, data: Ratings, hyper: Hyper) -> Params:
    """One EM iteration: both blocks from the same posterior of z, and of the items' qualities.

    The expected counts sum_j A_ik B_jkr / P(y_ij = r) are the parameters times the slopes of the log
    likelihood. The slopes of the log prior in log A and log B are added.
    """
    counts = jax.tree.map(jnp.multiply, p, jax.grad(log_likelihood)(p, data))
    prior = jax.grad(log_prior)(jax.tree.map(safe_log, p), hyper)
    return jax.tree.map(lambda n, a, old: normalise(n + a, old), counts, prior, p)


def augment(p: Params, data: Ratings, hyper: Hyper) -> Splitting:
    """z: the attitude behind each rating, with probabilities proportional to A_ik B_jkr.

    Only counts of z are needed: of attitudes by user, and by item and level.
    """
    m, K, R = p.B.shape
    by_level = jnp.moveaxis(p.B, -1, 1).reshape(m * R, K)
    cells, place = (
        data.cells,
        data.cells.col * R + codes(data),
    )  # the row of `by_level` of each rating
    children = cells.row, place, cells.by_row._replace(index=place), None  # not sorted by place
    levels = Cells.tree_unflatten((len(p.A), m * R), children)
    return Splitting(p.A, by_level, levels, jnp.ones_like(data.y))


def conditional_A(p: Params, data: Ratings, hyper: Hyper, z: Sums) -> dist.Distribution:
    """A_i | z: a Dirichlet with the counts of each attitude in the ratings of user i."""
    return dist.Dirichlet(hyper.alpha + z.by_row)


def conditional_B(p: Params, data: Ratings, hyper: Hyper, z: Sums) -> dist.Distribution:
    """B_j | z, y: the prior plus the counts of each level that each attitude gave item j."""
    m, K, R = p.B.shape
    return tables(hyper).given(jnp.moveaxis(z.by_col.reshape(m, R, K), 1, -1))


VARIATIONAL = record(seen, log_prior)


def model(data: Ratings, hyper: Hyper) -> None:
    (n, m), K = data.shape, hyper.n_components
    with numpyro.plate("user", n):
        A = numpyro.sample("A", dist.Dirichlet(jnp.full(K, hyper.alpha)))
    with numpyro.plate("item", m):
        B = numpyro.sample("B", tables(hyper))
    score = safe_log(probabilities(A, B, data.cells)).T
    with numpyro.plate("cell", score.shape[0]):
        numpyro.sample("rating", Levels(hyper.levels, score), obs=data.y)


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> Levels:
    """The levels; a user or item without training data has the mean of the prior."""
    A, B = p
    if isinstance(query, Query):
        A = jnp.concatenate([A, jnp.full_like(A[:1], 1 / A.shape[-1])])
        B = jnp.concatenate([B, tables(hyper).mean[None].astype(B.dtype)])
        # the code of a new label is -1, or less if its features were given; urp does not use features
        row, col = jnp.asarray(query.row), jnp.asarray(query.col)
        query = Query(jnp.where(row < 0, len(A) - 1, row), jnp.where(col < 0, len(B) - 1, col))
    return Levels(hyper.levels, safe_log(jnp.moveaxis(probabilities(A, B, query), 0, -1)))


def example(key: jax.Array) -> tuple[Ratings, Hyper]:
    """Seven users, five items, four levels; concentrations above 1 keep the mode inside the simplex."""
    data = few_ratings(key, levels=4)
    return data, prepare(data, Hyper(3, alpha=1.4, eta=1.2, pull=4.0))


# fmt: off
METHOD = register(Method(
    name="urp", cite="marlin2003urp", data=Ratings, Params=Params, Hyper=Hyper, init=init,
    objective=objective, model=model, predict=predict, example=example, prepare=prepare,
    solver=Solver(update=update),
    gibbs=Sampler(conditionals={"A": conditional_A, "B": conditional_B}, augment=augment),
    variational=VARIATIONAL, choose=Choose(candidates=choices, sweeps=80),
    axes=Axes(
        dims={"A": ("user", "attitude"), "B": ("item", "attitude", "level")},
        gauge=(Permutation({"A": 1, "B": 1}, "attitude", exact=False),),
    ),
))
# fmt: on
