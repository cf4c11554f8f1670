"""Do the engines sample one posterior? A small generated set of rank 3: Gibbs beside NUTS and SVI.

The posterior mean and sd of every probe prediction, compared in Monte Carlo standard errors of both.

    python benchmarks/agreement.py                        # bpmf, 60 x 40, with the SVI guides
    python benchmarks/agreement.py --method gibbs_mmmf    # 40 x 30, NUTS on the model without augmentation
    python benchmarks/agreement.py --method ordinal_mf
"""

import argparse
import warnings
from typing import Any

import arviz_stats as stats
import numpy as np
import pandas as pd

import bayesfac as bf

GUIDES = ("normal", "lowrank", "multivariate", "flow")


def moments(fit: Any) -> pd.DataFrame:
    """Mean, sd and their Monte Carlo errors of each probe prediction."""
    draws = fit.predict(fit.data.probe).draws_of_mean().astype(np.float64)
    columns = {"mean": [], "sd": [], "mean_error": [], "sd_error": []}
    for probe in np.moveaxis(draws, -1, 0):
        spread = (probe - probe.mean()) ** 2
        ess, ess_sd = float(stats.ess(probe)), float(stats.ess(spread))
        columns["mean"].append(probe.mean())
        columns["sd"].append(probe.std())
        columns["mean_error"].append(probe.std() / np.sqrt(ess))
        columns["sd_error"].append(spread.std() / np.sqrt(ess_sd) / (2 * probe.std()))
    return pd.DataFrame(columns)


def gap(name: str, one: Any, other: pd.DataFrame, own: pd.DataFrame) -> dict[str, Any]:
    """Largest and typical distance from the reference, in standard errors of the difference."""
    row: dict[str, Any] = {"engine": name, "seconds": round(one.seconds, 1)}
    for what in ("mean", "sd"):
        error = np.hypot(own[f"{what}_error"], other[f"{what}_error"])
        z = (own[what] - other[what]) / error
        row[f"largest |z| of {what}s"] = round(float(np.abs(z).max()), 2)
    row["rms gap of means / sd"] = round(
        float(np.sqrt(np.mean(((own["mean"] - other["mean"]) / other["sd"]) ** 2))), 3
    )
    row["median ratio of sds"] = round(float(np.median(own["sd"] / other["sd"])), 3)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few draws: a smoke test")
    parser.add_argument("--method", choices=("bpmf", "gibbs_mmmf", "ordinal_mf"), default="bpmf")
    args = parser.parse_args()
    quick, method = args.quick, args.method
    warnings.simplefilter("ignore", bf.ConvergenceWarning)
    if method == "bpmf":
        ratings, _ = bf.datasets.make_gaussian(60, 40, 3, noise=0.5, density=0.4, seed=0)
    else:
        ratings = bf.datasets.make_ratings(40, 30, 3, density=0.5, noise=0.5, seed=0)
    size = {"n_components": 3 if method == "bpmf" else 2}
    many = (200, 400) if quick else (1000, 5_000)
    gibbs = bf.fit(method, ratings, bf.Gibbs(*many, chains=4), **size)
    reference = moments(gibbs)
    nuts = (
        bf.NUTS(100, 100, 2, max_tree_depth=7) if quick else bf.NUTS(500, 1500, 4, max_tree_depth=8)
    )
    rows = []
    runs: dict[str, Any] = {"NUTS": nuts}
    for guide in GUIDES if method == "bpmf" else ():
        flow = guide == "flow"  # ten times dearer per step, and unstable at the others' rate
        steps, rate = (5_000, 1e-3) if flow else (15_000, 1e-2)
        runs[f"SVI, {guide}"] = bf.SVI(1000 if quick else steps, guide, rate, draws=2000)
    for name, engine in runs.items():
        fit = bf.fit(method, ratings, engine, init=gibbs, **size)
        rows.append(gap(name, fit, reference, moments(fit)))
        print(rows[-1], flush=True)
    print(f"\nreference: {gibbs}\n")
    print(pd.DataFrame(rows).to_string(index=False))


if __name__ == "__main__":
    main()
