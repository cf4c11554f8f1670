"""What diagnostics report: findings with a level, a sentence and advice, and the limits behind them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from bayesfac.report.diagnostics.psis import threshold

LEVELS = ("good", "care", "bad")
MARK = {"good": "+", "care": "!", "bad": "x"}
# Largest R-hat that is good, and that is usable with care. Predictions have the stricter limit: most users
# want predictions, and they mix faster than the log joint and hyper-parameters.
RHAT = {"prediction": (1.01, 1.05), "else": (1.01, 1.10)}
APART = 1.2  # R-hat of single predictions from which averages of them cannot be used either
ESS = (100, 400)  # effective draws: too few below the first, enough for the tails from the second
LONGER = "more draws"  # stands for the advice, until the number of draws is known
BFMI = 0.3
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


# -- samplers -----------------------------------------------------------------------------------
def apart(fit: Any) -> int:
    """Transitions between two draws: by the engine's `thin`, and that of `Fit.save`."""
    return getattr(fit.engine, "thin", 1) * fit.info.get("thin", 1)


def judge_sampler(fit: Any, table: pd.DataFrame, bfmi: np.ndarray | None) -> list[Finding]:
    """Findings on agreement of chains, effective draws, and statistics of Hamiltonian samplers."""
    chains, draws = next(iter(fit.draws.values())).shape[:2]
    findings = []
    broken = table.index[~np.isfinite(table["mean"])]
    if len(broken):
        text = f"Some draws are NaN or infinite, first seen in {broken[0]}."
        findings.append(Finding("bad", text, "Check the data's scale.", to("bad"), fatal=True))
    findings += _lengthened(_rhat(table, chains), _ess(table, chains, draws), table, draws)
    if "diverging" in fit.stats:
        findings.append(_divergences(fit.stats["diverging"], apart(fit)))
    if bfmi is not None:
        findings.append(_energy(bfmi))
    if "tree_depth" in fit.stats:
        findings.append(_depth(fit.stats["tree_depth"], getattr(fit.engine, "max_tree_depth", 10)))
    return findings + _notes(fit)


GROUPS = {  # groups of quantities that are judged separately: predictions mix fastest
    "Predictions": lambda quantity: quantity == "prediction",
    "Log joint": lambda quantity: quantity == "log joint",
    "Hyper-parameters and spectrum": lambda quantity: ~quantity.isin(["prediction", "log joint"]),
}


def judge_rhat(group: str, largest: float) -> str:
    """The level of the largest R-hat of a group; "good" for NaN. Hyper-parameters are never "bad"."""
    fine, limit = RHAT["prediction" if group == "Predictions" else "else"]
    if not round(largest, 3) > fine:
        return "good"
    return "bad" if largest > limit and not group.startswith("Hyper") else "care"


def _lengthened(
    agree: list[Finding], effective: list[Finding], table: pd.DataFrame, draws: int
) -> list[Finding]:
    """The findings with one number of draws in the place of LONGER, which is enough for all of them."""
    least = float(np.nan_to_num(table[["ess_bulk", "ess_tail"]].min().min(), nan=ESS[1]))
    more = np.ceil(draws * ESS[1] / max(least, 1) / 100) * 100
    if any(one.advice == LONGER for one in agree):
        more = max(more, 2 * draws)
    advice = f"Take about {more:.0f} draws per chain."
    if more > 20 * draws:
        advice = "The chains mix slowly."
    found = [*agree, *effective]
    return [replace(one, advice=advice) if one.advice == LONGER else one for one in found]


def _rhat(table: pd.DataFrame, chains: int) -> list[Finding]:
    """Agreement of the chains, group by group."""
    findings: list[Finding] = []
    among = "chains" if chains > 1 else "the two halves of the chain"
    for group, belongs in GROUPS.items():
        rows = table.loc[belongs(table["quantity"]), "r_hat"]
        largest = rows.max()
        if np.isnan(largest):  # the group has no R-hat
            continue
        fine, limit = RHAT["prediction" if group == "Predictions" else "else"]
        level = judge_rhat(group, largest)
        which = f" ({rows.index[int(np.nanargmax(rows))]})" if len(rows) > 1 else ""
        if level == "good":
            text, advice = f"agree, R-hat at most {largest:.3f}.", ""
        elif largest <= limit:
            text = f"nearly agree, R-hat up to {largest:.3f}{which}; aim: {fine}."
            advice = LONGER
        else:
            text = f"disagree, R-hat up to {largest:.2f}{which}."
            advice = "Warm up longer, or start from a point fit (init=) if the chains did not."
            if level == "care" and worst(tuple(findings)) != "bad":
                advice = "Predict with this fit, but do not interpret these numbers yet."
            else:
                level = "bad"
        limits = {} if level == "good" else _of_group(group, largest, limit)
        findings.append(Finding(level, f"{group}: {among} {text}", advice, limits))
    if not findings:
        text = "Too few draws to compare the chains."
        advice = "Take at least 100 per chain."
        findings.append(Finding("bad", text, advice, to("bad"), fatal=True))
    if chains == 1:
        text = "One chain: its agreement with chains from other starts is unknown."
        findings.append(Finding("care", text, "Run 4 chains.", to("care", *EVERY, "factors")))
    return findings


def _of_group(group: str, largest: float, limit: float) -> dict[str, str]:
    """The limits from a group whose R-hat is not good. Averages over many cells need less agreement than
    single cells."""
    level = "care" if largest <= limit else "bad"
    if group != "Predictions":
        return {"hyper": level}
    averages = {"averages": "care" if largest <= APART else "bad"} if level == "bad" else {}
    return {"single": level, **averages}


def _ess(table: pd.DataFrame, chains: int, draws: int) -> list[Finding]:
    """Effective draws: too few for predictions is bad, too few for other quantities needs care."""
    each = table[["ess_bulk", "ess_tail"]].min(axis=1)
    predicted = table["quantity"] == "prediction"
    few, enough = ESS
    findings = []
    for what, rows in (("predictions", each[predicted]), ("other quantities", each[~predicted])):
        if rows.isna().all():
            continue
        least, name = rows.min(), rows.index[int(np.nanargmin(rows))]
        size = f"{least:.0f} of {chains * draws}"
        if least >= enough:
            findings.append(Finding("good", f"Effective draws for {what}: at least {size}."))
            continue
        level = "bad" if what == "predictions" and least < few else "care"
        who = what if what == "predictions" else f"{what} ({name})"
        text = f"Effective draws for {who}: only {size}; {enough} is the aim."
        limits = {"hyper": "care"}
        if what == "predictions":
            limits = {"single": level, **({"averages": "care"} if level == "bad" else {})}
        findings.append(Finding(level, text, LONGER, limits))
    return findings


def _divergences(diverging: np.ndarray, thin: int) -> Finding:
    count, share = int(diverging.sum()), float(diverging.mean())
    if not count:
        return Finding("good", "No divergences.")
    what = "divergent transitions" if thin == 1 else "draws with divergent transitions"
    text = f"{count} {what} ({share:.1%}): parts of the posterior were not reached."
    advice = "Raise target_accept (0.95), or use Gibbs if the method has it."
    if share > 0.01:
        return Finding("bad", text, advice, {"averages": "care", **to("bad", "single", "hyper")})
    return Finding("care", text, advice, UNSURE)


def _energy(bfmi: np.ndarray) -> Finding:
    low = float(np.min(bfmi))
    if low >= BFMI:
        return Finding("good", f"Energy: E-BFMI at least {low:.2f} ({BFMI} or more is fine).")
    text = f"Energy: E-BFMI down to {low:.2f}, below {BFMI}: the tails are explored slowly."
    advice = "Warm up longer, or put narrower priors on the scales."
    return Finding("care", text, advice, to("care", "hyper"))


def _depth(depth: np.ndarray, largest: int) -> Finding:
    share = float((depth >= largest).mean())
    if not share:
        return Finding("good", f"Tree depth: at most {int(depth.max())} of {largest}.")
    text = f"Tree depth: {share:.0%} of the draws hit the limit of {largest}."
    advice = f"Sampling is slow, but the draws are not wrong; max_tree_depth={largest + 2} may be faster."
    return Finding("care", text, advice)


def judge_factors(aligned: Any, r_hat: float | None) -> Finding:
    """Whether aligned factors can be interpreted; `r_hat` is None where the alignment is ambiguous."""
    if aligned.modes > 1:
        advice = (
            "Predictions average over the modes; a mean of factors would belong to none of them."
        )
        text = f"Factors, aligned: {aligned.modes_in_words}"
        return Finding("care", text, advice, to("bad", "factors"))
    if r_hat is None:
        text = f"Factors: no R-hat, because other alignments fit equally well. {aligned.notes[0]}"
        return Finding(
            "care", text, "Predictions do not depend on the alignment.", to("bad", "factors")
        )
    if np.isnan(r_hat):
        text = "Factors: no R-hat, because all their draws are the same."
        advice = "The chains never moved: sample again from another start."
        return Finding("bad", text, advice, to("bad", *EVERY, "factors"), fatal=True)
    fine = r_hat <= RHAT["else"][1]
    text = f"Factors, aligned (residual {float(np.median(aligned.residual)):.2f}): one mode, R-hat at most "
    text += f"{r_hat:.2f}. Factors that are not aligned cannot be interpreted."
    advice = "" if fine else "Predict with this fit, but do not interpret single factors yet."
    level = "good" if fine else "care"
    return Finding(level, text, advice, to(level, "factors"))


# -- variational and point fits -----------------------------------------------------------------
def judge_variational(fit: Any, k: float | None) -> list[Finding]:
    """Whether the ELBO has settled, and whether the guide reaches the posterior.

    `k` is Pareto's k of the weights (joint / guide). R-hat is not used: for independent draws it is always 1.
    """
    if type(fit.engine).__name__ == "VB":
        text = f"VB treats sites, and rows of factors, as independent: {SMALL_SPREADS}"
        care = Finding("care", text, "Compare its coverage with that of Gibbs.", UNSURE)
        return [_ascent(fit), care, *_notes(fit)]
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
            return [settled, Finding("good", text), *_notes(fit)]
        text = f"{weighted}, not below {limit:.2g}: the guide differs from the posterior."
        text += " The guide ignores correlations." if mean_field else ""
    care = Finding("care", text, "Compare its coverage with that of Gibbs or NUTS.", UNSURE)
    return [settled, care, *_notes(fit)]


def judge_blocks(fit: Any) -> list[Finding]:
    """What combined blocks leave open. R-hat is not used: for independent draws it is always 1; the engine
    compares the chains of each block and adds a note where they disagree."""
    text = (
        "An approximation: rows have normal distributions, fitted to blocks of the ratings in turn."
    )
    advice = "Compare its coverage with that of Gibbs."
    return [Finding("care", text, advice, UNSURE), *_notes(fit)]


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
    values = len(fit.trace) - 1
    if fit.converged:
        return Finding(
            "good", f"The ELBO has converged to {-fit.trace[-1]:.6g} after {values} evaluations."
        )
    text = f"Stopped after {values} evaluations of the ELBO, before it converged."
    return Finding("bad", text, "Raise max_iter, or set a larger tol.", to("bad"))


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
    values, last = len(fit.trace) - 1, fit.trace[-1]
    if not np.isfinite(fit.trace).all():
        text = "The objective became NaN or infinite."
        finding = Finding("bad", text, "Check the data's scale.", to("bad"), fatal=True)
    elif fit.converged:
        text = f"The objective has converged to {last:.6g} after {values} evaluations."
        finding = Finding("good", text)
    else:
        change = fit.trace[-2] - last if values > 0 else np.nan
        text = f"Stopped after {values} evaluations at {last:.6g}, {change:.2g} lower than before."
        advice = "Raise max_iter (or steps), or set a larger tol."
        finding = Finding("bad", text, advice, to("bad"))
    return [finding, *_notes(fit)]


def _notes(fit: Any) -> list[Finding]:
    """Notes of the engine as findings."""
    findings = [Finding("good", f"Settings {how}.") for how in fit.info.get("chosen", ())]
    if fit.partial:
        text = "Interrupted: the fit contains the results up to the interruption."
        findings.append(Finding("care", text, "Run it again to the end.", UNSURE))
    for note in fit.info.get("notes", ()):
        if not note.startswith(("interrupted", "the ELBO was still moving")):  # reported above
            text = note[:1].upper() + note[1:] + ("" if note.endswith((".", "!", "?")) else ".")
            level = "good" if note.startswith("best of") else "care"
            findings.append(Finding(level, text, limits=to(level, "single")))
    return findings
