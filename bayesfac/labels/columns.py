"""How many columns of a sparse representation each task uses."""

import numpy as np
import pandas as pd

from bayesfac.core.data.reading import plain, same_labels
from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import Method, Permutation, gauge_of
from bayesfac.fits.fitted import Fitted
from bayesfac.fits.membership import named
from bayesfac.labels.data.tasks import Tasks


def columns_on(fit: Fitted, data: Tasks, below: float = 1e-3) -> pd.DataFrame:
    """How many columns of a sparse representation each task uses, and how certain the fit is of this count.

    The contribution of column r to a task is |F_r|^2, summed over the rows of the task, times |B_r|^2, summed
    over all blocks. This product does not change if the scales of F and B change. A column is off for a task
    if its share of all contributions is less than `below`. The order of the columns is arbitrary, but the
    count of the columns in use is not.

    Parameters
    ----------
    fit : Fit
        A point or draws of `heres`.
    data : Tasks
        The training data, because a fit does not store the tasks of its rows.
    below : float
        A column is on for a task if its share of the contributions is at least this number.

    Returns
    -------
    DataFrame
        One line for each task, one for columns that `some` task uses, and one for columns that `every` task
        uses. The columns are `on`, the count averaged over draws, and for draws `low` and `high`, the 5 and
        95 % quantiles of the count.

    Examples
    --------
    >>> import bayesfac as bf
    >>> data, _ = bf.datasets.make_tasks(40, 2, seed=0)
    >>> point = bf.fit("heres", data, bf.FixedPoint(tol=1e-3), n_components=6, progress=False)
    >>> bf.columns_on(point, data).columns.tolist()
    ['on']
    """
    if not _has_columns_of_tasks(fit.method):
        raise BayesfacError(
            f"Expected a fit whose tasks switch columns off ({named(_has_columns_of_tasks)}), "
            f"got {fit.name}"
        )
    if not 0 < below < 1:
        raise ValueError(f"Expected a share between 0 and 1, got below={below}")
    if not isinstance(data, Tasks) or not same_labels(data.rows, fit.data.coords["row"]):
        what = f"{data.n_rows} others" if isinstance(data, Tasks) else type(data).__name__
        raise ValueError(
            f"Expected the Tasks of {fit.data.shape[0]} rows that {fit.name} was fitted to, got {what}"
        )
    draws = fit._as_draws()
    bases = [np.asarray(value) for site, value in draws.items() if site.startswith("B.")]
    size = np.sum([np.square(B).sum(-2, dtype=np.float64) for B in bases], 0)
    F = np.asarray(draws["F"])
    counts: list[np.ndarray] = []
    for at in data.bounds:
        part = np.square(F[..., at, :]).sum(-2, dtype=np.float64) * size
        counts.append(part > below * part.sum(-1, keepdims=True))
    on = np.stack([*counts, np.any(counts, 0), np.all(counts, 0)]).sum(-1)
    tasks = [plain(task) for task in data.tasks]
    index = pd.Index([*tasks, "some", "every"], name="task")
    flat = on.reshape(len(on), -1)
    if fit.is_point:
        return pd.DataFrame({"on": flat[:, 0]}, index)
    low, high = np.quantile(flat, (0.05, 0.95), axis=1)
    return pd.DataFrame({"on": flat.mean(1), "low": low, "high": high}, index)


def _has_columns_of_tasks(method: Method) -> bool:
    """Whether the method has factors F of the rows and B of the blocks, free up to a relabelling only."""
    rows_and_blocks = {"F": ("row", "component"), "B": ("feature.{key}", "component")}
    if method.data is not Tasks or not rows_and_blocks.items() <= method.axes.dims.items():
        return False
    return any(isinstance(g, Permutation) and "F" in g.axes for g in gauge_of(method, ("F",)))
