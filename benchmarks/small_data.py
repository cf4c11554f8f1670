"""Where methods of this library are not worth their price: few features that are no counts, few ratings.

python benchmarks/small_data.py                writes results/small_data.json

tables    scikit-learn's iris, wine, breast cancer and digits, in two views with half of the columns each, and
          as many clusters as classes: the share of the rows that are right (AC) by k-means, as scikit-learn
          has it, on standardised columns, and by topic models with nothing set; `plsa` and `ltm` take all
          columns as one view. For five seeds: the mean.
ratings   the 50 users and 50 films of MovieLens-100K with the most ratings, of which N ratings are kept at
          random; a fifth is held out. The RMSE of regularised biases of users and items, and of points with
          nothing set. For five seeds: the mean, and the standard error of the difference from biases.
margins   made-up ratings, fewer than 500: the mean absolute error of the level on a fifth that is held out,
          by biases and by margin methods with nothing set, and with the penalty that they had by default
          before (10; pmmmf 50). For three seeds: the mean.
"""

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from default_ratings import biases
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.preprocessing import StandardScaler

import bayesfac as bf

RESULTS = Path(__file__).parent / "results" / "small_data.json"
TOPICS = ("plsa", "ltm", "mvplsa", "concat_ltm", "mggm")
TABLES = {"iris": load_iris, "wine": load_wine, "cancer": load_breast_cancer, "digits": load_digits}
POINTS = ("pmf", "bpmf", "ordinal_mf")
SIZES = (250, 500, 1000, 2000)
MARGINS = {"mmmf": 10.0, "hmf": 10.0, "pmmmf": 50.0, "bmmmf": 10.0}
FEW = (  # users, items, levels, density, noise
    (20, 12, 2, 0.6, 0.0), (20, 12, 5, 0.6, 0.3), (30, 20, 5, 0.5, 0.5), (60, 40, 5, 0.15, 0.3),
    (40, 30, 2, 0.35, 0.3),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore", bf.ConvergenceWarning)
    facts = json.loads(chosen.out.read_text("utf-8")) if chosen.out.exists() else {}
    for part in chosen.parts:
        facts[part] = PARTS[part]()
        print(json.dumps(facts[part], indent=1))
    chosen.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def tables(seeds: int = 5) -> dict[str, dict[str, float]]:
    """The share of rows in the right cluster, by set and method."""
    return {name: table(*load(return_X_y=True), seeds) for name, load in TABLES.items()}


def table(x: np.ndarray, y: np.ndarray, seeds: int) -> dict[str, float]:
    half, K = x.shape[1] // 2, len(np.unique(y))
    found: dict[str, list[float]] = {name: [] for name in ("k-means", *TOPICS)}
    for seed in range(seeds):
        own = KMeans(K, n_init=10, random_state=seed).fit_predict(StandardScaler().fit_transform(x))
        found["k-means"].append(bf.metrics.clustering_accuracy(y, own))
        for name in TOPICS:
            one = name in ("plsa", "ltm")
            views = bf.Views({"all": x} if one else {"left": x[:, :half], "right": x[:, half:]})
            size: dict[str, Any] = {"n_components": K, "seed": seed, "progress": False}
            told = bf.clusters(bf.fit(name, views, **size))["cluster"]
            found[name].append(bf.metrics.clustering_accuracy(y, told))
    return {name: round(float(np.mean(each)), 3) for name, each in found.items()}


def ratings(seeds: int = 5) -> dict[str, dict[str, Any]]:
    """RMSE by the number of ratings: of biases, and of points as differences from it."""
    every = bf.datasets.load("movielens-100k")
    most = [np.argsort(np.bincount(code))[-50:] for code in (every.user, every.item)]
    inside = np.isin(every.user, most[0]) & np.isin(every.item, most[1])
    dense = bf.Ratings(every.take(inside).frame(), levels=5)
    found: dict[str, dict[str, Any]] = {}
    for size in SIZES:
        errors = np.array([rmse(dense, size, seed) for seed in range(seeds)])
        apart = errors[:, 1:] - errors[:, :1]
        row: dict[str, Any] = {"biases": round(float(errors[:, 0].mean()), 3)}
        for name, gap in zip(POINTS, apart.T, strict=True):
            row[name] = f"{gap.mean():+.3f} ± {gap.std(ddof=1) / seeds**0.5:.3f}"
        found[str(size)] = row
    return found


def rmse(dense: bf.Ratings, size: int, seed: int) -> list[float]:
    """RMSE of biases and of each point, for one random part and split."""
    kept = np.random.default_rng(seed).choice(len(dense), size, replace=False)
    train, test = bf.split.holdout(dense.take(np.sort(kept)), 0.2, seed=seed)
    means = [biases(train, test)]
    means += [bf.fit(n, train, seed=seed, progress=False).predict(test).mean for n in POINTS]
    return [float(bf.metrics.rmse(mean, test.value)) for mean in means]


def margins(seeds: int = 3) -> dict[str, dict[str, float]]:
    """Mean absolute error of the level, by set and method."""
    found: dict[str, dict[str, float]] = {}
    for users, items, levels, density, noise in FEW:
        errors: dict[str, list[float]] = {}
        for seed in range(1, seeds + 1):
            shape = users, items, 2, levels, density, seed
            data = bf.datasets.make_ratings(*shape, noise=noise)
            train, test = bf.split.holdout(data, 0.2, seed=seed)
            scale = np.asarray(data.levels)
            near = scale[np.abs(biases(train, test)[:, None] - scale).argmin(1)]
            told = {"biases": near}
            for name, before in MARGINS.items():
                if name == "bmmmf" and levels > 2:
                    continue
                for label, own in ((name, {}), (f"{name}, {before:g}", {"penalty": before})):
                    fit = bf.fit(name, train, n_components=5, progress=False, **own)
                    told[label] = fit.predict(test).level
            for label, level in told.items():
                errors.setdefault(label, []).append(float(np.abs(level - test.value).mean()))
        means = {label: round(float(np.mean(each)), 3) for label, each in errors.items()}
        found[f"{users} x {items}, {levels} levels"] = means
    return found


PARTS = {"tables": tables, "ratings": ratings, "margins": margins}

if __name__ == "__main__":
    main()
