"""The Numba version of the loop in lasso.py."""

from typing import Any

import numpy as np

from bayesfac.core.kernels.bridge import argument, compiled, matrix, result, runner, vector
from bayesfac.core.kernels.tiles import word


@compiled
def _entries(square, pull, old, K, half, new):
    """The entries of one feature, one after the other; return whether one of them changed.

    `pull` is x_j'(U - X Z) with the old Z; it becomes that less K z, kept while z changes.
    """
    changed = False
    for k in range(len(old)):
        new[k] = old[k]
        if old[k] != 0:  # many entries are 0 and stay there
            for m in range(len(old)):
                pull[m] -= old[k] * K[k, m]
    for k in range(len(old)):
        a = square + K[k, k]
        if a <= 0:
            continue
        b = pull[k] + a * old[k]
        far = abs(b) - half
        new[k] = np.copysign(far, b) / a if far > 0 else b * 0
        if new[k] != old[k]:
            changed = True
            for m in range(len(old)):
                pull[m] -= (new[k] - old[k]) * K[k, m]
    return changed


@compiled
def _lasso_pass(f, T, problem, block, blocks):
    ptr = vector(f, argument(f, 0), np.int32, problem)
    index = vector(f, argument(f, 1), np.int32, problem)
    order = vector(f, argument(f, 2), np.int32, problem)
    x, squares = vector(f, argument(f, 3), T, problem), vector(f, argument(f, 4), T, problem)
    old, given = matrix(f, argument(f, 5), T, problem), matrix(f, argument(f, 6), T, problem)
    K, half = matrix(f, argument(f, 7), T, problem), vector(f, argument(f, 8), T, problem)
    Z, left = matrix(f, result(f, 0), T, problem), matrix(f, result(f, 1), T, problem)
    wide = word(Z.shape[1])
    pull, change = np.empty(Z.shape[1], Z.dtype), np.empty(Z.shape[1], Z.dtype)
    for i in range(len(left)):
        for k in range(wide):
            left[i, k] = given[i, k]
    for number in range(len(order)):
        j = word(order[number])
        for k in range(wide):
            pull[k] = 0
        for p in range(ptr[j], ptr[j + 1]):
            i = word(index[p])
            for k in range(wide):
                pull[k] += x[p] * left[i, k]
        if not _entries(squares[j], pull, old[j], K, half[0], Z[j]):
            continue
        for k in range(wide):
            change[k] = Z[j, k] - old[j, k]
        for p in range(ptr[j], ptr[j + 1]):
            i = word(index[p])
            for k in range(wide):
                left[i, k] -= x[p] * change[k]


_run_lasso_pass = runner(_lasso_pass, axes=2)


def lasso_pass(T: Any, slot: int) -> Any:
    return lambda frame: _run_lasso_pass(frame, T, slot)
