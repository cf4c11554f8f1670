"""Pictures of one fit: probabilities of levels, aligned factors, sizes of clusters."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import Permutation, Rotation, gauge_of, site_dims, sites
from bayesfac.report import drawing
from bayesfac.report.diagnostics.align import align_draws
from bayesfac.report.diagnostics.diagnose import few
from bayesfac.report.diagnostics.findings import Finding
from bayesfac.report.plots.figure import SIZE, Picture, canvas, colour, distinct, panel, short

CELLS = 12  # cells in the picture of levels
SHOWN = 0.005  # shares of variance from which their number is shown
REASONS = 12  # ratings in the picture of what explains a prediction
PANELS, ENTRIES = 4, 8  # components in the picture of factors, and entries of each
SURE = {"probability ≥ 0.9": 0.9, "0.6 to 0.9": 0.6, "below 0.6": 0.0}
SHADES = ("#0072B2", "#7FB5D6", "#D9D9D9")


def levels(name: str, prediction: Any, observed: np.ndarray | None = None) -> Picture:
    """The probability of every level for some cells, one bar each; a dot marks the observed level."""
    masses, scale = prediction.probabilities, prediction.levels
    order = np.argsort(prediction.mean, kind="stable")
    at = order[np.unique(np.linspace(0, len(order) - 1, min(CELLS, len(order))).astype(int))]
    labels = distinct(
        (", ".join(map(str, row)) for row in prediction.labels.iloc[at].to_numpy()), 26
    )
    shades = matplotlib.colormaps["cividis"](np.linspace(0.05, 0.95, len(scale)))
    title, y = f"{short(name)}: probability of each level", ", ".join(prediction.labels.columns)
    with panel(title, "probability (cumulative)", y, legend="", xlim=(0, 1)) as (figure, axes):
        left = np.zeros(len(at))
        for number, level in enumerate(scale):
            share = masses[at, number]
            axes.barh(range(len(at)), share, 0.8, left, color=shades[number], label=f"{level:g}")
            left += share
        if observed is not None:
            code = np.searchsorted(scale, observed[at])
            middle = np.cumsum(masses[at], 1) - masses[at] / 2
            seen = np.take_along_axis(middle, code[:, None], 1)[:, 0]
            axes.plot(seen, range(len(at)), "o", ms=5, color="white", mec="black", label="observed")
        axes.set_yticks(range(len(at)), labels)
        axes.grid(visible=False)
        figure.legend(loc="outside right center", title="level")
    how = "Each bar is a cell, its parts the probabilities of the levels, from the lowest to the highest; "
    how += "a wide part is a sure prediction."
    surest = masses[at].max(1)
    text = f"Here: the likeliest level has a probability from {surest.min():.2f} to {surest.max():.2f}."
    return Picture(figure, f"Levels of {name}", how, Finding("good", text))


def factors(name: str, fit: Any, site: str | None = None) -> Picture:
    """The largest entries of every component after alignment, with 90 % intervals of draws.

    One site stands in rows of two panels; of several, each has a row of its own.
    """
    drawn = fit.draws is not None
    if drawn:
        values = few(fit.draws)
    else:
        values = {s: np.asarray(v)[None, None] for s, v in sites(fit.params).items()}
    gauge = gauge_of(fit.method, tuple(values))
    chosen = _chosen(fit.method, gauge, values, site)
    aligned = align_draws(values, gauge) if drawn else None
    found = aligned.draws if aligned else values
    tables = {one: np.moveaxis(found[one], axis + 2, -1) for one, axis in chosen.items()}
    tables = {one: table.reshape(-1, *table.shape[2:]) for one, table in tables.items()}
    shown = _largest(fit.method, tables, chosen)
    most = max(map(len, shown.values()))
    columns = most if len(shown) > 1 else min(2, most)
    rows = len(shown) * -(-most // columns)
    with drawing.style():
        figure, panels = canvas(rows, columns, (SIZE[0] / 2 * max(columns, 2), 0.6 + 2.1 * rows))
        for number, (one, components) in enumerate(shown.items()):
            dim = site_dims(fit.method, one)[1 - chosen[one]]
            labels = fit.data.coords.get(dim, pd.RangeIndex(tables[one].shape[1]))
            for axes, k in zip(panels[number * columns :], components, strict=False):
                _entries(axes, tables[one][:, :, k], labels)
                axes.set_title(f"component {k + 1}", loc="left")
                axes.set_xlabel(f"{one} ({dim.partition('.')[0]})")
        for axes in panels:
            if not axes.has_data():
                axes.set_axis_off()
    how = f"The {ENTRIES} largest entries of {', '.join(tables)} in each component; bars are 90 % intervals."
    return Picture(figure, f"Factors of {name}", how, _judged(aligned))


def variance_explained(name: str, table: pd.DataFrame) -> Picture:
    """The share of each view that each component explains, as squares, and that of all as bars."""
    wide = table["mean"].unstack("component", sort=False)
    total, each = wide["all"], wide.drop(columns="all")
    ends = table.xs("all", level="component")[["low", "high"]].loc[wide.index]
    width = max(SIZE[0], 2.2 + 0.42 * each.shape[1])
    with drawing.style():
        figure, (left, right) = canvas(1, 2, (width + 1.8, 1.3 + 0.5 * len(wide)))
        left.get_subplotspec().get_gridspec().set_width_ratios(
            [max(3.0, 0.42 * each.shape[1]), 1.8]
        )
        image = left.imshow(each, cmap="Blues", vmin=0, aspect="auto")
        dark = 0.6 * np.nanmax(each.to_numpy(), initial=1e-9)
        for (i, j), share in np.ndenumerate(each.to_numpy()):
            if share >= SHOWN:
                shade = "white" if share > dark else "black"
                left.text(j, i, f"{share:.0%}", ha="center", va="center", fontsize=7, color=shade)
        left.set_xticks(range(each.shape[1]), [str(k) for k in each.columns])
        left.set_yticks(range(len(wide)), distinct(map(str, wide.index), 16))
        left.set_xlabel("component")
        left.grid(visible=False)
        left.set_title(f"{short(name)}: variance explained", loc="left")
        figure.colorbar(image, ax=left, format=lambda x, _: f"{x:.0%}", pad=0.01)
        bars = np.maximum([total - ends["low"], ends["high"] - total], 0)
        right.barh(range(len(wide)), total, 0.7, xerr=bars, color=colour(0), ecolor="black")
        right.set_yticks(range(len(wide)), [""] * len(wide))
        right.invert_yaxis()
        right.set_xlim(0, 1)
        right.set_xlabel("all components")
    how = "Each square is the share of the variance of a view that a component explains; bars are the shares "
    how += "of all components, with 90 % intervals of draws."
    best = total.idxmax()
    used = table.xs("all", level="component")["in_use"]
    shares = ", ".join(f"{number:.0f} in {view!r}" for view, number in used.items())
    text = f"Here: {best!r} is explained best, {total.max():.0%}; components in use: {shares}"
    return Picture(figure, f"Variance explained by {name}", how, Finding("good", f"{text}."))


def scores(name: str, fit: Any, components: tuple[int, int], values: Any, label: str) -> Picture:
    """The rows in two components, by the mean of aligned draws, with colours for `values`."""
    found = {s: np.asarray(x) for s, x in fit._as_draws().items()}
    aligned = align_draws(found, gauge_of(fit.method, tuple(found)))
    rows, (one, two) = aligned.draws["U"].reshape(-1, *found["U"].shape[2:]).mean(0), components
    x, y = rows[:, one - 1], rows[:, two - 1]
    title = f"{short(name)}: rows"
    with panel(title, f"component {one}", f"component {two}", legend="") as (figure, axes):
        if values is None:
            axes.scatter(x, y, 12, color=colour(0), lw=0)
        elif pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values):
            points = axes.scatter(x, y, 12, c=np.asarray(values, float), cmap="cividis", lw=0)
            figure.colorbar(points, ax=axes, label=label)
        else:
            for number, (value, at) in enumerate(pd.Series(values).groupby(values).groups.items()):
                axes.scatter(x[at], y[at], 12, color=colour(number), lw=0, label=str(value))
            figure.legend(loc="outside right center", title=label)
    how = "Each dot is a row, at the mean of its draws."
    return Picture(figure, f"Rows of {name}", how, _judged(aligned if fit.draws else None))


def _largest(
    method: Any, tables: Mapping[str, np.ndarray], axes: Mapping[str, int]
) -> dict[str, np.ndarray]:
    """The components of each site to show, largest first; sites with the same components show the same."""
    size = {one: (table.mean(0) ** 2).sum(0) for one, table in tables.items()}
    axis = {one: site_dims(method, one)[axes[one]] for one in tables}
    found = {}
    for one in tables:
        alike = [other for other in tables if axis[other] == axis[one]]
        shared = [size[other] / (size[other].sum() or 1) for other in alike]
        found[one] = np.argsort(-np.sum(shared, 0), kind="stable")[:PANELS]
    return found


def _entries(axes: Axes, draws: np.ndarray, labels: Any) -> None:
    """The largest entries of one component, from draws x entries."""
    mean, ends = draws.mean(0), np.quantile(draws, [0.05, 0.95], axis=0)
    top = np.argsort(-np.abs(mean), kind="stable")[:ENTRIES][::-1]
    bars = np.maximum([mean[top] - ends[0, top], ends[1, top] - mean[top]], 0)
    look: dict[str, Any] = {"fmt": "o", "ms": 4, "color": colour(0), "lw": 1}
    axes.errorbar(mean[top], range(len(top)), xerr=bars, **look)
    axes.axvline(0, color=drawing.GREY, lw=0.8, ls=":")
    axes.set_yticks(range(len(top)), distinct((str(labels[i]) for i in top), 16))


def _judged(aligned: Any) -> Finding:
    if aligned is None:
        text = "Here: one value; a point fit does not know how sure its factors are."
        return Finding("care", text)
    if aligned.ambiguous or aligned.modes > 1:
        text = aligned.notes[0] if aligned.ambiguous else aligned.modes_in_words
        return Finding("care", f"Here: do not interpret single entries. {text}")
    typical = float(np.median(aligned.residual))
    return Finding("good", f"Here: all draws in one frame, median residual {typical:.2f}.")


def _chosen(
    method: Any, gauge: Sequence[Rotation | Permutation], values: Mapping[str, np.ndarray], site: str | None
) -> dict[str, int]:  # fmt: skip
    """The sites to show and their axes of components: by default the last that has rows and components, and
    those of the same name for other views."""
    able = {
        name: axis
        for free in gauge
        for name, axis in free.axes.items()
        if name in values and values[name].ndim == 4
    }
    for free in gauge:
        if site is None and isinstance(free, Rotation) and free.factors[1] in able:
            site = free.factors[1]
    if not able or (site is not None and site not in able):
        got = f"site={site!r}" if able else f"{method.name}, which has none"
        raise BayesfacError(f"Expected a table of factors, one of {sorted(able)}, got {got}")
    if site is not None:
        return {site: able[site]}
    first = list(able)[-1].partition(".")[0]
    return {one: axis for one, axis in able.items() if one.partition(".")[0] == first}


def clusters(name: str, table: pd.DataFrame) -> Picture:
    """The number of rows in each cluster, by how sure the fit is of them: a table of `bf.clusters`."""
    sizes = table["cluster"].value_counts()
    x, y = "cluster, largest first", "rows"
    with panel(f"{short(name)}: clusters", x, y, "upper right") as (figure, axes):
        bottom, below = np.zeros(len(sizes)), np.inf
        for (label, limit), shade in zip(SURE.items(), SHADES, strict=True):
            part = table[(table["probability"] >= limit) & (table["probability"] < below)]
            count = part["cluster"].value_counts().reindex(sizes.index, fill_value=0).to_numpy()
            axes.bar(range(len(sizes)), count, 0.8, bottom, color=shade, label=label)
            bottom, below = bottom + count, limit
        axes.set_xticks(range(len(sizes)), [str(cluster) for cluster in sizes.index])
        axes.grid(visible=False, axis="x")
    sure = float((table["probability"] >= 0.9).mean())
    how = "Each bar is a cluster; the colour says how probable the cluster is for its rows."
    text = f"Here: {sure:.0%} of the rows have a cluster of probability 0.9 or more."
    finding = Finding("good" if sure >= 0.5 else "care", text)
    return Picture(figure, f"Clusters of {name}", how, finding)


def explained(name: str, table: pd.DataFrame) -> Picture:
    """What the parts of a prediction add to it, with their standard deviations: a table of `fit.explain`."""
    user, item = table.attrs["user"], table.attrs["item"]
    rated = table["what"] == "rating"
    most, rest = table[rated][:REASONS], table[rated][REASONS:]
    base = table[~rated][1:]  # the mean of all ratings is far longer than all other bars
    labels = [*base["what"], *(f"{row.label}: {row.value:g}" for row in most.itertuples())]
    adds, sd = [*base["adds"], *most["adds"]], [*base["sd"], *most["sd"]]
    if len(rest):  # their sum has no standard deviation in the table
        labels, adds = [*labels, f"{len(rest)} other ratings"], [*adds, rest["adds"].sum()]
        sd = [*sd, 0.0]
    title = f"{short(name)}: why {item} for {user}"
    with panel(title, "adds to the prediction", "item: rating", legend="") as (figure, axes):
        place = -np.arange(len(adds))
        shades = [colour(0) if x > 0 else colour(1) for x in adds]
        axes.barh(place, adds, 0.8, color=shades, xerr=np.where(np.asarray(sd) > 0, sd, np.nan))
        axes.axvline(0, color="0.3", lw=1)
        axes.set_yticks(place, distinct(labels, 30))
        axes.grid(visible=False, axis="y")
    how = "Each bar is what a part adds to the prediction, with its standard deviation over the draws; "
    how += "ratings are named by their item."
    start, end = table["adds"].iloc[0], table.attrs["prediction"]
    text = f"Here: from the mean of all ratings, {start:.2f}, to {end:.2f}."
    return Picture(figure, f"Why {item} for {user}", how, Finding("good", text))
