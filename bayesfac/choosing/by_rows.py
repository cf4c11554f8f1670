"""Candidates, cuts and sds of methods of labels, chosen by rows that lose their labels."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from bayesfac.choosing.settings import Chosen, Settings
from bayesfac.core.data.cells import Cells, Grid
from bayesfac.core.data.reading import positions_of, real
from bayesfac.core.data.scaling import rescaled
from bayesfac.core.data.tasks import LABELS, Tasks
from bayesfac.core.laws.labels import FEWEST, best_cut, in_models_unit, reading, unread
from bayesfac.core.method import Method, settle
from bayesfac.multilabel import micro_f1
from bayesfac.split import holdout

ROWS = 1 / 3  # of the labelled rows of every task lose their labels, to choose a cut
TIMES = 3  # such thirds, drawn one by one: the cut is that of all their scores
LEAST_ROWS = 50  # labelled rows; a third of fewer rows chooses by chance
ROW_SWEEPS = 60  # of a method's own update for the cut, at most
BLOCK, STILL = 10, 1e-4  # the sweeps end when a block lowers the objective by less than this share
Pair = tuple[np.ndarray, np.ndarray]  # labels and their scores, rows x labels


def choose_by_rows(method: Method, data: Tasks, found: Chosen, seed: int) -> Chosen:
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

    def tried(
        number: int, several: Sequence[Mapping[str, Any]], like: Settings | None = None
    ) -> tuple[Settings, list[Pair]]:
        part = holdout(data, ROWS, seed=seed + number)
        settings = Settings(method, part[0], found.hyper, several, ("start",), like)
        truth, key = part[1][LABELS].toarray(), jax.random.key(seed)
        places = range(len(several))
        scores = [scores_of_rows(method, data, *part, settings, i, key) for i in places]
        return settings, [(truth, score) for score in scores]

    settings, seen = tried(0, candidates)
    judge = best_f1 if binary else explained
    quality = [judge(*each) for each in seen]
    best = int(np.argmax(quality))
    values, told = dict(candidates[best]), [seen[best]]
    if left_open:
        for k in range(1, TIMES):
            told += tried(k, [values], settings)[1]
        truth, score = map(np.vstack, zip(*told, strict=True))
        values |= reading(truth, score, binary)
    if values:
        what, usual = "the share of variance explained in", ""
        if binary:
            what = "the micro-F1 of"
            usual = f" (by frequencies alone {f1_of_frequencies(seen[0][0]):.3f})"
        short, rows = len(seen) + len(told) - 1, len(seen[0][0])
        found.add(
            values,
            f"by {what} {rows} rows whose labels were held out: {quality[best]:.3f}"
            f"{usual}, lowest {min(quality):.3f} in {short} short fits",
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


def f1_of_frequencies(truth: np.ndarray) -> float:
    """The best micro-F1 if every row has the same scores, the frequencies of the labels in these rows.

    >>> f1_of_frequencies(np.array([[1, 0], [1, 0], [1, 1], [0, 0]]))
    0.75
    """
    return best_f1(truth, np.tile(truth.mean(0), (len(truth), 1)))


def explained(truth: np.ndarray, score: np.ndarray) -> float:
    """The mean share of the variance of labels that the scores explain.

    >>> explained(np.array([[0.0, 1], [2, 1]]), np.array([[0.0, 1], [1, 1]]))
    0.5
    """
    varied = truth[:, truth.std(0) > 0], score[:, truth.std(0) > 0]
    left = np.mean((varied[0] - varied[1]) ** 2, 0) / varied[0].var(0)
    return float(1 - left.mean()) if left.size else 0.0


def scores_of_rows(
    method: Method, whole: Tasks, train: Tasks, held: Tasks, settings: Settings, number: int,
    key: jax.Array,
) -> np.ndarray:  # fmt: skip
    """The scores of the held-out rows after some sweeps on the other rows, rows x labels.

    `number` is that of the candidate among the settings.
    """
    hyper = settings.settled[number]
    program, values = settings.program(number)
    scaled = method.ready(train, hyper)
    data = alike(scaled, whole)
    p = (method.start or method.init)(key, data, hyper)
    solved = "starts_solved" in method.traits  # shapes differ each time: nothing to share
    if not solved:  # without the unit of these labels, one program serves all thirds
        p = swept_by_blocks(method, in_models_unit(program), values, p, data)
    none = train.take(np.ones(train.n_rows, bool), labelled=np.zeros(train.n_rows, bool))
    new = rescaled(none, scaled.host.scales) if scaled.host.scales else none
    rows = positions_of(train.rows, held.rows)
    score = read_scores if solved else scored
    return np.asarray(score(method, program, values, p, data, alike(new, whole), rows), np.float64)


def alike(data: Tasks, whole: Tasks) -> Tasks:
    """The data without names, and with a stored 0 for every 1 that only `whole` has.

    Thirds with other rows then have the same shapes, and one compiled program serves all of them.
    """
    host = replace(
        data.host, rows=pd.RangeIndex(data.n_rows), scales=dict.fromkeys(data.host.scales), name=""
    )
    if not whole.binary:
        return data.replaced(host)
    stored = whole[LABELS][positions_of(whole.rows, data.rows)].tocoo()
    y = np.where(data.labelled[stored.row], stored.data, 0)
    cells = data.cells | {LABELS: Cells(stored.row, stored.col, stored.shape)}
    return data.replaced(host, cells=cells, y=data.y | {LABELS: real(y)})


def read_scores(
    method: Method, hyper: Any, values: dict[str, Any], p: Any, data: Tasks, new: Tasks, rows: Any
) -> jax.Array:
    """The scores of rows, which come after the fit to `data` if the method can take such rows."""
    hyper = hyper._replace(**values)
    if method.derive:
        p = p._replace(**method.derive(p, data, hyper))
    if method.fold_in:
        p = method.fold_in(p, new, hyper)
    outcome = method.predict(p, Grid(rows, np.arange(len(new.labels))), hyper)
    return getattr(outcome, "score", outcome.mean)


scored = jax.jit(read_scores, static_argnums=(0, 1))


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
