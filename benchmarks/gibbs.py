"""Seconds per BPMF Gibbs sweep, and the test error after as many sweeps, beside SMURFF and myFM.

One run: the same ratings, hold-out, cores, threads, number of components and number of sweeps;
every library in processes of its own, in turn, `--repeats` times with other seeds. Figures are
medians over the sweeps of all repeats.

sweep        a sweep of the warm-up: all rows and columns, means and precisions; nothing is kept.
             bayesfac runs `--chains` chains side by side: the time of one sweep of all, over their number
kept sweep   a sweep whose draw is kept, with all that the library then does: bayesfac copies and
             checks the draw and evaluates the log joint; SMURFF writes the draw (HDF5) and updates
             its test predictions; myFM copies the draw
first call   seconds of the first `bf.fit` of a process, sweeps included: where nothing was ever compiled,
             and in a second process, which finds the programs on disk

Ratings are centred for all. The noise precision is fixed at 2 (the paper's) in bayesfac and SMURFF;
myFM must learn it. SMURFF and bayesfac have full Normal-Wishart priors, myFM's are diagonal. SMURFF
and myFM compute in double precision: bayesfac is timed in both. myFM's sampler has one thread,
whatever it is given. A sweep of SMURFF is what its own clock says, test predictions not counted.

With `--features` the ratings have MovieLens' features of users and films: SMURFF runs Macau on the same
encoded tables, and myFM is left out (`features.py` compares the predictions of all three).
"""

import contextlib
import io
import json
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import (
    Clock,
    arguments,
    hold_cores,
    in_process,
    installed,
    report,
    shared_arrays,
    surroundings,
    table,
)

ALPHA = 2.0
FEATURES = ("user_features", "item_features")
LIBRARIES = ("bayesfac", "bayesfac float64", "SMURFF", "myFM")
Numbers = dict[str, Any]


def run_bayesfac(task: Numbers, data: Numbers) -> Numbers:
    import bayesfac as bf

    tables = {name: data[name] for name in FEATURES if name in data}
    ratings = bf.Ratings(data["user"], data["item"], data["value"], **tables)
    train, test = ratings.take(~data["held_out"]), ratings.take(data["held_out"])
    hyper = {"n_components": task["components"], "alpha": ALPHA}

    def fit(warmup: int, draws: int) -> Any:
        engine = bf.Gibbs(warmup=warmup, draws=draws, chains=task["chains"])
        return bf.fit("bpmf", train, engine, seed=task["seed"], **hyper)

    n, m = task["warmup"], task["draws"]
    if task.get("first"):
        return {"first": fit(n, m).seconds}
    rmse = float(np.sqrt(np.mean((fit(n, m).predict(test).mean - test.value) ** 2)))
    fit(n, 2 * m)  # compiles
    # a whole run is one program: a sweep is the difference of two runs of unlike length, over all chains
    short, longer, kept = fit(n, m).seconds, fit(3 * n, m).seconds, fit(n, 2 * m).seconds
    sweep, each = (longer - short) / (2 * n), (kept - short) / m
    return {"sweep": [sweep / task["chains"]], "kept": [each / task["chains"]], "rmse": rmse}


def run_smurff(task: Numbers, data: Numbers) -> Numbers:
    import smurff

    out, shape = data["held_out"], (data["user"].max() + 1, data["item"].max() + 1)
    centred = data["value"] - data["value"][~out].mean()
    train, test = (
        sp.csr_matrix((centred[at], (data["user"][at], data["item"][at])), shape=shape)
        for at in (~out, out)
    )
    plain, kept = [], []
    with tempfile.TemporaryDirectory() as folder:
        session = smurff.TrainSession(
            ["macau" if name in data else "normal" for name in FEATURES], task["components"], task["threads"],
            task["warmup"], task["draws"], task["seed"], verbose=0, save_freq=1,
            save_name=f"{folder}/draws.hdf5",
        )  # fmt: skip
        session.setTrain(train, smurff.FixedNoise(ALPHA))
        session.setTest(test)
        for mode, name in enumerate(FEATURES):
            if name in data:
                session.addSideInfo(mode, data[name], direct=True)
        session.init()
        for _ in range(task["warmup"] + task["draws"]):
            begun = time.perf_counter()
            # the compiled step: the Python one also evaluates the training error
            super(smurff.TrainSession, session).step()
            kept.append(time.perf_counter() - begun)
            plain.append(session.getStatus().elapsed_iter)
        rmse = float(session.getRmseAvg())
    return {"sweep": plain[2:], "kept": kept[task["warmup"] :], "rmse": rmse}


def run_myfm(task: Numbers, data: Numbers) -> Numbers:
    import myfm

    out, ones = data["held_out"], np.ones(len(data["user"]))
    sizes = (data["user"].max() + 1, data["item"].max() + 1)
    pairs = sp.hstack([
        sp.csr_matrix((ones, (np.arange(len(ones)), data[side])), shape=(len(ones), size))
        for side, size in zip(("user", "item"), sizes, strict=True)
    ]).tocsr()  # fmt: skip
    mean = data["value"][~out].mean()
    # without bias and linear terms a factorization machine of two indicators is u.v
    model = myfm.MyFMRegressor(
        task["components"], random_seed=task["seed"], fit_w0=False, fit_linear=False
    )
    clock = Clock()

    def ended(*_: Any) -> tuple[bool, None]:
        clock.update(1)
        return False, None

    with contextlib.redirect_stderr(io.StringIO()):  # its progress bar cannot be turned off
        model.fit(
            pairs[~out], data["value"][~out] - mean, n_iter=task["warmup"] + task["draws"],
            n_kept_samples=task["draws"], group_shapes=list(sizes), callback=ended,
        )  # fmt: skip
    error = model.predict(pairs[out]) + mean - data["value"][out]
    return _split(np.diff(clock.times), task) | {"rmse": float(np.sqrt(np.mean(error**2)))}


def _split(sweeps: np.ndarray, task: Numbers) -> Numbers:
    """Sweeps of the warm-up, the first two left out (they compile), and sweeps that keep a draw."""
    return {"sweep": sweeps[2 : task["warmup"]].tolist(), "kept": sweeps[task["warmup"] :].tolist()}


RUN: dict[str, Callable[[Numbers, Numbers], Numbers]] = {
    "bayesfac": run_bayesfac,
    "bayesfac float64": run_bayesfac,
    "SMURFF": run_smurff,
    "myFM": run_myfm,
}


def work(task: Numbers, threads: int) -> None:
    """One library in this process; JSON out."""
    hold_cores(threads)
    with np.load(task["data"]) as file:
        data = dict(file)
    print(json.dumps(RUN[task["library"]](task | {"threads": threads}, data)))


def measure(libraries: list[str], task: Numbers, repeats: int, threads: int) -> dict[str, Numbers]:
    """The libraries in turn, again and again: a slow minute of the machine meets them all."""
    seen: dict[str, list[Numbers]] = {name: [] for name in libraries}
    for seed in range(1, repeats + 1):
        for name in libraries:
            env = {"JAX_ENABLE_X64": "1"} if name.endswith("float64") else {}
            done = in_process(__file__, task | {"library": name, "seed": seed}, threads, **env)
            seen[name].append(done)
            print(f"  K = {task['components']}, {name}: {1e3 * np.median(done['sweep']):.1f} ms",
                  file=sys.stderr)  # fmt: skip
    return {name: _summary(runs) for name, runs in seen.items()}


def _summary(runs: list[Numbers]) -> Numbers:
    sweeps, kept = (np.concatenate([run[what] for run in runs]) for what in ("sweep", "kept"))
    rmse = [run["rmse"] for run in runs]
    return {
        "sweep": float(np.median(sweeps)),
        "quartiles": np.quantile(sweeps, [0.25, 0.75]).tolist(),
        "sweeps timed": len(sweeps),
        "kept sweep": float(np.median(kept)),
        "rmse": float(np.mean(rmse)),
        "rmse of repeats": rmse,
    }


def first_calls(task: Numbers, threads: int) -> Numbers:
    """Seconds of a first call: nothing compiled before, and with the programs on disk."""
    task = task | {"library": "bayesfac", "seed": 0, "warmup": 2, "draws": 1, "first": True}
    with tempfile.TemporaryDirectory() as folder:
        cold, warm = (
            in_process(__file__, task, threads, BAYESFAC_CACHE=folder)["first"] for _ in range(2)
        )
    return {"nothing compiled": cold, "in a second process": warm}


def rows(components: int, found: dict[str, Numbers], missing: list[str]) -> list[Numbers]:
    """One line a library; ratios to SMURFF where it ran."""
    base = found.get("SMURFF", found["bayesfac"])["sweep"]
    lines = []
    for name in [*found, *missing]:
        line: Numbers = {"K": components, "library": name}
        if name in missing:
            lines.append(line | {"ms a sweep": "not installed"})
            continue
        one = found[name]
        line["ms a sweep"] = f"{1e3 * one['sweep']:.1f}"
        line["relative to SMURFF" if "SMURFF" in found else "relative"] = (
            f"{one['sweep'] / base:.2f}"
        )
        line["ms a kept sweep"] = f"{1e3 * one['kept sweep']:.1f}"
        lines.append(line | {"test RMSE": f"{one['rmse']:.4f}"})
    return lines


def load(args: Any) -> tuple[str, Numbers]:
    """The ratings as arrays, one in ten held out."""
    import bayesfac as bf

    if args.quick:
        ratings = bf.datasets.make_gaussian(400, 300, rank=5, density=0.2)[0]
    else:
        ratings = bf.datasets.load(args.data, features=args.features)
    order = np.random.default_rng(0).permutation(len(ratings))
    held_out = np.isin(np.arange(len(ratings)), order[: len(ratings) // 10])
    name = "generated" if args.quick else args.data
    numbers = {"user": ratings.user, "item": ratings.item, "value": ratings.value}
    tables = {f"{side}_features": np.asarray(x.table, float) for side, x in ratings.x.items()}
    return f"{name}: {ratings!r}", numbers | tables | {"held_out": held_out}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--data", default="movielens-1m", metavar="NAME", help="a set of ratings")
    parser.add_argument("--components", type=int, nargs="+", default=[32, 100], metavar="K")
    parser.add_argument("--features", action="store_true", help="of users and films")
    parser.add_argument("--warmup", type=int, default=20, metavar="N", help="sweeps not kept (20)")
    parser.add_argument("--draws", type=int, default=20, metavar="N", help="sweeps kept (20)")
    parser.add_argument("--chains", type=int, default=4, metavar="N", help="of bayesfac (4)")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="processes each (3)")
    args = parser.parse_args()
    if args.worker:
        return work(json.loads(args.worker), args.threads)
    if args.quick:
        args.components, args.warmup, args.draws, args.repeats = [8], 5, 5, 1
    where = surroundings("smurff", "myfm")
    name, arrays = load(args)
    missing = [name for name in ("SMURFF", "myFM") if installed(name.lower()) is None]
    present = [name for name in LIBRARIES if name not in missing]
    present = [name for name in present if name != "myFM" or not args.features]
    found, lines, first = {}, [], {}
    with shared_arrays(**arrays) as data:
        for K in args.components:
            task = {"data": data, "components": K, "warmup": args.warmup, "draws": args.draws}
            task["chains"] = args.chains
            first[K] = first_calls(task, args.threads)
            found[K] = measure(present, task, args.repeats, args.threads)
            lines += rows(K, found[K], missing)
    sweeps = f"{args.warmup} + {args.draws} sweeps x {args.repeats}"
    calls = "; ".join(
        f"K = {K}: " + ", ".join(f"{s:.1f} s {when}" for when, s in one.items())
        for K, one in first.items()
    )
    text = f"{name}\n{sweeps}\n\n{table(lines)}\n\nFirst call of bayesfac: {calls}"
    settings = {"data": name, "alpha": ALPHA, "warmup": args.warmup, "draws": args.draws}
    settings |= {"repeats": args.repeats, "threads": args.threads, "chains": args.chains}
    record = {"where": where, "settings": settings, "first call": first, "results": found}
    name = "gibbs_features" if args.features else "gibbs"
    report(name, args, record | {"not installed": missing}, text)


if __name__ == "__main__":
    main()
