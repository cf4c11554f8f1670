"""Factorizations by `bf.factorization`, beside `bpmf`: a random tenth of the ratings is held out.

sweeps    ms a Gibbs sweep of each model, all in turn in one process, and its ratio to `bpmf`'s
scores    held-out RMSE, log score and coverage of 90 % intervals of 2 x 300 draws, with nothing set but the
          number of components. `Bernoulli` and `NegativeBinomial` have other outcomes, and are not scored
"""

from typing import Any

import numpy as np
from common import arguments, hold_cores, report, surroundings, table
from common.sweeps import in_turn

import bayesfac as bf

PARTS = ("sweeps", "scores")
N = bf.NormalWishart()
MODELS: dict[str, Any] = {
    "bpmf": "bpmf",
    "normal": bf.factorization(N),
    "normal, biases": bf.factorization(N, biases=True),
    "relevance": bf.factorization(bf.Relevance()),
    "spherical, biases": bf.factorization(bf.Spherical(), biases=True),
    "spike and slab": bf.factorization(N, bf.SpikeAndSlab()),
    "horseshoe": bf.factorization(N, bf.Horseshoe()),
    "noise of items": bf.factorization(N, observed=bf.Normal(per="item")),
    "noise of users": bf.factorization(N, observed=bf.Normal(per="user")),
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


def sweeps(
    names: list[str], data: bf.Ratings, K: int, repeats: int, length: int
) -> dict[str, dict[str, float]]:
    """ms a sweep of these models."""
    given = {"scale_user": 0.3, "scale_item": 0.3}
    models = {
        name: (
            model,
            outcomes(name, data),
            {"n_components": K} | (given if "spherical" in name else {}),
        )
        for name, model in MODELS.items()
        if name in names
    }
    return in_turn(models, repeats, length)


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
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--data", default="movielens-100k", help="a data set (movielens-100k)")
    parser.add_argument("--components", type=int, default=10, help="their number (10)")
    parser.add_argument("--repeats", type=int, default=3, help="of each timing (3)")
    args = parser.parse_args()
    hold_cores(args.threads)
    where = surroundings()
    data = bf.datasets.load("ratings" if args.quick else args.data)
    K = 3 if args.quick else args.components
    found: dict[str, dict[str, Any]] = {name: {} for name in MODELS if name in args.models}
    if "sweeps" in args.parts:
        timed = sweeps(
            args.models, data, K, 1 if args.quick else args.repeats, 5 if args.quick else 50
        )
        found = {name: found[name] | each for name, each in timed.items()}
    if "scores" in args.parts:
        for name in [name for name in SCORED if name in args.models]:
            found[name] |= score(name, data, K, 20 if args.quick else 300)
    columns = dict.fromkeys(what for each in found.values() for what in each)
    rows = [
        {"model": name} | {what: f"{each[what]:.4g}" if what in each else "" for what in columns}
        for name, each in found.items()
    ]
    report("compositions", args, {"where": where, "results": found}, table(rows))


if __name__ == "__main__":
    main()
