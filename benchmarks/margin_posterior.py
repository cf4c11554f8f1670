"""Whether the chains of Gibbs MMMF and ordinal MF agree on real ratings, and what draws add to a point.

MovieLens-100K, random 90/10, seed 0: R-hat of the probe predictions over 4 chains, and a comparison of the
draws, the mode of the same joint, and BPMF on the held-out ratings.

    python benchmarks/margin_posterior.py
"""

import argparse
import warnings

import bayesfac as bf


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="few draws on made-up data: a smoke test"
    )
    parser.add_argument("--components", type=int, default=10, metavar="K")
    parser.add_argument(
        "--sweeps", type=int, default=400, metavar="N", help="warm-up, and draws (400)"
    )
    parser.add_argument(
        "--thin",
        type=int,
        default=1,
        metavar="N",
        help="keep every Nth of N times as many draws (1)",
    )
    known = ["gibbs_mmmf", "ordinal_mf", "bpmf"]
    parser.add_argument("--methods", nargs="+", default=known, choices=known)
    args = parser.parse_args()
    warnings.simplefilter("ignore", bf.ConvergenceWarning)
    if args.quick:
        ratings, args.sweeps = bf.datasets.make_ratings(40, 30, 2, density=0.5, noise=0.5), 20
        args.components = 2
    else:
        ratings = bf.datasets.load("movielens-100k")
    train, test = bf.split.holdout(ratings, 0.1, seed=0)
    engine = bf.Gibbs(args.sweeps, args.sweeps, chains=4, thin=args.thin)
    given = {"n_components": args.components, "progress": False}
    fits = {"gibbs_mmmf, mode": bf.fit("gibbs_mmmf", train, cost=0.3, **given)}
    for name in args.methods:
        more = {"cost": 0.3} if name == "gibbs_mmmf" else {}
        fits[f"{name}, Gibbs"] = fit = bf.fit(name, train, engine, **given, **more)
        print(f"\n{fit}\n{fit.diagnostics()}", flush=True)
    print(f"\n{bf.compare(fits, test, about='random 90/10, seed 0')}")


if __name__ == "__main__":
    main()
