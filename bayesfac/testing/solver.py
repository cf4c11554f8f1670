"""The point solver: it descends, and stops where the model's own gradient says so."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayesfac.core.method import Method
from bayesfac.inference import MAP
from bayesfac.inference.unconstrained import constrain, supports, unconstrain
from bayesfac.testing.tools import listed, optimum, points, require, run, same, within

NO_UPDATE = "the gradient engine solves it"


@listed
def check_tree(method: Method, key: jax.Array) -> str | None:
    """`update` keeps fields, shapes, dtypes and supports."""
    update = method.update
    if update is None:
        return NO_UPDATE
    data, hyper = method.example(key)
    start = points(method, key, data, hyper, 1)[0]
    new = jax.jit(lambda p: update(p, data, hyper))(start)
    kinds = [jax.tree.map(lambda x: (jnp.shape(x), jnp.result_type(x)), p) for p in (start, new)]
    require(kinds[0] == kinds[1], f"update turns {kinds[0]} into {kinds[1]}")
    for name, inside in within(method, new, data, hyper).items():
        require(inside, f"update leaves the support of {name}")
    return None


@listed
def check_descent(method: Method, key: jax.Array) -> str | None:
    """The objective never rises over 100 updates and falls overall, from any admissible start."""
    update = method.update
    if update is None:
        return NO_UPDATE
    data, hyper = method.example(key)

    @jax.jit
    def descend(start: Any) -> jax.Array:
        def step(p: Any, _: None) -> tuple[Any, jax.Array]:
            p = update(p, data, hyper)
            return p, method.objective(p, data, hyper)

        trace = jax.lax.scan(step, start, None, length=100)[1]
        return jnp.append(method.objective(start, data, hyper), trace)

    for start in (method.init(key, data, hyper), *points(method, key, data, hyper, 2)):
        trace = np.asarray(descend(start))
        require(np.isfinite(trace).all(), "the objective is not finite")
        rise = np.diff(trace) / (1 + np.abs(trace[1:]))
        told = f"the objective rose by {rise.max():.3g} (relative) in update {rise.argmax() + 1}"
        require(rise.max() <= 1e-10, told)
        require(trace[-1] < trace[0], "100 updates did not lower the objective")
    return None


@listed
def check_optimum(method: Method, key: jax.Array) -> str | None:
    """Where the solver stands still, the gradient in unconstrained coordinates is zero."""
    data, hyper = method.example(key)
    p = optimum(method, key, data, hyper)
    transforms = supports(method, data, hyper, p)

    def objective(free: dict[str, jax.Array]) -> jax.Array:
        return method.objective(constrain(method, transforms, free), data, hyper)

    slope = jax.jit(jax.grad(objective))(unconstrain(transforms, p))
    worst = {name: float(jnp.abs(g).max()) for name, g in slope.items()}
    require(max(worst.values()) < 1e-5, f"the solver stops where the objective slopes: {worst}")
    return None


@listed
def check_map(method: Method, key: jax.Array) -> str | None:
    """The gradient engine on the model, started at the solver's optimum, stays there."""
    data, hyper = method.example(key)
    p = optimum(method, key, data, hyper)
    engine = MAP(steps=200, learning_rate=1e-4, patience=False)
    found = run(engine, method, data, hyper, key, p).params
    same(found, p, "MAP leaves the solver's optimum", 1e-3)
    objective = jax.jit(lambda p: method.objective(p, data, hyper))
    same(objective(found), objective(p), "MAP ends at another objective", 1e-6)
    return None
