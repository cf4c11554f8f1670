"""Leave-one-out by refitting, a fold at a time: dear, and without importance weights that could fail."""

import time
from dataclasses import replace
from typing import Any

import numpy as np

from bayesfac.api import Fit, fit
from bayesfac.core.data.cards import check_same
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.errors import BayesfacError
from bayesfac.inference import pointwise
from bayesfac.inference.result import bar
from bayesfac.report.diagnostics.elpd import Loo
from bayesfac.report.diagnostics.loo import MEMORY, UNITS, cells_of, what_is_scored
from bayesfac.split import k_fold


def kfold(whole: Fit, data: Any, k: int = 10, seed: int = 0, memory: int = MEMORY) -> Loo:
    """See `Fit.kfold`."""
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
            part = fit(
                whole.method, train, _elsewhere(whole.engine, number), seed=whole.seed,
                progress=False, **whole.hyper._asdict(),
            )  # fmt: skip
            at = np.isin(code, test.user.astype(np.int64) * data.n_items + test.item)
            given = (part.method, part.hyper, part._as_draws(), cells.take(at), memory)
            elpd[at] = pointwise.log_means(*given)
            shown.update(1)
    seen = pointwise.log_means(whole.method, whole.hyper, whole._as_draws(), cells, memory)
    table = labels.assign(elpd=elpd, p_loo=seen - elpd, pareto_k=np.nan)
    draws = int(np.prod(next(iter(whole._as_draws().values())).shape[:2]))
    notes = (
        f"Each of the {k} fits lacked a whole fold: a little less is known than without one cell.",
    )
    return Loo(
        whole.name, table, what_is_scored(whole.data.levels), UNITS["Ratings"], f"{k} folds", draws,
        cluster, seconds=time.perf_counter() - begun, notes=notes,
    )  # fmt: skip


def _elsewhere(engine: Any, number: int) -> Any:
    """The same engine; where it writes draws, every fold writes its own."""
    if getattr(engine, "folder", None) is None:
        return engine
    return replace(engine, folder=f"{engine.folder}/fold-{number}")
