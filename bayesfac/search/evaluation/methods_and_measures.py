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
from bayesfac.core.errors import check_names
from bayesfac.core.method import REGISTRY, Method, lookup

DECISIONS = ("hamming_loss", "accuracy", "subset_accuracy", "example_f1", "macro_f1", "micro_f1")
SMALLER = (  # measures of which smaller values are better
    "hamming_loss", "ranking_loss", "coverage_error", "one_error", "brier", "log_loss",
    "expected_calibration_error",
)  # fmt: skip
METRICS = (*DECISIONS, "average_precision", *SMALLER[1:])
RATIOS = 4.0 ** (np.arange(-9, 10) / 9)  # predicted / true labels, one for each threshold


@dataclass(frozen=True)
class Tuned:
    """A method whose settings are chosen in every fold, on rows that are held out from the training rows.

    Parameters
    ----------
    method
        A method as `bf.evaluate` takes it.
    grid : mapping
        Setting -> values. All combinations are tried. A function gets the settings as keyword arguments.
    by : str or callable
        The measure that decides: the name of a measure of `bf.multilabel`, or a function f(Y, predicted) of
        which larger values are better.
    share : float
        The share of every task's training rows that is held out, at random. The method is then fitted to all
        training rows with the chosen settings.
    threshold : bool or sequence of float
        Thresholds for the scores, from which one is chosen on the same rows. True means the method's own
        rule and 19 thresholds. The lowest predicts four times as many labels as are true, the highest a
        quarter as many.

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
        """The measure by which settings are chosen."""
        return read_metric(self.by)

    def thresholds(self, Y: np.ndarray, score: np.ndarray) -> list[float | None]:
        """The thresholds to choose from; None is the method's own rule."""
        if not isinstance(self.threshold, bool):
            return np.ravel(self.threshold).astype(float).tolist()
        if not self.threshold:
            return [None]
        down, many = np.sort(score, axis=None)[::-1], np.rint(Y.sum() * RATIOS).astype(int)
        return [None, *dict.fromkeys(down[np.clip(many, 1, down.size) - 1].tolist())]

    def settings(self) -> Iterator[dict[str, Any]]:
        """Every combination of the grid."""
        for values in itertools.product(*self.grid.values()):
            yield dict(zip(self.grid, values, strict=True))


class Runner(NamedTuple):
    """A method and how to run it."""

    what: Any  # a factorization's name or record, a comparator's name, or a function
    hyper: dict[str, Any]
    engine: Any
    tuned: Tuned | None

    @property
    def kind(self) -> str:
        if isinstance(self.what, str):
            return "factorization" if self.what in REGISTRY else "comparator"
        return "factorization" if isinstance(self.what, Method) else "function"


def read_method(method: Any) -> Runner:
    """Read a method as users write it, and check it as far as possible without data."""
    if isinstance(method, Tuned):
        if isinstance(method.method, Tuned):
            raise TypeError("Expected one grid, got Tuned of Tuned")
        runner = read_method(method.method)
        _check_settings(runner, method.grid)
        return runner._replace(tuned=method)
    what, hyper, engine = parts_of(method)
    if not isinstance(what, str | Method) and not callable(what):
        raise TypeError(f"Expected a method's name, Tuned or a function, got {type(what).__name__}")
    if isinstance(what, str):
        check_names("method", (what,), [*REGISTRY, *comparators.NAMED])
    runner = Runner(what, hyper, engine, None)
    if runner.kind == "factorization" and lookup(what).data is not Tasks:
        got = f"{lookup(what).name}, which takes {lookup(what).data.__name__}"
        raise TypeError(f"Expected a method for Tasks, got {got}")
    if runner.kind != "factorization" and engine is not None:
        raise TypeError(f"Expected an engine for a factorization only, got one for {what!r}")
    _check_settings(runner, hyper)
    return runner


def parts_of(method: Any) -> tuple[Any, dict[str, Any], Any]:
    """Name, settings and engine of a method that users write with or without the last two."""
    parts = method if isinstance(method, tuple) else (method,)
    if not 1 <= len(parts) <= 3 or len(parts) > 1 and not isinstance(parts[1], Mapping):
        raise TypeError(
            f"Expected name, (name, settings) or (name, settings, engine), got {method!r}"
        )
    whole: tuple[Any, ...] = (*parts, *({}, None)[len(parts) - 1 :])
    return whole[0], dict(whole[1]), whole[2]


def _check_settings(runner: Runner, settings: Mapping[str, Any]) -> None:
    if runner.kind == "function":
        return
    if runner.kind == "factorization":
        name, known = lookup(runner.what).name, lookup(runner.what).Hyper._fields
    else:
        name, known = runner.what, tuple(options_of(runner.what))
    check_names(f"setting of {name}", settings, known)


def options_of(name: str) -> list[str]:
    """The settings that a comparator takes, and `scaled`, with which it gets scaled features."""
    parameters = inspect.signature(comparators.NAMED[name]).parameters.values()
    return [*(p.name for p in parameters if p.kind is p.KEYWORD_ONLY), "scaled"]


def read_metric(metric: Any) -> str | Callable[..., float]:
    """The name of a measure of `bf.multilabel`, or the user's own function."""
    if callable(metric) and not hasattr(metric, "__name__"):
        raise TypeError(f"Expected a metric with a name, got {metric!r:.60}")
    if not callable(metric):
        check_names("metric", (metric,), METRICS)
    return next((name for name in METRICS if metric in (name, getattr(multilabel, name))), metric)


def name_of(metric: Any) -> str:
    """A measure's name."""
    return metric if isinstance(metric, str) else metric.__name__
