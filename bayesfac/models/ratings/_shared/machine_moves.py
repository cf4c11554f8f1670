r"""Moves of a Gibbs sweep of a factorization machine for what blocks alone change slowly.

`together` draws the links from features and the rows of a side in one block. Rows r_i = (b_i, u_i) have from
the
cells the precision sum_j w_ij v_j v_j' = G_i with v_j = (1, v_j), and the prior N(m + L'x_i, D^-1). Jointly:

    rows: D + G_i,   links L: X'D X + R,   between them: -D x_i'

With the rows integrated out, L has the precision X'[D - D (D + G_i)^-1 D] X + R, and conjugate gradients need
only products with X. If noise of this precision is added to the right side of a linear system, its solution
is a draw (Papandreou & Yuille, NIPS 2010). Given L, the rows follow in closed form. Before the rows, each
group of features and its ridge are rescaled together by Metropolis steps (c L, ridge / c^2), whose density is
quadratic in c. Given the rows, L alone would move only as far as the rows differ from their means under L.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from bayesfac.core import events
from bayesfac.core.data.features import Design
from bayesfac.core.kernels import sparse
from bayesfac.core.laws.beliefs import half, inverse, square, times_rows, whole
from bayesfac.core.math import metropolis
from bayesfac.models.ratings._shared.machine import (
    BIAS,
    OTHER,
    ROWS,
    Observed,
    groups,
    level_of,
    lone_bias,
    rows_of,
)

STEPS = 500  # largest number of steps of conjugate gradients
Tables = Mapping[str, jax.Array]


def moves(observed: Observed, draw: Any = None) -> dict[str, Any]:
    """{name: move}. `draw(key, p, data, hyper)` draws the auxiliary variables, if there are any."""

    def both(key: jax.Array, p: Any, data: Any, hyper: Any) -> Any:
        for number, side in enumerate(ROWS):
            if groups(p, side):
                own = jax.random.fold_in(key, number)
                first, auxiliary = jax.random.split(own)
                more = () if draw is None else (draw(auxiliary, p, data, hyper),)
                p = together(first, p, data, hyper, side, *observed(p, data, hyper, *more))
        return p

    return {"together": both, "shift": shift}


# -- features and rows in one block -------------------------------------------------------------------
class System:
    """The links and the rows of one side, given G and the right side h of the rows."""

    def __init__(self, x: Tables, G: jax.Array, D: jax.Array, mean: jax.Array, R: Tables) -> None:
        self.x: Any = x
        self.D, self.mean, self.R = D, mean, R
        self.inverse = inverse(jnp.diag(D) + G)

    def times(self, L: Tables) -> jax.Array:
        """The sum of X L."""
        return sum((self.x[key].times(L[key]) for key in L), jnp.zeros(()))

    def across(self, rows: jax.Array) -> Tables:
        return {key: self.x[key].across(rows) for key in self.R}

    def weighed(self, rows: jax.Array) -> jax.Array:
        """[D - D (D + G)^-1 D] of each row."""
        return self.D * (rows - times_rows(self.inverse, self.D * rows))

    def solved(self, right: Tables) -> Tables:
        """L by conjugate gradients."""

        def image(L: Tables) -> Tables:
            back = self.across(self.weighed(self.times(L)))
            return {key: back[key] + self.R[key] * L[key] for key in L}

        return conjugate_gradients(image, self.smoothing(), right)

    def weights(self) -> jax.Array:
        """The diagonal of D - D (D + G)^-1 D of each row."""
        return self.D - self.D**2 * jnp.einsum("nkk->nk", self.inverse)

    def diagonal(self) -> Tables:
        """The diagonal of the precision of L."""
        own = self.weights()
        return {key: squared(self.x[key], own) + self.R[key] for key in self.R}

    def smoothing(self) -> Callable[[Tables], Tables]:
        """An approximate inverse of the precision of L, from its diagonal.

        Along the leading eigenvectors Q of X'X, if a group has them, it is the inverse of w Q'X'XQ + R
        instead, with w the mean weight of a row.
        """
        diagonal, w = self.diagonal(), self.weights().mean(0)

        def one(key: str, rest: jax.Array) -> jax.Array:
            pair = getattr(self.x[key], "leading", None)
            if pair is None:
                return rest / diagonal[key]
            (size, Q), R = pair, self.R[key]
            part = Q.T @ rest
            others = (rest - Q @ part) / diagonal[key]
            return others + Q @ (part / (w * size[:, None] + R) - Q.T @ others)

        return lambda rest: {key: one(key, rest[key]) for key in rest}

    def rows(self, h: jax.Array, L: Tables) -> jax.Array:
        """The rows given L."""
        return times_rows(self.inverse, h + self.D * (self.mean + self.times(L)))

    def right(self, h: jax.Array) -> Tables:
        """X'[D (D + G)^-1 (h + D m) - D m]: the right side of L."""
        inner = times_rows(self.inverse, h + self.D * self.mean)
        return self.across(self.D * (inner - self.mean))


def squared(x: Any, rows: jax.Array) -> jax.Array:
    """(X o X)'rows."""
    if isinstance(x, Design):
        return (x.table**2).T @ rows
    return sparse.spread(x.cells.by_col, x.value**2, rows)


def conjugate_gradients(image: Any, smoothed: Any, right: Tables) -> Tables:
    """The solution of image(L) = right, where `smoothed` is approximately the inverse of image.

    The loop ends when the squared error, in units of the precision, is about eps times that of the solution.
    The solution has at least one such unit for each of its numbers, so each number of a draw lacks about the
    fraction eps of its variance.
    """

    def dot(a: Tables, b: Tables) -> jax.Array:
        return sum((jnp.sum(a[key] * b[key]) for key in a), jnp.zeros(()))

    def plus(a: Tables, t: Any, b: Tables) -> Tables:
        return {key: a[key] + t * b[key] for key in a}

    first = smoothed(right)
    size = dot(right, first)
    goal = jnp.finfo(size.dtype).eps * size

    def going(state: tuple) -> jax.Array:
        return (state[3] > goal) & (state[4] < STEPS)

    def step(state: tuple) -> tuple:
        L, rest, ahead, energy, count = state
        moved = image(ahead)
        length = energy / dot(ahead, moved)
        L, rest = plus(L, length, ahead), plus(rest, -length, moved)
        turned = smoothed(rest)
        new = dot(rest, turned)
        return L, rest, plus(turned, new / energy, ahead), new, count + 1

    zero = {key: jnp.zeros_like(value) for key, value in right.items()}
    begin = (zero, right, first, size, jnp.zeros((), int))
    L, *_, count = jax.lax.while_loop(going, step, begin)
    events.tell(f"conjugate gradients for L stopped after {STEPS} steps", count >= STEPS)
    return L


def prior(p: Any, side: str) -> tuple[jax.Array, jax.Array, Tables]:
    """D, m and R of a side."""
    level = jnp.asarray(level_of(p, side), p.U.dtype)
    D = jnp.concatenate([p.tau_bias[side][None], p.tau[side]])
    R = {
        key: D * jnp.where(jnp.arange(len(D)) == 0, p.ridge_bias[key], p.ridge[key])
        for key in groups(p, side)
    }
    return D, jnp.concatenate([level[None], p.mu[side]]), R


def together(
    key: jax.Array, p: Any, data: Any, hyper: Any, side: str, target: jax.Array, weight: Any
) -> Any:
    """Draw B, C and their ridges with the rows integrated out; then rows and biases."""
    other, cells, mine = OTHER[side], data.cells, rows_of(data, side)
    code = cells.col if side == "user" else cells.row
    fixed = getattr(p, BIAS[other])
    v = jnp.concatenate([jnp.ones_like(fixed)[:, None], getattr(p, ROWS[other])], 1)
    rest, w = target - fixed[code], jnp.broadcast_to(weight, target.shape)
    K, keys = v.shape[1], jax.random.split(key, 5)
    G = whole(sparse.spread(mine, w, half(square(v))), K)
    D, mean, R = prior(p, side)
    system = System({k: data.x[k] for k in R}, G, D, mean, R)
    h, n = sparse.spread(mine, w * rest, v), data.shape[side == "item"]
    z = jnp.sqrt(D) * jax.random.normal(keys[0], (n, K), v.dtype)
    own = sparse.spread(mine, jnp.sqrt(w) * jax.random.normal(keys[1], w.shape, v.dtype), v)
    noisy = system.across(D * times_rows(system.inverse, h + D * mean + own + z) - D * mean - z)
    for number, k in enumerate(R):
        e = jax.random.normal(jax.random.fold_in(keys[2], number), noisy[k].shape, v.dtype)
        noisy = {**noisy, k: noisy[k] + jnp.sqrt(R[k]) * e}
    L = system.solved(noisy)
    p, L = swollen(keys[4], p, hyper, system, h, L)
    e = jax.random.normal(keys[3], (n, K), v.dtype)
    root = jnp.linalg.cholesky(system.inverse)
    rows = system.rows(h, L) + times_rows(root, e)
    B = {**p.B, **{k: L[k][:, 1:] for k in L}}
    C = {**p.C, **{k: L[k][:, :1] for k in L}}
    return p._replace(B=B, C=C, **{BIAS[side]: rows[:, 0], ROWS[side]: rows[:, 1:]})


def swollen(
    key: jax.Array, p: Any, hyper: Any, system: System, h: jax.Array, L: Tables
) -> tuple[Any, Tables]:
    """Metropolis steps L -> c L, ridge -> ridge / c^2 of each group, for factors and for biases.

    Let t = log c, q = L'(X'WX)L of the scaled part, and l its product with the right side minus the other
    parts. Then t has the density exp(c l - c^2 q / 2 - 2 a t - b ridge (c^-2 - 1)).
    """
    goal, parts = system.right(h), {}
    for k, site in ((k, s) for k in L for s in ("ridge", "ridge_bias")):
        at = (jnp.arange(L[k].shape[1]) == 0) == (site == "ridge_bias")
        part = jnp.where(at, L[k], 0)
        parts[k, site] = part, system.across(system.weighed(system.x[k].times(part)))
    back = {k: sum(image[k] for _, image in parts.values()) for k in L}  # of the whole of L
    for number, ((k, site), (part, image)) in enumerate(parts.items()):
        q, ridge = jnp.sum(part * image[k]), getattr(p, site)[k]
        left = jnp.sum(part * (goal[k] - back[k])) + q

        def density(t: jax.Array, q: Any = q, left: Any = left, ridge: Any = ridge) -> jax.Array:
            t, c = t[:, 0], jnp.exp(t[:, 0])
            own = 2 * hyper.ridge_shape * t + hyper.ridge_rate * ridge * (c**-2 - 1)
            return c * left - c**2 * q / 2 - own

        width, walk = jax.random.split(jax.random.fold_in(key, number))
        step = 10 ** (-2 * jax.random.uniform(width, (), q.dtype))
        t = metropolis(walk, jnp.zeros((1, 1), q.dtype), step, density, times=4)[0, 0]
        grown = (jnp.exp(t) - 1) * part
        L = {**L, k: L[k] + grown}
        back = {key: back[key] + (jnp.exp(t) - 1) * image[key] for key in back}
        p = p._replace(**{site: {**getattr(p, site), k: ridge * jnp.exp(-2 * t)}})
    return p, L


# -- symmetries of the scores --------------------------------------------------------------------------
def shift(key: jax.Array, p: Any, data: Any, hyper: Any) -> Any:
    """Draw d exactly along v_j -> v_j + d, mu -> mu + d of one side, b_i -> b_i - u_i.d of the other, and the
    same with the sides exchanged.

    The scores do not change. Only the priors of mu and of the biases change, and d is normal.
    """
    for number, side in enumerate(ROWS):
        other, rows = OTHER[side], getattr(p, ROWS[side])
        own, weight = lone_bias(p, data, side), hyper.beta0 * p.tau[other]
        precision = jnp.diag(weight) + p.tau_bias[side] * rows.T @ rows
        root = jnp.linalg.cholesky(precision)
        right = p.tau_bias[side] * own @ rows - weight * p.mu[other]
        e = jax.random.normal(jax.random.fold_in(key, number), right.shape, right.dtype)
        half = jax.scipy.linalg.solve_triangular(root, right, lower=True) + e
        d = jax.scipy.linalg.solve_triangular(root, half, lower=True, trans=1)
        p = p._replace(mu={**p.mu, other: p.mu[other] + d}, **{
            ROWS[other]: getattr(p, ROWS[other]) + d,
            BIAS[side]: getattr(p, BIAS[side]) - rows @ d,
        })  # fmt: skip
    return p
