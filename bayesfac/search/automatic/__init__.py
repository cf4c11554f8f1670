"""`bf.auto`: choose a method and its number of components by the scores of held-out data.

The candidates are tried in a fixed order. First come fast methods with default settings. Then, for the two
best of them, come the next smaller and the next larger number of components, until both neighbours of the
best number have been tried. Then come the other methods, and again their numbers of components. The result
of a candidate depends only on the data, the seed and its settings, and not on the time, on other candidates
or on the number of processes. The time limit decides only how many candidates are tried.
"""

import math
import time
import warnings
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bayesfac.api import fit as run_fit
from bayesfac.choosing.trials import folder_of, place, read
from bayesfac.core import checks
from bayesfac.core.calls import Shared, finished_calls, workers
from bayesfac.core.data.container import KINDS
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.data.reading import is_named
from bayesfac.core.data.views import Views
from bayesfac.core.errors import BayesfacError, DataWarning
from bayesfac.core.precision import precise
from bayesfac.fits.fit import Fit
from bayesfac.inference.result import bar
from bayesfac.search.automatic.candidates import Candidate, Tried, from_json, listed, run, scored
from bayesfac.search.automatic.judges import JUDGES, judge_of

LEAST = 50  # ratings, labelled rows or counts in all; with fewer of them the choice would be random


def auto(
    data: Any,
    seconds: float = 120.0,
    *,
    folder: Any = None,
    seed: int = 0,
    methods: Sequence[Any] | None = None,
    components: Sequence[int] | None = None,
    jobs: int | None = None,
    progress: bool = True,
) -> Fit:
    """Choose a method and its number of components by held-out data, and fit it to all data.

    A tenth of the ratings, a fifth of the labelled rows or a tenth of the counts is held out. Candidates are
    tried in a fixed order from fast to slow methods. The candidate with the best log score on the held-out
    part is fitted again, to all data. Methods for `Counts` predict different things, so there the score is
    the gain of the rank of held-out pairs, as in `bf.compare`. `fit.tried` is a table of all
    candidates and of a simple baseline, and `fit.notes` is a summary.

    Parameters
    ----------
    data : Ratings, Counts, Tasks or Views
        A DataFrame is read as ratings, a pair (views, labels) as Tasks, and a mapping as Views. Labels are 0
        and 1. At least one view must have counts. Views of measurements are used in the fits, but have no
        likelihood by which methods could be compared.
    seconds : float
        The time limit. A new candidate begins only if enough time is left for the final fit. A candidate
        that has begun runs to its end, and at least one method is tried. With `math.inf` all candidates are
        tried, and the result does not depend on the speed of the machine.
    folder : path, optional
        Store each finished candidate there. A second call reads them and continues, for example after a
        killed run or with a larger time limit.
    seed : int
        The seed of the choice of held-out data and of every fit.
    methods : sequence, optional
        Names of methods, or (name, settings), or (name, settings, engine); by default every method for such
        data, and `bpmf` and `ordinal_mf` also by Gibbs.
    components : sequence of int, optional
        Every method is tried with each of these numbers of components, and with no other numbers.
    jobs : int, optional
        The number of processes; -1 means all cores. Without it `joblib.parallel_config` decides. The result
        of a candidate does not depend on it.

    Examples
    --------
    >>> import bayesfac as bf
    >>> ratings = bf.datasets.make_ratings(60, 40, 2, density=0.5, seed=0)
    >>> fit = bf.auto(ratings, methods=["pmf", "mmmf"], components=[1, 2], progress=False)
    >>> fit.name in ("pmf", "mmmf"), len(fit.tried)
    (True, 5)
    >>> list(fit.tried.columns[:3])
    ['candidate', 'components', 'log score']
    """
    end = time.perf_counter() + _checked(seconds, jobs)
    data, kept = _container(data), folder_of(folder, "candidates")
    checks.seeded(seed)
    groups = listed(data, methods, _sizes(components))
    search = Search(data, seed, kept, jobs, end)
    with bar(progress, sum(map(len, groups)), "auto") as shown:
        search.run(groups, grow=components is None, shown=shown)
    best = search.best()
    if search.lost:
        warnings.warn(
            f"no method predicts the held-out {search.kind.lower()} better than the baseline "
            f"({search.baseline.name})",
            DataWarning,
            stacklevel=2,
        )
    how = {"seed": seed, "progress": progress, **best.settings}
    fit = run_fit(best.method, data, best.engine, **how)
    fit.info["chosen"] = [search.report(), *fit.info["chosen"]]
    fit.info["tried"] = search.table().astype(object).to_dict("records")
    return fit


# -- what the user asks for -----------------------------------------------------------------------
def _container(data: Any) -> Any:
    """The data in their container; an error if they are too few to hold some out."""
    if isinstance(data, pd.DataFrame):
        data = Ratings(data)
    elif isinstance(data, tuple) and len(data) == 2:
        data = KINDS["Tasks"](*data)
    elif is_named(data):
        data = Views(data)
    if type(data).__name__ not in JUDGES and not getattr(data, "judge", ""):
        raise TypeError(
            "Expected Ratings, Counts, Tasks or Views, a table of ratings, a pair (views, labels) or a "
            f"mapping of views, got {type(data).__name__}"
        )
    size, what = judge_of(data).amount(data)
    if size < LEAST:
        raise ValueError(
            f"Expected at least {LEAST} {what}, so that some can be held out to choose by, got {size:g}: "
            "bf.fit(NAME, data) chooses no method"
        )
    return data


def _checked(seconds: Any, jobs: Any) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise ValueError(f"Expected seconds as a number above 0, got {seconds!r}")
    workers(jobs)
    return float(seconds)


def _sizes(components: Any) -> Sequence[int] | None:
    if components is None:
        return None
    if not isinstance(components, Sequence) or isinstance(components, str) or not components:
        raise TypeError(f"Expected components as a list of whole numbers, got {components!r}")
    for size in components:
        checks.whole_number("components", size, 1)
    return components


# -- the search -----------------------------------------------------------------------------------
SIZES = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200)  # numbers of components
LEADERS = 2  # methods whose number of components is searched


class Search:
    """Candidates that are fitted to a training part and scored on the rest."""

    def __init__(
        self, data: Any, seed: int, folder: Path | None, jobs: int | None, end: float
    ) -> None:
        self.kind, self.judge = type(data).__name__, judge_of(data)
        self.parts = self.judge.divided(data, self.judge.share, seed)
        self.seed, self.folder, self.jobs, self.end = seed, folder, jobs, end
        self.weights, self.stopped = self.judge.weights(self.parts[1]), ""
        self.shared = Shared(self.parts)
        self.key = {"what": "bf.auto", "bayesfac": version("bayesfac"), "float64": precise()}
        self.key |= {"data": data.fingerprint(), "seed": seed, "share": self.judge.share}
        self.tried: dict[str, tuple[Candidate, Tried]] = {}  # in the order of the list
        found = self.judge.of_baseline(*self.parts)
        self.baseline = scored(self.judge.baseline, found, self.weights)

    def run(self, groups: list[list[Candidate]], grow: bool, shown: Any) -> None:
        """Try each group while time is left; with `grow`, other numbers of components follow each group."""
        try:
            for group in groups:
                wave = group
                while wave and not self.stopped:
                    self._try(wave, shown)
                    wave = self._neighbours() if grow else []
                    shown.total = (shown.total or 0) + len(wave)
        except KeyboardInterrupt:
            if not self.ranked():
                raise
            self.stopped = "it was interrupted"

    def _try(self, wave: list[Candidate], shown: Any) -> None:
        """Read what the folder has of these candidates, then run the others."""
        found = dict[str, tuple[Candidate, Tried]]()
        for one in wave:
            if (path := self._path(one)) and path.exists():
                found[repr(one)] = one, from_json(read(path))
        self.tried |= found
        shown.update(len(found))
        missing = self._in_time([one for one in wave if repr(one) not in found])
        own = self.shared, self.weights, self.seed
        calls = ((run, one, *own, self._path(one)) for one in missing)
        try:
            for one, result in finished_calls(calls, self.jobs):
                self.tried[repr(one)] = found[repr(one)] = one, result
                shown.update(1)
        finally:  # in the order of the list, not of finishing
            for one in wave:
                if repr(one) in found:
                    self.tried[repr(one)] = self.tried.pop(repr(one))

    def _in_time(self, wave: list[Candidate]) -> Iterator[Candidate]:
        """Yield candidates as long as enough time is left for the final fit."""
        for one in wave:
            ranked = self.ranked()
            if ranked and time.perf_counter() + ranked[0][1].seconds >= self.end:
                self.stopped = "no time was left"
                return
            yield one

    def _path(self, one: Candidate) -> Path | None:
        return None if self.folder is None else place(self.folder, {**self.key, **one.key})

    def _neighbours(self) -> list[Candidate]:
        """The next smaller and the next larger size of each leading method, unless they were tried."""
        leaders = dict[str, tuple[Candidate, int | None]]()
        for one, result in self.ranked():
            leaders.setdefault(one.name, (one, result.size))
        wave = []
        for one, size in list(leaders.values())[:LEADERS]:
            known = {found.size for _, found in self.tried.values() if found.name == one.name}
            if size is not None:
                near = [s for s in SIZES if s < size][-1:] + [s for s in SIZES if s > size][:1]
                wave += [one.sized(s) for s in near if s not in known]
        return wave

    # -- results ----------------------------------------------------------------------------------
    def ranked(self) -> list[tuple[Candidate, Tried]]:
        """The candidates with a score, best first; of equal ones the first in the list."""
        known = [pair for pair in self.tried.values() if not pair[1].refused]
        return sorted(known, key=lambda pair: -pair[1].score)

    def best(self) -> Candidate:
        """The candidate with the best score."""
        if ranked := self.ranked():
            return ranked[0][0]
        why = "; ".join(f"{found.label}: {found.refused}" for _, found in self.tried.values())
        raise BayesfacError(f"Expected a method that takes these data, got none: {why}")

    def behind(self, one: Tried) -> tuple[float, float]:
        """The best score minus the score of `one`, and the standard error over users or rows."""
        best, size = self.ranked()[0][1], self.weights.sums()
        gap = best.score - one.score
        each = best.sums - one.sums - gap * size
        return gap, float(np.sqrt((each**2).sum()) / size.sum())

    @property
    def lost(self) -> bool:
        """Whether the baseline predicts at least as well as the best method."""
        return self.baseline.score >= self.ranked()[0][1].score

    def table(self) -> pd.DataFrame:
        """A row for each candidate and the baseline, best first; those without a score come last."""
        known = [self.baseline, *(found for _, found in self.ranked())]
        rows: list[tuple] = [
            (one.name, one.size, one.score, *self.behind(one), one.measure, one.seconds, "; ".join(one.notes))
            for one in sorted(known, key=lambda one: -one.score)
        ]  # fmt: skip
        rows += [
            (one.name, one.size, *[math.nan] * 5, f"left out: {one.refused}")
            for _, one in self.tried.values()
            if one.refused
        ]
        columns = ["candidate", "components", self.judge.score, "behind", "standard error"]
        table = pd.DataFrame(rows, columns=[*columns, self.judge.measure, "seconds", "notes"])
        return table.astype({"components": "Int64"})

    def report(self) -> str:
        """One sentence: what was chosen and how, and which other candidates are as good."""
        (_, best), *others = ranked = self.ranked()
        cells = int(self.weights.sums().sum())
        parts = [
            f"chosen by bf.auto: {best.label}, the best of {len(ranked)} by the {self.judge.score} of "
            f"{cells} held-out {self.judge.what}: {best.score:.4f}",
            f"the baseline ({self.baseline.name}) has {self.baseline.score:.4f}",
        ]
        if self.lost:
            parts.append("no method predicts better than the baseline")
        if alike := [one for _, one in others if np.less_equal(*self.behind(one))]:
            order = [found for _, found in self.tried.values()]
            first = min([best, *alike], key=order.index)
            cheapest = "" if first is best else f", of which {first.label} comes first in the list"
            parts.append(f"{len(alike)} more are within one standard error{cheapest}")
        if refused := len(self.tried) - len(ranked):
            parts.append(f"left out: {refused}")
        if self.stopped:
            parts.append(f"the list was not tried to its end, because {self.stopped}")
        return "; ".join(parts)
