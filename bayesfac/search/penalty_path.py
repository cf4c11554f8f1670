"""Fit a method with many values of a penalty together, and choose one value by held-out ratings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

import jax
import numpy as np
import pandas as pd

import bayesfac.models  # noqa: F401  # registers every method
from bayesfac.choosing import descended
from bayesfac.core import checks
from bayesfac.core.calls import Shared, finished_calls, workers
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.errors import BayesfacError, noted
from bayesfac.core.method import lookup, portable, settle
from bayesfac.inference.gradient import LBFGS
from bayesfac.inference.lbfgs import Descent
from bayesfac.inference.result import Job, bar, check_number
from bayesfac.split import weak_generalisation

THESIS = tuple(10 ** (i / 16) for i in range(4, 41))  # thesis, section 3.6.5


@dataclass(frozen=True)
class Path:
    """Held-out errors along the values of one hyper-parameter.

    Attributes
    ----------
    best
        The value with the smallest mean zero-one error; among equal errors the largest value, which gives
        the simplest model.
    table : DataFrame
        One row per value. The columns are the zero-one error, the mean absolute error (each with its mean
        and standard deviation over the repeats) and the iterations.
    """

    name: str
    table: pd.DataFrame

    @property
    def best(self) -> float:
        errors = self.table["zero-one"]
        return float(errors.index[errors == errors.min()].max())

    def __repr__(self) -> str:
        row = self.table.loc[self.best]
        return (
            f"Path({len(self.table)} values of {self.name}: best {self.best:.4g}, "
            f"zero-one {row['zero-one']:.4f} ± {row['sd']:.4f})"
        )


def path(
    method: str,
    ratings: Any,
    values: Sequence[float] = THESIS,
    engine: LBFGS | None = None,
    *,
    name: str = "penalty",
    repeats: int = 3,
    held_out: int = 1,
    seed: int = 0,
    jobs: int | None = None,
    progress: bool = True,
    **hyper: Any,
) -> Path:
    """Fit an ordinal method with many penalties together, and score each of them on held-out ratings.

    In every repeat, `held_out` ratings of each user are held out (weak generalisation). One program then fits
    all values of the penalty from the same start by L-BFGS, each with its own history and step length. A
    value that has converged takes no more time. `name` may be another real-valued setting. The defaults
    are those of the thesis (section 3.6.5): the values 10^(i/16) for i = 4..40, three repeats, and the
    smallest zero-one error.

    With `jobs` the repeats run in separate processes; without it `joblib.parallel_config` decides.

    In `hmf` every stage has its own penalty. To choose these penalties, fit `bmmmf` stage by stage:
    `tuple(path("bmmmf", ratings.above(q)).best for q in ratings.levels[:-1])`.

    Examples
    --------
    >>> import bayesfac as bf
    >>> ratings = bf.datasets.make_ratings(40, 30, 2, density=0.5, noise=0.5)
    >>> found = bf.path("mmmf", ratings, [0.1, 3.0, 1000.0], n_components=2, repeats=2)
    >>> found.best
    3.0
    """
    record = lookup(method)
    engine = LBFGS(max_iter=200, tol=1e-5, memory=5) if engine is None else engine
    if record.solver.update is not None:
        raise BayesfacError(
            f"Expected a method that L-BFGS solves, got {method}: fit it value by value"
        )
    if not len(values) or repeats < 1:
        raise ValueError(f"Expected values and repeats, got {len(values)} and {repeats}")
    if len(set(map(float, values))) < len(values):
        raise ValueError(f"Expected different values, got {list(values)!r:.60}")
    data = ratings if isinstance(ratings, Ratings) else Ratings(ratings)
    settings = [settle(record, data, {**hyper, name: value}) for value in values]
    if not _real(record, name):  # all values share one start and one program
        raise ValueError(f"Expected a setting of real numbers, got {name}: fit it value by value")
    checks.seeded(seed)
    here, shared = workers(jobs) == 1, Shared(data)
    how = (portable(record), held_out, settings, name, engine)
    calls = [
        (_repeat, shared, repeat, seed + repeat, progress and here, *how)
        for repeat in range(repeats)
    ]
    scores: list[Any] = [None] * repeats
    with bar(progress and not here, repeats, f"{method} path") as shown:
        for repeat, found in finished_calls(calls, jobs):
            scores[repeat] = found
            shown.update(1)
    errors = np.array(scores)  # repeats x values x (zero-one, absolute, iterations)
    mean, sd = errors.mean(0), errors[:, :, 0].std(0, ddof=1) if repeats > 1 else np.nan
    columns = {"zero-one": mean[:, 0], "sd": sd, "MAE": mean[:, 1], "iterations": mean[:, 2]}
    index = pd.Index([float(v) for v in values], name=name)
    return Path(name, pd.DataFrame(columns, index=index).sort_index())


def _real(method: Any, name: str) -> bool:
    """Whether a setting is a real number. A number of components, for example, is not."""
    hint = get_type_hints(method.Hyper).get(name, float)
    return not {*(get_args(hint) or [hint])} <= {int, bool, str, type(None)}


def _repeat(
    data: Ratings, repeat: int, seed: int, progress: bool, method: Any, held_out: int, settings: list,
    name: str, engine: LBFGS,
) -> tuple[int, list[tuple[float, float, float]]]:  # fmt: skip
    """The errors of all settings on ratings that one repeat holds out."""
    train, test = weak_generalisation(data, held_out, seed=seed)
    job = Job(lookup(method), train, settings[0], jax.random.key(seed))
    with bar(progress, engine.max_iter, f"{job.method.name} path, repeat {repeat + 1}") as shown:
        with noted(f"in repeat {repeat + 1} of the path"):
            return repeat, _scores(job, test, settings, name, engine, shown)


def _scores(
    job: Job, test: Ratings, settings: list, name: str, engine: LBFGS, shown: Any
) -> list[tuple[float, float, float]]:
    """Fit all settings together; for each setting the errors on the test set and the iterations."""
    values, steps = [{name: getattr(each, name)} for each in settings], np.zeros(len(settings))

    def seen(live: np.ndarray, at: Descent) -> None:
        steps[live] += 1
        for each, there in zip(values, at.value, strict=True):
            check_number(float(there), "objective", f"at {name}={each[name]}")
        shown.update(1)

    start, limits = job.start_point(job.key), (engine.max_iter, engine.memory, engine.tol)
    found = descended(job, start, values, limits, {}, name, seen)
    return [
        (*_errors(job.method, p, job.data, test, each), n)
        for p, each, n in zip(found, settings, steps, strict=True)
    ]


def _errors(method: Any, p: Any, train: Ratings, test: Ratings, hyper: Any) -> tuple[float, float]:
    """Zero-one and mean absolute error of the levels that the method's own rule predicts."""
    if method.derive:
        p = p._replace(**method.derive(p, train, hyper))
    outcome = method.predict(p, test.cells, hyper)  # row-major, as y
    wrong = np.asarray(outcome.scale)[np.asarray(outcome.choice)] - np.asarray(test.y)
    return float((wrong != 0).mean()), float(np.abs(wrong).mean())
