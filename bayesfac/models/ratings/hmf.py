r"""Hierarchical matrix factorization: one bi-level margin factorization for each cut between levels.

Kumar, Pujari, Sahu, Kagita & Padmanabhan, "Collaborative Filtering Using Multiple Binary Maximum Margin
Matrix Factorizations", Information Sciences 2017; Kumar's thesis, Hyderabad 2018, algorithms 3 and 4.

    J = sum_{q=1}^{R-1} [ sum_ij h(y_ij^q x_ij^q) + lambda_q/2 (|U^q|^2 + |V^q|^2)
                          + 1/(2 s_b^2) (|b^q|^2 + |c^q|^2) ]
    y_ij^q = -1 if y_ij <= q else +1                                                     (eq. 3.17)
    x_ij^q = m^q + b_i^q + c_j^q + u_i^q.v_j^q

    paper        here       shape
    U^q, V^q     U, V       stages x users x K, stages x items x K
    -            bias_user, bias_item   stages x users, stages x items: b and c   (None without biases)
    -            offset     m, a number for each stage
    -            scale_bias s_b
    lambda_q     penalty    a number, or one for each stage
    theta        cut        stage q predicts "at most q" where x < cut

The method predicts ratings with R levels. Stage q separates the levels up to q from the higher ones. The
predicted level is the first q whose stage predicts "at most q", or else the highest level (eq. 3.18). The
stages share no parameters, so one program fits all of them together (PHMF, algorithm 4). Fitting them one
after another (HMF, algorithm 3) reaches the same optima. The posterior is that of R - 1 independent `bmmmf`,
and a *generalised* one. As a distribution over levels, P(y_ij = c) is proportional to exp(-J) as a function
of y_ij.
"""

from math import isfinite
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro

from bayesfac.core import checks
from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.data.ratings import Ratings, few_ratings
from bayesfac.core.laws.ordinal import Levels, averaged, codes, levelled
from bayesfac.core.math import inner
from bayesfac.core.method import Axes, Choose, Method, Rotation, Solver, register
from bayesfac.parts.observed import margins


class Params(NamedTuple):
    U: jax.Array
    V: jax.Array
    bias_user: jax.Array | None = None
    bias_item: jax.Array | None = None


class Hyper(NamedTuple):
    n_components: int = 10
    # a number, or one for each stage; None: one for all, by held-out ratings
    penalty: float | tuple[float, ...] | None = None
    loss: str = "smooth_hinge"
    cut: float = 0.0
    biases: bool = True  # of users and items; the paper has none
    scale_bias: float = 0.5
    offset: tuple[float, ...] | None = None  # None: the best x if all users and items are alike
    levels: tuple[float, ...] | None = None  # None: the levels in the data


def penalties(hyper: Hyper) -> tuple[float, ...]:
    """One penalty for each stage."""
    each = hyper.penalty
    return each if isinstance(each, tuple) else (each,) * (len(hyper.levels) - 1)


def prepare(data: Ratings, hyper: Hyper) -> Hyper:
    hyper = margins.penalised(data, levelled(data, hyper, "hmf"))
    stages = len(hyper.levels) - 1
    each = tuple(map(float, penalties(hyper)))
    if len(each) != stages or not all(0 < number < jnp.inf for number in each):
        raise ValueError(f"Expected a penalty above 0, or {stages} of them, got {each!r}")
    hyper = hyper._replace(penalty=each)
    checks.positive(hyper, "scale_bias")
    checks.smooth_loss(hyper)
    if hyper.offset is None:
        usual = margins.alike(data, hyper.loss) if hyper.biases else (0.0,) * stages
        hyper = hyper._replace(offset=tuple(-threshold for threshold in usual))
    offset = tuple(map(float, hyper.offset))
    if len(offset) != stages or not all(map(isfinite, offset)):
        raise ValueError(
            f"Expected {stages} finite offsets, one for each stage, got {hyper.offset!r}"
        )
    return hyper._replace(offset=offset)


def init(key: jax.Array, data: Ratings, hyper: Hyper) -> Params:
    stages = len(hyper.levels) - 1
    biases = margins.start_biases(key, data.shape, hyper, ("user", "item"), stages)
    return Params(*margins.start_factors(key, data.shape, hyper.n_components, (stages,)), **biases)


def joined(p: Params, hyper: Hyper, which: Any = slice(None)) -> tuple[jax.Array, jax.Array]:
    """Tables of users and items whose products are x, for the stages of p; `which` says which these are."""
    offset = jnp.asarray(hyper.offset, p.U.dtype)[which]
    return margins.joined(p.U, p.V, p.bias_item, p.bias_user, offset)


def terms(p: Params, data: Ratings, hyper: Hyper, which: jax.Array) -> jax.Array:
    """J of the stages in `which`; stage q is a bmmmf of y > q (algorithm 4)."""
    x, rows = inner(*joined(p, hyper, which), data.cells), data.cells.by_row
    likes = (codes(data) > which[:, None]).astype(jnp.int32)
    zero = jnp.zeros((len(x), data.n_users, 1), x.dtype)
    ridge = margins.factor_energy(p.U, p.V, jnp.asarray(hyper.penalty, x.dtype)[which])
    ridge += margins.bias_energy(hyper, p.bias_user, p.bias_item)
    return margins.total_ordinal(x, zero, likes, rows, None, hyper.loss) + ridge


def objective(p: Params, data: Ratings, hyper: Hyper) -> jax.Array:
    return jnp.sum(terms(p, data, hyper, jnp.arange(len(hyper.levels) - 1)))


def likelihood(x: jax.Array, hyper: Hyper) -> margins.Margins:
    """The likelihood of all stages, x of shape (..., stages); stage q compares the threshold -x^q with 0."""
    return margins.Margins(hyper.levels, jnp.zeros(x.shape[:-1], x.dtype), -x, hyper.loss)


def model(data: Ratings, hyper: Hyper) -> None:
    scale = jnp.asarray(hyper.penalty)[:, None, None] ** -0.5
    stack = ("stage", len(hyper.levels) - 1)
    U, V = margins.sample_factors(data.shape, hyper.n_components, scale, stack)
    p = Params(U, V, **margins.sample_biases(data.shape, hyper, ("user", "item"), stack))
    x = jnp.moveaxis(inner(*joined(p, hyper), data.cells), 0, -1)
    with numpyro.plate("cell", x.shape[0]):
        numpyro.sample("rating", likelihood(x, hyper), obs=data.y)


def cascade(x: jax.Array, cut: float) -> jax.Array:
    """Eq. 3.18, with levels from 0: the first stage with x < cut, else the last level."""
    below = x < cut
    return jnp.where(below.any(-1), jnp.argmax(below, -1), x.shape[-1])


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> Levels:
    """The levels, chosen by the first stage below its cut; rows of new users and items are prior draws."""
    U, V = joined(p, hyper)

    def stages(cells: Query | Grid) -> list:
        each = zip(U, V, penalties(hyper), hyper.offset, strict=True)
        return [margins.products(u, v, cells, penalty, hyper, m) for u, v, penalty, m in each]

    def levels(x: list) -> Levels:
        return likelihood(jnp.stack(x, -1), hyper).levels()

    def law(cells: Query | Grid) -> tuple:
        every = stages(cells)

        def at(point: jax.Array) -> Levels:
            own = jnp.split(point, len(every))  # the stages are independent
            return levels([draw(part) for (_, draw), part in zip(every, own, strict=True)])

        return levels([mean for mean, _ in every]), at

    mean, dim = jnp.stack([mean for mean, _ in stages(query)], -1), len(U)
    return averaged(law, dim * (1 + U.shape[-1]), query, cascade(mean, hyper.cut))


def example(key: jax.Array) -> tuple[Ratings, Hyper]:
    data = few_ratings(key, levels=4)
    return data, prepare(data, Hyper(2, penalty=(0.7, 1.1, 0.9)))


# fmt: off
METHOD = register(Method(
    name="hmf", cite="kumar2017hmf", data=Ratings, Params=Params, Hyper=Hyper, init=init,
    objective=objective, model=model, predict=predict, example=example, prepare=prepare,
    solver=Solver(terms=terms), choose=Choose(candidates=margins.choices),
    axes=Axes(
        dims={site: ("stage", *axes) for site, axes in margins.DIMS.items()},
        gauge=(Rotation(("U", "V"), {"U": 2, "V": 2}, each=True),),
    ),
))
# fmt: on
