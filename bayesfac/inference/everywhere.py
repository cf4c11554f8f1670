"""Predictions of every cell of a matrix: one pass over the draws, of which only sums are kept."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from bayesfac.core.data.cells import Grid
from bayesfac.core.method import Method
from bayesfac.inference.predict import param_blocks


@dataclass(frozen=True)
class Everywhere:
    """Mean, sd (noise included) and sd_mean of every cell, rows by columns."""

    mean: np.ndarray
    sd: np.ndarray
    sd_mean: np.ndarray


def everywhere(
    method: Method, hyper: Any, draws: Mapping[str, np.ndarray], shape: tuple[int, int], memory: int
) -> Everywhere:
    """See `Fit.everywhere`. Blocks of rows are small enough to stay in the processor's cache."""
    dtype = next(iter(draws.values())).dtype
    mean, square, noise = (np.zeros(shape, dtype) for _ in range(3))
    height = int(np.clip(2**21 // (4 * shape[1]), 1, shape[0]))
    total = 0
    for params in param_blocks(method, draws, 1, memory // 4):
        count = len(jax.tree.leaves(params)[0])
        for start in range(0, shape[0], height):
            rows = np.arange(start, min(start + height, shape[0]))
            sums = (mean[rows], square[rows], noise[rows])
            grid = Grid(rows, np.arange(shape[1]))
            new = _add(method, hyper, params, grid, sums, float(total))
            mean[rows], square[rows], noise[rows] = map(np.asarray, new)
        total += count
    spread = np.maximum(square / total, 0)  # one draw leaves only rounding, which may be negative
    return Everywhere(mean, np.sqrt(spread + noise / total), np.sqrt(spread))


@partial(jax.jit, static_argnums=(0, 1))
def _add(
    method: Method, hyper: Any, params: Any, grid: Grid, sums: tuple, seen: float
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Welford's update: mean, sum of squared deviations and summed noise, draw by draw."""

    def one(carry: tuple, p: Any) -> tuple[tuple, None]:
        mean, square, noise, n = carry
        outcome = method.predict(p, grid, hyper)
        delta = outcome.mean - mean
        mean = mean + delta / (n + 1)
        square = square + delta * (outcome.mean - mean)
        return (mean, square, noise + outcome.variance, n + 1), None

    (mean, square, noise, _), _ = jax.lax.scan(one, (*sums, seen), params)
    return mean, square, noise
