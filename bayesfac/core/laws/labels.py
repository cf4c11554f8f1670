"""Distributions of labels, checks and examples for the methods that predict labels."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from bayesfac.core.data.reading import plain
from bayesfac.core.data.tasks import LABELS, Tasks
from bayesfac.core.laws.ordinal import Levels

CERTAIN = 1e-3  # the probability of a label is kept this far from 0 and 1
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


class Clipped(Levels):
    """A binary label whose probability is `score`, clipped; rankings compare `score`, which has no ties."""

    pytree_data_fields = ("score",)

    def __init__(self, score: jax.Array) -> None:
        self.score, one = score, jnp.clip(score, CERTAIN, 1 - CERTAIN)
        super().__init__((0.0, 1.0), jnp.stack([jnp.log1p(-one), jnp.log(one)], -1))


def of_labels(score: jax.Array, binary: bool, variance: Any) -> dist.Distribution:
    """The law of a label whose mean is `score`: Bernoulli for binary labels, else normal with `variance`."""
    return Clipped(score) if binary else dist.Normal(score, jnp.sqrt(variance))


def of_odds(score: jax.Array) -> dist.Distribution:
    """The law of a binary label with log odds `score`."""
    return Levels(
        (0.0, 1.0), jnp.stack([jax.nn.log_sigmoid(-score), jax.nn.log_sigmoid(score)], -1)
    )


def ridge_law(rows: int, columns: int, ridge: float) -> dist.Distribution:
    """The prior of a factor F whose energy is ridge |F|^2; improper and flat where ridge is 0."""
    if ridge == 0:
        return dist.ImproperUniform(dist.constraints.real_matrix, (), (rows, columns))
    return dist.Normal(0, (2 * ridge) ** -0.5).expand((rows, columns)).to_event(2)


def remarks(p: Any, data: Tasks, hyper: Any) -> list[str]:
    """Remarks on labels that no training row has."""
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
