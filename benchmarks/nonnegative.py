"""Factors of at least 0 with missing cells, beside `bpmf` and scikit-learn's NMF, which takes zeros for them.

scores    of a random tenth of the cells, held out of a made-up table (amounts x spectra with noise, of which
          a half is missing) and of a data set: RMSE, coverage of 90 % intervals, seconds with compilation
sweeps    ms a Gibbs sweep on the data set, all in turn in one process, and its ratio to `bpmf`'s
"""

import time
from typing import Any

import numpy as np
import pandas as pd
from common import arguments, hold_cores, report, surroundings, table
from common.sweeps import in_turn
from sklearn.decomposition import NMF

import bayesfac as bf

PARTS = ("scores", "sweeps")
N = bf.NonNegative()
MODELS: dict[str, Any] = {
    "bpmf": "bpmf",
    "NonNegative": bf.factorization(N),
    "NonNegative, Student's t": bf.factorization(N, observed=bf.StudentT()),
    "NonNegative x NormalWishart": bf.factorization(N, bf.NormalWishart()),
}


def made_up(quick: bool) -> bf.Ratings:
    """Amounts x spectra, with noise of 0.3."""
    rng, (n, m) = np.random.default_rng(0), (60, 40) if quick else (300, 150)
    x = rng.gamma(1.0, size=(n, 4)) @ rng.gamma(1.0, size=(4, m))
    seen = rng.random(x.shape) < 0.5
    return bf.Ratings(np.where(seen, x + 0.3 * rng.normal(size=x.shape), np.nan))


def scores(data: bf.Ratings, K: int, draws: int) -> list[dict[str, Any]]:
    """Each model by a point and by Gibbs, then scikit-learn."""
    train, test = bf.split.holdout(data, 0.1, seed=0)
    rows = []
    for name, model in MODELS.items():
        for engine in (bf.FixedPoint(), bf.Gibbs(draws, draws, 2)):
            begun = time.perf_counter()
            fit = bf.fit(model, train, engine, n_components=K, progress=False)
            spent, asked = time.perf_counter() - begun, fit.predict(test)
            rows.append({
                "model": name,
                "engine": type(engine).__name__,
                "RMSE": bf.metrics.rmse(asked.mean, test.value),
                "90 % hold": bf.metrics.coverage(*asked.interval(0.9), test.value),
                "seconds": spent,
            })  # fmt: skip
    return [*rows, zeros(train, test, K)]


def zeros(train: bf.Ratings, test: bf.Ratings, K: int) -> dict[str, Any]:
    """scikit-learn's NMF of the table in which missing cells are 0, and values below 0 too."""
    full = np.zeros(train.shape)
    full[tuple(train.code.T)] = np.maximum(train.value, 0)
    begun = time.perf_counter()
    model = NMF(K, init="nndsvda", max_iter=500, random_state=0)
    x = model.fit_transform(full) @ model.components_
    spent, frame = time.perf_counter() - begun, test.frame()
    labels = {"user": train.users, "item": train.items}
    row, col = (pd.Index(own).get_indexer(frame[axis]) for axis, own in labels.items())
    here = (row >= 0) & (col >= 0)  # it predicts no new users and items
    error = bf.metrics.rmse(x[row[here], col[here]], test.value[here])
    return {"model": "scikit-learn, zeros", "engine": "", "RMSE": error, "seconds": spent}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--data", default="movielens-100k", help="a data set (movielens-100k)")
    parser.add_argument("--components", type=int, default=10, help="their number (10)")
    parser.add_argument("--repeats", type=int, default=3, help="of each timing (3)")
    args = parser.parse_args()
    hold_cores(args.threads)
    where = surroundings()
    data = bf.datasets.load("ratings" if args.quick else args.data)
    K, draws = (2, 20) if args.quick else (args.components, 200)
    found: list[dict[str, Any]] = []
    if "scores" in args.parts:
        sets = {"made up": (made_up(args.quick), 4), "data": (data, K)}
        found += [{"table": t} | row for t, one in sets.items() for row in scores(*one, draws)]
    if "sweeps" in args.parts:
        length = 5 if args.quick else 30
        models = {name: (model, data, {"n_components": K}) for name, model in MODELS.items()}
        timed = in_turn(models, 1 if args.quick else args.repeats, length)
        found += [{"table": "data", "model": name} | each for name, each in timed.items()]
    columns = dict.fromkeys(what for each in found for what in each)
    shown = lambda x: f"{x:.4g}" if isinstance(x, float) else x  # noqa: E731
    rows = [{what: shown(each.get(what, "")) for what in columns} for each in found]
    report("nonnegative", args, {"where": where, "results": found}, table(rows))


if __name__ == "__main__":
    main()
