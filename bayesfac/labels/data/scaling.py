"""Scale features: columns are divided by their spread, dense columns are centred, and a constant is added.

The spread of a column is the root of: the sum of (x - mean)^2, divided by the number of its stored cells. For
a column without zeros this is the standard deviation. For a sparse column it is near the size of the
values that are not zero, so that rare words do not become large. A column with more stored cells than
zeros is centred, which makes no sparse table dense. All scales are computed from the training rows. They are
stored with the fit and used for new rows.

Labels that are not 0 and 1 are numbers in a unit of the user. `units` says how they become numbers of mean 0
and standard deviation 1, to which penalties and noise belong.
"""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pandas as pd
import scipy.sparse as sp

from bayesfac.core.data.cards import Scale
from bayesfac.labels.data.pieces import CONSTANT
from bayesfac.labels.data.tasks import LABELS, Tasks

Units = tuple[tuple[float, float], ...]  # of every label what is subtracted, and divided into it
SPREAD = 1e-6  # a spread below this share of the mean is the rounding of a constant column
DENSE = 0.5  # share of stored cells above which a column is centred


def scaled(
    data: Tasks,
    constant: float = 0.0,
    parts: bool = False,
    above_noise: bool = False,
    labels: Units = (),
) -> Tasks:
    """The data with scaled views, by the rows of the data itself; `data.host.scales` has what was done.

    `parts` splits columns with negative cells into positive and negative parts. `above_noise` multiplies the
    constant by 1 + (d / n)^1/2 for n rows of length d^1/2, that of d scaled features: no direction of noise
    is longer, so that a representation in few columns, which keeps the longest directions, keeps the
    constant. `labels` are the `units` of the labels. Data that are scaled already are returned as they are.

    Examples
    --------
    >>> data = Tasks([[1000.0, 0], [3000.0, 5], [2000.0, 0]], [[1], [0], [1]])
    >>> scaled(data, constant=1.0)["x"].toarray().round(2).tolist()
    [[-1.22, 0.0, 1.0], [1.22, 1.22, 1.0], [0.0, 0.0, 1.0]]
    """
    if data.host.scales:
        return data
    found = {name: _scale(data, name, constant, parts, above_noise) for name in data.names}
    if labels:
        centre, spread = np.transpose(labels)
        found[LABELS] = Scale(centre, spread, np.zeros(0, int), 0.0)
    return rescaled(data, found)


def _scale(
    data: Tasks, name: str, constant: float, parts: bool, above_noise: bool = False
) -> Scale:
    table, n = sp.csc_matrix(data[name][_rows(data, name)]), int(_rows(data, name).sum())
    stored = np.diff(table.indptr)
    mean = np.asarray(table.sum(0)).ravel() / max(1, n)
    away = table.copy()
    away.data -= np.repeat(mean, stored)
    square = np.asarray(away.power(2).sum(0)).ravel() + (n - stored) * mean**2
    spread = np.sqrt(square / np.maximum(1, stored))
    spread[spread <= SPREAD * np.abs(mean)] = 0
    own = data.features[name] == CONSTANT  # the user's; it stands where a new one would
    spread[own] = 0
    centre = np.where((stored > DENSE * n) & (spread > 0), mean, 0)
    least = np.minimum(table.min(0).toarray().ravel(), 0) if n else np.zeros(len(mean))
    if above_noise:
        total = np.where(centre != 0, square, np.asarray(table.power(2).sum(0)).ravel())
        varies, rows = spread > 0, max(1, n)
        d = (total[varies] / spread[varies] ** 2).sum() / rows  # sparse features count in part
        constant *= 1 + (d / rows) ** 0.5
    mirrored = np.flatnonzero((spread > 0) & ((centre != 0) | (least < 0)))
    if own.any() and constant:
        spread[own], constant = 1 / constant, 0.0
    return Scale(centre, spread, mirrored if parts else mirrored[:0], constant)


def units(data: Tasks, centred: bool = True) -> Units:
    """The mean and the standard deviation of every label, (0, 1) of a label of 0 and 1; () if all are such.

    A label of one number has its size in the place of the standard deviation. Without `centred`, the means
    are 0: labels that are not negative stay so.

    Examples
    --------
    >>> units(Tasks([[1], [2], [3]], [[10.0, 1], [30.0, 0], [20.0, 1]]))
    ((20.0, 8.16496580927726), (0.0, 1.0))
    """
    if data.host.scales or data.binary:
        known = data.host.scales.get(LABELS)
        return () if known is None else tuple(zip(*(x.tolist() for x in known[:2]), strict=True))
    y = np.ma.masked_invalid(data[LABELS].toarray()[data.labelled])
    least = y.min(0)  # differences from it are exact where all numbers are equal
    mean, spread = (least + (y - least).mean(0)).filled(0), y.std(0).filled(0)
    spread = np.where(spread > jnp.finfo(data.y[LABELS].dtype).eps * abs(mean), spread, abs(mean))
    plain = ((y == 0) | (y == 1)).all(0).filled(True)
    both = np.where(plain, 0, mean * centred), np.where(plain, 1, spread)
    return tuple(zip(*(x.tolist() for x in both), strict=True))


def varying(data: Tasks) -> dict[str, int]:
    """How many columns of every view are not one number in all rows: default sizes count no others.

    Examples
    --------
    >>> varying(Tasks([[1000.0, 1], [3000.0, 1], [2000.0, 1]], [[1], [0], [1]]))
    {'x': 1}
    """
    return {name: int((_scale(data, name, 0.0, False).spread > 0).sum()) for name in data.names}


def rescaled(data: Tasks, scales: dict[str, Scale]) -> Tasks:
    """The data with scaled views, as `scales` says."""
    tables = {name: data[name] for name in data.blocks}
    features = dict(data.features)
    for name, scale in scales.items():
        if name not in tables:  # new rows without labels
            continue
        tables[name] = _applied(tables[name], _rows(data, name), scale)
        features[name] = _columns(features[name], scale)
    made = Tasks.of_pieces(data.pieces(tables), features, data.tasks_of_clusters())
    made.host = replace(made.host, scales=scales, name=data.name)
    return made


def told(data: Tasks, given: Tasks) -> list[str]:
    """Notes on labels of two numbers, and on the features that scaling made zero, as they are one number in
    every row; `given` are the data before. Columns without any cell, as of words that no row has, lose
    nothing."""
    lost, notes = [], list[str]()
    if not given.binary and len(values := np.unique(given.value)) == 2:
        both = " and ".join(f"{value:g}" for value in values)
        notes = [f"the labels {both} are numbers: write 1 and 0 for labels that a row has or lacks"]
    for name, scale in data.host.scales.items():
        known = raw_features(data.features[name], scale)
        still = (scale.spread == 0) & (known != CONSTANT) & (given[name].getnnz(0) > 0)
        lost += [f"{name}: {column}" for column in known[still]]
    if not lost or given.host.scales:
        return notes
    named = ", ".join(lost[:5]) + ", ..." * (len(lost) > 5)
    return [
        *notes,
        f"{len(lost)} features have (nearly) the same value in all rows and no effect: {named}",
    ]


def raw_features(columns: pd.Index, scale: Scale) -> pd.Index:
    """The columns of a view before it was scaled."""
    return columns[: len(scale.centre)]


def _rows(data: Tasks, name: str) -> np.ndarray:
    """Which rows have the view."""
    found = np.zeros(data.n_rows, bool)
    for _, at in data.spans(name):
        found[at] = True
    return found


def _applied(table: sp.csr_matrix, rows: np.ndarray, scale: Scale) -> sp.csr_matrix:
    factor = np.where(scale.spread > 0, 1 / np.where(scale.spread > 0, scale.spread, 1), 0)
    if len(dense := np.flatnonzero(scale.centre)):
        whole = table[:, dense].toarray()
        whole[rows] -= scale.centre[dense]
        ones, number = np.ones(len(dense)), range(len(dense))
        place = sp.csr_matrix((ones, (number, dense)), (len(dense), table.shape[1]))
        table = table @ sp.diags((scale.centre == 0).astype(float)) + sp.csr_matrix(whole) @ place
    table = sp.csr_matrix(table @ sp.diags(factor))
    wide = [table]
    if len(scale.mirrored):
        below = sp.csr_matrix(-table[:, scale.mirrored])
        wide = [table.maximum(0), below.maximum(0)]
    if scale.constant:
        wide.append(sp.csr_matrix(np.where(rows, scale.constant, 0.0)[:, None]))
    made = sp.csr_matrix(sp.hstack(wide))
    made.eliminate_zeros()
    return made


def _columns(columns: pd.Index, scale: Scale) -> pd.Index:
    names = list(columns) + [f"{columns[j]} (below)" for j in scale.mirrored]
    if not scale.constant:
        return columns if not len(scale.mirrored) else pd.Index(names, dtype=object)
    return pd.Index([*names, CONSTANT], dtype=object)


def singular(X: sp.csr_matrix) -> tuple[np.ndarray, np.ndarray]:
    """The squared singular values of X that are larger than rounding errors, and their right vectors."""
    if X.shape[1] <= X.shape[0]:
        value, Q = np.linalg.eigh((X.T @ X).toarray())
    else:
        value, U = np.linalg.eigh((X @ X.T).toarray())
        Q = X.T @ (U / np.sqrt(np.maximum(value, 1e-12 * max(value[-1], 1e-300))))
    kept = value > 1e-10 * max(value[-1], 1e-300)
    return value[kept], Q[:, kept]
