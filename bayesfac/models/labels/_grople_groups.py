"""Groups of alike labels, and a factor of labels in which a column is on or off for all of a group."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import scipy.sparse as sp
from numpyro.distributions import constraints

from bayesfac.core import checks
from bayesfac.core.clustering import kmeans_labels, leading, normalised, unit_rows
from bayesfac.core.data.reading import plain
from bayesfac.core.data.tasks import LABELS, Tasks
from bayesfac.models.labels import _proximal as proximal

NEAR = 7  # the neighbour whose distance is a label's own scale


def settled(data: Tasks, groups: Any, K: int | None) -> tuple[int, ...]:
    """The groups that were given, numbered as they appear, or else K (10, or one a label) that are found."""
    L = len(data.labels)
    if K is not None:
        checks.whole("n_groups", K, L, "the number of labels")
    if groups is None:
        return spectral_groups(data[LABELS][data.labelled], min(10, L) if K is None else K)
    if np.shape(groups) != (L,):
        got = groups if np.ndim(groups) == 0 else np.shape(groups)
        raise ValueError(f"Expected a group for each of {L} labels in a row, got {got}")
    found = in_order(groups)
    if K not in (None, max(found) + 1):
        raise ValueError(f"Expected {K} groups, or n_groups left out, got {max(found) + 1}")
    return found


def spectral_groups(Y: Any, K: int) -> tuple[int, ...]:
    """The group of every column of Y: self-tuning spectral clustering (Zelnik-Manor & Perona, NIPS 2004).

    A_ij = exp(-|Y_i - Y_j|^2 / (s_i s_j)), s_i the distance to the seventh neighbour; k-means on the first K
    eigenvectors of D^-1/2 A D^-1/2, rows of length one. Columns are put in an order that their distances
    alone decide before anything else, so that neither the order of rows nor that of columns matters. Groups
    are numbered as they appear; there are fewer than K where fewer columns can be told apart.

    Examples
    --------
    >>> spectral_groups(np.array([[1, 0, 1, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 1, 0, 1]]), 2)
    (0, 1, 0, 1)
    """
    Y = sp.csr_matrix(Y, dtype=np.float64)
    gram = (Y.T @ Y).toarray()
    size = gram.diagonal()
    far = np.maximum(size[:, None] + size - 2 * gram, 0)
    order = np.lexsort(np.sort(far, 1).T[::-1])
    S = normalised(sp.csr_matrix(affinity(far[order][:, order])))
    x = unit_rows(leading(S, K, np.random.default_rng(0)))
    several = len(np.unique(x.round(6), axis=0))
    found = np.empty(len(order), int)
    found[order] = kmeans_labels(x, min(K, several), 0)
    return in_order(found)


def affinity(far: np.ndarray) -> np.ndarray:
    """A from squared distances, zero on the diagonal; columns that are equal have 1."""
    n = len(far)
    scale = np.sort(np.sqrt(far), 1)[:, min(NEAR, n - 1)]
    wide = scale[:, None] * scale
    apart = far / np.where(wide > 0, wide, 1)
    A = np.exp(-np.where((wide > 0) | (far == 0), apart, np.inf))
    np.fill_diagonal(A, 0)
    return A


def in_order(groups: Any) -> tuple[int, ...]:
    """The same groups, numbered as they appear: (7, 3, 7) is (0, 1, 0)."""
    number: dict[int, int] = {}
    return tuple(number.setdefault(plain(g), len(number)) for g in groups)


def norms(V: jax.Array, groups: tuple[int, ...]) -> jax.Array:
    """|V[group, column]|, groups x columns; with a slope of zero at zero."""
    squares = jax.ops.segment_sum(V**2, jnp.asarray(groups), max(groups) + 1)
    return jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1)), 0)


def shrink(V: jax.Array, groups: tuple[int, ...], threshold: jax.Array) -> jax.Array:
    """Every column of every group shorter by so much, at most zero (6.10 of GroPLE)."""
    size = norms(V, groups)
    left = jnp.maximum(1 - threshold / jnp.where(size > 0, size, 1), 0)
    return V * left[jnp.asarray(groups)]


def lower(
    V: jax.Array, G: jax.Array, B: jax.Array, groups: tuple[int, ...], weight: float, steps: int
) -> jax.Array:
    """Lower tr(V G V') - 2 tr(V'B) + weight sum of `norms`, for all groups at once.

    G lies below its diagonal times the largest eigenvalue of G scaled to a diagonal of one: a step of its own
    for every column, and nearly Newton's where columns are nearly orthogonal.
    """
    size = jnp.maximum(jnp.diag(G), jnp.finfo(G.dtype).eps * jnp.max(jnp.diag(G)) + 1e-30)
    most = jnp.linalg.eigvalsh(G / jnp.sqrt(size[:, None] * size))[-1]
    bend = 2 * size * most

    def cost(V: jax.Array, VG: jax.Array) -> jax.Array:
        return jnp.sum(V * (VG - 2 * B)) + weight * jnp.sum(norms(V, groups))

    def ahead(V: jax.Array, slope: jax.Array) -> jax.Array:
        return shrink(V - slope / bend, groups, weight / bend)

    return proximal.accelerated(V, lambda V: V @ G, cost, lambda _, VG: 2 * (VG - B), ahead, steps)


class GroupLaplace(dist.Distribution):
    """A factor labels x columns with density exp(-weight sum of `norms`): in every group and column a
    direction at random, and a length with a Gamma law."""

    arg_constraints: dict[str, Any] = {}
    support = constraints.real_matrix
    pytree_aux_fields = ("groups", "columns", "weight")

    def __init__(self, groups: tuple[int, ...], columns: int, weight: float) -> None:
        self.groups, self.columns, self.weight = groups, columns, weight
        super().__init__((), (len(groups), columns))

    def log_prob(self, value: jax.Array) -> jax.Array:
        if value.ndim > 2:
            return jax.vmap(self.log_prob)(value)
        return -self.weight * jnp.sum(norms(value, self.groups))

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        if sample_shape:
            keys = jax.random.split(key, sample_shape)
            flat = jax.vmap(self.sample)(jnp.ravel(keys))
            return jnp.reshape(flat, (*sample_shape, *self.event_shape))
        direction, length = jax.random.split(key)
        z = jax.random.normal(direction, self.event_shape)
        members = jnp.bincount(jnp.asarray(self.groups), length=max(self.groups) + 1)
        r = jax.random.gamma(length, members[:, None], (len(members), self.columns)) / self.weight
        return z * (r / norms(z, self.groups))[jnp.asarray(self.groups)]
