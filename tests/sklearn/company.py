"""Two groups of rows that everything tells apart: as ratings, counts, features and labels."""

import numpy as np
import pandas as pd

import bayesfac as bf
import bayesfac.sklearn as estimators

FEW = bf.FixedPoint(max_iter=30)
rng = np.random.default_rng(0)
GROUP = np.arange(24) % 2
PEOPLE = [f"p{i}" for i in range(24)]
R = 3 * (2 * GROUP[:, None] - 1) * (2 * (np.arange(6) % 2) - 1) + rng.normal(size=(24, 6))
R[rng.random(R.shape) < 0.2] = np.nan
RATINGS = pd.DataFrame(R, PEOPLE, list("abcdef"))
COUNTS = rng.poisson(1 + 8.0 * (GROUP[:, None] == np.arange(6) % 2)).astype(float)
X = np.hstack([rng.normal(size=(24, 3)) + 2 * GROUP[:, None], np.ones((24, 1))])
Y = np.stack([GROUP, 1 - GROUP, (X[:, 0] > 1) * 1], 1)

FITTED = {
    "pmf": {"n_components": 2},
    "plsa": {"n_components": 2},
    "leml": {"n_components": 2},
}


def made(name, **more):
    return getattr(estimators, name)(**FITTED[name], engine=FEW, random_state=3, **more)


def data_of(name):
    return {"pmf": (R, None), "plsa": (COUNTS, None), "leml": (X, Y)}[name]
