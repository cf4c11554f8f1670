"""cmf beside bpmf: on made-up relations, and on MovieLens with the genres of the films.

    python benchmarks/collective.py                       # made-up data, ten data sets
    python benchmarks/collective.py --data movielens_100k # with nothing set

Both methods see the same ratings. A tenth of the ratings is held out at random; in a second split all ratings
of a tenth of the users (made-up data) or of the items (MovieLens, whose genres describe items).
"""

import argparse
from typing import Any

import numpy as np

import bayesfac as bf
from bayesfac.core.data.relations import Relations

QUIET = {"progress": False}


def splits(data: Relations, side: str, seed: int) -> dict[str, tuple[Relations, Relations]]:
    """{name: (train, test)}: ratings at random, and all ratings of a tenth of the labels of a side."""
    rng = np.random.default_rng(seed)
    code = getattr(data, side)
    n = len(getattr(data, f"{side}s"))
    cold = np.isin(code, rng.choice(n, n // 10, replace=False))
    return {
        "random": bf.split.holdout(data, 0.1, seed=seed),
        f"new {side}s": (data.take(~cold), data.take(cold)),
    }


def plain(data: Relations) -> bf.Ratings:
    """The ratings alone, with the same users and items."""
    return bf.Ratings(data.frame(), levels=data.levels).on(data.users, "user").on(data.items)


def engines(args: argparse.Namespace) -> dict[str, Any]:
    return {"point": None, "Gibbs": bf.Gibbs(args.warmup, args.draws, args.chains)}


def scores(fit: Any, test: Relations) -> tuple[float, float]:
    seen = fit.predict(test.frame())
    rmse = bf.metrics.rmse(seen.mean, test.value)
    return rmse, bf.metrics.coverage(*seen.interval(0.9), test.value)


def movielens(name: str) -> Relations:
    """Ratings and films x genres, with every zero."""
    loaded = bf.datasets.load(name, features=True)
    genres = loaded.item_features.rename_axis("item")
    ratings = bf.Ratings(loaded.frame()[["user", "item", "rating"]], levels=5)
    return Relations(ratings, {"genres": ("item", "genre", genres)})


def compare(
    data: Relations, side: str, args: argparse.Namespace, settings: Any, seed: int, found: Any
) -> None:
    for split, (train, test) in splits(data, side, seed).items():
        for engine_name, engine in engines(args).items():
            for method, own in (("bpmf", plain(train)), ("cmf", train)):
                fit = bf.fit(method, own, engine, seed=seed, **settings, **QUIET)
                found.setdefault((split, engine_name, method), []).append(scores(fit, test))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--data", help="a MovieLens data set; by default data are made up")
    add("--repeats", type=int, default=10)
    add("--components", type=int)
    add("--warmup", type=int, default=100)
    add("--draws", type=int, default=200)
    add("--chains", type=int, default=2)
    args = parser.parse_args()
    settings = {} if args.components is None else {"n_components": args.components}
    found: dict[tuple, list] = {}
    if args.data:
        data = movielens(args.data)
        print(data)
        for seed in range(args.repeats):
            compare(data, "item", args, settings, seed, found)
    else:
        for seed in range(args.repeats):
            data = bf.datasets.make_relations(seed=seed)[0]
            compare(data, "user", args, {"n_components": 5, **settings}, seed, found)
    print("| split | engine | method | test RMSE | 90 % interval covers |")
    print("|---|---|---|---|---|")
    for (split, engine, method), values in found.items():
        rmse, covers = np.mean(values, 0)
        print(f"| {split} | {engine} | {method} | {rmse:.4f} | {covers:.3f} |")


if __name__ == "__main__":
    main()
