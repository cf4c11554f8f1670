"""Extrapolation of fixed-point iterations: SQUAREM, with a safeguard that keeps the objective from rising.

Varadhan & Roland, "Simple and globally convergent methods for accelerating the convergence of any EM
algorithm", Scandinavian Journal of Statistics 2008, scheme S3. From x0, x1 = F(x0) and x2 = F(x1),

    r = x1 - x0,   v = (x2 - x1) - r,   a = -|r| / |v|,   x' = x0 - 2 a r + a^2 v,

and the cycle ends at F(x') if its objective is not above that of x2, else at x2. With a = -1, x' is x2.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from bayesfac.core.method import sites
from bayesfac.inference.result import Job, replace_sites
from bayesfac.inference.unconstrained import supports

# (params, data, reach, sweeps) -> params, reach, the objective there or None if it is not known
Cycle = Callable[[Any, Any, jax.Array, jax.Array], tuple[Any, jax.Array, Any]]


def plain(sweep: Callable[[Any, Any], Any]) -> Cycle:
    """A cycle of sweeps, one after the other."""

    def cycle(p: Any, data: Any, reach: jax.Array, sweeps: jax.Array) -> tuple[Any, jax.Array, None]:
        return jax.lax.fori_loop(0, sweeps, lambda _, p: sweep(p, data), p), reach, None

    return cycle


def lower_bounds(job: Job, p: Any) -> dict[str, float]:
    """The sites whose entries have a lower bound, such as probabilities, and the bound."""
    bounds = {}
    for site, transform in supports(job.method, job.data, job.hyper, p).items():
        support = getattr(transform.codomain, "base_constraint", transform.codomain)
        if type(support).__name__ == "_Simplex":
            bounds[site] = 0.0
        elif hasattr(support, "lower_bound"):
            bounds[site] = support.lower_bound
    return bounds


def extrapolated(
    sweep: Callable[[Any, Any], Any],
    objective: Callable[[Any, Any], tuple[jax.Array, jax.Array]],
    bounds: dict[str, float],
) -> Cycle:
    """A cycle of three sweeps, with an extrapolation between the second and the third.

    `reach` is the largest -a that is tried: four times as large after a cycle that reached it and succeeded, a
    quarter after one that failed.
    """

    def cycle(p: Any, data: Any, reach: jax.Array, sweeps: jax.Array) -> tuple[Any, jax.Array, Any]:
        once = sweep(p, data)
        twice = sweep(once, data)
        r = jax.tree.map(jnp.subtract, once, p)
        v = jax.tree.map(lambda c, b, r: c - b - r, twice, once, r)
        ratio = jnp.sqrt(_squares(r) / jnp.maximum(_squares(v), jnp.finfo(reach.dtype).tiny))
        step = jnp.clip(ratio, 1.0, reach)
        far = jax.tree.map(lambda x, r, v: x + 2 * step * r + step**2 * v, p, r, v)
        third = sweep(_inside(far, twice, bounds), data)
        left, right = objective(third, data), objective(twice, data)
        better = (right[0] - left[0]) + (right[1] - left[1]) >= 0  # False for NaN
        new = jax.tree.map(lambda a, b: jnp.where(better, a, b), (third, left), (twice, right))
        grown = jnp.where(step >= reach, 4 * reach, reach)
        return new[0], jnp.where(better, grown, jnp.maximum(reach / 4, 1.0)), new[1]

    return cycle


def _squares(tree: Any) -> jax.Array:
    return sum(jnp.sum(jnp.square(x)) for x in jax.tree.leaves(tree))  # type: ignore[return-value]


def _inside(far: Any, near: Any, bounds: dict[str, float]) -> Any:
    """The far point; an entry at or beyond the lower bound of its site is taken from the near point."""
    here, there = sites(far), sites(near)
    moved = {s: jnp.where(here[s] > low, here[s], there[s]) for s, low in bounds.items() if s in here}
    return replace_sites(far, moved)
