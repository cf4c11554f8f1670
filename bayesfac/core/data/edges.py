"""Graphs over users or over items (friends, similar items), checked once, here.

An edge has a weight above 0 and no direction: where it is listed twice, also as (b, a), the larger weight
counts. An edge of weight 0, or from a label to itself, says nothing and is left out.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import scipy.sparse as sp

from bayesfac.core.data import reading
from bayesfac.core.data.graphs import Graphs

EXACT = 500  # up to so many rows with edges all eigenvalues are computed
NODES, PROBES = 20, 8  # otherwise steps of Lanczos's method, from so many random vectors


class Joined(NamedTuple):
    """A graph on the device.

    graphs           its edges; weights are in units of the mean degree of the rows that have edges
    linked           which rows have edges
    values, shares   the mean of f(L)'s diagonal over these rows is sum_k shares_k f(values_k), where L is the
                     Laplacian; of more than 500 rows nearly, by stochastic Lanczos quadrature (Ubaru, Chen &
                     Saad 2017)
    """

    graphs: Graphs
    linked: jax.Array
    values: jax.Array
    shares: jax.Array


@dataclass(frozen=True, eq=False)
class Edges:
    """A graph over these labels: `table` has the weights above the diagonal."""

    labels: pd.Index
    table: sp.csr_matrix

    @property
    def both(self) -> sp.csr_matrix:
        """The symmetric table of weights."""
        return (self.table + self.table.T).tocsr()

    def at(self, labels: pd.Index) -> "Edges":
        """The graph among these labels; those that it does not know have no edges."""
        place = reading.positions_of(self.labels, labels)
        kept = np.flatnonzero(place >= 0)
        pick = (np.ones(len(kept)), (kept, place[kept]))
        pick = sp.csr_matrix(pick, shape=(len(labels), len(self.labels)))
        return Edges(labels, sp.triu(pick @ self.both @ pick.T, k=1, format="csr"))

    def design(self, what: str) -> Joined:
        """The graph on the device."""
        weights = self.both
        degree = np.asarray(weights.sum(1)).ravel()
        linked = degree > 0
        mean = degree[linked].mean() if linked.any() else 1.0
        some = sp.csr_matrix(weights / mean)[linked][:, linked]
        values, shares = spectrum(sp.csgraph.laplacian(some))
        graphs = Graphs({what: self.table / mean})
        return Joined(graphs, jnp.asarray(linked), reading.real(values), reading.real(shares))

    def digest(self) -> list[Any]:
        """What tells this graph from others."""
        return [self.table.indptr, self.table.indices, self.table.data]


def spectrum(L: sp.csr_matrix) -> tuple[np.ndarray, np.ndarray]:
    """`values` and `shares` of `Joined`."""
    n = L.shape[0]
    if n == 0:
        return np.zeros(1), np.ones(1)
    if n <= EXACT:
        return np.maximum(np.linalg.eigvalsh(L.toarray()), 0), np.full(n, 1 / n)
    rng, values, shares = np.random.default_rng(0), [], []
    for _ in range(PROBES):
        q = rng.choice([-1.0, 1.0], n)[:, None] / n**0.5  # one column for each step
        T = np.zeros((NODES, NODES))
        for step in range(NODES):
            new = L @ q[:, step]
            T[: step + 1, step] = T[step, : step + 1] = q.T @ new
            new = new - q @ (q.T @ new)
            new = new - q @ (q.T @ new)  # once more, against rounding
            size = np.linalg.norm(new)
            if size < 1e-9 or step == NODES - 1:
                break
            q = np.column_stack([q, new / size])
        found, vectors = np.linalg.eigh(T[: step + 1, : step + 1])
        values.append(np.maximum(found, 0))
        shares.append(vectors[0] ** 2 / PROBES)
    return np.concatenate(values), np.concatenate(shares)


def described(given: Any, labels: pd.Index, what: str) -> Edges:
    """A graph over these labels and those that it alone knows."""
    if isinstance(given, Edges):
        low, high = given.table.nonzero()
        one, two, weight = given.labels[low], given.labels[high], given.table.data
    elif sp.issparse(given):
        if given.shape != (len(labels),) * 2:
            raise ValueError(
                f"Expected a graph of the {len(labels)} {what}s in the order of their labels, got shape "
                f"{given.shape}; a table of edges names the labels"
            )
        stored = given.tocoo()
        one, two, weight = labels[stored.row], labels[stored.col], stored.data
    else:
        one, two, weight = _columns(given, what)
    ends = pd.Index(one).append(pd.Index(two))
    extra = ends[reading.positions_of(labels, ends) < 0]
    every = reading.labels(labels.append(extra), what)[1] if len(extra) else labels
    left, right = np.split(reading.positions_of(every, ends), 2)
    weight = np.asarray(weight, np.float64)
    if (bad := reading.beyond(weight) | ~(weight >= 0)).any():
        row = int(np.argmax(bad))
        pair = tuple(reading.plain(every[side[row]]) for side in (left, right))
        raise ValueError(
            f"Expected finite weights of at least 0 in the graph of {what}s, got {weight[row]} for {pair}"
        )
    kept = (weight > 0) & (left != right)
    if not kept.any():
        raise ValueError(
            f"Expected at least one edge between two {what}s of a weight above 0, got none"
        )
    low, high = np.minimum(left, right)[kept], np.maximum(left, right)[kept]
    frame = pd.DataFrame({"low": low, "high": high, "weight": weight[kept]})
    one = frame.groupby(["low", "high"], as_index=False)["weight"].max()
    size = (len(every), len(every))
    return Edges(every, sp.csr_matrix((one["weight"], (one["low"], one["high"])), shape=size))


def _columns(given: Any, what: str) -> tuple[Any, Any, Any]:
    """The labels at both ends of each edge, and the weights."""
    table = given if isinstance(given, pd.DataFrame) else pd.DataFrame(given)
    if table.shape[1] not in (2, 3):
        raise ValueError(
            f"Expected edges of {what}s as a table of two labels and perhaps a weight, or a scipy sparse "
            f"matrix, got shape {table.shape}"
        )
    one, two, *more = (table.iloc[:, k] for k in range(table.shape[1]))
    for row in np.flatnonzero(one.isna() | two.isna())[:1]:
        pair = one.iloc[row], two.iloc[row]
        raise ValueError(f"Expected two {what}s in every row of edges, got {pair} in row {row}")
    try:
        weight = more[0].to_numpy(np.float64, na_value=np.nan) if more else np.ones(len(table))
    except (TypeError, ValueError) as error:
        raise TypeError(f"Expected numbers as weights of edges of {what}s, got {error}") from error
    return one, two, weight
