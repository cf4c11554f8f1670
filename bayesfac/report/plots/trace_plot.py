"""The picture of how a fit's objective, ELBO or log joint developed."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from bayesfac.report.diagnostics.findings import Finding
from bayesfac.report.plots.figure import Picture, colour, panel, short


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
