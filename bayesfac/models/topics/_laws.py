"""The variational laws of topic models: Dirichlet rows, see `core/laws/dirichlet_rows.py`."""

from typing import Any

import jax
import jax.numpy as jnp

from bayesfac.core.data.views import Views
from bayesfac.core.laws.dirichlet_rows import flat, record
from bayesfac.core.math import inner


def words(p: Any, data: Views) -> tuple[jax.Array, jax.Array]:
    """P(w | x) of the only view's cells, and their counts."""
    (cells,), (y,) = data.cells.values(), data.y.values()
    return inner(p.A, p.C.T, cells), y


def words_of_views(p: Any, data: Views) -> tuple[jax.Array, jax.Array]:
    """P(w | x, t) of the cells of all views, and their counts."""
    views = data.cells.items()
    found = [inner(p.A, (p.B[name] @ p.C[name]).T, cells) for name, cells in views]
    return jnp.concatenate(found), jnp.concatenate([data.y[name] for name, _ in views])


ONE_VIEW = record(words, flat(lambda hyper: {"A": hyper.a, "C": hyper.c}))
VIEWS = record(words_of_views, flat(lambda hyper: {"A": hyper.a, "B": hyper.b, "C": hyper.c}))
