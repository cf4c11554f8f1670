"""What a user sees first: predictions at the top of the list, beside the ratings that were held out.

The items with the highest predictions are winners of a selection: errors upwards help an item to the top. So
their ratings may be lower than predicted though all predictions together are right.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from bayesfac.report.diagnostics.held_out import WIDTH, Scores, coverage

PLACES = 1, 5, 10
FEWEST = 30  # users of whom a sentence speaks: the standard error of fewer is unsure itself


def top_table(scores: Mapping[str, Any]) -> pd.DataFrame:
    """The best predicted held-out ratings of each user, predicted and observed; index (fit, n).

    Only users with more than n held-out ratings count, since others have no choice among them. Every user
    counts the same. `too high` is predicted less observed, with its standard error over users; the last
    column is the share of these ratings inside their 90 % intervals.
    """
    rows = {}
    for name, each in scores.items():
        if not isinstance(each, Scores):  # ranks of counts
            continue
        inside = each.inside(WIDTH).astype(float)
        for n in PLACES:
            own = top_means(each.cluster, each.mean, n, each.mean, each.value, inside)
            if len(own) > 1:
                predicted, observed, share = own.mean(0)
                error = (own[:, 0] - own[:, 1]).std(ddof=1) / len(own) ** 0.5
                rows[name, n] = (len(own), predicted, observed, predicted - observed, error, share)
    columns = ["users", "predicted", "observed", "too high", "standard error", coverage(WIDTH)]
    index = pd.MultiIndex.from_tuples(list(rows), names=["fit", "n"]) if rows else None
    return pd.DataFrame(list(rows.values()), index=index, columns=columns)


def top_means(user: np.ndarray, by: np.ndarray, n: int, *values: np.ndarray) -> np.ndarray:
    """(user, value): means of values over the n rows of each user that are first by `by`.

    >>> top_means(np.array([0, 1, 0, 0]), np.array([3.0, 9.0, 1.0, 2.0]), 2, np.array([10.0, 0, 30, 20]))
    array([[15.]])
    """
    at = first_rows(user, by, n)
    return np.stack([x[at].mean(1) for x in values], 1)


def first_rows(user: np.ndarray, by: np.ndarray, n: int) -> np.ndarray:
    """(user, n): the rows that are first by `by` of each user with more than n rows.

    >>> first_rows(np.array([0, 1, 0, 0]), np.array([3.0, 9.0, 1.0, 2.0]), 2)
    array([[0, 3]])
    """
    order = np.lexsort((-by, user))
    _, first, count = np.unique(user[order], return_index=True, return_counts=True)
    many = first[count > n]
    return order[many[:, None] + np.arange(n)]


def top_words(table: pd.DataFrame) -> list[str]:
    """Whether the ten best predictions of each user are too high, in one sentence."""
    n = PLACES[-1]
    if not len(table) or n not in table.index.get_level_values("n"):
        return []
    best = table.xs(n, level="n")
    if (users := int(best["users"].iloc[0])) < FEWEST:
        return []
    parts = []
    for name, row in best.iterrows():
        gap, error = row["too high"], row["standard error"]
        said = f"{abs(gap):.2f} {'lower' if gap > 0 else 'higher'} than predicted (± {error:.2g})"
        parts.append(f"{name} {said if abs(gap) > 2 * error else 'as predicted'}")
    first = f"At the top, the {n} held-out items with the highest predictions of each of"
    return [f"{first} {users:,} users are rated: {', '.join(parts)}."]
