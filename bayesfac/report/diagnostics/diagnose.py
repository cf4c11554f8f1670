"""Diagnostics on what the data identify: never on raw factors, which may turn and swap at will."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from bayesfac.core.method import Permutation, Rotation, gauge_of, moved_sites, site_dims
from bayesfac.report import arviz_versions
from bayesfac.report.diagnostics import findings as words
from bayesfac.report.diagnostics import psis
from bayesfac.report.diagnostics.align import align_draws
from bayesfac.report.diagnostics.findings import Finding
from bayesfac.report.pages.templates import render

ENOUGH = 1000  # draws, over all chains, that the costly quantities are computed from
BYTES = 192 * 2**20  # and the most of one site that is looked at for them; a few copies are made
BLOCK = 64
ENTRIES = 500  # of each aligned site, whose chains are compared


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """A verdict, the findings behind it, and the numbers behind those.

    table      one row per identified quantity: mean, sd, r_hat, ess_bulk, ess_tail, mcse
    findings   what was found, each with a level ("good", "care", "bad") and advice
    quantities the draws behind the table, by the name in its column `source`
    """

    name: str
    engine: str
    kind: str
    table: pd.DataFrame
    findings: tuple[Finding, ...]
    quantities: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def level(self) -> str:
        """The level of the worst finding."""
        return words.worst(self.findings)

    @property
    def ok(self) -> bool:
        """Whether nothing speaks against using it."""
        return self.level != "bad"

    @property
    def verdict(self) -> str:
        """The verdict in one sentence."""
        return words.headline(self.kind, self.level)

    @property
    def short(self) -> str:
        """The verdict in a few words, for a table."""
        said = {"good": "converged", "care": "usable with care", "bad": "not converged"}
        return said[self.level]

    @property
    def worst(self) -> pd.DataFrame:
        """One row per kind of quantity: how many, and the worst of each number."""
        if self.table.empty:
            return self.table
        groups = self.table.groupby("quantity", sort=False)
        relative = (self.table["mcse"] / self.table["sd"]).groupby(
            self.table["quantity"], sort=False
        )
        columns = {
            "count": groups.size(), "r_hat": groups["r_hat"].max(),
            "ess_bulk": groups["ess_bulk"].min(), "ess_tail": groups["ess_tail"].min(),
            "mcse / sd": relative.max(),
        }  # fmt: skip
        return pd.DataFrame(columns)

    def __repr__(self) -> str:
        lines = [f"{self.name} by {self.engine}: {self.verdict}"]
        lines += [f"  {f.marked}" for f in self.findings]
        if not self.table.empty:
            shown = self.worst.to_string(float_format=lambda x: f"{x:.3g}", na_rep="-")
            lines += ["", shown]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return render("diagnostics.html.j2", diagnostics=self)


def diagnostics(fit: Any) -> Diagnostics:
    """Judge a fit by what the data identify.

    Parameters
    ----------
    fit : Fit
        A sampled fit: agreement of chains (rank-normalised R-hat), effective draws (bulk and tail),
        Monte Carlo error, and for NUTS divergences, energy and tree depth. SVI: the trend of the
        ELBO. A point fit: whether its objective stands still.

    Examples
    --------
    >>> import bayesfac as bf
    >>> ratings = bf.datasets.make_ratings(30, 20, 2, seed=0)
    >>> fit = bf.fit("pmf", ratings, bf.Gibbs(50, 200, 2), n_components=2, progress=False)
    >>> found = diagnostics(fit)
    >>> bool(found.table["r_hat"].max() < 1.5), found.kind
    (True, 'sampler')
    """
    engine = type(fit.engine).__name__
    if fit.draws is None:
        return Diagnostics(fit.name, engine, "point", pd.DataFrame(), tuple(words.judge_point(fit)))
    found = identified(fit)
    kind = "variational" if engine == "SVI" else "sampler"
    table = tabulate(found, fit, compare=kind == "sampler")
    if kind == "variational":
        weights = fit.stats.get("log_weight")
        known = weights is not None and weights.size >= psis.FEWEST and np.isfinite(weights).all()
        findings = words.judge_variational(fit, psis.tail(weights) if known else None)
    else:
        energy = fit.stats.get("energy")
        long_enough = energy is not None and energy.shape[1] >= arviz_versions.SHORTEST
        bfmi = arviz_versions.bfmi(energy) if long_enough else None
        findings = words.judge_sampler(fit, table, bfmi) + factors(fit)
    return Diagnostics(fit.name, engine, kind, table, tuple(findings), found)


def factors(fit: Any) -> list[Finding]:
    """Whether factors can be read once they are aligned, from evenly spaced draws and entries."""
    gauge = gauge_of(fit.method, tuple(fit.draws))
    moved = {site for free in gauge for site in moved_sites(free)}
    few = _few({site: fit.draws[site] for site in fit.draws if site in moved}) if moved else {}
    if not few or next(iter(few.values())).shape[1] < arviz_versions.SHORTEST:
        return []
    aligned = align_draws(few, gauge)
    if aligned.ambiguous:
        return [words.judge_factors(aligned, None)]
    r_hat = []
    for site in aligned.turned:
        flat = aligned.draws[site].reshape(*aligned.residual.shape, -1)
        r_hat.append(arviz_versions.rhat(flat[:, :, :: max(1, flat.shape[2] // ENTRIES)]))
    found = np.concatenate(r_hat)  # NaN where every draw is the same
    return [words.judge_factors(aligned, float(np.fmax.reduce(found)))]


def tabulate(found: Mapping[str, np.ndarray], fit: Any, *, compare: bool = True) -> pd.DataFrame:
    """Mean, sd, R-hat, ESS and MCSE of every identified quantity, one row each."""
    parts = []
    for name, draws in found.items():
        flat = np.asarray(draws, float).reshape(*draws.shape[:2], -1)
        alone = flat.shape[0] * flat.shape[1] == 1  # one draw has no spread
        numbers = {"mean": flat.mean((0, 1)), "sd": flat.std((0, 1), ddof=0 if alone else 1)}
        if compare:
            numbers |= {
                "r_hat": arviz_versions.rhat(flat),
                "ess_bulk": arviz_versions.ess(flat),
                "ess_tail": arviz_versions.ess(flat, "tail"),
            }
            numbers |= {"mcse": arviz_versions.mcse(flat)}
        else:  # independent draws: there is nothing to compare
            numbers |= dict.fromkeys(
                ("r_hat", "ess_bulk", "ess_tail"), np.full(flat.shape[2], np.nan)
            )
            numbers |= {"mcse": numbers["sd"] / np.sqrt(flat.shape[0] * flat.shape[1])}
        index = row_names(name, fit, draws.shape[2:])
        parts.append(
            pd.DataFrame({"quantity": _kind(name), "source": name, **numbers}, index=index)
        )
    return pd.concat(parts)


def row_names(name: str, fit: Any, shape: tuple[int, ...]) -> list[str]:
    """What each entry of an identified quantity is called, with the user's labels."""
    if name == "probe":
        return [
            f"prediction ({', '.join(map(str, row))})"
            for row in fit.data.probe.itertuples(index=False)
        ]
    kind, size = _kind(name), int(np.prod(shape))
    if len(shape) == 2:  # a spectrum for every entry of a leading axis
        what = _leading(fit)
        return [f"{kind} {i + 1} of {what} {entry}" for entry, i in np.ndindex(*shape)]
    if size == 1:
        return [kind]
    first = 0 if name.startswith("share.") else 1
    return [f"{kind} {i + first}" for i in range(size)]


def _leading(fit: Any) -> str:
    """The name of the axis whose entries turn by themselves: stage, member."""
    gauge = gauge_of(fit.method, tuple(fit.draws))
    site = next(f.factors[0] for f in gauge if isinstance(f, Rotation) and f.each)
    return site_dims(fit.method, site)[0]


def _kind(name: str) -> str:
    plain = {"lp": "log joint", "probe": "prediction", "singular_values": "singular value"}
    of, _, site = name.partition(".")
    spoken = {"eigenvalues": "eigenvalue", "share": "share", "size": "size"}.get(of)
    return f"{spoken} of {site}" if site and spoken else plain.get(name, name)


# -- identified quantities ----------------------------------------------------------------------
def identified(fit: Any) -> dict[str, np.ndarray]:
    """What does not depend on how the factors are turned or labelled, as (chain, draw, ...) arrays.

    The log joint, scalar sites, predictions at the probe cells; for rotations the singular values
    of U V' and the eigenvalues of K x K sites, unless thresholds absorb what these measure; for
    relabellings each component's share where rows divide over the components, else their sizes in order.
    """
    draws = fit.draws
    found = {"lp": np.asarray(fit.stats["lp"])} if "lp" in fit.stats else {}
    found |= {site: np.asarray(draws[site]) for site in draws if draws[site].ndim == 2}
    found["probe"] = fit.predict(fit.data.probe).draws_of_mean()
    gauge = gauge_of(fit.method, tuple(draws))
    for free in gauge:
        if isinstance(free, Rotation) and not free.floating:
            few = _few(
                {site: draws[site] for site in (*free.factors, *free.forms) if site in draws}
            )
            found["singular_values"] = singular_values(*(few[site] for site in free.factors))
            forms = {site: np.asarray(few[site], float) for site in free.forms if site in few}
            found |= {
                f"eigenvalues.{s}": np.linalg.eigvalsh(m)[..., ::-1] for s, m in forms.items()
            }
    return found | shares(draws, [free for free in gauge if isinstance(free, Permutation)])


def singular_values(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Singular values of U V' for draws (chain, draw, n, K) and (chain, draw, m, K), largest first.

    Axes between the draws and n or m (stages, members) stay, each entry with a spectrum of its own.
    From the K x K Gram matrices, so no n x m matrix is built.

    >>> u = np.array([[[[3.0, 0.0], [0.0, 1.0]]]])
    >>> singular_values(u, u).round(6)
    array([[[9., 1.]]])
    """
    values, vectors = np.linalg.eigh(_grams(u))
    root = vectors * np.sqrt(np.maximum(values, 0))[..., None, :]
    squares = np.linalg.eigvalsh(np.swapaxes(root, -1, -2) @ _grams(v) @ root)
    return np.sqrt(np.maximum(squares, 0))[..., ::-1]


def shares(draws: Mapping[str, np.ndarray], gauge: list[Permutation]) -> dict[str, np.ndarray]:
    """Each component's mean weight, from the site whose rows divide over the components.

    Where none does, the means of aligned columns would say how well they were aligned, and with a free sign
    not even that: then the sizes of the components, all their sites together, the largest first.
    """
    if not gauge:
        return {}
    few = _few({site: draws[site] for free in gauge for site in free.axes if site in draws})
    aligned = align_draws(few, gauge).draws
    found = {}
    for free in gauge:
        divided = [site for site, axis in free.axes.items() if _divides(aligned.get(site), axis)]
        if divided:
            weights = aligned[divided[0]]
            found[f"share.{free.name}"] = weights.mean(tuple(range(2, weights.ndim - 1)))
        elif known := {site: axis for site, axis in free.axes.items() if site in few}:
            found[f"size.{free.name}"] = _sizes(few, known)
    return found


def _divides(site: np.ndarray | None, axis: int) -> bool:
    """Rows that sum to one over the components."""
    return site is not None and axis == site.ndim - 3 and np.allclose(site.sum(-1), 1, atol=1e-3)


def _sizes(draws: Mapping[str, np.ndarray], axes: Mapping[str, int]) -> np.ndarray:
    """(chain, draw, component): the geometric mean of a component's norms in these sites, in order."""
    logs = []
    for site, axis in axes.items():
        value = np.moveaxis(np.asarray(draws[site], float), axis + 2, -1)
        norm = np.sqrt((value**2).sum(tuple(range(2, value.ndim - 1))))
        logs.append(np.log(np.maximum(norm, np.finfo(float).tiny)))
    return np.sort(np.exp(np.mean(logs, 0)), -1)[..., ::-1]


def _few(draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Evenly spaced draws: enough to judge, and few enough to hold. Same ones for every site."""
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
