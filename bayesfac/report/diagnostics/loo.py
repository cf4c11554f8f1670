"""Leave-one-out scores without refitting, by importance weights 1 / p(cell | draw).

Vehtari, Gelman & Gabry, "Practical Bayesian model evaluation using leave-one-out cross-validation and WAIC",
Statistics and Computing 2017; for samples of cells: Magnusson, Vehtari, Jonasson & Andersen, AISTATS 2020.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from bayesfac.core import checks
from bayesfac.core.data.cards import check_same
from bayesfac.core.errors import BayesfacError
from bayesfac.inference.predictions import pointwise
from bayesfac.inference.predictions.pointwise import Told
from bayesfac.inference.stored_draws import Thinned
from bayesfac.report.diagnostics import psis
from bayesfac.report.diagnostics.elpd import Loo
from bayesfac.report.diagnostics.loo_users import by_user

MEMORY = 2 * 2**30
UNITS = {"Ratings": "rating", "Tensor": "cell", "Tasks": "label"}


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
    draws, data = draws_and_data(fit, data, thin)
    if by == "cell":
        result = by_cell(fit, data, draws, memory, subsample, seed)
    elif subsample is not None:
        raise ValueError(f"Expected subsample=None with by='user', got {subsample!r}")
    else:
        result = by_user(fit, data, draws, memory)
    return replace(result, seconds=time.perf_counter() - begun)


def draws_and_data(fit: Any, data: Any, thin: int = 1) -> tuple[Mapping[str, np.ndarray], Any]:
    """Every `thin`-th draw of a sampler, enough for importance weights, and the checked training data."""
    if fit.is_point:
        raise BayesfacError(
            f"Expected draws, got the point fit {fit.name!r}: fit it with Gibbs or NUTS, or refit it "
            "with fit.kfold(data)"
        )
    if type(fit.engine).__name__ not in ("Gibbs", "NUTS"):
        raise BayesfacError(
            f"Expected draws of the posterior, got those of {type(fit.engine).__name__}'s guide, which "
            "importance weights do not correct here: use Gibbs or NUTS, or refit with fit.kfold(data)"
        )
    length = next(iter(fit.draws.values())).shape[1]
    checks.whole("thin", thin, length, "the draws of a chain")
    draws = Thinned(fit.draws, thin)
    psis.enough(int(np.prod(next(iter(draws.values())).shape[:2])))
    data = fit.method.ready(data, fit.hyper)
    check_same(fit.data, data)
    return draws, data


def cells_of(fit: Any, data: Any) -> tuple[Told, pd.DataFrame, np.ndarray]:
    """The training cells, their labels, and the index of each cell's user or row."""
    query, labels, _ = fit.data.locate(data)
    cells = pointwise.told(fit.method, data, query, fit.data.levels)
    return cells, labels, pd.factorize(labels[fit.data.columns[0]])[0]


def what_is_scored(levels: Any) -> str:
    """The kind of score in words; densities and masses of levels cannot be compared."""
    return "log density" if levels is None else "log mass of the level"


def by_cell(
    fit: Any,
    data: Any,
    draws: Mapping[str, np.ndarray],
    memory: int,
    subsample: int | None,
    seed: int,
) -> Loo:
    """Leave out every cell, or a random sample of the cells."""
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
        elpd[part], whole[part], k[part] = psis.left_out(factor, score, chains)
    table = labels.reset_index(drop=True).assign(elpd=elpd, p_loo=whole - elpd, pareto_k=k)
    return Loo(
        fit.name, table, what_is_scored(fit.data.levels), UNITS[fit.data.kind], "PSIS",
        chains * length, cluster, lpd, at,
    )  # fmt: skip
