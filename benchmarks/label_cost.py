"""GroPLE on all rows of delicious (16,105 x 500, 983 labels): seconds and memory, and BR-SVM beside it.

Each in a process of its own, one after the other, with the same threads: seconds of one fit, compilation
included (BR-SVM: of its 983 machines, and their margins for the same rows), and the peak of the whole
process (the operating system's ru_maxrss: interpreter, libraries, data). GroPLE has d = 100 and the
stopping rule of `multilabel.py`. Asked for: under 3 minutes and 4 GB on two cores.
"""

import json
import resource
import sys
import time
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import arguments, hold_cores, in_process, report, surroundings, table

SET = "delicious"
METHODS = ("GroPLE", "BR-SVM")
Numbers = dict[str, Any]


def load(quick: bool) -> tuple[Any, np.ndarray]:
    """Words and labels, rows without labels left out."""
    if quick:
        rng = np.random.default_rng(0)
        return rng.random((200, 30)), (rng.random((200, 12)) < 0.2).astype(float)
    from multilabel import locate, part

    with np.load(locate(SET), allow_pickle=False) as z:
        x, y = part(z, "X"), part(z, "Y")
    y = y.toarray() if sp.issparse(y) else y
    some = y.any(1)
    return x[some], y[some].astype(float)


def work(task: Numbers) -> Numbers:
    """One method, in this process."""
    x, y = load(task["quick"])
    if task["method"] == "GroPLE":
        import bayesfac as bf

        data = bf.Tasks(x, y, constant=True)
        begun = time.perf_counter()
        width = min(100, y.shape[1] // 2)
        engine = bf.FixedPoint(60, tol=1e-5)
        raw = {"scaled": False, "cut": 0.5, "progress": False}
        bf.fit("grople", data, engine, n_components=width, **raw)
    else:
        from bayesfac.labels.comparators import br_svm

        begun = time.perf_counter()
        br_svm(x, y, x)
    seconds = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"rows": len(y), "labels": y.shape[1], "seconds": seconds, "GB at most": peak}


def main() -> None:
    parser = arguments(__doc__)
    args = parser.parse_args()
    if args.worker:
        hold_cores(args.threads)
        print(json.dumps(work(json.loads(args.worker))))
        return
    if not args.quick:
        from multilabel import locate

        if locate(SET) is None:
            parser.exit(
                2, f"Expected {SET}.npz in the folder that BAYESFAC_DATA names, got nothing\n"
            )
    where = surroundings("scikit-learn")
    found = {}
    for method in METHODS:
        found[method] = in_process(__file__, {"method": method, "quick": args.quick}, args.threads)
        print(f"  {method}: {found[method]}", file=sys.stderr, flush=True)
    rows = [
        {"": name, "seconds": f"{each['seconds']:.1f}", "GB at most": f"{each['GB at most']:.2f}"}
        for name, each in found.items()
    ]
    report("label_cost", args, {"where": where, "results": found}, table(rows))


if __name__ == "__main__":
    main()
