"""Quick and VB beside a point and a long Gibbs run: what they cost, and whether intervals are as wide.

made up   ratings of known truth (400 x 300, rank 8, 1 in 10 cells seen): BPMF, K = 8. Besides the rest, how
          often intervals of the expected rating hold the true mean, for cells of rows seen much and little
ratings   MovieLens-100K, random 90/10: BPMF, K = 10
labels    emotions, half of the rows without labels: HERES, 10 components
levels    made-up levels (400 x 300, rank 3): ordinal_mf, K = 3, and in "attitudes" urp with as many
tensor    made-up values of known truth (60 x 50 x 20, rank 3, 1 in 10 cells seen): CP, K = 3
films     MovieLens-100K, random 90/10: ordinal_mf, K = 10 (20 minutes)
million   MovieLens-1M, random 90/10: bpmf, K = 32 (shorter long run)
features  MovieLens-100K with features, a tenth of the films without ratings in training: bpmf, K = 10
documents Reuters (395 documents), a tenth of all words held out: plsa, 20 topics. The log score is that of a
          held-out word; sds are those of the probabilities of words
table     MovieLens-1M, bpmf, K = 32: seconds by the clock of a new process, from its start to a table of
          100,000 cells with mean, sd and 90 % interval, compilation included
margins   made-up levels (30 x 20): mmmf, Laplace by blocks and the mean-field guide beside NUTS
guides    PMF on made-up ratings (60 x 40, rank 3): sds of SVI at the probe cells over those of Gibbs, beside
          what the check of widths says when the guide is fitted

Time is CPU seconds of a second fit in the same process (so nothing is compiled), over those of the point's
second fit. Standard deviations are of expected outcomes, cell by cell, over those of the long run.
"""

import subprocess
import sys
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import RESULTS, Cells, arguments, report, surroundings, table
from features import loaded
from scipy.stats import norm

import bayesfac as bf
from bayesfac.datasets.fetch import folders

PARTS = (
    "made up", "ratings", "labels", "levels", "attitudes", "tensor", "films", "million", "features",
    "documents", "table", "margins", "guides",
)  # fmt: skip
LEVELS = (0.5, 0.8, 0.9, 0.95)
TABLE = """
import bayesfac as bf

train, test = bf.split.holdout(bf.datasets.load("{data}"), 0.1, seed={seed})
fit = bf.fit("bpmf", train, {engine}, n_components={K}, progress=False)
print(len(fit.predict(test).frame()), getattr(fit.engine, "sweeps", 0))
"""
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
    if part in ("ratings", "films", "million"):
        name = "ratings" if quick else "movielens-1m" if part == "million" else "movielens-100k"
        train, test = bf.split.holdout(bf.datasets.load(name), 0.1, seed=seed)
        method, K = "ordinal_mf" if part == "films" else "bpmf", 32 if part == "million" else 10
        return method, {"n_components": 3 if quick else K}, train, test, None
    if part == "features":
        data = loaded("movielens-100k", quick, features=True)
        rng = np.random.default_rng(seed)
        new = np.isin(data.item, rng.permutation(data.n_items)[: data.n_items // 10])
        train, test = data.take(np.flatnonzero(~new)), data.take(np.flatnonzero(new))
        return "bpmf", {"n_components": 3 if quick else 10}, train, test, None
    if part == "documents":
        if quick:
            counts = np.random.default_rng(seed).poisson(0.5, (40, 30))
            data = bf.Views({"words": sp.csr_matrix(counts)})
        else:
            data = bf.Views({"words": sparse_array("reuters_lda.npz", "X")})
        return (
            "plsa",
            {"n_components": 3 if quick else 20},
            *bf.split.holdout(data, 0.1, seed=seed),
            None,
        )
    if part in ("levels", "attitudes"):
        train, test, truth = levelled(
            (40, 30) if quick else (400, 300), 0.3 if quick else 0.1, seed
        )
        flat = {"pull": 0.0, "eta": 1.3, "alpha": 2.0}  # a prior without preferences
        method, own = ("ordinal_mf", {}) if part == "levels" else ("urp", flat)
        return method, {"n_components": 3, **own}, train, test, truth
    if part == "tensor":
        shape, density = ((15, 12, 6), 0.3) if quick else ((60, 50, 20), 0.1)
        data, _ = bf.datasets.make_tensor(shape, 3, density=density, seed=seed)
        train, test = bf.split.holdout(data, 0.2, seed=seed)
        return "cp", {"n_components": 3}, train, test, None
    if quick:
        data, _ = bf.datasets.make_tasks(60, 1, labelled=1.0, seed=seed)
    else:
        with np.load(found_file("emotions.npz"), allow_pickle=False) as z:
            data = bf.Tasks({"music": z["X"].astype(float)}, z["Y"].astype(float))
    train, test = bf.split.holdout(data, 0.5, seed=seed)
    given = {"n_components": 4 if quick else 10, "sparsity": 0.0625}
    return "heres", given, train, test, None


def found_file(name: str) -> Path:
    """A file of the folders of data."""
    (path,) = [p for folder in folders() if (p := folder / name).is_file()][:1]
    return path


def sparse_array(name: str, key: str) -> sp.csr_matrix:
    """A sparse matrix of such a file."""
    with np.load(found_file(name), allow_pickle=False) as z:
        parts = z[f"{key}_data"].astype(float), z[f"{key}_indices"], z[f"{key}_indptr"]
        return sp.csr_matrix(parts, shape=tuple(z[f"{key}_shape"]))


def levelled(shape: tuple[int, int], density: float, seed: int) -> tuple[Any, Any, np.ndarray]:
    """Products of rank 3 with normal noise, cut into five levels; and the true mean level of test cells."""
    data, truth = bf.datasets.make_gaussian(*shape, 3, density=density, seed=seed)
    cuts = np.quantile(data.value, [0.1, 0.3, 0.6, 0.85])
    level = 1.0 + np.searchsorted(cuts, data.value)
    whole = bf.Ratings(data.users[data.user], data.items[data.item], level, levels=5)
    train, test = bf.split.holdout(whole, 0.2, seed=seed)
    users = truth.U[np.asarray(test.users)[test.user]]
    items = truth.V[np.asarray(test.items)[test.item]]
    x = np.sum(users * items, 1)[:, None]
    return train, test, 1 + norm.cdf((x - cuts) / truth.noise).sum(1)


def timed(method: str, data: Any, engine: Any, settings: Numbers) -> tuple[bf.Fit, float]:
    """The second of two equal fits, and its CPU seconds."""
    for _ in range(2):
        begun = time.process_time()
        fit = bf.fit(method, data, engine, progress=False, **settings)
        seconds = time.process_time() - begun
    return fit, seconds


def held_out(fit: bf.Fit, test: Any) -> Numbers:
    """Scores of held-out cells; of views those of held-out words."""
    if isinstance(test, bf.Views):
        counts = sp.coo_matrix(test[test.names[0]])
        each = np.log(fit.predict(cells_of(test)).mean)
        return {"log score": float(np.average(each, weights=counts.data))}
    scores = bf.compare({"": fit}, test).scores[""]
    loss = "RMSE" if "RMSE" in scores.losses else next(iter(scores.losses))
    found = {loss: float(np.average(scores.losses[loss], weights=scores.weights))}
    if loss == "RMSE":
        found[loss] **= 0.5
    found["log score"] = float(np.mean(scores.log_score))
    found["covers"] = {str(level): float(scores.inside(level).mean()) for level in LEVELS}
    return found


def cells_of(test: Any) -> Any:
    """The cells to predict."""
    if not isinstance(test, bf.Views):
        return test
    counts = sp.coo_matrix(test[test.names[0]])
    views = np.repeat(test.names[0], counts.nnz)
    return {"row": counts.row, "view": views, "feature": counts.col}


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
    long_enough = {"labels": (500, 500), "million": (300, 500)}
    length = (50, 100) if quick else long_enough.get(part, (500, 2000))
    long = bf.fit(method, train, bf.Gibbs(*length, 2, thin=2), progress=False, **settings)

    def beside(fit: bf.Fit) -> Numbers:
        ratio = fit.predict(cells_of(test)).sd_mean / long.predict(cells_of(test)).sd_mean
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


def new_process(seed: int, quick: bool) -> Numbers:
    """Seconds by the clock to a table with intervals, and sweeps of Quick."""
    known = {"data": "ratings" if quick else "movielens-1m", "K": 3 if quick else 32, "seed": seed}
    found = {}
    for engine in ("bf.Quick()", "bf.Quick(sweeps=40)", "bf.Gibbs()"):
        begun = time.perf_counter()
        run = [sys.executable, "-c", TABLE.format(engine=engine, **known)]
        told = subprocess.run(run, capture_output=True, check=True, text=True).stdout.split()
        seconds = time.perf_counter() - begun
        found[engine] = {"seconds": seconds, "cells": int(told[0]), "sweeps": int(told[1])}
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


def margins(seed: int, quick: bool) -> Numbers:
    """mmmf with Laplace by blocks and with mean field, beside NUTS: sds of test cells, scores, time."""
    train, test, _ = levelled((15, 10) if quick else (30, 20), 0.5, seed)
    settings = {"n_components": 2, "penalty": 1.0, "progress": False}
    draws = 50 if quick else 500
    long = bf.fit("mmmf", train, bf.NUTS(draws, draws, 2), **settings)
    _, price = timed("mmmf", train, None, {k: v for k, v in settings.items() if k != "progress"})
    found = {"NUTS": held_out(long, test)}
    for guide in ("blocks", "normal"):
        engine = bf.SVI(1000 if quick else 10_000, guide, check=False)
        fit, cost = timed("mmmf", train, engine, {"n_components": 2, "penalty": 1.0})
        ratio = fit.predict(test).sd_mean / long.predict(test).sd_mean
        wide = dict(
            zip(("5 %", "50 %", "95 %"), np.quantile(ratio, [0.05, 0.5, 0.95]), strict=True)
        )
        found[guide] = held_out(fit, test) | {"times the point": cost / price}
        found[guide]["sd beside the long run"] = {k: float(v) for k, v in wide.items()}
    return found


def coverage(one: Numbers) -> str:
    return f"{one['covers']['0.9']:.3f}" if "covers" in one else "-"


def shown(found: dict[str, Numbers]) -> list[Numbers]:
    """Rows of the table."""
    rows = []
    for key, value in found.items():
        if "quick" not in value["value"]:
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
                    coverage(one[name]) for name in ("quick", "long")
                ),
                "sd (5 to 95 %)": f"{sd['50 %']:.2f} ({sd['5 %']:.2f} to {sd['95 %']:.2f})",
                "truth in 90 %: quick, long": ", ".join(
                    f"{truth[name]['all']:.3f}" for name in ("quick", "long")
                ),
            }
        )
    return rows


def bounds(found: dict[str, Numbers]) -> list[Numbers]:
    """Rows of the table of VB, and of Laplace by blocks for margins."""
    rows = []
    for key, value in found.items():
        one = value["value"].get("VB") or value["value"].get("blocks")
        if one is None:
            continue
        long = value["value"]["long" if "long" in value["value"] else "NUTS"]
        sd, truth = one["sd beside the long run"], value["value"].get("truth in 90 %", {})
        rows.append(
            {
                "data": key,
                "time of VB": f"{one['times the point']:.1f}",
                "log score": f"{one['log score']:.4f}",
                "of Gibbs or NUTS": f"{long['log score']:.4f}",
                "90 % hold": coverage(one),
                "sd (5 to 95 %)": f"{sd['50 %']:.2f} ({sd['5 %']:.2f} to {sd['95 %']:.2f})",
                "truth in 90 %": f"{truth['VB']['all']:.3f}" if truth else "-",
            }
        )
    return rows


def tables(found: dict[str, Numbers]) -> list[Numbers]:
    """Rows of the table of seconds to a table."""
    return [
        {"data": key, "engine": engine, "sweeps": one["sweeps"], "seconds": f"{one['seconds']:.0f}"}
        for key, value in found.items()
        if key.startswith("table")
        for engine, one in value["value"].items()
    ]


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
            own = {"guides": guides, "margins": margins, "table": new_process}
            make = own.get(part) or partial(compared, part)
            cells.get(f"{part} {seed}", partial(make, seed, args.quick))
    text = [
        table(rows)
        for rows in (each(cells.found) for each in (shown, bounds, tables, widths))
        if rows
    ]
    report("quick", args, {"where": where, "results": cells.found}, "\n\n".join(text))


if __name__ == "__main__":
    main()
