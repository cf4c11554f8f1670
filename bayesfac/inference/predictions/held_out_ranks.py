"""How high held-out pairs of users and items rank, by which settings for implicit feedback are chosen."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayesfac.core.data.cells import Grid
from bayesfac.core.data.counts import Counts
from bayesfac.core.method import Method

USERS = 1000  # at most: those whose held-out pairs are ranked
AT_ONCE = 64  # pairs


def rank_loss(
    method: Method, p: Any, train: Counts, held: Counts, hyper: Any, values: Mapping[str, Any]
) -> float:
    """One minus the mean of 1 / log2(1 + rank), the gain of a hit in NDCG, over held-out pairs.

    A pair is ranked among all items that its user does not have in the training part; equal scores share
    their ranks. `values` replace settings.
    """
    users = np.unique(held.user)
    if len(users) > USERS:
        users = np.sort(np.random.default_rng(0).choice(users, USERS, replace=False))
    listed = np.zeros((len(users), train.n_items), bool)
    listed[_pairs(users, train)] = True
    user, item = _pairs(users, held)
    return 1 - float(_gain(method, hyper, p, users, listed, user, item, dict(values)))


def _pairs(users: np.ndarray, data: Counts) -> tuple[np.ndarray, np.ndarray]:
    """The pairs of these users: the place of the user in `users`, and the item."""
    kept = np.isin(data.user, users)
    return np.searchsorted(users, data.user[kept]), data.item[kept]


@partial(jax.jit, static_argnums=(0, 1))
def _gain(
    method: Method, hyper: Any, p: Any, users: Any, listed: Any, user: Any, item: Any, values: dict
) -> jax.Array:
    grid = Grid(users, jnp.arange(listed.shape[1]))
    score = method.predict(p, grid, hyper._replace(**values)).mean
    score = jnp.where(listed, -jnp.inf, score)

    def gain(pair: tuple[jax.Array, jax.Array]) -> jax.Array:
        others, own = score[pair[0]], score[pair]
        above, equal = jnp.sum(others > own), jnp.sum(others == own)
        return 1 / jnp.log2(1.5 + above + equal / 2)

    return jnp.mean(jax.lax.map(gain, (user, item), batch_size=AT_ONCE))
