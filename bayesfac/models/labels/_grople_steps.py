"""The steps of GroPLE: labels near U V', U near X Z, V sparse by groups of labels and Z in every cell.

`known` says which rows have labels, as a column; the rows of U without are never looked at. What takes a
pass over the data stands in a `Point` and is linear in it, so that the rest is compiled by itself.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bayesfac.core.data.tasks import LABELS, Tasks
from bayesfac.core.kernels import tables
from bayesfac.models.labels import _embedding as embedding
from bayesfac.models.labels import _grople_correlations as correlations
from bayesfac.models.labels import _grople_groups as label_groups
from bayesfac.models.labels._proximal import accelerated, farther, soft

STEPS_V = 30
POWERS = 8  # of the labels, for their singular vectors


def rows(data: Tasks) -> jax.Array:
    """Which have labels, as a column."""
    return jnp.asarray(data.labelled)[:, None]


def signs(YV: jax.Array, V: jax.Array, known: jax.Array) -> jax.Array:
    """(2Y - 1) V from Y V."""
    return jnp.where(known, 2 * YV - jnp.sum(V, 0), 0)


def forth(data: Tasks, V: jax.Array) -> jax.Array:
    """Y V."""
    return tables.product(data.cells[LABELS], data.y[LABELS], V)


def signs_back(data: Tasks, U: jax.Array) -> jax.Array:
    """(2Y - 1)'U over labelled rows."""
    U = data.seen(LABELS, U)
    return 2 * tables.transposed(data.cells[LABELS], data.y[LABELS], U) - jnp.sum(U, 0)


def singular(key: jax.Array, data: Tasks, d: int) -> tuple[jax.Array, jax.Array]:
    """The first d singular vectors of 2Y - 1, those of rows as long as they are large, by powers of it;
    columns beyond the number of labels are zero."""
    L = len(data.labels)
    V = jax.random.normal(key, (L, min(d, L)))
    for _ in range(POWERS):
        V = jnp.linalg.qr(signs_back(data, signs(forth(data, V), V, rows(data))))[0]
    U = signs(forth(data, V), V, rows(data))
    turn = jnp.linalg.eigh(U.T @ U)[1][:, ::-1]
    U, V = (jnp.pad(A @ turn, ((0, 0), (0, d - turn.shape[0]))) for A in (U, V))
    return U, V


class Point(NamedTuple):
    """A point, and what of it takes a pass over the data: linear in the point."""

    U: jax.Array
    V: jax.Array
    Z: jax.Array
    YV: jax.Array
    XZ: jax.Array


def cost(at: Point, known: jax.Array, hyper: Any) -> jax.Array:
    """J without what U, V and Z do not change, and without the rows that have no labels."""
    U = jnp.where(known, at.U, 0)
    norms = hyper.sparsity * jnp.sum(label_groups.norms(at.V, hyper.groups))
    far = jnp.sum(known * (at.XZ - U) ** 2) + hyper.beta * jnp.sum(jnp.abs(at.Z))
    fit = misfit(U, at.V, at.YV, known)
    return fit + norms + hyper.coupling * far + bound(U, at.Z, known, hyper)


def misfit(U: jax.Array, V: jax.Array, YV: jax.Array, known: jax.Array) -> jax.Array:
    """|2Y - 1 - U V'|^2 - 4 |Y|^2 + 4 sum(Y) = |U V' + 1|^2 - 4 tr(U'Y V).

    U V' is near -1 in most cells: with U about its mean m, |U V' + 1|^2 is a sum of squares, so that nothing
    large is taken from anything large.
    """
    n = jnp.sum(known)
    W, mean = correlations.centred(U, known), jnp.sum(known * U, 0) / n
    near = jnp.sum((W.T @ W) * (V.T @ V)) + n * jnp.sum((V @ mean + 1) ** 2)
    return near - 4 * jnp.sum(known * U * YV)


def bound(U: jax.Array, Z: jax.Array, known: jax.Array, hyper: Any) -> jax.Array:
    """ridge |U|^2 + coupling tr((alpha R + gamma I) Z'Z)."""
    table = curvature(U, known, hyper) * (Z.T @ Z)
    return hyper.ridge * jnp.sum(jnp.where(known, U, 0) ** 2) + hyper.coupling * jnp.sum(table)


def curvature(U: jax.Array, known: jax.Array, hyper: Any) -> jax.Array:
    """alpha R + gamma I."""
    R = correlations.unlike_columns(U, known)
    return hyper.alpha * R + hyper.gamma * jnp.eye(len(R), dtype=R.dtype)


@partial(jax.jit, static_argnums=2)
def stretched(at: Point, known: jax.Array, hyper: Any) -> Point:
    """s U, V / s and s Z fit the labels as U, V and Z do: the s that cost less."""
    U, c = jnp.where(known, at.U, 0), hyper.coupling
    K = c * curvature(U, known, hyper) * (at.Z.T @ at.Z)
    own = jnp.diag(K)
    square = hyper.ridge * jnp.sum(U**2, 0) + c * jnp.sum(known * (at.XZ - U) ** 2, 0)
    plain = c * hyper.beta * jnp.sum(jnp.abs(at.Z), 0)
    inverse = hyper.sparsity * jnp.sum(label_groups.norms(at.V, hyper.groups), 0)
    s = correlations.lengths(square + own, plain, inverse, K - jnp.diag(own))
    return Point(at.U * s, at.V / s, at.Z * s, at.YV / s, at.XZ * s)


@partial(jax.jit, static_argnums=3)
def step_V(at: Point, YU: jax.Array, known: jax.Array, hyper: Any) -> jax.Array:
    """V with U held (6.4), where YU is (2Y - 1)'U."""
    U = jnp.where(known, at.U, 0)
    return label_groups.lower(at.V, U.T @ U, YU, hyper.groups, hyper.sparsity, STEPS_V)


@partial(jax.jit, static_argnums=2)
def step_U(at: Point, known: jax.Array, hyper: Any) -> tuple[jax.Array, jax.Array]:
    """U with V and Z held (6.3 and its place in 6.11), and whether the step had to be shortened."""
    A = at.V.T @ at.V + (hyper.ridge + hyper.coupling) * jnp.eye(at.V.shape[1])
    B = signs(at.YV, at.V, known) + hyper.coupling * at.XZ
    M = hyper.coupling * hyper.alpha * at.Z.T @ at.Z
    return correlations.lower(at.U, A, B, M, known)


def step_Z(Z: jax.Array, U: jax.Array, data: Tasks, hyper: Any, steps: int) -> jax.Array:
    """Z with U held (6.11)."""
    known, (view,) = rows(data), data.names
    K = curvature(U, known, hyper)
    at, x = data.cells[view], jnp.abs(data.y[view])
    sums = known * tables.product(at, x, jnp.ones((len(Z), 1), Z.dtype))
    bend = 2 * (tables.transposed(at, x, sums) + jnp.linalg.eigvalsh(K)[-1])
    bend = jnp.maximum(bend, 1e-12)  # of a feature that no row has, where gamma is zero

    def value(Z: jax.Array, XZ: jax.Array) -> jax.Array:
        far = jnp.sum(known * (XZ - U) ** 2) + jnp.sum((Z @ K) * Z)
        return far + hyper.beta * jnp.sum(jnp.abs(Z))

    def slope(Z: jax.Array, XZ: jax.Array) -> jax.Array:
        return 2 * (embedding.back(data, XZ - U) + Z @ K)

    def ahead(Z: jax.Array, slope: jax.Array) -> jax.Array:
        return soft(Z - slope / bend, hyper.beta / bend)

    return accelerated(Z, partial(embedding.times, data), value, slope, ahead, steps)


@partial(jax.jit, static_argnums=3)
def onward(new: Point, way: Point, known: jax.Array, hyper: Any) -> Point:
    """On from a point along a way, twice as far as long as J falls."""

    def there(t: jax.Array) -> Point:
        return jax.tree.map(lambda x, w: x + t * w, new, way)

    return there(farther(lambda t: cost(there(t), known, hyper), new.U))
