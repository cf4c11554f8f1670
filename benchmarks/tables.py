"""The thesis's tables 4.1 and 3.19 again: our figure, its spread over seeds, and the printed one.

4.1, print   MovieLens-100K, random 80/20, d = 100; lambda is bisected until the training MAE lies in
             [.07, .09], as the thesis does: a fit that follows its ratings that closely, on purpose
4.1, tuned   the same splits, lambda chosen on ratings held out of the training part (bf.path), beside BPMF
3.19         MovieLens-1M, NMAE. Weak: one rating of each user held out. Strong: the same for 1,040 users
             set apart, whose other ratings join the training part (the thesis learns V first and then
             folds them in). Rank and lambda of MMMF and HMF: bf.path on ratings held out of the first
             weak split's training part, by mean absolute error
gplvm        GP-LVM on MovieLens-100K by the protocols of Table 3.19, with 157 users set apart: the point and
             draws by Gibbs, with seconds of the processor and the share of test ratings inside their 90 %
             intervals. The print is of MovieLens-1M

Errors are of the level that a method itself names (its rule; the median of the votes of draws); for ALS, PMF
and BPMF of the real-valued prediction, clipped to the scale, in Table 4.1, and of the nearest level in 3.19.
Every cell is kept in the results file as it comes: a run that was stopped goes on where it was.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from common import RESULTS, Cells, arguments, report, surroundings, table

import bayesfac as bf
from bayesfac.core.data.ratings import Ratings

PRINTED_4_1 = {"ALS": (0.7899, 1.0838), "MMMF": (0.7355, 1.0426), "PMMMF": (0.7138, 1.0178)}
PRINTED_3_19 = {
    "PMF": (0.4332, 0.4413),
    "BPMF": (0.4235, 0.4450),
    "MMMF": (0.4156, 0.4203),
    "E-MMMF": (0.4029, 0.4071),
    "Gibbs MMMF": (0.4037, 0.4040),
    "HMF": (0.4019, 0.4032),
    "URP": (0.4341, 0.4444),
    "Attitude": (0.4320, 0.4375),
    "GP-LVM": (0.4026, 0.3994),
    "iPMMMF": (0.4031, 0.4089),
}
LEVELS = (1, 2, 3, 4, 5)
FLAT = {
    "pull": 0.0,
    "eta": 1.3,
    "alpha": 2.0,
}  # URP as in the paper: nothing pulls the attitudes' tables
Numbers = dict[str, Any]


def fit(method: str, train: Ratings, engine: Any, seed: int, **hyper: Any) -> Any:
    return bf.fit(method, train, engine, seed=seed, progress=False, **hyper)


def real(found: Any, test: Ratings) -> np.ndarray:
    return np.clip(found.predict(test).mean, LEVELS[0], LEVELS[-1])


def said(found: Any, test: Ratings) -> np.ndarray:
    return found.predict(test).level


def errors(value: np.ndarray, predicted: np.ndarray) -> list[float]:
    return [bf.metrics.mae(value, predicted), bf.metrics.rmse(value, predicted)]


# -- Table 4.1 ------------------------------------------------------------------------------------
def als(train: Ratings, penalty: float, d: int, seed: int, init: Any) -> Any:
    """Ridge lambda on both sides, squared error: noise 1, scales lambda^-1/2; about the mean rating."""
    scale = penalty**-0.5
    options = {"noise": 1.0, "scale_user": scale, "scale_item": scale, "init": init}
    return fit("pmf", train, bf.FixedPoint(60, tol=1e-5), seed, n_components=d, **options)


def as_printed(method: str) -> Numbers:
    """The papers have no biases, and thresholds with hardly any prior."""
    return {"biases": False} | ({"scale_theta": 10.0} if method in ("mmmf", "emmmf") else {})


def margin(method: str) -> Callable[..., Any]:
    def run(train: Ratings, penalty: float, d: int, seed: int, init: Any) -> Any:
        engine = bf.LBFGS(400, tol=1e-5)
        options = {"n_components": d, "penalty": penalty, "init": init, **as_printed(method)}
        return fit(method, train, engine, seed, **options)

    return run


TABLE_4_1 = {"ALS": (als, real), "MMMF": (margin("mmmf"), said), "PMMMF": (margin("pmmmf"), said)}


def follow(name: str, train: Ratings, test: Ratings, d: int, seed: int) -> Numbers:
    """Bisect log lambda until the training MAE lies in [.07, .09]; errors there."""
    run, answer = TABLE_4_1[name]
    low, high, found = np.log(1e-2), np.log(100.0), None
    for _ in range(14):
        penalty = float(np.exp((low + high) / 2))
        found = run(train, penalty, d, seed, found)
        training = bf.metrics.mae(train.value, answer(found, train))
        if 0.07 <= training <= 0.09:
            break
        low, high = (np.log(penalty), high) if training < 0.07 else (low, np.log(penalty))
    return {
        "penalty": penalty,
        "training MAE": training,
        "test": errors(test.value, answer(found, test)),
    }


def tune(name: str, train: Ratings, test: Ratings, d: int, seed: int) -> Numbers:
    """Lambda by held-out error within the training part; errors at that lambda."""
    run, answer = TABLE_4_1[name]
    if name == "ALS":
        part, held = bf.split.weak_generalisation(train, seed=seed)
        grid = 10 ** np.arange(0.25, 1.6, 0.1875)
        score = [bf.metrics.rmse(held.value, real(run(part, p, d, seed, None), held)) for p in grid]
        penalty = float(grid[int(np.argmin(score))])
    else:
        grid = 10 ** np.arange(0.75, 2.3, 0.125)
        engine = bf.LBFGS(150, tol=1e-4, memory=5)
        given = {"n_components": d, "repeats": 2, "seed": seed, "progress": False}
        penalty = bf.path(name.lower(), train, grid, engine, **given).best
    found = run(train, penalty, d, seed, None)
    return {"penalty": penalty, "test": errors(test.value, answer(found, test))}


def bpmf(train: Ratings, test: Ratings, d: int, seed: int, sweeps: int) -> Numbers:
    found = fit("bpmf", train, bf.Gibbs(sweeps, 2 * sweeps, 1), seed, n_components=d)
    return {"test": errors(test.value, real(found, test))}


def table_4_1(cells: Cells, args: Any, seeds: Sequence[int]) -> str:
    ratings = ordinal(args, "movielens-100k")
    lines = []
    for kind, how in (("print", follow), ("tuned", tune)):
        for name in TABLE_4_1:
            runs = []
            for seed in seeds:
                train, test = bf.split.holdout(ratings, 0.2, seed=seed)
                key = f"4.1 {kind}, {name}, seed {seed}"
                runs.append(
                    cells.get(
                        key, lambda t=train, u=test, s=seed, n=name, h=how: h(n, t, u, args.d, s)
                    )
                )
            printed = PRINTED_4_1[name] if kind == "print" else ("", "")
            lines.append(
                line(
                    f"{name}, lambda as in {kind}" if kind == "print" else f"{name}, tuned",
                    runs,
                    printed,
                )
            )
    runs = []
    for seed in seeds:
        train, test = bf.split.holdout(ratings, 0.2, seed=seed)
        make = lambda t=train, u=test, s=seed: bpmf(t, u, min(32, args.d), s, args.sweeps)  # noqa: E731
        runs.append(cells.get(f"4.1 tuned, BPMF, seed {seed}", make))
    lines.append(line(f"BPMF, Gibbs, K = {min(32, args.d)}", runs, ("", "")))
    return "Table 4.1\n\n" + table(lines)


def line(name: str, runs: list[Numbers], printed: Sequence[Any]) -> Numbers:
    error = np.array([run["test"] for run in runs])
    mean, sd = error.mean(0), error.std(0, ddof=1) if len(runs) > 1 else np.zeros(2)
    penalty = [f"{run['penalty']:.2g}" for run in runs if "penalty" in run]
    return {
        "method": name,
        "lambda": ", ".join(penalty),
        "MAE": f"{mean[0]:.4f} ± {sd[0]:.4f}",
        "RMSE": f"{mean[1]:.4f} ± {sd[1]:.4f}",
        "MAE, print": printed[0],
        "RMSE, print": printed[1],
    }


# -- Table 3.19 -----------------------------------------------------------------------------------
def nearest(found: Any, test: Ratings) -> np.ndarray:
    return np.rint(real(found, test))


def choose(cells: Cells, train: Ratings, args: Any) -> dict[str, tuple[int, float]]:
    """Rank and lambda of MMMF and of HMF (one for its stages), by absolute error on ratings held out."""
    engine = bf.LBFGS(args.iterations, tol=1e-5, memory=5)
    grid = 10 ** np.arange(0.75, 1.4, 0.125)
    given = {"repeats": args.repeats, "seed": 100, "progress": False}

    def table(method: str, d: int) -> Numbers:
        options = {"n_components": d, **given, **as_printed(method)}
        found = bf.path(method, train, grid, engine, **options).table["MAE"]
        return {str(round(penalty, 2)): round(error, 4) for penalty, error in found.items()}

    best = {}
    for method in ("mmmf", "hmf"):
        tried = {
            (d, float(penalty)): error
            for d in args.ranks
            for penalty, error in cells.get(
                f"3.19 held out, {method}, d = {d}", lambda m=method, d=d: table(m, d)
            ).items()
        }
        best[method] = min(tried, key=lambda one: tried[one])
    return best


def methods_3_19(args: Any, chosen: dict[str, tuple[int, float]]) -> Numbers:
    engine, sweeps = bf.LBFGS(args.iterations, tol=1e-5), args.sweeps
    small = min(20, args.d)
    mmmf, hmf = (
        {"n_components": d, "penalty": penalty, **as_printed(name)}
        for name in ("mmmf", "hmf")
        for d, penalty in (chosen[name],)
    )
    gibbs = bf.Gibbs(sweeps, sweeps, 1)
    return {
        "PMF": ("pmf", bf.FixedPoint(30, tol=1e-4), {"n_components": args.d}, nearest),
        "BPMF": ("bpmf", gibbs, {"n_components": min(32, args.d)}, nearest),
        "MMMF": ("mmmf", engine, mmmf, said),
        "E-MMMF": ("emmmf", engine, mmmf | {"members": 5}, said),
        "Gibbs MMMF": ("gibbs_mmmf", gibbs, {"n_components": small, "cost": 0.3}, said),
        "HMF": ("hmf", engine, hmf, said),
        "URP": (
            "urp",
            bf.FixedPoint(100, tol=1e-5),
            {"n_components": min(10, args.d), **FLAT},
            said,
        ),
        "GP-LVM": ("gplvm", bf.FixedPoint(10), {"n_components": min(10, args.d)}, nearest),
        "Attitude": ("attitude", engine, {"n_components": min(5, args.d), "scale": 0.2}, said),
        "iPMMMF": ("ipmmmf", bf.FixedPoint(20), {"n_components": small, "scale_item": 0.3}, said),
        "ordinal MF": ("ordinal_mf", gibbs, {"n_components": small}, said),
    }


def table_3_19(cells: Cells, args: Any, seeds: Sequence[int]) -> str:
    ratings = ordinal(args, "movielens-1m")
    chosen = choose(cells, bf.split.weak_generalisation(ratings, seed=seeds[0]).train, args)
    apart = 1040 if ratings.n_users > 2000 else ratings.n_users // 6
    found: dict[str, dict[str, list[float]]] = {}
    for seed in seeds:
        for protocol in args.protocols:
            train, test = parts(ratings, protocol, apart, seed)
            for name, how in methods_3_19(args, chosen).items():
                if args.methods and name not in args.methods:
                    continue
                make = partial(nmae, how, train, test, seed)
                value = cells.get(f"3.19 {protocol}, {name}, seed {seed}", make)
                found.setdefault(name, {}).setdefault(protocol, []).append(value)
    lines = []
    for name, runs in found.items():
        row: Numbers = {"method": name}
        for protocol, printed in zip(
            ("weak", "strong"), PRINTED_3_19.get(name, ("", "")), strict=True
        ):
            if protocol not in runs:
                continue
            sd = np.std(runs[protocol], ddof=1) if len(seeds) > 1 else 0
            row |= {
                protocol: f"{np.mean(runs[protocol]):.4f} ± {sd:.4f}",
                f"{protocol}, print": printed,
            }
        lines.append(row)
    told = ", ".join(f"{m}: d = {d}, lambda = {penalty:g}" for m, (d, penalty) in chosen.items())
    return f"Table 3.19, NMAE ({told})\n\n" + table(lines)


def nmae(how: tuple, train: Ratings, test: Ratings, seed: int) -> float:
    method, engine, hyper, answer = how
    return bf.metrics.nmae(test.value, answer(fit(method, train, engine, seed, **hyper), test), 5)


def gplvm_here(cells: Cells, args: Any, seeds: Sequence[int]) -> str:
    ratings, lines = ordinal(args, "movielens-100k"), []
    engines = {"point": bf.FixedPoint(10), "Gibbs": bf.Gibbs(args.sweeps, args.sweeps, 1)}
    printed = dict(zip(("weak", "strong"), PRINTED_3_19["GP-LVM"], strict=True))
    for name, engine in engines.items():
        for protocol in args.protocols:
            runs = []
            for seed in seeds:
                train, test = parts(ratings, protocol, ratings.n_users // 6, seed)
                make = partial(gplvm_errors, engine, train, test, seed, min(10, args.d))
                runs.append(cells.get(f"GP-LVM, 100K, {name}, {protocol}, seed {seed}", make))
            row: Numbers = {"GP-LVM": name, "generalisation": protocol}
            for what, digits in (("NMAE", 4), ("inside 90 %", 3), ("CPU s", 0)):
                of = np.array([run[what] for run in runs])
                sd = np.std(of, ddof=1) if len(of) > 1 else 0
                row[what] = f"{of.mean():.{digits}f} ± {sd:.{digits}f}"
            lines.append(row | {"print, MovieLens-1M": printed[protocol]})
    return "GP-LVM, MovieLens-100K\n\n" + table(lines)


def gplvm_errors(engine: Any, train: Ratings, test: Ratings, seed: int, d: int) -> Numbers:
    begun = time.process_time()
    found = fit("gplvm", train, engine, seed, n_components=d)
    seconds = time.process_time() - begun
    asked = found.predict(test)
    return {
        "NMAE": bf.metrics.nmae(test.value, nearest(found, test), len(LEVELS)),
        "inside 90 %": bf.metrics.coverage(*asked.interval(0.9), test.value),
        "CPU s": seconds,
    }


def parts(ratings: Ratings, protocol: str, apart: int, seed: int) -> tuple[Ratings, Ratings]:
    if protocol == "weak":
        return bf.split.weak_generalisation(ratings, seed=seed)
    test = bf.split.strong_generalisation(ratings, apart, seed=seed).test
    code = [r.user.astype(np.int64) * ratings.n_items + r.item for r in (ratings, test)]
    return ratings.take(~np.isin(*code)), test


def ordinal(args: Any, name: str) -> Ratings:
    if args.quick:
        return bf.datasets.make_ratings(60, 50, 3, density=0.5, noise=0.5)
    return bf.datasets.load(name)


TABLES = {"4.1": table_4_1, "3.19": table_3_19, "gplvm": gplvm_here}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="splits (3)")
    parser.add_argument("--methods", nargs="+", choices=list(PRINTED_3_19), help="of Table 3.19")
    parser.add_argument(
        "--protocols", nargs="+", default=["weak", "strong"], choices=["weak", "strong"]
    )
    parser.add_argument(
        "--d", type=int, default=100, metavar="K", help="components in Table 4.1, and of PMF (100)"
    )
    parser.add_argument(
        "--ranks", type=int, nargs="+", default=[8, 12, 16], metavar="K",
        help="components of MMMF and HMF to choose from in Table 3.19 (8 12 16)",
    )  # fmt: skip
    parser.add_argument(
        "--repeats", type=int, default=2, metavar="N", help="held-out sets to choose by (2)"
    )
    parser.add_argument(
        "--sweeps", type=int, default=100, metavar="N", help="warm-up, and draws, of Gibbs (100)"
    )
    parser.add_argument(
        "--iterations", type=int, default=120, metavar="N", help="of L-BFGS at most (120)"
    )
    args = parser.parse_args()
    if args.quick:
        args.d, args.sweeps, args.iterations, args.seeds = 3, 5, 10, 1
        args.ranks, args.repeats = [2, 3], 1
    warnings.simplefilter("ignore", bf.ConvergenceWarning)  # iterations are limited on purpose
    where = surroundings()
    cells = Cells(args.out or (None if args.quick else RESULTS / "tables.json"))
    seeds = range(args.seeds)
    text = "\n\n".join(TABLES[which](cells, args, seeds) for which in args.tables)
    settings = {k: v for k, v in vars(args).items() if k not in ("out", "quick")}
    report("tables", args, {"where": where, "settings": settings, "results": cells.found}, text)


if __name__ == "__main__":
    main()
