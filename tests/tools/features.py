"""Methods that read features of users and items, with an example that has some."""

from dataclasses import replace

import jax
import numpy as np
import scipy.sparse as sp

from bayesfac.core.data.ratings import Ratings
from bayesfac.core.method import REGISTRY

SETTINGS = {"ridge_shape": 3.0, "ridge_rate": 1.0}


def with_features(name, sparse=False):
    """The method, whose example has three features of users and two of items beside its ratings."""
    method = REGISTRY[name]

    def example(key):
        data, hyper = method.example(key)
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        tables = {
            "user": rng.normal(size=(data.n_users, 3)),
            "item": rng.normal(size=(data.n_items, 2)),
        }
        kind = sp.csr_matrix if sparse else np.asarray
        own = {f"{side}_features": kind(table) for side, table in tables.items()}
        data = Ratings(data, levels=data.levels, **own)
        return data, method.prepare(data, hyper._replace(**SETTINGS))

    return replace(method, example=example)
