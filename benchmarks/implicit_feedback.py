"""Implicit feedback: `hpf` and `wrmf` beside implicit, the HPF paper's algorithm and popularity.

What users liked, MovieLens ratings of 4 and 5 as ones. A random fifth of each data set's pairs is held out;
every method ranks all films that the user has no training pair of. Shown are the means over users with
held-out pairs, and CPU seconds of the second of two equal fits (nothing is compiled), all in one process.

wrmf        with nothing set, 15 sweeps, as implicit runs by default; and by Gibbs
implicit    its ALS with the same objective (its alpha is 1 + ours), size and sweeps, by Cholesky factors
            (use_cg=False); and as it comes (100 factors, conjugate gradients)
hpf         20 components, with nothing else set, by EM until it stops, and by Gibbs
variational the coordinate ascent of the HPF paper, written here in NumPy with the paper's own settings
            (a = a' = c = c' = .3, b' = d' = 1), as no wheel of hpfrec or poismf was at hand; 100 rounds

No setting was chosen by the held-out pairs; the rules behind the defaults of wrmf were judged by a fifth of
the training pairs of seed 0.
"""

import os
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import RESULTS, Cells, arguments, hold_cores, installed, report, surroundings, table
from scipy.special import digamma

import bayesfac as bf
from bayesfac.metrics import ndcg, recall
from bayesfac.metrics.top_n import top

SETS = ("movielens-100k", "movielens-1m")
SWEEPS, ROUNDS, PLACES = 15, 100, 10
Numbers = dict[str, Any]


def liked(name: str, quick: bool) -> bf.Counts:
    """The pairs of users and films with ratings of 4 and 5."""
    ratings = bf.datasets.make_ratings(60, 40, 3, seed=0) if quick else bf.datasets.load(name)
    frame = ratings.frame()
    return bf.Counts(frame.loc[frame["rating"] >= 4, ["user", "item"]])


def judged(score: np.ndarray, train: bf.Counts, test: bf.Counts) -> Numbers:
    """NDCG and recall of the first ten films, over users with held-out pairs."""
    shut = np.zeros(train.shape, bool)
    shut[train.user, train.item] = True
    relevant: dict[int, set[int]] = {}
    for user, item in zip(test.user, test.item, strict=True):
        relevant.setdefault(int(user), set()).add(int(item))
    users = sorted(relevant)
    lists = top(np.asarray(score, float)[users], PLACES, shut[users])
    wanted = [relevant[user] for user in users]
    return {
        f"{f.__name__}@{PLACES}": float(f(lists, wanted, PLACES).mean()) for f in (ndcg, recall)
    }


def twice(make: Callable[[], Any]) -> tuple[Any, float]:
    """The second of two equal results, and its CPU seconds."""
    make()
    begun = time.process_time()
    return make(), time.process_time() - begun


# -- what is compared -----------------------------------------------------------------------------
def ours(
    method: str, engine: Any, train: bf.Counts, **settings: Any
) -> tuple[np.ndarray, float, str]:
    fit, seconds = twice(lambda: bf.fit(method, train, engine, progress=False, **settings))
    what = f"{len(fit.trace) - 1} looks" if fit.is_point else f"{len(fit.trace)} draws"
    return fit.everywhere().mean, seconds, what


def library(train: bf.Counts, alike: bool, threads: int) -> tuple[np.ndarray, float, str]:
    """implicit's ALS; `alike` with the size and the objective of wrmf."""
    from implicit.als import AlternatingLeastSquares

    settings: Numbers = {"random_state": 0, "num_threads": threads}
    if alike:
        hyper = bf.fit("wrmf", train, bf.FixedPoint(1), progress=False).hyper
        settings |= {"factors": hyper.n_components, "alpha": 1 + hyper.alpha, "use_cg": False}
        settings["regularization"] = (hyper.noise / hyper.scale_user) ** 2
        settings["iterations"] = SWEEPS
    pairs = sp.csr_matrix((np.ones(len(train)), (train.user, train.item)), shape=train.shape)

    def fit() -> Any:
        model = AlternatingLeastSquares(**settings)
        model.fit(pairs, show_progress=False)
        return model

    model, seconds = twice(fit)
    return model.user_factors @ model.item_factors.T, seconds, f"{model.iterations} sweeps"


def variational(train: bf.Counts, K: int) -> tuple[np.ndarray, float, str]:
    """The HPF paper's coordinate ascent: Gamma laws of theta and beta, given those of their rates."""
    a, rng = 0.3, np.random.default_rng(0)
    y = sp.csr_matrix((train.value, (train.user, train.item)), shape=train.shape)
    row, col = y.nonzero()

    def fit() -> np.ndarray:
        shape = [a + 0.1 * rng.random((n, K)) for n in train.shape]
        rate = [1 + 0.1 * rng.random((n, K)) for n in train.shape]
        own = [np.ones(n) for n in train.shape]  # the means of xi and eta
        for _ in range(ROUNDS):
            geo = [np.exp(digamma(s) - np.log(r)) for s, r in zip(shape, rate, strict=True)]
            x = np.einsum("ck,ck->c", geo[0][row], geo[1][col])
            ratio = sp.csr_matrix((y.data / x, (row, col)), shape=y.shape)
            shape = [a + geo[0] * (ratio @ geo[1]), a + geo[1] * (ratio.T @ geo[0])]
            for side in (0, 1):
                other = (shape[1 - side] / rate[1 - side]).sum(0)
                rate[side] = own[side][:, None] + other
                own[side] = (a + K * a) / (a + (shape[side] / rate[side]).sum(1))
        return (shape[0] / rate[0]) @ (shape[1] / rate[1]).T

    score, seconds = twice(fit)
    return score, seconds, f"{ROUNDS} rounds"


def popular(train: bf.Counts) -> tuple[np.ndarray, float, str]:
    count = np.bincount(train.item, minlength=train.n_items)
    return np.broadcast_to(count, train.shape), 0.0, ""


def methods(quick: bool, threads: int) -> dict[str, Callable[[bf.Counts], Any]]:
    """{name: function of the training pairs}."""
    K = 3 if quick else 20
    sweeps = 20 if quick else 100
    plain, draws = bf.FixedPoint(SWEEPS, tol=0, accelerate=False), bf.Gibbs(sweeps, sweeps, 1)
    found: dict[str, Callable[[bf.Counts], Any]] = {
        "popularity": popular,
        "wrmf": partial(ours, "wrmf", plain),
        "wrmf, Gibbs": partial(ours, "wrmf", draws),
        "hpf": partial(ours, "hpf", None, n_components=K),
        "hpf, Gibbs": partial(ours, "hpf", draws, n_components=K),
        "variational": partial(variational, K=K),
    }
    if installed("implicit"):
        found["implicit, same settings"] = partial(library, alike=True, threads=threads)
        found["implicit, as it comes"] = partial(library, alike=False, threads=threads)
    return found


def compared(make: Callable[[bf.Counts], Any], name: str, seed: int, quick: bool) -> Numbers:
    train, test = bf.split.holdout(liked(name, quick), 0.2, seed=seed)
    score, seconds, what = make(train)
    return {**judged(score, train, test), "seconds": seconds, "steps": what}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--methods", nargs="+", metavar="NAME", help="some of the rows")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="splits (3)")
    args = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    hold_cores(args.threads)
    warnings.simplefilter("ignore")
    where = surroundings("implicit")
    cells = Cells(args.out or (None if args.quick else RESULTS / "implicit_feedback.json"))
    rows = []
    for name in args.sets[:1] if args.quick else args.sets:
        for method, make in methods(args.quick, args.threads).items():
            if args.methods and method not in args.methods:
                continue
            seeds = range(1 if args.quick else args.seeds)
            found = [
                cells.get(
                    f"{name}, {method}, {seed}", partial(compared, make, name, seed, args.quick)
                )
                for seed in seeds
            ]
            mean = {k: np.mean([one[k] for one in found]) for k in found[0] if k != "steps"}
            row = {"data": name, "method": method, "steps": found[0]["steps"]}
            row |= {k: f"{v:.4f}" for k, v in mean.items() if "@" in k}
            rows.append(row | {"CPU seconds": f"{mean['seconds']:.1f}"})
    report("implicit_feedback", args, {"where": where, "results": cells.found}, table(rows))


if __name__ == "__main__":
    main()
