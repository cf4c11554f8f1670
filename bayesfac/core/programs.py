"""Compiled programs: a folder that stores them for later processes, and functions compiled for settings.

BAYESFAC_CACHE names the folder. Without it the folder is the system's cache folder for bayesfac. With
BAYESFAC_CACHE=off nothing is stored. Nothing is stored either if this process cannot write into the folder,
as in a container without a home folder. A folder that the user set for JAX or Numba is used.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, wraps
from hashlib import sha256
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bayesfac.core.data.container import Container
from bayesfac.core.precision import precise

ROOM = 0.5  # share of a process's memory maps that programs may fill before a fit forgets them
LEVEL = "xla_backend_optimization_level"
FEW = 300_000  # numbers of the data up to which a program that runs once is not optimised at all
# JAX 0.9 alone lets XLA compile loops without MLIR: in half the time, and programs run as fast
DIRECT = {"xla_cpu_use_fusion_emitters": False} if jax.__version_info__ < (0, 10) else {}
QUIET = "3"  # the level of TF_CPP_MIN_LOG_LEVEL at which XLA logs no warning when it reads a kept program


def folder() -> Path | None:
    """The folder for compiled programs of this processor, or None if nothing is to be kept."""
    named = os.environ.get("BAYESFAC_CACHE")
    if named == "off":
        return None
    try:
        place = Path(named).expanduser() if named else _system_folder() / "bayesfac"
    except RuntimeError:  # no home
        return None
    # Numba ends a fit with an error if it has no place, but it may have one of the user's own
    return place if _writable(place) or os.environ.get("NUMBA_CACHE_DIR") else None


@cache
def _writable(place: Path) -> bool:
    """Whether this process can write into the folder, which is made."""
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(place, os.W_OK | os.X_OK)


def _system_folder() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


@cache
def keep_programs() -> None:
    """Let JAX keep its programs, unless the user told JAX where to keep them or XLA would log a warning for
    every program that it reads."""
    place, quiet = folder(), os.environ.get("TF_CPP_MIN_LOG_LEVEL") == QUIET
    settings: Any = jax.config  # noqa: TID251  # JAX has no other way to name the folder
    if place is None or settings.jax_compilation_cache_dir or not quiet:
        return
    # programs hold instructions of this processor; a home folder may be shared by several machines
    kept = place / f"jax-{jax.__version__}-{_processor()}"
    settings.update("jax_compilation_cache_dir", str(kept))
    settings.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # reading is quicker


def side_by_side(program: Callable[..., Any], calls: Sequence[tuple]) -> list[Any]:
    """The results of a compiled program for each tuple of arguments, all of them ready.

    On a CPU, JAX runs the programs that one thread starts one after the other. So every call but the first
    has a thread of its own. The first call traces the program if it is new, in the thread of the caller: the
    handlers of NumPyro cannot be used in several threads at a time.

    >>> double = jax.jit(lambda x: 2 * x)
    >>> [int(x) for x in side_by_side(double, [(1,), (2,), (3,)])]
    [2, 4, 6]
    """
    ready = for_threads(lambda arguments: jax.block_until_ready(program(*arguments)))
    first = program(*calls[0])
    with ThreadPoolExecutor(len(calls)) as threads:
        return jax.block_until_ready([first, *threads.map(ready, calls[1:])])


def for_threads(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function for other threads, in the precision of this one: JAX has this setting for each thread."""
    exact = precise()

    def run(*arguments: Any) -> Any:
        with jax.enable_x64(exact):
            return function(*arguments)

    return run


def make_room() -> None:
    """Forget compiled programs where they fill `ROOM` of the memory maps that Linux gives a process.

    A fit of data of a new size takes some thousand maps. When none is left, LLVM ends the process.
    """
    limit = Path("/proc/sys/vm/max_map_count")
    if not limit.exists():  # other systems have no such limit
        return
    with Path("/proc/self/maps").open("rb") as maps:
        taken = sum(1 for _ in maps)
    if taken > ROOM * int(limit.read_text()):
        jax.clear_caches()


def _processor() -> str:
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features().flatten()
    return sha256(f"{llvm.get_host_cpu_name()} {features}".encode()).hexdigest()[:8]


@contextmanager
def numba_folder(version: str) -> Iterator[None]:
    """Let functions that Numba decorates inside the block be kept in the folder, apart from those of other
    versions.

    Numba would keep a function as long as its own file does not change, with the code of functions from
    other files inside it.
    """
    import numba

    config: Any = numba.config
    place, before = folder(), config.CACHE_DIR
    if place is not None:
        config.CACHE_DIR = str(Path(before or place / "numba") / version)
    try:
        yield
    finally:
        config.CACHE_DIR = before


def bare(arguments: Any) -> Any:
    """The arguments, with all data as programs of a method with `numbers` take them."""

    def stripped(value: Any) -> Any:
        return value.for_programs() if isinstance(value, Container) else value

    return jax.tree.map(stripped, arguments, is_leaf=lambda value: isinstance(value, Container))


def apart(hyper: Any, names: Sequence[str]) -> tuple[Any, dict[str, Any]]:
    """The settings without the values of these numbers, and the values; None is not a number.

    >>> from typing import NamedTuple
    >>> class Hyper(NamedTuple):
    ...     size: int
    ...     rate: float | None
    >>> apart(Hyper(2, 0.5), ["rate"])
    (Hyper(size=2, rate=Ellipsis), {'rate': 0.5})
    >>> apart(Hyper(2, None), ["rate"])
    (Hyper(size=2, rate=None), {})
    """
    values = {name: getattr(hyper, name) for name in names if getattr(hyper, name) is not None}
    return hyper._replace(**dict.fromkeys(values, ...)), values


def compiled_for(
    *settings: int, once: bool = False, numbers: Sequence[str] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile a function once for each value of the arguments at these positions.

    A fit runs a program with `once` a single time: level 1 of XLA's optimisation then saves a third of the
    time of compilation, and `start` of `bpmf` runs as fast as with level 3. With few data level 0 saves more
    than it costs. A level in XLA_FLAGS goes first.

    Of the last of the settings, these `numbers` are arguments of the program: see `Method.numbers`.

    A program that takes settings as its own arguments, as the choice among candidates does, calls the
    function as it is: its settings are then traced and have no value to compile for.

    Examples
    --------
    >>> power = compiled_for(1)(lambda x, n: x**n)
    >>> float(power(3.0, 2)), float(jax.jit(power)(3.0, 2))
    (9.0, 9.0)
    """
    chosen = once and LEVEL not in os.environ.get("XLA_FLAGS", "")

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        program = jax.jit(function, static_argnums=settings)

        def made(values: dict[str, Any], *arguments: Any) -> Any:
            return function(*_changed(arguments, lambda hyper: hyper._replace(**values)))

        static = [at + 1 for at in settings]
        levels = [
            jax.jit(
                made,
                static_argnums=static,
                compiler_options=DIRECT | {LEVEL: level} if chosen else None,
            )
            for level in (0, 1)
        ]

        def alone(values: dict[str, Any], *arguments: Any) -> Any:
            size = sum(np.size(leaf) for leaf in jax.tree.leaves(arguments))
            return levels[size > FEW](values, *arguments)

        @wraps(function)
        def call(*arguments: Any) -> Any:
            given = [arguments[i] for i in settings]
            if _traced(given):
                return function(*arguments)
            if _traced(arguments):  # JAX refuses options of a program inside another one
                return program(*arguments)
            if not numbers:
                return alone({}, *arguments)
            hyper, values = apart(given[-1], numbers)
            return alone(values, *bare(_changed(arguments, lambda _: hyper)))

        return call

    def _changed(arguments: tuple, change: Callable[[Any], Any]) -> list[Any]:
        """The arguments with other settings; those of a function without `numbers` stay as they are."""
        last = settings[-1] if numbers else None
        return [change(value) if at == last else value for at, value in enumerate(arguments)]

    return decorate


def _traced(arguments: Any) -> bool:
    """Whether these are arguments of a program that is being traced."""
    return any(isinstance(value, jax.core.Tracer) for value in jax.tree.leaves(arguments))
