"""What a sweep of HiMLS, HiMLSD and HERES costs on sparse views, and how it grows.

Lemma 5 of Yang et al. 2016 counts n d for a table of n rows and d features; with sparse products it is the
stored cells, and (n + d) p q for the small matrices. Made-up rows of 76 words among 47,236 (RCV1's numbers),
two labels, half of the rows labelled. Every figure comes from a process of its own: the median sweep after
the first two.

rows        sweeps against the number of rows (and so of stored cells), [p, q] = [40, 20]; exponent
clusters    sweeps against p = 2 q on 3,000 rows; exponent
RCV1        [200, 100] alone, and with [40, 20] above it, on 3,000 rows of subset 1
HERES       p = 2,000 on the same: seconds a sweep, and the memory of the whole process
"""

import json
import resource
import sys
import time
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import arguments, hold_cores, in_process, report, surroundings, table

WORDS, EACH = 47_236, 76
Numbers = dict[str, Any]


def made(n: int) -> sp.csr_matrix:
    """Words by Zipf's law, rows of length one."""
    rng = np.random.default_rng(0)
    share = 1 / np.arange(10, 10 + WORDS)
    column = rng.choice(WORDS, (n, EACH), p=share / share.sum())
    x = sp.csr_matrix(
        (np.ones(column.size), (np.repeat(np.arange(n), EACH), column.ravel())), (n, WORDS)
    )
    x.sum_duplicates()
    return sp.diags(1 / np.sqrt(x.multiply(x).sum(1)).A1) @ x


def words(task: Numbers) -> tuple[sp.csr_matrix, bool]:
    """RCV1's where it is asked for and there."""
    from heterogeneous import ROWS, locate

    if task.get("real") and (place := locate(1)):
        with np.load(place, allow_pickle=False) as z:
            parts = (z["X_data"].astype(float), z["X_indices"], z["X_indptr"])
            return sp.csr_matrix(parts, shape=tuple(z["X_shape"]))[:ROWS], True
    return made(task["rows"]), False


def run(task: Numbers) -> Numbers:
    import jax

    import bayesfac as bf
    from bayesfac.core.method import lookup

    x, real = words(task)
    n = x.shape[0]
    y = (np.random.default_rng(1).random((n, 2)) < 0.4).astype(float)
    y[1::2] = np.nan
    data = bf.Tasks({"words": x}, y, task=np.arange(n) % 4)
    method = lookup(task["method"])
    own = {"pretraining": 0, "start": "plsa"} if task["method"] != "heres" else {}
    hyper = method.prepare(data, method.Hyper(**task["settings"], **own))
    p = method.init(jax.random.key(0), data, hyper)
    update, seconds = jax.jit(lambda p, data: method.solver.update(p, data, hyper)), []
    for _ in range(task["sweeps"]):
        begun = time.perf_counter()
        p = jax.block_until_ready(update(p, data))
        seconds.append(time.perf_counter() - begun)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    found = {"cells": int(x.nnz), "sweep": float(np.median(seconds[2:])), "peak GB": peak}
    return found | {"RCV1": real}


def exponent(sizes: list[int], seconds: list[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[3000, 10_000, 30_000], metavar="N")
    parser.add_argument("--clusters", type=int, nargs="+", default=[50, 100, 200, 400], metavar="P")
    parser.add_argument("--columns", type=int, default=2000, metavar="P", help="of HERES (2000)")
    parser.add_argument("--sweeps", type=int, default=7, metavar="N", help="for each figure (7)")
    args = parser.parse_args()
    if args.worker:
        hold_cores(args.threads)
        print(json.dumps(run(json.loads(args.worker))))
        return
    if args.quick:
        args.rows, args.clusters, args.columns, args.sweeps = [100, 200], [4, 8], 10, 4
    where, rows, exponents = surroundings(), [], {}

    def measure(what: str, method: str, settings: Numbers, n: int, real: bool = False) -> float:
        task = {
            "method": method,
            "settings": settings,
            "rows": n,
            "real": real,
            "sweeps": args.sweeps,
        }
        found = in_process(__file__, task, args.threads)
        numbers = {k: f"{found[k]:.3g}" for k in ("sweep", "peak GB")}
        data = "RCV1" if found["RCV1"] else "made up"
        rows.append({"what": what, "data": data, "cells": found["cells"]} | numbers)
        print(f"  {what}, {data}: {found}", file=sys.stderr, flush=True)
        return found["sweep"]

    small, first = [40, 20], args.rows[0]
    small = [4, 2] if args.quick else small
    for method in ("himls", "himlsd"):
        told = [
            measure(f"{method} {small}, {n} rows", method, {"layers": [small]}, n)
            for n in args.rows
        ]
        exponents[f"{method}, rows"] = exponent(args.rows, told)
        told = [
            measure(f"{method} [{p}, {p // 2}]", method, {"layers": [[p, p // 2]]}, first)
            for p in args.clusters
        ]
        exponents[f"{method}, clusters"] = exponent(args.clusters, told)
    low = [8, 4] if args.quick else [200, 100]
    for method in ("himls", "himlsd"):
        for layers in ([low], [low, small]):
            measure(f"{method} {layers}", method, {"layers": layers}, first, not args.quick)
    wide = {"n_components": args.columns}
    measure(f"heres, p = {args.columns}", "heres", wide, first, not args.quick)
    text = table(rows) + "\n\n" + "\n".join(f"exponent, {k}: {v:.2f}" for k, v in exponents.items())
    settings = {k: v for k, v in vars(args).items() if k not in ("out", "quick", "worker")}
    record = {"where": where, "settings": settings, "results": rows, "exponents": exponents}
    report("sweeps", args, record, text)


if __name__ == "__main__":
    main()
