"""How well a short fit predicts the part of the data that was held out, to compare settings."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayesfac.core.data.cells import Grid, Known
from bayesfac.core.data.counts import Counts
from bayesfac.core.math import safe_log
from bayesfac.core.method import Method

TIE = 1e-3  # weight of the log score beside an absolute error
USERS = 1000  # largest number of users whose held-out pairs are ranked
AT_ONCE = 64  # pairs that are ranked in one step


def loss(
    method: Method, p: Any, train: Any, held: Any, hyper: Any, values: Mapping[str, Any]
) -> float:
    """The mean loss of the held-out part, of the kind that `method.choose.by` names.

    "loss" is minus the log score. A method that decides by a rule of its own (a margin) has no calibrated
    distribution over levels. There it is the absolute error of the chosen levels, and the log score only
    decides between settings that choose the same levels. "law" is minus the log score for these methods too.
    "ranks" is `rank_loss`. `values` replace settings.
    """
    if method.choose.by == "ranks":
        return rank_loss(method, p, train, held, hyper, values)
    score, error = _scores(method, hyper, p, held, dict(values))
    if error is None or method.choose.by == "law":
        return -float(score)
    return float(error) - TIE * float(score)


@partial(jax.jit, static_argnums=(0, 1))
def _scores(
    method: Method, hyper: Any, p: Any, held: Any, values: dict[str, Any]
) -> tuple[jax.Array, jax.Array | None]:
    """The mean log score of held-out cells; the mean absolute error where the method chooses levels."""
    hyper = hyper._replace(**values)
    if not held.site:  # P(w | x, t) of every count; columns are numbered through the views
        first = dict(zip(held.names, np.cumsum([0, *held.n_features.values()]), strict=False))
        row = jnp.concatenate([cells.row for cells in held.cells.values()])
        col = jnp.concatenate([cells.col + int(first[name]) for name, cells in held.cells.items()])
        y = jnp.concatenate(list(held.y.values()))
        P = method.predict(p, Known(row, col), hyper).mean
        return jnp.sum(y * safe_log(P)) / jnp.sum(y), None
    outcome = method.predict(p, Known(held.cells.row, held.cells.col), hyper)
    score = jnp.mean(outcome.log_prob(held.y))
    if getattr(outcome, "chosen", None) is None:
        return score, None
    return score, jnp.mean(jnp.abs(outcome.scale[outcome.choice] - held.y))


def rank_loss(
    method: Method, p: Any, train: Counts, held: Counts, hyper: Any, values: Mapping[str, Any]
) -> float:
    """One minus the mean of 1 / log2(1 + rank) over held-out pairs; this is the gain of a hit in NDCG.

    A pair is ranked among all items that its user does not have in the training part. Items with equal scores
    share the mean of their ranks. At most `USERS` users count.
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
    """The mean gain of the pairs (user, item), where `user` is a place in `users`."""
    grid = Grid(users, jnp.arange(listed.shape[1]))
    score = method.predict(p, grid, hyper._replace(**values)).mean
    score = jnp.where(listed, -jnp.inf, score)

    def gain(pair: tuple[jax.Array, jax.Array]) -> jax.Array:
        others, own = score[pair[0]], score[pair]
        above, equal = jnp.sum(others > own), jnp.sum(others == own)
        return 1 / jnp.log2(1 + above + (1 + equal) / 2)

    return jnp.mean(jax.lax.map(gain, (user, item), batch_size=AT_ONCE))
