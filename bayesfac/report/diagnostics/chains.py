"""Findings on draws of a sampler: agreement of its chains, effective draws, and aligned factors."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from bayesfac.report.diagnostics.findings import EVERY, UNSURE, Finding, notes, to, worst

# Largest R-hat that is good, and that is usable with care. Predictions have the stricter limit: most users
# want predictions, and they mix faster than the log joint and hyper-parameters.
RHAT = {"prediction": (1.01, 1.05), "else": (1.01, 1.10)}
APART = 1.2  # R-hat of single predictions from which averages of them cannot be used either
ESS = (100, 400)  # effective draws: too few below the first, enough for the tails from the second
LONGER = "more draws"  # stands for the advice, until the number of draws is known
PRECISE = (
    0.1,
    0.3,
)  # Monte Carlo error of predictions of a short run, in sds: good, usable with care
LONG_RUN = "a long run of Gibbs"
BFMI = 0.3


def apart(fit: Any) -> int:
    """Transitions between two draws: by the engine's `thin`, and that of `Fit.save`."""
    return getattr(fit.engine, "thin", 1) * fit.info.get("thin", 1)


def judge_sampler(
    fit: Any, table: pd.DataFrame, bfmi: np.ndarray | None, error: float | None = None
) -> list[Finding]:
    """Findings on agreement of chains, effective draws, and statistics of Hamiltonian samplers.

    `error` is the Monte Carlo error of predictions of a short run, by which such a run is judged.
    """
    chains, draws = next(iter(fit.draws.values())).shape[:2]
    findings: list[Finding] = []
    broken = table.index[~np.isfinite(table["mean"])]
    if len(broken):
        text = f"Some draws are NaN or infinite, first seen in {broken[0]}."
        findings.append(Finding("bad", text, "Check the data's scale.", to("bad"), fatal=True))
    if error is None:
        findings += _lengthened(_rhat(table, chains), _ess(table, chains, draws), table, draws)
    else:
        findings += _short(table, error, fit.engine.error)
    if chains == 1:
        text = "One chain: its agreement with chains from other starts is unknown."
        findings.append(Finding("care", text, "Run 4 chains.", to("care", *EVERY, "factors")))
    if "diverging" in fit.stats:
        findings.append(_divergences(fit.stats["diverging"], apart(fit)))
    if bfmi is not None:
        findings.append(_energy(bfmi))
    if "tree_depth" in fit.stats:
        findings.append(_depth(fit.stats["tree_depth"], getattr(fit.engine, "max_tree_depth", 10)))
    return findings + notes(fit)


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


def _short(table: pd.DataFrame, error: float, aim: float) -> list[Finding]:
    """A short run: whether its predictions are precise, and whether its other numbers may be read.

    R-hat of predictions is not used. The largest one of many cells is above its limit in most short runs,
    also in those whose chains agree; chains that disagree have a large Monte Carlo error.
    """
    fine, limit = PRECISE
    level = "good" if round(error, 2) <= fine else "care" if error <= limit else "bad"
    text = f"Predictions: Monte Carlo error {error:.2f} of their standard deviation (aim: {aim:g})."
    limits = to(level, "single") | to("care" if level == "bad" else level, "averages")
    advice = "" if level == "good" else f"Take {LONG_RUN}."
    findings = [Finding(level, text, advice, limits)]
    others = table.loc[table["quantity"] != "prediction", "r_hat"]
    if (largest := others.max()) > RHAT["else"][0]:
        text = f"Other quantities: R-hat up to {largest:.2f} ({others.idxmax()}), as in most short runs."
        limits = to("care" if largest <= RHAT["else"][1] else "bad", "hyper")
        findings.append(
            Finding(
                "care", text, f"To interpret hyper-parameters or factors, take {LONG_RUN}.", limits
            )
        )
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
