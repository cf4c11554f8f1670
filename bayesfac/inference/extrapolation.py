"""Extrapolation of fixed-point iterations: SQUAREM, with a safeguard that keeps the objective from rising.

Varadhan & Roland, "Simple and globally convergent methods for accelerating the convergence of any EM
algorithm", Scandinavian Journal of Statistics 2008, scheme S3. From x0, x1 = F(x0) and x2 = F(x1),

    r = x1 - x0,   v = (x2 - x1) - r,   a = -|r| / |v|,   x' = x0 - 2 a r + a^2 v,

and the cycle ends at F(x') if its objective is not above that of x2, else at x2. With a = -1, x' is x2.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import constraints

from bayesfac.core.method import Method, sites
from bayesfac.inference.result import replace_sites
from bayesfac.inference.unconstrained import supports

Value = tuple[jax.Array, jax.Array]  # a number in double precision as the sum of two in single
Bounds = tuple[tuple[str, float, float], ...]


def bounds_of(method: Method, data: Any, hyper: Any, p: Any) -> Bounds:
    """The sites whose entries are bounded, such as probabilities, and the bounds."""
    bounds = {}
    for site, transform in supports(method, data, hyper, p).items():
        support = getattr(transform.codomain, "base_constraint", transform.codomain)
        if support is constraints.simplex:
            bounds[site] = 0.0, math.inf
        elif hasattr(support, "lower_bound"):
            high = getattr(support, "upper_bound", math.inf)
            bounds[site] = float(support.lower_bound), float(high)
    return tuple((site, *ends) for site, ends in bounds.items())


def extrapolated(
    sweep: Callable[[Any, Any], Any],
    objective: Callable[[Any, Any], Value],
    squares: Callable[[Any, Any], jax.Array],
    bounds: Bounds,
    p: Any,
    data: Any,
    reach: jax.Array,
) -> tuple[Any, jax.Array, Value]:
    """Run a cycle of three sweeps, with an extrapolation between the second and the third. Returns the
    parameters, the next reach, and the objective as a sum of two numbers.

    `reach` is the largest -a that is tried. It is multiplied by four after a cycle that used it and
    succeeded, and divided by four after a cycle that failed. `squares(p, data)` is the sum of the squares of
    the parameters. The sweeps are in one loop, so that the program has one copy of the sweep and the
    objective.
    """

    def one_sweep(number: jax.Array, state: tuple) -> tuple:
        now, first, second, value, step = state
        new = sweep(now, data)
        cost = jax.lax.cond(number == 0, lambda: value, lambda: objective(new, data))

        def begin() -> tuple:
            return new, now, new, cost, step

        def leap() -> tuple:
            r = jax.tree.map(jnp.subtract, second, first)
            v = jax.tree.map(lambda c, b, r: c - b - r, new, second, r)
            tiny = jnp.finfo(reach.dtype).tiny
            ratio = squares(r, data) / jnp.maximum(squares(v, data), tiny)
            a = jnp.clip(jnp.sqrt(ratio), 1.0, reach)
            far = jax.tree.map(lambda x, r, v: x + 2 * a * r + a**2 * v, first, r, v)
            return inside(far, new, bounds), first, new, cost, a

        def choose() -> tuple:
            better = (value[0] - cost[0]) + (value[1] - cost[1]) >= 0  # False for NaN
            pairs = (new, cost), (second, value)
            p, kept = jax.tree.map(lambda x, y: jnp.where(better, x, y), *pairs)
            return p, first, second, kept, jnp.where(better, step, -1.0)

        return jax.lax.switch(number, (begin, leap, choose))

    nothing = jnp.zeros((), reach.dtype)
    start = (p, p, p, (nothing, nothing), jnp.ones_like(reach))
    p, _, _, value, step = jax.lax.fori_loop(0, 3, one_sweep, start)
    grown = jnp.where(step >= reach, 4 * reach, reach)
    return p, jnp.where(step > 0, grown, jnp.maximum(reach / 4, 1.0)), value


def inside(far: Any, near: Any, bounds: Bounds) -> Any:
    """The far point, where entries at or beyond a bound of their site are taken from the near point.

    Rows of probabilities then do not sum to one. Rounding has the same effect, multiplied by a large a. The
    next sweep must correct this before it compares anything with such rows.
    """
    here, there, moved = sites(far), sites(near), {}
    for site, low, high in bounds:
        if site in here:
            fine = (here[site] > low) & (here[site] < high)
            moved[site] = jnp.where(fine, here[site], there[site])
    return replace_sites(far, moved)
