"""One fit by several devices, of one process or of several: each draws its share of the rows.

Every process runs the same program (`jax.shard_map`) on the same parameters. In it the laws of rows solve the
own rows and gather all (`core/data/shares.py`). JAX moves the bytes: by gloo between processes with CPUs.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import PartitionSpec

from bayesfac.core.data.shares import AXIS, devices, divide, to_all
from bayesfac.core.errors import BayesfacError
from bayesfac.inference.result import Job

LOST = (
    "A process of this run failed or could not be reached ({error}): its own last message says why. Start all "
    "processes again; with a folder the run goes on from its last checkpoint, with any number of processes"
)


def check_divisible(method: Any) -> None:
    """Refuse a method whose rows cannot be divided."""
    if not method.divisible:
        from bayesfac.core.method import REGISTRY

        able = ", ".join(sorted(name for name, one in REGISTRY.items() if one.divisible))
        raise BayesfacError(
            f"Expected a method whose rows can be divided among devices ({able}), got {method.name}"
        )


def writes(folder: str | None) -> bool:
    """Whether this process keeps draws: all of them in memory, the first one in a folder."""
    return folder is None or jax.process_index() == 0


def among_devices(
    function: Callable, job: Job, p: Any, walks: jax.Array, done: int
) -> tuple[Callable, Any, Any, Any]:
    """The function(p, data, walks, *whole numbers) on the shares of all devices, with its first arguments.

    `done` is what this process read from a checkpoint.
    """
    if len(set(multihost_utils.process_allgather(np.array([done])).ravel().tolist())) > 1:
        raise BayesfacError("Expected a folder that all processes see, got other checkpoints")
    mesh = devices()
    data, start = divide(job.data, mesh), to_all(p, mesh)
    keys = to_all(jax.random.key_data(walks), mesh)

    def body(p: Any, data: Any, keys: jax.Array, *numbers: Any) -> Any:
        mine = jax.tree.map(lambda x: x[0], data)
        return function(p, mine, jax.random.wrap_key_data(keys), *numbers)

    same = PartitionSpec()
    specs = (same, PartitionSpec(AXIS), same, same, same, same)
    whole = jax.jit(
        jax.shard_map(body, mesh=mesh, in_specs=specs, out_specs=same, check_vma=False)
    )
    number = np.int32(0)
    program = whole.lower(start, data, keys, number, number, number).compile()
    return partial(_run, program), start, data, keys


def _run(program: Callable, p: Any, data: Any, keys: Any, *numbers: int) -> Any:
    """One call of the compiled program; other processes that are gone are told as such."""
    try:
        return jax.block_until_ready(program(p, data, keys, *map(np.int32, numbers)))
    except (ValueError, jax.errors.JaxRuntimeError) as error:  # gloo's errors come as ValueError
        if jax.process_count() == 1:
            raise
        raise BayesfacError(LOST.format(error=str(error).splitlines()[0])) from error


def all_finished() -> None:
    """Wait until every process is here: the first one has then written all files."""
    multihost_utils.sync_global_devices("bayesfac: finished")
