"""The loops of places.py: moments of all items, and the places of the best ones, of a few draws."""

import numpy as np

from bayesfac.core.kernels.bridge import compiled

GROUP = 32  # items that are compared in one loop of vectors; of 16 the compiler makes no vectors


@compiled
def add_draws(values, mean, square, share, low, closed, n, done):
    """Add a few draws to the sums: Welford's update, and the places of the n best open items.

    Groups of items below `low` are passed over. If it was too high, all items are looked at again.
    """
    draws, users, items = values.shape
    one, nothing = values.dtype.type(1), values.dtype.type(0)
    best, kept = np.empty(max(n, 1), values.dtype), np.empty(items, np.int64)
    whole = items - items % GROUP
    for u in range(users):
        left, shut, shares = 0, closed[u], share[u]
        for j in range(items):
            left += not shut[j]
        places = min(n, left)
        for d in range(draws):
            x, step, bound, number, full = values[d, u], one / (done + d + 1), low[u], 0, 0
            for start in range(0, whole, GROUP):
                hits = nothing  # a real number, so that the loop is one of vectors
                for k in range(GROUP):
                    j = start + k
                    off = x[j] - mean[u, j]
                    mean[u, j] += off * step
                    square[u, j] += off * (x[j] - mean[u, j])
                    hits += one if x[j] >= bound else nothing
                if hits > 0 and places > 0:
                    number, full, bound = _keep(
                        x, shut, start, start + GROUP, bound, places, best, full, kept, number
                    )
            for j in range(whole, items):
                off = x[j] - mean[u, j]
                mean[u, j] += off * step
                square[u, j] += off * (x[j] - mean[u, j])
            if places == 0:
                continue
            number, full, bound = _keep(
                x, shut, whole, items, bound, places, best, full, kept, number
            )
            if full < places:
                lowest = np.finfo(values.dtype).min
                number, full, bound = _keep(x, shut, 0, items, lowest, places, best, 0, kept, 0)
            least = _share(x, shares, places, best, kept, number)
            low[u] = min(least, low[u] + (least - low[u]) / 8)


@compiled
def _keep(x, closed, start, stop, bound, places, best, full, kept, number):
    """Keep the open items from `start` to `stop` that may be among the best; `best` has the `full` largest
    values so far, least first."""
    for j in range(start, stop):
        value = x[j]
        if value < bound or closed[j]:
            continue
        kept[number] = j
        number += 1
        k = 0
        if full < places:
            k = full
            full += 1
            while k > 0 and best[k - 1] > value:
                best[k] = best[k - 1]
                k -= 1
        else:  # the least one makes room
            while k + 1 < places and best[k + 1] < value:
                best[k] = best[k + 1]
                k += 1
        best[k] = value
        if full == places:
            bound = max(bound, best[0])
    return number, full, bound


@compiled
def _share(x, share, places, best, kept, number):
    """Add one draw to the shares of the kept items: 1 for each of the best, and the places that are left are
    shared by items of equal value. The value of the last place."""
    least, above, equal = best[0], 0, 0
    for k in range(number):
        above += x[kept[k]] > least
        equal += x[kept[k]] == least
    tied = x.dtype.type(places - above) / equal
    for k in range(number):
        j = kept[k]
        if x[j] > least:
            share[j] += 1
        elif x[j] == least:
            share[j] += tied
    return least
