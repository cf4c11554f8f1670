"""Test error and coverage of cmf beside bpmf, which sees the ratings alone.

made up         ratings, users x tags and items x words (`bf.datasets.make_relations`), five components
movielens-100k, movielens-1m   ratings and films x genres, with nothing set

random   a tenth of the ratings is held out
new      all ratings of a tenth of the users (made up), or of the films, whose genres are known (MovieLens)

Both methods have the same ratings of the same users and items, and the same number of sweeps.
"""

import warnings
from typing import Any

import numpy as np
from common import arguments, hold_cores, report, surroundings, table

import bayesfac as bf

SETS = ("made up", "movielens-100k", "movielens-1m")


def loaded(name: str, quick: bool, seed: int) -> bf.Relations:
    if quick:
        return bf.datasets.make_relations(40, 30, 2, density=0.2, seed=seed)[0]
    if name == "made up":
        return bf.datasets.make_relations(seed=seed)[0]
    ratings = bf.datasets.load(name, features=True)
    genres = ratings.item_features.rename_axis("item")
    return bf.Relations(
        bf.Ratings(ratings.frame()[["user", "item", "rating"]], levels=ratings.levels),
        {"genres": ("item", "genre", genres)},
    )


def splits(
    data: bf.Relations, side: str, seed: int
) -> dict[str, tuple[bf.Relations, bf.Relations]]:
    code, n = (data.user, data.n_users) if side == "user" else (data.item, data.n_items)
    new = np.isin(code, np.random.default_rng(seed).choice(n, n // 10, replace=False))
    return {
        "random": bf.split.holdout(data, 0.1, seed=seed),
        "new": (data.take(~new), data.take(new)),
    }


def alone(data: bf.Relations) -> bf.Ratings:
    """The ratings without the other matrices, with the same users and items."""
    return bf.Ratings(data.frame(), levels=data.levels).on(data.users, "user").on(data.items)


def compared(name: str, args: Any, seed: int) -> list[dict[str, Any]]:
    """The scores of both methods, as points and by Gibbs."""
    data, made = loaded(name, args.quick, seed), name == "made up"
    sweeps = (5, 5) if args.quick else (args.warmup, args.draws)
    settings = {"n_components": 2 if args.quick else 5} if made else {}
    rows = []
    for split, (train, test) in splits(data, "user" if made else "item", seed).items():
        for engine in (None, bf.Gibbs(*sweeps, args.chains)):
            for method, own in (("bpmf", alone(train)), ("cmf", train)):
                fit = bf.fit(method, own, engine, seed=seed, progress=False, **settings)
                seen = fit.predict(test.frame())
                row = {"data": name, "held out": split, "seed": seed, "method": method}
                row["fit"] = "point" if engine is None else "Gibbs"
                row["rmse"] = float(bf.metrics.rmse(seen.mean, test.value))
                row["covers 90 %"] = float(bf.metrics.coverage(*seen.interval(0.9), test.value))
                rows.append(row)
                print(row, flush=True)
    return rows


def means(rows: list[dict[str, Any]]) -> str:
    """A table of the means over seeds."""
    groups: dict[tuple, list] = {}
    for row in rows:
        key = tuple(row[part] for part in ("data", "held out", "fit", "method"))
        groups.setdefault(key, []).append((row["rmse"], row["covers 90 %"]))
    named = zip(("data", "held out", "fit", "method"), zip(*groups, strict=True), strict=True)
    columns = dict(named)
    lines = []
    for i, values in enumerate(groups.values()):
        rmse, covers = np.mean(values, 0)
        line = {part: column[i] for part, column in columns.items()}
        lines.append(line | {"test RMSE": f"{rmse:.4f}", "covers 90 %": f"{covers:.3f}"})
    return table(lines)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sets", nargs="+", default=list(SETS[:2]), choices=SETS)
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--chains", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    hold_cores(args.threads)
    warnings.simplefilter("ignore")
    where = surroundings()
    chosen = SETS[:1] if args.quick else args.sets
    seeds = range(1 if args.quick else args.seeds)
    rows = [row for name in chosen for seed in seeds for row in compared(name, args, seed)]
    report("collective", args, {"where": where, "results": rows}, means(rows))


if __name__ == "__main__":
    main()
