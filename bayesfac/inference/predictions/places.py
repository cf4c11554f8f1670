"""All items of some users in one pass over the draws: moments, and how often an item is among the n best.

A compiled program predicts a few draws for a few users, so that the table stays in the processor's cache. A
loop adds this table to the sums. It has no array of users, items and draws.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.method import Method
from bayesfac.inference.predictions.by_draw import param_blocks
from bayesfac.inference.predictions.places_loops import add_draws

TABLE = 2**21  # bytes of the predictions of one draw for a few users
DRAWS = 4  # draws that are predicted before they are added


class Sums(NamedTuple):
    """Sums over draws, users by items: mean, squares about the mean, and shares of the n places. `low` is a
    value for each user that the last place hardly ever had less than."""

    mean: np.ndarray
    square: np.ndarray
    share: np.ndarray
    low: np.ndarray

    @classmethod
    def none(cls, shape: tuple[int, int], dtype: Any) -> "Sums":
        """The sums over no draws."""
        mean, square, share = (np.zeros(shape, dtype) for _ in range(3))
        return cls(mean, square, share, np.full(shape[0], np.finfo(dtype).min, dtype))

    def add(self, values: np.ndarray, closed: np.ndarray, n: int, at: slice, done: int) -> None:
        """Add draws (draw, user, item) of the users at `at` to the sums over `done` draws."""
        values = np.ascontiguousarray(values).view()
        values.flags.writeable = (
            False  # as arrays of JAX: the loop is compiled for one kind of array
        )
        add_draws(values, *(each[at] for each in self), closed[at], n, done)


def pass_over(
    method: Method, hyper: Any, draws: Mapping[str, np.ndarray], query: Grid | Query,
    closed: np.ndarray, n: int, memory: int, seen: Callable[[slice, int, np.ndarray], None],
) -> Sums:  # fmt: skip
    """The sums over all draws of the users that `closed` (users by items) has.

    `query` is a Grid of these users, or the cells of one user who stands for all of them. `seen` is called
    with each table: its users, the number of its first draw, and its values (draw, user, item).
    """
    (users, items), every = closed.shape, isinstance(query, Grid)
    dtype = next(iter(draws.values())).dtype
    sums, done = Sums.none((users, items), dtype), 0
    height = int(np.clip(TABLE // (dtype.itemsize * items), 1, users))
    own = np.asarray(query.row) if every else None

    def take(at: slice, first: int, table: jax.Array) -> None:
        values = np.asarray(table).reshape(len(table), -1, items)
        values = np.broadcast_to(values, (len(table), at.stop - at.start, items))
        sums.add(values, closed, n, at, first)
        seen(at, first, values)

    for params in param_blocks(method, draws, 1, memory // 4, own):
        count, ahead = len(jax.tree.leaves(params)[0]), None
        for start in range(0, users, height):
            at = slice(start, min(start + height, users))
            few = Grid(np.arange(at.start, at.stop), query.col) if every else query
            for first in range(0, count, DRAWS):
                width = min(DRAWS, count - first)
                table = _means(method, hyper, width, first, params, few)
                if ahead:  # added by this thread while JAX computes the next table
                    take(*ahead)
                ahead = at, done + first, table
        if ahead:
            take(*ahead)
        done += count
    return sums


@partial(jax.jit, static_argnums=(0, 1, 2))
def _means(method: Method, hyper: Any, count: int, first: Any, params: Any, query: Any) -> Any:
    """(draw, ...) expected outcomes under `count` draws."""

    def one(number: jax.Array) -> jax.Array:
        p = jax.tree.map(lambda x: x[first + number], params)
        return method.predict(p, query, hyper).mean

    return jax.lax.map(one, jnp.arange(count))
