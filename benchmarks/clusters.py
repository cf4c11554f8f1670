"""Table 2 of Wang et al. (MGGM) again: AC and NMI in per cent, mean and sd over seeds, beside the print.

"Multi-view learning via multiple graph regularized generative model", Knowledge-Based Systems 2017.

handwritten                 pix, fou, fac, zer and mor: the five views of the print
reuters_multilingual_1200   english, french and german
dblp_four_area              author_term and author_conf; the print's are names of papers and (other) terms
cora                        content and cites, the 2708-document version with 7 classes; the print has 12,004
                            documents and 10 classes, so its figures are no yardstick here

MGGM_SV, LTM and K-means are run with every single graph or view, and the one of the best mean AC is
reported, as in the print: a choice that has seen the labels, as has that of the settings below. "spectral,
all features", k-means on the first eigenvectors of one graph over all features, is not in the print; MGGM,
LTM and ConcatLTM begin at such eigenvectors, MGGM at those of its views' graphs too, and the line says how
much of their success that start is. `joint` has that graph join those of MGGM. With `restarts` a seed is the
best of so many starts by the objective, which knows no labels. MVPLSA begins near the uniform, where its
objective hardly moves at first: it is given ten times the iterations, and no tolerance to stop by. All
methods are given the features scaled alike.

MGGM, MGGM_SV, LTM and ConcatLTM are far from a minimum after `--iterations` sweeps or with a tolerance
of 1e-5, so they stand in three rows. "early" is that stopping, near the start: MGGM on handwritten stops
after 59 sweeps. "default" goes on to 500 sweeps or 1e-6, an earlier default of `bf.FixedPoint`, and
"long" to `--longest` sweeps and 1e-6. Both have `--long-seeds` seeds, of MGGM_SV and LTM the view that
is best when stopped early, and of several restarts the one that is best when stopped early. The table
says how many sweeps these seeds made, and how many of the seeds met the tolerance.

Cells are kept in the results file as they come, with their
settings: a run that was stopped goes on where it was, and a cell whose settings have changed since is
computed again.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from common import RESULTS, Cells, arguments, report, surroundings, table

import bayesfac as bf
from bayesfac.core.data.views import Views, concatenated
from bayesfac.datasets.fetch import VARIABLE, folders
from bayesfac.labels.comparators.clusterings import coregularised, kmeans
from bayesfac.models.topics._starts import scaled

# fmt: off
# of MGGM and its kin; found on one seed each, by their labels: penalty of 1, 3, 10, 30, joint or not, start
COMMON = {"penalty": 1.0, "selectivity": 0.5, "scale": "unit", "divergence": "squared"}
HYPER: dict[str, dict[str, Any]] = {
    "handwritten": {"n_topics": 50, "penalty": 10.0, "joint": True},
    "reuters_multilingual_1200": {
        "n_topics": 30, "start": "kmeans", "metric": "cosine", "neighbours": 20, "restarts": 5},
    "dblp_four_area": {"n_topics": 20, "metric": "cosine", "joint": True},
    "cora": {"n_topics": 35, "metric": "cosine", "neighbours": 10, "joint": True},
    "made up": {"n_topics": 6, "joint": True, "restarts": 2},
}
FIRST = {"start": "spectral"}  # what is not said is so; default settings are in default_clusters.py
OWN = {("handwritten", "MGGM"): {"penalty": 300.0}}  # of 3 to 600; single graphs have the most at 10
VIEWS = {
    "handwritten": ("pix", "fou", "fac", "zer", "mor"),
    "reuters_multilingual_1200": ("english", "french", "german"),
    "dblp_four_area": ("author_term", "author_conf"),
    "cora": ("content", "cites"),
}
TITLES = {
    "handwritten": "Handwritten",
    "reuters_multilingual_1200": "Reuters",
    "dblp_four_area": "DBLP: author_term, author_conf (print: other views)",
    "cora": "Cora: content, cites, the 2708-document version (print: another one)",
    "made up": "Made up",
}
COLUMNS = ("dblp_four_area", "reuters_multilingual_1200", "handwritten", "cora")
PRINTED = {  # mean and sd: AC of the columns, then NMI
    "MGGM": ((80.68, 1.74), (51.78, 3.80), (95.51, 0.29), (41.15, 0.18),
             (51.48, 1.98), (32.99, 2.08), (91.39, 0.34), (24.65, 0.20)),
    "MGGM_SV": ((77.99, 3.42), (50.82, 3.38), (95.23, 0.81), (39.76, 0.12),
                (48.43, 3.91), (31.67, 2.15), (90.71, 1.01), (23.21, 0.08)),
    "MVPLSA": ((74.43, 8.77), (47.62, 3.44), (72.08, 2.94), (39.69, 0.11),
               (45.55, 6.14), (29.65, 1.92), (68.21, 1.83), (23.18, 0.06)),
    "PRSC": ((70.79, 1.03), (48.08, 1.17), (80.79, 1.16), (21.48, 1.22),
             (37.08, 1.01), (28.06, 1.12), (72.26, 1.06), (7.54, 1.11)),
    "CRSC": ((70.87, 1.03), (48.11, 1.77), (90.42, 1.22), (23.88, 1.17),
             (37.20, 1.02), (27.75, 1.18), (82.00, 1.29), (10.15, 1.15)),
    "LTM": ((76.85, 1.28), (42.61, 3.93), (93.10, 0.17), (29.34, 1.66),
            (46.21, 1.70), (23.81, 3.46), (87.60, 0.20), (15.14, 1.90)),
    "ConcatLTM": ((73.30, 6.70), (45.53, 1.98), (94.28, 0.20), (29.14, 2.03),
                  (45.22, 4.90), (28.13, 1.64), (89.27, 0.29), (15.76, 1.31)),
    "K-means": ((40.32, 3.37), (23.12, 7.22), (66.56, 8.08), (20.77, 2.45),
                (15.77, 4.74), (10.95, 8.37), (69.28, 3.57), (8.25, 1.90)),
    "ConcatK-means": ((38.61, 5.87), (24.13, 7.13), (66.37, 6.75), (17.63, 3.09),
                      (12.42, 6.24), (13.14, 7.67), (69.56, 3.58), (7.86, 2.95)),
}
# fmt: on
MEASURES = {
    "AC": bf.metrics.clustering_accuracy,
    "NMI": bf.metrics.normalized_mutual_information,
}
Numbers = dict[str, Any]


# -- methods --------------------------------------------------------------------------------------
def fitted(
    method: str,
    views: Views,
    K: int,
    seed: int,
    view: str | None,
    iterations: int,
    tol: float,
    restarts: int = 1,
    **hyper: Any,
) -> np.ndarray:
    """The likeliest cluster of every row. One view: of `mggm` its graph, else nothing but that view."""
    if view is not None:
        if method == "mggm":
            hyper["graph"] = view
        else:
            views = Views({view: views[view]})
    if method == "mvplsa":  # counts are all it knows
        views = scaled(views, hyper.pop("scale"))
        hyper |= {"scale": "none", "start": "random"}
    hyper = FIRST | hyper
    if method == "mggm":
        hyper = {"joint": False} | hyper
    engine = bf.FixedPoint(iterations, tol=tol, restarts=restarts, accelerate=False)
    found = bf.fit(method, views, engine, seed=seed, progress=False, n_components=K, **hyper)
    return np.asarray(found.params.A).argmax(1)


def prolonged(
    method: str,
    stops: Sequence[tuple[str, int, float]],
    views: Views,
    y: np.ndarray,
    K: int,
    view: str | None,
    seed: int,
    restarts: int = 1,
    **hyper: Any,
) -> dict[str, Numbers]:
    """One run, looked at where each of the rules (name, sweeps in all, tolerance) stops it."""
    if view is not None and method != "mggm":
        views = Views({view: views[view]})
    elif view is not None:
        hyper["graph"] = view
    hyper = FIRST | hyper
    if method == "mggm":
        hyper = {"joint": False} | hyper
    found, fit, sweeps, converged, before = {}, None, 0, False, 1.0
    for name, most, tol in stops:
        if sweeps < most and not (converged and tol == before):
            again = restarts if fit is None else 1
            engine = bf.FixedPoint(most - sweeps, tol=tol, restarts=again, accelerate=False)
            given = {"seed": seed, "init": fit, "progress": False, "n_components": K}
            fit = bf.fit(method, views, engine, **given, **hyper)
            sweeps, converged, before = sweeps + len(fit.trace) - 1, fit.converged, tol
        found[name] = measures(y, np.asarray(fit.params.A).argmax(1)) | {
            "sweeps": sweeps,
            "converged": converged,
            "objective": float(fit.trace[-1]),
        }
    return found


def means(views: Views, K: int, seed: int, view: str | None, scale: str) -> np.ndarray:
    views = scaled(views, scale)
    return kmeans(views if view is None else Views({view: views[view]}), K, seed)


def spectral(
    how: str, views: Views, K: int, seed: int, view: str | None, scale: str, **more: Any
) -> np.ndarray:
    views = scaled(views, scale)
    if how == "all":  # one view needs no agreement
        views, how = concatenated(views), "pairwise"
    return coregularised(views, K, how, seed=seed, **more)


class Method(NamedTuple):
    """How labels are come by, and which settings that takes."""

    labels: Callable[..., np.ndarray]
    takes: tuple[str, ...]
    best: bool = False  # of the views, one at a time
    longer: int = 1  # times the iterations; above 1 without a tolerance
    prolonged: str = ""  # the method to go on with, to later stopping


# what HYPER does not say (start, neighbours, metric) is as the method has it
EDGES = ("scale", "neighbours", "metric")
GRAPH = ("penalty", "divergence", "start", "iterations", "tol", "restarts", *EDGES)
METHODS = {
    "MGGM": Method(
        partial(fitted, "mggm"), ("n_topics", "selectivity", "joint", *GRAPH), prolonged="mggm"
    ),
    "MGGM_SV": Method(partial(fitted, "mggm"), ("n_topics", *GRAPH), best=True, prolonged="mggm"),
    "MVPLSA": Method(
        partial(fitted, "mvplsa"), ("n_topics", "scale", "iterations", "tol"), longer=10
    ),
    "PRSC": Method(partial(spectral, "pairwise"), ("weight", *EDGES)),
    "CRSC": Method(partial(spectral, "centroid"), ("weight", *EDGES)),
    "LTM": Method(partial(fitted, "ltm"), GRAPH, best=True, prolonged="ltm"),
    "ConcatLTM": Method(partial(fitted, "concat_ltm"), GRAPH, prolonged="concat_ltm"),
    "K-means": Method(means, ("scale",), best=True),
    "ConcatK-means": Method(means, ("scale",)),
    "spectral": Method(partial(spectral, "all"), EDGES),
}


# -- data -----------------------------------------------------------------------------------------
def locate(name: str) -> Path | None:
    places = [folder / f"{name}.npz" for folder in folders()]
    return next((place for place in places if place.is_file()), None)


def load(name: str) -> tuple[Views, np.ndarray]:
    if name == "made up":
        return made_up()
    with np.load(locate(name), allow_pickle=False) as archive:
        named = {view: matrix(archive, f"view_{view}") for view in VIEWS[name]}
        return Views(named), archive["y"]


def matrix(archive: Any, name: str) -> Any:
    if name in archive:
        return archive[name].astype(float)
    data, *where, shape = (archive[f"{name}_{p}"] for p in ("data", "indices", "indptr", "shape"))
    return sp.csr_matrix((data.astype(float), *where), shape=tuple(shape))


def made_up() -> tuple[Views, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    rate = {name: 1 + 4 * rng.random((3, m)) for name, m in (("left", 12), ("right", 8))}
    return Views({name: rng.poisson(r[y]) for name, r in rate.items()}), y


# -- the table ------------------------------------------------------------------------------------
def table_2(cells: Cells, name: str, args: Any) -> str:
    views, y = load(name)
    K = len(np.unique(y))
    given = COMMON | HYPER[name] | {"iterations": args.iterations, "tol": 1e-5, "weight": 0.01}
    lines = []
    for method in args.methods:
        how = METHODS[method]
        own = given | OWN.get((name, method), {})
        settings = {key: own[key] for key in how.takes if key in own}
        if how.longer > 1:
            settings |= {"iterations": how.longer * args.iterations, "tol": 0.0}
        found = {}
        for view in views.names if how.best else (None,):
            make = partial(one, how, views, y, K, view, settings)
            label = f"{name}, {method}" if view is None else f"{name}, {method}, {view}"
            found[view] = [
                cells.get(f"{label}, seed {s}", partial(make, s), **settings)
                for s in range(args.seeds)
            ]
        best = max(found, key=lambda view: float(np.mean([run["AC"] for run in found[view]])))
        if how.prolonged:
            later = goes_on(cells, name, method, views, y, best, settings, args)
            stops = dict.fromkeys(stop for run in later for stop in run)
            for stop in stops:
                runs = [run[stop] for run in later]
                own = found[best] if stop == "early" else runs
                lines.append(line(name, method, best, own, stop, sweeps_of(runs)))
        else:
            lines.append(line(name, method, best, found[best]))
    told = ", ".join(f"{key} {value}" for key, value in given.items())
    return f"{TITLES[name]}\n{told}\n\n" + table(lines)


def goes_on(
    cells: Cells, name: str, method: str, views: Views, y: np.ndarray, view: str | None,
    settings: Numbers, args: Any,
) -> list[dict[str, Numbers]]:  # fmt: skip
    """Of every seed that goes on, what there was at each stopping."""
    own = {k: v for k, v in settings.items() if k not in ("iterations", "tol")}
    stops = [["early", settings["iterations"], settings["tol"]]]
    stops += [["default", min(500, args.longest), 1e-6], ["long", args.longest, 1e-6]]
    call, K = METHODS[method].prolonged, len(np.unique(y))
    label = f"{name}, {method}, prolonged" + ("" if view is None else f", {view}")
    return [
        cells.get(
            f"{label}, seed {s}",
            partial(prolonged, call, stops, views, y, K, view, s, **own),
            stops=stops,
            **own,
        )
        for s in range(min(args.long_seeds, args.seeds))
    ]


def one(
    how: Method, views: Views, y: np.ndarray, K: int, view: str | None, settings: Numbers, seed: int
) -> Numbers:
    return measures(y, how.labels(views=views, K=K, seed=seed, view=view, **settings))


def measures(y: np.ndarray, label: np.ndarray) -> Numbers:
    return {name: round(100 * measure(y, label), 4) for name, measure in MEASURES.items()}


def line(
    name: str, method: str, view: str | None, runs: Sequence[Numbers], stop: str = "", sweeps: str = ""
) -> Numbers:  # fmt: skip
    """One row of the table: ours and the print's."""
    row = {"method": "spectral, all features" if method == "spectral" else method}
    row |= {"best view": view or "", "stopping": stop, "sweeps": sweeps, "seeds": len(runs)}
    for at, measure in enumerate(MEASURES):
        values = [run[measure] for run in runs]
        row[measure] = spread(np.mean(values), np.std(values, ddof=1) if len(values) > 1 else 0)
        printed = method in PRINTED and name in COLUMNS
        column = at * len(COLUMNS) + COLUMNS.index(name) if printed else 0
        row[f"{measure}, print"] = spread(*PRINTED[method][column]) if printed else ""
    return row


def sweeps_of(runs: Sequence[Numbers]) -> str:
    """From the fewest to the most, and how many runs met the tolerance."""
    least, most = (pick(run["sweeps"] for run in runs) for pick in (min, max))
    met = sum(run["converged"] for run in runs)
    return f"{least}" + f" to {most}" * (most > least) + f", {met} of {len(runs)} converged"


def spread(mean: float, sd: float) -> str:
    return f"{mean:.2f} ± {sd:.2f}"


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sets", nargs="+", default=list(VIEWS), choices=list(VIEWS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--seeds", type=int, default=10, metavar="N", help="starts (10)")
    parser.add_argument(
        "--iterations", type=int, default=100, metavar="N", help="of EM at most (100)"
    )
    parser.add_argument("--longest", type=int, default=2000, metavar="N", help="of EM (2000)")
    parser.add_argument(
        "--long-seeds", type=int, default=2, metavar="N", help="seeds that go on (2)"
    )
    args = parser.parse_args()
    if args.quick:
        args.sets, args.seeds, args.iterations, args.longest = ["made up"], 1, 5, 12
    elif absent := [name for name in args.sets if locate(name) is None]:
        files = ", ".join(f"{name}.npz" for name in absent)
        parser.exit(2, f"Expected {files} in the folder that {VARIABLE} names, got nothing\n")
    warnings.simplefilter("ignore", bf.ConvergenceWarning)  # iterations are limited on purpose
    where = surroundings()
    cells = Cells(args.out or (None if args.quick else RESULTS / "clusters.json"))
    text = "\n\n".join(table_2(cells, name, args) for name in args.sets)
    settings = {k: v for k, v in vars(args).items() if k not in ("out", "quick")}
    report("clusters", args, {"where": where, "settings": settings, "results": cells.found}, text)


if __name__ == "__main__":
    main()
