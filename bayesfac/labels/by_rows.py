"""Candidates, cuts and sds of methods of labels, chosen by rows that lose their labels."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import scipy.sparse as sp
from scipy.special import expit
from threadpoolctl import threadpool_limits

from bayesfac.choosing.settings import Chosen, Settings, at_end
from bayesfac.core.data.cells import Cells, Grid
from bayesfac.core.data.reading import positions_of, real
from bayesfac.core.laws.decisions import HALF, best_cut, clearly, measured, name_of, placed_cut
from bayesfac.core.laws.units import cut_of, in_models_unit
from bayesfac.core.method import Method, settle
from bayesfac.labels.data.scaling import rescaled, scaled, singular
from bayesfac.labels.data.tasks import LABELS, Tasks
from bayesfac.labels.laws import FEWEST, reading, unread

THIRDS = 3  # of the labelled rows of every task; each loses its labels in turn
LEAST_ROWS = 50  # labelled rows; a third of fewer rows chooses by chance
ROW_SWEEPS = 60  # of a method's own update for the cut, at most
BLOCK, STILL = 10, 1e-4  # the sweeps end when a block lowers the objective by less than this share


class Part(NamedTuple):
    """Rows without labels in a fit, by position; their labels and their scores, rows x labels."""

    held: np.ndarray
    truth: np.ndarray
    score: np.ndarray


def choose_by_rows(method: Method, data: Tasks, found: Chosen, seed: int) -> Chosen:
    """Choose a candidate, and how scores are read, where `prepare` leaves them open.

    Scores of labels of 0 and 1 need a cut, those of numbers the sds of the labels around them. A third of
    the labelled rows of every task lose their labels. A short fit to all other labels scores them as it
    would score new rows; the candidate is the one whose scores have the best accuracy or micro-F1, each at
    its own cut (`core.laws.decisions`), or the smallest errors. The other two thirds are scored under this
    candidate, and the cut or the sds are those of all scores: one third of few rows has too few labels to
    place them well.
    """
    settled = settle(method, data, found.hyper)
    binary, rows = getattr(settled, "binary", False), int(data.labelled.sum())
    if method.choose.candidates is None and (done := filled(method, settled, found.hyper)):
        found.add(done, "by the training rows")  # so `prepare` need not choose it again
        if method.choose.left_out and binary and rows >= LEAST_ROWS:
            _, *pair = method.choose.left_out(method.ready(data, settled), settled)
            parts = [Part(np.flatnonzero(data.labelled), *pair)]
            found.how[-1] += f", {told(parts, cut_of(settled))}"
            found.how += against_logistic(data, parts, cut_of(settled), seed)
    left_open = hasattr(settled, "binary") and unread(settled)
    given = method.Hyper(**found.hyper)
    candidates = (
        method.choose.candidates and method.choose.candidates(data, given, found.values)
    ) or [{}]
    if rows < LEAST_ROWS:
        candidates = [{}]  # the usual one
    thirds = thirds_of(data, seed) if rows >= (LEAST_ROWS if binary else FEWEST) else []
    if not thirds or not (left_open or len(candidates) > 1):
        return found

    def tried(
        held: np.ndarray, several: Sequence[Mapping[str, Any]], like: Settings | None = None
    ) -> tuple[Settings, list[Part]]:
        train, test = hidden(data, held)
        settings = Settings(method, train, found.hyper, several, ("start",), like)
        truth, key = test[LABELS].toarray(), jax.random.key(seed)
        places = range(len(several))
        scores = [scores_of_rows(method, data, train, test, settings, i, key) for i in places]
        return settings, [Part(held, truth, score) for score in scores]

    settings, seen = tried(thirds[0], candidates)
    judge = quality if binary else explained
    best = int(np.argmax([judge(part.truth, part.score) for part in seen]))
    values, parts = dict(candidates[best]), [seen[best]]
    if left_open:
        for held in thirds[1:]:
            parts += tried(held, [values], settings)[1]
        values |= reading(*together(parts), binary)
    if values:
        cut = values.get("cut", cut_of(settled))
        said = told(parts, cut) if binary else told_of_numbers(parts)
        short = f"{len(seen) + len(parts) - 1} short fits{at_end(candidates, best)}"
        found.add(values, f"by {said}, in {short}")
        found.how += against_logistic(data, parts, cut, seed) if binary else []
    return found


def thirds_of(data: Tasks, seed: int) -> list[np.ndarray]:
    """The positions of a third of the labelled rows of every task, three times without overlap."""
    rng, thirds = np.random.default_rng(seed), [[] for _ in range(THIRDS)]  # type: ignore[var-annotated]
    for i in range(data.n_tasks):
        known = rng.permutation(np.flatnonzero(data.labelled & (data.task == i)))
        for third, at in enumerate(np.split(known[: len(known) // THIRDS * THIRDS], THIRDS)):
            thirds[third].append(at)
    found = [np.sort(np.concatenate(third)) for third in thirds]
    return found if len(found[0]) else []


def hidden(data: Tasks, held: np.ndarray) -> tuple[Tasks, Tasks]:
    """All rows, of which some lose their labels; and these rows alone, with labels."""
    kept = ~np.isin(np.arange(data.n_rows), held)
    return data.take(np.ones(data.n_rows, bool), labelled=kept), data.take(held)


def together(parts: Sequence[Part]) -> tuple[np.ndarray, np.ndarray]:
    """The labels and the scores of all parts."""
    return np.vstack([part.truth for part in parts]), np.vstack([part.score for part in parts])


def told(parts: Sequence[Part], cut: float) -> str:
    """What the decisions at this cut are worth, beside those at one half and by the frequencies alone."""
    truth, score = together(parts)
    at, half = (measured(truth, score > c).value for c in (cut, HALF))
    usual = quality_of_frequencies(truth)
    return (
        f"the {name_of(truth)} of {len(truth)} rows whose labels were held out: {at:.3f} (at a cut of "
        f"one half {half:.3f}, by frequencies alone {usual:.3f})"
    )


def told_of_numbers(parts: Sequence[Part]) -> str:
    """How well the scores predict labels that are numbers."""
    truth, score = together(parts)
    return (
        f"the share of variance explained in {len(truth)} rows whose labels were held out: "
        f"{explained(truth, score):.3f}"
    )


def against_logistic(data: Tasks, parts: Sequence[Part], cut: float, seed: int) -> list[str]:
    """A remark if a logistic regression of every label predicts rows that were held out clearly better.

    The regression has all features, and is fitted without a third of the rows at a time. If a method left
    out single rows, the regression has fewer rows than the method.
    """
    truth, score = together(parts)
    rows = np.concatenate([part.held for part in parts])
    sets = [part.held for part in parts] if len(parts) > 1 else thirds_of(data, seed)
    p = without_labels(data, sets) if len(rows) == len(truth) else None
    if p is None:
        return []
    both = ~np.isnan(p[rows, 0])
    truth, score, p = truth[both], score[both], p[rows[both]]
    own, other = measured(truth, score > cut), measured(truth, p > placed_cut(truth, p))
    if not clearly(other, own):
        return []
    return [
        "a logistic regression of each label on all features predicts held-out rows clearly better: "
        f"{name_of(truth)} {other.value:.3f}, by this method {own.value:.3f}; if predictions are what you "
        "want, use it, or another method"
    ]


def filled(method: Method, settled: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that were left open and that `prepare` chose."""
    usual, own = method.Hyper._field_defaults, settled._asdict()
    if not getattr(settled, "binary", True):
        own.pop("cut", None)  # numbers have none
    left = [name for name in own if name not in given and usual.get(name, 0) is None]
    return {name: own[name] for name in left if own[name] is not None}


def quality(truth: np.ndarray, score: np.ndarray) -> float:
    """The accuracy or the micro-F1 at the best cut of the scores."""
    return measured(truth, score > best_cut(truth, score)).value


def quality_of_frequencies(truth: np.ndarray) -> float:
    """The best quality if every row has the same scores, the frequencies of the labels in these rows.

    >>> quality_of_frequencies(np.array([[1, 0, 0], [1, 0, 1], [1, 1, 1], [0, 0, 0]]))
    0.7142857142857143
    """
    return quality(truth, np.tile(np.nanmean(truth, 0), (len(truth), 1)))


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

    `number` is that of the candidate among the settings. If all rows have labels, the rows to predict will
    be new ones. Then the held-out rows have no features in the sweeps either: a representation that was
    fitted to the features of a row has larger scores for it than for a new row. Rows whose labels are
    numbers keep theirs: two thirds of 100 rows predict new rows worse than all of them, and without the
    features 90 % intervals of `heres` held 98 % for the most predictable of three labels.
    """
    hyper = settings.settled[number]
    program, values = settings.program(number)
    scaled = method.ready(train, hyper)
    rows = positions_of(train.rows, held.rows)
    new_ones = method.fold_in is not None and whole.binary and bool(whole.labelled.all())
    data = alike(scaled, whole, rows if new_ones else None)
    p = (method.solver.start or method.init)(key, data, hyper)
    solved = "starts_solved" in method.notes.traits  # shapes differ each time: nothing to share
    if not solved:  # without the unit of these labels, one program serves all thirds
        p = swept_by_blocks(method, in_models_unit(program), values, p, data)
    none = train.take(np.ones(train.n_rows, bool), labelled=np.zeros(train.n_rows, bool))
    new = rescaled(none, scaled.host.scales) if scaled.host.scales else none
    score = read_scores if solved else scored
    return np.asarray(score(method, program, values, p, data, alike(new, whole), rows), np.float64)


def alike(data: Tasks, whole: Tasks, empty: np.ndarray | None = None) -> Tasks:
    """The data without names, and with a stored 0 for every 1 that only `whole` has.

    Thirds with other rows then have the same shapes, and one compiled program serves all of them. The rows
    `empty` have a stored 0 in the place of every feature, so that they take no part in a fit.
    """
    host = replace(
        data.host, rows=pd.RangeIndex(data.n_rows), scales=dict.fromkeys(data.host.scales), name=""
    )
    y = dict(data.y)
    if empty is not None:
        kept = ~np.isin(np.arange(data.n_rows), empty)
        y |= {v: y[v] * kept[np.asarray(data.cells[v].row)] for v in data.names}
    if not whole.binary:
        return data.replaced(host, y=y)
    stored = whole[LABELS][positions_of(whole.rows, data.rows)].tocoo()
    y[LABELS] = real(np.where(data.labelled[stored.row], stored.data, 0))
    cells = data.cells | {LABELS: Cells(stored.row, stored.col, stored.shape)}
    return data.replaced(host, cells=cells, y=y)


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
    update, hyper = method.solver.update, hyper._replace(**values)
    assert update is not None  # every method that leaves its cut open has a solver of its own

    def block(state: tuple) -> tuple:
        p = jax.lax.fori_loop(0, BLOCK, lambda _, p: update(p, data, hyper), state[1])
        return state[0] + BLOCK, p, method.objective(p, data, hyper), state[2]

    def moving(state: tuple) -> jax.Array:
        number, _, cost, before = state
        return (number < ROW_SWEEPS) & ~(before - cost < STILL * jnp.abs(cost))

    nothing = jnp.full((), jnp.inf, method.objective(p, data, hyper).dtype)
    return jax.lax.while_loop(moving, block, (0, p, nothing, nothing))[1]


# -- logistic regressions on all features: no method should be clearly worse -----------------------
# The penalty is that of scikit-learn, |w|^2 / 2 on scaled features. With X = U diag(s) Q' and w = Q r, the
# curvature of the loss is at most s^2 / 4 + 1 in every coordinate of r, so one decomposition serves all
# labels and steps, which are accelerated (Nesterov 1983).
WORK = 5e7  # labels x rows x (rows or features, whichever are fewer), at most: seconds
STEPS = 100
CONSTANT = 10.0  # value of the constant feature: so large that its coefficient is hardly penalised


def without_labels(data: Tasks, sets: Sequence[np.ndarray]) -> np.ndarray | None:
    """The probabilities of all labels of the rows in each set, by the labelled rows outside of this set.

    Other rows are NaN. None if the data are large.
    """
    rows, L = int(data.labelled.sum()), len(data.labels)
    if L * rows * min(rows, sum(data.n_features[view] for view in data.names)) > WORK:
        return None
    plain = scaled(data, CONSTANT)
    X = sp.csr_matrix(sp.hstack([plain[view] for view in data.names]))
    Y, found = data[LABELS].toarray(), np.full((data.n_rows, L), np.nan)
    with threadpool_limits(1, "blas"):  # the products are too small for several threads
        for held in sets:
            train = data.labelled & ~np.isin(np.arange(data.n_rows), held)
            found[held] = expit(X[held] @ coefficients(X[train], Y[train]))
    return found


def coefficients(X: sp.csr_matrix, Y: np.ndarray) -> np.ndarray:
    """The coefficients of all features, features x labels; unknown labels are NaN."""
    value, Q = singular(X)
    A, bend = X @ Q, value[:, None] / 4 + 1
    known, Y = ~np.isnan(Y), np.nan_to_num(Y)
    r = ahead = np.zeros((A.shape[1], Y.shape[1]))
    for step in range(STEPS):
        before = r
        r = ahead - (A.T @ (known * (expit(A @ ahead) - Y)) + ahead) / bend
        ahead = r + step / (step + 3) * (r - before)
    return Q @ r
