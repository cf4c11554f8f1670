"""Posterior propagation (`bf.Blocks`) beside Gibbs: scores, widths of intervals, CPU seconds.

RMSE, log score    of held-out ratings, random 90/10
90 % hold          how many held-out ratings their 90 % intervals hold
sd                 of expected ratings, over those of Gibbs: median, and where 5 and 95 % of cells are
CPU                seconds of a second fit in the same process, so nothing is compiled; one process
critical path      of these, the seconds of the slowest block of each stage: what enough workers would take

Both run BPMF with the same sweeps of equally many chains.
"""

import time
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
from common import RESULTS, Cells, arguments, report, surroundings, table

import bayesfac as bf
from bayesfac.inference.propagation import blocks as engine_file
from bayesfac.inference.propagation.stages import of_block

Numbers = dict[str, Any]
LEVEL = 0.9


class Stages:
    """CPU seconds of the blocks of each stage."""

    def __init__(self) -> None:
        self.seconds: dict[int, list[float]] = {}

    def block(self, *given: Any) -> Any:
        """`of_block`, timed."""
        begun = time.process_time()
        found = of_block(*given)
        stage = sum(k > 0 for k in given[1])
        self.seconds.setdefault(stage, []).append(time.process_time() - begun)
        return found


def timed(data: Any, engine: Any, components: int, repeats: int) -> tuple[bf.Fit, float, Stages]:
    """The last of some equal fits, its CPU seconds, and those of its stages."""
    for _ in range(repeats):
        stages, begun = Stages(), time.process_time()
        with patch.object(engine_file, "of_block", stages.block):
            fit = bf.fit("bpmf", data, engine, progress=False, n_components=components)
        seconds = time.process_time() - begun
    return fit, seconds, stages


def compared(
    data: str, components: int, sizes: list[int], sweeps: list[int], repeats: int, seed: int
) -> Numbers:
    train, test = bf.split.holdout(bf.datasets.load(data), 0.1, seed=seed)
    engines = {"Gibbs": bf.Gibbs(*sweeps)}
    engines |= {f"Blocks {n} x {n}": bf.Blocks(n, n, *sweeps) for n in sizes}
    found: Numbers = {}
    for name, engine in engines.items():
        fit, seconds, stages = timed(train, engine, components, repeats)
        sd = fit.predict(test).sd_mean
        if name == "Gibbs":
            long = sd
        scores = bf.compare({"": fit}, test).scores[""]
        found[name] = {
            "RMSE": float(np.average(scores.losses["RMSE"], weights=scores.weights) ** 0.5),
            "log score": float(np.mean(scores.log_score)),
            "90 % hold": float(scores.inside(LEVEL).mean()),
            "sd": np.quantile(sd / long, [0.05, 0.5, 0.95]).tolist(),
            "CPU": seconds,
            "stages": stages.seconds,
            "alpha": float(np.mean(fit.draws["alpha"])),
            "notes": fit.notes,
        }
        print(name, found[name], flush=True)
    return found


def shown(found: Numbers) -> list[Numbers]:
    """Rows of the table."""
    rows = []
    for key, cell in found.items():
        for name, one in cell["value"].items():
            low, median, high = one["sd"]
            path = sum(max(stage) for stage in one["stages"].values())
            rows.append(
                {
                    "data": key,
                    "engine": name,
                    "RMSE": f"{one['RMSE']:.4f}",
                    "log score": f"{one['log score']:.4f}",
                    "90 % hold": f"{one['90 % hold']:.3f}",
                    "sd": f"{median:.2f} ({low:.2f} to {high:.2f})",
                    "CPU": f"{one['CPU']:.1f}",
                    "critical path": f"{path:.1f}" if path else "",
                }
            )
    return rows


def main() -> None:
    parser = arguments(__doc__ or "")
    add = parser.add_argument
    add("--data", nargs="+", default=["movielens-100k"])
    add("--components", type=int, default=10, metavar="K", help="(%(default)s)")
    add("--sizes", type=int, nargs="+", default=[2, 3], metavar="N", help="N x N blocks")
    add(
        "--sweeps",
        type=int,
        nargs=3,
        default=[300, 300, 2],
        metavar="N",
        help="warmup, draws, chains",
    )
    add("--repeats", type=int, default=2, metavar="N", help="fits of each engine; the last counts")
    add("--seeds", type=int, default=1, metavar="N", help="splits (%(default)s)")
    args = parser.parse_args()
    if args.quick:
        args.data, args.components, args.sizes, args.sweeps = ["ratings"], 2, [2], [20, 30, 2]
    where = surroundings()
    cells = Cells(args.out or (None if args.quick else RESULTS / "blocks.json"))
    for data in args.data:
        for seed in range(args.seeds):
            how = data, args.components, args.sizes, args.sweeps, args.repeats, seed
            cells.get(f"{data}, seed {seed}", partial(compared, *how))
    report("blocks", args, {"where": where, "results": cells.found}, table(shown(cells.found)))


if __name__ == "__main__":
    main()
