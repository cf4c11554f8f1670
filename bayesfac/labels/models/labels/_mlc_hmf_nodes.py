"""The steps of MLC-HMF: linear classifiers of low rank, with all nodes of one depth in one batch."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import scipy.sparse as sp

from bayesfac.core.data import reading
from bayesfac.core.data.cells import Cells
from bayesfac.core.kernels import tables
from bayesfac.core.kernels.losses import BINARY
from bayesfac.labels.data.tasks import LABELS
from bayesfac.labels.models.labels import _embedding as embedding

SMOOTH = BINARY["smooth_hinge"]
# A node whose scores are all smaller than this share of a margin has lost its factors. The sign of such a
# score is a rounding error, which depends on the order of the labels, so the score counts as below zero.
FAINT = 1e-6


def odds(score: jax.Array) -> jax.Array:
    """The log odds of the label 1: the loss of label 0 minus the loss of label 1."""
    return SMOOTH.value(-score) - SMOOTH.value(score)


class Level(NamedTuple):
    """Rows paired with nodes of one depth. Each (row, node) pair is an item.

    cells, x   features of every item, those of node k in the k-th block of columns
    row        the row of every item
    slot       nodes x largest number of items: the item at each place, -1 for none
    place      the place of every item in `slot`
    """

    cells: Cells
    x: jax.Array
    row: jax.Array
    slot: jax.Array
    place: jax.Array

    def codes(self, U: jax.Array) -> jax.Array:
        """x_i U of each item's node (items x K); U is nodes x features x K."""
        return tables.product(self.cells, self.x, U.reshape(-1, U.shape[2]))

    def back(self, A: jax.Array, nodes: int) -> jax.Array:
        """The sum of x_i a_i' over the items of every node."""
        return tables.transposed(self.cells, self.x, A).reshape(nodes, -1, A.shape[1])

    def spread(self, table: jax.Array) -> jax.Array:
        """A table by item, as nodes x items x columns, with zeros at places without an item."""
        here = (self.slot >= 0)[..., None]
        return jnp.where(here, table[jnp.maximum(self.slot, 0)], 0)

    def gathered(self, table: jax.Array) -> jax.Array:
        """The inverse of `spread`."""
        return table.reshape(-1, table.shape[2])[self.place]

    def scores(self, A: jax.Array, V: jax.Array) -> jax.Array:
        """a_i V' from the codes A, nodes x items x labels; V is nodes x labels x K."""
        return self.spread(A) @ jnp.swapaxes(V, 1, 2)


def level(x: sp.csr_matrix, row: np.ndarray, node: np.ndarray, nodes: int) -> Level:
    """The items (row, node) with the features x."""
    d = x.shape[1]
    part = sp.coo_matrix(x[row])
    place = part.row, part.col + d * node[part.row]
    wide = sp.csr_matrix((part.data, place), (len(row), d * nodes))
    wide.sort_indices()
    cells = wide.tocoo()
    count = np.bincount(node, minlength=nodes)
    order = np.argsort(node, kind="stable")
    first = np.repeat(np.cumsum(count) - count, count)
    rank = np.empty(len(row), int)
    rank[order] = np.arange(len(row)) - first
    slot = np.full((nodes, max(1, count.max(initial=0))), -1)
    slot[node, rank] = np.arange(len(row))
    whole = [jnp.asarray(a.astype(np.int32)) for a in (row, slot, node * slot.shape[1] + rank)]
    return Level(Cells(cells.row, cells.col, wide.shape), reading.real(cells.data), *whole)


# The functions below are compiled by JAX; sparse products may be computed by Numba, so they are arguments.
@jax.jit
def cost(level: Level, A: jax.Array, V: jax.Array, Y: jax.Array) -> jax.Array:
    """The loss of all nodes at the codes A; Y is -1 and 1, rows x labels."""
    z = level.spread(Y[level.row]) * level.scores(A, V)
    return jnp.sum(jnp.where(level.slot[..., None] >= 0, SMOOTH.value(z), 0))


def _slope(level: Level, A: jax.Array, V: jax.Array, Y: jax.Array) -> jax.Array:
    """The gradient of the loss in the scores, nodes x items x labels."""
    y = level.spread(Y[level.row])  # zero at places without an item
    return y * SMOOTH.slope(y * level.scores(A, V))


@jax.jit
def step_V(level: Level, A: jax.Array, V: jax.Array, Y: jax.Array, penalty: float) -> jax.Array:
    """V at the minimum of the parabola that is an upper bound of the loss."""
    here = level.spread(A)
    pull = jnp.swapaxes(_slope(level, A, V, Y), 1, 2) @ here + penalty * V
    precision = jnp.swapaxes(here, 1, 2) @ here + penalty * jnp.eye(A.shape[1])
    return V - jnp.swapaxes(jnp.linalg.solve(precision, jnp.swapaxes(pull, 1, 2)), 1, 2)


@jax.jit
def _towards(level: Level, A: jax.Array, V: jax.Array, Y: jax.Array) -> tuple[jax.Array, ...]:
    """Gradients in the codes, the eigenvalues of V'V (items x K, nodes x 1 x K) and its eigenvectors."""
    value, Q = jnp.linalg.eigh(jnp.swapaxes(V, 1, 2) @ V)
    value = jnp.maximum(value, 0)
    node = level.place // level.slot.shape[1]
    return level.gathered(_slope(level, A, V, Y) @ V), value[node], value[:, None, :], Q


def step_U(level: Level, U: jax.Array, V: jax.Array, Y: jax.Array, penalty: float) -> jax.Array:
    """U at the minimum of the parabola that is an upper bound of the loss."""
    pull, each, weight, Q = _towards(level, level.codes(U), V, Y)
    right = (level.back(pull, len(U)) + penalty * U) @ Q

    def apply(W: jax.Array) -> jax.Array:
        return level.back(level.codes(W) * each, len(U)) + penalty * W

    square = level._replace(x=level.x**2).back(jnp.ones((len(each), 1), U.dtype), len(U))
    step = embedding.conjugate(apply, right, weight * square + penalty)
    return U - step @ jnp.swapaxes(Q, 1, 2)


@jax.jit
def answers(level: Level, A: jax.Array, V: jax.Array) -> jax.Array:
    """Scores, items x labels."""
    return level.gathered(level.scores(A, V))


@partial(jax.jit, static_argnames=("rows", "soft"))
def votes(
    level: Level, A: jax.Array, V: jax.Array, rows: int, soft: bool
) -> tuple[jax.Array, jax.Array]:
    """How many nodes vote for each label of a row (rows x labels), and how many nodes the row uses."""
    score = answers(level, A, V)
    yes = jax.nn.sigmoid(odds(score)) if soft else (score > FAINT).astype(score.dtype)
    votes = jnp.zeros((rows, yes.shape[1]), yes.dtype).at[level.row].add(yes)
    return votes, jnp.zeros((rows, 1), yes.dtype).at[level.row].add(1)


class Margins(dist.Distribution):
    """The labels, rows x labels, with density exp(-loss of all nodes)."""

    arg_constraints: dict[str, Any] = {}
    support = dist.constraints.real_vector
    pytree_data_fields = ("U", "V", "data")

    def __init__(self, U: dict, V: dict, data: Any) -> None:
        self.U, self.V, self.data = U, V, data
        super().__init__((), data.cells[LABELS].row.shape)

    def loss(self, y: jax.Array) -> jax.Array:
        Y = embedding.answers_of(self.data, y)[0] * 2 - 1
        total = jnp.zeros(())
        for depth, level in self.data.nodes.items():
            total += cost(level, level.codes(self.U[depth]), self.V[depth], Y)
        return total

    def log_prob(self, value: jax.Array) -> jax.Array:
        return -self.loss(value)

    @property
    def log_mass(self) -> jax.Array:
        """The log of the sum of the density over all tables of 0 and 1."""
        yes = no = jnp.zeros(self.data.cells[LABELS].shape)
        for depth, level in self.data.nodes.items():
            s = answers(level, level.codes(self.U[depth]), self.V[depth])
            yes = yes.at[level.row].add(SMOOTH.value(s))
            no = no.at[level.row].add(SMOOTH.value(-s))
        known = jnp.asarray(self.data.labelled)[:, None]
        return jnp.sum(jnp.where(known, jnp.logaddexp(-yes, -no), 0))

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Independent labels; the log odds of a label are summed over the nodes of its row."""
        total = jnp.zeros(self.data.cells[LABELS].shape)
        for depth, level in self.data.nodes.items():
            s = answers(level, level.codes(self.U[depth]), self.V[depth])
            total = total.at[level.row].add(odds(s))
        shape = (*sample_shape, *total.shape)
        return jax.random.bernoulli(key, jax.nn.sigmoid(total), shape).astype(total.dtype)
