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

from bayesfac.core.data.cells import Cells, LinkedCells, TensorCells
from bayesfac.core.data.features import Features
from bayesfac.core.kernels import sparse
from bayesfac.core.laws.beliefs import doubled, half, inverse, square, whole
from bayesfac.core.laws.distributions import GaussianRows
from bayesfac.core.laws.links import Links
from bayesfac.core.math import expectation
from bayesfac.core.multilinear import crossed, multiplied, others

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
RIDGE = 5.0  # weight of the prior of a bias, in cells


class Side(NamedTuple):
    """Means (n x K) and covariances (n x K x K) of the rows of a factor, and the prior's mean and precision;
    with features, B and ridge."""

    mean: jax.Array
    cov: jax.Array
    mu: jax.Array
    precision: jax.Array
    B: jax.Array | None = None
    ridge: jax.Array | None = None


class Seen(NamedTuple):
    """What a method computes from the products at the cells: its own parameters (noise, thresholds) updated,
    target and weight of every cell, and the loss of the products at each cell."""

    own: Any
    target: jax.Array
    weight: jax.Array
    loss: jax.Array


Observe = Callable[[Any, jax.Array, jax.Array], Seen]
Early = Callable[[Seen, jax.Array, jax.Array], Seen]


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
    """The state at the end of the sweeps."""

    sides: list[Side]
    seen: Seen


def certain(mean: jax.Array, *rest: Any) -> Side:
    """A side whose rows have no variance; the first sweep computes their covariances."""
    return Side(mean, jnp.zeros((*mean.shape, mean.shape[1]), mean.dtype), *rest)


def estimated(starts: Sequence[list[Side]], problem: Problem, own: Any) -> tuple[list[Side], Any]:
    """The sides, one for each axis, with scales for a point fit, and the method's own parameters.

    The sweeps run from each of the `starts`, the first of which is random. One cell in ten is left out and
    judges them (`_losses`). Then the sweeps from the best start are made with all cells. In a tensor they may
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
        losses, best, at = state
        trial, further = number < n, number == n
        at = jnp.where(trial, number, at)
        start = End(jax.tree.map(lambda table: table[at], begun), first)
        sides, seen = jax.tree.map(partial(jnp.where, further), best, start)
        draws, kept = jnp.where((at == 0) & ~further, DRAWS, 0), jnp.where(trial & away, 0.0, 1.0)
        end = swept(problem, seen, sides, draws, draws + SWEEPS, kept)

        def judged() -> tuple:
            new = _losses(problem, end, kept)
            return new, sums(new).min() < sums(losses).min()  # not better if `new` has NaN

        def compared() -> tuple:
            return losses, further | ~(best.seen.loss.sum() < LOST * end.seen.loss.sum())

        new, better = jax.lax.cond(trial, judged, compared)
        return jax.tree.map(partial(jnp.where, better), (new, end, at), state)

    losses = jnp.full((len(PARTS), len(away)), jnp.inf, first.loss.dtype)
    begin = losses, End(list(starts[0]), first), 0
    losses, (sides, seen), _ = jax.lax.fori_loop(0, n + 2, turn, begin)
    share = jnp.argmin(sums(losses))
    usual = ~_beaten(losses[:1], losses[share], away)[0]
    scale = jnp.where(usual, PARTS[0], jnp.asarray(PARTS)[share])
    return _stiffened(sides, seen.weight, problem.cells, scale), seen.own


def swept(
    problem: Problem, seen: Seen, sides: list[Side], draws: Any, sweeps: Any, kept: Any = 1.0
) -> End:
    """The end of this number of sweeps from these sides, of which the first `draws` draw the rows; weights of
    cells are multiplied by `kept`. `seen` holds the method's own parameters at the start.

    The loop begins one step before the first sweep, with moments alone, so each part is compiled once.
    """
    cells, x, h, observe, early = problem

    def sweep(number: jax.Array, state: tuple) -> tuple:
        sides, seen = state
        key = jax.random.fold_in(jax.random.key(0), number)
        drawn = (number >= 0) & (number < draws)
        kind = jnp.where(number < 0, 0, jnp.where(drawn, 1, 2))
        for m in range(len(sides)):
            sides = [*sides[:m], _prior(sides[m], x[m], h, number), *sides[m + 1 :]]
            args = jax.random.fold_in(key, m), sides, seen.target, kept * seen.weight
            ways = [partial(each, m, x[m], cells) for each in (_unchanged, _drawn, _rows)]
            sides = [*sides[:m], jax.lax.switch(kind, ways, *args), *sides[m + 1 :]]
        found = jax.lax.cond(drawn, _certain_moments, moments, sides, cells)
        return sides, look(observe, early, drawn, seen.own, *found)

    return End(*jax.lax.fori_loop(-1, sweeps, sweep, (list(sides), seen)))


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


def _losses(problem: Problem, end: End, kept: jax.Array) -> jax.Array:
    """The loss of the end as a point at each cell, with each of `PARTS` of the ridge that it lacks."""
    cells, x, _, observe, _ = problem
    weight, (_, variance) = kept * end.seen.weight, moments(end.sides, cells)

    def rows(sides: list[Side], seen: Seen) -> list[Side]:
        for m in range(len(sides)):
            found = _rows(m, x[m], cells, None, sides, seen.target, weight)
            sides = [*sides[:m], certain(found.mean, *found[2:]), *sides[m + 1 :]]
        return sides

    def sweep(number: jax.Array, state: tuple) -> tuple:
        sides = jax.lax.cond(number < 0, lambda sides, _: sides, rows, *state)
        products = multiplied([s.mean for s in sides], cells)
        return sides, observe(end.seen.own, products, variance)

    def lost(share: jax.Array) -> jax.Array:
        stiff = _stiffened(end.sides, weight, cells, share)
        begun = [certain(side.mean, *side[2:]) for side in stiff]
        return jax.lax.fori_loop(-1, TRIAL, sweep, (begun, end.seen))[1].loss

    return jax.lax.map(lost, jnp.asarray(PARTS))


def _beaten(losses: jax.Array, best: jax.Array, away: jax.Array) -> jax.Array:
    """Whether each trial has a larger loss than the best one at left-out cells, by two standard errors."""
    gains, n = losses - best, jnp.maximum(away.sum(), 2)
    mean = jnp.sum(gains, 1, where=away) / n
    square = jnp.sum((gains - mean[:, None]) ** 2, 1, where=away)
    return mean > 2 * jnp.sqrt(square / (n * (n - 1)))


def _stiffened(
    sides: Sequence[Side], weight: jax.Array, cells: Any, share: jax.Array
) -> list[Side]:
    """The sides with this share of the ridge that a point lacks added to Lambda."""
    ridges = [share * _doubt(m, sides, weight, cells) for m in range(len(sides))]
    pairs = zip(sides, ridges, strict=True)
    return [s._replace(precision=_even(s.precision + ridge)) for s, ridge in pairs]


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


def left_out(variance: jax.Array, weight: Any) -> jax.Array:
    """The mean variance of the products at cells of this variance and weight, if each were left out."""
    return jnp.mean(variance / (1 - jnp.minimum(weight * variance, SHARE)))


def fitted(side: Side, h: Any) -> Side:
    """The side with mu and Lambda that fit its rows. With a wide prior the first sweeps would overfit, and
    would not recover."""
    return _prior(side, None, h, 2)


def biases(cells: Cells | TensorCells, y: jax.Array) -> list[jax.Array]:
    """Regularised biases of each axis, by repeated ridge regressions; y is centred."""
    ones = [jnp.ones((n, 1), y.dtype) for n in cells.shape]

    def step(_: int, found: list[jax.Array]) -> list[jax.Array]:
        for m in reversed(range(len(ones))):
            pairs = zip(found, cells.codes, strict=True)
            rest = y - sum(b[code] for j, (b, code) in enumerate(pairs) if j != m)
            rows = cells.modes[m]
            sums = sparse.spread(rows, rest, others(ones, m, cells))[:, 0]
            found = [*found[:m], sums / (jnp.diff(rows.ptr) + RIDGE), *found[m + 1 :]]
        return found

    begin = [jnp.zeros(n, y.dtype) for n in cells.shape]
    return jax.lax.fori_loop(0, 10, step, begin)


def moments(sides: Sequence[Side], cells: Cells | TensorCells) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of the products at the cells."""
    mean = multiplied([s.mean for s in sides], cells)
    if isinstance(cells, LinkedCells):
        cov = [doubled(s.cov) for s in sides]
        variance = crossed(cov, [half(square(s.mean)) for s in sides], cells)
        return mean, variance + crossed([half(_second(s)) for s in sides], cov, cells)
    variance = jnp.zeros(())
    for m in range(len(sides)):
        first, *rest = _differences(m, sides)
        variance += multiplied([doubled(first), *map(half, rest)], cells)
    return mean, variance


def _differences(m: int, sides: Sequence[Side]) -> list[jax.Array]:
    """Tables whose product is that of the second moments up to m, minus that up to m - 1."""
    return [
        _second(s) if j < m else s.cov if j == m else square(s.mean) for j, s in enumerate(sides)
    ]


def _even(table: jax.Array) -> jax.Array:
    """The symmetric part of a table, which removes rounding errors of an inverse."""
    return (table + jnp.swapaxes(table, -1, -2)) / 2


def _drawn(
    m: int, x: Features | None, cells: Any, key: Any, sides: list[Side], target: Any, weight: Any
) -> Side:
    """The side of mode m at a draw of its rows given the means of the others, as in a Gibbs sweep."""
    side, table, centre = sides[m], others([s.mean for s in sides], m, cells), None
    if x is not None and side.B is not None:
        centre = x.times(side.B)
        pair = (centre, table) if m == 0 else (table, centre)
        target = target - multiplied(pair, cells)
    shift = side.precision @ side.mu
    law = GaussianRows(cells.modes[m], target, table, weight, side.precision, shift, centre)
    return certain(law.sample(key), *side[2:])


def _certain_moments(sides: Sequence[Side], cells: Any) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of the products of rows without variance."""
    mean = multiplied([s.mean for s in sides], cells)
    return mean, jnp.zeros_like(mean)


def _second(side: Side) -> jax.Array:
    return square(side.mean) + side.cov


def _prior(side: Side, x: Features | None, h: Any, count: jax.Array | int) -> Side:
    """mu, Lambda, B and ridge at their modes; the first two sweeps keep the values of the start."""
    (n, K), mean, new = side.mean.shape, side.mean, side
    if x is not None and side.B is not None:
        law = Links(x, mean - side.mu, side.ridge, side.precision)
        B = law.mean
        square = jnp.sum(B @ side.precision * B) + K * law.trace_of_inverse()
        power = h.ridge_shape - 1 + B.size / 2
        new = side._replace(B=B, ridge=power / (h.ridge_rate + square / 2))
        mean = mean - x.times(B)
    mu = mean.sum(0) / (h.beta0 + n)
    away = mean - mu
    own = h.rate * jnp.eye(K, dtype=mu.dtype) + h.beta0 * jnp.outer(mu, mu)
    rate = own + away.T @ away + side.cov.sum(0)
    if new.B is not None and side.ridge is not None:
        rate += side.ridge * new.B.T @ new.B
    new = new._replace(mu=mu, precision=n * inverse(rate))
    return jax.tree.map(lambda old, new: jnp.where(count < 2, old, new), side, new)


def _unchanged(m: int, x: Any, cells: Any, _: Any, sides: list[Side], *rest: Any) -> Side:
    return sides[m]


def _rows(
    m: int, x: Features | None, cells: Any, _: Any, sides: list[Side], target: Any, weight: Any
) -> Side:
    """The normal laws of the rows of mode m, given the means and second moments of the other modes."""
    rows, side = cells.modes[m], sides[m]
    mean = others([s.mean for s in sides], m, cells)
    square = others([half(_second(s)) for s in sides], m, cells)
    precision = side.precision + whole(sparse.spread(rows, weight, square), side.mean.shape[1])
    shift = side.precision @ side.mu + sparse.spread(rows, weight * target, mean)
    if x is not None and side.B is not None:
        shift += x.times(side.B) @ side.precision
    cov = inverse(precision)
    return side._replace(mean=jnp.einsum("nkl,nl->nk", cov, shift), cov=cov)


def _doubt(
    m: int, sides: Sequence[Side], weight: jax.Array, cells: Cells | TensorCells
) -> jax.Array:
    """The mean over cells of their row's sum_j w_ij cov_j: the ridge that the uncertainty of all other modes
    adds to mode m."""
    rows, K = cells.modes[m], sides[m].mean.shape[1]
    count, each = jnp.diff(rows.ptr), jnp.zeros(())
    parts = [_differences(j, sides) for j in range(len(sides)) if j != m]
    if isinstance(cells, LinkedCells):
        parts = [[s.cov for s in sides]]
    for part in parts:
        each += sparse.spread(rows, weight, others([half(table) for table in part], m, cells))
    return whole(count @ each / count.sum(), K)
