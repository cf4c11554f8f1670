"""Methods and measures as users write them for `bf.evaluate`, read and checked."""

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from bayesfac import comparators, multilabel
from bayesfac.core.data.reading import numbers
from bayesfac.core.data.tasks import Tasks
from bayesfac.core.errors import UnknownName
from bayesfac.core.method import REGISTRY, Method, lookup, unknown

DECISIONS = (
    "hamming_loss", "accuracy", "subset_accuracy", "example_f1", "macro_f1", "micro_f1",
)  # fmt: skip
SMALLER = (  # is better
    "hamming_loss", "ranking_loss", "coverage_error", "one_error", "brier", "log_loss",
    "expected_calibration_error",
)  # fmt: skip
METRICS = (*DECISIONS, "average_precision", *SMALLER[1:])
AS_MANY = 4.0 ** (np.arange(-9, 10) / 9)  # thresholds: predicted labels for each true one


@dataclass(frozen=True)
class Tuned:
    """A method whose settings are chosen anew in every training fold, on rows held out of it.

    Parameters
    ----------
    method
        Whatever `bf.evaluate` takes as a method.
    grid : mapping
        Setting -> values; all combinations are tried. A function gets them as keyword arguments.
    by : str or callable
        A measure of `bf.multilabel` by its name, or f(Y, predicted), the larger the better.
    share : float
        Of every task's training rows, how many are held out, at random. In the end the method learns
        from all of them.
    threshold : bool or sequence of float
        Whether to choose on the same rows from which score on a label counts: the method's own rule, or one
        of 19 thresholds that predict from a quarter of the labels that are true up to four times as many.
        Or thresholds to choose from.

    Examples
    --------
    >>> Tuned("heres", {"n_components": [4, 8]}, threshold=True).by
    'micro_f1'
    """

    method: Any
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    by: str | Callable[..., float] = "micro_f1"
    share: float = 1 / 3
    threshold: bool | Sequence[float] = False

    def __post_init__(self) -> None:
        if not isinstance(self.grid, Mapping):
            raise TypeError(f"Expected grid as setting -> values, got {type(self.grid).__name__}")
        for name, values in self.grid.items():
            if isinstance(values, str) or not hasattr(values, "__len__") or not len(values):
                raise ValueError(f"Expected values to try for {name!r}, got {values!r}")
        if not isinstance(self.share, int | float) or not 0 < self.share < 1:
            raise ValueError(f"Expected a share of the rows within (0, 1), got {self.share!r}")
        if not isinstance(self.threshold, bool):
            if not numbers(np.ravel(self.threshold), "thresholds").size:
                raise ValueError("Expected at least one threshold, got none")
        if self.metric in METRICS[len(DECISIONS) :] and self.threshold is not False:
            raise ValueError(f"Expected a threshold chosen by one of {DECISIONS}, got {self.by!r}")

    @property
    def metric(self) -> str | Callable[..., float]:
        """What the settings are chosen by."""
        return read_metric(self.by)

    def thresholds(self, Y: np.ndarray, score: np.ndarray) -> list[float | None]:
        """What to choose from; None is the method's own rule."""
        if not isinstance(self.threshold, bool):
            return np.ravel(self.threshold).astype(float).tolist()
        if not self.threshold:
            return [None]
        down, many = np.sort(score, axis=None)[::-1], np.rint(Y.sum() * AS_MANY).astype(int)
        return [None, *dict.fromkeys(down[np.clip(many, 1, down.size) - 1].tolist())]

    def settings(self) -> Iterator[dict[str, Any]]:
        """Every combination of the grid."""
        for values in itertools.product(*self.grid.values()):
            yield dict(zip(self.grid, values, strict=True))


class Way(NamedTuple):
    """How one method is run."""

    what: Any  # a factorization's name or record, a comparator's name, or a function
    hyper: dict[str, Any]
    engine: Any
    tuned: Tuned | None

    @property
    def kind(self) -> str:
        if isinstance(self.what, str):
            return "factorization" if self.what in REGISTRY else "comparator"
        return "factorization" if isinstance(self.what, Method) else "function"


def read_way(given: Any) -> Way:
    """A method as users write it, checked as far as that goes without data."""
    if isinstance(given, Tuned):
        if isinstance(given.method, Tuned):
            raise TypeError("Expected one grid, got Tuned of Tuned")
        way = read_way(given.method)
        _check_settings(way, given.grid)
        return way._replace(tuned=given)
    parts = given if isinstance(given, tuple) else (given,)
    if not 1 <= len(parts) <= 3 or len(parts) > 1 and not isinstance(parts[1], Mapping):
        raise TypeError(
            f"Expected name, (name, settings) or (name, settings, engine), got {given!r}"
        )
    whole: tuple[Any, ...] = (*parts, *({}, None)[len(parts) - 1 :])
    what, hyper, engine = whole
    if not isinstance(what, str | Method) and not callable(what):
        raise TypeError(f"Expected a method's name, Tuned or a function, got {type(what).__name__}")
    if isinstance(what, str) and what not in {**REGISTRY, **comparators.NAMED}:
        raise UnknownName(unknown("method", what, [*REGISTRY, *comparators.NAMED]))
    way = Way(what, dict(hyper), engine, None)
    if way.kind == "factorization" and lookup(what).data is not Tasks:
        takes = lookup(what).data.__name__
        raise TypeError(
            f"Expected a method for Tasks, got {lookup(what).name}, which takes {takes}"
        )
    if way.kind != "factorization" and engine is not None:
        raise TypeError(f"Expected an engine for a factorization only, got one for {what!r}")
    _check_settings(way, hyper)
    return way


def _check_settings(way: Way, given: Mapping[str, Any]) -> None:
    if way.kind == "function":
        return
    if way.kind == "factorization":
        name, known = lookup(way.what).name, lookup(way.what).Hyper._fields
    else:
        name, known = way.what, tuple(options_of(way.what))
    for setting in given:
        if setting not in known:
            raise UnknownName(unknown(f"setting of {name}", setting, known))


def options_of(name: str) -> list[str]:
    """The settings that a comparator takes."""
    parameters = inspect.signature(comparators.NAMED[name]).parameters.values()
    return [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]


def read_metric(given: Any) -> str | Callable[..., float]:
    """The name of a measure of `bf.multilabel`, or a function of one's own."""
    if callable(given) and not hasattr(given, "__name__"):
        raise TypeError(f"Expected a metric with a name, got {given!r:.60}")
    if not callable(given) and given not in METRICS:
        raise UnknownName(unknown("metric", given, METRICS))
    return next((name for name in METRICS if given in (name, getattr(multilabel, name))), given)


def name_of(metric: Any) -> str:
    """A measure's name."""
    return metric if isinstance(metric, str) else metric.__name__
