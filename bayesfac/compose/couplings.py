"""How rows depend on one another along their axis, as a user adds it to a prior: `bf.Relevance() +
bf.Graph()`.

Each coupling is a record of its setting, and makes the part `Factor.along` (`parts/rows/along.py`). Alone, as
in `rows=bf.RandomWalk()`, it stands for `NormalWishart() + ...`.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from bayesfac.compose.priors import Prior, Sparse
from bayesfac.core import checks
from bayesfac.core.errors import Settings
from bayesfac.parts.rows import along


@dataclass(frozen=True)
class Coupled:
    """A prior of rows, and how the rows depend on one another."""

    prior: Prior
    along: "Coupling"

    def __add__(self, other: Any) -> "Coupled":
        raise TypeError(
            f"Expected one of RandomWalk, AutoRegressive and Graph, got {self.along} + {other}"
        )


@dataclass(frozen=True)
class Coupling(Settings, ABC):
    """What all couplings have; the only field of each is its setting."""

    cite: ClassVar[str]
    model: ClassVar[str]  # what it says of the rows, in units of their covariance
    ordered: ClassVar[bool] = True
    example: ClassVar[float]  # the setting for tests

    def __radd__(self, prior: Any) -> Coupled:
        if isinstance(prior, Prior) and (prior.positive or isinstance(prior, Sparse)):
            raise TypeError(
                f"Expected a prior of normal rows to add {self} to, got {prior}: bf.Relevance() takes it"
            )
        return Coupled(prior, self) if isinstance(prior, Prior) else NotImplemented

    __add__ = __radd__

    def setting(self, axis: str) -> tuple[str, float | None]:
        """The name of the setting and its default; without an axis, of all modes of a tensor."""
        ((name, value),) = vars(self).items()
        return re.sub(r"\W", "_", f"{name}_{axis}") if axis else name, value

    @abstractmethod
    def part(self, axis: str) -> Any:
        """`Factor.along`."""

    @abstractmethod
    def choices(self, n: int) -> Sequence[float]:
        """Candidates of the setting for n rows, from weak to strong; the middle one is used if no cells
        choose."""

    def filled(self, h: Any, axis: str, n: int) -> Any:
        """The setting completed and checked."""
        name, few = self.setting(axis)[0], self.choices(n)
        h = checks.filled(h, **{name: few[len(few) // 2]})
        checks.positive(h, name)
        return h


@dataclass(frozen=True)
class RandomWalk(Coupling):
    """Rows that change little from each label to the next, as months do: u_t ~ N(u_(t-1), step^2 C) in the
    order of the labels, which are numbers, dates or text, and u_1 ~ N(mu, C).

    C is P^-1, the covariance that the prior of the rows has, over the mean variance 1 + step^2 (n - 1) / 2.
    Without the law of u_1 the prior would be improper in one direction: all rows move by the same vector. A
    label that training never saw is predicted as the one after the last: about the last row, with the
    covariance step^2 C. Labels between others are for training data, even if they have few cells or none.

    Parameters
    ----------
    step : float, optional
        The standard deviation of a step, in units of that of the first row; a setting `step_user`,
        `step_item` or `step_MODE` of the fit. None: held-out cells choose it; in a tensor
        2 / sqrt(n - 1), so that all steps together have four times the variance of the first row.

    Examples
    --------
    >>> import bayesfac as bf
    >>> model = bf.factorization(columns=bf.Relevance() + bf.RandomWalk(step=0.2))
    >>> months = bf.Ratings([0, 0, 0, 1, 1, 1], [1, 2, 4, 1, 2, 4], [0.1, 0.2, 0.4, 0.0, 0.3, 0.2])
    >>> fit = bf.fit(model, months, n_components=1, progress=False)
    >>> fit.params.V.shape, bool(fit.predict(([0], [5])).sd[0] > 0)
    ((3, 1), True)
    """

    step: float | None = None
    cite: ClassVar[str] = "rue2005gaussian"
    model: ClassVar[str] = (
        "u_1 ~ N(0, 1 / c), u_t ~ N(u_(t-1), step^2 / c), c = 1 + step^2 (n - 1) / 2"
    )
    example: ClassVar[float] = 0.6

    def part(self, axis: str) -> Any:
        return along.Walk(self.setting(axis)[0])

    def choices(self, n: int) -> Sequence[float]:
        return [2 * 2**k / max(n - 1, 1) ** 0.5 for k in (2, 1, 0, -1, -2)]


@dataclass(frozen=True)
class AutoRegressive(Coupling):
    """Rows that return to their mean, from each label to the next in their order: u_t - mu = r (u_(t-1) - mu)
    + e_t, e_t ~ N(0, (1 - r^2) P^-1), so that every row has the covariance P^-1.

    A label that training never saw is predicted as the one after the last.

    Parameters
    ----------
    correlation : float, optional
        r, above 0 and below 1; a setting `correlation_user`, `correlation_item` or `correlation_MODE` of the
        fit. None: held-out cells choose it; in a tensor 0.9.

    Examples
    --------
    >>> import bayesfac as bf
    >>> bf.factorization(columns=bf.AutoRegressive(0.8)).name
    'normal_wishart_normal_wishart_auto_regressive_normal'
    """

    correlation: float | None = None
    cite: ClassVar[str] = "rue2005gaussian"
    model: ClassVar[str] = "u_1 ~ N(0, 1), u_t ~ N(r u_(t-1), 1 - r^2), r the setting correlation"
    example: ClassVar[float] = 0.7

    def part(self, axis: str) -> Any:
        return along.Stationary(self.setting(axis)[0])

    def choices(self, n: int) -> Sequence[float]:
        return [0.1, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99]

    def filled(self, h: Any, axis: str, n: int) -> Any:
        h, name = super().filled(h, axis, n), self.setting(axis)[0]
        if (found := getattr(h, name)) >= 1:
            raise ValueError(f"Expected {name} to be below 1, got {found}")
        return h


@dataclass(frozen=True)
class Graph(Coupling):
    """Rows that are alike where a graph joins them (friends, similar items): log p has the term -1/2 strength
    sum w_ij (u_i - u_j)' c P (u_i - u_j) over its edges, beside the prior of each row.

    The graph comes with the data: `bf.Ratings(..., user_graph=edges, item_graph=edges)`. Weights are divided
    by their mean sum for a row that has edges. Then `strength` means the same for all graphs, and as the
    Laplacian is not normalised row by row, equal rows have no cost, whatever their numbers of edges are. The
    number c makes P^-1 the covariance of such rows on average; rows without edges have it too. A label that
    training never saw is predicted as a row without edges.

    Parameters
    ----------
    strength : float, optional
        How alike joined rows are; a setting `strength_user` or `strength_item` of the fit. None: held-out
        cells choose it.

    Examples
    --------
    >>> import bayesfac as bf
    >>> seen = [0, 0, 1, 1, 2], [0, 1, 0, 2, 1], [4.0, 2.0, 5.0, 1.0, 3.0]
    >>> friends = bf.Ratings(seen, user_graph=[(0, 1), (1, 2), (2, 9)])
    >>> model = bf.factorization(rows=bf.NormalWishart() + bf.Graph(strength=2.0))
    >>> fit = bf.fit(model, friends, n_components=1, progress=False)
    >>> fit.params.U.shape  # the friend 9 has no ratings
    (4, 1)
    """

    strength: float | None = None
    cite: ClassVar[str] = "zhou2012kernelized"
    model: ClassVar[str] = (
        "sum_i u_i^2 + strength sum_edges w_ij (u_i - u_j)^2, times c, in -2 log p"
    )
    ordered: ClassVar[bool] = False
    example: ClassVar[float] = 1.4

    def part(self, axis: str) -> Any:
        return along.Laplacian(self.setting(axis)[0])

    def choices(self, n: int) -> Sequence[float]:
        return [10 ** (k / 2) for k in range(-3, 4)]
