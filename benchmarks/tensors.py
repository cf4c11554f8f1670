"""Seconds per Gibbs sweep of CP, test error and recovery of the components, beside SMURFF.

One run: the same made-up tensor of 500 x 400 x 60 labels with a million cells, hold-out, cores, threads,
number of components and number of sweeps, one chain; every library in processes of its own, in turn,
`--repeats` times with other seeds.

sweep     a sweep of the warm-up: the rows of all modes, means and precisions; nothing is kept. Of bayesfac
          the difference of two runs of unlike length, as a run is one program; of SMURFF its own clock, test
          predictions not counted
RMSE      of the mean over the kept draws at the held-out cells; the best possible one is the noise
recovery  of the last draw: for each true component, the product over modes of |cosine| with its partner
          (Hungarian method). The mean and the least

Values are centred for both, and the noise precision is fixed at the truth. Both have full Normal-Wishart
priors, those of bayesfac at their defaults. SMURFF computes in double precision: bayesfac is timed in both.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from common import (
    arguments,
    hold_cores,
    in_process,
    installed,
    report,
    shared_arrays,
    surroundings,
    table,
)
from scipy.optimize import linear_sum_assignment

LIBRARIES = ("bayesfac", "bayesfac float64", "SMURFF")
NOISE = 0.5
Numbers = dict[str, Any]


def run_bayesfac(task: Numbers, data: Numbers) -> Numbers:
    import bayesfac as bf

    tensor = bf.Tensor(*data["code"].T, data["value"])
    train, test = tensor.take(~data["held_out"]), tensor.take(data["held_out"])

    def fit(warmup: int, draws: int) -> Any:
        engine = bf.Gibbs(warmup=warmup, draws=draws, chains=1)
        hyper = {"n_components": task["components"], "alpha": NOISE**-2}
        return bf.fit("cp", train, engine, seed=task["seed"], **hyper)

    n, m = task["warmup"], task["draws"]
    found = fit(n, m)
    error = found.predict(test).mean - test.value
    # whatever the number of sweeps, the program is the same: both runs are without compilation
    sweep = (fit(3 * n, m).seconds - fit(n, m).seconds) / (2 * n)
    factors = [np.asarray(found.draws[f"U.{mode}"])[0, -1] for mode in tensor.modes]
    return {"sweep": [sweep], "rmse": float(np.sqrt(np.mean(error**2))), **recovery(factors, data)}


def run_smurff(task: Numbers, data: Numbers) -> Numbers:
    import h5py
    import smurff

    out, shape = data["held_out"], data["shape"].tolist()
    centred = data["value"] - data["value"][~out].mean()
    train, test = (
        smurff.SparseTensor((centred[at], list(data["code"][at].T.astype(np.int32).copy())), shape)
        for at in (~out, out)
    )
    sweeps, K = [], task["components"]
    with tempfile.TemporaryDirectory() as folder:
        session = smurff.TrainSession(
            ["normal"] * len(shape), K, task["threads"], task["warmup"], task["draws"], task["seed"],
            verbose=0, save_freq=1, save_name=f"{folder}/draws.hdf5",
        )  # fmt: skip
        session.setTrain(train, smurff.FixedNoise(NOISE**-2))
        session.setTest(test)
        session.init()
        for _ in range(task["warmup"] + task["draws"]):
            # the compiled step: the Python one also evaluates the training error
            super(smurff.TrainSession, session).step()
            sweeps.append(session.getStatus().elapsed_iter)
        rmse = float(session.getRmseAvg())
        with h5py.File(f"{folder}/draws.hdf5") as kept:
            last = max((name for name in kept if name.startswith("sample_")), key=_number)
            each = (kept[f"{last}/latents/latents_{m}"][()] for m in range(len(shape)))
            factors = [x if x.shape[1] == K else x.T for x in each]
    return {"sweep": sweeps[2:], "rmse": rmse, **recovery(factors, data)}


def _number(name: str) -> int:
    return int(name.rsplit("_", 1)[1])


def recovery(factors: list[np.ndarray], data: Numbers) -> Numbers:
    """The mean and the least product of |cosine| over modes, of true components and their partners."""
    alike = 1.0
    for m, found in enumerate(factors):
        truth = data[f"U{m}"]
        one, two = (x / np.linalg.norm(x, axis=0) for x in (truth, found))
        alike = alike * np.abs(one.T @ two)
    best = np.asarray(alike)[linear_sum_assignment(-np.asarray(alike))]
    return {"mean recovery": float(best.mean()), "least recovery": float(best.min())}


RUN: dict[str, Callable[[Numbers, Numbers], Numbers]] = {
    "bayesfac": run_bayesfac,
    "bayesfac float64": run_bayesfac,
    "SMURFF": run_smurff,
}


def work(task: Numbers, threads: int) -> None:
    """One library in this process; JSON out."""
    hold_cores(threads)
    with np.load(task["data"]) as file:
        data = dict(file)
    begun = time.process_time()
    found = RUN[task["library"]](task | {"threads": threads}, data)
    print(json.dumps(found | {"CPU seconds": time.process_time() - begun}))


def measure(libraries: list[str], task: Numbers, repeats: int, threads: int) -> dict[str, Numbers]:
    """The libraries in turn, again and again: a slow minute of the machine meets them all."""
    seen: dict[str, list[Numbers]] = {name: [] for name in libraries}
    for seed in range(1, repeats + 1):
        for name in libraries:
            env = {"JAX_ENABLE_X64": "1"} if name.endswith("float64") else {}
            done = in_process(__file__, task | {"library": name, "seed": seed}, threads, **env)
            seen[name].append(done)
            print(f"  {name}: {1e3 * np.median(done['sweep']):.1f} ms", file=sys.stderr)
    return {name: _summary(runs) for name, runs in seen.items()}


def _summary(runs: list[Numbers]) -> Numbers:
    sweeps = np.concatenate([run["sweep"] for run in runs])
    rest = {
        what: float(np.mean([run[what] for run in runs])) for what in runs[0] if what != "sweep"
    }
    return {"sweep": float(np.median(sweeps)), "repeats": runs, **rest}


def rows(found: dict[str, Numbers]) -> list[Numbers]:
    """One line a library; ratios to SMURFF where it ran."""
    base, lines = found.get("SMURFF", found["bayesfac"])["sweep"], []
    for name in LIBRARIES:
        if name not in found:
            lines.append({"library": name, "ms a sweep": "not installed"})
            continue
        one = found[name]
        lines.append({
            "library": name,
            "ms a sweep": f"{1e3 * one['sweep']:.1f}",
            "relative": f"{one['sweep'] / base:.2f}",
            "test RMSE": f"{one['rmse']:.4f}",
            "recovery, mean": f"{one['mean recovery']:.3f}",
            "least": f"{one['least recovery']:.3f}",
        })  # fmt: skip
    return lines


def load(quick: bool, rank: int) -> tuple[str, Numbers]:
    """The cells as arrays, one in ten held out, and the true factors."""
    import bayesfac as bf

    shape, cells = ((60, 40, 12), 8_000) if quick else ((500, 400, 60), 1_000_000)
    density = cells / np.prod(shape)
    tensor, truth = bf.datasets.make_tensor(shape, rank, noise=NOISE, density=density, seed=0)
    held_out = np.zeros(len(tensor), bool)
    held_out[np.random.default_rng(0).permutation(len(tensor))[: len(tensor) // 10]] = True
    factors = {f"U{m}": table for m, table in enumerate(truth.U.values())}
    numbers = {"code": tensor.code, "value": tensor.value, "shape": np.array(shape)}
    return repr(tensor), numbers | {"held_out": held_out, **factors}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--components", type=int, default=10, metavar="K", help="true and fitted (10)"
    )
    parser.add_argument("--warmup", type=int, default=50, metavar="N", help="sweeps not kept (50)")
    parser.add_argument("--draws", type=int, default=50, metavar="N", help="sweeps kept (50)")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="processes each (3)")
    args = parser.parse_args()
    if args.worker:
        return work(json.loads(args.worker), args.threads)
    if args.quick:
        args.components, args.warmup, args.draws, args.repeats = 3, 30, 10, 1
    where = surroundings("smurff")
    name, arrays = load(args.quick, args.components)
    present = [n for n in LIBRARIES if n != "SMURFF" or installed("smurff")]
    with shared_arrays(**arrays) as data:
        task = {"data": data, "components": args.components, "warmup": args.warmup}
        found = measure(present, task | {"draws": args.draws}, args.repeats, args.threads)
    settings = {"data": name, "noise": NOISE, "components": args.components, "warmup": args.warmup}
    settings |= {"draws": args.draws, "repeats": args.repeats, "threads": args.threads}
    text = f"{name}, rank {args.components}, noise {NOISE}\n"
    text += f"{args.warmup} + {args.draws} sweeps x {args.repeats}\n\n{table(rows(found))}"
    report("tensors", args, {"where": where, "settings": settings, "results": found}, text)


if __name__ == "__main__":
    main()
