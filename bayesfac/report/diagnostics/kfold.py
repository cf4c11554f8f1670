"""Leave-one-out by refitting to all folds but one: slower than `loo`, without weights that could fail."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from bayesfac.core.calls import Shared, finished_calls
from bayesfac.core.data.cards import check_same
from bayesfac.core.data.cells import Query
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.errors import BayesfacError, noted
from bayesfac.core.method import portable
from bayesfac.inference.predictions import pointwise
from bayesfac.inference.result import bar
from bayesfac.report.diagnostics.elpd import Loo
from bayesfac.report.diagnostics.loo import MEMORY, UNITS, cells_of, what_is_scored
from bayesfac.split import k_fold


def kfold(
    whole: Any, data: Any, k: int, seed: int, jobs: int | None, refit: Callable[..., Any]
) -> Loo:
    """See `Fit.kfold`; `refit` is `bayesfac.fit`."""
    if not isinstance(data, Ratings):
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
        whole.name, table, what_is_scored(whole.data.levels), UNITS["Ratings"], f"{k} folds", draws,
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
    if part.partial:  # Ctrl-C: its scores would pass for those of a whole fit
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


def _log_means(fit: Any, cells: pointwise.Told) -> np.ndarray:
    return pointwise.log_means(fit.method, fit.hyper, fit._as_draws(), cells, MEMORY)


def _with_own_folder(engine: Any, number: int) -> Any:
    """The engine; if it writes draws, each fold has a folder of its own."""
    if getattr(engine, "folder", None) is None:
        return engine
    return replace(engine, folder=f"{engine.folder}/fold-{number}")
