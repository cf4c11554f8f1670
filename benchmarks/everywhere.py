"""Mean and sd of every cell of MovieLens-1M from draws on disk, and the memory that it takes.

Two processes, so that each has a peak of its own (the operating system's ru_maxrss, everything
included: interpreter, libraries, data):

sample    bf.fit("bpmf", ratings, bf.Gibbs(draws=1000, folder=...)), then fit.save(...)
predict   bf.load(...), then fit.everywhere(memory=...)

The draws are 1.3 GB, the copy that `save` makes as much again: room for 2.6 GB is needed in
`--folder` (the system's temporary folder by default). It is emptied at the end.
"""

import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import arguments, hold_cores, in_process, report, surroundings, table

LIMIT = 2.0  # GB that neither process may reach
Numbers = dict[str, Any]


def sample(task: Numbers) -> Numbers:
    """Draw to disk, and save."""
    import bayesfac as bf

    if task["data"] == "generated":
        ratings = bf.datasets.make_gaussian(400, 300, rank=5, density=0.2)[0]
    else:
        ratings = bf.datasets.load(task["data"])
    folder = Path(task["folder"])
    engine = bf.Gibbs(
        warmup=task["warmup"], draws=task["draws"], chains=1, folder=str(folder / "run")
    )
    fit = bf.fit("bpmf", ratings, engine, n_components=task["components"])
    sampled = time.perf_counter()
    fit.save(folder / "fit")
    saving = time.perf_counter() - sampled
    size = sum(path.stat().st_size for path in (folder / "fit").rglob("*.npy"))
    return {"seconds": fit.seconds, "saving": saving, "draws on disk": size / 1e9}


def predict(task: Numbers) -> Numbers:
    """Every cell, and a few of them once more another way."""
    import bayesfac as bf

    begun = time.perf_counter()
    fit = bf.load(Path(task["folder"]) / "fit")
    loading = time.perf_counter() - begun
    begun = time.perf_counter()
    every = fit.everywhere(memory=task["memory"] * 2**20)
    seconds = time.perf_counter() - begun
    peak = _peak()
    rng = np.random.default_rng(0)
    row, col = (rng.integers(n, size=500) for n in every.mean.shape)
    users, items = fit.data.coords["user"][row], fit.data.coords["item"][col]
    again = fit.predict({"user": users, "item": items})
    unseen = (fit.data.row_counts[row] == 0) | (fit.data.col_counts[col] == 0)
    gaps = (np.abs(every.mean[row, col] - again.mean), np.abs(every.sd[row, col] - again.sd))
    largest = [float(gap[~unseen].max()) for gap in gaps]
    shape = list(every.mean.shape)
    return {"seconds": seconds, "loading": loading, "shape": shape, "gaps": largest, "peak": peak}


def _peak() -> float:
    """The most memory this process ever held, in GB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def work(task: Numbers, threads: int) -> None:
    hold_cores(threads)
    done = {"sample": sample, "predict": predict}[task["phase"]](task)
    print(json.dumps({"peak": _peak()} | done))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--data", default="movielens-1m", metavar="NAME", help="a set of ratings")
    parser.add_argument("--draws", type=int, default=1000, metavar="N")
    parser.add_argument("--warmup", type=int, default=50, metavar="N", help="sweeps not kept (50)")
    parser.add_argument("--components", type=int, default=32, metavar="K")
    parser.add_argument("--memory", type=int, default=512, metavar="MIB", help="work space (512)")
    parser.add_argument("--folder", type=Path, help="where the draws go")
    args = parser.parse_args()
    if args.worker:
        return work(json.loads(args.worker), args.threads)
    if args.quick:
        args.data, args.draws, args.warmup, args.components = "generated", 20, 5, 4
    where = surroundings()
    settings = {"data": args.data, "draws": args.draws, "components": args.components}
    settings |= {"warmup": args.warmup, "memory": args.memory, "threads": args.threads}
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        task = settings | {"folder": folder}
        sampled, predicted = (
            in_process(__file__, task | {"phase": phase}, args.threads)
            for phase in ("sample", "predict")
        )
    n, m = predicted["shape"]
    lines = [
        {"phase": "sample", "seconds": f"{sampled['seconds']:.1f}",
         "and": f"{sampled['saving']:.1f} s saving", "peak GB": f"{sampled['peak']:.2f}"},
        {"phase": "predict", "seconds": f"{predicted['seconds']:.1f}",
         "and": f"{predicted['loading']:.1f} s loading", "peak GB": f"{predicted['peak']:.2f}"},
    ]  # fmt: skip
    kept = max(sampled["peak"], predicted["peak"]) < LIMIT
    text = (
        f"{args.data}: {n} x {m} = {n * m:,} cells from {args.draws} draws, "
        f"K = {args.components}, {sampled['draws on disk']:.2f} GB on disk\n\n{table(lines)}\n\n"
        f"Against predict() at 500 cells: mean within {predicted['gaps'][0]:.1e}, "
        f"sd within {predicted['gaps'][1]:.1e}\n"
        f"Below {LIMIT:g} GB: {'yes' if kept else 'NO'}"
    )
    record = {"where": where, "settings": settings, "sample": sampled, "predict": predicted}
    report("everywhere", args, record, text)
    if not kept:
        sys.exit(1)


if __name__ == "__main__":
    main()
