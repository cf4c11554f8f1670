r"""Three moves of `cp` along directions in which draws of one block after the other make small steps.

`mixed` changes the rows of a mode together with their mu and Lambda: U -> U T + 1 v'. The density of the rows
given mu and Lambda then only gets the factor of the Jacobian. Given Lambda instead, n rows together can move
by little more than 1 / sqrt(n). With T = I + e_k s', s_k = 0, residuals r and the products z of all other
modes, det T = 1, and v and s have normal laws, each given all else:

    -log p(v) = alpha/2 sum (r - v'z)^2 + beta0/2 (mu + v)' Lambda (mu + v)
    -log p(s) = alpha/2 sum (r - u_ik s'z)^2 + rate/2 (s' Lambda s - 2 s' Lambda e_k)

`path` moves the rows of all modes at once, given mu, Lambda and alpha, by a Hamiltonian path. If components
are nearly collinear, rows of several modes can change together with almost the same products. The variables q
are the rows in units of the spread that they would have if only their own mode were unknown: with Lambda =
L L', n_i cells in row i, and H the entrywise product of Lambda^-1 + mu mu' of the other modes, which is the
expected square of z,

    u_i = mu + L^-T Q (1 + alpha n_i h)^{-1/2} q_i,     L^-1 H L^-T = Q diag(h) Q'

so one length of step suits every tensor. Units and number of steps depend on mu, Lambda and alpha alone,
which the path does not change.

`traded` moves size from one of two collinear components to the other. With rows m_i and s_i of each mode, a
share p of the size and q = 1 - p, the components

    u_i = p^{1/M} (m_i + (q/p)^{1/2} s_i),    v_i = q^{1/M} (m_i - (p/q)^{1/2} s_i)

have products whose sum depends on p only in terms with three or more s: the data say little about p.
Another p maps the rows of a mode by one 2 x 2 matrix. mu and Lambda move along, which leaves for the
acceptance, with K components in M modes, the misfit, -rate/2 tr Lambda, and |T|^{-KM}. What p is at a state,
and the relative size of u and v in each mode, is drawn about the norms of the rows; the acceptance has the
densities of this draw before and after. If cosines of modes are negative, v changes its sign there; their
number must be even.
"""

from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp

from bayesfac.core.kernels import sparse
from bayesfac.core.laws.beliefs import half, square, whole
from bayesfac.core.multilinear import multiplied, others

STEP = 1.7  # times d^{-1/4} for d entries: about nine in ten paths are accepted
REACH, MOST = 4.0, 25  # length of a path, over the square root of the gap, and most steps
FAR = 0.6  # gap from which components are so far from collinear that draws of one mode are enough
TRADES, STRIDE, LOOSE = (
    3,
    0.8,
    0.1,
)  # trades of a sweep; sizes of steps of log(p / q), of draws about norms
LARGEST = 10_000  # labels of a mode up to which `mixed` is made: it takes a table of n x K x K
Tables = list[jax.Array]


def mixed(
    key: jax.Array,
    m: int,
    U: Tables,
    mu: jax.Array,
    Lambda: jax.Array,
    alpha: Any,
    data: Any,
    h: Any,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """U, mu and Lambda of mode m after draws of v, and of s for every k."""
    u, K, rows = U[m], len(mu), data.cells.modes[m]
    ones = jnp.ones_like(data.y)
    gram = whole(sparse.spread(rows, ones, others([half(square(t)) for t in U], m, data.cells)), K)
    rest = data.y - h.offset - multiplied(U, data.cells)
    slope = sparse.spread(rows, rest, others(U, m, data.cells))  # sum r z of each row

    def drawn(number: Any, precision: jax.Array, shift: jax.Array) -> jax.Array:
        root = jnp.linalg.cholesky(precision)
        z = jax.random.normal(jax.random.fold_in(key, number), shift.shape, shift.dtype)
        half = jax.scipy.linalg.solve_triangular(root, shift, lower=True)
        return jax.scipy.linalg.solve_triangular(root, half + z, lower=True, trans=1)

    def sheared(k: jax.Array, state: tuple) -> tuple:
        u, mu, Lambda, slope = state
        other = jnp.arange(K) != k
        own = h.rate * Lambda + alpha * jnp.tensordot(u[:, k] ** 2, gram, 1)
        own = jnp.where(other[:, None] & other, own, jnp.eye(K, dtype=u.dtype))
        shift = h.rate * Lambda[:, k] + alpha * u[:, k] @ slope
        s = jnp.where(other, drawn(k, own, jnp.where(other, shift, 0)), 0)
        slope -= u[:, k, None] * (gram @ s)
        T = jnp.eye(K, dtype=u.dtype).at[k].add(s)
        back = jnp.eye(K, dtype=u.dtype).at[k].add(-s)
        new = back @ Lambda @ back.T
        return u @ T, mu @ T, (new + new.T) / 2, slope

    own = alpha * gram.sum(0) + h.beta0 * Lambda
    v = drawn(K, own, alpha * slope.sum(0) - h.beta0 * Lambda @ mu)
    begin = u + v, mu + v, Lambda, slope - gram @ v
    return jax.lax.fori_loop(0, K, sheared, begin)[:3]


def without(tables: Tables, *modes: int) -> jax.Array:
    """The entrywise product of the tables of all other modes."""
    return jnp.stack([table for m, table in enumerate(tables) if m not in modes]).prod(0)


def gap(squares: Tables) -> jax.Array:
    """How far the two most alike components are from collinear, in all modes but two: between 0 and 1."""
    alike = []
    for second in squares:
        size = jnp.sqrt(jnp.diag(second))
        alike.append(jnp.abs(second / (size[:, None] * size)))
    most = jnp.stack([without(alike, *pair) for pair in combinations(range(len(alike)), 2)]).max(0)
    return 1 - jnp.max(jnp.where(jnp.eye(len(most), dtype=bool), 0, most))


def path(
    key: jax.Array, U: Tables, mu: Tables, Lambda: Tables, alpha: Any, data: Any, offset: Any
) -> Tables:
    """The rows of all modes at the end of a path, or U if it is rejected."""
    modes, cells = range(len(U)), data.cells
    squares = [jnp.linalg.inv(L) + jnp.outer(c, c) for c, L in zip(mu, Lambda, strict=True)]
    scale, turn, q = [], [], []
    for m in modes:
        root = jnp.linalg.inv(jnp.linalg.cholesky(Lambda[m]))
        h, Q = jnp.linalg.eigh(root @ without(squares, m) @ root.T)
        count = jnp.diff(cells.modes[m].ptr).astype(h.dtype)
        scale.append((1 + alpha * count[:, None] * jnp.maximum(h, 0)) ** -0.5)
        turn.append(Q.T @ root)
        q.append(jnp.linalg.solve(turn[m].T, (U[m] - mu[m]).T).T / scale[m])
    size, push, coin = jax.random.split(key, 3)
    d, dtype = sum(u.size for u in U), data.y.dtype
    step = STEP * d**-0.25 * jax.random.uniform(size, (), dtype, 0.7, 1.3)
    apart = jnp.maximum(gap(squares), 1e-6)
    far = jnp.minimum(REACH / (step * jnp.sqrt(apart)), MOST)
    steps = jnp.where(apart < FAR, far, 0).astype(int)

    def away(q: Tables) -> Tables:
        """The rows minus mu."""
        return [(q[m] * scale[m]) @ turn[m] for m in modes]

    def misfits(q: Tables) -> jax.Array:
        return (
            data.y - offset - multiplied([x + c for x, c in zip(away(q), mu, strict=True)], cells)
        )

    def leap(number: jax.Array, state: tuple) -> tuple:
        """A kick of the speeds, of half the size at both ends of the path, and a step of q."""
        q, r, rest = state
        rows = away(q)
        table = [x + c for x, c in zip(rows, mu, strict=True)]
        kick = jnp.where((number == 0) | (number == steps), step / 2, step)
        on = jnp.where(number < steps, step, 0)
        for m in modes:
            pull = alpha * sparse.spread(cells.modes[m], rest, others(table, m, cells))
            slope = ((rows[m] @ Lambda[m] - pull) @ turn[m].T) * scale[m]
            r = [*r[:m], r[m] - kick * slope, *r[m + 1 :]]
        q = [x + on * v for x, v in zip(q, r, strict=True)]
        return q, r, misfits(q)

    keys = jax.random.split(push, len(U))
    r = [jax.random.normal(k, u.shape, dtype) for k, u in zip(keys, U, strict=True)]
    rest = misfits(q)
    new, end, left = jax.lax.fori_loop(0, jnp.where(steps > 0, steps + 1, 0), leap, (q, r, rest))
    # differences first: in single precision the sums themselves would not be precise enough
    gain = alpha * jnp.sum((rest - left) * (rest + left))
    pairs = zip(away(q), away(new), Lambda, r, end, strict=True)
    for x, z, L, before, after in pairs:
        gain += jnp.sum((x - z) @ L * (x + z)) + jnp.sum((before - after) * (before + after))
    accept = jnp.log(jax.random.uniform(coin, (), dtype)) < gain / 2
    return [jnp.where(accept, x + c, u) for x, c, u in zip(away(new), mu, U, strict=True)]


def traded(
    key: jax.Array, U: Tables, mu: Tables, Lambda: Tables, alpha: Any, data: Any, h: Any
) -> tuple[Tables, Tables, Tables]:
    """U, mu and Lambda after size went from one random component to another, or as they are."""
    M, K, dtype = len(U), h.n_components, data.y.dtype
    pair, push, about, coin = jax.random.split(key, 4)
    j, k = jax.random.choice(pair, K, (2,), replace=False)

    def seen(U: Tables) -> tuple[jax.Array, jax.Array]:
        """For each mode the sign of the cosine and the logarithm of the ratio of the norms."""
        one, two = ([t[:, at] for t in U] for at in (j, k))
        sign = jnp.stack([jnp.where(u @ v < 0, -1, 1) for u, v in zip(one, two, strict=True)])
        logs = [jnp.log((u @ u) / (v @ v)) / 2 for u, v in zip(one, two, strict=True)]
        return sign, jnp.stack(logs)

    def parts(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The matrix from (m, s) to (u, v), and the logarithm of its determinant; x = log(p / q)."""
        log = jnp.stack([jax.nn.log_sigmoid(x), jax.nn.log_sigmoid(-x)])
        odds = jnp.exp(jnp.stack([-x, x]) / 2) * jnp.array([1, -1], dtype)
        matrix = jnp.exp(log / M)[:, None] * jnp.stack([jnp.ones(2, dtype), odds], 1)
        return matrix, (1 / M - 1 / 2) * log.sum()

    def misfit(U: Tables) -> jax.Array:
        return data.y - h.offset - multiplied(U, data.cells)

    sign, ratio = seen(U)
    near = ratio + LOOSE * jax.random.normal(about, (M,), dtype)
    step = STRIDE * jax.random.normal(push, (), dtype)
    (old, before), (new, after) = parts(near.sum()), parts(near.sum() + step)
    block = new @ jnp.linalg.inv(old)
    places, tables = jnp.ix_(jnp.stack([j, k]), jnp.stack([j, k])), []
    for m in range(M):
        D = jnp.stack([jnp.exp(near[m] - near.mean()), sign[m].astype(dtype)])
        own = D[:, None] * block / D
        T, back = (jnp.eye(K, dtype=dtype).at[places].set(x) for x in (own, jnp.linalg.inv(own)))
        turned = back.T @ Lambda[m] @ back
        tables.append((U[m] @ T.T, T @ mu[m], (turned + turned.T) / 2))
    rows, means, precisions = (list(each) for each in zip(*tables, strict=True))
    other, later = seen(rows)
    was, now = misfit(U), misfit(rows)
    gain = alpha / 2 * jnp.sum((was - now) * (was + now)) - K * M * (after - before)
    for mine, theirs in zip(Lambda, precisions, strict=True):
        gain += h.rate / 2 * jnp.trace(mine - theirs)
    gain += jnp.sum((near - ratio) ** 2 - (near + step / M - later) ** 2) / (2 * LOOSE**2)
    paired = (sign.prod() > 0) & jnp.all(sign == other)
    accept = paired & (jnp.log(jax.random.uniform(coin, (), dtype)) < gain)
    return jax.tree.map(
        lambda a, b: jnp.where(accept, a, b), (rows, means, precisions), (U, mu, Lambda)
    )
