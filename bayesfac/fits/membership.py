"""Clusters of rows, the probability that two rows are in one cluster, and the columns that tasks use."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

import bayesfac.models  # noqa: F401  # registers every method
from bayesfac.core.clustering import alike, nearest_cluster
from bayesfac.core.data.reading import native, plain, positions_of
from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import REGISTRY, Method, Permutation, gauge_of, site_dims, sites
from bayesfac.fits.fitted import Fitted
from bayesfac.report.diagnostics.align import align_draws

MOST = 2000  # rows of the table of `together`: 4 million pairs, 32 MB
READINGS = "mixture", "largest"  # ways to read the clusters of the rows of A


def clusters(
    fit: Fitted,
    reference: Fitted | None = None,
    *,
    by: str = "mixture",
    of: Fitted | None = None,
) -> pd.DataFrame:
    """The cluster of every row, and how certain the fit is of it.

    Each row of A contains the shares of K components in this row, its mixture. Rows with similar mixtures
    form a cluster. The clusters are those with the smallest determinant of the covariance within clusters
    (Friedman & Rubin 1967). This is like k-means, but depends less on how far apart the components are, which
    the data hardly decide. Between clusterings with nearly the same determinant neighbours decide: few rows
    should have their nearest rows in another cluster. The search begins at the rows whose largest share is
    component k, so that cluster k keeps the number of component k, and at clusters of k-means.

    If every row is nearly one component, its cluster is this component. If a graph makes all rows mixtures,
    the largest of several similar shares says little (`mggm` on five views of handwritten digits: 24 % of
    the rows are right by the largest share, 81 % by k-means, and 95 % here).

    The numbers of the clusters are arbitrary and differ between draws. So the clusters of all draws are
    first matched with one another, as `fit.aligned()` does; `.attrs["note"]` says how much the matched draws
    still differ. `together` compares pairs of rows and needs no matching.

    Parameters
    ----------
    fit : Fit
        A point or draws of `plsa`, `mvplsa`, `ltm`, `concat_ltm`, `mggm`, or of a method like these.
    reference : Fit, optional
        A point fit to the same rows. The clusters of the draws then get the numbers of its clusters.
    by : {"mixture", "largest"}
        "largest" uses the component with the largest share as the cluster.
    of : Fit, optional
        If `fit` has new rows, `new = train.fold_in(...)`, the fit `train`: new rows get the nearest of its
        clusters. Without `of`, clusters of the new rows alone are found.

    Returns
    -------
    DataFrame
        One line per row of the data. The columns are `cluster`; `probability`, the share of the component
        with this number in the row (or in its words), averaged over draws; and for draws `agreement`, the
        share of the draws that put the row into this cluster.

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

    New rows:

    >>> more = bf.Views({"pixels": bf.datasets.load("digits")["pixels"][60:62]})
    >>> len(bf.clusters(point.fold_in(more), of=point))
    2
    """
    free = _relabelling(fit.method)
    if by not in READINGS:
        raise ValueError(f"Expected by to be 'mixture' or 'largest', got {by!r}")
    index = fit.data.coords["row"].rename("row")
    source = fit if of is None else _checked(of, fit)
    K = fit.hyper.n_components
    known = len(source.data.coords["row"])  # the rows in which clusters are found
    if by == "mixture" and known < K:
        raise ValueError(
            f"Expected at least {K} rows to find {K} clusters, got {known}: pass of=, the fit to which these "
            "rows were added, or by='largest'"
        )

    read = partial(_read, by, known)
    begin = 0 if of is None else known
    if fit.is_point:
        if reference is not None:
            raise ValueError("Expected draws to compare with a reference, got a point fit")
        A = np.asarray(source.params.A, np.float64)
        A = A if of is None else np.append(A, fit.params.A, 0)
        own = read(A)
        table = pd.DataFrame({"cluster": own, "probability": A[range(len(A)), own]})
        return table[begin:].set_index(index)
    aligned, note = _aligned(source, free, reference)
    if of is not None:
        raw, new = (each._as_draws()["A"] for each in (of, fit))
        aligned = np.append(aligned, _moved_alike(aligned, raw, new), 1)
    row = range(aligned.shape[1])
    mean, votes = np.zeros(aligned.shape[1:]), np.zeros(aligned.shape[1:])
    for A in aligned:  # one at a time: a copy of all draws in float64 may not fit
        mean += A / len(aligned)
    own = read(mean)
    for A in aligned:
        votes[row, read(A, own)] += 1
    shares = {"probability": mean[row, own], "agreement": votes[row, own] / len(aligned)}
    table = pd.DataFrame({"cluster": own, **shares})[begin:].set_index(index)
    table.attrs["note"] = note
    return table


def _read(by: str, known: int, A: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
    """The cluster of every row of A; clusters are found in the `known` first rows, from those of `start`."""
    if by == "largest":
        return A.argmax(1)
    own = alike(A[:known], None if start is None else start[:known])
    if known == len(A):
        return own
    return np.append(own, nearest_cluster(A[:known], own, A[known:]))


def _checked(of: Fitted, new: Fitted) -> Fitted:
    """`of`, if `new` has its parameters, but for those of rows."""
    one, other = of._as_draws(), new._as_draws()
    shared = [site for site in one if "row" not in site_dims(of.method, site)]
    if of.method is not new.method or not all(np.array_equal(one[s], other[s]) for s in shared):
        raise ValueError(
            f"Expected of to be the fit that got the rows of {new.name}, got another fit"
        )
    return of


def _moved_alike(aligned: np.ndarray, raw: Any, new: Any) -> np.ndarray:
    """The new rows of every draw, their columns in the order that those of `raw` got in `aligned`."""
    raw, new = (np.reshape(x, (-1, *np.shape(x)[2:])) for x in (raw, new))
    moved = np.empty_like(new)
    for to, A, before, rows in zip(moved, aligned, raw, new, strict=True):
        order = np.abs(before.T[:, None] - A.T[None]).sum(2).argmin(0)
        to[:] = rows[:, order]
    return moved


def together(fit: Fitted, rows: Sequence[Any]) -> pd.DataFrame:
    """The probability that two rows belong to one cluster, for all pairs of some rows.

    For rows i and s this is the mean over the draws of a_i . a_s, where a_i has the cluster probabilities of
    row i. On the diagonal it is 1. It does not depend on the numbers of the clusters.

    Parameters
    ----------
    fit : Fit
        A point or draws, as for `clusters`.
    rows : sequence of labels
        At most 2000 rows, because the result is a table of all pairs of these rows.

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
    """The permutation of the method's row clusters; an error for a method without row clusters."""
    relabelling = _clustering(method)
    if relabelling is None:
        raise BayesfacError(
            f"Expected a fit that puts rows into clusters ({named(_clustering)}), got {method.name}"
        )
    return relabelling


def named(able: Callable[[Method], Any]) -> str:
    """The names of the methods that are able to."""
    return ", ".join(name for name, method in sorted(REGISTRY.items()) if able(method))


def _clustering(method: Method) -> Permutation | None:
    """The permutation of the columns of A, if A is rows x clusters."""
    if "A" not in method.axes.dims or site_dims(method, "A")[:1] != ("row",):
        return None
    permutations = (free for free in gauge_of(method, ("A",)) if isinstance(free, Permutation))
    return next((free for free in permutations if free.axes.get("A") == 1), None)


def _aligned(fit: Fitted, free: Permutation, reference: Fitted | None) -> tuple[np.ndarray, str]:
    """A of every draw, (draw, row, cluster), with the clusters in one order; and a note on the matching."""
    assert fit.draws is not None
    # as `align` does: sites whose topics have a permutation of their own would disturb the match
    others = (g for g in gauge_of(fit.method, fit.draws) if "A" not in g.axes)
    mixed = {site for other in others for site in other.axes}
    telling = [site for site in free.axes if site in fit.draws and site not in mixed]
    only = Permutation({site: free.axes[site] for site in telling}, free.name)
    draws = {site: np.asarray(fit.draws[site]) for site in telling}
    pivot = None if reference is None else _pivot(reference, draws)
    aligned = align_draws(draws, [only], pivot)
    A = aligned.draws["A"]
    left = np.median(aligned.residual)
    note = f"Matching the clusters of {A.shape[0] * A.shape[1]} draws left {left:.3f} of their size (median)."
    if aligned.ambiguous:
        pairs = f"{len(aligned.notes)} pair(s) of clusters are hard to tell apart"
        note += f" {pairs}: {aligned.notes[0]}"
    return A.reshape(-1, *A.shape[2:]), note


def _pivot(reference: Fitted, draws: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    if not reference.is_point:
        raise ValueError("Expected a point fit as reference, got draws")
    point = {name: np.asarray(value) for name, value in sites(reference.params).items()}
    for site, value in draws.items():
        got = point[site].shape if site in point else "none"
        if got != value.shape[2:]:
            raise ValueError(f"Expected a reference with {site} of {value.shape[2:]}, got {got}")
    return {site: point[site] for site in draws}


def _draws_of_rows(fit: Fitted) -> Iterator[np.ndarray]:
    """A of every draw, or of the point."""
    if fit.draws is None:
        yield np.asarray(fit.params.A)
    else:
        for chain in fit.draws["A"]:
            yield from chain


def _located(known: pd.Index, rows: Sequence[Any]) -> tuple[pd.Index, np.ndarray]:
    """The labels asked for as an index, and their positions among the known rows."""
    if isinstance(rows, str) or np.ndim(rows) != 1:
        raise TypeError(f"Expected a sequence of row labels, got {rows!r}")
    if not 0 < len(rows) <= MOST:
        raise ValueError(
            f"Expected 1 to {MOST} rows, as the answer is a table of all their pairs, got {len(rows)}"
        )
    index = native(pd.Index(rows, name="row"))
    at = positions_of(known, index)
    if (at < 0).any():
        raise ValueError(
            f"Expected labels of rows that were fitted, got {plain(index[at < 0][0])!r}"
        )
    if not index.is_unique:
        again = plain(index[index.duplicated()][0])
        raise ValueError(f"Expected every row once, got {again!r} twice")
    return index, at
