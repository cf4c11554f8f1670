"""The number of components that a fit uses, for methods whose `n_components` is an upper limit."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import REGISTRY, Method, from_sites
from bayesfac.fits.fitted import F, Fitted

LOOKS = 100  # draws behind the sentence that `print(fit)` shows


@dataclass(frozen=True, eq=False)
class InUse:
    """The number of components in use in every draw.

    `number` has this number for each chain and draw, and `limit` is `n_components`. A point fit has one
    chain with one draw.
    """

    number: np.ndarray
    limit: int

    @property
    def table(self) -> pd.Series:
        """For each number of components, the share of the draws that use this number."""
        value, count = np.unique(self.number, return_counts=True)
        index = pd.Index(value, name="components in use")
        return pd.Series(count / count.sum(), index, name="share of draws")

    def interval(self, level: float = 0.9) -> tuple[int, int]:
        """The central interval of the number, widened to whole components."""
        low, high = np.quantile(self.number, [(1 - level) / 2, (1 + level) / 2])
        return int(np.floor(low)), int(np.ceil(high))

    @property
    def agree(self) -> bool:
        """Whether the 90 % intervals of all chains have a number in common."""
        low, high = np.transpose([InUse(each, self.limit).interval() for each in self.number])
        return bool(low.max() <= high.min())

    def __str__(self) -> str:
        table, (low, high) = self.table, self.interval()
        text = f"components in use: {table.idxmax()} of at most {self.limit}"
        if self.number.size > 1:
            text += f" (in {table.max():.0%} of the draws; 90 % interval {low} to {high})"
        if not self.agree:
            text += "; the chains do not agree: run more sweeps"
        return text + ("; the limit is reached: raise n_components" if high == self.limit else "")


def in_use(fit: Fitted) -> InUse:
    """The number of components that each draw uses, for methods whose `n_components` is a limit (`ard_mf`).

    By default `ard_mf` subtracts the mean rating (`offset`) first. If the true ratings are a product of
    factors without a constant, as in this example, set `offset=0.0`; otherwise the constant needs one more
    component.

    Examples
    --------
    >>> import bayesfac as bf
    >>> ratings = bf.datasets.make_gaussian(60, 40, 2, noise=0.3, seed=0)[0]
    >>> engine = bf.Gibbs(warmup=200, draws=200, chains=1)
    >>> fit = bf.fit("ard_mf", ratings, engine, n_components=6, offset=0.0, progress=False)
    >>> print(fit.in_use)  # doctest: +ELLIPSIS
    components in use: 2 of at most 6 (in ...% of the draws; 90 % interval 2 to ...)
    """
    return InUse(_numbers(fit, 1), fit.hyper.n_components)


def limited(method: Method) -> bool:
    """Whether `n_components` is an upper limit."""
    return bool(method.parts) and method.parts.limited


def told(fit: F) -> F:
    """The fit, with a sentence for `print(fit)` on the number of components in use."""
    if limited(fit.method):
        chains, draws = next(iter(fit._as_draws().values())).shape[:2]
        numbers = _numbers(fit, max(1, chains * draws // LOOKS))
        fit.info["chosen"].append(str(InUse(numbers, fit.hyper.n_components)))
    return fit


def _numbers(fit: Fitted, step: int) -> np.ndarray:
    """The number in every `step`-th draw of each chain."""
    if not limited(fit.method):
        known = ", ".join(name for name, one in REGISTRY.items() if limited(one))
        raise BayesfacError(
            f"Expected a method whose n_components is an upper limit ({known}), got {fit.name}"
        )
    found, draws, card = [], fit._as_draws(), fit.data
    chains, length = next(iter(draws.values())).shape[:2]
    for chain in range(chains):
        for draw in range(0, length, step):
            flat = {site: np.asarray(x[chain, draw], np.float64) for site, x in draws.items()}
            p = from_sites(fit.method, flat)
            noise = fit.method.parts.observed.precision(p, fit.hyper)
            found.append(above_noise(p.U, p.V, noise, card.row_counts, card.col_counts))
    return np.reshape(found, (chains, -1))


def above_noise(U: Any, V: Any, alpha: Any, by_user: np.ndarray, by_item: np.ndarray) -> int:
    """The number of singular values above the noise with precision alpha; `by_user`, `by_item` count ratings.

    With r_i ratings of user i, c_j of item j and N in all, take the table sqrt(N / (r_i c_j)) (y_ij - m) of
    the observed cells. If users and items meet independently, its noise has the same variance 1/alpha in
    every row and column, and its mean is sqrt(r_i c_j / N) u_i.v_j. For n users and m items, singular values
    of this mean below (n m)^1/4 / sqrt(alpha) cannot be detected in the table (the transition of Baik, Ben
    Arous & Péché; for tables Benaych-Georges & Nadakuditi, J. Multivariate Analysis 2012). So the limit has
    no setting.
    """
    n, m = (np.count_nonzero(count) for count in (by_user, by_item))
    limit = np.sqrt(n * m) * by_user.sum() / np.float64(alpha)
    left, right = (np.sqrt(count)[:, None] * x for count, x in ((by_user, U), (by_item, V)))
    value, frame = np.linalg.eigh(left.T @ left)
    root = frame * np.sqrt(np.maximum(value, 0))
    return int((np.linalg.eigvalsh(root.T @ (right.T @ right) @ root) > limit).sum())
