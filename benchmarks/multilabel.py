"""Multi-label classification: MLC-HMF, GroPLE and the methods beside them, cross-validated, and the print.

`--chapter 5` is Tables 5.9 and 5.10 of Kumar's thesis (Hyderabad 2018; ten folds), `--chapter 6` Table 6.2
(five folds). Dense features are scaled to lie between 0 and 1; every method sees a feature of ones beside
them. Every method stands in two rows, for two decision rules:

own rule         the rule that the method's paper prints: the middle of regressions and probabilities, the
                 sign of margins, of MLC-HMF the majority of hard votes
tuned threshold  one threshold of the scores, chosen with the settings: the own rule, or one of 19 thresholds
                 that predict from a quarter of the labels that are true up to four times as many

Settings and threshold are chosen anew in every training fold, by micro-F1 on a third of its rows; the method
then learns from all of its rows. The thesis chooses settings by cross-validation and does not say of which
rows, and names no rule of GroPLE. The grids are part of the thesis's and the same for all that share one:

PLST, CPLST, CSSP,     d of .2, .5 and .8 of the labels, penalty of .01, .1, 1, 10; the thesis has .1, .2,
FAiE, LEML             ..., .8 and 1e-4, 1e-3, ..., 1e4, and so has "whole grid"; alpha of FAiE is of the
                       same four as the penalty (the thesis: 1e-4, ..., 1e4)
GroPLE                 beta of the same four, alpha = .01 (the thesis searches both from 1e-4 to 1e4);
                       d = 100, 10 groups, lambda_1 = .001, lambda_2 = 1 as in the thesis
MLC-HMF                T of 0, .02, ..., .1 and 5 neighbours as in the thesis; lambda of 10^.5 and 10 (the
                       thesis: 10^.1 to 10^2 in five steps); 20 sweeps at most, tol 1e-4
MLSF                   L / 20 and L / 5 groups and gamma of the same four (the thesis: L / 5, L / 10, L / 15
                       and L / 20, gamma and rho of 1e-4, ..., 1e4; there is no rho here)
all others             settings as they come; SSJDR-MLL: 100 directions and gamma = 1, as in the thesis

A penalty of PLST and CSSP is in units of the mean squared length of a centred row; one of CPLST, FAiE and
LEML is as their objectives have it. GroPLE, FAiE and LEML stop alike: after 60 sweeps, or when the objective
changes by less than 1e-5. PLST, CPLST, CSSP and FAiE are exact; they and LEML share one decomposition of the
features over their grid.

Every finished fold is kept in `results/multilabel_folds.json`, so that a run that was stopped goes on;
`--first N` runs the first N folds only. `--page` runs nothing and writes `multilabel.md` of what is there.

`--posterior` sets a point beside 2 x 200 draws of NUTS instead, on a fifth of the rows: log loss, Brier, ECE,
the share of rows whose number of labels a 90 % interval holds (labels independent given their probabilities),
micro-F1 with and without the least certain fifth, macro-F1 of labels that less than a tenth of the rows has.
"""

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp
from common import RESULTS, Cells, arguments, report, surroundings, table
from common.printed import COLUMNS
from common.printed import means as printed_means

import bayesfac as bf
from bayesfac.comparators import grids, ridges
from bayesfac.core.data.tasks import LABELS
from bayesfac.datasets.fetch import VARIABLE, folders
from bayesfac.search.evaluation import deal
from bayesfac.search.evaluation.methods_and_measures import Runner, read_method
from bayesfac.search.evaluation.trials import Rows, Scores, decisions, measured, scores

SETS = {
    5: ("emotions", "genbase", "medical", "cal500", "yahoo_science", "yahoo_education", "rcv1subset2_top944"),
    6: ("genbase", "medical", "cal500", "corel5k", "rcv1subset1_top944", "bibtex", "delicious"),
}  # fmt: skip
MORE = {
    5: ("ohsumed",),
    6: ("rcv1subset2_top944",),
}  # of few methods: in docs/reproduction.md alone
FOLDS = {5: 10, 6: 5}
TABLES = {5: "Tables 5.9 and 5.10", 6: "Table 6.2"}
TITLES = {"hamming_loss": "Hamming loss", "accuracy": "accuracy", "micro_f1": "micro-F1"}
MEASURED = [*TITLES, "subset_accuracy", "example_f1", "macro_f1"]
NAMES = {"rcv1subset2_top944": "rcv1(subset2)", "rcv1subset1_top944": "rcv1(subset1)",
         "yahoo_science": "science", "yahoo_education": "education"}  # fmt: skip
RULES = ("own rule", "tuned threshold")
SHARES, PENALTIES = (0.2, 0.5, 0.8), (0.01, 0.1, 1.0, 10.0)
WHOLE = tuple(n / 10 for n in range(1, 9)), tuple(10.0**n for n in range(-4, 5))
RAW = {"scaled": False, "cut": 0.5}  # features as `load` gives them, and the own rule
STOP = bf.FixedPoint(60, tol=1e-5)
SHARED = {"faie": grids.faie, "leml": grids.leml}  # one decomposition for the whole grid
SHORT = bf.FixedPoint(
    20, tol=1e-4
)  # on top of the fits by L-BFGS with which the tree of MLC-HMF grows


class Method(NamedTuple):
    """What is run, as `bf.evaluate` takes it or the name of a ridge method, and the grid for L labels."""

    what: Any
    grid: Callable[[int], dict[str, Sequence[Any]]] = lambda L: {}


def reduced(d: str, penalty: str, grid: tuple[Sequence[float], Sequence[float]]) -> Any:
    """The grid of a method of d columns, d a share of the labels."""
    return lambda L: {d: [math.ceil(share * L) for share in grid[0]], penalty: list(grid[1])}


def tree_grid(L: int) -> dict[str, Sequence[float]]:
    """lambda and T of MLC-HMF; of several T that let the same number of labels be wrong, the first."""
    wrong = {int(T * L + 1e-9): T for T in (0.1, 0.08, 0.06, 0.04, 0.02, 0.0)}
    return {"penalty": [10**0.5, 10.0], "threshold": sorted(wrong.values())}


PART = SHARES, PENALTIES
METHODS: dict[str, Method] = {
    "MLC-HMF": Method(("mlc_hmf", {"vote": "hard", **RAW}, SHORT), tree_grid),
    "GroPLE": Method(
        ("grople", {"n_components": 100, **RAW}, STOP), lambda L: {"beta": list(PENALTIES)}
    ),
    "PLST": Method("plst", reduced("d", "penalty", PART)),
    "PLST, whole grid": Method("plst", reduced("d", "penalty", WHOLE)),
    "CPLST": Method("cplst", reduced("d", "penalty", PART)),
    "CPLST, whole grid": Method("cplst", reduced("d", "penalty", WHOLE)),
    "CSSP": Method("cssp", reduced("d", "penalty", PART)),
    "CSSP, whole grid": Method("cssp", reduced("d", "penalty", WHOLE)),
    "FAiE": Method("faie", lambda L: reduced("d", "penalty", PART)(L) | {"alpha": list(PENALTIES)}),
    "FAiE, whole grid": Method(
        "faie", lambda L: reduced("d", "penalty", WHOLE)(L) | {"alpha": list(WHOLE[1])}
    ),
    "LEML": Method("leml", reduced("d", "penalty", PART)),
    "LEML, whole grid": Method("leml", reduced("d", "penalty", WHOLE)),
    "MLSF": Method(
        "mlsf",
        lambda L: {
            "groups": sorted({math.ceil(L / 20), math.ceil(L / 5)}),
            "gamma": list(PENALTIES),
        },
    ),
    "BSVM": Method("br_svm"),
    "SSJDR-MLL": Method("ssjdr_mll"),
    "BP-MLL": Method("bp_mll"),
    "ML-kNN": Method("ml_knn"),
    "LIFT": Method("lift"),
    "LLSF": Method("llsf"),
    "LS-ML": Method("ls_ml"),
    "BR-kNN": Method("br_knn"),
    "CC": Method("chain"),
    "CLR": Method("clr"),
    "RAkEL": Method("rakel"),
    "LP": Method("label_powerset"),
    "ML-DT": Method("ml_dt"),
    "AdaBoost.MH": Method("adaboost_mh"),
}
EARLIER = (  # folds of earlier runs under rules of their own: shown apart, never ranked with the others
    "MLC-HMF (5 or 20 neighbours, T = .02)",
    "MLC-HMF (20 neighbours, T = .02, hard or soft votes, all by accuracy)",
    "MLC-HMF (20 neighbours, T = .02, soft votes, all by the Hamming loss)",
    "FAiE (d = L/2, penalty .1, 1, 10, 100 sweeps)",
    "LEML (d = L/2, penalty .1, 1, 10, 100 sweeps)",
)
PRINTED = {(n, m): known for n in SETS for m, known in printed_means(n).items()}
POSTERIORS: dict[str, tuple[str, dict[str, Any]]] = {
    "MLC-HMF": ("mlc_hmf", {"penalty": 3.0, "vote": "soft", **RAW}),
    "LEML": ("leml", {"n_components": 3, "loss": "logistic", **RAW}),
}
KEPT = RESULTS / "multilabel_folds.json"
PAGE = Path(__file__).with_suffix(".md")
QUICK = ("MLC-HMF", "PLST", "BSVM", "ML-kNN")
HEAD = """\
# Multi-label classification, cross-validated, and the print

Figures of `multilabel.py --page`: mean ± sd over the folds; a number in square brackets says how many folds
were run where it was not all of them. An empty cell has not been run. Every method stands in two rows: at its
**own rule**, the one that its paper prints, and with a **tuned threshold**, chosen by the same procedure for
all. Only rows of the same rule can be compared: a tuned threshold beside an own rule says nothing of the
methods. The **print** is the thesis's mean; the thesis does not name the rule of GroPLE.

Settings and thresholds are chosen inside every training fold, by micro-F1 on a third of its rows. Mean ranks
are among the methods that have every set under the same rule. The folds are in
[multilabel_folds.json](results/multilabel_folds.json), where the next run finds them.
"""
CAPTIONS = {
    5: """\
MLC-HMF: 5 neighbours, half as many columns as labels and a depth of 5, as in the thesis. It searches T
of 0, .02, ..., .1, as in the thesis, and lambda of 10^.5 and 10; the thesis has 10^.1 to 10^2 in five
steps, and searches by ten-fold cross-validation. At most 20 sweeps follow the fits with which the tree
grows. The tuned threshold of MLC-HMF is one of the shares of five hard votes. All comparators have their
settings as they come, and stop by rules of their own.""",
    6: """\
PLST, CPLST, CSSP, FAiE and LEML search d of .2, .5 and .8 of the labels and a penalty of .01, .1, 1 and
10, which is part of the thesis's grid (.1, .2, ..., .8 and 1e-4, 1e-3, ..., 1e4). The rows "whole grid"
have all of that grid, and no rank. GroPLE searches beta of the same four values with alpha = .01 (the
thesis searches both from 1e-4 to 1e4); its 100 columns, 10 groups, lambda_1 = .001 and lambda_2 = 1 are
the thesis's. GroPLE and LEML stop after 60 sweeps, or when the objective changes by less than 1e-5;
PLST, CPLST, CSSP and FAiE are exact. alpha of FAiE is of the same four as its penalty. MLSF searches
L / 20 and L / 5 groups and gamma of the same four, which is part of the thesis's grid. BSVM has its
settings as they come.""",
}


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


# -- one fold -------------------------------------------------------------------------------------
def settings_of(method: Method, L: int) -> dict[str, Any]:
    """The settings that decide a fold, as JSON has them."""
    parts = method.what if isinstance(method.what, tuple) else (method.what, {}, None)
    stop = None if parts[2] is None else [parts[2].max_iter, parts[2].tol]
    grid = {name: list(values) for name, values in method.grid(L).items()}
    fixed = {name: value for name, value in parts[1].items() if name not in RAW}
    return {"method": parts[0], "fixed": fixed, "grid": grid, "stopping": stop}


def tried(
    method: Method, grid: Mapping[str, Sequence[Any]], data: bf.Tasks, rows: Rows, notes: list[str]
) -> Iterator[tuple[dict[str, Any], Scores]]:
    """Every setting of the grid and the scores of the test rows."""
    if method.what in (*ridges.METHODS, *SHARED):
        (view,) = data.names
        x, Y = data[view].tocsr(), data[LABELS].toarray()
        parts = x[rows.train], Y[rows.train], x[rows.test]
        if method.what in SHARED:
            for values, score in SHARED[method.what](*parts, **grid):
                yield values, Scores(score, score, [])
            return
        for d, penalty, score in ridges.grid(method.what, *parts, grid["d"], grid["penalty"]):
            yield {"d": d, "penalty": penalty}, Scores(score, score, [])
        return
    runner = read_method(method.what)
    if runner.kind == "comparator":
        runner = runner._replace(hyper={"scaled": False, **runner.hyper})
    for values in bf.Tuned(method.what, grid).settings():
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", bf.ConvergenceWarning)
                scored = scores(runner._replace(hyper=runner.hyper | values), data, rows, 0)
        except ValueError as wrong:  # a setting that these rows do not allow
            notes.append(f"{values} refused: {wrong}")
        else:
            warned = [f"{values}: {str(one.message).partition(':')[0]}" for one in caught]
            notes += [note for note in scored.notes + warned if note not in notes]
            yield values, scored


def both_rules(method: Method, data: bf.Tasks, fold: np.ndarray, number: int) -> dict[str, Any]:
    """Rule -> measures, settings and threshold of one fold; the held-out rows are those of `bf.evaluate`."""
    begun, notes, grid = time.perf_counter(), list[str](), method.grid(len(data.labels))
    train, held = fold != number, np.zeros(len(fold), bool)
    own = np.random.default_rng((0, number)).permutation(np.flatnonzero(train))
    held[own[: round(len(own) / 3)]] = True
    truth = data[LABELS].toarray()
    best: dict[str, tuple[float, Any, float | None]] = dict.fromkeys(RULES, (-math.inf, None, None))
    for values, (score, *_) in tried(method, grid, data, Rows(train & ~held, held), notes):
        # None, the own rule, comes first
        cuts = bf.Tuned("br_svm", threshold=True).thresholds(truth[held], score)
        found = [
            own_rule(method, truth[held], score),
            *micro_f1_above(cuts[1:], truth[held], score),
        ]
        for rule, among in zip(RULES, (1, len(cuts)), strict=True):
            at = int(np.argmax(found[:among]))
            if found[at] > best[rule][0]:
                best[rule] = found[at], values, cuts[at]
    results: dict[str, Any] = {}
    for rule, (_, values, cut) in best.items():
        alike = [other for other in results.values() if other["chosen"] == values]
        if alike:
            scored = alike[0]["score"]
        else:
            one = {name: [value] for name, value in values.items()}
            ((_, scored),) = tried(method, one, data, Rows(train, ~train), notes)
        numbers = measured(MEASURED, runner_of(method), truth[~train], scored, cut, 1.0)
        results[rule] = {"chosen": values, "threshold": cut, "scores": numbers, "score": scored}
    seconds = round(time.perf_counter() - begun, 1)
    for found in results.values():
        del found["score"]
        found |= {"seconds of both rules": seconds, "notes": notes}
    return results


def runner_of(method: Method) -> Runner:
    return read_method(method.what)


def own_rule(method: Method, truth: np.ndarray, score: np.ndarray) -> float:
    return bf.multilabel.micro_f1(truth, decisions(runner_of(method), score, None))


def micro_f1_above(cuts: Sequence[float], truth: np.ndarray, score: np.ndarray) -> list[float]:
    """Micro-F1 of the labels whose score is at least the cut, for every cut, from one sort."""
    order = np.argsort(-score, axis=None, kind="stable")
    right = np.append(0, np.cumsum(truth.ravel()[order]))
    many = np.searchsorted(-score.ravel()[order], -np.asarray(cuts), side="right")
    return (2 * right[many] / np.maximum(many + right[-1], 1)).tolist()


# -- the tables -----------------------------------------------------------------------------------
def run(
    cells: Cells, sets: Mapping[str, bf.Tasks], methods: Sequence[str], folds: int, first: int
) -> None:  # fmt: skip
    """The folds that are not in the file yet, set after set."""
    for name, data in sets.items():
        fold = deal(data, folds, 0, name)
        for label in methods:
            settings = settings_of(METHODS[label], len(data.labels))
            for number in range(first):
                make = cache(partial(both_rules, METHODS[label], data, fold, number))
                for rule in RULES:
                    cells.get(
                        f"{name}; {label}; {rule}; fold {number} of {folds}",
                        lambda make=make, rule=rule: make()[rule],
                        told=lambda value: f"micro-F1 {value['scores']['micro_f1']:.3f}",
                        **settings,
                    )


def frame(cells: Cells, folds: int) -> pd.DataFrame:
    """A row for each finished fold."""
    rows = []
    for key, found in cells.found.items():
        data, method, rule, fold = key.split("; ")
        if fold.endswith(f" of {folds}"):
            seconds = found["value"]["seconds of both rules"]
            rows.append((data, method, rule, *map(found["value"]["scores"].get, MEASURED), seconds))
    names = ["data", "method", "rule", *MEASURED, "seconds of both rules"]
    return pd.DataFrame(rows, columns=names)


def tables(
    found: pd.DataFrame, chapter: int, metric: str, sets: Sequence[str], folds: int
) -> tuple[str, str]:
    """Of the equal rules, with mean ranks; and of earlier runs."""
    every = found[found["data"].isin(sets)].groupby(["rule", "method", "data"])[metric]
    many, mean, sd = every.size(), every.mean(), every.std()
    full = {rule: ranked(mean.loc[rule], metric, sets) for rule in RULES if rule in mean.index}
    equal, earlier = [], []
    for label in [*METHODS, *EARLIER]:
        known = {data: printed(chapter, metric, data, label) for data in sets}
        if label in METHODS and any(known.values()):
            equal.append(line(label, "print", known))
        for rule in RULES:
            own = {
                data: cell(mean[at], sd[at], many[at], folds)
                for data in sets
                if (at := (rule, label, data)) in mean.index
            }
            if own:
                rank = full[rule].get(label) if label in METHODS else None
                (equal if label in METHODS else earlier).append(line(label, rule, own, sets, rank))
    for row in equal:
        row.setdefault("mean rank", "")
    return table(equal), table(earlier) if earlier else ""


def line(
    label: str, rule: str, own: Mapping[str, str], sets: Sequence[str] = (), rank: Any = None
) -> dict[str, str]:
    row = {"method": label, "rule": rule}
    row |= {NAMES.get(data, data): own.get(data, "") for data in sets or own}
    return row | ({} if rank is None else {"mean rank": f"{rank:.2f}"})


def ranked(mean: pd.Series, metric: str, sets: Sequence[str]) -> dict[str, float]:
    """Mean ranks among the methods that have all sets; the whole grids are no methods of their own."""
    wide = mean.unstack("data").reindex(columns=list(sets)).dropna().round(3)
    wide = wide.loc[[m for m in wide.index if m in METHODS and not m.endswith("whole grid")]]
    if len(wide) < 2:
        return {}
    return bf.ranks.ranks(wide.T, higher=metric != "hamming_loss").mean().to_dict()


def cell(mean: float, sd: float, many: int, folds: int) -> str:
    spread = f" ± {short(sd)}" if many > 1 else ""
    return f"{short(mean)}{spread}" + ("" if many == folds else f" [{many}]")


def printed(chapter: int, metric: str, data: str, name: str) -> str:
    known = PRINTED.get((chapter, metric), {}).get(data)
    if known is None or name not in COLUMNS[chapter]:
        return ""
    return short(known[COLUMNS[chapter].index(name)])


def short(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def page(cells: Cells) -> str:
    """All tables, of the folds that are finished."""
    parts = [HEAD]
    for chapter, sets in SETS.items():
        found, others = frame(cells, FOLDS[chapter]), []
        parts.append(f"## {TABLES[chapter]}\n\n{CAPTIONS[chapter]}\n")
        for metric in (m for m in TITLES if (chapter, m) in PRINTED):
            equal, earlier = tables(found, chapter, metric, sets, FOLDS[chapter])
            parts.append(
                f"### {TABLES[chapter]}: {TITLES[metric]}, {FOLDS[chapter]} folds\n\n{equal}\n"
            )
            if earlier:
                others.append(f"{TITLES[metric][0].upper()}{TITLES[metric][1:]}:\n\n{earlier}\n")
        if others:
            parts += [
                f"### {TABLES[chapter]}: earlier runs, each under the rule that its row names\n",
                *others,
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
    parser.add_argument("--sets", nargs="+", choices=sorted({*SETS[5], *SETS[6], *MORE[5]}))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--first", type=int, metavar="N", help="folds that are run (all)")
    parser.add_argument("--posterior", action="store_true", help="a point beside draws instead")
    parser.add_argument("--splits", type=int, default=5, metavar="N", help="of --posterior (5)")
    parser.add_argument(
        "--page", action="store_true", help="write multilabel.md of what is finished"
    )
    args = parser.parse_args()
    sets, folds = args.sets or SETS[args.chapter], FOLDS[args.chapter]
    if args.posterior:
        sets = args.sets or ("emotions",)
    if args.quick:
        sets, folds, args.methods = ("made up",), 2, QUICK
    elif not args.page and (absent := [name for name in sets if locate(name) is None]):
        files = ", ".join(f"{name}.npz" for name in absent)
        parser.exit(2, f"Expected {files} in the folder that {VARIABLE} names, got nothing\n")
    warnings.simplefilter("ignore", bf.ConvergenceWarning)  # a budget of iterations, alike for all
    if args.page:
        PAGE.write_text(page(Cells(KEPT)), encoding="utf-8")
        return
    where = surroundings("scikit-learn")
    if args.posterior:
        cells = Cells(args.out or (None if args.quick else RESULTS / "multilabel_posterior.json"))
        text = posteriors(cells, sets, args.methods, 1 if args.quick else args.splits, args.quick)
        report("multilabel_posterior", args, {"where": where, "results": cells.found}, text)
        return
    cells = Cells(args.out or (None if args.quick else KEPT))
    tasks = {name: load(name) for name in sets}
    run(cells, tasks, args.methods, folds, min(args.first or folds, folds))
    found = frame(cells, folds)
    text = "\n\n".join(
        f"{TITLES[metric]}, {folds} folds\n\n{tables(found, args.chapter, metric, sets, folds)[0]}"
        for metric in TITLES
    )
    seconds = found.groupby(["data", "method"])["seconds of both rules"].mean().round(1)
    text += f"\n\nSeconds a fold, both rules\n\n{seconds.unstack()}"
    report("multilabel_folds", args, {"where": where, "results": cells.found}, text)


if __name__ == "__main__":
    main()
