"""Groups of similar labels, and the law of a factor whose columns can be zero for whole groups of labels."""

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
from bayesfac.labels.data.tasks import LABELS, Tasks

NEAR = 7  # a label's scale is its distance to its neighbour of this rank


def checked(data: Tasks, groups: Any, K: int | None) -> tuple[int, ...]:
    """The group of every label: `groups` renumbered, or K (by default at most 10) groups by clustering."""
    L = len(data.labels)
    if K is not None:
        checks.whole("n_groups", K, L, "the number of labels")
    if groups is None:
        Y = data[LABELS][data.labelled]
        return spectral_groups(Y, K) if K is not None else usual_groups(Y, data.had)
    if np.shape(groups) != (L,):
        got = groups if np.ndim(groups) == 0 else np.shape(groups)
        raise ValueError(f"Expected a group for each of {L} labels in a row, got {got}")
    numbered = in_order(groups)
    if K not in (None, max(numbered) + 1):
        raise ValueError(f"Expected {K} groups, or n_groups left out, got {max(numbered) + 1}")
    return numbered


def usual_groups(Y: Any, had: np.ndarray) -> tuple[int, ...]:
    """At most 10 groups of the labels that some row has, and one group of all other labels."""
    code = np.full(len(had), -1)
    if had.any():
        code[had] = spectral_groups(Y[:, had], min(10, had.sum()))
    return in_order(code)


def spectral_groups(Y: Any, K: int) -> tuple[int, ...]:
    """The group of every column of Y: self-tuning spectral clustering (Zelnik-Manor & Perona, NIPS 2004).

    A_ij = exp(-|Y_i - Y_j|^2 / (s_i s_j)), with s_i the distance to the seventh neighbour. k-means is applied
    to the first K eigenvectors of D^-1/2 A D^-1/2, with rows scaled to length one. Columns are first sorted
    by their distances, so neither the order of rows nor that of columns matters. Groups are numbered in order
    of appearance. With fewer than K distinct columns there are fewer groups.

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
    code = np.empty(len(order), int)
    code[order] = kmeans_labels(x, min(K, several), 0)
    return in_order(code)


def affinity(far: np.ndarray) -> np.ndarray:
    """A from squared distances: 0 on the diagonal, 1 between equal columns."""
    n = len(far)
    scale = np.sort(np.sqrt(far), 1)[:, min(NEAR, n - 1)]
    wide = scale[:, None] * scale
    apart = far / np.where(wide > 0, wide, 1)
    A = np.exp(-np.where((wide > 0) | (far == 0), apart, np.inf))
    np.fill_diagonal(A, 0)
    return A


def in_order(groups: Any) -> tuple[int, ...]:
    """Groups renumbered in order of appearance: (7, 3, 7) becomes (0, 1, 0)."""
    number: dict[int, int] = {}
    return tuple(number.setdefault(plain(g), len(number)) for g in groups)


def norms(V: jax.Array, groups: tuple[int, ...]) -> jax.Array:
    """|V[group, column]|, groups x columns; the derivative at zero is set to zero."""
    squares = jax.ops.segment_sum(V**2, jnp.asarray(groups), max(groups) + 1)
    return jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1)), 0)


def shrink(V: jax.Array, groups: tuple[int, ...], threshold: jax.Array) -> jax.Array:
    """Shorten every column of every group by `threshold`, at most to zero (6.10)."""
    size = norms(V, groups)
    kept = jnp.maximum(1 - threshold / jnp.where(size > 0, size, 1), 0)
    return V * kept[jnp.asarray(groups)]


class GroupLaplace(dist.Distribution):
    """A labels x columns factor with density exp(-weight sum of `norms`): the direction of every group and
    column is uniform, and its length has a Gamma law."""

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
