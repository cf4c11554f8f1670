"""Which of several fits is believed: log scores of the same cells, differences, and stacking weights."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

DRAWS, BLOCK = 4000, 250  # draws of the Bayesian bootstrap, in all and at a time
STEPS, GAP = (
    5000,
    1e-7,
)  # stacking: steps at most; distance from the best at the end, in nats a cell
SCORES = ("ordinal log score", "log score")


def believed(scores: Mapping[str, Any]) -> pd.DataFrame:
    """Compare the log scores of several fits on the same held-out cells; the best fit comes first.

    elpd             the sum of the log scores (expected log predictive density); higher is better
    difference       the difference from the best fit, with the standard deviation and the 90 % interval of
                     its posterior: what it would be for other users or rows of the same kind
    best             the posterior probability that no other fit has a higher elpd
    stacking weight  the weight in the mixture of all predictions with the highest log score (Yao, Vehtari,
                     Simpson & Gelman 2018). A fit that adds nothing to the others has weight 0, even if it
                     is nearly as good as the best one

    The posterior comes from the Bayesian bootstrap (Rubin 1981): users or rows have random weights, drawn
    from a flat Dirichlet distribution with a fixed seed.

    Parameters
    ----------
    scores : mapping
        Name -> scores of a fit, as in `Comparison.scores`. Fits without a log score are left out.

    Examples
    --------
    >>> from types import SimpleNamespace as Made
    >>> import numpy as np
    >>> def made(log_score):
    ...     return Made(losses={"log score": -log_score}, cluster=np.arange(4), weights=np.ones(4))
    >>> good, bad = made(np.log([0.5, 0.4, 0.5, 0.4])), made(np.log([0.1, 0.2, 0.1, 0.1]))
    >>> believed({"bad": bad, "good": good})["stacking weight"].round(3).to_dict()
    {'good': 1.0, 'bad': 0.0}
    """
    known = {name: each for name, each in scores.items() if _loss(each) is not None}
    if not known:
        return pd.DataFrame()
    first = next(iter(known.values()))
    each = np.stack([-_loss(one) for one in known.values()])
    order = np.argsort(-(each @ first.weights), kind="stable")
    names, each = [list(known)[k] for k in order], each[order]
    return pd.DataFrame(_columns(each, first), index=pd.Index(names, name="fit"))


def _loss(scores: Any) -> Any:
    return next((scores.losses[name] for name in SCORES if name in scores.losses), None)


def _columns(each: np.ndarray, like: Any) -> dict[str, Any]:
    """The columns of the table; `each` has a row for each fit, the best first."""
    total = each @ like.weights
    sums = np.stack([np.bincount(like.cluster, like.weights * row) for row in each])
    drawn = bootstrap(sums, np.bincount(like.cluster, like.weights))
    with np.errstate(invalid="ignore"):  # probability 0 of a cell: an elpd of minus infinity
        difference, away = total - total[0], drawn - drawn[:1]
        low, high = np.quantile(away, [0.05, 0.95], axis=1)
        sd, best = away.std(1), (drawn >= drawn.max(0)).mean(1)
    low, high = (np.where(difference == -np.inf, -np.inf, end) for end in (low, high))
    if sums.shape[1] == 1:  # one user does not tell how users differ
        sd, low, high, best = np.full((4, len(each)), np.nan)
    return {
        "elpd": total,
        "difference": difference,
        "sd of difference": sd,
        "5 %": low,
        "95 %": high,
        "best": best,
        "stacking weight": stacking(each, like.weights),
    }


def clustered(e: np.ndarray, cluster: np.ndarray) -> float:
    """Standard error of a sum whose terms are independent between clusters, not within.

    The result is NaN for a single cluster, which does not show how clusters differ.
    """
    each = np.bincount(cluster, e)[np.unique(cluster)]
    return float(np.sqrt(len(each) * each.var(ddof=1))) if len(each) > 1 else np.nan


def bootstrap(sums: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Fits x draws: the elpd of all cells, with random weights of the clusters.

    `sums` has the log scores of each fit, summed by cluster, and `sizes` the number of cells.
    """
    rng, parts = np.random.default_rng(0), []
    # apart, because some processors warn of infinity in a product
    impossible = np.isneginf(sums)
    possible = np.where(impossible, 0.0, sums)
    for _ in range(DRAWS // BLOCK):
        weight = rng.exponential(size=(len(sizes), BLOCK))
        parts.append(possible @ weight / (sizes @ weight) * sizes.sum())
    drawn = np.concatenate(parts, axis=1)
    drawn[impossible.any(1)] = -np.inf
    return drawn


def stacking(each: np.ndarray | Sequence[Any], weights: Any = None) -> np.ndarray:
    """The weights w that maximise the mean of log sum_k w_k exp(each[k]), by EM.

    A step multiplies every weight by a factor. No mixture can be better than the present one by more than
    the log of the largest factor. The search ends when this number is below GAP.

    >>> stacking([[-1.0, -3.0], [-3.0, -1.0]]).tolist()
    [0.5, 0.5]
    """
    each = np.asarray(each, float)
    cell = np.ones(each.shape[1]) if weights is None else np.asarray(weights, float)
    known = np.isfinite(each.max(0))  # cells with probability 0 in all fits say nothing of w
    if not known.any():
        return np.full(len(each), np.nan)
    each, cell = each[:, known], cell[known] / cell[known].sum()
    likely, w = np.exp(each - each.max(0)), np.full(len(each), 1 / len(each))
    for _ in range(STEPS):
        gain = likely @ (cell / (w @ likely))
        w = w * gain
        if np.log(gain.max()) < GAP:
            break
    return w / w.sum()
