"""Factorizations by `bf.factorization`, beside `bpmf`: a random tenth of the ratings is held out.

sweeps    ms a Gibbs sweep of each law, as a ratio to `bpmf`'s in the same process: differences of long and
          short runs of one chain, all in turn, the median of the repeats
scores    held-out RMSE, log score and coverage of 90 % intervals of 2 x 300 draws, with nothing set but the
          number of components. `Bernoulli` and `NegativeBinomial` have other outcomes, and are not scored
"""

import statistics
import time
from typing import Any

import numpy as np
from common import arguments, hold_cores, report, surroundings, table

import bayesfac as bf

PARTS = ("sweeps", "scores")
N = bf.NormalWishart()
MODELS: dict[str, Any] = {
    "bpmf": "bpmf",
    "normal": bf.factorization(N),
    "normal, biases": bf.factorization(N, biases=True),
    "relevance": bf.factorization(bf.Relevance()),
    "spherical, biases": bf.factorization(bf.Spherical(), biases=True),
    "Student's t": bf.factorization(N, observed=bf.StudentT()),
    "ordinal": bf.factorization(N, observed=bf.Ordinal(thresholds="user")),
    "ordinal, biases": bf.factorization(N, observed=bf.Ordinal(thresholds="user"), biases=True),
    "0 and 1": bf.factorization(N, observed=bf.Bernoulli()),
    "counts": bf.factorization(N, observed=bf.NegativeBinomial()),
}
SCORED = [name for name in MODELS if name not in ("0 and 1", "counts")]


def outcomes(name: str, data: bf.Ratings) -> bf.Ratings:
    """The ratings as the law takes them: levels of at least four as ones, or the levels as counts."""
    frame = data.frame()
    if name == "0 and 1":
        frame["rating"] = 1.0 * (frame["rating"] >= 4)
    return bf.Ratings(frame) if name in ("0 and 1", "counts") else data


def sweep(name: str, data: bf.Ratings, K: int, count: int) -> float:
    """Seconds of one Gibbs fit of so many sweeps after the first."""
    engine = bf.Gibbs(1, count, 1)
    begun = time.perf_counter()
    settings = {"scale_user": 0.3, "scale_item": 0.3} if "spherical" in name else {}
    bf.fit(MODELS[name], data, engine, n_components=K, progress=False, **settings)
    return time.perf_counter() - begun


def sweeps(data: bf.Ratings, K: int, repeats: int, length: int) -> dict[str, float]:
    """ms a sweep of every model; each program is compiled before the first timing."""
    held = {name: outcomes(name, data) for name in MODELS}
    for name in MODELS:
        sweep(name, held[name], K, length), sweep(name, held[name], K, 3 * length)
    found: dict[str, list[float]] = {name: [] for name in MODELS}
    for _ in range(repeats):
        for name in MODELS:
            short, long = (sweep(name, held[name], K, n) for n in (length, 3 * length))
            found[name].append((long - short) / (2 * length))
    return {name: 1000 * statistics.median(each) for name, each in found.items()}


def score(name: str, data: bf.Ratings, K: int, draws: int) -> dict[str, float]:
    """Held-out scores of two chains."""
    train, test = bf.split.holdout(data, 0.1, seed=0)
    engine = bf.Gibbs(draws, draws, 2)
    fit = bf.fit(MODELS[name], train, engine, n_components=K, progress=False)
    asked = fit.predict(test)
    return {
        "RMSE": bf.metrics.rmse(asked.mean, test.value),
        "log score": float(np.mean(asked.scores(test.value)["log_score"])),
        "90 % hold": bf.metrics.coverage(*asked.interval(0.9), test.value),
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--data", default="movielens-100k", help="a data set (movielens-100k)")
    parser.add_argument("--components", type=int, default=10, help="their number (10)")
    parser.add_argument("--repeats", type=int, default=3, help="of each timing (3)")
    args = parser.parse_args()
    hold_cores(args.threads)
    where = surroundings()
    data = bf.datasets.load("ratings" if args.quick else args.data)
    K = 3 if args.quick else args.components
    found: dict[str, dict[str, Any]] = {name: {} for name in MODELS}
    if "sweeps" in args.parts:
        ms = sweeps(data, K, 1 if args.quick else args.repeats, 5 if args.quick else 50)
        for name, each in ms.items():
            found[name] |= {"ms a sweep": each, "times bpmf": each / ms["bpmf"]}
    if "scores" in args.parts:
        for name in SCORED:
            found[name] |= score(name, data, K, 20 if args.quick else 300)
    columns = dict.fromkeys(what for each in found.values() for what in each)
    rows = [
        {"model": name} | {what: f"{each[what]:.4g}" if what in each else "" for what in columns}
        for name, each in found.items()
    ]
    report("compositions", args, {"where": where, "results": found}, table(rows))


if __name__ == "__main__":
    main()
