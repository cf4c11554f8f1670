"""The number of components: `ard_mf` with too large a limit, beside `bpmf` with each of several numbers.

made up   ratings of known rank (200 x 150, 3 in 10 cells seen, noise .7): the posterior of the number of
          components in use, for each seed, and the held-out RMSE beside `bpmf` with the true rank and with
          the limit. What each chain uses most often is listed too, as chains could disagree
ratings   MovieLens-100K, random 90/10: `ard_mf` with a limit of 100 beside a grid of `bpmf`; RMSE, log score,
          coverage of 90 % intervals, and CPU seconds with compilation. The same sweeps and splits for all

`ard_mf` is given no number, and `bpmf` all: the best of the grid is known after the fact alone.
"""

import time
import warnings
from functools import partial
from typing import Any

import numpy as np
from common import RESULTS, Cells, arguments, hold_cores, report, surroundings, table

import bayesfac as bf

PARTS = ("made up", "ratings")
Numbers = dict[str, Any]


def judged(
    method: str, K: int, data: tuple[Any, Any], sweeps: tuple[int, ...], seed: int
) -> Numbers:
    """One Gibbs fit to the training part, scored on the test part."""
    train, test = data
    begun = time.process_time()
    fit = bf.fit(method, train, bf.Gibbs(*sweeps), n_components=K, seed=seed, progress=False)
    seconds = time.process_time() - begun
    asked = fit.predict(test)
    found = {
        "RMSE": bf.metrics.rmse(asked.mean, test.value),
        "log score": float(np.mean(asked.scores(test.value)["log_score"])),
        "90 % hold": bf.metrics.coverage(*asked.interval(0.9), test.value),
        "CPU seconds": round(seconds, 1),
    }
    if method == "ard_mf":
        used = fit.in_use
        found["in use"] = {str(k): float(share) for k, share in used.table.items()}
        found["interval"] = list(used.interval())
        found["by chain"] = [int(np.bincount(each).argmax()) for each in used.number]
    return found


def parts(part: str, rank: int, seed: int, quick: bool) -> tuple[Any, Any]:
    """Training and test ratings."""
    if part == "made up":
        shape = (60, 40) if quick else (200, 150)
        data = bf.datasets.make_gaussian(*shape, rank, noise=0.7, density=0.3, seed=seed)[0]
    else:
        data = bf.datasets.load("ratings" if quick else "movielens-100k")
    return bf.split.holdout(data, 0.1, seed=seed)


def shown(found: dict[str, Numbers]) -> list[Numbers]:
    """Rows of the table."""
    rows = []
    for key, each in found.items():
        value = each["value"]
        row = {"data, seed, method, K": key} | {
            name: f"{value[name]:.4f}" for name in ("RMSE", "log score", "90 % hold")
        }
        row["CPU seconds"] = f"{value['CPU seconds']:.0f}"
        if "in use" in value:
            shares = ", ".join(f"{k}: {share:.0%}" for k, share in value["in use"].items())
            low, high = value["interval"]
            row |= {"in use": shares, "90 %": f"{low} to {high}", "chains": value["by chain"]}
        else:
            row |= {"in use": "", "90 %": "", "chains": ""}
        rows.append(row)
    return rows


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="data sets or splits (5)")
    parser.add_argument("--rank", type=int, default=5, help="of the made-up ratings (5)")
    parser.add_argument(
        "--limits", nargs=2, type=int, default=[20, 100], help="K of each part (20 100)"
    )
    parser.add_argument(
        "--grid", nargs="+", type=int, default=[5, 10, 20, 40], help="K of bpmf, ratings"
    )
    parser.add_argument("--sweeps", nargs=3, type=int, default=[300, 300, 2],
                        help="warm-up, draws, chains (300 300 2)")  # fmt: skip
    args = parser.parse_args()
    hold_cores(args.threads)
    warnings.simplefilter("ignore")
    where = surroundings()
    cells = Cells(None if args.quick else args.out or RESULTS / "rank.json")
    sweeps = (30, 20, 1) if args.quick else tuple(args.sweeps)
    for part in args.parts:
        limit = 6 if args.quick else args.limits[PARTS.index(part)]
        grid = [args.rank, limit] if part == "made up" else args.grid
        for seed in range(1 if args.quick else args.seeds):
            data = parts(part, args.rank, seed, args.quick)
            for method, K in [
                ("ard_mf", limit),
                *(("bpmf", K) for K in grid[: 2 if args.quick else None]),
            ]:
                make = partial(judged, method, K, data, sweeps, seed)
                cells.get(
                    f"{part}, {seed}, {method}, {K}", make, sweeps=list(sweeps), rank=args.rank
                )
    report("rank", args, {"where": where, "results": cells.found}, table(shown(cells.found)))


if __name__ == "__main__":
    main()
