"""Rows that depend on one another (`bf.RandomWalk`, `bf.AutoRegressive`, `bf.Graph`) beside usual ones.

drift     a made-up tensor of places, quantities and 60 months, whose rows drift: correlation of predictions
          with the true scores of all cells, and of the cells of months with few cells
friends   made-up users in circles, whose graph is that of their friends, or a random one of the same size:
          RMSE about true scores by the number of ratings that a user has in training, and the strength that
          held-out cells chose
sweeps    ms a Gibbs sweep beside `bpmf`'s in the same process: differences of long and short runs of one
          chain, all in turn, the median of the repeats; each user has ten random friends
"""

from typing import Any

import numpy as np
from common import arguments, hold_cores, report, surroundings, table
from common.sweeps import in_turn

import bayesfac as bf

PARTS = ("drift", "friends", "sweeps")
FEW = 5  # cells of a month with few cells
GROUPS = ((0, 0), (1, 3), (4, 10), (11, 1000))  # ratings of a user: from and to


def drift(draws: int, places: int = 30, quantities: int = 12, months: int = 60) -> dict[str, Any]:
    """Correlations of every prior of the months; half of the months have few cells."""
    rng = np.random.default_rng(0)
    shape, K = (places, quantities, months), 2
    steps = rng.normal(size=(months, K)) * np.r_[1.0, np.full(months - 1, 0.3)][:, None]
    rows = [rng.normal(size=(n, K)) for n in shape[:2]] + [np.cumsum(steps, 0)]
    truth = np.einsum("ik,jk,tk->ijt", *rows)
    few = rng.random(months) < 0.5
    seen = np.zeros((places * quantities, months), bool)
    for month in range(months):
        size = FEW if few[month] else 5 * FEW
        seen[rng.choice(places * quantities, size, replace=False), month] = True
    seen = seen.reshape(shape)
    noisy = truth + truth.std() * rng.normal(size=shape)
    data = bf.Tensor(np.where(seen, noisy, np.nan), modes=("place", "quantity", "month"))
    found = {}
    for name, modes in (
        ("usual rows", None),
        ("random walk", {"month": bf.RandomWalk()}),
        ("autoregressive", {"month": bf.AutoRegressive()}),
    ):
        model = bf.factorization(structure="tensor", modes=modes)
        fit = bf.fit(model, data, bf.Gibbs(draws, draws, 2), n_components=K, progress=False)
        told = fit.predict(tuple(np.argwhere(np.ones(shape)).T)).mean.reshape(shape)
        found[name] = {
            "all cells": np.corrcoef(told.ravel(), truth.ravel())[0, 1],
            "months of few cells": np.corrcoef(told[..., few].ravel(), truth[..., few].ravel())[
                0, 1
            ],
        }
    return found


def friends(draws: int, users: int = 300, items: int = 80) -> dict[str, Any]:
    """RMSE by number of ratings; circles of ten, and numbers of ratings from none to forty."""
    rng = np.random.default_rng(0)
    K, circle = 2, np.arange(users) // 10
    U = rng.normal(size=(circle.max() + 1, K))[circle] + 0.4 * rng.normal(size=(users, K))
    truth = U @ rng.normal(size=(K, items))
    number = np.minimum(rng.geometric(0.12, users) - 1, items // 2)
    col = [rng.choice(items, n, replace=False) for n in number]
    row, col = np.repeat(np.arange(users), number), np.concatenate(col)
    value = truth[row, col] + rng.normal(size=len(row))
    one, two = np.triu_indices(users, 1)
    near = (circle[one] == circle[two]) & (rng.random(len(one)) < 0.5)
    edges = {
        "friends": np.column_stack([one, two])[near],
        "random graph": rng.integers(0, users, (near.sum(), 2)),
    }
    data = {name: bf.Ratings(row, col, value, user_graph=pairs) for name, pairs in edges.items()}
    asked = np.repeat(np.arange(users), items), np.tile(np.arange(items), users)
    found = {}
    for name, model, graph in (
        ("usual rows", bf.factorization(), "friends"),
        ("friends", bf.factorization(bf.Graph()), "friends"),
        ("random graph", bf.factorization(bf.Graph()), "random graph"),
    ):
        engine = bf.Gibbs(draws, draws, 2)
        fit = bf.fit(model, data[graph], engine, n_components=K, progress=False)
        error = (fit.predict(asked).mean.reshape(users, items) - truth) ** 2
        found[name] = {
            f"{low}-{high} ratings": float(error[(low <= number) & (number <= high)].mean() ** 0.5)
            for low, high in GROUPS
        }
        found[name]["strength"] = getattr(fit.hyper, "strength_user", np.nan)
    return found


def sweeps(data: bf.Ratings, K: int, repeats: int, length: int) -> dict[str, Any]:
    """ms a sweep of every model."""
    rng = np.random.default_rng(0)
    ends = rng.integers(0, data.n_users, (5 * data.n_users, 2))
    joined = bf.Ratings(data, user_graph=np.asarray(data.users)[ends])
    models: dict[str, Any] = {
        "bpmf": "bpmf",
        "random walk of users": bf.factorization(bf.RandomWalk(0.1)),
        "autoregressive users": bf.factorization(bf.AutoRegressive(0.9)),
        "graph of users": bf.factorization(bf.Graph(1.0)),
        "graph, strength 10": bf.factorization(bf.Graph(10.0)),
    }

    given = {"n_components": K}
    return in_turn(
        {name: (model, joined, given) for name, model in models.items()}, repeats, length
    )


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--data", default="movielens-100k", help="of the sweeps (movielens-100k)")
    parser.add_argument("--components", type=int, default=10, help="of the sweeps (10)")
    parser.add_argument("--repeats", type=int, default=3, help="of each timing (3)")
    args = parser.parse_args()
    hold_cores(args.threads)
    where = surroundings()
    quick, found = args.quick, dict[str, Any]()
    if "drift" in args.parts:
        found["drift"] = drift(20, 8, 5, 12) if quick else drift(500)
    if "friends" in args.parts:
        found["friends"] = friends(20, 60, 30) if quick else friends(500)
    if "sweeps" in args.parts:
        data = bf.datasets.load("ratings" if quick else args.data)
        K, repeats, length = (3, 1, 5) if quick else (args.components, args.repeats, 50)
        found["sweeps"] = sweeps(data, K, repeats, length)
    text = []
    for part, rows in found.items():
        shown = [{part: n} | {w: f"{x:.4g}" for w, x in each.items()} for n, each in rows.items()]
        text.append(table(shown))
    report("coupled", args, {"where": where, "results": found}, "\n\n".join(text))


if __name__ == "__main__":
    main()
