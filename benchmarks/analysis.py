"""Seconds of a whole BPMF analysis, from the start of the process, beside the sweeps of SMURFF.

Four chains of 500 + 500 sweeps with 10 components on MovieLens-100K, one rating in ten held out.

bayesfac    a process that loads bayesfac, samples four chains, predicts means and 90 % intervals of the
            held-out ratings from all draws, and judges the chains. Programs are on disk from a run before.
sweeps      of bayesfac: the call of `bf.fit`, start and compilation included; of SMURFF: its 4,000 sweeps,
            one chain after the other on all threads. It keeps draws and updates mean predictions in a sweep.

Both in turn, `--repeats` times with other seeds; the noise precision is fixed at 2 for both.
"""

import json
import sys
import time
from typing import Any

import numpy as np
from common import arguments, hold_cores, in_process, report, shared_arrays, surroundings, table
from gibbs import ALPHA, load, run_smurff

CHAINS, SWEEPS = 4, 500  # of each chain so many sweeps as warm-up, and so many that are kept


def run_bayesfac(task: dict[str, Any], data: dict[str, np.ndarray]) -> dict[str, float]:
    import bayesfac as bf

    ratings = bf.Ratings(data["user"], data["item"], data["value"])
    train, test = ratings.take(~data["held_out"]), ratings.take(data["held_out"])
    engine = bf.Gibbs(task["sweeps"], task["sweeps"], CHAINS)
    fit = bf.fit("bpmf", train, engine, seed=task["seed"], n_components=10, alpha=ALPHA)
    predicted = fit.predict(test)
    low, high = predicted.interval(0.9)
    error = predicted.mean - test.value
    inside = (low <= test.value) & (test.value <= high)
    rmse, covered = float(np.sqrt(np.mean(error**2))), float(inside.mean())
    return {
        "sweeps": fit.seconds,
        "rmse": rmse,
        "covered": covered,
        "verdict": str(fit.diagnostics()),
    }


def run_four(task: dict[str, Any], data: dict[str, np.ndarray]) -> dict[str, float]:
    """The chains of SMURFF; its error is that of one chain."""
    one = {"components": 10, "warmup": task["sweeps"], "draws": task["sweeps"]} | task
    begun = time.perf_counter()
    rmse = [run_smurff(one | {"seed": 10 * task["seed"] + k}, data)["rmse"] for k in range(CHAINS)]
    return {"sweeps": time.perf_counter() - begun, "rmse": float(np.mean(rmse))}


RUN = {"bayesfac": run_bayesfac, "SMURFF": run_four}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--data", default="movielens-100k", metavar="NAME", help="a set of ratings")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="processes each (3)")
    args = parser.parse_args()
    if args.worker:
        task = json.loads(args.worker) | {"threads": args.threads}
        hold_cores(args.threads)
        with np.load(task["data"]) as file:
            print(json.dumps(RUN[task["library"]](task, dict(file))))
        return
    args.features = False
    where, found = surroundings("smurff"), []
    with shared_arrays(**load(args)[1]) as data:
        task = {"data": data, "sweeps": 5 if args.quick else SWEEPS, "seed": 0}
        in_process(__file__, task | {"library": "bayesfac"}, args.threads)  # compiles
        for seed in range(1, 2 if args.quick else args.repeats + 1):
            for library in RUN:
                begun = time.perf_counter()
                done = in_process(__file__, task | {"library": library, "seed": seed}, args.threads)
                seconds = time.perf_counter() - begun
                found.append({"library": library, "seed": seed, "process": seconds} | done)
                print(f"  {library}: {seconds:.1f} s", file=sys.stderr)
    report("analysis", args, {"where": where, "results": found}, table(rows(found)))


def rows(found: list[dict[str, Any]]) -> list[dict[str, str]]:
    """One line for each process; the ratio is that of the whole process to SMURFF's sweeps."""
    base = {one["seed"]: one["sweeps"] for one in found if one["library"] == "SMURFF"}
    return [
        {
            "library": one["library"], "seed": one["seed"],
            "s from start to end": f"{one['process']:.1f}", "s of sweeps": f"{one['sweeps']:.1f}",
            "relative to SMURFF's sweeps": f"{one['process'] / base[one['seed']]:.2f}",
            "test RMSE": f"{one['rmse']:.4f}",
            "inside 90 % interval": f"{one['covered']:.3f}" if "covered" in one else "none",
        }
        for one in found
    ]  # fmt: skip


if __name__ == "__main__":
    main()
