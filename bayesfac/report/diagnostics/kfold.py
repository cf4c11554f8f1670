"""Leave-one-out by refitting to all folds but one: slower than `loo`, without weights that could fail."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bayesfac.core.data.cards import check_same
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.errors import BayesfacError
from bayesfac.inference.predictions import pointwise
from bayesfac.inference.result import bar
from bayesfac.report.diagnostics.elpd import Loo
from bayesfac.report.diagnostics.loo import MEMORY, UNITS, cells_of, what_is_scored
from bayesfac.split import k_fold


def kfold(whole: Any, data: Any, k: int, seed: int, refit: Callable[..., Any]) -> Loo:
    """See `Fit.kfold`; `refit` is `bayesfac.fit`."""
    if not isinstance(data, Ratings):
        raise BayesfacError(
            f"Expected ratings to divide into folds, got {type(data).__name__}: bf.evaluate holds out rows"
        )
    check_same(whole.data, data)
    begun = time.perf_counter()
    cells, labels, cluster = cells_of(whole, data)
    elpd, code = np.empty(len(data)), data.user.astype(np.int64) * data.n_items + data.item
    with bar(True, k, f"{whole.name}: folds") as shown:
        for number, (train, test) in enumerate(k_fold(data, k, seed=seed)):
            part = refit(
                whole.method, train, _with_own_folder(whole.engine, number), seed=whole.seed,
                progress=False, **whole.hyper._asdict(),
            )  # fmt: skip
            at = np.isin(code, test.user.astype(np.int64) * data.n_items + test.item)
            elpd[at] = _log_means(part, cells.take(at))
            shown.update(1)
    table = labels.assign(elpd=elpd, p_loo=_log_means(whole, cells) - elpd, pareto_k=np.nan)
    draws = int(np.prod(next(iter(whole._as_draws().values())).shape[:2]))
    notes = (f"Each of the {k} fits lacked a whole fold, so it knows less than without one cell.",)
    return Loo(
        whole.name, table, what_is_scored(whole.data.levels), UNITS["Ratings"], f"{k} folds", draws,
        cluster, seconds=time.perf_counter() - begun, notes=notes,
    )  # fmt: skip


def _log_means(fit: Any, cells: pointwise.Told) -> np.ndarray:
    return pointwise.log_means(fit.method, fit.hyper, fit._as_draws(), cells, MEMORY)


def _with_own_folder(engine: Any, number: int) -> Any:
    """The engine; if it writes draws, each fold has a folder of its own."""
    if getattr(engine, "folder", None) is None:
        return engine
    return replace(engine, folder=f"{engine.folder}/fold-{number}")
