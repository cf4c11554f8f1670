r"""Cluster probabilities that are smooth on graphs: the penalty of ltm, concat_ltm and mggm, and its step.

Wang et al., "Multi-view learning via multiple graph regularized generative model", Knowledge-Based Systems
2017, eq. 3-11 and 15. One graph gives Cai et al.'s LTM (ICML 2009), and with the squared difference their
LapPLSI (CIKM 2008). With each edge {i, s} of graph t counted once,

    kl        R_t = sum_is U^t_is sum_k (a_ik - a_sk) (log a_ik - log a_sk)      (3)
    squared   R_t = sum_is U^t_is sum_k (a_ik - a_sk)^2                          (7)
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from bayesfac.core import events
from bayesfac.core.data.graphs import Graphs, degrees, differences
from bayesfac.core.kernels.sparse import spread
from bayesfac.core.laws.simplex import TiltedDirichlet
from bayesfac.core.math import normalise, safe_log
from bayesfac.models.topics._smooth_draws import SmoothRows

DIVERGENCES = ("kl", "squared")
HALVINGS = 12
PASSES = 4  # of the bound in a sweep; a pass is cheap compared with one over all words
NEWTON = 50  # largest number of Newton steps; about ten are needed
TRIES = 200  # largest number of iterations of conjugate gradients; warm starts need about ten


def roughness(A: jax.Array, graphs: Graphs, divergence: str) -> jax.Array:
    """R_t of every graph."""
    other = safe_log(A) if divergence == "kl" else A
    return graphs.weight @ differences(graphs, A, other)


def penalty(A: jax.Array, graphs: Graphs, hyper: Any, mu: jax.Array | float = 1.0) -> jax.Array:
    """lambda sum_t mu_t R_t."""
    return hyper.penalty * jnp.sum(mu * roughness(A, graphs, hyper.divergence))


def rows(
    A: jax.Array, words: TiltedDirichlet, graphs: Graphs, hyper: Any, mu: jax.Array | float = 1.0
) -> TiltedDirichlet | SmoothRows:
    """The distribution of A; without a penalty, its rows follow `words`."""
    if not hyper.penalty:
        return words
    weight = hyper.penalty * jnp.broadcast_to(mu, len(graphs.names)) @ graphs.weight
    return SmoothRows(A, words, graphs, weight, hyper.divergence == "kl")


def best_weights(rough: jax.Array, selectivity: float) -> jax.Array:
    """alpha of (8) for the R_t in `rough`, by (10): proportional to R_t^(l/(l - 1)), l = lambda_2."""
    return jax.nn.softmax(selectivity / (selectivity - 1) * safe_log(rough))


def smooth_rows(
    A: jax.Array, V: jax.Array, graphs: Graphs, hyper: Any, mu: jax.Array | float = 1.0
) -> jax.Array:
    """Lower F(A) = - sum V log A + penalty(A) with rows of A on the simplex; without a penalty, the EM step.

    squared: PASSES times the minimum of a bound on F in which the rows are independent (`_apart`).

    kl: first the step of (15), Y = (Omega + L)^-1 V with Omega the row sums of V. As Omega + L is an M-matrix
    and L 1 = 0, Y is not negative and its rows sum to one. (15) replaces the divergence by a quadratic, so F
    may be higher at Y. Then the step towards Y is halved until F does not rise. A fixed point of (15) need
    not be one of F, so a scaled step along the gradient of F follows, which is halved in the same way.
    """
    if not hyper.penalty:
        return normalise(V, A)
    # rows of an extrapolated A may sum to more than one, which would make F too low
    A = normalise(A, A)
    weight = hyper.penalty * jnp.broadcast_to(mu, len(graphs.names)) @ graphs.weight  # of each edge
    times_edges = partial(spread, graphs.cells.by_row, weight[graphs.edge])  # A -> E A
    degree = degrees(graphs, weight)[:, None]
    if hyper.divergence == "squared":
        return jax.lax.fori_loop(0, PASSES, lambda _, A: _apart(A, V, degree, times_edges(A)), A)

    def cost(A: jax.Array) -> jax.Array:
        return weight @ differences(graphs, A, safe_log(A)) - jnp.sum(V * safe_log(A))

    X, Y = A, normalise(jnp.maximum(solve(times_edges, degree, V, A), 0), A)
    A, F = _shorten(A, cost(A), cost, lambda s: X + s * (Y - X), "the step of (15) was shortened")
    B = safe_log(A)
    step = _downhill(A, V, degree, B, times_edges(A), times_edges(B))
    return _shorten(A, F, cost, lambda s: jax.nn.softmax(B + s * step, -1), None)[0]


@jax.jit
def _apart(A: jax.Array, V: jax.Array, degree: jax.Array, EA: jax.Array) -> jax.Array:
    """The rows a of the simplex with the lowest - V log a + 2 d a^2 - 2 a (d A + E A), d the row's degree.

    With m the mean of the present values of two neighbours, (a - b)^2 <= 2 (a - m)^2 + 2 (b - m)^2, and both
    sides are equal if A does not change. So F does not rise. With the multiplier nu of a row's sum, each a is
    the positive root of 4 d a^2 - h a - V = 0, h = 2 (d A + E A) - nu. The sum of these roots is convex and
    falls as nu grows, so Newton's steps from below never pass the nu at which the sum is one.
    """
    tiny, nearly = jnp.finfo(A.dtype).tiny, 8 * A.shape[1] * jnp.finfo(A.dtype).eps
    empty = (degree == 0) & (jnp.sum(V, -1, keepdims=True) == 0)  # such a row does not change
    d, target = jnp.maximum(degree, tiny), 2 * (degree * A + EA)

    def roots(nu: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The roots, Newton's step from nu, and the sum of the roots minus one."""
        h = target - nu
        length = jnp.sqrt(h**2 + 16 * d * V)
        a = jnp.where(h > 0, (h + length) / (8 * d), 2 * V / jnp.maximum(length - h, tiny))
        excess = jnp.where(empty, 0, jnp.sum(a, -1, keepdims=True) - 1)
        fall = jnp.sum(a / jnp.maximum(length, tiny), -1, keepdims=True)
        return a, excess / jnp.maximum(fall, tiny), excess

    def unsolved(state: tuple) -> jax.Array:
        return (state[0] < NEWTON) & (jnp.max(state[3]) > nearly)

    def newton(state: tuple) -> tuple:
        count, nu, step, _ = state
        return count + 1, nu + step, *roots(nu + step)[1:]

    low = jnp.max(target + V, -1, keepdims=True) - 4 * d  # here the largest root is one
    nu = jax.lax.while_loop(unsolved, newton, (jnp.zeros((), jnp.int32), low, *roots(low)[1:]))[1]
    return jnp.where(empty, A, normalise(roots(nu)[0], A))


@jax.jit
def _downhill(
    A: jax.Array, V: jax.Array, degree: jax.Array, B: jax.Array, EA: jax.Array, EB: jax.Array
) -> jax.Array:  # fmt: skip
    """Minus the gradient of F in log A, divided by a scale of each row: its words plus twice its degree."""
    tiny = jnp.finfo(A.dtype).tiny
    positive = jnp.maximum(A, tiny)
    # d/dA of tr A' L B, with L = D - E and B = log A: L B + (L A) / A
    slope = degree * B - EB + (degree * A - EA - V) / positive
    slope = slope - jnp.sum(A * slope, -1, keepdims=True)
    rho = jnp.sum(V, -1, keepdims=True)
    return jnp.clip(-slope / jnp.maximum(rho + 2 * degree, tiny), -3, 3)


def _shorten(A: jax.Array, F: jax.Array, cost: Any, move: Any, event: str | None) -> tuple:
    """`move(s)` for the first of s = 1, 1/2, 1/4, ... with a cost of at most `F`, else A; and its cost.

    `event` is counted where s < 1.
    """

    def worse(state: tuple) -> jax.Array:
        return (state[1] > F) & (state[0] < HALVINGS)

    def halve(state: tuple) -> tuple:
        return state[0] + 1, cost(move(0.5 ** (state[0] + 1)))

    times, new = jax.lax.while_loop(worse, halve, (jnp.zeros((), A.dtype), cost(move(1.0))))
    if event is not None:
        events.tell(event, times > 0)
    accept = new <= F
    return jnp.where(accept, move(0.5**times), A), jnp.where(accept, new, F)


def solve(times_edges: Any, degree: jax.Array, V: jax.Array, start: jax.Array) -> jax.Array:
    """(Omega + D - E)^-1 V for all columns, by conjugate gradients preconditioned with the diagonal.

    `times_edges(P)` is E P; Omega has the row sums of V.
    """
    diagonal = jnp.sum(V, -1, keepdims=True) + degree
    tolerance = 1e-5 if V.dtype == jnp.float32 else 1e-10
    limit = tolerance**2 * jnp.sum(_inverse(diagonal) * V**2, 0)

    def unsolved(state: tuple) -> jax.Array:
        return (state[0] < TRIES) & jnp.any(state[4] > limit)

    def step(state: tuple) -> tuple:
        return _conjugate(*state, times_edges(state[3]), diagonal)

    R = V - diagonal * start + times_edges(start)
    P = _inverse(diagonal) * R
    begin = (jnp.zeros((), jnp.int32), start, R, P, jnp.sum(P * R, 0))
    return jax.lax.while_loop(unsolved, step, begin)[1]


def _inverse(diagonal: jax.Array) -> jax.Array:
    """1 / x, or 1 for a row without words or neighbours, whose residual is zero."""
    return 1 / jnp.where(diagonal > 0, diagonal, 1)


@jax.jit
def _conjugate(
    count: jax.Array, Y: jax.Array, R: jax.Array, P: jax.Array, size: jax.Array, EP: jax.Array,
    diagonal: jax.Array,
) -> tuple:  # fmt: skip
    """One iteration for every column; a solved column (size 0) does not change."""
    MP = diagonal * P - EP
    curvature = jnp.sum(P * MP, 0)
    length = jnp.where(curvature > 0, size / jnp.where(curvature > 0, curvature, 1), 0)
    Y, R = Y + length * P, R - length * MP
    Z = _inverse(diagonal) * R
    new = jnp.sum(Z * R, 0)
    ratio = jnp.where(size > 0, new / jnp.where(size > 0, size, 1), 0)
    return count + 1, Y, R, Z + ratio * P, new
