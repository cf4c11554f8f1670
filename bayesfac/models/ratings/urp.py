r"""User rating profiles (URP): every user a mixture of attitudes, by EM.

Marlin, "Modeling User Rating Profiles for Collaborative Filtering", NIPS 2003.

    P(y_ij = r) = sum_k A_ik B_jkr
    J(A, B) = - sum_ij log P(y_ij) - (alpha - 1) sum log A - (eta - 1) sum log B

    paper      here     shape
    theta_i    A        users x K           the attitudes of a user, summing to one
    beta_v^z   B        items x K x R       what an attitude gives an item, summing to one over levels
    z          z        cells               the attitude behind a rating: drawn by Gibbs only
    alpha      alpha    one number for all attitudes, given, not learned; eta is ours (1 in the paper)

Marlin fits by variational EM, with a Dirichlet q(theta_i) for each user. A point fit here is the mode of the
joint that the NumPyro model has, so its solver is the exact EM for that mode, from the posterior
A_ik B_jkr / P(y_ij = r) of z; a variational posterior is what `bf.SVI` gives. Marlin predicts the median
level, which has the least expected absolute error. Gauge: the order of the attitudes.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfac.core import checks
from bayesfac.core.data.cells import Cells, Grid, Query
from bayesfac.core.data.ratings import Ratings, few_ratings
from bayesfac.core.laws.ordinal import Levels, codes, levelled
from bayesfac.core.math import inner, normalise, safe_log
from bayesfac.core.method import Method, Permutation, register


class Params(NamedTuple):
    A: jax.Array
    B: jax.Array


class Hyper(NamedTuple):
    n_components: int = 5
    alpha: float = 2.0
    eta: float = 1.3
    levels: tuple[float, ...] | None = None  # None: those of the data


def prepare(data: Ratings, hyper: Hyper) -> Hyper:
    hyper = levelled(data, hyper, "urp")
    checks.at_least_one(hyper, "alpha", "eta")
    return hyper


def init(key: jax.Array, data: Ratings, hyper: Hyper) -> Params:
    """Rows drawn near the uniform: far enough apart to break the symmetry."""
    ka, kb = jax.random.split(key)
    K, R = hyper.n_components, len(hyper.levels)
    A = jax.random.dirichlet(ka, jnp.full(K, 5.0), (data.n_users,))
    return Params(A, jax.random.dirichlet(kb, jnp.full(R, 5.0), (data.n_items, K)))


def chances(A: jax.Array, B: jax.Array, at: Cells | Query | Grid) -> jax.Array:
    """P(y_ij = r) at the cells asked for, levels x cells: one inner product for each level."""
    tables = jnp.moveaxis(B, -1, 0)
    return inner(jnp.broadcast_to(A, (len(tables), *A.shape)), tables, at)


def log_likelihood(p: Params, data: Ratings) -> jax.Array:
    given = codes(data) == jnp.arange(p.B.shape[-1])[:, None]
    return jnp.sum(safe_log(jnp.sum(jnp.where(given, chances(*p, data.cells), 0), 0)))


def objective(p: Params, data: Ratings, hyper: Hyper) -> jax.Array:
    prior = (hyper.alpha - 1) * jnp.sum(safe_log(p.A)) + (hyper.eta - 1) * jnp.sum(safe_log(p.B))
    return -log_likelihood(p, data) - prior


def update(p: Params, data: Ratings, hyper: Hyper) -> Params:
    """One EM iteration: both blocks from the same posterior of z.

    Its expected counts are sum_j A_ik B_jkr / P(y_ij = r): the parameters times their slopes.
    """
    counts = jax.tree.map(jnp.multiply, p, jax.grad(log_likelihood)(p, data))
    A = normalise(hyper.alpha - 1 + counts.A, p.A)
    return Params(A, normalise(hyper.eta - 1 + counts.B, p.B))


def augment(p: Params, data: Ratings, hyper: Hyper) -> dist.Distribution:
    """z of every cell, in proportion to A_ik B_jkr."""
    joint = p.A[data.cells.row] * p.B[data.cells.col, :, codes(data)]
    return dist.Categorical(logits=safe_log(joint))


def conditional_A(p: Params, data: Ratings, hyper: Hyper, z: jax.Array) -> dist.Distribution:
    """A_i | z: how often user i spoke with each attitude."""
    return dist.Dirichlet(jnp.full_like(p.A, hyper.alpha).at[data.cells.row, z].add(1))


def conditional_B(p: Params, data: Ratings, hyper: Hyper, z: jax.Array) -> dist.Distribution:
    """B_jk | z, y: how often attitude k gave item j each level."""
    at = data.cells.col, z, codes(data)
    return dist.Dirichlet(jnp.full_like(p.B, hyper.eta).at[at].add(1))


def model(data: Ratings, hyper: Hyper) -> None:
    (n, m), K, R = data.shape, hyper.n_components, len(hyper.levels)
    with numpyro.plate("user", n):
        A = numpyro.sample("A", dist.Dirichlet(jnp.full(K, hyper.alpha)))
    with numpyro.plate("item", m, dim=-2), numpyro.plate("attitude", K, dim=-1):
        B = numpyro.sample("B", dist.Dirichlet(jnp.full(R, hyper.eta)))
    score = safe_log(chances(A, B, data.cells)).T
    with numpyro.plate("cell", score.shape[0]):
        numpyro.sample("rating", Levels(hyper.levels, score), obs=data.y)


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> Levels:
    """The levels; a user or item that training never saw has its prior's mean: all alike."""
    A, B = p
    if isinstance(query, Query):
        A = jnp.concatenate([A, jnp.full_like(A[:1], 1 / A.shape[-1])])
        B = jnp.concatenate([B, jnp.full_like(B[:1], 1 / B.shape[-1])])
        query = Query(jnp.asarray(query.row) % len(A), jnp.asarray(query.col) % len(B))
    return Levels(hyper.levels, safe_log(jnp.moveaxis(chances(A, B, query), 0, -1)))


def example(key: jax.Array) -> tuple[Ratings, Hyper]:
    """Seven users, five items, four levels; concentrations above one keep the mode inside."""
    data = few_ratings(key, levels=4)
    return data, prepare(data, Hyper(3, alpha=1.4, eta=1.2))


# fmt: off
METHOD = register(Method(
    name="urp", cite="marlin2003urp", data=Ratings, Params=Params, Hyper=Hyper,
    init=init, objective=objective, model=model, predict=predict, example=example,
    update=update, prepare=prepare,
    conditionals={"A": conditional_A, "B": conditional_B}, augment=augment,
    gauge=(Permutation({"A": 1, "B": 1}, "attitude"),),
    dims={"A": ("user", "attitude"), "B": ("item", "attitude", "level")},
))
# fmt: on
