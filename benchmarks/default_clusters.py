"""Clusterings with default settings beside what a user would try first: AC and NMI in per cent over seeds.

`bf.fit(NAME, views, n_components=K)` with nothing else set, where K is the number of classes, and
`bf.clusters(fit)`. Labels only score. PLSA and LTM take one view: they are given the features of all views
side by side, where every row of every view has length one, so that no view outweighs the rest. Beside them:
scikit-learn's k-means with its defaults, on the same features; and scikit-learn's spectral clustering of the
neighbours of the same features, with 10 neighbours, as is its default.

handwritten                 pix, fou, fac, zer and mor
cora                        content and cites
reuters_multilingual_1200   english, french and german
dblp_four_area              author_term and author_conf
unlike views                made up: real numbers of both signs, whole numbers in the thousands, rare words

"beats k-means" says whether the mean AC is above that of k-means. Fits are kept in the results file as they
come: a run that was stopped goes on where it was.
"""

import warnings
from functools import partial
from typing import Any

import numpy as np
from clusters import TITLES, VIEWS, load, locate, measures, spread
from common import RESULTS, Cells, arguments, report, surroundings, table

import bayesfac as bf
from bayesfac.core.data.views import Views, concatenated, side_by_side
from bayesfac.datasets.fetch import VARIABLE
from bayesfac.models.topics._starts import scaled

METHODS = ("mggm", "mvplsa", "concat_ltm", "ltm", "plsa")
FIRST = ("k-means", "spectral")
COLUMNS = ("method", "AC", "NMI", "beats k-means", "sweeps", "converged")
MADE = "unlike views"


def unlike(seed: int = 0, rows: int = 300) -> tuple[Views, np.ndarray]:
    """Five clusters in three views that differ in kind, size and scale; no view alone shows all of them."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 5, rows)
    centres = rng.normal(0, 2.0, (5, 6))
    centres[1] = centres[0]  # real numbers do not tell clusters 0 and 1 apart
    rates = rng.gamma(0.3, 1.0, (5, 150))
    rates[3] = rates[2]  # words do not tell clusters 2 and 3 apart
    sizes = 1000 * (1 + np.arange(5)[:, None] * rng.random((1, 8)))
    views = {
        "numbers": centres[y] + rng.normal(0, 1.5, (rows, 6)),
        "sizes": np.round(sizes[y] * rng.gamma(4.0, 0.25, (rows, 8))),
        "words": rng.poisson(0.5 * rates[y]),
    }
    return Views(views), y


def data(name: str) -> tuple[Views, np.ndarray]:
    return unlike() if name == MADE else load(name)


def one(method: str, views: Views, y: np.ndarray, seed: int) -> dict[str, Any]:
    """The scores of one fit with default settings, and how it ended."""
    K = len(np.unique(y))
    if method in FIRST:
        return measures(y, first(method, views, K, seed)) | {"sweeps": "", "converged": ""}
    given = views
    if method in ("plsa", "ltm"):
        given = concatenated(scaled(views, "unit"))
    elif method == "mvplsa":
        given = not_negative(views)
    fit = bf.fit(method, given, seed=seed, progress=False, n_components=K)
    label = bf.clusters(fit)["cluster"].to_numpy()
    told = {
        "sweeps": len(fit.trace) - 1,
        "converged": bool(fit.converged),
        "notes": fit.result.notes,
    }
    hyper = {k: v for k, v in fit.hyper._asdict().items() if k in ("penalty", "scale", "joint")}
    return measures(y, label) | told | {"chosen": hyper}


def not_negative(views: Views) -> Views:
    """The views as they are; one with negative numbers as mvplsa's refusal says, from its least number up."""
    tables = {}
    for name in views.names:
        x = views[name]
        tables[name] = x if x.min() >= 0 else x.toarray() - x.toarray().min(0)
    return Views(tables)


def first(method: str, views: Views, K: int, seed: int) -> np.ndarray:
    """k-means or spectral clustering, by scikit-learn, with its defaults."""
    from sklearn.cluster import KMeans, SpectralClustering

    x = side_by_side(scaled(views, "unit"))
    if 2 * x.nnz > x.shape[0] * x.shape[1]:
        x = x.toarray()
    if method == "k-means":
        return KMeans(K, random_state=seed).fit_predict(x)
    return SpectralClustering(K, affinity="nearest_neighbors", random_state=seed).fit_predict(x)


def line(method: str, runs: list[dict[str, Any]], baseline: float) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(COLUMNS, "") | {"method": method}
    for measure in ("AC", "NMI"):
        values = [run[measure] for run in runs]
        row[measure] = spread(np.mean(values), np.std(values, ddof=1) if len(values) > 1 else 0)
    if method in FIRST:
        return row
    sweeps = [run["sweeps"] for run in runs]
    row["beats k-means"] = "yes" if np.mean([run["AC"] for run in runs]) > baseline else "no"
    row["sweeps"] = f"{min(sweeps)} to {max(sweeps)}"
    row["converged"] = f"{sum(run['converged'] for run in runs)} of {len(runs)}"
    return row


def results(cells: Cells, name: str, args: Any) -> str:
    views, y = data(name)
    lines, baseline = [], 0.0
    for method in (*FIRST, *args.methods):
        runs = [
            cells.get(f"{name}, {method}, seed {seed}", partial(one, method, views, y, seed))
            for seed in range(args.seeds)
        ]
        if method == "k-means":
            baseline = float(np.mean([run["AC"] for run in runs]))
        lines.append(line(method, runs, baseline))
    return f"{TITLES.get(name, 'Unlike views, made up')}\n\n" + table(lines)


def main() -> None:
    parser = arguments(__doc__)
    names = [*VIEWS, MADE]
    parser.add_argument("--sets", nargs="+", default=names, choices=names)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="starts (5)")
    args = parser.parse_args()
    if args.quick:
        args.sets, args.methods, args.seeds = [MADE], ["plsa"], 1
    elif absent := [name for name in args.sets if name in VIEWS and locate(name) is None]:
        files = ", ".join(f"{name}.npz" for name in absent)
        parser.exit(2, f"Expected {files} in the folder that {VARIABLE} names, got nothing\n")
    warnings.simplefilter("ignore", bf.ConvergenceWarning)  # the table says how many converged
    where = surroundings()
    cells = Cells(args.out or (None if args.quick else RESULTS / "default_clusters.json"))
    text = "\n\n".join(results(cells, name, args) for name in args.sets)
    settings = {k: v for k, v in vars(args).items() if k not in ("out", "quick")}
    found = {"where": where, "settings": settings, "results": cells.found}
    report("default_clusters", args, found, text)


if __name__ == "__main__":
    main()
