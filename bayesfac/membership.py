"""What a topic model says of its rows: their clusters, and which of them belong together."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

import bayesfac.models  # noqa: F401  # registers every method
from bayesfac.api import Fit
from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import REGISTRY, Method, Permutation, gauge_of, site_dims, sites
from bayesfac.core.reading import plain
from bayesfac.report.align import align_draws

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
    >>> digits = bf.datasets.load("digits").take(range(60))
    >>> point = bf.fit("mggm", digits, n_components=4, n_topics=4, progress=False)
    >>> bf.clusters(point).columns.tolist()
    ['cluster', 'probability']
    >>> few = bf.SVI(steps=100, draws=50)
    >>> draws = bf.fit("mggm", digits, few, n_components=4, n_topics=4, progress=False)
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
    >>> digits = bf.datasets.load("digits").take(range(60))
    >>> point = bf.fit("mggm", digits, n_components=4, n_topics=4, progress=False)
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
