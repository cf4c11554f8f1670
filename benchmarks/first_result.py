"""MovieLens-100K, random 90/10, seed 0: the result at the head of README.md, by README's own settings.

python benchmarks/first_result.py [--html report.html]        writes results/first_result.json
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import bayesfac as bf

RESULTS = Path(__file__).parent / "results" / "first_result.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--html", help="also write the report here")
    parser.add_argument("--components", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=500)
    parser.add_argument("--draws", type=int, default=1500)
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--over", type=float, default=0.7)
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    warnings.simplefilter("default")
    begun = time.process_time()
    train, test = bf.split.holdout(bf.datasets.load("movielens-100k"), 0.1, seed=0)
    size = {"n_components": chosen.components, "progress": False}
    point = bf.fit("bpmf", train, **size)
    engine = bf.Gibbs(chosen.warmup, chosen.draws, chosen.chains, over=chosen.over)
    draws = bf.fit("bpmf", train, engine, init=point, **size)
    compared = bf.compare({"point": point, "Gibbs": draws}, test, "random 90/10, seed 0", train)
    facts: dict[str, Any] = {
        name: scored(fit, test, compared.scores[name].summary())
        for name, fit in compared.fits.items()
    }
    facts["verdict"] = str(compared.diagnoses["Gibbs"]).splitlines()
    facts["CPU seconds"] = round(time.process_time() - begun)
    print(f"{compared}\n{json.dumps(facts, indent=1)}")
    chosen.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    if chosen.html:
        print("report:", compared.to_html(chosen.html))


def scored(fit: Any, test: bf.Ratings, summary: dict[str, float]) -> dict[str, float]:
    """RMSE and coverage as the comparison has them, and the RMSE of the tenth with the smallest sd."""
    found = {name: summary[name] for name in ("RMSE", "covers 90 %")}
    if not fit.is_point:  # a point has the same sd everywhere
        predicted = fit.predict(test)
        square = (predicted.mean - test.value) ** 2
        surest = np.argsort(predicted.sd_mean, kind="stable")[: len(test) // 10]
        found["RMSE of the surest tenth"] = square[surest].mean() ** 0.5
    return {name: round(float(value), 4) for name, value in found.items()}


if __name__ == "__main__":
    main()
