"""Links from features to the rows and biases of `pmf`: B, C and their common precision ridge.

With the links of `links.py`, u_i ~ N(B'x_i, s_u^2 I) and b_i ~ N(C'x_i, s_b^2), and the same for items.
Without features, B, C and ridge are None in Params.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from bayesfac.core.laws.links import Links, energy_of_link, ridge_energy
from bayesfac.models.ratings._shared import links


def bias_centre(p: Any, data: Any, side: str) -> jax.Array | float:
    """The part of the biases of a side that the features explain."""
    return data.x[side].times(p.C[side])[:, 0] if links.linked(p, side) else 0.0


def lone_bias(p: Any, data: Any, side: str) -> jax.Array:
    """The biases of a side minus the part that the features explain."""
    bias = p.bias_user if side == "user" else p.bias_item
    return bias - bias_centre(p, data, side) if links.linked(p, side) else bias


def precisions(side: str, hyper: Any, dtype: Any) -> tuple[jax.Array, jax.Array]:
    """The precision of a row of a side, and of its bias."""
    scale = hyper.scale_user if side == "user" else hyper.scale_item
    eye = jnp.eye(hyper.n_components, dtype=dtype)
    return eye / scale**2, eye[:1, :1] / hyper.scale_bias**2


def of_side(p: Any, side: str, hyper: Any) -> list[tuple[jax.Array, jax.Array]]:
    """The matrices B and C of a side with the precisions of their columns."""
    row, bias = precisions(side, hyper, p.U.dtype)
    return [(p.B[side], row), *([(p.C[side], bias)] if hyper.biases else [])]


def link_energy(p: Any, hyper: Any) -> jax.Array | float:
    """Minus the log density of B, C and ridge."""
    total: Any = 0.0
    for side in p.B or ():
        total += ridge_energy(p.ridge[side], hyper)
        total += sum(energy_of_link(B, p.ridge[side], L) for B, L in of_side(p, side, hyper))
    return total


def conditional_B(p: Any, data: Any, hyper: Any, side: str) -> Links:
    """B | rest."""
    rows = p.U if side == "user" else p.V
    return Links(data.x[side], rows, p.ridge[side], precisions(side, hyper, p.U.dtype)[0])


def conditional_C(p: Any, data: Any, hyper: Any, side: str) -> Links:
    """C | rest."""
    bias = p.bias_user if side == "user" else p.bias_item
    return Links(data.x[side], bias[:, None], p.ridge[side], precisions(side, hyper, p.U.dtype)[1])


def conditional_ridge(p: Any, data: Any, hyper: Any, side: str) -> dist.Gamma:
    """ridge | rest."""
    return links.of_ridge(hyper, *of_side(p, side, hyper))
