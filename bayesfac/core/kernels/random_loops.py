"""Uniform, Gamma, binomial, Polya-Gamma and cut normal numbers in loops of Numba, from one word of state."""

import math
from typing import Any

import numpy as np

from bayesfac.core.kernels.bridge import argument, compiled, result, runner, vector

MEAN = 50.0  # of the binomials drawn by inversion, so that (1 - p)^n does not vanish
LARGE = 200.0  # the mean from which halving a binomial takes less time than its inversion
# A try fails with a probability well below one. If a parameter is NaN, no try succeeds: the row becomes NaN,
# and the engine reports where.
TRIES = 10_000
SUMS = (1.0, 2.0, 3.0, 4.0)  # shapes
HALVES = (0.5, 1.5, 2.5, 3.5, 4.5)
CUT = 0.64  # where the two series of the Polya-Gamma density take turns
# Behind its first term a series is at most 3 exp(-2 q) of it, where q is 2 / CUT or more
CERTAIN = 1 - 3 * math.exp(-4 / CUT)


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
def seeded(state, key, place):
    """The state of the number at this place, so that numbers do not depend on the number of shares."""
    seed = (np.uint64(np.uint32(key[0])) << np.uint64(32)) | np.uint64(np.uint32(key[1]))
    state[0] = mixed(seed + mixed(np.uint64(place) + np.uint64(1)))


@compiled
def _normal(state):
    """A standard normal number, by a direction and a radius."""
    return np.sqrt(-2 * np.log(1 - uniform(state))) * np.cos(2 * np.pi * uniform(state))


@compiled
def _half_square(state):
    """Half the square of a normal number, by a direction and the square of a radius; no try fails."""
    cosine = np.cos(np.pi * uniform(state))
    return -np.log(1 - uniform(state)) * cosine * cosine


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

    For a small whole shape it is a sum of exponential numbers, and with a half there is half the square of a
    normal number more. Such shapes are frequent: a flat prior has the shape 1, and each count adds 1.
    """
    if shape in SUMS or shape in HALVES:
        product = 1.0
        for _ in range(int(shape)):
            product *= 1 - uniform(state)
        return (_half_square(state) if shape in HALVES else 0.0) - np.log(product)
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


# -- Polya-Gamma numbers -----------------------------------------------------------------------------------
@compiled
def polya_gamma(state, c):
    """A PG(1, c) number, exactly (Devroye 2009; Polson, Scott & Windle 2013, section 4).

    It is J / 4, where J has, with z = |c| / 2, the density

        cosh(z) exp(-x z^2 / 2) sum_n (-1)^n a_n(x),   a_n / a_0 = (2n + 1) exp(-n (n + 1) q)

    and q = 2 / x below CUT, q = pi^2 x / 2 above. A proposal has the density of n = 0 alone: exponential
    above CUT, inverse Gaussian below. Partial sums of the series are above and below it in turn, so few terms
    decide whether the proposal is accepted.
    """
    z = abs(c) / 2
    rate, above = np.pi**2 / 8 + z * z / 2, _share_above(z)
    for _ in range(TRIES):
        if uniform(state) < above:
            x = CUT - np.log(1 - uniform(state)) / rate
        else:
            x = _below(state, z)
        if under_series(uniform(state), x):
            return x / 4
    return -1.0


@compiled
def under_series(u, x):
    """Whether u is below sum_n (-1)^n a_n / a_0 at x."""
    if u < CERTAIN:
        return True
    q, part = 2 / x if x <= CUT else np.pi**2 * x / 2, 1.0
    for n in range(1, TRIES):
        term = (2 * n + 1) * np.exp(-n * (n + 1) * q)
        part += term if n % 2 == 0 else -term
        if n % 2 == 1 and u <= part:
            return True
        if n % 2 == 0 and u > part:
            return False
    return False


@compiled
def _share_above(z):
    """The share of proposals above CUT; below 1e-47 if z is large, where the formula overflows."""
    if z > 20:
        return 0.0
    rate, root = np.pi**2 / 8 + z * z / 2, np.sqrt(CUT / 2)
    one, two = math.erfc((1 / CUT - z) * root), math.erfc((1 / CUT + z) * root)
    below = (np.exp(-z) * one + np.exp(z) * two) / 2
    return 1 / (1 + 4 / np.pi * rate * np.exp(rate * CUT) * below)


@compiled
def _below(state, z):
    """An inverse Gaussian number with mean 1/z and shape 1 that is below CUT."""
    if z * CUT < 1:  # from 1 / x, the square of a normal number that is large
        for _ in range(TRIES):
            e = -np.log(1 - uniform(state))
            if e * e > -2 / CUT * np.log(1 - uniform(state)):
                continue
            x = CUT / (1 + CUT * e) ** 2
            if uniform(state) < np.exp(-z * z * x / 2):
                return x
        return -1.0
    for _ in range(TRIES):
        y = 2 * _half_square(state) / z
        x = (1 + y / 2 - np.sqrt(y + y * y / 4)) / z
        if uniform(state) * (1 + z * x) > 1:
            x = 1 / (z * z * x)
        if x < CUT:
            return x
    return -1.0


@compiled
def polya_gamma_sum(state, b, c, terms, mean, variance):
    """A sum of so many Gamma numbers, and of one with mean and variance of the rest (laws/polya_gamma.py)."""
    w = gamma(state, mean * mean / variance) * variance / mean
    for k in range(terms):
        w += gamma(state, b) / (2 * np.pi**2 * (k + 0.5) ** 2 + c * c / 2)
    return w


@compiled
def _polya_gammas(f, T, problem, block, blocks):
    key = vector(f, argument(f, 0), np.int32, problem)
    c, out = vector(f, argument(f, 1), T, problem), vector(f, result(f, 0), T, problem)
    state = np.zeros(1, np.uint64)
    for p in range(len(c) * block // blocks, len(c) * (block + 1) // blocks):
        seeded(state, key, p)
        out[p] = polya_gamma(state, np.float64(c[p]))


@compiled
def _polya_gamma_sums(f, T, problem, block, blocks):
    key = vector(f, argument(f, 0), np.int32, problem)
    c, b = vector(f, argument(f, 1), T, problem), vector(f, argument(f, 3), T, problem)
    terms = vector(f, argument(f, 2), np.int32, problem)[0]
    mean, variance = vector(f, argument(f, 4), T, problem), vector(f, argument(f, 5), T, problem)
    out, state = vector(f, result(f, 0), T, problem), np.zeros(1, np.uint64)
    for p in range(len(c) * block // blocks, len(c) * (block + 1) // blocks):
        seeded(state, key, p)
        rest = np.float64(mean[p]), np.float64(variance[p])
        out[p] = polya_gamma_sum(state, np.float64(b[p]), np.float64(c[p]), terms, *rest)


_run_polya_gammas = runner(_polya_gammas, axes=1)
_run_polya_gamma_sums = runner(_polya_gamma_sums, axes=1)


def polya_gammas(T: Any, slot: int) -> Any:
    return lambda frame: _run_polya_gammas(frame, T, slot)


def polya_gamma_sums(T: Any, slot: int) -> Any:
    return lambda frame: _run_polya_gamma_sums(frame, T, slot)
