"""Settings that the user left open are chosen from the training data, by cells that are held out.

A method names candidates in `Method.choices`. `choose` holds out a tenth of the training data, fits some
of the candidates to the rest by few steps, and takes the candidate that predicts the held-out part best. The
search climbs: it begins in the middle of the list, goes on towards stronger settings from the fit that it
has, or towards weaker settings from a fresh start, and stops when the score gets worse.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayesfac.core.data.cells import Grid
from bayesfac.core.data.divided.large import LargeRatings
from bayesfac.core.data.ratings import Ratings
from bayesfac.core.data.reading import positions_of
from bayesfac.core.data.scaling import rescaled
from bayesfac.core.data.tasks import LABELS, Tasks
from bayesfac.core.data.views import Views
from bayesfac.core.errors import BayesfacError
from bayesfac.core.laws.labels import FEWEST, best_cut, in_models_unit, reading, unread
from bayesfac.core.method import Method, settle
from bayesfac.inference.gradient import as_rows
from bayesfac.inference.lbfgs import advance, begin
from bayesfac.inference.predictions.held_out import loss
from bayesfac.inference.result import Job, check_number
from bayesfac.inference.unconstrained import constrain, supports, unconstrain
from bayesfac.multilabel import micro_f1
from bayesfac.split import holdout

SHARE = 0.1  # of the training data, held out
LEAST = 500  # ratings or counts; a tenth of fewer chooses by chance
ROWS = 1 / 3  # of the labelled rows of every task lose their labels, to choose a cut
TIMES = 3  # such thirds, drawn one by one: the cut is that of all their scores
LEAST_ROWS = 50  # labelled rows; a third of fewer rows chooses by chance
ROW_SWEEPS = 60  # of a method's own update for the cut, at most
BLOCK, STILL = 10, 1e-4  # the sweeps end when a block lowers the objective by less than this share
ITERATIONS = 60  # of L-BFGS for each candidate
# the scores of two settings that leave no factors differ by such a share, or by those of so many cells
ALIKE, CELLS = 1e-5, 3
Pair = tuple[np.ndarray, np.ndarray]  # labels and their scores, rows x labels


@dataclass
class Chosen:
    """The settings, those that were chosen, and a sentence for each list of candidates."""

    hyper: dict[str, Any]
    values: dict[str, Any] = field(default_factory=dict)
    how: list[str] = field(default_factory=list)

    def add(self, values: Mapping[str, Any], why: str) -> None:
        """Keep chosen values, and the sentence that names them."""
        self.hyper |= values
        self.values |= values
        self.how.append(f"chosen: {named(values)}, {why}")


def choose(method: Method, data: Any, hyper: Mapping[str, Any], seed: int) -> Chosen:
    """Choose what the user left open; a method without candidates costs nothing.

    `hyper` has the settings that the user gave. The seed decides which cells are held out.
    """
    found = Chosen({name: value for name, value in hyper.items() if value is not None})
    if isinstance(data, Tasks):
        return by_rows(method, data, found, seed)
    if method.choices is None:
        return found
    settle(method, data, found.hyper)  # wrong settings are refused before anything is fitted
    if isinstance(data, Ratings | Views) and size(data) < LEAST:
        return found
    given, parts = method.Hyper(**found.hyper), None
    while candidates := method.choices(data, given, found.values):
        if isinstance(data, LargeRatings):
            names = ", ".join(sorted({name for one in candidates for name in one}))
            raise BayesfacError(
                f"Expected values for {names}: ratings that were read in shares leave none to choose them "
                "by. fit.hyper of a fit to fewer of the ratings has values"
            )
        parts = parts or holdout(data, SHARE, seed=seed)
        search = Search(method, *parts, found.hyper, candidates, jax.random.key(seed))
        best = climb(len(candidates), search.score, CELLS / size(parts[1]))
        found.add(search.refined(best), search.told())
    return found


def reduced(method: Method, given: Mapping[str, Any], settled: Any) -> list[str]:
    """A sentence for every default number, as of components, that `settle` reduced to what the data allow."""
    numbers = {k: v for k, v in method.Hyper._field_defaults.items() if type(v) is int}
    return [
        f"chosen: {name}={getattr(settled, name)}, the largest value that the data allow"
        for name, default in numbers.items()
        if name not in given and getattr(settled, name) < default
    ]


def by_rows(method: Method, data: Tasks, found: Chosen, seed: int) -> Chosen:
    """Choose a candidate, and how scores are read, where `prepare` leaves them open.

    Scores of labels of 0 and 1 need a cut, those of numbers the sds of the labels around them. A third of
    the labelled rows of every task lose their labels. A short fit to all other labels scores them as it
    would score new rows; the candidate is the one whose scores have the best micro-F1, each at its own cut,
    or the smallest errors. Two more thirds are drawn and scored under this candidate, and the cut or the
    sds are those of all scores: one third of few rows has too few labels to place them well.
    """
    settled = settle(method, data, found.hyper)
    if method.choices is None and (done := filled(method, settled, found.hyper)):
        found.add(done, "by the training rows")  # so `prepare` need not choose it again
    binary = getattr(settled, "binary", False)
    left_open = hasattr(settled, "binary") and unread(settled)
    given = method.Hyper(**found.hyper)
    candidates = (method.choices and method.choices(data, given, found.values)) or [{}]
    rows = int(data.labelled.sum())
    if rows < LEAST_ROWS:
        candidates = [{}]  # the usual one
    some = rows >= (LEAST_ROWS if binary else FEWEST) and max(data.host.labelled) > 1
    if not some or not (left_open or len(candidates) > 1):
        return found

    def tried(number: int, several: Sequence[Mapping[str, Any]]) -> list[Pair]:
        part = holdout(data, ROWS, seed=seed + number)
        return scores_of_candidates(method, part, found.hyper, several, jax.random.key(seed))

    seen = tried(0, candidates)
    judge = best_f1 if binary else explained
    quality = [judge(*each) for each in seen]
    best = int(np.argmax(quality))
    values, told = dict(candidates[best]), [seen[best]]
    if left_open:
        for k in range(1, TIMES):
            told += tried(k, [values])
        truth, score = map(np.vstack, zip(*told, strict=True))
        values |= reading(truth, score, binary)
    if values:
        what = "the micro-F1 of" if binary else "the share of variance explained in"
        short, rows = len(seen) + len(told) - 1, len(seen[0][0])
        found.add(
            values,
            f"by {what} {rows} rows whose labels were held out: {quality[best]:.3f}, lowest "
            f"{min(quality):.3f} in {short} short fits",
        )
    return found


def filled(method: Method, settled: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that were left open and that `prepare` chose."""
    usual, own = method.Hyper._field_defaults, settled._asdict()
    if not getattr(settled, "binary", True):
        own.pop("cut", None)  # numbers have none
    left = [name for name in own if name not in given and usual.get(name, 0) is None]
    return {name: own[name] for name in left if own[name] is not None}


def best_f1(truth: np.ndarray, score: np.ndarray) -> float:
    """The micro-F1 at the best cut of the scores."""
    return micro_f1(truth, score > best_cut(truth, score), empty=0.0)


def explained(truth: np.ndarray, score: np.ndarray) -> float:
    """The mean share of the variance of labels that the scores explain.

    >>> explained(np.array([[0.0, 1], [2, 1]]), np.array([[0.0, 1], [1, 1]]))
    0.5
    """
    varied = truth[:, truth.std(0) > 0], score[:, truth.std(0) > 0]
    left = np.mean((varied[0] - varied[1]) ** 2, 0) / varied[0].var(0)
    return float(1 - left.mean()) if left.size else 0.0


class Settings:
    """Candidates, and the compiled programs that they need.

    If candidates differ only in numbers above 0, one program serves all and takes the numbers as arguments.
    Otherwise each candidate has a program of its own.
    """

    def __init__(
        self, method: Method, data: Any, hyper: Mapping[str, Any], candidates: Sequence[Mapping[str, Any]]
    ) -> None:  # fmt: skip
        self.settled = [settle(method, data, {**hyper, **one}) for one in candidates]
        fields = zip(method.Hyper._fields, zip(*self.settled, strict=True), strict=True)
        self.open = [name for name, values in fields if len(set(values)) > 1]
        found = jax.tree.leaves([getattr(one, name) for one in self.settled for name in self.open])
        self.numbers = all(isinstance(x, float) and x > 0 for x in found)

    def program(self, number: int) -> tuple[Any, dict[str, Any]]:
        """The settings that a program is compiled for, and the numbers of a candidate to put in them."""
        if not self.numbers:
            return self.settled[number], {}
        return self.settled[0], {name: getattr(self.settled[number], name) for name in self.open}


def scores_of_candidates(
    method: Method, part: tuple[Tasks, Tasks], hyper: Mapping[str, Any],
    candidates: Sequence[Mapping[str, Any]], key: jax.Array,
) -> list[Pair]:  # fmt: skip
    """The labels of the held-out rows, and their scores after a short fit under each candidate."""
    settings, truth = Settings(method, part[0], hyper, candidates), part[1][LABELS].toarray()
    return [
        (truth, scores_of_rows(method, *part, settled, settings.program(number), key))
        for number, settled in enumerate(settings.settled)
    ]


def scores_of_rows(
    method: Method, train: Tasks, held: Tasks, hyper: Any, program: tuple[Any, dict[str, Any]],
    key: jax.Array,
) -> np.ndarray:  # fmt: skip
    """The scores of the held-out rows after some sweeps on the other rows, rows x labels.

    `program` is what `Settings` says of the candidate.
    """
    data = method.ready(train, hyper)
    p = (method.start or method.init)(key, data, hyper)
    if "starts_solved" not in method.traits:
        settings, numbers = (
            program  # without the unit of these labels, one program serves all thirds
        )
        p = swept_by_blocks(method, in_models_unit(settings), numbers, p, data)
    p = p._replace(**method.derive(p, data, hyper)) if method.derive else p
    if (fold_in := method.fold_in) is not None:  # as rows that come after the fit
        none = train.take(np.ones(train.n_rows, bool), labelled=np.zeros(train.n_rows, bool))
        new = rescaled(none, data.host.scales) if data.host.scales else none
        p = jax.jit(lambda p, new: fold_in(p, new, hyper))(p, new)
    rows = positions_of(train.rows, held.rows)
    outcome = method.predict(p, Grid(rows, np.arange(len(train.labels))), hyper)
    return np.asarray(getattr(outcome, "score", outcome.mean), np.float64)


@partial(jax.jit, static_argnums=(0, 1))
def swept_by_blocks(method: Method, hyper: Any, values: dict[str, Any], p: Any, data: Any) -> Any:
    """Params after sweeps of the method's own update, with `values` in the place of settings.

    The sweeps end when a block of them hardly lowers the objective.
    """
    update, hyper = method.update, hyper._replace(**values)
    assert update is not None  # every method that leaves its cut open has a solver of its own

    def block(state: tuple) -> tuple:
        p = jax.lax.fori_loop(0, BLOCK, lambda _, p: update(p, data, hyper), state[1])
        return state[0] + BLOCK, p, method.objective(p, data, hyper), state[2]

    def moving(state: tuple) -> jax.Array:
        number, _, cost, before = state
        return (number < ROW_SWEEPS) & ~(before - cost < STILL * jnp.abs(cost))

    nothing = jnp.full((), jnp.inf, method.objective(p, data, hyper).dtype)
    return jax.lax.while_loop(moving, block, (0, p, nothing, nothing))[1]


def climb(n: int, score: Callable[[int, bool], float], same: float = 0.0) -> int:
    """The number with the lowest score, for scores that fall and then rise; `score(number, further)`.

    `further` says that the number before was scored just now: the search goes on in the same direction.
    Settings so strong that they leave no factors have equal scores, or scores that differ by `same` at most:
    downwards, the search crosses them.

    >>> climb(7, lambda number, further: (number - 5) ** 2)
    5
    >>> climb(7, lambda number, further: min(1, abs(number - 1)))
    1
    """
    middle = n // 2
    scores = {middle: score(middle, False)}
    for step in (1, -1):
        at = middle
        while 0 <= at + step < n:
            scores[at + step] = score(at + step, step > 0)
            gain = scores[at] - scores[at + step]
            alike = step < 0 and abs(gain) <= max(same, ALIKE * abs(scores[at]))
            if not (gain > 0 or alike):
                break
            at += step
        if scores[middle] - scores[at] > same:
            break
    return min(scores, key=lambda number: (scores[number], -number))


class Search:
    """Short fits under one list of candidates, each scored on the held-out part."""

    def __init__(
        self, method: Method, train: Any, held: Any, hyper: Mapping[str, Any],
        candidates: Sequence[Mapping[str, Any]], key: jax.Array,
    ) -> None:  # fmt: skip
        self.method, self.held, self.candidates, self.key = method, held, candidates, key
        self.train, self.scores = train, dict[int, float]()
        self.settings = Settings(method, train, hyper, candidates)
        self.programs: dict[int, Callable[..., Any]] = {}
        self.last: Any = None

    def score(self, number: int, further: bool) -> float:
        """The mean loss of the candidate on the held-out part, after few steps."""
        hyper, numbers = self.settings.settled[number], self.settings.numbers
        data = self.method.ready(self.train, hyper)
        job = Job(self.method, data, hyper, self.key)
        own = self.method.start  # which may depend on the candidate
        warm = further and numbers and own is None
        start = self.last if warm else job.start_point(self.key, own)
        settled, values = self.settings.program(number)
        if self.method.update is not None:
            p = swept(self.method, settled, start, data, values)
        else:
            key = 0 if numbers else number
            p = descended(job, start, list(values), tuple(values.values()), self.programs, key)
        self.last = p
        if self.method.derive:
            p = p._replace(**self.method.derive(p, data, hyper))
        self.scores[number] = loss(self.method, p, self.train, self.held, settled, values)
        check_number(self.scores[number], "score", f"under {dict(self.candidates[number])}")
        return self.scores[number]

    def refined(self, best: int) -> dict[str, Any]:
        """The best candidate; of numbers above 0, the minimum of the parabola through three scores."""
        before, here, after = (self.scores.get(best + step) for step in (-1, 0, 1))
        values = dict(self.candidates[best])
        if not self.settings.numbers or before is None or after is None or here is None:
            return values
        bend = before - 2 * here + after
        step = (before - after) / (2 * bend) if bend > 0 else 0.0
        toward = self.candidates[best + (1 if step > 0 else -1)]
        return jax.tree.map(lambda a, b: float(a * (b / a) ** abs(step)), values, dict(toward))

    def told(self) -> str:
        """The end of a sentence: from what was chosen, and by what."""
        ends = [shown(next(iter(self.candidates[i].values()))) for i in (0, -1)]
        least, most = min(self.scores.values()), max(self.scores.values())
        unit = "counts" if isinstance(self.held, Views) else "cells"
        judge = f"the loss of {size(self.held)} held-out {unit}"
        if self.method.choice_by == "ranks":
            judge = "the ranks of held-out pairs"
        return (
            f"from {len(self.candidates)} candidates ({ends[0]} to {ends[1]}), by "
            f"{judge}: {least:.4g}, largest {most:.4g} in "
            f"{len(self.scores)} short fits"
        )


def size(data: Any) -> int:
    """How many cells there are; of views, how many counts."""
    return int(sum(y.sum() for y in data.y.values())) if isinstance(data, Views) else len(data)


def named(values: Mapping[str, Any]) -> str:
    """Settings in few digits, with their names."""
    return ", ".join(f"{name}={shown(value)}" for name, value in values.items())


def shown(value: Any) -> str:
    """A setting in few digits; of many numbers the first three."""
    if isinstance(value, tuple):
        rest = f", ... ({len(value)} in all)" * (len(value) > 3)
        return f"({', '.join(map(shown, value[:3]))}{rest})"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@partial(jax.jit, static_argnums=(0, 1))
def swept(method: Method, hyper: Any, p: Any, data: Any, values: dict[str, Any]) -> Any:
    """Params after a few sweeps of the method's own update, with `values` in the place of settings."""
    update, hyper = method.update, hyper._replace(**values)
    assert update is not None  # `Search` looked
    return jax.lax.fori_loop(0, method.choice_sweeps, lambda _, p: update(p, data, hyper), p)


def descended(job: Job, p: Any, names: list[str], values: tuple, programs: dict, key: int) -> Any:
    """Params after a few iterations of L-BFGS on the objective."""
    method, data = job.method, job.data
    transforms = supports(method, data, job.hyper, p)
    z, restore = as_rows(unconstrain(transforms, p), several=False)

    def params(z: jax.Array) -> Any:
        return constrain(method, transforms, restore(z))

    if key not in programs:

        def objective(z: jax.Array, data: Any, values: tuple) -> jax.Array:
            hyper = job.hyper._replace(**dict(zip(names, values, strict=True)))
            return method.objective(params(z), data, hyper)

        programs[key] = jax.jit(jax.value_and_grad(objective))

    def look(z: np.ndarray, live: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, slope = programs[key](jnp.asarray(z[0])[None], data, values)
        return np.array([float(value)]), np.array(slope)

    at = begin(look, np.array(z))
    for _ in range(ITERATIONS):
        advance(look, at, memory=5, tol=1e-6, gtol=1e-8)
        if not len(at.live):
            break
    return params(jnp.asarray(at.z))
