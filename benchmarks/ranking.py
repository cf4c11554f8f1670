"""Recommendations on MovieLens-1M, the latest tenth of all ratings held out, by bpmf and by others.

python benchmarks/ranking.py        writes results/ranking.json; `implicit` is compared where it is installed

A user takes part who has a liked item (4 or 5 stars) in the test set, and ratings in training. Every method
ranks all items that the user did not rate in training. `bpmf` is fitted to the stars; popularity, item
neighbours and implicit's ALS see only who rated what. Nothing is tuned: settings are defaults. Standard
errors are over users.
"""

import argparse
import json
import time
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import bayesfac as bf
from bayesfac import metrics
from bayesfac.metrics.top_n import top

RESULTS = Path(__file__).parent / "results" / "ranking.json"
PLACES, LIKED, NEIGHBOURS, USERS = 10, 4, 20, 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--components", type=int, default=16)
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--data", default="movielens-1m")
    chosen = parser.parse_args()
    warnings.simplefilter("default")
    train, test = bf.split.holdout(bf.datasets.load(chosen.data), 0.1, by="time")
    users, liked, closed = asked(train, test)
    print(f"{train}\n{len(users)} users", flush=True)
    lists = simple(train, users, closed) | sampled(train, users, chosen)
    if find_spec("implicit"):
        lists["implicit ALS"] = als(train, users, closed)
    rows = {name: scored(rows, liked, train.n_items) for name, rows in lists.items()}
    for name, row in rows.items():
        print(f"{name:<18}" + "  ".join(f"{k} {v:.4f}" for k, v in row.items()))
    facts = {"data": chosen.data, "users": len(users), "settings": vars(chosen), "rows": rows}
    RESULTS.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def asked(train: bf.Ratings, test: bf.Ratings) -> tuple[np.ndarray, list[set], np.ndarray]:
    """Users with a liked item to find, at most 1,000 at random; these items; and what they rated before."""
    seen = np.bincount(train.user, minlength=train.n_users) > 0
    good = (test.value >= LIKED) & seen[test.user]
    every = np.unique(test.user[good])
    few = min(USERS, len(every))
    users = np.sort(np.random.default_rng(0).choice(every, few, replace=False))
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


def sampled(train: bf.Ratings, users: np.ndarray, chosen: argparse.Namespace) -> dict:
    """bpmf as a point, and its draws by mean and by the lower end of the 90 % interval."""
    begun = time.process_time()
    point = bf.fit("bpmf", train, n_components=chosen.components, progress=False)
    engine = bf.Gibbs(chosen.warmup, chosen.draws, chains=2)
    draws = bf.fit(
        "bpmf", train, engine, n_components=chosen.components, init=point, progress=False
    )
    print(f"fits: {time.process_time() - begun:.0f} s of CPU\n{draws.diagnostics()}", flush=True)
    ways = {"bpmf point": (point, "mean"), "bpmf mean": (draws, "mean")}
    ways |= {"bpmf lower bound": (draws, "lower")}
    lists = {}
    for name, (fit, by) in ways.items():
        table = fit.recommend(train.users[users], PLACES, exclude=train, by=by)
        lists[name] = train.items.get_indexer(table["item"]).reshape(len(users), PLACES)
    return lists


def als(train: bf.Ratings, users: np.ndarray, closed: np.ndarray) -> np.ndarray:
    """implicit's alternating least squares, all settings as they are."""
    from implicit.als import AlternatingLeastSquares

    model = AlternatingLeastSquares(random_state=0)
    model.fit(told(train), show_progress=False)
    score = np.asarray(model.user_factors)[users] @ np.asarray(model.item_factors).T
    return top(score, PLACES, closed)


def scored(rows: np.ndarray, liked: list[set], n_items: int) -> dict[str, float]:
    """Means over users, with standard errors."""
    found = {}
    for name, measure in (("NDCG@10", metrics.ndcg), ("recall@10", metrics.recall)):
        each = measure(rows, liked, PLACES)
        found |= {name: each.mean(), f"se of {name}": each.std(ddof=1) / len(each) ** 0.5}
    return found | {"catalogue shown": metrics.catalogue_coverage(rows, n_items, PLACES)}


if __name__ == "__main__":
    main()
