"""`mofa` beside mofapy2, and PCA of tables whose missing cells are means: made-up views of 400 rows with
eight components, of which each is in a view with probability .6; a fifth of its loadings there is not zero.

A tenth of the cells are left out, besides a fifth that are missing and a tenth of the rows that lack each
view but the first. Everybody fits 15 components. `normal` has four normal views of 50, 300, 1,000 and 2,000
features with noise 1; `mixed` has 300 normal features, 200 of 0 and 1, and 100 of counts (mofapy2: poisson).

RMSE VIEW    of the left-out cells
correlation  of the true factors and those that are most alike, the mean over components
precision    of the loadings called non-zero: `in_slab`, or mofapy2's probability, above a half
recall
in use       the number of components that explain at least 1 % of some view
covers       the share of left-out cells in 90 % intervals
explained    the number of views, of all, whose true share of explained variance is in its 90 % interval
seconds      of the fit, compilation included, and of its prediction of the left-out cells
"""

import contextlib
import io
import time
from typing import Any

import numpy as np
from common import arguments, hold_cores, report, surroundings, table
from scipy.optimize import linear_sum_assignment
from sklearn.decomposition import PCA

import bayesfac as bf

try:
    from mofapy2.run.entry_point import entry_point
except ImportError:
    entry_point = None

ROWS, TRUE, FITTED = 400, 8, 15
SETS: dict[str, dict[str, Any]] = {
    "normal": {"features": {"a": 50, "b": 300, "c": 1000, "d": 2000}, "laws": {}},
    "mixed": {
        "features": {"a": 300, "b": 200, "c": 100},
        "laws": {"b": "bernoulli", "c": "counts"},
    },
}
LIKELIHOODS = {"normal": "gaussian", "bernoulli": "bernoulli", "counts": "poisson"}
USED = 0.01


def ours(engine: Any, train: bf.Measurements, test: bf.Measurements) -> dict[str, Any]:
    fit = bf.fit("mofa", train, engine, n_components=FITTED, progress=False)
    predicted = fit.predict(test)
    low, high = predicted.interval(0.9)
    return {
        "fit": fit,
        "mean": predicted.mean,
        "inside": (low <= test.value) & (test.value <= high),
    }


def read(found: dict[str, Any]) -> dict[str, Any]:
    """Factors, loadings and shares of variance of a fit of ours."""
    fit = found["fit"]
    views = [view.name for view in fit.hyper.views]
    loads = {name: fit.loadings(name) for name in views}
    slab = {name: one["in_slab"].unstack().to_numpy() > 0.5 for name, one in loads.items()}
    return {
        "Z": np.asarray(fit.params.U) if fit.is_point else fit.aligned().draws["U"].mean((0, 1)),
        "W": {name: one["mean"].unstack().to_numpy() for name, one in loads.items()},
        "called": slab,
        "explained": fit.variance_explained(),
    }


def theirs(train: bf.Measurements, test: bf.Measurements, laws: dict[str, str]) -> dict[str, Any]:
    """mofapy2 with its medium convergence."""
    views = [*train.views]
    tables = [[train.table(name).to_numpy()] for name in views]
    run = entry_point()
    with contextlib.redirect_stdout(io.StringIO()):
        run.set_data_options(scale_views=False)
        kinds = [LIKELIHOODS[laws.get(name, "normal")] for name in views]
        run.set_data_matrix(tables, likelihoods=kinds, views_names=views)
        run.set_model_options(factors=FITTED, spikeslab_weights=True, ard_weights=True)
        run.set_train_options(convergence_mode="medium", seed=1, verbose=False)
        run.build()
        run.run()
    nodes = run.model.nodes
    Z, W = nodes["Z"].getExpectation(), nodes["W"].getExpectation()
    mean = {}
    for name, own, given in zip(views, W, tables, strict=True):
        law, x = laws.get(name, "normal"), Z @ own.T
        centre = np.nanmean(given[0], 0) if law == "normal" else 0.0
        links = {
            "bernoulli": lambda x: 1 / (1 + np.exp(-x)),
            "counts": lambda x: np.log1p(np.exp(x)),
        }
        mean[name] = links.get(law, lambda x: x)(x + centre)
    slab = [node.getParameters()["theta"] > 0.5 for node in nodes["W"].nodes]
    cells = at_cells(mean, test)
    return {"mean": cells, "Z": Z, "W": dict(zip(views, W, strict=True)),
            "called": dict(zip(views, slab, strict=True))}  # fmt: skip


def pca(train: bf.Measurements, test: bf.Measurements) -> dict[str, Any]:
    """PCA of all views side by side, with the mean of the feature in missing cells."""
    views = [*train.views]
    whole = np.concatenate([train.table(name).to_numpy() for name in views], 1)
    filled = np.where(np.isnan(whole), np.nanmean(whole, 0), whole)
    model = PCA(FITTED, random_state=0)
    Z = model.fit_transform(filled)
    ends = np.cumsum([len(train.views[name]) for name in views])[:-1]
    back = np.split(model.inverse_transform(Z), ends, 1)
    return {"mean": at_cells(dict(zip(views, back, strict=True)), test), "Z": Z}


def at_cells(tables: dict[str, np.ndarray], test: bf.Measurements) -> np.ndarray:
    """The predictions of the left-out cells; the tables have the rows and features of training."""
    whole = np.concatenate([tables[name] for name in test.views], 1)
    return whole[test.user, test.item]


def scores(found: dict[str, Any], test: bf.Measurements, truth: Any, laws: Any) -> dict[str, Any]:
    view = np.repeat([*test.views], [*map(len, test.views.values())])[test.item]
    error = (found["mean"] - test.value) ** 2
    result = {f"RMSE {name}": error[view == name].mean() ** 0.5 for name in test.views}
    Z = found["Z"]
    alike = np.abs(np.nan_to_num(np.corrcoef(Z.T, truth.U.T)[: Z.shape[1], Z.shape[1] :]))
    at, of = linear_sum_assignment(-alike)
    result["correlation"] = alike[at, of].mean()
    if "called" in found:
        hit = np.concatenate([found["called"][name][:, at] for name in test.views])
        true = np.concatenate([truth.V[name][:, of] for name in test.views]) != 0
        result["precision"] = (hit & true).sum() / max(hit.sum(), 1)
        result["recall"] = (hit & true).sum() / true.sum()
    if "inside" in found:
        result["covers"] = found["inside"].mean()
    if (shares := found.get("explained")) is not None:
        each = shares["mean"].drop("all", level="component").groupby("component").max()
        result["in use"] = float((each >= USED).sum())
        normal = [name for name in test.views if laws.get(name, "normal") == "normal"]
        whole = {n: (truth.U @ truth.V[n].T).var(0).mean() for n in normal}
        row = {n: shares.loc[(n, "all")] for n in normal}
        right = [row[n].low <= whole[n] / (whole[n] + 1) <= row[n].high for n in normal]
        result["explained"] = float(np.mean(right))
    return {name: float(x) for name, x in result.items()}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="their number (5)")
    parser.add_argument("--sweeps", type=int, default=1000, help="of each of two chains (1000)")
    parser.add_argument("--fits", nargs="*", help="some of point, VB, Quick, Gibbs, PCA, mofapy2")
    parser.add_argument("--sets", nargs="*", default=[*SETS], choices=[*SETS])
    args = parser.parse_args()
    hold_cores(args.threads)
    where = surroundings()
    seeds, sweeps = (1, 40) if args.quick else (args.seeds, args.sweeps)
    engines = {
        "point": None,
        "VB": bf.VB(),
        "Quick": bf.Quick(),
        "Gibbs": bf.Gibbs(sweeps // 2, sweeps // 2, 2),
    }
    results: dict[str, dict[str, list[dict[str, float]]]] = {}
    for name in args.sets:
        given = SETS[name]
        each = results.setdefault(name, {})
        for seed in range(seeds):
            data, truth = bf.datasets.make_measurements(
                ROWS, rank=TRUE, density=0.2, missing=0.2, absent=0.1, seed=seed, **given
            )
            train, test = bf.split.holdout(data, 0.1, seed=seed)
            every = [*engines, "PCA", *(["mofapy2"] if entry_point else [])]
            for who in args.fits or every:
                begun = time.perf_counter()
                if who in engines:
                    found = ours(engines[who], train, test)
                else:
                    found = pca(train, test) if who == "PCA" else theirs(train, test, given["laws"])
                seconds = {"seconds": time.perf_counter() - begun}
                found |= read(found) if "fit" in found else {}
                got = scores(found, test, truth, given["laws"]) | seconds
                each.setdefault(who, []).append(got)
                print(name, seed, who, {what: round(x, 3) for what, x in got.items()}, flush=True)
    if not entry_point:
        print("mofapy2 is not installed, and is left out")
    rows = [
        {"set": name, "fit": who}
        | {what: f"{np.mean([one[what] for one in found]):.4g}" for what in found[0]}
        for name, each in results.items()
        for who, found in each.items()
    ]
    report("measurements", args, {"where": where, "results": results}, table(rows))


if __name__ == "__main__":
    main()
