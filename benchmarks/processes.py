"""One Gibbs run of BPMF by 1, 2 and 4 processes of one core each: its speed, and whether the draws agree.

sweep        seconds of wall clock a sweep: the median over blocks of sweeps after the first ones, in
             `--repeats` runs that alternate between the numbers of processes
ratio        of one process to this many; four processes on two cores are there for their draws only
apart        the largest difference of U's draws from those of one process, over the largest entry of U, after
             20 sweeps in single and in double precision

`--kills N` also kills one of two processes at N random moments and starts the same command again each time:
the draws must be those of a run that nobody killed.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from common import Sweeps, arguments, in_processes, one_of, report, surroundings, table

FIRST = 4  # sweeps before the clock starts
AGREE = 20


def run(task: dict[str, Any]) -> dict[str, Any]:
    """The part of one process."""
    with one_of(task):
        import bayesfac as bf
        from bayesfac.inference import gibbs

        clock = Sweeps()
        data = (
            bf.datasets.load(task["data"])
            if task["data"]
            else bf.datasets.make_ratings(200, 150, 2, seed=0)
        )
        engine = bf.Gibbs(FIRST, task["sweeps"], 1, shares=True)
        with patch.object(gibbs, "bar", lambda *_: clock):
            fit = bf.fit("bpmf", data, engine, n_components=task["components"])
        if task["process"] == 0:
            np.save(task["draws"], np.asarray(fit.draws["U"][0, -1]))
    return {"sweep": clock.each(FIRST)}


def together(count: int, **task: Any) -> tuple[dict[str, Any], np.ndarray]:
    """Run `count` processes; what the first one found, and its last draw of U."""
    with tempfile.TemporaryDirectory() as folder:
        task |= {"draws": f"{folder}/U.npy"}
        told = in_processes(__file__, count, task, JAX_ENABLE_X64=str(task.pop("double", 0)))
        return told[0], np.load(task["draws"])


def killed(times: int, folder: Path, seed: int = 0) -> dict[str, Any]:
    """Kill one of two processes at random moments; whether the draws are those of a run in peace."""
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
    return {"kills": kills, "the same draws": same, "seconds in peace": round(length, 1)}


def _children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=True)
    return [int(line) for line in found.stdout.split()]


def main() -> None:
    parser = arguments(__doc__ or "")
    add = parser.add_argument
    add("--data", default="movielens-1m", help="(%(default)s)")
    add("--components", type=int, default=64, metavar="K", help="(%(default)s)")
    add("--sweeps", type=int, default=24, metavar="N", help="of each run (%(default)s)")
    add("--repeats", type=int, default=2, metavar="N", help="(%(default)s)")
    add("--processes", type=int, nargs="+", default=[1, 2, 4], metavar="N")
    add("--kills", type=int, default=0, metavar="N", help="of a process, at random moments")
    args = parser.parse_args()
    if args.worker:
        print(json.dumps(run(json.loads(args.worker))))
        return
    where = surroundings()
    task = {"data": args.data, "components": args.components}
    if args.quick:
        task, args.sweeps, args.repeats, args.processes = (
            {"data": "", "components": 3},
            6,
            1,
            [1, 2],
        )
    seconds: dict[int, list[float]] = {count: [] for count in args.processes}
    for _ in range(args.repeats):
        for count in args.processes:
            seconds[count].append(together(count, sweeps=args.sweeps, **task)[0]["sweep"])
    apart = {}
    for double in (0, 1):
        ends = {
            c: together(c, sweeps=AGREE - FIRST, double=double, **task)[1] for c in args.processes
        }
        first = ends[args.processes[0]]
        apart[double] = {c: float(abs(u - first).max() / abs(first).max()) for c, u in ends.items()}
    best = {count: min(found) for count, found in seconds.items()}
    rows = [
        {
            "processes": count,
            "ms a sweep": ", ".join(f"{1e3 * s:.0f}" for s in seconds[count]),
            "ratio": f"{best[args.processes[0]] / best[count]:.2f}",
            "apart, single": f"{apart[0][count]:.0e}",
            "apart, double": f"{apart[1][count]:.0e}",
        }
        for count in args.processes
    ]
    record = {"where": where, "task": task, "seconds": seconds, "apart": apart}
    if args.kills:
        with tempfile.TemporaryDirectory() as folder:
            record["kills"] = killed(args.kills, Path(folder))
            print(record["kills"])
    report("processes", args, record, table(rows))


if __name__ == "__main__":
    main()
