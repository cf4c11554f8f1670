"""Helpers of the checks."""

from collections.abc import Callable
from functools import cached_property, lru_cache, wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer.util import log_density

from bayesfac.core.method import Method, log_joint, sites
from bayesfac.inference import LBFGS
from bayesfac.inference.result import Job
from bayesfac.inference.unconstrained import constrain, supports, unconstrain

Check = Callable[[Method, jax.Array], str | None]
CHECKS: dict[str, Check] = {}


def listed(function: Check) -> Check:
    """Register a check; it runs in float64."""
    name = function.__name__.removeprefix("check_")

    @wraps(function)
    def check(method: Method, key: jax.Array) -> str | None:
        with jax.enable_x64(True):
            return function(method, key)

    CHECKS[name] = check
    return check


def require(fine: Any, message: str) -> None:
    """Raise AssertionError unless `fine`, also under `python -O`."""
    if not fine:
        raise AssertionError(message)


def same(left: Any, right: Any, what: str, rtol: float = 1e-9) -> None:
    """Require that two trees are equal, leaf by leaf, up to rtol * (1 + the largest number of the leaf)."""
    leaves, others = jax.tree_util.tree_leaves_with_path(left), jax.tree.leaves(right)
    for (path, a), b in zip(leaves, others, strict=True):
        a, b = np.broadcast_arrays(a, b)
        scale = 1 + max(np.abs(a).max(initial=0), np.abs(b).max(initial=0))
        away = np.abs(a - b)
        gap = away.max(initial=0) / scale
        if gap <= rtol:
            continue
        at = tuple(map(int, np.unravel_index(away.argmax(), away.shape)))
        entry = jax.tree_util.keystr(path) + (str(list(at)) if at else "")
        values = f"{a[at]:.12g} and {b[at]:.12g}{f' at {entry}' if entry else ''}"
        told = f"relative difference {gap:.3g}, at most {rtol:g} expected"
        raise AssertionError(f"{what}: {values}, {told}")


def points(method: Method, key: jax.Array, data: Any, hyper: Any, count: int) -> list[Any]:
    """Feasible points: starts with noise in unconstrained coordinates, so that no entry keeps a default."""
    start = jax.jit(lambda key: method.init(key, data, hyper))
    transforms = supports(method, data, hyper, start(key))

    @jax.jit
    def point(key: jax.Array) -> Any:
        free = unconstrain(transforms, start(key))
        keys = dict(zip(free, jax.random.split(key, len(free)), strict=True))
        moved = {k: x + 0.3 * jax.random.normal(keys[k], jnp.shape(x)) for k, x in free.items()}
        return constrain(method, transforms, moved)

    return [point(sub) for sub in jax.random.split(key, count)]


def within(method: Method, p: Any, data: Any, hyper: Any) -> dict[str, bool]:
    """Whether every site is in its support."""

    @jax.jit
    def inside(p: Any) -> dict[str, jax.Array]:
        trace = log_density(method.model, (data, hyper), {}, sites(p))[1]
        return {name: jnp.all(trace[name]["fn"].support(x)) for name, x in sites(p).items()}

    return {name: bool(fine) for name, fine in inside(p).items()}


def likelihood(method: Method, p: Any, data: Any, hyper: Any) -> jax.Array:
    """The part of the log joint that depends on the data."""
    trace = log_density(method.model, (data, hyper), {}, sites(p))[1].values()
    seen = [site for site in trace if site["type"] == "sample" and site["is_observed"]]
    return jnp.stack([jnp.sum(site["fn"].log_prob(site["value"])) for site in seen]).sum()


def run(engine: Any, method: Method, data: Any, hyper: Any, key: jax.Array, start: Any) -> Any:
    """The Result of an engine; `start` may be Params or None."""
    return engine.run(Job(method, data, hyper, key, None if start is None else sites(start)))


class Example:
    """A method's example for one key, its points, and programs that are compiled once for all checks.

    `objective` and `joint` give a value and its gradient, `seen` the likelihood, `update` one sweep;
    all four take (params, data), so that a check may pass other data of the same shape.
    """

    def __init__(self, method: Method, key: jax.Array) -> None:
        self.method, self.key = method, key
        data, hyper = self.data, self.hyper = method.example(key)
        self.start = jax.jit(lambda key: method.init(key, data, hyper))(key)

        def program(function: Callable[..., Any]) -> Callable[..., Any]:
            return jax.jit(lambda p, data: function(p, data, hyper))

        self.objective = program(jax.value_and_grad(method.objective))
        self.joint = program(jax.value_and_grad(lambda *all: log_joint(method, *all)))
        self.seen = program(lambda *all: likelihood(method, *all))
        self.update = program(method.solver.update) if method.solver.update else None

    @cached_property
    def points(self) -> list[Any]:
        """Five feasible points without default values."""
        return points(self.method, self.key, self.data, self.hyper, 5)

    @cached_property
    def optimum(self) -> Any:
        """The parameters at which the method's own solver stops changing."""
        data, update = self.data, self.update
        if update is None:
            engine = LBFGS(max_iter=20_000, tol=0)
            return run(engine, self.method, data, self.hyper, self.key, self.start).params

        def step(state: tuple) -> tuple:
            p, _, count = state
            new = update(p, data)
            gaps = jax.tree.map(lambda a, b: jnp.max(jnp.abs(a - b)), new, p)
            return new, jnp.max(jnp.stack(jax.tree.leaves(gaps))), count + 1

        def moving(state: tuple) -> jax.Array:
            return (state[1] > 1e-13) & (state[2] < 50_000)

        solve = jax.jit(lambda p: jax.lax.while_loop(moving, step, (p, jnp.inf, 0)))
        return solve(self.start)[0]


@lru_cache(maxsize=1)
def _example(method: Method, bits: bytes, implementation: str) -> Example:
    words = jnp.asarray(np.frombuffer(bits, np.uint32))
    return Example(method, jax.random.wrap_key_data(words, impl=implementation))


def example(method: Method, key: jax.Array) -> Example:
    """The Example of a method and a key; the last Example is cached for the next check."""
    bits = np.asarray(jax.random.key_data(key)).tobytes()
    return _example(method, bits, str(jax.random.key_impl(key)))


def axes(data: Any) -> dict[str, int]:
    """{axis: length} of all labelled axes; if there is one view, its features are also "feature"."""
    sizes = {axis: len(labels) for axis, labels in data.coords().items()}
    features = [size for axis, size in sizes.items() if axis.startswith("feature.")]
    return sizes | ({"feature": features[0]} if len(features) == 1 else {})
