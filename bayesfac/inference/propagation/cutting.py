"""Ratings cut into blocks of users and items."""

from typing import Any

import numpy as np

from bayesfac.core.data.ratings import Ratings
from bayesfac.core.errors import BayesfacError


def groups(count: np.ndarray, parts: int, what: str) -> list[np.ndarray]:
    """The numbers of the rows of each group: the rows with most ratings first, and about equally many
    ratings in each group, which has at least one row.

    >>> groups(np.array([1, 6, 2, 0, 3]), 2, "users")
    [array([1]), array([0, 2, 3, 4])]
    """
    if parts > len(count):
        raise BayesfacError(f"Expected at most {len(count)} groups of {what}, got {parts}")
    order = np.argsort(-count, kind="stable")
    total = np.cumsum(count[order])
    goals = total[-1] * np.arange(1, parts) / parts
    ends = np.searchsorted(total, goals) + 1
    for k in range(parts - 1):  # a row more than the group before, and enough rows for those behind
        ends[k] = max(ends[k], ends[k - 1] + 1 if k else 1)
        ends[k] = min(ends[k], len(count) - (parts - 1 - k))
    return [np.sort(part) for part in np.split(order, ends)]


def cut(data: Ratings, sides: dict[str, list[np.ndarray]]) -> dict[tuple[int, int], Any]:
    """{(i, j): the ratings of the users of group i and the items of group j}, blocks without any left out."""
    found = {}
    for i, users in enumerate(sides["user"]):
        for j, items in enumerate(sides["item"]):
            if (block := data.within(users, items)) is not None:
                found[i, j] = block
            elif i == 0 or j == 0:
                raise BayesfacError(
                    f"Expected ratings in every block of the first row and column, got none in block "
                    f"({i + 1}, {j + 1}): take fewer blocks"
                )
    return found
