"""The candidates of `bf.auto`: their list, how each is fitted and scored, and how its result is stored."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bayesfac.api import fit as run_fit
from bayesfac.choosing.trials import Trial, heard, parts_of, write
from bayesfac.core.errors import BayesfacError, check_names
from bayesfac.core.keys import own_code
from bayesfac.core.method import REGISTRY, contain, lookup
from bayesfac.fits.fit import Fit
from bayesfac.inference import engine_for
from bayesfac.search.automatic.judges import LogScores, Weights, judge_of


class Candidate(NamedTuple):
    """A method with settings, and an engine (None: the method's own solver)."""

    method: str
    settings: dict[str, Any]
    engine: Any = None

    @property
    def name(self) -> str:
        """The method, the settings other than the number of components, and the engine."""
        given = {k: v for k, v in self.settings.items() if k != "n_components"}
        told = f" ({', '.join(f'{k}={v!r}' for k, v in given.items())})" if given else ""
        return f"{self.method}{told}" + (f" by {type(self.engine).__name__}" if self.engine else "")

    @property
    def key(self) -> dict[str, Any]:
        """What distinguishes the candidate from others, for its file."""
        engine = self.engine and [type(self.engine).__name__, vars(self.engine)]
        return {"method": own_code(self.method), "settings": self.settings, "engine": engine}

    def sized(self, size: int) -> "Candidate":
        """The same candidate with another number of components."""
        return self._replace(settings={**self.settings, "n_components": size})


@dataclass(frozen=True, eq=False)
class Tried:
    """The result of one candidate; `refused` says why there is no score."""

    name: str
    size: int | None = None
    score: float = math.nan
    measure: float = math.nan
    seconds: float = 0.0
    sums: np.ndarray = field(default_factory=lambda: np.zeros(0))  # log scores, see Weights
    notes: tuple[str, ...] = ()
    refused: str = ""

    @property
    def label(self) -> str:
        """The name with the number of components."""
        return self.name if self.size is None else f"{self.name} with n_components={self.size}"


def scored(name: str, found: LogScores, weights: Weights, **rest: Any) -> Tried:
    """The result of a candidate, or of the baseline, from its log scores."""
    sums = weights.sums(found.log)
    score = float(sums.sum() / weights.sums().sum())
    return Tried(name, score=score, measure=found.measure, sums=sums, **rest)


def listed(data: Any, methods: Any, components: Sequence[int] | None) -> list[list[Candidate]]:
    """The candidates that are tried, in groups, before other numbers of components."""
    if methods is None:
        judge = judge_of(data)
        first, then = judge.groups(data)
        known = [*judge.first, *judge.then]
        rest = [n for n, m in sorted(REGISTRY.items()) if m.data is type(data) and n not in known]
        groups = [first, (*then, *rest)]
    elif isinstance(methods, str) or not isinstance(methods, Sequence) or not methods:
        raise TypeError(f"Expected methods as a list of names, got {methods!r}")
    else:
        groups = [tuple(methods)]
    found = [[read_candidate(one, data) for one in group] for group in groups]
    if components is None:
        return found
    every = [one for group in found for one in group]
    sized = [one for one in every if "n_components" in lookup(one.method).Hyper._fields]
    if not sized:
        raise ValueError(f"Expected methods with n_components, got {[one.name for one in every]}")
    return [[one.sized(int(size)) for size in components for one in sized]]


def read_candidate(one: Any, data: Any) -> Candidate:
    """A candidate as users write it; an unknown method, setting or engine is an error at once."""
    name, settings, engine = parts_of(one)
    contain(method := lookup(name), data)
    check_names(f"hyper-parameter of {method.name}", settings, method.Hyper._fields)
    engine = None if engine is None else engine_for(engine, method)
    return Candidate(method.name, settings, engine)


# -- one candidate --------------------------------------------------------------------------------
def run(
    one: Candidate, parts: Any, weights: Weights, seed: int, path: Path | None
) -> tuple[Candidate, Tried]:
    """Fit a candidate to the first part and score it on the second."""
    begun, notes = time.perf_counter(), list[str]()
    train, test = parts
    with heard(notes):
        try:
            fit = _fitted(one, train, test, seed)
            found = judge_of(test).of_fit(fit, train, test)
            if np.isnan(found.log).any():  # NaN has no place among the scores, and could win
                raise BayesfacError("Expected log scores of held-out data, got NaN")
        except (ValueError, BayesfacError) as wrong:  # the table shows why
            return one, Tried(one.name, one.settings.get("n_components"), refused=str(wrong))
    told = tuple(dict.fromkeys([*notes, *fit.result.notes]))
    rest = {"size": getattr(fit.hyper, "n_components", None), "notes": told}
    result = scored(one.name, found, weights, seconds=time.perf_counter() - begun, **rest)
    if path is not None:
        write(path, Trial("data", one.name, 0, path), _as_json(result))
    return one, result


def _fitted(one: Candidate, train: Any, test: Any, seed: int) -> Fit:
    """The fit to the training part, which predicts the test part."""
    method, judge, engine = lookup(one.method), judge_of(test), one.engine
    if getattr(engine, "folder", None) is not None:
        engine = replace(engine, folder=None)  # the folder is for the fit to all data
    seen = judge.seen(method, train, test)
    fit = run_fit(method, seen, engine, seed=seed, progress=False, **one.settings)
    if fit.partial:
        raise KeyboardInterrupt("interrupted during a fit: a part of it is no finished candidate")
    return judge.asked(fit, test)


def _as_json(one: Tried) -> dict[str, Any]:
    scores = {"log score": one.score, "measure": one.measure}
    scores |= {str(group): float(each) for group, each in enumerate(one.sums)}
    rest = {"name": one.name, "size": one.size, "seconds": one.seconds, "notes": list(one.notes)}
    return {"scores": scores, **rest}


def from_json(kept: Mapping[str, Any]) -> Tried:
    """The result that `run` stored."""
    scores = dict(kept["scores"])
    found = {"score": scores.pop("log score"), "measure": scores.pop("measure")}
    sums = np.array([scores[str(group)] for group in range(len(scores))])
    rest = {"seconds": kept["seconds"], "notes": tuple(kept["notes"])}
    return Tried(kept["name"], kept["size"], sums=sums, **found, **rest)
