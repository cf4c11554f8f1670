"""Multi-label classification: MLC-HMF, GroPLE and the methods beside them, cross-validated, and the print.

`--chapter 5` is Tables 5.9 and 5.10 of Kumar's thesis (Hyderabad 2018; ten folds), `--chapter 6` Table 6.2
(five folds). Dense features are scaled to lie between 0 and 1; every method sees a feature of ones beside
them. The thesis chooses settings by ten-fold cross-validation and does not say of which rows; ours are
chosen in every training fold, on a third of its rows, by micro-F1, from what METHODS lists. A score is a
label above the method's middle; of MLC-HMF, as printed, with the majority of hard votes. Two more lines of it
choose the kind of vote and a threshold of the share of votes, by accuracy and by the Hamming loss, which the
tree itself goes by. GroPLE's labels are above a threshold chosen on those same rows: the thesis is silent
about it, and its figures for corel5k and delicious need one; another line goes without.

Every finished fold is kept in `--folder`, so that a run that was stopped goes on; all that came to an end
together are in `results/multilabel_folds.json`, where the next run finds them. `--page` runs nothing and
writes `multilabel.md` from what is there. Results do not depend on `--jobs`.

`--posterior` sets a point beside 2 x 200 draws of NUTS instead, on a fifth of the rows: log loss, Brier, ECE,
the share of rows whose number of labels a 90 % interval holds (labels independent given their probabilities),
micro-F1 with and without the least certain fifth, macro-F1 of labels that less than a tenth of the rows has.
"""

import json
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import RESULTS, Cells, arguments, report, surroundings, table

import bayesfac as bf
from bayesfac.core.files import atomic
from bayesfac.datasets.fetch import VARIABLE, folders

SETS = {
    5: ("emotions", "genbase", "medical", "cal500", "yahoo_science", "yahoo_education", "rcv1subset2_top944"),
    6: ("genbase", "medical", "cal500", "corel5k", "rcv1subset1_top944", "bibtex", "delicious"),
}  # fmt: skip
FOLDS = {5: 10, 6: 5}
TABLES = {5: "Tables 5.9 and 5.10", 6: "Table 6.2"}
TITLES = {"hamming_loss": "Hamming loss", "accuracy": "accuracy", "micro_f1": "micro-F1"}
MEASURED = [*TITLES, "subset_accuracy", "example_f1", "macro_f1"]
NAMES = {"rcv1subset2_top944": "rcv1(subset2)", "rcv1subset1_top944": "rcv1(subset1)",
         "yahoo_science": "science", "yahoo_education": "education"}  # fmt: skip
METHODS: dict[str, Any] = {
    "MLC-HMF": bf.Tuned(
        ("mlc_hmf", {"threshold": 0.02}, bf.FixedPoint(20, tol=1e-4)),
        {"penalty": [3.0, 10.0], "neighbours": [5, 20]},
    ),
    "MLC-HMF, by accuracy": bf.Tuned(
        ("mlc_hmf", {"threshold": 0.02, "neighbours": 20}, bf.FixedPoint(20, tol=1e-4)),
        {"penalty": [3.0, 10.0], "vote": ["hard", "soft"]},
        by="accuracy",
        threshold=True,
    ),
    "MLC-HMF, by Hamming loss": bf.Tuned(
        ("mlc_hmf", {"threshold": 0.02, "neighbours": 20}, bf.FixedPoint(20, tol=1e-4)),
        {"penalty": [3.0, 10.0], "vote": ["soft"]},
        by="hamming_loss",
        threshold=True,
    ),
    "GroPLE": bf.Tuned(
        ("grople", {"n_components": 100}, bf.FixedPoint(60, tol=1e-5)),
        {"beta": [0.01, 0.1, 1.0, 10.0]},
        threshold=True,
    ),
    "GroPLE, at the middle": bf.Tuned(
        ("grople", {"n_components": 100}, bf.FixedPoint(60, tol=1e-5)),
        {"beta": [0.01, 0.1, 1.0, 10.0]},
    ),
    "CPLST": bf.Tuned("cplst", {"penalty": [0.1, 1.0, 10.0, 100.0]}),
    "FAiE": bf.Tuned(("faie", {}, bf.FixedPoint(100, tol=1e-5)), {"penalty": [0.1, 1.0, 10.0]}),
    "LEML": bf.Tuned(("leml", {}, bf.FixedPoint(100, tol=1e-5)), {"penalty": [0.1, 1.0, 10.0]}),
    "PLST": bf.Tuned("plst", {"ridge": [0.1, 1.0, 10.0, 100.0]}),
    "CSSP": bf.Tuned("cssp", {"ridge": [0.1, 1.0, 10.0, 100.0]}),
    "BSVM": "br_svm",
    "BP-MLL": "bp_mll",
    "ML-kNN": "ml_knn",
    "LIFT": "lift",
    "LLSF": "llsf",
    "LS-ML": "ls_ml",
    "BR-kNN": "br_knn",
    "CC": "chain",
    "CLR": "clr",
    "RAkEL": "rakel",
    "LP": "label_powerset",
    "ML-DT": "ml_dt",
    "AdaBoost.MH": "adaboost_mh",
}
COLUMNS = {
    5: ("BSVM", "BP-MLL", "ML-kNN", "LIFT", "SSJDR-MLL", "LLSF", "MLC-HMF"),
    6: ("GroPLE", "PLST", "CPLST", "CSSP", "FAiE", "LEML", "MLSF", "BSVM"),
}
PRINTED = {  # in the order of COLUMNS
    (5, "hamming_loss"): {
        "cal500": (0.137, 0.140, 0.139, 0.138, 0.138, 0.146, 0.137),
        "emotions": (0.197, 0.209, 0.193, 0.184, 0.195, 0.207, 0.182),
        "genbase": (0.002, 0.008, 0.006, 0.005, 0.003, 0.002, 0.002),
        "medical": (0.011, 0.018, 0.016, 0.012, 0.015, 0.019, 0.011),
        "yahoo_education": (0.037, 0.053, 0.039, 0.038, 0.040, 0.038, 0.038),
        "yahoo_science": (0.030, 0.043, 0.033, 0.031, 0.034, 0.032, 0.032),
        "rcv1subset2_top944": (0.023, 0.026, 0.024, 0.023, 0.023, 0.023, 0.023),
    },
    (5, "accuracy"): {
        "cal500": (0.197, 0.216, 0.196, 0.198, 0.192, 0.228, 0.217),
        "emotions": (0.495, 0.548, 0.538, 0.548, 0.512, 0.511, 0.550),
        "genbase": (0.973, 0.905, 0.923, 0.929, 0.953, 0.981, 0.978),
        "medical": (0.732, 0.629, 0.570, 0.659, 0.620, 0.657, 0.702),
        "yahoo_education": (0.270, 0.327, 0.225, 0.255, 0.158, 0.293, 0.294),
        "yahoo_science": (0.280, 0.311, 0.198, 0.280, 0.136, 0.264, 0.280),
        "rcv1subset2_top944": (0.325, 0.324, 0.188, 0.272, 0.205, 0.281, 0.343),
    },
    (5, "micro_f1"): {
        "cal500": (0.321, 0.347, 0.320, 0.323, 0.311, 0.367, 0.348),
        "emotions": (0.636, 0.670, 0.667, 0.679, 0.655, 0.639, 0.682),
        "genbase": (0.981, 0.917, 0.930, 0.947, 0.966, 0.984, 0.978),
        "medical": (0.804, 0.706, 0.676, 0.758, 0.713, 0.701, 0.775),
        "yahoo_education": (0.377, 0.400, 0.330, 0.362, 0.260, 0.397, 0.400),
        "yahoo_science": (0.376, 0.368, 0.286, 0.377, 0.199, 0.357, 0.370),
        "rcv1subset2_top944": (0.403, 0.419, 0.242, 0.347, 0.268, 0.361, 0.421),
    },
    (6, "accuracy"): {
        "genbase": (0.972, 0.968, 0.971, 0.931, 0.965, 0.971, 0.974, 0.973),
        "medical": (0.769, 0.762, 0.763, 0.735, 0.765, 0.690, 0.779, 0.753),
        "cal500": (0.234, 0.224, 0.224, 0.224, 0.235, 0.222, 0.177, 0.202),
        "corel5k": (0.151, 0.054, 0.054, 0.052, 0.089, 0.053, 0.088, 0.081),
        "rcv1subset1_top944": (0.335, 0.231, 0.232, 0.218, 0.265, 0.223, 0.322, 0.288),
        "bibtex": (0.329, 0.284, 0.288, 0.266, 0.310, 0.288, 0.328, 0.326),
        "delicious": (0.185, 0.109, 0.109, 0.107, 0.134, 0.093, 0.118, 0.130),
    },
    (6, "micro_f1"): {
        "genbase": (0.967, 0.969, 0.972, 0.951, 0.967, 0.973, 0.978, 0.979),
        "medical": (0.821, 0.821, 0.822, 0.806, 0.823, 0.739, 0.822, 0.812),
        "cal500": (0.375, 0.360, 0.361, 0.361, 0.374, 0.359, 0.290, 0.327),
        "corel5k": (0.242, 0.105, 0.105, 0.101, 0.162, 0.103, 0.154, 0.143),
        "rcv1subset1_top944": (0.463, 0.350, 0.351, 0.336, 0.384, 0.344, 0.405, 0.394),
        "bibtex": (0.417, 0.390, 0.396, 0.371, 0.420, 0.396, 0.424, 0.424),
        "delicious": (0.231, 0.194, 0.194, 0.191, 0.241, 0.172, 0.208, 0.226),
    },
}
POSTERIORS: dict[str, tuple[str, dict[str, Any]]] = {
    "MLC-HMF": ("mlc_hmf", {"penalty": 3.0, "vote": "soft"}),
    "LEML": ("leml", {"n_components": 3, "loss": "logistic"}),
}
KEPT = RESULTS / "multilabel_folds.json"
PAGE = Path(__file__).with_suffix(".md")
HEAD = """\
# Multi-label classification, cross-validated, and the print

Figures of `multilabel.py --page`: mean ± sd over the folds, the thesis's printed mean in brackets. An empty
cell has not been run. What is chosen inside the folds, and how, is in the head of the script. The folds are
in [multilabel_folds.json](results/multilabel_folds.json), where the next run finds them.
"""
QUICK = ("MLC-HMF", "LEML", "BSVM", "ML-kNN")


# -- data -----------------------------------------------------------------------------------------
def locate(name: str) -> Path | None:
    places = [folder / f"{name}.npz" for folder in folders()]
    return next((place for place in places if place.is_file()), None)


def load(name: str) -> bf.Tasks:
    """Features between 0 and 1 and a constant, rows without labels left out."""
    if name == "made up":
        data = bf.datasets.make_tasks(60, 1, labelled=1.0, seed=0)[0]
        return bf.Tasks(data["words"], data["labels"], constant=True)
    with np.load(locate(name), allow_pickle=False) as z:
        x, y = (part(z, key) for key in "XY")
    y = y.toarray() if sp.issparse(y) else y
    if not sp.issparse(x):
        width = np.ptp(x, 0)
        x = (x - x.min(0)) / np.where(width > 0, width, 1)
    some = y.any(1)
    return bf.Tasks(x[some], y[some].astype(float), constant=True)


def part(z: Any, key: str) -> Any:
    if key in z.files:
        return z[key].astype(float)
    data, shape = z[f"{key}_data"].astype(float), tuple(z[f"{key}_shape"])
    return sp.csr_matrix((data, z[f"{key}_indices"], z[f"{key}_indptr"]), shape=shape)


# -- folds that are finished ----------------------------------------------------------------------
def unpacked(folder: Path) -> None:
    """Put the folds of earlier runs back, each in its file."""
    folder.mkdir(parents=True, exist_ok=True)
    if KEPT.is_file():
        for name, fold in json.loads(KEPT.read_text(encoding="utf-8")).items():
            if not (folder / name).exists():
                (folder / name).write_text(fold, encoding="utf-8")


def packed(folder: Path) -> None:
    """All finished folds as one file."""
    files = sorted(folder.glob("*.json"))
    found = {path.name: path.read_text(encoding="utf-8") for path in files}
    with atomic(KEPT) as part:
        part.write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")


# -- the tables -----------------------------------------------------------------------------------
def beside_print(found: bf.evaluation.Evaluation, chapter: int, metric: str) -> str:
    """Ours, mean ± sd, the printed mean in brackets; mean ranks where no cell is empty."""
    mean, sd = found.mean(metric), found.sd(metric)
    full = len(found.methods) > 1 and mean.notna().all(axis=None)
    ranks = found.ranks(metric).mean() if full else None
    rows = []
    for name in mean.columns[mean.notna().any()]:
        row = {"": name}
        for data in found.datasets:
            ours, spread = mean.loc[data, name], sd.loc[data, name]
            print_ = printed(chapter, metric, data, name.partition(",")[0])
            row[NAMES.get(data, data)] = (
                f"{short(ours)} ± {short(spread)}{print_}" if np.isfinite(ours) else ""
            )
        rows.append(row | ({"mean rank": f"{ranks[name]:.2f}"} if full else {}))
    return f"{TITLES[metric]}, {found.folds} folds\n\n{table(rows)}"


def printed(chapter: int, metric: str, data: str, name: str) -> str:
    known = PRINTED.get((chapter, metric), {}).get(data)
    if known is None or name not in COLUMNS[chapter]:
        return ""
    return f" ({short(known[COLUMNS[chapter].index(name)])})"


def short(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def page(folder: Path) -> str:
    """All tables, of the folds that are finished."""
    parts = [HEAD]
    for chapter, sets in SETS.items():
        found = bf.evaluate(
            METHODS, {name: load(name) for name in sets}, folds=FOLDS[chapter], metrics=MEASURED,
            folder=folder, finished=True, progress=False,
        )  # fmt: skip
        parts += [
            f"## {TABLES[chapter]}: {beside_print(found, chapter, metric)}\n"
            for metric in TITLES
            if (chapter, metric) in PRINTED
        ]
    return "\n".join(parts)


# -- a point beside a posterior -------------------------------------------------------------------
def beside(
    name: str, label: str, split: int, length: dict[str, int]
) -> dict[str, dict[str, float]]:
    data = load(name)
    hidden = np.random.default_rng(split).random(data.n_rows) < 0.2
    method, settings = POSTERIORS[label]
    train = data.take(np.arange(data.n_rows), ~hidden)
    at = train.rows.get_indexer(data.rows[hidden])
    truth = data["labels"].toarray()[hidden]
    point = bf.fit(method, train, progress=False, **settings)
    draws = bf.fit(
        method, train, bf.NUTS(**length, chains=2), init=point, progress=False, **settings
    )
    found = {}
    for how, fit in (("point", point), ("draws", draws)):
        p = np.clip(fit.predict(train.grid()).mean.reshape(train.n_rows, -1)[at], 0, 1)
        found[how] = told(truth, p)
    return found


def told(Y: np.ndarray, p: np.ndarray) -> dict[str, float]:
    ml, rare = bf.multilabel, Y.mean(0) < 0.1

    def f1(Y: np.ndarray, p: np.ndarray) -> float:
        return ml.micro_f1(Y, p > 0.5)

    many = (np.random.default_rng(0).random((400, *p.shape)) < p).sum(2)
    low, high = np.quantile(many, [0.05, 0.95], axis=0)
    held = (low <= Y.sum(1)) & (Y.sum(1) <= high)
    return {
        "log loss": ml.log_loss(Y, p, clip=1e-3),
        "Brier": ml.brier(Y, p),
        "ECE": ml.expected_calibration_error(Y, p),
        "number held": float(held.mean()),
        "micro-F1": f1(Y, p),
        "of the surest 80 %": ml.abstain(Y, p, 0.2, f1),
        "rare labels": ml.macro_f1(Y[:, rare], p[:, rare] > 0.5) if rare.any() else float("nan"),
    }


def posteriors(cells: Cells, sets: Any, methods: Any, splits: int, quick: bool) -> str:
    length = {"warmup": 10, "draws": 10} if quick else {"warmup": 200, "draws": 200}
    labels, lines = [label for label in POSTERIORS if label in methods], []
    for name in sets:
        for label in labels:
            runs = [
                cells.get(
                    f"{name}, {label}, split {s}", partial(beside, name, label, s, length), **length
                )
                for s in range(splits)
            ]
            for how in ("point", "draws"):
                each = {m: [run[how][m] for run in runs] for m in runs[0][how]}
                line = {m: f"{np.mean(v):.3f} ± {np.std(v):.3f}" for m, v in each.items()}
                lines.append({"": f"{name}, {label}, {how}"} | line)
    return table(lines)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--chapter", type=int, default=5, choices=[5, 6])
    parser.add_argument("--sets", nargs="+", choices=sorted({*SETS[5], *SETS[6]}))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes (1)")
    parser.add_argument("--posterior", action="store_true", help="a point beside draws instead")
    parser.add_argument("--splits", type=int, default=5, metavar="N", help="of --posterior (5)")
    parser.add_argument(
        "--page", action="store_true", help="write multilabel.md of what is finished"
    )
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where finished folds are kept")
    args = parser.parse_args()
    sets, folds = args.sets or SETS[args.chapter], FOLDS[args.chapter]
    if args.posterior:
        sets = args.sets or ("emotions",)
    if args.page:
        sets = {*SETS[5], *SETS[6]}
    if args.quick:
        sets, folds, args.methods = ("made up",), 2, QUICK
    elif absent := [name for name in sets if locate(name) is None]:
        files = ", ".join(f"{name}.npz" for name in absent)
        parser.exit(2, f"Expected {files} in the folder that {VARIABLE} names, got nothing\n")
    warnings.simplefilter("ignore", bf.ConvergenceWarning)  # a budget of iterations, alike for all
    where = surroundings("scikit-learn")
    if args.posterior:
        cells = Cells(args.out or (None if args.quick else RESULTS / "multilabel_posterior.json"))
        text = posteriors(cells, sets, args.methods, 1 if args.quick else args.splits, args.quick)
        report("multilabel_posterior", args, {"where": where, "results": cells.found}, text)
        return
    folder = args.folder or (None if args.quick else RESULTS / "multilabel")
    if folder is not None:
        unpacked(folder)
    if args.page:
        PAGE.write_text(page(folder), encoding="utf-8")
        return
    found = bf.evaluate(
        {name: METHODS[name] for name in args.methods},
        {name: load(name) for name in sets},
        folds=folds, metrics=MEASURED, folder=folder, jobs=args.jobs,
    )  # fmt: skip
    if folder is not None:
        packed(folder)
    text = "\n\n".join(beside_print(found, args.chapter, metric) for metric in TITLES)
    seconds = found.cells.groupby(["dataset", "method"])["seconds"].mean().round(1).unstack()
    means = {metric: found.mean(metric).round(4).to_dict() for metric in MEASURED}
    record = {"where": where, "means": means, "seconds a fold": seconds.to_dict()}
    report(f"multilabel_{args.chapter}", args, record, text + f"\n\nSeconds a fold\n\n{seconds}")


if __name__ == "__main__":
    main()
