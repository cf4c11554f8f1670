"""Settings that say how outcomes are read: in which unit the model has them, and where labels are cut."""

from typing import Any

import jax.numpy as jnp

from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.laws.decisions import HALF


def unit_of(hyper: Any, query: Query | Grid) -> tuple[Any, Any]:
    """What the model subtracts from the values of these cells, and what it then divides them by."""
    units = getattr(hyper, "units", ())
    return tuple(jnp.asarray(units).T[:, query.col]) if units else (0.0, 1.0)


def in_models_unit(hyper: Any) -> Any:
    """Settings with which `predict` has the unit and the variance of the model."""
    own = {"units": (), "label_sd": None}
    return hyper._replace(**{name: own[name] for name in own if name in hyper._fields})


def cut_of(hyper: Any) -> float:
    """The cut of these settings; one half if they have none."""
    cut = getattr(hyper, "cut", None)
    return HALF if cut is None else cut
