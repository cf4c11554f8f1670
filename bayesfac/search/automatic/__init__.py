"""`bf.auto`: choose a method and its number of components by the scores of held-out data.

The candidates are tried in a fixed order. First come fast methods with default settings. Then, for the two
best of them, come the next smaller and the next larger number of components, until both neighbours of the
best number have been tried. Then come the other methods, and again their numbers of components. The result
of a candidate depends only on the data, the seed and its settings, and not on the time, on other candidates
or on the number of processes. The time limit decides only how many candidates are tried.
"""

import time
import warnings
from collections.abc import Sequence
from typing import Any

import pandas as pd

from bayesfac.api import fit as run_fit
from bayesfac.choosing.trials import folder_of
from bayesfac.core import checks
from bayesfac.core.calls import workers
from bayesfac.core.data.container import KINDS
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.data.reading import is_named
from bayesfac.core.data.views import Views
from bayesfac.core.errors import DataWarning
from bayesfac.fits.fit import Fit
from bayesfac.inference.result import bar
from bayesfac.search.automatic.candidates import listed
from bayesfac.search.automatic.judges import JUDGES, judge_of
from bayesfac.search.automatic.search import Search

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
