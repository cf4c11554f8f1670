"""Distributions of labels, checks and examples for the methods that predict labels."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.data.reading import plain
from bayesfac.core.laws.decisions import CERTAIN, HALF, placed_cut
from bayesfac.core.laws.ordinal import Levels
from bayesfac.core.laws.units import cut_of, unit_of
from bayesfac.labels.data import scaling
from bayesfac.labels.data.tasks import LABELS, Tasks

FEWEST = 6  # rows that `sds_around` needs
LEAST = 1e-3  # smallest sd, as a share of a label's spread: exact labels need a density too
TRAITS = {
    "no_minibatch": "the law of its labels sums over a whole table, not over a sample of cells"
}
LABELS_ALONE = TRAITS | {"views_given": "the labels are regressed on the features"}


def check(data: Tasks, gaps: bool = False) -> None:
    """Check that labels exist; unless `gaps`, check that each row has all of its labels or none."""
    if not data.labelled.any():
        raise ValueError("Expected labels of at least one row, got none")
    if not gaps and not data.known.all():
        first = int(np.argmin(data.known))
        row = plain(data.rows[int(data.cells[LABELS].row[first])])
        label = plain(data.labels[int(data.cells[LABELS].col[first])])
        raise ValueError(
            f"Expected all labels of a row or none, got NaN for {label!r} in row {row!r} (see leml)"
        )


def count(data: Tasks, signs: bool = False) -> int:
    """The number of labels that occur in at least one row, and at least 1; default sizes depend on it.

    With `signs` all labels that never occur count as one, because their negative scores need a direction.
    """
    return max(1, int(data.had.sum()) + (signs and not data.had.all()))


class Clipped(Levels):
    """A binary label whose probability is the clipped `score`; rankings use `score`, which has no ties.

    The label is predicted if `score` is above `cut`.
    """

    pytree_data_fields = ("score",)
    pytree_aux_fields = ("cut",)

    def __init__(self, score: jax.Array, cut: float = HALF) -> None:
        self.score, self.cut, one = score, cut, jnp.clip(score, CERTAIN, 1 - CERTAIN)
        log_p = jnp.stack([jnp.log1p(-one), jnp.log(one)], -1)
        super().__init__((0.0, 1.0), log_p, (score > cut).astype(int))


def of_labels(
    score: jax.Array, query: Query | Grid, hyper: Any, variance: Any
) -> dist.Distribution:
    """The distributions of labels with means `score`: Bernoulli, or normal if they are numbers.

    The sd of a normal distribution is `label_sd`; without it, the variance is that of the model. Score and
    variance are in the unit of the model, `label_sd` and normal distributions in the unit of the user.
    """
    if hyper.binary:
        return Clipped(score, cut_of(hyper))
    mean, unit = unit_of(hyper, query)
    known = getattr(hyper, "label_sd", None)
    sd = unit * jnp.sqrt(variance) if known is None else jnp.asarray(known)[query.col]
    return dist.Normal(mean + unit * score, sd)


def read(data: Tasks, hyper: Any, centred: bool = True) -> Any:
    """Hyper that knows whether all labels are 0 and 1, and in which units they are numbers."""
    units = scaling.units(data, centred) if hyper.scaled else ()
    return hyper._replace(
        binary=data.binary, units=units, label_sd=checked_sd(hyper.label_sd, len(data.labels))
    )


def checked_sd(sd: Any, many: int) -> tuple[float, ...] | None:
    """The sd of every label; None stays None."""
    if sd is None:
        return None
    given = np.full(many, sd) if np.ndim(sd) == 0 else np.asarray(sd, float)
    if len(given) != many or not (np.isfinite(given) & (given > 0)).all():
        raise ValueError(
            f"Expected label_sd as a number above 0, or one for each of {many} labels, got {sd!r}"
        )
    return tuple(given.tolist())


def unread(hyper: Any) -> bool:
    """Whether the cut of labels of 0 and 1, or the sd of labels that are numbers, is left to the data."""
    setting = "cut" if hyper.binary else "label_sd"
    return setting in hyper._fields and getattr(hyper, setting) is None


def with_reading(hyper: Any, truth: np.ndarray, score: np.ndarray) -> Any:
    """Hyper with a cut, or with the sds of labels that are numbers, unless they were given.

    Labels and scores of rows left out, rows x labels, are in the unit of the model.
    """
    if unread(hyper):
        unit = np.array(hyper.units)[:, 1] if hyper.units else 1.0
        hyper = hyper._replace(**reading(unit * truth, unit * score, hyper.binary))
    return hyper._replace(cut=checked_cut(hyper.cut))


def reading(truth: np.ndarray, score: np.ndarray, binary: bool) -> dict[str, Any]:
    """The setting by which scores are read, chosen by rows left out: `cut`, or `label_sd` unless there are
    too few rows."""
    if binary:
        return {"cut": placed_cut(truth, score)}
    sds = sds_around(truth, score)
    return {} if sds is None else {"label_sd": tuple(sds.tolist())}


def sds_around(truth: np.ndarray, score: np.ndarray) -> np.ndarray | None:
    """The root mean squared error of every label (column); None if there are too few rows.

    `score` must come from fits that did not use these rows. Unknown labels are NaN. A label that no row
    has gets the error of all others.

    Examples
    --------
    >>> y = np.arange(12.0).reshape(6, 2)
    >>> sds_around(y, y + [1, 2]).tolist()
    [1.0, 2.0]
    """
    y = np.ma.masked_invalid(truth)
    if len(y) < FEWEST or not y.count():
        return None
    squares = (y - score) ** 2
    each = np.sqrt(squares.mean(0).filled(squares.mean()))
    spread, mean = y.std(0).filled(0), abs(y.mean(0)).filled(0)
    size = np.select([spread > 0, mean > 0], [spread, mean], 1.0)
    return np.maximum(each, LEAST * size)


def of_odds(score: jax.Array, cut: float | None = None) -> dist.Distribution:
    """The distribution of a binary label with log odds `score`."""
    log_p = jnp.stack([jax.nn.log_sigmoid(-score), jax.nn.log_sigmoid(score)], -1)
    above = jax.nn.sigmoid(score) > (HALF if cut is None else cut)
    return Levels((0.0, 1.0), log_p, above.astype(int))


def checked_cut(cut: float | None) -> float:
    """The score above which a label is predicted; one half if `cut` is None."""
    if cut is None:
        return HALF
    if not CERTAIN < cut < 1 - CERTAIN:
        raise ValueError(f"Expected cut between {CERTAIN} and {1 - CERTAIN}, got {cut!r}")
    return float(cut)


def ridge_law(rows: int, columns: int, ridge: float) -> dist.Distribution:
    """The prior of a factor F with the energy ridge |F|^2; improper and flat if ridge is 0."""
    if ridge == 0:
        return dist.ImproperUniform(dist.constraints.real_matrix, (), (rows, columns))
    return dist.Normal(0, (2 * ridge) ** -0.5).expand((rows, columns)).to_event(2)


def remarks(p: Any, data: Tasks, hyper: Any) -> list[str]:
    """Notes on labels that no training row has."""
    return data.unlabelled()


def few_tasks(key: jax.Array) -> Tasks:
    """Nine rows in two tasks; each task has one row without labels, and the second task lacks a view."""
    x = np.array(jax.random.gamma(key, 2.0, (9, 9)), float)
    x[:, 4] *= np.arange(9) % 3 > 0  # some cells are zero
    y = np.array([[1, 0], [0, 1], [1, 1], [0, 0], [1, 0], [1, 1], [0, 1], [1, 0], [0, 0]], float)
    y[[3, 8]] = np.nan
    first = {"words": x[:5, :5], "topics": x[:5, 5:]}
    return Tasks({"a": first, "b": {"words": x[5:, :5]}}, {"a": y[:5], "b": y[5:]})


def one_view(key: jax.Array, gaps: bool = False) -> Tasks:
    """Nine rows of five features, two rows without labels; `gaps` hides one more label."""
    data = few_tasks(key)
    y = data[LABELS].toarray()
    y[~data.labelled] = np.nan
    if gaps:
        y[1, 1] = np.nan
    return Tasks({"words": data["words"]}, y)
