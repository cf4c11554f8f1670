"""The Numba versions of the loops in simplex.py: Gamma numbers, rows of tilted Dirichlet laws, colours."""

from typing import Any

import numpy as np

from bayesfac.core.kernels.bridge import argument, compiled, matrix, result, runner, vector
from bayesfac.core.kernels.random_loops import TRIES, gamma, seeded, uniform

STEPS = 20  # of Newton's method, at most; the law of a row is right after any number of them


@compiled
def _gammas(f, T, problem, block, blocks):
    key = vector(f, argument(f, 0), np.int32, problem)
    shape = vector(f, argument(f, 1), T, problem)
    rate = vector(f, argument(f, 2), T, problem)
    out = vector(f, result(f, 0), T, problem)
    state = np.zeros(1, np.uint64)
    for p in range(len(shape) * block // blocks, len(shape) * (block + 1) // blocks):
        out[p] = 0
        if shape[p] > 0:
            seeded(state, key, p)
            out[p] = gamma(state, np.float64(shape[p])) / np.float64(rate[p])


@compiled
def shift(shape, tilt):
    """The s at which sum shape / (tilt + s) is 1, from below (see simplex.shift).

    If all tilts are equal, as without any, no search is needed.
    """
    total, s, equal = 0.0, -np.inf, True
    for k in range(len(shape)):
        total += shape[k]
        s = max(s, np.float64(shape[k]) - np.float64(tilt[k]))
        equal &= tilt[k] == tilt[0]
    if equal:
        return total - tilt[0]
    for _ in range(STEPS):
        sum_, slope = 0.0, 0.0
        for k in range(len(shape)):
            part = shape[k] / (tilt[k] + s)
            sum_ += part
            slope += part / (tilt[k] + s)
        if sum_ < 1 + 1e-6:
            break
        s += sum_ * (sum_ - 1) / slope
    return s


@compiled
def _accepted(state, shape, tilt, s, row, total):
    """Draw one proposal into `row`: 1 if it is accepted, 0 if not, -1 if there are no such numbers."""
    size, even = 0.0, 0.0
    for k in range(len(row)):
        g = gamma(state, np.float64(shape[k]))
        if g < 0:
            return -1
        even += g
        row[k] = g / (tilt[k] + s)
        size += row[k]
    gap = even / size / total - 1
    if not np.log(1 - uniform(state)) < total * (np.log1p(gap) - gap):
        return 0
    for k in range(len(row)):
        row[k] /= size
    return 1


@compiled
def _tilted_rows(f, T, problem, block, blocks):
    key = vector(f, argument(f, 0), np.int32, problem)
    shape, tilt = matrix(f, argument(f, 1), T, problem), matrix(f, argument(f, 2), T, problem)
    out = matrix(f, result(f, 0), T, problem)
    n, K = shape.shape
    state, row = np.zeros(1, np.uint64), np.zeros(K)
    for i in range(n * block // blocks, n * (block + 1) // blocks):
        seeded(state, key, i)
        s, total, done = shift(shape[i], tilt[i]), 0.0, 0
        for k in range(K):
            total += shape[i, k]
        for _ in range(TRIES):
            done = _accepted(state, shape[i], tilt[i], s, row, total)
            if done != 0:
                break
        for k in range(K):
            out[i, k] = row[k] if done == 1 else np.nan


@compiled
def colours(ptr, index):
    """A colour for each row of a symmetric graph, different from those of its neighbours, and their number.

    A row gets the rarest colour that no neighbour has, and a new colour only if the neighbours have all
    colours.
    """
    n = len(ptr) - 1
    colour, taken, size = np.full(n, -1), np.full(n + 1, -1), np.zeros(n + 1, np.int64)
    many = 0
    for i in range(n):
        for p in range(ptr[i], ptr[i + 1]):
            if colour[index[p]] >= 0:
                taken[colour[index[p]]] = i
        best = many
        for c in range(many):
            if taken[c] != i and (best == many or size[c] < size[best]):
                best = c
        colour[i] = best
        size[best] += 1
        many = max(many, best + 1)
    return colour, many


_run_gammas = runner(_gammas, axes=1)
_run_tilted_rows = runner(_tilted_rows, axes=2)


def gammas(T: Any, slot: int) -> Any:
    return lambda frame: _run_gammas(frame, T, slot)


def tilted_rows(T: Any, slot: int) -> Any:
    return lambda frame: _run_tilted_rows(frame, T, slot)
