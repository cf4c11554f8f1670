"""Quantities of draws that are the same for all rotations and labels of the factors, and their statistics."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from bayesfac.core.data.cards import describe
from bayesfac.core.method import Method, from_sites
from bayesfac.inference.result import each_draw
from bayesfac.references.stored import Reference
from bayesfac.report import arviz_versions
from bayesfac.simulation.quantities import Numbers, identified


def quantities(reference: Reference, draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """{quantity: (chain, draw)} of draws {site: (chain, draw, ...)}, in double precision."""
    with jax.enable_x64(True):
        method, hyper = reference.record, reference.settings()
        data = method.ready(container_in_double(reference), hyper)
        wide = {site: np.asarray(draws[site], float) for site in reference.sites}
        return each_draw(_numbers_of, wide, data, method, hyper, describe(data).shape)


def container_in_double(reference: Reference) -> Any:
    """The data as numbers of double precision, whichever precision made the container."""
    real = lambda x: jnp.asarray(x, float) if x.dtype.kind == "f" else x  # noqa: E731
    return jax.tree.map(real, reference.data)


def _numbers_of(method: Method, hyper: Any, shape: tuple[int, int], data: Any) -> Any:
    n, m = shape
    cells = {f"prediction ({i}, {j})": (i, j) for i in range(n) for j in range(m)}

    def numbers(draw: Mapping[str, jax.Array]) -> Numbers:
        found = identified(method, from_sites(method, draw), data, hyper, cells)
        if not any(name.startswith("singular value") for name in found):
            predicted = jnp.stack([found[cell] for cell in cells]).reshape(n, m)
            values = jnp.linalg.svd(predicted, compute_uv=False)[:3]
            found |= {f"singular value of predictions {k + 1}": v for k, v in enumerate(values)}
        return found

    return numbers


def statistics(found: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """A row for each quantity: mean, sd, the Monte Carlo standard error of each, R-hat and (bulk) ESS."""
    x = np.stack([np.asarray(v, float) for v in found.values()], -1)
    mean, sd = x.mean((0, 1)), x.std((0, 1))
    with np.errstate(divide="ignore", invalid="ignore"):  # a quantity that does not move
        spread = arviz_versions.mcse((x - mean) ** 2) / (2 * sd)
    columns = {
        "mean": mean, "mcse_mean": arviz_versions.mcse(x), "sd": sd, "mcse_sd": spread,
        "r_hat": arviz_versions.rhat(x), "ess": arviz_versions.ess(x),
    }  # fmt: skip
    return pd.DataFrame(columns, index=list(found))


def z_scores(one: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """Differences of means and sds in units of both Monte Carlo errors; infinite where draws stand still."""
    scores: dict[str, pd.Series] = {}
    for what in ("mean", "sd"):
        error = np.hypot(one[f"mcse_{what}"], other[f"mcse_{what}"])
        scores[f"z_{what}"] = ((one[what] - other[what]) / error).fillna(np.inf)
    return pd.DataFrame(scores)
