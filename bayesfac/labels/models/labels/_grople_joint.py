"""The joint step of GroPLE: U, V and Z together, by one Newton step with conjugate gradients.

U M, V M^-T and Z M fit the labels equally well for any M, and only the penalties say which M is best. A step
of V alone has to leave the fit of the labels to change M, so it changes M by about the penalty over |U|^2,
and thousands of sweeps are needed. Here U follows V and Z. With E = 2Y - 1 - U V', half the slope G in U, and
A = V'V + (ridge + coupling) I, a change of V and Z has the change of U that is best for the quadratic model,

    dU = -(G + U dV'V - E dV - coupling X dZ) A^-1.

The model keeps R fixed, and zeros of V and Z stay zero. Entries of Z and groups of V that would change their
sign end at zero.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bayesfac.labels.data.tasks import Tasks
from bayesfac.labels.models.labels import _embedding as embedding
from bayesfac.labels.models.labels import _grople_groups as label_groups
from bayesfac.labels.models.labels import _grople_steps as steps
from bayesfac.labels.models.labels._grople_steps import Point

MOST, ENOUGH = 20, 0.1  # steps of conjugate gradients, and the relative residual at which they end
SHORTEST = 2.0**-10  # of the full step: a shorter one is not tried
Pair = tuple[jax.Array, jax.Array]  # changes of V and Z, or slopes in them


class Here(NamedTuple):
    """The point of a step, and what all products with its curvature need."""

    at: Point
    U: jax.Array  # zero in rows without labels
    UU: jax.Array  # U'U
    inverse: jax.Array  # A^-1
    R: jax.Array  # alpha R + gamma I
    unit: jax.Array  # V over the norms of its groups
    bend: jax.Array  # sparsity over these norms; zero in groups that are zero
    data: Tasks
    hyper: Any

    @property
    def known(self) -> jax.Array:
        return steps.rows(self.data)

    def errors(self, W: jax.Array) -> jax.Array:
        """E W."""
        YW = steps.forth(self.data, W)
        return steps.signs(YW, W, self.known) - self.U @ (self.at.V.T @ W)

    def back(self, W: jax.Array) -> jax.Array:
        """E'W."""
        return steps.signs_back(self.data, W) - self.at.V @ (self.U.T @ W)

    def alive(self, dV: jax.Array, dZ: jax.Array) -> Pair:
        """The changes, with zero where V and Z are zero."""
        return jnp.where(self.bend > 0, dV, 0), jnp.where(self.at.Z != 0, dZ, 0)


def here(at: Point, data: Tasks, hyper: Any) -> Here:
    known = steps.rows(data)
    U, A = jnp.where(known, at.U, 0), table_of_U(at.V, hyper)
    size = label_groups.norms(at.V, hyper.groups)[jnp.asarray(hyper.groups)]
    some = jnp.where(size > 0, size, 1)
    bend = jnp.where(size > 0, hyper.sparsity / some, 0)
    R = steps.curvature(U, known, hyper)
    return Here(at, U, U.T @ U, jnp.linalg.inv(A), R, at.V / some, bend, data, hyper)


def table_of_U(V: jax.Array, hyper: Any) -> jax.Array:
    """A."""
    return V.T @ V + (hyper.ridge + hyper.coupling) * jnp.eye(V.shape[1], dtype=V.dtype)


def joint(at: Point, data: Tasks, hyper: Any) -> Point:
    """U, V and Z after the step: the longest of 1, 1/2, 1/4, ... that lowers J, or none."""
    h = here(at, data, hyper)
    pull = pull_of_likeness(h)
    dV, dZ = solved(lambda d: curved(h, *d), right(h, pull), diagonal(h))
    now, groups = steps.rest(at, h.known, hyper), jnp.asarray(hyper.groups)
    least = steps.rounding(now)

    def there(t: jax.Array) -> tuple[jax.Array, Point, jax.Array]:
        V, Z = at.V + t * dV, at.Z + t * dZ
        turned = jax.ops.segment_sum(V * at.V, groups, max(hyper.groups) + 1)[groups] <= 0
        V, Z = jnp.where(turned, 0, V), jnp.where(Z * at.Z < 0, 0, Z)
        YV, XZ = steps.forth(data, V), embedding.times(data, Z)
        B = steps.signs(YV, V, h.known) + hyper.coupling * jnp.where(h.known, XZ, 0) - pull
        new = Point(jnp.linalg.solve(table_of_U(V, hyper), B.T).T, V, Z, YV, XZ)
        way = jax.tree.map(jnp.subtract, new, at)
        change = steps.misfit_along(at, way, h.known)(jnp.ones_like(t))
        return t, new, change + steps.rest(new, h.known, hyper) - now

    def rises(state: tuple[jax.Array, Point, jax.Array]) -> jax.Array:
        return ~(state[2] < -least) & (state[0] > SHORTEST)

    _, new, change = jax.lax.while_loop(
        rises, lambda state: there(state[0] / 2), there(jnp.ones_like(now))
    )
    return jax.tree.map(lambda new, old: jnp.where(change < -least, new, old), new, at)


# -- the quadratic model --------------------------------------------------------------------------
def pull_of_likeness(h: Here) -> jax.Array:
    """Half the slope of tr(R Z'Z) in U, with its factors."""
    table = h.hyper.coupling * h.hyper.alpha * h.at.Z.T @ h.at.Z
    return jax.grad(lambda U: jnp.sum(steps.unlike_columns(U, h.known) * table))(h.U) / 2


def right(h: Here, pull: jax.Array) -> Pair:
    """Minus half the slopes in V and Z after the step of U."""
    at, c, far = h.at, h.hyper.coupling, jnp.where(h.known, h.at.XZ - h.U, 0)
    slope = pull - h.errors(at.V) + h.hyper.ridge * h.U - c * far
    V, Z = slopes(h, -slope @ h.inverse, far)
    lasso = c * (at.Z @ h.R + h.hyper.beta / 2 * jnp.sign(at.Z))
    return h.alive(h.back(h.U) - h.hyper.sparsity / 2 * h.unit - V, -lasso - Z)


def slopes(h: Here, dU: jax.Array, far: jax.Array) -> Pair:
    """Half the slopes in V and Z that come from a change of U, and from X Z - U = `far` before it."""
    V = h.at.V @ (dU.T @ h.U) - h.back(dU)
    return V, h.hyper.coupling * embedding.back(h.data, far - dU)


def curved(h: Here, dV: jax.Array, dZ: jax.Array) -> Pair:
    """What changes of V and Z add to half the slopes in them, where U follows."""
    c, groups = h.hyper.coupling, jnp.asarray(h.hyper.groups)
    XdZ = jnp.where(h.known, embedding.times(h.data, dZ), 0)
    dU = -(h.U @ (dV.T @ h.at.V) - h.errors(dV) - c * XdZ) @ h.inverse
    V, Z = slopes(h, dU, XdZ)
    along = jax.ops.segment_sum(h.unit * dV, groups, max(h.hyper.groups) + 1)[groups]
    V += dV @ h.UU + h.bend / 2 * (dV - h.unit * along)
    return h.alive(V, Z + c * (dZ @ h.R))


def diagonal(h: Here) -> Pair:
    """About the diagonal of `curved`, and above zero."""
    free = jnp.maximum(1 - jnp.sum(h.at.V @ h.inverse * h.at.V, 1), 0)
    V = free[:, None] * jnp.diag(h.UU) + h.bend / 2 * (1 - h.unit**2)
    Z = h.hyper.coupling * (embedding.squares(h.data) + jnp.diag(h.R))
    tiny = jnp.finfo(V.dtype).tiny ** 0.5
    return jnp.maximum(V, tiny), jnp.maximum(Z, tiny)


def solved(times: Callable[[Pair], Pair], right: Pair, diagonal: Pair) -> Pair:
    """Conjugate gradients from zero; they end before a direction in which the model is not convex.

    Examples
    --------
    >>> one = jnp.ones(2)
    >>> [x.tolist() for x in solved(lambda d: (2 * d[0], 4 * d[1]), (one, one), (2 * one, 4 * one))]
    [[0.5, 0.5], [0.25, 0.25]]
    """

    def dot(a: Pair, b: Pair) -> jax.Array:
        return jnp.sum(a[0] * b[0]) + jnp.sum(a[1] * b[1])

    def plus(a: Pair, length: jax.Array, b: Pair) -> Pair:
        return a[0] + length * b[0], a[1] + length * b[1]

    def scaled(a: Pair) -> Pair:
        return a[0] / diagonal[0], a[1] / diagonal[1]

    def advance(state: tuple) -> tuple:
        number, x, left, way, size, _ = state
        image = times(way)
        bend = dot(way, image)
        convex = bend > 0
        # a first direction that is not convex is tried as it is: J falls along it
        length = jnp.where(convex, size / jnp.where(convex, bend, 1), jnp.where(number == 0, 1, 0))
        x, left = plus(x, length, way), plus(left, -length, image)
        new = dot(left, scaled(left))
        return number + 1, x, left, plus(scaled(left), new / size, way), new, convex

    way = scaled(right)
    size = dot(right, way)

    def unsolved(state: tuple) -> jax.Array:
        return (state[0] < MOST) & (state[4] > ENOUGH**2 * size) & state[5]

    nothing = jnp.zeros_like(right[0]), jnp.zeros_like(right[1])
    return jax.lax.while_loop(unsolved, advance, (0, nothing, right, way, size, size == size))[1]
