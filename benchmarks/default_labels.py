"""Methods that predict labels, with nothing set: five folds, beside what a user would try first.

Every method of one view or several runs as `bf.fit(NAME, data)`, on the features as they come. New
rows are added to the fit (`fold_in`); a method that cannot do so sees their features without labels.
Labels are those above the cut that the fit chose from its training rows. Beside them:

frequency   every row gets the labels' frequencies as scores; the cut with the best micro-F1 of the
            training rows
logistic    scikit-learn's LogisticRegression, one for each label, with its defaults, on scaled features

`--views` divides the features into two views for the methods that take several. Every finished fold is kept
in `results/default_labels_folds.json`, so that a run that was stopped goes on; `--first N` runs the first N
folds only, `--only NAME,...` some methods, `--data NAME,...` some data sets.
"""

import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import RESULTS, Cells, arguments, report, surroundings, table
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import ConvergenceWarning as NotConverged
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bayesfac as bf
from bayesfac.core.laws.decisions import best_cut
from bayesfac.core.method import REGISTRY
from bayesfac.datasets.fetch import VARIABLE, folders
from bayesfac.labels import multilabel

SETS = ("emotions", "birds", "medical", "yahoo_science", "genbase")
FOLDS = 5
SEVERAL = ("heres", "himls", "himlsd", "lsa_mml")  # methods that take several views
BASELINES = ("frequency", "logistic")
FIRST_VIEW = {
    "emotions": 8
}  # features of the first view, as the source says; otherwise half of them
MEASURES = ("micro_f1", "macro_f1", "hamming_loss")


def load(name: str) -> tuple[sp.csr_matrix, np.ndarray]:
    """Features as they come, and labels."""
    if name == "made up":
        data = bf.datasets.make_tasks(60, 1, labelled=1.0, seed=0)[0]
        return data["words"], data["labels"].toarray()
    (path,) = [p for folder in folders() if (p := folder / f"{name}.npz").is_file()][:1]
    with np.load(path, allow_pickle=False) as z:
        x, y = (_part(z, key) for key in "XY")
    return sp.csr_matrix(x), y.toarray() if sp.issparse(y) else y


def _part(z: Any, key: str) -> Any:
    if key in z.files:
        return z[key].astype(float)
    data, shape = z[f"{key}_data"].astype(float), tuple(z[f"{key}_shape"])
    return sp.csr_matrix((data, z[f"{key}_indices"], z[f"{key}_indptr"]), shape=shape)


def folds_of(n: int) -> np.ndarray:
    return np.random.default_rng(0).permutation(np.arange(n) % FOLDS)


def one_fold(name: str, source: str, number: int, views: int) -> dict[str, Any]:
    """Measures of one fold, what the fit says of itself, and seconds of the processor."""
    x, y = load(source)
    test = folds_of(len(y)) == number
    begun = time.process_time()
    if name in BASELINES:
        predicted, told = baseline(name, x[~test], y[~test], x[test]), {}
    else:
        predicted, told = by_default(name, source, x, y, test, views)
    scores = {m: getattr(multilabel, m)(y[test], predicted, **empty(m)) for m in MEASURES}
    return {**scores, **told, "seconds": time.process_time() - begun}


def empty(measure: str) -> dict[str, float]:
    """A label that is neither true nor predicted scores 0, as in scikit-learn."""
    return {} if measure == "hamming_loss" else {"empty": 0.0}


def baseline(name: str, x: sp.csr_matrix, y: np.ndarray, new: sp.csr_matrix) -> np.ndarray:
    if name == "frequency":
        score = np.tile(y.mean(0), (len(y), 1))
        return np.tile(score[:1] > best_cut(y, score), (new.shape[0], 1)).astype(int)
    model = make_pipeline(StandardScaler(with_mean=False), LogisticRegression())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConverged)
        warnings.filterwarnings("ignore", "Label .* is present in all")
        several = [len(np.unique(column)) > 1 for column in y.T]
        rest = DummyClassifier().fit(x, y[:, ~np.array(several)]) if not all(several) else None
        known = OneVsRestClassifier(model).fit(x, y[:, several].astype(int)).predict(new)
    answer = np.zeros((new.shape[0], y.shape[1]), int)
    answer[:, several] = known.reshape(len(known), -1)  # with a single label it is a vector
    if rest is not None:
        answer[:, ~np.array(several)] = np.reshape(rest.predict(new), (new.shape[0], -1))
    return answer


def by_default(
    name: str, source: str, x: sp.csr_matrix, y: np.ndarray, test: np.ndarray, views: int
) -> tuple[np.ndarray, dict[str, Any]]:
    """The labels of the test rows by `bf.fit(name, data)`, and how the fit ended."""
    width = FIRST_VIEW.get(source, x.shape[1] // 2)

    def tasks(at: np.ndarray, labels: Any) -> bf.Tasks:
        own = {"x": x[at]} if views == 1 else {"a": x[at, :width], "b": x[at, width:]}
        return bf.Tasks(own, labels)

    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always", bf.ConvergenceWarning)
        if REGISTRY[name].fold_in is None:
            hidden = np.where(test[:, None], np.nan, y)
            fit = bf.fit(name, tasks(np.ones(len(y), bool), hidden), progress=False)
            asked, rows = fit, np.flatnonzero(test)
        else:
            fit = bf.fit(name, tasks(~test, y[~test]), progress=False)
            asked, rows = fit.fold_in(tasks(test, None)), np.arange(test.sum())
    L = y.shape[1]
    query = {"row": np.repeat(rows, L), "label": np.tile(np.arange(L), len(rows))}
    told = {
        "converged": bool(fit.converged),
        "sweeps": len(fit.trace) - 1,
        "cut": fit.cut,
        "warnings": len(heard),
        "chosen": list(fit.notes),
    }
    return asked.predict(query).level.reshape(len(rows), L).astype(int), told


def names() -> list[str]:
    """Every method of labels."""
    return sorted(name for name, method in REGISTRY.items() if method.data is bf.Tasks)


def rows_of(found: dict[tuple[str, str, int], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    rows = []
    for (source, name, views), parts in found.items():
        row = {"data": source, "method": name + (", two views" if views == 2 else "")}
        for m in MEASURES:
            row[m] = f"{np.mean([part[m] for part in parts]):.3f}"
        row |= {"sweeps": "", "converged": ""}
        if "sweeps" in parts[0]:
            row["sweeps"] = f"{np.mean([part['sweeps'] for part in parts]):.0f}"
            row["converged"] = f"{sum(part['converged'] for part in parts)} of {len(parts)}"
        row["CPU s"] = f"{np.mean([part['seconds'] for part in parts]):.0f}"
        rows.append({**row, "folds": str(len(parts))})
    return rows


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--first", type=int, default=FOLDS, metavar="N", help="folds to run (5)")
    parser.add_argument("--only", metavar="NAMES", help="methods and baselines, with commas")
    parser.add_argument("--data", metavar="NAMES", help="data sets, with commas")
    parser.add_argument("--views", action="store_true", help="two views")
    args = parser.parse_args()
    bf.methods()  # registers every method
    sources = args.data.split(",") if args.data else SETS
    wanted = args.only.split(",") if args.only else [*BASELINES, *names()]
    if args.quick:
        sources, wanted, args.first = (
            ("made up",),
            wanted if args.only else ["frequency", "lsml"],
            1,
        )
    here = [
        s for s in sources if s == "made up" or any((f / f"{s}.npz").is_file() for f in folders())
    ]
    if absent := [s for s in sources if s not in here]:
        print(f"Not found, and left out: {', '.join(absent)}; set {VARIABLE} to their folder")
    kept = None if args.quick else Path(RESULTS / "default_labels_folds.json")
    cells, where, found = Cells(kept), surroundings("scikit-learn"), {}
    views = 2 if args.views else 1
    for source in here:
        for name in (n for n in wanted if views == 1 or n in SEVERAL):
            for number in range(args.first):
                make = partial(one_fold, name, source, number, views)
                part = cells.get(
                    f"{source}, {name}, {views} view, fold {number}", make,
                    told=lambda v: f"micro-F1 {v['micro_f1']:.3f}",
                )  # fmt: skip
                found.setdefault((source, name, views), []).append(part)
    if found:
        rows = rows_of(found)
        report("default_labels", args, {"where": where, "rows": rows}, table(rows))


if __name__ == "__main__":
    main()
