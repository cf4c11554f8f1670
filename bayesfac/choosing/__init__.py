"""Settings that the user left open are chosen from the training data, by cells or rows that are held out.

A method names candidates in `Method.choices`. `choose` holds out a tenth of the training data, fits some
of the candidates to the rest by few steps, and takes the candidate that predicts the held-out part best. Of
data with labels, a third of the labelled rows is held out.

The search climbs: it begins in the middle of the list, goes on towards stronger settings from the fit that it
has, or towards weaker settings from a fresh start, and stops when the score gets worse. If each candidate is
the one before times the same factor, the search goes on beyond the ends of the list, for half its length.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial, singledispatch
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayesfac.choosing.settings import Chosen, Settings, shown
from bayesfac.core.errors import BayesfacError, noted
from bayesfac.core.method import Method, settle
from bayesfac.inference.gradient import as_rows
from bayesfac.inference.lbfgs import Descent, advance, begin
from bayesfac.inference.predictions.held_out import loss
from bayesfac.inference.result import Job, check_number
from bayesfac.inference.unconstrained import constrain, supports, unconstrain
from bayesfac.split import holdout

SHARE = 0.1  # of the training data, held out
LEAST = 500  # ratings or counts; a tenth of fewer chooses by chance


def choose(method: Method, data: Any, hyper: Mapping[str, Any], seed: int) -> Chosen:
    """Choose what the user left open; a method without candidates costs nothing.

    `hyper` has the settings that the user gave. The seed decides which cells are held out.
    """
    found = Chosen({name: value for name, value in hyper.items() if value is not None})
    return choose_for(data, method, found, seed)


@singledispatch
def choose_for(data: Any, method: Method, found: Chosen, seed: int) -> Chosen:
    """`choose` for one kind of data: by held-out cells, unless the container has another way."""
    if method.choose.candidates is None:
        return found
    settle(method, data, found.hyper)  # wrong settings are refused before anything is fitted
    if data.two_way and data.amount < LEAST:
        return found
    given, parts, programs = method.Hyper(**found.hyper), None, dict[Any, Any]()
    while candidates := method.choose.candidates(data, given, found.values):
        if not data.present:
            names = ", ".join(sorted({name for one in candidates for name in one}))
            raise BayesfacError(
                f"Expected values for {names}: ratings that were read in shares leave none to choose them "
                "by. fit.hyper of a fit to fewer of the ratings has values"
            )
        parts = parts or holdout(data, SHARE, seed=seed)
        also = varied(method, data, given, found.values)
        key = jax.random.key(seed)
        search = Search(method, *parts, found.hyper, candidates, key, also, programs)
        best = climb(len(candidates), search.score, search.same, search.beyond)
        found.add(search.refined(best), search.told(best))
    return found


def varied(method: Method, data: Any, given: Any, chosen: Mapping[str, Any]) -> set[str]:
    """The settings that were chosen, and those that this list of candidates and all later ones vary."""
    values = dict(chosen)
    while candidates := method.choose.candidates and method.choose.candidates(data, given, values):
        values |= candidates[0]
    return set(values)


def reduced(method: Method, given: Mapping[str, Any], settled: Any) -> list[str]:
    """A sentence for every default number, as of components, that `settle` reduced to what the data allow."""
    numbers = {k: v for k, v in method.Hyper._field_defaults.items() if type(v) is int}
    return [
        f"chosen: {name}={getattr(settled, name)}, the largest value that the data allow"
        for name, default in numbers.items()
        if name not in given and getattr(settled, name) < default
    ]


# -- candidates on held-out cells -----------------------------------------------------------------
ITERATIONS, MEMORY, TOLERANCE = 60, 5, 1e-6  # of L-BFGS for each candidate
# the scores of two settings that leave no factors differ by such a share, or by those of so many cells
ALIKE, CELLS = 1e-5, 3


def climb(n: int, score: Callable[[int, bool], float], same: float = 0.0, beyond: int = 0) -> int:
    """The number with the lowest score, for scores that fall and then rise; `score(number, further)`.

    Numbers are from 0 to n - 1. `beyond` these, the search goes on while scores fall by more than `same`.

    `further` says that the number before was scored just now: the search goes on in the same direction.
    Settings so strong that they leave no factors have equal scores, or scores that differ by `same` at most:
    downwards, the search crosses them.

    >>> climb(7, lambda number, further: (number - 5) ** 2)
    5
    >>> climb(7, lambda number, further: min(1, abs(number - 1)))
    1
    >>> climb(7, lambda number, further: abs(number - 8), beyond=3)
    8
    """
    middle = n // 2
    scores = {middle: score(middle, False)}
    for step in (1, -1):
        at = middle
        while -beyond <= at + step < n + beyond:
            scores[at + step] = score(at + step, step > 0)
            gain, inside = scores[at] - scores[at + step], 0 <= at + step < n
            alike = step < 0 and abs(gain) <= max(same, ALIKE * abs(scores[at]))
            if not inside and not gain > same:
                del scores[at + step]
                break
            if not (gain > 0 or alike):
                break
            at += step
        if scores[middle] - scores[at] > same:
            break
    return min(scores, key=lambda number: (scores[number], -number))


class Search:
    """Short fits under one list of candidates, each scored on the held-out part.

    `also` names settings that the fit's other lists vary. `programs` are those that the other lists compiled.
    """

    def __init__(
        self, method: Method, train: Any, held: Any, hyper: Mapping[str, Any],
        candidates: Sequence[Mapping[str, Any]], key: jax.Array,
        also: Collection[str] = (), programs: dict | None = None,
    ) -> None:  # fmt: skip
        self.method, self.held, self.candidates, self.key = method, held, candidates, key
        self.train, self.scores = train, dict[int, float]()
        self.settings = Settings(method, train, hyper, candidates, also=also)
        self.programs: dict[Any, Callable[..., Any]] = {} if programs is None else programs
        self.same, self.ratio = CELLS / held.amount, ratio(candidates)
        self.beyond = len(candidates) // 2 if self.ratio else 0
        self.last: Any = None

    def score(self, number: int, further: bool) -> float:
        """The mean loss of the candidate on the held-out part, after few steps."""
        settled = self.settings.settled
        if number not in settled:
            settled[number] = self.settings.settle(self.candidate(number))
        hyper, numbers = settled[number], self.settings.numbers
        data = self.method.ready(self.train, hyper)
        job = Job(self.method, data, hyper, self.key)
        own = self.method.choose.start or self.method.solver.start  # may depend on the candidate
        warm = further and numbers and own is None
        start = self.last if warm else job.start_point(self.key, own)
        usual, values = self.settings.program(number)
        if self.method.solver.update is not None:
            p = swept(self.method, usual, start, data, values)
        else:
            limits = ITERATIONS, MEMORY, TOLERANCE
            (p,) = descended(job, start, [values], limits, self.programs, usual)
        self.last = p
        if self.method.derive:
            p = p._replace(**self.method.derive(p, data, hyper))
        self.scores[number] = loss(self.method, p, self.train, self.held, usual, values)
        check_number(self.scores[number], "score", f"under {self.candidate(number)}")
        return self.scores[number]

    def candidate(self, number: int) -> dict[str, Any]:
        """The candidate of this number, which may lie beyond the list."""
        near = min(max(number, 0), len(self.candidates) - 1)
        beyond = number - near
        return {
            k: v * self.ratio[k] ** beyond if beyond else v
            for k, v in self.candidates[near].items()
        }

    def refined(self, best: int) -> dict[str, Any]:
        """The best candidate; of numbers above 0, the minimum of the parabola through three scores."""
        before, here, after = (self.scores.get(best + step) for step in (-1, 0, 1))
        values = self.candidate(best)
        if not self.settings.numbers or before is None or after is None or here is None:
            return values
        bend = before - 2 * here + after
        step = (before - after) / (2 * bend) if bend > 0 else 0.0
        toward = self.candidate(best + (1 if step > 0 else -1))
        return jax.tree.map(lambda a, b: float(a * (b / a) ** abs(step)), values, toward)

    def told(self, best: int) -> str:
        """The end of a sentence: from what was chosen, and by what."""
        ends = [shown(next(iter(self.candidates[i].values()))) for i in (0, -1)]
        least, most = min(self.scores.values()), max(self.scores.values())
        unit = "cells" if self.held.site else "counts"
        judge = f"the loss of {self.held.amount} held-out {unit}"
        if self.method.choose.by == "ranks":
            judge = "the ranks of held-out pairs"
        return (
            f"from {len(self.candidates)} candidates ({ends[0]} to {ends[1]}), by "
            f"{judge}: {least:.4g}, largest {most:.4g} in "
            f"{len(self.scores)} short fits{self.told_of_end(best)}"
        )

    def told_of_end(self, best: int) -> str:
        """The rest of the sentence if the best candidate is at an end of the list, or beyond it."""
        last = len(self.candidates) - 1
        if 0 < best < last or not last:
            return ""
        step, where = (1, "last") if best > 0 else (-1, "first")
        if best + step in self.scores:  # the search went on until the score got worse
            end = f"beyond the {where} candidate"
            return (
                f"; {end} the score was worse"
                if 0 <= best <= last
                else f"; the search went on {end}"
            )
        gain = self.scores.get(best - step, np.inf) - self.scores[best]
        if gain <= self.same:
            return f"; the {where} candidate, no better than the one next to it"
        name = next(iter(self.candidates[0]))
        here, before = (next(iter(self.candidate(at).values())) for at in (best, best - step))
        way = "larger" if here > before else "smaller"
        return f"; the {where} candidate, and the score was still falling: try a {way} {name}"


def ratio(candidates: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The factor by which each setting grows from one candidate to the next; empty if this is no constant.

    >>> ratio([{"a": 1.0}, {"a": 2.0}, {"a": 4.0}]), ratio([{"a": 1.0}, {"a": 2.0}, {"a": 3.0}])
    ({'a': 2.0}, {})
    """
    if len(candidates) < 3 or not all(type(x) is float for one in candidates for x in one.values()):
        return {}
    table = np.array([list(one.values()) for one in candidates])
    steps = table[1:] / table[:-1]
    same = (steps > 0).all() and np.allclose(steps, steps[0], rtol=1e-6, atol=0)
    return dict(zip(candidates[0], steps[0].tolist(), strict=True)) if same else {}


@partial(jax.jit, static_argnums=(0, 1))
def swept(method: Method, hyper: Any, p: Any, data: Any, values: dict[str, Any]) -> Any:
    """Params after a few sweeps of the method's own update, with `values` in the place of settings."""
    update, hyper = method.solver.update, hyper._replace(**values)
    assert update is not None  # `Search` looked
    return jax.lax.fori_loop(0, method.choose.sweeps, lambda _, p: update(p, data, hyper), p)


def descended(
    job: Job, start: Any, several: Sequence[Mapping[str, Any]], limits: tuple[int, int, float],
    programs: dict, key: Any, seen: Callable[[np.ndarray, Descent], Any] = lambda *_: None,
) -> list[Any]:  # fmt: skip
    """Params under each of several values of settings, all from one start, by L-BFGS on the objective.

    The values are arguments of one program, which `programs` keeps under `key`. `limits` are the number of
    iterations, the length of the history and the tolerance. `seen` is told of every iteration, with the
    numbers of the values that it was made for.
    """
    method, data, (iterations, memory, tol) = job.method, job.data, limits
    transforms = supports(method, data, job.hyper, start)
    first, restore = as_rows(unconstrain(transforms, start), several=False)

    def params(z: jax.Array) -> Any:
        return constrain(method, transforms, restore(z[None]))

    if key not in programs:

        def objective(z: jax.Array, data: Any, values: dict[str, Any]) -> jax.Array:
            return method.objective(params(z), data, job.hyper._replace(**values))

        programs[key] = jax.jit(jax.value_and_grad(objective))

    def seen_at(z: np.ndarray, b: int) -> Any:
        with noted(f"at {', '.join(f'{name}={value}' for name, value in several[b].items())}"):
            return programs[key](jnp.asarray(z), data, several[b])

    def look(z: np.ndarray, live: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = [seen_at(row, b) for row, b in zip(z, live, strict=True)]
        return np.array([float(v) for v, _ in found]), np.stack([np.asarray(g) for _, g in found])

    at = begin(look, np.tile(np.asarray(first), (len(several), 1)))
    for _ in range(iterations):
        if not len(live := at.live):
            break
        advance(look, at, memory, tol, gtol=1e-8)
        seen(live, at)
    return [params(jnp.asarray(z)) for z in at.z]
