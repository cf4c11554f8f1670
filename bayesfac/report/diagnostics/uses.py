"""The verdict: what a fit may be used for, and the Monte Carlo error of its held-out scores."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bayesfac.report.believed import clustered
from bayesfac.report.diagnostics.findings import LEVELS, Finding
from bayesfac.report.diagnostics.held_out import GAIN, paired_difference

USES = {
    "averages": "averages of predictions",
    "single": "single predictions",
    "hyper": "hyper-parameters",
    "factors": "factors",
}
SHORT = {"good": "usable", "care": "usable in part", "bad": "not usable"}
SAMPLERS = ("Gibbs", "Quick", "NUTS")
SMALL = (0.1, 0.3)  # Monte Carlo error as a share of a difference: good, and usable with care


def uses(kind: str, findings: Sequence[Finding]) -> dict[str, str]:
    """The level of every use, from what each finding limits.

    The finding "averages" of a comparison is the Monte Carlo error of its scores. It replaces what R-hat of
    single predictions says about averages, unless draws are broken. A point fit has two uses: its
    hyper-parameters and factors have no uncertainty. A fit without a finding on factors has no such use;
    otherwise factors may be used as far as single predictions may, at most.
    """
    levels = {"averages": "good", "single": "good"}
    if kind != "point":
        levels["hyper"] = "good"
    measured = [f.limits["averages"] for f in findings if f.measured]
    for finding in findings:
        for use, level in finding.limits.items():
            if use in levels or use == "factors":
                levels[use] = max(levels.get(use, "good"), level, key=LEVELS.index)
    if "factors" in levels:  # predictions are functions of factors, which cannot be known better
        levels["factors"] = max(levels["factors"], levels["single"], key=LEVELS.index)
    if measured and not any(f.fatal for f in findings):
        levels["averages"] = measured[-1]
    return {use: levels[use] for use in USES if use in levels}


def overall(levels: Mapping[str, str]) -> str:
    """The level "bad" if nothing may be used, "good" if everything may, else "care"."""
    if levels["averages"] == "bad":
        return "bad"
    return "good" if set(levels.values()) == {"good"} else "care"


def sentence(kind: str, levels: Mapping[str, str]) -> str:
    """The verdict in one sentence, which begins with the words of `SHORT`.

    >>> sentence("sampler", {"averages": "good", "single": "care", "factors": "bad"})
    'Usable in part: for averages of predictions; with care for single predictions; not for factors.'
    """
    level = overall(levels)
    if level == "bad":
        return "Not usable yet."
    of = {
        name: _listed([USES[use] for use, one in levels.items() if one == name]) for name in LEVELS
    }
    if level == "good":
        rest = " Its factors have no uncertainty." if kind == "point" else ""
        return f"Usable for {of['good']}.{rest}"
    parts = [("for", "good"), ("with care for", "care"), ("not for", "bad")]
    return f"Usable in part: {'; '.join(f'{word} {of[name]}' for word, name in parts if of[name])}."


def _listed(names: Sequence[str]) -> str:
    *most, last = names or [""]
    return f"{', '.join(most)} and {last}" if most else last


# -- averages: Monte Carlo error of scores --------------------------------------------------------
def judge_averages(name: str, scores: Mapping[str, Any]) -> Finding:
    """Whether the Monte Carlo error of a fit's main score is small beside its differences from other fits.

    `scores` has no other fit with draws from the same posterior: their difference is Monte Carlo error.
    Without another fit it is compared with the standard error of the score over users. With one user
    there is no such error, and the finding says so without a judgement.
    """
    main = next(iter(scores[name].losses))
    error = monte_carlo_error(scores[name], main)
    sizes = {}
    for other, each in scores.items():
        if other != name:
            sizes[other] = max(map(abs, paired_difference(scores[name], each)[main]))
    beside = min(sizes, key=lambda other: sizes[other]) if sizes else ""
    size = sizes[beside] if sizes else _standard_error(scores[name], main)
    if np.isnan(size):
        text = f"Held-out {main}: Monte Carlo error {error:.2g}, and no standard error to compare it with."
        return Finding("good", text)
    ratio = error / size if size > 0 else (0.0 if error == 0 else np.inf)
    level = "good" if ratio <= SMALL[0] else "care" if ratio <= SMALL[1] else "bad"
    what = f"the difference from {beside}" if beside else "its standard error over users"
    text = f"Held-out {main}: Monte Carlo error {error:.2g}, {ratio:.0%} of {what}."
    advice = "" if level == "good" else f"Aim: at most {SMALL[0]:.0%}. Take more draws."
    return Finding(level, text, advice, {"averages": level}, measured=True)


def same_posterior(a: Any, b: Any) -> bool:
    """Whether two fits have draws from one posterior, so that their scores differ by Monte Carlo error."""
    drawn = all(type(fit.engine).__name__ in SAMPLERS for fit in (a, b))
    if not drawn or a.name != b.name or repr(a.hyper) != repr(b.hyper):
        return False
    counts = [np.concatenate([fit.data.row_counts, fit.data.col_counts]) for fit in (a, b)]
    return a.data.summary == b.data.summary and np.array_equal(counts[0], counts[1])


def monte_carlo_error(scores: Any, main: str) -> float:
    """The jackknife error of a score from leaving out consecutive parts of the draws."""
    count = len(means := scores.parts)
    if count < 2:
        return np.inf
    without = [(means.sum(0) - part) / (count - 1) for part in means]
    if main == "RMSE":  # of ratings or labels; else of counts
        found = [np.sqrt(np.mean((mean - scores.value) ** 2)) for mean in without]
    elif main == GAIN:  # of pairs, which have the gains without each part
        found = [part.mean() for part in means]
    else:
        with np.errstate(divide="ignore"):
            found = [np.average(np.log(mean), weights=scores.weights) for mean in without]
    return float(np.sqrt((count - 1) * np.var(found))) if np.isfinite(found).all() else np.inf


def _standard_error(scores: Any, main: str) -> float:
    """The standard error of a score over users; NaN for one user."""
    loss = scores.losses[main]
    mean = np.average(loss, weights=scores.weights)
    error = clustered(scores.weights * (loss - mean), scores.cluster) / float(scores.weights.sum())
    return error / (2 * np.sqrt(mean)) if main == "RMSE" and mean > 0 else error
