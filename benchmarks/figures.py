"""The thesis's figures 3.11-3.15 in spirit: rank, training error, time and recovery, MMMF beside HMF.

3.11   test NMAE against d at one lambda each (MovieLens-100K, 80/20)
3.12   test against training NMAE along lambda, d fixed
3.13   seconds against d, the same runs as 3.11
3.15   relative error (FRE) of the whole matrix of the thesis's generator from a share of its cells

    python benchmarks/figures.py            # figures.json and figures.png in results/
"""

import json
import sys
import warnings
from typing import Any

from common import RESULTS, arguments, report, surroundings, table

import bayesfac as bf
from bayesfac.core.files import atomic

METHODS = {"MMMF": ("mmmf", 18.0), "HMF": ("hmf", 12.0)}  # lambda near the best at d = 100
PATH = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
COLOURS = {"MMMF": "#8c510a", "HMF": "#01665e"}


def run(name: str, train: Any, d: int, penalty: float, seed: int = 0) -> Any:
    engine = bf.LBFGS(150, tol=1e-5)
    options = {"n_components": d, "penalty": penalty, "seed": seed, "progress": False}
    options |= {"biases": False} | ({"scale_theta": 10.0} if name == "MMMF" else {})
    return bf.fit(METHODS[name][0], train, engine, **options)


def nmae(fit: Any, part: Any) -> float:
    return bf.metrics.nmae(part.value, fit.predict(part).level, part.levels)


def by_rank(train: Any, test: Any, ranks: list[int]) -> list[dict[str, Any]]:
    rows = []
    for d in ranks:
        for name, (_, penalty) in METHODS.items():
            fit = run(name, train, d, penalty)
            rows.append({"method": name, "d": d, "test": nmae(fit, test), "seconds": fit.seconds})
            print(f"  {rows[-1]}", file=sys.stderr, flush=True)
    return rows


def along_lambda(train: Any, test: Any, d: int) -> list[dict[str, Any]]:
    rows = []
    for name in METHODS:
        for penalty in PATH:
            fit = run(name, train, d, penalty)
            rows.append(
                {
                    "method": name,
                    "lambda": penalty,
                    "training": nmae(fit, train),
                    "test": nmae(fit, test),
                }
            )
            print(f"  {rows[-1]}", file=sys.stderr, flush=True)
    return rows


def recovery(size: int, rank: int, shares: tuple[float, ...]) -> list[dict[str, Any]]:
    """FRE over all cells, lambda the best of a few by held-out zero-one error within the sample."""
    whole = bf.datasets.make_ratings(size, size, rank, density=1.0, seed=0)
    rows = []
    for share in shares:
        part, _ = bf.split.holdout(whole, 1 - share, seed=0) if share < 1 else (whole, None)
        for name, (method, _) in METHODS.items():
            given = {"n_components": rank, "repeats": 1, "progress": False}
            best = bf.path(
                method, part, (0.3, 1.0, 3.0, 10.0), bf.LBFGS(150, tol=1e-4), **given
            ).best
            fit = run(name, part, rank, best)
            error = bf.metrics.fre(whole.value, fit.predict(whole).level)
            rows.append({"method": name, "observed": share, "lambda": best, "FRE": error})
            print(f"  {rows[-1]}", file=sys.stderr, flush=True)
    return rows


def draw(found: dict[str, Any], path: Any) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = [
        ("rank", "d", "test", "Test NMAE", "Rank (fig. 3.11)"),
        ("lambda", "training", "test", "Test NMAE", "Along lambda (fig. 3.12)"),
        ("rank", "d", "seconds", "Seconds per fit", "Time (fig. 3.13)"),
        ("recovery", "observed", "FRE", "FRE of the whole matrix", "Recovery (fig. 3.15)"),
    ]
    names = {
        "d": "Components d",
        "training": "Training NMAE",
        "observed": "Share of cells observed",
    }
    figure, axes = plt.subplots(2, 2, figsize=(9, 7), layout="constrained")
    for ax, (key, x, y, label, title) in zip(axes.flat, panels, strict=True):
        for name in METHODS:
            rows = sorted((r for r in found[key] if r["method"] == name), key=lambda r, x=x: r[x])
            ax.plot(
                [r[x] for r in rows], [r[y] for r in rows], "o-", color=COLOURS[name], label=name
            )
        ax.set(xlabel=names[x], ylabel=label, title=title)
        ax.grid(alpha=0.3)
    axes[0, 0].legend()
    with atomic(path) as part:
        figure.savefig(part, dpi=110, format="png")


def main() -> None:
    args = arguments(__doc__).parse_args()
    warnings.simplefilter("ignore", bf.ConvergenceWarning)  # iterations are limited on purpose
    where = surroundings()
    if args.quick:
        ratings, ranks, d = bf.datasets.make_ratings(60, 50, 3, density=0.5, noise=0.5), [2, 4], 3
        size = (40, 2, (0.4, 1.0))
    else:
        ratings, ranks, d = bf.datasets.load("movielens-100k"), [5, 10, 20, 50, 100], 100
        size = (300, 5, (0.1, 0.2, 0.4, 0.7, 1.0))
    train, test = bf.split.holdout(ratings, 0.2, seed=0)
    found = {
        "rank": by_rank(train, test, ranks),
        "lambda": along_lambda(train, test, d),
        "recovery": recovery(*size),
    }
    text = "\n\n".join(
        table([{k: _text(v) for k, v in row.items()} for row in rows]) for rows in found.values()
    )
    settings = {"penalties": {name: p for name, (_, p) in METHODS.items()}, "threads": args.threads}
    report("figures", args, {"where": where, "settings": settings, "results": found}, text)
    if args.out or not args.quick:
        draw(found, (args.out or RESULTS / "figures.json").with_suffix(".png"))


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else json.dumps(value).strip('"')


if __name__ == "__main__":
    main()
