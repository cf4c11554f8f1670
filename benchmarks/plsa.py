"""Seconds per EM pass of PLSA, and time to the same objective, beside scikit-learn's NMF.

PLSA by EM and NMF with the Kullback-Leibler divergence solve one problem: with D the diagonal of
row sums, W = D A and H = C turn minus the log likelihood into the divergence

    KL(X, W H) = sum_ij x_ij log(x_ij / (W H)_ij) - x_ij + (W H)_ij

up to a constant of the data. That number, computed here in double precision by the same lines for
both, is the common objective. A pass of EM moves A and C from one look at the data; an iteration
of NMF (solver='mu') moves W, then H, from two. So the passes that are needed differ as well as
their price, and both are shown.

a pass       compilation, reading and checking left out: between two moments of one fit of bayesfac,
             and a long fit of scikit-learn less a short one; neither stops on a tolerance
the level    the worse of the two objectives after `--passes` passes: both have reached it
time to it   passes needed, counted in blocks of 5, times seconds a pass

The same matrix, cores and threads; random starts of each library's own (init='random'), other
seeds in each of `--repeats` repeats; medians over the repeats.
"""

import json
import os
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import scipy.sparse as sp
from common import (
    Clock,
    arguments,
    hold_cores,
    in_process,
    report,
    shared_arrays,
    surroundings,
    table,
)

CORPUS = "rcv1subset1_top944.npz"  # looked for in BAYESFAC_DATA
BLOCK = 5  # passes between two looks at the objective
LIBRARIES = ("bayesfac", "scikit-learn")
Numbers = dict[str, Any]
Factors = tuple[np.ndarray, np.ndarray]


def divergence(X: sp.csr_matrix, W: np.ndarray, H: np.ndarray) -> float:
    """KL(X, W H), in double precision, over the stored cells and the sum of W H."""
    W, H = W.astype(np.float64), H.astype(np.float64)
    row, x = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr)), X.data.astype(np.float64)
    total = 0.0
    for at in np.array_split(np.arange(X.nnz), max(1, X.nnz // 20_000)):
        model = np.einsum("ek,ke->e", W[row[at]], H[:, X.indices[at]])
        total += float(np.sum(x[at] * np.log(x[at] / np.maximum(model, 1e-300))))
    return total - float(x.sum()) + float(W.sum(0) @ H.sum(1))


def run_bayesfac(X: sp.csr_matrix, task: Numbers) -> tuple[float, Iterator[Factors]]:
    """Seconds a pass; and the factors after every block of passes."""
    import bayesfac as bf
    from bayesfac.core.errors import ConvergenceWarning
    from bayesfac.inference import fixed_point

    warnings.simplefilter("ignore", ConvergenceWarning)  # tol = 0 asks for every pass
    views, given = bf.Views(X), {"seed": task["seed"], "n_components": task["components"]}

    def price() -> float:
        clock, n = Clock(), task["timed"]
        with patch.object(fixed_point, "bar", lambda *_: clock):
            bf.fit("plsa", views, bf.FixedPoint(max_iter=2 * n, tol=0, every=n), **given)
        return (clock.times[2] - clock.times[1]) / n

    def blocks() -> Iterator[Factors]:
        totals = np.asarray(X.sum(1), np.float64)
        engine, fit = bf.FixedPoint(max_iter=BLOCK, tol=0, every=BLOCK), None
        while True:
            fit = bf.fit("plsa", views, engine, init=fit, **given)
            yield totals * np.asarray(fit.params.A, np.float64), np.asarray(fit.params.C)

    return price(), blocks()


def run_sklearn(X: sp.csr_matrix, task: Numbers) -> tuple[float, Iterator[Factors]]:
    from sklearn.decomposition import NMF

    settings = {"n_components": task["components"], "random_state": task["seed"], "tol": 0}
    settings |= {"beta_loss": "kullback-leibler", "solver": "mu", "init": "random"}

    def seconds(passes: int) -> float:
        begun = time.perf_counter()
        NMF(**settings, max_iter=passes).fit_transform(X)
        return time.perf_counter() - begun

    def blocks() -> Iterator[Factors]:
        nmf = NMF(**settings, max_iter=BLOCK)
        W = nmf.fit_transform(X)
        while True:
            yield W, nmf.components_
            nmf.set_params(init="custom")
            W = nmf.fit_transform(X, W=W.copy(), H=nmf.components_.copy())

    short, long = seconds(5), seconds(5 + task["timed"])
    return (long - short) / task["timed"], blocks()


RUN = {"bayesfac": run_bayesfac, "scikit-learn": run_sklearn}


def work(task: Numbers, threads: int) -> None:
    """One library in this process; JSON out."""
    hold_cores(threads)
    with np.load(task["data"]) as file:
        parts = (file["data"].astype(task["dtype"]), file["indices"], file["indptr"])
        X = sp.csr_matrix(parts, shape=tuple(file["shape"]))
    price, blocks = RUN[task["library"]](X, task)
    curve = [divergence(X, *next(blocks)) for _ in range(task["passes"] // BLOCK)]
    print(json.dumps({"pass": price, "curve": curve}))


def measure(task: Numbers, repeats: int, threads: int) -> dict[str, Numbers]:
    """Both libraries in turn; the level is set anew in every repeat."""
    seen: dict[str, list[Numbers]] = {name: [] for name in LIBRARIES}
    env = {"JAX_ENABLE_X64": "1"} if task["dtype"] == "float64" else {}
    for seed in range(1, repeats + 1):
        pair = {
            name: in_process(__file__, task | {"library": name, "seed": seed}, threads, **env)
            for name in LIBRARIES
        }
        level = max(one["curve"][-1] for one in pair.values())
        for name, one in pair.items():
            needed = BLOCK * (1 + int(np.argmax(np.asarray(one["curve"]) <= level)))
            seen[name].append(one | {"level": level, "passes": needed})
            print(f"  {task['dtype']}, {name}: {1e3 * one['pass']:.1f} ms", file=sys.stderr)
    return {name: _summary(runs) for name, runs in seen.items()}


def _summary(runs: list[Numbers]) -> Numbers:
    return {
        "pass": float(np.median([run["pass"] for run in runs])),
        "passes to the level": float(np.median([run["passes"] for run in runs])),
        "time to the level": float(np.median([run["passes"] * run["pass"] for run in runs])),
        "objective at the end": float(np.median([run["curve"][-1] for run in runs])),
        "repeats": runs,
    }


def rows(dtype: str, found: dict[str, Numbers]) -> list[Numbers]:
    """One line a library; relative is how many times what bayesfac takes."""
    ours = found["bayesfac"]
    return [
        {
            "dtype": dtype,
            "library": name,
            "ms a pass": f"{1e3 * one['pass']:.2f}",
            "relative": f"{one['pass'] / ours['pass']:.1f}",
            "passes to the level": f"{one['passes to the level']:.0f}",
            "s to the level": f"{one['time to the level']:.2f}",
            "time, relative": f"{one['time to the level'] / ours['time to the level']:.1f}",
            "KL at the end": f"{one['objective at the end']:.0f}",
        }
        for name, one in found.items()
    ]


def load(args: Any) -> tuple[str, sp.csr_matrix]:
    """A real corpus where there is one, else one made here, with 300,000 non-zeros or so."""
    from bayesfac.datasets import make_topics

    path = Path(os.environ.get("BAYESFAC_DATA", ".")) / CORPUS
    if args.quick:
        return "generated", make_topics(300, {"words": 120}, 5, 8, 40)[0]["words"]
    if not path.exists():
        made = {"n_clusters": 20, "n_topics": 60, "length": 100, "concentration": 0.2}
        return "generated", make_topics(6000, {"words": 944}, **made)[0]["words"]
    with np.load(path, allow_pickle=False) as file:
        parts = (file["X_data"], file["X_indices"], file["X_indptr"])
        return path.stem, sp.csr_matrix(parts, shape=tuple(file["X_shape"]))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--components", type=int, default=50, metavar="K", help="topics (50)")
    parser.add_argument(
        "--passes", type=int, default=100, metavar="N", help="on the way down (100)"
    )
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="processes each (3)")
    args = parser.parse_args()
    if args.worker:
        return work(json.loads(args.worker), args.threads)
    if args.quick:
        args.components, args.passes, args.repeats = 6, 20, 1
    where = surroundings("scikit-learn")
    name, X = load(args)
    X.eliminate_zeros()
    what = f"{name}: {X.shape[0]} x {X.shape[1]}, {X.nnz} non-zeros, K = {args.components}"
    found, lines = {}, []
    arrays = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": X.shape}
    with shared_arrays(**arrays) as data:
        task = {"data": data, "components": args.components, "passes": args.passes}
        task["timed"] = 10 if args.quick else 40
        for dtype in ("float32", "float64"):
            found[dtype] = measure(task | {"dtype": dtype}, args.repeats, args.threads)
            lines += rows(dtype, found[dtype])
    settings = {"data": what, "passes": args.passes, "repeats": args.repeats}
    record = {"where": where, "settings": settings | {"threads": args.threads}, "results": found}
    report("plsa", args, record, f"{what}\n\n{table(lines)}")


if __name__ == "__main__":
    main()
