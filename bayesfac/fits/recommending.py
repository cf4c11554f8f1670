"""Recommend items to users, with the probability that an item is among the best, and find similar items."""

import difflib
import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from bayesfac.core import checks
from bayesfac.core.data.cells import Grid
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.data.reading import native, plain, positions_of
from bayesfac.core.errors import BayesfacError, DataWarning, UnknownName
from bayesfac.core.method import site_dims
from bayesfac.fits import new_rows
from bayesfac.fits.fitted import Fitted
from bayesfac.inference.predictions.all_items import RULES, Asked, Rule
from bayesfac.inference.predictions.by_draw import param_blocks
from bayesfac.inference.predictions.predict import MEMORY
from bayesfac.inference.result import bar
from bayesfac.metrics.top_n import top

FROM_DRAWS = (
    "the share of the draws in which the item's expected rating is among the user's n largest"
)
FROM_OUTCOMES = (
    "the share of ratings simulated with the noise of this point fit in which the item is among the "
    "user's n largest; a point fit does not know how unsure its factors are"
)

NOT_SIMULATED = (
    "not computed, because a point fit does not know how unsure its factors are: simulate=True gives the "
    "share of ratings simulated with its noise in which the item is among the user's n largest"
)


def recommend(
    fit: Fitted,
    users: Any = None,
    n: int = 10,
    *,
    exclude: Any = None,
    by: str = "mean",
    level: float = 0.9,
    simulate: bool = False,
    seed: int = 0,
    memory: int = MEMORY,
    progress: bool = True,
) -> pd.DataFrame:
    """The n best items of each user, and the probability that each is among the user's n best.

    Parameters
    ----------
    users : label or sequence of labels, optional
        All users by default. A user without training data gets the items that are best for a user drawn
        from the prior, and is flagged. If you ask for such a user, a warning names the user.
    n : int
        The number of items. A user with fewer items left gets fewer rows; a warning names users with none.
    exclude : Ratings or table with columns user and item, optional
        Pairs that are not recommended. Pass the training data here, because a fit does not store them.
    by : {"mean", "lower", "draw", "in_top"}
        How to rank. "mean" is the expected rating. "lower" is the lower end of its central interval: items
        with little evidence then come later. "draw" is one draw for each user (Thompson sampling): users then
        also see items with uncertain ratings. "in_top" is the probability to be among the user's n best.
    level : float
        The level of the interval of "lower".
    simulate : bool
        Compute in_top of a point fit by "mean" too, from simulated ratings. This takes far longer than the
        list. Draws do not need it.
    seed : int
        Chooses the draws of "draw", and the simulated ratings of a point fit.
    memory : int
        The largest number of bytes to use.
    progress : bool
        Show a progress bar on a terminal or in a notebook.

    Returns
    -------
    DataFrame
        Columns: user; rank; item; score, by which the items are ranked; mean and sd_mean, the mean and
        standard deviation of the expected rating; in_top, the probability to be among the n best; flagged.

        For draws, in_top is the share of the draws. The parameters of a point fit have no spread, so in_top
        is then NaN by "mean", unless you `simulate`. Otherwise it is the share of 1,000 simulated ratings,
        which include the noise, and the prior where there are no training data. The other rules use these
        ratings too. `attrs["in_top"]` says which.

        For a user or item without ratings, sd_mean and in_top include the spread of the prior. There are
        exceptions for users that were not in the training data: without conditionals of users, and for
        counts, `Relations` and features, the expected rating of a draw is then the mean over the prior.

    Examples
    --------
    >>> import bayesfac as bf
    >>> ratings = bf.datasets.make_ratings(30, 20, 2, seed=0)
    >>> fit = bf.fit("pmf", ratings, bf.Gibbs(20, 50, 2), n_components=2, progress=False)
    >>> fit.recommend([3, 5], 2, exclude=ratings)[["user", "rank"]].to_numpy().tolist()
    [[3, 1], [3, 2], [5, 1], [5, 2]]
    """
    known = _axes(fit, "recommend")
    _check_count(n, len(known["item"]), "items")
    if by not in RULES:
        raise ValueError(f"Expected by= one of {RULES}, got {by!r}")
    if not 0 < level < 1:
        raise ValueError(f"Expected a level between 0 and 1, got {level!r}")
    checks.seeded(seed)
    labels = _listed(known["user"] if users is None else users, "user")
    rows = positions_of(known["user"], labels)
    if users is not None:  # a call for all users did not ask for one without ratings
        _warn_of_unseen(fit, labels, rows)
    closed, tables = _closed(fit, labels, exclude), []
    sampled = not fit.is_point or by != "mean" or simulate
    asked = Asked(fit, Rule(by, level, n if sampled else 0), rows, seed, memory)
    with bar(progress, len(labels) * asked.samples, "recommend") as shown:
        for at in asked.blocks():
            shut = closed(at)
            prior = partial(_of_prior, fit, fit._as_draws(), seed)
            every = asked.every(at, shut, prior, shown.update)
            best = top(every.score, n, shut, every.mean)
            own, place = np.nonzero(best >= 0)
            item = best[own, place]
            names = {"user": labels[at[own]], "rank": place + 1, "item": known["item"][item]}
            parts = {name: values[own, item] for name, values in every._asdict().items()}
            flagged = _unseen(fit, rows[at[own]], item)
            tables.append(pd.DataFrame({**names, **parts, "flagged": flagged}))
    table = pd.concat(tables, ignore_index=True)
    if none := [plain(user) for user in labels[~labels.isin(table["user"])]]:
        what = f"no item is left for {len(none)} of {len(labels)} users, such as {none[0]!r}: exclude has all"
        warnings.warn(what, DataWarning, stacklevel=2)
    of_point = FROM_OUTCOMES if sampled else NOT_SIMULATED
    table.attrs["in_top"] = of_point if fit.is_point else FROM_DRAWS
    return table


def similar(
    fit: Fitted, items: Any, n: int = 10, *, users: int = 500, draws: int = 100, seed: int = 0
) -> pd.DataFrame:
    """The n items that are most similar to each item.

    The similarity of two items is the correlation of their expected ratings over users. Ratings do not
    change if the factors are rotated. So the correlation is computed for each draw and then averaged.

    Parameters
    ----------
    items : label or sequence of labels
        Items of the training data.
    n : int
        The number of similar items.
    users, draws : int
        The largest numbers of users and draws to use: users are chosen at random with `seed`, and draws
        evenly spaced.

    Returns
    -------
    DataFrame
        Columns: item; rank; similar, the other item; correlation; sd, the standard deviation of the
        correlation over the draws (0 for a point fit); in_top, the share of the draws in which the other
        item is among the n most similar.

    Examples
    --------
    >>> import bayesfac as bf
    >>> ratings = bf.datasets.make_ratings(30, 20, 2, seed=0)
    >>> fit = bf.fit("pmf", ratings, n_components=2, progress=False)
    >>> fit.similar(4, 3)["rank"].tolist()
    [1, 2, 3]
    """
    known = _axes(fit, "similar")
    _check_count(n, len(known["item"]) - 1, "other items")
    labels = _listed(items, "item")
    asked = positions_of(known["item"], labels)
    if (asked < 0).any():
        lost = plain(labels[int(np.argmin(asked))])
        raise UnknownName(
            f"Expected items of the training data, got {lost!r}{_near(known['item'], lost)}"
        )
    rng, size = checks.generator(seed), len(known["user"])
    row = np.sort(rng.choice(size, min(users, size), replace=False))
    few = {site: v[:, :: _step(v.shape[:2], draws)] for site, v in fit._as_draws().items()}
    grid, tables = Grid(row, np.arange(len(known["item"]))), []
    shape = next(iter(few.values())).shape
    at_once = max(1, MEMORY // (16 * shape[0] * shape[1] * len(known["item"])))
    for own, each in _correlations(fit, few, grid, asked, at_once):
        shut = np.arange(each.shape[1]) == own
        best = top(each.mean(0)[None], n, shut[None])[0]
        share = _membership(each[:, None], n, shut[None], np.zeros(n, int), best)
        names = {
            "item": known["item"][[own] * n],
            "rank": np.arange(n) + 1,
            "similar": known["item"][best],
        }
        numbers = {
            "correlation": each[:, best].mean(0),
            "sd": each[:, best].std(0),
            "in_top": share,
        }
        tables.append(pd.DataFrame({**names, **numbers}))
    return pd.concat(tables, ignore_index=True)


def _correlations(
    fit: Fitted, draws: Any, grid: Grid, asked: np.ndarray, at_once: int
) -> Iterator[tuple[int, np.ndarray]]:
    """For each asked item its number, and (draw, item) correlations, computed for so many of them at once."""
    for first in range(0, len(asked), at_once):
        own = asked[first : first + at_once]
        blocks = param_blocks(fit.method, draws, 1, MEMORY // 4)
        found = [np.asarray(_alike(fit.method, fit.hyper, p, grid, own)) for p in blocks]
        yield from zip(own, np.concatenate(found).swapaxes(0, 1), strict=True)


@partial(jax.jit, static_argnums=(0, 1))
def _alike(method: Any, hyper: Any, params: Any, grid: Grid, asked: np.ndarray) -> jax.Array:
    """(draw, asked item, item) correlations of expected ratings over the users of the grid."""

    def one(p: Any) -> jax.Array:
        profile = method.predict(p, grid, hyper).mean
        profile = profile - profile.mean(0)
        length = jnp.sqrt((profile**2).sum(0))
        profile = profile / jnp.where(length > 0, length, 1)  # 0 if all users have the same rating
        return profile[:, asked].T @ profile

    return jax.lax.map(one, params)


def _of_prior(
    fit: Fitted, draws: Mapping[str, np.ndarray], seed: int
) -> dict[str, np.ndarray] | None:
    """The draws with one user, whom each draw takes from its prior; None where the method cannot."""
    method, card = fit.method, fit.data
    one = {site: np.asarray(draws[site][0, 0]) for site in draws}
    if method.data is not Ratings or card.encodings or method.derive is not None:
        return None
    if not new_rows.drawable(method, fit.hyper, one, "user"):
        return None
    items, value = card.coords["item"], card.levels[0] if card.levels else card.summary["mean"]
    # the second user has no ratings, so that nothing but the prior decides its row
    two = Ratings([0, 1], [items[0]] * 2, [value] * 2, levels=card.levels)
    two = two.on(items, "item").take([0])
    held = {site: np.asarray(draws[site]) for site in draws}
    key = jax.random.fold_in(jax.random.key(seed), len(items))
    found = new_rows.drawn(method, fit.hyper, method.ready(two, fit.hyper), held, "user", key)
    axis = {site: 2 + site_dims(method, site).index("user") for site in found}
    return held | {site: np.take(value, [1], axis[site]) for site, value in found.items()}


def _membership(
    values: np.ndarray, n: int, closed: np.ndarray, own: np.ndarray, item: np.ndarray
) -> np.ndarray:
    """The share of samples (sample, user, item) in which the items are among the n largest that are open.

    Items of equal value share the places that are left to them.
    """
    open_ = np.where(closed, -np.inf, values)
    place = min(n, open_.shape[-1])
    largest = np.partition(open_, -place, axis=-1)[..., -place:]
    least = largest[..., :1]
    above, equal = (largest > least).sum(-1, keepdims=True), (open_ == least).sum(-1, keepdims=True)
    chosen, bound = open_[:, own, item], least[:, own, 0]
    tied = ((n - above) / equal)[:, own, 0]
    share = np.where(chosen == bound, np.minimum(tied, 1), 0.0)
    return np.where(chosen > bound, 1.0, share).mean(0)


# -- labels ---------------------------------------------------------------------------------------
def _axes(fit: Fitted, verb: str) -> dict[str, pd.Index]:
    """The labels of users and items; only fits of ratings have both."""
    if not fit.data.form.ranks:
        raise BayesfacError(
            f"Expected a fit of Ratings for {verb}, got {fit.name}, a fit of {fit.data.kind}: "
            "predict(query) scores its cells"
        )
    return fit.data.coords


def _listed(labels: Any, what: str) -> pd.Index:
    """One label or several as an index without repetitions."""
    scalar = isinstance(labels, str | bytes) or not np.ndim(labels)
    index = native(pd.Index([labels] if scalar else labels)).unique()
    if not len(index):
        raise ValueError(f"Expected at least one {what}, got none")
    return index


def _check_count(n: Any, most: int, what: str) -> None:
    if isinstance(n, bool) or not hasattr(n, "__index__") or not 1 <= n <= most:
        raise ValueError(f"Expected n from 1 to {most}, as there are {most} {what}, got {n!r}")


def _warn_of_unseen(fit: Fitted, labels: pd.Index, rows: np.ndarray) -> None:
    """Name the users without training data: unknown labels, and users that have features alone."""
    known, unknown = fit.data.coords["user"], rows < 0
    unseen = unknown | (fit.data.cells("user")[rows] == 0)
    if not unseen.any():
        return
    first = plain(labels[unknown if unknown.any() else unseen][0])
    what = f"{unseen.sum()} user(s) without training data get items by the prior, such as {first!r}"
    near = _near(known, first) if unknown.any() else ""
    warnings.warn(what + near, DataWarning, stacklevel=3)


def _near(known: pd.Index, lost: Any) -> str:
    """The known labels most alike to a label, as the end of a message."""
    found = difflib.get_close_matches(str(lost), [str(label) for label in known], 3, 0.7)
    if found:
        return f"; did you mean {' or '.join(map(repr, found))}?"
    return f", where labels are like {known[:3].tolist()}"


def _closed(fit: Fitted, labels: pd.Index, exclude: Any) -> Any:
    """A function from places of users to (user, item) whether the pair is excluded."""
    items = len(fit.data.coords["item"])
    if exclude is None:
        return lambda at: np.zeros((len(at), items), bool)
    coords, (_, named, _) = fit.data.coords, fit.data.locate(exclude)
    # not the codes of the query: those of items without training data are negative, but these are recommended
    user, item = positions_of(labels, named["user"]), positions_of(coords["item"], named["item"])
    known = (user >= 0) | (positions_of(coords["user"], named["user"]) >= 0)
    if len(item) and not (known & (item >= 0)).any():
        what = f"no pair of exclude is known, such as {tuple(map(plain, named.iloc[0]))}: it has no effect"
        warnings.warn(what, DataWarning, stacklevel=3)
    keep = (user >= 0) & (item >= 0)
    order = np.argsort(user[keep], kind="stable")
    user, item = user[keep][order], item[keep][order]
    first = np.searchsorted(user, np.arange(len(labels) + 1))

    def closed(at: np.ndarray) -> np.ndarray:
        shut, many = np.zeros((len(at), items), bool), first[at + 1] - first[at]
        cell = np.repeat(first[at] - np.cumsum(many) + many, many) + np.arange(many.sum())
        shut[np.repeat(np.arange(len(at)), many), item[cell]] = True
        return shut

    return closed


def _unseen(fit: Fitted, row: np.ndarray, item: np.ndarray) -> np.ndarray:
    """Which pairs have a user or an item without training data."""
    return (row < 0) | (fit.data.cells("user")[row] == 0) | (fit.data.cells("item")[item] == 0)


def _step(shape: tuple[int, ...], most: int) -> int:
    """Every how many-th draw of each chain to take for at most so many draws in all."""
    return max(1, -(-shape[0] * shape[1] // most))
