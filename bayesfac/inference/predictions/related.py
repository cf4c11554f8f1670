"""Predictions of the ratings of a fit, or of another matrix that shares factors with them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from bayesfac.core.data.cards import Card
from bayesfac.core.data.linked.relations import ENDS, RATINGS
from bayesfac.core.data.row_marks import check_rows
from bayesfac.core.errors import BayesfacError, check_names
from bayesfac.inference.predictions.predict import Prediction


def predict(fit: Any, query: Any, matrix: str | None, tables: Mapping[str, Any]) -> Prediction:
    """The predictive distribution of each cell of the query; see `Fit.predict`."""
    card, hyper, ends = fit.data, fit.hyper, None
    if isinstance(query, card.form) and not query.listed:
        check_rows(card.coords["row"], card.marks, query)
    if matrix is not None:
        card, hyper, ends = _of_matrix(fit, matrix)
        query = _renamed(query, ends)
    located, labels, flagged = card.locate(query, tables)
    labels = labels if ends is None else labels.set_axis(ends, axis=1)
    rest = located, labels, flagged, fit.seed, card.levels
    known = fit.recalibration if matrix in (None, RATINGS) else None
    return Prediction(fit.method, hyper, fit._as_draws(), *rest, recalibration=known)


def _cells(card: Card, kind: str) -> np.ndarray:
    """The number of cells of each label in all matrices; labels of other kinds than these two have some."""
    return card.cells(kind) if kind in ENDS else np.ones(len(card.coords[kind]), int)


def _of_matrix(fit: Any, matrix: str) -> tuple[Card, Any, list[str]]:
    """A card and settings in which this matrix replaces the ratings, and the kinds of its labels."""
    known = {m[0]: m for m in getattr(fit.hyper, "matrices", None) or ()}
    if not known:
        raise BayesfacError(
            f"Expected a fit of several matrices for matrix=, got a fit of {fit.name}"
        )
    check_names("matrix", (matrix,), known)
    _, row, col, _, _, levels = known[matrix]
    if matrix == RATINGS:  # the description of a matrix has levels only if its law is probit
        levels = fit.data.levels
    coords = {"user": fit.data.coords[row], "item": fit.data.coords[col]}
    rows, cols = (_cells(fit.data, kind) for kind in (row, col))
    own = {"coords": coords, "levels": levels, "row_counts": rows, "col_counts": cols}
    card = replace(fit.data, **own, elsewhere={}, encodings={})
    return card, fit.hyper._replace(predicts=matrix), [row, col]


def _renamed(query: Any, ends: list[str]) -> Any:
    """The query with its columns named as those of ratings."""
    if not isinstance(query, Mapping | pd.DataFrame):
        return query
    if not set(ends) <= set(query):
        raise ValueError(f"Expected a query with columns {ends}, got {list(query)}")
    return tuple(query[end] for end in ends)
