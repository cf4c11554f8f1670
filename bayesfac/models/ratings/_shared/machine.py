"""Factorization machines of users and items: groups of ids and of features, each group with its own prior.

A rating of item j by user i observes b_i + c_j + u_i.v_j, where ids and features are summed:

    b_i = w_i + sum_k x_ik w_k,   u_i = v_i + sum_k x_ik v_k,   k the features of user i; c_j and v_j alike.

The sites are these sums: U, V and the biases. They are normal about a mean that depends on the features:

    u_i ~ N(mu + B'x_i, diag(tau)^-1),   b_i ~ N(level + C'x_i, 1 / tau_bias)        (c_j without a level)
    B_kf ~ N(0, 1 / (ridge tau_f)),      C_k ~ N(0, 1 / (ridge_bias tau_bias))    for each group of features
    mu_f ~ N(0, 1 / (beta0 tau_f));      level ~ N(0, scale_level^2);      tau, tau_bias, ridges: Gamma

The mappings mu, tau and tau_bias have the keys "user" and "item". B, C, ridge and ridge_bias have a key for
each group of features: "user", "item", and with the option `implicit` also "implicit_user" and
"implicit_item".

`hyper` has n_components, tau_shape, tau_rate, bias_rate, beta0, scale_level, ridge_shape and ridge_rate.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import scipy.sparse as sp
from scipy.sparse.linalg import svds

from bayesfac.core.data import reading
from bayesfac.core.data.cells import Cells, Grid, Query
from bayesfac.core.data.features import SparseDesign
from bayesfac.core.kernels import sparse
from bayesfac.core.laws.distributions import GaussianRows
from bayesfac.core.laws.links import Links, energy_of_link, ridge_energy
from bayesfac.core.laws.normal_wishart import normal_rows
from bayesfac.core.math import inner, normals, pick
from bayesfac.core.method import Permutation

ROWS = {"user": "U", "item": "V"}
BIAS = {"user": "bias_user", "item": "bias_item"}
OTHER = {"user": "item", "item": "user"}
GROUPS = ("user", "item", "implicit_user", "implicit_item")  # groups of features

LEADING = 32  # eigenvectors of a pattern of ratings that precondition conjugate gradients

Observed = Callable[..., tuple[jax.Array, Any]]

DIMS = {
    "U": ("user", "component"),
    "V": ("item", "component"),
    "bias_user": ("user",),
    "bias_item": ("item",),
    "level": (),
    "mu": ("component",),
    "tau": ("component",),
    "tau_bias": (),
    "B": ("{key}_feature", "component"),
    "C": ("{key}_feature", "bias"),
    "ridge": (),
    "ridge_bias": (),
}


def implicit(data: Any) -> dict[str, SparseDesign]:
    """Which items a user rated, and which users rated an item, as features with value 1 / sqrt(number).

    Koren, "Factorization meets the neighborhood", KDD 2008 (SVD++). The cells are those of the ratings.
    """
    found = {}
    for side, cells in (("user", data.cells), ("item", data.cells.flip())):
        value = jnp.diff(cells.by_row.ptr).astype(float)[cells.row] ** -0.5
        squares = jnp.zeros(cells.shape[1]).at[cells.col].add(value**2)
        found[f"implicit_{side}"] = SparseDesign(cells, value, squares, leading(cells, value))
    return found


def leading(cells: Cells, value: jax.Array) -> tuple[jax.Array, jax.Array] | None:
    """The largest eigenvalues of X'X and their vectors; None if X has fewer than three rows or columns."""
    count = min(LEADING, min(cells.shape) - 2)
    if count < 1:
        return None
    x = sp.csr_matrix((np.asarray(value, float), (cells.row, cells.col)), shape=cells.shape)
    _, size, vectors = svds(x, count, v0=np.ones(min(cells.shape)), solver="arpack")
    return reading.real(size**2), reading.real(vectors.T)


def ready(data: Any, hyper: Any) -> Any:
    """The ratings with implicit features, if the settings ask for them."""
    return data.replaced(x=data.x | implicit(data)) if hyper.implicit else data


def start(key: jax.Array, data: Any, K: int, spread: float, level: Any = 0.0) -> dict[str, Any]:
    """Starting values: factors whose products have half the standard deviation `spread`, small biases, and
    features without an effect."""
    scale = (spread / 2) ** 0.5 / K**0.25
    keys = jax.random.split(key, 4)
    found: dict[str, Any] = {}
    for number, (side, n) in enumerate(zip(ROWS, data.shape, strict=True)):
        found[ROWS[side]] = scale * normals(keys[number], (n, K))
        found[BIAS[side]] = spread / 10 * normals(keys[2 + number], (n,))
    found["mu"] = {side: jnp.zeros(K) for side in ROWS}
    found["tau"] = {side: jnp.full(K, scale**-2.0) for side in ROWS}
    found["tau_bias"] = {side: jnp.asarray(8 * spread**-2.0) for side in ROWS}
    found["level"] = None if level is None else jnp.asarray(level)
    if not data.x:
        return found | dict.fromkeys(("B", "C", "ridge", "ridge_bias"))
    found["B"] = {k: jnp.zeros((x.width, K)) for k, x in data.x.items()}
    found["C"] = {k: jnp.zeros((x.width, 1)) for k, x in data.x.items()}
    # features would explain half the variance of the rows
    ridge = {k: 1.0 if k.startswith("implicit") else float(x.width) for k, x in data.x.items()}
    return found | {s: {k: jnp.asarray(v) for k, v in ridge.items()} for s in RIDGES}


RIDGES = ("ridge", "ridge_bias")
HELD = (  # fixed by a point fit whose priors are estimated
    "level",
    *(f"{site}.{side}" for site in ("mu", "tau", "tau_bias") for side in ROWS),
    *(f"{site}.{key}" for site in ("B", "C", *RIDGES) for key in GROUPS),
)


# -- what features say ---------------------------------------------------------------------------------
def groups(p: Any, side: str) -> list[str]:
    """The groups of features of a side."""
    return [key for key in p.B or () if key.endswith(side)]


def explained(p: Any, data: Any, side: str, site: str, without: str = "") -> Any:
    """X B of all groups of a side (of site C: X C), or of all but one; 0.0 if there is none."""
    keys = [key for key in groups(p, side) if key != without]
    found: Any = sum((data.x[key].times(getattr(p, site)[key]) for key in keys), 0.0)
    return found[:, 0] if keys and site == "C" else found


def lone_rows(p: Any, data: Any, side: str, without: str = "") -> jax.Array:
    """The rows of a side minus their prior mean (or minus all of it but one group)."""
    return getattr(p, ROWS[side]) - p.mu[side] - explained(p, data, side, "B", without)


def level_of(p: Any, side: str) -> Any:
    """The mean of the biases of a side."""
    return p.level if side == "user" and p.level is not None else 0.0


def lone_bias(p: Any, data: Any, side: str, without: str = "") -> jax.Array:
    """The biases of a side minus their prior mean (or minus all of it but one group)."""
    bias = getattr(p, BIAS[side]) - level_of(p, side)
    return bias - explained(p, data, side, "C", without)


def biases(p: Any, query: Any) -> jax.Array:
    """b_i + c_j at the cells."""
    return pick(p.bias_user, query.row) + pick(p.bias_item, query.col)


def scores(p: Any, cells: Any) -> jax.Array:
    """b_i + c_j + u_i.v_j at the cells."""
    return biases(p, cells) + inner(p.U, p.V, cells)


# -- the energy ----------------------------------------------------------------------------------------
def energy(p: Any, data: Any, h: Any) -> jax.Array:
    """Minus the log density of all sites here, without constants."""
    total = jnp.zeros(()) if p.level is None else 0.5 * (p.level / h.scale_level) ** 2
    for side in ROWS:
        tau, bias, rows = p.tau[side], p.tau_bias[side], lone_rows(p, data, side)
        square = jnp.sum(rows**2, 0) + h.beta0 * p.mu[side] ** 2
        power = h.tau_shape - 1 + (len(rows) + 1) / 2
        total += jnp.sum((h.tau_rate + 0.5 * square) * tau - power * jnp.log(tau))
        square = jnp.sum(lone_bias(p, data, side) ** 2)
        power = h.tau_shape - 1 + len(rows) / 2
        total += (h.bias_rate + 0.5 * square) * bias - power * jnp.log(bias)
        for key in groups(p, side):
            total += energy_of_link(p.B[key], p.ridge[key], jnp.diag(tau))
            total += energy_of_link(p.C[key], p.ridge_bias[key], bias[None, None])
            total += sum(ridge_energy(getattr(p, site)[key], h) for site in RIDGES)
    return total


# -- conditionals --------------------------------------------------------------------------------------
def blocks(observed: Observed) -> dict[str, Any]:
    """{site: conditional} in sweep order. `observed(p, data, hyper, *auxiliary)` gives the target of each
    cell and its weight (or one weight for all). The target is a Gaussian observation of b_i + c_j +
    u_i.v_j."""

    def rows(side: str) -> Any:
        def law(p: Any, data: Any, h: Any, *auxiliary: Any) -> GaussianRows:
            target, weight = observed(p, data, h, *auxiliary)
            other, tau = getattr(p, ROWS[OTHER[side]]), p.tau[side]
            target = target - biases(p, data.cells)
            centre = explained(p, data, side, "B") if groups(p, side) else None
            if centre is not None:
                pair = (centre, other) if side == "user" else (other, centre)
                target = target - inner(*pair, data.cells)
            mine, shift = rows_of(data, side), tau * p.mu[side]
            return GaussianRows(mine, target, other, weight, jnp.diag(tau), shift, centre)

        return law

    def bias(side: str) -> Any:
        def law(p: Any, data: Any, h: Any, *auxiliary: Any) -> dist.Distribution:
            target, weight = observed(p, data, h, *auxiliary)
            rest = target - scores(
                p._replace(**{BIAS[side]: 0 * getattr(p, BIAS[side])}), data.cells
            )
            return normal_of(p, data, side, rest, jnp.broadcast_to(weight, rest.shape))

        return law

    sides: dict[str, Any] = {}
    for side in ROWS:
        sides |= {ROWS[side]: rows(side), BIAS[side]: bias(side)}
    return sides | PRIORS


def rows_of(data: Any, side: str) -> Any:
    return data.cells.by_row if side == "user" else data.cells.by_col


def normal_of(
    p: Any, data: Any, side: str, rest: jax.Array, weight: jax.Array
) -> dist.Distribution:
    """The normal law of the biases of a side, given the part of the targets that is left for them."""
    mine, tau, n = rows_of(data, side), p.tau_bias[side], len(getattr(p, ROWS[OTHER[side]]))
    ones = jnp.ones((n, 1), rest.dtype)
    precision = tau + sparse.spread(mine, weight, ones)[:, 0]
    own = tau * (level_of(p, side) + explained(p, data, side, "C"))
    mean = (own + sparse.spread(mine, weight * rest, ones)[:, 0]) / precision
    return dist.Normal(mean, precision**-0.5).to_event(1)


def conditional_mu(p: Any, data: Any, h: Any, *more: Any) -> dist.Distribution:
    side = more[-1]
    rows = lone_rows(p, data, side) + p.mu[side]
    weight = h.beta0 + len(rows)
    return dist.Normal(rows.sum(0) / weight, (weight * p.tau[side]) ** -0.5).to_event(1)


def conditional_tau(p: Any, data: Any, h: Any, *more: Any) -> dist.Gamma:
    """Each row, the mean and each feature add half a degree of freedom."""
    side = more[-1]
    rows = lone_rows(p, data, side)
    square, count = jnp.sum(rows**2, 0) + h.beta0 * p.mu[side] ** 2, len(rows) + 1
    for key in groups(p, side):
        square += p.ridge[key] * jnp.sum(p.B[key] ** 2, 0)
        count += len(p.B[key])
    return dist.Gamma(h.tau_shape + count / 2, h.tau_rate + square / 2)


def conditional_level(p: Any, data: Any, h: Any, *_: Any) -> dist.Normal:
    bias, tau = lone_bias(p, data, "user") + p.level, p.tau_bias["user"]
    precision = h.scale_level**-2.0 + len(bias) * tau
    return dist.Normal(tau * bias.sum() / precision, precision**-0.5)


def conditional_tau_bias(p: Any, data: Any, h: Any, *more: Any) -> dist.Gamma:
    side = more[-1]
    bias = lone_bias(p, data, side)
    square, count = jnp.sum(bias**2), len(bias)
    for key in groups(p, side):
        square += p.ridge_bias[key] * jnp.sum(p.C[key] ** 2)
        count += len(p.C[key])
    return dist.Gamma(h.tau_shape + count / 2, h.bias_rate + square / 2)


def side_of(key: str) -> str:
    return "user" if key.endswith("user") else "item"


def conditional_B(p: Any, data: Any, h: Any, *more: Any) -> Links:
    key, side = more[-1], side_of(more[-1])
    rows = lone_rows(p, data, side, key)
    return Links(data.x[key], rows, p.ridge[key], jnp.diag(p.tau[side]))


def conditional_C(p: Any, data: Any, h: Any, *more: Any) -> Links:
    key, side = more[-1], side_of(more[-1])
    bias, tau = lone_bias(p, data, side, key), p.tau_bias[side]
    return Links(data.x[key], bias[:, None], p.ridge_bias[key], tau[None, None])


def of_ridge(h: Any, B: jax.Array, tau: jax.Array) -> dist.Gamma:
    return dist.Gamma(h.ridge_shape + B.size / 2, h.ridge_rate + 0.5 * jnp.sum(tau * B**2))


PRIORS: dict[str, Any] = {
    "mu": conditional_mu, "tau": conditional_tau, "level": conditional_level,
    "tau_bias": conditional_tau_bias,
    "ridge": lambda p, data, h, *m: of_ridge(h, p.B[m[-1]], p.tau[side_of(m[-1])]),
    "ridge_bias": lambda p, data, h, *m: of_ridge(h, p.C[m[-1]], p.tau_bias[side_of(m[-1])]),
}  # fmt: skip
# a Gibbs sweep draws these with the rows integrated out (`machine_moves.together`)
LINKS: dict[str, Any] = {"B": conditional_B, "C": conditional_C}


# -- the model, predictions and symmetries -------------------------------------------------------------
def sample(data: Any, h: Any, level: bool = True) -> Any:
    """Sample all sites of this module; return b_i + c_j + u_i.v_j at the cells."""
    K, rows, bias = h.n_components, {}, {}
    for side, n in zip(ROWS, data.shape, strict=True):
        law = dist.Gamma(h.tau_shape, h.tau_rate).expand([K]).to_event(1)
        tau = numpyro.sample(f"tau.{side}", law)
        tau_bias = numpyro.sample(f"tau_bias.{side}", dist.Gamma(h.tau_shape, h.bias_rate))
        mean = numpyro.sample(f"mu.{side}", dist.Normal(0, (h.beta0 * tau) ** -0.5).to_event(1))
        centre: Any = 0.0
        if level and side == "user":
            centre = numpyro.sample("level", dist.Normal(0, h.scale_level))
        for key in (key for key in data.x if key.endswith(side)):
            x = data.x[key]
            for site, weight in (("B", tau), ("C", tau_bias[None])):
                name = "ridge" if site == "B" else "ridge_bias"
                ridge = numpyro.sample(f"{name}.{key}", dist.Gamma(h.ridge_shape, h.ridge_rate))
                with numpyro.plate(f"{site}_{key}_feature", x.width):
                    law = dist.Normal(jnp.zeros_like(weight), (ridge * weight) ** -0.5).to_event(1)
                    part = x.times(numpyro.sample(f"{site}.{key}", law))
                mean, centre = (mean + part, centre) if site == "B" else (mean, centre + part[:, 0])
        with numpyro.plate(side, n):
            rows[side] = numpyro.sample(ROWS[side], normal_rows(mean, jnp.diag(tau)))
            bias[side] = numpyro.sample(BIAS[side], dist.Normal(centre, tau_bias**-0.5))
    both = pick(bias["user"], data.cells.row) + pick(bias["item"], data.cells.col)
    return both + inner(rows["user"], rows["item"], data.cells)


def extended(p: Any, query: Query | Grid) -> tuple:
    """(b_i, 1, u_i) of all users, (1, c_j, v_j) of all items, and (mean, covariance) of these for a new user
    and for a new item. Products of such rows are b_i + c_j + u_i.v_j."""

    def row(side: str, bias: Any, rows: Any) -> jax.Array:
        pair = [bias, jnp.ones_like(bias)]
        return jnp.concatenate([jnp.stack(pair if side == "user" else pair[::-1], -1), rows], -1)

    def new(side: str) -> tuple:
        rows, bias = p.mu[side], jnp.asarray(level_of(p, side), p.U.dtype)
        if (x := getattr(query, side, None)) is not None and side in (p.B or ()):
            rows, bias = rows + x.times(p.B[side]), bias + x.times(p.C[side])[:, 0]
        # the 1 gets a very small variance, so that the covariance has a Cholesky factor
        tiny = jnp.full_like(p.tau_bias[side], jnp.finfo(p.U.dtype).eps ** 2)
        return row(side, bias, rows), jnp.diag(row_of_variances(side, p, tiny))

    def row_of_variances(side: str, p: Any, tiny: jax.Array) -> jax.Array:
        pair = jnp.stack([1 / p.tau_bias[side], tiny][:: 1 if side == "user" else -1])
        return jnp.concatenate([pair, 1 / p.tau[side]])

    tables = row("user", p.bias_user, p.U), row("item", p.bias_item, p.V)
    return *tables, query, new("user"), new("item")


def gauge(names: Any) -> tuple[Permutation, ...]:
    """Components may be reordered, and may change their sign in all of these sites together."""
    axes = {"U": 1, "V": 1, "mu.user": 0, "mu.item": 0}
    axes |= {name: 1 for name in names if name.startswith("B.")}
    return (Permutation(axes | {"tau.user": 0, "tau.item": 0}, signed=tuple(axes)),)
