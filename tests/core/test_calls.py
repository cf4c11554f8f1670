"""Independent calls: the same results on every backend, and after the death of a worker."""

import os
import signal
import sys
from concurrent.futures import CancelledError
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from joblib import parallel_config
from joblib.externals.loky import get_reusable_executor
from joblib.parallel import ThreadingBackend

from bayesfac.core import calls
from bayesfac.core.calls import Ledger, Shared, finished_calls, workers
from bayesfac.core.errors import BayesfacError


@pytest.fixture(autouse=True, scope="module")
def _no_worker_is_left():
    """loky would take what later tests compile in these small workers for a leak of memory, and warn:
    here a warning is an error, and an error in the thread of loky stops it for ever."""
    yield
    get_reusable_executor().shutdown(wait=True)


def squares(data, n):
    """A number in the precision of the process, and the process."""
    return float((data["x"] ** n).sum() / 3), os.getpid()


def dies_once(folder, n):
    """The first call kills its process."""
    flag = Path(folder) / "died"
    if not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return n


DATA = {"x": jnp.arange(5.0)}
CALLS = [(squares, Shared(DATA), n) for n in range(6)]
EXPECTED = {squares(DATA, n)[0] for n in range(6)}


def test_two_processes_compute_what_one_does_in_the_same_precision():
    here = list(finished_calls(CALLS, 1))
    assert {value for value, _ in here} == EXPECTED and {pid for _, pid in here} == {os.getpid()}
    with parallel_config(n_jobs=2):
        there = list(finished_calls(CALLS, None))
    assert {value for value, _ in there} == EXPECTED and os.getpid() not in dict(there).values()
    with jax.enable_x64(False):
        single = [value for value, _ in finished_calls(CALLS[:3], 2)]
    assert len(single) == 3 and not set(single) <= EXPECTED


def asks_for_two(n):
    """A call that has calls of its own, as a fit inside a fold may have."""
    return sorted(finished_calls([(pow, n, 1), (pow, n, 2)], 2))


def test_a_worker_runs_the_calls_of_its_call_itself():
    """joblib would hand them to threads, which are refused."""
    assert sorted(finished_calls([(asks_for_two, n) for n in (2, 3)], 2)) == [[2, 4], [3, 9]]


def test_a_call_whose_process_was_killed_is_done_again(tmp_path):
    each = [(dies_once, str(tmp_path), n) for n in range(4)]
    assert sorted(finished_calls(each, 2)) == [0, 1, 2, 3]
    assert (tmp_path / "died").exists()


def test_a_call_that_dask_forgot_with_its_worker_is_done_again(monkeypatch):
    """Dask may cancel a call whose worker died while its result was on the way."""
    handed_out = []

    def finished(handed, jobs):
        handed_out.append([number for _, (number, *_), _ in handed])
        for number in handed_out[-1]:
            if number == 1 and len(handed_out) == 1:
                raise CancelledError("_run: already forgotten")
            yield number, 2**number

    monkeypatch.setattr(calls, "_finished", finished)
    assert list(finished_calls([(pow, 2, n) for n in range(4)], 2)) == [1, 2, 4, 8]
    assert handed_out == [[0, 1, 2, 3], [1, 2, 3]]


def test_the_same_calls_are_not_lost_for_ever():
    ledger = Ledger([(pow, 2, n) for n in range(3)])
    assert [next(ledger)[0] for _ in range(2)] == [0, 1]
    ledger.close(1)
    for _ in range(4):
        ledger.lost(RuntimeError())
        assert next(ledger) == (0, (pow, 2, 0))
    assert next(ledger)[0] == 2, "the others come after the lost one"
    with pytest.raises(BayesfacError, match="^Expected workers that live, got 5 deaths"):
        ledger.lost(RuntimeError())


class NoGenerators(ThreadingBackend):
    """A backend that returns whole lists, as Ray's does."""

    supports_return_generator = False
    supports_sharedmem = False


def test_a_backend_without_generators_gets_waves():
    asked = []

    def each():
        for n in range(5):
            asked.append(n)
            yield pow, 2, n

    with parallel_config(NoGenerators(), n_jobs=2):
        results = finished_calls(each(), None)
        assert next(results) == 1 and asked == [0, 1], "a call is asked for when it can begin"
        assert list(results) == [2, 4, 8, 16]


@pytest.mark.parametrize(
    "backend, got", [("threading", "threads"), ("multiprocessing", "JAX does")]
)
def test_backends_that_share_a_process_are_refused(backend, got):
    with parallel_config(backend, n_jobs=2):
        with pytest.raises(BayesfacError, match=f"^Expected a joblib backend of .*got .*{got}"):
            list(finished_calls(CALLS, None))
    with parallel_config(backend, n_jobs=1):
        assert len(list(finished_calls(CALLS, None))) == len(CALLS)


def test_the_number_of_workers_is_the_users():
    assert workers(None) == 1 and workers(3) == 3
    with parallel_config(n_jobs=2):
        assert workers(None) == 2 and workers(1) == 1
    for wrong in (0, True, 1.5):
        with pytest.raises(ValueError, match=f"jobs to be a whole number from 1 on, got {wrong}"):
            workers(wrong)


def test_large_data_look_large():
    """So Dask sends them to each worker once, and not with each call."""
    assert sys.getsizeof(Shared({"x": np.zeros(1000)})) > 8000
