"""What the benchmarks share: the same cores for everyone, and a record of what ran where."""

import argparse
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from bayesfac.core.files import atomic

RESULTS = Path(__file__).resolve().parents[1] / "results"
POOLS = ("OMP", "OPENBLAS", "MKL", "NUMBA")  # each reads its own NAME_NUM_THREADS, once, on import
CACHES = ("JAX_COMPILATION_CACHE_DIR", "NUMBA_CACHE_DIR")
BUSY = 0.5  # load average above which timings are not to be believed


def arguments(text: str) -> argparse.ArgumentParser:
    """The options that every benchmark has."""
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a smoke run on small made-up data")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="for everyone (2)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where the figures go, as JSON")
    parser.add_argument("--worker", help=argparse.SUPPRESS)  # this script calls itself
    return parser


def in_process(script: str, task: Mapping[str, Any], threads: int, **env: str) -> dict[str, Any]:
    """Run `script --worker TASK` in a process of its own, and read the JSON it prints last.

    Thread pools never meet, every pool gets `threads` threads, and every process the same cores.
    """
    settings = {k: v for k, v in os.environ.items() if k not in CACHES}
    settings |= {f"{pool}_NUM_THREADS": str(threads) for pool in POOLS} | env
    command = [sys.executable, script, "--worker", json.dumps(task), "--threads", str(threads)]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{Path(script).name} failed at {task}:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def in_processes(
    script: str, count: int, task: Mapping[str, Any], **env: str
) -> list[dict[str, Any]]:
    """Run `script --worker TASK` in `count` processes, which form one run; the JSON that each prints last.

    A task has the number of its process, how many there are, and the address where they meet.
    """
    task = {**task, "count": count, "address": _free()}
    command = [sys.executable, script, "--worker"]
    parts = [
        subprocess.Popen(
            [*command, json.dumps(task | {"process": number})],
            env=os.environ | env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for number in range(count)
    ]  # fmt: skip
    told = [part.communicate() for part in parts]
    for part, (_, error) in zip(parts, told, strict=True):
        if part.returncode:
            raise RuntimeError(f"A process of {count} failed:\n{error[-3000:]}")
    return [json.loads(output.splitlines()[-1]) for output, _ in told]


def _free() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


@contextmanager
def one_of(task: Mapping[str, Any]) -> Iterator[None]:
    """Join the run of `in_processes` that the task names, on a core of its own."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, [cores[task["process"] % len(cores)]])
    import jax

    if task["count"] > 1:
        from jax.experimental import multihost_utils

        jax.distributed.initialize(task["address"], task["count"], task["process"])
        multihost_utils.sync_global_devices("all are there")
    yield
    if task["count"] > 1:
        jax.distributed.shutdown()


def hold_cores(threads: int) -> None:
    """Keep this process on the first `threads` cores; XLA sizes its pool by them."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def installed(package: str) -> str | None:
    """Its version, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def surroundings(*packages: str) -> dict[str, Any]:
    """When and on what this runs; to be asked before the work starts. A busy machine is said so."""
    load = os.getloadavg()[0]
    if load > BUSY:
        print(f"WARNING: load average {load:.2f} before the start: others are computing here, "
              "so only ratios within this run mean anything\n", file=sys.stderr)  # fmt: skip
    names = ("bayesfac", *packages, "numpy", "scipy", "numba", "jax")
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load before start": round(load, 2),
        "python": platform.python_version(),
        "versions": {name: installed(name) or "not installed" for name in names},
    }


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


class Clock:
    """Stands in for the progress bar of an engine: notes when each step ended."""

    def __init__(self) -> None:
        self.times = [time.perf_counter()]

    def __enter__(self) -> "Clock":
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def update(self, steps: int) -> None:
        """One more time, unless a run that starts afresh says that it skips nothing."""
        if steps:
            self.times.append(time.perf_counter())

    def set_postfix(self, **_: Any) -> None:
        """The bar's text."""


class Sweeps(Clock):
    """Also how many sweeps each step made."""

    def __init__(self) -> None:
        super().__init__()
        self.sweeps, self.busy = [0], [time.process_time()]

    def update(self, steps: int) -> None:
        super().update(steps)
        if steps:
            self.sweeps.append(steps)
            self.busy.append(time.process_time())

    def each(self, first: int, times: Sequence[float] | None = None) -> float:
        """The median seconds of a sweep, after the first sweeps and the step that follows them; of `times`
        in the place of wall clock, such as `busy`, the CPU seconds of this process."""
        after = np.cumsum(self.sweeps) > first
        found = self.times if times is None else times
        return float(np.median((np.diff(found) / self.sweeps[1:])[after[1:]]))


class Cells:
    """Results by key, each written to the file as soon as it is there: a run that was stopped goes on where
    it was, and a cell whose settings have changed since is computed again."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.found: dict[str, Any] = {}
        self._read()

    def _read(self) -> None:
        if self.path is not None and self.path.exists():
            self.found |= json.loads(self.path.read_text(encoding="utf-8"))["results"]

    def get(
        self,
        key: str,
        make: Callable[[], Any],
        *,
        told: Callable[[Any], Any] = str,
        **settings: Any,
    ) -> Any:
        """What `make()` gave under this key and these settings; `told` is what is said of it."""
        if self.found.get(key, {}).get("settings") != settings:
            begun = time.perf_counter()
            value = make()
            seconds = round(time.perf_counter() - begun, 1)
            self._read()  # what other runs have added meanwhile
            self.found[key] = {"value": value, "seconds": seconds, "settings": settings}
            print(f"  {key}: {told(value)} ({seconds:.0f} s)", file=sys.stderr, flush=True)
            if self.path is not None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with atomic(self.path) as part:
                    part.write_text(json.dumps({"results": self.found}, indent=1), encoding="utf-8")
        return self.found[key]["value"]


@contextmanager
def shared_arrays(**arrays: Any) -> Iterator[str]:
    """One NPZ file that every worker reads: the very same data for all."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "data.npz")
        np.savez(path, **arrays)
        yield path


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a Markdown table, columns as wide as their longest entry."""
    names = list(rows[0])
    cells = [names] + [[str(row.get(name, "")) for name in names] for row in rows]
    # three: below an empty column a shorter rule is no rule, and the table none
    width = [max(3, *(len(line[i]) for line in cells)) for i in range(len(names))]
    cells.insert(1, ["-" * w for w in width])
    lines = (" | ".join(c.ljust(w) for c, w in zip(line, width, strict=True)) for line in cells)
    return "\n".join(f"| {line} |" for line in lines)


def report(name: str, args: argparse.Namespace, record: dict[str, Any], text: str) -> None:
    """Print the table with where it was measured; keep the figures, unless it was a smoke run."""
    where = record["where"]
    versions = ", ".join(f"{k} {v}" for k, v in where["versions"].items())
    print(text)
    print(f"\n{where['date']}, {where['cpu']}, {args.threads} of {where['cores']} cores, "
          f"load {where['load before start']} before the start")  # fmt: skip
    print(f"Python {where['python']}; {versions}")
    path = args.out or (None if args.quick else RESULTS / f"{name}.json")
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic(path) as part:
            part.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(f"Figures: {os.path.relpath(path)}")
