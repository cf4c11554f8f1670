"""Generators of data as in the papers, and views of scikit-learn's digits."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp

from bayesfac.core import checks
from bayesfac.core.data.linked.relations import Relations
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.data.tensor import Tensor
from bayesfac.core.data.views import Views

SWEEPS = 10_000  # an upper limit; the error falls at every sweep, on a finite set of matrices


class Gaussian(NamedTuple):
    """The truth of `make_gaussian`: ratings are U V' plus noise of this standard deviation."""

    U: np.ndarray
    V: np.ndarray
    noise: float


class Products(NamedTuple):
    """The truth of `make_tensor` and `make_relations`: sums of products of rows, plus noise of this sd."""

    U: dict[str, np.ndarray]
    noise: float


class Topics(NamedTuple):
    """The truth of `make_topics`: P(feature | row, view) = A B[view] C[view]; `cluster` = argmax A."""

    A: np.ndarray
    B: dict[str, np.ndarray]
    C: dict[str, np.ndarray]
    cluster: np.ndarray


def make_ratings(
    n_users: int,
    n_items: int,
    rank: int,
    levels: int = 5,
    density: float = 0.2,
    seed: int = 0,
    *,
    noise: float = 0.0,
) -> Ratings:
    """Ordinal ratings close to a low-rank product, made as in the thesis (section 3.6.1).

    The generator begins with a random rating matrix Y and a random U. V and U are fitted to Y in turn by
    least squares, and Y becomes U V' rounded to the nearest level, until Y no longer changes. The thesis
    does not say how the first U is drawn. Here it is uniform on (0, 1), because a centred U cannot represent
    the mean, and Y would collapse to the lowest level. A random share `density` of Y is observed, with at
    least one rating of every user and item. Noise with standard deviation `noise` (0 in the thesis) is added
    to U V' before the last rounding.

    Examples
    --------
    >>> make_ratings(20, 15, rank=2, density=0.5)
    Ratings(20 users x 15 items, 150 ratings, density 0.5, levels 1..5)
    """
    check_sizes(noise, n_users=n_users, n_items=n_items, rank=rank)
    if rank > min(n_users, n_items):
        raise ValueError(f"Expected a rank of at most {min(n_users, n_items)}, got {rank}")
    if levels < 2:
        raise ValueError(f"Expected at least two levels, got {levels}")
    rng = checks.generator(seed)
    Y = rng.integers(1, levels + 1, (n_users, n_items)).astype(float)
    U = rng.random((n_users, rank))
    for _ in range(SWEEPS):
        before = Y
        V = np.linalg.lstsq(U, Y)[0].T
        Y = np.clip(np.rint(U @ V.T), 1, levels)
        U = np.linalg.lstsq(V, Y.T)[0].T
        Y = np.clip(np.rint(U @ V.T), 1, levels)
        if np.array_equal(Y, before):
            break
    user, item = _cells(n_users, n_items, density, rng)
    if noise:
        level = np.sum(U[user] * V[item], axis=1) + noise * rng.standard_normal(len(user))
        return Ratings(user, item, np.clip(np.rint(level), 1, levels), levels=levels)
    return Ratings(user, item, Y[user, item], levels=levels)


def make_uneven_ratings(
    n_users: int = 300,
    n_items: int = 150,
    rank: int = 4,
    levels: int = 10,
    median: float = 10,
    *,
    spread: float = 1.1,
    signal: float = 1.4,
    noise: float = 1.0,
    seed: int = 0,
) -> Ratings:
    """Ratings of users with very different numbers of ratings: many users have few, and few have many.

    The number of ratings of a user is log-normal: `median` is its median, `spread` the standard deviation of
    its logarithm. It is at least 2 and at most half of the items; the items are chosen at random. U and V
    are normal, and U V' has the standard deviation `signal`. A rating is the middle of the scale, plus half
    a level, plus U V', plus normal noise, rounded to a level. This is the model of `bpmf`, except for the
    rounding.

    Examples
    --------
    >>> make_uneven_ratings(20, 15, rank=2, median=4)
    Ratings(20 users x 15 items, 93 ratings, density 0.31, levels 1..10)
    """
    check_sizes(noise, n_users=n_users, n_items=n_items, rank=rank, levels=levels)
    if not (median > 0 and spread >= 0 and signal > 0):
        raise ValueError(
            f"Expected median and signal above 0 and spread of at least 0, got {median}, {signal}, {spread}"
        )
    rng = checks.generator(seed)
    U = rng.standard_normal((n_users, rank))
    V = signal / np.sqrt(rank) * rng.standard_normal((n_items, rank))
    number = np.rint(median * np.exp(spread * rng.standard_normal(n_users)))
    number = np.clip(number, min(2, n_items), min(n_items, max(2, n_items // 2))).astype(int)
    user = np.repeat(np.arange(n_users), number)
    item = np.concatenate([rng.choice(n_items, size, replace=False) for size in number])
    level = (levels + 1) / 2 + 0.5 + np.sum(U[user] * V[item], axis=1)
    level += noise * rng.standard_normal(len(user))
    return Ratings(user, item, np.clip(np.rint(level), 1, levels), levels=levels)


def make_gaussian(
    n_users: int, n_items: int, rank: int, noise: float = 0.5, density: float = 0.3, seed: int = 0
) -> tuple[Ratings, Gaussian]:
    """Real-valued ratings from the model of PMF, and the true parameters.

    U is standard normal and V normal with variance 1 / rank, so that U V' has variance 1.

    Examples
    --------
    >>> ratings, truth = make_gaussian(20, 15, rank=2, noise=0.1)
    >>> ratings.shape, truth.U.shape, truth.V.shape
    ((20, 15), (20, 2), (15, 2))
    """
    check_sizes(noise, n_users=n_users, n_items=n_items, rank=rank)
    rng = checks.generator(seed)
    U = rng.standard_normal((n_users, rank))
    V = rng.standard_normal((n_items, rank)) / np.sqrt(rank)
    user, item = _cells(n_users, n_items, density, rng)
    value = np.sum(U[user] * V[item], axis=1) + noise * rng.standard_normal(len(user))
    return Ratings(user, item, value), Gaussian(U, V, float(noise))


def make_tensor(
    shape: tuple[int, ...], rank: int, noise: float = 0.5, density: float = 0.3, seed: int = 0
) -> tuple[Tensor, Products]:
    """Cells of a tensor of low rank plus noise, and the true factors.

    All factors are normal, with a variance that gives their products the variance 1.

    Examples
    --------
    >>> tensor, truth = make_tensor((20, 15, 6), rank=2, density=0.2)
    >>> tensor, [table.shape for table in truth.U.values()]
    (Tensor(20 mode_1 x 15 mode_2 x 6 mode_3, 360 cells, density 0.2), [(20, 2), (15, 2), (6, 2)])
    """
    sizes = {f"mode_{m + 1}": n for m, n in enumerate(shape)}
    check_sizes(noise, rank=rank, **sizes)
    if len(sizes) < 3:
        raise ValueError(f"Expected the sizes of three or more modes, got {shape}")
    rng = checks.generator(seed)
    scale = rank ** (-0.5 / len(sizes))
    U = {mode: scale * rng.standard_normal((n, rank)) for mode, n in sizes.items()}
    total, cover = int(np.prod(shape)), np.arange(max(shape))
    size = round(density * total)
    if not density <= 1 or size < len(cover):
        least = len(cover) / total
        raise ValueError(
            f"Expected a density from {least:.2g}, one cell per label, to 1, got {density}"
        )
    diagonal = tuple(rng.permutation(n)[cover % n] for n in shape)
    first, some = np.ravel_multi_index(diagonal, shape), rng.choice(total, size, replace=False)
    rest = some[~np.isin(some, first)][: size - len(first)]
    code = np.unravel_index(np.sort(np.concatenate([first, rest])), shape)
    value = np.prod([table[at] for table, at in zip(U.values(), code, strict=True)], 0).sum(1)
    value += noise * rng.standard_normal(len(value))
    return Tensor(*code, value), Products(U, float(noise))


def make_relations(
    n_users: int = 300,
    n_items: int = 150,
    rank: int = 3,
    *,
    n_tags: int = 20,
    n_words: int = 20,
    noise: float = 0.5,
    density: float = 0.1,
    seed: int = 0,
) -> tuple[Relations, Products]:
    """Ratings, users x tags and items x words from shared factors, and the true factors.

    All factors are normal, and all products have the variance 1. Half of the cells of the tags are observed,
    and all cells of the words. Their noise has the standard deviations 1 and 2, and words have a unit of 100.
    With `n_tags=0` there is no matrix of tags, and with `n_words=0` none of words.

    Examples
    --------
    >>> data, truth = make_relations(20, 15, rank=2, n_tags=4, n_words=6, density=0.2)
    >>> list(data.others), {kind: table.shape for kind, table in truth.U.items()}
    (['tags', 'words'], {'user': (20, 2), 'item': (15, 2), 'tag': (4, 2), 'word': (6, 2)})
    """
    sizes = {"user": n_users, "item": n_items, "tag": n_tags, "word": n_words}
    sizes = {kind: n for kind, n in sizes.items() if n or kind in ("user", "item")}
    check_sizes(noise, rank=rank, **{f"n_{kind}s": n for kind, n in sizes.items()})
    rng = checks.generator(seed)
    U = {kind: rank**-0.25 * rng.standard_normal((n, rank)) for kind, n in sizes.items()}
    user, item = _cells(n_users, n_items, density, rng)
    value = np.sum(U["user"][user] * U["item"][item], axis=1)
    ratings = Ratings(user, item, value + noise * rng.standard_normal(len(user)))
    matrices = {}
    for name, row, col, spread, unit, seen in (
        ("tags", "user", "tag", 1.0, 1.0, 0.5),
        ("words", "item", "word", 2.0, 100.0, 1.0),
    ):
        if col in U:
            table = U[row] @ U[col].T
            table += spread * rng.standard_normal(table.shape)
            table[rng.random(table.shape) >= seen] = np.nan
            matrices[name] = (row, col, unit * table)
    return Relations(ratings, matrices), Products(U, float(noise))


def make_topics(
    n_rows: int = 200,
    features: Mapping[str, int] | None = None,
    n_clusters: int = 4,
    n_topics: int = 6,
    length: int = 100,
    concentration: float = 0.1,
    seed: int = 0,
) -> tuple[Views, Topics]:
    """Multi-view counts from the process of MVPLSA, and the true parameters.

    In every view each row has `length` tokens; each token has a cluster of its row (A), a topic of this
    cluster (B) and a feature of this topic (C). All rows of A, B and C are Dirichlet with the same
    concentration; smaller values give more distinct clusters.

    Examples
    --------
    >>> views, truth = make_topics(10, {"words": 8, "links": 5}, n_clusters=2, n_topics=3)
    >>> views.names, int(views["words"].sum()), truth.cluster.shape
    (('links', 'words'), 1000, (10,))
    """
    features = {"words": 60, "links": 40} if features is None else dict(features)
    check_sizes(n_rows=n_rows, n_clusters=n_clusters, n_topics=n_topics, length=length, **features)
    if not concentration > 0:
        raise ValueError(f"Expected a concentration above 0, got {concentration}")
    rng = checks.generator(seed)

    def rows(n: int, m: int) -> np.ndarray:
        return rng.dirichlet(np.full(m, concentration), size=n)

    A = rows(n_rows, n_clusters)
    B = {name: rows(n_clusters, n_topics) for name in features}
    C = {name: rows(n_topics, m) for name, m in features.items()}
    row = np.repeat(np.arange(n_rows), length)
    counts = {}
    for name, m in features.items():
        feature = _pick(C[name], _pick(B[name], _pick(A, row, rng), rng), rng)
        tokens = (np.ones(len(row)), (row, feature))
        counts[name] = sp.coo_matrix(tokens, shape=(n_rows, m)).tocsr()
    return Views(counts), Topics(A, B, C, A.argmax(1))


def embedded_digits() -> tuple[Views, np.ndarray]:
    """The data set `digits`: scikit-learn's 8 x 8 images as four views of counts, and the classes.

    pixels     the 64 intensities 0..16
    profiles   sums of the 8 rows and of the 8 columns
    fourier    13 low-frequency magnitudes of the discrete Fourier transform, rounded
    zones      sums of the 16 blocks of 2 x 2 pixels
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    image = digits.images.astype(float)
    low = [(0, 0), (1, 0), (2, 0), *((ky, kx) for kx in (1, 2) for ky in (-2, -1, 0, 1, 2))]
    spectrum = np.abs(np.fft.fft2(image))
    zones = image.reshape(-1, 4, 2, 4, 2).sum((2, 4)).reshape(-1, 16)
    at = np.arange(8)
    fourier = np.rint(np.stack([spectrum[:, ky, kx] for ky, kx in low], axis=1))
    profiles = np.hstack([image.sum(2), image.sum(1)])
    views = {
        "pixels": (image.reshape(-1, 64), [f"r{i}c{j}" for i in at for j in at]),
        "profiles": (profiles, [*(f"row{i}" for i in at), *(f"column{j}" for j in at)]),
        "fourier": (fourier, [f"f({ky},{kx})" for ky, kx in low]),
        "zones": (zones, [f"zone{i}{j}" for i in range(4) for j in range(4)]),
    }
    frames = {name: pd.DataFrame(x, columns=labels) for name, (x, labels) in views.items()}
    return Views(frames), digits.target.astype(int)


def _cells(
    n: int, m: int, density: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Random cells of an n x m matrix in row-major order, at least one per row and column."""
    size = round(density * n * m)
    if not (0 < density <= 1) or size < max(n, m):
        raise ValueError(
            f"Expected a density between {max(n, m) / (n * m):.2g} (one rating per user and item) "
            f"and 1, got {density}"
        )
    cover = np.arange(max(n, m))  # a random diagonal, wrapped around the shorter side
    first = rng.permutation(n)[cover % n] * m + rng.permutation(m)[cover % m]
    rest = np.setdiff1d(np.arange(n * m), first)
    chosen = np.concatenate([first, rng.choice(rest, size - len(first), replace=False)])
    return np.divmod(np.sort(chosen), m)


def _pick(table: np.ndarray, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One column index per entry of `rows`, drawn from this row of a row-stochastic table."""
    edges = np.cumsum(table, axis=1)
    edges = edges / edges[:, -1:] + np.arange(len(table))[:, None]  # row i spans (i, i + 1]
    at = np.searchsorted(edges.ravel(), rows + rng.random(len(rows)), side="right")
    return np.minimum(at - rows * table.shape[1], table.shape[1] - 1)


def check_sizes(noise: float = 0.0, **sizes: int) -> None:
    """Refuse sizes and a noise that no data can have."""
    if not (np.isfinite(noise) and noise >= 0):
        raise ValueError(f"Expected a noise of at least 0, got {noise}")
    for name, size in sizes.items():
        if not isinstance(size, int | np.integer) or size < 1:
            raise ValueError(f"Expected a whole number of at least 1 as {name}, got {size!r}")
