"""skeleton_labels: one sweep computed by hand, and what the paper claims."""

import jax
import numpy as np

from bayesfac.core.method import REGISTRY
from bayesfac.labels.data.tasks import LABELS

METHOD = REGISTRY["skeleton_labels"]


def labels_by_task(data):
    """The labels of the labelled rows of every task, as dense tables."""
    y = data[LABELS].toarray()
    return [y[data.labelled & (data.task == t)] for t in range(data.n_tasks)]


def golden(method):
    """One sweep on the example, task by task."""
    data, h = method.example(jax.random.key(3))
    p = method.init(jax.random.key(4), data, h)
    tables = labels_by_task(data)
    rest = sum((y - d).sum(0) for y, d in zip(tables, np.asarray(p.d), strict=True))
    b = h.weight * rest / (h.weight * sum(map(len, tables)) + h.ridge)
    d = [h.weight * (y - b).sum(0) / (h.weight * len(y) + h.penalty) for y in tables]
    new = method.solver.update(p, data, h)
    np.testing.assert_allclose(new.b, b, rtol=1e-10)
    np.testing.assert_allclose(new.d, d, rtol=1e-10)


def test_golden_step():
    golden(METHOD)


def test_tasks_are_shrunk_towards_their_common_share():
    """The larger the penalty, the nearer is every task to the share over all tasks."""
    data, h = METHOD.example(jax.random.key(0))
    spread = []
    for penalty in (0.1, 1.0, 10.0):
        p = METHOD.init(jax.random.key(1), data, h)
        for _ in range(200):
            p = METHOD.solver.update(p, data, h._replace(penalty=penalty))
        spread.append(np.abs(p.d).max())
    assert spread[0] > spread[1] > spread[2] > 0
