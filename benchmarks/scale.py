"""How an iteration of MGGM grows with the number of rows, and what the literal E-step would cost.

Rows of ten clusters in three views of 400 features, some 40 words each, made here; a graph of 5 neighbours in
each view. Every size runs in a process of its own, for `--iterations` iterations without a tolerance.

graphs       seconds to find the neighbours (by brute force: quadratic, once)
iteration    median over the iterations after the first two
exponent     slope of log seconds an iteration against log rows
literal      one E-step and M-step by the posterior P(z, c | x, w, t) of eq. 12 for every stored word, in
             blocks, in NumPy, beside one EM iteration of ours, on the smallest size: about Q times the work
"""

import json
import resource
import sys
import time
from typing import Any
from unittest.mock import patch

import numpy as np
import scipy.sparse as sp
from common import Clock, arguments, hold_cores, in_process, report, surroundings, table

CLUSTERS, FEATURES, WORDS, VIEWS = 10, 400, 40, 3
Numbers = dict[str, Any]


def made(n: int, seed: int = 0) -> list[sp.csr_matrix]:
    """Views whose words follow the cluster of their row."""
    rng = np.random.default_rng(seed)
    cluster = rng.integers(CLUSTERS, size=n)
    views = []
    for _ in range(VIEWS):
        weight = rng.dirichlet(np.full(FEATURES, 0.1), CLUSTERS).cumsum(1)
        word = np.empty((n, WORDS), np.int64)
        for k in range(CLUSTERS):
            here = cluster == k
            word[here] = np.searchsorted(weight[k], rng.random((here.sum(), WORDS)))
        stray = rng.random(word.shape) < 0.3
        word = np.where(
            stray, rng.integers(FEATURES, size=word.shape), np.minimum(word, FEATURES - 1)
        )
        cells = np.ones(word.size), (np.repeat(np.arange(n), WORDS), word.ravel())
        views.append(sp.csr_matrix(cells, shape=(n, FEATURES)))
    return views


def run(task: Numbers) -> Numbers:
    import bayesfac as bf
    from bayesfac.core.data.views import linked
    from bayesfac.inference import fixed_point

    views = bf.Views({f"view{t}": x for t, x in enumerate(made(task["rows"]))})
    begun = time.perf_counter()
    views = linked(views, 5, "euclidean")
    graphs = time.perf_counter() - begun
    clock = Clock()
    with patch.object(fixed_point, "bar", lambda *_: clock):
        fit = bf.fit(
            "mggm", views, bf.FixedPoint(task["iterations"], tol=0, every=5), n_components=CLUSTERS,
            n_topics=task["topics"], penalty=1.0, scale="none", start="random",
        )  # fmt: skip
    each = np.diff(clock.times) / 5
    return {
        "graphs": graphs,
        "iteration": float(np.median(each[1:])),
        "seconds": fit.seconds,
        "peak GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def literal(task: Numbers) -> Numbers:
    """One pass of eq. 12 and 14 with the whole posterior, and one of ours, on the same views."""
    import jax

    import bayesfac as bf
    from bayesfac.models.topics.mvplsa import METHOD as mvplsa

    views = bf.Views({f"view{t}": x for t, x in enumerate(made(task["rows"]))})
    hyper = mvplsa.prepare(views, mvplsa.Hyper(CLUSTERS, task["topics"]))
    p = mvplsa.init(jax.random.key(0), views, hyper)
    update = jax.jit(lambda p, views: mvplsa.update(p, views, hyper))
    seconds = []
    for _ in range(6):
        begun = time.perf_counter()
        jax.block_until_ready(update(p, views))
        seconds.append(time.perf_counter() - begun)
    begun = time.perf_counter()
    A = np.asarray(p.A)
    for name in views.names:
        B, C, x = np.asarray(p.B[name]), np.asarray(p.C[name]), views[name].tocoo()
        by_row, by_topic, by_word = np.zeros_like(A), np.zeros_like(B), np.zeros_like(C)
        for at in np.array_split(np.arange(x.nnz), max(1, x.nnz // 2000)):
            joint = A[x.row[at], :, None] * B[None] * C.T[x.col[at], None, :]
            joint *= (x.data[at] / joint.sum((1, 2)))[:, None, None]
            np.add.at(by_row, x.row[at], joint.sum(2))
            by_topic += joint.sum(0)
            np.add.at(by_word.T, x.col[at], joint.sum(1))
    return {"ours": float(np.median(seconds[2:])), "literal": time.perf_counter() - begun}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--rows", type=int, nargs="+", default=[5_000, 10_000, 20_000, 30_000, 60_000], metavar="N"
    )
    parser.add_argument(
        "--iterations", type=int, default=100, metavar="N", help="of each fit (100)"
    )
    parser.add_argument("--topics", type=int, default=50, metavar="Q", help="in every view (50)")
    args = parser.parse_args()
    if args.worker:
        task = json.loads(args.worker)
        hold_cores(args.threads)
        print(json.dumps((literal if task["literal"] else run)(task)))
        return
    if args.quick:
        args.rows, args.iterations, args.topics = [200, 400], 20, 5
    where = surroundings()
    given = {"iterations": args.iterations, "topics": args.topics, "literal": False}
    rows = []
    for n in args.rows:
        found = in_process(__file__, given | {"rows": n}, args.threads)
        rows.append({"rows": n} | found)
        print(f"  {n} rows: {found}", file=sys.stderr, flush=True)
    both = in_process(__file__, given | {"rows": args.rows[0], "literal": True}, args.threads)
    each = np.array([row["iteration"] for row in rows])
    exponent = float(np.polyfit(np.log(args.rows), np.log(each), 1)[0])
    text = table([{k: v if k == "rows" else f"{v:.3g}" for k, v in row.items()} for row in rows])
    text += f"\n\nexponent of seconds an iteration: {exponent:.2f}"
    text += (
        f"\nliteral E-step: {both['literal']:.3g} s, ours {both['ours']:.3g} s, "
        f"ratio {both['literal'] / both['ours']:.0f} at Q = {args.topics}"
    )
    record = {
        "where": where,
        "settings": given,
        "results": rows,
        "exponent": exponent,
        "E-step": both,
    }
    report("scale", args, record, text)


if __name__ == "__main__":
    main()
