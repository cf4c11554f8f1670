"""Score recommendations of several fits on held-out ratings, with the most popular items as a baseline."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bayesfac.core.data.ratings import Ratings
from bayesfac.core.data.reading import plain, positions_of
from bayesfac.inference.predictions.everywhere import means
from bayesfac.inference.predictions.predict import MEMORY
from bayesfac.metrics.top_n import (
    average_precision,
    catalogue_coverage,
    ndcg,
    popularity,
    precision,
    recall,
    top,
)

PLACES = 10
USERS = 2000  # users at most, so that a large test set takes minutes, not hours
POPULAR = "popularity"
MEASURES = {"NDCG": ndcg, "recall": recall, "precision": precision, "MAP": average_precision}


@dataclass(frozen=True, eq=False)
class Ranking:
    """Scores of the first ten recommendations.

    table      one row per fit, and one for popularity; larger is better
    per_user   {row: {measure: one score per user}}
    relevant   the rating above which a held-out item counts as relevant: the mean of the training ratings;
               None for counts, of which every held-out pair is relevant
    """

    table: pd.DataFrame
    per_user: Mapping[str, Mapping[str, np.ndarray]]
    relevant: float | None

    @property
    def users(self) -> int:
        """The number of users."""
        return len(next(iter(self.per_user[POPULAR].values())))

    @property
    def about(self) -> str:
        """What was ranked and what counts as a hit, in two sentences."""
        verb = "have" if self.relevant is None else "rate"
        first = f"The first {PLACES} of all items that a user did not {verb} in training,"
        if self.relevant is None:
            return f"{first} for {self.users:,} users with held-out items, which are the relevant ones."
        return (
            f"{first} for {self.users:,} users with relevant held-out items. An item is relevant if its "
            f"held-out rating is above {self.relevant:.3g}, the mean of the training ratings."
        )


def ranking(fits: Mapping[str, Any], test: Ratings, train: Ratings) -> Ranking:
    """Score the recommendations of each fit to the users of the test set.

    Examples
    --------
    >>> import bayesfac as bf
    >>> train, test = bf.split.holdout(bf.datasets.make_ratings(30, 20, 2, seed=0), 0.2, seed=0)
    >>> fit = bf.fit("pmf", train, n_components=2, progress=False)
    >>> ranking({"point": fit}, test, train).table.index.tolist()
    ['point', 'popularity']
    """
    if not isinstance(train, Ratings) or not isinstance(test, Ratings):
        raise TypeError(f"Expected Ratings as train=, got {type(train).__name__}")
    relevant = None if train.implicit else train.mean
    user = positions_of(train.users, test.users)[test.user]
    item = positions_of(train.items, test.items)[test.item]
    good = (user >= 0) & (item >= 0) & (test.value > (relevant or 0))
    if not good.any():
        raise ValueError(
            f"Expected held-out ratings above the training mean {train.mean:.3g} of users and items "
            "of the training data, got none"
        )
    users = np.random.default_rng(0).permutation(np.unique(user[good]))[:USERS]
    liked: dict[int, set[int]] = {int(u): set() for u in users}
    for u, i in zip(user[good], item[good], strict=True):
        if u in liked:
            liked[u].add(int(i))
    place = np.full(train.n_users, -1)
    place[users] = np.arange(len(users))
    rated = place[train.user] >= 0
    closed = np.zeros((len(users), train.n_items), bool)
    closed[place[train.user[rated]], train.item[rated]] = True
    counts = np.broadcast_to(popularity(train)[train.items].to_numpy(float), closed.shape)
    scores = {name: _expected(name, fit, train, users) for name, fit in fits.items()}
    scores[POPULAR] = counts
    lists = {name: top(score, PLACES, closed) for name, score in scores.items()}
    wanted = list(liked.values())
    per_user = {
        name: {f"{m}@{PLACES}": f(rows, wanted, PLACES) for m, f in MEASURES.items()}
        for name, rows in lists.items()
    }
    averages = {n: {m: v.mean() for m, v in each.items()} for n, each in per_user.items()}
    table = pd.DataFrame(averages).T.rename_axis("fit")
    table["catalogue shown"] = [
        catalogue_coverage(rows, train.n_items, PLACES) for rows in lists.values()
    ]
    return Ranking(table, per_user, relevant)


def _expected(name: str, fit: Any, train: Ratings, users: np.ndarray) -> np.ndarray:
    """The fit's expected ratings of these users, the columns in the order of the training items."""
    row = positions_of(fit.data.coords["user"], train.users[users])
    column = positions_of(fit.data.coords["item"], train.items)
    for what, at, labels in (("user", row, train.users[users]), ("item", column, train.items)):
        if (at < 0).any():
            lost = f"{what} {plain(labels[int(np.argmin(at))])!r}"
            raise ValueError(f"Expected train= to be the data of {name!r}, which has no {lost}")
    width = len(fit.data.coords["item"])
    return means(fit.method, fit.hyper, fit._as_draws(), row, width, MEMORY)[:, column]
