"""Which model is believed: held-out log scores of methods of a kind, their differences, and stacking weights.

For every set a fifth is held out (one split), every method is fitted with nothing set to the rest, and
`bf.compare(...).believed` compares the log scores: the difference from the best method with the posterior
that a Bayesian bootstrap over users or rows gives it, the probability of being the best, and the weight in
the best mixture of all predictions.

movielens      300 random users of MovieLens-100K; draws by Gibbs, points where a method has no Gibbs
emotions       six labels of 593 pieces of music
genbase        27 labels of 662 proteins
few ratings    3,000 random ratings of MovieLens-100K

Only log scores of one kind are compared: of levels for ratings, of labels. Every method has one
fit; cells are kept in the results file, so that a run that was stopped goes on where it was.
"""

import warnings
from functools import partial
from types import SimpleNamespace
from typing import Any

import multilabel
import numpy as np
from common import RESULTS, Cells, arguments, report, surroundings, table

import bayesfac as bf
from bayesfac.report.believed import believed
from bayesfac.report.diagnostics.held_out import score

DRAWN = bf.Gibbs(warmup=200, draws=200, chains=2)
RATINGS: dict[str, Any] = dict.fromkeys(("bpmf", "pmf", "ordinal_mf", "gibbs_mmmf"), DRAWN)
RATINGS |= dict.fromkeys(("mmmf", "urp", "attitude"), None)
METHODS: dict[str, dict[str, Any]] = {
    "movielens": RATINGS,
    "few ratings": RATINGS,
    "emotions": dict.fromkeys(("cplst", "lsml", "leml", "heres")),
    "genbase": dict.fromkeys(("cplst", "lsml", "leml", "heres")),
}


def load(name: str) -> Any:
    """The data of a set."""
    if name == "made up":
        return bf.datasets.make_ratings(40, 30, 2, density=0.5, noise=0.5)
    if name == "movielens":
        ratings = bf.datasets.load("movielens-100k")
        users = np.random.default_rng(0).permutation(ratings.n_users)[:300]
        return ratings.take(np.isin(ratings.user, users))
    if name == "few ratings":
        ratings = bf.datasets.load("movielens-100k")
        return ratings.take(np.random.default_rng(0).permutation(len(ratings))[:3000])
    return multilabel.load(name)


def scored(name: str, method: str, engine: Any) -> dict[str, str]:
    """The log score of every held-out cell, and whose it is."""
    train, test = bf.split.holdout(load(name), 0.2, seed=0)
    fit = bf.fit(method, train, *(() if engine is None else (engine,)), seed=0, progress=False)
    found = score(fit, test)
    (loss,) = (loss for key, loss in found.losses.items() if key.endswith("log score"))
    one, cluster = (f"{x:.4f}" for x in -loss), map(str, found.cluster)
    return {"log score": " ".join(one), "cluster": " ".join(cluster)}


def numbers(text: str, kind: type = float) -> np.ndarray:
    """The numbers of a text."""
    return np.array(text.split(), kind)


def compared(cells: Cells, name: str, methods: dict[str, Any]) -> str:
    """The table of one set."""
    found = {}
    for method, engine in methods.items():
        one = cells.get(
            f"{name}, {method}",
            partial(scored, name, method, engine),
            told=lambda value: f"log score {numbers(value['log score']).mean():.4f}",
        )
        each = numbers(one["log score"])
        found[method] = SimpleNamespace(
            losses={"log score": -each},
            cluster=numbers(one["cluster"], int),
            weights=np.ones(len(each)),
        )
    frame = believed(found)
    many = len(next(iter(found.values())).cluster)
    rows = [
        {
            "method": method,
            "log score each": f"{row['elpd'] / many:.4f}",
            "elpd": f"{row['elpd']:.0f}",
            "difference": f"{row['difference']:.0f} ± {row['sd of difference']:.0f}",
            "90 %": f"{row['5 %']:.0f} to {row['95 %']:.0f}",
            "probability of best": f"{row['best']:.2f}",
            "stacking weight": f"{row['stacking weight']:.2f}",
        }
        for method, row in frame.iterrows()
    ]
    return f"{name}, {many:,} cells held out\n\n" + table(rows)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sets", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--methods", nargs="+", help="of each set (all)")
    args = parser.parse_args()
    chosen = {name: METHODS[name] for name in args.sets}
    if args.methods:
        chosen = {n: {m: e for m, e in of.items() if m in args.methods} for n, of in chosen.items()}
    if args.quick:
        chosen = {"made up": {"bpmf": bf.Gibbs(warmup=5, draws=5, chains=1), "urp": None}}
    warnings.simplefilter("ignore", bf.ConvergenceWarning)  # said in docs: budgets as they come
    where = surroundings()
    cells = Cells(args.out or (None if args.quick else RESULTS / "believed.json"))
    text = "\n\n".join(compared(cells, name, methods) for name, methods in chosen.items())
    report("believed", args, {"where": where, "results": cells.found}, text)


if __name__ == "__main__":
    main()
