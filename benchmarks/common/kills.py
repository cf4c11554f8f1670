"""Workers that are killed at random moments, beside the same run in peace."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Numbers = dict[str, Any]


def of_a_process(times: int, folder: Path, seed: int = 0) -> Numbers:
    """Kill one of two processes of a Gibbs run, and start the same command again each time."""
    import bayesfac as bf

    data = bf.datasets.make_ratings(300, 200, 3, seed=0)
    data.frame().to_csv(folder / "ratings.csv", index=False)
    pick = random.Random(seed)

    def command(name: str) -> list[str]:
        how = ["chains=1", "warmup=500", "draws=4000", "save_every=0.2", f"folder={folder / name}"]
        return [
            sys.executable, "-m", "bayesfac.cli", "fit", "bpmf", str(folder / "ratings.csv"),
            "--engine", "gibbs", "--processes", "2", "--set", "n_components=3", "--with", *how,
            "--out", str(folder / f"{name} fit"),
        ]  # fmt: skip

    begun = time.perf_counter()
    subprocess.run(command("peace"), check=True, capture_output=True)
    length, kills = time.perf_counter() - begun, 0
    while True:
        with subprocess.Popen(
            command("war"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        ) as running:
            struck, moment = False, pick.uniform(0.1, 0.4) * length if kills < times else None
            try:
                output, _ = running.communicate(timeout=moment)
            except subprocess.TimeoutExpired:
                victim = pick.choice(_children(running.pid))
                os.kill(victim, signal.SIGKILL)
                struck, kills = True, kills + 1
                output, _ = running.communicate()
            if running.returncode == 0:
                break
            if not struck:
                raise RuntimeError(output.decode()[-2000:])
    one, other = (bf.load(folder / f"{name} fit") for name in ("peace", "war"))
    same = all(np.array_equal(one.draws[site], other.draws[site]) for site in one.draws)
    return {"kills": kills, "the same": same, "seconds in peace": round(length, 1)}


def _children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=True)
    return [int(line) for line in found.stdout.split()]


def evaluated(sweeps: int = 400, folds: int = 4, **how: Any) -> Any:
    """A cross-validation whose cells take some seconds each: the table without seconds."""
    import bayesfac as bf

    data, _ = bf.datasets.make_tasks(80, 1, labelled=1.0, seed=0)
    engine = bf.FixedPoint(sweeps, tol=0.0, accelerate=False)
    given = {
        "n_components": 2,
        "sparsity": 0.0625,
    }  # a search for sparsity would take longer than all fits
    ways = {name: ("heres", given, engine) for name in ("one", "other")}
    found = bf.evaluate(ways, {"made up": data}, folds=folds, progress=False, **how)
    return found.cells.drop(columns="seconds")


def of_a_worker(times: int, folder: Path, seed: int = 0, **how: Any) -> Numbers:
    """Kill a `bayesfac worker` of a shared folder, and start another one each time."""
    pick, begun = random.Random(seed), time.perf_counter()
    whole = evaluated(**how)
    length = time.perf_counter() - begun
    shared = {"folder": folder / "run", "shared": True}
    (folder / "run").mkdir()
    evaluated(**how, **shared, finished=True)  # the plan
    command = [sys.executable, "-m", "bayesfac.cli", "worker", str(folder / "run")]
    kills, left = 0, []
    while kills < times:
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as worker:
            # until it has a cell, and then some
            _wait(lambda worker=worker: worker.poll() is not None or _locked(folder / "run"))
            time.sleep(pick.uniform(0, 0.5) * length / (2 * times))
            if worker.poll() is not None:
                break  # all cells are finished
            worker.kill()
            kills += 1
        left.append(len(list((folder / "run" / "locks").glob("*.lock"))))
    found = evaluated(**how, **shared)
    return {
        "kills": kills,
        "the same": bool(found.equals(whole)),
        "locks that the dead held": sum(left),
    }


def _locked(folder: Path) -> bool:
    return any((folder / "locks").glob("*.lock"))


def _wait(ready: Callable[[], bool]) -> None:
    while not ready():
        time.sleep(0.05)


def of_a_dask_worker(times: int, folder: Path, seed: int = 0, **how: Any) -> Numbers:
    """Kill one of two workers of a Dask cluster while they run a cross-validation.

    Dask gives a call up after four deaths of its workers (`allowed-failures`), which is raised here.
    """
    try:
        import dask
        import distributed
    except ImportError as error:
        return {"kills": 0, "left out": f"pip install 'bayesfac[dask]': {error}"}
    from joblib import parallel_config

    how = {"sweeps": 250 * times} | how  # long enough to be struck so often
    whole, pick, over = evaluated(**how), random.Random(seed), threading.Event()
    struck: list[int] = []
    quiet = {"dashboard_address": None, "threads_per_worker": 1, "local_directory": str(folder)}
    dask.config.set({"distributed.scheduler.allowed-failures": 10 * times + 10})
    with distributed.LocalCluster(n_workers=2, **quiet) as cluster, distributed.Client(cluster):

        def strike() -> None:
            while len(struck) < times and not over.wait(pick.uniform(1.0, 6.0)):
                alive = [n.pid for n in cluster.workers.values() if n.pid]
                if alive:
                    struck.append(pick.choice(alive))
                    os.kill(struck[-1], signal.SIGKILL)

        killer = threading.Thread(target=strike)
        killer.start()
        try:
            with parallel_config("dask"):
                found = evaluated(**how)
        finally:
            over.set()
            killer.join()
    return {"kills": len(struck), "the same": bool(found.equals(whole))}


KINDS: dict[str, Callable[..., Numbers]] = {
    "process": of_a_process,
    "worker": of_a_worker,
    "dask": of_a_dask_worker,
}


def killed(kinds: list[str], times: int) -> dict[str, Numbers]:
    """Each kind of worker, killed so many times."""
    found = {}
    for kind in kinds:
        with tempfile.TemporaryDirectory() as folder:
            found[kind] = KINDS[kind](times, Path(folder))
        print(f"killed: {kind}: {found[kind]}", flush=True)
    return found
