"""The record of a method, and the agreement of its solver and its model."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import Predictive

from bayesfac.core.method import (
    Method,
    from_sites,
    gauge_of,
    log_joint,
    moved_sites,
    site_dims,
    sites,
)
from bayesfac.inference import LBFGS, FixedPoint
from bayesfac.inference.joint import hidden, observed
from bayesfac.testing.tools import axes, example, listed, require, run, same, within


@listed
def check_structure(method: Method, key: jax.Array) -> str | None:
    """The record is complete: it names every axis of every site, and all its names exist."""
    case = example(method, key)
    data, hyper = case.data, case.hyper
    require(isinstance(data, method.data), f"example gives {type(data)}, data says {method.data}")
    require(method.cite and method.name.islower(), "no citation, or a name that is not snake_case")
    require(
        all(method.notes.traits.values()),
        f"a trait is declared without a reason: {method.notes.traits}",
    )
    again = method.prepare(data, hyper)
    require(again == hyper, f"prepare changes what it completed: {again}, not {hyper}")
    p = sites(case.start)
    sizes = axes(data)
    for name, value in p.items():
        named = site_dims(method, name)
        require(len(named) == jnp.ndim(value), f"{name} has shape {jnp.shape(value)}, axes {named}")
        for axis, size in zip(named, jnp.shape(value), strict=True):
            require(sizes.setdefault(axis, size) == size, f"axis {axis} of {name} has size {size}")
    turned = {site for free in gauge_of(method, p) for site in moved_sites(free)}
    unknown = turned - set(p)
    unknown |= set(method.gibbs.conditionals) - set(method.Params._fields)
    require(not unknown, f"the record names sites that do not exist: {sorted(unknown)}")
    return None


@listed
def check_sites(method: Method, key: jax.Array) -> str | None:
    """The model's latent sites are the fields of Params, of the same shapes and with `init` in their
    supports; observed sites are called `rating` or `view.NAME`, as the container fills them."""
    case = example(method, key)
    data, hyper, p = case.data, case.hyper, sites(case.start)
    free: dict[str, Any] = {}

    def trace(key: jax.Array) -> None:
        seeded = numpyro.handlers.seed(method.model, key)
        free.update(numpyro.handlers.trace(seeded).get_trace(data, hyper))

    jax.eval_shape(trace, key)  # names and shapes; nothing is sampled
    sampled = {name: site for name, site in free.items() if site["type"] == "sample"}
    # Unit: a factor of the joint
    sampled = {n: site for n, site in sampled.items() if not isinstance(site["fn"], dist.Unit)}
    latent = {name: jnp.shape(s["value"]) for name, s in sampled.items() if not s["is_observed"]}
    mine = {name: jnp.shape(value) for name, value in p.items()}
    require(latent == mine, f"the model samples {latent}, Params has {mine}")
    seen = set(sampled) - set(latent)
    require(seen, "the model observes nothing")
    require(all(map(observed, seen)), f"observed sites are rating or view.NAME, not {sorted(seen)}")
    for name, inside in within(method, case.start, data, hyper).items():
        require(inside, f"init leaves the support of {name}")
    return None


@listed
def check_joint(method: Method, key: jax.Array) -> str | None:
    """The sum of the objective and the log joint is the same at five points."""
    case = example(method, key)
    several = [(case.objective(p, case.data)[0], case.joint(p, case.data)[0]) for p in case.points]
    cost, density = map(np.asarray, zip(*several, strict=True))
    worst = np.ptp(cost + density) / (1 + np.abs(cost).max())
    told = f"{cost} + {density} = {cost + density}"
    require(
        worst <= 1e-9, f"objective + log joint is not constant, but varies by {worst:.3g}: {told}"
    )
    return None


@listed
def check_parts(method: Method, key: jax.Array) -> str | None:
    """The parts of a method have the J and the model that its file states: both differ by constants."""
    if method.parts is None:
        return "the method is not made of parts"
    case = example(method, key)
    made, given = replace(method, model=method.parts.model), (case.data, case.hyper)
    joint = jax.jit(lambda p: log_joint(made, p, *given))
    J = jax.jit(lambda p: method.parts.objective(p, *given))
    stated = [(case.objective(p, case.data)[0], case.joint(p, case.data)[0]) for p in case.points]
    for what, mine, parts in (
        ("objective", [cost for cost, _ in stated], [J(p) for p in case.points]),
        ("model", [density for _, density in stated], [joint(p) for p in case.points]),
    ):
        worst = np.ptp(np.subtract(mine, parts)) / (1 + np.abs(mine).max())
        told = f"{np.array(mine)} and {np.array(parts)}"
        require(worst <= 1e-9, f"the {what} and that of the parts differ by {worst:.3g}: {told}")
    return None


@listed
def check_slopes(method: Method, key: jax.Array) -> str | None:
    """Along the line between two feasible points the objective and minus the log joint have the same
    slope, and differences of the objective's values show the same slope."""
    case = example(method, key)
    p, q = case.points[:2]
    ahead = jax.tree.map(lambda a, b: b - a, p, q)

    def at(t: float) -> Any:
        return jax.tree.map(lambda a, b: a + t * b, p, ahead)

    def slope(gradient: Any) -> jax.Array:
        return sum(map(jnp.vdot, *map(jax.tree.leaves, (gradient, ahead))), jnp.zeros(()))

    cost, density = (slope(f(at(0.5), case.data)[1]) for f in (case.objective, case.joint))
    same(cost, -density, "slopes of the objective and of the log joint", 1e-8)
    # without the third derivative, which is large where a prior has a narrow peak
    near, far = (
        case.objective(at(0.5 + t), case.data)[0] - case.objective(at(0.5 - t), case.data)[0]
        for t in (1e-5, 2e-5)
    )
    same(cost, (8 * near - far) / 12e-5, "the objective's gradient and its own differences", 1e-6)
    return None


@listed
def check_prior(method: Method, key: jax.Array) -> str | None:
    """A fit to data drawn from the model runs and descends."""
    if why := method.notes.traits.get("no_prior_predictive"):
        return why
    case = example(method, key)
    data, hyper = case.data, case.hyper
    draws = Predictive(method.model, num_samples=2)(key, hidden(method, data), hyper)
    names = set(sites(case.start))
    drawn = {name: value[0] for name, value in draws.items() if name not in names and value.size}
    for name in drawn:
        require(jnp.isfinite(draws[name]).all(), f"the prior predictive of {name} is not finite")
        require(jnp.any(draws[name][0] != draws[name][1]), f"{name} is not sampled when hidden")
    truth = from_sites(method, {name: draws[name][0] for name in names})
    filled = data.fill(drawn)
    hyper = method.prepare(filled, hyper)
    cost = jax.jit(lambda p: method.objective(p, filled, hyper))(truth)
    require(
        jnp.isfinite(cost), "the objective is infinite at the parameters that generated the data"
    )
    solver = FixedPoint(max_iter=30) if method.solver.update else LBFGS(max_iter=30)
    result = run(solver, method, filled, hyper, key, None)
    require(result.trace[-1] < result.trace[0], "a fit to data from the prior does not descend")
    return None
