"""For each draw and training cell, the cell's factor in the joint and its score.

The factor is the term of the cell in the log joint. The score judges a prediction of the cell: on a scale of
levels it is the log probability of the level, otherwise the log density. Factor and score differ if a
Gaussian is fitted to levels, or if a loss replaces the likelihood.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from bayesfac.core.data.cells import Query, narrowed
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.errors import BayesfacError
from bayesfac.core.kernels.tables import CellwiseLaw
from bayesfac.core.laws.units import unit_of
from bayesfac.core.method import Method
from bayesfac.inference.predictions.by_draw import param_blocks
from bayesfac.inference.predictions.level_masses import codes, log_mass
from bayesfac.inference.unconstrained import sites_of_model

CELLS = 2**13  # cells at a time, where only sums over the draws are kept
ARRAYS = 5  # of draws x cells that a block needs: factors, scores, and work space to make and smooth them


@dataclass(frozen=True, eq=False)
class Told:
    """Training cells: rows and columns, values, the scale of levels; and the data that the model needs."""

    data: Any
    query: Query
    value: np.ndarray
    levels: tuple[float, ...] | None

    def __len__(self) -> int:
        return len(self.value)

    def take(self, at: np.ndarray | slice) -> "Told":
        """These cells only."""
        query = self.query._replace(row=self.query.row[at], col=self.query.col[at])
        return replace(self, query=query, value=self.value[at])


def told(method: Method, data: Any, query: Query, levels: tuple[float, ...] | None) -> Told:
    """The cells of training data, ratings or labels."""
    if not data.site:
        raise BayesfacError(
            f"Expected ratings or labels to leave out, got views for {method.name}: the counts of a row "
            "share their total, so no count can be left out alone; bf.split.holdout takes some of each"
        )
    cells = narrowed(Query(np.asarray(query.row), np.asarray(query.col)))
    return Told(data, cells, np.asarray(data.in_users_unit(), float), levels)


def refuse_entangled(method: Method, data: Any) -> None:
    """Raise an error if the joint of the method has no factor for a single rating."""
    if isinstance(data, Ratings) and "no_minibatch" in method.notes.traits:
        raise BayesfacError(
            f"{method.name} has no likelihood of a single rating: {method.notes.traits['no_minibatch']}"
        )


def by_block(
    method: Method, hyper: Any, draws: Mapping[str, np.ndarray], cells: Told, memory: int
) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """Blocks of cells within `memory` bytes: their place, factors and scores, cells x draws, in the
    precision of the joint. Each block reads all draws."""
    total = int(np.prod(next(iter(draws.values())).shape[:2]))
    exact = jnp.zeros(0).dtype
    width = int(np.clip(memory // (exact.itemsize * ARRAYS * total), 1, len(cells)))
    for at, part in _parts(cells, width):
        factor, score = np.empty((2, total, at.stop - at.start), exact)
        done = 0
        for params in param_blocks(method, draws, width, memory // 4):
            seen = _look(method, hyper, cells.levels, params, *part)
            to = done + len(seen[0])
            for table, new in zip((factor, score), seen, strict=True):
                table[done:to] = np.asarray(new)[:, : table.shape[1]]
            done = to
        yield at, factor.T, score.T


def log_means(
    method: Method, hyper: Any, draws: Mapping[str, np.ndarray], cells: Told, memory: int
) -> np.ndarray:
    """The log of every cell's predictive mass or density, averaged over the draws."""
    chains, length = next(iter(draws.values())).shape[:2]
    width = int(np.clip(memory // (64 * length), 1, min(CELLS, len(cells))))
    found = np.empty(len(cells))
    for at, part in _parts(cells, width):
        sums = np.full(width, -np.inf)  # float64: callers compare large sums that differ little
        for params in param_blocks(method, draws, width, memory // 4):
            new = np.asarray(_scores(method, hyper, cells.levels, params, *part), float)
            sums = np.logaddexp(sums, log_sum(new.T))
        found[at] = sums[: at.stop - at.start] - np.log(chains * length)
    return found


def log_sum(table: np.ndarray) -> np.ndarray:
    """log sum exp of every row; minus infinity for a row of minus infinities."""
    top = table.max(1)
    shift = np.where(np.isfinite(top), top, 0)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(table - shift[:, None]).sum(1)) + shift


def log_likelihoods(
    method: Method, hyper: Any, draws: Mapping[str, np.ndarray], cells: Told, memory: int
) -> np.ndarray:
    """The sum of all factors of every draw (chain, draw)."""
    shape = next(iter(draws.values())).shape[:2]
    width = int(np.clip(memory // (64 * 8), 1, min(CELLS, len(cells))))
    found = np.zeros(int(np.prod(shape)))
    for at, part in _parts(cells, width):
        real, done = np.arange(width) < at.stop - at.start, 0
        for params in param_blocks(method, draws, width, memory // 2):
            new = np.asarray(_sum_factors(method, hyper, params, *part[:3], real), float)
            found[done : done + len(new)] += new
            done += len(new)
    return found.reshape(shape)


def _parts(cells: Told, width: int) -> Iterator[tuple[slice, tuple]]:
    """Parts of `width` cells, the last part padded with its last cell, so that one program serves all."""
    scale = cells.levels
    code = np.zeros(len(cells), int) if scale is None else codes(scale, cells.value)
    for start in range(0, len(cells), width):
        at = slice(start, min(start + width, len(cells)))
        pad = (0, width - (at.stop - at.start))
        row, col, value, level = (
            np.pad(column[at], [pad, *[(0, 0)] * (column.ndim - 1)], mode="edge")
            for column in (cells.query.row, cells.query.col, cells.value, code)
        )
        query = cells.query._replace(row=jnp.asarray(row), col=jnp.asarray(col))
        y = jnp.asarray(value)
        yield at, (_restricted(cells.data, query, y), query, y, level)


def only(cells: Told, at: slice) -> Any:
    """The data as if they had no other cells."""
    part = cells.take(at)
    query = part.query._replace(row=jnp.asarray(part.query.row), col=jnp.asarray(part.query.col))
    return _restricted(cells.data, query, jnp.asarray(part.value))


def _restricted(data: Any, query: Query, y: jax.Array) -> Any:
    """Ratings of these cells alone; a model of tasks needs all of the tasks."""
    return data.replaced(cells=query, y=y) if data.listed else data


@partial(jax.jit, static_argnums=(0, 1, 2))
def _look(
    method: Method, hyper: Any, levels: Any, params: Any, data: Any, query: Query, y: Any, code: Any
) -> tuple[jax.Array, jax.Array]:
    def one(p: Any) -> tuple[jax.Array, jax.Array]:
        factor = factors(method, p, data, hyper, query, y)
        return factor, _score(method, hyper, levels, p, query, y, code)

    return jax.lax.map(one, params)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _scores(
    method: Method, hyper: Any, levels: Any, params: Any, data: Any, query: Query, y: Any, code: Any
) -> jax.Array:
    return jax.lax.map(lambda p: _score(method, hyper, levels, p, query, y, code), params)


@partial(jax.jit, static_argnums=(0, 1))
def _sum_factors(
    method: Method, hyper: Any, params: Any, data: Any, query: Query, y: Any, real: Any
) -> jax.Array:
    def one(p: Any) -> jax.Array:
        return jnp.sum(jnp.where(real, factors(method, p, data, hyper, query, y), 0))

    return jax.lax.map(one, params)


def _score(
    method: Method, hyper: Any, levels: Any, p: Any, query: Query, y: Any, code: Any
) -> jax.Array:
    outcome = method.predict(p, query, hyper)
    return outcome.log_prob(y) if levels is None else log_mass(outcome, levels, code)


def factors(method: Method, p: Any, data: Any, hyper: Any, query: Query, y: Any) -> jax.Array:
    """The term of each of these cells in the log joint, as a density of y in the unit of the user."""
    law = laws(method, p, data, hyper)[data.site]
    mean, sd = unit_of(hyper, query)
    y = (y - mean) / sd
    if isinstance(law, CellwiseLaw):
        return law.of_cells(query, y) - jnp.log(sd)
    if law.batch_shape != y.shape:
        raise BayesfacError(
            f"{method.name} has no likelihood of a single cell: its data are one number of the joint"
        )
    return law.log_prob(y) - jnp.log(sd)


def laws(method: Method, p: Any, data: Any, hyper: Any) -> dict[str, dist.Distribution]:
    """{site: its distribution} of the model at these parameters."""
    return {name: site["fn"] for name, site in sites_of_model(method, data, hyper, p).items()}
