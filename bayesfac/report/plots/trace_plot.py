"""The picture of a fit's way to its answer."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bayesfac.report import arviz_versions
from bayesfac.report.diagnostics.findings import Finding
from bayesfac.report.plots.figure import Picture, canvas, short


def objective(name: str, fit: Any, found: Any) -> Picture:
    """The objective by iteration, minus the ELBO by step, or minus the log joint by draw."""
    sampled = fit.draws is not None and type(fit.engine).__name__ != "SVI"
    what = "minus log joint" if sampled else "minus ELBO" if fit.draws is not None else "objective"
    with arviz_versions.style():
        figure, (axes,) = canvas()
        if sampled:
            chains = next(iter(fit.draws.values())).shape[0]
            for number, part in enumerate(np.array_split(fit.trace, chains)):
                axes.plot(
                    part,
                    lw=0.7,
                    label=f"chain {number}",
                    color=arviz_versions.COLOURS[number % len(arviz_versions.COLOURS)],
                )
            axes.legend(ncols=min(chains, 4), loc="upper right")
        else:
            axes.plot(fit.trace, color=arviz_versions.COLOURS[0])
            cut = _focus(axes, fit.trace)
        step = "draw after warm-up" if sampled else "step" if fit.draws is not None else "iteration"
        axes.set(xlabel=step, ylabel=f"{what} (nats)")
        axes.set_title(short(f"{name}: {what}", 60), loc="left")
    how = "The curve should fall and then lie flat"
    how += "; its steep beginning is cut off." if not sampled and cut else "."
    if sampled:
        how = "Chains should overlap like one band of noise, with no slope."
    return Picture(figure, f"{what[0].upper()}{what[1:]} of {name}", how, _here(found))


def _here(found: Any) -> Finding:
    first = found.findings[0]
    return Finding(first.level, f"Here: {first.text[0].lower()}{first.text[1:]}")


def _focus(axes: Axes, trace: np.ndarray) -> bool:
    """Let the end of a falling curve be seen; whether the first steep steps left the picture."""
    finite = trace[np.isfinite(trace)]
    if len(finite) < 20:
        return False
    low, high = finite.min(), np.quantile(finite, 0.9)
    steep = bool(finite.max() - low > 4 * (high - low) > 0)
    if steep:
        axes.set_ylim(low - 0.08 * (high - low), high + 0.6 * (high - low))
    return steep
