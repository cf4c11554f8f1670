r"""Probabilistic matrix factorization, by alternating least squares.

Salakhutdinov & Mnih, "Probabilistic Matrix Factorization", NIPS 2007, eq. 1-4. The method predicts ratings
that are real numbers. The paper uses gradient descent; here ALS solves the ridge regression of every row
exactly. With `biases`, which the paper does not have, every user and item also has its own offset. Features
of users and items shift the prior means of their rows and biases (Macau, `_shared/links.py`).

Length: rows and biases each have their conditionals, their candidates of scales, and links to features.

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
from bayesfac.core.data.cells import Grid, Query, Rows
from bayesfac.core.data.ratings import Ratings, few_ratings
from bayesfac.core.kernels.sparse import spread
from bayesfac.core.laws import beliefs
from bayesfac.core.laws import link_beliefs as link
from bayesfac.core.laws.distributions import GaussianRows
from bayesfac.core.laws.normal_wishart import settled
from bayesfac.core.math import bilinear, inner, normals, pick, total
from bayesfac.core.method import Method, Rotation, register
from bayesfac.core.programs import compiled_for
from bayesfac.models.ratings._shared import links
from bayesfac.models.ratings._shared import pmf_features as features
from bayesfac.models.ratings._shared import variational as bound

SHARE = 0.8  # the noise in standard deviations of the ratings, if it is not chosen


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


def prepare(data: Ratings, hyper: Hyper) -> Hyper:
    checks.count(hyper, "n_components", min(data.shape), "the smaller of users and items")
    scale = (data.spread**2 / 20 / hyper.n_components) ** 0.25
    hyper = checks.filled(hyper, noise=SHARE * data.spread, scale_user=scale, scale_item=scale)
    hyper = checks.filled(hyper, scale_bias=0.5 * data.spread, offset=data.mean)
    checks.positive(hyper, "noise", "scale_user", "scale_item", "scale_bias")
    checks.positive(hyper, "ridge_shape", "ridge_rate")
    return hyper


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


def init(key: jax.Array, data: Ratings, hyper: Hyper) -> Params:
    ku, kv, kb, kc = jax.random.split(key, 4)
    n, m = data.shape
    U = hyper.scale_user * normals(ku, (n, hyper.n_components))
    V = hyper.scale_item * normals(kv, (m, hyper.n_components))
    more = links.start(data, hyper.n_components)
    if not hyper.biases:
        return Params(U, V, **more)
    b, c = normals(kb, (n,)), normals(kc, (m,))
    C = links.start(data, 1)["B"]
    return Params(U, V, hyper.scale_bias * b, hyper.scale_bias * c, C=C, **more)


def start(key: jax.Array, data: Ratings, hyper: Hyper) -> Params:
    """Start a point fit with regularised biases, and V along the leading directions of the residuals.

    With random factors and little noise, ALS ends in poor minima on every second small table. V comes from
    the power method on the residuals, with zeros in cells without a rating; the solver begins with U.
    """
    return _start(key, data, hyper.n_components, hyper.biases, tuple(hyper[2:]))


@compiled_for(2, 3, once=True)  # one compiled program for all scales
def _start(key: jax.Array, data: Ratings, K: int, biases: bool, numbers: tuple) -> Params:
    hyper = Hyper(K, biases, *numbers)
    begin = init(key, data, hyper)
    p = jax.tree.map(jnp.zeros_like, begin)._replace(ridge=begin.ridge)
    if biases:

        def bias_step(_: int, p: Params) -> Params:
            p = p._replace(bias_user=conditional_bias_user(p, data, hyper).mean)
            return p._replace(bias_item=conditional_bias_item(p, data, hyper).mean)

        p = jax.lax.fori_loop(0, 10, bias_step, p)
    rest = data.y - offsets(p, data.cells, hyper)

    def power_step(_: int, V: jax.Array) -> jax.Array:
        U = spread(data.cells.by_row, rest, V)
        return jnp.linalg.qr(spread(data.cells.by_col, rest, U))[0]

    V = jax.lax.fori_loop(0, 10, power_step, jax.random.normal(key, p.V.shape))
    return p._replace(V=hyper.scale_item * len(V) ** 0.5 * V)


def offsets(p: Params, query: Query, hyper: Hyper) -> jax.Array | float:
    """m + b_i + c_j."""
    if p.bias_user is None:
        return hyper.offset
    return hyper.offset + pick(p.bias_user, query.row) + pick(p.bias_item, query.col)


def objective(p: Params, data: Ratings, hyper: Hyper) -> jax.Array:
    residual = data.y - offsets(p, data.cells, hyper) - inner(p.U, p.V, data.cells)
    fit = total(residual**2, data.cells) / hyper.noise**2
    U, V = links.rest(p, data, "user"), links.rest(p, data, "item")
    ridge = jnp.sum(U**2) / hyper.scale_user**2 + jnp.sum(V**2) / hyper.scale_item**2
    if hyper.biases:
        b, c = features.lone_bias(p, data, "user"), features.lone_bias(p, data, "item")
        ridge += (jnp.sum(b**2) + jnp.sum(c**2)) / hyper.scale_bias**2
    cost = 0.5 * (fit + ridge)
    return cost if p.B is None else cost + features.link_energy(p, hyper)


# -- rows and biases -------------------------------------------------------------------------------
def ridge_rows(
    rows: Rows, target: jax.Array, factors: jax.Array, hyper: Hyper, scale: float, centre: Any
) -> GaussianRows:
    """x_i | factors: precision I/scale^2 + sum_j v_j v_j'/s^2."""
    K = factors.shape[1]
    eye, zero = jnp.eye(K, dtype=factors.dtype), jnp.zeros(K, factors.dtype)
    return GaussianRows(rows, target, factors, hyper.noise**-2, eye / scale**2, zero, centre)


def conditional_U(p: Params, data: Ratings, hyper: Hyper) -> GaussianRows:
    """u_i | rest: a ridge regression on the v_j."""
    target, centre = data.y - offsets(p, data.cells, hyper), links.explained(p, data, "user")
    if centre is not None:
        target -= inner(centre, p.V, data.cells)
    return ridge_rows(data.cells.by_row, target, p.V, hyper, hyper.scale_user, centre)


def conditional_V(p: Params, data: Ratings, hyper: Hyper) -> GaussianRows:
    target, centre = data.y - offsets(p, data.cells, hyper), links.explained(p, data, "item")
    if centre is not None:
        target -= inner(p.U, centre, data.cells)
    return ridge_rows(data.cells.by_col, target, p.U, hyper, hyper.scale_item, centre)


def conditional_bias_user(p: Params, data: Ratings, hyper: Hyper) -> dist.Distribution:
    """b_i | rest: a ridge regression on the constant 1."""
    rest = data.y - hyper.offset - p.bias_item[data.cells.col] - inner(p.U, p.V, data.cells)
    return bias_rows(data.cells.by_row, rest, p.V, hyper, features.bias_centre(p, data, "user"))


def conditional_bias_item(p: Params, data: Ratings, hyper: Hyper) -> dist.Distribution:
    rest = data.y - hyper.offset - p.bias_user[data.cells.row] - inner(p.U, p.V, data.cells)
    return bias_rows(data.cells.by_col, rest, p.U, hyper, features.bias_centre(p, data, "item"))


def bias_rows(
    rows: Rows, rest: jax.Array, other: jax.Array, hyper: Hyper, centre: jax.Array | float
) -> dist.Distribution:
    ones = jnp.ones((other.shape[0], 1), other.dtype)
    precision = hyper.scale_bias**-2 + jnp.diff(rows.ptr) / hyper.noise**2
    mean = spread(rows, rest, ones)[:, 0] / hyper.noise**2 / precision
    if isinstance(centre, jax.Array):
        mean += centre / hyper.scale_bias**2 / precision
    return dist.Normal(mean, precision**-0.5).to_event(1)


BIASES, LINKS = ("bias_user", "bias_item"), ("B", "C", "ridge")
CONDITIONALS: dict[str, Any] = {"U": conditional_U, "V": conditional_V}
CONDITIONALS |= {"bias_user": conditional_bias_user, "bias_item": conditional_bias_item}
CONDITIONALS |= {
    "B": features.conditional_B,
    "C": features.conditional_C,
    "ridge": features.conditional_ridge,
}


def update(p: Params, data: Ratings, hyper: Hyper) -> Params:
    """ALS: set every block in turn to the mode of its conditional."""
    return settled(p, CONDITIONALS, (), data, hyper)


# -- the variational law: biases are independent normals, B and C as in `core/laws/link_beliefs.py` ---------
def begin(p: Params, data: Ratings, hyper: Hyper) -> dict[str, Any]:
    found: dict[str, Any] = {"U": beliefs.certain(p.U), "V": beliefs.certain(p.V)}
    for site in BIASES if hyper.biases else ():
        bias = getattr(p, site)
        found[site] = {"mean": bias, "var": jnp.zeros_like(bias)}
    for number, name in enumerate(("B", "C")):
        if tables := getattr(p, name):
            L = {side: features.precisions(side, hyper, p.U.dtype)[number] for side in tables}
            found[name] = {s: link.begin(B, L[s], data.x[s]) for s, B in tables.items()}
    if p.B is None:
        return found
    sizes = {side: sum(B.size for B, _ in features.of_side(p, side, hyper)) for side in p.B}
    return found | {"ridge": {s: link.begin_ridge(r, hyper, sizes[s]) for s, r in p.ridge.items()}}


def means(q: Any) -> Params:
    """The parameters at the means of all laws."""

    def each(site: Any) -> Any:
        return site and {side: belief["mean"] for side, belief in site.items()}

    U, V, b, c = (site and site["mean"] for site in (q.U, q.V, q.bias_user, q.bias_item))
    ridge = q.ridge and {side: beliefs.gamma(belief).mean for side, belief in q.ridge.items()}
    return Params(U, V, b, c, each(q.B), each(q.C), ridge)


def expected_observed(
    q: Any, x: jax.Array, variance: jax.Array, data: Ratings, hyper: Hyper
) -> tuple[Any, jax.Array, float]:
    """Biases at their conditionals, given the means of the other sites, which enter them linearly."""
    p = means(q)
    for site in BIASES if hyper.biases else ():
        law = CONDITIONALS[site](p, data, hyper)
        p = p._replace(**{site: law.mean})
        q = q._replace(**{site: {"mean": law.mean, "var": law.variance}})
    return q, data.y - offsets(p, data.cells, hyper), hyper.noise**-2


def prior(q: Any, side: str, data: Ratings, hyper: Hyper) -> tuple[jax.Array, jax.Array]:
    precision = features.precisions(side, hyper, q.U["mean"].dtype)[0]
    centre = links.explained(means(q), data, side)
    return precision, jnp.zeros(()) if centre is None else centre @ precision


def settle(q: Any, data: Ratings, hyper: Hyper) -> Any:
    """The laws of B, C and ridge given rows and biases."""
    for side in q.B or ():
        x, ridge, p = data.x[side], q.ridge[side], means(q)
        row, bias = features.precisions(side, hyper, p.U.dtype)
        found = [(link.settled(x, p.U if side == "user" else p.V, ridge, row), row)]
        q = q._replace(B={**q.B, side: found[0][0]})
        if hyper.biases:
            own = p.bias_user if side == "user" else p.bias_item
            found.append((link.settled(x, own[:, None], ridge, bias), bias))
            q = q._replace(C={**q.C, side: found[1][0]})
        q = q._replace(ridge={**q.ridge, side: link.settled_ridge(ridge, hyper, *found)})
    return q


def expected(q: Any, x: jax.Array, variance: jax.Array, data: Ratings, hyper: Hyper) -> jax.Array:
    """Minus the expected objective."""
    p, cells = means(q), data.cells
    square = (data.y - offsets(p, cells, hyper) - x) ** 2 + variance
    if hyper.biases:
        square += q.bias_user["var"][cells.row] + q.bias_item["var"][cells.col]
    cost = 0.5 * jnp.sum(square) / hyper.noise**2
    for side in ("user", "item"):
        row, bias = features.precisions(side, hyper, p.U.dtype)
        own = (q.U if side == "user" else q.V)["cov"].sum(0)
        parts = [(links.rest(p, data, side), own, row, q.B)]
        if hyper.biases:
            var = jnp.sum((q.bias_user if side == "user" else q.bias_item)["var"])[None, None]
            parts.append((features.lone_bias(p, data, side)[:, None], var, bias, q.C))
        for rest, wide, L, tables in parts:
            table = rest.T @ rest + wide
            if side in (tables or ()):
                B, ridge = tables[side], p.ridge[side]
                table += link.spread(data.x[side], B) + ridge * link.second(B)
                cost -= 0.5 * len(B["mean"]) * jnp.linalg.slogdet(L)[1]
            cost += 0.5 * jnp.sum(table * L)
    for side, ridge in (q.ridge or {}).items():
        sizes = [B.size for B, _ in features.of_side(p, side, hyper)]
        cost += link.expected_ridge_energy(ridge, hyper, sum(sizes))
    return -cost


def laws(q: Any) -> dict[str, dist.Distribution]:
    plain = {n: beliefs.normal(b) for n, b in q._asdict().items() if b and n not in LINKS}
    more = {f"C.{side}": link.law(C) for side, C in (q.C or {}).items()}
    return plain | more | bound.link_laws(q)


VARIATIONAL = bound.record(begin, expected_observed, expected, laws, prior=prior, settle=settle)


def sample_side(side: str, data: Ratings, hyper: Hyper) -> tuple[jax.Array, jax.Array | None]:
    """Sample the rows of a side and their biases; with features also B, C and ridge."""
    name, scale = ("U", hyper.scale_user) if side == "user" else ("V", hyper.scale_item)
    one, bias = jnp.ones(hyper.n_components), None
    centre: Any = 0.0
    centre_of_bias: Any = 0.0
    if side in data.x:
        x, root = data.x[side], links.sample_ridge(side, hyper) ** -0.5
        centre = links.sample(side, x, dist.Normal(0, root * scale * one).to_event(1))
        if hyper.biases:
            law = dist.Normal(jnp.zeros(1), root * hyper.scale_bias).to_event(1)
            centre_of_bias = links.sample(side, x, law, "C")[:, 0]
    with numpyro.plate(side, data.shape[side == "item"]):
        rows = numpyro.sample(name, dist.Normal(centre, scale * one).to_event(1))
        if hyper.biases:
            bias = numpyro.sample(f"bias_{side}", dist.Normal(centre_of_bias, hyper.scale_bias))
    return rows, bias


def model(data: Ratings, hyper: Hyper) -> None:
    U, bias_user = sample_side("user", data, hyper)
    V, bias_item = sample_side("item", data, hyper)
    p = Params(U, V, bias_user, bias_item)
    mean = offsets(p, data.cells, hyper) + inner(U, V, data.cells)
    with numpyro.plate("cell", data.cells.row.shape[0]):
        numpyro.sample("rating", dist.Normal(mean, hyper.noise), obs=data.y)


def predict(p: Params, query: Query, hyper: Hyper) -> dist.Distribution:
    """The rating; parameters of a user or item without training data are drawn from their priors."""
    eye, zero = jnp.eye(hyper.n_components), jnp.zeros(hyper.n_components)
    user = links.prior_mean(p, query, "user", zero), hyper.scale_user**2 * eye
    item = links.prior_mean(p, query, "item", zero), hyper.scale_item**2 * eye
    mean, variance = bilinear(p.U, p.V, query, user, item)
    if hyper.biases:
        b, c = pick(p.bias_user, query.row), pick(p.bias_item, query.col)
        if isinstance(query, Grid):
            mean += b[:, None] + c
        else:
            new = (jnp.asarray(query.row) < 0) * 1 + (jnp.asarray(query.col) < 0)
            mean, variance = mean + b + c, variance + hyper.scale_bias**2 * new
            for side, code in (("user", query.row), ("item", query.col)):
                if (x := getattr(query, side)) is not None and links.linked(p, side):
                    known = x.times(p.C[side])[jnp.maximum(-1 - jnp.asarray(code), 0), 0]
                    mean += jnp.where(jnp.asarray(code) < 0, known, 0)
    return dist.Normal(hyper.offset + mean, jnp.sqrt(hyper.noise**2 + variance))


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


# fmt: off
METHOD = register(Method(
    name="pmf", cite="salakhutdinov2007pmf", data=Ratings, Params=Params, Hyper=Hyper,
    init=init, objective=objective, model=model, predict=predict, example=example,
    update=update, prepare=prepare, start=start, choices=choices, remarks=remarks,
    conditionals=CONDITIONALS, variational=VARIATIONAL,
    divisible=True,
    gauge=lambda names: (
        Rotation(("U", "V"), {s: 1 for s in ("U", "V", "B.user", "B.item") if s in names}),
    ),
    dims=links.DIMS | {
        "U": ("user", "component"), "V": ("item", "component"),
        "bias_user": ("user",), "bias_item": ("item",), "C": ("{key}_feature", "bias"),
    },
))
# fmt: on
