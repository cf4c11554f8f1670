r"""Maximum margin matrix factorization of ordinal ratings, by L-BFGS.

Rennie & Srebro, "Fast Maximum Margin Matrix Factorization for Collaborative Prediction", ICML 2005; as in
Kumar's thesis, "Collaborative Filtering and Multi-Label Classification with Matrix Factorization",
Hyderabad 2018, eq. 3.12-3.16.

    J(U, V, theta, b) = sum_ij sum_{r=1}^{R-1} h(T_ij^r (theta_ir - x_ij)) + lambda/2 (|U|^2 + |V|^2)
                      + 1/(2 s^2) sum_ir (theta_ir - c_r)^2 + 1/(2 s_b^2) |b|^2
    x_ij = u_i.v_j + b_j,      T_ij^r = +1 if r >= y_ij else -1

    paper      here        shape
    U, V       U, V        users x K, items x K
    theta      theta       users x R - 1
    -          bias_item   items: b   (None without biases)
    lambda     penalty
    h          loss        smooth_hinge (the paper), logistic, modified_square
    s, c       scale_theta, centres
    s_b        scale_bias

The method predicts ratings with ordered levels. Each user has R - 1 thresholds, and the loss asks that each
threshold lies on the right side of x, with a margin. The paper has no b and no prior of thresholds: these are
`biases=False` and `scale_theta=inf`. Without b, most fits to few ratings a user are worse than biases of
users and items. Without the prior, a threshold beyond all levels that a user gave may lie anywhere past the
margin, and the posterior is improper. The centres c are the thresholds that fit best if all users and items
are alike, so a user with few ratings is close to the average user. The printed rule for predictions is off
by one: the level is 1 + the number of thresholds below x. exp(-loss) does not sum to one over the levels, so
the posterior is a *generalised* one, that is exp(-J), normalised over the parameters only. `ordinal_mf` has
a proper likelihood on the same thresholds.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro

from bayesfac.core import checks
from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.data.ratings import Ratings, few_ratings
from bayesfac.core.laws.ordinal import Levels, codes, levelled
from bayesfac.core.math import inner, real_cells, total, total_of_rows
from bayesfac.core.method import Axes, Choose, Method, Rotation, Solver, register
from bayesfac.parts.observed import margins


class Params(NamedTuple):
    U: jax.Array
    V: jax.Array
    theta: jax.Array
    bias_item: jax.Array | None = None


class Hyper(NamedTuple):
    n_components: int = 10
    penalty: float | None = None  # None: chosen by held-out ratings, or by the size of the data
    loss: str = "smooth_hinge"
    construction: str = "all"  # or "immediate": only the thresholds next to a rating's level
    scale_theta: float = 1.0
    centres: tuple[float, ...] | None = None  # None: best if all users are alike
    biases: bool = True  # of items; the paper has none
    scale_bias: float = 0.5
    levels: tuple[float, ...] | None = None  # None: the levels in the data


def prepare(data: Ratings, hyper: Hyper) -> Hyper:
    hyper = margins.penalised(data, levelled(data, hyper, "mmmf"))
    checks.positive(hyper, "penalty", "scale_bias")
    checks.positive(hyper, "scale_theta", infinite=True)
    checks.smooth_loss(hyper)
    checks.one_of(hyper, "construction", ("all", "immediate"))
    return margins.centred(data, hyper)


def init(key: jax.Array, data: Ratings, hyper: Hyper) -> Params:
    """Draw factors whose products are small compared with the margin; thresholds are one apart."""
    U, V = margins.start_factors(key, data.shape, hyper.n_components)
    theta = margins.start_thresholds(hyper.centres, data.n_users)
    return Params(U, V, theta, **margins.start_biases(key, data.shape, hyper, ("item",)))


def objective(p: Params, data: Ratings, hyper: Hyper) -> jax.Array:
    x, cells = inner(*margins.joined(p.U, p.V, p.bias_item), data.cells), data.cells
    immediate = hyper.construction == "immediate"
    losses = x, p.theta, codes(data), cells.by_row, real_cells(cells), hyper.loss, immediate
    fit = total(margins.total_ordinal(*losses), cells)
    ridge = 0.5 * hyper.penalty * (total_of_rows(p.U**2, cells) + jnp.sum(p.V**2))
    ridge += margins.bias_energy(hyper, p.bias_item)
    return fit + ridge + margins.threshold_energy(p.theta, hyper.centres, hyper.scale_theta, cells)


def likelihood(x: jax.Array, theta: jax.Array, hyper: Hyper) -> margins.Margins:
    return margins.Margins(hyper.levels, x, theta, hyper.loss, hyper.construction == "immediate")


def model(data: Ratings, hyper: Hyper) -> None:
    U, V = margins.sample_factors(data.shape, hyper.n_components, hyper.penalty**-0.5)
    with numpyro.plate("user", data.n_users):
        theta = margins.sample_thresholds(hyper.centres, hyper.scale_theta)
    biases = margins.sample_biases(data.shape, hyper, ("item",))
    x = inner(*margins.joined(U, V, **biases), data.cells)
    with numpyro.plate("cell", data.cells.row.shape[0]):
        numpyro.sample("rating", likelihood(x, theta[data.cells.row], hyper), obs=data.y)


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> Levels:
    """The levels; rows of new users and items are drawn from their priors."""
    U, V = margins.joined(p.U, p.V, p.bias_item)

    def x(cells: Query | Grid) -> tuple:
        return margins.products(U, V, cells, hyper.penalty, hyper)

    def known(x: jax.Array, theta: jax.Array) -> Levels:
        return likelihood(x, theta, hyper).levels()

    prior = hyper.centres, hyper.scale_theta
    return margins.predicted(known, x, U.shape[1], p.theta, query, *prior)


def example(key: jax.Array) -> tuple[Ratings, Hyper]:
    data = few_ratings(key, levels=4)
    return data, prepare(data, Hyper(2, penalty=0.7, scale_theta=2.0))


# fmt: off
METHOD = register(Method(
    name="mmmf", cite="rennie2005mmmf", data=Ratings, Params=Params, Hyper=Hyper, init=init,
    objective=objective, model=model, predict=predict, example=example, prepare=prepare,
    solver=Solver(own_rows=("U", "theta")), choose=Choose(candidates=margins.choices),
    axes=Axes(
        dims=margins.DIMS | {"theta": ("user", "threshold")},
        gauge=(Rotation(("U", "V"), {"U": 1, "V": 1}, floating=True),),
    ),
))
# fmt: on
