"""How strongly predictions depend on the prior and on the likelihood: power scaling.

Kallioinen, Paananen, Burkner & Vehtari, "Detecting and diagnosing prior and likelihood sensitivity with
power-scaling", Statistics and Computing 2024. The prior or the likelihood is raised to a power alpha near 1,
and the draws are reweighted by Pareto-smoothed importance sampling. The sensitivity of a prediction (or of
another identified quantity) is the cumulative Jensen-Shannon distance between its two distributions, per
doubling of alpha.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from bayesfac.core.method import Method, from_sites, site_dims
from bayesfac.inference.joint import observed
from bayesfac.inference.predictions import pointwise
from bayesfac.inference.predictions.by_draw import param_blocks
from bayesfac.inference.unconstrained import sites_of_model
from bayesfac.report.diagnostics import psis
from bayesfac.report.diagnostics.diagnose import identified, prediction_names, row_names
from bayesfac.report.diagnostics.findings import Finding, Judged
from bayesfac.report.diagnostics.loo import draws_and_data
from bayesfac.report.pages.templates import number

LIMIT = 0.05  # the paper's limit: a normal mean moves by 0.3 of its sd when alpha doubles
MEMORY = 2**30
FEW = 0.1  # least share of effective draws that shows a distribution
FINE, STRONG, CONFLICT = "-", "strong prior / weak likelihood", "prior-data conflict"


@dataclass(frozen=True, eq=False)
class Sensitivity(Judged):
    """Sensitivity of a fit to its prior and to its likelihood.

    Attributes
    ----------
    table : DataFrame
        One row per identified quantity: its sensitivity to the `prior` and to the `likelihood`, and the
        `diagnosis` in the paper's words.
    scaled : list
        The sites whose priors were scaled; in a hierarchy those at the top.
    pareto_k : dict
        "prior" or "likelihood" -> the tail shapes of the weights at the lower and the upper alpha.
    effective : float
        The smallest share of effective draws among all weights.
    alpha : (float, float)
        The powers.
    draws : int
        The number of draws.
    nearer : float
        A lower alpha nearer to 1, for weights that can be trusted.
    """

    name: str
    table: pd.DataFrame
    scaled: list[str]
    pareto_k: dict[str, tuple[float, float]]
    effective: float
    alpha: tuple[float, float]
    draws: int
    nearer: float

    @property
    def trusted(self) -> bool:
        """Whether the weights can be trusted and leave enough effective draws."""
        largest = max(max(pair) for pair in self.pareto_k.values())
        return largest <= psis.threshold(self.draws) and self.effective >= FEW

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Whether the weights can be trusted; if so, which quantities depend on the prior."""
        return (_weights(self), *(_diagnoses(self.table) if self.trusted else ()))

    def __repr__(self) -> str:
        powers = "powers {:g} and {:g}".format(*self.alpha)
        head = f"Sensitivity of {self.name} to its prior and to its data ({powers})"
        lines = [head, *(f"  {f.marked}" for f in self.findings), ""]
        most = self.table.sort_values("prior", ascending=False).head(5)
        return "\n".join([*lines, most.to_string(float_format=lambda x: f"{x:.3f}")])


def sensitivity(
    fit: Any, data: Any, query: Any = None, alpha: tuple[float, float] = (0.8, 1.25)
) -> Sensitivity:
    """See `Fit.sensitivity`."""
    low, high = alpha
    if not 0 < low < 1 < high < np.inf:
        raise ValueError(f"Expected alpha as two powers below and above 1, got {alpha!r}")
    draws, data = draws_and_data(fit, data)
    chains, length = next(iter(draws.values())).shape[:2]
    prior, likelihood = log_parts(fit, data, draws)
    top = top_of_hierarchy(fit, data, draws)
    logs = {"prior": np.sum([prior[site] for site in top], 0), "likelihood": likelihood}
    quantities, names = _quantities(fit, query)
    weights, k, effective = {}, {}, 1.0
    for part, log in logs.items():
        weights[part], k[part] = scaled(log, alpha)
        effective = min(effective, *(1 / (w**2).sum() / w.size for w in weights[part]))
    rows: dict[str, dict[str, float]] = {name: {} for name in sum(names.values(), [])}
    for what, values in quantities.items():
        step = _stride(length, values.shape[1])
        flat = values.reshape(chains * values.shape[1], -1)
        for part, pair in weights.items():
            kept = [w[:, ::step] for w in pair]
            for name, change in zip(names[what], moves(flat, kept, alpha), strict=True):
                rows[name][part] = change
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("quantity")
    table = table.assign(diagnosis=[_diagnosis(*pair) for pair in table.to_numpy()])
    widest = max(float(log.std()) for log in logs.values())
    nearer = 1 - 1 / max(2 * widest, 2)
    return Sensitivity(fit.name, table, top, k, effective, (low, high), chains * length, nearer)


def log_parts(
    fit: Any, data: Any, draws: Mapping[str, np.ndarray], memory: int = MEMORY
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The log prior of every site, and the log likelihood, of every draw (chain, draw).

    Observed sites are likelihood, all others prior (penalties too). Ratings are processed in blocks.
    """
    method, hyper = fit.method, fit.hyper
    shape = next(iter(draws.values())).shape[:2]
    blocks = param_blocks(method, draws, 1, memory // 4)
    one = prior_data(fit, data)
    parts = [jax.device_get(_by_site(method, hyper, p, one)) for p in blocks]
    logs = {n: np.concatenate([p[n] for p in parts]).astype(float) for n in parts[0]}
    prior = {n: log.reshape(shape) for n, log in logs.items() if not observed(n)}
    if (cells := _cells(fit, data)) is not None:
        return prior, pointwise.log_likelihoods(method, hyper, draws, cells, memory)
    likelihood: Any = sum(log.reshape(shape) for n, log in logs.items() if observed(n))
    return prior, likelihood


def prior_data(fit: Any, data: Any) -> Any:
    """The smallest data for which the model can be run: a single rating, or all data of other kinds."""
    cells = _cells(fit, data)
    return data if cells is None else pointwise.only(cells, slice(0, 1))


def _cells(fit: Any, data: Any) -> pointwise.Told | None:
    """The ratings as cells that the likelihood divides into; None for other data and likelihoods."""
    if not data.alone or "no_minibatch" in fit.method.notes.traits:
        return None
    return pointwise.told(fit.method, data, fit.data.locate(data)[0], fit.data.levels)


def top_of_hierarchy(fit: Any, data: Any, draws: Mapping[str, np.ndarray]) -> list[str]:
    """The sites whose priors are scaled: all except rows (of users, items, ...) with a learned prior.

    Scaling such rows too would scale the information that the rows have about their common prior. A prior
    depends on a site if its density changes when only this site takes the value of another draw.
    """
    method, one = fit.method, prior_data(fit, data)
    here, other = ({s: np.asarray(v[0, at]) for s, v in draws.items()} for at in (0, -1))

    def logs(values: Mapping[str, np.ndarray]) -> dict[str, float]:
        params = jax.tree.map(lambda x: x[None], from_sites(method, values))
        densities = _by_site(method, fit.hyper, params, one)
        return {n: float(log[0]) for n, log in densities.items() if not observed(n)}

    before = logs(here)
    learned: set[str] = set()
    for site in set(here) & set(before):
        after = logs({**here, site: other[site]})
        learned |= {n for n in before if n != site and n in here and after[n] != before[n]}
    rows = {n for n in learned if set(site_dims(method, n)) & set(fit.data.coords)}
    return [n for n in before if n not in rows]


@partial(jax.jit, static_argnums=(0, 1))
def _by_site(method: Method, hyper: Any, params: Any, data: Any) -> dict[str, jax.Array]:
    def one(p: Any) -> dict[str, jax.Array]:
        sites = sites_of_model(method, data, hyper, p)
        return {n: jnp.sum(site["fn"].log_prob(site["value"])) for n, site in sites.items()}

    return jax.lax.map(one, params)


def scaled(
    log: np.ndarray, alpha: tuple[float, float]
) -> tuple[list[np.ndarray], tuple[float, float]]:
    """Smoothed weights (chain, draw) at both powers, and their Pareto k."""
    weights, k = [], []
    for power in alpha:
        ratio = (power - 1) * log.reshape(1, -1)
        log_weight, shape = psis.smooth(ratio, psis.efficiency(ratio, len(log)))
        weights.append(np.exp(log_weight).reshape(log.shape))
        k.append(float(shape[0]))
    return weights, (k[0], k[1])


def moves(values: np.ndarray, weights: list[np.ndarray], alpha: tuple[float, float]) -> np.ndarray:
    """Change of each quantity (draws x quantities) per doubling of alpha, mean of both powers."""
    low, high = (distance(values, w.ravel()) for w in weights)
    return (-low / np.log2(alpha[0]) + high / np.log2(alpha[1])) / 2


def distance(values: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Cumulative Jensen-Shannon distance between unweighted and weighted draws, of each column.

    The larger of the distances of the distribution functions from below and from above; 0 for constants.

    >>> x = np.arange(100.0)[:, None]
    >>> distance(x, np.ones(100)).round(6), bool(distance(x, x[:, 0])[0] > 0.1)
    (array([0.]), True)
    """
    values = np.asarray(values, float)
    return np.maximum(_one_sided(values, weight), _one_sided(-values, weight))


def _one_sided(values: np.ndarray, weight: np.ndarray) -> np.ndarray:
    order = np.argsort(values, axis=0)
    width = np.diff(np.take_along_axis(values, order, 0), axis=0)
    draws = len(values)
    p = np.linspace(1 / draws, 1 - 1 / draws, draws - 1)[:, None]
    q = np.cumsum(weight[order] / weight.sum(), 0)[:-1]
    middle = np.log2((p + q) / 2)
    log_q = np.log2(np.where(q > 0, q, 1))
    P, Q = (width * p).sum(0), (width * q).sum(0)
    one = (width * p * (np.log2(p) - middle)).sum(0) + (Q - P) / (2 * np.log(2))
    other = (width * q * (log_q - middle)).sum(0) + (P - Q) / (2 * np.log(2))
    total = np.maximum(one, 0) + np.maximum(other, 0)
    return np.sqrt(total / np.where(P + Q > 0, P + Q, 1))


def _quantities(fit: Any, query: Any) -> tuple[dict[str, np.ndarray], dict[str, list[str]]]:
    """Predictions and other identified quantities whose spacing of draws is known, with their names."""
    length = next(iter(fit.draws.values())).shape[1]
    quantities = identified(fit)
    quantities.pop("lp", None)
    names = {what: row_names(what, fit, values.shape[2:]) for what, values in quantities.items()}
    if query is not None:
        prediction = fit.predict(query)
        quantities["probe"] = prediction.draws_of_mean()
        names["probe"] = prediction_names(prediction.labels)
    kept = {what: v for what, v in quantities.items() if _stride(length, v.shape[1])}
    return kept, {what: names[what] for what in kept}


def _stride(length: int, kept: int) -> int:
    """The step that selects `kept` of `length` draws; 0 if several steps do."""
    steps = [step for step in range(1, length + 1) if -(-length // step) == kept]
    return steps[0] if len(steps) == 1 else 0


def _diagnosis(prior: float, likelihood: float) -> str:
    if prior < LIMIT:
        return FINE
    return CONFLICT if likelihood >= LIMIT else STRONG


def _weights(result: Sensitivity) -> Finding:
    """Whether the powers are near enough to 1 for the weights."""
    limit, largest = psis.threshold(result.draws), max(max(k) for k in result.pareto_k.values())
    facts = f"Pareto k up to {number(largest)} ({limit:.2f} is fine), {result.effective:.0%} of the draws "
    facts += "effective"
    if result.trusted:
        return Finding("good", f"The weights can be trusted: {facts}.")
    near = result.nearer
    advice = f"Take powers nearer to 1: alpha=({near:.4g}, {1 / near:.4g})."
    return Finding("bad", f"The weights and the table cannot be trusted: {facts}.", advice)


def _diagnoses(table: pd.DataFrame) -> list[Finding]:
    """The number of quantities that depend on the prior, and possible reasons."""
    results = []
    advice = {
        CONFLICT: "Prior and data disagree about these quantities: compare the scales of both.",
        STRONG: "The data say little about these quantities: their values come mostly from the prior.",
    }
    for what, next_step in advice.items():
        rows = table.index[table["diagnosis"] == what]
        if len(rows):
            text = f"{what[0].upper()}{what[1:]}: {len(rows)} of {len(table)}, such as {rows[0]}."
            results.append(Finding("care", text, next_step))
    if not results:
        text = f"None of {len(table)} quantities depends strongly on the prior."
        results.append(Finding("good", text))
    return results
