"""Ratings: (user, item, value) triplets, checked once, here; later code does not check them again.

Length: one class, whose cells, features and graphs share the codes of labels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from bayesfac.core.data import edges, reading, triplets
from bayesfac.core.data.cells import Cells, Layout, Query, row_major
from bayesfac.core.data.columns import Columns
from bayesfac.core.data.container import Container, Sizes
from bayesfac.core.data.features import Encoding, Features, Side, described


@dataclass(frozen=True, eq=False)
class Frame:
    """The parts of a set of ratings that stay on the host: labels, levels, and the user's order of rows."""

    users: pd.Index
    items: pd.Index
    levels: tuple[float, ...] | None
    origin: np.ndarray  # the user's row of every cell, cells in row-major order
    value: np.ndarray  # in the user's order; of `reading.narrow`
    time: np.ndarray | None = None  # in the user's order
    name: str = ""
    features: dict[str, Side] = field(default_factory=dict)  # of "user" and of "item"
    graphs: dict[str, edges.Edges] = field(default_factory=dict)  # likewise

    @cached_property
    def moments(self) -> tuple[float, float]:
        """The mean and the standard deviation of the values."""
        value = self.value.astype(np.float64)
        return float(value.mean()), reading.deviation(value)


@jax.tree_util.register_pytree_node_class
class Ratings(Container):
    """Ratings of items by users: (user, item, value). A cell that is not listed is missing, never zero.

    Parameters
    ----------
    data : DataFrame, array, scipy sparse matrix or (users, items, values)
        One of these forms: a long table with columns user, item and rating (or usual names for them, such as
        userId, movie, stars); a wide table with users as named or text index, items as columns and NaN in
        unobserved cells; three arrays; a sparse matrix whose stored cells are observed (a stored zero is a
        rating of zero); a dense matrix with NaN in unobserved cells. A table with unknown names of columns
        is an error.
    columns : sequence of three or four names or mapping, optional
        The names of the columns of a long table: ["who", "film", "stars"], with the time as a fourth name if
        there is one, or {"rating": "stars", "time": "seen"}.
    levels : int or sequence, optional
        The ordinal scale; 5 means 1..5. Without levels, values are real numbers.
    duplicates : {"error", "mean"}
        What to do when a user rated an item twice. On a scale of levels, "mean" takes the level nearest to
        the mean, and the lower one of two equally near levels. The time is that of the first rating.
    times : array, optional
        The time of each rating: numbers, dates, or dates as text. By default the times are a column of the
        long table (timestamp, date), if there is one. Fits ignore times; `bf.split.holdout(by="time")` uses
        them.
    user_features, item_features : DataFrame, array or sparse matrix, optional
        Further information on users and items. A DataFrame is matched by its index; the rows of an array are
        in the order of the labels. Columns of numbers are standardised. Booleans and each category of text
        become columns of zeros and ones minus their mean. Sparse matrices are not changed. NaN is replaced
        by the mean of its column, and `fit.notes` says so. A user with ratings but without a row is an
        error. Users and items that are only in the table become users and items without ratings.
    user_graph, item_graph : DataFrame, array or sparse matrix, optional
        Edges between users (friends), or between items (similar ones), for `bf.Graph`: a table of two labels
        and perhaps a weight, or a sparse matrix in the order of the labels. Edges have no direction: where
        one is listed twice, the larger weight counts. One of weight 0, or from a label to itself, says
        nothing. Labels that are only in the graph become users and items without ratings.

    Notes
    -----
    Labels are kept as they are, and compared as text: 7, 7.0 and "7" are the same label, and "007" is
    another one. If all labels of an axis are whole numbers, they are sorted as numbers. So data whose ids
    were read as text match a fit to data whose ids were numbers. This is also so for labels of `Views` and
    `Tasks`, and in files, predictions, comparisons, new rows and loaded fits.

    Examples
    --------
    >>> import pandas as pd
    >>> r = Ratings(pd.DataFrame({"user": ["ann", "bob"], "item": ["x", "x"], "rating": [4, 2]}))
    >>> r
    Ratings(2 users x 1 items, 2 ratings, density 1, real values)
    >>> list(r.users)
    ['ann', 'bob']
    """

    cells: Any  # Cells; in a minibatch a Query
    y: Any  # values, row-major; None where they are to be sampled
    x: dict[str, Features]  # features of "user" and of "item", as far as there are any
    graphs: Mapping[str, edges.Joined] = MappingProxyType({})  # likewise
    kind, unit, columns, axis = "Ratings", "rating", ("user", "item"), "item"
    by_pair = ranks = alone = True
    leaves: tuple[str, ...] = ("cells", "y", "x", "graphs")
    host: Frame

    def __init__(
        self,
        data: Any,
        items: Any = None,
        values: Any = None,
        *,
        columns: Columns | None = None,
        levels: int | Sequence[float] | None = None,
        duplicates: str = "error",
        times: Any = None,
        user_features: Any = None,
        item_features: Any = None,
        user_graph: Any = None,
        item_graph: Any = None,
    ) -> None:
        if duplicates not in ("error", "mean"):
            raise ValueError(f"Expected duplicates='error' or 'mean', got {duplicates!r}")
        given = {"user": user_features, "item": item_features}
        nets = {"user": user_graph, "item": item_graph}
        if isinstance(data, Ratings):
            nets = {s: data.host.graphs.get(s) if net is None else net for s, net in nets.items()}
            given = {
                side: data.host.features.get(side) if table is None else table
                for side, table in given.items()
            }
            data = data.frame()
        user, item, value, users, items_, found = triplets.read(data, items, values, columns)
        if not len(value):
            raise ValueError("Expected at least one rating, got none")
        value = reading.narrow(value)
        time = triplets.times(found if times is None else times, len(value))
        levels = None if levels is None else reading.levels(levels)
        if levels is not None and not (ok := np.isin(value, levels)).all():
            row = int(np.flatnonzero(~ok)[0])
            names = users[user[row]], items_[item[row]]
            raise ValueError(triplets.off_levels(levels, float(value[row]), f"row {row}", *names))
        known = {"user": (user, users), "item": (item, items_)}
        sides, joined = dict[str, Any](), dict[str, Any]()
        readers: Any = (nets, joined, edges.described), (given, sides, described)
        for of, found, read in readers:
            for side, table in of.items():
                if table is not None:
                    codes, labels = known[side]
                    found[side] = new = read(table, labels, side)
                    known[side] = reading.positions_of(new.labels, labels)[codes], new.labels
        (user, users), (item, items_) = known.values()
        cells = row_major(user, item, (len(users), len(items_)))
        del user, item, known  # tables of ratings may be large
        names = users, items_
        cells, value, kept = triplets.distinct(cells, value, duplicates, levels, names)
        time = None if time is None else np.array(time[kept])
        self._fill(cells, value, users, items_, levels, time)
        self._describe(sides, {side: new.design() for side, new in sides.items()})
        self._join({side: new.at(getattr(self, f"{side}s")) for side, new in joined.items()})

    def _fill(
        self,
        cells: Layout,
        value: np.ndarray,
        users: pd.Index,
        items: pd.Index,
        levels: tuple[float, ...] | None,
        time: np.ndarray | None,
    ) -> None:
        self.cells = Cells.of(cells, (len(users), len(items)))
        value = reading.narrow(value)
        self.y = reading.real(value[cells.origin])
        self.host = Frame(users, items, levels, cells.origin, value, time)
        self.x, self.graphs = {}, {}

    def _describe(self, sides: dict[str, Side], designs: dict[str, Any]) -> None:
        self.host, self.x = replace(self.host, features=sides), designs

    def _join(self, nets: dict[str, edges.Edges]) -> None:
        self.host = replace(self.host, graphs=nets)
        self.graphs = {side: net.design(side) for side, net in nets.items()}

    @property
    def users(self) -> pd.Index:
        """The user labels, sorted; user codes are positions in it."""
        return self.host.users

    @property
    def items(self) -> pd.Index:
        """The item labels, sorted."""
        return self.host.items

    @property
    def levels(self) -> tuple[float, ...] | None:
        return self.host.levels

    @property
    def user(self) -> np.ndarray:
        """User codes in the user's order of rows."""
        return _restore(np.asarray(self.cells.row), self.host.origin)

    @property
    def item(self) -> np.ndarray:
        """Item codes in the user's order of rows."""
        return _restore(np.asarray(self.cells.col), self.host.origin)

    @property
    def code(self) -> np.ndarray:
        """(cell, axis) codes in the user's order of rows."""
        return np.stack([self.user, self.item], 1)

    @property
    def value(self) -> np.ndarray:
        """Ratings in the user's order of rows."""
        return np.asarray(self.host.value, np.float64)

    @property
    def user_features(self) -> Any:
        """The table of the users' features as it was given, in the order of `users`, or None."""
        side = self.host.features.get("user")
        return side and side.raw

    @property
    def item_features(self) -> Any:
        """The table of the items' features as it was given, in the order of `items`, or None."""
        side = self.host.features.get("item")
        return side and side.raw

    @property
    def user_graph(self) -> Any:
        """The weights of the edges, a symmetric sparse matrix in the order of `users`, or None."""
        net = self.host.graphs.get("user")
        return net and net.both

    @property
    def item_graph(self) -> Any:
        """The weights of the edges, a symmetric sparse matrix in the order of `items`, or None."""
        net = self.host.graphs.get("item")
        return net and net.both

    @property
    def time(self) -> np.ndarray | None:
        """When each rating was given, in the user's order of rows; None if unknown."""
        return self.host.time

    @property
    def shape(self) -> tuple[int, int]:
        """(users, items)."""
        return len(self.host.users), len(self.host.items)

    @property
    def n_users(self) -> int:
        return self.shape[0]

    @property
    def n_items(self) -> int:
        return self.shape[1]

    @property
    def mean(self) -> float:
        """The mean rating."""
        return self.host.moments[0]

    @property
    def spread(self) -> float:
        """The standard deviation of the ratings; 1 if all are equal."""
        return self.host.moments[1] or 1.0

    @property
    def size(self) -> int:
        """The number of observed cells."""
        return len(self.host.value)

    def for_programs(self) -> "Ratings":
        """The same cells with levels and sizes alone: there are no labels, values or statistics of them."""
        n, m = self.shape
        return self.replaced(Sizes(range(n), range(m), self.levels, range(len(self))))

    def __len__(self) -> int:
        return len(self.host.value)

    def __repr__(self) -> str:
        scale = f"levels {self.levels[0]:g}..{self.levels[-1]:g}" if self.levels else "real values"
        density = len(self) / (self.n_users * self.n_items)
        also = "".join(f", {x.width} features of {side}s" for side, x in self.x.items())
        nets = self.graphs.items()
        also += "".join(f", {len(net.graphs.left)} edges of {side}s" for side, net in nets)
        return (
            f"Ratings({self.n_users} users x {self.n_items} items, {len(self)} ratings, "
            f"density {density:.3g}, {scale}{also})"
        )

    @classmethod
    def of_test(cls, table: Any, levels: tuple[float, ...] | None) -> Any:
        return cls(table, levels=levels) if levels else cls(table)

    def per_row(self, side: str) -> np.ndarray:
        """The number of ratings of each user, or of each item."""
        rows = self.cells.by_row if side == "user" else self.cells.by_col
        return np.diff(rows.ptr).astype(np.int64)

    def elsewhere(self) -> dict[str, np.ndarray]:
        """{"user" or "item": cells of each label beside the ratings: in other matrices, of counts zeros}."""
        return {}

    def shares(self, parts: int) -> Any:
        """{part: share} for data of which each process has only its shares; otherwise None."""
        return None

    def frame(self) -> pd.DataFrame:
        """The ratings as a long table with the user's labels, in the user's order of rows."""
        columns = {"user": self.users[self.user], "item": self.items[self.item]}
        times = {} if self.time is None else {"time": self.time}
        return pd.DataFrame({**columns, "rating": self.value, **times})

    def coords(self) -> dict[str, pd.Index]:
        """The labels of the axes of parameters."""
        sides = self.host.features.items()
        named = {f"{side}_feature": known.encoding.names for side, known in sides}
        return {"user": self.users, "item": self.items} | named

    def take(self, rows: Any) -> "Ratings":
        """Some of the ratings (positions or a mask); users, items and levels stay the same."""
        kept = np.arange(len(self))[reading.positions(rows)]
        if not len(kept):
            raise ValueError("Expected at least one rating to take, got none")
        chosen = (self.user[kept], self.item[kept], self.value[kept])
        return self._part(*chosen, self.users, self.items, kept)

    def _part(
        self, user: Any, item: Any, value: Any, users: Any, items: Any, kept: Any
    ) -> "Ratings":
        part = object.__new__(type(self))
        time = None if self.time is None else self.time[kept]
        cells = row_major(user, item, (len(users), len(items)))
        part._fill(cells, value, users, items, self.levels, time)
        part.host = replace(part.host, name=self.name)
        sides, designs = dict(self.host.features), dict(self.x)
        for side, new, old in (("user", users, self.users), ("item", items, self.items)):
            if side in sides and new is not old:
                sides[side] = sides[side].at(reading.positions_of(old, new), new)
                designs[side] = sides[side].design()
        part._describe(sides, designs)
        nets = self.host.graphs
        if users is self.users and items is self.items:
            part.host, part.graphs = replace(part.host, graphs=nets), self.graphs
        else:
            part._join({s: net.at(users if s == "user" else items) for s, net in nets.items()})
        return part

    def encoded(self, encodings: Mapping[str, Encoding], new: Sequence[str]) -> "Ratings":
        """These ratings with features encoded as in training. The sides in `new` must have features. The
        rows of the other side do not change, so its features are not needed."""
        sides, designs = dict(self.host.features), {}
        for side, encoding in encodings.items():
            if side not in sides:
                if side in new:
                    raise ValueError(f"Expected {side}_features, as training had them, got none")
                labels = self.users if side == "user" else self.items
                sides[side] = Side.unknown(labels, encoding, side)
            sides[side] = replace(sides[side], encoding=encoding)
            designs[side] = sides[side].design()
        return self.replaced(replace(self.host, features=sides), x=designs)

    def of_users(self, first: int, last: int) -> "Ratings":
        """The ratings of the users in the slice first:last, without other users; items and levels stay."""
        kept = (first <= self.user) & (self.user < last)
        if not kept.any():
            raise ValueError("Expected at least one rating of these users, got none")
        chosen = (self.user[kept] - first, self.item[kept], self.value[kept])
        return self._part(*chosen, self.users[first:last], self.items, kept)

    def within(self, users: np.ndarray, items: np.ndarray) -> "Ratings | None":
        """The ratings of some users and items (their codes, in increasing order), without other users and
        items; None if there are no such ratings."""
        code = [np.full(size, -1, np.int32) for size in self.shape]
        code[0][users], code[1][items] = np.arange(len(users)), np.arange(len(items))
        user, item = code[0][self.user], code[1][self.item]
        kept = np.flatnonzero((user >= 0) & (item >= 0))
        if not len(kept):
            return None
        chosen = user[kept], item[kept], self.value[kept]
        return self._part(*chosen, self.users[users], self.items[items], kept)

    def on(self, labels: pd.Index, side: str = "item") -> "Ratings":
        """The same ratings with `labels` as items (or users); `labels` must include those of the ratings."""
        mine = self.items if side == "item" else self.users
        code = reading.positions_of(labels, mine)
        if (code < 0).any():
            new = reading.plain(mine[int(np.argmin(code))])
            raise ValueError(f"Expected {side}s of the training data, got {new!r}")
        if side == "item":
            chosen = (self.user, code[self.item].astype(np.int32), self.value, self.users, labels)
        else:
            chosen = (code[self.user].astype(np.int32), self.item, self.value, labels, self.items)
        return self._part(*chosen, slice(None))

    def above(self, level: float) -> "Ratings":
        """Likes and dislikes in the same cells: +1 where the rating is above `level`, else -1."""
        if self.levels is None or level not in self.levels[:-1]:
            raise ValueError(f"Expected one of {(self.levels or ())[:-1]} to cut at, got {level!r}")
        host = replace(self.host, value=np.where(self.value > level, 1.0, -1.0), levels=(-1.0, 1.0))
        return self.replaced(host, y=jnp.where(self.y > level, 1.0, -1.0))

    def fingerprint(self) -> str:
        """A digest of labels and values; equal digests mean equal data."""
        known: list[Any] = [*self.host.features.values(), *self.host.graphs.values()]
        sides = [part for side in known for part in side.digest()]
        return reading.digest(
            [self.users, self.items, self.levels, self.user, self.item, self.value, *sides]
        )

    def fill(self, draw: Mapping[str, Any]) -> "Ratings":
        """The same cells with the values that the model drew at the site `rating`."""
        value = _restore(np.asarray(draw["rating"], np.float64), self.host.origin)
        ordinal = self.levels is not None and np.isin(value, self.levels).all()
        host = replace(self.host, value=value, levels=self.levels if ordinal else None)
        return self.replaced(host, y=reading.real(draw["rating"]))

    def batch(self, key: jax.Array, size: int) -> tuple["Ratings", dict[str, float]]:
        """`size` random cells, and the weight of each in the log likelihood, by observed site."""
        at = jax.random.randint(key, (size,), 0, len(self.y))
        cells = Query(self.cells.row[at], self.cells.col[at])
        return self.replaced(cells=cells, y=self.y[at]), {"rating": len(self.y) / size}


def few_ratings(key: jax.Array, levels: int | None = None, of: Any = np.asarray) -> Ratings:
    """Seven users, five items, three quarters of the cells, for tests: levels, or `of` normal numbers."""
    kx, km = jax.random.split(key)
    seen = jax.random.uniform(km, (7, 5)) < 0.75
    value = jax.random.normal(kx, (7, 5))
    if levels:
        value = jax.random.randint(kx, (7, 5), 1, levels + 1)
    return Ratings(np.where(seen, of(value), np.nan), levels=levels)


def _restore(sorted_values: np.ndarray, origin: np.ndarray) -> np.ndarray:
    """Values by cell, put into the user's order of rows."""
    values = np.empty(len(origin), sorted_values.dtype)
    values[origin] = sorted_values
    return values
