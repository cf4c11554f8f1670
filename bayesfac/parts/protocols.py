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

    Optional: drawn(p, query, h), the scores, and draws of them at standard normal points (laws of levels ask
    it); swollen(key, p, data, h, grown), moves of scales that change scores, for laws that have `grown`.
    """

    @property
    def main(self) -> tuple[Factor, ...]: ...
    @property
    def biases(self) -> tuple[Factor, ...]: ...
    @property
    def every(self) -> tuple[Factor, ...]: ...
    # the number of rows that a score multiplies
    @property
    def degree(self) -> int: ...
    # whether scores stay as they are if all rows are rotated
    @property
    def rotates(self) -> bool: ...
    # whether a sweep of the solver ends with the scales of `opposed` at which J is lowest
    @property
    def balanced(self) -> bool: ...
    # the structure with these settings, and with these sites
    def at(self, h: Any) -> Self: ...
    def seen(self, names: Any) -> Self: ...
    # {axis: number of rows}
    def lengths(self, data: Any) -> dict[str, int]: ...
    # the scores of the cells, as the law of the observations takes them
    def scores(self, p: Any, data: Any) -> Any: ...
    # the law of a factor's rows where cells observe the scores as `target` with precision `weight`
    def rows(self, p: Any, data: Any, f: Factor, h: Any, target: Any, weight: Any) -> Any: ...
    # mean and variance of scores; rows without training data are drawn from their priors
    def predicted(self, p: Any, query: Any, h: Any) -> tuple[jax.Array, jax.Array]: ...
    # pairs of groups of factors: if one group grows and the other shrinks, scores stay as they are
    def opposed(self, data: Any) -> list[Groups]: ...


@runtime_checkable
class Believed(Protocol):
    """What VB asks of a structure. `Matrices` lacks it."""

    # mean and variance of the scores
    def moments(self, q: Any, cells: Any) -> tuple[jax.Array, jax.Array]: ...
    # the laws of all rows; and wider ones, with the factor by which they are wider
    def updated(self, q: Any, data: Any, h: Any, target: jax.Array, weight: Any) -> Any: ...
    def widened(self, key: jax.Array, q: Any, data: Any, bound: Any, elbo: Any) -> tuple: ...


class Observed(Protocol):
    """A law of the observations given the scores x of their cells: parts/observed/.

    What is optional:

    prepare(data, h)          its settings, completed and checked
    evidence(p, data, h)      what empirical Bayes needs to begin a point (of methods with `scales`)
    held(h)                   the fields that empirical Bayes sets
    precision(p, h)           that of values about their scores
    augment(p, x, data, h)    the law of auxiliary variables
    touching(p, x, data, h)   the values of these at which the solver's bound of J touches J at p
    lowered(p, x, data, h)    p with sites that have no conditional, where J is lower
    moves                     {name: f(key, p, x, data, h)}
    grown(p, t, x, data, h)   p with thresholds times e^t, where they grow with the scores, and the log
                              density at the scores x with the Jacobian
    floating                  the fields of thresholds that absorb a shift of scores
    below                     whether `bound` is one of the ELBO
    variational(s)            the record of VB for a structure, of laws that bring their own
    """

    # {field: axes}
    @property
    def sites(self) -> Mapping[str, tuple[str, ...]]: ...
    # {site: f(p, x, data, h, *auxiliary)}; f of a mapping "NAME.{key}" takes the key too
    @property
    def conditionals(self) -> Mapping[str, Any]: ...
    # the standard deviation of what scores explain
    def unit(self, data: Any, h: Any) -> Any: ...
    # {site: value} where fits begin
    def first(self, data: Any, h: Any) -> dict[str, Any]: ...
    # minus the log density of observations and own sites, without constants
    def energy(self, p: Any, x: Any, data: Any, h: Any) -> jax.Array: ...
    # (p, data, h, *auxiliary) -> what each cell observes of its score, and with which precision; a third
    # number is the precision with which every cell of the table observes 0
    @property
    def target(self) -> Callable[..., tuple]: ...
    # the NumPyro sites; p has the rows
    def sampled(self, p: Any, x: Any, data: Any, h: Any) -> None: ...
    # the law of the queried cells, where s is the structure
    def predict(self, p: Any, query: Any, h: Any, s: Any) -> Any: ...


@runtime_checkable
class Bounded(Protocol):
    """What VB asks of a law. If its expectation has no closed form, it lacks this: it then brings its own
    `variational` (`observed/level_beliefs.py`), or there is no VB."""

    # the beliefs of its sites, at a point
    def begin(self, p: Any, data: Any, h: Any) -> dict[str, Belief]: ...
    # its sites updated, and target and precision of the cells
    def updated(self, q: Any, x: Any, variance: Any, data: Any, h: Any) -> tuple: ...
    # minus the expected energy, or a bound of it
    def bound(self, q: Any, x: Any, variance: Any, data: Any, h: Any) -> jax.Array: ...
    # {site: law}
    def laws(self, q: Any) -> dict[str, Any]: ...
