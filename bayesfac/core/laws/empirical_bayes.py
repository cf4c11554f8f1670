"""Scales of the Normal-Wishart priors of factors for a point fit, by empirical Bayes.

A joint mode over factors and scales is a poor estimate: the density is high where factors are small and
Lambda is large, and on sparse data the factors vanish. Here every row has a normal distribution q(u_i) =
N(mean, cov), as in mean-field variational Bayes (Lim & Teh, KDD Cup 2007). mu and Lambda are set to their
modes given the second moments of the rows, which include the uncertainty. With weights w_ij and targets t_ij
of the cells:

    cov_i^-1 = Lambda_U + sum_j w_ij (v_j v_j' + cov_j)
    mean_i = cov_i (Lambda_U (mu_U + B'x_i) + sum_j w_ij t_ij v_j)

In a tensor, v_j is the product of a row of each other mode, and v_j v_j' + cov_j is the product of their
second moments. If several matrices share factors, the cells of a row are those of all its matrices, one after
the other. If rows have features x_i, B is set to its mean given the means of the rows, and ridge to its mode
given the second moment of B. The uncertainty of B adds F Lambda^-1 to the moments that determine Lambda.

The sweeps start at several points, and left-out cells decide between them. From random factors, the first
sweeps draw the rows from their normal distributions, as Gibbs does. The reason is that random factors explain
nothing, so the means of the rows are near zero, and sweeps over means would stay there for long.

A point fit then keeps mu and Lambda fixed. As it treats factors as certain, it lacks the ridge sum_j w_ij
cov_j of their uncertainty. So `estimated` adds the mean of this ridge over the cells to Lambda. If a few rows
have most of the cells, this mean is far too large for the other rows. So a smaller share of it is added if
this predicts the left-out cells better.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bayesfac.core.data.cells import Cells, TensorCells
from bayesfac.core.data.features import Features
from bayesfac.core.kernels import sparse
from bayesfac.core.laws.sides import (
    Side,
    Sides,
    certain,
    certain_moments,
    doubts,
    drawn_rows,
    moments,
    prior_of,
    rows_of,
    unchanged,
)
from bayesfac.core.math import expectation
from bayesfac.core.multilinear import others

SWEEPS = 30
TRIAL = 10  # sweeps of a start before it is judged
AWAY = 0.1  # share of the cells that are left out to judge the starts
PARTS = (1.0, 0.3, 0.03)  # shares of the ridge that points lack: those that are tried
DRAWS = 60  # from a random start: sweeps with draws of the rows, before the others
SHARE = 0.8  # largest share of a cell's own weight in its prediction
# An end with a loss below this share of another's has a component that the other lost: .53, .59 in tensors of
# rank 3. A slightly smaller loss proves nothing: .76 where some ratings are far off, and it predicts worse.
LOST = 2 / 3
NODES = 3  # of a quadrature over the products
LEAST = 0.05  # smallest weight of a cell
TURNS = 8  # of the subspace iteration
RIDGE = 5.0  # weight of the prior of a bias, in cells


class Seen(NamedTuple):
    """What a method computes from the products at the cells: its own parameters (noise, thresholds) updated,
    target and weight of every cell, and the loss of the products at each cell."""

    own: Any
    target: jax.Array
    weight: jax.Array
    loss: jax.Array


Observe = Callable[[Any, jax.Array, jax.Array], Seen]
Early = Callable[[Seen, jax.Array, jax.Array], Seen]


class Evidence(NamedTuple):
    """What a law of observations brings: the values that scores explain, their standard deviation, its own
    parameters, `observe` and `early`; and `end`, which makes of the own parameters at the end the values of
    sites, and a factor of the precisions of all rows."""

    y: jax.Array
    unit: Any
    own: Any
    observe: Observe
    early: Early | None = None
    end: Callable[[Any], tuple[dict[str, Any], Any]] = lambda own: (own, 1.0)


class Problem(NamedTuple):
    """The cells, the features of each axis, the method's settings, and `observe`, which computes `Seen` from
    the own parameters and from mean and variance of the products at the cells. `early` changes this in the
    sweeps that draw rows."""

    cells: Cells | TensorCells
    x: Sequence[Features | None]
    h: Any
    observe: Observe
    early: Early | None = None


class End(NamedTuple):
    """The state at the end of the sweeps, with the variance of the products at the cells."""

    sides: Sides
    seen: Seen
    variance: jax.Array


def estimated(starts: Sequence[Sides], problem: Problem, own: Any) -> tuple[Sides, Any]:
    """The sides with scales for a point fit, and the method's own parameters.

    The sweeps run from each of the `starts`, the first of which is random. One cell in ten is left out and
    judges them (`_tried`). Then the sweeps from the best start are made with all cells. In a tensor they may
    lose a component that the trial had; if so, the end of the trial goes on with all cells instead.
    """
    n, first = len(starts), nothing_seen(problem, own)
    away = jax.random.bernoulli(jax.random.key(1), AWAY, first.loss.shape)
    begun = jax.tree.map(lambda *tables: jnp.stack(tables), *starts)

    def sums(losses: jax.Array) -> jax.Array:
        """The loss of the left-out cells for each of `PARTS`."""
        return jnp.sum(losses, 1, where=away)

    def turn(number: int, state: tuple) -> tuple:
        """Each start on trial, then further sweeps from the best end, then the best start with all cells."""
        losses, best, _, place = state
        trial, further = number < n, number == n
        place = jnp.where(trial, number, place)
        start = End(jax.tree.map(lambda table: table[place], begun), first, best.variance)
        start = jax.tree.map(partial(jnp.where, further), best, start)
        draws, kept = DRAWS * ((place == 0) & ~further), jnp.where(trial & away, 0.0, 1.0)
        end, doubt, new = _tried(problem, start, draws, kept, trial, losses)
        gains = sums(new).min() < sums(losses).min()  # not if `new` has NaN
        keeps = further | ~(best.seen.loss.sum() < LOST * end.seen.loss.sum())
        better = partial(jnp.where, jnp.where(trial, gains, keeps))
        return jax.tree.map(better, (new, end, doubt, place), state)

    losses = jnp.full((len(PARTS), len(away)), jnp.inf, first.loss.dtype)
    none = [jnp.zeros_like(side.precision) for side in starts[0]]
    begin = losses, End(starts[0], first, jnp.zeros_like(first.loss)), none, 0
    losses, (sides, seen, _), doubt, _ = jax.lax.fori_loop(0, n + 2, turn, begin)
    share = jnp.argmin(sums(losses))
    usual = ~_beaten(losses[:1], losses[share], away)[0]
    scale = jnp.where(usual, PARTS[0], jnp.asarray(PARTS)[share])
    return _stiffened(sides, doubt, scale), seen.own


def from_start(start: Sides, problem: Problem, own: Any) -> tuple[Sides, Any]:
    """As `estimated`, from one good start, as that of `leading`: no cells are left out."""
    begun = [certain(side.mean, *side[2:]) for side in start]
    first = nothing_seen(problem, own)
    end = swept(problem, first, begun, 0, SWEEPS)
    doubt = doubts(end.sides, end.seen.weight, problem.cells)
    return _stiffened(end.sides, doubt, jnp.asarray(PARTS[0])), end.seen.own


def leading(key: jax.Array, cells: Cells, y: jax.Array, K: int) -> tuple[jax.Array, jax.Array]:
    """U and V whose products are nearly the K leading components of y, with zeros in missing cells (subspace
    iteration); the mean square of U is 1."""
    n, m = cells.shape
    V = jax.random.normal(key, (m, K), y.dtype)
    for _ in range(TURNS):
        U = jnp.linalg.qr(sparse.spread(cells.by_row, y, V))[0] * n**0.5
        V = sparse.spread(cells.by_col, y, U) / n
    return U, V


def _tried(
    problem: Problem, start: End, draws: Any, kept: jax.Array, trial: Any, losses: jax.Array
) -> tuple[End, Any, jax.Array]:
    """The end of sweeps from the start, and the ridges that a point lacks there. On trial, also the loss of
    the end as a point at each cell, with each of `PARTS` of the ridges; otherwise `losses` as they are.

    The sweeps of a point are the same program as those before.
    """

    def part(number: Any, state: tuple) -> tuple:
        end, doubt, losses = state
        point = number >= 0
        stiff = _stiffened(end.sides, doubt, jnp.asarray(PARTS)[number])
        begun = [certain(side.mean, *side[2:]) for side in stiff]
        sides = jax.tree.map(partial(jnp.where, point), begun, end.sides)
        sweeps = jnp.where(point, TRIAL, draws + SWEEPS)
        new = swept(problem, end.seen, sides, draws * ~point, sweeps, kept, point, end.variance)
        doubt = jax.lax.cond(
            point, lambda: doubt, lambda: doubts(new.sides, kept * new.seen.weight, problem.cells)
        )
        losses = jnp.where(point, losses.at[number].set(new.seen.loss), losses)
        return jax.tree.map(partial(jnp.where, point), end, new), doubt, losses

    none = [jnp.zeros_like(side.precision) for side in start.sides]
    parts = jnp.where(trial, len(PARTS), 0)
    return jax.lax.fori_loop(-1, parts, part, (start, none, losses))


def swept(
    problem: Problem,
    seen: Seen,
    sides: Sides,
    draws: Any,
    sweeps: Any,
    kept: Any = 1.0,
    point: Any = False,
    variance: Any = 0.0,
) -> End:
    """The end of this number of sweeps from these sides, of which the first `draws` draw the rows; weights of
    cells are multiplied by `kept`. `seen` holds the method's own parameters at the start.

    The rows of a `point` have no variance; its prior, its weights, its own parameters and this variance of
    the products stay as they are.

    The loop begins one step before the first sweep, with moments alone, so each part is compiled once.
    """
    cells, x, h, observe, early = problem

    def sweep(number: jax.Array, state: End) -> End:
        sides, seen, variance = state
        key = jax.random.fold_in(jax.random.key(0), number)
        drawn = (number >= 0) & (number < draws)
        kind = jnp.where(number < 0, 0, jnp.where(drawn, 1, 2))
        count = jnp.where(point, 0, number)

        for m, own in enumerate(x):
            sides = [*sides]
            sides[m] = prior_of(sides[m], own, h, count)
            args = jax.random.fold_in(key, m), sides, seen.target, kept * seen.weight
            ways = [partial(each, m, own, cells) for each in (unchanged, drawn_rows, rows_of)]
            new = jax.lax.switch(kind, ways, *args)
            sides[m] = new._replace(cov=jnp.where(point, 0, new.cov))
        given = drawn | point, certain_moments, moments
        products, found = jax.lax.cond(*given, sides, cells)
        variance = jnp.where(point, variance, found)
        new = look(observe, early, drawn, seen.own, products, variance)
        still = new._replace(own=seen.own, weight=seen.weight)
        return End(sides, jax.tree.map(partial(jnp.where, point), still, new), variance)

    begin = End(sides, seen, jnp.broadcast_to(variance, seen.loss.shape).astype(seen.loss.dtype))
    return jax.lax.fori_loop(-1, sweeps, sweep, begin)


def look(
    observe: Observe, early: Early | None, drawn: Any, own: Any, x: jax.Array, variance: jax.Array
) -> Seen:
    """What `observe` returns, changed by `early` if rows are drawn."""
    seen = observe(own, x, variance)
    if early is None:
        return seen
    return jax.tree.map(partial(jnp.where, drawn), early(seen, x, variance), seen)


def nothing_seen(problem: Problem, own: Any) -> Seen:
    """What `swept` begins with: the method's own parameters, and zeros for all that `observe` computes."""
    each = jax.ShapeDtypeStruct((len(problem.cells),), jnp.result_type(float))
    like = jax.eval_shape(problem.observe, own, each, each)
    zeros = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), like)
    return zeros._replace(own=jax.tree.map(lambda a, b: jnp.asarray(a, b.dtype), own, like.own))


def _even(table: jax.Array) -> jax.Array:
    """The symmetric part of a table, which removes rounding errors of an inverse."""
    return (table + jnp.swapaxes(table, -1, -2)) / 2


def _beaten(losses: jax.Array, best: jax.Array, away: jax.Array) -> jax.Array:
    """Whether each trial has a larger loss than the best one at left-out cells, by two standard errors."""
    gains, n = losses - best, jnp.maximum(away.sum(), 2)
    mean = jnp.sum(gains, 1, where=away) / n
    square = jnp.sum((gains - mean[:, None]) ** 2, 1, where=away)
    return mean > 2 * jnp.sqrt(square / (n * (n - 1)))


def _stiffened(sides: Sides, doubt: Any, share: jax.Array) -> Sides:
    """The sides with this share of the ridges that a point lacks added to Lambda."""
    return [
        side._replace(precision=_even(side.precision + share * ridge))
        for side, ridge in zip(sides, doubt, strict=True)
    ]


def normal(y: jax.Array, shape: float, rate: Any, alpha: float | None = None) -> Observe:
    """`observe` for normal values y, whose precision is Gamma(shape, rate) unless `alpha` fixes it. `own` is
    the precision, and the mean variance of the products at cells that are left out."""

    def observe(own: tuple, x: jax.Array, variance: jax.Array) -> Seen:
        misfit = 0.5 * jnp.sum((y - x) ** 2 + variance)
        new = own[0] if alpha is not None else (shape - 1 + 0.5 * len(y)) / (rate + misfit)
        known = new, left_out(variance, new)
        return Seen(known, y, jnp.full_like(y, new), (y - x) ** 2)

    return observe


def as_normal(
    log_likelihood: Callable[[jax.Array], jax.Array], x: jax.Array, variance: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The targets and weights of normal values in the place of cells with a log likelihood of the product.

    The weight is minus the expected second derivative, for a normal product with this mean and variance. The
    target is the mean plus the expected slope over the weight. With the largest second derivative as the
    weight of all cells, the uncertainty of products would cost too much at cells that say little, as where
    most ratings have the same level, and the factors would vanish although the ratings show them.
    """

    def slope(x: jax.Array) -> jax.Array:
        return jax.jvp(log_likelihood, (x,), (jnp.ones_like(x),))[1]

    def slopes(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.jvp(slope, (x,), (jnp.ones_like(x),))

    first, second = expectation(slopes, x, variance, NODES)
    weight = jnp.maximum(-second, LEAST)
    return x + first / weight, weight


def alone(variance: jax.Array, weight: Any) -> jax.Array:
    """The variance of the product at each cell of this variance and weight, if it were left out."""
    return variance / (1 - jnp.minimum(weight * variance, SHARE))


def left_out(variance: jax.Array, weight: Any) -> jax.Array:
    """The mean variance of the products at cells of this variance and weight, if each were left out."""
    return jnp.mean(alone(variance, weight))


def fitted(side: Side, h: Any) -> Side:
    """The side with mu and Lambda that fit its rows. With a wide prior the first sweeps would overfit, and
    would not recover."""
    return prior_of(side, None, h, 2)


def biases(cells: Cells | TensorCells, y: jax.Array) -> list[jax.Array]:
    """Regularised biases of each axis, by repeated ridge regressions; y is centred."""
    ones = [jnp.ones((n, 1), y.dtype) for n in cells.shape]

    def better(_: int, found: list[jax.Array]) -> list[jax.Array]:
        for m in reversed(range(len(found))):
            rest = y - sum(b[cells.codes[j]] for j, b in enumerate(found) if j != m)
            rows = cells.modes[m]
            sums = sparse.spread(rows, rest, others(ones, m, cells))[:, 0]
            found = [*found[:m], sums / (jnp.diff(rows.ptr) + RIDGE), *found[m + 1 :]]
        return found

    return jax.lax.fori_loop(0, 10, better, [jnp.zeros(n, y.dtype) for n in cells.shape])
