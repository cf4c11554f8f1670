"""LSA-MML on real views: beside one view, all in one and its own parts switched off; a point and a posterior.

Zhang et al. 2018 print no experiment that we have, so this is ours: emotions (rhythm 8, timbre 64), birds
(sound, segments with the place) and yahoo_science (743 terms, P(topic | document) of a PLSA with 20 topics).
Dense views lie between 0 and 1. Half of the rows, at random, have labels; the other half is predicted.

LSA-MML        all views, weights from their noise (`noise`)
no alignment   gamma = 0
labels last    beta -> 0: labels have no say in P, W is fitted afterwards
concatenated   one view of all features
only NAME      one view

Every line takes the best of its own grid by micro-F1 on rows held out of the labelled half of split 0.
`--posterior` sets HERES' point beside Gibbs draws of the same model instead: are the probabilities of labels
true, and is F1 better where the least certain fifth of the rows is left out?
"""

import itertools
import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import RESULTS, Cells, arguments, report, surroundings, table

import bayesfac as bf
from bayesfac.datasets.fetch import VARIABLE, folders

SETS = ("emotions", "birds", "yahoo_science")
GRID = {"n_components": (10, 30), "weight": (1.0, 10.0, 100.0)}
ALIGNMENT = (1.0, 100.0, 10_000.0)
HERES = {"n_components": 20, "weight": 1.0, "sparsity": 1.0, "beta": 1.0}
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


def shaped(name: str, variant: str, known: np.ndarray) -> bf.Tasks:
    """What a variant sees, with the labels of `known` rows."""
    views, y = load(name)
    if variant.startswith("only "):
        views = {variant[5:]: views[variant[5:]]}
    data = bf.Tasks(views, np.where(known[:, None], y, np.nan))
    return data.concatenated() if variant == "concatenated" else data


# -- LSA-MML --------------------------------------------------------------------------------------
def grid_of(variant: str) -> dict[str, tuple]:
    if variant == "LSA-MML":
        return {**GRID, "alignment": ALIGNMENT}
    several = {"weight": (1e-6,)} if variant == "labels last" else {}
    return {**GRID, **several, "alignment": (1.0,) if variant == "labels last" else (0.0,)}


def probability(name: str, variant: str, known: np.ndarray, given: Numbers) -> np.ndarray:
    data = shaped(name, variant, known)
    ridge = 1e-2 * given["weight"] if variant == "labels last" else 1e-2  # W is shrunk alike
    engine = bf.FixedPoint(200, tol=1e-5, every=10)
    fit = bf.fit("lsa_mml", data, engine, progress=False, noise=True, ridge=ridge, **given)
    score = fit.predict(data.grid()).mean.reshape(data.n_rows, -1)
    return score[data.rows.get_indexer(np.arange(data.n_rows))]


def choose(name: str, variant: str) -> Numbers:
    """The best of the grid on a third of the labelled rows of split 0."""
    y, grid = load(name)[1], grid_of(variant)
    known = halves(len(y), 0)
    held = known & (np.random.default_rng(99).random(len(y)) < 1 / 3)
    best: tuple[float, Numbers] = (-1.0, {})
    for values in itertools.product(*grid.values()):
        tried = dict(zip(grid, values, strict=True))
        found = probability(name, variant, known & ~held, tried)[held] > 0.5
        best = max(best, (MEASURES["micro-F1"](y[held], found), tried), key=lambda pair: pair[0])
    return best[1]


def judge(name: str, variant: str, split: int, given: Numbers) -> Numbers:
    y = load(name)[1]
    known = halves(len(y), split)
    if variant == "ML-kNN":
        whole = sp.hstack([sp.csr_matrix(x) for x in load(name)[0].values()]).tocsr()
        found = bf.comparators.ml_knn(whole[known], y[known], whole[~known]) > 0.5
    else:
        found = probability(name, variant, known, given)[~known] > 0.5
    return {m: round(float(f(y[~known], found)), 4) for m, f in MEASURES.items()}


def results(cells: Cells, name: str, args: Any) -> str:
    views = list(load(name)[0])
    variants = ["LSA-MML", "no alignment", "labels last", "concatenated"]
    lines = []
    for variant in [*variants, *(f"only {view}" for view in views), "ML-kNN"]:
        own: Numbers = {}
        if variant != "ML-kNN":
            make = partial(choose, name, variant)
            own = cells.get(f"{name}, {variant}, settings", make, grid=str(grid_of(variant)))
        runs = [
            cells.get(f"{name}, {variant}, split {s}", partial(judge, name, variant, s, own), **own)
            for s in range(args.splits)
        ]
        told = ", ".join(f"{key} {value:g}" for key, value in own.items())
        lines.append({"": variant} | mean_of(runs) | {"settings": told})
    return f"{name}, {args.splits} splits\n\n" + table(lines)


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
    lines = [{"": how} | mean_of([run[how] for run in runs]) for how in ("point", "posterior")]
    return f"{name}, HERES, {args.splits} splits\n\n" + table(lines)


def mean_of(runs: list[Numbers]) -> Numbers:
    found = {name: [run[name] for run in runs] for name in runs[0]}
    return {k: f"{np.mean(v):.3f} ± {np.std(v, ddof=len(v) > 1):.3f}" for k, v in found.items()}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--splits", type=int, default=5, metavar="N", help="random halves (5)")
    parser.add_argument(
        "--posterior", action="store_true", help="a point beside a posterior instead"
    )
    args = parser.parse_args()
    if args.quick:
        args.sets, args.splits = ["made up"], 1
        GRID.update({key: values[:1] for key, values in GRID.items()})
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
