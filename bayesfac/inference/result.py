"""What every engine gives back."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np
from tqdm.auto import tqdm

from bayesfac.core.errors import NumericalError
from bayesfac.core.kernels import sparse
from bayesfac.core.method import Method, flattened, from_sites, sites


@dataclass
class Result:
    """One value of the parameters, or draws of them; never both.

    params     Params of a point fit
    draws      {site: (chain, draw, ...)} of a sampled one
    trace      the objective by iteration, -ELBO by step, or minus the log joint by draw
    converged  True, False, or None where only diagnostics can tell
    stats      {name: (chain, draw)} of a sampler: lp, diverging, ...
    notes      what the user should hear of: safeguards that fired, restarts, early stops
    """

    params: Any = None
    draws: Mapping[str, np.ndarray] | None = None
    trace: np.ndarray = field(default_factory=lambda: np.zeros(0))
    converged: bool | None = None
    stats: dict[str, np.ndarray] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    partial: bool = False


def bar(progress: bool, total: int, what: str) -> Any:
    """A progress bar on a terminal or in a notebook; nothing in a log file."""
    silent = not progress or not (sys.stderr.isatty() or "ipykernel" in sys.modules)
    return tqdm(total=total, desc=what, disable=silent, leave=False, dynamic_ncols=True)


def compiled(function: Any) -> Any:
    """Jitted; as it is where Numba loops do the work, which a trace could not call."""
    return function if sparse.backend() == "numba" else jax.jit(function)


def check_sites(params: Any, where: str) -> None:
    """NaN or infinity in any parameter stops the fit: which one, and when."""
    for name, value in sites(params).items():
        if not np.isfinite(np.asarray(value)).all():
            raise NumericalError(
                f"Expected finite parameters, got NaN or infinity in {name} {where}"
            )


def check_number(value: float, what: str, where: str) -> None:
    """The same for a scalar."""
    if not np.isfinite(value):
        raise NumericalError(f"Expected a finite {what}, got {value} {where}")


def start_point(method: Method, data: Any, hyper: Any, key: jax.Array, given: Any) -> Any:
    """A fresh start, with whatever sites of `given` ({site: array}) have the same name and shape."""
    # by way of NumPy: no weak types, which would make every program compile twice
    own = jax.tree.map(lambda x: jax.numpy.asarray(np.asarray(x)), method.init(key, data, hyper))
    if not given:
        return own
    shapes = {k: np.shape(v) for k, v in sites(own).items()}
    fitting = {k: v for k, v in given.items() if np.shape(v) == shapes.get(k)}
    if not fitting:
        raise ValueError(
            f"Expected an init with a site of {method.name} {shapes}, "
            f"got { {k: np.shape(v) for k, v in given.items()} }"
        )
    return replace_sites(own, fitting)


def replace_sites(params: Any, values: Mapping[str, Any]) -> Any:
    """Params with some of its sites (flattened names) replaced, in their own dtype."""
    fields = params._asdict()
    for site, value in values.items():
        name, dot, key = site.partition(".")
        old = fields[name][key] if dot else fields[name]
        new = jax.numpy.asarray(value, dtype=old.dtype)
        fields[name] = {**fields[name], key: new} if dot else new
    return type(params)(**fields)


def derived(method: Method, data: Any, hyper: Any, result: Result) -> Result:
    """The result with what the method derives from parameters and training data, of every draw."""
    if method.derive is None:
        return result
    if result.draws is None:
        more = method.derive(result.params, data, hyper)
        return replace(result, params=result.params._replace(**more))
    shape = next(iter(result.draws.values())).shape[:2]
    more_of = compiled(lambda p, data: method.derive(p, data, hyper))
    rows = [
        flattened(more_of(from_sites(method, {s: v[at] for s, v in result.draws.items()}), data))
        for at in np.ndindex(*shape)
    ]
    stacked = {n: np.stack([np.asarray(row[n]) for row in rows]) for n in rows[0]}
    more = {n: value.reshape(*shape, *value.shape[1:]) for n, value in stacked.items()}
    return replace(result, draws={**result.draws, **more})


def log_joints(
    method: Method, data: Any, hyper: Any, draws: Mapping[str, np.ndarray]
) -> np.ndarray:
    """The log joint of every draw (chain, draw), in the constrained space: one number for all engines."""

    def lp(values: dict[str, jax.Array]) -> jax.Array:
        return -method.objective(from_sites(method, values), data, hyper)

    return each_draw(lp, draws)


def each_draw(
    function: Any, draws: Mapping[str, np.ndarray], memory: int = 256 * 2**20
) -> np.ndarray:
    """function({site: value}) of every draw, (chain, draw, ...); the draws may lie on disk, and are read in
    blocks of at most `memory` bytes."""
    chains, length = next(iter(draws.values())).shape[:2]
    one = sum(v.dtype.itemsize * int(np.prod(v.shape[2:])) for v in draws.values())
    size = -(-length // -(-length * one // memory)) if one else length
    many = jax.jit(lambda values: jax.lax.map(function, values))
    rows = []
    for chain in range(chains):
        for start in range(0, length, size):
            # the last block is filled up with the last draw: one compilation
            at = np.minimum(np.arange(start, start + size), length - 1)
            part = {site: jax.numpy.asarray(np.asarray(v[chain, at])) for site, v in draws.items()}
            rows.append(np.asarray(many(part))[: length - start])
    joined = np.concatenate(rows)
    return joined.reshape(chains, length, *joined.shape[1:])


def pick_params(params: Any, site: str) -> Any:
    """One site of Params by its flattened name."""
    name, dot, key = site.partition(".")
    return getattr(params, name)[key] if dot else getattr(params, name)


def require(condition: bool, message: str) -> None:
    """Engine settings are checked when they are made."""
    if not condition:
        raise ValueError(message)


def seconds_setting(engine: Any) -> None:
    """Checkpoints may come at every look (0 seconds), or never (infinity)."""
    given = engine.save_every
    number = isinstance(given, int | float | np.number) and not isinstance(given, bool)
    require(
        number and given >= 0,
        f"Expected {type(engine).__name__}(save_every=...) in seconds, got {given!r}",
    )
    object.__setattr__(engine, "save_every", float(given))


def count_setting(engine: Any, **least: int) -> None:
    """Whole numbers, not below `least`."""
    for name, low in least.items():
        value = getattr(engine, name)
        require(
            hasattr(value, "__index__") and not isinstance(value, bool) and value >= low,
            f"Expected {type(engine).__name__}({name}=...) to be a whole number of at least {low}, "
            f"got {value!r}",
        )
        object.__setattr__(engine, name, int(value))  # files and digests know no NumPy numbers
