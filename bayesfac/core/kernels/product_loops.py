"""Loops over the cells of a tensor: like those of numba_loops.py, with products of rows instead of rows.

The factors of all modes are in one table; `index` has, for each cell, the numbers of the rows to multiply.
"""

from typing import Any

import numpy as np

from bayesfac.core.kernels.bridge import argument, compiled, matrix, result, runner, vector
from bayesfac.core.kernels.numba_loops import bound, counted, solved
from bayesfac.core.kernels.tiles import add_products, word

CELLS = 128  # number of cells whose products are stored at a time, so that they stay in the cache


@compiled
def _multiply(table, index, p, out, wide):
    """out = the product of the rows index[p] of the table."""
    i, j = word(index[p, 0]), word(index[p, 1])
    for k in range(wide):
        out[k] = table[i, k] * table[j, k]
    for m in range(2, index.shape[1]):
        i = word(index[p, m])
        for k in range(wide):
            out[k] *= table[i, k]


@compiled
def _product_dots(f, T, problem, block, blocks):
    index = matrix(f, argument(f, 0), np.int32, problem)
    table = matrix(f, argument(f, 1), T, problem)
    out = vector(f, result(f, 0), T, problem)
    wide, row = word(table.shape[1]), np.empty(table.shape[1], table.dtype)
    for p in range(len(out) * block // blocks, len(out) * (block + 1) // blocks):
        _multiply(table, index, p, row, wide)
        x = T(0)
        for k in range(wide):
            x += row[k]
        out[p] = x


@compiled
def _product_spread(f, T, problem, block, blocks):
    ptr = vector(f, argument(f, 0), np.int32, problem)
    index = matrix(f, argument(f, 1), np.int32, problem)
    order = vector(f, argument(f, 2), np.int32, problem)
    weight = vector(f, argument(f, 3), T, problem)
    table, out = matrix(f, argument(f, 4), T, problem), matrix(f, result(f, 0), T, problem)
    wide, row = word(table.shape[1]), np.empty(table.shape[1], table.dtype)
    for i in range(bound(ptr, 1, block, blocks), bound(ptr, 1, block + 1, blocks)):
        for k in range(wide):
            out[i, k] = 0
        for p in range(ptr[i], ptr[i + 1]):
            w = weight[order[p]]
            _multiply(table, index, p, row, wide)
            for k in range(wide):
                out[i, k] += w * row[k]


@compiled
def _solve_product_rows(f, T, problem, block, blocks):
    ptr = vector(f, argument(f, 0), np.int32, problem)
    index = matrix(f, argument(f, 1), np.int32, problem)
    order = vector(f, argument(f, 2), np.int32, problem)
    target, weight = vector(f, argument(f, 3), T, problem), vector(f, argument(f, 4), T, problem)
    table, precision = matrix(f, argument(f, 5), T, problem), matrix(f, argument(f, 6), T, problem)
    shift, noise = matrix(f, argument(f, 7), T, problem), matrix(f, argument(f, 8), T, problem)
    out = matrix(f, result(f, 0), T, problem)
    K, wide, step = len(precision) // len(shift), word(table.shape[1]), word(len(weight) > 1)
    own = word(len(shift) > 1)  # whether each row has its own prior
    P, b = (
        np.zeros((table.shape[1], table.shape[1]), table.dtype),
        np.zeros(table.shape[1], table.dtype),
    )
    kept, some = np.zeros((CELLS, table.shape[1]), table.dtype), np.zeros(CELLS, table.dtype)
    counting, minus = counted(max(K, CELLS)), np.empty(1, table.dtype)
    minus[0] = -1
    inverse, x = np.empty(K, table.dtype), np.zeros(table.shape[1], table.dtype)
    for i in range(bound(ptr, K / 3, block, blocks), bound(ptr, K / 3, block + 1, blocks)):
        for m in range(wide):
            b[m] = shift[i * own, m]
        for k in range(word(K)):
            for m in range(wide):
                P[k, m] = precision[i * own * K + k, m]
        for first in range(ptr[i], ptr[i + 1], CELLS):
            size = min(CELLS, ptr[i + 1] - first)
            for q in range(size):
                some[q] = weight[order[first + q] * step]
                t = some[q] * target[order[first + q]]
                _multiply(table, index, first + q, kept[q], wide)
                for m in range(wide):
                    b[m] += t * kept[q, m]
            add_products(P, word(K), kept, counting, counting, some, 0, size)
        solved(P, b, x, inverse, counting, minus, noise, out, i)


_run_product_dots = runner(_product_dots, axes=1)
_run_product_spread = runner(_product_spread, axes=2)
_run_solve_product_rows = runner(_solve_product_rows, axes=2)


def product_dots(T: Any, slot: int) -> Any:
    return lambda frame: _run_product_dots(frame, T, slot)


def product_spread(T: Any, slot: int) -> Any:
    return lambda frame: _run_product_spread(frame, T, slot)


def solve_product_rows(T: Any, slot: int) -> Any:
    return lambda frame: _run_solve_product_rows(frame, T, slot)
