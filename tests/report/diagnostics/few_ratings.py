"""A few ratings with one factor, and the settings of their fits, for tests of leave-one-out scores."""

import numpy as np

import bayesfac as bf

GIBBS = bf.Gibbs(warmup=100, draws=400, chains=2)
PMF = {"n_components": 1, "noise": 0.7, "scale_user": 0.8, "scale_item": 0.8, "offset": 3.0}
PMF["biases"] = False


def few(users=8, items=6, seed=0, **kind):
    rng = np.random.default_rng(seed)
    u, v = rng.normal(size=(users, 1)), rng.normal(size=(items, 1))
    table = 3 + u @ v.T + 0.7 * rng.normal(size=(users, items))
    if kind:
        table = np.clip(np.rint(table), 1, kind["levels"])
    table[rng.random(table.shape) < 0.2] = np.nan
    return bf.Ratings(table, **kind)
