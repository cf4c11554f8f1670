r"""Cluster probabilities that are smooth on graphs: what ltm, concat_ltm and mggm add to their likelihoods.

Wang et al., "Multi-view learning via multiple graph regularized generative model", Knowledge-Based Systems
2017, eq. 3-11 and 15; the single graph is Cai et al.'s LTM (ICML 2009), the squared difference their LapPLSI
(CIKM 2008). Over the edges {i, s} of graph t, each counted once,

    kl        R_t = sum_is U^t_is sum_k (a_ik - a_sk) (log a_ik - log a_sk)      (3)
    squared   R_t = sum_is U^t_is sum_k (a_ik - a_sk)^2                          (7)
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from bayesfac.core import events
from bayesfac.core.data.graphs import Graphs, degrees, differences
from bayesfac.core.kernels.sparse import loop, spread
from bayesfac.core.math import normalise, safe_log

DIVERGENCES = ("kl", "squared")
HALVINGS = 12
TRIES = 200  # conjugate gradients at most; warm starts need some ten


def roughness(A: jax.Array, graphs: Graphs, divergence: str) -> jax.Array:
    """R_t of every graph."""
    return graphs.weight @ differences(graphs, A, _other(A, divergence))


def penalty(A: jax.Array, graphs: Graphs, hyper: Any, mu: jax.Array | float = 1.0) -> jax.Array:
    """lambda sum_t mu_t R_t."""
    return hyper.penalty * jnp.sum(mu * roughness(A, graphs, hyper.divergence))


def _other(A: jax.Array, divergence: str) -> jax.Array:
    return safe_log(A) if divergence == "kl" else A


def best_weights(rough: jax.Array, selectivity: float) -> jax.Array:
    """alpha of (8), for these R_t, in closed form (10): proportional to R_t^(l/(l - 1)), l = lambda_2."""
    return jax.nn.softmax(selectivity / (selectivity - 1) * safe_log(rough))


def smooth_rows(
    A: jax.Array, V: jax.Array, graphs: Graphs, hyper: Any, mu: jax.Array | float = 1.0
) -> jax.Array:
    """Lower F(A) = - sum V log A + penalty(A), rows of A on the simplex: without a penalty, EM's own step.

    First the step of (15), Y = (Omega + L)^-1 V with Omega the row sums of V: as Omega + L is an M-matrix
    and L 1 = 0, Y is not negative and its rows sum to one. (15) comes from replacing the divergence by a
    quadratic, so F may rise at Y: then the step towards it is halved until F does not. Where (15) stands
    still F need not: one scaled step along its own gradient, halved likewise, follows.
    """
    if not hyper.penalty:
        return normalise(V, A)
    divergence, by_graph = hyper.divergence, jnp.broadcast_to(mu, len(graphs.names))
    weight = hyper.penalty * by_graph @ graphs.weight  # of every edge
    beside = partial(spread, graphs.cells.by_row, weight[graphs.edge])  # E A
    degree = degrees(graphs, weight)[:, None]

    def cost(A: jax.Array) -> jax.Array:
        return _cost(A, V, weight, differences(graphs, A, _other(A, divergence)))

    Y = _to_simplex(solve(beside, degree, V, A), A)
    A, now = _shorten(A, cost(A), cost, partial(_between, A, Y), "the step of (15) was shortened")
    other = _other(A, divergence)
    step = _downhill(A, V, degree, other, beside(A), beside(other), divergence == "kl")
    return _shorten(A, now, cost, partial(_along, A, step), None)[0]


@jax.jit
def _cost(A: jax.Array, V: jax.Array, weight: jax.Array, apart: jax.Array) -> jax.Array:
    return weight @ apart - jnp.sum(V * safe_log(A))


@jax.jit
def _to_simplex(Y: jax.Array, A: jax.Array) -> jax.Array:
    return normalise(jnp.maximum(Y, 0), A)


@jax.jit
def _between(A: jax.Array, Y: jax.Array, s: jax.Array) -> jax.Array:
    return A + s * (Y - A)


@jax.jit
def _along(A: jax.Array, step: jax.Array, s: jax.Array) -> jax.Array:
    return jax.nn.softmax(safe_log(A) + s * step, -1)


@partial(jax.jit, static_argnames="kl")
def _downhill(
    A: jax.Array, V: jax.Array, degree: jax.Array, other: jax.Array, EA: jax.Array, EB: jax.Array, kl: bool
) -> jax.Array:  # fmt: skip
    """Minus F's slope in log A, each row by its own scale: of two parts, of the words and of the graph."""
    here, tiny = jnp.maximum(A, jnp.finfo(A.dtype).tiny), jnp.finfo(A.dtype).tiny
    # d/dA of tr A' L B, with L = D - E: L log A + (L A) / A where B = log A, and 2 L A where B = A
    graph = degree * other - EB + (degree * A - EA) / here if kl else 2 * (degree * A - EA)
    slope = graph - V / here
    slope = slope - jnp.sum(A * slope, -1, keepdims=True)
    rho = jnp.sum(V, -1, keepdims=True)
    return jnp.clip(-slope / jnp.maximum(rho + 2 * degree, tiny), -3, 3)


def _shorten(A: jax.Array, now: jax.Array, cost: Any, at: Any, told: str | None) -> tuple:
    """`at(s)` for the first of s = 1, 1/2, 1/4, ... where the cost is not above `now`; else A."""

    def worse(state: tuple) -> jax.Array:
        return (state[1] > now) & (state[0] < HALVINGS)

    def halve(state: tuple) -> tuple:
        return state[0] + 1, cost(at(0.5 ** (state[0] + 1)))

    times, there = loop(worse, halve, (jnp.zeros((), A.dtype), cost(at(1.0))))
    if told is not None:
        events.tell(told, times > 0)
    fine = there <= now
    return jnp.where(fine, at(0.5**times), A), jnp.where(fine, there, now)


def solve(beside: Any, degree: jax.Array, V: jax.Array, start: jax.Array) -> jax.Array:
    """(Omega + D - E)^-1 V for all columns together, by conjugate gradients with the diagonal taken out;
    `beside(P)` is E P, Omega the row sums of V."""
    diagonal = jnp.sum(V, -1, keepdims=True) + degree
    wanted = 1e-5 if V.dtype == jnp.float32 else 1e-10
    limit = wanted**2 * jnp.sum(_inverse(diagonal) * V**2, 0)

    def going(state: tuple) -> jax.Array:
        return (state[0] < TRIES) & jnp.any(state[4] > limit)

    def step(state: tuple) -> tuple:
        return _conjugate(*state, beside(state[3]), diagonal)

    R = V - diagonal * start + beside(start)
    P = _inverse(diagonal) * R
    return loop(going, step, (jnp.zeros((), jnp.int32), start, R, P, jnp.sum(P * R, 0)))[1]


def _inverse(diagonal: jax.Array) -> jax.Array:
    """1 / x; a row without words or neighbours has nothing to solve."""
    return 1 / jnp.where(diagonal > 0, diagonal, 1)


@jax.jit
def _conjugate(
    count: jax.Array, Y: jax.Array, R: jax.Array, P: jax.Array, size: jax.Array, EP: jax.Array,
    diagonal: jax.Array,
) -> tuple:  # fmt: skip
    """One step of every column; a column that is solved (size 0) stays."""
    MP = diagonal * P - EP
    along = jnp.sum(P * MP, 0)
    far = jnp.where(along > 0, size / jnp.where(along > 0, along, 1), 0)
    Y, R = Y + far * P, R - far * MP
    Z = _inverse(diagonal) * R
    new = jnp.sum(Z * R, 0)
    turn = jnp.where(size > 0, new / jnp.where(size > 0, size, 1), 0)
    return count + 1, Y, R, Z + turn * P, new
