"""Pictures of held-out quality."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bayesfac.report import arviz_versions
from bayesfac.report.compare import Comparison
from bayesfac.report.diagnostics.findings import Finding
from bayesfac.report.diagnostics.held_out import WORDS, LevelScores, Scores, TokenScores, Words
from bayesfac.report.plots.figure import SIZE, Picture, canvas, short

MARKS = ("o", "s", "^", "D", "v", "P")  # with the colour, so that neither is needed alone
LINES = ("-", "--", "-.", ":")
FEW_BAD = 0.03  # coverage further off than this, and than its own noise, is off


# -- held-out ratings and labels ----------------------------------------------------------------
def _words(scores: Mapping[str, Scores]) -> Words:
    return next(iter(scores.values())).words


def coverage_curve(scores: Mapping[str, Scores]) -> Picture:
    """Nominal against actual coverage of central intervals."""
    worst: dict[str, float] = {}
    with arviz_versions.style():
        figure, (axes,) = canvas()
        axes.plot([0, 1], [0, 1], color=arviz_versions.GREY, lw=1, ls=":", label="calibrated")
        for number, (name, each) in enumerate(scores.items()):
            curve = each.coverage_curve()
            worst[name] = _largest((curve["coverage"] - curve["level"]).to_numpy())
            axes.plot(curve["level"], curve["coverage"], **_look(number), ms=3.5, label=short(name))
        axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="nominal level of the interval (share)")
        axes.set_ylabel(f"{_words(scores).what} inside it (share)")
        axes.set_title("Coverage of predictive intervals", loc="left")
        axes.legend(loc="upper left")
    how = f"On the dotted line, 90 % intervals hold 90 % of the {_words(scores).what}; below, they are too "
    how += "narrow."
    if isinstance(each, LevelScores):
        how += " A level that has mass on both sides of an end counts in part."
    size = min(len(each) for each in scores.values())
    return Picture(figure, "Coverage", how, _verdict_on_coverage(worst, size))


def _verdict_on_coverage(worst: Mapping[str, float], size: int) -> Finding:
    allowed = max(FEW_BAD, 1.5 / np.sqrt(size))
    said = []
    for name, gap in worst.items():
        word = "is too narrow by up to" if gap < 0 else "is too wide by up to"
        word = "is calibrated within" if abs(gap) <= allowed else word
        said.append(f"{name} {word} {100 * abs(gap):.0f} points")
    level = "good" if all(abs(gap) <= allowed for gap in worst.values()) else "care"
    return Finding(level, f"Here: {'; '.join(said)}.")


def coverage_by_activity(scores: Mapping[str, Scores]) -> Picture:
    """Coverage of the 90 % interval by how much training had of the user, or of the row."""
    words = _words(scores)
    gaps: dict[str, float] = {}
    with arviz_versions.style():
        figure, (axes,) = canvas()
        axes.axhline(0.9, color=arviz_versions.GREY, lw=1, ls=":", label="nominal 90 %")
        for number, (name, each) in enumerate(scores.items()):
            table = each.by_activity(groups=5 if len(each) < 2000 else 10)
            bars, gaps[name] = _noise(table["covers 90 %"], table["n"], 0.9)
            at = np.arange(len(table)) + 0.12 * (number - (len(scores) - 1) / 2)
            look = {**_look(number), "ms": 4.5, "capsize": 2, "label": short(name)}
            axes.errorbar(at, table["covers 90 %"], bars, **look)
        axes.set_xticks(range(len(table)), table.index, rotation=35, ha="right")
        axes.set(xlabel=f"training {words.known}", ylabel=f"{words.what} inside 90 % interval")
        axes.set_title("Coverage by activity", loc="left")
        axes.legend(loc="best")
    how = f"Each point is a group of held-out {words.what}, bars its 95 % noise; all should touch 90 %."
    return Picture(figure, "Coverage by activity", how, _verdict_on_activity(gaps, words.who))


def _verdict_on_activity(gaps: Mapping[str, float], who: str) -> Finding:
    off = [name for name, gap in gaps.items() if abs(gap) > FEW_BAD]
    if not off:
        return Finding("good", f"Here: no group of {who} stands out.")
    said = [
        f"{n} ({'too narrow' if gaps[n] < 0 else 'too wide'} by {100 * abs(gaps[n]):.0f} points)"
        for n in off
    ]
    return Finding("care", f"Here: some groups are off for {', '.join(said)}.")


def pit(scores: Mapping[str, Scores]) -> Picture:
    """Histograms of the probability integral transform, one panel a fit."""
    columns = min(2, len(scores))
    rows = -(-len(scores) // columns)
    off = []
    with arviz_versions.style():
        figure, panels = canvas(rows, columns, (SIZE[0], 1.1 + 2.3 * rows))
        for number, (name, each) in enumerate(scores.items()):
            table, axes = each.pit_histogram(), panels[number]
            colour, wide = _look(number)["color"], table["right"] - table["left"]
            axes.bar(
                table["left"],
                table["frequency"],
                wide,
                align="edge",
                color=colour,
                ec="white",
                lw=0.5,
            )
            axes.axhspan(table["low"].iloc[0], table["high"].iloc[0], color="k", alpha=0.12, lw=0)
            axes.axhline(1, color=arviz_versions.GREY, lw=1, ls=":")
            axes.set(xlim=(0, 1), xlabel="PIT value", ylabel="relative frequency")
            axes.set_title(short(name), loc="left")
            if ((table["frequency"] < table["low"]) | (table["frequency"] > table["high"])).any():
                off.append(name)
        for axes in panels[len(scores) :]:
            axes.set_axis_off()
    how = (
        "Flat within the grey band is calibrated; a U says overconfident, a hump too wide, "
        f"a slope biased. Real-valued predictions of {_words(scores).what} on few levels make ripples."
    )
    text = f"Here: outside the band for {', '.join(off)}." if off else "Here: inside the band."
    return Picture(figure, "PIT histogram", how, Finding("care" if off else "good", text))


def pit_ecdf(scores: Mapping[str, Scores]) -> Picture:
    """Distribution functions of the PIT less the uniform one, in a band for all of a curve at once."""
    off = {}
    with arviz_versions.style():
        figure, (axes,) = canvas()
        axes.axhline(0, color=arviz_versions.GREY, lw=1, ls=":")
        for number, (name, each) in enumerate(scores.items()):
            table, look = each.pit_ecdf(), _look(number)
            if not number:
                axes.fill_between(
                    table["PIT"], table["low"], table["high"], color="k", alpha=0.12, lw=0
                )
            axes.step(
                table["PIT"], table["difference"], where="mid", color=look["color"], ls=look["ls"],
                label=short(name),
            )  # fmt: skip
            gap = table["difference"]
            if ((gap < table["low"] - 1e-12) | (gap > table["high"] + 1e-12)).any():
                off[name] = _largest(gap.to_numpy())
        axes.set(xlim=(0, 1), xlabel="PIT value", ylabel="difference of the ECDF")
        axes.set_title("PIT against uniform", loc="left")
        axes.legend(loc="best")
    how = (
        "A calibrated curve stays in the grey band everywhere (95 %); an S that first rises is "
        "overconfident, one that first falls too wide, a bow biased. "
        f"{_words(scores).what.capitalize()} of one of the {_words(scores).who} are not independent, so a "
        "slight excess is no proof."
    )
    said = ", ".join(f"{name} (by up to {abs(gap):.3f})" for name, gap in off.items())
    text = f"Here: it leaves the band for {said}." if off else "Here: inside the band."
    return Picture(figure, "PIT-ECDF", how, Finding("care" if off else "good", text))


def reliability(scores: Mapping[str, LevelScores]) -> Picture:
    """How often levels came true against the probability that they were given."""
    gaps: dict[str, float] = {}
    with arviz_versions.style():
        figure, (axes,) = canvas()
        axes.plot([0, 1], [0, 1], color=arviz_versions.GREY, lw=1, ls=":", label="calibrated")
        for number, (name, each) in enumerate(scores.items()):
            table = each.reliability()
            bars, gaps[name] = _noise(table["observed"], table["n"], table["predicted"])
            look = {**_look(number), "ms": 4.5, "capsize": 2, "label": short(name)}
            axes.errorbar(table["predicted"], table["observed"], bars, **look)
        axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="probability given to a level")
        axes.set_ylabel("levels that came true (share)")
        axes.set_title("Reliability of the probabilities of levels", loc="left")
        axes.legend(loc="upper left")
    how = "On the dotted line, levels given 30 % came true 30 times in 100; bars are 95 % noise. "
    how += "A line flatter than it is overconfident, a steeper one too careful."
    return Picture(figure, "Reliability of levels", how, _verdict_on_reliability(gaps))


def _verdict_on_reliability(gaps: Mapping[str, float]) -> Finding:
    off = {name: gap for name, gap in gaps.items() if abs(gap) > FEW_BAD}
    said = [f"{n} (by {100 * abs(g):.0f} points beyond noise)" for n, g in off.items()]
    if said:
        return Finding("care", f"Here: some probabilities are off for {', '.join(said)}.")
    return Finding("good", "Here: probabilities are what they say, within noise.")


def selective(scores: Mapping[str, Scores]) -> Picture:
    """RMSE when only the most certain predictions are answered."""
    gains, level = [], "good"
    with arviz_versions.style():
        figure, (axes,) = canvas()
        for number, (name, each) in enumerate(scores.items()):
            curve = each.selective()
            axes.plot(
                100 * curve["answered"], curve["RMSE"], **_look(number), ms=3.5, label=short(name)
            )
            if np.ptp(each.sd) > 1e-6 * each.sd.max():
                gain = 1 - curve["RMSE"].iloc[8] / curve["RMSE"].iloc[-1]
                gains.append(
                    f"{name} {'saves' if gain > 0 else 'loses'} {abs(gain):.0%} of its RMSE"
                )
                level = level if gain > 0 else "care"
        axes.set(
            xlabel="predictions answered, most certain first (%)",
            ylabel=f"RMSE ({_words(scores).unit})",
        )
        axes.set_title("Error when unsure predictions are withheld", loc="left")
        axes.legend(loc="best")
    how = "A curve that rises to the right knows which predictions are poor; a flat one does not."
    text = (
        f"Here, answering half: {'; '.join(gains)}."
        if gains
        else "Here: all sds are alike, so order means nothing."
    )
    return Picture(figure, "Selective risk", how, Finding(level if gains else "care", text))


def point_beside_posterior(comparison: Comparison) -> Picture | None:
    """Predictions of the first point against those of the first posterior, with 90 % intervals."""
    fits = comparison.fits
    points = [name for name, fit in fits.items() if fit.is_point]
    sampled = [name for name, fit in fits.items() if not fit.is_point]
    if not points or not sampled or isinstance(comparison.scores[points[0]], TokenScores):
        return None
    one, other = points[0], sampled[0]
    activity = comparison.scores[one].activity
    order = np.argsort(activity, kind="stable")
    rows = np.unique(order[np.linspace(0, len(order) - 1, min(90, len(order))).astype(int)])
    part = comparison.test.frame().iloc[rows]
    what, who, unit, _ = WORDS[fits[one].data.kind]
    at, drawn = fits[one].predict(part).mean, fits[other].predict(part)
    lower, upper = drawn.interval(0.9)
    few = activity[rows] <= np.median(activity[rows])
    widths = [float((upper - lower)[mask].mean()) for mask in (few, ~few) if mask.any()]
    with arviz_versions.style():
        figure, (axes,) = canvas()
        ends = [min(at.min(), lower.min()), max(at.max(), upper.max())]
        axes.plot(ends, ends, color=arviz_versions.GREY, lw=1, ls=":")
        for mask, colour, mark, said in (
            (~few, 0, "o", f"active {who}"),
            (few, 1, "s", f"less active {who}"),
        ):
            bars = [drawn.mean[mask] - lower[mask], upper[mask] - drawn.mean[mask]]
            axes.errorbar(at[mask], drawn.mean[mask], np.maximum(bars, 0), fmt=mark, ms=3.5, lw=0.7,
                          color=arviz_versions.COLOURS[colour], alpha=0.75, label=said)  # fmt: skip
        axes.set(
            xlabel=f"{short(one)}: prediction ({unit})",
            ylabel=f"{short(other)}: mean, 90 % interval",
        )
        axes.set_title(f"{short(one)} beside {short(other)}", loc="left")
        axes.legend(loc="upper left")
    how = f"{len(rows)} held-out {what}: on the dotted line both predict the same; "
    how += f"bars hold the {what[:-1]} 9 times in 10."
    text = f"Here: mean width {widths[0]:.2f} for less active {who}"
    text += f", {widths[1]:.2f} for active ones." if len(widths) > 1 else "."
    return Picture(figure, "Point beside posterior", how, Finding("good", text))


# -- held-out counts ----------------------------------------------------------------------------
def perplexity_by_view(scores: Mapping[str, TokenScores]) -> Picture:
    """Held-out perplexity of every view."""
    with arviz_versions.style():
        figure, (axes,) = canvas()
        for number, (name, each) in enumerate(scores.items()):
            found = {
                k.removeprefix("perplexity "): v
                for k, v in each.summary().items()
                if "perplexity " in k
            }
            at = np.arange(len(found)) + 0.8 * (number - (len(scores) - 1) / 2) / len(scores)
            height = [v if np.isfinite(v) else 0.0 for v in found.values()]
            axes.bar(
                at, height, 0.75 / len(scores), color=_look(number)["color"], label=short(name)
            )
        axes.set_xticks(range(len(found)), [short(view, 14) for view in found])
        axes.set(xlabel="view", ylabel="perplexity (tokens)")
        axes.set_title("Held-out perplexity by view", loc="left")
        axes.legend(loc="best")
    how = "Lower is better: the number of equally likely features that would be as hard to guess."
    infinite = [n for n, s in scores.items() if not np.isfinite(s.summary()["perplexity"])]
    best = min(scores, key=lambda name: scores[name].summary()["perplexity"])
    text = f"Here: {best} is lowest overall."
    if infinite:
        text = f"Here: {', '.join(infinite)} held something seen to be impossible (no bar)."
    return Picture(figure, "Perplexity by view", how, Finding("care" if infinite else "good", text))


def held_out(comparison: Comparison) -> list[Picture]:
    """The pictures of held-out quality that this kind of data has."""
    scores: Any = comparison.scores
    if isinstance(next(iter(scores.values())), TokenScores):
        return [perplexity_by_view(scores)]
    beside = point_beside_posterior(comparison)
    drawn = [coverage_curve(scores), coverage_by_activity(scores), *([beside] if beside else [])]
    if isinstance(next(iter(scores.values())), LevelScores):
        drawn.append(reliability(scores))
    return [*drawn, selective(scores), pit(scores), pit_ecdf(scores)]


def _look(number: int) -> dict[str, Any]:
    return {
        "color": arviz_versions.COLOURS[number % len(arviz_versions.COLOURS)],
        "marker": MARKS[number % len(MARKS)],
        "ls": LINES[number % len(LINES)],
    }


def _noise(share: Any, n: Any, aim: Any) -> tuple[list[np.ndarray], float]:
    """95 % noise below and above shares, and the furthest that one of them is from its aim beyond it."""
    share, n, aim = (np.asarray(given, float) for given in (share, n, aim))
    middle, noise = _wilson(share, n)
    bars = [np.maximum(share - middle + noise, 0), np.maximum(middle + noise - share, 0)]
    beyond = np.maximum(np.abs(middle - aim) - noise, 0)
    return bars, _largest(np.sign(middle - aim) * beyond)


def _wilson(share: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Middle and half width of Wilson's 95 % interval for a share; it is right at 0 and 1 too."""
    z = 1.96
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    return middle, z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))


def _largest(values: np.ndarray) -> float:
    return float(values[np.argmax(np.abs(values))]) if len(values) else 0.0
