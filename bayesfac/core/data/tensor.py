"""Tensors: cells with three or more labels and a value, checked once, here."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
import pandas as pd

from bayesfac.core.data import reading, triplets
from bayesfac.core.data.cells import TensorCells, query_of
from bayesfac.core.data.columns import is_role, with_index
from bayesfac.core.data.container import Container, HostParts

LEAST = 3  # modes
RESERVED = frozenset(
    "cell chain component component_ draw flagged lower mean rating sample sd upper value".split()
)


@dataclass(frozen=True, eq=False)
class Frame(HostParts):
    """The parts of a tensor that stay on the host: labels, values, and the user's order of rows."""

    axes: dict[str, pd.Index]  # {mode: labels}
    origin: np.ndarray  # the user's row of every cell, cells in the order of their codes
    code: np.ndarray  # cells x modes, in the user's order
    value: np.ndarray  # float64, in the user's order
    name: str = ""


@jax.tree_util.register_pytree_node_class
class Tensor(Container):
    """Observed cells with three or more labels each (user, item, time; assay, drug, target) and a value.

    A cell that is not listed is missing, never zero. Each kind of label is called a mode of the tensor.

    Parameters
    ----------
    data : DataFrame, array or sequence of arrays
        One of these forms: a long table with a column of values (value, rating, score, ...), in which every
        other column is a mode; a dense array of three or more dimensions, with NaN in unobserved cells;
        or arrays of labels, one for each mode, and then the values: `Tensor(users, items, times, values)`.
    columns : sequence of column names or mapping, optional
        The names of the columns of the modes, and as the last name that of the values:
        ["assay", "drug", "target", "ic50"]. Other columns are left out. Or {mode: column, "value": column}.
    modes : sequence of mode names, optional
        The names of the modes of arrays: ["user", "item", "time"]; by default mode_1, mode_2, ...
    duplicates : {"error", "mean"}
        What to do when a cell is listed twice.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"user": ["ann", "bob"], "item": ["x", "x"], "week": [1, 2], "value": [4, 2]})
    >>> tensor = Tensor(frame)
    >>> tensor
    Tensor(2 user x 1 item x 2 week, 2 cells, density 0.5)
    >>> list(tensor.axes["week"])
    [1, 2]
    """

    kind, two_way = "Tensor", False

    cells: Any  # TensorCells; in a minibatch a Query
    y: Any  # values by cell; None where they are to be sampled
    host: Frame
    time = None

    def __init__(
        self,
        data: Any,
        *more: Any,
        columns: Sequence[Hashable] | Mapping[str, Hashable] | None = None,
        modes: Sequence[str] | None = None,
        duplicates: str = "error",
    ) -> None:
        if duplicates not in ("error", "mean"):
            raise ValueError(f"Expected duplicates='error' or 'mean', got {duplicates!r}")
        if isinstance(data, Tensor):
            self._fill(data.code, data.value, data.axes, data.name)
            return
        code, value, axes = _read((data, *more) if more else data, columns, modes)
        if not len(value):
            raise ValueError("Expected at least one cell, got none")
        self._fill(*_distinct(code, value, axes, duplicates), axes)

    def _fill(
        self, code: np.ndarray, value: np.ndarray, axes: dict[str, pd.Index], name: str = ""
    ) -> None:
        origin = np.lexsort(code.T[::-1])
        self.cells = TensorCells(code[origin], tuple(len(index) for index in axes.values()))
        self.y = reading.real(value[origin])
        self.host = Frame(axes, origin, code, value, name)

    @property
    def axes(self) -> dict[str, pd.Index]:
        """{mode: its labels, sorted}; codes are positions in them."""
        return self.host.axes

    @property
    def modes(self) -> tuple[str, ...]:
        """The names of the modes."""
        return tuple(self.host.axes)

    @property
    def code(self) -> np.ndarray:
        """(cell, mode) codes in the user's order of rows."""
        return self.host.code

    @property
    def value(self) -> np.ndarray:
        """Values in the user's order of rows."""
        return self.host.value

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of labels of each mode."""
        return tuple(len(index) for index in self.host.axes.values())

    @property
    def mean(self) -> float:
        """The mean value."""
        return float(self.host.value.mean())

    @property
    def spread(self) -> float:
        """The standard deviation of the values; 1 if all are equal."""
        return reading.spread(self.host.value)

    @property
    def size(self) -> int:
        """The number of observed cells."""
        return len(self.host.value)

    def __len__(self) -> int:
        return len(self.host.value)

    def __repr__(self) -> str:
        sizes = " x ".join(f"{len(index)} {mode}" for mode, index in self.axes.items())
        density = len(self) / np.prod([float(n) for n in self.shape])
        return f"Tensor({sizes}, {len(self)} cells, density {density:.3g})"

    def frame(self) -> pd.DataFrame:
        """The cells as a long table with the user's labels, in the user's order of rows."""
        labels = {mode: index[self.code[:, m]] for m, (mode, index) in enumerate(self.axes.items())}
        return pd.DataFrame({**labels, "value": self.value})

    def coords(self) -> dict[str, pd.Index]:
        """The labels of the axes of parameters."""
        return dict(self.axes)

    def take(self, rows: Any) -> "Tensor":
        """Some of the cells (positions or a mask); the labels stay the same."""
        kept = np.arange(len(self))[reading.positions(rows)]
        if not len(kept):
            raise ValueError("Expected at least one cell to take, got none")
        part = object.__new__(type(self))
        part._fill(self.code[kept], self.value[kept], self.axes, self.name)
        return part

    def fingerprint(self) -> str:
        """A digest of labels and values; equal digests mean equal data."""
        return reading.digest([list(self.axes), *self.axes.values(), self.code, self.value])

    def fill(self, draw: Mapping[str, Any]) -> "Tensor":
        """The same cells with the values that the model drew at the site `rating`."""
        value = np.empty(len(self))
        value[self.host.origin] = np.asarray(draw["rating"], np.float64)
        return self.replaced(replace(self.host, value=value), y=reading.real(draw["rating"]))

    def for_programs(self) -> "Tensor":
        """The same cells with the names and sizes of the modes alone: there are no labels, and a statistic of
        the values is not a number."""
        axes: dict[str, pd.Index] = {m: pd.RangeIndex(len(index)) for m, index in self.axes.items()}
        none, values = np.zeros(0, int), np.broadcast_to(np.nan, len(self))
        return self.replaced(Frame(axes, none, none.reshape(0, len(axes)), values))

    def batch(self, key: jax.Array, size: int) -> tuple["Tensor", dict[str, float]]:
        """`size` random cells, and the weight of each in the log likelihood, by observed site."""
        at = jax.random.randint(key, (size,), 0, len(self.y))
        code = jax.numpy.stack(self.cells.codes, 1)[at]
        return self.replaced(cells=query_of(code), y=self.y[at]), {"rating": len(self.y) / size}


# -- reading ------------------------------------------------------------------------------------
def _read(
    data: Any, columns: Any, modes: Any
) -> tuple[np.ndarray, np.ndarray, dict[str, pd.Index]]:
    """Codes (cells x modes), values, and {mode: labels}."""
    data = with_index(data)
    if isinstance(data, pd.DataFrame):
        if modes is not None:
            raise ValueError(
                "Expected columns= for a table, got modes=, which name those of arrays"
            )
        return _coded(*_of_table(data, columns))
    if columns is not None:
        raise ValueError(f"Expected a table for columns=, got {type(data).__name__}")
    if isinstance(data, tuple | list) and len(data) > LEAST and all(np.ndim(p) == 1 for p in data):
        *labels, value = data
        return _coded(_named(modes, len(labels)), list(labels), value)
    if isinstance(data, np.ndarray | jax.Array) and np.ndim(data) >= LEAST:
        dense = reading.array(data)
        if dense.dtype.kind not in "biuf":
            raise TypeError(f"Expected real numbers as values, got dtype {dense.dtype}")
        at = np.nonzero(~np.isnan(dense.astype(np.float64)))
        value = dense[at].astype(np.float64)
        if (bad := reading.beyond(value)).any():
            where = tuple(int(part[int(np.argmax(bad))]) for part in at)
            raise ValueError(f"Expected finite values, got {dense[where]} in cell {where}")
        names = _named(modes, dense.ndim)
        _check_names(names)
        axes: dict[str, pd.Index] = {
            name: pd.RangeIndex(n) for name, n in zip(names, dense.shape, strict=True)
        }
        return np.stack(at, 1), value, axes
    shape = f" of shape {np.shape(data)}" if isinstance(data, np.ndarray) else ""
    raise TypeError(
        f"Expected a long DataFrame, a dense array of {LEAST} or more dimensions with NaN in unobserved "
        f"cells, or {LEAST} or more arrays of labels and one of values, got {type(data).__name__}{shape}: "
        "two labels for each cell are bf.Ratings"
    )


def _coded(
    names: list[str], labels: list[Any], value: Any
) -> tuple[np.ndarray, np.ndarray, dict[str, pd.Index]]:
    _check_names(names)
    sizes = {name: len(part) for name, part in zip(names, labels, strict=True)}
    sizes["value"] = len(value)
    if len(set(sizes.values())) > 1:
        raise ValueError(f"Expected labels and values of one length, got {sizes}")
    parts = [reading.labels(part, name) for name, part in zip(names, labels, strict=True)]
    axes = {name: index for name, (_, index) in zip(names, parts, strict=True)}
    code = np.stack([codes for codes, _ in parts], 1).astype(np.int64)
    return code, reading.numbers(value, "values"), axes


def _of_table(frame: pd.DataFrame, columns: Any) -> tuple[list[str], list[Any], Any]:
    seen = list(frame.columns)
    if isinstance(columns, Mapping):
        if "value" not in columns:
            raise ValueError(f"Expected a column for 'value', got {list(columns)}")
        roles = {str(name): at for name, at in columns.items() if name != "value"}
        value = columns["value"]
    elif columns is not None:
        *chosen, value = columns
        for name in columns:
            if list(columns).count(name) > 1:
                raise ValueError(f"Expected different columns, got {name!r} twice")
        roles = {str(name): name for name in chosen}
    else:
        found = [name for name in seen if is_role(name, "rating") or is_role(name, "value")]
        if len(found) != 1:
            raise ValueError(
                f"Expected one column with values (value, rating, score, ...), got {found or seen}. Say "
                "which is which: columns=[MODE, MODE, MODE, VALUE] with your names"
            )
        value = found[0]
        roles = {str(name): name for name in seen if name != value}
    for name in (*roles.values(), value):
        if seen.count(name) != 1:
            what = "twice" if name in seen else f"not among {seen}"
            raise ValueError(f"Expected a column {name!r}, got it {what}")
    return list(roles), [frame[name] for name in roles.values()], frame[value]


def _named(modes: Any, count: int) -> list[str]:
    """The names of the modes of arrays."""
    names = [f"mode_{m + 1}" for m in range(count)] if modes is None else [str(m) for m in modes]
    if len(names) != count:
        raise ValueError(f"Expected {count} names of modes, got {names}")
    return names


def _check_names(names: list[str]) -> None:
    if len(names) < LEAST:
        raise ValueError(
            f"Expected {LEAST} or more labels for each cell, got {len(names)} ({', '.join(names)}): two "
            "labels for each cell are bf.Ratings"
        )
    for name in names:
        reading.check_name("names of modes", name)
        if names.count(name) > 1:
            raise ValueError(f"Expected different names of modes, got {name!r} twice")
        if not name or name in RESERVED or "." in name or "/" in name:
            raise ValueError(
                f"Expected names of modes without '.' and '/' and none of {sorted(RESERVED)}, got {name!r}"
            )


def _distinct(
    code: np.ndarray, value: np.ndarray, axes: dict[str, pd.Index], policy: str
) -> tuple[np.ndarray, np.ndarray]:
    """Codes and values with every cell once."""
    _, first, which = np.unique(code, axis=0, return_index=True, return_inverse=True)
    if len(first) == len(code):
        return code, value
    if policy == "error":
        row = int(np.argmax(first[which.ravel()] < np.arange(len(code))))
        at = zip(axes.items(), code[row], strict=True)
        what = ", ".join(f"{mode} {reading.plain(index[c])!r}" for (mode, index), c in at)
        raise ValueError(
            f"Expected one value for each cell, got a second in row {row} ({what}; the first is row "
            f"{int(first[which.ravel()[row]])}); duplicates='mean' averages them"
        )
    mean, keep = triplets.means(which.ravel(), value, None), np.sort(first)
    return code[keep], mean[which.ravel()[keep]]


def few_cells(key: jax.Array) -> Tensor:
    """Five users, four items and three weeks, about three quarters of the cells: an example for tests."""
    kx, km = jax.random.split(key)
    seen = jax.random.uniform(km, (5, 4, 3)) < 0.75
    value = np.where(seen, jax.random.normal(kx, (5, 4, 3)), np.nan)
    return Tensor(value, modes=("user", "item", "week"))
