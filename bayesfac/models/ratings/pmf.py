r"""Probabilistic matrix factorization, by alternating least squares.

Salakhutdinov & Mnih, "Probabilistic Matrix Factorization", NIPS 2007, eq. 1-4. The method predicts ratings
that are real numbers. The paper uses gradient descent; here ALS solves the ridge regression of every row
exactly. With `biases`, which the paper does not have, every user and item also has its own offset. Features
of users and items shift the prior means of their rows and biases (Macau, `parts/links.py`).

    J(U, V) = 1/(2 s^2) sum_ij (y_ij - m - b_i - c_j - u_i.v_j)^2
            + 1/2 (|U|^2/s_u^2 + |V|^2/s_v^2) + 1/2 (|b|^2 + |c|^2)/s_b^2

    paper      here        shape
    U^T, V^T   U, V        users x K, items x K
    -          bias_user, bias_item   users, items: b and c   (None without biases)
    -          B, C, ridge   with features, u_i - B'x_i replaces u_i in J, and b_i - C'x_i replaces b_i
    sigma      noise       the standard deviation of a rating about its mean
    sigma_U/V  scale_user, scale_item

m, the mean rating, is fixed. `bf.fit` first chooses the scales of U and V by held-out ratings. Then it
chooses the noise and multiplies all scales by the same factor, so that the mode stays. If there are too few
ratings to choose, `prepare` sets fractions of the ratings' standard deviation: u.v has 5 % of their variance
in the prior.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfac.core import checks
from bayesfac.core.data.ratings import Ratings, few_ratings
from bayesfac.core.kernels.sparse import spread
from bayesfac.core.math import inner, pick, total
from bayesfac.core.method import Choose, Notes, register
from bayesfac.core.programs import compiled_for
from bayesfac.parts import links
from bayesfac.parts.composition import composed
from bayesfac.parts.matrix import Matrix
from bayesfac.parts.observed.normal import GivenNoise
from bayesfac.parts.priors import bias, ridge

SHARE = 0.8  # the noise in standard deviations of the ratings, if it is not chosen
ROWS = ridge("user", "U", "scale_user"), ridge("item", "V", "scale_item")
BIASES = bias("user", "scale_bias"), bias("item", "scale_bias")


class Params(NamedTuple):
    U: jax.Array
    V: jax.Array
    bias_user: jax.Array | None = None
    bias_item: jax.Array | None = None
    B: dict[str, jax.Array] | None = None
    C: dict[str, jax.Array] | None = None
    ridge: dict[str, jax.Array] | None = None


class Hyper(NamedTuple):
    n_components: int = 10
    biases: bool = True
    noise: float | None = None  # None: chosen, or 0.8 standard deviations of the ratings
    scale_user: float | None = None  # None: chosen, or so that K s_u^2 s_v^2 is 5 % of the variance
    scale_item: float | None = None
    scale_bias: float | None = None  # None: half a standard deviation of the ratings
    offset: float | None = None  # None: the mean rating
    ridge_shape: float = 1.0  # ridge ~ Gamma(shape, rate): precision of B, C in units of rows
    ridge_rate: float = 0.1


def offsets(p: Params, cells: Any, h: Hyper) -> jax.Array | float:
    """m + b_i + c_j."""
    if p.bias_user is None:
        return h.offset
    return h.offset + pick(p.bias_user, cells.row) + pick(p.bias_item, cells.col)


def objective(p: Params, data: Ratings, h: Hyper) -> jax.Array:
    """Eq. 4, with biases and Macau's links."""
    rest = data.y - offsets(p, data.cells, h) - inner(p.U, p.V, data.cells)
    J = 0.5 * total(rest**2, data.cells) / h.noise**2
    sides = [*ROWS, *(BIASES if h.biases else ())]
    for side in sides:
        J += 0.5 * jnp.sum(side.unlinked(p, data) ** 2) / getattr(h, side.precision.sd) ** 2
    return J + links.energy(sides, p, h)


def model(data: Ratings, h: Hyper) -> None:
    """Eq. 1-3, with biases and Macau's links."""
    K, factors, b = h.n_components, [], []
    for rows, biases, n in zip(ROWS, BIASES, data.shape, strict=True):
        sd, linked = getattr(h, rows.precision.sd), [rows, biases] if h.biases else [rows]
        P = jnp.eye(K) / sd**2, jnp.eye(1) / h.scale_bias**2
        means = links.sampled(linked, data, P[: len(linked)], h)
        with numpyro.plate(rows.axis, n):
            centre = means[0] + jnp.zeros(K)
            factors.append(numpyro.sample(rows.rows, dist.Normal(centre, sd).to_event(1)))
            if h.biases:
                centre = means[1][:, 0] if jnp.ndim(means[1]) else 0.0
                b.append(numpyro.sample(biases.rows, dist.Normal(centre, h.scale_bias)))
    U, V = factors
    mean = offsets(Params(U, V, *b), data.cells, h) + inner(U, V, data.cells)
    with numpyro.plate("cell", mean.shape[0]):
        numpyro.sample("rating", dist.Normal(mean, h.noise), obs=data.y)


def prepare(data: Ratings, h: Hyper) -> Hyper:
    checks.count(h, "n_components", min(data.shape), "the smaller of users and items")
    scale = (data.spread**2 / 20 / h.n_components) ** 0.25
    h = checks.filled(h, noise=SHARE * data.spread, scale_user=scale, scale_item=scale)
    h = checks.filled(h, scale_bias=0.5 * data.spread, offset=data.mean)
    checks.positive(h, "noise", "scale_user", "scale_item", "scale_bias")
    checks.positive(h, "ridge_shape", "ridge_rate")
    return h


def choices(data: Ratings, hyper: Hyper, chosen: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Candidates: scales of the factors at the default noise; then the noise with all scales not given."""
    free = [name for name in ("scale_user", "scale_item") if getattr(hyper, name) is None]
    first = prepare(data, checks.sized(hyper, data)._replace(**chosen))
    if free and free[0] not in chosen:
        steps = [10 ** (-step / 8) for step in range(-6, 7)]
        return [{name: getattr(first, name) * step for name in free} for step in steps]
    if hyper.noise is None and "noise" not in chosen:
        free = ["noise", *free, *(["scale_bias"] if hyper.scale_bias is None else [])]
        steps = [10 ** (-step / 8) for step in range(-4, 9)]
        return [{name: getattr(first, name) * step for name in free} for step in steps]
    return []


def start(key: jax.Array, data: Ratings, hyper: Hyper) -> Params:
    """Start a point fit with regularised biases, and V along the leading directions of the residuals.

    With random factors and little noise, ALS ends in poor minima on every second small table. V comes from
    the power method on the residuals, with zeros in cells without a rating; the solver begins with U.
    """
    return _start(key, data, hyper.n_components, hyper.biases, tuple(hyper[2:]))


@compiled_for(2, 3, once=True)  # one compiled program for all scales
def _start(key: jax.Array, data: Ratings, K: int, biases: bool, numbers: tuple) -> Params:
    h = Hyper(K, biases, *numbers)
    begin = METHOD.init(key, data, h)
    p = jax.tree.map(jnp.zeros_like, begin)._replace(ridge=begin.ridge)

    def bias_step(_: int, p: Params) -> Params:
        for site in ("bias_user", "bias_item") if biases else ():
            p = p._replace(**{site: METHOD.gibbs.conditionals[site](p, data, h).mean})
        return p

    p = jax.lax.fori_loop(0, 10, bias_step, p)
    rest = data.y - offsets(p, data.cells, h)

    def power_step(_: int, V: jax.Array) -> jax.Array:
        U = spread(data.cells.by_row, rest, V)
        return jnp.linalg.qr(spread(data.cells.by_col, rest, U))[0]

    V = jax.lax.fori_loop(0, 10, power_step, jax.random.normal(key, p.V.shape))
    return p._replace(V=h.scale_item * len(V) ** 0.5 * V)


def remarks(p: Params, data: Ratings, hyper: Hyper) -> list[str]:
    """A note if the noise was not chosen."""
    if hyper.noise != SHARE * data.spread:
        return []
    return [
        f"noise={hyper.noise:.4g} is {SHARE} standard deviations of the ratings, because it was not chosen "
        "(`bf.fit` needs 500 ratings for that): intervals and log scores depend on it; noise= sets it"
    ]


def example(key: jax.Array) -> tuple[Ratings, Hyper]:
    """Seven users, five items, about three in four cells observed; with biases, so that all blocks exist."""
    data = few_ratings(key)
    hyper = Hyper(2, biases=True, noise=0.7, scale_user=0.8, scale_item=0.9, scale_bias=0.6)
    return data, prepare(data, hyper)


METHOD = register(
    composed(
        "pmf", cite="salakhutdinov2007pmf", home=__name__, data=Ratings, Params=Params, Hyper=Hyper,
        structure=Matrix(ROWS, BIASES), observed=GivenNoise(),
        order=("U", "V", "bias_user", "bias_item", "B", "C", "ridge"), objective=objective, model=model,
        example=example, prepare=prepare,
        solver=dict(start=start), gibbs=dict(divisible=True), choose=Choose(candidates=choices),
        notes=Notes(remarks=remarks),
    )
)  # fmt: skip
