"""Shared parts of methods that map one view to labels: products with its features, and ridge systems."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from bayesfac.core import checks
from bayesfac.core.data.cells import Query
from bayesfac.core.kernels import tables
from bayesfac.core.kernels.tables import CellwiseLaw
from bayesfac.core.math import inner
from bayesfac.labels import laws as labels
from bayesfac.labels.data.tasks import LABELS, Tasks

EXACT = 1e-12  # relative residual of a solved system; in float32 64 machine epsilons
STEPS = 500  # largest number of steps of conjugate gradients
WORTH = 20_000  # up to this features^3 per stored cell, a dense matrix is faster than these steps
CURVATURE = {"squared": 2.0, "logistic": 0.25}  # of the parabola that bounds a loss


def check(data: Tasks, gaps: bool = False, binary: bool = False) -> None:
    """Require one view and some labels; `gaps` allows unknown cells, `binary` requires labels 0 and 1."""
    checks.one_view(data, "Tasks.concatenated()")
    labels.check(data, gaps)
    signs = bool((np.abs(data.value) == 1).all() and (data.value < 0).any())
    if signs or (binary and not data.binary):
        got = "-1 and 1 (use Y > 0)" if signs else "other numbers"
        raise ValueError(f"Expected labels 0 and 1, got {got}")


def times(data: Tasks, W: jax.Array) -> jax.Array:
    """X W, for all rows."""
    (view,) = data.names
    return tables.product(data.cells[view], data.y[view], W)


def codes(p: Any, data: Tasks) -> jax.Array:
    """X W, with W from the parameters."""
    (W,) = p.W.values()
    return times(data, W)


def derive(p: Any, data: Tasks, hyper: Any) -> dict[str, Any]:
    """A = X W, from which labels are predicted."""
    return {"A": codes(p, data)}


def fold_in(p: Any, data: Tasks, hyper: Any) -> Any:
    """New rows have no parameters of their own."""
    return p._replace(A=codes(p, data))


def back(data: Tasks, A: jax.Array) -> jax.Array:
    """X'A over labelled rows."""
    (view,) = data.names
    return tables.transposed(data.cells[view], data.y[view], data.seen(LABELS, A))


def squares(data: Tasks) -> jax.Array:
    """The sum of squares of every feature over labelled rows (features x 1)."""
    (view,) = data.names
    one = data.seen(LABELS, jnp.ones((data.n_rows, 1), data.y[view].dtype))
    return tables.transposed(data.cells[view], data.y[view] ** 2, one)


def squared(*factors: jax.Array | dict[str, jax.Array]) -> jax.Array:
    """The sum of squares of all entries of the arrays."""
    return sum((jnp.sum(leaf**2) for leaf in jax.tree.leaves(factors)), jnp.zeros(()))


def answers_of(data: Tasks, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The labels as a dense table, and which of them are known."""
    cells = data.cells[LABELS]
    Y = jnp.zeros(cells.shape, y.dtype).at[cells.row, cells.col].set(y)
    known = jnp.asarray(data.labelled)[:, None] & ~jnp.isnan(Y)
    return jnp.where(known, Y, 0), known


def squared_error(data: Tasks, score: jax.Array) -> jax.Array:
    """|Y - score|^2 over labelled rows, computed cell by cell to avoid cancellation in single precision."""
    Y, known = answers_of(data, data.y[LABELS])
    return jnp.sum(jnp.where(known, Y - score, 0) ** 2)


class Scores(CellwiseLaw):
    """Labels with density exp(-loss) given the scores s = A H'; with `gaps`, some labels are unknown.

    The loss is (y - s)^2 ("squared") or log(1 + e^s) - y s ("logistic").
    """

    arg_constraints: dict[str, Any] = {}
    support = dist.constraints.real_vector
    pytree_data_fields = ("A", "H", "data")
    pytree_aux_fields = ("how", "gaps")

    def __init__(self, A: jax.Array, H: jax.Array, data: Tasks, how: str, gaps: bool) -> None:
        self.A, self.H, self.data, self.how, self.gaps = data.seen(LABELS, A), H, data, how, gaps
        super().__init__((), data.cells[LABELS].row.shape)

    @property
    def whole(self) -> bool:
        """Whether the loss can be computed without a dense table of labels."""
        return self.how == "squared" and not self.gaps

    def loss(self, y: jax.Array) -> jax.Array:
        if self.whole:
            return tables.squared_error(self.data.cells[LABELS], y, self.A, self.H)
        Y, known = answers_of(self.data, y)
        s = self.A @ self.H.T
        each = (Y - s) ** 2 if self.how == "squared" else jnp.logaddexp(0.0, s) - Y * s
        return jnp.sum(jnp.where(known, each, 0))

    def of_cells(self, query: Query, value: jax.Array) -> jax.Array:
        """The terms of `log_prob` that belong to single cells."""
        s = inner(self.A, self.H, query)
        if self.how == "squared":
            return -((value - s) ** 2)
        return value * s - jnp.logaddexp(0.0, s)

    def to_rows(self, y: jax.Array) -> jax.Array:
        """G H (rows x K), where G is the gradient of the loss in the scores."""
        if self.whole:
            Y = tables.product(self.data.cells[LABELS], y, self.H)
            return 2 * (self.A @ (self.H.T @ self.H) - Y)
        return self._slope(y) @ self.H

    def to_labels(self, y: jax.Array) -> jax.Array:
        """G'A (labels x K), with the same G."""
        if self.whole:
            Y = tables.transposed(self.data.cells[LABELS], y, self.A)
            return 2 * (self.H @ (self.A.T @ self.A) - Y)
        return self._slope(y).T @ self.A

    def _slope(self, y: jax.Array) -> jax.Array:
        Y, known = answers_of(self.data, y)
        s = self.A @ self.H.T
        each = 2 * (s - Y) if self.how == "squared" else jax.nn.sigmoid(s) - Y
        return jnp.where(known, each, 0)

    def log_prob(self, value: jax.Array) -> jax.Array:
        return -self.loss(value)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        s = self.A @ self.H.T
        shape = (*sample_shape, *s.shape)
        if self.how == "squared":
            return s + jax.random.normal(key, shape, s.dtype) / 2**0.5
        return jax.random.bernoulli(key, jax.nn.sigmoid(s), shape).astype(s.dtype)


def ridge(
    data: Tasks, right: jax.Array, penalty: float, weight: jax.Array | float = 1.0
) -> jax.Array:
    """Solve (weight X'X + penalty I) W = right over labelled rows; `weight` may differ between columns."""
    if few_features(data):
        eye = jnp.eye(len(right), dtype=right.dtype)
        return _by_eigenvectors(back(data, times(data, eye)), right, penalty, weight)

    def apply(W: jax.Array) -> jax.Array:
        return weight * back(data, times(data, W)) + penalty * W

    return conjugate(apply, right, weight * squares(data) + penalty)


def few_features(data: Tasks) -> bool:
    """Whether a features x features matrix is no larger than the stored cells, or is faster.

    On bibtex (1,837 features, 411,568 cells) a sweep of `faie` with 80 codes takes 2.5 CPU seconds with the
    matrix and 28 with conjugate gradients. On corel5k (500 features, 37,085 cells) it takes 0.6 and 1.2.
    """
    (view,) = data.names
    m, cells = data.n_features[view], len(data.cells[view])
    return m**2 <= 2 * cells or m**3 <= WORTH * cells


@jax.jit
def _by_eigenvectors(
    gram: jax.Array, right: jax.Array, penalty: float, weight: jax.Array | float
) -> jax.Array:
    value, Q = jnp.linalg.eigh(gram)
    return Q @ ((Q.T @ right) / (weight * jnp.maximum(value, 0)[:, None] + penalty))


def conjugate(
    apply: Callable[[jax.Array], jax.Array], right: jax.Array, diagonal: jax.Array
) -> jax.Array:
    """Conjugate gradients from zero for independent systems, one for each column of (..., rows, columns).

    Each step lowers the quadratic function of its column, so a result after few steps is already better.
    """
    goal = max(EXACT, 64 * float(jnp.finfo(right.dtype).eps)) ** 2 * _dot(right, right / diagonal)

    def unsolved(state: tuple) -> jax.Array:
        step, _, _, _, size = state
        return (step < STEPS) & jnp.any(size > goal)

    def advance(state: tuple) -> tuple:
        return (state[0] + 1, *_advanced(*state[1:], apply(state[3]), diagonal, goal))

    way = right / diagonal
    begin = (0, jnp.zeros_like(right), right, way, _dot(right, way))
    return jax.lax.while_loop(unsolved, advance, begin)[1]


@jax.jit
def _advanced(
    x: jax.Array,
    left: jax.Array,
    way: jax.Array,
    size: jax.Array,
    image: jax.Array,
    diagonal: jax.Array,
    goal: jax.Array,
) -> tuple[jax.Array, ...]:
    length = _ratio(size, _dot(way, image), size > goal)
    x, left = x + length * way, left - length * image
    scaled = left / diagonal
    new = _dot(left, scaled)
    return x, left, scaled + _ratio(new, size, size > goal) * way, new


def _dot(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.sum(a * b, -2, keepdims=True)


def _ratio(a: jax.Array, b: jax.Array, where: jax.Array) -> jax.Array:
    """a / b, or zero for columns that are already solved."""
    fine = where & (b > 0)
    return jnp.where(fine, a / jnp.where(fine, b, 1), 0)
