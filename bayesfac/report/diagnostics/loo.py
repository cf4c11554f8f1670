"""Leave-one-out scores without refitting, by importance weights 1 / p(cell | draw); or by refitting.

Vehtari, Gelman & Gabry, "Practical Bayesian model evaluation using leave-one-out cross-validation and WAIC",
Statistics and Computing 2017; for samples of cells: Magnusson, Vehtari, Jonasson & Andersen, AISTATS 2020.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd

from bayesfac.core import checks
from bayesfac.core.calls import Shared, finished_calls
from bayesfac.core.data.cards import check_same
from bayesfac.core.data.cells import Query
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.errors import BayesfacError, noted
from bayesfac.core.method import portable
from bayesfac.inference.predictions import pointwise
from bayesfac.inference.predictions.pointwise import Told
from bayesfac.inference.result import bar
from bayesfac.inference.stored_draws import Thinned
from bayesfac.report.diagnostics import psis
from bayesfac.report.diagnostics.elpd import Loo
from bayesfac.report.diagnostics.loo_users import by_user
from bayesfac.split import k_fold

MEMORY = 2 * 2**30


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
        at = np.sort(checks.generator(seed).permutation(len(cells))[:subsample])
        lpd = pointwise.log_means(fit.method, fit.hyper, draws, cells, memory)
        cells, labels, cluster = cells.take(at), labels.iloc[at], cluster[at]
    chains, length = next(iter(draws.values())).shape[:2]
    elpd, whole, k = np.empty((3, len(cells)))
    for part, factor, score in pointwise.by_block(fit.method, fit.hyper, draws, cells, memory):
        elpd[part], whole[part], k[part] = psis.left_out(factor, score, chains)
    table = labels.reset_index(drop=True).assign(elpd=elpd, p_loo=whole - elpd, pareto_k=k)
    return Loo(
        fit.name, table, what_is_scored(fit.data.levels), fit.data.form.unit, "PSIS",
        chains * length, cluster, lpd, at,
    )  # fmt: skip


# -- refits: slower, without weights that could fail ---------------------------------------------
def kfold(
    whole: Any, data: Any, k: int, seed: int, jobs: int | None, refit: Callable[..., Any]
) -> Loo:
    """See `Fit.kfold`; `refit` is `bayesfac.fit`."""
    if not data.by_pair:
        raise BayesfacError(
            f"Expected ratings to divide into folds, got {type(data).__name__}: bf.evaluate holds out rows"
        )
    check_same(whole.data, data)
    begun = time.perf_counter()
    cells, labels, cluster = cells_of(whole, data)
    shared = Shared((data, tuple(cells.query)))
    again = partial(
        refit, portable(whole.method), seed=whole.seed, progress=False, **whole.hyper._asdict()
    )
    calls = [
        (_fold, shared, number, k, seed, again, _with_own_folder(whole.engine, number))
        for number in range(k)
    ]
    elpd = np.empty(len(data))
    with bar(True, k, f"{whole.name}: folds") as shown:
        for at, scores in finished_calls(calls, jobs):
            elpd[at] = scores
            shown.update(1)
    table = labels.assign(elpd=elpd, p_loo=_log_means(whole, cells) - elpd, pareto_k=np.nan)
    draws = int(np.prod(next(iter(whole._as_draws().values())).shape[:2]))
    notes = (f"Each of the {k} fits lacked a whole fold, so it knows less than without one cell.",)
    return Loo(
        whole.name, table, what_is_scored(whole.data.levels), data.unit, f"{k} folds", draws,
        cluster, seconds=time.perf_counter() - begun, notes=notes,
    )  # fmt: skip


def _fold(
    shared: tuple[Ratings, tuple], number: int, k: int, seed: int, again: Callable[..., Any], engine: Any
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """The cells of one fold, and their log scores by a fit to all others."""
    data, query = shared
    train, test = next(islice(k_fold(data, k, seed=seed), number, None))
    with noted(f"in fold {number + 1} of {k}"):
        part = again(data=train, engine=engine)
    if part.partial:  # Ctrl-C: the scores of a part are not those of a whole fit
        raise KeyboardInterrupt(
            f"interrupted during fold {number + 1} of {k}: there are no scores of all cells"
        )
    code = data.user.astype(np.int64) * data.n_items + data.item
    at = np.isin(code, test.user.astype(np.int64) * data.n_items + test.item)
    # a label that has no rating outside the fold is predicted from the prior; where there are features, only
    # its draws know them
    located = Query(*query) if part.data.encodings else part.data.locate(data)[0]
    cells = pointwise.told(part.method, data, located, part.data.levels)
    with noted(f"in fold {number + 1} of {k}"):
        return at, _log_means(part, cells.take(at))


def _log_means(fit: Any, cells: Told) -> np.ndarray:
    return pointwise.log_means(fit.method, fit.hyper, fit._as_draws(), cells, MEMORY)


def _with_own_folder(engine: Any, number: int) -> Any:
    """The engine; if it writes draws, each fold has a folder of its own."""
    if getattr(engine, "folder", None) is None:
        return engine
    return replace(engine, folder=f"{engine.folder}/fold-{number}")
