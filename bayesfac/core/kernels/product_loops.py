"""Loops over the cells of a tensor: like those of numba_loops.py, with products of rows instead of rows.

The factors of all modes are in one table; `index` has, for each cell, the numbers of the rows to multiply.
"""

from typing import Any

import numpy as np

from bayesfac.core.kernels.bridge import argument, compiled, matrix, result, runner, vector
from bayesfac.core.kernels.numba_loops import bound, multiply, place, solve_shares
from bayesfac.core.kernels.tiles import word


@compiled
def _product_dots(f, T, problem, block, blocks):
    index = matrix(f, argument(f, 0), np.int32, problem)
    table = matrix(f, argument(f, 1), T, problem)
    out = vector(f, result(f, 0), T, problem)
    wide, row = word(table.shape[1]), np.empty(table.shape[1], table.dtype)
    for p in range(len(out) * block // blocks, len(out) * (block + 1) // blocks):
        multiply(table, index, p, row, wide)
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
            w = weight[place(order, p)]
            multiply(table, index, p, row, wide)
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
    out, given = (
        matrix(f, result(f, 0), T, problem),
        (target, weight, table, precision, shift, noise),
    )
    solve_shares(ptr, index, order, *given, out, block, blocks)


_run_product_dots = runner(_product_dots, axes=1)
_run_product_spread = runner(_product_spread, axes=2)
_run_solve_product_rows = runner(_solve_product_rows, axes=2)


def product_dots(T: Any, slot: int) -> Any:
    return lambda frame: _run_product_dots(frame, T, slot)


def product_spread(T: Any, slot: int) -> Any:
    return lambda frame: _run_product_spread(frame, T, slot)


def solve_product_rows(T: Any, slot: int) -> Any:
    return lambda frame: _run_solve_product_rows(frame, T, slot)
