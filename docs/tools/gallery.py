"""Draw docs/images/plot_*.png, the pictures of docs/gallery.md.

python docs/tools/gallery.py
"""

from pathlib import Path
from typing import Any

import numpy as np

import bayesfac as bf

IMAGES = Path(__file__).parents[1] / "images"


def main() -> None:
    """Fit small data sets and save every plot."""
    train, test = bf.split.holdout(bf.datasets.load("uneven-ratings"), 0.2, seed=0)
    point = bf.fit("bpmf", train, n_components=4)
    draws = bf.fit("bpmf", train, bf.Gibbs(warmup=200, draws=400), n_components=4, init=point)
    pixels = bf.Views({"pixels": bf.datasets.load("digits")["pixels"][:300]})
    topics = bf.fit("plsa", pixels, n_components=8)
    save("coverage", draws.plot.coverage(test))
    save("trace", draws.plot.trace())
    save("levels", draws.plot.levels(test))
    save("point_beside", point.plot.point_beside(draws))
    save("factors", draws.plot.factors())
    user = train.users[np.argmax(train.per_row("user") > 12)]
    save("explain", draws.plot.explain(train, user, train.items[0]))
    save("clusters", topics.plot.clusters())


def save(name: str, axes: Any) -> None:
    """Save the figure of these axes."""
    np.ravel(axes)[0].figure.savefig(IMAGES / f"plot_{name}.png", dpi=72)


if __name__ == "__main__":
    main()
