r"""Hierarchical multi-latent spaces with the Kullback-Leibler divergence (HiMLSD), by coordinate descent.

Yang, Davulcu, Zhu & He, "A generalized hierarchical multi-latent space model for heterogeneous learning",
IEEE TKDE 2016; eq. 1-3, 22-43, Algorithm 1.

    J = sum_i sum_j D(X_ij || R_i^(1:L) M_ij C_j^(1:L)') + alpha sum_i D(Y_i || R_i^(1:L) M_iY C_Y^(1:L)')
        + beta sum_i sum_j D(M_ij || M_iY) + sum of (rate h - (shape - 1) log h) over all factors' entries h
    D(x || y) = x log(x / y) - x + y, summed

    paper             here            shape
    R_i^(1), R_i^u    R               rows x p_1          all tasks, one below the other
    R_i^(l), l > 1    S["l"]          tasks x p_{l-1} x p_l
    C_j^(1), C_Y^(1)  C[block]        features of the view, or labels, x q_1
    C_j^(l), C_Y^(l)  D["block.l"]    q_{l-1} x q_l
    M_ij, M_iY        M[block]        tasks x p_L x q_L; with `shared` (44) one `common` p_L x q_L
    alpha, beta       weight, coupling
    X_ij, Y_i         data.y[block] on data.cells[block], rows data.span(block, i); block "labels" is Y

The method predicts labels for rows of several tasks that have different views, as `himls` does, but with a
divergence that suits counts. In the coupling of M_ij to M_iY, (25), (32) and (38) replace 1 - 1/x by log x,
so J may rise. Instead, the bound of Lemma 6 has an exact minimum. With A = h (R'(X / RMC')C) + shape - 1, B =
R'EC + rate and p = M_iY

    -A/h + B + beta log(h / p) = 0,   h = A / (beta s),   s + log s = log A - log(beta p) + B / beta,

that is s = W(A e^(B/beta) / (beta p)) with Lambert's function W, computed in logarithms. If A = 0, h = p
e^(-B/beta). (33) is exact as printed; in (36), (37), (42) and (43) R stands for the R of all rows that have
the block. As in `himls`, all rows are used in the update of R^(l), l > 1, where (40) uses only the labelled
rows.

The paper updates R and C by (34)-(37), that is by multiplication. This update is slow: on emotions it ended
after 4,163 sweeps, with a J 4 % above what follows. J is convex in each entry of R and C, and `best_rows` and
`best_columns` bring one entry after the other nearer to its minimum, without a rise
(`nonnegative.descend_divergence`): 365 sweeps. Pre-training multiplies, as in `himls`.

The NumPyro model has tables with density exp(-w D), similar to a Poisson law, gamma factors, and the factor
exp(-beta D(M_ij || M_iY)). J omits the normalising constant of this factor, so the posterior is
*generalised*. The private files are described in `himls`.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from bayesfac.core.data.cells import Cells, Grid, Query
from bayesfac.core.kernels import tables
from bayesfac.core.kernels.nonnegative import Tables, descend_divergence
from bayesfac.core.kernels.sparse import ratios, spread
from bayesfac.core.math import safe_log
from bayesfac.core.method import Axes, Choose, Method, Notes, Solver, register
from bayesfac.core.programs import compiled_for
from bayesfac.labels import laws as labels
from bayesfac.labels.data.tasks import LABELS, Tasks
from bayesfac.labels.models.tasks import _layer_sweeps as sweeps
from bayesfac.labels.models.tasks import _layers as shared
from bayesfac.labels.models.tasks import _pretraining as pretraining
from bayesfac.labels.models.tasks._layers import Hyper, Params

WEIGHTS = (0.3, 5.0)  # candidates for the weight of a label, compared with a scaled feature


def choices(data: Tasks, hyper: Hyper, chosen: Any) -> list[dict[str, Any]]:
    """Candidates for labels of 0 and 1; with numbers, short fits rank them otherwise than whole fits."""
    return shared.choices(data, hyper, chosen, WEIGHTS) if data.binary else []


def init(key: jax.Array, data: Tasks, hyper: Hyper) -> Params:
    return pretraining.pretrain(key, data, hyper, DIVERGENCE.multiplicative)


def coupling(p: Params, hyper: Hyper) -> jax.Array | float:
    if p.M is None or not hyper.coupling:
        return 0.0
    return hyper.coupling * jnp.sum(gap(p.M))


def objective(p: Params, data: Tasks, hyper: Hyper) -> jax.Array:
    error = shared.misfit(p, data, hyper, tables.divergence)
    return error + coupling(p, hyper) + shared.energy(p, hyper)


def rows(cells: Cells, y: jax.Array, A: jax.Array, C: jax.Array) -> shared.Pair:
    """(X / AC') C and E C."""
    return spread(cells.by_row, ratios(cells, y, A, C), C), jnp.broadcast_to(jnp.sum(C, 0), A.shape)


def columns(cells: Cells, y: jax.Array, A: jax.Array, C: jax.Array) -> shared.Pair:
    """(X / AC')' A and E'A."""
    return spread(cells.by_col, ratios(cells, y, A, C), A), jnp.broadcast_to(jnp.sum(A, 0), C.shape)


def size(A: jax.Array) -> jax.Array:
    return jnp.sum(A, 0)


@compiled_for(3)
def step(H: jax.Array, num: jax.Array, den: jax.Array, hyper: Hyper) -> jax.Array:
    """(34)-(37), (40)-(43), with the prior."""
    tiny = jnp.finfo(H.dtype).tiny
    return (H * num + hyper.shape - 1) / jnp.maximum(den + hyper.rate, tiny)


def factor(M: dict[str, jax.Array], num: jax.Array, den: jax.Array, hyper: Hyper) -> jax.Array:
    """The bound for one factor g that multiplies all M_ij and M_iY; the coupling is multiplied by g."""
    den = den + hyper.coupling * gap(M) + hyper.rate * sum(M.values())
    num = num + len(M) * (hyper.shape - 1)
    return num / jnp.maximum(den, jnp.finfo(num.dtype).tiny)


def gap(M: dict[str, jax.Array]) -> Any:
    """sum_j D(M_ij || M_iY), entry by entry."""
    own, views = M[LABELS], [m for block, m in M.items() if block != LABELS]
    return sum(m * (safe_log(m) - safe_log(own)) - m + own for m in views)


def of_view(
    M: jax.Array, num: jax.Array, den: jax.Array, other: jax.Array, hyper: Hyper
) -> jax.Array:
    """The exact minimum of Lemma 6's bound, in place of (32) and (38)."""
    beta = hyper.coupling
    if not beta:
        return step(M, num, den, hyper)
    A, B = M * num + hyper.shape - 1, den + hyper.rate
    log_p, some = safe_log(other), A > 0
    log_a = safe_log(jnp.where(some, A, 1))
    u = log_lambert(log_a - jnp.log(beta) - log_p + B / beta)
    return jnp.exp(jnp.where(some, log_a - jnp.log(beta) - u, log_p - B / beta))


def log_lambert(x: jax.Array) -> jax.Array:
    """The u with u + e^u = x, that is log W(e^x), by Newton's method, which converges from any start."""
    u = jnp.where(x > 1, jnp.log(jnp.maximum(x, 1)), x)
    for _ in range(8):  # 5 are enough for float64 at every x
        u -= (u + jnp.exp(u) - x) / (1 + jnp.exp(u))
    return u


def of_labels(
    M: jax.Array, num: jax.Array, den: jax.Array, others: jax.Array, V: int, hyper: Hyper
) -> jax.Array:
    """(33), (39)."""
    num = M * num + hyper.coupling * others + hyper.shape - 1
    return num / (den + hyper.coupling * V + hyper.rate)


def best_rows(p: Params, data: Tasks, hyper: Hyper) -> jax.Array:
    """Bring every entry of R nearer to its minimum, in turn. The rows of task i see G, where X ~ R G'."""
    right = [shared.column_factor(p, b, shared.depth(hyper)) for b in data.blocks]

    def seen(i: int) -> list[jax.Array]:
        above = shared.factors_above(p, i, shared.depth(hyper))
        spaces = (shared.product(*above, shared.space(p, b, i)) for b in data.blocks)
        return [C @ M.T for C, M in zip(right, spaces, strict=True)]

    G = [dict(zip(data.blocks, seen(i), strict=True)) for i in range(data.n_tasks)]
    sums = []
    for i, at, blocks in data.parts():
        own = sum((shared.weigh(b, hyper) * jnp.sum(G[i][b], 0) for b in blocks), jnp.zeros(()))
        sums.append(jnp.broadcast_to(own, p.R[at].shape))
    every = jnp.concatenate([table for own in G for table in own.values()])
    first = data.task * (len(every) // data.n_tasks)
    return descend_divergence(
        p.R, jnp.concatenate(sums), side_by_side(data, hyper, first), every, hyper.shape, hyper.rate
    )


def side_by_side(data: Tasks, hyper: Hyper, first: Any) -> Tables:
    """The cells of all blocks, times the weights of the blocks."""
    cells, sizes = [data.cells[b] for b in data.blocks], [len(data.cells[b]) for b in data.blocks]
    before, columns = np.cumsum([0, *sizes]), np.cumsum([0, *data.n_features.values()])
    return Tables(
        jnp.stack([c.by_row.ptr + int(n) for c, n in zip(cells, before, strict=False)]),
        jnp.concatenate([c.by_row.index + int(n) for c, n in zip(cells, columns, strict=False)]),
        jnp.concatenate([shared.weigh(b, hyper) * data.y[b] for b in data.blocks]),
        first,
    )


def best_columns(p: Params, data: Tasks, hyper: Hyper, b: str) -> jax.Array:
    """Bring every entry of C of this block nearer to its minimum, in turn."""
    A, w, by_col = sweeps.rows_seen(p, data, hyper, b), shared.weigh(b, hyper), data.cells[b].by_col
    sums = jnp.broadcast_to(w * jnp.sum(A, 0), p.C[b].shape)
    x, first = w * data.y[b][by_col.order], np.zeros(len(sums), np.int32)
    cells = Tables(by_col.ptr[None], by_col.index, x, first)
    return descend_divergence(p.C[b], sums, cells, A, hyper.shape, hyper.rate)


DIVERGENCE = shared.Error(
    rows, columns, size, step, factor, of_view, of_labels, None, best_rows, best_columns
)


update = partial(sweeps.sweep, error=DIVERGENCE)
derive = partial(sweeps.derive, error=DIVERGENCE)
fold_in = partial(sweeps.fold_in, error=DIVERGENCE)


def model(data: Tasks, hyper: Hyper) -> None:
    p = shared.sample(data, hyper, "divergence")
    numpyro.factor("coupling", -coupling(p, hyper))


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> dist.Distribution:
    score = shared.score(p, query, hyper)
    # the variance of y if w y is Poisson with mean w score
    variance = jnp.maximum(score, labels.CERTAIN) / hyper.weight
    return labels.of_labels(score, query, hyper, variance)


# fmt: off
METHOD = register(Method(
    name="himlsd", cite="yang2016himls", data=Tasks, Params=Params, Hyper=Hyper, init=init,
    objective=objective, model=model, predict=predict, example=shared.example, derive=derive,
    fold_in=fold_in, prepare=shared.check, ready=shared.ready,
    solver=Solver(update=update), choose=Choose(candidates=choices),
    axes=Axes(dims=shared.DIMS, gauge=shared.gauge),
    notes=Notes(remarks=labels.remarks, traits=labels.TRAITS),
))
# fmt: on
