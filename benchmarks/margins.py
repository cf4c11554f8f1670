"""One margin objective and its gradient beside plain NumPy and SciPy; stages together or one by one.

evaluation   J of MMMF (all thresholds, smooth hinge) and its slopes in U, V and theta, on the observed cells:
             bayesfac's kernels against the same sums in vectorised NumPy, the spreads as products of a
             SciPy CSR matrix, thresholds as one (cells, R - 1) array. Both answers are compared first.
PMMMF        the same for the proximal objective, through its centres, relative to MMMF's
stages       HMF as one fit over the stage axis against R - 1 fits of BMMMF, from the same starts, to the
             same tolerance: seconds, and the objective where both end

Same arrays, cores and threads, in one process each; medians over `--repeats` evaluations.
"""

import json
import sys
import time
import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import arguments, hold_cores, in_process, report, surroundings, table

Numbers = dict[str, Any]


def load(task: Numbers) -> Any:
    import bayesfac as bf

    if task["quick"]:
        return bf.datasets.make_ratings(300, 200, 4, density=0.5, noise=0.5)
    return bf.datasets.load(task["data"])


def median_seconds(function: Any, repeats: int) -> float:
    """Of `repeats` calls after a first one, which compiles."""
    function()
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        function()
        times.append(time.perf_counter() - begun)
    return float(np.median(times))


def plain(ratings: Any, U: np.ndarray, V: np.ndarray, theta: np.ndarray, penalty: float) -> Any:
    """J and its slopes as one would write them with NumPy and SciPy."""
    row, col = np.asarray(ratings.cells.row), np.asarray(ratings.cells.col)
    code = np.searchsorted(ratings.levels, np.asarray(ratings.y))
    ptr = np.asarray(ratings.cells.by_row.ptr)
    sign = np.where(np.arange(theta.shape[1]) < code[:, None], -1, 1).astype(U.dtype)

    def look() -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
        x = np.einsum("ek,ek->e", U[row], V[col])
        u = np.clip(1 - (z := sign * (theta[row] - x[:, None])), 0, 1)
        slope = -sign * u  # of h(T (theta - x)) in theta
        by_cell = sp.csr_matrix((-slope.sum(1), col, ptr), shape=ratings.shape)
        J = float(np.sum(u * (1 - z) - u**2 / 2))
        J += 0.5 * penalty * float((U**2).sum() + (V**2).sum())
        by_theta = np.add.reduceat(slope, ptr[:-1], axis=0)  # every user has a rating
        return J, by_cell @ V + penalty * U, by_cell.T @ U + penalty * V, by_theta

    return look


def evaluate(task: Numbers) -> Numbers:
    """Seconds per evaluation of ours and of the plain one, which must agree."""
    import jax

    from bayesfac.core.method import lookup, settle
    from bayesfac.models.ratings import mmmf, pmmmf  # noqa: F401

    ratings, K, penalty = load(task), task["components"], 20.0
    found: Numbers = {}
    for name in ("mmmf", "pmmmf"):
        method = lookup(name)
        given = {"n_components": K, "penalty": penalty, "biases": False}
        if name == "mmmf":
            given["scale_theta"] = np.inf  # the plain one has no prior on thresholds
        hyper = settle(method, ratings, given)
        p = method.init(jax.random.key(0), ratings, hyper)
        p = p._replace(U=3 * p.U, V=3 * p.V)  # far enough for every piece of the hinge
        both = jax.jit(
            jax.value_and_grad(lambda p, data, m=method, h=hyper: m.objective(p, data, h))
        )
        found[name] = median_seconds(
            lambda f=both, p=p: jax.block_until_ready(f(p, ratings)), task["repeats"]
        )
        if name == "mmmf":
            ours, start = both(p, ratings), [np.array(x) for x in p[:3]]
    look = plain(ratings, *start, penalty)
    found["plain"] = median_seconds(look, task["repeats"])
    theirs = look()
    for a, b in zip((ours[0], *ours[1][:3]), theirs, strict=True):
        gap = np.abs(np.asarray(a) - b).max() / np.abs(b).max()
        assert gap < 1e-3, f"the two evaluations differ by {gap}"
    return found


def stages(task: Numbers) -> Numbers:
    """Time HMF's stages as one program and as separate fits of bmmmf."""
    import bayesfac as bf

    warnings.simplefilter("ignore", bf.ConvergenceWarning)
    ratings, engine = load(task), bf.LBFGS(task["iterations"], tol=1e-5)
    given = {
        "n_components": task["components"],
        "penalty": 15.0,
        "biases": False,
        "progress": False,
    }
    bf.fit("hmf", ratings, bf.LBFGS(1), **given)  # compiles the loops for both
    together = bf.fit("hmf", ratings, engine, **given)
    first = bf.fit("hmf", ratings, bf.LBFGS(1, tol=0.99), **given)
    seconds, total = 0.0, 0.0
    for q, level in enumerate(ratings.levels[:-1]):
        init = {"U": first.params.U[q], "V": first.params.V[q]}
        alone = bf.fit("bmmmf", ratings.above(level), engine, init=init, **given)
        seconds, total = seconds + alone.seconds, total + float(alone.trace[-1])
    return {
        "together": {"seconds": together.seconds, "objective": float(together.trace[-1])},
        "separate fits": {"seconds": seconds, "objective": total},
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--data", default="movielens-1m", metavar="NAME", help="a set of ratings")
    parser.add_argument("--components", type=int, default=100, metavar="K", help="(100)")
    parser.add_argument(
        "--iterations", type=int, default=100, metavar="N", help="of HMF at most (100)"
    )
    parser.add_argument("--repeats", type=int, default=7, metavar="N", help="evaluations timed (7)")
    args = parser.parse_args()
    if args.worker:
        hold_cores(args.threads)
        task = json.loads(args.worker)
        return print(json.dumps({"evaluate": evaluate, "stages": stages}[task["what"]](task)))
    if args.quick:
        args.components, args.iterations, args.repeats = 8, 20, 2
    where = surroundings()
    task = {
        name: getattr(args, name)
        for name in ("data", "components", "iterations", "repeats", "quick")
    }
    found = {}
    for what in ("evaluate", "stages"):
        found[what] = in_process(__file__, task | {"what": what}, args.threads)
        print(f"  {what}: {found[what]}", file=sys.stderr)
    once, ours = found["evaluate"], found["evaluate"]["mmmf"]
    lines = [
        {
            "one evaluation": name,
            "ms": f"{1e3 * once[key]:.0f}",
            "relative": f"{once[key] / ours:.2f}",
        }
        for name, key in (
            ("MMMF, bayesfac", "mmmf"),
            ("MMMF, NumPy/SciPy", "plain"),
            ("PMMMF, bayesfac", "pmmmf"),
        )
    ]
    base = found["stages"]["together"]["seconds"]
    more = [
        {
            "HMF": name,
            "s": f"{r['seconds']:.1f}",
            "relative": f"{r['seconds'] / base:.2f}",
            "J": f"{r['objective']:.0f}",
        }
        for name, r in found["stages"].items()
    ]
    record = {"where": where, "settings": task | {"threads": args.threads}, "results": found}
    report(
        "margins",
        args,
        record,
        f"{args.data}, d = {args.components}\n\n{table(lines)}\n\n{table(more)}",
    )


if __name__ == "__main__":
    main()
