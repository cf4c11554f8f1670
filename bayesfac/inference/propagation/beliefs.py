"""What a block says of a site: natural parameters of a normal law for each row, or of a Gamma law.

`precision` is K x K for each row of a factor, one number for each bias, and the shape of a Gamma law; `shift`
is precision times mean, and the rate of a Gamma law. Laws are multiplied by adding both.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from bayesfac.core.errors import BayesfacError

FLOOR = 0.5  # of the first block's precision: where noise in later precisions would leave less, this stays
ROUNDS = 3  # of alignment: to one draw, then to the mean of what was aligned
ENOUGH = 3  # draws for each direction of a row: fewer leave its covariance without meaning


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
        """What this one says beyond the other one."""
        return Belief(self.precision - other.precision, self.shift - other.shift)


def normal(draws: np.ndarray) -> Belief:
    """Of draws (S, n, K), or (S, n): a normal law for each row, by its moments.

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
    """Of draws (S,): the Gamma law with their mean and variance."""
    x = np.asarray(draws, np.float64)
    rate = x.mean() / x.var(ddof=1)
    return Belief(x.mean() * rate, rate)


def combined(first: Belief, later: list[Belief]) -> Belief:
    """The product of the laws of later blocks, each of which had the first one's law as its prior: divided by
    this law as often as it was counted too often. Where too little precision would be left, what is missing
    stands at the mean of the first block: precision alone would draw the mean to zero, or past it."""
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
    """Draws (S, n, K) of both factors, turned into one frame: orthogonal Procrustes on a draw, then on the
    mean of what was turned."""
    found = {site: np.asarray(x, np.float64) for site, x in factors.items()}
    target = {site: x[-1] for site, x in found.items()}
    for _ in range(ROUNDS):
        cross = sum(x.swapaxes(1, 2) @ target[site] for site, x in found.items())
        left, _, right = np.linalg.svd(cross)
        found = {site: x @ (left @ right) for site, x in found.items()}
        target = {site: x.mean(0) for site, x in found.items()}
    return found
