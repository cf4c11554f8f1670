"""The base class of the containers of data: what other code asks of a kind of data."""

from collections.abc import Mapping, Sized
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd


@dataclass(frozen=True, eq=False)
class HostParts:
    """What of a set of data stays on the host. Two with the same content are equal, so that JAX runs the
    program of one set of data for its copy, and for the same data scaled a second time."""

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return type(self) is type(other) and _alike(vars(self), vars(other))

    def __hash__(self) -> int:
        return hash((type(self), *(len(v) for v in vars(self).values() if isinstance(v, Sized))))


def _alike(a: Any, b: Any) -> bool:
    """Whether two parts have the same content."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, pd.Index):
        return a.dtype == b.dtype and a.equals(b)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    if isinstance(a, dict):
        return list(a) == list(b) and all(map(_alike, a.values(), b.values()))
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(_alike, a, b))
    return bool(a == b)


@dataclass(frozen=True)
class Sizes:
    """What programs that other data of the same sizes run too may know of the host (`for_programs`)."""

    users: range
    items: range
    levels: tuple[float, ...] | None
    value: range
    name: str = ""

    @property
    def moments(self) -> tuple[float, float]:
        """Not a number: they differ from data to data."""
        return np.nan, np.nan


KINDS: dict[str, Any] = {}  # {kind: the container of that kind}


class Container:
    """A pytree of data: `leaves` names the attributes that JAX traces; `host` holds all other parts.

    What other code asks of a kind of data:

    kind     what cards call it
    unit     what one of its cells is called
    columns  the columns of a table that name a cell; of a tensor its modes, which the data know
    two_way  whether its cells lie in matrices, each in a row and a column; of a tensor they do not
    by_pair  whether a cell is of a user and an item
    ranks    whether values rank the items of a user, so that some are recommended
    alone    whether these are all cells of their users
    axis     the axis of the columns of its one matrix; "" if there are several views or modes
    site     the site of the model that has the values; "" if no value has a law of its own
    listed   whether a model of some of the cells is one of `replaced(cells=, y=)`
    closed   whether only columns of training can be asked for
    reads    the containers of which it is also made
    by_cut   whether draws decide an outcome by a cut of its probability
    implicit whether a cell says no more than that something was chosen, and how often: cells that are not
             listed are zeros, and held-out cells are ranked among them
    present  whether this process has every cell
    judge    MODULE:CLASS of the judge of `bf.auto`, if `search.automatic.judges` has none for this kind
    hint_of_folds  what to do instead of dividing the cells into folds; "" if there is no other way

    What each kind answers in its own way, if this class has no answer for it: `asked`, `in_users_unit`,
    `same_columns`, `levels`, `amount`, `hide`, `drawn`, `of_test`. All have `shape`, `coords()`, `frame()`,
    `take`, `fill` and `fingerprint()`; those with a `site` have the observed cells and their values as `code`
    and `value`; those that are not `listed` have `held_out`.
    """

    kind: ClassVar[str] = ""
    unit: ClassVar[str] = "cell"
    columns: ClassVar[tuple[str, ...]] = ()
    two_way: ClassVar[bool] = True
    by_pair: ClassVar[bool] = False
    ranks: ClassVar[bool] = False
    alone: ClassVar[bool] = False
    axis: ClassVar[str] = ""
    site: ClassVar[str] = "rating"
    listed: ClassVar[bool] = True
    closed: ClassVar[bool] = False
    reads: ClassVar[tuple[str, ...]] = ()
    by_cut: ClassVar[bool] = False
    implicit: ClassVar[bool] = False
    present: ClassVar[bool] = True
    judge: ClassVar[str] = ""
    hint_of_folds: ClassVar[str] = ""
    leaves: tuple[str, ...] = ("cells", "y")
    host: Any

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        KINDS.setdefault(cls.kind, cls)

    def asked(self, coords: Mapping[str, pd.Index]) -> Any:
        """The cells of these data as a query to a fit with these labels."""
        return self

    def in_users_unit(self) -> np.ndarray:
        """The values as the user gave them, cell by cell."""
        return self.value  # type: ignore[attr-defined]

    @property
    def levels(self) -> tuple[float, ...] | None:
        """The ordinal scale, or None for real values."""
        return None

    @property
    def amount(self) -> float:
        """How much there is to hold out: the number of cells, or the sum of counts."""
        return len(self)  # type: ignore[arg-type]

    def hide(self) -> Self:
        """The same cells without values, which the model then samples."""
        return self.replaced(y=None)

    def drawn(self, draw: Mapping[str, Any]) -> Self:
        """The data with the values that the model drew, by site, on the device alone; `fill` also has them
        on the host."""
        return self.replaced(y=draw[self.site])

    @classmethod
    def of_test(cls, table: Any, levels: tuple[float, ...] | None) -> Any:
        """A table of held-out data for a fit of such data, on the levels of training."""
        return cls(table)  # type: ignore[call-arg]

    def same_columns(self) -> bool:
        """Whether all columns have the same values, so that equal predictions are no fault."""
        return False

    @property
    def name(self) -> str:
        """The name of the data set, for reports; "" if it has none."""
        return self.host.name

    def named(self, name: str) -> Self:
        """The same data with a name, which reports show."""
        other = type(self).tree_unflatten(*self.tree_flatten()[::-1])
        other.host = replace(self.host, name=str(name))
        return other

    def replaced(self, host: Any = None, **leaves: Any) -> Self:
        """The same data with other leaves, and with another host unless `host` is None."""
        old = dict(zip(self.leaves, self.tree_flatten()[0], strict=True))
        return type(self).tree_unflatten(host or self.host, tuple((old | leaves).values()))

    def for_programs(self) -> Self:
        """The data for a compiled program: the host holds nothing but what programs of a method with
        `numbers` may read."""
        return self

    def tree_flatten(self) -> tuple[tuple, Any]:
        return tuple(getattr(self, name) for name in self.leaves), self.host

    @classmethod
    def tree_unflatten(cls, host: Any, children: tuple) -> Self:
        self = object.__new__(cls)
        self.host = host
        for name, child in zip(cls.leaves, children, strict=True):
            setattr(self, name, child)
        return self
