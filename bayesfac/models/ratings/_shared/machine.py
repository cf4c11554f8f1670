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
from bayesfac.core.data.cells import Cells
from bayesfac.core.data.features import SparseDesign
from bayesfac.core.laws.links import energy_of_link, ridge_energy
from bayesfac.core.laws.normal_wishart import normal_rows
from bayesfac.core.math import inner, normals, pick
from bayesfac.parts.matrix import Matrix
from bayesfac.parts.priors import group, group_of_biases

ROWS = {"user": "U", "item": "V"}
BIAS = {"user": "bias_user", "item": "bias_item"}
OTHER = {"user": "item", "item": "user"}

LEADING = 32  # eigenvectors of a pattern of ratings that precondition conjugate gradients

Observed = Callable[..., tuple[jax.Array, Any]]

FACTORS = Matrix(
    (group("user", "U"), group("item", "V")),
    (group_of_biases("user", "level"), group_of_biases("item")),
)


ORDER = ("U", "bias_user", "V", "bias_item", "mu", "tau")  # then the level of `fm`, and the others


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


def rows_of(data: Any, side: str) -> Any:
    """The cells sorted by the rows of a side."""
    return data.cells.by_row if side == "user" else data.cells.by_col


# -- the model -----------------------------------------------------------------------------------------
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
