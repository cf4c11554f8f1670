"""What is recommended: the ten best predicted held-out ratings of each user, before and after repair.

made up   300 users choose what they rate of 300 items (`make_selected`, rank 3, strengths 0, 1 and 2), ten
          seeds. Half of the chosen ratings train, a quarter repairs and a quarter tests. Of the 80 random
          items that each user was asked for, half repair and half test
movielens MovieLens-100K, ratings as they come: 60 % train, 20 % repair and 20 % test, at random by ten seeds,
          and once by time: the first ratings of each user train, the last ones test

Point of pmf, point and draws of bpmf, K = 3 and 10. "too high" is the mean prediction at the top less the
mean rating; "covers" is the share of ratings at the top inside their 90 % intervals; "repaired" is after
`fit.recalibrated(..., what="top")`. Figures are means over seeds, with the standard error over seeds if there
are several. Users with ten held-out ratings or fewer have no top.
"""

import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from common import RESULTS, Cells, arguments, report, surroundings, table

import bayesfac as bf
from bayesfac.report.top import first_rows

PARTS = ["made up", "movielens"]
STRENGTHS = (0.0, 1.0, 2.0)
ENGINES = {"pmf, point": (), "bpmf, point": (), "bpmf, draws": (bf.Gibbs(200, 200, 2),)}
SMALL = {"bpmf, draws": (bf.Gibbs(5, 5, 1),)}


def at_top(fit: Any, test: Any) -> dict[str, float]:
    """How much too high the top is, and the share of its ratings that are inside their intervals."""
    prediction = fit.predict(test)
    lower, upper = prediction.interval(0.9)
    at = first_rows(test.user, prediction.mean, 10)
    inside = (lower <= test.value) & (test.value <= upper)
    high = float((prediction.mean - test.value)[at].mean())
    return {"too high": round(high, 4), "covers": round(float(inside[at].mean()), 4)}


def measured(
    train: Any, engines: Mapping[str, Any], rank: int, seed: int, parts: Mapping[str, Any]
) -> dict[str, dict[str, float]]:
    """{fit: {what: figure}} for each part, which is a pair of ratings to repair on and to test on.

    The fits are repaired on every part and tested on the last.
    """
    found: dict[str, dict[str, float]] = {}
    for name, engine in engines.items():
        fit = bf.fit(
            name.split(",")[0], train, *engine, n_components=rank, seed=seed, progress=False
        )
        known = {
            where: [each.take(~fit.predict(each).flagged) for each in pair]
            for where, pair in parts.items()
        }
        found[name] = {}
        for where, (_, test) in known.items():
            found[name] |= {f"{where}: {k}": v for k, v in at_top(fit, test).items()}
            for on, (held_out, _) in known.items():
                if on == where or where == "asked":
                    new = fit.recalibrated(held_out, what="top")
                    found[name][f"{where}: repaired on {on}"] = at_top(new, test)["covers"]
    return found


def halves(data: Any, seed: int, fraction: float = 0.5) -> tuple[Any, Any]:
    """Two random parts, the second with this fraction."""
    return bf.split.holdout(data, fraction, seed=seed)


def made_up(strength: float, seed: int, quick: bool) -> dict[str, dict[str, float]]:
    """The figures of one made-up data set."""
    users, items, density, each = (60, 100, 0.6, 40) if quick else (300, 300, 0.3, 80)
    chosen, asked, _ = bf.datasets.make_selected(
        users, items, 3, strength, density=density, asked=each, seed=seed
    )
    # as many for all seeds and strengths, so that they share programs
    many = round(0.95 * density * users * (items - each))
    kept = np.random.default_rng(seed).permutation(len(chosen)) < many
    train, rest = halves(chosen.take(kept), seed)
    parts = {"chosen": halves(rest, seed), "asked": halves(asked, seed)}
    return measured(train, SMALL if quick else ENGINES, 3, seed, parts)


def movielens(seed: int | None) -> dict[str, dict[str, float]]:
    """The figures of a random split, or of one by time."""
    data = bf.datasets.load("movielens-100k")
    if seed is None:
        order = data.frame().groupby("user")["time"].rank(pct=True, method="first").to_numpy()
        train, held_out, test = (
            data.take((low < order) & (order <= high))
            for low, high in ((0, 0.6), (0.6, 0.8), (0.8, 1))
        )
        return measured(train, ENGINES, 10, 0, {"chosen": (held_out, test)})
    train, rest = halves(data, seed, 0.4)
    return measured(train, ENGINES, 10, seed, {"chosen": halves(rest, seed)})


def summed(every: list[dict[str, dict[str, float]]], about: str) -> list[dict[str, str]]:
    """A row for each fit: the mean of each figure over the seeds, and its standard error."""
    rows = []
    for name, first in every[0].items():
        row = {"data": about, "fit": name}
        for what in first:
            x = np.array([one[name][what] for one in every])
            scale, digits = (1, 3) if what.endswith("too high") else (100, 1)
            text = f"{scale * x.mean():.{digits}f}"
            if len(x) > 1:
                text += f" ± {scale * x.std(ddof=1) / len(x) ** 0.5:.{digits}f}"
            row[what] = text
        rows.append(row)
    return rows


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="of each data set (10)")
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    args = parser.parse_args()
    if args.quick:
        args.seeds, args.parts = 1, ["made up"]
    warnings.simplefilter("ignore", bf.ConvergenceWarning)
    where, seeds = surroundings(), range(args.seeds)
    cells = Cells(args.out or (None if args.quick else RESULTS / "top.json"))
    tables = []
    if "made up" in args.parts:
        rows = []
        for strength in STRENGTHS[-1:] if args.quick else STRENGTHS:
            every = [
                cells.get(
                    f"strength {strength:g}, seed {seed}",
                    partial(made_up, strength, seed, args.quick),
                )
                for seed in seeds
            ]
            rows += summed(every, f"strength {strength:g}")
        tables.append(table(rows))
    if "movielens" in args.parts:
        every = [
            cells.get(f"movielens-100k, seed {seed}", partial(movielens, seed)) for seed in seeds
        ]
        later = cells.get("movielens-100k, later", partial(movielens, None))
        rows = summed(every, "MovieLens-100K") + summed([later], "the same, later")
        tables.append(table(rows))
    report("top", args, {"where": where, "results": cells.found}, "\n\n".join(tables))


if __name__ == "__main__":
    main()
