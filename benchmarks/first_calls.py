"""Seconds of the first `bf.fit(NAME, data)` of a process, for every method with nothing set.

Ratings: MovieLens-100K. Labels and tasks: emotions. Topics: handwritten digits, with ten clusters.

nothing kept     in a process that finds neither Numba's kernels nor JAX's programs on disk
second process   in the next process, which finds both
again            the same call once more in that process: the work itself
import           of bayesfac and its methods, in the second process

`--only NAME,...` runs some methods. Finished methods are kept in `results/first_calls.json`, so that a run
that was stopped goes on.
"""

import json
import tempfile
import time
import warnings
from typing import Any

from common import RESULTS, Cells, arguments, hold_cores, in_process, report, surroundings, table

COLUMNS = ("nothing kept", "second process", "again", "import")


def data_of(kind: str) -> tuple[Any, dict[str, int]]:
    """The usual data of a method that takes `kind`, and what must be set for them."""
    import bayesfac as bf

    if kind == "Ratings":
        return bf.datasets.load("movielens-100k"), {}
    if kind == "Counts":
        return bf.Counts(bf.datasets.load("movielens-100k")), {}
    if kind == "Tasks":
        from default_labels import load

        return bf.Tasks(*load("emotions")), {}
    from default_clusters import data

    return data("handwritten")[0], {"n_components": 10}


def timed(task: dict[str, Any]) -> dict[str, Any]:
    """Fit twice in this process."""
    begun = time.perf_counter()
    import bayesfac as bf

    bf.methods()  # registers every method
    imported = time.perf_counter() - begun
    from bayesfac.core.method import lookup

    method = lookup(task["method"])
    data, given = data_of(method.data.__name__)
    if method.name == "bmmmf":
        data = data.above(3)
    elif method.name in ("plsa", "ltm"):
        data = bf.Views({data.names[0]: data[data.names[0]]})
    elif method.name == "mvplsa":
        from default_clusters import not_negative

        data = not_negative(data)
    warnings.simplefilter("ignore", bf.ConvergenceWarning)  # the table says who converged
    seconds = []
    for _ in range(2):
        begun = time.perf_counter()
        fit = bf.fit(method, data, progress=False, **given)
        seconds.append(time.perf_counter() - begun)
    rises = [note for note in fit.result.notes if "rose" in note]
    return {
        "import": imported, "first": seconds[0], "again": seconds[1],
        "converged": bool(fit.converged), "sweeps": len(fit.trace) - 1, "rises": rises,
    }  # fmt: skip


def one(method: str, threads: int) -> dict[str, Any]:
    """Two processes with caches of their own, which are empty before the first."""
    with tempfile.TemporaryDirectory() as folder:
        caches = {"BAYESFAC_CACHE": f"{folder}/programs", "NUMBA_CACHE_DIR": f"{folder}/numba"}
        runs = [in_process(__file__, {"method": method}, threads, **caches) for _ in range(2)]
    return {"nothing kept": runs[0]["first"], **runs[1], "second process": runs[1]["first"]}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--only", metavar="NAMES", help="methods, with commas")
    args = parser.parse_args()
    if args.worker:
        hold_cores(args.threads)
        print(json.dumps(timed(json.loads(args.worker))))
        return
    import bayesfac as bf

    wanted = args.only.split(",") if args.only else list(bf.methods().index)
    if args.quick:
        wanted = ["pmf"]
    cells = Cells(None if args.quick else args.out or RESULTS / "first_calls.json")
    where, rows = surroundings(), []
    for name in wanted:
        found = cells.get(
            name, lambda name=name: one(name, args.threads),
            told=lambda found: f"{found['nothing kept']:.1f} s, then {found['second process']:.1f} s",
        )  # fmt: skip
        row = {"method": name, **{column: f"{found[column]:.1f}" for column in COLUMNS}}
        row |= {"sweeps": found["sweeps"], "converged": "yes" if found["converged"] else "no"}
        rows.append(row | {"rises": "; ".join(found["rises"]) or "none"})
    report("first_calls", args, {"where": where, "results": cells.found}, table(rows))


if __name__ == "__main__":
    main()
