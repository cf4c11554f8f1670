"""Distribute blocks of ratings to the processes that draw their rows; no process has all ratings.

A process reads every block, and keeps only the cells of the rows that its devices draw.
"""

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np
import pandas as pd
from jax.experimental import multihost_utils

from bayesfac.core.data import reading, triplets
from bayesfac.core.data.cells import CHUNK, Rows, aligned, chunks_of
from bayesfac.core.data.divided.large import LargeFrame, LargeRatings, Summary
from bayesfac.core.data.divided.shares import (
    SIDES,
    Divided,
    Share,
    dealt,
    devices,
    placed,
    with_chunks,
)
from bayesfac.core.data.ratings import Frame, Ratings
from bayesfac.core.errors import BayesfacError

SLAB = 2**18  # cells that are sorted at a time
SOME = 60  # cells for the probe set of a fit
MOST = 2**31 - 1  # ratings: positions are numbers of 32 bits

Block = tuple[np.ndarray, np.ndarray, np.ndarray]  # codes of users and of items, values
Blocks = Callable[[], Iterable[Block]]


class Pile:
    """The cells of the own rows of one part: filled in any order, then sorted by row and by column.

    own      the numbers of the rows, -1 where the part is one row short
    ptr      the cells of own row i are ptr[i]:ptr[i + 1]; shares with fewer cells end in padding
    """

    def __init__(self, count: np.ndarray, own: np.ndarray, size: int, dtype: Any) -> None:
        self.own, self.ptr = own, np.concatenate([[0], np.cumsum(np.append(count, 0)[own])])
        self.index, self.y = aligned(size, np.int32), aligned(size, dtype)
        self.filled = self.ptr[:-1].copy()

    def add(self, row: np.ndarray, other: np.ndarray, value: np.ndarray) -> None:
        """Cells of own rows (their positions among the own rows), in the order of the file."""
        order = np.argsort(row, kind="stable")
        count = np.bincount(row, minlength=len(self.own))
        first = (np.cumsum(count) - count)[row[order]]
        at = self.filled[row[order]] + np.arange(len(row)) - first
        self.index[at], self.y[at] = other[order], value[order]
        self.filled += count

    def sort(self) -> tuple[np.ndarray, np.ndarray]:
        """Sort the cells of each row by column, those of one column in the order of the file; the rows
        and columns of cells that are there for the second time or later."""
        found = []
        for low, high, row in self._slabs():
            order = np.lexsort((self.index[low:high], row))
            for array in (self.index, self.y):
                array[low:high] = array[low:high][order]
            again = ~_first(row, self.index[low:high])
            found.append((self.own[row[again]], self.index[low:high][again]))
        rows, columns = (np.concatenate(each) for each in zip(*found, strict=True))
        return rows, columns

    def merge(self, levels: tuple[float, ...] | None) -> None:
        """One cell in the place of several of the same row and column, with their mean."""
        end, count = 0, np.diff(self.ptr)
        for low, high, row in self._slabs():
            first = _first(row, self.index[low:high])
            index = self.index[low:high][first]
            mean = triplets.means(np.cumsum(first) - 1, self.y[low:high], levels)
            self.index[end : end + len(index)], self.y[end : end + len(index)] = index, mean
            count -= np.bincount(row[~first], minlength=len(count))
            end += len(index)
        self.ptr = np.concatenate([[0], np.cumsum(count)])

    def _slabs(self) -> Iterable[tuple[int, int, np.ndarray]]:
        """Whole rows: from and to which cell, and the row of each cell."""
        a = 0
        while a < len(self.own):
            b = max(a + 1, int(np.searchsorted(self.ptr, self.ptr[a] + SLAB, "right")) - 1)
            row = np.repeat(np.arange(a, b), np.diff(self.ptr[a : b + 1]))
            yield int(self.ptr[a]), int(self.ptr[b]), row
            a = b

    def values(self) -> np.ndarray:
        """The values without padding."""
        return self.y[: self.ptr[-1]]

    def share(self, ptr: np.ndarray, place: np.ndarray, side: str, chunks: int) -> Share:
        """The share of the part; `chunks` is how many all parts get."""
        inorder = np.zeros(0, np.int32)
        chunk, row = (part.astype(np.int32) for part in chunks_of(self.ptr))
        rows = Rows(self.ptr.astype(np.int32), self.index, inorder, chunk, row)
        own = np.maximum(self.own, 0).astype(np.int32)
        return Share(ptr.astype(np.int32), with_chunks(rows, chunks), own, place, side)


def _first(row: np.ndarray, column: np.ndarray) -> np.ndarray:
    """Which sorted cells are the first of their row and column."""
    first = np.ones(len(row), bool)
    first[1:] = (row[1:] != row[:-1]) | (column[1:] != column[:-1])
    return first


class Piles:
    """The piles of all parts of this process, for both sides."""

    def __init__(
        self, counts: dict[str, np.ndarray], parts: int, here: list[int], dtype: Any
    ) -> None:
        self.counts, self.here = counts, here
        self.own = {side: dealt(count, parts) for side, count in counts.items()}
        self.place = {side: placed(own, len(counts[side])) for side, own in self.own.items()}
        self.of: dict[str, dict[int, Pile]] = {}
        for side, own in self.own.items():
            size = int(np.append(counts[side], 0)[own].sum(1).max())
            self.of[side] = {p: Pile(counts[side], own[p], size, dtype) for p in here}

    def add(self, user: np.ndarray, item: np.ndarray, value: np.ndarray) -> None:
        """Deal out a block of cells."""
        for side, row, other in (("user", user, item), ("item", item, user)):
            part, local = np.divmod(self.place[side][row], self.own[side].shape[1])
            for number, pile in self.of[side].items():
                mine = np.flatnonzero(part == number)
                pile.add(local[mine], other[mine], value[mine])

    def sort(self) -> tuple[np.ndarray, np.ndarray]:
        """Sort all piles; the users and items of cells of own users that are there again."""
        again = {side: [pile.sort() for pile in self.of[side].values()] for side in SIDES}
        user, item = (np.concatenate(each) for each in zip(*again["user"], strict=True))
        return user, item

    def merge(self, levels: tuple[float, ...] | None, centre: float) -> Summary:
        """Merge cells that are there again; what is known of all values then, with the same digits for any
        number of processes. `centre` is a number near the mean."""
        ends = Summary(levels or ())
        for side, piles in self.of.items():
            count = np.zeros(len(self.counts[side]), np.int64)
            for pile in piles.values():
                pile.merge(levels)
                own = pile.own >= 0
                count[pile.own[own]] = np.diff(pile.ptr)[own]
            self.counts[side] = of_all(count).sum(0)
        sums = np.zeros((2, len(self.counts["user"])))
        for pile in self.of["user"].values():
            row, rest = np.repeat(pile.own, np.diff(pile.ptr)), pile.values() - centre
            sums[0] += np.bincount(row, rest, len(sums[0]))
            sums[1] += np.bincount(row, rest**2, len(sums[0]))
            ends.add(pile.values())
        least, most = of_all(np.array([ends.least, -ends.most])).min(0) * (1, -1)
        rest, squares = of_all(sums.ravel()).sum(0).reshape(sums.shape).sum(1)
        n = int(self.counts["user"].sum())
        squares -= rest**2 / n
        found = n, float(n * centre + rest), float(squares), float(least), float(most)
        whole = Summary(ends.levels, *found)
        if levels is not None:
            whole.of_level += of_all(ends.of_level).sum(0)
        return whole

    def divided(self, frame: Frame) -> dict[int, Divided]:
        """The shares of this process, as `shares.dealer` gives them; the piles are emptied."""
        views: dict[int, list[Ratings]] = {part: [] for part in self.here}
        for side in SIDES:
            count = np.append(self.counts[side], 0)[self.own[side]]
            chunks = int((-(-count // CHUNK)).sum(1).max())
            ptr = np.concatenate([[0], np.cumsum(self.counts[side])])
            for part, pile in self.of.pop(side).items():
                y = pile.y.astype(jax.dtypes.canonicalize_dtype(np.float64), copy=False)
                share = pile.share(ptr, self.place[side], side, chunks)
                views[part].append(Ratings.tree_unflatten(frame, (share, y, {}, {})))
        return {part: Divided(*both) for part, both in views.items()}


def deal(
    blocks: Blocks,
    labels: dict[str, pd.Index],
    counts: dict[str, np.ndarray],
    summary: Summary,
    levels: tuple[float, ...] | None,
    duplicates: str,
) -> LargeRatings:
    """The ratings of this process.

    Parameters
    ----------
    blocks
        Gives all blocks, in the same order and with the same sizes in all processes, whenever it is called.
    labels, counts, summary
        Of all ratings: labels and numbers of ratings by side, and what is known of the values.
    """
    if len(summary) > MOST:
        raise BayesfacError(f"Expected at most {MOST} ratings, got {len(summary)}")
    mesh = devices()
    me = jax.process_index()
    mine = [part for part, one in enumerate(mesh.devices.flat) if one.process_index == me]
    exact = duplicates == "mean"  # means of doubles, as of ratings that are read at once
    dtype = np.float64 if exact else jax.dtypes.canonicalize_dtype(np.float64)
    piles = Piles(counts, mesh.size, mine, dtype)
    some, digest = _dealt_out(blocks, piles, labels, summary, levels)
    again = piles.sort()
    if of_all(np.array([len(again[0])])).any():
        if not exact:
            raise ValueError(_first_again(blocks, *again, labels))
        summary = piles.merge(levels, summary.mean())
    users, items = labels["user"], labels["item"]
    shown = Frame(users, items, levels, np.zeros(0, int), summary)  # type: ignore[arg-type]
    here = piles.divided(shown)
    rest: Any = summary, None, "", {}, {}, piles.counts, some, here, mesh.size, digest
    return LargeRatings(LargeFrame(users, items, levels, shown.origin, *rest))


def _dealt_out(
    blocks: Blocks, piles: Piles, labels: dict[str, pd.Index], summary: Summary, levels: Any
) -> tuple[tuple[np.ndarray, np.ndarray], str]:
    """Fill the piles; some cells, one at random from each of equal pieces, and a digest of all."""
    size = min(SOME, len(summary))
    edge = np.linspace(0, len(summary), size + 1).astype(np.int64)
    chosen = np.random.default_rng(0).integers(edge[:-1], edge[1:])
    axes = [labels[side] for side in SIDES]
    digest, at = hashlib.sha256(reading.digest([*axes, levels]).encode()), 0
    some = []
    for user, item, value in blocks():
        mine = chosen[(at <= chosen) & (chosen < at + len(user))] - at
        some.append((user[mine], item[mine]))
        for array in (user, item, value):
            digest.update(np.ascontiguousarray(array).tobytes())
        piles.add(user, item, value)
        at += len(user)
    users, items = (np.concatenate(each) for each in zip(*some, strict=True))
    return (users, items), digest.hexdigest()


def _first_again(
    blocks: Blocks, user: np.ndarray, item: np.ndarray, labels: dict[str, pd.Index]
) -> str:
    """The message for the first rating in the file that repeats another one; the blocks are read again."""
    width, begin = len(labels["item"]), 0
    keys = np.unique(user.astype(np.int64) * width + item)
    before = np.full(len(keys), -1)
    found = [MOST, -1, -1, -1]
    for users, items, _ in blocks() if len(keys) else ():
        cell = users.astype(np.int64) * width + items
        at = np.minimum(np.searchsorted(keys, cell), len(keys) - 1)
        rows = np.flatnonzero(keys[at] == cell)
        codes, distinct = pd.factorize(at[rows])
        first = np.full(len(distinct), len(cell))
        np.minimum.at(first, codes, rows)
        earlier = np.where(before[distinct] >= 0, before[distinct], begin + first)[codes]
        if (again := earlier < begin + rows).any():
            k = int(np.argmax(again))
            found = [begin + rows[k], earlier[k], users[rows[k]], items[rows[k]]]
            break
        before[distinct], begin = begin + first, begin + len(cell)
    every = of_all(np.array(found, np.int64))
    row, earlier, one, other = every[np.argmin(every[:, 0])]
    return triplets.second(row, earlier, labels["user"][one], labels["item"][other])


def of_all(array: np.ndarray) -> np.ndarray:
    """The arrays of all processes, (process, size), bit by bit: JAX may round numbers of 64 bits."""
    words = np.ascontiguousarray(array).view(np.int32)
    found = np.asarray(multihost_utils.process_allgather(words))
    return np.ascontiguousarray(found).reshape(-1, len(words)).view(array.dtype)
