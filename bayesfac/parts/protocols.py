"""What a composition asks of the structure of scores, and of the law of the observations given their scores.

What is optional is missing where a part lacks it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, Self, runtime_checkable

import jax

from bayesfac.core.laws.beliefs import Belief
from bayesfac.parts.factors import Factor
from bayesfac.parts.scales import Groups


class Structure(Protocol):
    """How scores are made of rows: parts/matrix.py, tensor.py, matrices.py.

    main, biases, every   its factors
    degree                the number of rows that a score multiplies
    rotates               whether scores stay as they are if all rows are rotated
    balanced              whether sweeps of the solver end at the scales of `opposed` at which J is lowest
    at(h), seen(names)    the structure with these settings, and the one that has these sites
    lengths(data)         {axis: number of rows}
    scores(p, data)       the scores of the cells, as the law of the observations takes them
    rows(p, data, f, h, target, weight)   the law of a factor's rows where cells observe the scores as
                          `target` with precision `weight`
    predicted(p, query, h)   mean and variance of scores; rows without training data are drawn from priors
    opposed(data)         pairs of groups of factors: if one group grows and the other shrinks, scores stay

    Optional: drawn(p, query, h), the scores, and draws of them at standard normal points (laws of levels);
    swollen(key, p, data, h, grown), moves of scales that change scores, for laws that have `grown`.
    """

    @property
    def main(self) -> tuple[Factor, ...]: ...
    @property
    def biases(self) -> tuple[Factor, ...]: ...
    @property
    def every(self) -> tuple[Factor, ...]: ...
    @property
    def degree(self) -> int: ...
    @property
    def rotates(self) -> bool: ...
    @property
    def balanced(self) -> bool: ...
    def at(self, h: Any) -> Self: ...
    def seen(self, names: Any) -> Self: ...
    def lengths(self, data: Any) -> dict[str, int]: ...
    def scores(self, p: Any, data: Any) -> Any: ...
    def rows(self, p: Any, data: Any, f: Factor, h: Any, target: Any, weight: Any) -> Any: ...
    def predicted(self, p: Any, query: Any, h: Any) -> tuple[jax.Array, jax.Array]: ...
    def opposed(self, data: Any) -> list[Groups]: ...


@runtime_checkable
class Believed(Protocol):
    """What VB asks of a structure: moments of the scores, laws of all rows, and wider ones. `Matrices` lacks
    them."""

    def moments(self, q: Any, cells: Any) -> tuple[jax.Array, jax.Array]: ...
    def settled(self, q: Any, data: Any, h: Any, target: jax.Array, weight: Any) -> Any: ...
    def widened(self, key: jax.Array, q: Any, data: Any, bound: Any, elbo: Any) -> tuple: ...


class Observed(Protocol):
    """A law of the observations given the scores x of their cells: parts/observed/.

    sites                 {field: axes}
    conditionals          {site: f(p, x, data, h, *auxiliary)}; f of a mapping "NAME.{key}" takes the key too
    unit(data, h)         the standard deviation of what scores explain
    first(data, h)        {site: value} where fits begin
    energy(p, x, data, h) minus the log density of observations and own sites, without constants
    target(p, data, h, *auxiliary)   what each cell observes of its score, and with which precision; a third
                          number is the precision with which every cell of the table observes 0
    sampled(p, x, data, h)   the NumPyro sites; p has the rows
    predict(p, query, h, s)  the law of the queried cells of the structure s

    Optional: prepare(data, h), its settings, completed and checked; held(h), the fields that empirical Bayes
    sets (of methods with `scales`); augment(p, x, data, h), the law of auxiliary variables, without which
    `target` must be known; moves, {name: f(key, p, x, data, h)}; grown(p, t, x, data, h), p with thresholds
    times e^t, where they grow with the scores, and the log density at the scores x with the Jacobian;
    floating, the fields of thresholds that absorb a shift of scores; below, if `bound` is one of the ELBO.
    """

    @property
    def sites(self) -> Mapping[str, tuple[str, ...]]: ...
    @property
    def conditionals(self) -> Mapping[str, Any]: ...
    def unit(self, data: Any, h: Any) -> Any: ...
    def first(self, data: Any, h: Any) -> dict[str, Any]: ...
    def energy(self, p: Any, x: Any, data: Any, h: Any) -> jax.Array: ...
    @property
    def target(self) -> Callable[..., tuple]: ...
    def sampled(self, p: Any, x: Any, data: Any, h: Any) -> None: ...
    def predict(self, p: Any, query: Any, h: Any, s: Any) -> Any: ...


@runtime_checkable
class Bounded(Protocol):
    """What VB asks of a law: its sites at a point; updated, with target and precision of the cells; minus the
    expected energy; the laws of its sites. Laws whose expectation has no closed form lack them; their methods
    bring a law of their own (`observed/likelihood_law.py`) or have no VB."""

    def begin(self, p: Any, data: Any, h: Any) -> dict[str, Belief]: ...
    def settled(self, q: Any, x: Any, variance: Any, data: Any, h: Any) -> tuple: ...
    def bound(self, q: Any, x: Any, variance: Any, data: Any, h: Any) -> jax.Array: ...
    def laws(self, q: Any) -> dict[str, Any]: ...
