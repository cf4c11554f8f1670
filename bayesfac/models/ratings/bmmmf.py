r"""Bi-level maximum margin matrix factorization of likes and dislikes, by L-BFGS.

Srebro, Rennie & Jaakkola, "Maximum-Margin Matrix Factorization", NIPS 2004, with the smooth hinge of Rennie
& Srebro, ICML 2005; as in Kumar's thesis, Hyderabad 2018, eq. 3.7-3.10, algorithm 2.

    J(U, V) = sum_ij h(y_ij u_i.v_j) + lambda/2 (|U|^2 + |V|^2),        y_ij = -1 or +1

    paper    here       shape
    U, V     U, V       users x K, items x K
    lambda   penalty
    h        loss       smooth_hinge (the paper), logistic, modified_square
    theta    cut        a like is predicted where x >= cut (eq. 3.4); the fit does not use it

The method predicts which of two levels a user gives, for example like or dislike. The lower of the two levels
is coded as -1. Columns 7 in the thesis's Tables 3.4 and 3.5 are misprints: they repeat the first column.
exp(-loss) sums to one over -1 and +1 for the logistic loss only. For the other losses the posterior is a
*generalised* one: exp(-J), normalised over the parameters only.
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
from bayesfac.core.method import Method, Rotation, register
from bayesfac.models.ratings._shared import margins


class Params(NamedTuple):
    U: jax.Array
    V: jax.Array


class Hyper(NamedTuple):
    n_components: int = 10
    penalty: float | None = None  # None: chosen by held-out ratings, or by the size of the data
    loss: str = "smooth_hinge"
    cut: float = 0.0
    levels: tuple[float, ...] | None = None  # None: the levels in the data


def prepare(data: Ratings, hyper: Hyper) -> Hyper:
    if data.levels is not None and len(data.levels) != 2:
        raise ValueError(
            f"Expected two levels for bmmmf, got {len(data.levels)} {data.levels}: use hmf, which fits one "
            "bmmmf for each cut between levels, or ratings.above(level), which makes one such cut"
        )
    hyper = margins.penalised(data, levelled(data, hyper, "bmmmf"))
    checks.positive(hyper, "penalty")
    checks.smooth_loss(hyper)
    return hyper


def init(key: jax.Array, data: Ratings, hyper: Hyper) -> Params:
    """Draw factors whose products are small compared with the margin."""
    return Params(*margins.start_factors(key, data.shape, hyper.n_components))


def objective(p: Params, data: Ratings, hyper: Hyper) -> jax.Array:
    x, rows = inner(p.U, p.V, data.cells), data.cells.by_row
    zero = jnp.zeros((data.n_users, 1), x.dtype)  # one threshold at 0, so the margin is y x
    ridge = margins.factor_energy(p.U, p.V, hyper.penalty)
    return margins.total_ordinal(x, zero, codes(data), rows, None, hyper.loss) + ridge


def likelihood(x: jax.Array, hyper: Hyper) -> margins.Margins:
    return margins.Margins(hyper.levels, x, jnp.zeros((1,), x.dtype), hyper.loss)


def model(data: Ratings, hyper: Hyper) -> None:
    U, V = margins.sample_factors(data.shape, hyper.n_components, hyper.penalty**-0.5)
    with numpyro.plate("cell", data.cells.row.shape[0]):
        numpyro.sample("rating", likelihood(inner(U, V, data.cells), hyper), obs=data.y)


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> Levels:
    """The higher level if x >= cut (eq. 3.4); rows of new users and items are drawn from their priors."""

    def law(cells: Query | Grid) -> tuple:
        mean, at = margins.products(p.U, p.V, cells, hyper.penalty)
        return likelihood(mean, hyper).levels(), lambda point: likelihood(at(point), hyper).levels()

    mean, _ = margins.products(p.U, p.V, query, hyper.penalty)
    liked = jnp.where(mean >= hyper.cut, 1, 0)
    return averaged(law, 1 + hyper.n_components, query, liked)


def example(key: jax.Array) -> tuple[Ratings, Hyper]:
    data = few_ratings(key, levels=2)
    return data, prepare(data, Hyper(2, penalty=0.7))


# fmt: off
METHOD = register(Method(
    name="bmmmf", cite="srebro2004mmmf", data=Ratings, Params=Params, Hyper=Hyper,
    init=init, objective=objective, model=model, predict=predict, example=example,
    prepare=prepare, choices=margins.choices,
    gauge=(Rotation(("U", "V"), {"U": 1, "V": 1}),),
    dims={"U": ("user", "component"), "V": ("item", "component")},
))
# fmt: on
