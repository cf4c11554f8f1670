"""Independent calls, in this process or in others; only this file passes work to the backends of joblib."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from itertools import islice
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayesfac.core import checks
from bayesfac.core.errors import BayesfacError
from bayesfac.core.precision import precise

TRIES = 5  # times that a call may be under way when a worker dies


class Shared:
    """Data that many calls take: a copy on the host, which each worker gets once.

    joblib writes arrays of more than 1 MB to a file that its own processes map into their memory. Dask sends
    an argument once to a worker if it knows that the argument is large.
    """

    def __init__(self, data: Any) -> None:
        self.data = jax.tree.map(np.asarray, data)

    def __sizeof__(self) -> int:
        """The bytes of the arrays, by which Dask decides."""
        arrays = map(np.asarray, jax.tree.leaves(self.data))
        return object.__sizeof__(self) + sum(x.nbytes for x in arrays)

    def on_device(self) -> Any:
        """The data as JAX arrays."""
        return jax.tree.map(jnp.asarray, self.data)


def workers(jobs: int | None) -> int:
    """The number of calls at a time: `jobs`; without it what `joblib.parallel_config` says, or else 1.

    Inside a call that joblib runs in a process of its own it is 1: joblib has no processes for the calls of
    a worker, only threads, and `jobs` must not decide whether a fit is possible.

    >>> workers(None), workers(2)
    (1, 2)
    """
    from joblib import effective_n_jobs
    from joblib.parallel import get_active_backend

    if isinstance(jobs, bool) or jobs not in (None, -1):
        checks.whole_number("jobs", jobs, 1)
    backend, _ = get_active_backend(prefer="processes")
    inside = (getattr(backend, "nesting_level", 0) or 0) > 0
    if inside and getattr(backend, "supports_sharedmem", False):
        return 1
    return int(effective_n_jobs(jobs))


def finished_calls(calls: Iterable[tuple], jobs: int | None) -> Iterator[Any]:
    """The results of the calls, in the order in which they finish.

    A call is (function, *arguments), and is asked for when it can begin. An argument that is `Shared` comes
    to the function as its data. `jobs` calls run at a time, on the backend that `joblib.parallel_config`
    names; without one in processes of this machine. Each worker computes in the precision of this process.
    A call whose process died is done again.

    >>> list(finished_calls([(pow, 2, n) for n in range(3)], jobs=1))
    [1, 2, 4]
    """
    if workers(jobs) == 1:
        for function, *arguments in calls:
            yield function(*map(_opened, arguments))
    else:
        yield from _elsewhere(calls, jobs)


def _opened(argument: Any) -> Any:
    return argument.on_device() if isinstance(argument, Shared) else argument


def _elsewhere(calls: Iterable[tuple], jobs: int | None) -> Iterator[Any]:
    """Hand out calls until each has a result, however often a worker dies."""
    from joblib import delayed
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    ledger, exact = Ledger(calls), precise()
    while True:
        handed = (delayed(_run)(number, exact, *call) for number, call in ledger)
        try:
            for number, result in _finished(handed, jobs):
                ledger.close(number)
                yield result
            return
        # of loky; of Dask, whose worker is gone
        except (TerminatedWorkerError, CancelledError) as died:
            ledger.lost(died)


def _run(number: int, exact: bool, function: Callable, *arguments: Any) -> tuple[int, Any]:
    with jax.enable_x64(exact):
        return number, function(*map(_opened, arguments))


def _finished(handed: Iterator[Any], jobs: int | None) -> Iterator[tuple[int, Any]]:
    """Results as they come; from a backend that cannot give them singly, wave after wave."""
    from joblib import Parallel
    from joblib.parallel import get_active_backend

    backend, _ = get_active_backend(prefer="processes")
    _check(backend)
    how: dict[str, Any] = {"prefer": "processes", "batch_size": 1}
    if jobs is not None:
        how["n_jobs"] = jobs
    if getattr(backend, "supports_return_generator", False):
        yield from Parallel(pre_dispatch="n_jobs", return_as="generator_unordered", **how)(handed)
        return
    while wave := list(islice(handed, workers(jobs))):
        yield from Parallel(**how)(wave)


def _check(backend: Any) -> None:
    """Refuse threads, and forks of a process in which JAX runs."""
    from joblib import parallel

    if getattr(backend, "supports_sharedmem", False):
        raise BayesfacError(
            "Expected a joblib backend of processes, such as loky or dask, got threads: "
            "a process runs one fit at a time"
        )
    if type(backend) is parallel.MultiprocessingBackend:
        raise BayesfacError(
            "Expected a joblib backend of fresh processes, such as loky or dask, got multiprocessing, which "
            "forks this process: JAX does not work in a fork"
        )


class Ledger:
    """Which calls have been handed out and have no result yet; threads of joblib take calls from it."""

    def __init__(self, calls: Iterable[tuple]) -> None:
        self.fresh, self.guard = enumerate(calls), threading.Lock()
        self.open = dict[int, tuple]()
        self.again: list[int] = []
        self.deaths = Counter[int]()

    def __iter__(self) -> "Ledger":
        return self

    def __next__(self) -> tuple[int, tuple]:
        with self.guard:
            if self.again:
                number = self.again.pop(0)
            else:
                number, call = next(self.fresh)
                self.open[number] = call
            return number, self.open[number]

    def close(self, number: int) -> None:
        """The call has its result."""
        del self.open[number]

    def lost(self, died: Exception) -> None:
        """Hand out all open calls once more, unless one of them was there at too many deaths."""
        self.again = sorted(self.open)
        self.deaths.update(self.again)
        if max(self.deaths.values(), default=0) >= TRIES:
            raise BayesfacError(
                f"Expected workers that live, got {TRIES} deaths while the same calls were under way: "
                "they may need more memory than there is; fewer jobs need less"
            ) from died
