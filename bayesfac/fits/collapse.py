"""Points at which the factors have no effect on the predictions."""

from typing import Any

import jax
import numpy as np

from bayesfac.core.data.cards import Card
from bayesfac.core.data.cells import Query, codes_of, narrowed, padded, query_of
from bayesfac.core.method import COLLAPSED, Method
from bayesfac.inference.result import program

# settings that can be so strong that the minimum lies at zero, where every start ends
WEAKER = {"penalty": "a smaller", "sparsity": "a smaller", "beta": "a smaller", "cost": "a larger"}
LEAST = 1e-3  # smallest share of the variance of the data that an effect of factors explains
SAME = 1e-3  # relative difference of two profiles that are one


def remarks(method: Method, params: Any, hyper: Any, card: Card, data: Any) -> list[str]:
    """A remark if all columns, or all rows, have the same predictions at the probe cells.

    Each probe cell is compared with a cell of the same row and with a cell of the same column. Both are
    needed, because predictions from thresholds or intercepts alone vary along one axis only. For views the
    profiles of two rows are compared, because counts vary with the totals of rows and columns.
    """
    query, labels, _ = card.locate(card.probe)
    row, col = np.asarray(query.row), np.asarray(query.col)
    if not card.form.site:  # the counts of a row share their total
        view = labels["view"].to_numpy()
        at = np.argsort(view, kind="stable")
        pairs = np.stack([at[:-1], at[1:]], 1)
        same = pairs[view[pairs[:, 0]] == view[pairs[:, 1]]]  # neighbouring cells of one view
        several = getattr(hyper, "n_components", 2) > 1  # one component has one profile by design
        alike = several and len(same) > 0 and _one_profile(method, params, hyper, row, col, same)
        what = "features have the same shares in all rows" if alike else ""
    else:
        what = _without_effect(method, params, hyper, card, data, row, col)
    if not what:
        return []
    strong = [f"take {how} {name}, " for name, how in WEAKER.items() if getattr(hyper, name, None)]
    few = "take more components, " if getattr(hyper, "n_components", 0) == 1 else ""
    advice = f"{''.join(strong)}{few}start from other values (init=, seed=), or sample with Gibbs or NUTS"
    return [f"{COLLAPSED}the factors have no effect on predictions, {what}; {advice}"]


def _without_effect(
    method: Method, params: Any, hyper: Any, card: Card, data: Any, row: np.ndarray, col: np.ndarray
) -> str:
    """Which cells have the same predictions, in words; empty if predictions vary along both axes."""
    limit = LEAST**0.5 * _spread(card, data)
    here = _predicted(method, params, hyper, row, col)
    moved = np.roll(np.arange(len(row)), 1)
    code = codes_of(Query(row, col))
    copies = data.same_columns()
    for number, axis in reversed(list(enumerate(card.columns))):
        other = code.copy()
        other[:, number] = code[moved, number]
        changed = code[:, number] != other[:, number]
        query: Any = query_of(other)
        gap = (here - _predicted(method, params, hyper, query.row, query.col))[changed]
        if number == 1 and copies:  # equal labels have equal predictions
            continue
        if len(gap) and np.sqrt((gap**2).mean() / 2) < limit:
            return f"which are nearly the same for all {axis}s"
    return ""


def _one_profile(
    method: Method, params: Any, hyper: Any, row: np.ndarray, col: np.ndarray, pair: np.ndarray
) -> bool:
    """Whether p(i, j) p(i', j') = p(i, j') p(i', j) for pairs of probe cells."""
    one, two = pair.T
    a, b, c, d = (
        _predicted(method, params, hyper, row[i], col[j])
        for i, j in ((one, one), (two, two), (one, two), (two, one))
    )
    scale = np.abs(a * b) + np.abs(c * d)
    kept = (row[one] != row[two]) & (col[one] != col[two]) & (scale > 0)
    gap = (a * b - c * d)[kept] / scale[kept]
    return bool(len(gap)) and bool(np.sqrt((gap**2).mean()) < LEAST)


def _predicted(
    method: Method, params: Any, hyper: Any, row: np.ndarray, col: np.ndarray
) -> np.ndarray:
    query = narrowed(Query(row, col))
    found = program(_scores, None, method, hyper)(params, padded(query))
    return np.asarray(found, np.float64)[..., : len(row)]


def _scores(method: Method, hyper: Any, params: Any, query: Query) -> jax.Array:
    outcome = method.predict(params, query, hyper)
    return getattr(outcome, "score", outcome.mean)


def _spread(card: Card, data: Any) -> float:
    """The standard deviation of ratings, or of counts or known labels with their zeros."""
    if data.implicit:  # of what the method makes of them: `wrmf` predicts preferences
        values, size = data.y, float(np.prod(data.shape))
    elif data.listed:
        return card.summary["sd"]
    else:
        values, size = data.y.get(data.site.removeprefix("view."), 0.0), float(max(1, len(data)))
    y = np.asarray(values, np.float64)
    mean, square = (float(np.nansum(power)) / size for power in (y, y**2))
    return max(square - mean**2, 0.0) ** 0.5
