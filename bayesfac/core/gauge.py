"""Apply the symmetries of a method (its gauge) to parameters: rotations, permutations, changes of sign."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from bayesfac.core.method import Method, Permutation, Rotation, from_sites, gauge_of, sites


def random_copy(key: jax.Array, method: Method, params: Any) -> Any:
    """The parameters moved by a random element of every exact symmetry that the method's gauge declares."""
    flat = sites(params)
    for number, symmetry in enumerate(gauge_of(method, flat)):
        if isinstance(symmetry, Permutation) and not symmetry.exact:
            continue
        move = random_move(jax.random.fold_in(key, number), symmetry, flat)
        flat = moved(symmetry, flat, *move)
    return from_sites(method, flat)


def random_move(
    key: jax.Array, symmetry: Rotation | Permutation, flat: Mapping[str, Any]
) -> tuple[jax.Array, jax.Array]:
    """A random permutation matrix, or orthogonal matrix (one for each entry with `each`); and signs, of a
    permutation one row for each group of sites."""
    key_matrix, key_signs = jax.random.split(key)
    site, axis = next((s, a) for s, a in symmetry.axes.items() if s in flat)
    K = jnp.shape(flat[site])[axis]
    groups = max(1, len(getattr(symmetry, "groups", ())))
    signs = jnp.where(jax.random.bernoulli(key_signs, 0.5, (groups, K)), 1.0, -1.0)
    if isinstance(symmetry, Permutation):
        if symmetry.modes:  # an even number of changes
            signs = signs.at[-1].multiply(signs.prod(0))
        return jnp.eye(K)[:, jax.random.permutation(key_matrix, K)], signs
    entries = jnp.shape(flat[site])[:1] if symmetry.each else ()
    return jnp.linalg.qr(jax.random.normal(key_matrix, (*entries, K, K)))[0], signs


def moved(
    symmetry: Rotation | Permutation, flat: Mapping[str, Any], R: jax.Array, signs: jax.Array
) -> dict[str, Any]:
    """`site @ R` along the axis of every site (signed sites with `signs`), R' M R of symmetric forms."""
    result = dict(flat)

    def matrix(site: str) -> jax.Array:
        group = symmetry.group(site) if isinstance(symmetry, Permutation) else -1
        return R if group < 0 else R * jnp.atleast_2d(signs)[group]

    for site, axis in symmetry.axes.items():
        if site in flat:
            result[site] = _along(flat[site], axis, matrix(site))
    for site in symmetry.forms:
        if site in flat:
            turn = matrix(site)
            form = jnp.swapaxes(turn, -1, -2) @ flat[site] @ turn
            result[site] = (form + jnp.swapaxes(form, -1, -2)) / 2  # symmetric despite rounding
    return result


def _along(value: Any, axis: int, R: jax.Array) -> jax.Array:
    x = jnp.moveaxis(jnp.asarray(value), axis, -1)
    if R.ndim == 3:  # one matrix for each entry of the first axis
        R = R.reshape(len(R), *[1] * (x.ndim - 2), *R.shape[1:])
    return jnp.moveaxis(jnp.einsum("...k,...kl->...l", x, R.astype(x.dtype)), -1, axis)
