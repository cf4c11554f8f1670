"""The steps of GroPLE: labels near U V', U near X Z, V sparse by groups of labels and Z sparse by entry.

`known` is a column that is 1 in rows with labels; no step reads U in the other rows. A `Point` stores the
products that need a pass over the data. They are linear in U, V and Z, so all other arithmetic is compiled
without the data. R = 1 - corr(U) has a zero diagonal.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayesfac.core.kernels import tables
from bayesfac.core.kernels.lasso import lasso_pass
from bayesfac.core.programs import compiled_for
from bayesfac.labels.data.tasks import LABELS, Tasks
from bayesfac.labels.models.labels import _embedding as embedding
from bayesfac.labels.models.labels import _grople_groups as label_groups

POWERS = 8  # iterations for the singular vectors of 2Y - 1
LENGTHS = 0.5 ** np.arange(12)  # of a step: the largest that does not raise the cost is used
NEWTON = 20


def bounded(data: Tasks, hyper: Any) -> None:
    """Refuse a gamma for which J has no minimum: -R may have the eigenvalue `most`, and X w may be zero for
    a direction w of Z in all labelled rows."""
    (view,), d, known = data.names, hyper.n_components, int(data.labelled.sum())
    width = data.n_features[view]
    most = 2 * ((d // 2) * (d - d // 2)) ** 0.5
    if hyper.gamma < hyper.alpha * most * (1 - 1e-9) and width > known:
        raise ValueError(
            f"Expected gamma of at least {hyper.alpha * most:.4g} (alpha times {most:.4g}) for {known} "
            f"labelled rows with {width} features, got {hyper.gamma:g}: the objective has no minimum and the "
            "model no proper posterior; raise gamma, or leave it out"
        )


def rows(data: Tasks) -> jax.Array:
    """A column that says which rows have labels."""
    return jnp.asarray(data.labelled)[:, None]


def signs(YV: jax.Array, V: jax.Array, known: jax.Array) -> jax.Array:
    """(2Y - 1) V, computed from Y V."""
    return jnp.where(known, 2 * YV - jnp.sum(V, 0), 0)


def forth(data: Tasks, V: jax.Array) -> jax.Array:
    """Y V."""
    return tables.product(data.cells[LABELS], data.y[LABELS], V)


def signs_back(data: Tasks, U: jax.Array) -> jax.Array:
    """(2Y - 1)'U over labelled rows."""
    U = data.seen(LABELS, U)
    return 2 * tables.transposed(data.cells[LABELS], data.y[LABELS], U) - jnp.sum(U, 0)


def singular(key: jax.Array, data: Tasks, d: int) -> tuple[jax.Array, jax.Array]:
    """The first d singular vectors of 2Y - 1 by power iteration; the left ones are times singular values.

    Columns beyond the number of labels are zero.
    """
    L = len(data.labels)
    V = jax.random.normal(key, (L, min(d, L)))
    for _ in range(POWERS):
        V = jnp.linalg.qr(signs_back(data, signs(forth(data, V), V, rows(data))))[0]
    U = signs(forth(data, V), V, rows(data))
    turn = jnp.linalg.eigh(U.T @ U)[1][:, ::-1]
    U, V = (jnp.pad(A @ turn, ((0, 0), (0, d - turn.shape[0]))) for A in (U, V))
    return U, V


# -- objective ------------------------------------------------------------------------------------
class Point(NamedTuple):
    """U, V and Z with the products Y V and X Z."""

    U: jax.Array
    V: jax.Array
    Z: jax.Array
    YV: jax.Array
    XZ: jax.Array


def cost(at: Point, known: jax.Array, hyper: Any) -> jax.Array:
    """J without its constants and without the rows that have no labels."""
    return misfit(jnp.where(known, at.U, 0), at.V, at.YV, known) + rest(at, known, hyper)


def rest(at: Point, known: jax.Array, hyper: Any) -> jax.Array:
    """The cost without the squared error of the labels."""
    U = jnp.where(known, at.U, 0)
    norms = hyper.sparsity * jnp.sum(label_groups.norms(at.V, hyper.groups))
    far = jnp.sum(known * (at.XZ - U) ** 2) + hyper.beta * jnp.sum(jnp.abs(at.Z))
    return norms + hyper.coupling * far + bound(U, at.Z, known, hyper)


def misfit_along(at: Point, way: Point, known: jax.Array) -> Callable[[jax.Array], jax.Array]:
    """A function of t: the squared error at `at` + t `way` minus that at `at`.

    With the errors E = 2Y - 1 - U V', P = dU V' + U dV' and Q = dU dV', it is |E - t P - t^2 Q|^2 - |E|^2.
    Its coefficients are computed without this subtraction, because a small difference of two large numbers
    would be lost in rounding errors.
    """
    U, dU = (jnp.where(known, x, 0) for x in (at.U, way.U))
    V, dV = at.V, way.V
    to_V = signs(at.YV, V, known) - U @ (V.T @ V)  # E V
    to_dV = signs(way.YV, dV, known) - U @ (V.T @ dV)  # E dV
    UU, UD, DD = U.T @ U, U.T @ dU, dU.T @ dU
    VV, VD, WW = V.T @ V, V.T @ dV, dV.T @ dV
    EP, EQ = jnp.sum(dU * to_V) + jnp.sum(U * to_dV), jnp.sum(dU * to_dV)
    PP = jnp.sum(DD * VV) + 2 * jnp.sum(UD * VD.T) + jnp.sum(UU * WW)
    PQ, QQ = jnp.sum(DD * VD) + jnp.sum(UD * WW), jnp.sum(DD * WW)
    return lambda t: t * (-2 * EP + t * (PP - 2 * EQ + t * (2 * PQ + t * QQ)))


def misfit(U: jax.Array, V: jax.Array, YV: jax.Array, known: jax.Array) -> jax.Array:
    """|2Y - 1 - U V'|^2 - 4 |Y|^2 + 4 sum(Y) = |U V' + 1|^2 - 4 tr(U'Y V).

    U V' is near -1 in most cells, so |U V' + 1|^2 would suffer from cancellation. With U centred it does not.
    """
    n = jnp.sum(known)
    W, mean = centred(U, known), jnp.sum(known * U, 0) / n
    near = jnp.sum((W.T @ W) * (V.T @ V)) + n * jnp.sum((V @ mean + 1) ** 2)
    return near - 4 * jnp.sum(known * U * YV)


def bound(U: jax.Array, Z: jax.Array, known: jax.Array, hyper: Any) -> jax.Array:
    """ridge |U|^2 + coupling tr((alpha R + gamma I) Z'Z)."""
    table = curvature(U, known, hyper) * (Z.T @ Z)
    return hyper.ridge * jnp.sum(jnp.where(known, U, 0) ** 2) + hyper.coupling * jnp.sum(table)


def curvature(U: jax.Array, known: jax.Array, hyper: Any) -> jax.Array:
    """alpha R + gamma I."""
    R = unlike_columns(U, known)
    return hyper.alpha * R + hyper.gamma * jnp.eye(len(R), dtype=R.dtype)


def centred(U: jax.Array, known: jax.Array) -> jax.Array:
    """U minus its column means over known rows; zero in unknown rows, and in columns with rounding errors
    only.

    In single precision the gradient of the correlations of such a column would be infinite.
    """
    U = jnp.where(known, U, 0)
    W = known * (U - jnp.sum(U, 0) / jnp.sum(known))
    least = (16 * jnp.finfo(U.dtype).eps) ** 2 * jnp.max(jnp.sum(U**2, 0), initial=0.0)
    return jnp.where(jnp.sum(W**2, 0) > least, W, 0)


def unlike(S: jax.Array) -> jax.Array:
    """R from the covariances S; the entries of a constant column are 1."""
    var = jnp.diag(S)
    varies = var > 0
    sd = jnp.where(varies, jnp.sqrt(jnp.where(varies, var, 1)), 1)
    return (1 - S / sd[:, None] / sd) * (1 - jnp.eye(len(S), dtype=S.dtype))


def unlike_columns(U: jax.Array, known: jax.Array) -> jax.Array:
    """R from U.

    Examples
    --------
    >>> unlike_columns(jnp.array([[1.0, -1.0], [2.0, -2.0]]), jnp.ones((2, 1))).round(3).tolist()
    [[0.0, 2.0], [2.0, 0.0]]
    """
    W = centred(U, known)
    return unlike(W.T @ W)


# -- steps ----------------------------------------------------------------------------------------
@compiled_for(2)
def stretched(at: Point, known: jax.Array, hyper: Any) -> Point:
    """Rescale to s U, V / s and s Z, which does not change U V', with the s that lower J."""
    U, c = jnp.where(known, at.U, 0), hyper.coupling
    K = c * curvature(U, known, hyper) * (at.Z.T @ at.Z)
    own = jnp.diag(K)
    square = hyper.ridge * jnp.sum(U**2, 0) + c * jnp.sum(known * (at.XZ - U) ** 2, 0)
    plain = c * hyper.beta * jnp.sum(jnp.abs(at.Z), 0)
    inverse = hyper.sparsity * jnp.sum(label_groups.norms(at.V, hyper.groups), 0)
    s = lengths(square + own, plain, inverse, K - jnp.diag(own))
    return Point(at.U * s, at.V / s, at.Z * s, at.YV / s, at.XZ * s)


def lengths(square: jax.Array, plain: jax.Array, inverse: jax.Array, Q: jax.Array) -> jax.Array:
    """Positive s that lower sum_r (square s^2 + plain s + inverse / s)_r + s'Q s, starting at s = 1.

    Newton steps in log s ignore Q, so each column can be solved alone. The step towards the result is then
    shortened until the whole cost does not rise. A column with zero coefficients keeps s = 1.
    """

    def step(_: int, t: jax.Array) -> jax.Array:
        s = jnp.exp(t)
        slope = 2 * square * s**2 + plain * s - inverse / s
        bend = 4 * square * s**2 + plain * s + inverse / s
        return t - slope / jnp.where(bend > 0, bend, 1)

    way = jax.lax.fori_loop(0, NEWTON, step, jnp.zeros_like(square))

    def cost(s: jax.Array) -> jax.Array:
        return jnp.sum(square * s**2 + plain * s + inverse / s) + s @ Q @ s

    now = cost(jnp.ones_like(way))
    s = jnp.exp(longest(lambda t: cost(jnp.exp(t * way)) - now, jnp.abs(now))[0] * way)
    return jnp.where(cost(s) < now - rounding(now), s, 1)  # a smaller gain is lost in rounding U V'


@compiled_for(3)
def step_V(at: Point, YU: jax.Array, known: jax.Array, hyper: Any) -> jax.Array:
    """V with U fixed (6.4), all groups at once, by a proximal gradient step; YU is (2Y - 1)'U.

    The step lowers tr(V G V') - 2 tr(V'YU) + sparsity sum |V[group, r]|, with G = U'U. G is bounded by its
    diagonal times the largest eigenvalue of G scaled to a diagonal of one. This gives a step length for every
    column, and nearly Newton's step if the columns of U are nearly orthogonal.
    """
    U = jnp.where(known, at.U, 0)
    G = U.T @ U
    size = jnp.maximum(jnp.diag(G), jnp.finfo(G.dtype).eps * jnp.max(jnp.diag(G)) + 1e-30)
    bend = 2 * size * jnp.linalg.eigvalsh(G / jnp.sqrt(size[:, None] * size))[-1]
    ahead = at.V - 2 * (at.V @ G - YU) / bend
    return label_groups.shrink(ahead, hyper.groups, hyper.sparsity / bend)


@compiled_for(2)
def step_U(at: Point, known: jax.Array, hyper: Any) -> tuple[jax.Array, jax.Array]:
    """U with V and Z fixed (6.3, and U's terms in 6.11), and whether the step had to be shortened.

    The step lowers tr(U A U') - 2 tr(U'B) + tr(R M) over the known rows. The gradient is multiplied by A^-1.
    If M is zero, a full step ends at the minimum B A^-1. A step length changes only d x d tables, so trying
    many lengths costs little.
    """
    A = at.V.T @ at.V + (hyper.ridge + hyper.coupling) * jnp.eye(at.V.shape[1])
    B = signs(at.YV, at.V, known) + hyper.coupling * at.XZ
    M = hyper.coupling * hyper.alpha * at.Z.T @ at.Z
    W = centred(at.U, known)
    S = W.T @ W

    def likeness(S: jax.Array) -> jax.Array:
        return jnp.sum(unlike(S) * M)

    now, bend = jax.value_and_grad(likeness)(S)
    pull = known * (at.U @ A - B)  # half of the gradient, without that of `likeness`
    way = -jnp.linalg.solve(A, (pull + W @ (bend + bend.T) / 2).T).T
    D = centred(way, known)
    once, twice = W.T @ D + D.T @ W, D.T @ D
    first, second = 2 * jnp.sum(pull * way), jnp.sum((way @ A) * way)

    def rise(t: jax.Array) -> jax.Array:
        return t * first + t**2 * second + likeness(S + t * once + t**2 * twice) - now

    t, short = longest(rise, jnp.abs(now))
    return at.U + t * way, short


@compiled_for(3, 4)
def step_Z(Z: jax.Array, U: jax.Array, data: Tasks, hyper: Any, passes: int) -> jax.Array:
    """Z with U fixed (6.11): set every entry to its minimum, in `passes` passes."""
    known, (view,) = rows(data), data.names
    cells, K = data.cells[view], curvature(U, known, hyper)
    squares = embedding.squares(data)[:, 0]
    x = jnp.where(jnp.asarray(data.labelled)[cells.row], data.y[view], 0)

    def once(_: int, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        return lasso_pass(cells, x, squares, *state, K, hyper.beta)

    left = jnp.where(known, U - embedding.times(data, Z), 0)
    return jax.lax.fori_loop(0, passes, once, (Z, left))[0]


# -- step lengths ---------------------------------------------------------------------------------
def rounding(cost: jax.Array) -> jax.Array:
    """The rounding error of a cost; smaller differences depend on the order of additions."""
    return 8 * jnp.finfo(cost.dtype).eps * jnp.abs(cost)


def longest(rise: Callable[[jax.Array], jax.Array], size: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The largest of t = 1, 1/2, 1/4, ... with rise(t) at most the rounding of `size`, or 0; and whether t <
    1."""
    steps = jnp.asarray(LENGTHS, size.dtype)
    fine = jax.vmap(rise)(steps) <= rounding(size)
    return jnp.max(jnp.where(fine, steps, 0)), ~fine[0]
