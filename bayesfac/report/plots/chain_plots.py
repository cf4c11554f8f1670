"""ArviZ's pictures of a sampled fit, of identified quantities only."""

from typing import Any

import arviz_base
import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from bayesfac.report import arviz_versions
from bayesfac.report.diagnostics.diagnose import Diagnostics
from bayesfac.report.diagnostics.findings import ESS, GROUPS, LEVELS, RHAT, Finding
from bayesfac.report.plots.figure import Picture, short

GRID = (5.4, 4.4)
PANELS = 4
ROWS = 400  # held-out ratings behind the posterior predictive check
STRATA = 20
REPLICATES = 50


def posterior_pictures(name: str, fit: Any, found: Diagnostics, test: Any = None) -> list[Picture]:
    """Trace, ranks, effective sample size, distributions, energy, predictive check."""
    if found.quantities["probe"].shape[1] < arviz_versions.SHORTEST:
        return []  # too few draws for any curve
    tree = spotlight(found)
    pictures = []
    if found.kind == "sampler":
        pictures += [
            trace(name, tree, found),
            ranks(name, tree, found),
            ess_growth(name, tree, found),
        ]
    pictures.append(distributions(name, tree))
    if "energy" in fit.stats:
        pictures.append(energy(name, fit))
    if test is not None and fit.data.kind == "Ratings":
        pictures.append(predictive(name, fit, test))
    return pictures


def spotlight(found: Diagnostics) -> xr.DataTree:
    """Four telling quantities as a DataTree: log joint, scalars, slowest prediction, spectrum.

    Where some were only computed from every n-th draw, typical predictions fill their places.
    """
    length = max(values.shape[1] for values in found.quantities.values())
    chosen: dict[str, np.ndarray] = {}
    for fill in (False, True):
        for name, draws in found.quantities.items():
            flat = np.asarray(draws, float).reshape(*draws.shape[:2], -1)
            rows = found.table[found.table["source"] == name]
            for at in _telling(name, rows["r_hat"].to_numpy(), fill):
                if flat.shape[1] == length and arviz_versions.moves(flat[:, :, [at]])[0]:
                    chosen.setdefault(short(rows.index[at], 28), flat[:, :, at])
    return arviz_base.from_dict({"posterior": dict(list(chosen.items())[:PANELS])})


def _telling(name: str, r_hat: np.ndarray, fill: bool) -> list[int]:
    """Which entries to show: the first, or the slowest prediction; to fill up, middling ones."""
    if name != "probe":
        return [] if fill else [0]
    order = np.argsort(np.nan_to_num(r_hat, nan=0.0), kind="stable")[::-1]
    middle = len(order) // 2
    return [int(at) for at in (order[middle : middle + PANELS] if fill else order[:1])]


def trace(name: str, tree: xr.DataTree, found: Diagnostics) -> Picture:
    """Draws in order, one colour a chain."""
    figure = arviz_versions.figure(
        "trace", tree, GRID, col_wrap=2, visuals={"trace": {"width": 0.6}}
    )
    _label(figure, "draw", "value")
    how = "Chains (colours) should overlap like one band of noise, with no slope and no jump."
    return Picture(figure, f"Trace of {name}", how, _agreement(_shown(tree, found)))


def ranks(name: str, tree: xr.DataTree, found: Diagnostics) -> Picture:
    """How far each chain's ranks are from uniform, with Kolmogorov's 95 % band for its ESS."""
    figure = arviz_versions.figure("rank", tree, GRID, col_wrap=2)
    outside = 0
    variables = list(tree["posterior"].data_vars)
    with arviz_versions.style():
        for axes, variable in zip(figure.axes, variables, strict=False):
            draws = tree["posterior"][variable].to_numpy()
            effective = min(float(arviz_versions.ess(draws)), draws.size) / len(draws)  # per chain
            band = 1.36 / np.sqrt(max(effective, 1)) if np.isfinite(effective) else 1.0
            reach = max(np.abs(np.asarray(line.get_ydata(), float)).max() for line in axes.lines)
            outside += reach > band
            axes.axhspan(-band, band, color="k", alpha=0.1, lw=0)
            axes.set_ylim(-1.3 * max(band, reach), 1.3 * max(band, reach))
    _label(figure, "fractional rank", "ECDF difference")
    how = "Each line compares one chain with all chains together; it should stay in the grey band."
    text = f"Here: {outside} of {len(variables)} leave it." if outside else "Here: all stay inside."
    return Picture(figure, f"Ranks of {name}", how, Finding("care" if outside else "good", text))


def ess_growth(name: str, tree: xr.DataTree, found: Diagnostics) -> Picture:
    """Effective sample size by number of draws."""
    figure = arviz_versions.figure("ess_evolution", tree, GRID, col_wrap=2, min_ess=ESS[1])
    for axes in figure.axes:
        for points in axes.findobj(PathCollection):
            points.set_sizes([14])
    _label(figure, "draws in all", "ESS")
    how = (
        f"Bulk (blue) and tail (orange) should grow in a straight line and pass {ESS[1]} (dashed)."
    )
    least = float(_shown(tree, found)[["ess_bulk", "ess_tail"]].to_numpy().min())
    level = "good" if least >= ESS[1] else "care" if least >= ESS[0] else "bad"
    return Picture(
        figure,
        f"Growth of the ESS of {name}",
        how,
        Finding(level, f"Here: the smallest of these is {least:.0f}."),
    )


def distributions(name: str, tree: xr.DataTree) -> Picture:
    """The posterior of the same quantities."""
    ours = (
        "point_estimate",
        "point_estimate_text",
        "credible_interval",
    )  # 0.8 rounds where it puts them
    figure = arviz_versions.figure(
        "dist", tree, GRID, col_wrap=2, visuals=dict.fromkeys(ours, False)
    )
    with arviz_versions.style():
        for axes, values in zip(figure.axes, tree["posterior"].data_vars.values(), strict=False):
            axes.plot(
                np.quantile(values, [0.05, 0.95]),
                [0, 0],
                color=arviz_versions.GREY,
                lw=3,
                solid_capstyle="butt",
            )
            axes.plot(float(values.mean()), 0, "o", color="black", ms=5)
    _label(figure, "value", "")
    how = "Line: density of the draws; dot and bar: mean and central 90 % interval."
    text = "Two humps would say that the chains found two explanations."
    return Picture(figure, f"Posterior of {name}", how, Finding("good", text))


def energy(name: str, fit: Any) -> Picture:
    """Marginal and transition energy of a Hamiltonian sampler."""
    tree = arviz_base.from_dict(
        {
            "posterior": {"energy": fit.stats["energy"]},
            "sample_stats": {"energy": fit.stats["energy"]},
        }
    )
    figure = arviz_versions.figure("energy", tree, (5.4, 3.5), visuals={"title": False})
    left, right = figure.axes[:2]
    left.set(xlabel="E-BFMI", ylabel="chain", title="E-BFMI")
    left.set_yticks(range(len(fit.stats["energy"])))
    right.set(xlabel="energy, centred (nats)", title="Energy")
    low = float(arviz_versions.bfmi(fit.stats["energy"]).min())
    how = (
        "Right: both humps should be alike. Left: every chain should lie right of the dashed line."
    )
    text = f"Here: E-BFMI at least {low:.2f}."
    return Picture(
        figure, f"Energy of {name}", how, Finding("good" if low >= 0.3 else "care", text)
    )


def predictive(name: str, fit: Any, test: Any) -> Picture:
    """Replicated ratings beside the held-out ones."""
    rng = np.random.default_rng(0)
    rows = np.sort(rng.permutation(len(test))[:ROWS])
    part = test.take(rows)
    drawn = replicates(fit.predict(part), rng)
    tree = arviz_base.from_dict(
        {"posterior_predictive": {"rating": drawn[None]}, "observed_data": {"rating": part.value}},
        dims={"rating": ["cell"]},
    )
    figure = arviz_versions.figure("ppc_dist", tree, (5.4, 3.5), kind="ecdf", num_samples=REPLICATES,
                       visuals={"remove_axis": False})  # fmt: skip
    _label(figure, "rating", "share at or below")
    mean, sd = part.value.mean(), part.value.std()
    off = abs(drawn.mean() - mean) > 3 * sd / np.sqrt(len(rows))
    how = f"Thin: {REPLICATES} replications of {len(rows)} held-out ratings; thick: what came. "
    how += "It should run among them."
    text = f"Here: replicated mean {drawn.mean():.2f}, sd {drawn.std():.2f}; "
    text += f"observed {mean:.2f}, {sd:.2f}."
    return Picture(
        figure, f"Posterior predictive of {name}", how, Finding("care" if off else "good", text)
    )


def replicates(prediction: Any, rng: np.random.Generator) -> np.ndarray:
    """(replicate, cell) outcomes: the predictive distribution's quantiles, by random strata."""
    tails = (np.arange(STRATA // 2) + 0.5) / STRATA
    ends = [prediction.interval(1 - 2 * tail) for tail in tails]
    quantiles = np.stack([end[0] for end in ends] + [end[1] for end in ends])
    which = rng.integers(STRATA, size=(REPLICATES, quantiles.shape[1]))
    return np.take_along_axis(quantiles, which, 0)


def _shown(tree: xr.DataTree, found: Diagnostics) -> pd.DataFrame:
    """The rows of the table that are in the picture."""
    return found.table[[short(name, 28) in tree["posterior"] for name in found.table.index]]


def _agreement(rows: pd.DataFrame) -> Finding:
    """By the limits of the verdict: a picture does not contradict it."""
    levels = ["good"]
    for group, belongs in GROUPS.items():
        largest = rows.loc[belongs(rows["quantity"]), "r_hat"].max()
        fine, limit = RHAT["prediction" if group == "Predictions" else "else"]
        if round(largest, 3) > fine:  # not where nothing could be compared: NaN
            levels.append("bad" if largest > limit and not group.startswith("Hyper") else "care")
    level = max(levels, key=LEVELS.index)
    largest = rows["r_hat"].max()
    return Finding(level, f"Here: the largest R-hat of these is {largest:.3f}.")


def _label(figure: Figure, x: str, y: str) -> None:
    """Axis names; "value" becomes the unit of what the panel's title names."""
    for axes in figure.axes:
        if not axes.has_data():
            continue
        unit = "nats" if axes.get_title() == "log joint" else "value"
        axes.set_xlabel(unit if x == "value" else x, fontsize=9)
        if y:
            axes.set_ylabel(unit if y == "value" else y, fontsize=9)
        axes.tick_params(labelsize=8)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.title.set_fontsize(9.5)
