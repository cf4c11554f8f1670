"""Normal-Wishart priors of users and items, as in Bayesian matrix factorization.

Each side has the laws of `core/laws/normal_wishart.py`. This file has the sites, the energy and the
conditionals of both sides, and moves of the scale of U against V. `hyper` has `beta0` and `rate`.

Features of users and items shift mu from row to row (`links.py`): rows u_i ~ N(mu + B'x_i, Lambda^-1).
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfac.core.data.features import Features
from bayesfac.core.laws.distributions import GaussianRows
from bayesfac.core.laws.links import energy_of_link, ridge_energy
from bayesfac.core.laws.normal_wishart import (
    balance,
    normal_rows,
    normal_wishart_energy,
    normal_wishart_mean,
    normal_wishart_precision,
    sample_hyper,
)
from bayesfac.core.math import inner, metropolis
from bayesfac.core.method import Rotation
from bayesfac.models.ratings._shared import links
from bayesfac.models.ratings._shared.margins import start_factors
from bayesfac.models.ratings._shared.variational import NAMES as NAMES

FRAMES = 4  # random rotations in which `rescale` draws scales, in one sweep


def sample_normal_wishart(
    side: str, n: int, K: int, hyper: Any, x: Features | None = None
) -> jax.Array:
    """Sample Lambda, mu and rows (n x K) of a side, and with features B and ridge; return the rows."""
    name, mean, scale = NAMES[side]
    mu, precision = sample_hyper(mean, scale, K, hyper)
    if x is not None:
        ridge = links.sample_ridge(side, hyper)
        mu = mu + links.sample(side, x, normal_rows(jnp.zeros(K), ridge * precision))
    with numpyro.plate(side, n):
        return numpyro.sample(name, normal_rows(mu, precision))


# -- both sides: Params has U, mu_U, Lambda_U and V, mu_V, Lambda_V; the data depend on u.v alone -------
def given_rows(side: str) -> dict[str, Any]:
    """{site: conditional} of the mean, the precision and the features of a side, given its rows."""
    _, mean, scale = NAMES[side]

    def of_precision(p: Any, data: Any, h: Any, *_: Any) -> dist.Wishart:
        link = (p.B[side], p.ridge[side]) if links.linked(p, side) else ()
        return normal_wishart_precision(links.rest(p, data, side), getattr(p, mean), h, *link)

    def of_mean(p: Any, data: Any, h: Any, *_: Any) -> dist.MultivariateNormal:
        return normal_wishart_mean(links.rest(p, data, side), getattr(p, scale), h.beta0)

    return {scale: of_precision, mean: of_mean}


def around(p: Any, side: str, hyper: Any) -> tuple[jax.Array, jax.Array]:
    """The rows of a side minus their mean, and their precision."""
    rows, mu, precision = (getattr(p, name) for name in NAMES[side])
    return rows - mu, precision


def blocks(observed: Any) -> dict[str, Any]:
    """{site: conditional} in sweep order, eq. 11-14 of Salakhutdinov & Mnih 2008.

    Given `target, weight = observed(p, data, hyper, *auxiliary)`, each cell observes u.v as a Gaussian
    `target` with precision `weight` (one number, or one for each cell).
    """

    def rows(side: str, p: Any, data: Any, h: Any, *auxiliary: Any) -> GaussianRows:
        target, weight = observed(p, data, h, *auxiliary)
        _, mu, scale = (getattr(p, name) for name in NAMES[side])
        mine, other = (data.cells.by_row, p.V) if side == "user" else (data.cells.by_col, p.U)
        centre = links.explained(p, data, side)
        if centre is not None:
            u, v = (centre, other) if side == "user" else (other, centre)
            target = target - inner(u, v, data.cells)
        return GaussianRows(mine, target, other, weight, scale, scale @ mu, centre)

    own = {"U": partial(rows, "user"), "V": partial(rows, "item")}
    user, item = given_rows("user"), given_rows("item")
    sides = user | {"U": own["U"]} | item | {"V": own["V"]}
    return links.blocks(around) | sides


def gauge(names: Any, floating: bool = False) -> tuple[Rotation, ...]:
    """U and V rotate together, and with them their means and precisions."""
    axes = {"U": 1, "V": 1, "mu_U": 0, "mu_V": 0} | {s: 1 for s in links.SITES[:2] if s in names}
    return (Rotation(("U", "V"), axes, ("Lambda_U", "Lambda_V"), floating=floating),)


DIMS = {
    "U": ("user", "component"),
    "mu_U": ("component",),
    "Lambda_U": ("component", "component_"),
    "V": ("item", "component"),
    "mu_V": ("component",),
    "Lambda_V": ("component", "component_"),
} | links.DIMS


def start(key: jax.Array, data: Any, K: int, sd: float = 0.25) -> dict[str, Any]:
    """Starting values of both sides: normal factors whose products have the standard deviation `sd`, and
    Lambda at the inverse of their variance."""
    U, V = (2 * sd**0.5 * x for x in start_factors(key, data.shape, K))
    zero, precision = jnp.zeros(K), jnp.eye(K) * K**0.5 / sd
    user = {"U": U, "mu_U": zero, "Lambda_U": precision}
    return user | {"V": V, "mu_V": zero, "Lambda_V": precision} | links.start(data, K)


def sample_sides(data: Any, hyper: Any) -> tuple[jax.Array, jax.Array]:
    """Sample the sites of both sides; return U and V."""
    (n, m), K = data.shape, hyper.n_components
    U = sample_normal_wishart("user", n, K, hyper, data.x.get("user"))
    return U, sample_normal_wishart("item", m, K, hyper, data.x.get("item"))


def energy(p: Any, data: Any, hyper: Any) -> jax.Array:
    """`normal_wishart_energy` of both sides, and the energy of their links."""
    user = normal_wishart_energy(links.rest(p, data, "user"), p.mu_U, p.Lambda_U, hyper)
    both = user + normal_wishart_energy(links.rest(p, data, "item"), p.mu_V, p.Lambda_V, hyper)
    for side in p.B or ():
        both += energy_of_link(p.B[side], p.ridge[side], getattr(p, NAMES[side][2]))
        both += ridge_energy(p.ridge[side], hyper)
    return both


def new_rows(p: Any, query: Any) -> tuple:
    """(mean, covariance) of the prior of a user, and of an item, without training data. For labels with
    features the means are the rows of a table, see `Query`."""

    def one(side: str) -> tuple:
        _, mu, precision = (getattr(p, name) for name in NAMES[side])
        return links.prior_mean(p, query, side, mu), jnp.linalg.inv(precision)

    return one("user"), one("item")


# -- moves along the scales of U against V -----------------------------------------------------------
def lowest_scale(p: Any, h: Any) -> jax.Array:
    """The log c_k that minimise J along `stretch`.

    With s = c_k^2, J is (n - m)/2 log s + a/2s + b s/2 plus a constant, where a is rate Lambda_U,kk and b is
    rate Lambda_V,kk; the minimum solves b s^2 + (n - m) s = a. The rows of B count as rows.
    """
    a, b = h.rate * jnp.diag(p.Lambda_U), h.rate * jnp.diag(p.Lambda_V)
    rows = len(p.U) - len(p.V)
    rows += sum(len(B) * (1 if side == "user" else -1) for side, B in (p.B or {}).items())
    return jnp.log(2 * a / (rows + jnp.sqrt(rows**2 + 4.0 * a * b))) / 2


def stretch(p: Any, t: jax.Array) -> Any:
    """Map u_k -> c_k u_k and v_k -> v_k / c_k with c = e^t, and their priors to match; u.v does not
    change."""
    c, square = jnp.exp(t), jnp.exp(t[:, None] + t)
    p = p._replace(U=p.U * c, mu_U=p.mu_U * c, Lambda_U=p.Lambda_U / square)
    p = p._replace(V=p.V / c, mu_V=p.mu_V / c, Lambda_V=p.Lambda_V * square)
    return p._replace(B=links.turned(p, lambda B: B * c, lambda B: B / c))


def swell(key: jax.Array, p: Any, h: Any, size: int, rest: Any) -> tuple[jax.Array, Any]:
    """Metropolis steps along U -> c U, mu_U -> c mu_U, Lambda_U -> Lambda_U / c^2; return t = log c and p.

    The caller multiplies its thresholds by c too, because with blocks alone thresholds and factors mix
    slowly. `rest(t)` is the log density, with Jacobians, of all sites but the U side. The density of U, mu_U
    and B, with their Jacobians, does not change; that of Lambda_U changes by -K^2 t - rate tr Lambda_U
    (e^{-2t} - 1) / 2.
    """
    K, trace = p.U.shape[1], h.rate * jnp.trace(p.Lambda_U)

    def density(t: jax.Array) -> jax.Array:
        t = t[0, 0]
        return (rest(t) - K**2 * t - 0.5 * trace * (jnp.exp(-2 * t) - 1))[None]

    width, walk = jax.random.split(key)
    step = 2 / size**0.5 * jnp.exp(jax.random.normal(width, (), p.U.dtype))
    t = metropolis(walk, jnp.zeros((1, 1), p.U.dtype), step, density, times=2)[0, 0]
    c = jnp.exp(t)
    p = p._replace(U=p.U * c, mu_U=p.mu_U * c, Lambda_U=p.Lambda_U / c**2)
    return t, p._replace(B=links.turned(p, lambda B: B * c, lambda B: B))


def rescale(key: jax.Array, p: Any, data: Any, hyper: Any) -> Any:
    """Draw A exactly along U -> U A, V -> V A^-1, for A = Q diag(e^t) Q' with several random rotations Q.

    With Jacobians, the density of the likelihood, the rows, the means and B does not change. With
    M = rate Q' Lambda_U Q and N = rate Q' Lambda_V Q, the two Wishart priors give t_k the density
    exp(-M_kk e^{-2t_k}/2 - N_kk e^{2t_k}/2) (Liu & Sabatti 2000). With a single fixed Q, components would be
    scaled but never mixed, and the eigenvalues of Lambda_U would mix slowly.
    """
    K = p.U.shape[1]

    def turn(number: int, state: tuple) -> tuple:
        Lambda_U, Lambda_V, A, inverse = state
        frame, scale = jax.random.split(jax.random.fold_in(key, number))
        Q = jnp.linalg.qr(jax.random.normal(frame, (K, K), p.U.dtype))[0]
        a, b = (hyper.rate / 2 * jnp.diag(Q.T @ L @ Q) for L in (Lambda_U, Lambda_V))
        t = balance(scale, a, b)
        S, T = (Q * jnp.exp(t)) @ Q.T, (Q * jnp.exp(-t)) @ Q.T
        return T @ Lambda_U @ T, S @ Lambda_V @ S, A @ S, inverse @ T

    eye = jnp.eye(K, dtype=p.U.dtype)
    begin = (p.Lambda_U, p.Lambda_V, eye, eye)
    Lambda_U, Lambda_V, A, inverse = jax.lax.fori_loop(0, FRAMES, turn, begin)
    p = p._replace(U=p.U @ A, mu_U=p.mu_U @ A, Lambda_U=(Lambda_U + Lambda_U.T) / 2)
    p = p._replace(V=p.V @ inverse, mu_V=p.mu_V @ inverse, Lambda_V=(Lambda_V + Lambda_V.T) / 2)
    return p._replace(B=links.turned(p, lambda B: B @ A, lambda B: B @ inverse))
