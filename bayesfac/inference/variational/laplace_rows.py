"""Laplace's approximation row by row: a normal distribution for each row, from the curvature at the point.

If factors may rotate, the curvature of all parameters together is zero in some directions. The block of one
row, given all other rows, has no such direction, because a rotation turns all rows at once. A block contains
the parameters of all sites that share their first axes. In `mmmf`, for example, these are the factors and
the thresholds of a user.

Blocks ignore correlations between rows. To correct this on average, all standard deviations are multiplied by
one factor, which is computed from the predictions at the probe cells by linear response
(`core/laws/response.py`). Linear response uses the curvature of all rows. Flat directions do no harm there,
because they do not change predictions.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from numpyro.distributions import constraints

from bayesfac.core.errors import NumericalError
from bayesfac.core.kernels import sparse
from bayesfac.core.laws import response
from bayesfac.core.method import Method, from_sites, site_dims, sites
from bayesfac.inference.fixed_point import FixedPoint
from bayesfac.inference.gradient import LBFGS
from bayesfac.inference.result import Job, Result, log_joints, program, require
from bayesfac.inference.standstill import probed
from bayesfac.inference.unconstrained import supports

LARGEST = 64  # numbers of a block
STEEP = 0.1  # of a standard deviation: how far off the minimum may seem to be, on average
SOLVERS: dict[str, Any] = {"FixedPoint": FixedPoint, "LBFGS": LBFGS}
Tables = dict[str, jax.Array]


def run(engine: Any, job: Job) -> Result:
    """The solver's point, and draws from the normal distribution of every row about this point."""
    folder = None if engine.folder is None else f"{engine.folder}/point"
    solver = SOLVERS[job.method.default_engine](folder=folder, save_every=engine.save_every)
    point = solver.run(replace(job, identity=f"{job.identity} point"))
    if point.partial:
        return point
    free = free_sites(job, point.params)
    if job.probe is None:
        raise ValueError("Expected cells at which widths are compared: fit with bf.fit")
    key = jax.random.fold_in(job.key, 1)
    known = job.data, job.method, job.hyper, free, engine.draws
    drawn, factor, steep = program(_drawn, *known)(point.params, key, job.data, job.probe)
    require(
        not float(steep) >= STEEP,  # NaN is left to the next check
        f"Expected a smooth minimum for guide='blocks', got a point from which the minimum of "
        f"{job.method.name} seems {float(steep):.2g} standard deviations away: its loss bends sharply "
        "there, or the solver has not converged",
    )
    if not np.isfinite(float(factor)):
        raise NumericalError(
            f"{job.method.name} has rows whose curvature is not positive at the point, which is no "
            "minimum: take more iterations, or bf.NUTS()"
        )
    one = sites(point.params)
    draws = {s: np.broadcast_to(np.asarray(x), (engine.draws, *x.shape)) for s, x in one.items()}
    draws = {s: np.asarray(drawn.get(s, x))[None] for s, x in draws.items()}
    stats = {"lp": log_joints(job, draws)}
    notes = [*point.notes, *response.told(float(factor), "their blocks say")]
    return replace(point, params=None, draws=draws, stats=stats, notes=notes)


def free_sites(job: Job, p: Any) -> tuple[str, ...]:
    """The sites that the solver fits; each must be of real numbers, in rows that are not too long."""
    held = job.method.solver.held(job.hyper)
    transforms = supports(job.method, job.data, job.hyper, p)
    free = tuple(s for s in sites(p) if s.partition(".")[0] not in held and s in transforms)
    instead = "bf.VB() or bf.NUTS()" if job.method.variational else "bf.NUTS()"
    for site in free:
        support = transforms[site].codomain
        require(
            getattr(support, "base_constraint", support) is constraints.real,
            f"Expected sites of real numbers for guide='blocks', got {site} of {job.method.name}, whose "
            f"numbers have bounds: take {instead}",
        )
    for names in groups(job.method, free):
        size = sum(np.shape(sites(p)[s])[-1] for s in names)
        require(
            size <= LARGEST,
            f"Expected rows of at most {LARGEST} numbers for guide='blocks', got {size} in {names}",
        )
    return free


def groups(method: Method, free: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Sites that share all axes but their last."""
    found: dict[tuple[str, ...], list[str]] = {}
    for site in free:
        found.setdefault(site_dims(method, site)[:-1], []).append(site)
    return [tuple(names) for names in found.values()]


def _drawn(
    method: Method,
    hyper: Any,
    free: tuple[str, ...],
    count: int,
    p: Any,
    key: jax.Array,
    data: Any,
    query: Any,
) -> tuple[Tables, jax.Array, jax.Array]:
    """Draws of the free sites, the factor of their standard deviations, and the size of the gradient."""
    every = sites(p)
    at = {site: every[site] for site in free}
    signs, probes, noise = jax.random.split(key, 3)

    def there(x: Tables) -> Any:
        return from_sites(method, every | x)

    def slope(x: Tables) -> Tables:
        return jax.grad(lambda x: method.objective(there(x), data, hyper))(x)

    def times(d: Tables) -> Tables:
        return jax.grad(lambda x: response.dot(slope(x), d))(at)

    def probe(key: jax.Array) -> Tables:
        def total(x: Tables) -> jax.Array:
            mean = probed(method, hyper, there(x), data, query)
            return jnp.sum(jax.random.rademacher(key, mean.shape, mean.dtype) * mean)

        return jax.grad(total)(at)

    with sparse.use("jax"):  # the form of the loops that has second derivatives
        roots = {names: _root(times, at, names, signs) for names in groups(method, free)}

        def smoothed(d: Tables) -> Tables:
            return _by_rows(roots, d, lambda L, x: _solved(L, _solved(L, x), 1))

        factor = response.factor(probes, times, smoothed, probe)
        down = slope(at)
    size = sum(x.size for x in at.values())
    steep = jnp.sqrt(response.dot(down, smoothed(down)) / size)

    def one(key: jax.Array) -> Tables:
        keys = dict(zip(free, jax.random.split(key, len(free)), strict=True))
        z = {s: factor * jax.random.normal(keys[s], x.shape, x.dtype) for s, x in at.items()}
        return jax.tree.map(jnp.add, at, _by_rows(roots, z, lambda L, x: _solved(L, x, 1)))

    return jax.lax.map(one, jax.random.split(noise, count)), factor, steep


def _root(times: Any, at: Tables, names: tuple[str, ...], key: jax.Array) -> jax.Array:
    """The Cholesky factors of the blocks of these sites.

    Two rows of one group have no joint term in the objective, so that one product with the curvature gives a
    column of all blocks at once. If they have joint terms, random signs make their mean effect zero.
    """
    widths = [at[site].shape[-1] for site in names]
    batch = at[names[0]].shape[:-1]
    signs = jax.random.rademacher(key, batch, at[names[0]].dtype)[..., None]
    zero = jax.tree.map(jnp.zeros_like, at)

    def column(unit: jax.Array) -> jax.Array:
        parts = jnp.split(unit, np.cumsum(widths)[:-1])
        d = {s: signs * jnp.broadcast_to(x, at[s].shape) for s, x in zip(names, parts, strict=True)}
        found = times(zero | d)
        return signs * jnp.concatenate([found[s] for s in names], -1)

    block = jnp.moveaxis(jax.lax.map(column, jnp.eye(sum(widths), dtype=signs.dtype)), 0, -1)
    return jnp.linalg.cholesky((block + jnp.swapaxes(block, -1, -2)) / 2)


def _by_rows(roots: Mapping[tuple[str, ...], jax.Array], d: Tables, function: Any) -> Tables:
    """A function of the root and the row of every block."""
    found: Tables = {}
    for names, L in roots.items():
        row = function(L, jnp.concatenate([d[site] for site in names], -1))
        parts = jnp.split(row, np.cumsum([d[site].shape[-1] for site in names])[:-1], -1)
        found |= dict(zip(names, parts, strict=True))
    return found


def _solved(L: jax.Array, x: jax.Array, trans: int = 0) -> jax.Array:
    return solve_triangular(L, x[..., None], lower=True, trans=trans)[..., 0]
