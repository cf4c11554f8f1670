"""Random numbers in loops of Numba, from a state of one word: uniform, Gamma, binomial, cut normal ones."""

import numpy as np

from bayesfac.core.kernels.bridge import compiled

MEAN = 50.0  # of the binomials drawn by inversion, so that (1 - p)^n does not vanish
LARGE = 200.0  # the mean from which halving a binomial takes less time than its inversion
# A try fails with a probability well below one. If a parameter is NaN, no try succeeds: the row becomes NaN,
# and the engine reports where.
TRIES = 10_000
SUMS = (1.0, 2.0, 3.0, 4.0)  # shapes


@compiled
def mixed(z):
    """A bijection of 64-bit words whose values look independent (Steele, Lea & Flood 2014)."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@compiled
def uniform(state):
    """The next number of [0, 1) from a state of one word."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    return (mixed(state[0]) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@compiled
def _normal(state):
    """A standard normal number, by the polar method."""
    for _ in range(TRIES):
        u, v = 2 * uniform(state) - 1, 2 * uniform(state) - 1
        s = u * u + v * v
        if 0 < s < 1:
            return u * np.sqrt(-2 * np.log(s) / s)
    return 0.0


@compiled
def cut_normal(state, m, s):
    """A number of N(m, s^2) cut to x >= 0; see `nonnegative.cut_normals`."""
    c = -m / s
    if c <= 0:
        for _ in range(TRIES):
            x = m + s * _normal(state)
            if x >= 0:
                return x
        return np.nan
    root = np.sqrt(c * c + 4)
    rate, gap = (root + c) / 2, 2 / (root + c)
    for _ in range(TRIES):
        e = -np.log(1 - uniform(state)) / rate
        if 1 - uniform(state) <= np.exp(-((e - gap) ** 2) / 2):
            return s * e
    return np.nan


@compiled
def gamma(state, shape):
    """A Gamma(shape, 1) number (Marsaglia & Tsang 2000).

    For a small whole shape it is a sum of exponential numbers. Such shapes are frequent: a flat prior has
    the shape 1, and each count adds 1.
    """
    if shape in SUMS:
        product = 1.0
        for _ in range(int(shape)):
            product *= 1 - uniform(state)
        return -np.log(product)
    low = shape < 1
    d = (shape + 1 if low else shape) - 1 / 3
    c = 1 / np.sqrt(9 * d)
    for _ in range(TRIES):
        x = _normal(state)
        v = (1 + c * x) ** 3
        u = 1 - uniform(state)
        # the first comparison implies the second, which takes two logarithms
        if u < 1 - 0.0331 * x**4 or (v > 0 and np.log(u) < x * x / 2 + d * (1 - v + np.log(v))):
            return d * v * (1 - uniform(state)) ** (1 / shape) if low else d * v
    return -1.0


@compiled
def binomial(state, n, p):
    """A binomial number: how many of n uniform numbers are below p.

    A large n is halved: if the number in the middle, a Beta number, is below p, so is the half below it, and
    the other half is left; else that half is left (Relles 1972). So time grows with log n.
    """
    below = np.int64(0)
    while n * min(p, 1 - p) > LARGE:
        half = n // 2 + 1
        one, other = gamma(state, np.float64(half)), gamma(state, np.float64(n + 1 - half))
        middle = one / (one + other)
        if middle <= p:
            below, n, p = below + half, n - half, (p - middle) / (1 - middle)
        else:
            n, p = half - 1, p / middle
    if p > 0.5:
        return below + n - _binomial_below_half(state, n, 1 - p)
    return below + _binomial_below_half(state, n, p)


@compiled
def _binomial_below_half(state, n, p):
    """A binomial number by inversion of its distribution, in parts whose means are at most MEAN."""
    total = np.int64(0)
    if p <= 0:
        return total
    while n > 0:
        part = n if n * p <= MEAN else np.int64(MEAN / p)
        n -= part
        mass, odds, x = np.exp(part * np.log1p(-p)), p / (1 - p), np.int64(0)
        u = uniform(state)
        while u >= mass and x < part:
            u -= mass
            x += 1
            mass *= odds * (part - x + 1) / x
        total += x
    return total
