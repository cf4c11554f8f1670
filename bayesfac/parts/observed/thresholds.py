"""Thresholds of ordinal scales, shared or separate for each user, for any score x of a rating.

    P(y_ij <= r) = F((theta_ir - x_ij) / s_i),   F the normal or the logistic distribution function

t_i = (theta_i1, log(theta_i2 - theta_i1), ...), the free coordinates of theta_i, are normal about `centre`
with standard deviations (scale_shift, scale_gap, ...), and `centre` is normal about thresholds one apart.
Params has `centre` and `theta`, which is None if thresholds are shared. `hyper` has link, thresholds,
levels, scale_shift and scale_gap.

s_i is 1, or a spread of each user where `hyper` has scale_spread: log s_i ~ N(0, scale_spread^2) is then in
`log_spread` of Params.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfac.core import checks
from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.data.divided.large import Summary
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.errors import BayesfacError
from bayesfac.core.laws import cuts, ordinal
from bayesfac.core.laws.cuts import rising
from bayesfac.core.laws.empirical_bayes import Early, Seen, as_normal
from bayesfac.core.laws.ordinal import (
    Between,
    Levels,
    averaged,
    codes,
    log_between,
    of_users_at,
)
from bayesfac.core.math import expectation, metropolis, row_sums, total

DIMS = {"centre": ("threshold",), "theta": ("user", "threshold")}
SPREAD = {"log_spread": ("user",)}
NODES = 4  # of quadratures


def stepped(p: Any, x: jax.Array, data: Ratings, hyper: Any) -> Any:
    """Move thresholds a step towards the mode of their free coordinates given x, and `centre` to its mode."""
    t = p.centre[None] if p.theta is None else rising.inv(p.theta)

    def density(t: jax.Array) -> jax.Array:
        q = p._replace(centre=t[0]) if p.theta is None else p._replace(theta=rising(t))
        return jnp.sum(log_likelihood(q, x, data, hyper)) - energy(q, hyper)

    t = t + jax.grad(density)(t) / bend(t, p, data, hyper)
    if p.theta is None:
        return p._replace(centre=t[0])
    (c, s), n = population(hyper), len(t)
    return p._replace(theta=rising(t), centre=(c + t.sum(0) / s**2) / (1 + n / s**2))


def bend(t: jax.Array, p: Any, data: Ratings, hyper: Any) -> jax.Array:
    """A bound on the second derivative of the log density of each row's free coordinates, (rows, R - 1).

    The first coordinate moves all thresholds; the logarithm of a gap moves all thresholds above the gap.
    """
    shared, R = p.theta is None, len(hyper.levels)
    above = (codes(data)[:, None] >= jnp.arange(R - 1)).astype(data.y.dtype) * weights(p, data)
    count = above.sum(0)[None] if shared else row_sums(data.cells.by_row, above)
    reach = jnp.concatenate([jnp.ones_like(t[:, :1]), jnp.exp(t[:, 1:])], 1)
    prior = jnp.ones(R - 1) if shared else population(hyper)[1] ** -2.0
    return prior + (R - 1) / 2 * reach**2 * count


def population(hyper: Any) -> tuple[jax.Array, jax.Array]:
    """The prior mean of `centre`: thresholds one apart about zero; and the sds of users about `centre`."""
    R = len(hyper.levels)
    return cuts.middle(R), jnp.array([hyper.scale_shift] + [hyper.scale_gap] * (R - 2))


def limits(p: Any, data: Ratings) -> tuple[jax.Array, jax.Array]:
    """The thresholds below and above each rating, -inf and inf at the ends."""
    table = ordinal.edges(rising(p.centre)[None] if p.theta is None else p.theta)
    row, code = 0 if p.theta is None else data.cells.row, codes(data)
    return table[row, code], table[row, code + 1]


def spreads(p: Any) -> Any:
    """log s of every user, of a variational law its point; None if s is 1."""
    g = getattr(p, "log_spread", None)
    return g["point"] if isinstance(g, dict) else g


def inverse_spread(p: Any, cells: Any) -> Any:
    """1 / s of the user of each cell."""
    g = spreads(p)
    return 1.0 if g is None else jnp.exp(-g)[cells.row]


def in_units(edge: jax.Array, inverse: Any) -> jax.Array:
    """The edge times 1 / s; the derivative by 1 / s is 0 where the edge is infinite."""
    return jnp.where(jnp.isinf(edge), edge, inverse * jnp.where(jnp.isinf(edge), 0, edge))


def weights(p: Any, data: Ratings) -> Any:
    """1 / s^2 of the user of each rating, as a column."""
    inverse = inverse_spread(p, data.cells)
    return 1.0 if isinstance(inverse, float) else inverse[:, None] ** 2


def log_likelihood(p: Any, x: jax.Array, data: Ratings, hyper: Any) -> jax.Array:
    """The log probability of every rating, given its score x."""
    (low, high), inverse = limits(p, data), inverse_spread(p, data.cells)
    return log_between(in_units(low - x, inverse), in_units(high - x, inverse), hyper.link)


def energy(p: Any, hyper: Any) -> jax.Array:
    """Minus the log density of the free coordinates and of spreads, without constants."""
    (c, s), g = population(hyper), spreads(p)
    own = 0.0 if p.theta is None else jnp.sum(((rising.inv(p.theta) - p.centre) / s) ** 2)
    own += 0.0 if g is None else jnp.sum((g / hyper.scale_spread) ** 2)
    return 0.5 * (own + jnp.sum((p.centre - c) ** 2))


def moved(key: jax.Array, p: Any, x: jax.Array, data: Ratings, hyper: Any) -> Any:
    """Metropolis steps of the free coordinates, with latent normals integrated out; then a Gaussian draw of
    `centre`."""
    shared = p.theta is None
    (c, s), R = population(hyper), len(hyper.levels)
    used = jax.nn.one_hot(codes(data), R, dtype=x.dtype) * weights(p, data)
    if shared:
        count = jax.vmap(lambda level: total(level, data.cells), 1)(used)[None]
    else:
        count = row_sums(data.cells.by_row, used)
    prior = jnp.ones(R - 1) if shared else s**-2.0
    step = 1.7 / jnp.sqrt((prior + 0.3 * (count[:, 1:] + count[:, :-1])) * (R - 1))

    def density(t: jax.Array) -> jax.Array:
        if shared:
            q = p._replace(centre=t[0])
            fit = total(log_likelihood(q, x, data, hyper), data.cells)
            return (fit - energy(q, hyper))[None]
        each = log_likelihood(p._replace(theta=rising(t)), x, data, hyper)
        fit = row_sums(data.cells.by_row, each)
        return fit - 0.5 * jnp.sum(((t - p.centre) / s) ** 2, 1)

    walk, rest = jax.random.split(key)
    t = metropolis(walk, p.centre[None] if shared else rising.inv(p.theta), step, density, times=2)
    if shared:
        return p._replace(centre=t[0])
    precision = 1 + len(t) / s**2
    mean = (c + t.sum(0) / s**2) / precision
    centre = mean + jax.random.normal(rest, mean.shape, mean.dtype) / precision**0.5
    return p._replace(theta=rising(t), centre=centre)


# -- spreads of users --------------------------------------------------------------------------------------
def of_users(
    p: Any, x: jax.Array, data: Ratings, hyper: Any, variance: Any = None
) -> Callable[[jax.Array], jax.Array]:
    """The log density of every user's log s, a column, given the scores; latent normals are integrated out.
    With a variance of the scores, its expectation."""

    def density(g: jax.Array) -> jax.Array:
        fit = partial(log_likelihood, p._replace(log_spread=g[:, 0]), data=data, hyper=hyper)
        each = fit(x) if variance is None else expectation(fit, x, variance, NODES)
        return row_sums(data.cells.by_row, each) - 0.5 * (g[:, 0] / hyper.scale_spread) ** 2

    return density


def curvature(p: Any, x: jax.Array, data: Ratings, hyper: Any) -> jax.Array:
    """About the most that the second derivative of `of_users` is below zero: 1 and twice the square of the
    distance to the own thresholds for every rating."""
    low, high = limits(p, data)
    away = jnp.maximum(jnp.maximum(low - x, x - high), 0) * inverse_spread(p, data.cells)
    return hyper.scale_spread**-2.0 + row_sums(data.cells.by_row, 1 + 2 * away**2)[:, None]


def narrowed(p: Any, x: jax.Array, variance: jax.Array, data: Ratings, hyper: Any) -> Any:
    """Move spreads a step towards the best ones for scores with this mean and variance.

    Scores alone would leave too little: they are near the ratings that the rows were fitted to.
    """
    if spreads(p) is None:
        return p
    g, density = p.log_spread[:, None], of_users(p, x, data, hyper, variance)
    slope = jax.grad(lambda g: jnp.sum(density(g)))(g)
    return p._replace(log_spread=(g + slope / curvature(p, x, data, hyper))[:, 0])


def respread(key: jax.Array, p: Any, x: jax.Array, data: Ratings, hyper: Any) -> Any:
    """Metropolis steps of every user's log s."""
    count = row_sums(data.cells.by_row, jnp.ones_like(x))
    step = 1.7 / jnp.sqrt(hyper.scale_spread**-2.0 + count)[:, None]
    g = metropolis(key, p.log_spread[:, None], step, of_users(p, x, data, hyper), times=2)
    return p._replace(log_spread=g[:, 0])


def scaled(p: Any, t: jax.Array) -> tuple[Any, jax.Array]:
    """Multiply all thresholds by e^t; also return the log Jacobian. The logarithms of gaps grow by t."""
    first = jnp.arange(len(p.centre)) == 0
    centre = jnp.where(first, jnp.exp(t) * p.centre, p.centre + t)
    if p.theta is None:
        return p._replace(centre=centre), t
    return p._replace(centre=centre, theta=jnp.exp(t) * p.theta), t * (1 + len(p.theta))


def objective(p: Any, x: jax.Array, data: Ratings, hyper: Any) -> jax.Array:
    """Minus the log density of ratings and thresholds; the last term is the Jacobian of the free
    coordinates."""
    cost = energy(p, hyper) - total(log_likelihood(p, x, data, hyper), data.cells)
    if p.theta is None or p.theta.shape[1] == 1:
        return cost  # with a single threshold there are no gaps
    return cost + jnp.sum(rising.inv(p.theta)[:, 1:])


# -- the start -------------------------------------------------------------------------------------------
def quantiles(data: Ratings, hyper: Any) -> dict[str, Any]:
    """Set `centre` to the normal quantiles of the levels' shares, and `theta` to the same for every user."""
    centre = cuts.begin(numbers_of_levels(data))
    theta = jnp.tile(rising(centre), (data.n_users, 1)) if hyper.thresholds == "user" else None
    found = {"centre": centre, "theta": theta}
    own = hasattr(hyper, "scale_spread")
    return found | ({"log_spread": jnp.zeros(data.n_users)} if own else {})


def numbers_of_levels(data: Any) -> jax.Array:
    """How many ratings have each level."""
    if isinstance(data.value, Summary):  # of ratings read in shares
        return jnp.asarray(data.value.of_level)
    return jnp.bincount(codes(data), length=len(data.levels))


def own(p: Any) -> dict[str, jax.Array]:
    """The sites of this module."""
    return {s: value for s in DIMS | SPREAD if (value := getattr(p, s, None)) is not None}


def observer(p: Any, data: Ratings, hyper: Any) -> Any:
    """`observe(own, x, variance)` of empirical Bayes. In every sweep the free coordinates of thresholds take
    a preconditioned step."""

    def observe(known: dict, x: jax.Array, variance: jax.Array) -> Seen:
        q = stepped(narrowed(p._replace(**known), x, variance, data, hyper), x, data, hyper)
        each = partial(log_likelihood, q, data=data, hyper=hyper)
        new = {site: getattr(q, site) for site in known}
        return Seen(new, *as_normal(each, x, variance), -each(x))

    return observe


def as_values(y: jax.Array) -> Early:
    """Change targets and weights to those of normal values y, in units of their noise about the scores.

    With random factors, latent values between thresholds say little. If most ratings have the same level,
    factors would stay small.
    """
    y = y - jnp.mean(y)

    def changed(seen: Seen, x: jax.Array, variance: jax.Array) -> Seen:
        # the unit u with E (u y - x)^2 = 1, where x has this variance
        square, both = jnp.mean(y**2), jnp.mean(y * x)
        rest = jnp.var(x) + jnp.mean(variance) - 1
        unit = (both + jnp.sqrt(jnp.maximum(both**2 - square * rest, 0))) / square
        return seen._replace(target=unit * y, weight=jnp.ones_like(y))

    return changed


# -- the model and predictions ------------------------------------------------------------------------------
def likelihood(x: jax.Array, theta: jax.Array, hyper: Any, inverse: Any = 1.0) -> Levels:
    """The levels at scores x and thresholds theta, where `inverse` is 1 / s."""
    edges = in_units(ordinal.edges(theta) - x[..., None], jnp.expand_dims(inverse, -1))
    return Levels(hyper.levels, log_between(edges[..., :-1], edges[..., 1:], hyper.link))


def sample(x: jax.Array, data: Ratings, hyper: Any) -> None:
    """Sample thresholds and spreads, and the ratings with scores x."""
    (c, s), inverse = population(hyper), jnp.ones(())
    centre = numpyro.sample("centre", dist.Normal(c, 1).to_event(1))
    theta = rising(centre)
    if hyper.thresholds == "user":
        free = dist.Normal(centre, s).to_event(1)
        with numpyro.plate("user", data.n_users):
            each = numpyro.sample("theta", dist.TransformedDistribution(free, rising))
        theta = each[data.cells.row]
    if hasattr(hyper, "scale_spread"):
        with numpyro.plate("user", data.n_users):
            g = numpyro.sample("log_spread", dist.Normal(0.0, hyper.scale_spread))
        inverse = jnp.exp(-g)[data.cells.row]
    with numpyro.plate("cell", data.cells.row.shape[0]):
        numpyro.sample("rating", likelihood(x, theta, hyper, inverse), obs=data.y)


def predicted(p: Any, query: Query | Grid, hyper: Any, x: Callable[[Any], tuple], K: int) -> Levels:
    """The levels at `x(cells)`, which is what `products` returns, for rows of K numbers; the choice is the
    median. Parameters of new users (with thresholds) and of new items are drawn from their priors."""
    R = len(hyper.levels)
    sd, g = population(hyper)[1], spreads(p)

    def law(cells: Query | Grid) -> tuple:
        mean, at = x(cells)

        def theta(shift: jax.Array | float) -> jax.Array:
            if p.theta is None:
                return rising(p.centre)
            return of_users_at(p.theta, cells, rising(p.centre + sd * shift))

        def inverse(shift: jax.Array | float) -> Any:
            if g is None:
                return 1.0
            of_new = jnp.exp(-hyper.scale_spread * shift)
            return of_users_at(jnp.exp(-g)[:, None], cells, of_new)[..., 0]

        def levels(point: jax.Array) -> Levels:
            shift, last = point[K + 1 : K + R], point[-1]
            return likelihood(at(point[: K + 1]), theta(shift), hyper, inverse(last))

        return likelihood(mean, theta(0.0), hyper, inverse(0.0)), levels

    return averaged(law, K + R + (g is not None), query)


def augmented(p: Any, x: jax.Array, data: Ratings, hyper: Any, name: str) -> Between:
    """The latent normal of each rating about its score, restricted to lie between its thresholds, in units
    of its user's spread."""
    if hyper.link != "probit":
        raise BayesfacError(
            f"{name} has Gibbs for link='probit' only: use NUTS for link='logistic'"
        )
    (low, high), inverse = limits(p, data), inverse_spread(p, data.cells)
    return Between(inverse * x, inverse * low, inverse * high, data.cells)


def checked(hyper: Any) -> None:
    """Refuse settings of thresholds that have no meaning."""
    checks.positive(hyper, "scale_shift", "scale_gap")
    checks.one_of(hyper, "link", ("probit", "logistic"))
    checks.one_of(hyper, "thresholds", ("user", "shared"))
    if hasattr(hyper, "scale_spread"):
        checks.positive(hyper, "scale_spread")
