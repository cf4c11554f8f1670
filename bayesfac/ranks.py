"""Compare methods on several data sets: ranks, Friedman's test, Nemenyi's critical difference, a diagram.

Demsar, "Statistical comparisons of classifiers over multiple data sets", JMLR 2006. With N data sets, K
methods and r_j the mean rank of method j (1 is the best, ties get the mean of their ranks),

    chi2 = 12 N / (K (K + 1)) (sum_j r_j^2 - K (K + 1)^2 / 4)
    F_F  = (N - 1) chi2 / (N (K - 1) - chi2),     an F with K - 1 and (K - 1)(N - 1) degrees of freedom
    CD   = q sqrt(K (K + 1) / (6 N))

without a correction for ties, as in the paper. Two methods differ if their mean ranks differ by CD or more.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import f as f_law
from scipy.stats import rankdata, studentized_range

from bayesfac.core import checks

__all__ = [
    "Friedman",
    "cd_diagram",
    "critical_difference",
    "friedman",
    "groups",
    "nemenyi",
    "ranks",
]


def __dir__() -> tuple[str, ...]:
    """The public names."""
    return tuple(__all__)


GREY, BLUE = "#666666", "#0072B2"
LINE, LETTER, AXIS = 0.24, 0.082, 5.2  # inches of a line of the diagram, a letter, the other width
BAR = 0.42  # lines from bar to bar
LONGEST = 30  # letters of a method's name


class Friedman(NamedTuple):
    """Friedman's chi2, F_F of Iman and Davenport, the critical value of F_F, and the p value of F_F."""

    chi2: float
    F: float
    critical: float
    p: float


def ranks(table: Any, higher: bool = True) -> pd.DataFrame:
    """The ranks of the methods on every data set: 1 is the best, and ties get the mean of their ranks.

    Parameters
    ----------
    table : DataFrame or array
        Data sets x methods. An infinite score is the best or the worst.
    higher : bool
        Whether a larger score is better.

    Examples
    --------
    >>> ranks(pd.DataFrame({"a": [0.9, 0.7], "b": [0.8, 0.7], "c": [0.1, 0.9]}, index=["x", "y"]))
         a    b    c
    x  1.0  2.0  3.0
    y  2.5  2.5  1.0
    """
    frame = _table(table, "scores")
    sign = -1 if higher else 1
    return pd.DataFrame(rankdata(sign * frame.to_numpy(), axis=1), frame.index, frame.columns)


def friedman(ranks: Any, alpha: float = 0.05) -> Friedman:
    """Friedman's test that all methods are equal; it rejects this if F is above the critical value.

    Examples
    --------
    >>> test = friedman([[1, 2, 3], [1, 3, 2], [1, 2, 3], [2, 1, 3]])
    >>> [round(value, 3) for value in test]
    [4.5, 3.857, 5.143, 0.084]
    """
    frame, mean = _means(ranks, alpha)
    N, K = frame.shape
    if N < 2:
        raise ValueError(f"Expected at least two data sets, got {N}")
    chi2 = 12 * N / (K * (K + 1)) * (float(mean @ mean) - K * (K + 1) ** 2 / 4)
    chi2 = min(max(chi2, 0.0), float(N * (K - 1)))
    rest = N * (K - 1) - chi2
    F = (N - 1) * chi2 / rest if rest > 1e-9 * N * K else math.inf  # all data sets agree
    free = K - 1, (K - 1) * (N - 1)
    return Friedman(chi2, F, float(f_law.ppf(1 - alpha, *free)), float(f_law.sf(F, *free)))


def critical_difference(K: int, N: int, alpha: float = 0.05) -> float:
    """Nemenyi's critical difference of the mean ranks of K methods over N data sets.

    q is rounded as in printed tables, so that the result can be compared with papers. The quantile of the
    studentised range is rounded to three decimals, divided by sqrt 2, and rounded to three decimals again.
    The result has exactly the digits of Demsar's Table 5(a), with an error of at most 0.0005.

    Examples
    --------
    >>> round(critical_difference(7, 12), 3), round(critical_difference(8, 11), 3)
    (2.601, 3.166)
    """
    checks.whole_number("K", K, 2)
    checks.whole_number("N", N, 1)
    _check_alpha(alpha)
    q = round(round(float(studentized_range.ppf(1 - alpha, K, math.inf)), 3) / math.sqrt(2), 3)
    return q * math.sqrt(K * (K + 1) / (6 * N))


def nemenyi(ranks: Any) -> pd.DataFrame:
    """The p value of every pair of methods, corrected for the number of methods: methods x methods.

    Examples
    --------
    >>> nemenyi([[1, 2, 3], [1, 3, 2], [1, 2, 3], [2, 1, 3]]).round(3).to_numpy().tolist()
    [[1.0, 0.539, 0.086], [0.539, 1.0, 0.539], [0.086, 0.539, 1.0]]
    """
    frame, mean = _means(ranks)
    N, K = frame.shape
    apart = np.abs(mean[:, None] - mean) * math.sqrt(2 * 6 * N / (K * (K + 1)))
    p = studentized_range.sf(apart, K, math.inf)
    return pd.DataFrame(p, frame.columns, frame.columns)


def groups(ranks: Any, alpha: float = 0.05) -> list[list[Any]]:
    """The largest sets of methods in which no two differ, by mean rank; single methods are left out.

    Examples
    --------
    >>> groups(pd.DataFrame([[1, 2, 3, 4]] * 8, columns=list("abcd")))
    [['a', 'b'], ['b', 'c'], ['c', 'd']]
    """
    frame, mean = _means(ranks, alpha)
    order = np.argsort(mean, kind="stable")
    names = [frame.columns[i] for i in order]
    return [names[first : last + 1] for first, last in _spans(mean[order], len(frame), alpha)]


def cd_diagram(ranks: Any, alpha: float = 0.05, ax: Any = None, title: str | None = None) -> Any:
    """Mean ranks along an axis, the best on the left; bars join methods that do not differ.

    Parameters
    ----------
    ranks : DataFrame or array
        Data sets x methods.
    ax : matplotlib Axes, optional
        Where to draw; by default in a new figure of the size that the diagram needs.

    Returns
    -------
    matplotlib Axes; `.figure.savefig(path)` writes it.

    Examples
    --------
    >>> ax = cd_diagram(pd.DataFrame([[1, 2, 3]] * 20, columns=["new", "old", "older"]))
    >>> [text.get_text() for text in ax.texts][-3:]
    ['new  1.00', 'old  2.00', '3.00  older']
    """
    from matplotlib.figure import Figure

    frame, mean = _means(ranks, alpha)
    (N, K), order = frame.shape, np.argsort(mean, kind="stable")
    names = [_short(str(frame.columns[at])) for at in order]
    edge, half = 0.015 * K, -(-K // 2)
    ends = mean[order][np.array(_spans(mean[order], N, alpha), int).reshape(-1, 2)]
    bars = [(low - edge, high + edge) for low, high in ends.tolist()]
    levels = _levels(bars, edge)
    top, first = 2.9, 0.95 + BAR * (1 + max(levels, default=-1))
    if ax is None:
        letters = max(map(len, names[:half])) + max(map(len, names[half:]))
        height = LINE * (top + first + half + (1.5 if title else 0))
        figure = Figure(figsize=(AXIS + LETTER * letters, height), layout="constrained")
        ax = figure.subplots()
    ax.set_axis_off()
    ax.set(xlim=(1 - 0.06 * K, K + 0.06 * K), ylim=(-first - half + 0.5, top))
    if title is not None:
        start = 0.06 * K / (1.12 * K - 1)  # above rank 1
        ax.set_title(title, loc="left", x=start, fontsize=10.5, parse_math=False, usetex=False)
    _scale(ax, K, N, critical_difference(K, N, alpha))
    for bar, level in zip(bars, levels, strict=True):
        y = -0.5 - BAR * level
        ax.plot(bar, [y, y], color=BLUE, lw=3.5, solid_capstyle="butt", zorder=3)
    for place, (name, rank) in enumerate(zip(names, mean[order], strict=True)):
        _hang(ax, name, rank, place < half, K, -first - min(place, K - 1 - place))
    return ax


# -- the diagram's parts ------------------------------------------------------------------------
def _scale(ax: Any, K: int, N: int, cd: float) -> None:
    """The axis of ranks, and above it the length of the critical difference."""
    ax.plot([1, K], [0, 0], color="black", lw=1)
    for rank in range(1, K + 1, -(-K // 20)):
        ax.plot([rank, rank], [0, 0.22], color="black", lw=1)
        _write(ax, rank, 0.35, str(rank), ha="center", va="bottom", fontsize=9)
    end, beyond = min(1 + cd, K), ", longer than the axis" if 1 + cd > K else ""
    ax.plot([1, end], [1.75, 1.75], color="black", lw=1.4)
    for x in (1, end):
        ax.plot([x, x], [1.6, 1.9], color="black", lw=1.4)
    _write(ax, 1, 2.0, f"CD = {cd:.2f}{beyond}", ha="left", va="bottom", fontsize=9)
    title = f"mean rank, {N} data set{'s' * (N > 1)}"
    _write(ax, K, 2.0, title, ha="right", va="bottom", fontsize=9, color=GREY)


def _hang(ax: Any, name: str, rank: float, left: bool, K: int, y: float) -> None:
    """Draw the line of a method from the axis down, and sideways to the name."""
    end = 1 - 0.03 * K if left else K + 0.03 * K
    ax.plot([rank, rank, end], [0, y, y], color="black", lw=0.8, solid_joinstyle="miter")
    ax.plot([rank], [0], "o", color="black", ms=3.5)
    text = f"{name}  {rank:.2f}" if left else f"{rank:.2f}  {name}"
    out = -0.01 * K if left else 0.01 * K
    _write(ax, end + out, y, text, ha="right" if left else "left", va="center", fontsize=9.5)


def _write(ax: Any, x: float, y: float, text: str, **look: Any) -> None:
    """Text without mathematics: a dollar sign is printed as such."""
    ax.text(x, y, text, parse_math=False, usetex=False, clip_on=False, **look)


def _spans(mean: np.ndarray, N: int, alpha: float) -> list[tuple[int, int]]:
    """(first, last) of the largest runs of sorted mean ranks that differ by less than CD."""
    cd = critical_difference(len(mean), N, alpha)
    # 1e-9: rounding of the means must not hide a difference of exactly CD
    last = np.searchsorted(mean, mean + cd - 1e-9, "left") - 1
    return [(i, int(j)) for i, j in enumerate(last) if j > i and (i == 0 or last[i - 1] < j)]


def _levels(bars: list[tuple[float, float]], gap: float) -> list[int]:
    """How many steps below the axis each bar lies, so that no bar touches another."""
    ends: list[float] = []  # where the last bar on each level ends
    levels = []
    for low, high in bars:
        level = next((i for i, end in enumerate(ends) if end + gap < low), len(ends))
        ends[level : level + 1] = [high]
        levels.append(level)
    return levels


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"


# -- checks -------------------------------------------------------------------------------------
def _table(raw: Any, what: str) -> pd.DataFrame:
    """Numbers, data sets x methods."""
    try:
        frame = pd.DataFrame(raw)
        values = frame.to_numpy(dtype=float, na_value=np.nan)
    except (TypeError, ValueError) as wrong:
        raise TypeError(
            f"Expected {what} as numbers, data sets x methods, got {raw!r:.60}"
        ) from wrong
    if len(frame) < 1 or frame.shape[1] < 2:
        raise ValueError(
            f"Expected {what} of at least one data set and two methods, got shape {frame.shape}"
        )
    if np.isnan(values).any():
        row, column = np.argwhere(np.isnan(values))[0]
        raise ValueError(
            f"Expected {what} of every method on every data set, got none of "
            f"{frame.columns[column]!r} on {frame.index[row]!r}: leave out the method or the data set"
        )
    return pd.DataFrame(values, frame.index, frame.columns)


def _means(raw: Any, alpha: float = 0.05) -> tuple[pd.DataFrame, np.ndarray]:
    """Ranks and their means over data sets; rows whose sum is not that of ranks are refused."""
    _check_alpha(alpha)
    frame = _table(raw, "ranks")
    total, K = frame.sum(axis=1).to_numpy(), frame.shape[1]
    wrong = ~(np.abs(total - K * (K + 1) / 2) < 1e-6)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise ValueError(
            f"Expected ranks of {K} methods, which sum to {K * (K + 1) / 2:g}, got {total[at]:g} on "
            f"{frame.index[at]!r} (bf.ranks.ranks makes ranks of scores)"
        )
    return frame, frame.to_numpy().mean(0)


def _check_alpha(alpha: Any) -> None:
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 < alpha < 1:
        raise ValueError(f"Expected alpha between 0 and 1, got {alpha!r}")
