"""Methods of ratings with nothing set: random splits 90/10, beside what a user would try first.

Every method runs as `bf.fit(NAME, train)`. Methods of two levels (bmmmf) get likes: ratings above the middle
level. Beside them:

mean      the mean rating
biases    mean + user + item, ridge regressions on each other with a penalty of 5 ratings

RMSE is that of the mean, MAE and wrong are those of the level (of the baselines: the nearest level). Every
finished cell is kept in `results/default_ratings.json`, so that a run that was stopped goes on. `--splits N`
runs N splits (3), `--only NAME,...` some methods, `--data NAME,...` some data sets.
"""

import time
import warnings
from functools import partial
from typing import Any

import numpy as np
from common import RESULTS, Cells, arguments, report, surroundings, table

import bayesfac as bf
from bayesfac.core.method import REGISTRY
from bayesfac.datasets.fetch import VARIABLE, folders

MEASURES = ("RMSE", "MAE", "wrong")
BASELINES = ("mean", "biases")
FILES = {"movielens_100k": "movielens-100k", "movielens_1m": "movielens-1m"}


def some(ratings: bf.Ratings, count: int) -> bf.Ratings:
    """Random cells, without users and items that lost all of theirs."""
    kept = np.random.default_rng(0).permutation(len(ratings))[:count]
    return bf.Ratings(ratings.take(np.sort(kept)).frame(), levels=ratings.levels)


def rescaled(ratings: bf.Ratings, levels: Any, value: Any) -> bf.Ratings:
    """The same cells on another scale; `value` maps numbers from 0 (lowest) to 1 (highest)."""
    low, high = ratings.levels[0], ratings.levels[-1]
    frame = ratings.frame()
    frame["rating"] = value((frame["rating"] - low) / (high - low))
    return bf.Ratings(frame, levels=levels)


def made(users: int, items: int, density: float, levels: int = 5) -> bf.Ratings:
    return bf.datasets.make_ratings(users, items, 3, levels, density, seed=0, noise=0.5)


SETS = {
    "movielens_100k": lambda: bf.datasets.load("movielens-100k"),
    "movielens_1m": lambda: bf.datasets.load("movielens-1m"),
    "20,000 of movielens_100k": lambda: some(bf.datasets.load("movielens-100k"), 20_000),
    "made up, 120 x 150": lambda: made(120, 150, 0.3),
    "made up, 1000 x 500": lambda: made(1000, 500, 0.05),
    "uneven": lambda: bf.datasets.make_uneven_ratings(600, 400, seed=0),
    "half stars": lambda: rescaled(
        made(300, 200, 0.2, 10), np.arange(0.5, 5.5, 0.5), lambda x: 0.5 + np.rint(9 * x) / 2
    ),
    "0 to 100": lambda: rescaled(
        made(300, 200, 0.2, 21), np.arange(0, 105, 5), lambda x: 5 * np.rint(20 * x)
    ),
    "thumbs": lambda: made(300, 200, 0.2, 2),
}
QUICK = "made up, 120 x 150"


def names() -> list[str]:
    """Every method of ratings."""
    return sorted(name for name, method in REGISTRY.items() if method.data is bf.Ratings)


def one(name: str, source: str, split: int) -> dict[str, Any]:
    """Measures of one split, what the fit says of itself, and seconds of the processor."""
    ratings = SETS[source]()
    if name == "bmmmf" and len(ratings.levels) > 2:
        ratings = ratings.above(ratings.levels[(len(ratings.levels) - 1) // 2])
    train, test = bf.split.holdout(ratings, 0.1, seed=split)
    begun = time.process_time()
    if name in BASELINES:
        mean = biases(train, test) if name == "biases" else np.full(len(test), train.mean)
        return scores(mean, nearest(mean, train), test) | {"seconds": time.process_time() - begun}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bf.ConvergenceWarning)  # the table says who converged
        fit = bf.fit(name, train, progress=False)
    found = fit.predict(test)
    mean = np.asarray(found.mean)
    level = nearest(mean, train) if name in ("pmf", "bpmf", "gplvm") else np.asarray(found.level)
    told = {"sweeps": len(fit.trace) - 1, "converged": bool(fit.converged), "notes": fit.notes}
    return scores(mean, level, test) | told | {"seconds": time.process_time() - begun}


def scores(mean: np.ndarray, level: np.ndarray, test: bf.Ratings) -> dict[str, float]:
    wrong = level != test.value
    error = bf.metrics.rmse(mean, test.value)
    return {
        "RMSE": float(error),
        "MAE": float(np.abs(level - test.value).mean()),
        "wrong": float(wrong.mean()),
    }


def nearest(mean: np.ndarray, train: bf.Ratings) -> np.ndarray:
    levels = np.asarray(train.levels)
    return levels[np.abs(mean[:, None] - levels).argmin(1)]


def biases(train: bf.Ratings, test: bf.Ratings, penalty: float = 5.0) -> np.ndarray:
    """Mean + user + item, by twenty rounds of ridge regressions."""
    user, item, y = train.user, train.item, train.value - train.mean
    b, c = np.zeros(train.n_users), np.zeros(train.n_items)
    for _ in range(20):
        c = np.bincount(item, y - b[user], len(c)) / (np.bincount(item, minlength=len(c)) + penalty)
        b = np.bincount(user, y - c[item], len(b)) / (np.bincount(user, minlength=len(b)) + penalty)
    return train.mean + b[test.user] + c[test.item]


def line(source: str, name: str, parts: list[dict[str, Any]]) -> dict[str, Any]:
    row = {"data": source, "method": name}
    row |= {m: f"{np.mean([part[m] for part in parts]):.3f}" for m in MEASURES}
    row |= {"sweeps": "", "converged": "", "notes": ""}
    if "sweeps" in parts[0]:  # of a fit, not of a baseline
        row["sweeps"] = f"{np.mean([part['sweeps'] for part in parts]):.0f}"
        row["converged"] = f"{sum(part['converged'] for part in parts)} of {len(parts)}"
        words = [note for part in parts for note in part["notes"] if note.startswith("collapsed")]
        row["notes"] = "collapsed" if words else ""
    row["CPU s"] = f"{np.mean([part['seconds'] for part in parts]):.0f}"
    return {**row, "splits": str(len(parts))}


def here(source: str) -> bool:
    """Whether the file behind the data set is in the folder of data."""
    file = next((file for file in FILES if file in source), None)
    return file is None or any((folder / f"{file}.npz").is_file() for folder in folders())


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--splits", type=int, default=3, metavar="N", help="splits (3)")
    parser.add_argument("--only", metavar="NAMES", help="methods and baselines, with commas")
    parser.add_argument("--data", metavar="NAMES", help="data sets, with semicolons")
    args = parser.parse_args()
    bf.methods()  # registers every method
    sources = args.data.split(";") if args.data else list(SETS)
    wanted = args.only.split(",") if args.only else [*BASELINES, *names()]
    if args.quick:
        sources, args.splits = [QUICK], 1
        wanted = wanted if args.only else [*BASELINES, "bpmf"]
    if absent := [source for source in sources if not here(source)]:
        print(f"Not found, and left out: {', '.join(absent)}; set {VARIABLE} to their folder")
    cells, where = (
        Cells(None if args.quick else args.out or RESULTS / "default_ratings.json"),
        surroundings(),
    )
    rows = []
    for source in (source for source in sources if source not in absent):
        splits = 1 if source == "movielens_1m" else args.splits
        for name in wanted:
            parts = [
                cells.get(
                    f"{source}, {name}, split {split}", partial(one, name, source, split),
                    told=lambda found: f"RMSE {found['RMSE']:.3f}, MAE {found['MAE']:.3f}",
                )
                for split in range(splits)
            ]  # fmt: skip
            rows.append(line(source, name, parts))
    if rows:
        found = {"where": where, "results": cells.found}
        report("default_ratings", args, found, table(rows))


if __name__ == "__main__":
    main()
