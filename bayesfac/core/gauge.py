"""Other copies of the same parameters: turned, relabelled, with other signs; to the joint all are one."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from bayesfac.core.method import Method, Permutation, Rotation, from_sites, gauge_of, sites


def random_copy(key: jax.Array, method: Method, params: Any) -> Any:
    """Moved by a random element of everything that the method declares free."""
    flat = sites(params)
    for number, free in enumerate(gauge_of(method, flat)):
        flat = moved(free, flat, *random_move(jax.random.fold_in(key, number), free, flat))
    return from_sites(method, flat)


def random_move(
    key: jax.Array, free: Rotation | Permutation, flat: Mapping[str, Any]
) -> tuple[jax.Array, jax.Array]:
    """A random orthogonal matrix (one for each entry, where these turn by themselves) or order, and signs."""
    one, other = jax.random.split(key)
    site, axis = next((s, a) for s, a in free.axes.items() if s in flat)
    K = jnp.shape(flat[site])[axis]
    signs = jnp.where(jax.random.bernoulli(other, 0.5, (K,)), 1.0, -1.0)
    if isinstance(free, Permutation):
        return jnp.eye(K)[:, jax.random.permutation(one, K)], signs
    entries = jnp.shape(flat[site])[:1] if free.each else ()
    return jnp.linalg.qr(jax.random.normal(one, (*entries, K, K)))[0], signs


def moved(
    free: Rotation | Permutation, flat: Mapping[str, Any], R: jax.Array, signs: jax.Array
) -> dict[str, Any]:
    """`site @ R` along the axes of every site, R' M R of symmetric forms; signed sites change theirs."""
    found = dict(flat)
    for site, axis in free.axes.items():
        if site in flat:
            turn = R * signs if site in getattr(free, "signed", ()) else R
            found[site] = _along(flat[site], axis, turn)
    for site in getattr(free, "forms", ()):
        if site in flat:
            form = jnp.swapaxes(R, -1, -2) @ flat[site] @ R
            found[site] = (form + jnp.swapaxes(form, -1, -2)) / 2  # what rounding took from it
    return found


def _along(value: Any, axis: int, R: jax.Array) -> jax.Array:
    x = jnp.moveaxis(jnp.asarray(value), axis, -1)
    if R.ndim == 3:  # one matrix for each entry of the first axis
        R = R.reshape(len(R), *[1] * (x.ndim - 2), *R.shape[1:])
    turned = jnp.einsum("...k,...kl->...l", x, R.astype(x.dtype))
    return jnp.moveaxis(turned, -1, axis)
