"""Rows of a factor whose components are identified, with their uncertainty: `fit.loadings`."""

from typing import Any

import jax
import numpy as np
import pandas as pd

from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import Rotation, from_sites, gauge_of
from bayesfac.fits.fitted import Fitted
from bayesfac.report.diagnostics.align import align_draws

FEATURE = "feature."  # begins the axis of the features of a view


def loadings(fit: Fitted, axis: str = "item", level: float = 0.9) -> pd.DataFrame:
    """The rows of an axis, entry by entry, of factorizations that identify their components.

    Components are first matched over draws and chains, with their signs. Where scores do not change if all
    rows are rotated, as in `bpmf`, single entries have no meaning, and this is refused.

    Parameters
    ----------
    axis : str
        "user", "item", a mode of a tensor, or a view of measurements.
    level : float
        The mass of the central interval from `low` to `high`.

    Returns
    -------
    DataFrame
        For each label and component: `mean`, `sd`, `low`, `high`; of rows with the prior `SpikeAndSlab` also
        `in_slab`, the probability that the entry is not nearly zero.

    Examples
    --------
    >>> import bayesfac as bf
    >>> model = bf.factorization(bf.Spherical(1.0), bf.SpikeAndSlab())
    >>> ratings = bf.datasets.make_gaussian(60, 40, 2, noise=0.3, seed=0)[0]
    >>> fit = bf.fit(model, ratings, bf.Gibbs(50, 50, 2), n_components=2, progress=False)
    >>> list(fit.loadings("item").columns)
    ['mean', 'sd', 'low', 'high', 'in_slab']
    """
    if not 0 < level < 1:
        raise ValueError(f"Expected level between 0 and 1, got {level!r}")
    factor = _factor(fit, axis)
    draws = {site: np.asarray(x) for site, x in fit._as_draws().items()}
    gauge = gauge_of(fit.method, list(draws))
    if any(isinstance(free, Rotation) for free in gauge):
        raise BayesfacError(
            f"Expected a factorization that identifies its components, got {fit.name}: its scores stay as "
            "they are if all rows are rotated. bf.factorization(columns=bf.SpikeAndSlab()), or with "
            "bf.Horseshoe() or bf.Relevance(), identifies them; fit.everywhere() has the scores"
        )
    found = align_draws(draws, gauge).draws
    rows = found[factor.rows].reshape(-1, *found[factor.rows].shape[2:])
    low, high = np.quantile(rows, [(1 - level) / 2, (1 + level) / 2], axis=0)
    columns = {"mean": rows.mean(0), "sd": rows.std(0), "low": low, "high": high}
    if factor.mixture and factor.mixture.site:
        columns["in_slab"] = _in_slab(fit, factor, found)
    components = range(1, rows.shape[2] + 1)
    index = pd.MultiIndex.from_product(
        [fit.data.coords[factor.axis], components], names=[axis, "component"]
    )
    return pd.DataFrame({name: x.ravel() for name, x in columns.items()}, index)


def _factor(fit: Fitted, axis: str) -> Any:
    """The factor of an axis."""
    if not fit.method.parts:
        raise BayesfacError(f"Expected a method that is made of parts, got {fit.name}")
    known = {f.axis.removeprefix(FEATURE): f for f in fit.method.parts.at(fit.hyper).main}
    if axis not in known:
        raise ValueError(f"Expected axis to be one of {[*known]}, got {axis!r}")
    return known[axis]


def _in_slab(fit: Fitted, factor: Any, draws: Any) -> np.ndarray:
    """The mean over draws of the probability that an entry is in the slab."""

    @jax.jit
    def of(p: Any) -> jax.Array:
        return factor.shares(p, fit.hyper)[..., 1]

    chains, length = next(iter(draws.values())).shape[:2]
    total = np.zeros(())
    for chain in range(chains):
        for draw in range(length):
            p = from_sites(fit.method, {site: x[chain, draw] for site, x in draws.items()})
            total = total + np.asarray(of(p), np.float64)
    return total / (chains * length)
