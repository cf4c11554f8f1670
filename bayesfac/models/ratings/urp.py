r"""User rating profiles (URP): every user a mixture of attitudes, by EM.

Marlin, "Modeling User Rating Profiles for Collaborative Filtering", NIPS 2003.

    P(y_ij = r) = sum_k A_ik B_jkr
    J(A, B) = - sum_ij log P(y_ij) - (alpha - 1) sum log A - (eta - 1) sum log B

    paper      here     shape
    theta_i    A        users x K           probabilities of a user's attitudes, sum to one
    beta_v^z   B        items x K x R       probabilities of an item's levels given an attitude, sum to one
    z          z        cells               the attitude behind a rating; only Gibbs draws z
    alpha      alpha    one number for all attitudes, fixed; eta is ours (1 in the paper)

Marlin fits by variational EM, with a Dirichlet q(theta_i) for each user; `bf.VB` does so here, with laws of B
too (`core/laws/dirichlet_rows.py`). The solver finds the mode of the NumPyro model's joint by exact EM, from
the posterior A_ik B_jkr / P(y_ij = r) of z. As in the paper, the predicted level is the median, which has the
least expected absolute error. Gauge: the order of the attitudes.

The groups are what the model is for: it predicts worse than regularised biases on MovieLens-100K (figures in
docs/ratings.md), as nothing that one attitude learns of an item helps the others.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfac.core import checks
from bayesfac.core.data.cells import Cells, Grid, Query
from bayesfac.core.data.ratings import Ratings, few_ratings
from bayesfac.core.laws import dirichlet_rows
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
    """Random rows near the uniform, different enough to break the symmetry of the attitudes."""
    ka, kb = jax.random.split(key)
    K, R = hyper.n_components, len(hyper.levels)
    A = jax.random.dirichlet(ka, jnp.full(K, 5.0), (data.n_users,))
    return Params(A, jax.random.dirichlet(kb, jnp.full(R, 5.0), (data.n_items, K)))


def probabilities(A: jax.Array, B: jax.Array, query: Cells | Query | Grid) -> jax.Array:
    """P(y_ij = r) at the cells of the query, levels x cells: one inner product for each level."""
    tables = jnp.moveaxis(B, -1, 0)
    return inner(jnp.broadcast_to(A, (len(tables), *A.shape)), tables, query)


def seen(p: Params, data: Ratings) -> tuple[jax.Array, jax.Array]:
    """P(y_ij) of the ratings, and how often each counts: once."""
    own = codes(data) == jnp.arange(p.B.shape[-1])[:, None]
    return jnp.sum(jnp.where(own, probabilities(*p, data.cells), 0), 0), jnp.ones_like(data.y)


def log_likelihood(p: Params, data: Ratings) -> jax.Array:
    return jnp.sum(safe_log(seen(p, data)[0]))


def objective(p: Params, data: Ratings, hyper: Hyper) -> jax.Array:
    prior = (hyper.alpha - 1) * jnp.sum(safe_log(p.A)) + (hyper.eta - 1) * jnp.sum(safe_log(p.B))
    return -log_likelihood(p, data) - prior


def update(p: Params, data: Ratings, hyper: Hyper) -> Params:
    """One EM iteration: both blocks from the same posterior of z.

    The expected counts sum_j A_ik B_jkr / P(y_ij = r) are the parameters times the log likelihood's slopes.
    """
    counts = jax.tree.map(jnp.multiply, p, jax.grad(log_likelihood)(p, data))
    A = normalise(hyper.alpha - 1 + counts.A, p.A)
    return Params(A, normalise(hyper.eta - 1 + counts.B, p.B))


def augment(p: Params, data: Ratings, hyper: Hyper) -> dist.Distribution:
    """z of every cell, with probability proportional to A_ik B_jkr."""
    joint = p.A[data.cells.row] * p.B[data.cells.col, :, codes(data)]
    return dist.Categorical(logits=safe_log(joint))


def conditional_A(p: Params, data: Ratings, hyper: Hyper, z: jax.Array) -> dist.Distribution:
    """A_i | z: a Dirichlet with the counts of each attitude in the ratings of user i."""
    return dist.Dirichlet(jnp.full_like(p.A, hyper.alpha).at[data.cells.row, z].add(1))


def conditional_B(p: Params, data: Ratings, hyper: Hyper, z: jax.Array) -> dist.Distribution:
    """B_jk | z, y: a Dirichlet with the counts of each level that attitude k gave item j."""
    return dist.Dirichlet(jnp.full_like(p.B, hyper.eta).at[data.cells.col, z, codes(data)].add(1))


VARIATIONAL = dirichlet_rows.record(seen, lambda hyper: {"A": hyper.alpha, "B": hyper.eta})


def model(data: Ratings, hyper: Hyper) -> None:
    (n, m), K, R = data.shape, hyper.n_components, len(hyper.levels)
    with numpyro.plate("user", n):
        A = numpyro.sample("A", dist.Dirichlet(jnp.full(K, hyper.alpha)))
    with numpyro.plate("item", m, dim=-2), numpyro.plate("attitude", K, dim=-1):
        B = numpyro.sample("B", dist.Dirichlet(jnp.full(R, hyper.eta)))
    score = safe_log(probabilities(A, B, data.cells)).T
    with numpyro.plate("cell", score.shape[0]):
        numpyro.sample("rating", Levels(hyper.levels, score), obs=data.y)


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> Levels:
    """The levels; a user or item without training data has the prior mean, which is uniform."""
    A, B = p
    if isinstance(query, Query):
        A = jnp.concatenate([A, jnp.full_like(A[:1], 1 / A.shape[-1])])
        B = jnp.concatenate([B, jnp.full_like(B[:1], 1 / B.shape[-1])])
        # codes of new labels are -1, or less where features were given, which urp does not read
        row, col = jnp.asarray(query.row), jnp.asarray(query.col)
        query = Query(jnp.where(row < 0, len(A) - 1, row), jnp.where(col < 0, len(B) - 1, col))
    return Levels(hyper.levels, safe_log(jnp.moveaxis(probabilities(A, B, query), 0, -1)))


def example(key: jax.Array) -> tuple[Ratings, Hyper]:
    """Seven users, five items, four levels; concentrations above 1 keep the mode off the boundary."""
    data = few_ratings(key, levels=4)
    return data, prepare(data, Hyper(3, alpha=1.4, eta=1.2))


# fmt: off
METHOD = register(Method(
    name="urp", cite="marlin2003urp", data=Ratings, Params=Params, Hyper=Hyper,
    init=init, objective=objective, model=model, predict=predict, example=example,
    update=update, prepare=prepare,
    conditionals={"A": conditional_A, "B": conditional_B}, augment=augment, variational=VARIATIONAL,
    gauge=(Permutation({"A": 1, "B": 1}, "attitude"),),
    dims={"A": ("user", "attitude"), "B": ("item", "attitude", "level")},
))
# fmt: on
