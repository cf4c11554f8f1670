"""Sweeps over the layers of HiMLS and HiMLSD: updates of every factor, and of new rows.

A sweep updates the factors of one layer after the other, from the data upwards. `Error` contains the steps
that differ between the two methods.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from bayesfac.core.programs import compiled_for
from bayesfac.labels.data.tasks import LABELS, Tasks
from bayesfac.labels.models.tasks._layers import (
    Error,
    Layout,
    Pair,
    column_factor,
    column_factors,
    depth,
    layout,
    left,
    product,
    row_factors,
    row_table,
    space,
    spaces_below,
    turned,
    weigh,
)

# passes of coordinate descent over new rows; the error is then below 1e-4 of the spread of the predictions:
# 1e-5 after ten passes of `himls`, and 8e-5 after 30 passes of `himlsd`
ARRIVED = 30


def sweep(p: Any, data: Tasks, hyper: Any, error: Error) -> Any:
    """Algorithm 1, steps 11-16: the spaces of the highest layer, then rows and columns of every layer."""
    L = depth(hyper)
    p = update_spaces(p, data, hyper, error, L)
    for layer in range(L, 0, -1):
        p = update_rows(p, data, hyper, error, layer)
        p = update_columns(p, data, hyper, error, layer)
    return p


def row_tables(p: Any, data: Tasks, hyper: Any, error: Error, layer: int) -> dict[str, Pair]:
    """N and Z of the rows of every block."""
    result = {}
    for b in data.blocks:
        A, G = row_table(p, layout(data), b, layer), column_factor(p, b, layer)
        result[b] = error.rows(data.cells[b], data.y[b], A, G)
    return result


def pulls(p: Any, data: Tasks, hyper: Any, error: Error, layer: int) -> dict[str, Pair]:
    """R'N and R'Z, from which the space of every block and task is updated."""
    if error.pulls:
        return error.pulls(p, data, hyper, layer)
    return _pulls(row_tables(p, data, hyper, error, layer), p, layout(data), hyper, layer)


@compiled_for(2, 3, 4)
def _pulls(parts: dict[str, Pair], p: Any, rows: Layout, hyper: Any, layer: int) -> dict[str, Pair]:
    pulled = {}
    for b, pair in parts.items():
        sums = [[jnp.zeros_like(space(p, b, 0))] * rows.n_tasks for _ in pair]
        for i, at in rows.spans(b):
            R = turned(row_factors(p, at, i, layer))
            for total, table in zip(sums, pair, strict=True):
                total[i] = weigh(b, hyper) * product(*R, table[at])
        pulled[b] = jnp.stack(sums[0]), jnp.stack(sums[1])
    return pulled


def update_spaces(p: Any, data: Tasks, hyper: Any, error: Error, layer: int) -> Any:
    """M_ij, then M_iY, of the model that ends with this layer.

    First, all spaces of a task are multiplied by one factor, because strongly coupled spaces hardly move
    alone.
    """
    parts = pulls(p, data, hyper, error, layer)
    if p.common is not None:
        num, den = (sum(jnp.sum(pair[k], 0) for pair in parts.values()) for k in (0, 1))
        return p._replace(common=error.step(p.common, num, den, hyper))
    M = dict(p.M)
    if hyper.coupling:
        num, den = (sum(M[b] * pair[k] for b, pair in parts.items()) for k in (0, 1))
        factor = error.factor(M, num, den, hyper)
        M = {b: m * factor for b, m in M.items()}
        parts = pulls(p._replace(M=M), data, hyper, error, layer)
    views = [b for b in p.M if b != LABELS]
    none = jnp.zeros_like(M[LABELS])
    for b in views:
        M[b] = error.view(M[b], *parts.get(b, (none, none)), M[LABELS], hyper)
    if LABELS in parts:
        others = sum(M[b] for b in views)
        M[LABELS] = error.label(M[LABELS], *parts[LABELS], others, len(views), hyper)
    return p._replace(M=M)


def update_rows(p: Any, data: Tasks, hyper: Any, error: Error, layer: int) -> Any:
    """R (10, 11, 17), or S of a layer above by (16) with all rows, because unlabelled rows share this
    factor."""
    if layer == 1 and error.best_rows:
        return p._replace(R=error.best_rows(p, data, hyper))
    old = p.R if layer == 1 else p.S[str(layer)]
    parts = row_tables(p, data, hyper, error, depth(hyper))
    num, den = row_sums(parts, old, p, layout(data), hyper, layer)
    new = error.step(old, num, den, hyper)
    return p._replace(R=new) if layer == 1 else p._replace(S={**p.S, str(layer): new})


@compiled_for(3, 4, 5)
def row_sums(
    parts: dict[str, Pair], old: jax.Array, p: Any, rows: Layout, hyper: Any, layer: int
) -> list[jax.Array]:
    sums = [jnp.zeros_like(old), jnp.zeros_like(old)]
    for b, pair in parts.items():
        for i, at in rows.spans(b):
            factors = row_factors(p, at, i, depth(hyper))
            below, above = turned(factors[: layer - 1]), turned(factors[layer:])
            place = at if layer == 1 else i
            for k, table in enumerate(pair):
                part = product(*below, table[at], space(p, b, i).T, *above)
                sums[k] = sums[k].at[place].add(weigh(b, hyper) * part)
    return sums


def rows_seen(p: Any, data: Tasks, hyper: Any, b: str) -> jax.Array:
    """The table A with X_b ~ A C', where C is the lowest layer of the columns."""
    A = row_table(p, layout(data), b, depth(hyper))
    return product(A, *turned(column_factors(p, b, depth(hyper))[1:]))


def update_columns(p: Any, data: Tasks, hyper: Any, error: Error, layer: int) -> Any:
    """C (12, 13), or D of a layer above (18, 19), of every block."""
    L = depth(hyper)
    C, D = dict(p.C), dict(p.D or {})
    for b in data.blocks:
        if layer == 1 and error.best_columns:
            C[b] = error.best_columns(p, data, hyper, b)
            continue
        A = row_table(p, layout(data), b, L)
        pair = error.columns(data.cells[b], data.y[b], A, column_factor(p, b, L))
        factors = column_factors(p, b, L)
        below, above = turned(factors[: layer - 1]), turned(factors[layer:])
        num, den = (weigh(b, hyper) * product(*below, table, *above) for table in pair)
        if layer == 1:
            C[b] = error.step(C[b], num, den, hyper)
        else:
            D[f"{b}.{layer}"] = error.step(D[f"{b}.{layer}"], num, den, hyper)
    return p._replace(C=C, D=D)


def repeat(step: Callable[[Any], Any], p: Any, times: int) -> Any:
    """Apply `step` to p this many times."""
    if not times:
        return p
    return jax.lax.fori_loop(0, times, lambda _, p: step(p), p)


# -- prediction -----------------------------------------------------------------------------------


def derive(p: Any, data: Tasks, hyper: Any, error: Error) -> dict[str, Any]:
    """The spaces of the labels in every layer, and the rows times these spaces: the terms of eq. 3.

    Spaces below the highest layer are no parameters of (5). As the paper says after Theorem 4, they follow
    from the factors of their layer, by updates of its spaces alone.
    """
    N = {}
    for layer in range(1, depth(hyper) + 1):
        q = p._replace(M=spaces_below(p, data, hyper, layer), common=None)
        if layer < depth(hyper):
            settle = partial(update_spaces, data=data, hyper=hyper, error=error, layer=layer)
            q = repeat(settle, q, hyper.pretraining)
        N[str(layer)] = q.M[LABELS]
    return {"N": N, "left": left(p._replace(N=N), data, hyper)}


def fold_in(p: Any, data: Tasks, hyper: Any, error: Error) -> Any:
    """New rows of known tasks: R by its own update, with all other factors fixed."""
    usual = jnp.mean(p.R, 0)
    p = p._replace(R=jnp.broadcast_to(usual, (data.n_rows, len(usual))))
    p = repeat(lambda p: update_rows(p, data, hyper, error, 1), p, ARRIVED)
    return p._replace(left=left(p, data, hyper))
