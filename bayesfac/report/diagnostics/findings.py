"""Findings with a level, a sentence and advice; those on points and on variational approximations."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bayesfac.report.diagnostics.psis import threshold

LEVELS = ("good", "care", "bad")
MARK = {"good": "+", "care": "!", "bad": "x"}
SMALL_SPREADS = "its standard deviations are usually too small. R-hat cannot detect this."


@dataclass(frozen=True)
class Finding:
    """One result of a check: `level` is "good", "care" or "bad"; `advice` says what to do next.

    `limits` maps a use of the fit ("averages", "single", "hyper", "factors") to the best level that is still
    possible with this finding. `measured` marks the Monte Carlo error of held-out scores, and `fatal` marks
    numbers that are NaN or infinite.
    """

    level: str
    text: str
    advice: str = ""
    limits: Mapping[str, str] = field(default_factory=dict, compare=False)
    measured: bool = False
    fatal: bool = False

    def __str__(self) -> str:
        return f"{self.text} {self.advice}".strip()

    @property
    def marked(self) -> str:
        """The finding as plain text, after a sign for its level."""
        return f"{MARK[self.level]} {self}"


def worst(findings: tuple[Finding, ...]) -> str:
    """The level of the worst finding.

    >>> worst((Finding("good", "a"), Finding("bad", "b"), Finding("care", "c")))
    'bad'
    """
    return max((f.level for f in findings), key=LEVELS.index, default="good")


class Judged:
    """The base class of results with findings."""

    findings: Any

    @property
    def level(self) -> str:
        """The level of the worst finding: "good", "care" or "bad"."""
        return worst(self.findings)


EVERY = ("averages", "single", "hyper")


def to(level: str, *names: str) -> dict[str, str]:
    """Limits: these uses, by default all but factors, mapped to one level."""
    return dict.fromkeys(names or EVERY, level)


UNSURE = to("care", "single", "hyper")


# -- variational and point fits -----------------------------------------------------------------
def judge_variational(fit: Any, k: float | None) -> list[Finding]:
    """Whether the ELBO has settled, and whether the guide reaches the posterior.

    `k` is Pareto's k of the weights (joint / guide). R-hat is not used: for independent draws it is always 1.
    """
    if type(fit.engine).__name__ == "VB":
        text = f"VB treats sites, and rows of factors, as independent: {SMALL_SPREADS}"
        care = Finding("care", text, "Compare its coverage with that of Gibbs.", UNSURE)
        return [_ascent(fit), care, *notes(fit)]
    guide = getattr(fit.engine, "guide", "")
    settled = judge_point(fit)[0] if guide == "blocks" else _elbo(fit)
    mean_field = guide in ("", "normal")
    text = (
        "The mean-field guide ignores correlations"
        if mean_field
        else "The guide is an approximation"
    )
    text += f": {SMALL_SPREADS}"
    if k is not None:
        limit = threshold(fit.stats["log_weight"].size)
        weighted = f"Draws weighted by joint / guide: Pareto's k {k:.2f}"
        if k < limit:
            text = f"{weighted} (below {limit:.2g} is fine): the guide covers the posterior."
            return [settled, Finding("good", text), *notes(fit)]
        text = f"{weighted}, not below {limit:.2g}: the guide differs from the posterior."
        text += " The guide ignores correlations." if mean_field else ""
    care = Finding("care", text, "Compare its coverage with that of Gibbs or NUTS.", UNSURE)
    return [settled, care, *notes(fit)]


NARROW = (0.05, 0.15)  # shares by which sds may be too small: usable; usable with care


def judge_widths(share: float | None) -> list[Finding]:
    """Whether sds of expected outcomes at the probe cells are too small, by `inference.widths`."""
    if share is None or not np.isfinite(share):
        return []
    if share < NARROW[0]:
        text = "Intervals of expected outcomes are wide enough at the probe cells"
        return [Finding("good", f"{text}, compared with a few Gibbs sweeps.")]
    text = f"Intervals about {share:.0%} too narrow here, compared with a few Gibbs sweeps."
    limits = to("care", "hyper") | {"single": "care" if share < NARROW[1] else "bad"}
    return [Finding("care", text, "If you need their widths, take a long Gibbs run.", limits)]


def _ascent(fit: Any) -> Finding:
    """Whether coordinate ascent has ended."""
    if fit.converged:
        text = f"The ELBO has converged to {-fit.trace[-1]:.6g} after {_evaluations(fit)}."
        return Finding("good", text)
    text = f"Stopped after {_evaluations(fit)} of the ELBO, before it converged."
    return Finding("bad", text, "Raise max_iter, or set a larger tol.", to("bad"))


def _evaluations(fit: Any) -> str:
    many = len(fit.trace) - 1
    return f"{many} evaluation{'s' * (many != 1)}"


def _elbo(fit: Any) -> Finding:
    steps, trend = len(fit.trace), _trend(fit.trace)
    if trend is None:
        text = f"Only {steps} steps: too few to see a trend."
        return Finding("bad", text, "Take a few thousand steps.", to("bad"))
    if trend < -3:
        text = f"The ELBO got worse at the end ({-trend:.1f} standard errors): the guide diverges."
        return Finding("bad", text, "Take a smaller learning_rate.", to("bad"))
    if fit.converged is False and not fit.partial and trend <= 2:
        text = f"Stopped after {steps} steps, too early to see whether the ELBO has converged."
        return Finding("bad", text, f"Take {max(2 * steps, 5000)} steps.", to("bad"))
    if trend > 2 and fit.converged is not True:
        text = f"The ELBO was still improving after {steps} steps ({trend:.1f} standard errors)."
        return Finding("bad", text, f"Take {2 * steps} steps.", to("bad"))
    return Finding("good", f"The ELBO no longer improves after {steps} steps.")


def _trend(trace: np.ndarray) -> float | None:
    """Mean of the tenth before the last minus mean of the last tenth of the trace, in standard errors."""
    tenth = len(trace) // 10
    if tenth < 10:
        return None
    old, new = trace[-2 * tenth : -tenth], trace[-tenth:]
    pieces = [np.array([p.mean() for p in np.array_split(part, 10)]) for part in (old, new)]
    error = np.sqrt(sum(p.var(ddof=1) / len(p) for p in pieces))
    return float((old.mean() - new.mean()) / max(error, 1e-9 * abs(new.mean()), 1e-300))


def judge_point(fit: Any) -> list[Finding]:
    """Whether the objective has stopped falling, and the notes of the solver."""
    last = fit.trace[-1]
    if not np.isfinite(fit.trace).all():
        text = "The objective became NaN or infinite."
        finding = Finding("bad", text, "Check the data's scale.", to("bad"), fatal=True)
    elif fit.converged:
        text = f"The objective has converged to {last:.6g} after {_evaluations(fit)}."
        finding = Finding("good", text)
    else:
        change = fit.trace[-2] - last if len(fit.trace) > 1 else np.nan
        text = f"Stopped after {_evaluations(fit)} at {last:.6g}, {change:.2g} lower than before."
        advice = "Raise max_iter (or steps), or set a larger tol."
        finding = Finding("bad", text, advice, to("bad"))
    return [finding, *notes(fit)]


REPORTED = ("interrupted", "the ELBO was still moving", "the Monte Carlo error of predictions")


def notes(fit: Any) -> list[Finding]:
    """What was chosen, and the notes of the engine, as findings."""
    findings = []
    for how in fit.info.get("chosen", ()):
        text = f"Settings {how}." if how.startswith("chosen") else f"{how[:1].upper()}{how[1:]}."
        findings.append(Finding("care" if how.startswith("a logistic") else "good", text))
    if fit.partial:
        text = "Interrupted: the fit contains the results up to the interruption."
        findings.append(Finding("care", text, "Run it again to the end.", UNSURE))
    for note in fit.info.get("notes", ()):
        if not note.startswith(REPORTED):
            text = note[:1].upper() + note[1:] + ("" if note.endswith((".", "!", "?")) else ".")
            level = "good" if note.startswith("best of") else "care"
            findings.append(Finding(level, text, limits=to(level, "single")))
    return findings
