"""The Numba versions of the loops in sparse.py: compiled at their first use, then kept on disk.

Every kernel computes one share of the rows of one problem. Shares have equal work, so that no thread waits
for a few long rows. `fastmath` lets the compiler vectorise the sums; the containers check that inputs are
finite.
"""

from typing import Any

import numpy as np

from bayesfac.core.kernels.bridge import argument, compiled, matrix, result, runner, vector
from bayesfac.core.kernels.tiles import (
    FEW,
    TOGETHER,
    add_products,
    factor,
    put,
    solve_above,
    solve_below,
    solve_together,
    tables_of_systems,
    word,
)


@compiled
def bound(ptr, per_row, block, blocks):
    """The first row of a share. All shares have the same cost; a row costs its cells plus `per_row`."""
    low, high = 0, len(ptr) - 1
    if block == blocks:
        return high
    goal = (ptr[high] + per_row * high) * block / blocks
    while low < high:
        middle = (low + high) // 2
        if ptr[middle] + per_row * middle < goal:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def per_row(K):
    """The cost of a row of K unknowns beside its cells, in cells; measured for K = 10 and 32."""
    return K / 3 + 30


@compiled
def place(order, p):
    """Where cell p is in the row-major list; without an order the cells are in the order of the list."""
    return word(order[p]) if len(order) else word(p)


@compiled
def _dots(f, T, problem, block, blocks):
    ptr = vector(f, argument(f, 0), np.int32, problem)
    index = vector(f, argument(f, 1), np.int32, problem)
    U, V = matrix(f, argument(f, 2), T, problem), matrix(f, argument(f, 3), T, problem)
    out = vector(f, result(f, 0), T, problem)
    for i in range(bound(ptr, 1, block, blocks), bound(ptr, 1, block + 1, blocks)):
        for p in range(ptr[i], ptr[i + 1]):
            j, x = word(index[p]), T(0)
            for k in range(word(V.shape[1])):
                x += U[i, k] * V[j, k]
            out[p] = x


@compiled
def _differences(f, T, problem, block, blocks):
    left = vector(f, argument(f, 0), np.int32, problem)
    right = vector(f, argument(f, 1), np.int32, problem)
    A, B = matrix(f, argument(f, 2), T, problem), matrix(f, argument(f, 3), T, problem)
    out = vector(f, result(f, 0), T, problem)
    for e in range(len(left) * block // blocks, len(left) * (block + 1) // blocks):
        i, s = left[e], right[e]
        x = (A[i, 0] - A[s, 0]) * (B[i, 0] - B[s, 0])
        for k in range(1, A.shape[1]):
            x += (A[i, k] - A[s, k]) * (B[i, k] - B[s, k])
        out[e] = x


@compiled
def _spread(f, T, problem, block, blocks):
    ptr = vector(f, argument(f, 0), np.int32, problem)
    index = vector(f, argument(f, 1), np.int32, problem)
    order = vector(f, argument(f, 2), np.int32, problem)
    weight = vector(f, argument(f, 3), T, problem)
    V, out = matrix(f, argument(f, 4), T, problem), matrix(f, result(f, 0), T, problem)
    wide = word(V.shape[1])
    for i in range(bound(ptr, 1, block, blocks), bound(ptr, 1, block + 1, blocks)):
        for k in range(wide):
            out[i, k] = 0
        fours = ptr[i + 1] - (ptr[i + 1] - ptr[i]) % 4
        for p in range(ptr[i], fours, 4):  # four cells at a time: the sum is read and written once
            w0, w1 = weight[place(order, p)], weight[place(order, p + 1)]
            w2, w3 = weight[place(order, p + 2)], weight[place(order, p + 3)]
            j0, j1, j2, j3 = (
                word(index[p]), word(index[p + 1]), word(index[p + 2]), word(index[p + 3])
            )  # fmt: skip
            for k in range(wide):
                out[i, k] += (w0 * V[j0, k] + w1 * V[j1, k]) + (w2 * V[j2, k] + w3 * V[j3, k])
        for p in range(fours, ptr[i + 1]):
            w, j = weight[place(order, p)], word(index[p])
            for k in range(wide):
                out[i, k] += w * V[j, k]


@compiled
def _ratio_step(f, T, problem, block, blocks):
    ptr = vector(f, argument(f, 0), np.int32, problem)
    index = vector(f, argument(f, 1), np.int32, problem)
    y = vector(f, argument(f, 2), T, problem)
    A, G = matrix(f, argument(f, 3), T, problem), matrix(f, argument(f, 4), T, problem)
    by_row = matrix(f, result(f, 0), T, problem)
    # a copy of the columns for each share: no two threads write to one column
    by_col = matrix(f, result(f, 1), T, problem)[block * len(G) : (block + 1) * len(G)]
    K, tiny = word(A.shape[1]), np.finfo(T).tiny
    for j in range(len(G)):
        for k in range(K):
            by_col[j, k] = 0
    for i in range(bound(ptr, 1, block, blocks), bound(ptr, 1, block + 1, blocks)):
        for k in range(K):
            by_row[i, k] = 0
        for p in range(ptr[i], ptr[i + 1]):
            j, x = word(index[p]), T(0)
            for k in range(K):
                x += A[i, k] * G[j, k]
            r = y[p] / x if x > 4 * tiny * y[p] else T(0)
            for k in range(K):
                by_row[i, k] += r * G[j, k]
                by_col[j, k] += r * A[i, k]


@compiled
def counted(n):
    """0, 1, 2, ... (Numba takes long to compile np.arange)."""
    numbers = np.empty(n, np.int32)
    for k in range(n):
        numbers[k] = k
    return numbers


@compiled
def solved(P, b, x, inverse, counting, minus, noise, out, i):
    """Row i of `out`: P^-1 b, or draws from N(P^-1 b, P^-1), one for each noise; P and b are consumed."""
    K = len(inverse)
    factor(P, inverse, counting, minus)
    solve_above(P, b, inverse)
    for first in range(0, out.shape[1], K):
        for k in range(K):
            x[k] = b[k] + noise[i, first + k] if len(noise) else b[k]
        solve_below(P, x, inverse)
        for k in range(K):
            out[i, first + k] = x[k]


CELLS = 128  # whose rows of the other side are fetched at a time, and then stay in the cache


@compiled
def multiply(table, index, p, out, wide):
    """out = the product of the rows index[p] of the table; the row itself if there is one."""
    if index.ndim == 1:
        j = word(index[p])
        for k in range(wide):
            out[k] = table[j, k]
    else:
        i, j = word(index[p, 0]), word(index[p, 1])
        for k in range(wide):
            out[k] = table[i, k] * table[j, k]
        for m in range(2, index.shape[1]):
            i = word(index[p, m])
            for k in range(wide):
                out[k] *= table[i, k]


@compiled
def add_system(i, ptr, index, order, target, weight, V, precision, shift, P, b, kept, w, counting):
    """Put the upper triangle of P_i and b_i of `solve_rows` into P and b."""
    K, wide, step = len(precision) // len(shift), word(V.shape[1]), word(len(weight) > 1)
    own = word(len(shift) > 1)  # whether each row has its own prior
    for m in range(wide):
        b[m] = shift[i * own, m]
    for k in range(word(K)):
        for m in range(wide):
            P[k, m] = precision[i * own * K + k, m]
    for first in range(ptr[i], ptr[i + 1], CELLS):
        size = min(CELLS, ptr[i + 1] - first)
        for q in range(size):
            at = place(order, first + q)
            w[q] = weight[at * step]
            t = w[q] * target[at]
            if index.ndim == 1:
                j = word(index[first + q])
                for m in range(wide):
                    b[m] += t * V[j, m]
            else:
                multiply(V, index, first + q, kept[q], wide)
                for m in range(wide):
                    b[m] += t * kept[q, m]
        if index.ndim == 1:
            add_products(P, word(K), V, index[first : first + size], counting, w, 0, size)
        else:
            add_products(P, word(K), kept, counting, counting, w, 0, size)


@compiled
def solve_shares(ptr, index, order, target, weight, V, precision, shift, noise, out, block, blocks):
    """A share of the rows of `solve_rows`; `index` has the number of one row of V for each cell, or several
    numbers of rows to multiply."""
    K = len(precision) // len(shift)
    P, inverse = np.zeros((V.shape[1], V.shape[1]), V.dtype), np.empty(K, V.dtype)
    b, x = np.zeros(V.shape[1], V.dtype), np.zeros(V.shape[1], V.dtype)
    kept, w = np.zeros((CELLS, V.shape[1]), V.dtype), np.zeros(CELLS, V.dtype)
    counting, minus = counted(max(K, CELLS)), np.empty(1, V.dtype)
    minus[0] = -1
    start, end = bound(ptr, per_row(K), block, blocks), bound(ptr, per_row(K), block + 1, blocks)
    systems = tables_of_systems(min(K, FEW), V)
    for i in range(start, end):
        add_system(
            i, ptr, index, order, target, weight, V, precision, shift, P, b, kept, w, counting
        )
        if K > FEW:
            solved(P, b, x, inverse, counting, minus, noise, out, i)
            continue
        # here and not in a function of its own, which takes a sweep of 10 components 13 % longer to call
        lane = word((i - start) % TOGETHER)
        put(P, b, systems, lane)
        if lane == TOGETHER - 1 or i == end - 1:
            solve_together(systems, noise, out, word(i) - lane, lane + word(1))


@compiled
def _solve_rows(f, T, problem, block, blocks):
    ptr = vector(f, argument(f, 0), np.int32, problem)
    index = vector(f, argument(f, 1), np.int32, problem)
    order = vector(f, argument(f, 2), np.int32, problem)
    target, weight = vector(f, argument(f, 3), T, problem), vector(f, argument(f, 4), T, problem)
    V, precision = matrix(f, argument(f, 5), T, problem), matrix(f, argument(f, 6), T, problem)
    shift, noise = matrix(f, argument(f, 7), T, problem), matrix(f, argument(f, 8), T, problem)
    out, given = matrix(f, result(f, 0), T, problem), (target, weight, V, precision, shift, noise)
    solve_shares(ptr, index, order, *given, out, block, blocks)


@compiled
def _binary(kind, z):
    """Value and slope of a binary loss, in the order of `losses.BINARY`."""
    if kind == 2:  # smooth hinge, without a branch
        u = min(max(1 - z, 0.0), 1.0)
        return u * (1 - z) - 0.5 * u * u, -u
    if kind == 4:  # logistic
        e = np.exp(-abs(z))
        return np.log1p(e) + max(-z, 0.0), -(e if z > 0 else 1.0) / (1 + e)
    if kind == 0:
        return (0.0 if z >= 0 else 1.0), 0.0
    u = max(1 - z, 0.0)
    if kind == 1:  # hinge
        return u, (-1.0 if u > 0 else 0.0)
    return u * u, -2 * u


@compiled
def _ordinal_loss(f, T, problem, block, blocks):
    kind, immediate = vector(f, argument(f, 0), np.int32, problem)[:2]
    ptr = vector(f, argument(f, 1), np.int32, problem)
    x, theta = vector(f, argument(f, 2), T, problem), matrix(f, argument(f, 3), T, problem)
    code = vector(f, argument(f, 4), np.int32, problem)
    weight = vector(f, argument(f, 5), T, problem)
    total, by_x = vector(f, result(f, 0), T, problem), vector(f, result(f, 1), T, problem)
    by_theta = matrix(f, result(f, 2), T, problem)
    several, cost = len(weight) > 1, 0.0
    for i in range(bound(ptr, 1, block, blocks), bound(ptr, 1, block + 1, blocks)):
        for r in range(theta.shape[1]):
            by_theta[i, r] = 0
        for p in range(ptr[i], ptr[i + 1]):
            w = weight[p] if several else weight[0]
            first, last = 0, theta.shape[1]
            if immediate:
                first, last = max(code[p] - 1, 0), min(code[p] + 1, last)
            slope = 0.0
            for r in range(first, last):
                sign = -1 if r < code[p] else 1
                value, up = _binary(kind, sign * (theta[i, r] - x[p]))
                cost += w * value
                slope -= sign * up
                by_theta[i, r] += w * sign * up
            by_x[p] = w * slope
    total[block] = cost


@compiled
def _proximal_loss(f, T, problem, block, blocks):
    n_levels = vector(f, argument(f, 0), np.int32, problem)[0]
    ptr = vector(f, argument(f, 1), np.int32, problem)
    x, code = vector(f, argument(f, 2), T, problem), vector(f, argument(f, 3), np.int32, problem)
    total, by_x = vector(f, result(f, 0), T, problem), vector(f, result(f, 1), T, problem)
    theta, count, pull = np.empty(n_levels), np.empty(n_levels), np.empty(n_levels)
    cost = 0.0
    for i in range(bound(ptr, 1, block, blocks), bound(ptr, 1, block + 1, blocks)):
        theta[:] = 0
        count[:] = 0
        pull[:] = 0
        for p in range(ptr[i], ptr[i + 1]):
            theta[code[p]] += x[p]
            count[code[p]] += 1
        for r in range(n_levels):
            theta[r] /= max(count[r], 1)
        for p in range(ptr[i], ptr[i + 1]):
            distance = x[p] - theta[code[p]]
            cost += distance * distance
            slope = 2 * distance
            for r in range(n_levels):
                if r == code[p] or count[r] == 0:
                    continue
                side = 1 if r < code[p] else -1
                value, up = _binary(2, side * (x[p] - theta[r]))
                cost += value
                slope += side * up
                pull[r] -= side * up
            by_x[p] = slope
        # every x is part of its level's centre; the squared distances to it have no slope in their own mean
        for p in range(ptr[i], ptr[i + 1]):
            by_x[p] += pull[code[p]] / count[code[p]]
    total[block] = cost


# The handlers are written out one by one: Numba keeps a compiled function on disk only if no other function
# is among the values that the function remembers.
_run_dots = runner(_dots, axes=1)
_run_spread = runner(_spread, axes=2)
_run_differences = runner(_differences, axes=1)
_run_ratio_step = runner(_ratio_step, axes=2)
_run_solve_rows = runner(_solve_rows, axes=2)
_run_ordinal_loss = runner(_ordinal_loss, axes=1)
_run_proximal_loss = runner(_proximal_loss, axes=1)


def dots(T: Any, slot: int) -> Any:
    return lambda frame: _run_dots(frame, T, slot)


def spread(T: Any, slot: int) -> Any:
    return lambda frame: _run_spread(frame, T, slot)


def differences(T: Any, slot: int) -> Any:
    return lambda frame: _run_differences(frame, T, slot)


def ratio_step(T: Any, slot: int) -> Any:
    return lambda frame: _run_ratio_step(frame, T, slot)


def solve_rows(T: Any, slot: int) -> Any:
    return lambda frame: _run_solve_rows(frame, T, slot)


def ordinal_loss(T: Any, slot: int) -> Any:
    return lambda frame: _run_ordinal_loss(frame, T, slot)


def proximal_loss(T: Any, slot: int) -> Any:
    return lambda frame: _run_proximal_loss(frame, T, slot)
