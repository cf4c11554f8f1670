"""How many explanations a set of aligned draws still holds.

Alignment removes the copies that the joint density cannot tell apart. What then lies in several heaps,
with nothing in between, are different explanations of the data: no frame makes one of them the other.
"""

from collections.abc import Iterator, Sequence

import numpy as np

LOOKED = 400  # draws whose pairs are compared
CHUNK = 2**15  # numbers of each draw that are multiplied at a time
DIRECTIONS = 5  # principal ones, that are looked along
LEAST, FEWEST = 0.05, 10  # the share, and the number, of draws on each side of a gap
# The gap's width, in mean distances of the neighbours about it. One in 5,000 sets of 400 evenly spread draws
# has one so wide, (1 + 20 / 38)^-38 for each of 360 in 5 directions; two normal heaps of 150 draws have it
# when they are 7 sds apart.
WIDE = 20.0


def heaps(sites: Sequence[np.ndarray]) -> np.ndarray:
    """The number of the heap of every draw, the largest first; all 0 where there is but one.

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
    found = sorted(_split(gram, np.arange(len(gram)), least), key=len, reverse=True)
    label = np.empty(len(gram), int)
    for number, members in enumerate(found):
        label[members] = number
    return label


def _gram(site: np.ndarray) -> np.ndarray:
    """Products of all pairs of draws, about their mean, in units of the site's own size."""
    flat = site.reshape(len(site), -1)
    total, size = np.zeros((len(flat), len(flat))), 0.0
    for start in range(0, flat.shape[1], CHUNK):
        part = np.asarray(flat[:, start : start + CHUNK], float)
        size += float((part**2).sum()) / len(part)
        part = part - part.mean(0)
        total += part @ part.T
    return total / max(size, np.finfo(float).tiny)


def _split(gram: np.ndarray, members: np.ndarray, least: int) -> Iterator[np.ndarray]:
    """Halve the members at the widest gap along some direction, as long as there is one."""
    here = gram[np.ix_(members, members)]
    here = here - here.mean(0) - here.mean(1)[:, None] + here.mean()
    values, vectors = np.linalg.eigh(here)
    noise = 1e-12 * max(float(np.trace(gram)), np.finfo(float).tiny)
    gaps = [
        _gap(vectors[:, -k], least)
        for k in range(1, min(DIRECTIONS, len(members)) + 1)
        if values[-k] > noise
    ]
    width, below = max(gaps, key=lambda found: found[0], default=(0.0, members < 0))
    if width < WIDE:
        yield members
    else:
        yield from _split(gram, members[below], least)
        yield from _split(gram, members[~below], least)


def _gap(score: np.ndarray, least: int) -> tuple[float, np.ndarray]:
    """The widest gap between neighbours, in mean distances of the `least` neighbours on either side, and who
    is below it."""
    below = np.zeros(len(score), bool)
    if len(score) < 2 * least:
        return 0.0, below
    order = np.argsort(score)
    x = score[order]
    at = np.arange(least - 1, len(x) - least)  # the last one below
    beside = (x[at] - x[at - least + 1] + x[at + least] - x[at + 1]) / (2 * least - 2)
    beside = np.maximum(beside, 1e-9 * max(x[-1] - x[0], np.finfo(float).tiny))
    widths = (x[at + 1] - x[at]) / beside
    best = int(np.argmax(widths))
    below[order[: at[best] + 1]] = True
    return float(widths[best]), below
