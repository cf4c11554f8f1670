"""The input and the result of every engine, and checks that engines share."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from numpyro.distributions.distribution import validation_enabled
from tqdm import tqdm

from bayesfac.core import checks
from bayesfac.core.data.cells import Query
from bayesfac.core.data.reading import same_labels
from bayesfac.core.errors import NumericalError, Settings
from bayesfac.core.kernels import sparse
from bayesfac.core.method import Method, flattened, from_sites, sites
from bayesfac.core.programs import apart, bare

MAPPED = 256 * 2**20  # bytes of a block of draws in `each_draw`


@dataclass(frozen=True, eq=False)
class Job:
    """One fit for an engine to run.

    start      {site: array} to start from, as far as the method has these sites; for engines with chains a
               tuple of such mappings, one for each chain; None means the method's own start
    identity   a digest of everything that determines the result; a checkpoint belongs to one identity
    probe      cells whose predictions show whether a descent has converged; None if there are none
    """

    method: Method
    data: Any
    hyper: Any
    key: jax.Array
    start: Mapping[str, Any] | tuple[Mapping[str, Any], ...] | None = None
    progress: bool = False
    identity: str = ""
    probe: Query | None = None

    def start_point(self, key: jax.Array, own: Any = None) -> Any:
        """The method's own start, in which sites of `start` with the same name and shape replace its sites.

        `own` is the function that makes the start; by default this is the method's `init`.
        """
        fresh = (own or self.method.init)(key, self.data, self.hyper)
        # by way of NumPy: no weak types, which would make every program compile twice
        own = jax.tree.map(lambda x: jax.numpy.asarray(np.asarray(x)), fresh)
        if not self.start:
            return own
        if isinstance(self.start, tuple):
            raise TypeError("Expected one init, got a list of them, which Gibbs alone takes")
        shapes = {site: np.shape(value) for site, value in sites(own).items()}
        shared = {k: v for k, v in self.start.items() if np.shape(v) == shapes.get(k)}
        if not shared:
            raise ValueError(
                f"Expected an init with a site of {self.method.name} {shapes}, "
                f"got { {k: np.shape(v) for k, v in self.start.items()} }"
            )
        return replace_sites(own, shared)

    def of_chain(self, chain: int, chains: int) -> "Job":
        """The job with the start of this chain."""
        if not isinstance(self.start, tuple):
            return self
        if len(self.start) != chains:
            what = f"an init for each of the {chains} chains"
            raise ValueError(f"Expected {what}, got {len(self.start)}")
        return replace(self, start=self.start[chain])

    def objective(self, p: Any, data: Any) -> jax.Array:
        """The objective with the data as an argument, so that a compiled program has no copy of the data."""
        return self.method.objective(p, data, self.hyper)


def start_from(init: Any, coords: Mapping[str, Any]) -> Any:
    """{site: array} from another fit (its last draw), from Params or from a mapping; from a list a tuple of
    such mappings.

    `coords` are the labels of the data to fit; those of another fit must be the same.
    """
    if init is None:
        return None
    if isinstance(init, list):
        return tuple(start_from(each, coords) for each in init)
    if hasattr(init, "is_point"):
        for axis, labels in init.data.coords.items():
            mine = coords.get(axis)
            if mine is not None and len(mine) == len(labels) and not same_labels(mine, labels):
                raise ValueError(f"Expected init fitted to the same {axis} labels, got others")
        return {site: np.array(value[0, -1]) for site, value in init._as_draws().items()}
    if hasattr(init, "_asdict"):
        return dict(sites(init))
    if isinstance(init, Mapping):
        return dict(init)
    raise TypeError(
        f"Expected init to be a Fit, Params or a mapping site -> array, got {type(init).__name__}"
    )


class Engine(Settings):
    """The base of all engines."""


def unused(start: Any, result: "Result") -> list[str]:
    """A note if sites of `start` have other shapes than those of the result, and so were not used."""
    found = flattened(result.draws or result.params._asdict())
    mine = {site: np.shape(value)[2 if result.draws else 0 :] for site, value in found.items()}
    starts = start if isinstance(start, tuple) else (start or {},)
    lost = {
        site: f"{site} of the shape {np.shape(value)}, here {mine[site]}"
        for one in starts
        for site, value in one.items()
        if site in mine and np.shape(value) != mine[site]
    }
    if not lost:
        return []
    return [
        f"init was used in part: it has {'; '.join(lost.values())} (another number of components or of "
        f"labels); {', '.join(lost)} started as usual"
    ]


@dataclass
class Result:
    """One value of the parameters, or draws of them; never both.

    params     Params of a point fit
    draws      {site: (chain, draw, ...)} of a sampler
    trace      the objective by iteration, -ELBO by step, or minus the log joint by draw
    converged  True, False, or None where only diagnostics can tell
    stats      {name: (chain, draw)} of a sampler: lp, diverging, ...
    notes      messages for the user, for example on safeguards, restarts and early stops
    partial    whether the run was interrupted
    engine     the engine with the settings that the run filled in; None if it filled in none
    last       the number of sweeps made, and Params of all chains after them, to continue a Gibbs run
    """

    params: Any = None
    draws: Mapping[str, np.ndarray] | None = None
    trace: np.ndarray = field(default_factory=lambda: np.zeros(0))
    converged: bool | None = None
    stats: dict[str, np.ndarray] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    partial: bool = False
    engine: Any = None
    last: tuple[int, Any] | None = None


def bar(progress: bool, total: int, what: str) -> Any:
    """A progress bar on a terminal or in a notebook; nothing in a log file."""
    notebook = "ipykernel" in sys.modules
    silent = not progress or not (sys.stderr.isatty() or notebook)
    where = OneLine() if notebook and not silent else None
    return tqdm(total=total, desc=what, disable=silent, leave=False, dynamic_ncols=True, file=where)


class OneLine:
    """One line of output in a notebook, which each write replaces.

    An executed notebook stores only the last text, which is empty. A stream would store every state of the
    progress bar.
    """

    def __init__(self) -> None:
        from IPython.display import display

        self.place = display({"text/plain": ""}, raw=True, display_id=True)

    def write(self, text: str) -> None:
        """Show this text in place of the last."""
        self.place.update({"text/plain": text.strip()}, raw=True)

    def flush(self) -> None:
        """Do nothing: there is no buffer."""


def program(function: Any, data: Any, *settings: Any) -> Any:
    """The compiled function(*settings, ...) for data of this structure; equal calls get the same program.

    `numbers` of the method among the settings are arguments of the program (see `Method`).
    """
    method = next((one for one in settings if isinstance(one, Method) and one.notes.numbers), None)
    if method is None:
        return _program(function, settings, None, jax.tree.structure(data), sparse.chosen())
    at = next(at for at, one in enumerate(settings) if isinstance(one, method.Hyper))
    hyper, values = apart(settings[at], method.notes.numbers)
    fixed, structure = (*settings[:at], hyper, *settings[at + 1 :]), jax.tree.structure(bare(data))
    compiled = _program(function, fixed, at, structure, sparse.chosen())
    return lambda *arguments: compiled(values, *bare(arguments))


@lru_cache(maxsize=64)  # bounded: thousands of programs would use up the process's memory maps
def _program(
    function: Any, settings: tuple, at: int | None, structure: Any, loops: str | None
) -> Any:
    def unchecked(*arguments: Any) -> Any:
        given = settings
        if at is not None:
            values, *arguments = arguments  # type: ignore[assignment]
            given = (*settings[:at], settings[at]._replace(**values), *settings[at + 1 :])
        # data and settings were checked before; NumPyro would check constants by programs of their own
        with validation_enabled(False):
            return function(*given, *arguments)

    unchecked.__name__ = function.__name__
    return jax.jit(unchecked)


def named(params: Any) -> dict[str, Any]:
    """All arrays of Params, or of a law of them, by name: `sites` for any depth."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {_name(path): value for path, value in leaves}


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def check_sites(params: Any, where: str) -> None:
    """Raise an error for NaN or infinity in a parameter; the error names the parameter and the step."""
    for name, value in named(params).items():
        if not np.isfinite(np.asarray(value)).all():
            raise NumericalError(
                f"Expected finite parameters, got NaN or infinity in {name} {where}"
            )


def check_number(value: float, what: str, where: str) -> None:
    """Raise an error if a number is NaN or infinite."""
    if not np.isfinite(value):
        raise NumericalError(f"Expected a finite {what}, got {value} {where}")


def replace_sites(params: Any, values: Mapping[str, Any]) -> Any:
    """Params with some arrays, by their names, replaced; the old dtypes stay."""

    def new(path: Any, old: Any) -> Any:
        value = values.get(_name(path))
        return old if value is None else jax.numpy.asarray(value, dtype=old.dtype)

    return jax.tree_util.tree_map_with_path(new, params)


def derived(method: Method, data: Any, hyper: Any, result: Result) -> Result:
    """The result, with the quantities that the method derives from each draw and the training data."""
    if method.derive is None:
        return result
    if result.draws is None:
        more = method.derive(result.params, data, hyper)
        return replace(result, params=result.params._replace(**more))

    more = each_draw(_derived_of, result.draws, data, method, hyper)
    return replace(result, draws={**result.draws, **more})


def _derived_of(method: Method, hyper: Any, data: Any) -> Any:
    return lambda draw: flattened(method.derive(from_sites(method, draw), data, hyper))  # type: ignore[misc]


def log_joints(job: Job, draws: Mapping[str, np.ndarray]) -> np.ndarray:
    """The log joint of every draw (chain, draw) in the constrained space, the same for all engines."""
    return each_draw(_log_joint_of, draws, job.data, job.method, job.hyper)


def _log_joint_of(method: Method, hyper: Any, data: Any) -> Any:
    return lambda draw: -method.objective(from_sites(method, draw), data, hyper)


def each_draw(function: Any, draws: Mapping[str, np.ndarray], data: Any, *settings: Any) -> Any:
    """f({site: value}) of every draw, with f = function(*settings, data), as arrays (chain, draw, ...)."""
    chains, length = next(iter(draws.values())).shape[:2]
    one = sum(v.dtype.itemsize * int(np.prod(v.shape[2:])) for v in draws.values())
    size = -(-length // -(-length * one // MAPPED)) if one else length
    many = program(_mapped, data, function, *settings)
    rows = []
    for chain in range(chains):
        for start in range(0, length, size):
            # the last block is padded with the last draw, so that one program serves all
            at = np.minimum(np.arange(start, start + size), length - 1)
            part = {site: jax.numpy.asarray(np.asarray(v[chain, at])) for site, v in draws.items()}
            new = many(part, data)
            rows.append(jax.tree.map(lambda x, n=length - start: np.asarray(x)[:n], new))
    shape = chains, length
    return jax.tree.map(lambda *x: np.concatenate(x).reshape(*shape, *x[0].shape[1:]), *rows)


def _mapped(function: Any, *args: Any) -> Any:
    *settings, values, data = args
    return jax.lax.map(function(*settings, data), values)


def require(condition: bool, message: str) -> None:
    """Raise ValueError with the message unless the condition holds."""
    if not condition:
        raise ValueError(message)


def check_settings(engine: Any, **least: int) -> None:
    """Check the settings of an engine: whole numbers of at least `least`; `save_every` in seconds (0: as
    often as possible, infinity: never); and numbers and switches where the defaults are numbers and
    switches."""
    name = type(engine).__name__
    for setting, low in least.items():
        value = getattr(engine, setting)
        checks.whole_number(f"{name}({setting}=...)", value, low)
        object.__setattr__(engine, setting, int(value))  # for files and digests, no NumPy number
    seconds = engine.save_every
    valid = is_number(seconds) and seconds >= 0
    require(valid, f"Expected {name}(save_every=...) in seconds, got {seconds!r}")
    object.__setattr__(engine, "save_every", float(seconds))
    for each in fields(engine):
        value, what = getattr(engine, each.name), f"{name}({each.name}=...)"
        if isinstance(each.default, bool):  # the text "no" would count as True
            require(value in (True, False), f"Expected {what} as True or False, got {value!r}")
        elif isinstance(each.default, float):
            require(is_number(value), f"Expected {what} as a number, got {value!r}")


def is_number(value: Any) -> bool:
    """Whether it is a real number, which True is not."""
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)
