"""Whether the standard deviations of an approximate fit are too small, and by how much."""

from typing import Any

import numpy as np

from bayesfac.report.diagnostics.findings import Finding, to

SMALL, LARGE = 0.05, 0.15  # shares by which sds may be too small: usable; usable with care below


def too_narrow(fit: Any, probe: np.ndarray) -> float | None:
    """The share that sds of expected outcomes lack at the probe cells; None where nothing tells.

    SVI measured it when it was fitted (`inference.widths`). Of Quick, `probe` (chain, draw, cell) tells.
    """
    widths = fit.info.get("widths") or {}
    if "ratio" in widths:
        return 1 - widths["ratio"]
    return shortness(probe) if type(fit.engine).__name__ == "Quick" else None


def shortness(probe: np.ndarray) -> float | None:
    """The share by which sds of a short run are too small.

    A run of length T that moves on a time scale t shows a variance that is too small by the share t / T, so
    its halves lack twice as much. The variance of an endless run is therefore twice that of the run minus
    that of its halves, averaged over cells.
    """
    chains, draws, _ = probe.shape
    if draws < 4:
        return None
    half = draws // 2
    x = np.asarray(probe, float)[:, : 2 * half]
    whole = x.var(1).mean(0)
    parts = x.reshape(chains, 2, half, -1).var(2).mean((0, 1))
    shown = x.reshape(chains * 2 * half, -1).var(0)
    moves = shown > 0
    if not moves.any():
        return None
    growth = float(np.mean((2 * whole - parts)[moves] / shown[moves]))
    return float(1 - max(growth, 1e-300) ** -0.5)


def judge(share: float | None) -> list[Finding]:
    """The finding, in words."""
    if share is None or not np.isfinite(share):
        return []
    where = "at the probe cells, by exact conditional updates"
    if share < SMALL:
        text = f"Intervals of expected outcomes are wide enough, to about {SMALL:.0%}, {where}."
        return [Finding("good", text)]
    text = f"Intervals about {share:.0%} too narrow here: sds of expected outcomes {where}."
    level = "care" if share < LARGE else "bad"
    limits = to("care", "hyper") | {"single": level}
    return [Finding("care", text, "Take more sweeps, or a long Gibbs run.", limits)]
