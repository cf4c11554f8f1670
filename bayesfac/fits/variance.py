"""How much of each view every component explains, and how sure that is: `fit.variance_explained`."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import gauge_of
from bayesfac.fits.fitted import Fitted
from bayesfac.report.diagnostics.align import align_draws

TOTAL = "all"  # the row of all components together


def variance_explained(fit: Fitted, level: float = 0.9, least: float = 0.01) -> pd.DataFrame:
    """The share of the variance of each view that each component explains, with intervals.

    It is computed for every draw: the variance of the scores, over rows, divided by that of scores and noise
    (Gelman, Goodrich, Gabry & Vehtari, American Statistician 2019). Values of 0 and 1 have the noise of the
    logistic law, pi^2 / 3, and counts that of their logarithms, log(1 + 1 / mean + 1 / r). Components are
    first matched over draws and chains. Shares of single components add up to that of all of them where
    components are uncorrelated.

    Parameters
    ----------
    level : float
        The mass of the central interval from `low` to `high`.
    least : float
        A component that explains at least this share of a view is in use there.

    Returns
    -------
    DataFrame
        For each view and component, and for "all": `mean`, `low`, `high`, and `in_use`, the share of the
        draws in which the component is in use; for "all" the mean number of components in use.

    Examples
    --------
    >>> import bayesfac as bf
    >>> data = bf.datasets.make_measurements(60, {"genes": 20, "drugs": 10}, 2, seed=0)[0]
    >>> fit = bf.fit("mofa", data, bf.Gibbs(50, 50, 2), n_components=2, progress=False)
    >>> fit.variance_explained().loc["genes"].index.tolist()
    [1, 2, 'all']
    """
    if not 0 < level < 1:
        raise ValueError(f"Expected level between 0 and 1, got {level!r}")
    if not 0 <= least < 1:
        raise ValueError(f"Expected least from 0 to below 1, got {least!r}")
    views = getattr(fit.hyper, "views", None)
    if views is None:
        raise BayesfacError(
            f"Expected a fit of measurements in views, as of 'mofa', got {fit.name}: "
            "fit.predict(test) says how well values are predicted"
        )
    draws = {site: np.asarray(x) for site, x in fit._as_draws().items()}
    draws = align_draws(draws, gauge_of(fit.method, list(draws))).draws
    flat = {site: x.reshape(-1, *x.shape[2:]).astype(np.float64) for site, x in draws.items()}
    ends, parts = [(1 - level) / 2, (1 + level) / 2], []
    for view in views:
        each = shares(view, flat)
        used = (each[:, :-1] >= least).mean(0)
        low, high = np.quantile(each, ends, axis=0)
        index = pd.MultiIndex.from_product(
            [[view.name], [*range(1, each.shape[1]), TOTAL]], names=["view", "component"]
        )
        columns = {"mean": each.mean(0), "low": low, "high": high, "in_use": [*used, used.sum()]}
        parts.append(pd.DataFrame(columns, index))
    return pd.concat(parts)


def shares(view: Any, draws: Mapping[str, np.ndarray]) -> np.ndarray:
    """The share of the variance of a view that each component explains, and at the end that of all together,
    for every draw."""
    U, V = draws["U"], draws[f"V.{view.name}"]
    away = U - U.mean(1, keepdims=True)
    cov = np.matmul(away.transpose(0, 2, 1), away) / U.shape[1]
    square = np.matmul(V.transpose(0, 2, 1), V) / V.shape[1]
    own = np.einsum("skk,skk->sk", cov, square)
    whole = np.einsum("skl,slk->s", cov, square)
    variance = whole + np.broadcast_to(view.noise(draws), whole.shape)
    return np.concatenate([own, whole[:, None]], 1) / variance[:, None]
