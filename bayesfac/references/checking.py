"""Compare draws of any sampler with a reference.

What is compared are statistics of quantities that are the same for all rotations and labels of the factors.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from scipy.stats import norm

from bayesfac.core.data.cards import describe
from bayesfac.core.method import Method, from_sites
from bayesfac.inference.joint import doubled
from bayesfac.inference.result import each_draw
from bayesfac.references.stored import Reference, load
from bayesfac.report import arviz_versions
from bayesfac.simulation.quantities import Numbers, identified

ALPHA = 0.01  # the share of correct samplers that fail, at most
WORST = 1.05  # R-hat from which Monte Carlo errors are not trusted
FEWEST = 100  # effective draws below which they are not
SHOWN = 5


@dataclass(frozen=True, eq=False)
class Check:
    """Draws beside a reference.

    Attributes
    ----------
    reference : Reference
    table : DataFrame
        A row for each quantity: mean and sd of the draws and of the reference, z_mean and z_sd, that is their
        differences in units of both Monte Carlo errors; R-hat and ESS of the draws.
    level : float
        The |z| that 1 % of correct samplers exceed somewhere (Bonferroni).
    draws : tuple
        Chains, and draws of each.
    """

    reference: Reference = field(repr=False)
    table: pd.DataFrame
    level: float
    draws: tuple[int, int]

    @property
    def z(self) -> float:
        """The largest |z|."""
        return float(self.table[["z_mean", "z_sd"]].abs().to_numpy().max())

    @property
    def reliable(self) -> bool:
        """Whether the draws are enough for their own Monte Carlo errors to be trusted."""
        mixed = self.table["r_hat"].max() <= WORST and self.table["ess"].min() >= FEWEST
        return bool(mixed and self.table["r_hat"].notna().all())

    @property
    def ok(self) -> bool | None:
        """Whether the draws agree with the reference; None where too few draws cannot tell."""
        if np.isinf(self.table[["r_hat", "z_mean", "z_sd"]].to_numpy()).any():
            return False  # a quantity that never moves: more draws would not help
        return self.z <= self.level if self.reliable else None

    @property
    def verdict(self) -> str:
        """`ok` in words."""
        few = f"R-hat is up to {self.table['r_hat'].max():.3f}, ESS down to {self.table['ess'].min():.0f}"
        if self.ok is None:
            return f"too few draws to tell: {few}; draw more"
        words = f"the draws {'agree with' if self.ok else 'differ from'} the reference"
        if not self.reliable:
            return f"{words}: a quantity does not move"
        where = f"largest |z| {self.z:.2f}, 1 % of correct samplers exceed {self.level:.2f}"
        return f"{words}: {where}"

    def __repr__(self) -> str:
        chains, length = self.draws
        head = f"{self.reference.name}, {chains} chain(s) x {length} draws: {self.verdict}."
        size = self.table[["z_mean", "z_sd"]].abs().max(axis=1)
        worst = self.table.loc[size.sort_values(ascending=False).index[:SHOWN]]
        return "\n".join([head, "", worst.to_string(float_format=lambda x: f"{x:.3g}")])


def check(name: str | Reference, draws: Any) -> Check:
    """Compare draws with a reference.

    Parameters
    ----------
    name : str or Reference
        A name of `bf.references.names()`.
    draws : Fit or mapping
        A Fit of the reference's method and data; or {site: array (chain, draw, ...)} from any sampler, such
        as NumPyro's `get_samples(group_by_chain=True)`. Without the axis of chains the draws are one chain.
        Other sites are ignored. Draws must be in order: their Monte Carlo errors follow from their
        correlations.

    Examples
    --------
    >>> import bayesfac as bf
    >>> r = bf.references.load("pmf-rank-1")
    >>> fit = bf.fit(r.method, r.data, bf.Gibbs(200, 1000, 4), **r.hyper, progress=False)
    >>> bf.references.check(r.name, fit).ok
    True
    """
    reference = load(name) if isinstance(name, str) else name
    ours = hasattr(draws, "is_point")
    found = _of_fit(reference, draws) if ours else grouped(reference, draws)
    new = statistics(quantities(reference, found)).loc[reference.summaries.index]
    known = reference.summaries
    beside = known[["mean", "sd"]].rename(columns="reference {}".format)
    parts = [new[["mean", "sd"]], beside, z_scores(new, known), new[["r_hat", "ess"]]]
    shape = next(iter(found.values())).shape[:2]
    return Check(reference, pd.concat(parts, axis=1), bonferroni(2 * len(known)), shape)


def bonferroni(count: int) -> float:
    """The |z| that the largest of `count` correct z-scores exceeds with probability `ALPHA` at most.

    >>> round(bonferroni(1), 3), round(bonferroni(200), 2)
    (2.576, 4.06)
    """
    return float(norm.isf(ALPHA / (2 * count)))


def _of_fit(reference: Reference, fit: Any) -> dict[str, np.ndarray]:
    """The draws of a Fit, if it belongs to the reference."""
    if fit.name != reference.method:
        raise ValueError(f"Expected a fit of {reference.method}, got one of {fit.name}")
    if fit.draws is None:
        raise ValueError("Expected draws, got a point fit: bf.Gibbs() and bf.NUTS() draw")
    mine = fit.hyper._asdict()
    for setting, value in reference.hyper.items():
        if mine[setting] != value:
            raise ValueError(
                f"Expected {setting}={value!r} as in {reference.name}, got {mine[setting]!r}: "
                "bf.fit(r.method, r.data, engine, **r.hyper) has the settings of a reference r"
            )
    return grouped(reference, {site: np.asarray(x) for site, x in fit.draws.items()})


def grouped(reference: Reference, draws: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """{site: (chain, draw, ...)} of the reference's sites; wrong shapes and numbers are refused."""
    found = {}
    for site, shape in reference.sites.items():
        if site not in draws:
            raise ValueError(
                f"Expected draws of the sites {list(reference.sites)}, got none of {site!r}"
            )
        x = np.asarray(draws[site], float)
        x = x[None] if x.ndim == len(shape) + 1 else x
        if x.ndim != len(shape) + 2 or x.shape[2:] != shape:
            raise ValueError(
                f"Expected {site} of shape (chains, draws, {', '.join(map(str, shape))}), "
                f"got {np.shape(draws[site])}"
            )
        if not np.isfinite(x).all():
            chain, draw = np.argwhere(~np.isfinite(x))[0][:2]
            raise ValueError(
                f"Expected finite draws, got NaN or infinity in {site}, chain {chain}, draw {draw}"
            )
        found[site] = x
    sizes = {site: x.shape[:2] for site, x in found.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"Expected as many chains and draws of every site, got {sizes}")
    if (length := next(iter(sizes.values()))[1]) < arviz_versions.SHORTEST:
        raise ValueError(f"Expected at least {arviz_versions.SHORTEST} draws, got {length}")
    return found


# -- quantities and their statistics ------------------------------------------------------------
def quantities(reference: Reference, draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """{quantity: (chain, draw)} of draws {site: (chain, draw, ...)}, in double precision."""
    with jax.enable_x64(True):
        method, hyper = reference.record, reference.settings()
        data = method.ready(doubled(reference.data), hyper)
        wide = {site: np.asarray(draws[site], float) for site in reference.sites}
        return each_draw(_numbers_of, wide, data, method, hyper, describe(data).shape)


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
