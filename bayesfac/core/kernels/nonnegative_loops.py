"""The Numba version of the loop in nonnegative.py."""

from typing import Any

import numpy as np

from bayesfac.core.kernels.bridge import argument, compiled, matrix, result, runner, vector


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
