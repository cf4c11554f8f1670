"""Leave one out without refitting: importance weights say what the posterior would be without a cell.

Vehtari, Gelman & Gabry, "Practical Bayesian model evaluation using leave-one-out cross-validation and WAIC",
Statistics and Computing 2017; of a sample of cells: Magnusson, Vehtari, Jonasson & Andersen, AISTATS 2020.
"""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from bayesfac.core import checks
from bayesfac.core.data.cards import COLUMNS, check_same
from bayesfac.core.errors import BayesfacError
from bayesfac.inference import pointwise
from bayesfac.inference.pointwise import Told
from bayesfac.inference.stored_draws import Thinned
from bayesfac.report.diagnostics import psis
from bayesfac.report.diagnostics.elpd import Loo

MEMORY = 2 * 2**30
NEAR = 2**19  # numbers that are smoothed at a time: what is made of them stays near the processor
WORK = 16  # arrays of that size, which together are to be no larger than the block
UNITS = {"Ratings": "rating", "Tasks": "label"}


def loo(
    fit: Any,
    data: Any,
    *,
    by: str = "cell",
    memory: int = MEMORY,
    subsample: int | None = None,
    seed: int = 0,
    thin: int = 1,
) -> Loo:
    """See `Fit.loo`."""
    if by not in ("cell", "user"):
        raise ValueError(f"Expected by='cell' or by='user', got {by!r}")
    begun = time.perf_counter()
    draws = sampled(fit, thin)
    psis.enough(int(np.prod(next(iter(draws.values())).shape[:2])))
    data = fit.method.ready(data, fit.hyper)
    check_same(fit.data, data)
    if by == "user":
        if subsample is not None:
            raise ValueError("Expected subsample=None with by='user', got a number of cells")
        from bayesfac.report.diagnostics.loo_users import by_user

        return by_user(fit, data, draws, memory, begun)
    return by_cell(fit, data, draws, memory, subsample, seed, begun)


def sampled(fit: Any, thin: int = 1) -> Mapping[str, np.ndarray]:
    """The draws of a sampler, every `thin`-th; others have no weights that would lead to a posterior."""
    if fit.is_point:
        raise BayesfacError(
            f"Expected draws, got the point fit {fit.name!r}: fit it with Gibbs or NUTS, or refit it "
            "with fit.kfold(data)"
        )
    if type(fit.engine).__name__ not in ("Gibbs", "NUTS"):
        raise BayesfacError(
            f"Expected draws of the posterior, got those of {type(fit.engine).__name__}'s guide, which "
            "importance weights do not correct here: Gibbs or NUTS, or refit with fit.kfold(data)"
        )
    length = next(iter(fit.draws.values())).shape[1]
    checks.whole("thin", thin, length, "the draws of a chain")
    return Thinned(fit.draws, thin)


def cells_of(fit: Any, data: Any) -> tuple[Told, pd.DataFrame, np.ndarray]:
    """The training cells, their labels, and whose each of them is."""
    query, labels, _ = fit.data.locate(data)
    cells = pointwise.told(fit.method, data, query, fit.data.levels)
    return cells, labels, pd.factorize(labels[COLUMNS[fit.data.kind][0]])[0]


def what_is_scored(levels: Any) -> str:
    """In words; a density and a mass cannot be compared."""
    return "log density" if levels is None else "log mass of the level"


def by_cell(
    fit: Any, data: Any, draws: Mapping[str, np.ndarray], memory: int, subsample: int | None,
    seed: int, begun: float,
) -> Loo:  # fmt: skip
    """Every cell, or a random sample of them."""
    pointwise.refuse_entangled(fit.method, data)
    cells, labels, cluster = cells_of(fit, data)
    at, lpd = None, None
    if subsample is not None:
        checks.whole("subsample", subsample, len(cells), "all cells")
        at = np.sort(np.random.default_rng(seed).permutation(len(cells))[:subsample])
        lpd = pointwise.log_means(fit.method, fit.hyper, draws, cells, memory)
        cells, labels, cluster = cells.take(at), labels.iloc[at], cluster[at]
    chains, length = next(iter(draws.values())).shape[:2]
    elpd, whole, k = np.empty((3, len(cells)))
    for part, factor, score in pointwise.by_block(fit.method, fit.hyper, draws, cells, memory):
        elpd[part], whole[part], k[part] = left_out(factor, score, chains)
    table = labels.reset_index(drop=True).assign(elpd=elpd, p_loo=whole - elpd, pareto_k=k)
    return Loo(
        fit.name, table, what_is_scored(fit.data.levels), UNITS[fit.data.kind], "PSIS",
        chains * length, cluster, lpd, at, time.perf_counter() - begun,
    )  # fmt: skip


def left_out(
    factor: np.ndarray, score: np.ndarray, chains: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each cell (cells x draws): the log score when it is left out, when it is not, and Pareto's k.

    Without the cell a draw counts as 1 / its factor. The score is averaged, be it the factor or another.
    """
    if not np.isfinite(factor).all():
        cell, draw = np.argwhere(~np.isfinite(factor))[0]
        raise BayesfacError(
            f"Expected finite log likelihoods, got {factor[cell, draw]} in draw {draw} of a cell"
        )
    cells, total = factor.shape
    found = np.empty((3, cells))
    few = max(1, min(NEAR // total, cells // WORK))
    for part in (slice(first, first + few) for first in range(0, cells, few)):
        told, scored = (np.array(table[part], float, order="C") for table in (factor, score))
        log_weight, k = psis.smooth(-told, psis.efficiency(told, chains))
        elpd = pointwise.log_sum(log_weight + scored)
        found[:, part] = elpd, pointwise.log_sum(scored) - np.log(total), k
    elpd, whole, k = found
    return elpd, whole, k
