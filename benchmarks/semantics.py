"""LSA-MML on real views: beside one view, all in one and its own parts switched off; a point and a posterior.

Zhang et al. 2018 print no experiment that we have, so this is ours: emotions (rhythm 8, timbre 64), birds
(sound, segments with the place) and yahoo_science (743 terms, P(topic | document) of a PLSA with 20 topics).
Dense views lie between 0 and 1. Half of the rows, at random, have labels; the other half is predicted.

LSA-MML        all views, weights from their noise (`noise`)
no alignment   gamma = 0
labels last    beta -> 0: labels have no say in P, W is fitted afterwards
concatenated   one view of all features
only NAME      one view
ML-kNN         one view of all features
shares         no feature: every row gets the share of each label among rows with labels

Each line has one grid. In every split a third of the labelled rows is held out; the settings with the best
micro-F1 there are fitted again with all labelled rows. No row that a split tests has a part in its choice,
neither by labels nor by features (but for PLSA's topics and the scaling of dense columns, which need no
labels). "threshold": one threshold for all scores of a line is chosen together with the settings; "own rule":
.5. LSA-MML stops after 100 sweeps or when its objective has settled to 1e-5; ML-kNN has a closed form.
`--posterior` sets HERES' point beside Gibbs draws of the same model instead: are the probabilities of labels
true, and is F1 better where the least certain fifth of the rows is left out?
"""

import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import RESULTS, Cells, arguments, report, surroundings, table
from common.nested import mean_of, nested

import bayesfac as bf
from bayesfac.datasets.fetch import VARIABLE, folders

SETS = ("emotions", "birds", "yahoo_science")
GRID: dict[str, list[Any]] = {"n_components": [10, 30], "weight": [1.0, 10.0, 100.0]}
ALIGNMENT = [1.0, 10_000.0]
NEIGHBOURS = [5, 10, 20, 40]
HERES = {
    "n_components": 20,
    "weight": 1.0,
    "sparsity": 1.0,
    "beta": 1.0,
    "scaled": False,
    "cut": 0.5,
}
LENGTH = {"warmup": 200, "draws": 200}
MEASURES = {
    "Hamming": bf.multilabel.hamming_loss,
    "micro-F1": bf.multilabel.micro_f1,
    "F1": bf.multilabel.example_f1,
}
Numbers = dict[str, Any]
Views = dict[str, Any]


# -- data -----------------------------------------------------------------------------------------
@cache
def load(name: str) -> tuple[Views, np.ndarray]:
    """Views and labels."""
    if name == "made up":
        data = bf.datasets.make_tasks(60, 1, labelled=1.0, seed=0)[0]
        return {v: data[v].toarray() for v in data.names}, data["labels"].toarray()
    place = next(
        folder / f"{name}.npz" for folder in folders() if (folder / f"{name}.npz").is_file()
    )
    with np.load(place, allow_pickle=False) as z:
        y = z["Y"].astype(float)
        if name == "yahoo_science":
            parts = (z["X_data"].astype(float), z["X_indices"], z["X_indptr"])
            return with_topics(sp.csr_matrix(parts, shape=tuple(z["X_shape"]))), y
        x = z["X"].astype(float)
        if name == "emotions":
            view = z["view_of_feature"]
            return {"rhythm": unit(x[:, view == 0]), "timbre": unit(x[:, view == 1])}, y
        sound = np.char.startswith(z["feature_names"], "audio")
        place_of = np.eye(12)[x[:, 259].astype(int)]
        sound[259], rest = False, ~sound
        rest[259] = False
        return {"sound": unit(x[:, sound]), "segments": np.hstack([unit(x[:, rest]), place_of])}, y


def unit(x: np.ndarray) -> np.ndarray:
    """Every column from 0 to 1."""
    width = np.ptp(x, 0)
    return (x - x.min(0)) / np.where(width > 0, width, 1)


def with_topics(x: sp.csr_matrix) -> Views:
    """Terms, and topics of them."""
    engine = bf.FixedPoint(200, tol=0.0, every=50)
    plsa = bf.fit("plsa", bf.Views({"terms": x}), engine, n_components=20, progress=False)
    return {"terms": x, "topics": sp.csr_matrix(np.asarray(plsa.params.A, float))}


def halves(n: int, split: int) -> np.ndarray:
    return np.random.default_rng(split).permutation(n) < n // 2


# -- LSA-MML and methods beside it ----------------------------------------------------------------
def grid_of(line: str) -> dict[str, list[Any]]:
    if line == "shares":
        return {}
    if line == "ML-kNN":
        return {"k": NEIGHBOURS}
    if line == "LSA-MML":
        return {**GRID, "alignment": ALIGNMENT}
    if line == "labels last":
        return {**GRID, "weight": [1e-6], "alignment": ALIGNMENT}
    return {**GRID, "alignment": [0.0]}


def scores(
    line: str, views: Views, y: np.ndarray, known: np.ndarray, settings: Numbers
) -> np.ndarray:
    """Scores of all rows that are not `known`; the labels of those are not looked at."""
    if line == "shares":
        return np.tile(y[known].mean(0), ((~known).sum(), 1))
    if line == "ML-kNN":
        whole = sp.hstack([sp.csr_matrix(x) for x in views.values()]).tocsr()
        return bf.comparators.ml_knn(whole[known], y[known], whole[~known], **settings)
    if line.startswith("only "):
        views = {line[5:]: views[line[5:]]}
    data = bf.Tasks(views, np.where(known[:, None], y, np.nan))
    data = data.concatenated() if line == "concatenated" else data
    ridge = 1e-2 * settings["weight"] if line == "labels last" else 1e-2  # W is shrunk alike
    engine = bf.FixedPoint(100, tol=1e-5, every=10)
    raw = {"scaled": False, "cut": 0.5, "progress": False}
    fit = bf.fit("lsa_mml", data, engine, noise=True, ridge=ridge, **raw, **settings)
    score = fit.predict(data.grid()).mean.reshape(data.n_rows, -1)
    return score[data.rows.get_indexer(np.flatnonzero(~known))]


def judge(name: str, line: str, grid: Numbers, split: int) -> Numbers:
    """One split: choose on its labelled rows, measure on the others."""
    views, y = load(name)
    known = halves(len(y), split)
    half, own = {v: x[known] for v, x in views.items()}, y[known]
    held = np.random.default_rng(99).permutation(len(own)) < len(own) // 3
    inner = own[held], partial(scores, line, half, own, ~held)
    outer = y[~known], partial(scores, line, views, y, known)
    return nested(grid, inner, outer, lambda p: p > 0.5, MEASURES["micro-F1"], MEASURES)


def results(cells: Cells, name: str, args: Any) -> str:
    lines = ["LSA-MML", "no alignment", "labels last", "concatenated"]
    lines += [*(f"only {view}" for view in load(name)[0]), "ML-kNN", "shares"]
    rows = []
    for line in lines:
        grid = grid_of(line)
        runs = [
            cells.get(
                f"{name}, {line}, split {s}",
                partial(judge, name, line, grid, s),
                told=lambda found: f"micro-F1 {found['threshold']['micro-F1']}",
                grid=grid,
            )
            for s in range(args.splits)
        ]
        row = {"": line, "micro-F1, own rule": mean_of([r["own rule"]["micro-F1"] for r in runs])}
        rows.append(row | {m: mean_of([run["threshold"][m] for run in runs]) for m in MEASURES})
    return f"{name}, {args.splits} splits\n\n" + table(rows)


# -- a point beside a posterior -------------------------------------------------------------------
def beside(name: str, split: int, length: Numbers) -> dict[str, Numbers]:
    """HERES on standardised views with a constant one, for it has no intercept."""
    views, y = load(name)
    known = halves(len(y), split)
    views = {v: standard(x) for v, x in views.items()} | {"one": np.full((len(y), 1), 3.0)}
    data = bf.Tasks(views, np.where(known[:, None], y, np.nan))
    point = bf.fit("heres", data, bf.FixedPoint(300, tol=1e-4), progress=False, **HERES)
    gibbs = bf.Gibbs(**length, chains=2)
    draws = bf.fit("heres", data, gibbs, init=point, progress=False, **HERES)
    found, at = {}, data.rows.get_indexer(np.flatnonzero(~known))
    for how, fit in (("point", point), ("posterior", draws)):
        p = np.clip(fit.predict(data.grid()).mean.reshape(len(y), -1)[at], 0, 1)
        found[how] = told(y[~known], p)
    return found


def standard(x: Any) -> np.ndarray:
    x = x.toarray() if sp.issparse(x) else x
    width = x.std(0)
    return (x - x.mean(0)) / np.where(width > 0, width, 1)


def told(y: np.ndarray, p: np.ndarray) -> Numbers:
    def f1(Y: np.ndarray, p: np.ndarray) -> float:
        return bf.multilabel.micro_f1(Y, p > 0.5)

    m: dict[str, Callable[..., float]] = {
        "Brier": bf.multilabel.brier,
        "ECE": bf.multilabel.expected_calibration_error,
        "micro-F1": f1,
        "micro-F1 of the surest 80 %": lambda Y, p: bf.multilabel.abstain(Y, p, 0.2, f1),
    }
    return {name: round(float(measure(y, p)), 4) for name, measure in m.items()}


def posteriors(cells: Cells, name: str, args: Any) -> str:
    length = {"warmup": 10, "draws": 10} if args.quick else LENGTH
    runs = [
        cells.get(f"{name}, posterior, split {s}", partial(beside, name, s, length), **length)
        for s in range(args.splits)
    ]
    lines = []
    for how in ("point", "posterior"):
        measured = {m: mean_of([run[how][m] for run in runs]) for m in runs[0][how]}
        lines.append({"": how} | measured)
    return f"{name}, HERES, {args.splits} splits\n\n" + table(lines)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--splits", type=int, default=5, metavar="N", help="random halves (5)")
    parser.add_argument(
        "--weights", type=float, nargs="+", default=GRID["weight"], help="of labels, to choose from"
    )
    parser.add_argument(
        "--posterior", action="store_true", help="a point beside a posterior instead"
    )
    args = parser.parse_args()
    GRID["weight"] = args.weights
    if args.quick:
        args.sets, args.splits = ["made up"], 1
        GRID.update({key: values[:1] for key, values in GRID.items()})
        ALIGNMENT[1:], NEIGHBOURS[1:] = [], []
    elif absent := [n for n in args.sets if not any((f / f"{n}.npz").is_file() for f in folders())]:
        files = ", ".join(f"{n}.npz" for n in absent)
        parser.exit(2, f"Expected {files} in the folder that {VARIABLE} names, got nothing\n")
    warnings.simplefilter("ignore", bf.ConvergenceWarning)  # a budget of iterations, alike for all
    where = surroundings()
    cells = Cells(args.out or (None if args.quick else RESULTS / "semantics.json"))
    make = posteriors if args.posterior else results
    text = "\n\n".join(make(cells, name, args) for name in args.sets)
    settings = {k: v for k, v in vars(args).items() if k not in ("out", "quick")}
    report("semantics", args, {"where": where, "settings": settings, "results": cells.found}, text)


if __name__ == "__main__":
    main()
