"""One fit by 1, 2 and 4 processes of one core each: its speed, and whether draws or parameters agree.

BPMF and `ordinal_mf` by Gibbs, PLSA by EM, where ratings count as words and the start is random, or `mmmf` by
L-BFGS.

sweep        seconds of wall clock a sweep or an iteration: the median over blocks of sweeps after the first
             ones, in `--repeats` runs that alternate between the numbers of processes
ratio        of one process to this many; four processes on two cores are there for their draws only
CPU          of these, the CPU seconds of a process: the same on a busy machine
apart        the largest difference of U (of PLSA: A) from that of one process, over its largest entry, after
             20 sweeps in single and in double precision

`--kills N` also kills workers at N random moments: one of two processes of a Gibbs run, a `bayesfac worker`,
and a worker of a Dask cluster (`--killed`). The result must be that of a run in peace.
"""

import json
import tempfile
import warnings
from typing import Any
from unittest.mock import patch

import numpy as np
import scipy.sparse as sp
from common import Sweeps, arguments, in_processes, one_of, report, surroundings, table
from common.kills import KINDS, killed

FIRST = 4  # sweeps before the clock starts
AGREE = 20
PENALTY = 20.0  # of mmmf


def run(task: dict[str, Any]) -> dict[str, Any]:
    """The part of one process."""
    with one_of(task):
        import bayesfac as bf

        clock = Sweeps()
        data = (
            bf.datasets.load(task["data"])
            if task["data"]
            else bf.datasets.make_ratings(200, 150, 2, seed=0)
        )
        with patch.object(METHODS[task["method"]][0](), "bar", lambda *_: clock):
            rows = METHODS[task["method"]][1](bf, data, task)
        if task["process"] == 0:
            np.save(task["draws"], np.asarray(rows))
    return {"sweep": clock.each(FIRST), "CPU": clock.each(FIRST, clock.busy)}


def gibbs_file() -> Any:
    from bayesfac.inference import gibbs

    return gibbs


def solver_file() -> Any:
    from bayesfac.inference import fixed_point

    return fixed_point


def gradient_file() -> Any:
    from bayesfac.inference import gradient

    return gradient


def sampled(bf: Any, data: Any, task: dict[str, Any]) -> Any:
    """U after all sweeps."""
    engine = bf.Gibbs(FIRST, task["sweeps"], 1, shares=True)
    return bf.fit(task["method"], data, engine, n_components=task["components"]).draws["U"][0, -1]


def descended(bf: Any, data: Any, task: dict[str, Any]) -> Any:
    """U after all iterations."""
    warnings.simplefilter("ignore", bf.ConvergenceWarning)
    engine = bf.LBFGS(FIRST + task["sweeps"], tol=0.0, shares=True)
    return bf.fit("mmmf", data, engine, n_components=task["components"], penalty=PENALTY).params.U


def solved(bf: Any, data: Any, task: dict[str, Any]) -> Any:
    """A after all sweeps; the objective is computed after every other one."""
    warnings.simplefilter("ignore", bf.ConvergenceWarning)
    entries = data.value - data.value.min() + 1, (data.user, data.item)
    words = bf.Views(sp.csr_matrix(entries, shape=data.shape))
    engine = bf.FixedPoint(FIRST + task["sweeps"], tol=0.0, accelerate=False, every=2, shares=True)
    how = {"n_components": task["components"], "start": "random", "scale": "none"}
    return bf.fit("plsa", words, engine, **how).params.A


METHODS = {
    "bpmf": (gibbs_file, sampled),
    "ordinal_mf": (gibbs_file, sampled),
    "plsa": (solver_file, solved),
    "mmmf": (gradient_file, descended),
}


def together(count: int, **task: Any) -> tuple[dict[str, Any], np.ndarray]:
    """Run `count` processes; what the first one found, and its last draw of U."""
    with tempfile.TemporaryDirectory() as folder:
        task |= {"draws": f"{folder}/U.npy"}
        told = in_processes(__file__, count, task, JAX_ENABLE_X64=str(task.pop("double", 0)))
        return told[0], np.load(task["draws"])


def main() -> None:
    parser = arguments(__doc__ or "")
    add = parser.add_argument
    add("--data", default="movielens-1m", help="(%(default)s)")
    add("--method", default="bpmf", choices=list(METHODS), help="(%(default)s)")
    add("--components", type=int, default=64, metavar="K", help="(%(default)s)")
    add("--sweeps", type=int, default=24, metavar="N", help="of each run (%(default)s)")
    add("--repeats", type=int, default=2, metavar="N", help="(%(default)s)")
    add("--processes", type=int, nargs="+", default=[1, 2, 4], metavar="N")
    add(
        "--kills",
        type=int,
        default=0,
        metavar="N",
        help="of each kind of worker, at random moments",
    )
    add("--killed", nargs="+", default=list(KINDS), choices=list(KINDS), help="kinds of workers")
    args = parser.parse_args()
    if args.worker:
        print(json.dumps(run(json.loads(args.worker))))
        return
    where = surroundings()
    task = {"data": args.data, "components": args.components, "method": args.method}
    if args.quick:
        task |= {"data": "", "components": 3}
        args.sweeps, args.repeats, args.processes = 6, 1, [1, 2]
    seconds: dict[int, list[float]] = {count: [] for count in args.processes}
    busy: dict[int, list[float]] = {count: [] for count in args.processes}
    for _ in range(args.repeats):
        for count in args.processes:
            told, _ = together(count, sweeps=args.sweeps, **task)
            seconds[count].append(told["sweep"])
            busy[count].append(told["CPU"])
    apart = {}
    for double in (0, 1):
        ends = {
            c: together(c, sweeps=AGREE - FIRST, double=double, **task)[1] for c in args.processes
        }
        first = ends[args.processes[0]]
        apart[double] = {c: float(abs(u - first).max() / abs(first).max()) for c, u in ends.items()}
    best = {count: min(found) for count, found in seconds.items()}
    least = {count: min(found) for count, found in busy.items()}
    rows = [
        {
            "processes": count,
            "ms a sweep": ", ".join(f"{1e3 * s:.0f}" for s in seconds[count]),
            "ratio": f"{best[args.processes[0]] / best[count]:.2f}",
            "CPU ms": ", ".join(f"{1e3 * s:.0f}" for s in busy[count]),
            "ratio of CPU": f"{least[args.processes[0]] / least[count]:.2f}",
            "apart, single": f"{apart[0][count]:.0e}",
            "apart, double": f"{apart[1][count]:.0e}",
        }
        for count in args.processes
    ]
    record = {"where": where, "task": task, "seconds": seconds, "CPU": busy, "apart": apart}
    if args.kills:
        record["kills"] = killed(args.killed, args.kills)
    report(
        "processes" if args.method == "bpmf" else f"processes_{args.method}",
        args,
        record,
        table(rows),
    )


if __name__ == "__main__":
    main()
