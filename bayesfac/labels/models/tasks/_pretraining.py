"""The start of HiMLS and HiMLSD: layers are trained one after another, from clusters of rows and columns."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from bayesfac.core.kernels import tables
from bayesfac.core.kernels.sparse import ratio_step
from bayesfac.core.math import normalise
from bayesfac.core.programs import compiled_for
from bayesfac.labels.data.tasks import LABELS, Tasks
from bayesfac.labels.models.tasks._layer_sweeps import repeat, sweep
from bayesfac.labels.models.tasks._layers import Error, Params, depth
from bayesfac.labels.models.tasks._singular import leading

# in place of zeros of a start by labels, which multiplicative steps cannot change
LEAST, SMALL = 0.02, 1e-3


def pretrain(key: jax.Array, data: Tasks, hyper: Any, error: Error) -> Params:
    """Algorithm 1, steps 1-9: each layer is trained alone, on the spaces of the layer below."""
    R, M, common = None, None, None
    S: dict[str, jax.Array] = {}
    C: dict[str, jax.Array] = {}
    D: dict[str, jax.Array] = {}
    for number, sizes in enumerate(hyper.layers, 1):
        key, sub = jax.random.split(key)
        first = hyper.start if number == 1 or hyper.start != "labels" else "plsa"
        shared = hyper.shared and number == depth(hyper)
        own = hyper._replace(layers=(sizes,), start=first, shared=shared, weight=1.0)
        p = trained(sub, data, hyper.weight, own, error)
        if number < depth(hyper):
            p = unit_columns(p, error)
        M, common = p.M, p.common
        if number == 1:
            R, C = p.R, p.C
        else:
            S[str(number)] = jnp.reshape(p.R, (data.n_tasks, -1, sizes[0]))
            D |= {f"{b}.{number}": table for b, table in p.C.items()}
        if number < depth(hyper):
            data = data.like(M)  # a row for each row cluster of each task
    return Params(R, S, C, D, M, common)


@compiled_for(3, 4)
def trained(key: jax.Array, data: Tasks, weight: float, hyper: Any, error: Error) -> Params:
    """One layer after its sweeps; one program serves all weights of the labels."""
    hyper = hyper._replace(weight=weight)
    step = partial(sweep, data=data, hyper=hyper, error=error)
    return repeat(step, start(key, data, hyper), hyper.pretraining)


def unit_columns(p: Any, error: Error) -> Any:
    """Scale columns of R and C to size one, so that errors of M, the next layer's data, are errors of X."""

    def size(table: jax.Array) -> jax.Array:
        return jnp.maximum(error.size(table), jnp.finfo(table.dtype).tiny)

    M = {b: size(p.R)[:, None] * m * size(p.C[b]) for b, m in p.M.items()}
    return p._replace(R=p.R / size(p.R), C={b: c / size(c) for b, c in p.C.items()}, M=M)


def start(key: jax.Array, data: Tasks, hyper: Any) -> Params:
    """One layer: R and C by `hyper.start`, M = R^+ X C^+ made positive, and all three scaled to one size."""
    kr, kc = jax.random.split(key)
    p, q = hyper.layers[0]
    if hyper.start == "labels":
        R, C, M = by_labels(kr, data, p, q)
        return balanced(R, C, M, hyper)
    if hyper.start == "svd":
        R, C = singular(kr, data, p, q)
    elif hyper.start == "plsa":
        R, _ = cluster(kr, data, p)
        _, C = cluster(kc, data, q)
    else:
        R = uneven(kr, data.n_rows, p)
        keys = jax.random.split(kc, len(data.blocks))
        widths = data.n_features.items()
        C = {b: uneven(k, q, d).T for k, (b, d) in zip(keys, widths, strict=True)}
    return balanced(R, C, start_spaces(R, C, data), hyper)


def balanced(R: jax.Array, C: dict[str, jax.Array], M: dict[str, jax.Array], hyper: Any) -> Params:
    """The start, with R, C and M multiplied so that they have one size."""
    shares = [sum(jnp.sum(x) for x in jax.tree.leaves(part)) for part in (R, C, M)]
    size = jnp.prod(jnp.stack(shares) ** (1 / 3))
    parts = zip((R, C, M), shares, strict=True)
    R, C, M = (jax.tree.map(lambda x, t=t: x * (size / t), part) for part, t in parts)
    common = jnp.asarray(sum(jnp.mean(m, 0) for m in M.values())) / len(M) if hyper.shared else None
    return Params(R, {}, C, {}, None if hyper.shared else M, common)


def by_labels(
    key: jax.Array, data: Tasks, p: int, q: int
) -> tuple[jax.Array, dict[str, jax.Array], dict[str, jax.Array]]:
    """A cluster for each label, the most frequent labels first, and random clusters for the rest.

    A labelled row starts in the clusters of its labels. A row without labels starts in all of them, with
    weights by their frequency. The features of a cluster are the mean features of its rows, and each row
    cluster corresponds to a column cluster.
    """
    Y = tables.product(data.cells[LABELS], data.y[LABELS], jnp.eye(data.n_features[LABELS]))
    known, k = jnp.asarray(data.labelled)[:, None], max(p, q)
    usual = jnp.sum(jnp.where(known, Y, 0), 0) / jnp.sum(known)
    order = jnp.argsort(-usual)[:k]
    some = jnp.where(known, Y, usual)[:, order]
    rest = jax.random.uniform(key, (data.n_rows, k - len(order)), maxval=0.4)
    R = jnp.hstack([some, rest]) + LEAST
    mean = R / jnp.sum(R, 0)
    C = {b: tables.transposed(data.cells[b], data.y[b], mean) for b in data.names}
    C = {b: (c + SMALL * jnp.mean(c) + SMALL)[:, :q] for b, c in C.items()}
    C[LABELS] = jnp.zeros((len(usual), k)).at[order, jnp.arange(len(order))].set(1)[:, :q] + SMALL
    M = jnp.broadcast_to(jnp.eye(p, q) + SMALL, (data.n_tasks, p, q))
    return R[:, :p], C, dict.fromkeys(data.blocks, M)


def uneven(key: jax.Array, rows: int, columns: int) -> jax.Array:
    """Random rows that sum to one and differ enough that columns do not stay equal."""
    table = jax.random.uniform(key, (rows, columns), minval=0.2, maxval=1.8)
    return table / jnp.sum(table, 1, keepdims=True)


def start_spaces(R: jax.Array, C: dict[str, jax.Array], data: Tasks) -> dict[str, jax.Array]:
    """R^+ X C^+; negative and very small entries are replaced by a twentieth of the mean size."""
    where = [(b, i, at) for b in data.blocks for i, at in data.spans(b)]
    of_rows = solid_inverse(jnp.stack([R[at].T @ R[at] for _, _, at in where]))
    of_columns = solid_inverse(jnp.stack([C[b].T @ C[b] for b in data.blocks]))
    M = {b: [jnp.full((R.shape[1], C[b].shape[1]), jnp.nan)] * data.n_tasks for b in data.blocks}
    for b, inverse in zip(data.blocks, of_columns, strict=True):
        right = tables.product(data.cells[b], data.y[b], C[b]) @ inverse
        for (name, i, at), left in zip(where, of_rows, strict=True):
            if name == b:
                M[b][i] = left @ (R[at].T @ right[at])
    spaces = {}
    for b, parts in M.items():
        m = jnp.stack(parts)
        usual = jnp.maximum(jnp.nanmean(jnp.abs(m)), 1e-3)
        spaces[b] = jnp.maximum(jnp.where(jnp.isnan(m), usual, m), 0.05 * usual)
    return spaces


def solid_inverse(grams: jax.Array) -> jax.Array:
    """Inverses with a very small ridge, for factors with linearly dependent columns."""
    size = jnp.trace(grams, axis1=-2, axis2=-1)[:, None, None] / grams.shape[-1]
    return jnp.linalg.inv(grams + (1e-4 * size + 1e-12) * jnp.eye(grams.shape[-1]))


def cluster(key: jax.Array, data: Tasks, K: int) -> tuple[jax.Array, dict[str, jax.Array]]:
    """PLSA of all views together: P(cluster | row), and P(feature | cluster) as columns.

    Labels are not used for the rows: rows with and without labels would start in different clusters.
    """
    keys = jax.random.split(key, len(data.blocks) + 1)
    A = uneven(keys[0], data.n_rows, K)
    G = {b: uneven(k, K, data.n_features[b]).T for b, k in zip(data.blocks, keys[1:], strict=True)}

    def step(state: tuple) -> tuple:
        A, G = state
        mass, new = jnp.zeros_like(A), {}
        for b in data.blocks:
            by_row, by_column = ratio_step(data.cells[b], data.y[b], A, G[b])
            if b != LABELS:
                mass += A * by_row
            new[b] = shares(G[b].T, by_column.T).T
        return normalise(mass, A), new

    return repeat(step, (A, G), 30)


@jax.jit
def shares(G: jax.Array, ratio: jax.Array) -> jax.Array:
    """One multiplicative step for rows that sum to one."""
    return normalise(G * ratio, G)


def singular(key: jax.Array, data: Tasks, p: int, q: int) -> tuple[jax.Array, dict[str, jax.Array]]:
    """NNDSVD (Boutsidis & Gallopoulos 2008) of all blocks side by side. Of every leading pair of singular
    vectors it takes the larger of the positive and the negative part; zeros become a tenth of the mean."""
    U, V = leading(key, data, max(p, q), dict.fromkeys(data.blocks, 1.0))
    size = [sum(jnp.sum(jnp.maximum(s * v, 0) ** 2, 0) for v in (U, *V.values())) for s in (1, -1)]
    sign = jnp.where(size[0] >= size[1], 1, -1)

    def positive(table: jax.Array, columns: int) -> jax.Array:
        part = jnp.maximum(table * sign, 0)[:, :columns]
        return jnp.maximum(part, 0.1 * jnp.mean(part, 0) + 1e-9)

    return positive(U, p), {b: positive(v, q) for b, v in V.items()}
