"""Counts: how often users met items, checked once, here; a pair that is not listed is a zero."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import scipy.sparse as sp

from bayesfac.core.data import reading, triplets
from bayesfac.core.data.cells import full_table, row_major
from bayesfac.core.data.columns import Columns, find, is_role, is_wide, with_index, with_time
from bayesfac.core.data.ratings import Ratings

PAIR = ("user", "item")
# the variance of counts by their mean; if factors explain nine tenths of it, twice Poisson's is left
SPREAD = 20.0


@jax.tree_util.register_pytree_node_class
class Counts(Ratings):
    """How often users played, bought or clicked items; a pair (user, item) that is not listed is a zero.

    In `Ratings` such a pair is missing. Methods for counts model all zeros too, but their time grows only
    with the number of listed pairs.

    Parameters
    ----------
    data : DataFrame, array, scipy sparse matrix, Ratings or (users, items[, counts])
        A long table with columns user and item and perhaps count (or usual names for them). Without counts,
        every row counts as one. Or a wide table, a dense or a sparse matrix: users x items. Counts of the
        same pair are added. The values of Ratings are used as counts.
    columns : sequence of two to four names or mapping, optional
        The names of the columns of a long table: ["who", "song"] or ["who", "song", "plays"], with the
        time as a fourth name, or {"count": "plays"}.
    times : array, optional
        The time of each pair, as in `Ratings`. A pair that is listed twice has its first time.

    Examples
    --------
    >>> import pandas as pd
    >>> Counts(pd.DataFrame({"user": ["ann", "ann", "bob"], "item": ["x", "x", "y"]}))
    Counts(2 users x 2 items, 2 of 4 pairs above zero, sum 3)
    """

    implicit = True
    weight: Any  # of each listed cell (a method's `ready` may set it), or None
    leaves = ("cells", "y", "x", "weight")

    def __init__(
        self,
        data: Any,
        items: Any = None,
        counts: Any = None,
        *,
        columns: Columns | None = None,
        times: Any = None,
    ) -> None:
        user, item, value, users, items_, found = _listed(data, items, counts, columns)
        if not len(value) or not value.any():
            raise ValueError("Expected at least one count above zero, got none")
        if (value < 0).any():
            row = int(np.argmax(value < 0))
            raise ValueError(
                f"Expected counts of at least 0, got {value[row]:g} in row {row} "
                f"(user {reading.plain(users[user[row]])!r}, item {reading.plain(items_[item[row]])!r})"
            )
        raw = found if times is None else times
        if raw is not None and (np.ndim(raw) != 1 or len(raw) != len(value)):
            raise ValueError(f"Expected {len(value)} times, one for each row, got {np.shape(raw)}")
        time = None if raw is None else reading.times(np.asarray(raw))
        cells = row_major(user, item, (len(users), len(items_)))
        cells, value, kept = triplets.summed(cells, value)
        time = None if time is None else np.array(time[kept])
        self._fill(cells, value, users, items_, None, time)
        self.weight = None

    @property
    def mean(self) -> float:
        """The mean of the whole table, with its zeros."""
        return float(self.value.sum() / np.prod([float(n) for n in self.shape]))

    @property
    def spread(self) -> float:
        """The standard deviation of the whole table, with its zeros; 1 if all counts are equal."""
        square = (self.value**2).sum() / np.prod([float(n) for n in self.shape])
        return float(max(square - self.mean**2, 0.0) ** 0.5) or 1.0

    def __repr__(self) -> str:
        total = f"{self.value.sum():.10g}"
        return (
            f"Counts({self.n_users} users x {self.n_items} items, {len(self)} of "
            f"{self.n_users * self.n_items} pairs above zero, sum {total})"
        )

    def with_table(self, table: jax.Array) -> "Counts":
        """The same users and items with a value for every pair, each with its old weight, or 1."""
        cells, y = full_table(table)
        weight = None if self.weight is None else self.dense(self.weight - 1).ravel() + 1
        return self.replaced(cells=cells, y=y, weight=weight)

    def dense(self, values: jax.Array) -> jax.Array:
        """Values of the listed cells as a table with zeros elsewhere; for small tables."""
        return jnp.zeros(self.shape, values.dtype).at[self.cells.row, self.cells.col].set(values)

    def drawn(self, draw: Mapping[str, Any]) -> "Counts":
        return self.with_table(draw["rating"])

    def elsewhere(self) -> dict[str, np.ndarray]:
        """The zeros of each user and item, which are observed, though not listed."""
        n, m = self.shape
        return {"user": m - self.per_row("user"), "item": n - self.per_row("item")}

    def fill(self, draw: Mapping[str, Any]) -> "Counts":
        """The same users and items with the table that the model drew at the site `rating`."""
        table = np.asarray(draw["rating"])
        filled = self.with_table(reading.real(table))
        value = table.ravel().astype(np.float64)
        filled.host = replace(self.host, value=value, origin=np.arange(table.size), time=None)
        return filled

    def _part(
        self, user: Any, item: Any, value: Any, users: Any, items: Any, kept: Any
    ) -> "Counts":
        part: Counts = super()._part(user, item, value, users, items, kept)  # type: ignore[assignment]
        part.weight = None
        if self.weight is not None:  # y and weight are what `ready` made of the values
            place = np.empty(len(self), int)
            place[self.host.origin] = np.arange(len(self))
            at = place[kept][part.host.origin]
            part.y, part.weight = self.y[at], self.weight[at]
        return part


def of_spread(summary: Mapping[str, float]) -> list[str]:
    """A remark if the counts above zero are far more spread than those of a Poisson law.

    `summary` has the share of pairs above zero, and the mean and sd of the table with its zeros.
    """
    mean, square = (x / summary["density"] for x in (summary["mean"], summary["sd"] ** 2))
    ratio = (square + mean * summary["mean"]) / mean - mean
    if ratio <= SPREAD:
        return []
    return [
        f"the variance of the counts above zero is {ratio:.3g} times their mean, where a Poisson law has the "
        "same: the largest counts decide the fit. Lists of items are often better after counts are replaced "
        "by rounded logarithms, np.rint(1 + np.log(counts)), or by ones; wrmf takes logarithms by itself"
    ]


# -- reading ------------------------------------------------------------------------------------
def _listed(data: Any, items: Any, counts: Any, columns: Columns | None) -> tuple:
    """Codes of users and items, counts, labels, and times or None."""
    if isinstance(data, Counts) and items is None:  # also the users and items of zeros
        return data.user, data.item, data.value, data.users, data.items, data.time
    if isinstance(data, Ratings):
        data, columns = data.frame(), None
    if items is not None:
        data = (data, items, counts)
    data = with_index(data)
    if isinstance(data, pd.DataFrame) and not (columns is None and is_wide(data)):
        data = _long(data, columns)
    if isinstance(data, tuple) and len(data) in (2, 3, 4):
        return _pairs(*data)
    csr, users, names = reading.matrix(data, "counts")
    coo = sp.coo_matrix(csr)
    if isinstance(data, pd.DataFrame):
        user, users = reading.labels(users, "user")
        item, names = reading.labels(names, "item")
        return user[coo.row], item[coo.col], coo.data, users, names, None
    row, col = coo.row.astype(np.int32), coo.col.astype(np.int32)
    return row, col, coo.data, users, names, None


def _pairs(user: Any, item: Any, count: Any = None, time: Any = None) -> tuple:
    sizes = [len(part) for part in (user, item, count) if part is not None]
    if len(set(sizes)) > 1:
        raise ValueError(f"Expected users, items and counts of one length, got {sizes}")
    user, users = reading.labels(user, "user")
    item, items = reading.labels(item, "item")
    value = np.ones(len(user)) if count is None else reading.numbers(count, "counts")
    return user, item, value, users, items, time


def _long(frame: pd.DataFrame, columns: Columns | None) -> tuple:
    """The columns of a long table; a table with users and items alone counts its rows."""
    seen = list(frame.columns)
    if isinstance(columns, Mapping):
        roles = {("rating" if role == "count" else role): name for role, name in columns.items()}
        return tuple(reading.triplets(frame, roles))
    if columns is not None and len(columns) == 2:
        if lost := [name for name in columns if name not in seen]:
            raise ValueError(f"Expected a column {lost[0]!r}, got {seen}")
        return tuple(frame[name] for name in columns)
    if columns is not None or (pair := find(seen, PAIR)) is None:
        return tuple(reading.triplets(frame, columns))
    time = with_time(seen, None)[1]
    others = [name for name in seen if name not in pair and name != time]
    counts = [name for name in others if is_role(name, "rating") or is_role(name, "value")]
    if others and len(counts) != 1:
        raise ValueError(
            f"Expected one column with counts beside {pair}, or no other column, got {others}. "
            "columns=['USER', 'ITEM', 'COUNT'] says which is which, columns=['USER', 'ITEM'] counts rows"
        )
    return (
        *(frame[name] for name in pair),
        frame[counts[0]] if counts else None,
        None if time is None else frame[time].to_numpy(),
    )
