"""Pictures of held-out quality."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bayesfac.report import drawing
from bayesfac.report.diagnostics.findings import Finding
from bayesfac.report.diagnostics.held_out import (
    TOLERANCE,
    WIDTH,
    LevelScores,
    Scores,
    TokenScores,
    Words,
)
from bayesfac.report.pair_scores import PairScores
from bayesfac.report.plots.figure import SIZE, Picture, canvas, colour, distinct, panel, wrapped

MARKS = ("o", "s", "^", "D", "v", "P")  # as well as colours, for readers who see no colours
LINES = ("-", "--", "-.", ":")
DOTTED: dict[str, Any] = {"color": drawing.GREY, "lw": 1, "ls": ":"}
SQUARE: dict[str, Any] = {"xlim": (0, 1), "ylim": (0, 1)}
BAND: dict[str, Any] = {"color": "k", "alpha": 0.12, "lw": 0}


def held_out(fits: Mapping[str, Any], scores: Mapping[str, Any]) -> list[Picture]:
    """All pictures of held-out quality for this kind of data; fits and scores have the same names."""
    first = next(iter(scores.values()))
    if isinstance(first, TokenScores):
        return [perplexity_by_view(scores)]
    if isinstance(first, PairScores):
        return [first_places(scores)]
    beside = point_beside_posterior(fits, scores)
    drawn = [coverage_curve(scores), coverage_by_activity(scores), *([beside] if beside else [])]
    if isinstance(first, LevelScores):
        drawn.append(reliability(scores))
    return [*drawn, selective(scores), pit(scores), pit_ecdf(scores)]


# -- held-out ratings and labels ----------------------------------------------------------------
def _words(scores: Mapping[str, Scores]) -> Words:
    return next(iter(scores.values())).words


def coverage_curve(scores: Mapping[str, Scores]) -> Picture:
    """Nominal against actual coverage of central intervals."""
    what, texts, level = _words(scores).what, [], "good"
    x, y = "nominal level of the interval (share)", f"{what} inside it (share)"
    with panel("Coverage of predictive intervals", x, y, "upper left", **SQUARE) as (figure, axes):
        axes.plot([0, 1], [0, 1], label="calibrated", **DOTTED)
        for name, each in scores.items():
            curve = each.coverage_curve()
            axes.plot(curve["level"], curve["coverage"], **_look(scores, name))
            # at WIDTH as in the verdict; elsewhere one of many levels may be off by chance
            off = [each.off(at, 2 if np.isclose(at, WIDTH) else 3) for at in curve["level"]]
            most = 100 * np.abs(curve["coverage"] - curve["level"]).max()
            said = f"calibrated within {most:.0f} points"
            if np.isinf(each.noise(WIDTH)):
                said = f"off by up to {most:.0f} points, of unknown error"
            if gap := _largest(np.array(off)):
                at, level = 100 * curve["level"][off.index(gap)], "care"
                said = f"too {_width(gap)} by up to {100 * abs(gap):.0f} points, at {at:.0f} %"
            texts.append(f"{name} is {said}")
    how = f"On the dotted line, 90 % intervals hold 90 % of the {what}; below it, intervals are too narrow."
    if isinstance(each, LevelScores):
        how += " A level that lies partly inside an interval counts in part."
    return Picture(figure, "Coverage", how, Finding(level, f"Here: {'; '.join(texts)}."))


def coverage_by_activity(scores: Mapping[str, Scores]) -> Picture:
    """Coverage of the 90 % interval by the number of training cells of the user or row."""
    words = _words(scores)
    texts: list[str] = []
    beyond: list[float] = []
    x, y = f"training {words.known}", f"{words.what} inside 90 % interval"
    with panel("Coverage by activity", x, y) as (figure, axes):
        axes.axhline(0.9, label="nominal 90 %", **DOTTED)
        for number, (name, each) in enumerate(scores.items()):
            table = each.by_activity(groups=5 if len(each) < 2000 else 10)
            bars, gap = _noise(table["covers 90 %"], table["n"], 0.9)
            beyond.append(abs(gap))
            at = np.arange(len(table)) + 0.12 * (number - (len(scores) - 1) / 2)
            axes.errorbar(at, table["covers 90 %"], bars, capsize=2, **_look(scores, name, 4.5))
            if abs(gap) > TOLERANCE:
                texts.append(f"{name} (too {_width(gap)} by {100 * abs(gap):.0f} points)")
        axes.set_xticks(range(len(table)), table.index, rotation=35, ha="right")
    how = f"Each point is a group of held-out {words.what}, its bar 95 % noise; all should touch 90 %."
    text = f"Here: all groups of {words.who} touch 90 %."
    if max(beyond) > 0:
        most = f"{100 * max(beyond):.1f} points beyond noise"
        text = f"Here: some groups of {words.who} miss 90 %, by at most {most}."
    finding = Finding("good", text)
    if texts:
        finding = Finding("care", f"Here: intervals of some groups are off for {', '.join(texts)}.")
    return Picture(figure, "Coverage by activity", how, finding)


def _width(gap: float) -> str:
    return "narrow" if gap < 0 else "wide"


def pit(scores: Mapping[str, Scores]) -> Picture:
    """Histograms of the probability integral transform, one panel per fit."""
    columns = min(2, len(scores))
    rows = -(-len(scores) // columns)
    with drawing.style():
        figure, panels = canvas(rows, columns, (SIZE[0], 1.1 + 2.3 * rows))
        for number, each in enumerate(scores.values()):
            table, axes = each.pit_histogram(), panels[number]
            look = {"align": "edge", "color": colour(number), "ec": "white", "lw": 0.5}
            axes.bar(table["left"], table["frequency"], table["right"] - table["left"], **look)
            axes.axhspan(table["low"].iloc[0], table["high"].iloc[0], **BAND)
            axes.axhline(1, **DOTTED)
            axes.set(xlim=(0, 1), xlabel="PIT value", ylabel="relative frequency")
            axes.set_title(distinct(scores, 24, wrapped)[number], loc="left")
        for axes in panels[len(scores) :]:
            axes.set_axis_off()
    how = "Flat within the grey band is calibrated; a U shape is overconfident, a hump too wide, a slope "
    how += f"biased. Real-valued predictions of {_words(scores).what} on few levels cause ripples."
    return Picture(figure, "PIT histogram", how, _outside(scores))


def pit_ecdf(scores: Mapping[str, Scores]) -> Picture:
    """ECDF of the PIT minus that of the uniform distribution, with a simultaneous band."""
    words = _words(scores)
    y = "difference of the ECDF"
    with panel("PIT against uniform", "PIT value", y, xlim=(0, 1)) as (figure, axes):
        axes.axhline(0, **DOTTED)
        for number, each in enumerate(scores.values()):
            table = each.pit_ecdf()
            at, gap = table["PIT"], table["difference"]
            if not number:
                axes.fill_between(at, table["low"], table["high"], **BAND)
            line = {"color": colour(number), "ls": LINES[number % len(LINES)]}
            axes.step(at, gap, where="mid", label=distinct(scores)[number], **line)
    how = (
        "A calibrated curve stays in the grey band everywhere (95 %); an S shape that first rises is "
        "overconfident, one that first falls too wide, a bow biased. "
        f"{words.what.capitalize()} of one {words.who[:-1]} are not independent: a slight excess is no proof."
    )
    return Picture(figure, "PIT-ECDF", how, _outside(scores))


def _outside(scores: Mapping[str, Scores]) -> Finding:
    """One finding for both pictures of the PIT: fits whose ECDF leaves the band, and whether that matters.

    A central interval has two ends, so its coverage is off by at most twice the largest difference.
    """
    small: list[str] = []
    large: list[str] = []
    for name, each in scores.items():
        table = each.pit_ecdf()
        gap = table["difference"]
        if ((gap < table["low"] - 1e-12) | (gap > table["high"] + 1e-12)).any():
            most = float(gap.abs().max())
            (large if 2 * most > TOLERANCE else small).append(f"{name} (by up to {most:.3f})")
    if large:
        return Finding("care", f"Here: the distribution is off for {', '.join(large + small)}.")
    if small:
        small_enough = f"which moves no coverage by more than {100 * TOLERANCE:.0f} points"
        return Finding("good", f"Here: off beyond noise for {', '.join(small)}, {small_enough}.")
    return Finding("good", "Here: uniform within noise.")


def reliability(scores: Mapping[str, LevelScores]) -> Picture:
    """Observed frequency of levels against their predicted probability."""
    texts = []
    title = "Reliability of the probabilities of levels"
    x, y = "predicted probability of a level", "levels that came true (share)"
    with panel(title, x, y, "upper left", **SQUARE) as (figure, axes):
        axes.plot([0, 1], [0, 1], label="calibrated", **DOTTED)
        for name, each in scores.items():
            table = each.reliability()
            bars, gap = _noise(table["observed"], table["n"], table["predicted"])
            look = _look(scores, name, 4.5)
            axes.errorbar(table["predicted"], table["observed"], bars, capsize=2, **look)
            if abs(gap) > TOLERANCE:
                texts.append(f"{name} (by {100 * abs(gap):.0f} points beyond noise)")
    how = "On the dotted line, levels with probability 30 % came true 30 times in 100; bars are 95 % noise. "
    how += "A flatter curve is overconfident, a steeper one too cautious."
    finding = Finding("good", "Here: the probabilities are right, within noise.")
    if texts:
        finding = Finding("care", f"Here: some probabilities are off for {', '.join(texts)}.")
    return Picture(figure, "Reliability of levels", how, finding)


def selective(scores: Mapping[str, Scores]) -> Picture:
    """RMSE of the most certain predictions only."""
    gains, level = [], "good"
    x, y = "predictions answered, most certain first (%)", f"RMSE ({_words(scores).unit})"
    with panel("Error when unsure predictions are withheld", x, y) as (figure, axes):
        for name, each in scores.items():
            curve = each.selective()
            axes.plot(100 * curve["answered"], curve["RMSE"], **_look(scores, name))
            if each.orders:
                gain = 1 - curve["RMSE"].iloc[8] / curve["RMSE"].iloc[-1]
                verb = "saves" if gain > 0 else "loses"
                gains.append(f"{name} {verb} {abs(gain):.0%} of its RMSE")
                level = level if gain > 0 else "care"
    how = "A curve that rises to the right knows which predictions are poor; a flat one does not."
    finding = Finding("care", "Here: all standard deviations are alike and give no order.")
    if gains:
        finding = Finding(level, f"Here, answering half: {'; '.join(gains)}.")
    return Picture(figure, "Selective risk", how, finding)


def point_beside_posterior(fits: Mapping[str, Any], scores: Mapping[str, Scores]) -> Picture | None:
    """Predictions of the first point fit against those of the first posterior, with 90 % intervals."""
    point = next((name for name, fit in fits.items() if fit.is_point), None)
    other = next((name for name, fit in fits.items() if not fit.is_point), None)
    if point is None or other is None:
        return None
    one, two = scores[point], scores[other]
    order = np.argsort(one.activity, kind="stable")
    rows = np.unique(order[np.linspace(0, len(order) - 1, min(90, len(order))).astype(int)])
    drawn = two.mean[rows], two.lower[rows], two.upper[rows]
    return beside((point, other), one.mean[rows], drawn, one.activity[rows], one.words)


def beside(
    names: tuple[str, str],
    at: np.ndarray,
    drawn: tuple[np.ndarray, np.ndarray, np.ndarray],
    activity: np.ndarray,
    words: Words,
    which: str = "held-out",
) -> Picture:
    """Predictions by a point fit against means and 90 % intervals by draws, (mean, lower, upper).

    `activity` is that of the cells' users.
    """
    (point, other), (mean, lower, upper), (what, who, unit, _) = names, drawn, words
    point, other = distinct((point, other))
    few = activity <= np.median(activity)
    widths = [float((upper - lower)[mask].mean()) for mask in (few, ~few) if mask.any()]
    x, y = (
        f"{point}: prediction ({unit})",
        wrapped(f"{other}: mean, 90 % interval", 36),
    )
    with panel(f"{point} beside {other}", x, y, "upper left") as (figure, axes):
        ends = [min(at.min(), lower.min()), max(at.max(), upper.max())]
        axes.plot(ends, ends, **DOTTED)
        look: dict[str, Any] = {"ms": 3.5, "lw": 0.7, "alpha": 0.75}
        for number, (mask, label) in enumerate(((~few, "active"), (few, "less active"))):
            bars = [(mean - lower)[mask], (upper - mean)[mask]]
            look |= {"fmt": MARKS[number], "color": colour(number), "label": f"{label} {who}"}
            axes.errorbar(at[mask], mean[mask], np.maximum(bars, 0), **look)
    how = f"{len(at)} {which} {what}: on the dotted line both predict the same; "
    how += f"bars should hold the {what[:-1]} 9 times in 10."
    text = f"Here: mean width {widths[0]:.2f} for less active {who}"
    text += f", {widths[1]:.2f} for active ones." if len(widths) > 1 else "."
    return Picture(figure, "Point beside posterior", how, Finding("good", text))


# -- held-out pairs -----------------------------------------------------------------------------
def first_places(scores: Mapping[str, PairScores]) -> Picture:
    """The share of held-out pairs among the first places, by the number of places."""
    last = max(each.rank.max() for each in scores.values())
    places, ten = np.unique(np.geomspace(1, max(last, 2), 60).astype(int)), {}
    x, y = "first places of each user", "held-out pairs among them (share)"
    with panel("Held-out pairs by rank", x, y, "upper left", ylim=(0, 1)) as (figure, axes):
        for number, (name, each) in enumerate(scores.items()):
            line: dict[str, Any] = {"color": colour(number), "ls": LINES[number % len(LINES)]}
            share = [(each.rank <= n).mean() for n in places]
            axes.plot(places, share, label=distinct(scores)[number], **line)
            ten[name] = (each.rank <= 10).mean()
        axes.set_xscale("log")
    how = "Higher is better: the items that users took later come first in their lists."
    said = ", ".join(f"{name} {share:.0%}" for name, share in ten.items())
    return Picture(
        figure, "Pairs by rank", how, Finding("good", f"Here: among the first ten, {said}.")
    )


# -- held-out counts ----------------------------------------------------------------------------
def perplexity_by_view(scores: Mapping[str, TokenScores]) -> Picture:
    """Held-out perplexity of every view."""
    overall, infinite = {}, []
    with panel("Held-out perplexity by view", "view", "perplexity (tokens)") as (figure, axes):
        for number, (name, each) in enumerate(scores.items()):
            summary, start = each.summary(), "perplexity "
            views = {k.removeprefix(start): v for k, v in summary.items() if start in k}
            at = np.arange(len(views)) + 0.8 * (number - (len(scores) - 1) / 2) / len(scores)
            height = [v if np.isfinite(v) else 0.0 for v in views.values()]
            look: dict[str, Any] = {"color": colour(number), "label": distinct(scores)[number]}
            axes.bar(at, height, 0.75 / len(scores), **look)
            overall[name] = summary["perplexity"]
            infinite += [] if np.isfinite(summary["perplexity"]) else [name]
        axes.set_xticks(range(len(views)), distinct(views, 14))
    how = "Lower is better: the number of equally likely features that would be as hard to guess."
    finding = Finding("good", f"Here: {min(overall, key=overall.__getitem__)} is lowest overall.")
    if infinite:
        text = f"Here: {', '.join(infinite)} gave probability 0 to a held-out feature (no bar)."
        finding = Finding("care", text)
    return Picture(figure, "Perplexity by view", how, finding)


def _look(scores: Mapping[str, Any], name: str, size: float = 3.5) -> dict[str, Any]:
    """The style of a fit's curve."""
    number = list(scores).index(name)
    style = {"marker": MARKS[number % len(MARKS)], "ls": LINES[number % len(LINES)], "ms": size}
    return {**style, "color": colour(number), "label": distinct(scores)[number]}


def _noise(share: Any, n: Any, aim: Any) -> tuple[list[np.ndarray], float]:
    """95 % noise below and above each share, and the largest distance from the aim beyond the noise."""
    share, n, aim = (np.asarray(values, float) for values in (share, n, aim))
    z = 1.96  # Wilson's interval, which is valid at the shares 0 and 1 too
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    noise = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    bars = [np.maximum(share - middle + noise, 0), np.maximum(middle + noise - share, 0)]
    beyond = np.maximum(np.abs(middle - aim) - noise, 0)
    return bars, _largest(np.sign(middle - aim) * beyond)


def _largest(values: np.ndarray) -> float:
    """The entry of largest absolute value."""
    return float(values[np.argmax(np.abs(values))]) if len(values) else 0.0
