"""Diagnostics of quantities that the data identify, such as predictions.

Raw factors are left out: they can be rotated or exchanged without any change of the joint density.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from bayesfac.core.method import Permutation, Rotation, gauge_of, moved_sites, site_dims
from bayesfac.inference.widths import monte_carlo_share, shortness
from bayesfac.report import arviz_versions
from bayesfac.report.diagnostics import chains, psis
from bayesfac.report.diagnostics import findings as judges
from bayesfac.report.diagnostics import uses as verdict
from bayesfac.report.diagnostics.align import align_draws
from bayesfac.report.diagnostics.findings import Finding
from bayesfac.report.pages.templates import render

ENOUGH = 1000  # draws, over all chains, for quantities that are expensive to compute
BYTES = 192 * 2**20  # largest part of one site used for these quantities; a few copies are made
BLOCK = 64  # draws that are multiplied at a time
ENTRIES = 500  # per aligned site, for R-hat


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """A verdict, the findings behind it, and a table of numbers.

    table      one row per identified quantity: mean, sd, r_hat, ess_bulk, ess_tail, mcse
    findings   each has a level ("good", "care", "bad"), a text and advice
    quantities the draws behind the table, by the name in its column `source`
    narrow     the share by which sds of expected outcomes are too small; None if this was not checked
    """

    name: str
    engine: str
    kind: str
    table: pd.DataFrame
    findings: tuple[Finding, ...]
    quantities: Mapping[str, np.ndarray] = field(default_factory=dict)
    narrow: float | None = None

    @property
    def uses(self) -> dict[str, str]:
        """What the fit may be used for: "good", "care" or "bad" for averages of predictions, single
        predictions, hyper-parameters and factors."""
        return verdict.uses(self.kind, self.findings)

    @property
    def level(self) -> str:
        """The level "good" if the fit may be used for everything, "bad" if for nothing, else "care"."""
        return verdict.overall(self.uses)

    @property
    def ok(self) -> bool:
        """Whether the fit may be used for something."""
        return self.level != "bad"

    @property
    def verdict(self) -> str:
        """The verdict in one sentence."""
        return verdict.sentence(self.kind, self.uses)

    @property
    def short(self) -> str:
        """The verdict in a few words, for a table."""
        return verdict.SHORT[self.level]

    @property
    def worst(self) -> pd.DataFrame:
        """One row per kind of quantity: their number, and the worst value of each column."""
        if self.table.empty:
            return self.table
        relative = self.table.assign(relative=self.table["mcse"] / self.table["sd"])
        groups = relative.groupby("quantity", sort=False)
        columns = {
            "count": groups.size(), "r_hat": groups["r_hat"].max(),
            "ess_bulk": groups["ess_bulk"].min(), "ess_tail": groups["ess_tail"].min(),
            "mcse / sd": groups["relative"].max(),
        }  # fmt: skip
        return pd.DataFrame(columns)

    def __repr__(self) -> str:
        lines = [f"{self.name} by {self.engine}: {self.verdict}"]
        lines += [f"  {f.marked}" for f in self.findings]
        if not self.table.empty:
            lines += ["", self.worst.to_string(float_format=lambda x: f"{x:.3g}", na_rep="-")]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return render("diagnostics.html.j2", diagnostics=self)


def diagnostics(fit: Any) -> Diagnostics:
    """Judge a fit by quantities that the data identify.

    Parameters
    ----------
    fit : Fit
        A fit by a sampler is judged by the agreement of its chains (rank-normalised R-hat), the effective
        sample size (bulk and tail), the Monte Carlo error, and for NUTS by divergences, energy and tree
        depth. A fit by Quick is judged by the Monte Carlo error of its predictions. SVI and VB are judged by
        the trend of the ELBO. A point fit is judged by whether the objective has converged.

    Examples
    --------
    >>> import bayesfac as bf
    >>> ratings = bf.datasets.make_ratings(30, 20, 2, seed=0)
    >>> fit = bf.fit("pmf", ratings, bf.Gibbs(50, 200, 2), n_components=2, progress=False)
    >>> result = diagnostics(fit)
    >>> bool(result.table["r_hat"].max() < 1.5), result.kind
    (True, 'sampler')
    """
    engine = type(fit.engine).__name__
    if fit.draws is None:
        findings = judges.judge_point(fit)
        return Diagnostics(fit.name, engine, "point", pd.DataFrame(), tuple(findings))
    quantities = identified(fit)
    kind = "variational" if engine in ("SVI", "VB") else "sampler"
    table = tabulate(quantities, fit, compare=kind == "sampler")
    if kind == "variational":
        weights = fit.stats.get("log_weight")
        known = weights is not None and weights.size >= psis.FEWEST and np.isfinite(weights).all()
        findings = judges.judge_variational(fit, psis.tail(weights) if known else None)
    else:
        # E-BFMI compares successive draws: energies of thinned draws always differ much
        energy = fit.stats.get("energy") if chains.apart(fit) == 1 else None
        bfmi = None
        if energy is not None and energy.shape[1] >= arviz_versions.SHORTEST:
            bfmi = arviz_versions.bfmi(energy)
        error = monte_carlo_share(quantities["probe"]) if engine == "Quick" else None
        findings = chains.judge_sampler(fit, table, bfmi, error) + factors(fit)
    narrow = shortness(quantities["probe"]) if engine == "Quick" else None
    if (widths := fit.info.get("widths")) and "ratio" in widths:
        narrow = 1 - widths["ratio"]
    found = (*findings, *judges.judge_widths(narrow))
    return Diagnostics(fit.name, engine, kind, table, found, quantities, narrow)


def factors(fit: Any) -> list[Finding]:
    """Whether aligned factors can be interpreted, judged from evenly spaced draws and entries."""
    gauge = gauge_of(fit.method, tuple(fit.draws))
    moved = {site for free in gauge for site in moved_sites(free)}
    some = few({site: fit.draws[site] for site in fit.draws if site in moved}) if moved else {}
    if not some or next(iter(some.values())).shape[1] < arviz_versions.SHORTEST:
        return []
    aligned = align_draws(some, gauge)
    if aligned.ambiguous:
        return [chains.judge_factors(aligned, None)]
    r_hat = []
    for site in aligned.turned:
        flat = aligned.draws[site].reshape(*aligned.residual.shape, -1)
        r_hat.append(arviz_versions.rhat(flat[:, :, :: max(1, flat.shape[2] // ENTRIES)]))
    largest = np.fmax.reduce(np.concatenate(r_hat))  # R-hat is NaN where all draws are the same
    return [chains.judge_factors(aligned, float(largest))]


def tabulate(quantities: Mapping[str, np.ndarray], fit: Any, *, compare: bool) -> pd.DataFrame:
    """Mean, sd, R-hat, ESS and MCSE, one row per quantity; R-hat and ESS are NaN unless `compare`."""
    parts = []
    for name, draws in quantities.items():
        flat = np.asarray(draws, float).reshape(*draws.shape[:2], -1)
        size = flat.shape[0] * flat.shape[1]
        sd = flat.std((0, 1), ddof=int(size > 1))  # the sd of one draw is 0
        numbers: dict[str, Any] = {"mean": flat.mean((0, 1)), "sd": sd}
        if compare:
            numbers |= {
                "r_hat": arviz_versions.rhat(flat),
                "ess_bulk": arviz_versions.ess(flat),
                "ess_tail": arviz_versions.ess(flat, "tail"),
                "mcse": arviz_versions.mcse(flat),
            }
        else:  # independent draws: sd / sqrt(n)
            numbers |= dict.fromkeys(("r_hat", "ess_bulk", "ess_tail"), np.nan)
            numbers["mcse"] = sd / np.sqrt(size)
        columns = {"quantity": _kind(name), "source": name, **numbers}
        parts.append(pd.DataFrame(columns, index=row_names(name, fit, draws.shape[2:])))
    return pd.concat(parts)


def row_names(name: str, fit: Any, shape: tuple[int, ...]) -> list[str]:
    """The names of all entries of an identified quantity, with the user's labels."""
    if name == "probe":
        return prediction_names(fit.data.probe)
    kind, size = _kind(name), int(np.prod(shape))
    if len(shape) == 2:  # a spectrum for every entry of a leading axis
        gauge = gauge_of(fit.method, tuple(fit.draws))
        site = next(f.factors[0] for f in gauge if isinstance(f, Rotation) and f.each)
        axis = site_dims(fit.method, site)[0]  # stage or member
        return [f"{kind} {i + 1} of {axis} {entry}" for entry, i in np.ndindex(*shape)]
    if size == 1:
        return [kind]
    first = 0 if name.startswith("share.") else 1
    return [f"{kind} {i + first}" for i in range(size)]


def prediction_names(labels: pd.DataFrame) -> list[str]:
    """The names of predictions, such as "prediction (ann, film 3)"."""
    rows = labels.itertuples(index=False)
    return [f"prediction ({', '.join(map(str, row))})" for row in rows]


def _kind(name: str) -> str:
    plain = {"lp": "log joint", "probe": "prediction", "singular_values": "singular value"}
    statistic, _, site = name.partition(".")
    word = {"eigenvalues": "eigenvalue", "share": "share", "size": "size"}.get(statistic)
    return f"{word} of {site}" if site and word else plain.get(name, name)


# -- identified quantities ----------------------------------------------------------------------
def identified(fit: Any) -> dict[str, np.ndarray]:
    """Quantities (chain, draw, ...) that are the same for all rotations and labels of the factors.

    The log joint, scalar sites and predictions at the probe cells. For rotations: the singular values
    of U V' and the eigenvalues of K x K sites, unless thresholds absorb their scale. For
    permutations: see `shares`.
    """
    draws = fit.draws
    quantities = {"lp": np.asarray(fit.stats["lp"])} if "lp" in fit.stats else {}
    quantities |= {site: np.asarray(draws[site]) for site in draws if draws[site].ndim == 2}
    quantities["probe"] = fit.predict(fit.data.probe).draws_of_mean()
    gauge = gauge_of(fit.method, tuple(draws))
    for free in gauge:
        if isinstance(free, Rotation) and not free.floating:
            used = [site for site in (*free.factors, *free.forms) if site in draws]
            some = few({site: draws[site] for site in used})
            quantities["singular_values"] = singular_values(*(some[site] for site in free.factors))
            for site in free.forms:
                if site in some:
                    values = np.linalg.eigvalsh(np.asarray(some[site], float))[..., ::-1]
                    quantities[f"eigenvalues.{site}"] = values
    return quantities | shares(draws, [free for free in gauge if isinstance(free, Permutation)])


def singular_values(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Singular values of U V' for draws (chain, draw, n, K) and (chain, draw, m, K), largest first.

    Axes between the draws and n or m (stages, members) are kept: each entry has its own spectrum.
    The values come from the K x K Gram matrices; no n x m matrix is built.

    >>> u = np.array([[[[3.0, 0.0], [0.0, 1.0]]]])
    >>> singular_values(u, u).round(6)
    array([[[9., 1.]]])
    """
    values, vectors = np.linalg.eigh(_grams(u))
    root = vectors * np.sqrt(np.maximum(values, 0))[..., None, :]
    squares = np.linalg.eigvalsh(np.swapaxes(root, -1, -2) @ _grams(v) @ root)
    return np.sqrt(np.maximum(squares, 0))[..., ::-1]


def shares(draws: Mapping[str, np.ndarray], gauge: list[Permutation]) -> dict[str, np.ndarray]:
    """Each component's mean weight, from a site whose rows sum to 1 over the components.

    Without such a site: the sizes of the components, largest first. Means of aligned columns would depend
    on the quality of the alignment, and on the sign if the sign is free.
    """
    if not gauge:
        return {}
    some = few({site: draws[site] for free in gauge for site in free.axes if site in draws})
    aligned = align_draws(some, gauge).draws
    quantities = {}
    for free in gauge:
        divided = [site for site, axis in free.axes.items() if _divides(aligned.get(site), axis)]
        if divided:
            weights = aligned[divided[0]]
            quantities[f"share.{free.name}"] = weights.mean(tuple(range(2, weights.ndim - 1)))
        elif known := {site: axis for site, axis in free.axes.items() if site in some}:
            quantities[f"size.{free.name}"] = _sizes(some, known)
    return quantities


def _divides(site: np.ndarray | None, axis: int) -> bool:
    """Whether rows sum to one over the components."""
    return site is not None and axis == site.ndim - 3 and np.allclose(site.sum(-1), 1, atol=1e-3)


def _sizes(draws: Mapping[str, np.ndarray], axes: Mapping[str, int]) -> np.ndarray:
    """(chain, draw, component): geometric mean of a component's norms in these sites, largest first."""
    logs = []
    for site, axis in axes.items():
        value = np.moveaxis(np.asarray(draws[site], float), axis + 2, -1)
        norm = np.sqrt((value**2).sum(tuple(range(2, value.ndim - 1))))
        logs.append(np.log(np.maximum(norm, np.finfo(float).tiny)))
    return np.sort(np.exp(np.mean(logs, 0)), -1)[..., ::-1]


def few(draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same evenly spaced draws of every site: about ENOUGH draws, at most BYTES of one site."""
    chains, length = next(iter(draws.values())).shape[:2]
    largest = max(values.nbytes for values in draws.values())
    step = max(1, -(-chains * length // ENOUGH), -(-largest // BYTES))
    return {site: values[:, ::step] for site, values in draws.items()}


def _grams(factor: np.ndarray) -> np.ndarray:
    """F' F of every draw, in float64, a block of draws at a time (the draws may lie on disk)."""
    chains, length, *entries, _, k = factor.shape
    grams = np.empty((chains, length, *entries, k, k))
    step = max(1, BLOCK // int(np.prod(entries)))
    for chain in range(chains):
        for start in range(0, length, step):
            block = np.asarray(factor[chain, start : start + step], float)
            grams[chain, start : start + step] = np.swapaxes(block, -1, -2) @ block
    return grams
