"""The result of a block for a site: natural parameters of a normal or Gamma distribution.

There is a normal distribution for each row of a factor and for each bias. `precision` is K x K for a row,
and one number for a bias; `shift` is precision times mean. For a Gamma distribution, `precision` is the
shape and `shift` the rate. Densities are multiplied by adding both.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from bayesfac.core.errors import BayesfacError

FLOOR = 0.5  # at least this share of the first block's precision remains
ROUNDS = 3  # of alignment: to one draw, then to the mean of what was aligned
ENOUGH = 3  # draws for each dimension of a row: with fewer draws its covariance is meaningless


class Belief(NamedTuple):
    """The natural parameters of a site."""

    precision: np.ndarray
    shift: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        if self.precision.ndim == 3:
            return np.linalg.solve(self.precision, self.shift[..., None])[..., 0]
        return self.shift / self.precision

    def less(self, other: "Belief") -> "Belief":
        """The information in this one that is not in the other one: the quotient of the densities."""
        return Belief(self.precision - other.precision, self.shift - other.shift)


def normal(draws: np.ndarray) -> Belief:
    """A normal distribution for each row of draws (S, n, K), or (S, n), with the moments of the draws.

    The inverse of a sample covariance is too large on average, by (S - 1) / (S - K - 2).
    """
    x = np.asarray(draws, np.float64)
    size, K = len(x), (x.shape[2] if x.ndim == 3 else 1)
    if size < ENOUGH * (K + 2):
        raise BayesfacError(
            f"Expected at least {ENOUGH * (K + 2)} draws of a block for rows of {K} components, got {size}: "
            "take more chains or draws"
        )
    mean = x.mean(0)
    fair = (size - K - 2) / (size - 1)
    if x.ndim == 2:
        precision = fair / x.var(0, ddof=1)
        return Belief(precision, precision * mean)
    rest = np.moveaxis(x - mean, 0, 1)  # (n, S, K)
    precision = fair * np.linalg.inv(rest.swapaxes(1, 2) @ rest / (size - 1))
    return Belief(precision, (precision @ mean[..., None])[..., 0])


def gamma(draws: np.ndarray) -> Belief:
    """The Gamma distribution with the mean and variance of draws (S,)."""
    x = np.asarray(draws, np.float64)
    rate = x.mean() / x.var(ddof=1)
    return Belief(x.mean() * rate, rate)


def combined(first: Belief, later: list[Belief]) -> Belief:
    """The product of the densities of later blocks. Each of them had the density of the first block as its
    prior, so the product is divided by this density as often as it was counted too often. If too little
    precision would be left, the missing precision is added at the mean of the first block, because precision
    alone would move the mean towards zero, or past it."""
    precision = first.precision + sum(one.precision - first.precision for one in later)
    shift = first.shift + sum(one.shift - first.shift for one in later)
    if precision.ndim < 3:
        kept = np.maximum(precision, FLOOR * first.precision)
        # of a Gamma law these are shape and rate, and the same ratio keeps its mean
        return Belief(kept, shift + (kept - precision) * (first.shift / first.precision))
    root = np.linalg.cholesky(first.precision)
    half = np.linalg.solve(root, precision)
    size, axes = np.linalg.eigh(np.linalg.solve(root, half.swapaxes(1, 2)))
    if size.min() < FLOOR:
        axes = root @ axes
        more = (axes * np.maximum(FLOOR - size, 0)[:, None]) @ axes.swapaxes(1, 2)
        precision = precision + more
        shift = shift + (more @ first.mean[..., None])[..., 0]
    return Belief(precision, shift)


def sampled(belief: Belief, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Draws of every row, independent of one another: (draws, n, K), or (draws, n)."""
    z = rng.standard_normal((draws, *belief.shift.shape))
    if belief.precision.ndim < 3:
        return belief.mean + z / np.sqrt(belief.precision)
    root = np.linalg.inv(np.linalg.cholesky(belief.precision))  # precision^-1 = root' root
    return belief.mean + np.einsum("nlk,snl->snk", root, z, optimize=True)


def aligned(factors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Draws (S, n, K) of both factors, rotated to match: by orthogonal Procrustes to one draw, and then to
    the mean of the rotated draws."""
    found = {site: np.asarray(x, np.float64) for site, x in factors.items()}
    target = {site: x[-1] for site, x in found.items()}
    for _ in range(ROUNDS):
        cross = sum(x.swapaxes(1, 2) @ target[site] for site, x in found.items())
        left, _, right = np.linalg.svd(cross)
        found = {site: x @ (left @ right) for site, x in found.items()}
        target = {site: x.mean(0) for site, x in found.items()}
    return found
