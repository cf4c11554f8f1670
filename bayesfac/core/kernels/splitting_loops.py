"""The Numba version of the loop in splitting.py: counts divided at random among components."""

from typing import Any

import numpy as np

from bayesfac.core.kernels.bridge import argument, compiled, matrix, result, runner, vector
from bayesfac.core.kernels.numba_loops import bound
from bayesfac.core.kernels.random_loops import binomial, seeded, uniform

SMALL = 8  # counts up to this are divided one by one, larger ones by a binomial for each component


@compiled
def _divide(state, count, sums, row, column):
    """Add the parts of one count to its row and column; sums[k] is the sum of the shares up to k."""
    K, total, before = len(row), sums[-1], 0.0
    if count <= SMALL:
        for _ in range(count):
            u, k = uniform(state) * total, 0
            for other in range(K - 1):  # all of them: a loop without branches takes less time
                k += sums[other] <= u
            row[k] += 1
            column[k] += 1
        return
    for k in range(K):
        if count == 0:
            return
        share = (sums[k] - before) / (total - before) if sums[k] < total else 1.0
        part = binomial(state, count, share)
        row[k] += part
        column[k] += part
        count -= part
        before = sums[k]


@compiled
def _split_counts(f, T, problem, block, blocks):
    key = vector(f, argument(f, 0), np.int32, problem)
    ptr = vector(f, argument(f, 1), np.int32, problem)
    index = vector(f, argument(f, 2), np.int32, problem)
    y = vector(f, argument(f, 3), T, problem)
    A, G = matrix(f, argument(f, 4), T, problem), matrix(f, argument(f, 5), T, problem)
    by_row, K = matrix(f, result(f, 0), T, problem), A.shape[1]
    # a copy of the columns for each share: no two threads write to one column
    by_col = matrix(f, result(f, 1), T, problem)[block * len(G) : (block + 1) * len(G)]
    state, sums = np.zeros(1, np.uint64), np.zeros(K)
    for j in range(len(G)):
        for k in range(K):
            by_col[j, k] = 0
    for i in range(bound(ptr, 1, block, blocks), bound(ptr, 1, block + 1, blocks)):
        a, row = A[i], by_row[i]
        for k in range(K):
            row[k] = 0
        for p in range(ptr[i], ptr[i + 1]):
            g, total = G[index[p]], 0.0
            for k in range(K):
                total += np.float64(a[k]) * g[k]
                sums[k] = total
            # the numbers of a cell depend on the key and its place alone, not on threads
            seeded(state, key, p)
            _divide(state, np.int64(y[p] + 0.5), sums, row, by_col[index[p]])


_run_split_counts = runner(_split_counts, axes=2)


def split_counts(T: Any, slot: int) -> Any:
    return lambda frame: _run_split_counts(frame, T, slot)
