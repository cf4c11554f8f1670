"""Graphs over the rows of views, from nearest neighbours or from the user, stored as one list of edges."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from bayesfac.core import checks
from bayesfac.core.clustering import nearest_rows, unit_rows
from bayesfac.core.data import reading
from bayesfac.core.data.cells import Cells
from bayesfac.core.kernels import sparse
from bayesfac.core.kernels.simplex import colours
from bayesfac.core.math import row_sums

FEW = 15  # up to this many columns a tree finds exact neighbours faster than brute force

METRICS = ("euclidean", "cosine")


@jax.tree_util.register_pytree_node_class
class Graphs:
    """Undirected weighted graphs over the same n rows, as one list of edges with a weight in each graph.

    Parameters
    ----------
    named : mapping
        name -> n x n sparse matrix of weights above 0. One of (i, s) and (s, i) is enough; if both are
        stored the larger weight counts. The diagonal is ignored.

    Examples
    --------
    >>> Graphs({"ring": sp.csr_matrix([[0, 1, 0], [0, 0, 1], [1, 0, 0]])})
    Graphs(3 rows, ring: 3 edges, 1 component)
    """

    def __init__(self, named: Mapping[str, Any]) -> None:
        if not named:
            raise ValueError("Expected at least one graph, got none")
        sides = {name: _upper(matrix, name) for name, matrix in sorted(named.items())}
        n = next(iter(sides.values())).shape[0]
        if any(side.shape[0] != n for side in sides.values()):
            sizes = {name: side.shape[0] for name, side in sides.items()}
            raise ValueError(f"Expected graphs over the same rows, got {sizes}")
        self.names, self.n_rows = tuple(sides), n
        code = {name: _code(side) for name, side in sides.items()}
        union = np.unique(np.concatenate(list(code.values())))
        left, right = np.divmod(union, n)
        ends = np.r_[left, right], np.r_[right, left]  # every edge in both directions
        order = np.lexsort(ends[::-1])
        self.cells = Cells(ends[0][order], ends[1][order], (n, n))
        self.edge = _whole(np.tile(np.arange(len(union)), 2)[order])  # of each entry of `cells`
        self.left, self.right = _whole(left), _whole(right)
        weight = np.zeros((len(sides), len(union)))
        for number, (name, side) in enumerate(sides.items()):
            weight[number, np.searchsorted(union, code[name])] = side.data
        self.weight = jnp.asarray(weight, jnp.result_type(float))  # graphs x edges
        self.classes = _whole(_classes(self.cells))

    def tree_flatten(self) -> tuple[tuple, tuple]:
        children = (self.cells, self.edge, self.left, self.right, self.weight, self.classes)
        return children, (self.names, self.n_rows)

    @classmethod
    def tree_unflatten(cls, host: tuple, children: tuple) -> "Graphs":
        self = object.__new__(cls)
        self.names, self.n_rows = host
        self.cells, self.edge, self.left, self.right, self.weight, self.classes = children
        return self

    def __getitem__(self, name: str) -> sp.csr_matrix:
        """One graph as a symmetric sparse matrix (a copy)."""
        weight = np.asarray(self.weight[self.names.index(name)])
        kept = weight > 0
        ends = np.asarray(self.left)[kept], np.asarray(self.right)[kept]
        half = sp.csr_matrix((weight[kept], ends), shape=(self.n_rows, self.n_rows))
        return (half + half.T).tocsr()

    def take(self, rows: Any) -> "Graphs":
        """The graphs among some of the rows."""
        kept = np.arange(self.n_rows)[rows]
        return Graphs({name: self[name][kept][:, kept] for name in self.names})

    def only(self, name: str) -> "Graphs":
        """The graph `name` alone."""
        if name not in self.names:
            raise ValueError(f"Expected one of the graphs {list(self.names)}, got {name!r}")
        return Graphs({name: self[name]})

    def n_edges(self, name: str) -> int:
        """The number of edges of one graph."""
        return int((self.weight[self.names.index(name)] > 0).sum())

    def components(self) -> dict[str, int]:
        """The number of connected components of every graph."""
        count = sp.csgraph.connected_components
        return {name: int(count(self[name], directed=False)[0]) for name in self.names}

    def __repr__(self) -> str:
        parts = []
        for name, several in self.components().items():
            edges = self.n_edges(name)
            parts.append(f"{name}: {edges} edges, {several} component{'s' * (several > 1)}")
        return f"Graphs({self.n_rows} rows, {'; '.join(parts)})"


def _whole(numbers: np.ndarray) -> jax.Array:
    return jnp.asarray(numbers.astype(np.int32))


def _classes(cells: Cells) -> np.ndarray:
    """The rows in classes without edges inside, one class to a line; lines end with the number of rows."""
    n = cells.shape[0]
    layout = np.asarray(cells.by_row.ptr), np.asarray(cells.by_row.index)
    colour, many = colours(layout)
    size = np.bincount(colour, minlength=many)
    order = np.argsort(colour, kind="stable")
    place = np.arange(n) - np.repeat(np.cumsum(size) - size, size)
    table = np.full((many, int(size.max(initial=0))), n)
    table[colour[order], place] = order
    return table


def _code(side: sp.csr_matrix) -> np.ndarray:
    """row * n + column of every stored cell."""
    row = np.repeat(np.arange(side.shape[0], dtype=np.int64), np.diff(side.indptr))
    return row * side.shape[0] + side.indices


def _upper(matrix: Any, name: str) -> sp.csr_matrix:
    """Check a graph; return its entries above the diagonal."""
    if not sp.issparse(matrix):
        raise TypeError(
            f"Expected graph {name!r} as a scipy sparse matrix, got {type(matrix).__name__}"
        )
    if matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"Expected graph {name!r} to be square, got shape {matrix.shape}")
    graph = reading.in_double(matrix)
    graph.sum_duplicates()
    fine = np.isfinite(graph.data) & (graph.data >= 0)
    if not fine.all():
        row = int(np.searchsorted(graph.indptr, np.flatnonzero(~fine)[0], "right") - 1)
        raise ValueError(
            f"Expected finite weights of at least 0 in graph {name!r}, "
            f"got {graph.data[~fine][0]} in row {row}"
        )
    both = sp.triu(graph.maximum(graph.T), k=1, format="csr")
    both.eliminate_zeros()
    both.sort_indices()
    return both


def neighbours(x: Any, p: int = 5, metric: str = "euclidean") -> sp.csr_matrix:
    """The 0/1 graph of p nearest neighbours: rows are joined if either is among the nearest of the other
    (Wang et al. 2017, eq. 5). Neighbours are exact, by a tree or by brute force in blocks of rows.

    Examples
    --------
    >>> neighbours(np.array([[0.0], [1.0], [3.0], [3.5]]), 1).toarray().astype(int).tolist()
    [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]
    """
    n, m = x.shape
    if metric not in METRICS:
        raise ValueError(f"Expected metric to be one of {METRICS}, got {metric!r}")
    if n < 2:
        raise ValueError("Expected at least two rows to join neighbours, got one")
    checks.whole("neighbours", p, n - 1, "one less than rows")
    if metric == "cosine":  # between rows of length one the smallest angle is the smallest distance
        x = unit_rows(sp.csr_matrix(x) if sp.issparse(x) else np.asarray(x, float))
    tree = m <= FEW
    if tree or (sp.issparse(x) and x.nnz > 0.2 * n * m):
        x = x.toarray() if sp.issparse(x) else x
    near = nearest_rows(x, x, p + 1, "kd_tree" if tree else "brute")
    own = near == np.arange(n)[:, None]
    own[~own.any(1), -1] = True  # a row with more than p copies may be missing from its own nearest
    ends = np.repeat(np.arange(n), p), near[~own]
    half = sp.csr_matrix((np.ones(n * p), ends), shape=(n, n))
    return half.maximum(half.T).tocsr()


@jax.custom_vjp
def differences(graphs: Graphs, A: jax.Array, B: jax.Array) -> jax.Array:
    """(a_i - a_s) . (b_i - b_s) for every edge; their weighted sum is tr A' L B."""
    return sparse.differences(graphs.left, graphs.right, A, B)


def _backward(kept: tuple, slope: jax.Array) -> tuple[None, jax.Array, jax.Array]:
    graphs, A, B = kept
    return None, laplacian(graphs, slope, B), laplacian(graphs, slope, A)


differences.defvjp(lambda *kept: (differences(*kept), kept), _backward)


def degrees(graphs: Graphs, weight: jax.Array) -> jax.Array:
    """The sum of the weights of its edges, for every row."""
    return row_sums(graphs.cells.by_row, weight[graphs.edge])


def laplacian(graphs: Graphs, weight: jax.Array, A: jax.Array) -> jax.Array:
    """(D - E) A for these weights of the edges."""
    beside = sparse.spread(graphs.cells.by_row, weight[graphs.edge], A)
    return degrees(graphs, weight)[:, None] * A - beside
