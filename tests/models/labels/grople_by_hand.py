"""What the tests of GroPLE share: data, a point, and the formulas in NumPy."""

import jax
import numpy as np

from bayesfac.core.method import settle
from bayesfac.labels.data.tasks import Tasks
from bayesfac.labels.models.labels.grople import METHOD

NAN = np.nan


def table(n=24, D=5, L=6, unlabelled=4, seed=0):
    """Features of both signs, labels that follow them, the last rows without."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, D)) * (rng.random((n, D)) < 0.8)
    y = (x @ rng.normal(size=(D, L)) + rng.normal(size=(n, L)) > 0.3).astype(float)
    y[n - unlabelled :] = NAN
    return x, y


SETTINGS = {
    "n_components": 4, "groups": (0, 0, 1, 2, 1, 1), "ridge": 0.05, "sparsity": 0.7, "coupling": 0.4,
    "alpha": 0.3, "beta": 0.6,
}  # fmt: skip


def begun(seed=0, shaken=0.3, **more):
    """Data, settings and a point at which nothing is at rest."""
    x, y = table()
    data = Tasks(x, y)
    h = settle(METHOD, data, {**SETTINGS, **more})
    p = METHOD.init(jax.random.key(seed), data, h)
    rng = np.random.default_rng(seed)
    return data, h, jax.tree.map(lambda a: a + shaken * rng.normal(size=a.shape), p)


def ended(p, data, h, sweeps):
    step = jax.jit(lambda p: METHOD.solver.update(p, data, h))
    for _ in range(sweeps):
        p = step(p)
    return p


def plain(p, data):
    """U, V, Z, the features, 2Y - 1 and which rows have labels, in NumPy."""
    (Z,), x = p.Z.values(), data["x"].toarray()
    return *map(np.asarray, (p.U, p.V, Z)), x, 2 * data["labels"].toarray() - 1, data.labelled


def apart(U):
    R = 1 - np.corrcoef(U.T)
    np.fill_diagonal(R, 0)
    return R


def lengths_of(V, groups):
    """|V[group, column]|, groups x columns."""
    groups = np.asarray(groups)
    return np.array([np.sqrt((V[groups == k] ** 2).sum(0)) for k in range(groups.max() + 1)])


def by_hand(p, data, h):
    U, V, Z, x, T, known = plain(p, data)
    J = ((T - U @ V.T)[known] ** 2).sum() + h.ridge * (U[known] ** 2).sum()
    J += h.sparsity * lengths_of(V, h.groups).sum()
    whole = ((x @ Z - U) ** 2).sum() + h.beta * np.abs(Z).sum() + h.gamma * (Z**2).sum()
    return J + h.coupling * (whole + h.alpha * np.trace(apart(U[known]) @ Z.T @ Z))
