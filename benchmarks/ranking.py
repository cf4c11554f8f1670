"""Recommendations on MovieLens-1M, the latest tenth of all ratings held out, by bpmf and by others.

python benchmarks/ranking.py        writes results/ranking.json; `implicit` is compared where it is installed

A user takes part who has a liked item (4 or 5 stars) in the test set, and ratings in training; of these users
1,000 are drawn. Every method ranks all items that the user did not rate in training. `bpmf` is fitted to the
stars; popularity, item neighbours and implicit's ALS see only who rated what. Nothing is tuned: settings are
defaults. Standard errors are over users; differences from bpmf's mean are of the same users, in pairs.
"""

import argparse
import json
import time
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import bayesfac as bf
from bayesfac import metrics
from bayesfac.metrics.top_n import top

RESULTS = Path(__file__).parent / "results" / "ranking.json"
PLACES, LIKED, NEIGHBOURS = 10, 4, 20
POINT, MEAN = "bpmf, point", "bpmf, mean"
WAYS = {MEAN: "mean", "bpmf, lower bound": "lower", "bpmf, probability of the top 10": "in_top"}
MEASURES = {"NDCG@10": metrics.ndcg, "recall@10": metrics.recall}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="movielens-1m")
    parser.add_argument("--users", type=int, default=1000)
    parser.add_argument("--components", type=int, default=16)
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    warnings.simplefilter("default")
    train, test = bf.split.holdout(bf.datasets.load(chosen.data), 0.1, by="time")
    users, liked, closed = asked(train, test, chosen.users)
    print(f"{train}\n{len(users)} users", flush=True)
    lists = simple(train, users, closed)
    if find_spec("implicit"):
        lists["implicit's ALS"] = als(train, users, closed)
    lists |= sampled(train, users, chosen)
    rows = scored(lists, liked, train.n_items)
    for name, row in rows.items():
        print(f"{name:<32}" + "  ".join(f"{k} {v:.4f}" for k, v in row.items()))
    settings = {k: v for k, v in vars(chosen).items() if k != "out"}
    facts = {"settings": settings, "users": len(users), "training": len(train), "rows": rows}
    chosen.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def asked(
    train: bf.Ratings, test: bf.Ratings, most: int
) -> tuple[np.ndarray, list[set[int]], np.ndarray]:
    """Users with a liked item to find, `most` at random; these items; and what they rated before."""
    seen = np.bincount(train.user, minlength=train.n_users) > 0
    good = (test.value >= LIKED) & seen[test.user]
    every = np.unique(test.user[good])
    few = np.random.default_rng(0).choice(every, min(most, len(every)), replace=False)
    users = np.sort(few)
    liked = [set(test.item[good & (test.user == user)].tolist()) for user in users]
    return users, liked, told(train)[users].toarray() > 0


def told(train: bf.Ratings) -> sp.csr_matrix:
    """Who rated what, as ones."""
    ones = np.ones(len(train), np.float32)
    return sp.csr_matrix((ones, (train.user, train.item)), train.shape)


def simple(train: bf.Ratings, users: np.ndarray, closed: np.ndarray) -> dict[str, np.ndarray]:
    """The most popular items; items that the same users rated (cosine, the 20 nearest of each item)."""
    x = told(train)
    count = np.asarray(x.sum(0)).ravel()
    alike = (x.T @ x).toarray() / np.sqrt(np.maximum(np.outer(count, count), 1))
    np.fill_diagonal(alike, 0)
    least = np.partition(alike, -NEIGHBOURS, axis=1)[:, -NEIGHBOURS, None]
    near = np.where(alike >= least, alike, 0)
    popular = np.broadcast_to(count, closed.shape)
    return {
        "popularity": top(popular, PLACES, closed),
        "item neighbours": top(x[users] @ near.T, PLACES, closed),
    }


def als(train: bf.Ratings, users: np.ndarray, closed: np.ndarray) -> np.ndarray:
    """implicit's alternating least squares, all settings as they are."""
    from implicit.als import AlternatingLeastSquares

    model = AlternatingLeastSquares(random_state=0)
    model.fit(told(train), show_progress=False)
    score = np.asarray(model.user_factors)[users] @ np.asarray(model.item_factors).T
    return top(score, PLACES, closed)


def sampled(
    train: bf.Ratings, users: np.ndarray, chosen: argparse.Namespace
) -> dict[str, np.ndarray]:
    """bpmf as a point, and its draws by every rule of `recommend`."""
    begun = time.process_time()
    size: dict[str, Any] = {"n_components": chosen.components, "progress": False}
    point = bf.fit("bpmf", train, **size)
    engine = bf.Gibbs(chosen.warmup, chosen.draws, chains=2)
    draws = bf.fit("bpmf", train, engine, init=point, **size)
    print(f"fits: {time.process_time() - begun:.0f} s of CPU\n{draws.diagnostics()}", flush=True)
    lists = {}
    for name, fit, by in [(POINT, point, "mean"), *((n, draws, by) for n, by in WAYS.items())]:
        table = fit.recommend(train.users[users], PLACES, exclude=train, by=by)
        lists[name] = train.items.get_indexer(table["item"]).reshape(len(users), PLACES)
        print(f"{name}: {time.process_time() - begun:.0f} s of CPU", flush=True)
    return lists


def scored(
    lists: dict[str, np.ndarray], liked: list[set[int]], n_items: int
) -> dict[str, dict[str, float]]:
    """Means over users, and differences from bpmf's mean, with standard errors."""
    found: dict[str, dict[str, float]] = {name: {} for name in lists}
    for measure, count in MEASURES.items():
        each = {name: count(rows, liked, PLACES) for name, rows in lists.items()}
        for name, values in each.items():
            for what, numbers in {
                measure: values,
                f"{measure} gained": values - each[MEAN],
            }.items():
                found[name] |= {what: numbers.mean(), f"se of {what}": error(numbers)}
    for name, rows in lists.items():
        found[name]["catalogue shown"] = metrics.catalogue_coverage(rows, n_items, PLACES)
    return {name: {k: round(float(v), 5) for k, v in row.items()} for name, row in found.items()}


def error(values: np.ndarray) -> float:
    """The standard error of a mean over users."""
    return values.std(ddof=1) / len(values) ** 0.5


if __name__ == "__main__":
    main()
