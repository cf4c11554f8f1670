"""One fit on several devices, of one process or of several: each device draws its share of the rows.

Every process runs the same program (`jax.shard_map`) on the same parameters. In this program each device
draws its own rows and gathers the rows of all devices (`core/data/divided/shares.py`). JAX sends the bytes;
between processes on CPUs it uses gloo.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import PartitionSpec

from bayesfac.core.data.divided import own_rows
from bayesfac.core.data.divided.messages import AXIS
from bayesfac.core.data.divided.shares import dealer, devices, divide, to_all
from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import REGISTRY, Method

LOST = (
    "A process of this run failed or could not be reached ({error}): its own last message says why. "
    "Start all processes again. With a folder the run goes on from its last checkpoint, with any number"
)

# XLA may compute arrays as long as the ratings before they are needed, so that two of them are held at once;
# this order of its work holds one. Only CPUs know the option.
IN_LITTLE_MEMORY: Any = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}


class Alone:
    """Where a run is at home: in this process, as one program."""

    idle = False  # whether another process writes the files

    def __init__(self, job: Any, folder: str | None, compiled: Callable) -> None:
        self.job, self.folder, self.compiled = job, folder, compiled

    def program(
        self, function: Callable, settings: tuple, p: Any, walks: Any, done: int
    ) -> tuple[Callable, Any, Any, Any]:
        """The compiled function(*settings, p, data, walks, *whole numbers), and p, data and walks as it takes
        them; `done` sweeps were made before."""
        return self.compiled(function, self.job.data, *settings), p, self.job.data, walks

    def solver(self, function: Callable, settings: tuple, done: int) -> tuple[Callable, Any]:
        """The compiled function(*settings, p, data, *more), and the data as it takes them."""
        return self.compiled(function, self.job.data, *settings), self.job.data

    def agreed(self, seconds: float) -> float:
        """What all processes take for the time of a call: their next calls make equally many sweeps."""
        return seconds

    def interrupted(self) -> None:
        """The user stopped this process: what it has so far is the result."""

    def finished(self) -> None:
        """The files are written."""


def has_own_rows(method: Method) -> bool:
    """Whether several devices can share the work of the solver."""
    return bool(method.solver.own_rows)


class Together(Alone):
    """All devices of all processes, each of which draws its share of the rows.

    `divided(method)` says whether this engine can divide a method."""

    def __init__(
        self,
        job: Any,
        folder: str | None,
        compiled: Callable,
        divided: Callable[[Method], Any] = lambda method: method.gibbs.divisible,
    ) -> None:
        super().__init__(job, folder, compiled)
        if not divided(job.method):
            able = ", ".join(sorted(name for name, one in REGISTRY.items() if divided(one)))
            raise BayesfacError(
                f"Expected a method whose rows can be divided among devices ({able}), got {job.method.name}"
            )
        self.idle = folder is not None and jax.process_index() > 0

    def program(
        self, function: Callable, settings: tuple, p: Any, walks: Any, done: int
    ) -> tuple[Callable, Any, Any, Any]:
        self._check(done)
        mesh = devices()
        data, start = divide(self.job.data, mesh, dealer), to_all(p, mesh)
        keys = to_all(jax.random.key_data(walks), mesh)

        def body(p: Any, data: Any, keys: jax.Array, *numbers: Any) -> Any:
            mine = jax.tree.map(lambda x: x[0], data)
            return function(*settings, p, mine, jax.random.wrap_key_data(keys), *numbers)

        same = PartitionSpec()
        specs = (same, PartitionSpec(AXIS), same, same, same, same)
        whole = jax.shard_map(body, mesh=mesh, in_specs=specs, out_specs=same, check_vma=False)
        number = np.int32(0)
        options = IN_LITTLE_MEMORY if jax.default_backend() == "cpu" else None
        once = jax.jit(whole, donate_argnums=0)  # p makes room for its successor
        lowered = once.lower(start, data, keys, number, number, number)
        compiled = lowered.compile(compiler_options=options)
        return partial(_counted, compiled), start, data, keys

    def solver(self, function: Callable, settings: tuple, done: int) -> tuple[Callable, Any]:
        self._check(done)
        mesh = devices()
        data = divide(self.job.data, mesh, own_rows.dealer)

        def body(p: Any, data: Any, *more: Any) -> Any:
            return function(*settings, p, jax.tree.map(lambda x: x[0], data), *more)

        def called(p: Any, data: Any, *more: Any) -> Any:
            found = _called(whole, to_all(p, mesh), data, *(to_all(x, mesh) for x in more))
            return jax.tree.map(np.asarray, found)

        @jax.jit
        def whole(p: Any, data: Any, *more: Any) -> Any:
            same = PartitionSpec()
            own = (same, PartitionSpec(AXIS), *[same] * len(more))
            divided = jax.shard_map(body, mesh=mesh, in_specs=own, out_specs=same, check_vma=False)
            return divided(p, data, *more)

        return called, data

    def _check(self, done: int) -> None:
        """Refuse processes that would run different programs, or begin at different sweeps."""
        if len(set(_of_all(int(self.job.identity[:6] or "0", 16)))) > 1:
            raise BayesfacError(
                "Expected the same method, data, settings, engine and seed in all processes, got others"
            )
        found = _of_all(done)
        if len(set(found)) > 1:
            raise BayesfacError(
                f"Expected all processes to see one folder {self.folder}, got checkpoints of {found} sweeps"
            )

    def agreed(self, seconds: float) -> float:
        return max(_of_all(seconds))

    def interrupted(self) -> None:
        if jax.process_count() > 1:
            raise KeyboardInterrupt(
                "interrupted: the processes may have stopped at different sweeps"
            )

    def finished(self) -> None:
        multihost_utils.sync_global_devices("bayesfac: the files are written")


def _of_all(number: float) -> list[float]:
    """The number of each process, of at most 24 binary digits."""
    found = multihost_utils.process_allgather(np.array([number], np.float32))
    return [float(one) for one in np.ravel(found)]


def _counted(compiled: Callable, p: Any, data: Any, keys: Any, *numbers: int) -> Any:
    return _called(compiled, p, data, keys, *map(np.int32, numbers))


def _called(compiled: Callable, *arguments: Any) -> Any:
    """One call of the program; the message says so if another process is gone."""
    try:
        return jax.block_until_ready(compiled(*arguments))
    except (ValueError, jax.errors.JaxRuntimeError) as error:  # gloo's errors come as ValueError
        if jax.process_count() == 1:
            raise
        raise BayesfacError(LOST.format(error=str(error).splitlines()[0])) from error
