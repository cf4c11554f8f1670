"""Ratings of which each process has only a share: the cells of the rows that its devices draw.

Every process knows the labels, the numbers of ratings, the mean and the spread of all ratings. `piles.py`
distributes the ratings to processes.
"""

from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from bayesfac.core.data.divided.shares import Divided
from bayesfac.core.data.ratings import Frame, Ratings
from bayesfac.core.data.reading import deviation, halfway
from bayesfac.core.errors import BayesfacError


@dataclass
class Summary:
    """What is asked of all values, in their place; how many have each level, if values have levels."""

    levels: tuple[float, ...] = ()
    count: int = 0
    sum: float = 0.0
    squares: float = 0.0  # about the mean
    least: float = np.inf
    most: float = -np.inf
    of_level: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.of_level = np.zeros(len(self.levels), np.int64)

    def add(self, values: np.ndarray) -> None:
        """More values."""
        if len(values):
            mean = values.mean()
            gap = mean - self.mean() if self.count else 0.0
            both = self.count + len(values)
            self.squares += ((values - mean) ** 2).sum() + gap**2 * self.count * len(values) / both
            self.count, self.sum = both, self.sum + values.sum()
            self.least, self.most = min(self.least, values.min()), max(self.most, values.max())
        if self.levels:
            level = np.searchsorted(halfway(self.levels), values)
            self.of_level += np.bincount(level, minlength=len(self.levels))

    def __len__(self) -> int:
        return self.count

    def mean(self) -> float:
        return self.sum / self.count

    def std(self) -> float:
        return float((self.squares / self.count) ** 0.5)

    def min(self) -> float:
        return self.least

    def max(self) -> float:
        return self.most


@dataclass(frozen=True, eq=False)
class LargeFrame(Frame):
    """`value` is a `Summary`; also the numbers of ratings by side, some cells (user and item codes), the
    shares of this process by their number among all parts, and a digest of all ratings."""

    counts: dict[str, np.ndarray] = field(default_factory=dict)
    some: tuple[np.ndarray, np.ndarray] = (np.zeros(0, int), np.zeros(0, int))
    here: dict[int, Divided] = field(default_factory=dict)
    parts: int = 1
    digest: str = ""

    @property
    def moments(self) -> tuple[float, float]:
        return float(self.value.mean()), deviation(self.value)


@jax.tree_util.register_pytree_node_class
class LargeRatings(Ratings):
    """Ratings that `bf.datasets.read_large` has read: this process holds the share that it needs for
    `bf.Gibbs(shares=True)`. Labels, numbers and the mean are those of all ratings; single ratings cannot be
    asked for."""

    leaves, present = (), False
    host: LargeFrame

    def __init__(self, host: LargeFrame) -> None:
        self.host = host

    @property
    def cells(self) -> Any:
        raise _not_here()

    @property
    def y(self) -> Any:
        raise _not_here()

    @property
    def value(self) -> Any:
        """What is known of all values: their number, mean, standard deviation, lowest and highest."""
        return self.host.value

    @property
    def x(self) -> dict[str, Any]:  # type: ignore[override]
        """No features."""
        return {}

    def per_row(self, side: str) -> np.ndarray:
        return self.host.counts[side]

    def shares(self, parts: int) -> dict[int, Divided]:
        if parts != self.host.parts:
            raise BayesfacError(
                f"Expected the {self.host.parts} devices for which the ratings were read, got {parts}"
            )
        return self.host.here

    def fingerprint(self) -> str:
        return self.host.digest

    def __repr__(self) -> str:
        text = super().__repr__().removeprefix("Ratings(").removesuffix(")")
        return f"LargeRatings({text}, {len(self.host.here)} of {self.host.parts} shares here)"


def _not_here() -> BayesfacError:
    return BayesfacError(
        "Expected bf.Gibbs(shares=True), without init and pairs, and bpmf or another method that can be "
        "divided among devices: these ratings were read in shares, and this process holds its own; "
        "bf.datasets.read reads all ratings"
    )
