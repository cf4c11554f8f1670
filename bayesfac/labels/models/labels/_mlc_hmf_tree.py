"""The tree of MLC-HMF: rows are split until a node classifies them well. It is built once, before the fit."""

from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from bayesfac.core.clustering import kmeans_labels, nearest_rows
from bayesfac.core.data import reading
from bayesfac.core.math import lowered
from bayesfac.labels.data.tasks import LABELS, Tasks
from bayesfac.labels.models.labels._mlc_hmf_nodes import FAINT, Level, level

Pair = tuple[np.ndarray, np.ndarray]  # U and V of one node
# The L-BFGS of a node: largest number of steps, and the relative decrease at which it ends. It is run to the
# minimum, because sweeps of the fit are slow if few margins are violated, and thousands would be needed.
STEPS, EXACT = 5000, 1e-9


@jax.tree_util.register_pytree_node_class
class Tree(Tasks):
    """Tasks with the tree that was grown on their labelled rows.

    nodes    by depth from 1: the rows that each node was fitted to
    votes    by depth: each row with the nodes of its nearest neighbours
    start    by depth: U and V of every node when the tree was built
    """

    nodes: dict[str, Level]
    votes: dict[str, Level]
    start: dict[str, tuple[jax.Array, jax.Array]]
    leaves = ("cells", "y", "nodes", "votes", "start")

    @classmethod
    def of(cls, data: Tasks, *parts: Any) -> "Tree":
        """The data with the parts of a tree."""
        return cls.tree_unflatten(data.host, (data.cells, data.y, *parts))


@dataclass
class Growing:
    """A tree during its construction: items and nodes by depth, and the node that kept each row (-1:
    none)."""

    row: list[np.ndarray] = field(default_factory=list)
    node: list[np.ndarray] = field(default_factory=list)
    pairs: list[list[Pair]] = field(default_factory=list)
    home: np.ndarray = field(default_factory=lambda: np.zeros(0, int))


def grow(data: Tasks, hyper: Any) -> Tree:
    """Algorithm 5: split in two, fit, keep the rows that are classified well, split the other rows again."""
    with threadpool_limits(1, "blas"):  # a node's products are too small for several threads
        return _grown(data, hyper)


def _grown(data: Tasks, hyper: Any) -> Tree:
    (view,) = data.names
    x, y = sp.csr_matrix(data[view]), data[LABELS].toarray() * 2 - 1
    labelled = np.flatnonzero(data.labelled)
    grown = Growing(home=np.full(data.n_rows, -1))
    groups, number = _halves(x, labelled, hyper), 0
    if not groups:
        raise ValueError(
            f"Expected a cluster of at least {hyper.minimum} labelled rows, got {len(labelled)} labelled "
            "rows in smaller clusters: label more rows, or lower minimum"
        )
    for depth in range(1, hyper.depth + 1):
        pairs: list[Pair] = []
        next_groups: list[np.ndarray] = []
        for at in groups:
            rng = np.random.default_rng([hyper.tree_seed, number + len(pairs)])
            U, V = fit_node(x[at], y[at], hyper.n_components, hyper.penalty, rng)
            lost = np.mean((x[at] @ U @ V.T > FAINT) != (y[at] > 0), 1)
            stays = lost <= hyper.threshold
            grown.home[at[stays]] = number + len(pairs)
            pairs.append((U, V))
            if depth < hyper.depth:
                next_groups += _halves(x, at[~stays], hyper)
        if not pairs:
            break
        grown.row.append(np.concatenate(groups))
        grown.node.append(np.repeat(np.arange(len(groups)), [len(at) for at in groups]))
        grown.pairs.append(pairs)
        number, groups = number + len(pairs), next_groups
    return planted(data, x, grown, hyper)


def _halves(x: sp.csr_matrix, at: np.ndarray, hyper: Any) -> list[np.ndarray]:
    """Two clusters of these rows; clusters with fewer than the minimal number of rows are dropped."""
    if len(at) < max(2, hyper.minimum):
        return []
    distinct = sp.csr_matrix(x[at] - sp.csr_matrix(np.ones((len(at), 1))) @ x[at[:1]])
    same = not abs(distinct).sum()  # copies of one row stay together
    code = np.zeros(len(at), int) if same else kmeans_labels(x[at], 2, hyper.tree_seed)
    return [half for k in (0, 1) if len(half := at[code == k]) >= hyper.minimum]


def planted(data: Tasks, x: sp.csr_matrix, grown: Growing, hyper: Any) -> Tree:
    """The data with the finished tree and with the nodes that each row uses."""
    nodes, votes, start = {}, {}, {}
    homes = _votes(x, grown.home, hyper)
    row, seat = np.repeat(np.arange(data.n_rows), homes.shape[1]), homes.ravel()
    number = 0
    for depth, (rows, node, pairs) in enumerate(
        zip(grown.row, grown.node, grown.pairs, strict=True), 1
    ):
        here = (seat >= number) & (seat < number + len(pairs))
        nodes[f"{depth}"] = level(x, rows, node, len(pairs))
        if here.any():  # rows do not use a depth whose nodes kept no row
            votes[f"{depth}"] = level(x, row[here], seat[here] - number, len(pairs))
        start[f"{depth}"] = tuple(reading.real(np.stack(side)) for side in zip(*pairs, strict=True))
        number += len(pairs)
    return Tree.of(data, nodes, votes, start)


def _votes(x: sp.csr_matrix, home: np.ndarray, hyper: Any) -> np.ndarray:
    """The nodes of every row's nearest neighbours, among the rows that a node kept."""
    stayed = np.flatnonzero(home >= 0)
    if not len(stayed):
        raise ValueError(
            f"Expected rows that a node classifies with a Hamming loss of at most {hyper.threshold}, got "
            "none: raise the threshold or lower the penalty"
        )
    return home[stayed[nearest_rows(x[stayed], x, min(hyper.neighbours, len(stayed)))]]


def fit_node(
    x: sp.csr_matrix, y: np.ndarray, K: int, penalty: float, rng: np.random.Generator
) -> Pair:
    """U (features x K) and V (labels x K) of one node: (5.19) by L-BFGS, with y -1 or 1."""
    d, L = x.shape[1], y.shape[1]
    begin = rng.normal(size=(d + L) * K) * min(1.0, penalty**-0.5) / (d + L) ** 0.25

    def cost(z: np.ndarray) -> tuple[float, np.ndarray]:
        U, V = z[: d * K].reshape(d, K), z[d * K :].reshape(L, K)
        A = x @ U
        short = 1 - y * (A @ V.T)
        part = np.clip(short, 0, 1)
        slope = -y * part
        value = np.sum(part * short - part**2 / 2) + penalty / 2 * (z @ z)
        to_U, to_V = x.T @ (slope @ V), slope.T @ A
        return float(value), np.concatenate([to_U.ravel(), to_V.ravel()]) + penalty * z

    z = lowered(cost, begin, STEPS, EXACT)
    return z[: d * K].reshape(d, K), z[d * K :].reshape(L, K)
