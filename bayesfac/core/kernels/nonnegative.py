"""Factors with entries of at least 0, in Numba and in JAX: coordinate descent for two errors; regressions of
rows, drawn or nearer to their minimum."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayesfac.core.data.cells import Rows
from bayesfac.core.kernels import sparse
from bayesfac.core.kernels.splitting import seed_of

ROUNDS = 10_000  # largest number of proposals; only NaN parameters need so many
EACH = 60  # a cut normal number takes as long as this number of multiplications


def positive_root(a: jax.Array, b: jax.Array, c: jax.Array | float) -> jax.Array:
    """The root h >= 0 of a h^2 - b h - c for a, c >= 0, without cancellation where b < 0.

    Examples
    --------
    >>> float(positive_root(jnp.array(2.0), jnp.array(1.0), jnp.array(3.0)))
    1.5
    """
    root, tiny = jnp.sqrt(b**2 + 4 * a * c), jnp.finfo(b.dtype).tiny
    rising = (b + root) / jnp.maximum(2 * a, tiny)
    return jnp.where(b > 0, rising, 2 * c / jnp.maximum(root - b, tiny))


def descend(H: jax.Array, num: jax.Array, gram: jax.Array, shape: float, rate: float) -> jax.Array:
    """Set every entry of H to its minimum, column by column, with the others fixed.

    The objective is h' Q h - 2 h' n + sum of (rate h - (shape - 1) log h), for the rows h of H and n of `num`
    and the matrix Q = `gram`. In entry h_k it is Q_kk h_k^2 - 2 b h_k - (shape - 1) log h_k with
    b = n_k - (Q h)_k + Q_kk h_k - rate / 2, where (Q h)_k has the old h_k.
    """
    c, half = jnp.asarray((shape - 1) / 2, H.dtype), jnp.asarray(rate / 2, H.dtype)
    if sparse.backend() == "jax":
        return _descend(H, num, gram, c, half)
    from bayesfac.core.kernels import bridge, nonnegative_loops  # not at import: loads Numba

    args, cost = (H, num, gram, jnp.stack([c, half])), H.size * len(gram)
    return bridge.call(nonnegative_loops.descend, H.dtype, [H.shape], *args, cost=cost)[0]


def _descend(
    H: jax.Array, num: jax.Array, gram: jax.Array, c: jax.Array, half: jax.Array
) -> jax.Array:
    N = num.T

    def column(k: jax.Array, T: jax.Array) -> jax.Array:
        b = N[k] - gram[k] @ T + gram[k, k] * T[k] - half
        return T.at[k].set(positive_root(gram[k, k], b, c))

    return jax.lax.fori_loop(0, len(gram), column, H.T).T


class Tables(NamedTuple):
    """The stored cells of one or more tables side by side, X_1, X_2, ..., whose rows are the rows of H.

    ptr     (tables, rows + 1): where the cells of each row of each table begin, in the list of all cells
    column  the column of every cell, counted over all tables
    x       the value of every cell
    first   for each row of H, the row of `others` for column 0: sets of rows may have `others` of their own
    """

    ptr: jax.Array
    column: jax.Array
    x: jax.Array
    first: jax.Array | np.ndarray


def descend_divergence(
    H: jax.Array, sums: jax.Array, cells: Tables, others: jax.Array, shape: float, rate: float
) -> jax.Array:
    """Bring every entry of H nearer to its minimum, one after the other, with all entries before it renewed.

    For a row h of H, its cells x_j and the rows g_j of `others` the objective is

        s'h - sum_j x_j log(g_j'h) + sum_k (rate h_k - (shape - 1) log h_k),

    a generalised Kullback-Leibler divergence if `sums` has s = sum of g_j over all columns, with or without a
    cell. In entry h = h_k its slope is D - N(h) with D = s_k + rate and

        N(h) = sum_j x_j g_jk / (g_j'h) + (shape - 1) / h.

    1 / N is concave in h, so Newton's step for 1 / N(h) = 1 / D, h + N (N - D) / (D |N'|), never passes the
    minimum upwards. Downwards it may. The slope is concave in h, so the objective has not risen if the slopes
    before and after the step have a sum of at least 0. Otherwise the multiplicative step h N / D is made. It
    never raises the objective (Lee & Seung, "Algorithms for non-negative matrix factorization", NIPS 2000).
    Cells where g_j'h is 0 have no effect. Entries of 0 are left out where N <= D as their row's turn begins.
    """
    prior = jnp.asarray([shape - 1, rate], H.dtype)
    if sparse.backend() == "jax":
        return _descend_divergence(H, sums, cells, others, prior)
    from bayesfac.core.kernels import bridge, nonnegative_loops  # not at import: loads Numba

    real = [a.astype(H.dtype) for a in (cells.x, others)]
    whole = [jnp.asarray(a, jnp.int32) for a in (cells.ptr, cells.column, cells.first)]
    args, cost = (H, sums, prior, *whole, *real), 6 * len(cells.column) * H.shape[1]
    kernel = nonnegative_loops.descend_divergence
    return bridge.call(kernel, H.dtype, [H.shape], *args, cost=cost)[0]


def _descend_divergence(
    H: jax.Array, sums: jax.Array, cells: Tables, others: jax.Array, prior: jax.Array
) -> jax.Array:
    n, size = len(H), len(cells.column)
    counts = jnp.diff(cells.ptr, axis=1).ravel()
    rows = jnp.tile(jnp.arange(n), len(cells.ptr))
    row = jnp.repeat(rows, counts, total_repeat_length=size)
    G = others[jnp.asarray(cells.first)[row] + cells.column].astype(H.dtype)
    fit, info = jnp.sum(H[row] * G, 1), jnp.finfo(H.dtype)
    x = jnp.where(fit > 4 * info.tiny * cells.x, cells.x, 0).astype(H.dtype)
    fit = jnp.where(x > 0, fit, 1)

    def summed(values: jax.Array) -> jax.Array:
        return jax.ops.segment_sum(values, row, n)

    def column(k: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        T, fit = state
        D, g = sums[:, k] + prior[1], G[:, k]
        safe_D = jnp.where(D > 0, D, 1)
        least = prior[0] / safe_D
        old = jnp.maximum(T[k], least)

        def pulled(h: jax.Array, fit: jax.Array) -> jax.Array:
            own = jnp.where(prior[0] > 0, prior[0] / jnp.where(h > 0, h, 1), 0)
            return summed(x * g / fit) + own

        def moved(new: jax.Array) -> jax.Array:
            return jnp.maximum(fit + (new - T[k])[row] * g, info.eps * fit)

        now = moved(old)
        N = pulled(old, now)
        bend = summed(x * (g / now) ** 2) + jnp.where(
            prior[0] > 0, prior[0] / jnp.where(old > 0, old, 1) ** 2, 0
        )
        some = bend > 0
        step = N * (N - D) / (safe_D * jnp.where(some, bend, 1))
        new = jnp.where(some, jnp.maximum(old + step, least), 0)
        risen = (new < old) & some & (2 * D - N - pulled(new, moved(new)) < 0)
        new = jnp.where(risen, old * N / safe_D, new)
        new = jnp.where(waits[:, k], T[k], new)
        return T.at[k].set(new), moved(new)

    D = sums + prior[1]
    begun = jax.ops.segment_sum((x / fit)[:, None] * G, row, n)
    waits = (D <= 0) | (H == 0) & (begun <= D) & (prior[0] == 0)
    return jax.lax.fori_loop(0, H.shape[1], column, (H.T, fit))[0].T


def cut_normals(key: jax.Array, m: jax.Array, s: jax.Array) -> jax.Array:
    """Numbers of N(m, s^2) cut to x >= 0 (Robert 1995).

    With c = -m / s: if c <= 0, the first normal number that is not negative. Else x = s e, where e has the
    density exp(-(c + e)^2 / 2). Exponential numbers with the rate r = (c + sqrt(c^2 + 4)) / 2 are accepted
    with probability exp(-(e - (r - c))^2 / 2). So x has no cancellation, however far 0 is in the tail.
    """
    c = -m / s
    root = jnp.sqrt(c**2 + 4)
    rate, gap = (root + jnp.abs(c)) / 2, 2 / (root + jnp.abs(c))

    def attempt(state: tuple) -> tuple:
        x, waits, number = state
        walk, coin = jax.random.split(jax.random.fold_in(key, number))
        e = jax.random.exponential(walk, m.shape, m.dtype) / rate
        near = m + s * jax.random.normal(walk, m.shape, m.dtype)
        log_u = jnp.log1p(-jax.random.uniform(coin, m.shape, m.dtype))
        fine = jnp.where(c > 0, log_u <= -((e - gap) ** 2) / 2, near >= 0) & waits
        return jnp.where(fine, jnp.where(c > 0, s * e, near), x), waits & ~fine, number + 1

    start = jnp.full_like(m, jnp.nan), jnp.isfinite(c), 0
    going = lambda state: jnp.any(state[1]) & (state[2] < ROUNDS)  # noqa: E731
    return jax.lax.while_loop(going, attempt, start)[0]


def positive_rows(
    key: jax.Array | None, old: jax.Array, times: int, rows: Rows, target: jax.Array, V: jax.Array,
    weight: jax.Array, precision: jax.Array, shift: jax.Array,
) -> jax.Array:  # fmt: skip
    """`times` passes through the entries of all rows u_i >= 0, whose density is proportional to
    exp(-u'P_i u / 2 + b_i'u), with P_i and b_i of `sparse.solve_rows`; they begin at `old`.

    Given all others, an entry is N(m, 1 / P_kk) cut to 0 and more, m = u_k + (b - P u)_k / P_kk. With a key
    each is drawn, which leaves the density of the rows as it is; without one each gets its best value,
    max(m, 0). The numbers of the two backends differ, but have the same law.
    """
    if sparse.backend() == "jax":
        P, b = sparse.normal_equations(rows, target, V, weight, precision, shift)
        return _positive_rows(key, P, b, old, times)
    from bayesfac.core.kernels import bridge, nonnegative_loops  # not at import: loads Numba

    system, products = sparse.system_of(rows, target, V, weight, precision, shift)
    layout = (jnp.asarray(a, jnp.int32) for a in system[:3])
    numbers = (a.astype(V.dtype) for a in (*system[3:], old))
    walk = jnp.zeros(0, jnp.int32) if key is None else seed_of(key)
    args = *layout, *numbers, walk, np.array([times], np.int32)
    one = rows.index.ndim == 1
    kernel = nonnegative_loops.positive_rows if one else nonnegative_loops.positive_product_rows
    cost = products / 4 + old.size * times * (old.shape[1] + EACH)
    return bridge.call(kernel, V.dtype, [old.shape], *args, cost=cost)[0]


def _positive_rows(
    key: jax.Array | None, P: jax.Array, b: jax.Array, old: jax.Array, times: int
) -> jax.Array:
    K = old.shape[1]

    def entry(number: jax.Array, u: jax.Array) -> jax.Array:
        k = number % K
        a = P[:, k, k]
        m = u[:, k] + (b[:, k] - jnp.sum(P[:, k] * u, 1)) / a
        if key is None:
            return u.at[:, k].set(jnp.maximum(m, 0))
        return u.at[:, k].set(cut_normals(jax.random.fold_in(key, number), m, a**-0.5))

    return jax.lax.fori_loop(0, times * K, entry, old)
