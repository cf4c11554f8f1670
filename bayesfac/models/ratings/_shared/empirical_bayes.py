"""The Normal-Wishart sides of users and items for a point fit: see `core/laws/empirical_bayes.py`.

The sweeps start twice: from random factors, and from regularised biases of users and items (`starts`), which
are best for few ratings.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayesfac.core.data.cells import Cells
from bayesfac.core.data.divided.large import LargeRatings
from bayesfac.core.laws import empirical_bayes as bayes
from bayesfac.core.laws.empirical_bayes import RIDGE, Early, Observe, Problem, Side, biases
from bayesfac.models.ratings._shared import links
from bayesfac.models.ratings._shared.normal_wishart import NAMES

# kurtosis about biases above which the noise is chosen (of exponential values 9, of normal ones 3), and the
# candidates, as shares of the variance about biases
RARE, SHARES = 9.0, (0.25, 0.5, 1.0)
SMALL = 0.1  # size of the start's random factors besides the biases
SITES = ("mu_U", "Lambda_U", "mu_V", "Lambda_V")
HELD = (*SITES, *links.SITES)


def estimated(
    starts: list[dict[str, Any]],
    data: Any,
    h: Any,
    own: Any,
    observe: Observe,
    early: Early | None = None,
) -> tuple[dict[str, Any], Any]:
    """The sites of both sides, with scales for a point fit, and the method's own parameters."""
    begun = [[_begin(sides, side) for side in NAMES] for sides in starts]
    sides, own = bayes.estimated(begun, _problem(data, h, observe, early), own)
    return _sites(sides, data), own


def starts(p: Any, data: Any, h: Any, y: jax.Array, a: float) -> list[dict[str, Any]]:
    """The sides of p with random factors, and sides with the biases b and c as their first components.

    u.v is b_i + c_j, from u = (b_i / a, a, ...) and v = (a, c_j / a, ...); b has the mean of y. mu and
    Lambda fit these rows: with a wide prior the first sweeps would overfit, and would not recover.
    """
    cells, sides = data.cells, {name: getattr(p, name) for name in ("U", "V", *SITES, "B", "ridge")}
    if sides["U"].shape[1] < 2:
        return [sides]
    mean = jnp.mean(y)
    b, c = biases(cells, y - mean)
    b = b + mean
    U = (SMALL * sides["U"]).at[:, 0].set(b / a).at[:, 1].set(a)
    V = (SMALL * sides["V"]).at[:, 0].set(a).at[:, 1].set(c / a)
    begun = sides | {"U": U, "V": V}
    user, item = (bayes.fitted(_begin(begun, side), h) for side in NAMES)
    found = dict(zip(SITES, (user.mu, user.precision, item.mu, item.precision), strict=True))
    return [sides, begun | found]


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
    if not free or getattr(hyper, "alpha", None) is not None or isinstance(data, LargeRatings):
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


def _problem(data: Any, h: Any, observe: Observe, early: Early | None) -> Problem:
    return Problem(data.cells, [data.x.get(side) for side in NAMES], h, observe, early)


def _sites(sides: Sequence[Side], data: Any) -> dict[str, Any]:
    user, item = sides
    found: dict[str, Any] = {"U": user.mean, "V": item.mean}
    found |= zip(SITES, (user.mu, user.precision, item.mu, item.precision), strict=True)
    if data.x:
        both = dict(zip(NAMES, sides, strict=True))
        found["B"] = {side: both[side].B for side in data.x}
        found["ridge"] = {side: both[side].ridge for side in data.x}
    return found


def _begin(sides: dict[str, Any], side: str) -> Side:
    more = ((sides[name] or {}).get(side) for name in ("B", "ridge"))
    return bayes.certain(*(sides[name] for name in NAMES[side]), *more)
