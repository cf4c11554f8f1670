"""The number of modes among aligned draws.

Alignment removes the symmetries of the joint density. Aligned draws that still lie in several heaps with
empty space between them are different explanations of the data.
"""

from collections.abc import Iterator, Sequence

import numpy as np

LOOKED = 400  # draws whose pairs are compared
CHUNK = 2**15  # numbers of each draw that are multiplied at a time
DIRECTIONS = 5  # principal directions in which gaps are searched
LEAST, FEWEST = 0.05, 10  # least share, and least number, of draws on each side of a gap
# Least width of a gap, in mean distances of the neighbouring draws. One in 5,000 sets of 400 evenly spread
# draws has such a gap, (1 + 20 / 38)^-38 for each of 360 in 5 directions; two normal heaps of 150 draws have
# such a gap when they are 7 sds apart.
WIDE = 20.0


def heaps(sites: Sequence[np.ndarray]) -> np.ndarray:
    """The heap of every draw: 0 for the largest heap, 1 for the next, ...

    Parameters
    ----------
    sites : sequence of arrays (S, ...)
        Aligned draws; all sites count equally.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> one, other = rng.normal(size=(100, 30)), 3 + rng.normal(size=(50, 30))
    >>> np.bincount(heaps([np.concatenate([one, other])])).tolist()
    [100, 50]
    """
    gram = np.sum([_gram(site) for site in sites], axis=0)
    least = max(FEWEST, int(np.ceil(LEAST * len(gram))))
    parts = sorted(_split(gram, np.arange(len(gram)), least), key=len, reverse=True)
    label = np.empty(len(gram), int)
    for number, members in enumerate(parts):
        label[members] = number
    return label


def _gram(site: np.ndarray) -> np.ndarray:
    """Inner products of all pairs of centred draws, divided by the site's mean square."""
    flat = site.reshape(len(site), -1)
    total, size = np.zeros((len(flat), len(flat))), 0.0
    for start in range(0, flat.shape[1], CHUNK):
        part = np.asarray(flat[:, start : start + CHUNK], float)
        size += float((part**2).sum()) / len(part)
        part = part - part.mean(0)
        total += part @ part.T
    return total / max(size, np.finfo(float).tiny)


def _split(gram: np.ndarray, members: np.ndarray, least: int) -> Iterator[np.ndarray]:
    """Split the members at the widest gap, and the halves again, until no gap is left."""
    here = gram[np.ix_(members, members)]
    here = here - here.mean(0) - here.mean(1)[:, None] + here.mean()
    values, vectors = np.linalg.eigh(here)
    noise = 1e-12 * max(float(np.trace(gram)), np.finfo(float).tiny)
    largest = range(1, min(DIRECTIONS, len(members)) + 1)
    gaps = [_gap(vectors[:, -k], least) for k in largest if values[-k] > noise]
    width, below = max(gaps, key=lambda gap: gap[0], default=(0.0, members < 0))
    if width < WIDE:
        yield members
    else:
        yield from _split(gram, members[below], least)
        yield from _split(gram, members[~below], least)


def _gap(score: np.ndarray, least: int) -> tuple[float, np.ndarray]:
    """Width of the widest gap, in mean distances of `least` draws on each side, and the draws below it."""
    below = np.zeros(len(score), bool)
    if len(score) < 2 * least:
        return 0.0, below
    order = np.argsort(score)
    x = score[order]
    at = np.arange(least - 1, len(x) - least)  # the last draw below a gap
    beside = (x[at] - x[at - least + 1] + x[at + least] - x[at + 1]) / (2 * least - 2)
    beside = np.maximum(beside, 1e-9 * max(x[-1] - x[0], np.finfo(float).tiny))
    widths = (x[at + 1] - x[at]) / beside
    best = int(np.argmax(widths))
    below[order[: at[best] + 1]] = True
    return float(widths[best]), below
