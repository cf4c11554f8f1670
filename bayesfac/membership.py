"""What a fit says of its rows: their clusters, which of them belong together, what their tasks use."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

import bayesfac.models  # noqa: F401  # registers every method
from bayesfac.api import Fit
from bayesfac.core.data.reading import plain
from bayesfac.core.data.tasks import Tasks
from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import REGISTRY, Method, Permutation, gauge_of, site_dims, sites
from bayesfac.report.diagnostics.align import align_draws

MOST = 2000  # rows that `together` puts in one table: 4 million pairs, 32 MB


def clusters(fit: Fit, reference: Fit | None = None) -> pd.DataFrame:
    """The likeliest cluster of every row, and how sure of it the fit is.

    A cluster's number means nothing by itself, and draws number them as they like. So the clusters of every
    draw are first matched to those of one frame, as `fit.aligned()` does; `.attrs["note"]` says how much
    this left over. `together` asks for pairs of rows and needs no matching.

    Parameters
    ----------
    fit : Fit
        A point or draws of `plsa`, `mvplsa`, `ltm`, `concat_ltm`, `mggm`, or of a method like these.
    reference : Fit, optional
        A point fit of the same rows, whose numbers the clusters of the draws then get.

    Returns
    -------
    DataFrame
        One line per row of the data: `cluster`; `probability`, that the row (or a word of it) is of this
        cluster, of draws the mean; and for draws `agreement`, the share of them whose own likeliest
        cluster is this one.

    Examples
    --------
    >>> import bayesfac as bf
    >>> pixels = bf.Views({"pixels": bf.datasets.load("digits")["pixels"][:60]})
    >>> point = bf.fit("plsa", pixels, n_components=4, progress=False)
    >>> bf.clusters(point).columns.tolist()
    ['cluster', 'probability']
    >>> few = bf.SVI(steps=100, draws=50)
    >>> draws = bf.fit("plsa", pixels, few, n_components=4, progress=False)
    >>> bf.clusters(draws, reference=point).columns.tolist()
    ['cluster', 'probability', 'agreement']
    """
    free = _relabelling(fit.method)
    index = fit.data.coords["row"].rename("row")
    if fit.is_point:
        if reference is not None:
            raise ValueError("Expected draws where a reference is given, got a point fit")
        A = np.asarray(fit.params.A, np.float64)
        return pd.DataFrame({"cluster": A.argmax(1), "probability": A.max(1)}, index)
    aligned, note = _aligned(fit, free, reference)
    mean, votes, row = np.zeros(aligned.shape[1:]), np.zeros(aligned.shape[1:]), range(len(index))
    for A in aligned:  # one at a time: a copy of all draws in float64 may not fit
        mean += A
        votes[row, A.argmax(1)] += 1
    likeliest = mean.argmax(1)
    table = pd.DataFrame(
        {
            "cluster": likeliest,
            "probability": mean[row, likeliest] / len(aligned),
            "agreement": votes[row, likeliest] / len(aligned),
        },
        index,
    )
    table.attrs["note"] = note
    return table


def together(fit: Fit, rows: Sequence[Any]) -> pd.DataFrame:
    """How likely two rows are of one cluster, for all pairs of some rows.

    Mean over the draws of a_i . a_s, the probability that a cluster drawn for row i and one drawn for row s
    are the same one; 1 on the diagonal. What the clusters are called cancels out, so nothing is matched.

    Parameters
    ----------
    fit : Fit
        A point or draws, as for `clusters`.
    rows : sequence of labels
        At most 2000 of them: the answer is a square table, and that of all rows would not fit.

    Examples
    --------
    >>> import bayesfac as bf
    >>> pixels = bf.Views({"pixels": bf.datasets.load("digits")["pixels"][:60]})
    >>> point = bf.fit("plsa", pixels, n_components=4, progress=False)
    >>> bf.together(point, [0, 10, 20]).shape
    (3, 3)
    """
    _relabelling(fit.method)
    index, at = _located(fit.data.coords["row"], rows)
    total, n = np.zeros((len(at), len(at))), 0
    for A in _draws_of_rows(fit):
        a = np.asarray(A[at], np.float64)
        total += a @ a.T
        n += 1
    total /= n
    np.fill_diagonal(total, 1)
    return pd.DataFrame(total, index, index)


def _relabelling(method: Method) -> Permutation:
    """What may happen to the numbers of the method's clusters."""
    found = _clustering(method)
    if found is None:
        able = ", ".join(name for name, other in sorted(REGISTRY.items()) if _clustering(other))
        raise BayesfacError(
            f"Expected a fit that puts rows into clusters ({able}), got {method.name}"
        )
    return found


def _clustering(method: Method) -> Permutation | None:
    """The relabelling of the columns of A, where A is rows x clusters."""
    if "A" not in method.dims or site_dims(method, "A")[:1] != ("row",):
        return None
    for free in gauge_of(method, ("A",)):
        if isinstance(free, Permutation) and free.axes.get("A") == 1:
            return free
    return None


def columns_on(fit: Fit, data: Tasks, below: float = 1e-3) -> pd.DataFrame:
    """How many columns of a sparse representation each task uses, and how sure of it the fit is.

    A column r of F is off for a task where it has less than `below` of what all columns contribute to its
    rows: |F_r|^2 over these rows times |B_r|^2 over all blocks, a product that no change of scale moves. A
    column's number means nothing by itself; how many are on does, in every draw.

    Parameters
    ----------
    fit : Fit
        A point or draws of `heres`.
    data : Tasks
        What it was fitted on: a fit knows its rows, but not their tasks.
    below : float
        The share of a task's contributions from which a column counts.

    Returns
    -------
    DataFrame
        One line per task, then one for columns that `some` task uses and one for those that `every` task
        does: `on`, of draws the mean, and for draws `low` and `high`, their 5 and 95 % quantiles.

    Examples
    --------
    >>> import bayesfac as bf
    >>> data, _ = bf.datasets.make_tasks(40, 2, seed=0)
    >>> point = bf.fit("heres", data, bf.FixedPoint(tol=1e-3), n_components=6, progress=False)
    >>> bf.columns_on(point, data).columns.tolist()
    ['on']
    """
    if fit.name != "heres":
        raise BayesfacError(
            f"Expected a fit of heres, whose columns tasks switch off, got {fit.name}"
        )
    if not 0 < below < 1:
        raise ValueError(f"Expected a share between 0 and 1, got below={below}")
    if not isinstance(data, Tasks) or not data.rows.equals(fit.data.coords["row"]):
        what = f"{data.n_rows} others" if isinstance(data, Tasks) else type(data).__name__
        raise ValueError(
            f"Expected the Tasks of {fit.data.shape[0]} rows it was fitted on, got {what}"
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


def _aligned(fit: Fit, free: Permutation, reference: Fit | None) -> tuple[np.ndarray, str]:
    """A of every draw, (draw, row, cluster), with clusters in one order; and how well that went."""
    assert fit.draws is not None
    # as `align` does: where topics have an order of their own, that would disturb the match
    others = (g for g in gauge_of(fit.method, fit.draws) if "A" not in g.axes)
    mixed = {site for other in others for site in other.axes}
    telling = [site for site in free.axes if site in fit.draws and site not in mixed]
    only = Permutation({site: free.axes[site] for site in telling}, free.name)
    draws = {site: np.asarray(fit.draws[site]) for site in telling}
    pivot = None if reference is None else _pivot(reference, draws)
    found = align_draws(draws, [only], pivot)
    A = found.draws["A"]
    left = np.median(found.residual)
    note = f"Matching the clusters of {A.shape[0] * A.shape[1]} draws left {left:.3f} of their size (median)."
    if found.ambiguous:
        note += f" {len(found.notes)} pair(s) of clusters are hard to tell apart: {found.notes[0]}"
    return A.reshape(-1, *A.shape[2:]), note


def _pivot(reference: Fit, draws: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    if not reference.is_point:
        raise ValueError("Expected a point fit as reference, got draws")
    point = {name: np.asarray(value) for name, value in sites(reference.params).items()}
    for site, value in draws.items():
        got = point[site].shape if site in point else "none"
        if got != value.shape[2:]:
            raise ValueError(f"Expected a reference with {site} of {value.shape[2:]}, got {got}")
    return {site: point[site] for site in draws}


def _draws_of_rows(fit: Fit) -> Iterator[np.ndarray]:
    """A of every draw; of a point, the one it has."""
    if fit.draws is None:
        yield np.asarray(fit.params.A)
    else:
        for chain in fit.draws["A"]:
            yield from chain


def _located(known: pd.Index, rows: Sequence[Any]) -> tuple[pd.Index, np.ndarray]:
    """The labels that are asked for, and where they stand."""
    if isinstance(rows, str) or np.ndim(rows) != 1:
        raise TypeError(f"Expected a sequence of row labels, got {rows!r}")
    if not 0 < len(rows) <= MOST:
        raise ValueError(
            f"Expected 1 to {MOST} rows, as the answer is a table of all their pairs, got {len(rows)}"
        )
    index = pd.Index(rows, name="row")
    at = known.get_indexer(index)
    if (at < 0).any():
        raise ValueError(
            f"Expected labels of rows that were fitted, got {plain(index[at < 0][0])!r}"
        )
    if not index.is_unique:
        again = plain(index[index.duplicated()][0])
        raise ValueError(f"Expected every row once, got {again!r} twice")
    return index, at
