"""Features of users and items: a link matrix that shifts the prior means of rows (Macau).

Simm, Arany, Zakeri et al., "Macau: Scalable Bayesian Factorization with High-Dimensional Side Information
Using MCMC", MLSP 2017. Rows of a side, which without features are u_i ~ N(mu, L^-1), become

    u_i ~ N(mu + B'x_i, L^-1),   B ~ N(0, (ridge I x L)^-1), F x K,   ridge ~ Gamma(ridge_shape, ridge_rate).

Params has the mappings B and ridge by side, "user" or "item"; both are None if neither side has features. A
side is described by its rows and by (rows - mu, L), which the caller gives.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfac.core.data.features import Features
from bayesfac.core.laws.links import Links

SITES = ("B.user", "B.item", "ridge.user", "ridge.item")
DIMS = {"B": ("{key}_feature", "component"), "ridge": ()}
ROWS = {"user": "U", "item": "V"}

Around = Callable[[Any, str, Any], tuple[jax.Array, jax.Array]]


def start(data: Any, K: int) -> dict[str, Any]:
    """B at zero, and ridge as if features explain half the variance of the rows; None without features."""
    if not data.x:
        return {"B": None, "ridge": None}
    B = {side: jnp.zeros((x.width, K)) for side, x in data.x.items()}
    return {"B": B, "ridge": {side: jnp.asarray(float(x.width)) for side, x in data.x.items()}}


def linked(p: Any, side: str) -> bool:
    """Whether the rows of a side have features."""
    return p.B is not None and side in p.B


def explained(p: Any, data: Any, side: str) -> jax.Array | None:
    """X B: the part of the rows of a side that the features explain; None without features."""
    return data.x[side].times(p.B[side]) if linked(p, side) else None


def rest(p: Any, data: Any, side: str) -> jax.Array:
    """The rows of a side minus the part that the features explain."""
    rows, part = getattr(p, ROWS[side]), explained(p, data, side)
    return rows if part is None else rows - part


def of_ridge(hyper: Any, *links: tuple[jax.Array, jax.Array]) -> dist.Gamma:
    """ridge | rest, for the matrices B that it scales, each with its precision L."""
    size = sum(B.size for B, _ in links)
    square = sum((jnp.sum(B @ precision * B) for B, precision in links), jnp.zeros(()))
    return dist.Gamma(hyper.ridge_shape + size / 2, hyper.ridge_rate + square / 2)


def blocks(around: Around) -> dict[str, Any]:
    """{site: conditional} of B and ridge; `around(p, side, hyper)` gives rows - mu and L of a side."""

    def conditional_B(p: Any, data: Any, hyper: Any, *more: Any) -> Links:
        side = more[-1]
        rows, precision = around(p, side, hyper)
        return Links(data.x[side], rows, p.ridge[side], precision)

    def conditional_ridge(p: Any, data: Any, hyper: Any, *more: Any) -> dist.Gamma:
        return of_ridge(hyper, (p.B[more[-1]], around(p, more[-1], hyper)[1]))

    return {"B": conditional_B, "ridge": conditional_ridge}


def sample_ridge(side: str, hyper: Any) -> jax.Array:
    """Sample the site ridge of a side."""
    return numpyro.sample(f"ridge.{side}", dist.Gamma(hyper.ridge_shape, hyper.ridge_rate))


def sample(side: str, x: Features, law: dist.Distribution, name: str = "B") -> jax.Array:
    """Sample the site B (or `name`) of a side, each of whose rows has this law; return X B."""
    with numpyro.plate(f"{side}_feature", x.width):
        return x.times(numpyro.sample(f"{name}.{side}", law))


def prior_mean(p: Any, query: Any, side: str, mu: jax.Array) -> jax.Array:
    """The prior mean of a row without training data; if the query has features, a table (`Query`)."""
    x = getattr(query, side, None)
    return mu if x is None or not linked(p, side) else mu + x.times(p.B[side])


def turned(p: Any, user: Any, item: Any) -> dict[str, jax.Array] | None:
    """B after a linear map for the side of users and one for that of items."""
    move = {"user": user, "item": item}
    return p.B and {side: move[side](B) for side, B in p.B.items()}
