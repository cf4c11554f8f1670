"""The point solver: `update` never raises the objective, and ends at a point where its gradient is zero."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints

from bayesfac.core.method import Method, sites
from bayesfac.inference import MAP
from bayesfac.inference.extrapolation import ahead, bounds_of
from bayesfac.inference.unconstrained import constrain, supports, unconstrain
from bayesfac.testing.tools import example, listed, require, run, same, within

NO_UPDATE = "the method has no update: L-BFGS minimises its objective"


@listed
def check_tree(method: Method, key: jax.Array) -> str | None:
    """`update` keeps fields, shapes, dtypes and supports, also from an extrapolated point."""
    case = example(method, key)
    if case.update is None:
        return NO_UPDATE
    start = case.points[0]
    new = case.update(start, case.data)
    kinds = [jax.tree.map(lambda x: (jnp.shape(x), jnp.result_type(x)), p) for p in (start, new)]
    require(kinds[0] == kinds[1], f"update turns {kinds[0]} into {kinds[1]}")
    for name, fine in within(method, new, case.data, case.hyper).items():
        require(fine, f"update leaves the support of {name}")
    maps = supports(method, case.data, case.hyper, start)
    shares = {name for name, own in maps.items() if own.codomain is constraints.simplex}
    far = ahead(new, start, 1.0, bounds_of(method, case.data, case.hyper, start))
    for name, fine in within(method, case.update(far, case.data), case.data, case.hyper).items():
        if name in shares:  # other sites may become NaN; then the engine goes back
            require(fine, f"update from an extrapolated point ends outside the support of {name}")
    return None


@listed
def check_descent(method: Method, key: jax.Array) -> str | None:
    """The objective never rises over 100 updates and falls overall, from any admissible start."""
    case = example(method, key)
    if case.update is None:
        return NO_UPDATE
    for p in (case.start, *case.points[:2]):
        costs = [case.objective(p, case.data)[0]]
        for _ in range(100):
            p = case.update(p, case.data)
            costs.append(case.objective(p, case.data)[0])
        trace = np.asarray(costs)
        require(np.isfinite(trace).all(), "the objective is not finite")
        rise = np.diff(trace) / (1 + np.abs(trace[1:]))
        values = "from {:.12g} to {:.12g}"
        first = (at := int(rise.argmax())) + 1
        told = f"by {rise.max():.3g} (relative) in update {first}, {values.format(*trace[at : at + 2])}"
        require(rise.max() <= 1e-10, f"the objective rose {told}")
        told = f"100 updates did not lower the objective: {values.format(trace[0], trace[-1])}"
        require(trace[-1] < trace[0], told)
    return None


@listed
def check_optimum(method: Method, key: jax.Array) -> str | None:
    """At the end of the solver the gradient in unconstrained coordinates is zero. At an entry of exactly 0,
    the end of a half-line, J must not fall inwards."""
    case = example(method, key)
    p = case.optimum
    transforms = supports(method, case.data, case.hyper, p)

    @jax.jit
    def pulled(free: dict[str, jax.Array], gradient: Any) -> Any:
        return jax.vjp(lambda free: constrain(method, transforms, free), free)[1](gradient)[0]

    slope = pulled(unconstrain(transforms, p), case.objective(p, case.data)[1])
    at = sites(p)
    worst = {}
    for name, g in slope.items():
        support = getattr(transforms[name].codomain, "base_constraint", transforms[name].codomain)
        if support is constraints.positive:
            g = jnp.where(at[name] == 0, jnp.minimum(g, 0), g)
        worst[name] = float(jnp.abs(g).max())
    require(max(worst.values()) < 1e-5, f"the gradient is not zero where the solver stops: {worst}")
    return None


@listed
def check_map(method: Method, key: jax.Array) -> str | None:
    """The gradient engine on the model, started at the solver's optimum, stays there. Zeros at the end of a
    half-line, which it cannot have, begin beside it: then it must end between."""
    case = example(method, key)
    p = case.optimum
    transforms = supports(method, case.data, case.hyper, p)
    beside = constrain(method, transforms, unconstrain(transforms, p))
    engine = MAP(steps=200, learning_rate=1e-4, patience=False)
    final = run(engine, method, case.data, case.hyper, key, p).params
    same(final, p, "MAP leaves the solver's optimum", 1e-3)
    after, low, high = (case.objective(at, case.data)[0] for at in (final, p, beside))
    nearest = jnp.clip(after, jnp.minimum(low, high), jnp.maximum(low, high))
    same(after, nearest, "MAP ends at another objective", 1e-6)
    return None
