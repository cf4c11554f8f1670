"""MovieLens-100K, random 90/10, seed 0: BPMF's joint mode beside its Gibbs draws.

python benchmarks/movielens.py            the figures of the changelog
"""

import argparse
import warnings

import numpy as np

import bayesfac as bf


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--components", type=int, default=16)
    parser.add_argument("--warmup", type=int, default=200)
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--html", help="also write the report here")
    chosen = parser.parse_args()
    warnings.simplefilter("default")
    train, test = bf.split.holdout(bf.datasets.load("movielens-100k"), 0.1, seed=0)
    size = {"n_components": chosen.components}
    engine = bf.Gibbs(chosen.warmup, chosen.draws, chains=2)
    fits = {
        "pmf, ALS": bf.fit("pmf", train, **size),
        "bpmf, MAP": bf.fit("bpmf", train, **size),
        "bpmf, MAP, alpha = 2": bf.fit("bpmf", train, alpha=2.0, **size),
        "bpmf, Gibbs, alpha = 2": bf.fit("bpmf", train, engine, alpha=2.0, **size),
        "bpmf, Gibbs": bf.fit("bpmf", train, engine, **size),
    }
    compared = bf.compare(fits, test, about="random 90/10, seed 0")
    print(compared)
    probes = fits["bpmf, Gibbs"].diagnostics().table
    r_hat = probes.loc[probes["quantity"] == "prediction", "r_hat"].max()
    print(f"\nlargest R-hat of {np.sum(probes['quantity'] == 'prediction')} probes: {r_hat:.3f}")
    if chosen.html:
        print("report:", compared.to_html(chosen.html))


if __name__ == "__main__":
    main()
