r"""Bi-level maximum margin matrix factorization of likes and dislikes, by L-BFGS.

Srebro, Rennie & Jaakkola, "Maximum-Margin Matrix Factorization", NIPS 2004, with the smooth hinge of Rennie
& Srebro, ICML 2005; as in Kumar's thesis, Hyderabad 2018, eq. 3.7-3.10, algorithm 2.

    J(U, V, b, c) = sum_ij h(y_ij x_ij) + lambda/2 (|U|^2 + |V|^2) + 1/(2 s_b^2) (|b|^2 + |c|^2)
    x_ij = m + b_i + c_j + u_i.v_j,      y_ij = -1 or +1

    paper    here       shape
    U, V     U, V       users x K, items x K
    -        bias_user, bias_item   users, items: b and c   (None without biases)
    -        offset     m
    -        scale_bias s_b
    lambda   penalty
    h        loss       smooth_hinge (the paper), logistic, modified_square
    theta    cut        a like is predicted where x >= cut (eq. 3.4); the fit does not use it

The method predicts which of two levels a user gives, for example like or dislike. The lower of the two levels
is coded as -1. The paper has x = u.v, which is `biases=False`; this predicts worse than biases of users and
items if most ratings are likes, or if users have few ratings. Columns 7 in the thesis's Tables 3.4 and 3.5
are misprints: they repeat the first column. exp(-loss) sums to one over -1 and +1 for the logistic loss only.
For the other losses the posterior is a *generalised* one: exp(-J), normalised over the parameters only.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpyro

from bayesfac.core import checks
from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.data.ratings import Ratings, few_ratings
from bayesfac.core.laws.ordinal import Levels, averaged, codes, levelled
from bayesfac.core.math import inner
from bayesfac.core.method import Axes, Choose, Method, Rotation, register
from bayesfac.parts.observed import margins


class Params(NamedTuple):
    U: jax.Array
    V: jax.Array
    bias_user: jax.Array | None = None
    bias_item: jax.Array | None = None


class Hyper(NamedTuple):
    n_components: int = 10
    penalty: float | None = None  # None: chosen by held-out ratings, or by the size of the data
    loss: str = "smooth_hinge"
    cut: float = 0.0
    biases: bool = True  # of users and items; the paper has none
    scale_bias: float = 0.5
    offset: float | None = None  # None: the best x if all users and items are alike
    levels: tuple[float, ...] | None = None  # None: the levels in the data


def prepare(data: Ratings, hyper: Hyper) -> Hyper:
    if data.levels is not None and len(data.levels) != 2:
        raise ValueError(
            f"Expected two levels for bmmmf, got {len(data.levels)} {data.levels}: use hmf, which fits one "
            "bmmmf for each cut between levels, or ratings.above(level), which makes one such cut"
        )
    hyper = margins.penalised(data, levelled(data, hyper, "bmmmf"))
    checks.positive(hyper, "penalty", "scale_bias")
    checks.smooth_loss(hyper)
    return checks.filled(hyper, offset=-margins.alike(data, hyper.loss)[0] if hyper.biases else 0.0)


def init(key: jax.Array, data: Ratings, hyper: Hyper) -> Params:
    """Draw factors whose products are small compared with the margin."""
    biases = margins.start_biases(key, data.shape, hyper, ("user", "item"))
    return Params(*margins.start_factors(key, data.shape, hyper.n_components), **biases)


def joined(p: Params, hyper: Hyper) -> tuple[jax.Array, jax.Array]:
    """Tables of users and items whose products are x."""
    return margins.joined(p.U, p.V, p.bias_item, p.bias_user, hyper.offset)


def objective(p: Params, data: Ratings, hyper: Hyper) -> jax.Array:
    x, rows = inner(*joined(p, hyper), data.cells), data.cells.by_row
    zero = jnp.zeros((data.n_users, 1), x.dtype)  # one threshold at 0, so the margin is y x
    ridge = margins.factor_energy(p.U, p.V, hyper.penalty)
    ridge += margins.bias_energy(hyper, p.bias_user, p.bias_item)
    return margins.total_ordinal(x, zero, codes(data), rows, None, hyper.loss) + ridge


def likelihood(x: jax.Array, hyper: Hyper) -> margins.Margins:
    return margins.Margins(hyper.levels, x, jnp.zeros((1,), x.dtype), hyper.loss)


def model(data: Ratings, hyper: Hyper) -> None:
    U, V = margins.sample_factors(data.shape, hyper.n_components, hyper.penalty**-0.5)
    p = Params(U, V, **margins.sample_biases(data.shape, hyper, ("user", "item")))
    x = inner(*joined(p, hyper), data.cells)
    with numpyro.plate("cell", data.cells.row.shape[0]):
        numpyro.sample("rating", likelihood(x, hyper), obs=data.y)


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> Levels:
    """The higher level if x >= cut (eq. 3.4); rows of new users and items are drawn from their priors."""
    U, V = joined(p, hyper)

    def x(cells: Query | Grid) -> tuple:
        return margins.products(U, V, cells, hyper.penalty, hyper, hyper.offset)

    def law(cells: Query | Grid) -> tuple:
        mean, at = x(cells)
        return likelihood(mean, hyper).levels(), lambda point: likelihood(at(point), hyper).levels()

    liked = jnp.where(x(query)[0] >= hyper.cut, 1, 0)
    return averaged(law, 1 + U.shape[1], query, liked)


def example(key: jax.Array) -> tuple[Ratings, Hyper]:
    data = few_ratings(key, levels=2)
    return data, prepare(data, Hyper(2, penalty=0.7))


# fmt: off
METHOD = register(Method(
    name="bmmmf", cite="srebro2004mmmf", data=Ratings, Params=Params, Hyper=Hyper, init=init,
    objective=objective, model=model, predict=predict, example=example, prepare=prepare,
    choose=Choose(candidates=margins.choices),
    axes=Axes(dims=margins.DIMS, gauge=(Rotation(("U", "V"), {"U": 1, "V": 1}),)),
))
# fmt: on
