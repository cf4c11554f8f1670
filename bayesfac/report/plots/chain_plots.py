"""How a fit developed, and ArviZ's plots of draws; only identified quantities are drawn."""

from typing import Any

import arviz_base
import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy.stats import rankdata

from bayesfac.report import arviz_versions, drawing
from bayesfac.report.diagnostics.chains import BFMI, ESS, GROUPS, apart, judge_rhat
from bayesfac.report.diagnostics.diagnose import Diagnostics
from bayesfac.report.diagnostics.findings import LEVELS, Finding
from bayesfac.report.diagnostics.held_out import Scores
from bayesfac.report.plots.figure import SIZE, Picture, colour, distinct, panel, short, wrapped

GRID = (5.4, 4.4)
PANELS = 4
WIDTH = 28  # characters of a line of a panel's title
LOOKS = 10  # numbers of draws at which the effective sample size is shown


def objective(name: str, fit: Any, diagnosis: Any) -> Picture:
    """The objective by iteration, minus the ELBO by step, or minus the log joint by draw."""
    if fit.draws is None or getattr(fit.engine, "guide", "") == "blocks":
        what, step = "objective", "iteration"
    elif (engine := type(fit.engine).__name__) in ("SVI", "VB"):
        what, step = "minus ELBO", "step" if engine == "SVI" else "look"
    else:
        what, step = "minus log joint", "draw after warm-up"
    title = short(f"{name}: {what}", 60)
    with panel(title, step, f"{what} (nats)", legend="") as (figure, axes):
        if what == "minus log joint":
            how = "Chains should overlap like one band of noise, with no slope."
            chains = next(iter(fit.draws.values())).shape[0]
            for number, part in enumerate(np.array_split(fit.trace, chains)):
                axes.plot(part, lw=0.7, label=f"chain {number}", color=colour(number))
            axes.legend(ncols=min(chains, 4), loc="upper right")
        else:
            axes.plot(fit.trace, color=colour(0))
            cut = "; its steep beginning is cut off" if _focus(axes, fit.trace) else ""
            how = f"The curve should fall and then lie flat{cut}."
    first = diagnosis.findings[0]
    finding = Finding(first.level, f"Here: {first.text[0].lower()}{first.text[1:]}")
    return Picture(figure, f"{what[0].upper()}{what[1:]} of {name}", how, finding)


def _focus(axes: Axes, trace: np.ndarray) -> bool:
    """Zoom in on the end of a falling curve; return whether the steep beginning was cut off."""
    finite = trace[np.isfinite(trace)]
    if len(finite) < 20:
        return False
    low, high = finite.min(), np.quantile(finite, 0.9)
    steep = bool(finite.max() - low > 4 * (high - low) > 0)
    if steep:
        axes.set_ylim(low - 0.08 * (high - low), high + 0.6 * (high - low))
    return steep


def posterior_pictures(
    name: str, fit: Any, diagnosis: Diagnostics, scores: Any = None
) -> list[Picture]:
    """Trace, ranks, effective sample size, distributions, energy and posterior predictive check."""
    if diagnosis.quantities["probe"].shape[1] < arviz_versions.SHORTEST:
        return []  # too few draws for any curve
    tree, rows = spotlight(diagnosis)
    pictures = []
    if diagnosis.kind == "sampler":
        pictures += [trace(name, tree, rows), ranks(name, tree), ess_growth(name, tree, rows)]
    pictures.append(distributions(name, tree, rows if diagnosis.kind == "sampler" else None))
    if "energy" in fit.stats and apart(fit) == 1:  # of successive transitions
        pictures.append(energy(name, fit))
    if isinstance(scores, Scores) and fit.data.form.by_pair:
        pictures.append(predictive(name, scores))
    return pictures


def spotlight(diagnosis: Diagnostics) -> tuple[xr.DataTree, pd.DataFrame]:
    """Four quantities as a DataTree, a panel each, and their rows of the table of diagnostics.

    They are the log joint, scalars, the slowest prediction and the largest singular value.
    Quantities that were computed from every n-th draw only are replaced by predictions of middling R-hat.
    """
    length = max(values.shape[1] for values in diagnosis.quantities.values())
    chosen: dict[int, np.ndarray] = {}  # by row of the table, as two labels may be cut to one
    for fill in (False, True):
        for name, draws in diagnosis.quantities.items():
            flat = np.asarray(draws, float).reshape(*draws.shape[:2], -1)
            rows = np.flatnonzero(diagnosis.table["source"] == name)
            for at in _entries(name, diagnosis.table["r_hat"].to_numpy()[rows], fill):
                if flat.shape[1] == length and arviz_versions.moves(flat[:, :, [at]])[0]:
                    chosen.setdefault(int(rows[at]), flat[:, :, at])
    first = dict(list(chosen.items())[:PANELS])
    tree = panels([str(diagnosis.table.index[row]) for row in first], list(first.values()))
    return tree, diagnosis.table.iloc[list(first)]


def panels(labels: list[str], draws: list[np.ndarray]) -> xr.DataTree:
    """Draws as numbered variables with their labels as titles: the name of a variable cannot have a slash."""
    titles = distinct(labels, WIDTH, wrapped)
    tree = arviz_base.from_dict({"posterior": {f"panel {n}": x for n, x in enumerate(draws)}})
    for values, title in zip(tree["posterior"].data_vars.values(), titles, strict=True):
        values.attrs["long_name"] = title
    return tree


def _entries(name: str, r_hat: np.ndarray, fill: bool) -> list[int]:
    """Entries to show: the slowest prediction (middling ones if `fill`), of other quantities the first."""
    if name != "probe":
        return [] if fill else [0]
    order = np.argsort(np.nan_to_num(r_hat, nan=0.0), kind="stable")[::-1]
    middle = len(order) // 2
    return [int(at) for at in (order[middle : middle + PANELS] if fill else order[:1])]


def trace(name: str, tree: xr.DataTree, rows: pd.DataFrame) -> Picture:
    """Draws in order, one colour per chain; `rows` of the table of diagnostics belong to the panels."""
    thin_lines = {"trace": {"width": 0.6}}
    figure = drawing.figure("trace", tree, GRID, col_wrap=2, visuals=thin_lines)
    _label(figure, tree, "draw", "value")
    _name_chains(figure)
    how = "Chains should overlap like one band of noise, with no slope and no jump."
    text = f"Here: the largest R-hat shown is {rows['r_hat'].max():.3f}."
    return Picture(figure, f"Trace of {name}", how, Finding(_agreement(rows), text))


def _agreement(rows: pd.DataFrame) -> str:
    """The level of the worst R-hat of these rows."""
    r_hat = rows["r_hat"]
    levels = [
        judge_rhat(g, r_hat[belongs(rows["quantity"])].max()) for g, belongs in GROUPS.items()
    ]
    return max(levels, key=LEVELS.index)


def ranks(name: str, tree: xr.DataTree) -> Picture:
    """Distance of each chain's ranks from uniform, with Kolmogorov's 95 % band for the chain's ESS."""
    outside = 0
    variables = list(tree["posterior"].data_vars)
    with drawing.style():
        figure = Figure(figsize=GRID, layout="constrained")
        for number, variable in enumerate(variables):
            axes = figure.add_subplot(-(-len(variables) // 2), 2, number + 1)
            draws = tree["posterior"][variable].to_numpy()
            # the ESS of each chain alone: chains that disagree have hardly any effective draws in common,
            # and a band for so few draws would be too wide for any line to leave it
            alone = [float(arviz_versions.ess(chain[None])) for chain in draws]
            effective = min(float(np.mean(alone)), draws.shape[1])
            band = 1.36 / np.sqrt(max(effective, 1)) if np.isfinite(effective) else 1.0
            share = np.arange(1, draws.shape[1] + 1) / draws.shape[1]
            ranks = np.sort(rankdata(draws).reshape(draws.shape) / draws.size, 1)
            for chain in ranks:
                axes.plot(chain, share - chain, lw=1)
            reach = np.abs(share - ranks).max()
            outside += reach > band
            axes.axhspan(-band, band, color="k", alpha=0.1, lw=0)
            axes.set_ylim(-1.3 * max(band, reach), 1.3 * max(band, reach))
        _name_chains(figure)
    _label(figure, tree, "fractional rank", "ECDF difference")
    how = "Each line compares one chain with all chains together; it should stay in the grey band."
    text = "Here: all lines stay inside."
    if outside:
        text = f"Here: lines leave the band in {outside} of {len(variables)} panels."
    return Picture(figure, f"Ranks of {name}", how, Finding("care" if outside else "good", text))


def ess_growth(name: str, tree: xr.DataTree, rows: pd.DataFrame) -> Picture:
    """Effective sample size by number of draws."""
    few, enough = ESS
    figure = drawing.figure("ess_evolution", tree, GRID, col_wrap=2, min_ess=enough, n_points=LOOKS)
    for axes in figure.axes:
        for points in axes.findobj(PathCollection):
            points.set_sizes([14])
    _label(figure, tree, "draws in all", "ESS")
    how = (
        f"Bulk (blue) and tail (orange) should grow in a straight line and pass {enough} (dashed)."
    )
    least = float(rows[["ess_bulk", "ess_tail"]].to_numpy().min())
    level = "good" if least >= enough else "care" if least >= few else "bad"
    finding = Finding(level, f"Here: the smallest ESS shown is {least:.0f}.")
    return Picture(figure, f"Growth of the ESS of {name}", how, finding)


def distributions(name: str, tree: xr.DataTree, rows: pd.DataFrame | None) -> Picture:
    """The posterior distribution of each quantity; `rows` of the table of diagnostics, of chains only."""
    # drawn below, as version 0.8 of ArviZ rounds their places
    ours = ("point_estimate", "point_estimate_text", "credible_interval")
    visuals = dict.fromkeys(ours, False)
    figure = drawing.figure("dist", tree, GRID, col_wrap=2, visuals=visuals)
    bar: dict[str, Any] = {"color": drawing.GREY, "lw": 3, "solid_capstyle": "butt"}
    with drawing.style():
        for axes, values in zip(figure.axes, tree["posterior"].data_vars.values(), strict=False):
            axes.plot(np.quantile(values, [0.05, 0.95]), [0, 0], **bar)
            axes.plot(float(values.mean()), 0, "o", color="black", ms=5)
    _label(figure, tree, "value", "")
    how = (
        "Line: density of the draws; dot and bar: mean and central 90 % interval. Two humps may mean that "
        "the chains found two explanations."
    )
    level = "good" if rows is None else _agreement(rows)
    text = "Here: chains differ, and a curve mixes what they found."
    if level == "good":
        text = "Here: all draws are of one law." if rows is None else "Here: the chains agree."
    return Picture(figure, f"Posterior of {name}", how, Finding(level, text))


def energy(name: str, fit: Any) -> Picture:
    """Marginal and transition energy of a Hamiltonian sampler."""
    values = {"energy": fit.stats["energy"]}
    tree = arviz_base.from_dict({"posterior": values, "sample_stats": values})
    figure = drawing.figure("energy", tree, SIZE, visuals={"title": False})
    left, right = figure.axes[:2]
    left.set(xlabel="E-BFMI", ylabel="chain", title="E-BFMI")
    left.set_yticks(range(len(fit.stats["energy"])))
    right.set(xlabel="energy, centred (nats)", title="Energy")
    low = float(arviz_versions.bfmi(fit.stats["energy"]).min())
    how = "Right: both humps should be alike. Left: all chains should lie right of the dashed line."
    finding = Finding("good" if low >= BFMI else "care", f"Here: E-BFMI at least {low:.2f}.")
    return Picture(figure, f"Energy of {name}", how, finding)


def predictive(name: str, scores: Scores) -> Picture:
    """Simulated ratings beside the held-out ones."""
    drawn, value = scores.replicates, scores.value[scores.shown]
    groups = {"posterior_predictive": {"rating": drawn[None]}, "observed_data": {"rating": value}}
    tree = arviz_base.from_dict(groups, dims={"rating": ["cell"]})
    look = {"kind": "ecdf", "num_samples": len(drawn), "visuals": {"remove_axis": False}}
    figure = drawing.figure("ppc_dist", tree, SIZE, **look)
    _name_axes(figure.axes, "rating", "share at or below")
    off = abs(drawn.mean() - value.mean()) > 3 * value.std() / np.sqrt(len(value))
    how = f"Thin: {len(drawn)} replications of {len(value)} held-out ratings; thick: the held-out ratings. "
    how += "The thick line should run among the thin ones."
    text = f"Here: replicated mean {drawn.mean():.2f}, sd {drawn.std():.2f}; "
    text += f"observed {value.mean():.2f}, {value.std():.2f}."
    finding = Finding("care" if off else "good", text)
    return Picture(figure, f"Posterior predictive of {name}", how, finding)


def _name_chains(figure: Figure) -> None:
    """A legend of the chains, whose lines every panel has in the same order."""
    lines = figure.axes[0].lines
    names = [f"chain {number}" for number in range(len(lines))]
    with drawing.style():
        legend = figure.legend(lines, names, loc="outside upper center", ncols=min(len(lines), 4))
    for line in legend.get_lines():
        line.set_linewidth(1.4)


def _label(figure: Figure, tree: xr.DataTree, x: str, y: str) -> None:
    """Give each panel its title and the names of its axes; "value" becomes "nats" for the log joint."""
    for axes, values in zip(figure.axes, tree["posterior"].data_vars.values(), strict=False):
        title = values.attrs["long_name"]
        axes.set_title(title, fontsize=9.5)
        unit = {"value": "nats"} if title == "log joint" else {}
        _name_axes([axes], unit.get(x, x), unit.get(y, y))


def _name_axes(panels: list[Axes], x: str, y: str) -> None:
    for axes in panels:
        if not axes.has_data():
            continue
        axes.set_xlabel(x, fontsize=9)
        if y:
            axes.set_ylabel(y, fontsize=9)
        axes.tick_params(labelsize=8)
        axes.xaxis.set_major_locator(MaxNLocator(5))
