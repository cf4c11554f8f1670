"""The Numba versions of the loops in nonnegative.py."""

from typing import Any

import numpy as np

from bayesfac.core.kernels.bridge import argument, compiled, matrix, result, runner, vector
from bayesfac.core.kernels.numba_loops import CELLS, add_system, bound, counted, per_row
from bayesfac.core.kernels.random_loops import cut_normal, seeded
from bayesfac.core.kernels.tiles import word


@compiled
def positive_root(a, b, c):
    """See `nonnegative.positive_root`."""
    if c == 0:
        return b / a if b > 0 else b * 0
    root = np.sqrt(b * b + 4 * a * c)
    return (b + root) / (2 * a) if b > 0 else 2 * c / (root - b)


@compiled
def _descend(f, T, problem, block, blocks):
    H, N = matrix(f, argument(f, 0), T, problem), matrix(f, argument(f, 1), T, problem)
    Q = matrix(f, argument(f, 2), T, problem)
    prior = vector(f, argument(f, 3), T, problem)
    out = matrix(f, result(f, 0), T, problem)
    n, K = H.shape
    slope = np.empty(K, H.dtype)  # half of it: (Q h - n), kept while h changes
    for i in range(n * block // blocks, n * (block + 1) // blocks):
        for k in range(K):
            slope[k] = -N[i, k]
        for k in range(K):
            h = H[i, k]
            out[i, k] = h
            if h != 0:  # many entries are 0 and stay there
                for m in range(K):
                    slope[m] += h * Q[k, m]
        for k in range(K):
            h = out[i, k]
            new = positive_root(Q[k, k], Q[k, k] * h - slope[k] - prior[1], prior[0])
            if new != h:
                out[i, k] = new
                for m in range(K):
                    slope[m] += (new - h) * Q[k, m]


_run_descend = runner(_descend, axes=2)


def descend(T: Any, slot: int) -> Any:
    return lambda frame: _run_descend(frame, T, slot)


@compiled
def _pull(ratio, g):
    """sum_j x_j g_j / fit_j, where fit_j = c_j + h g_j and ratio_j = x_j / fit_j."""
    N = ratio[0] * 0
    for j in range(len(ratio)):
        N += ratio[j] * g[j]
    return N


@compiled
def _bend(ratio, inverse, g):
    """Minus the derivative of `_pull` in h; inverse_j = 1 / fit_j."""
    found = ratio[0] * 0
    for j in range(len(ratio)):
        found += ratio[j] * inverse[j] * g[j] * g[j]
    return found


@compiled
def _pull_after(x, g, fit, step, eps):
    """`_pull` after h has changed by `step`."""
    N = x[0] * 0
    for j in range(len(x)):
        N += x[j] * g[j] / max(fit[j] + step * g[j], eps * fit[j])
    return N


@compiled
def _move(x, g, fit, ratio, inverse, step, eps):
    """What changes if h changes by `step`."""
    for j in range(len(x)):
        fit[j] = max(fit[j] + step * g[j], eps * fit[j])
        inverse[j] = 1 / fit[j]
        ratio[j] = x[j] * inverse[j]


@compiled
def _entry(old, D, more, x, g, fit, ratio, inverse, eps):
    """The new value of one entry; see `nonnegative.descend_divergence`. `more` is shape - 1."""
    N = _pull(ratio, g)
    if more == 0 and (N == 0 or (old == 0 and N <= D)):
        return old * 0  # many entries are 0 and stay there
    bend = _bend(ratio, inverse, g)
    if more > 0:
        N += more / old
        bend += more / (old * old)
    new = max(old + N * (N - D) / (D * bend), more / D)
    if new >= old:
        return new
    after = _pull_after(x, g, fit, new - old, eps)
    if more > 0:
        after += more / new
    return new if 2 * D - N - after >= 0 else old * N / D


@compiled
def _chosen(i, h, ptr, index, values, first, others, cells, x, fit, ratio, N, tiny):
    """Find the cells of row i that have an effect, and N of every entry; return how many cells there are.

    `cells` gets the rows of `others` that these cells multiply.
    """
    size, K = 0, word(len(h))
    for k in range(K):
        N[k] = 0
    for b in range(len(ptr)):
        for e in range(ptr[b, i], ptr[b, i + 1]):
            j, dot = word(first[i] + index[e]), values[0] * 0
            for k in range(K):
                dot += h[k] * others[j, k]
            if values[e] > 0 and dot > tiny * values[e]:
                cells[size], x[size], fit[size], ratio[size] = j, values[e], dot, values[e] / dot
                for k in range(K):
                    N[k] += ratio[size] * others[j, k]
                size += 1
    return size


@compiled
def _longest(ptr, begin, end):
    """The largest number of cells of a row, over all tables."""
    longest = 1
    for i in range(begin, end):
        many = 0
        for b in range(len(ptr)):
            many += ptr[b, i + 1] - ptr[b, i]
        longest = max(longest, many)
    return longest


@compiled
def _descend_divergence(f, T, problem, block, blocks):
    H, sums = matrix(f, argument(f, 0), T, problem), matrix(f, argument(f, 1), T, problem)
    prior = vector(f, argument(f, 2), T, problem)
    ptr = matrix(f, argument(f, 3), np.int32, problem)
    index = vector(f, argument(f, 4), np.int32, problem)
    first = vector(f, argument(f, 5), np.int32, problem)
    values, others = vector(f, argument(f, 6), T, problem), matrix(f, argument(f, 7), T, problem)
    out, (n, K) = matrix(f, result(f, 0), T, problem), H.shape
    begin, end = n * block // blocks, n * (block + 1) // blocks
    most = _longest(ptr, begin, end)
    room, G = np.empty((4, most), H.dtype), np.empty((K, most), H.dtype)
    cells, entries, N = np.empty(most, np.uint64), np.empty(K, np.uint64), np.empty(K, H.dtype)
    eps, tiny = np.finfo(H.dtype).eps, 4 * np.finfo(H.dtype).tiny
    for i in range(begin, end):
        size = _chosen(
            i, H[i], ptr, index, values, first, others, cells, room[0], room[1], room[2], N, tiny
        )
        x, fit, ratio, inverse = room[0, :size], room[1, :size], room[2, :size], room[3, :size]
        count = 0
        for k in range(K):
            out[i, k] = H[i, k]
            D = sums[i, k] + prior[1]
            if D > 0 and (H[i, k] > 0 or prior[0] > 0 or N[k] > D):
                entries[count] = k
                count += 1
        for j in range(size):
            inverse[j] = 1 / fit[j]
            for a in range(count):
                G[a, j] = others[cells[j], entries[a]]
        for a in range(count):
            k, g = entries[a], G[a, :size]
            h, D = H[i, k], sums[i, k] + prior[1]
            old = max(h, prior[0] / D)
            if old != h:
                _move(x, g, fit, ratio, inverse, old - h, eps)
            out[i, k] = _entry(old, D, prior[0], x, g, fit, ratio, inverse, eps)
            if out[i, k] != old:
                _move(x, g, fit, ratio, inverse, out[i, k] - old, eps)


_run_descend_divergence = runner(_descend_divergence, axes=2)


def descend_divergence(T: Any, slot: int) -> Any:
    return lambda frame: _run_descend_divergence(frame, T, slot)


@compiled
def _passes(P, b, K, u, slope, state, drawn, times):
    """Passes through the entries of one row u; see `nonnegative.positive_rows`. `slope` is b - P u."""
    for k in range(K):
        slope[k] = b[k]
        for m in range(k):
            P[k, m] = P[m, k]
    for k in range(K):
        for m in range(K):
            slope[m] -= P[k, m] * u[k]
    for _ in range(times):
        for k in range(K):
            a = np.float64(P[k, k])
            mean = u[k] + slope[k] / a
            new = cut_normal(state, mean, 1 / np.sqrt(a)) if drawn else max(mean, 0.0)
            step = b.dtype.type(new) - u[k]
            u[k] += step
            for m in range(K):
                slope[m] -= P[k, m] * step


@compiled
def _positive_shares(
    ptr, index, order, target, weight, V, precision, shift, old, key, times, out, block, blocks
):
    K = word(old.shape[1])
    P = np.zeros((V.shape[1], V.shape[1]), V.dtype)
    b, slope = np.zeros(V.shape[1], V.dtype), np.zeros(K, V.dtype)
    kept, w = np.zeros((CELLS, V.shape[1]), V.dtype), np.zeros(CELLS, V.dtype)
    counting, state, drawn = counted(CELLS), np.zeros(1, np.uint64), len(key) > 0
    more = per_row(K) + 10 * times  # cells that a row with its passes costs
    for i in range(bound(ptr, more, block, blocks), bound(ptr, more, block + 1, blocks)):
        add_system(
            i, ptr, index, order, target, weight, V, precision, shift, P, b, kept, w, counting
        )
        if drawn:
            seeded(state, key, i)
        for k in range(K):
            out[i, k] = old[i, k]
        _passes(P, b, K, out[i], slope, state, drawn, times)


@compiled
def _positive_part(f, T, problem, ptr, index, block, blocks):
    order = vector(f, argument(f, 2), np.int32, problem)
    target, weight = vector(f, argument(f, 3), T, problem), vector(f, argument(f, 4), T, problem)
    V, precision = matrix(f, argument(f, 5), T, problem), matrix(f, argument(f, 6), T, problem)
    shift, old = matrix(f, argument(f, 7), T, problem), matrix(f, argument(f, 8), T, problem)
    key = vector(f, argument(f, 9), np.int32, problem)
    times = vector(f, argument(f, 10), np.int32, problem)[0]
    given, out = (
        (target, weight, V, precision, shift, old, key, times),
        matrix(f, result(f, 0), T, problem),
    )
    _positive_shares(ptr, index, order, *given, out, block, blocks)


@compiled
def _positive_rows(f, T, problem, block, blocks):
    ptr = vector(f, argument(f, 0), np.int32, problem)
    index = vector(f, argument(f, 1), np.int32, problem)
    _positive_part(f, T, problem, ptr, index, block, blocks)


@compiled
def _positive_product_rows(f, T, problem, block, blocks):
    ptr = vector(f, argument(f, 0), np.int32, problem)
    index = matrix(f, argument(f, 1), np.int32, problem)
    _positive_part(f, T, problem, ptr, index, block, blocks)


_run_positive_rows = runner(_positive_rows, axes=2)
_run_positive_product_rows = runner(_positive_product_rows, axes=2)


def positive_rows(T: Any, slot: int) -> Any:
    return lambda frame: _run_positive_rows(frame, T, slot)


def positive_product_rows(T: Any, slot: int) -> Any:
    return lambda frame: _run_positive_product_rows(frame, T, slot)
