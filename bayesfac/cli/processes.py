"""`bayesfac fit --processes N`: one fit by several processes, on one machine or on several."""

import argparse
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bayesfac.core.errors import BayesfacError

_joined: list[int] = []  # the number of this process, after it has joined a run


def check(args: argparse.Namespace) -> None:
    """Refuse options that are incomplete or out of range, before any process starts."""
    option, able = "--processes", ["gibbs", "fixed-point", "lbfgs"]
    if args.large:
        option, able = "--large", ["gibbs"]
    if (args.processes is not None or args.large) and (args.engine or "").lower() not in able:
        got = args.engine or "the method's own solver"
        engines = " or ".join([", ".join(able[:-1]), able[-1]] if able[1:] else able)
        raise ValueError(f"Expected --engine {engines} for {option}, got {got}")
    if args.large and args.decimal != ".":
        raise ValueError("Expected --decimal for a text file, got it beside --large")
    if args.coordinator is None and args.process is not None:
        raise ValueError("Expected --coordinator HOST:PORT beside --process, got none")
    if args.coordinator is not None and None in (args.process, args.processes):
        raise ValueError("Expected --process I and --processes N beside --coordinator")
    if args.processes is not None and args.processes < 1:
        raise ValueError(f"Expected --processes of at least 1, got {args.processes}")
    if args.process is not None and not 0 <= args.process < args.processes:
        raise ValueError(f"Expected --process from 0 to {args.processes - 1}, got {args.process}")


def start(line: Sequence[str], count: int) -> int:
    """Run a command line in `count` processes of this machine, which divide its cores; the exit code."""
    command = [sys.executable, "-m", "bayesfac.cli", *line, "--coordinator", _free_address()]
    # freed arrays are returned to the system at once; by default Linux lets a process keep some of them
    env = os.environ | ({"MALLOC_MMAP_THRESHOLD_": str(2**20)} if "--large" in line else {})
    running: list[subprocess.Popen] = []
    try:
        for number in range(count):
            running.append(subprocess.Popen([*command, "--process", str(number)], env=env))  # noqa: S603
            _give_cores(running[-1].pid, number, count)
        while any(one.poll() is None for one in running) and not _dead(running):
            time.sleep(0.05)
        if dead := _dead(running):
            number, code = dead[0]
            raise BayesfacError(
                f"Process {number} of {count} ended with exit code {code}, and the others were stopped. With "
                "--with folder=FOLDER the same command goes on from the last checkpoint, also with another "
                "--processes"
            )
        return int(running[0].returncode)
    finally:
        for one in running:
            one.kill()
            one.wait()


def _dead(running: Sequence[subprocess.Popen]) -> list[tuple[int, int]]:
    """Processes that failed, with their exit codes; the first one may say 1: not usable."""
    codes = [(number, one.poll()) for number, one in enumerate(running)]
    return [(number, code) for number, code in codes if code is not None and code not in (0, 1)]


def _free_address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def _give_cores(process: int, number: int, count: int) -> None:
    """Let a process run on its share of the cores, so that threads of two processes do not compete."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(process, cores[number::count] or cores)


@contextmanager
def joined(args: argparse.Namespace) -> Iterator[bool]:
    """Join the run that the options name; yield whether this process is the first, which prints and saves.

    The other processes are needed until the end of the block."""
    if args.coordinator is None:
        yield True
        return
    import jax
    from jax.experimental import multihost_utils

    jax.distributed.initialize(args.coordinator, args.processes, args.process)
    # gloo connects at the first message and waits 30 seconds for it; reading may take longer
    multihost_utils.sync_global_devices("bayesfac: joined")
    _joined.append(args.process)
    yield args.process == 0
    jax.distributed.shutdown()
    _joined.clear()


def leave(code: int) -> int:
    """The exit code. A process that failed in a run exits at once, because JAX would wait for the others."""
    if _joined:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code
