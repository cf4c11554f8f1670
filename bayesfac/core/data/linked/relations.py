"""Ratings beside other matrices with the same users, items and other labels, checked once, here."""

import difflib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

from bayesfac.core.data import reading
from bayesfac.core.data.cells import LinkedCells, row_major
from bayesfac.core.data.columns import Columns
from bayesfac.core.data.counts import Counts
from bayesfac.core.data.ratings import Frame, Ratings
from bayesfac.core.data.tensor import RESERVED
from bayesfac.core.errors import DataWarning

RATINGS = "ratings"  # the name of the matrix that is predicted unless another one is asked for
Parts = dict[str, tuple[str, str, Ratings]]  # {matrix: (kinds of rows and columns, cells)}
BINARY = (0.0, 1.0)  # the levels of tables of True and False
ENDS = ("user", "item")  # the kinds of its rows and columns


@dataclass(frozen=True, eq=False)
class Table:
    """A matrix beside the ratings: the kinds of its rows and columns, and its cells, row by row."""

    row: str
    col: str
    code: np.ndarray  # cells x 2
    value: np.ndarray  # float64
    levels: tuple[float, ...] | None


@dataclass(frozen=True, eq=False)
class LinkedFrame(Frame):
    """The host's part of linked matrices: also the labels of the other kinds, and the other matrices."""

    axes: dict[str, pd.Index] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)


class Kinds(NamedTuple):
    """A matrix by its name, the kinds of its rows and columns, and its levels or None."""

    name: str
    row: str
    col: str
    levels: tuple[float, ...] | None


@jax.tree_util.register_pytree_node_class
class Relations(Ratings):
    """Ratings together with other matrices that share users, items or other labels.

    For example, a matrix of users x tags has information on users without ratings, and a matrix of items x
    words on items without ratings. A cell that is not listed is missing in every matrix, never zero. So list
    the zeros that are known.

    Parameters
    ----------
    ratings : whatever `Ratings` reads
        The matrix that is predicted, split and scored. Its rows are users, and its columns items.
    matrices : mapping, optional
        {name: (kind of rows, kind of columns, table)}, such as {"tags": ("user", "tag", frame)}. Kinds are
        "user", "item" and others, which several matrices may share. A table is a long DataFrame with columns
        named like the two kinds and one column of values; a wide DataFrame; any other input of `Ratings`; or
        Ratings, which may have levels. A DataFrame of True and False has two levels.
    columns, levels, duplicates
        As in `Ratings`, for the ratings; `duplicates` also for the other tables.

    Examples
    --------
    >>> import pandas as pd
    >>> seen = pd.DataFrame({"user": ["ann", "bob"], "item": ["x", "y"], "rating": [4, 2]})
    >>> tags = pd.DataFrame({"user": ["bob", "cid"], "tag": ["old", "new"], "value": [1.0, 0.0]})
    >>> data = Relations(seen, {"tags": ("user", "tag", tags)})
    >>> data
    Relations(3 users x 2 items, 2 ratings, density 0.333, real values; tags: 3 user x 2 tag, 2 cells)
    >>> data.matrix("tags").frame()["user"].tolist()
    ['bob', 'cid']
    """

    links: Any  # LinkedCells of all matrices, the ratings first
    others: dict[str, Any]  # {name: values of a matrix beside the ratings, row by row}
    leaves, alone = ("cells", "y", "x", "links", "others"), False
    host: LinkedFrame

    def __init__(
        self,
        ratings: Any,
        matrices: Mapping[str, tuple[str, str, Any]] | None = None,
        *,
        columns: Columns | None = None,
        levels: int | Sequence[float] | None = None,
        duplicates: str = "error",
    ) -> None:
        if isinstance(ratings, Counts):
            raise TypeError(
                "Expected ratings, got Counts, whose zeros are not listed: bf.Ratings(data) has them missing"
            )
        main = ratings
        if type(ratings) is not Ratings or columns is not None or levels is not None:
            levels = ratings.levels if isinstance(ratings, Ratings) and levels is None else levels
            main = Ratings(ratings, columns=columns, levels=levels, duplicates=duplicates)
        if main.x or main.graphs:
            raise ValueError(
                f"Expected features as another matrix, {{'about': ...}}, and no graph, got {main!r}"
            )
        if isinstance(ratings, Relations):
            main = main.on(ratings.users, "user").on(ratings.items)
            old = {k.name: (k.row, k.col, ratings.matrix(k.name)) for k in ratings.kinds[1:]}
            matrices = {**old, **(matrices or {})}
        given = {name: _checked(name, spec) for name, spec in (matrices or {}).items()}
        _check_linked({name: {row, col} for name, (row, col, _) in given.items()})
        read = {name: _read(name, *spec, duplicates) for name, spec in given.items()}
        parts: Parts = {RATINGS: (*ENDS, main), **read}
        axes = _united(parts)
        code = {name: _coded(part, axes) for name, part in parts.items()}
        user, item = code.pop(RATINGS).T
        users, items = axes["user"], axes["item"]
        cells = row_major(user, item, (len(users), len(items)))
        self._fill(cells, main.value, users, items, main.levels, main.time)
        self.host = replace(self.host, name=main.name)
        tables = {}
        for name, at in code.items():
            row, col, part = parts[name]
            order = np.lexsort(at.T[::-1])
            if len(at) > 1 and np.ptp(part.value) == 0:
                warnings.warn(
                    f"The matrix {name!r} has the value {part.value[0]:g} in all of its {len(at)} cells and "
                    "no information: cells that are not listed are missing, so list the known zeros",
                    DataWarning,
                    stacklevel=2,
                )
            tables[name] = Table(row, col, at[order], part.value[order], part.levels)
        self._link(tables, {kind: i for kind, i in axes.items() if kind not in ENDS})

    def _link(self, tables: dict[str, Table], axes: dict[str, pd.Index]) -> None:
        known = {f.name: getattr(self.host, f.name) for f in fields(Frame)}
        self.host = LinkedFrame(**known, axes=axes, tables=tables)
        sizes = {kind: len(index) for kind, index in self.axes.items()}
        first = dict(zip(sizes, np.cumsum([0, *sizes.values()]), strict=False))
        own = np.stack([np.asarray(self.cells.row), np.asarray(self.cells.col)], 1)
        code = [own + [first[kind] for kind in ENDS]]
        code += [t.code + [first[t.row], first[t.col]] for t in tables.values()]
        self.links = LinkedCells(np.concatenate(code), tuple(sizes.values()))
        self.others = {name: reading.real(table.value) for name, table in tables.items()}

    @property
    def axes(self) -> dict[str, pd.Index]:
        """{kind: its labels}, in the order in which the links number them."""
        return {"user": self.users, "item": self.items, **self.host.axes}

    @property
    def kinds(self) -> tuple[Kinds, ...]:
        """All matrices, the ratings first."""
        rest = (Kinds(name, t.row, t.col, t.levels) for name, t in self.host.tables.items())
        return (Kinds(RATINGS, *ENDS, self.levels), *rest)

    @property
    def spans(self) -> dict[str, slice]:
        """Where the cells of each matrix stand among all cells."""
        sizes = [len(self), *(len(table.value) for table in self.host.tables.values())]
        ends = np.cumsum([0, *sizes]).tolist()
        return {k.name: slice(*ends[i : i + 2]) for i, k in enumerate(self.kinds)}

    def values(self, name: str) -> np.ndarray:
        """The values of a matrix, on the host."""
        return self.value if name == RATINGS else self.host.tables[name].value

    def observed(self, name: str) -> Any:
        """The values of a matrix on the device, in the order of its cells."""
        return self.y if name == RATINGS else self.others[name]

    @property
    def colours(self) -> dict[str, int]:
        """1 or -1 for each kind, such that every matrix joins two colours; {} if none are such."""
        found = {"user": 1}
        while ends := [(k.row, k.col) for k in self.kinds if (k.row in found) != (k.col in found)]:
            for row, col in ends:
                known, new = (row, col) if row in found else (col, row)
                found.setdefault(new, -found[known])
        return found if all(found[k.row] != found[k.col] for k in self.kinds) else {}

    def matrix(self, name: str) -> Ratings:
        """A matrix beside the ratings: its rows as users, its columns as items."""
        table = self.host.tables.get(name)
        if table is None:
            known = list(self.host.tables)
            raise ValueError(f"Expected a matrix among {known}, got {name!r}{_near(name, known)}")
        row, col = (self.axes[kind] for kind in (table.row, table.col))
        at = row[table.code[:, 0]], col[table.code[:, 1]]
        return Ratings(*at, table.value, levels=table.levels).named(name)

    def __repr__(self) -> str:
        text = f"Relations{super().__repr__().removeprefix('Ratings').removesuffix(')')}"
        for name, t in self.host.tables.items():
            n, m = (len(self.axes[kind]) for kind in (t.row, t.col))
            text += f"; {name}: {n} {t.row} x {m} {t.col}, {len(t.value)} cells"
        return text + ")"

    def coords(self) -> dict[str, pd.Index]:
        """The labels of the axes of parameters."""
        return self.axes

    def elsewhere(self) -> dict[str, np.ndarray]:
        """The number of cells of each user and of each item in the other matrices."""
        count = {kind: np.zeros(len(self.axes[kind]), int) for kind in ENDS}
        for t in self.host.tables.values():
            for at, end in enumerate((t.row, t.col)):
                if end in count:
                    count[end] += np.bincount(t.code[:, at], minlength=len(count[end]))
        return count

    @classmethod
    def of_test(cls, table: Any, levels: tuple[float, ...] | None) -> Any:
        """Ratings alone: no other matrix is scored."""
        return Ratings.of_test(table, levels)

    def _part(
        self, user: Any, item: Any, value: Any, users: Any, items: Any, kept: Any
    ) -> "Relations":
        part: Any = super()._part(user, item, value, users, items, kept)
        moved = {}
        for kind, new in (("user", users), ("item", items)):
            if new is not (old := self.axes[kind]):
                moved[kind] = reading.positions_of(new, old)
        part._link({n: _moved(t, moved) for n, t in self.host.tables.items()}, self.host.axes)
        return part

    def fingerprint(self) -> str:
        """A digest of labels and values; equal digests mean equal data."""
        parts: list[Any] = [super().fingerprint(), *self.host.axes.values()]
        for name, t in self.host.tables.items():
            parts += [[name, t.row, t.col], t.levels, t.code, t.value]
        return reading.digest(parts)

    def hide(self) -> "Relations":
        """The same cells without values, which the model then samples."""
        return self.replaced(y=None, others=dict.fromkeys(self.others))

    def drawn(self, draw: Mapping[str, Any]) -> "Relations":
        """The same cells with the values that the model drew, on the device alone."""
        return self.replaced(y=draw["rating"], others={n: draw[f"view.{n}"] for n in self.others})

    def fill(self, draw: Mapping[str, Any]) -> "Relations":
        """The same cells with the values that the model drew at the sites `rating` and `view.NAME`."""
        filled: Any = super().fill(draw)
        tables = {}
        for name, t in self.host.tables.items():
            value = np.asarray(draw[f"view.{name}"], np.float64)
            on_scale = t.levels is not None and np.isin(value, t.levels).all()
            tables[name] = replace(t, value=value, levels=t.levels if on_scale else None)
        filled._link(tables, self.host.axes)
        return filled


# -- reading ------------------------------------------------------------------------------------
def _checked(name: str, given: Any) -> tuple[str, str, Any]:
    """The kinds and the table of a matrix beside the ratings."""
    if not isinstance(given, tuple | list) or len(given) != 3:
        raise ValueError(
            f"Expected (kind of rows, kind of columns, table) as the matrix {name!r}, got "
            f"{type(given).__name__}"
        )
    row, col, table = given
    for what in (name, row, col):
        if not isinstance(what, str) or not what or what in RESERVED or {".", "/"} & set(what):
            raise ValueError(
                "Expected names of matrices and of kinds without '.' and '/' and none of "
                f"{sorted(RESERVED)}, got {what!r}"
            )
        reading.check_name("names of matrices and of kinds", what)
    if name == RATINGS:
        raise ValueError(f"Expected another name than {name!r} for the matrix {row} x {col}")
    if row == col:
        raise ValueError(
            f"Expected two kinds of labels in the matrix {name!r}, got {row!r} twice: links within one "
            "kind are no product of two factors"
        )
    return row, col, table


def _check_linked(rest: dict[str, set[str]]) -> None:
    """Refuse matrices that share no kind of label with the ratings, not even through others."""
    known = set(ENDS)
    while rest:
        linked = [name for name, kinds in rest.items() if kinds & known]
        if not linked:
            name, kinds = next(iter(rest.items()))
            hint = "".join(_near(kind, known) for kind in sorted(kinds))
            raise ValueError(
                f"Expected the matrix {name!r} to have one of the kinds {sorted(known)}, got "
                f"{sorted(kinds)}{hint}"
            )
        known = known.union(*(rest.pop(name) for name in linked))


def _read(name: str, row: str, col: str, table: Any, duplicates: str) -> tuple[str, str, Ratings]:
    """The kinds and the cells of a matrix beside the ratings."""
    if isinstance(table, Counts) or (isinstance(table, Ratings) and table.x):
        raise TypeError(
            f"Expected Ratings without features or a table as the matrix {name!r}, got {table!r}"
        )
    if isinstance(table, Ratings):
        return row, col, table
    try:
        if isinstance(table, pd.DataFrame):
            return row, col, _of_frame(table, row, col, duplicates)
        return row, col, Ratings(table, duplicates=duplicates)
    except (TypeError, ValueError) as error:
        ends = f"its users are labels of {row!r}, its items labels of {col!r}"
        raise type(error)(f"{error} (in the matrix {name!r}: {ends})") from error


def _of_frame(frame: pd.DataFrame, row: str, col: str, duplicates: str) -> Ratings:
    seen = list(frame.columns)
    if row in seen and col in seen:
        rest = [column for column in seen if column not in (row, col)]
        if len(rest) != 1:
            raise ValueError(
                f"Expected one column of values beside {row!r} and {col!r}, got {rest or 'none'}: choose "
                "one, and list zeros that are known, as a cell that is not listed is missing"
            )
        levels = BINARY if frame[rest[0]].dtype.kind == "b" else None
        columns = [row, col, rest[0]]
        return Ratings(frame, columns=columns, duplicates=duplicates, levels=levels)
    unnamed_text = frame.index.name is None and frame.index.inferred_type == "string"
    if frame.index.name is None and frame.columns.name is None and not unnamed_text:
        raise ValueError(
            f"Expected columns {row!r}, {col!r} and one of values, or a wide table of numbers with {row} "
            f"labels as a named index, got columns {seen}"
        )
    table = reading.cells(frame, "as values")
    at, to = np.nonzero(~np.isnan(table))
    labels = frame.index[at], pd.Index(seen)[to]
    levels = BINARY if all(kind.kind == "b" for kind in frame.dtypes) else None
    return Ratings(*labels, table[at, to], duplicates=duplicates, levels=levels)


def _near(name: str, known: Any) -> str:
    near = difflib.get_close_matches(str(name), sorted(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _united(parts: Parts) -> dict[str, pd.Index]:
    """{kind: all its labels}; a matrix that shares no label of a shared kind is refused."""
    found: dict[str, list[tuple[str, pd.Index]]] = {}
    for name, (row, col, part) in parts.items():
        found.setdefault(row, []).append((name, part.users))
        found.setdefault(col, []).append((name, part.items))
    axes = {}
    for kind, [(_, whole), *rest] in found.items():
        axes[kind] = whole
        for name, index in rest:
            if (reading.positions_of(whole, index) < 0).all():
                raise ValueError(
                    f"Expected {kind} labels of {name!r} that other matrices have too, got none: "
                    f"{reading.plain(index[0])!r} here, {reading.plain(whole[0])!r} there"
                )
            whole = whole.append(index[reading.positions_of(whole, index) < 0])
        if len(whole) > len(axes[kind]):
            axes[kind] = reading.labels(whole, kind)[1]
    return axes


def _coded(part: tuple[str, str, Ratings], axes: dict[str, pd.Index]) -> np.ndarray:
    row, col, data = part
    rows = reading.positions_of(axes[row], data.users)[data.user]
    return np.stack([rows, reading.positions_of(axes[col], data.items)[data.item]], 1)


def _moved(table: Table, moved: dict[str, np.ndarray]) -> Table:
    """The table with other numbers of its labels; cells of labels numbered -1 are left out."""
    code = table.code
    for at, kind in enumerate((table.row, table.col)):
        if kind in moved:
            code = code.copy()
            code[:, at] = moved[kind][code[:, at]]
    kept = np.flatnonzero((code >= 0).all(1))
    order = kept[np.lexsort(code[kept].T[::-1])]
    return replace(table, code=code[order], value=table.value[order])


def few_relations(key: jax.Array, levels: int | None = None) -> Relations:
    """Seven users and five items, four tags of users on three levels, and three words of items: an example
    for tests. With `levels` the ratings are ordinal too."""
    keys = jax.random.split(key, 4)
    seen, shape = jax.random.uniform(keys[0], (7, 5)) < 0.6, (7, 5)
    whole = jax.random.randint(keys[1], shape, 1, (levels or 1) + 1)
    value = whole if levels else jax.random.normal(keys[1], shape)
    tags = np.asarray(jax.random.randint(keys[2], (7, 4), 1, 4), float)
    tags[::3, 1:3] = np.nan
    words = Ratings(jax.random.normal(keys[3], (5, 3)))
    tables = {"tags": ("user", "tag", Ratings(tags, levels=3)), "words": ("item", "word", words)}
    return Relations(Ratings(np.where(seen, value, np.nan), levels=levels), tables)
