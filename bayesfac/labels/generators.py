"""Made-up rows with several labels."""

from collections.abc import Mapping

import numpy as np
import scipy.sparse as sp

from bayesfac.core import checks
from bayesfac.datasets.generators import check_sizes
from bayesfac.labels.data.tasks import Tasks


def make_tasks(
    n_rows: int = 120,
    tasks: int = 3,
    features: Mapping[str, int] | None = None,
    n_labels: int = 4,
    n_topics: int = 6,
    labelled: float = 0.5,
    seed: int = 0,
) -> tuple[Tasks, np.ndarray]:
    """Tasks whose rows are mixtures of topics, and the labels of all rows.

    A topic determines features of every view and labels; these are the same in all tasks, but each task
    prefers other topics. A random share `labelled` of the rows has labels in the data, and at least one row
    of every task; the array has the labels of all rows.

    Examples
    --------
    >>> data, truth = make_tasks(30, 2, {"words": 20}, n_labels=3)
    >>> data.tasks.tolist(), truth.shape, int(data.labelled.sum())
    (['task0', 'task1'], (30, 3), 15)
    """
    features = {"words": 60, "links": 30} if features is None else dict(features)
    check_sizes(n_rows=n_rows, tasks=tasks, n_labels=n_labels, n_topics=n_topics, **features)
    if not 0 < labelled <= 1:
        raise ValueError(f"Expected a share of labelled rows between 0 and 1, got {labelled}")
    rng = checks.generator(seed)
    taste = rng.dirichlet(np.full(n_topics, 1.0), size=tasks)
    task = np.arange(n_rows) % tasks
    mix = np.stack([rng.dirichlet(0.3 * n_topics * taste[t] + 0.02) for t in task])
    views = {}
    for name, m in features.items():
        words = rng.dirichlet(np.full(m, 0.1), size=n_topics)
        views[name] = sp.csr_matrix(rng.poisson(40 * mix @ words).astype(float))
    # with one or two labels a share of 2 / n_labels would make every label true in every row
    implies = rng.random((n_topics, n_labels)) < (2 / n_labels if n_labels > 2 else 0.5)
    number = np.arange(n_topics)
    implies[number, number % n_labels] = (n_labels > 1) | (number % 2 == 0)
    truth = (mix @ implies > 0.5).astype(float)
    place = rng.permutation(n_rows)
    hidden = place >= round(labelled * n_rows)
    for own in (np.flatnonzero(task == t) for t in np.unique(task)):
        hidden[own[place[own].argmin()]] = False
    known = np.where(hidden[:, None], np.nan, truth)
    data = Tasks(views, known, task=[f"task{t}" for t in task])
    return data, truth[data.rows.to_numpy()]
