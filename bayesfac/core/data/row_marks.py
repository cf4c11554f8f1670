"""Decide whether the rows of a query are training rows; labels that are only numbers do not show this."""

from typing import Any

import numpy as np
import pandas as pd

from bayesfac.core.data.reading import plain, positions_of

NEAR = 1e-4  # relative: features that were written to a file and read again are the same
LABELLED = "other counts of the same rows are known by labels, bf.Views(..., rows=labels)"
NEW = "fit.fold_in(data).predict(data) predicts new rows from their features"


def marks(data: Any) -> np.ndarray:
    """A number for each row, which its features decide: their sum with fixed random weights.

    The features of all views count side by side, so that `concatenated()` and `pooled()` change nothing. A
    part that `split.holdout` made of counts has a second line, with the marks of all counts.
    """
    own, whole = _weighted(data)[0], getattr(data.host, "marks", None)
    return np.stack([own] if whole is None else [own, whole])


def check_rows(known: pd.Index, marked: np.ndarray | None, query: Any) -> None:
    """Refuse rows that are not those of training; `marked` are the marks of training, None if not known.

    Rows of `Views` with labels of their own may have other counts than in training.
    """
    at = positions_of(known, query.rows)
    if (at < 0).any():
        lost = plain(query.rows[int(np.argmin(at))])
        raise ValueError(f"Expected rows of training, got {lost!r}, which is none of them: {NEW}")
    numbered, thinned = isinstance(query.rows, pd.RangeIndex), not query.site
    if marked is None or (thinned and not numbered):
        return
    now, size = marks(query)[:, None], _weighted(query)[1]
    then = np.atleast_2d(marked)[:, at]
    away = (np.abs(now - then) > NEAR * (size + np.abs(then))).all((0, 1))
    if away.any():
        row = plain(query.rows[int(np.argmax(away))])
        hint = f"; {LABELLED}" if thinned else ""
        raise ValueError(
            f"Expected the rows of training, got other features in row {row!r} than training had there: "
            f"{NEW}{hint}"
        )


def _weighted(data: Any) -> tuple[np.ndarray, np.ndarray]:
    """The sums of the features of every row, and those of their sizes, with random weights."""
    widths = [len(data.features[view]) for view in data.names]
    weights = np.split(np.random.default_rng(0).random(sum(widths)), np.cumsum(widths)[:-1])
    total, size = np.zeros(data.n_rows), np.zeros(data.n_rows)
    for view, own in zip(data.names, weights, strict=True):
        row, col = (np.asarray(code) for code in (data.cells[view].row, data.cells[view].col))
        part = np.asarray(data.y[view], np.float64) * own[col]
        total += np.bincount(row, part, data.n_rows)
        size += np.bincount(row, np.abs(part), data.n_rows)
    return total, size
