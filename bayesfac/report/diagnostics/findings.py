"""What diagnostics say, in plain words: a finding has a level, a sentence, and what to do next."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bayesfac.report.diagnostics.psis import threshold

LEVELS = ("good", "care", "bad")
MARK = {"good": "+", "care": "!", "bad": "x"}
# R-hat: fine up to the first, to be read with care up to the second. Predictions are what most
# people use, and what mixes best; the log joint and hyper-parameters may lag behind them.
RHAT = {"prediction": (1.01, 1.05), "else": (1.01, 1.10)}
ESS = (100, 400)  # effective draws: too few below the first, enough for the tails from the second
BFMI = 0.3


@dataclass(frozen=True)
class Finding:
    """One thing found: `level` is "good", "care" or "bad"."""

    level: str
    text: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.text} {self.advice}".strip()

    @property
    def marked(self) -> str:
        """The same with a sign of its level, as plain text has it."""
        return f"{MARK[self.level]} {self}"


def worst(findings: tuple[Finding, ...]) -> str:
    """The level of the worst finding.

    >>> worst((Finding("good", "a"), Finding("bad", "b"), Finding("care", "c")))
    'bad'
    """
    return max((f.level for f in findings), key=LEVELS.index, default="good")


def headline(kind: str, level: str) -> str:
    """The verdict in one sentence."""
    said = {
        "sampler": {
            "good": "The chains agree: this posterior can be used.",
            "care": "Usable with care: read what follows first.",
            "bad": "Not to be trusted yet.",
        },
        "variational": {
            "good": "The approximation has settled.",
            "care": "The approximation has settled, but it is an approximation.",
            "bad": "The approximation has not settled.",
        },
        "point": {
            "good": "Converged.",
            "care": "Stopped in order, with something to know.",
            "bad": "Not converged.",
        },
    }
    return said[kind][level]


# -- samplers -----------------------------------------------------------------------------------
def judge_sampler(fit: Any, table: pd.DataFrame, bfmi: np.ndarray | None) -> list[Finding]:
    """Agreement of chains, effective draws, and what only Hamiltonian samplers can tell."""
    chains, draws = next(iter(fit.draws.values())).shape[:2]
    findings = [_broken(table)] if not np.isfinite(table["mean"]).all() else []
    findings += _rhat(table, chains, draws)
    findings += _ess(table, chains, draws)
    if "diverging" in fit.stats:
        findings.append(_divergences(fit.stats["diverging"]))
    if bfmi is not None:
        findings.append(_energy(bfmi))
    if "tree_depth" in fit.stats:
        findings.append(_depth(fit.stats["tree_depth"], getattr(fit.engine, "max_tree_depth", 10)))
    return findings + _notes(fit)


def _broken(table: pd.DataFrame) -> Finding:
    name = table.index[~np.isfinite(table["mean"])][0]
    return Finding(
        "bad", f"Some draws are NaN or infinite, first seen in {name}.", "Check the data's scale."
    )


GROUPS = {  # who speaks for what: predictions are what most people use, the rest may lag behind
    "Predictions": lambda quantity: quantity == "prediction",
    "Log joint": lambda quantity: quantity == "log joint",
    "Hyper-parameters and spectrum": lambda quantity: ~quantity.isin(["prediction", "log joint"]),
}


def _rhat(table: pd.DataFrame, chains: int, draws: int) -> list[Finding]:
    """Agreement of the chains, group by group."""
    found = []
    among = "chains" if chains > 1 else "the two halves of the chain"
    for group, belongs in GROUPS.items():
        rows = table.loc[belongs(table["quantity"]), "r_hat"]
        largest = rows.max()  # NaN where nothing could be compared
        if np.isnan(largest):
            continue
        fine, limit = RHAT["prediction" if group == "Predictions" else "else"]
        which = f" ({rows.index[int(np.nanargmax(rows))]})" if len(rows) > 1 else ""
        if round(largest, 3) <= fine:
            found.append(Finding("good", f"{group}: {among} agree, R-hat at most {largest:.3f}."))
        elif largest <= limit:
            text = f"{group}: {among} nearly agree, R-hat up to {largest:.3f}{which}; aim: {fine}."
            found.append(Finding("care", text, f"Take {2 * draws} draws per chain."))
        else:
            text = f"{group}: {among} disagree, R-hat up to {largest:.2f}{which}."
            if group.startswith("Hyper") and worst(tuple(found)) != "bad":
                found.append(
                    Finding("care", text, "Predict with this, but do not read these numbers yet.")
                )
            else:
                advice = "Warm up longer, or start from a point fit (init=) if these did not."
                found.append(Finding("bad", text, advice))
    if not found:
        found.append(
            Finding("bad", "Too few draws to compare anything.", "Take at least 100 per chain.")
        )
    if chains == 1:
        text = "One chain: whether chains from other starts would agree, nobody knows."
        found.append(Finding("care", text, "Run 4 chains."))
    return found


def _ess(table: pd.DataFrame, chains: int, draws: int) -> list[Finding]:
    """Effective draws: few for a prediction is bad, few for the rest is slow."""
    each = table[["ess_bulk", "ess_tail"]].min(axis=1)
    predicted = table["quantity"] == "prediction"
    few, enough = ESS
    found = []
    for what, rows in (("predictions", each[predicted]), ("the rest", each[~predicted])):
        if rows.isna().all():
            continue
        least, name = rows.min(), rows.index[int(np.nanargmin(rows))]
        who = what if what == "predictions" else f"{what} ({name})"
        if least >= enough:
            found.append(
                Finding(
                    "good", f"Effective draws for {what}: at least {least:.0f} of {chains * draws}."
                )
            )
            continue
        level = "bad" if what == "predictions" and least < few else "care"
        more = np.ceil(draws * enough / max(least, 1) / 100) * 100
        advice = (
            f"About {more:.0f} draws per chain would do."
            if more <= 20 * draws
            else "It mixes slowly."
        )
        text = (
            f"Effective draws for {who}: only {least:.0f} of {chains * draws}; {enough} is the aim."
        )
        found.append(Finding(level, text, advice))
    return found


def _divergences(diverging: np.ndarray) -> Finding:
    count, share = int(diverging.sum()), float(diverging.mean())
    if not count:
        return Finding("good", "No divergences.")
    text = f"{count} divergent transitions ({share:.1%}): parts of the posterior were not reached."
    advice = "Raise target_accept (0.95), or use Gibbs where the method has it."
    return Finding("bad" if share > 0.01 else "care", text, advice)


def _energy(bfmi: np.ndarray) -> Finding:
    low = float(np.min(bfmi))
    if low >= BFMI:
        return Finding("good", f"Energy: E-BFMI at least {low:.2f} ({BFMI} or more is fine).")
    text = f"Energy: E-BFMI down to {low:.2f}, below {BFMI}: the tails are explored slowly."
    return Finding("care", text, "Warm up longer, or put firmer priors on the scales.")


def _depth(depth: np.ndarray, largest: int) -> Finding:
    share = float((depth >= largest).mean())
    if not share:
        return Finding("good", f"Tree depth: at most {int(depth.max())} of {largest}.")
    text = f"Tree depth: {share:.0%} of the draws hit the limit of {largest}."
    return Finding("care", text, f"It is slow, not wrong: max_tree_depth={largest + 2} may pay.")


def judge_factors(aligned: Any, r_hat: float | None) -> Finding:
    """Whether aligned factors mean something; R-hat is None where alignment is a matter of taste."""
    left = f"residual {float(np.median(aligned.residual)):.2f}"
    if aligned.modes > 1:
        advice = "Predictions average over them; a mean of factors would be of neither."
        return Finding("care", f"Factors, aligned: {aligned.modes_in_words}", advice)
    if r_hat is None:
        text = f"Factors: no R-hat, as another frame would do as well. {aligned.notes[0]}"
        return Finding("good", text)
    if np.isnan(r_hat):
        text = "Factors: no R-hat, as all their draws are the same."
        return Finding("bad", text, "The chains never moved: sample again from another start.")
    fine = r_hat <= RHAT["else"][1]
    text = f"Factors, aligned ({left}): one mode, R-hat at most {r_hat:.2f}; raw ones mean nothing."
    advice = "" if fine else "Predict with this, but do not read single factors yet."
    return Finding("good" if fine else "care", text, advice)


# -- variational and point fits -----------------------------------------------------------------
def judge_variational(fit: Any, k: float | None = None) -> list[Finding]:
    """Whether the ELBO has settled, and Pareto's k of the weights that would make the guide's draws the
    posterior's; R-hat of independent draws would always be one."""
    steps, trend = len(fit.trace), _trend(fit.trace)
    guide = getattr(fit.engine, "guide", "")
    found = []
    if trend is None:
        found.append(
            Finding("bad", f"Only {steps} steps: too few to see a trend.", "Take some thousand.")
        )
    elif trend < -3:
        text = f"The ELBO got worse at the end ({-trend:.1f} standard errors): the guide runs away."
        found.append(Finding("bad", text, "Take a smaller learning_rate."))
    elif fit.converged is False and not fit.partial and trend <= 2:
        text = f"Stopped after {steps} steps, before it could be seen that the ELBO had settled."
        found.append(Finding("bad", text, f"Take {max(2 * steps, 5000)} steps."))
    elif trend > 2 and fit.converged is not True:
        text = f"The ELBO was still improving after {steps} steps ({trend:.1f} standard errors)."
        found.append(Finding("bad", text, f"Take {2 * steps} steps."))
    else:
        found.append(Finding("good", f"The ELBO no longer improves after {steps} steps."))
    limit = 0.0 if k is None else threshold(fit.stats["log_weight"].size)
    if k is not None and k < limit:
        text = (
            f"Weighted against the joint: Pareto's k {k:.2f} (below {limit:.2g} is fine): the guide"
        )
        found.append(Finding("good", f"{text} reaches what the posterior reaches."))
        return found + _notes(fit)
    text = "Spreads of a variational posterior are usually too small, and R-hat cannot tell."
    if guide in ("", "normal"):
        text = (
            "Mean field ignores correlations: its spreads are usually too small. R-hat cannot tell."
        )
    if k is not None:
        text = f"Weighted against the joint: Pareto's k {k:.2f}, not below {limit:.2g}: the guide is not the "
        text += "posterior. " + ("It ignores correlations." if guide in ("", "normal") else "")
    found.append(Finding("care", text.strip(), "Compare its coverage with Gibbs or NUTS."))
    return found + _notes(fit)


def _trend(trace: np.ndarray) -> float | None:
    """How much the last tenth of the trace beats the tenth before, in standard errors."""
    tenth = len(trace) // 10
    if tenth < 10:
        return None
    old, new = trace[-2 * tenth : -tenth], trace[-tenth:]
    pieces = [np.array([p.mean() for p in np.array_split(part, 10)]) for part in (old, new)]
    error = np.sqrt(sum(p.var(ddof=1) / len(p) for p in pieces))
    return float((old.mean() - new.mean()) / max(error, 1e-9 * abs(new.mean()), 1e-300))


def judge_point(fit: Any) -> list[Finding]:
    """Whether the objective stands still, and what happened on the way."""
    looks, last = len(fit.trace) - 1, fit.trace[-1]
    if not np.isfinite(fit.trace).all():
        found = [Finding("bad", "The objective became NaN or infinite.", "Check the data's scale.")]
    elif fit.converged:
        found = [
            Finding("good", f"The objective stands still at {last:.6g} after {looks} iterations.")
        ]
    else:
        change = fit.trace[-2] - last if looks > 0 else np.nan
        text = f"Stopped after {looks} iterations at {last:.6g}, still moving by {change:.2g} each."
        found = [Finding("bad", text, "Raise max_iter (or steps), or accept a looser tol.")]
    return found + _notes(fit)


def _notes(fit: Any) -> list[Finding]:
    """What the engine itself had to say."""
    found = []
    if fit.partial:
        found.append(
            Finding(
                "care", "Interrupted: this is what there was by then.", "Run it again to the end."
            )
        )
    for note in fit.info.get("notes", ()):
        if not note.startswith(("interrupted", "the ELBO was still moving")):  # said already
            found.append(Finding("good" if note.startswith("best of") else "care", _sentence(note)))
    return found


def _sentence(note: str) -> str:
    text = note.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")
