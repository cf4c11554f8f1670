"""Settings and a threshold chosen inside a split, in the same way for every method."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import bayesfac as bf

Scores = Callable[[dict[str, Any]], np.ndarray]  # settings -> scores, rows x labels
CUTS = bf.Tuned("ml_knn", threshold=True)  # only its thresholds are used, not the method


def combinations(grid: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Every combination of the values of a grid."""
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def nested(
    grid: Mapping[str, Sequence[Any]],
    inner: tuple[np.ndarray, Scores],
    outer: tuple[np.ndarray, Scores],
    rule: Callable[[np.ndarray], np.ndarray],
    by: Callable[..., float],
    measures: Mapping[str, Callable[..., float]],
) -> dict[str, Any]:
    """Choose settings by `by` on the inner rows, then measure predictions of the outer rows.

    Two choices are made from the same scores: settings for the method's own rule, and settings together
    with one threshold, of 19 that predict from a quarter of the true labels up to four times as many.

    Parameters
    ----------
    inner, outer
        Labels of the rows that are predicted, and a function that computes their scores. No label of the
        outer rows may enter the scores.
    rule
        Scores -> labels by the method's own rule.
    """
    Y, scores = inner
    best: dict[str, tuple[float, dict[str, Any], float | None]] = {}
    for settings in combinations(grid):
        score = scores(settings)
        for cut in CUTS.thresholds(Y, score):
            name = "own rule" if cut is None else "threshold"
            reached = by(Y, rule(score) if cut is None else score >= cut)
            if name not in best or reached > best[name][0]:
                best[name] = (reached, settings, cut)
    Y, scores = outer
    found, known = {}, {}
    for name, (_, settings, cut) in best.items():
        key = str(settings)
        if key not in known:
            known[key] = scores(settings)
        decided = rule(known[key]) if cut is None else known[key] >= cut
        told = {measure: round(float(f(Y, decided)), 4) for measure, f in measures.items()}
        found[name] = told | {"settings": settings, "cut": cut}
    return found


def mean_of(values: Sequence[float]) -> str:
    """Mean ± sd."""
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=len(values) > 1):.3f}"
