"""Predictions of whole rows: moments of every cell, and draws of the cells of some rows.

Both pass over the draws block by block. Of moments only sums are kept.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

from bayesfac.core.data.cards import Card
from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.errors import BayesfacError
from bayesfac.core.files import atomic
from bayesfac.core.method import Method
from bayesfac.inference.predictions.by_draw import means_by_draw, param_blocks
from bayesfac.inference.predictions.predict import Prediction

OUTCOMES = 1000  # simulated outcomes of a point fit, for each cell
TABLE = 2**20  # cells of one block of a long table


class Moments(NamedTuple):
    """Mean, standard deviation with the noise, and standard deviation of the expected outcome."""

    mean: np.ndarray
    sd: np.ndarray
    sd_mean: np.ndarray


@dataclass(eq=False)
class Everywhere:
    """Predictions of every cell, rows by columns, computed when they are asked for.

    `mean`, `sd` (noise included) and `sd_mean` are matrices. `frame()` is a long table with labels, and
    `to_parquet(path)` writes this table block by block, so that the cells need not fit in memory.

    For a label without training data, `sd_mean` includes the spread of the prior if the fit has draws.
    `predict` differs: there the expected outcome of such a label is the mean over the prior. `sd` is the
    same in both. Rows are in the order of `data.rows`. Tasks have labelled rows first, in whatever order you
    passed them.
    """

    method: Method
    hyper: Any
    draws: Mapping[str, np.ndarray]
    data: Card
    memory: int
    _kept: dict[str, Moments] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not self.data.form.two_way:
            raise BayesfacError(
                "Expected a matrix to predict everywhere, got a Tensor: predict(query)"
            )

    @property
    def mean(self) -> np.ndarray:
        """The expected outcome of every cell."""
        return self._all().mean

    @property
    def sd(self) -> np.ndarray:
        """The standard deviation of the outcome, noise included."""
        return self._all().sd

    @property
    def sd_mean(self) -> np.ndarray:
        """The posterior standard deviation of the expected outcome; zero for a point fit."""
        return self._all().sd_mean

    def blocks(self) -> Iterator[pd.DataFrame]:
        """Long tables of some rows each, in order: labels, mean, sd, sd_mean, flagged."""
        n, m = self.data.shape
        labels, axis = _column_labels(self.data), self.data.columns[0]
        height = max(1, TABLE // m)
        for first in range(0, n, height):
            rows = np.arange(first, min(first + height, n))
            found = self._moments(rows)
            names = self.data.coords[axis][np.repeat(rows, m)]
            every = {name: np.tile(index, len(rows)) for name, index in labels.items()}
            numbers = {name: value.ravel() for name, value in found._asdict().items()}
            new = self._new(rows).ravel()
            yield pd.DataFrame({axis: names, **every, **numbers, "flagged": new})

    def frame(self) -> pd.DataFrame:
        """The long table of all cells."""
        return pd.concat(self.blocks(), ignore_index=True)

    def to_parquet(self, path: str | os.PathLike[str]) -> Path:
        """Write the long table to a Parquet file, block by block; an unfinished file is removed.

        Examples
        --------
        >>> import tempfile
        >>> import bayesfac as bf
        >>> fit = bf.fit("pmf", bf.datasets.make_ratings(30, 20, 2, seed=0), progress=False)
        >>> path = fit.everywhere().to_parquet(f"{tempfile.mkdtemp()}/cells.parquet")
        >>> pd.read_parquet(path).columns.tolist()
        ['user', 'item', 'mean', 'sd', 'sd_mean', 'flagged']
        """
        try:
            import pyarrow
            from pyarrow.parquet import ParquetWriter
        except ImportError as error:
            raise ImportError(
                "Expected pyarrow, which writes Parquet, got none: pip install 'bayesfac[datasets]'"
            ) from error
        blocks = (pyarrow.Table.from_pandas(b, preserve_index=False) for b in self.blocks())
        first = next(blocks)
        with atomic(path) as part, ParquetWriter(part, first.schema) as writer:
            writer.write_table(first)
            for block in blocks:
                writer.write_table(block.cast(first.schema))
        return Path(path)

    def __repr__(self) -> str:
        n, m = self.data.shape
        return f"Everywhere({n} x {m} cells of {self.method.name}; .mean, .sd, .frame(), .to_parquet())"

    def _all(self) -> Moments:
        if "all" not in self._kept:
            self._kept["all"] = self._moments(np.arange(self.data.shape[0]))
        return self._kept["all"]

    def _new(self, rows: np.ndarray) -> np.ndarray:
        """Which cells of these rows only the prior can predict."""
        row, col = self.data.empty
        return row[rows][:, None] | col

    def _moments(self, rows: np.ndarray) -> Moments:
        """For a point, cells that only the prior can predict have the spread of the prior."""
        found = moments(self.method, self.hyper, self.draws, rows, self.data.shape[1], self.memory)
        new = self._new(rows)
        draws = np.prod(next(iter(self.draws.values())).shape[:2])
        if not self.data.form.listed or draws > 1 or not new.any():  # else rows keep their codes
            return found
        row, col = np.nonzero(new)
        pairs = {"user": self.data.coords["user"][rows[row]], "item": self.data.coords["item"][col]}
        located = self.data.locate(pd.DataFrame(pairs))
        asked = Prediction(self.method, self.hyper, self.draws, *located, memory=self.memory)
        for table in Moments._fields:
            getattr(found, table)[new] = getattr(asked, table)
        return found


def moments(
    method: Method, hyper: Any, draws: Mapping[str, np.ndarray], rows: np.ndarray, columns: int, memory: int
) -> Moments:  # fmt: skip
    """Moments of all cells of some rows. Blocks of rows are small enough to stay in the processor's cache."""
    dtype, shape = next(iter(draws.values())).dtype, (len(rows), columns)
    mean, square, noise = (np.zeros(shape, dtype) for _ in range(3))
    height = int(np.clip(2**21 // (4 * columns), 1, len(rows)))
    total = 0
    for params in param_blocks(method, draws, 1, memory // 4):
        count = len(jax.tree.leaves(params)[0])
        for start in range(0, len(rows), height):
            at = slice(start, start + height)
            grid = Grid(rows[at], np.arange(columns))
            sums = (mean[at], square[at], noise[at])
            new = _add(method, hyper, params, grid, sums, float(total))
            mean[at], square[at], noise[at] = map(np.asarray, new)
        total += count
    spread = np.maximum(square / total, 0)  # one draw leaves only rounding, which may be negative
    return Moments(mean, np.sqrt(spread + noise / total), np.sqrt(spread))


def means(
    method: Method, hyper: Any, draws: Mapping[str, np.ndarray], rows: np.ndarray, columns: int, memory: int
) -> np.ndarray:  # fmt: skip
    """Expected outcomes of all cells of some rows, averaged over the draws: less work than `moments`."""
    mean = np.zeros((len(rows), columns))
    height = int(np.clip(2**20 // columns, 1, len(rows)))
    total = 0
    for params in param_blocks(method, draws, 1, memory // 4):
        total += len(jax.tree.leaves(params)[0])
        for start in range(0, len(rows), height):
            at = slice(start, start + height)
            mean[at] += _summed(method, hyper, params, Grid(rows[at], np.arange(columns)))
    return mean / total


@partial(jax.jit, static_argnums=(0, 1))
def _summed(method: Method, hyper: Any, params: Any, grid: Grid) -> jax.Array:
    """The sum over draws of the expected outcomes."""

    def add(total: jax.Array, p: Any) -> tuple[jax.Array, None]:
        return total + method.predict(p, grid, hyper).mean, None

    first = jax.tree.map(lambda value: value[0], params)
    others = jax.tree.map(lambda value: value[1:], params)
    return jax.lax.scan(add, method.predict(first, grid, hyper).mean, others)[0]


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


def expectations(
    method: Method, hyper: Any, draws: Mapping[str, np.ndarray], query: Grid | Query, memory: int
) -> np.ndarray:
    """(draw, ...) expected outcomes of the cells of a query, which must be small enough for all draws."""
    blocks = param_blocks(method, draws, 1, memory // 4)
    return np.concatenate(
        [np.asarray(means_by_draw(method, hyper, params, query)) for params in blocks]
    )


def mean_noise(
    method: Method, hyper: Any, draws: Mapping[str, np.ndarray], query: Grid | Query, memory: int
) -> np.ndarray:
    """The variance of the outcomes of a query given the parameters, averaged over the draws."""
    total, seen = np.zeros(()), 0
    for params in param_blocks(method, draws, 1, memory // 4):
        total = total + np.asarray(_noise(method, hyper, params, query))
        seen += len(jax.tree.leaves(params)[0])
    return total / seen


@partial(jax.jit, static_argnums=(0, 1))
def _noise(method: Method, hyper: Any, params: Any, query: Grid | Query) -> jax.Array:
    return jax.lax.map(lambda p: method.predict(p, query, hyper).variance, params).sum(0)


def outcomes(
    method: Method, hyper: Any, draws: Mapping[str, np.ndarray], query: Grid | Query, seed: Any
) -> np.ndarray:
    """(outcome, ...) simulated outcomes of the cells under the first draw; a point fit has only one draw."""
    (params,) = param_blocks(method, {site: value[:1, :1] for site, value in draws.items()}, 1, 1)
    return np.asarray(_simulated(method, hyper, params, query, seed))


@partial(jax.jit, static_argnums=(0, 1))
def _simulated(
    method: Method, hyper: Any, params: Any, query: Grid | Query, key: jax.Array
) -> jax.Array:
    first = jax.tree.map(lambda value: value[0], params)
    return method.predict(first, query, hyper).sample(key, (OUTCOMES,))


def _column_labels(card: Card) -> dict[str, np.ndarray]:
    """The labels of the columns of all cells, by the name of the column of a long table."""
    if axis := card.form.axis:
        return {card.columns[1]: card.coords[axis].to_numpy()}
    axes = card.features
    view = np.repeat(list(axes), [len(index) for index in axes.values()])
    return {"view": view, "feature": np.concatenate([i.to_numpy() for i in axes.values()])}
