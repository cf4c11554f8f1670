"""What a point does not know: films of MovieLens-100K of which a fit has seen few ratings.

python benchmarks/new_films.py [--seen 3 10 30]     writes results/new_films.json, docs/images/new_films.png

The fits have few random ratings of 200 films, and all ratings of the others. Asked is the mean of all other
ratings of each film, by the people who gave them, with a 90 % interval. A point has the noise alone; draws
also have the uncertainty of what they know of the film.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bayesfac as bf

RESULTS = Path(__file__).parent / "results" / "new_films.json"
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "new_films.png"
FILMS, SHOWN = 200, 40  # films, and those of them that the picture shows
LEAST = 80  # the ratings that each has
FITS = {"point": None, "posterior": bf.Gibbs(500, 500, 4, over=0.7)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seen", type=int, nargs="+", default=[3, 10, 30])
    parser.add_argument("--components", type=int, default=8)
    chosen = parser.parse_args()
    found = {seen: intervals(seen, chosen.components) for seen in chosen.seen}
    facts = {str(seen): {name: summary(t) for name, t in by.items()} for seen, by in found.items()}
    print(json.dumps(facts, indent=1))
    RESULTS.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    drawn(found[chosen.seen[0]], facts).savefig(PICTURE, dpi=110)


def intervals(seen: int, components: int) -> dict[str, pd.DataFrame]:
    """For every fit a table of the films: the interval of a film's mean, and the mean that was observed."""
    ratings = bf.datasets.load("movielens-100k")
    hidden = others(ratings.frame(), seen)
    train, test = ratings.take(~hidden), ratings.take(hidden)
    return {
        name: of_films(bf.fit("bpmf", train, engine, n_components=components), test)
        for name, engine in FITS.items()
    }


def others(frame: pd.DataFrame, seen: int) -> np.ndarray:
    """Whether a rating is one of the films' that the fits do not see."""
    rng = np.random.default_rng(0)
    many = frame.groupby("item")["item"].transform("size")
    films = rng.choice(frame.loc[many >= LEAST, "item"].unique(), FILMS, replace=False)
    mixed = frame.iloc[rng.permutation(len(frame))]
    place = mixed.groupby("item").cumcount().sort_index().to_numpy()
    return frame["item"].isin(films).to_numpy() & (place >= seen)


def of_films(fit: Any, test: bf.Ratings) -> pd.DataFrame:
    """The 90 % interval of the mean of a film's ratings: draws of its expectation, and noise."""
    told, rng = fit.predict(test), np.random.default_rng(0)
    means, noise = told.draws_of_mean().reshape(-1, len(test)), told.sd**2 - told.sd_mean**2
    rows = []
    for film, at in test.frame().reset_index(drop=True).groupby("item").indices.items():
        centre = np.resize(means[:, at].mean(1), 4000)
        drawn = rng.normal(centre, noise[at].sum() ** 0.5 / len(at))
        rows.append((film, *np.quantile(drawn, [0.05, 0.5, 0.95]), test.value[at].mean()))
    return pd.DataFrame(rows, columns=["film", "low", "middle", "high", "observed"])


def summary(table: pd.DataFrame) -> dict[str, float]:
    inside = table["observed"].between(table["low"], table["high"])
    width = table["high"] - table["low"]
    error = table["middle"] - table["observed"]
    found = {"covers 90 %": inside.mean(), "width": width.mean(), "RMSE": (error**2).mean() ** 0.5}
    return {name: round(float(value), 3) for name, value in found.items()}


def drawn(tables: dict[str, pd.DataFrame], facts: dict[str, Any]) -> plt.Figure:
    """Intervals of some films, and how many hold the observed mean by the number of ratings seen."""
    plt.style.use("bayesfac.style")
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), width_ratios=[2.2, 1])
    order = tables["posterior"].iloc[:: FILMS // SHOWN].sort_values("observed").index
    for place, (name, table) in enumerate(tables.items()):
        some, x = table.loc[order], np.arange(len(order)) + 0.4 * place
        left.vlines(
            x, some["low"], some["high"], f"C{1 - place}", lw=3, label=f"90 % by the {name}"
        )
    seen = [int(number) for number in facts]
    left.plot(x - 0.2, some["observed"], "k.", ms=5, label="mean of all other ratings")
    left.set(xticks=[], xlabel=f"films of which the fits saw {seen[0]} ratings", ylabel="stars")
    left.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1))
    for place, name in enumerate(tables):
        share = [100 * facts[str(n)][name]["covers 90 %"] for n in seen]
        right.plot(range(len(seen)), share, f"C{1 - place}o-", label=name)
    right.axhline(90, color="0.4", ls=":")
    right.set(xticks=range(len(seen)), xticklabels=seen, ylim=(0, 100))
    right.set(xlabel="ratings seen of a film", title="films inside their interval, %")
    return figure


if __name__ == "__main__":
    main()
