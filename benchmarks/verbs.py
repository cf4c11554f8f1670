"""Every verb of a fit for all users of MovieLens-1M, beside implicit's `recommend`.

One process has both libraries, and every verb is called in turn after implicit's `recommend` of ten items for
all users without those that they rated (32 factors; its time hardly depends on them). A verb is called
once before on a few users, so that nothing is compiled while it is measured. `cpu` are seconds of all threads
of the process, `times implicit` is their ratio to the call of implicit just before: on a busy machine only
the ratio means anything. `MB` is by how much the process has grown (the largest size so far less the size
before).

bpmf       a point, and draws by Gibbs; wrmf and hpf have points of the same pairs as counts
fold_in    the ratings of 1,000 users, as new users
similar    the ten nearest of every item
predict    mean of the training cells
"""

import json
import resource
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import arguments, hold_cores, in_process, report, surroundings, table

PLACES, NEW, FACTORS = 10, 1000, 32
GOALS = {"bpmf point: recommend": 10, "bpmf draws: recommend": 60, "wrmf point: recommend": 10}
GOALS["hpf point: recommend"] = 10
Numbers = dict[str, Any]


def measured(task: Numbers) -> Numbers:
    """Seconds and memory of every verb, and seconds of implicit before it."""
    import bayesfac as bf

    if task["data"] == "generated":
        ratings = bf.datasets.make_ratings(60, 40, 2, density=0.3, seed=0)
    else:
        ratings = bf.datasets.load(task["data"])
    peer, rows = implicit(ratings), {}
    for name, call in verbs(bf, ratings, task):
        beside = peer and timed(peer)["cpu"]
        row = timed(call)
        rows[name] = row | {"implicit": beside}
    return {"rows": rows, "users": ratings.n_users, "items": ratings.n_items}


def implicit(ratings: Any) -> Callable[[], Any] | None:
    """implicit's `recommend` for all users; None if it is not installed."""
    if not find_spec("implicit"):
        return None
    from implicit.als import AlternatingLeastSquares

    ones = np.ones(len(ratings), np.float32)
    rated = sp.csr_matrix((ones, (ratings.user, ratings.item)), ratings.shape)
    model = AlternatingLeastSquares(factors=FACTORS, iterations=2, random_state=0)
    model.fit(rated, show_progress=False)
    users = np.arange(ratings.n_users)
    return lambda: model.recommend(users, rated, N=PLACES)


def verbs(bf: Any, ratings: Any, task: Numbers) -> Any:
    """Names and calls; each has been called on a few users before it is given."""
    few, quiet = list(ratings.users[:20]), {"progress": False}
    engine = bf.Gibbs(task["warmup"], task["draws"], 1)
    size = {"n_components": task["components"]}
    counts = bf.Counts(ratings)
    new = ratings.of_users(0, min(NEW, ratings.n_users))
    new = bf.Ratings(new.frame().assign(user=lambda x: "new " + x["user"].astype(str)))
    fits = {"bpmf point": bf.fit("bpmf", ratings, **size, **quiet)}
    fits["bpmf draws"] = bf.fit("bpmf", ratings, engine, **size, **quiet)
    one = {"wrmf": {"scale_user": 0.3, "scale_item": 0.3}, "hpf": {}}
    for name, more in one.items():
        fit = bf.fit(name, counts, bf.FixedPoint(task["warmup"]), **size, **more, **quiet)
        fits[f"{name} point"] = fit
    for name, fit in fits.items():
        data = ratings if name.startswith("bpmf") else counts
        some: dict[str, Any] = {"exclude": data, "progress": False}
        fit.recommend(few, PLACES, **some)
        yield f"{name}: recommend", lambda f=fit, s=some: f.recommend(None, PLACES, **s)
        yield f"{name}: everywhere", lambda f=fit: f.everywhere().mean
        yield f"{name}: similar", lambda f=fit: f.similar(ratings.items, PLACES)
        yield f"{name}: predict", lambda f=fit, d=data: f.predict(d).mean
        if name.startswith("bpmf"):
            yield f"{name}: fold_in", lambda f=fit: f.fold_in(new)
    drawn = fits["bpmf draws"]
    for by in ("draw", "in_top"):
        how = {"exclude": ratings, "by": by, "progress": False}
        yield f"bpmf draws: recommend by {by}", lambda h=how: drawn.recommend(None, PLACES, **h)
    yield "bpmf draws: diagnostics", drawn.diagnostics


def timed(call: Callable[[], Any]) -> dict[str, float]:
    """CPU seconds, seconds, and growth of the process in MB."""
    before, wall, cpu = size_now(), time.perf_counter(), time.process_time()
    call()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
    return {"cpu": cpu, "seconds": wall, "MB": peak - before}


def size_now() -> float:
    """The size of the process in MB; its largest size where the system does not tell."""
    status = Path("/proc/self/statm")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return int(status.read_text().split()[1]) * resource.getpagesize() / 1e6


def lines(found: Numbers) -> list[dict[str, str]]:
    """The rows of the table."""
    rows = []
    for name, row in found["rows"].items():
        ratio = f"{row['cpu'] / row['implicit']:.1f}" if row["implicit"] else "not installed"
        numbers = {"cpu": f"{row['cpu']:.2f}", "seconds": f"{row['seconds']:.2f}"}
        numbers |= {
            "times implicit": ratio,
            "goal": f"{GOALS.get(name, '')}",
            "MB": f"{row['MB']:.0f}",
        }
        rows.append({"verb": name, **numbers})
    return rows


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--data", default="movielens-1m", metavar="NAME", help="a set of ratings")
    parser.add_argument("--draws", type=int, default=1000, metavar="N")
    parser.add_argument("--warmup", type=int, default=20, metavar="N", help="sweeps not kept (20)")
    parser.add_argument("--components", type=int, default=10, metavar="K")
    args = parser.parse_args()
    if args.worker:
        hold_cores(args.threads)
        return print(json.dumps(measured(json.loads(args.worker))))
    if args.quick:
        args.data, args.draws, args.warmup, args.components = "generated", 8, 2, 2
    where = surroundings()
    names = ("data", "draws", "warmup", "components", "threads")
    settings = {name: getattr(args, name) for name in names}
    found = in_process(__file__, settings, args.threads)
    text = (
        f"{args.data}: {found['users']} users, {found['items']} items, K = {args.components}, "
        f"{args.draws} draws\n\n{table(lines(found))}"
    )
    report("verbs", args, {"where": where, "settings": settings} | found, text)


if __name__ == "__main__":
    main()
