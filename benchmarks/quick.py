"""Quick and VB beside their point and a long Gibbs run: what they cost, and whether intervals are as wide.

made up   ratings of known truth (400 x 300, rank 8, 1 in 10 cells seen): BPMF, K = 8. Besides the rest, how
          often intervals of the expected rating hold the true mean, for cells of rows seen much and little
ratings   MovieLens-100K, random 90/10: BPMF, K = 10
labels    emotions, half of the rows without labels: HERES, 10 components
guides    PMF on made-up ratings (60 x 40, rank 3): sds of SVI at the probe cells over those of Gibbs, beside
          what the check of widths says when the guide is fitted

Time is CPU seconds of a second fit in the same process (so nothing is compiled), over those of the point's
second fit. Standard deviations are of expected outcomes, cell by cell, over those of the long run.
"""

import time
import warnings
from functools import partial
from typing import Any

import numpy as np
from common import RESULTS, Cells, arguments, report, surroundings, table

import bayesfac as bf
from bayesfac.datasets.fetch import folders

PARTS = ("made up", "ratings", "labels", "guides")
LEVELS = (0.5, 0.8, 0.9, 0.95)
Numbers = dict[str, Any]


def problem(part: str, seed: int, quick: bool) -> tuple[str, Numbers, Any, Any, np.ndarray | None]:
    """Method, settings, training data, test data, and the true means of the test cells if they are known."""
    if part == "made up":
        shape = (40, 30, 2) if quick else (400, 300, 8)
        data, truth = bf.datasets.make_gaussian(*shape, density=0.3 if quick else 0.1, seed=seed)
        train, test = bf.split.holdout(data, 0.2, seed=seed)
        users = truth.U[np.asarray(test.users)[test.user]]
        items = truth.V[np.asarray(test.items)[test.item]]
        return "bpmf", {"n_components": shape[2]}, train, test, np.sum(users * items, 1)
    if part == "ratings":
        name = "ratings" if quick else "movielens-100k"
        train, test = bf.split.holdout(bf.datasets.load(name), 0.1, seed=seed)
        return "bpmf", {"n_components": 3 if quick else 10}, train, test, None
    if quick:
        data, _ = bf.datasets.make_tasks(60, 1, labelled=1.0, seed=seed)
    else:
        (path,) = [p for folder in folders() if (p := folder / "emotions.npz").is_file()][:1]
        with np.load(path, allow_pickle=False) as z:
            data = bf.Tasks({"music": z["X"].astype(float)}, z["Y"].astype(float))
    train, test = bf.split.holdout(data, 0.5, seed=seed)
    given = {"n_components": 4 if quick else 10, "sparsity": 0.0625}
    return "heres", given, train, test, None


def timed(method: str, data: Any, engine: Any, settings: Numbers) -> tuple[bf.Fit, float]:
    """The second of two equal fits, and its CPU seconds."""
    for _ in range(2):
        begun = time.process_time()
        fit = bf.fit(method, data, engine, progress=False, **settings)
        seconds = time.process_time() - begun
    return fit, seconds


def held_out(fit: bf.Fit, test: Any) -> Numbers:
    """Scores of held-out cells."""
    scores = bf.compare({"": fit}, test).scores[""]
    loss = "RMSE" if "RMSE" in scores.losses else next(iter(scores.losses))
    found = {loss: float(np.average(scores.losses[loss], weights=scores.weights))}
    if loss == "RMSE":
        found[loss] **= 0.5
    found["log score"] = float(np.mean(scores.log_score))
    found["covers"] = {str(level): float(scores.inside(level).mean()) for level in LEVELS}
    return found


def holds(fit: bf.Fit, test: Any, truth: np.ndarray, train: Any) -> Numbers:
    """How often 90 % intervals of expected outcomes hold the truth: all cells, and thirds by activity."""
    draws = fit.predict(test).draws_of_mean().reshape(-1, len(test))
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    inside = (low <= truth) & (truth <= high)
    rows = np.bincount(train.user, minlength=train.n_users)
    seen = rows[train.users.get_indexer(test.users[test.user])]
    few, many = np.quantile(seen, [1 / 3, 2 / 3])
    parts = {"all": inside, "seen little": inside[seen <= few], "seen much": inside[seen > many]}
    return {name: float(part.mean()) for name, part in parts.items()}


def compared(part: str, seed: int, quick: bool) -> Numbers:
    """One split: the point, Quick and the long run."""
    method, settings, train, test, truth = problem(part, seed, quick)
    point, price = timed(method, train, None, settings)
    settings = point.hyper._asdict()
    fit, cost = timed(method, train, bf.Quick(), settings)
    law, least = None, np.nan
    if "VB" in point.method.engines:
        law, least = timed(method, train, bf.VB(), settings)
    length = (50, 100) if quick else (500, 500) if part == "labels" else (500, 2000)
    long = bf.fit(method, train, bf.Gibbs(*length, 2, thin=2), progress=False, **settings)

    def beside(fit: bf.Fit) -> Numbers:
        ratio = fit.predict(test).sd_mean / long.predict(test).sd_mean
        levels = ("5 %", "50 %", "95 %")
        return dict(zip(levels, np.quantile(ratio, [0.05, 0.5, 0.95]).tolist(), strict=True))

    found = {
        "times the point": cost / price,
        "sweeps": fit.engine.sweeps,
        "point": held_out(point, test),
        "quick": held_out(fit, test),
        "long": held_out(long, test),
        "sd beside the long run": beside(fit),
        "says of its sds": fit.diagnostics().narrow,
    }
    if law is not None:
        found["VB"] = {"times the point": least / price, **held_out(law, test)}
        found["VB"]["sd beside the long run"] = beside(law)
    if truth is not None:
        fits = {"quick": fit, "long": long} | ({} if law is None else {"VB": law})
        found["truth in 90 %"] = {n: holds(f, test, truth, train) for n, f in fits.items()}
    return found


def guides(seed: int, quick: bool) -> Numbers:
    """Root mean square sds of two guides over those of a long run, and the ratio that the check says."""
    data, _ = bf.datasets.make_gaussian(60, 40, 3, density=0.5, seed=seed)
    long = bf.fit("pmf", data, bf.Gibbs(500, 2000, 4), n_components=3, progress=False)
    settings = {**long.hyper._asdict(), "progress": False}
    wide = long.predict(long.data.probe).sd_mean
    found = {}
    for guide in ("normal", "lowrank"):
        fit = bf.fit("pmf", data, bf.SVI(500 if quick else 6000, guide), **settings)
        own = fit.predict(fit.data.probe).sd_mean
        ratio = float(np.sqrt(np.mean((wide / own) ** 2)) ** -1)
        found[guide] = {"true": ratio, **fit.info["widths"]}
    return found


def shown(found: dict[str, Numbers]) -> list[Numbers]:
    """Rows of the table."""
    rows = []
    for key, value in found.items():
        if key.startswith("guides"):
            continue
        one, sd = value["value"], value["value"]["sd beside the long run"]
        truth = one.get("truth in 90 %", {"quick": {"all": np.nan}, "long": {"all": np.nan}})
        rows.append(
            {
                "data": key,
                "time": f"{one['times the point']:.1f}",
                "sweeps": one["sweeps"],
                "log score: quick, long, point": ", ".join(
                    f"{one[name]['log score']:.4f}" for name in ("quick", "long", "point")
                ),
                "90 % hold: quick, long": ", ".join(
                    f"{one[name]['covers']['0.9']:.3f}" for name in ("quick", "long")
                ),
                "sd (5 to 95 %)": f"{sd['50 %']:.2f} ({sd['5 %']:.2f} to {sd['95 %']:.2f})",
                "truth in 90 %: quick, long": ", ".join(
                    f"{truth[name]['all']:.3f}" for name in ("quick", "long")
                ),
            }
        )
    return rows


def bounds(found: dict[str, Numbers]) -> list[Numbers]:
    """Rows of the table of VB."""
    rows = []
    for key, value in found.items():
        one = value["value"].get("VB")
        if one is None:
            continue
        sd, truth = one["sd beside the long run"], value["value"].get("truth in 90 %", {})
        rows.append(
            {
                "data": key,
                "time of VB": f"{one['times the point']:.1f}",
                "RMSE": f"{one['RMSE']:.4f}",
                "log score": f"{one['log score']:.4f}",
                "90 % hold": f"{one['covers']['0.9']:.3f}",
                "sd (5 to 95 %)": f"{sd['50 %']:.2f} ({sd['5 %']:.2f} to {sd['95 %']:.2f})",
                "truth in 90 %": f"{truth['VB']['all']:.3f}" if truth else "-",
            }
        )
    return rows


def widths(found: dict[str, Numbers]) -> list[Numbers]:
    """Rows of the table of guides."""
    return [
        {"data": key, "guide": guide, "sd over Gibbs'": f"{one['true']:.2f}"}
        | {"the check says": f"{one['ratio']:.2f} (error {one['error']:.2f})"}
        for key, value in found.items()
        if key.startswith("guides")
        for guide, one in value["value"].items()
    ]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="data sets or splits (1)")
    args = parser.parse_args()
    warnings.simplefilter("ignore", bf.ConvergenceWarning)
    where = surroundings()
    cells = Cells(args.out or (None if args.quick else RESULTS / "quick.json"))
    for part in args.parts:
        for seed in range(args.seeds):
            make = guides if part == "guides" else partial(compared, part)
            cells.get(f"{part} {seed}", partial(make, seed, args.quick))
    text = [
        table(rows)
        for rows in (shown(cells.found), bounds(cells.found), widths(cells.found))
        if rows
    ]
    report("quick", args, {"where": where, "results": cells.found}, "\n\n".join(text))


if __name__ == "__main__":
    main()
