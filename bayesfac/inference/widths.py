"""Check whether the standard deviations (sds) of an approximation, or of a short run, are large enough.

Gibbs sweeps leave the posterior unchanged. So some chains start at draws of an approximation and make a few
sweeps. If predictions vary more after these sweeps than before, the approximation was too narrow. After a
few sweeps chains still depend on their start, so the true difference is at least as large. For a short Gibbs
run no further sweeps are needed: its first and second half show how its variance grows with its length.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayesfac.core.data.cells import Query
from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import from_sites
from bayesfac.inference.gibbs import continued
from bayesfac.inference.predictions.everywhere import expectations, mean_noise
from bayesfac.inference.predictions.predict import MEMORY
from bayesfac.inference.result import Job, Result, derived

CHAINS, SWEEPS = 8, 48  # of which the first half is thrown away
PAIRS = 2  # balanced draws of rows at each kept sweep


def against_conditionals(job: Job, draws: Mapping[str, np.ndarray], probe: Query) -> dict[str, Any]:
    """{"ratio", "error"}: sds of expected outcomes at the probe cells, divided by those after Gibbs sweeps.

    `error` is the standard error, from leaving out one chain at a time. If there is no result, {"why"} says
    why.
    """
    total = int(np.prod(next(iter(draws.values())).shape[:2]))
    at = np.linspace(0, total - 1, CHAINS).astype(int)
    flat = {site: np.reshape(x, (total, *x.shape[2:])) for site, x in draws.items()}
    p = from_sites(job.method, {site: jnp.asarray(x[at]) for site, x in flat.items()})
    walks = jax.random.split(jax.random.fold_in(job.key, SWEEPS), CHAINS)
    try:
        new = continued(job, p, walks, SWEEPS // 2, SWEEPS // 2, PAIRS)
    except BayesfacError as error:  # the conditionals may not exist for all settings of a method
        return {"why": str(error)}
    before, after = (_expected(job, some, probe) for some in (draws, new))
    chains = np.arange(len(after)) // (len(after) // CHAINS)
    growth = [_growth(before, after)] + [_growth(before, after[chains != c]) for c in range(CHAINS)]
    ratios = np.asarray(growth) ** -0.5
    jackknife = np.sqrt((CHAINS - 1) * np.var(ratios[1:]))
    return {"ratio": float(ratios[0]), "error": float(jackknife)}


def _expected(job: Job, draws: Mapping[str, np.ndarray], probe: Query) -> np.ndarray:
    """(draw, cell) expected outcomes."""
    return expectations(job.method, job.hyper, _full(job, draws), probe, MEMORY).astype(float)


def _noise(job: Job, draws: Mapping[str, np.ndarray], probe: Query) -> np.ndarray:
    """(cell,) variance of an outcome about its expectation, a mean over the draws."""
    return mean_noise(job.method, job.hyper, _full(job, draws), probe, MEMORY).astype(float)


def _full(job: Job, draws: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    return derived(job.method, job.data, job.hyper, Result(draws=draws)).draws  # type: ignore[return-value]


def _growth(before: np.ndarray, after: np.ndarray) -> float:
    """The variance after the sweeps divided by that before, averaged over the cells that vary."""
    old, new = before.var(0), after.var(0)
    return float(np.mean(new[old > 0] / old[old > 0])) if (old > 0).any() else np.nan


def monte_carlo_error(job: Job, draws: Any) -> float | None:
    """`monte_carlo_share` of the expected outcomes at the probe cells of a job; None if it has none.

    The unit is the sd of the expected outcome, or half the sd of the outcome where this is smaller. With a
    normal outcome, a mean that is wrong by e costs 1/2 (e / sd of the outcome)^2 of the log score. So an
    error of .1 costs at most .00125. Some predictions have no noise: those of words are probabilities.
    """
    if job.probe is None:
        return None
    chains, kept = next(iter(draws.values())).shape[:2]
    x = _expected(job, draws, job.probe)
    noise = _noise(job, draws, job.probe)
    limit = np.where(noise > 0, (x.var(0) + noise) / 4, np.inf)
    return monte_carlo_share(x.reshape(chains, kept, -1), limit)


def monte_carlo_share(x: np.ndarray, limit: np.ndarray | float = np.inf) -> float | None:
    """The Monte Carlo error of means of draws (chain, draw, cell) divided by their sd, a root mean square
    over the cells. A cell's variance counts as `limit` where it is larger.

    The error follows from the means of the halves of all chains, which differ by it and because the chains
    still depend on their start. None if no cell varies, or if the chains have no two halves.
    """
    chains, kept, cells = x.shape
    half = kept // 2
    if not half:
        return None
    x = np.asarray(x, float)[:, : 2 * half]
    means = x.reshape(2 * chains, half, cells).mean(1)
    whole = x.reshape(-1, cells).var(0)
    moves = whole > 0
    if not moves.any():
        return None
    unit = np.minimum(whole, limit)[moves]
    return float(np.sqrt(np.mean(means.var(0, ddof=1)[moves] / (2 * chains) / unit)))


def shortness(probe: np.ndarray) -> float | None:
    """The share by which sds of a short run are too small, from its draws of predictions (chain, draw, cell).

    If a run of length T moves on a time scale t, its variance is too small by the share t / T, and the
    variance of its halves by twice this share. So the variance of an infinitely long run is twice that of
    the run minus that of its halves, averaged over cells.
    """
    chains, draws, cells = probe.shape
    half = draws // 2
    if half < 2:
        return None
    x = np.asarray(probe, float)[:, : 2 * half]
    whole = x.var(1).mean(0)
    parts = x.reshape(chains, 2, half, cells).var(2).mean((0, 1))
    shown = x.reshape(-1, cells).var(0)
    moves = shown > 0
    if not moves.any():
        return None
    growth = float(np.mean((2 * whole - parts)[moves] / shown[moves]))
    return float(1 - max(growth, 1e-300) ** -0.5)
