"""Precisions of factors for a point fit, by empirical Bayes: see `core/laws/empirical_bayes.py`.

The sweeps start twice: from random factors, and from regularised biases of all axes (`starts`), which are
best for few ratings.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayesfac.core.data.cells import Cells
from bayesfac.core.laws import empirical_bayes as bayes
from bayesfac.core.laws.empirical_bayes import (
    RIDGE,
    Early,
    Evidence,
    Observe,
    Problem,
    Seen,
    Side,
    biases,
)
from bayesfac.parts import factors
from bayesfac.parts.factors import Factor
from bayesfac.parts.precisions import Wishart
from bayesfac.parts.sites import get, put

# kurtosis about biases above which the noise is chosen (of exponential values 9, of normal ones 3), and the
# candidates, as shares of the variance about biases
RARE, SHARES = 9.0, (0.25, 0.5, 1.0)
LEAST = 1e-4  # smallest variance of biases, as a share of that of the scores
TURNS, STEPS = 50, 50  # steps of varimax, and of EM for mixtures
SMALL = 0.1  # size of the start's random factors besides the biases


class Scales(NamedTuple):
    """The settings of empirical Bayes, whatever the priors of the factors are."""

    n_components: Any
    rate: Any
    beta0: Any
    ridge_shape: Any
    ridge_rate: Any


def estimated(
    main: Sequence[Factor], p: Any, data: Any, h: Any, y: jax.Array, unit: float, own: Any,
    observe: Observe, early: Early | None = None, cells: Any = None, scales: Any = None,
    near: bool = False,
) -> tuple[dict[str, Any], Any]:  # fmt: skip
    """{site: value} of factors, with scales for a point fit, and the law's own parameters. `y` are the values
    that scores explain, and `unit` is their standard deviation. `cells` are those of all matrices, if there
    are several. `scales` has the settings of empirical Bayes, if h lacks some. `near`: the rows of p are a
    good start, and no other is tried.

    Precisions may be any matrices on the way. At the end two factors take coordinates in which their
    precisions have the forms of their laws (`formed`); the modes of a tensor have only scales to take, and
    the diagonals that are nearest (`diagonal`).
    """
    x = [data.x.get(f.axis) if f.link else None for f in main]
    problem = Problem(cells or data.cells, x, scales or h, observe, early)
    if near:
        first = [bayes.fitted(side, scales or h) for side in sides_of(main, p, h)]
        sides, own = bayes.from_start(first, problem, own)
    else:
        begun = starts(main, p, data, h, y, unit, scales or h)
        sides, own = bayes.estimated(begun, problem, own)
    if not all(isinstance(f.precision, Wishart) for f in main):
        sides = formed(main, sides, h) if len(main) == 2 else diagonal(main, sides)
    if len(main) == 2 and any(f.mixture for f in main):
        sides = simple(main, sides)
    found: dict[str, Any] = {}
    for f, side in zip(main, sides, strict=True):
        found[f.rows] = side.mean
        found |= {f.mean: side.mu} if f.mean else {}
        if f.precision.site:
            found[f.precision.site] = f.precision.value(side.precision)
        if f.mixture:
            found |= fitted_mixture(put(p, {f.rows: side.mean}), f, h)
        if f.groups(p):
            found |= dict(zip(links(f), (side.B, side.ridge), strict=True))
    return found, own


def formed(main: Sequence[Factor], sides: Sequence[Side], h: Any) -> list[Side]:
    """Two factors in coordinates in which both precisions are diagonal, and equal if none is given.

    With u -> A u and v -> A^-T v all products stay, P becomes A^-T P A^-1, and the precision Q of v becomes
    A Q A'. Let P = L L' and L'Q L = R diag(w) R'. With A = E^-1 R'L' and a diagonal E, P becomes E^2 and Q
    becomes w E^-2. So E^2 = w^(1/2) makes them equal, and a given precision c fixes E^2 = c, or w E^-2 = c.
    """
    one, two = sides
    L = jnp.linalg.cholesky(one.precision)
    w, R = jnp.linalg.eigh(L.T @ two.precision @ L)
    w = jnp.maximum(w, jnp.finfo(w.dtype).tiny)
    given = [None if f.precision.site else 1 / getattr(h, f.precision.sd) ** 2 for f in main]
    if given[0] is not None and given[1] is not None:
        square = jnp.sqrt(w * given[0] / given[1])
    elif given[1] is not None:
        square = w / given[1]
    else:
        square = jnp.sqrt(w) if given[0] is None else jnp.full_like(w, given[0])
    A = (R.T @ L.T) / jnp.sqrt(square)[:, None]
    back = jnp.linalg.solve(L.T, R) * jnp.sqrt(square)  # A^-1

    def turned(side: Side, A: jax.Array, diagonal: jax.Array) -> Side:
        B = None if side.B is None else side.B @ A.T
        new = side._replace(mean=side.mean @ A.T, mu=side.mu @ A.T, B=B)
        return new._replace(precision=jnp.diag(diagonal))

    return [turned(one, A, square), turned(two, back.T, w / square)]


def simple(main: Sequence[Factor], sides: Sequence[Side]) -> list[Side]:
    """Two factors whose rows are rotated by varimax (Kaiser 1958) where one is a mixture, so that many of its
    entries are small. Their coordinates are those in which the precision of the other is a multiple of I."""
    second = bool(main[1].mixture)
    one, two = sides if second else sides[::-1]  # two is the mixture
    root = jnp.sqrt(jnp.diag(one.precision) / jnp.mean(jnp.diag(one.precision)))
    R = varimax(two.mean / root)
    one = one._replace(
        mean=one.mean * root @ R, mu=one.mu * root @ R, precision=R.T @ (one.precision / root**2) @ R,
        B=None if one.B is None else one.B * root @ R,
    )  # fmt: skip
    two = two._replace(mean=two.mean / root @ R)
    return [one, two] if second else [two, one]


def varimax(rows: jax.Array) -> jax.Array:
    """The rotation R at which the squares of entries of rows R vary most, by component."""

    def step(_: Any, R: jax.Array) -> jax.Array:
        x = rows @ R
        left, _, right = jnp.linalg.svd(rows.T @ (x**3 - x * jnp.mean(x**2, 0)))
        return left @ right

    return jax.lax.fori_loop(0, TURNS, step, jnp.eye(rows.shape[1], dtype=rows.dtype))


def fitted_mixture(p: Any, f: Factor, h: Any) -> dict[str, Any]:
    """The precision and the share of a mixture that fit its rows, by EM."""
    start = 1 / (jnp.mean(get(p, f.rows) ** 2, 0) + jnp.finfo(jnp.float32).tiny)
    sites = {f.precision.site: start} | (
        {f.mixture.site: 0.5 + 0 * start} if f.mixture.site else {}
    )

    def step(_: Any, sites: dict[str, Any]) -> dict[str, Any]:
        return {site: factors.of_mixture(site, f, put(p, sites), h).mode for site in sites}

    return jax.lax.fori_loop(0, STEPS, step, sites)


def diagonal(main: Sequence[Factor], sides: Sequence[Side]) -> list[Side]:
    """Modes of a tensor with diagonal precisions, which are the same in all modes.

    Of all normal laws with a diagonal precision, the nearest to N(mu, P^-1) has the variances diag(P^-1), or,
    if it has no mean, the squares of mu more. With u_k -> s_k u_k in each mode, the product of its s_k being
    one, all products stay. So each component gets the geometric mean of its variances in all modes.
    """
    wide = [
        jnp.diag(jnp.linalg.inv(side.precision)) + (0 if f.mean else side.mu**2)
        for f, side in zip(main, sides, strict=True)
    ]
    even = jnp.exp(jnp.mean(jnp.log(jnp.stack(wide)), 0))
    return [
        side._replace(mean=t * side.mean, mu=t * side.mu, precision=jnp.diag(1 / even))
        for side, own in zip(sides, wide, strict=True)
        for t in [jnp.sqrt(even / own)]
    ]


def links(f: Factor) -> tuple[str, str]:
    """The sites of B and ridge of the features of an axis."""
    return (f"{f.link}.{f.axis}", f"{f.ridge}.{f.axis}") if f.link else ("", "")


def sides_of(main: Sequence[Factor], p: Any, h: Any) -> list[Side]:
    """The factors of p."""
    return [
        bayes.certain(get(p, f.rows), f.centre(p) + jnp.zeros(h.n_components), f.P(p, h), *B)
        for f in main
        for B in [(get(p, site) for site in links(f))]
    ]


def starts(
    main: Sequence[Factor], p: Any, data: Any, h: Any, y: jax.Array, unit: float, scales: Any
) -> list[list[Side]]:
    """The factors of p, and factors whose first components are biases of the axes of the data: component m is
    the bias of axis m times a constant of every other axis. Their mean is in the first of them. Factors of
    further axes, which other matrices have, stay small. mu and the precision fit these rows: with a wide
    prior the first sweeps would overfit, and would not recover."""
    sides = sides_of(main, p, h)
    M = len(data.cells.shape)
    a = unit ** (1 / M)
    if h.n_components < M:
        return [sides]
    mean = jnp.mean(y)
    found = biases(data.cells, y - mean)
    found[0] = found[0] + mean
    begun = []
    for m, side in enumerate(sides):
        rows = SMALL * side.mean
        if m < M:
            rows = rows.at[:, :M].set(a).at[:, m].set(found[m] / a ** (M - 1))
        begun.append(
            bayes.fitted(side._replace(mean=rows), scales)._replace(B=side.B, ridge=side.ridge)
        )
    return [sides, begun]


def point(c: Any, p: Any, data: Any, h: Any) -> Any:
    """Params where the point of a composition begins: p, with the scales of priors, the rows and the law's
    own parameters by empirical Bayes. With `scales="joint"`, p itself."""
    if h.scales == "joint":
        return p
    s, seen, found = c.at(h), c.observed.evidence(p, data, h), dict[str, Any]()
    if s.biases:
        seen, found = beside_biases(s.biases, seen, data)
    usual = {"rate": seen.unit, "beta0": 0.01, "ridge_shape": 1.0, "ridge_rate": 0.1}
    scales = Scales(**{name: getattr(h, name, usual.get(name)) for name in Scales._fields})
    given = seen.y, seen.unit, seen.own, seen.observe, seen.early
    rows, known = estimated(s.main, p, data, h, *given, scales=scales)
    sites, share = seen.end(known)
    learned = {f.precision.site for f in s.every}
    scaled = {k: share * v if k in learned else v for k, v in (found | rows).items()}
    return put(p, scaled | sites)


def beside_biases(
    of_biases: Sequence[Factor], seen: Evidence, data: Any
) -> tuple[Evidence, dict[str, Any]]:
    """The evidence for the products alone, given regularised biases; and {site: value} of the biases."""
    found, offsets = dict[str, Any](), jnp.zeros_like(seen.y)
    for f, b in zip(of_biases, biases(data.cells, seen.y - jnp.mean(seen.y)), strict=True):
        found |= {f.rows: b, f.precision.site: 1 / (jnp.mean(b**2) + LEAST * seen.unit**2)}
        offsets += b[data.cells.row if f.axis == "user" else data.cells.col]
    return less(seen, offsets), found


def less(seen: Evidence, offsets: jax.Array) -> Evidence:
    """The evidence for scores less known parts of them."""

    def moved(function: Any) -> Any:
        """The function of what is known, with scores that include the parts, and targets that do not."""

        def alone(known: Any, x: jax.Array, variance: jax.Array) -> Seen:
            new = function(known, x + offsets, variance)
            return new._replace(target=new.target - offsets)

        return alone

    early = None if seen.early is None else moved(seen.early)
    own = {"y": seen.y - offsets, "observe": moved(seen.observe), "early": early}
    return Evidence(**(seen._asdict() | own))


def noise(cells: Cells, y: jax.Array) -> jax.Array:
    """The variance about regularised biases; the number of ratings is reduced by the cost of the biases."""
    rest = _about_biases(cells, y)
    counts = jnp.concatenate([jnp.diff(cells.by_row.ptr), jnp.diff(cells.by_col.ptr)])
    free = len(y) - jnp.sum(counts / (counts + RIDGE))
    return jnp.sum(rest**2) / free


def noise_choices(data: Any, hyper: Any, chosen: Mapping[str, Any]) -> list[dict[str, float]]:
    """Candidates for the prior of the noise, for ratings that are nearly all the same, as 95 % fives.

    With the usual prior, factors explain the rare other ratings in training, and the noise becomes far too
    small. The other candidates hold it near shares of the variance about biases of users and items, by a
    prior that counts twice as much as the ratings.
    """
    free = hyper.alpha_rate is None and hyper.alpha_shape == 1.0 and not chosen
    if not free or getattr(hyper, "alpha", None) is not None or not data.present:
        return []
    if 2 * np.unique(data.value, return_counts=True)[1].max() <= len(data):
        return []
    rest = np.asarray(_about_biases(data.cells, data.y), np.float64)
    variance = (rest**2).mean()
    if not (rest**4).mean() > RARE * variance**2:
        return []
    usual, n = {"alpha_shape": 1.0, "alpha_rate": data.spread**2}, float(len(data))
    return [
        usual,
        *({"alpha_shape": n, "alpha_rate": n * float(variance) * share} for share in SHARES),
    ]


@jax.jit
def _about_biases(cells: Cells, y: jax.Array) -> jax.Array:
    """The ratings less their mean and regularised biases."""
    y = y - jnp.mean(y)
    b, c = biases(cells, y)
    return y - b[cells.row] - c[cells.col]
